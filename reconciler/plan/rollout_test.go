package plan

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/rollout"
)

const twoWaves = "  rollout: {waves: [{name: dev, environments: [staging], soak: 10m}]}\n"

// rollingHouse is a fleet whose checkout goes to staging, and to prod 10 minutes later.
func rollingHouse(t *testing.T, rest string) *house {
	h := newHouse(t)
	h.apply(small().with(checkoutFile, deploymentFile("checkout", "acme/checkout",
		"environments: [prod, staging]", twoWaves+rest)))
	return h
}

// roll takes the next step of checkout's rollout, in which the engines have applied every row and
// found it Synced and Healthy but those of bad, which are Degraded.
func (h *house) roll(bad ...string) (mirror.Rollout, *Plan) {
	h.t.Helper()
	open := h.w.Rollouts()
	if len(open) != 1 {
		h.t.Fatalf("%d rollouts are open", len(open))
	}
	f := mirror.RolloutFacts{Now: h.now, Status: map[fleet.ObjectKey]mirror.RolloutStatus{}}
	frozen := h.w.FrozenIn(open[0], h.now)
	for k, r := range h.rows {
		at := mirror.RolloutStatus{Hash: r.Manifest.Hash, Apply: mirror.ApplyApplied,
			Compared: r.Manifest.Hash, Sync: mirror.SyncSynced, Health: mirror.HealthHealthy,
			Frozen: frozen[k]}
		if strings.Contains(strings.Join(bad, " "), string(r.Environment)) && r.Environment != "" {
			at.Health, at.Message = mirror.HealthDegraded, "crash loop"
		}
		f.Status[k] = at
	}
	next, changes := rollout.Next(open[0], f)
	if !changes {
		return next, nil
	}
	step := mirror.RolloutStep{Rollout: next, Before: map[fleet.EnvironmentName]fleet.Manifest{}}
	for _, m := range next.Members {
		if m.Before != nil {
			step.Before[m.Environment] = h.kept[m.Before.Hash]
		}
	}
	return next, h.again(func(r *Request) {
		r.Rollouts = map[fleet.DeploymentID]mirror.RolloutStep{next.Of(): step}
	})
}

// keep remembers the present manifests, as the store does at the begin of a rollout.
func (h *house) keep() {
	if h.kept == nil {
		h.kept = map[string]fleet.Manifest{}
	}
	for _, r := range h.rows {
		h.kept[r.Manifest.Hash] = r.Manifest
	}
}

func (h *house) after(d time.Duration) { h.now = h.now.Add(d) }

func TestAChangeGoesInWaves(t *testing.T) {
	h := rollingHouse(t, "")
	prod, staging := h.hashOf("checkout@prod"), h.hashOf("checkout@staging")
	h.keep()
	p := h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	wantActions(t, p, "wave Application checkout@prod", "wave Application checkout@staging")
	for _, c := range p.Rows {
		want := map[string]string{"checkout@staging": "wave 1 of 2 (dev): begins at once",
			"checkout@prod": "wave 2 of 2 (rest): begins once wave 1 (dev) is Synced and Healthy for " +
				"10m"}[c.Subject]
		if c.Note != want {
			t.Errorf("%s: %q, want %q", c.Subject, c.Note, want)
		}
	}
	if len(p.Holds) > 0 || len(p.Record().Rows)+len(p.Record().Held) > 0 || h.w.Freezes() ||
		h.w.AwaitsApproval() {
		t.Error("the begin of a rollout holds or writes something")
	}
	h.restart()
	if p := h.again(); len(p.Rows)+len(p.Rollouts) > 0 {
		t.Errorf("planned again, it changes %s", actions(p))
	}
	_, p = h.roll()
	wantActions(t, p, "update Application checkout@staging")
	h.restart()
	if r, _ := h.roll(); r.Waves[0].State != mirror.WaveSoaking ||
		h.hashOf("checkout@prod") != prod {
		t.Errorf("%+v", r.Waves)
	}
	h.after(9 * time.Minute)
	if _, p := h.roll(); p != nil {
		t.Errorf("it does not soak: %s", actions(p))
	}
	h.after(time.Minute)
	_, p = h.roll()
	wantActions(t, p, "update Application checkout@prod")
	r, _ := h.roll()
	if r.State != mirror.RolloutDone || len(h.w.Rollouts()) > 0 ||
		h.hashOf("checkout@prod") == prod || h.hashOf("checkout@staging") == staging {
		t.Errorf("%s %s", r.State, r.Message)
	}
	fresh := newHouse(t)
	fresh.apply(h.files)
	if got, want := h.desired(), fresh.desired(); !maps.Equal(got, want) {
		t.Error("the rows are not those of a fleet that had no rollout")
	}
}

func TestAFailedWaveReturns(t *testing.T) {
	h := rollingHouse(t, "")
	before := h.desired()
	h.keep()
	h.apply(h.files.edit(checkoutFile, "acme/checkout", "acme/other"))
	h.roll()
	if r, _ := h.roll("staging"); r.State != mirror.RolloutRunning {
		t.Fatalf("it has no patience: %s", r.Message)
	}
	h.after(time.Minute)
	r, p := h.roll("staging")
	if r.State != mirror.RolloutReturning || !strings.Contains(actions(p),
		"update Application checkout@staging") {
		t.Fatalf("%s %s: %s", r.State, r.Message, actions(p))
	}
	h.work()
	if got := h.desired(); !maps.Equal(got, before) {
		t.Errorf("the rows are not those of before:\n%v\n%v", got, before)
	}
	h.restart()
	r, _ = h.roll()
	if r.State != mirror.RolloutReturned ||
		!strings.Contains(r.Message, "staging (Degraded: crash") {
		t.Errorf("%s %s", r.State, r.Message)
	}
	if p := h.again(); len(p.Rows)+len(p.Rollouts) > 0 {
		t.Errorf("planned again, it changes %s", actions(p))
	}
	p = h.apply(h.files.edit(checkoutFile, "v1}", "v3}"))
	wantActions(t, p, "wave Application checkout@prod", "wave Application checkout@staging")
	if len(p.Rollouts) != 2 || h.w.Rollouts()[0].State != mirror.RolloutRunning {
		t.Errorf("%+v", p.Rollouts)
	}
	p = h.apply(small().with(checkoutFile, deploymentFile("checkout", "acme/checkout",
		"environments: [prod, staging]", twoWaves)))
	if len(h.w.Rollouts()) > 0 || strings.Contains(actions(p), "Application") {
		t.Errorf("a withdrawn change is still in %+v: %s", h.w.Rollouts(), actions(p))
	}
}

func TestASecondChangeReplacesTheFirst(t *testing.T) {
	h := rollingHouse(t, "")
	good := h.hashOf("checkout@staging")
	h.keep()
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	h.roll()
	first := h.w.Rollouts()[0]
	p := h.apply(h.files.edit(checkoutFile, "v2}", "v3}"))
	wantActions(t, p, "wave Application checkout@prod", "wave Application checkout@staging")
	now := h.w.Rollouts()[0]
	if now.ID == first.ID || p.Rollouts[0].State != mirror.RolloutReplaced &&
		p.Rollouts[1].State != mirror.RolloutReplaced {
		t.Errorf("%+v", p.Rollouts)
	}
	if m := now.Members[now.Member("staging")]; m.Before.Hash != good {
		t.Error("the last good state is not that of before the first change")
	}
	// a revert leads back at once
	p = h.apply(h.files.edit(checkoutFile, "v3}", "v1}"))
	wantActions(t, p, "wave Application checkout@staging")
	if r := h.w.Rollouts()[0]; len(r.Waves) != 1 || r.Waves[0].Name != rollout.BackWave {
		t.Errorf("%+v", r.Waves)
	}
	_, p = h.roll()
	wantActions(t, p, "update Application checkout@staging")
	if h.hashOf("checkout@staging") != good {
		t.Error("it is not back")
	}
}

func TestWithoutWavesTheChangeReachesAll(t *testing.T) {
	h := rollingHouse(t, "")
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	p := h.apply(h.files.edit(checkoutFile, twoWaves, ""))
	wantActions(t, p, "update Application checkout@prod", "update Application checkout@staging")
	if len(h.w.Rollouts()) > 0 {
		t.Errorf("%+v", h.w.Rollouts())
	}
}

func TestADefaultGivesWavesToAllDeployments(t *testing.T) {
	h := newHouse(t)
	h.apply(small().with("tenants/acme/defaults.yaml", defaultsFile("  rollout: {waves: "+
		"[{name: dev, environmentSelector: {matchLabels: {tier: dev}}}]}\n")))
	p := h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	wantActions(t, p, "wave Application checkout@prod", "wave Application checkout@staging")
	p = h.apply(h.files.edit(checkoutFile, "app}\n", "app}\n  rollout: {waves: []}\n"))
	wantActions(t, p, "update Application checkout@prod", "update Application checkout@staging")
}

func TestAFreezeHoldsTheWaveOfItsEnvironments(t *testing.T) {
	h := newHouse(t)
	h.apply(small().with("fleet/tenants/acme.yaml", tenantFile("acme",
		fmt.Sprintf(weekend, ofProd))).with(checkoutFile, deploymentFile("checkout",
		"acme/checkout", "environments: [prod, staging]",
		"  rollout: {waves: [{name: dev, environments: [staging]}]}\n")))
	h.now = time.Date(2026, 11, 20, 19, 0, 0, 0, time.UTC)
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	h.roll()
	r, p := h.roll()
	if !strings.Contains(r.Message, "freeze weekend") || strings.Contains(actions(p), "prod") {
		t.Errorf("%q: %s", r.Message, actions(p))
	}
	h.monday()
	_, p = h.roll()
	wantActions(t, p, "update Application checkout@prod")
}

func TestARemovedEnvironmentLeavesItsRollout(t *testing.T) {
	h := rollingHouse(t, "")
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	p := h.apply(h.files.edit(checkoutFile, "[prod, staging]", "[staging]"))
	if got := actions(p); !strings.Contains(got, "delete Application checkout@prod") {
		t.Error(got)
	}
	if r := h.w.Rollouts()[0]; len(r.Members) != 1 || r.Member("prod") >= 0 {
		t.Errorf("%+v", r.Members)
	}
}

func TestNoEnvironmentOfARunningRolloutMoves(t *testing.T) {
	h := rollingHouse(t, "")
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	h.roll()
	for _, env := range []string{"staging", "prod"} {
		id := fleet.EnvironmentID{Tenant: "acme", Name: fleet.EnvironmentName(env)}
		pl, _ := h.w.state.PlacementOf(fleet.ApplicationID{Tenant: "acme", Deployment: "checkout",
			Environment: id.Name})
		to := map[fleet.EngineName]fleet.EngineName{"eu-1": "eu-2", "eu-2": "eu-1"}[pl.Engine]
		p := h.compute(h.files, func(r *Request) {
			r.Revision, r.Relation = h.w.Revision(), mirror.RelationSame
			r.Moves = map[fleet.SliceID]mirror.MoveRequest{id.Slice(""): {Environment: id, To: to}}
		})
		if len(p.Begun) > 0 || !strings.Contains(fmt.Sprint(p.Refused), "checkout") {
			t.Errorf("%s: %v", env, p.Refused)
		}
	}
}

// lose loses the mirror. The engines show the Applications that they have, and hidden ones are
// behind an agent that shows none.
func (h *house) lose(hidden ...fleet.EngineName) func(*Request) {
	h.t.Helper()
	lost := mirror.Snapshot{}
	for _, p := range h.w.state.Placements.Base() {
		lost.Placements = append(lost.Placements, p)
	}
	shown := &mirror.Recovered{Read: map[fleet.EngineName]bool{"eu-1": true, "eu-2": true},
		Hashes: map[fleet.ObjectKey]string{}, Deployments: map[fleet.DeploymentID]bool{}}
	for _, e := range hidden {
		shown.Read[e] = false
	}
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectApplication && shown.Read[k.Engine] {
			shown.Add(k, r.Application().Deployed(), r.Manifest.Hash)
		}
	}
	w, err := RestoreAppliedState(lost)
	if err != nil {
		h.t.Fatal(err)
	}
	h.w, h.rows = w, map[fleet.ObjectKey]mirror.Row{}
	h.files = tree{}
	return func(r *Request) { r.Recovered = shown }
}

// An Application that its engine has as declared does not wait after a loss of the mirror.
func TestAfterALossOfTheMirrorWavesHoldNothingThatEnginesHave(t *testing.T) {
	h := rollingHouse(t, "")
	before, files := h.desired(), h.files
	shown := h.lose()
	p := h.apply(files, shown)
	if got := h.desired(); !maps.Equal(got, before) || len(h.w.Rollouts()) > 0 ||
		p.RevisionHold != nil {
		t.Errorf("%s %+v", actions(p), h.w.Rollouts())
	}
}

// A rollout whose state is lost with the mirror holds its own Applications, each that does not have
// the change; a person lets it begin again.
func TestAfterALossOfTheMirrorARolloutHoldsItsOwnApplications(t *testing.T) {
	for name, hidden := range map[string][]fleet.EngineName{
		"engines show their Applications": nil, "agents show none": {"eu-1", "eu-2"}} {
		t.Run(name, func(t *testing.T) {
			h := rollingHouse(t, "")
			h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
			h.roll() // staging has the change
			files := h.files
			shown := h.lose(hidden...)
			p := h.apply(files, shown)
			waits := "prod"
			if hidden != nil {
				waits = "staging prod" // neither is known
			}
			if p.RevisionHold != nil || !strings.Contains(actions(p), "create Application cart") {
				t.Fatalf("%+v\n%s", p.RevisionHold, actions(p))
			}
			for _, env := range []string{"staging", "prod"} {
				if (h.hashOf("checkout@"+env) == "") != strings.Contains(waits, env) {
					t.Errorf("%s: %s", env, actions(p))
				}
			}
			r := h.w.Rollouts()[0]
			if r.State != mirror.RolloutPaused || len(r.Members) != len(strings.Fields(waits)) ||
				!strings.Contains(r.Message, "argosy rollouts resume acme/checkout") {
				t.Errorf("%+v", r)
			}
			projects := h.projects()
			h.restart()
			if p := h.again(); len(p.Rows)+len(p.Rollouts) > 0 {
				t.Errorf("planned again, it changes %s", actions(p))
			}
			h.resume(t)
			for range 6 {
				if len(h.w.Rollouts()) > 0 {
					h.roll()
					h.after(10 * time.Minute)
				}
			}
			fresh := newHouse(t)
			fresh.apply(files)
			if got, want := h.desired(), fresh.desired(); !maps.Equal(got, want) {
				t.Errorf("not the rows of a fleet without a rollout:\n%v\n%v", got, want)
			}
			if got := h.projects(); !maps.Equal(got, projects) {
				t.Error("an AppProject has shrunk under an Application that waits")
			}
		})
	}
}

// An Application that waits after a loss of the mirror may be removed.
func TestALostApplicationThatIsRemovedNoLongerCounts(t *testing.T) {
	h := rollingHouse(t, "")
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	files := h.files
	h.apply(files, h.lose("eu-1", "eu-2"))
	h.restart()
	h.apply(h.files.without(checkoutFile))
	fresh := newHouse(t)
	fresh.apply(h.files)
	if got, want := h.desired(), fresh.desired(); !maps.Equal(got, want) ||
		len(h.w.Rollouts()) > 0 {
		t.Errorf("%v\n%v\n%+v", got, want, h.w.Rollouts())
	}
	count := func(h *house) int {
		n, _ := h.w.state.ApplicationsOf.Get("acme")
		return n
	}
	if got, want := count(h), count(fresh); got != want {
		t.Errorf("%d Applications count, not %d", got, want)
	}
}

// resume lets a paused rollout go on.
func (h *house) resume(t *testing.T) {
	t.Helper()
	r := h.w.Rollouts()[0]
	next, changes := rollout.Next(r, mirror.RolloutFacts{Now: h.now,
		Decisions: map[string][]mirror.RolloutDecision{r.ID: {{N: 1,
			Verb: mirror.ResumeRollout, By: "eve"}}}})
	if !changes {
		t.Fatal("it does not resume")
	}
	h.again(func(r *Request) {
		r.Rollouts = map[fleet.DeploymentID]mirror.RolloutStep{next.Of(): {Rollout: next}}
	})
}

// projects returns the hashes of the AppProjects.
func (h *house) projects() map[fleet.ObjectKey]string {
	out := map[fleet.ObjectKey]string{}
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectProject {
			out[k] = r.Manifest.Hash
		}
	}
	return out
}

// move requests a move of an environment of acme with the manifests that the store has.
func (h *house) move(env fleet.EnvironmentName, m mirror.MoveRequest) *Plan {
	h.t.Helper()
	id := fleet.EnvironmentID{Tenant: "acme", Name: env}
	m.Environment = id
	moves := map[fleet.SliceID]mirror.MoveRequest{id.Whole(): m}
	rows, of := h.w.Carried(moves)
	known := map[string]fleet.Manifest{}
	for _, k := range rows {
		if r, exists := h.rows[k]; exists {
			known[r.Manifest.Hash] = r.Manifest
		}
	}
	for _, r := range of {
		for _, m := range r.Members {
			if m.Before != nil {
				known[m.Before.Hash] = h.kept[m.Before.Hash]
			}
		}
	}
	p := h.again(func(r *Request) {
		r.Moves, r.Manifests = moves, known
		if m.Evacuates {
			on, _ := h.w.state.Placements.Get(id.Whole())
			r.Evacuated = []fleet.EngineName{on.Engine}
		}
	})
	for _, m := range p.LastGood {
		h.kept[m.Manifest.Hash] = m.Manifest
	}
	return p
}

// on returns the engine of an environment of acme, and the other one.
func (h *house) on(env fleet.EnvironmentName) (on, other fleet.EngineName) {
	h.t.Helper()
	pl, _ := h.w.state.Placements.Get(fleet.EnvironmentID{Tenant: "acme", Name: env}.Whole())
	if pl.Engine == "eu-1" {
		return pl.Engine, "eu-2"
	}
	return pl.Engine, "eu-1"
}

// revisionOf returns the revision that the wanted Application of checkout has, and its engine.
func (h *house) revisionOf(env fleet.EnvironmentName) string {
	h.t.Helper()
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectApplication && r.Deployment == "checkout" && !r.Unwanted &&
			r.Environment == env {
			return string(k.Engine) + " " + renderedOf(h.t, r.Manifest).Sources[0].TargetRevision
		}
	}
	return "none"
}

func (h *house) decide(verb mirror.RolloutVerb) {
	h.t.Helper()
	r := h.w.Rollouts()[0]
	next, changes := rollout.Next(r, h.factsWith(r, verb))
	if !changes {
		h.t.Fatalf("%s changes nothing in state %s", verb, r.State)
	}
	step := mirror.RolloutStep{Rollout: next, Before: map[fleet.EnvironmentName]fleet.Manifest{}}
	for _, m := range next.Members {
		if m.Before != nil {
			step.Before[m.Environment] = h.kept[m.Before.Hash]
		}
	}
	h.again(func(r *Request) {
		r.Rollouts = map[fleet.DeploymentID]mirror.RolloutStep{next.Of(): step}
	})
}

// factsWith are facts with a decision, while all Applications are as their rows.
func (h *house) factsWith(r mirror.Rollout, verb mirror.RolloutVerb) mirror.RolloutFacts {
	f := mirror.RolloutFacts{Now: h.now, Status: map[fleet.ObjectKey]mirror.RolloutStatus{},
		Decisions: map[string][]mirror.RolloutDecision{
			r.ID: {{N: r.Decided + 1, Verb: verb, By: "eve"}}}}
	for k, row := range h.rows {
		f.Status[k] = mirror.RolloutStatus{Hash: row.Manifest.Hash, Apply: mirror.ApplyApplied,
			Compared: row.Manifest.Hash, Sync: mirror.SyncSynced, Health: mirror.HealthHealthy}
	}
	return f
}

// settled fails if another replica that plans the same revision makes a change.
func (h *house) settled() {
	h.t.Helper()
	h.work()
	loads := func() map[fleet.EngineName]fleet.EngineLoad {
		all := maps.Clone(h.w.state.Loads.Base())
		maps.DeleteFunc(all, func(_ fleet.EngineName, l fleet.EngineLoad) bool {
			return l == fleet.EngineLoad{}
		})
		return all
	}
	before := loads()
	h.restart()
	if now := loads(); !maps.Equal(before, now) {
		h.t.Errorf("another replica counts %v, not %v", now, before)
	}
	if p := h.again(); len(p.Rows)+len(p.Rollouts) > 0 {
		h.t.Errorf("planned again, it changes %s and %d rollouts", actions(p), len(p.Rollouts))
	}
}

// An environment of a returned rollout moves with the last good state of its Applications. The
// change goes on to wait there, returns from there, and reaches the new engine in the end.
func TestAnEnvironmentOfAReturnedRolloutMovesAsItIs(t *testing.T) {
	for name, request := range map[string]mirror.MoveRequest{"by a person": {},
		"by a drain": {Drain: true}, "by an evacuation": {Evacuates: true}} {
		t.Run(name, func(t *testing.T) {
			h := rollingHouse(t, "")
			h.keep()
			h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
			h.roll()
			h.after(time.Hour)
			h.roll("staging")
			h.after(time.Hour)
			h.roll("staging")
			if r, _ := h.roll(); r.State != mirror.RolloutReturned {
				t.Fatal(r.State, r.Message)
			}
			var to fleet.EngineName
			for _, env := range []fleet.EnvironmentName{"staging", "prod"} {
				on, other := h.on(env)
				if request.Drain {
					engine := "fleet/engines/" + string(on) + ".yaml"
					h.apply(h.files.with(engine, engineFile(string(on), "eu",
						"  state: Draining\n")))
				}
				to = other
				request.To = to
				p := h.move(env, request)
				if len(p.Begun) != 1 {
					t.Fatalf("%s: %v %v", env, p.Refused, p.Placements)
				}
				if got, want := h.revisionOf(env), string(to)+" v1"; got != want {
					t.Errorf("%s has %s, not %s: %s", env, got, want, actions(p))
				}
				h.settled()
				if request.Drain {
					h.apply(h.files.with("fleet/engines/"+string(on)+".yaml",
						engineFile(string(on), "eu", "")))
				}
			}
			r := h.w.Rollouts()[0]
			if len(r.Members) != 2 || r.State != mirror.RolloutReturned {
				t.Fatalf("%+v", r)
			}
			h.decide(mirror.ResumeRollout)
			h.roll()
			if got := h.revisionOf("staging"); !strings.HasSuffix(got, " v2") {
				t.Errorf("resumed, staging has %s", got)
			}
			h.after(time.Hour)
			h.roll("staging")
			h.after(time.Hour)
			h.roll("staging")
			if got := h.revisionOf("staging"); !strings.HasSuffix(got, " v1") {
				t.Errorf("failed again, staging has %s", got)
			}
			h.roll()
			h.decide(mirror.ResumeRollout)
			for range 4 {
				if len(h.w.Rollouts()) > 0 {
					h.roll()
					h.after(11 * time.Minute)
				}
			}
			if got := h.revisionOf("prod"); len(h.w.Rollouts()) > 0 || got != string(to)+" v2" {
				t.Errorf("in the end prod has %s: %+v", got, h.w.Rollouts())
			}
			h.settled()
			if n := h.count(fleet.ObjectApplication); n != 3 {
				t.Errorf("%d Applications", n)
			}
		})
	}
}

// count returns the number of wanted rows of a kind.
func (h *house) count(kind fleet.ObjectKind) (n int) {
	for k, r := range h.rows {
		if k.Kind == kind && !r.Unwanted {
			n++
		}
	}
	return n
}

// While a person has paused a rollout, environments move: one with the change keeps the last good
// state that it may return to, also when the move is undone.
func TestAnEnvironmentOfAPausedRolloutMovesAndReturns(t *testing.T) {
	for _, undone := range []bool{false, true} {
		h := rollingHouse(t, "")
		before := h.desired()
		h.keep()
		h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
		h.roll()
		h.decide(mirror.PauseRollout)
		for _, env := range []fleet.EnvironmentName{"staging", "prod"} {
			on, other := h.on(env)
			want := map[fleet.EnvironmentName]string{"staging": " v2", "prod": " v1"}[env]
			p := h.move(env, mirror.MoveRequest{To: other})
			if got := h.revisionOf(env); len(p.Begun) != 1 || got != string(other)+want {
				t.Fatalf("%s has %s: %v", env, got, p.Refused)
			}
			if undone {
				p = h.move(env, mirror.MoveRequest{To: on, Undo: true})
				if got := h.revisionOf(env); len(p.Begun) != 1 || got != string(on)+want {
					t.Fatalf("undone, %s has %s: %v", env, got, p.Refused)
				}
			}
			h.settled()
		}
		h.decide(mirror.AbortRollout)
		if got := h.revisionOf("staging"); !strings.HasSuffix(got, " v1") {
			t.Errorf("aborted, staging has %s: %+v", got, h.w.Rollouts()[0].Members)
		}
		if undone && !maps.Equal(h.desired(), before) {
			t.Error("the rows are not those of before")
		}
		h.settled()
	}
}

// An evacuation does not wait for a rollout: the engine of its Applications does not answer.
func TestAnEvacuationDoesNotWaitForARollout(t *testing.T) {
	h := rollingHouse(t, "")
	h.keep()
	h.apply(h.files.edit(checkoutFile, "v1}", "v2}"))
	h.roll()
	for env, want := range map[fleet.EnvironmentName]string{"staging": " v2", "prod": " v1"} {
		_, other := h.on(env)
		p := h.move(env, mirror.MoveRequest{Evacuates: true})
		if got := h.revisionOf(env); len(p.Begun) != 1 || got != string(other)+want {
			t.Errorf("%s has %s: %v", env, got, p.Refused)
		}
		h.settled()
	}
	h.after(time.Hour)
	h.roll("staging")
	h.after(time.Hour)
	h.roll("staging")
	if got := h.revisionOf("staging"); !strings.HasSuffix(got, " v1") {
		t.Errorf("failed, staging has %s", got)
	}
}
