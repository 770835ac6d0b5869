package argocd

import (
	"slices"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/reach"
	"argosy.dev/argosy/test/stack"
)

// twoApplications deploys two Applications of acme and waits until both are compared.
func (w *argoLab) twoApplications() {
	w.Helper()
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA, w.spaceB)
	if err != nil {
		w.Fatal(err)
	}
	w.commit(map[string]string{"shop/cm.yaml": configMap("shop", "one"),
		"cart/cm.yaml": configMap("cart", "one")})
	for _, row := range w.foundation(fleet.EnvironmentID{Tenant: acme, Name: "prod-eu"}, w.spaceA,
		w.spaceB) {
		w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	}
	for name, space := range map[fleet.DeploymentName]string{"shop": w.spaceA, "cart": w.spaceB} {
		row := w.app(fleet.ApplicationID{Tenant: acme, Deployment: name, Environment: "prod-eu"},
			string(name), space, fleet.DeletionDelete, nil)
		w.apply(row, fleet.Secret{})
		w.observed(string(name)+" is Synced", row.Key, synced)
	}
}

// state is the judgement of all comparisons so far.
func (w *argoLab) state(at time.Time) mirror.Work {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.work.State(at)
}

// Argo CD hides a failing repo-server for three minutes: here it does not. The judge's two minutes
// pass on its own clock. 2.14 has the same words: see TestErrorsOfARepoServerThatDoesNotAnswer.
func TestRealArgoCDNamesASilentRepoServer(t *testing.T) {
	w := newArgoLabWith(t, "silent", stack.ArgoOptions{
		Version: stack.ArgoVersions[len(stack.ArgoVersions)-1], ControllerEnv: []string{
			"ARGOCD_REPO_ERROR_GRACE_PERIOD_SECONDS=1s",
			"ARGOCD_APPLICATION_CONTROLLER_REPO_SERVER_TIMEOUT_SECONDS=5"}})
	w.mu.Lock()
	w.work = reach.NewWork(reach.DefaultWorkLimits)
	w.mu.Unlock()
	w.twoApplications()
	later := func() time.Time { return time.Now().Add(time.Hour) }
	w.argo.RepoServer.Pause()
	w.until("the repo-server is named", func() bool {
		return w.state(later()).State == mirror.RepoServerSilent
	})
	w.argo.RepoServer.Resume()
	w.until("it answers again", func() bool { return !w.state(later()).Faulty() })
}

func TestErrorsOfARepoServerThatDoesNotAnswer(t *testing.T) {
	const lead = "Failed to load target state: "
	for message, want := range map[string]bool{
		// of a stopped one: 2.14.21 and 3.5.7
		lead + `failed to generate manifest for source 1 of 1: rpc error: code = Unavailable desc = ` +
			`connection error: desc = "error reading server preface: use of closed connection"`: true,
		lead + "failed to generate manifest for source 1 of 1: rpc error: code = DeadlineExceeded " +
			"desc = context deadline exceeded while waiting for connections to become ready": true,
		// one of several sources
		lead + "failed to generate manifest for source 2 of 3: rpc error: code = Unavailable " +
			"desc = connection error": true,
		// its own errors
		lead + "failed to generate manifest for source 1 of 1: rpc error: code = Unknown desc = " +
			"failed to list refs: rpc error: code = Unavailable desc = of a repository": false,
		lead + "failed to generate manifest for source 1 of 1: rpc error: code = Canceled": false,
		"Failed to load live state: rpc error: code = Unavailable desc = ":                 false,
		lead + "failed to get cluster version for cluster \"x\": i/o timeout":              false,
		"rpc error: code = Unavailable desc = ":                                            false,
	} {
		var o liveObject
		o.Status.Conditions = append(o.Status.Conditions, struct{ Type, Message string }{
			"ComparisonError", message})
		if got := contactOf(&engine.Live{}, false, &o); (got.RepoServer != "") != want {
			t.Errorf("%s: %+v", message, got)
		}
	}
}

// BenchmarkWedgeNoticed measures how long a stopped application-controller is unnoticed, by ten
// workers at different times of their minute, and how long its return is:
// go test ./fleet/argocd -run '^$' -bench WedgeNoticed -benchtime 1x
func BenchmarkWedgeNoticed(b *testing.B) {
	const workers = 10
	w := newArgoLabWith(b, "wedge", stack.ArgoOptions{
		Version: stack.ArgoVersions[len(stack.ArgoVersions)-1]})
	limits, all := reach.DefaultWorkLimits, [workers]*reach.Work{}
	for i := range all {
		all[i] = reach.NewWork(limits)
	}
	var answers []time.Duration
	begun := time.Now()
	// step does what each worker does every five seconds.
	step := func() {
		for i, one := range all {
			switch {
			case one.Open():
				if left, err := w.e.Probed(b.Context()); err != nil {
					b.Fatal(err)
				} else if left == "" {
					answers = append(answers, one.Answered(time.Now()))
				}
			case time.Since(begun) < time.Duration(i)*limits.Every/workers:
				// they begin at different times
			case one.Due(time.Now()):
				if err := w.e.RequestProbe(b.Context()); err != nil {
					b.Fatal(err)
				}
				one.Asked(time.Now())
			}
		}
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	// reached returns after how long each worker has the state.
	reached := func(state mirror.WorkState, from time.Time) (took []time.Duration) {
		done := map[int]bool{}
		for len(done) < workers {
			step()
			for i, one := range all {
				if !done[i] && one.State(time.Now()).State == state {
					done[i], took = true, append(took, time.Since(from))
				}
			}
			<-tick.C
		}
		slices.Sort(took)
		return took
	}
	for b.Loop() {
		reached(mirror.Working, time.Now())
		for range int(limits.Every / (500 * time.Millisecond)) {
			step()
			<-tick.C
		}
		w.argo.Controller.Pause()
		noticed := reached(mirror.ControllerStuck, time.Now())
		answered := answers
		w.argo.Controller.Resume()
		back := reached(mirror.Working, time.Now())
		slices.Sort(answered)
		b.Logf("noticed after p50 %s, max %s; back after p50 %s, max %s; %d refreshes of %s "+
			"answered in p50 %s, max %s", noticed[workers/2].Round(time.Second),
			noticed[workers-1].Round(time.Second), back[workers/2].Round(time.Second),
			back[workers-1].Round(time.Second), len(answered), engine.ProbeName,
			answered[len(answered)/2].Round(10*time.Millisecond),
			answered[len(answered)-1].Round(10*time.Millisecond))
	}
}
