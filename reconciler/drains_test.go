package reconciler_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
)

// drained is a house whose engine eu-1 serves all environments until it drains; eu-2 joins before.
type drained struct {
	*house
	envs int
}

// newDrained is a house with n environments of acme on eu-1. Of fewer than ten environments, the
// first and the last one lack an Application of the last deployment.
func newDrained(t testing.TB, n, apps int, churn string) *drained {
	t.Helper()
	d := &drained{house: newHouse(t, filesOf(n, apps, churn)), envs: n}
	pace := time.Duration(n*apps) * 5 * time.Millisecond // all Applications are compared once
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(pace):
			}
			for _, s := range d.engines {
				s.server.Reconcile(managed...)
			}
		}
	})
	t.Cleanup(func() { close(done); all.Wait() })
	return d
}

func filesOf(n, apps int, churn string) map[string]string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("e%02d", i))
	}
	files := together(platform(), tenant("acme", names...))
	files["fleet/fleet.yaml"] = document("Fleet", "fleet", "guards: "+guards+
		"\n  gitHosts: [git.example.com]\n  placement: {churn: "+churn+"}")
	files["fleet/tenants/acme.yaml"] = strings.Replace(files["fleet/tenants/acme.yaml"],
		"environments: 10", "environments: 50", 1)
	for i := range apps {
		in := names
		if i == apps-1 && n < 10 {
			in = names[1 : n-1]
		}
		files = together(files, deployment("acme", fmt.Sprintf("app%02d", i), "v1", "Delete",
			in...))
	}
	return together(files, engineState("eu-2", "Cordoned"))
}

// engineState is the file of an engine with a state.
func engineState(name, state string) map[string]string {
	path := "fleet/engines/" + name + ".yaml"
	return map[string]string{path: strings.TrimSuffix(platform()[path], "\n") + "\n  state: " +
		state + "\n"}
}

// declare commits the state of eu-1.
func (d *drained) declare(state string) {
	d.t.Helper()
	d.commit("eu-1 is "+state, engineState("eu-1", state))
}

// ready waits until all Applications are on eu-1, Synced and Healthy, and eu-2 is Active.
func (d *drained) ready() {
	d.t.Helper()
	d.eventually("the fleet is in sync", d.converged)
	d.commit("eu-2 joins", engineState("eu-2", "Active"))
	d.eventually("all Applications are ready", func() error {
		if unready, err := d.store.Views.Unready(d.t.Context()); err != nil || len(unready) > 0 {
			return fmt.Errorf("%v, %w", unready, err)
		}
		return d.converged()
	})
}

func (d *drained) engine(name fleet.EngineName) view.Engine {
	d.t.Helper()
	all, _, err := d.store.Views.Engines(d.t.Context(), view.Scope{}, view.Filter{Engine: name},
		view.Page{Limit: 1})
	if err != nil || len(all) != 1 {
		d.t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// reaches waits until the drain of eu-1 has a state whose message contains text.
func (d *drained) reaches(state mirror.DrainState, text string) {
	d.t.Helper()
	d.eventually(fmt.Sprintf("the drain is %s: %s", state, text), func() error {
		got := d.engine("eu-1").Drain
		if got == nil || got.State != state || !strings.Contains(got.Message, text) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

// begun counts the moves that have begun, and fails if more than atOnce are under way.
func (d *drained) begun(atOnce int) (n int) {
	d.t.Helper()
	open := 0
	for _, m := range d.moves() {
		if m.EndedAt == nil {
			open++
		}
	}
	if open > atOnce {
		d.t.Fatalf("%d environments move at once", open)
	}
	return len(d.moves())
}

// moves are the moves that have begun or ended, in the order of their requests.
func (d *drained) moves() []view.Move {
	d.t.Helper()
	all, _, err := d.store.Views.Moves(d.t.Context(), view.Scope{}, view.Filter{},
		view.Page{Limit: 1000})
	if err != nil {
		d.t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b view.Move) int {
		return strings.Compare(a.Operation, b.Operation)
	})
	return all
}

func (d *drained) simulate() []placement.Move {
	d.t.Helper()
	views := d.store.Views
	out, err := reconciler.NewSimulator(d.store.Plans, views, views).Simulate(d.t.Context(),
		placement.Change{Kind: placement.Drain, Engine: "eu-1"})
	if err != nil {
		d.t.Fatal(err)
	}
	return out.Moves
}

func TestADrainMovesWhatTheSimulationShowed(t *testing.T) {
	t.Parallel()
	d := newDrained(t, 4, 2, "{atOnce: 1, perHour: 100}")
	r := d.start("a", options{})
	d.ready()
	var want, got []string
	simulated := d.simulate()
	planned, err := d.preview(r, d.propose(1, d.head(), engineState("eu-1", "Draining"))).
		Plan.Report()
	if err != nil || len(planned.Drains) != 1 || planned.Drains[0].Churn.AtOnce != 1 ||
		!slices.Equal(planned.Drains[0].Moves, simulated) {
		t.Fatalf("planned %+v, %v; simulated %+v", planned.Drains, err, simulated)
	}
	for _, m := range simulated {
		want = append(want, m.Environment.String()+" to "+string(m.To))
	}
	if len(want) != 4 || want[0] != "acme/e00 to eu-2" || want[1] != "acme/e03 to eu-2" {
		t.Fatalf("simulated: %v", want)
	}
	d.declare("Draining")
	d.reaches(mirror.DrainEmpty, "can be removed")
	for _, m := range d.moves() {
		got = append(got, fmt.Sprintf("%s/%s to %s", m.Tenant, m.Environment, m.To))
		if m.State != mirror.OperationSucceeded || m.RequestedBy != "argosy" {
			t.Errorf("%+v", m)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("moved %v, simulated %v", got, want)
	}
	d.commit("eu-1 is empty", map[string]string{"fleet/engines/eu-1.yaml": ""})
	d.eventually("its declaration is removed", func() error {
		all, _, err := d.store.Views.Engines(t.Context(), view.Scope{},
			view.Filter{Engine: "eu-1"}, view.Page{Limit: 1})
		if err != nil || len(all) > 0 {
			return fmt.Errorf("%+v, %w", all, err)
		}
		return nil
	})
}

// failing is a replica that cannot compare one Application of some environments, which are e07 or
// the given ones, on the new engine.
func failing(fixed *atomic.Bool, environments ...fleet.EnvironmentName) options {
	if len(environments) == 0 {
		environments = append(environments, "e07")
	}
	bad := map[string]bool{}
	for _, e := range environments {
		bad[fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme", Deployment: "app01",
			Environment: e})] = true
	}
	return options{patience: 10 * time.Second,
		engine: func(call string, key fleet.ObjectKey) error {
			if call == "compare" && bad[key.Name] && !fixed.Load() {
				return errAway
			}
			return nil
		}}
}

// BenchmarkDrain drains 200 Applications in 20 environments, one of which fails, with engines in
// memory: what the control plane adds to the time of Argo CD's comparisons and syncs.
func BenchmarkDrain(b *testing.B) {
	for _, atOnce := range []int{2, 8} {
		b.Run(fmt.Sprintf("atOnce=%d", atOnce), func(b *testing.B) {
			for b.Loop() {
				benchmarkDrain(b, atOnce)
			}
			b.ReportMetric(0, "ns/op") // it has the making of the fleet in it
		})
	}
}

func benchmarkDrain(b *testing.B, atOnce int) {
	d := newDrained(b, 20, 10, fmt.Sprintf("{atOnce: %d, perHour: 1000}", atOnce))
	var fixed atomic.Bool
	r := d.start("a", failing(&fixed))
	defer d.kill(r)
	d.ready()
	d.declare("Draining")
	for d.moved(19) != nil { // without a limit: the time is the result
		d.begun(atOnce)
		time.Sleep(100 * time.Millisecond)
	}
	var first, last time.Time
	for _, m := range d.moves() {
		if first.IsZero() || m.StartedAt.Before(first) {
			first = m.StartedAt
		}
		if m.EndedAt != nil && m.EndedAt.After(last) {
			last = *m.EndedAt
		}
	}
	d.reaches(mirror.DrainWaiting, "acme/e07 waits in Compare: ")
	b.ReportMetric(19/last.Sub(first).Minutes(), "moves/min")
}

// moved returns an error until so many moves have succeeded.
func (d *drained) moved(want int) error {
	n := 0
	for _, m := range d.moves() {
		if m.State == mirror.OperationSucceeded {
			n++
		}
	}
	if n < want {
		return fmt.Errorf("%d have succeeded", n)
	}
	return nil
}

// An Application cannot be compared on the new engine; a person pauses, replicas change.
func TestADrainLeavesTheApplicationThatFails(t *testing.T) {
	t.Parallel()
	const atOnce, environments = 4, 12
	d := newDrained(t, environments, 3, fmt.Sprintf("{atOnce: %d, perHour: 1000}", atOnce))
	var fixed atomic.Bool
	failing := failing(&fixed)
	a := d.start("a", failing)
	d.ready()
	d.declare("Draining")
	began := func(n int) func() error {
		return func() error {
			if got := d.begun(atOnce); got < n {
				return fmt.Errorf("%d have begun", got)
			}
			return nil
		}
	}
	d.eventually("some move", began(5))

	pause := mirror.DrainPause{Engine: "eu-1", By: "token:ann", Reason: "lunch"}
	if err := d.store.Decisions.PauseDrain(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	d.reaches(mirror.DrainPaused, "by token:ann: lunch")
	n := d.moveRequests()
	d.kill(a)
	b := d.start("b", failing)
	d.eventually("the others end", func() error {
		for _, m := range d.moves() {
			if m.EndedAt == nil && m.Environment != "e07" {
				return fmt.Errorf("%s moves", m.Environment)
			}
		}
		return nil
	})
	d.passes(b, 5)
	if got := d.moveRequests(); got != n {
		t.Errorf("%d moves were requested during the pause", got-n)
	}
	if err := d.store.Decisions.ResumeDrain(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	d.eventually("all have begun", began(environments))
	d.reaches(mirror.DrainWaiting, "acme/e07 waits in Compare: ")

	if _, err := d.store.Decisions.RequestMove(t.Context(), mirror.MoveRequest{By: "token:ann",
		Environment: fleet.EnvironmentID{Tenant: "acme", Name: "e07"}, To: "eu-1"}); err != nil {
		t.Fatal(err)
	}
	d.reaches(mirror.DrainWaiting, "acme/e07 was undone by token:ann")
	fixed.Store(true)
	n = d.moveRequests()
	d.passes(b, 5)
	if got := d.moveRequests(); got != n {
		t.Errorf("an undone move was requested again")
	}
	if err := d.store.Decisions.ResumeDrain(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	d.reaches(mirror.DrainEmpty, "")
	d.eventually("nothing is left on eu-1", func() error {
		if live := d.engines["eu-1"].inventory(); len(live) > 0 {
			return fmt.Errorf("%d objects", len(live))
		}
		return d.converged()
	})
	for _, s := range d.engines {
		s.mu.Lock()
		if len(s.cascaded) > 0 {
			t.Errorf("deletions on %s took workloads along: %v", s.name, s.cascaded)
		}
		s.mu.Unlock()
	}
}

// moveRequests counts the operations of moves.
func (d *drained) moveRequests() (n int) {
	d.t.Helper()
	all, _, err := d.store.Views.Operations(d.t.Context(), view.Scope{}, view.Filter{},
		view.Page{Limit: 1000})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, o := range all {
		if o.Kind == mirror.OperationMove {
			n++
		}
	}
	return n
}

// The region of eu-1 changes: its environments move within the budget, and one that a person brings
// back stays until the moves are resumed.
func TestMisplacedEnvironmentsMoveByThemselves(t *testing.T) {
	t.Parallel()
	d := newDrained(t, 3, 2, "{atOnce: 1, perHour: 100}, misplaced: Move")
	var fixed atomic.Bool
	a := d.start("a", failing(&fixed, "e01"))
	d.ready()
	path := "fleet/engines/eu-1.yaml"
	elsewhere := map[string]string{path: strings.Replace(platform()[path], "region: eu",
		"region: us", 1)}
	planned, err := d.preview(a, d.propose(1, d.head(), elsewhere)).Plan.Report()
	if err != nil || len(planned.Drains) != 1 || !planned.Drains[0].Misplaced ||
		len(planned.Drains[0].Moves) != 3 {
		t.Fatalf("planned %+v, %v", planned.Drains, err)
	}
	d.commit("eu-1 is in the US", elsewhere)
	d.eventually("the others have moved", func() error {
		d.begun(1)
		return d.moved(2)
	})
	d.reaches(mirror.DrainWaiting, "misplaced environments: acme/e01 waits in Compare")
	if _, err := d.store.Decisions.RequestMove(t.Context(), mirror.MoveRequest{By: "token:ann",
		Environment: fleet.EnvironmentID{Tenant: "acme", Name: "e01"}, To: "eu-1"}); err != nil {
		t.Fatal(err)
	}
	d.reaches(mirror.DrainWaiting, "acme/e01 was undone by token:ann")
	fixed.Store(true)
	n := d.moveRequests()
	d.passes(a, 5)
	if got := d.moveRequests(); got != n {
		t.Errorf("an undone move was requested again")
	}
	if err := d.store.Decisions.ResumeDrain(t.Context(),
		mirror.DrainPause{Engine: "eu-1", By: "token:ann"}); err != nil {
		t.Fatal(err)
	}
	d.eventually("all have moved, and nothing is left to do", func() error {
		if e := d.engine("eu-1"); e.Drain != nil || e.Load.Environments != 0 {
			return fmt.Errorf("%+v", e)
		}
		return cmp.Or(d.moved(3), d.converged())
	})
}

// Without an agent there, no request is made: three refused ones would stop the others' moves.
func TestAnEnvironmentAwaitsItsAgentBeforeItMovesToItsOwnCluster(t *testing.T) {
	t.Parallel()
	d := newDrained(t, 3, 2, "{atOnce: 1, perHour: 100}, misplaced: Move")
	d.start("a", options{})
	d.ready()
	path := "tenants/acme/environments/e01.yaml"
	d.commit("e01 gets an agent", map[string]string{path: document("ManagedEnvironment", "e01",
		"agent: {}\n  namespaces: [acme-web]\n  region: eu")})
	d.reaches(mirror.DrainWaiting, "misplaced environments: acme/e01: engine acme.e01 is behind an "+
		"agent, and none has joined: make a token with argosy agent token create acme/e01")
	if n := d.moveRequests(); n != 0 {
		t.Errorf("%d moves were requested", n)
	}
}

// Environments that have moved stay where they are. A move under way ends, or a person undoes it.
func TestAnEngineThatIsActiveAgainEndsTheMovesUnderWay(t *testing.T) {
	t.Parallel()
	d := newDrained(t, 10, 2, "{atOnce: 10, perHour: 100}")
	var fixed atomic.Bool
	d.start("a", failing(&fixed, "e07", "e08"))
	d.ready()
	d.declare("Draining")
	d.eventually("all others have moved", func() error { return d.moved(8) })
	d.declare("Active")
	d.eventually("the drain has ended", func() error {
		if e := d.engine("eu-1"); e.Drain != nil || e.State != fleet.EngineActive {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	if err := d.moved(9); err == nil {
		t.Error("a move that waits has ended")
	}
	if _, err := d.store.Decisions.RequestMove(t.Context(), mirror.MoveRequest{By: "token:ann",
		Environment: fleet.EnvironmentID{Tenant: "acme", Name: "e08"}, To: "eu-1"}); err != nil {
		t.Fatal(err)
	}
	d.eventually("the undone environment returns", func() error {
		if e := d.engine("eu-1"); e.Load.Environments != 1 {
			return fmt.Errorf("eu-1 serves %d", e.Load.Environments)
		}
		return nil
	})
	fixed.Store(true)
	d.eventually("the move under way ends, and no other environment returns", func() error {
		if e := d.engine("eu-2"); e.Load.Environments != 9 {
			return fmt.Errorf("eu-2 serves %d", e.Load.Environments)
		}
		return cmp.Or(d.moved(9), d.converged())
	})
	if n := d.moveRequests(); n != 11 {
		t.Errorf("%d moves", n)
	}
}

func TestAnEngineThatIsActiveAgainKeepsItsEnvironments(t *testing.T) {
	t.Parallel()
	d := newDrained(t, 3, 2, "{atOnce: 1, perHour: 1}")
	d.start("a", options{})
	d.ready()
	d.declare("Draining")
	d.reaches(mirror.DrainWaiting, "churn.perHour")
	d.eventually("the first one has moved", func() error { return d.moved(1) })
	d.declare("Active")
	d.eventually("the drain has ended", func() error {
		if e := d.engine("eu-1"); e.Drain != nil || e.State != fleet.EngineActive {
			return fmt.Errorf("%+v", e)
		}
		err := d.store.Decisions.PauseDrain(t.Context(), mirror.DrainPause{Engine: "eu-1"})
		if !errors.Is(err, mirror.ErrNotDraining) {
			return fmt.Errorf("a pause: %w", err)
		}
		return d.converged()
	})
	if e := d.engine("eu-1"); e.Load.Environments != 2 || d.moveRequests() != 1 {
		t.Errorf("%+v, %d moves", e.Load, d.moveRequests())
	}
}
