package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/report"
)

const (
	rolled     = 200             // environments of the deployment
	appNeeds   = 5 * time.Second // from the write of an Application until it is Healthy
	notAnswers = 20 * time.Second
)

// muted are environments of the third wave that never answer.
var muted = []string{rolledName(20), rolledName(40), rolledName(60)}

// rolloutWaves are the numbers of environments of the waves.
var rolloutWaves = []int{5, 15, 60, 120}

// rolls measures a rollout of 200 environments in four waves, over the time that the Applications
// themselves need. Two API servers are real. A player takes Argo CD's part: each Application is
// Synced and Healthy five seconds after its write. The floor of a rollout is the sum, over its
// waves, of the longest time from the write of an Application until its report; that of the same
// change without waves is the longest such time of all. Both are measured in the run itself.
func rolls(ctx context.Context, o options) (_ *report.Figure, err error) {
	g, err := startGround(ctx)
	if err != nil {
		return nil, err
	}
	defer stopGround(g)
	c, err := g.newCrew(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.end(ctx)) }()
	var waves, floor, perWave, flat, flatFloor, cpu report.Sample
	for block := range o.blocks {
		progress("rollout, block %d of %d", block+1, o.blocks)
		if err := alternate(block, []func() error{
			func() error {
				used, err := c.cpu()
				if err != nil {
					return err
				}
				took, needed, err := c.change(ctx, true)
				if err != nil {
					return err
				}
				now, err := c.cpu()
				cpu = append(cpu, (now - used).Seconds())
				waves, floor = append(waves, took.Seconds()), append(floor, needed.Seconds())
				perWave = append(perWave, (took-needed).Seconds()/float64(len(rolloutWaves)))
				return err
			},
			func() error {
				took, needed, err := c.change(ctx, false)
				flat, flatFloor = append(flat, took.Seconds()), append(flatFloor, needed.Seconds())
				return err
			},
		}); err != nil {
			return nil, c.explain(err)
		}
	}
	f := &report.Figure{Name: "rollout", Title: fmt.Sprintf(
		"A rollout of %d environments in waves of %v", rolled, rolloutWaves)}
	f.Add(report.Against("push to rollout Done", "s", waves, floor, 1.5))
	f.Add(report.Line{Name: "overhead of a wave", Unit: "s", Ours: perWave})
	f.Add(report.Against("the same without waves", "s", flat, flatFloor, 0))
	f.Add(report.Line{Name: "CPU of a rollout", Unit: "s", Ours: cpu})
	f.Note("floor: for each wave the longest time from the write of an Application until it is "+
		"Synced and Healthy, which is %s and what the reports of the wave take; no soak", appNeeds)
	f.Note("CPU is that of argosy and PostgreSQL, from push to Done")
	return f, c.explain(c.unanswered(ctx))
}

// crew is a control plane with one deployment, and the player.
type crew struct {
	*plane
	player *player
	token  string
	last   int // release
}

func (g *ground) newCrew(ctx context.Context) (*crew, error) {
	p, err := g.preparePlane(ctx, false)
	if err != nil {
		return nil, err
	}
	c := &crew{plane: p, token: "bench-" + strings.Repeat("0123456789", 4)}
	p.tokenFile = filepath.Join(p.dir, "token")
	if err := writeFile([]byte(c.token), p.tokenFile); err != nil {
		return nil, err
	}
	files := map[string]string{"fleet/tenants/acme.yaml": `apiVersion: argosy.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec:
  owners: ["github:acme-leads"]
  quota: {environments: 1000, deployments: 10, applications: 1000}
  repositories: [https://git.example.com/acme/]
  clusters: [.acme.example.com]
`}
	for i := range rolled {
		name := rolledName(i)
		if err := writeFile([]byte("token-of-"+name), p.dir, "secrets", "acme", name,
			"token"); err != nil {
			return nil, err
		}
		files["tenants/acme/environments/"+name+".yaml"] = fmt.Sprintf(
			`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: %[1]s, labels: {of: checkout, wave: wave-%[2]d}}
spec:
  cluster: {server: "https://%[1]s.acme.example.com:6443", credentialsRef: {name: %[1]s}}
  namespaces: [apps]
  region: region-%[3]d
`, name, waveOf(i)+1, i%2)
	}
	if err := p.start(ctx, g.host, time.Hour); err != nil {
		return nil, err
	}
	c.player = g.play(ctx, p.arena)
	if err := c.commit(ctx, "environments", files); err != nil {
		return nil, err
	}
	progress("%d environments", rolled)
	_, _, err = c.change(ctx, false)
	return c, c.explain(err)
}

func (c *crew) end(ctx context.Context) error {
	if c.player != nil {
		c.player.stop()
	}
	return c.plane.end(ctx)
}

func (c *crew) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w%s", err, c.diagnose())
}

func rolledName(i int) string { return fmt.Sprintf("site-%03d", i) }

// waveOf returns the wave of environment i.
func waveOf(i int) int {
	for w, n := range rolloutWaves {
		if i < n {
			return w
		}
		i -= n
	}
	panic("more environments than waves have")
}

// declare commits and pushes a new release of the deployment.
func (c *crew) declare(ctx context.Context, waves bool, rest string) (release string, err error) {
	c.last++
	release = fmt.Sprintf("v1.%d.0", c.last)
	text := fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata: {name: checkout}
spec:
  source: {repoURL: https://git.example.com/acme/checkout, path: deploy, targetRevision: %s}
  destination: {environmentSelector: {matchLabels: {of: checkout}}, namespace: apps}
`, release)
	text += "  rollout:\n" + rest + "    waves:"
	if !waves {
		text += " []"
	}
	for w := range rolloutWaves {
		if waves {
			text += fmt.Sprintf("\n      - {name: wave-%[1]d, environmentSelector: "+
				"{matchLabels: {wave: wave-%[1]d}}}", w+1)
		}
	}
	if err := c.commit(ctx, "release "+release, map[string]string{
		"tenants/acme/deployments/checkout.yaml": text + "\n"}); err != nil {
		return "", err
	}
	return release, c.push(ctx)
}

// change brings a release to all environments, and returns what that took from the push on, and
// what the Applications themselves needed.
func (c *crew) change(ctx context.Context, waves bool) (took, needed time.Duration, err error) {
	limit, cancel := context.WithTimeout(ctx, patience+time.Duration(rolled)*perApplication+
		2*time.Duration(len(rolloutWaves))*appNeeds)
	defer cancel()
	begun := time.Now()
	release, err := c.declare(limit, waves, "")
	if err != nil {
		return 0, 0, err
	}
	if waves {
		_, err = c.await(limit, mirror.RolloutDone)
		took = time.Since(begun)
	}
	if err == nil {
		err = c.player.await(limit, release)
	}
	if !waves {
		took = time.Since(begun)
	}
	if err != nil {
		return 0, 0, err
	}
	longest := make([]time.Duration, len(rolloutWaves))
	for i := range rolled {
		w := waveOf(i)
		if !waves {
			w = 0
		}
		longest[w] = max(longest[w], c.player.needed(rolledName(i), release))
	}
	for _, n := range longest {
		needed += n
	}
	pacing.Sleep(ctx, breath)
	return took, needed, nil
}

// await waits until the newest rollout, which began after the last push, has a state.
func (c *crew) await(ctx context.Context, state mirror.RolloutState) (r mirror.Rollout,
	err error) {
	head, err := c.repo.Head(ctx, "main")
	if err != nil {
		return r, err
	}
	for {
		err := c.notify.QueryRow(ctx,
			`SELECT body FROM rollouts ORDER BY begun_at DESC LIMIT 1`).Scan(&r)
		switch {
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return r, err
		case err == nil && string(r.Revision) == head && r.State == state:
			return r, nil
		}
		if !pacing.Sleep(ctx, 20*time.Millisecond) {
			return r, fmt.Errorf("the rollout is %s, not %s: %s", r.State, state, r.Message)
		}
	}
}

// unanswered lets three environments of the third wave answer nothing, and prints what the command
// line shows of the rollout at its end.
func (c *crew) unanswered(ctx context.Context) error {
	progress("%d environments that never answer", len(muted))
	limit, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	c.player.mute(muted...)
	begun := time.Now()
	release, err := c.declare(limit, true, fmt.Sprintf("    timeout: %s\n", notAnswers))
	if err != nil {
		return err
	}
	r, err := c.await(limit, mirror.RolloutReturned)
	if err != nil {
		return err
	}
	for _, name := range muted {
		if !strings.Contains(r.Message, name+" (not Synced and Healthy after ") {
			return fmt.Errorf("void: the rollout does not name %s: %s", name, r.Message)
		}
	}
	for _, m := range r.Members {
		if m.Wave == len(rolloutWaves)-1 && c.player.had(string(m.Environment), release) {
			return fmt.Errorf("void: %s of the last wave has had the change", m.Environment)
		}
	}
	fmt.Printf("\n%d environments, of which %d never answer (timeout %s): Returned after %s\n",
		rolled, len(muted), notAnswers, time.Since(begun).Round(100*time.Millisecond))
	for _, args := range [][]string{{"get", "rollouts"}, {"describe", "rollout",
		"acme/checkout"}} {
		if err := c.show(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// show prints a command and its output, which is cut after 40 lines.
func (c *crew) show(ctx context.Context, args ...string) error {
	const most = 40
	cmd := exec.CommandContext(ctx, argosyBinary, args...)
	cmd.Env = append(os.Environ(), "ARGOSY_SERVER="+c.listen, "ARGOSY_TOKEN="+c.token)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("argosy %s: %w", strings.Join(args, " "), err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fmt.Printf("\n$ argosy %s\n%s\n", strings.Join(args, " "),
		strings.Join(lines[:min(len(lines), most)], "\n"))
	if more := len(lines) - most; more > 0 {
		fmt.Printf("(%d more lines)\n", more)
	}
	return nil
}

// player plays Argo CD: it compares each Application that is written, and reports it Synced and
// Healthy after appNeeds.
type player struct {
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	muted  map[string]bool
	at     map[string]map[string]*span // by environment and release
	failed error
}

// span is from the write of an Application until it is reported Healthy.
type span struct{ written, healthy time.Time }

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
	Resource: "applications"}

// play begins to play on both API servers.
func (g *ground) play(ctx context.Context, a *arena) *player {
	ctx, cancel := context.WithCancel(ctx)
	p := &player{cancel: cancel, muted: map[string]bool{}, at: map[string]map[string]*span{}}
	for i, c := range g.clusters {
		config := c.REST()
		config.QPS, config.Burst = 1000, 1000
		objects := dynamic.NewForConfigOrDie(config).Resource(applications).Namespace(
			a.engines[i].Namespace)
		p.all.Go(func() {
			for ctx.Err() == nil { // the API server ends a watch now and then
				p.fail(ctx, p.follow(ctx, objects))
			}
		})
	}
	return p
}

func (p *player) stop() {
	p.cancel()
	p.all.Wait()
}

func (p *player) follow(ctx context.Context, objects dynamic.ResourceInterface) error {
	seconds := int64(7200)
	events, err := objects.Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer events.Stop()
	var patches sync.WaitGroup
	defer patches.Wait()
	for e := range events.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("watch: %+v", e.Object)
		}
		switch s := p.written(o); {
		case o.GetAnnotations()[refresh] != "":
			patches.Go(func() { p.refreshed(ctx, objects, o.GetName()) })
		case s != nil:
			patches.Go(func() { p.report(ctx, objects, o, s) })
		}
	}
	return nil
}

const refresh = "argocd.argoproj.io/refresh"

// refreshed answers a request for a comparison, as the probe of an engine makes.
func (p *player) refreshed(ctx context.Context, objects dynamic.ResourceInterface, name string) {
	_, err := objects.Patch(ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, refresh), metav1.PatchOptions{})
	p.fail(ctx, err)
}

// fail keeps an error for await.
func (p *player) fail(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = err
	}
}

// written returns the new span of an Application whose release it has not seen, or nil.
func (p *player) written(o *unstructured.Unstructured) *span {
	release, _, _ := unstructured.NestedString(o.Object, "spec", "source", "targetRevision")
	env := o.GetLabels()["argosy.dev/environment"]
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.at[env]
	if at == nil {
		at = map[string]*span{}
		p.at[env] = at
	}
	now, _, _ := unstructured.NestedString(o.Object, "status", "sync", "revision")
	switch s := at[release]; {
	case s == nil: // a new release
	case now == release || s.healthy.IsZero():
		return nil // reported, or about to be
	}
	at[release] = &span{written: time.Now()} // also one that was returned to
	if p.muted[env] {
		return nil
	}
	return at[release]
}

// report writes what Argo CD would: first the comparison, then the health.
func (p *player) report(ctx context.Context, objects dynamic.ResourceInterface,
	o *unstructured.Unstructured, s *span) {
	spec, _ := o.Object["spec"].(map[string]any)
	source, _ := spec["source"].(map[string]any)
	for _, state := range []struct{ sync, health string }{{"OutOfSync", "Progressing"},
		{"Synced", "Healthy"}} {
		patch, err := json.Marshal(map[string]any{"status": map[string]any{
			"health":       map[string]any{"status": state.health},
			"reconciledAt": time.Now().UTC().Format(time.RFC3339),
			"sync": map[string]any{"status": state.sync, "revision": source["targetRevision"],
				"comparedTo": map[string]any{"source": source,
					"destination": spec["destination"]}}}})
		if err == nil {
			_, err = objects.Patch(ctx, o.GetName(), types.MergePatchType, patch,
				metav1.PatchOptions{})
		}
		if err != nil {
			p.fail(ctx, err)
			return
		}
		if state.health == "Progressing" && !pacing.Sleep(ctx, time.Until(
			s.written.Add(appNeeds))) {
			return
		}
	}
	p.mu.Lock()
	s.healthy = time.Now()
	p.mu.Unlock()
}

// mute lets environments answer nothing from now on.
func (p *player) mute(environments ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, env := range environments {
		p.muted[env] = true
	}
}

// needed returns what the Application of an environment needed for a release; 0: it has not been
// Healthy with it.
func (p *player) needed(env, release string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.at[env][release]
	if s == nil || s.healthy.IsZero() {
		return 0
	}
	return s.healthy.Sub(s.written)
}

// had reports whether the Application of an environment was ever written with a release.
func (p *player) had(env, release string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[env][release] != nil
}

// await waits until all environments are Healthy with a release.
func (p *player) await(ctx context.Context, release string) error {
	for {
		left := 0
		for i := range rolled {
			if p.needed(rolledName(i), release) == 0 {
				left++
			}
		}
		p.mu.Lock()
		err := p.failed
		p.mu.Unlock()
		if err != nil || left == 0 {
			return err
		}
		if !pacing.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%d environments are not Healthy with %s", left, release)
		}
	}
}
