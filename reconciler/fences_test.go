package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// pods are the controllers of the engine that is fenced. fleet/argocd tests the real ones.
type pods struct {
	mu       sync.Mutex
	asked    func(call string) error // of the replica that is to die; nil: none
	away     *atomic.Bool            // the API server does not answer; nil: it does
	missing  string                  // a right
	replicas int
	fence    string // on the workload
	running  int    // Pods
	scaled   int    // writes
	by       string // who has scaled it back
}

// guarded is an engine with Pods.
type guarded struct {
	engine.Engine
	*pods
}

func (g guarded) Unwrap() engine.Engine { return g.Engine }

func (p *pods) ask(call string) error {
	p.mu.Lock()
	asked, away := p.asked, p.away
	p.mu.Unlock()
	if away != nil && away.Load() {
		return errAway
	}
	if asked == nil {
		return nil
	}
	return asked(call)
}

func (p *pods) CheckFence(context.Context) ([]mirror.FencedWorkload, error) {
	if err := p.ask("checkfence"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missing != "" {
		return nil, fmt.Errorf("%w: it may not %s", engine.ErrRefused, p.missing)
	}
	return []mirror.FencedWorkload{{Kind: "StatefulSet", Name: "argocd-application-controller",
		Replicas: 2}}, nil
}

func (p *pods) ScaleToZero(_ context.Context, request string) (string, error) {
	if err := p.ask("scaletozero"); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fence != request {
		p.fence, p.replicas, p.by = request, 0, ""
		p.scaled++
	}
	return "", p.after("scaledtozero")
}

// after asks once a call has had its effect.
func (p *pods) after(call string) error {
	if p.asked == nil {
		return nil
	}
	return p.asked(call)
}

func (p *pods) ProveFence(context.Context) (string, bool, error) {
	if err := p.ask("provefence"); err != nil {
		return "", false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replicas > 0 {
		return "StatefulSet argocd-application-controller has replicas, set by " + p.by, true, nil
	}
	if p.running > 0 { // one ends between two reads
		p.running--
		return "Pod 0 is terminating", false, nil
	}
	return "", false, nil
}

func (p *pods) LiftFence(_ context.Context, before []mirror.FencedWorkload) (string, error) {
	if err := p.ask("liftfence"); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fence != "" {
		p.fence, p.replicas = "", before[0].Replicas
		p.scaled++
	}
	return "", p.after("liftedfence")
}

func (p *pods) set(change func(*pods)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *pods) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d replicas, fence %q, %d writes", p.replicas, p.fence, p.scaled)
}

// fenced is a house in which the engine of acme/prod is fenced.
type fenced struct {
	*evacuees
	pods *pods
}

func newFenced(t *testing.T, start func(*fenced, options) *replica) *fenced {
	t.Helper()
	f := &fenced{pods: &pods{replicas: 2, running: 2}}
	f.evacuees = newEvacuees(t, func(e *evacuees) *replica {
		f.evacuees = e
		return start(f, f.options(options{}))
	})
	const allowed = "  remedies: {fence: Allowed}\n"
	f.commit("a fence is allowed", map[string]string{"fleet/fleet.yaml": strings.TrimSuffix(
		document("Fleet", "fleet", "guards: "+guards+"\n  gitHosts: [git.example.com]"), "\n") +
		"\n" + allowed})
	f.eventually("it is allowed", f.converged)
	f.pods.set(func(p *pods) { p.away = &f.dead.away })
	return f
}

// options gives every engine these Pods: only one has a fence.
func (f *fenced) options(o options) options {
	o.wrap = func(e engine.Engine) engine.Engine { return guarded{e, f.pods} }
	return o
}

// request requests the fence, as soon as a worker has reported that the engine answers.
func (f *fenced) request() (err error) {
	f.t.Helper()
	f.eventually("the engine is known to answer", func() error {
		_, err = f.store.Decisions.RequestFence(f.t.Context(), mirror.EvacuationRequest{
			Engine: f.dead.name, Fence: true, By: "token:ann", Reason: "it is stuck"})
		if errors.Is(err, mirror.ErrEngineSilent) {
			return err
		}
		return nil
	})
	return err
}

func (f *fenced) reaches(state mirror.FenceState, text string) {
	f.t.Helper()
	f.eventually("the fence is "+string(state)+" "+text, func() error {
		got := f.view(f.dead.name).Fence
		if got == nil || got.State != state || !strings.Contains(got.Message, text) {
			return fmt.Errorf("%+v; %s", got, f.pods)
		}
		return nil
	})
}

// lifted ends the evacuation and waits until the controllers run again.
func (f *fenced) lifted() {
	f.t.Helper()
	f.eventually("the fence is lifted", func() error {
		err := f.store.Decisions.EndEvacuation(f.t.Context(), mirror.EvacuationRequest{
			Engine: f.dead.name, By: "token:ann", End: true})
		if err != nil && !errors.Is(err, mirror.ErrNotEvacuated) {
			return err
		}
		if v := f.view(f.dead.name); v.Fence != nil || v.Evacuation != nil {
			return fmt.Errorf("%+v, %+v; %s", v.Fence, v.Evacuation, f.pods)
		}
		return nil
	})
	if got := f.pods.String(); !strings.HasPrefix(got, `2 replicas, fence ""`) {
		f.t.Errorf("the lifted engine: %s", got)
	}
}

func TestAnEngineThatAnswersIsFencedAndEvacuated(t *testing.T) {
	t.Parallel()
	f := newFenced(t, func(f *fenced, o options) *replica { return f.start("a", o) })
	dry := mirror.EvacuationRequest{Engine: f.dead.name, Fence: true, DryRun: true, By: "token:ann"}
	ended := func(id string) (o mirror.Operation) {
		t.Helper()
		f.eventually("the dry run ends", func() error {
			all, _, err := f.store.Views.Operations(t.Context(), view.Scope{}, view.Filter{},
				view.Page{Limit: 50})
			i := slices.IndexFunc(all, func(o mirror.Operation) bool { return o.ID == id })
			if err != nil || i < 0 || all[i].EndedAt == nil {
				return fmt.Errorf("%+v, %w", all, err)
			}
			o = all[i]
			return nil
		})
		return o
	}
	for _, c := range []struct{ missing, want string }{
		{"", "Succeeded: would scale to zero: StatefulSet argocd-application-controller " +
			"(replicas: 2)"},
		{"list pods", "Failed: the engine refused the object: it may not list pods"}} {
		f.pods.set(func(p *pods) { p.missing = c.missing })
		var id string
		f.eventually("the engine is known to answer", func() (err error) {
			id, err = f.store.Decisions.RequestFence(t.Context(), dry)
			return err
		})
		if o := ended(id); string(o.State)+": "+o.Message != c.want {
			t.Errorf("%s: %s", o.State, o.Message)
		}
	}
	if err := f.request(); err != nil {
		t.Fatal(err)
	}
	f.reaches(mirror.FenceScaling, "it may not list pods")
	if err := f.request(); !errors.Is(err, mirror.ErrFencing) {
		t.Errorf("a second one: %v", err)
	}
	if got := f.pods.String(); got != `2 replicas, fence "", 0 writes` {
		t.Errorf("a fence without its rights, or a dry run, has scaled: %s", got)
	}
	if f.view(f.dead.name).Evacuation != nil {
		t.Error("it is evacuated before it is fenced")
	}
	f.pods.set(func(p *pods) { p.missing = "" })
	f.eventually("its environments are elsewhere", f.elsewhere)
	f.eventually("the engine is emptied", f.emptied)
	f.reaches(mirror.FenceFenced, "")
	f.lifted()
	f.eventually("it is in sync", f.converged)
	f.armed.Store(false)
	f.commit("a tenant more", tenant("initech", "prod"))
	f.eventually("it is in sync", f.converged)
	if got := f.placements()["initech/prod"]; got != f.dead.name {
		t.Errorf("the readmitted engine gets nothing: initech/prod is on %q", got)
	}
}

// Somebody scales a controller back while environments leave: nothing more leaves the engine, and
// nothing is scaled again, until a person requests it.
func TestNothingLeavesAnEngineWhoseFenceIsBroken(t *testing.T) {
	t.Parallel()
	f := newFenced(t, func(f *fenced, o options) *replica { return f.start("a", o) })
	file := "fleet/engines/" + string(f.alive.name) + ".yaml"
	cordoned := strings.Replace(platform()[file], "region: eu", "region: eu\n  state: Cordoned", 1)
	f.commit("the other engine takes nothing", map[string]string{file: cordoned})
	f.eventually("it is in sync", f.converged)
	if err := f.request(); err != nil {
		t.Fatal(err)
	}
	f.eventually("it waits for an engine", func() error {
		if v := f.view(f.dead.name).Evacuation; v == nil || v.State != mirror.EvacuationWaiting {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	f.pods.set(func(p *pods) { p.replicas, p.by = 2, "argocd-operator" })
	f.reaches(mirror.FenceBroken, "set by argocd-operator; stop what scales it")
	f.commit("the other engine takes environments", map[string]string{file: platform()[file]})
	f.eventually("the evacuation waits for the fence", func() error {
		v := f.view(f.dead.name).Evacuation
		if v == nil || v.State != mirror.EvacuationWaiting ||
			!strings.Contains(v.Message, "is Broken: StatefulSet") {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if got := f.placements()["acme/prod"]; got != f.dead.name {
		t.Fatalf("acme/prod is on %s", got)
	}
	if got := f.pods.String(); !strings.HasSuffix(got, " 1 writes") {
		t.Errorf("it was scaled again: %s", got)
	}
	if err := f.request(); err != nil {
		t.Fatal(err)
	}
	f.eventually("its environments are elsewhere", f.elsewhere)
	f.lifted()
}

// A step of a move that begins without the proof waits, although the plan had it.
func TestAnApplicationWaitsForTheFence(t *testing.T) {
	t.Parallel()
	var hold atomic.Bool
	f := newFenced(t, func(f *fenced, o options) *replica {
		o.engine = func(call string, key fleet.ObjectKey) error {
			if hold.Load() && call == "freezeaway" {
				return errAway // the returning engine freezes nothing
			}
			return nil
		}
		o.fail = func(call string) error {
			if hold.Load() && call == "recorded" {
				f.pods.set(func(p *pods) { p.replicas, p.by = 1, "keda" })
				f.exec(`UPDATE fences SET state = 'Broken', message = 'keda'`)
			}
			return nil
		}
		return f.start("a", o)
	})
	hold.Store(true)
	if err := f.request(); err != nil {
		t.Fatal(err)
	}
	f.reaches(mirror.FenceBroken, "keda")
	f.eventually("its Applications wait", func() error {
		moves, _, err := f.store.Views.Moves(t.Context(), view.Scope{}, view.Filter{Tenant: "acme"},
			view.Page{Limit: 1})
		if err != nil || len(moves) != 1 {
			return fmt.Errorf("%v, %w", moves, err)
		}
		for _, a := range moves[0].Applications {
			if a.Step == mirror.MoveDone || !strings.Contains(a.Message, "is Broken") {
				return fmt.Errorf("%s: %s %q", a.Deployment, a.Step, a.Message)
			}
		}
		return nil
	})
	hold.Store(false) // once the engine ignores them, they need the fence no longer
	f.eventually("its environments are elsewhere", f.elsewhere)
	f.reaches(mirror.FenceBroken, "keda")
	f.lifted()
}

// The API server is lost after the fence was proven: nothing proves it, so a person does.
func TestAFencedEngineThatFallsSilentNeedsAPerson(t *testing.T) {
	t.Parallel()
	f := newFenced(t, func(f *fenced, o options) *replica { return f.start("a", o) })
	file := "fleet/engines/" + string(f.alive.name) + ".yaml"
	f.commit("the other engine takes nothing", map[string]string{file: strings.Replace(
		platform()[file], "region: eu", "region: eu\n  state: Cordoned", 1)})
	f.eventually("it is in sync", f.converged)
	if err := f.request(); err != nil {
		t.Fatal(err)
	}
	f.reaches(mirror.FenceFenced, "")
	f.dies()
	f.exec(`UPDATE fences SET proven_at = proven_at - interval '1 minute'`)
	f.commit("the other engine takes environments", map[string]string{file: platform()[file]})
	f.eventually("the evacuation waits for the fence", func() error {
		v := f.view(f.dead.name).Evacuation
		if v == nil || !strings.Contains(v.Message, "and not since") {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if got := f.placements()["acme/prod"]; got != f.dead.name {
		t.Fatalf("acme/prod is on %s", got)
	}
	if err := f.evacuate(false); err != nil {
		t.Fatal(err)
	}
	f.eventually("its environments are elsewhere", f.elsewhere)
	if err := f.evacuate(false); !errors.Is(err, mirror.ErrEvacuated) {
		t.Errorf("a second confirmation: %v", err)
	}
	f.dead.away.Store(false)
	f.eventually("the engine is emptied", f.emptied)
	f.lifted()
}

// Each cell: the replica dies before the call has an effect, or before it learns of it, and another
// one continues. Nothing is scaled twice.
func TestAFenceContinuesOnAnotherReplica(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"checkfence", "scaletozero", "scaledtozero", "provefence",
		"openfence Emptying", "reportfence Scaling Scaling", "reportfence Scaling Emptying",
		"reportfence Emptying Fenced", "reportedfence Emptying Fenced",
		"reportfence Fenced Fenced", "freezemove", "liftfence", "liftedfence",
		"reportfence Lifting Lifting"} {
		t.Run("dies at "+call, func(t *testing.T) { fencesOnce(t, call) })
	}
}

func fencesOnce(t *testing.T, at string) {
	t.Helper()
	t.Parallel()
	var a *replica
	died := make(chan struct{})
	var once sync.Once
	var armed atomic.Bool
	die := func(call string) error {
		if !armed.Load() || call != at {
			return nil
		}
		once.Do(func() {
			a.dead.Store(true)
			close(died)
		})
		return errDead
	}
	f := newFenced(t, func(f *fenced, o options) *replica {
		o.fail = die
		a = f.start("a", o)
		return a
	})
	f.pods.set(func(p *pods) {
		p.asked = func(call string) error {
			if a.dead.Load() { // the other replica has the Pods too
				return nil
			}
			return die(call)
		}
	})
	armed.Store(true)
	if err := f.request(); err != nil {
		t.Fatal(err)
	}
	lifting := slices.Contains([]string{"liftfence", "liftedfence",
		"reportfence Lifting Lifting"}, at)
	if lifting {
		f.eventually("its environments are elsewhere", f.elsewhere)
		f.eventually("the engine is emptied", f.emptied)
		f.eventually("its evacuation ends", func() error {
			return f.store.Decisions.EndEvacuation(t.Context(), mirror.EvacuationRequest{
				Engine: f.dead.name, By: "token:ann", End: true})
		})
	}
	f.eventually("the replica dies", func() error {
		select {
		case <-died:
			return nil
		default:
			return fmt.Errorf("it has not come to that: %+v", f.view(f.dead.name).Fence)
		}
	})
	f.kill(a)
	f.start("b", f.options(options{}))
	if !lifting {
		f.eventually("its environments are elsewhere", f.elsewhere)
		f.eventually("the engine is emptied", f.emptied)
	}
	f.lifted()
	if got := f.pods.String(); !strings.HasSuffix(got, " 2 writes") {
		t.Errorf("scaled more than once down and once up: %s", got)
	}
	f.armed.Store(false)
}
