package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
)

// measuring is the store's measurements with other figures.
type measuring struct {
	reconciler.LoadReader
	of func() map[fleet.EngineName]float64
}

func (m measuring) Measured(ctx context.Context, again time.Duration) (mirror.Measured, error) {
	found, err := m.LoadReader.Measured(ctx, again)
	if err != nil || m.of == nil {
		return found, err
	}
	for engine, cores := range m.of() {
		if !found.Moving[engine] {
			found.Cores[engine] = cores
		}
	}
	return found, nil
}

// loaded is a house whose engine eu-1 serves eight environments; eu-2 is Active and empty. Each
// environment costs a core. The load is measured from the moment that measured is set.
type loaded struct {
	*drained
	measured atomic.Bool
}

func newLoaded(t *testing.T, mode fleet.RebalanceMode) *loaded {
	t.Helper()
	return &loaded{drained: newDrained(t, 8, 2, limits(1, mode))}
}

// limits are the budget and the mode, as filesOf takes them.
func limits(atOnce int, mode fleet.RebalanceMode) string {
	return fmt.Sprintf("{atOnce: %d, perHour: 100}, rebalance: {mode: %q}", atOnce, mode)
}

func (l *loaded) limit(atOnce int, mode fleet.RebalanceMode) {
	l.t.Helper()
	const path = "fleet/fleet.yaml"
	l.commit("limits", map[string]string{path: filesOf(8, 2, limits(atOnce, mode))[path]})
}

func (l *loaded) options() options {
	return options{measureAgain: 300 * time.Millisecond,
		loads: func() map[fleet.EngineName]float64 {
			if !l.measured.Load() {
				return nil
			}
			cores := map[fleet.EngineName]float64{}
			for _, name := range []fleet.EngineName{"eu-1", "eu-2"} {
				all, _, err := l.store.Views.Engines(context.Background(), view.Scope{},
					view.Filter{Engine: name}, view.Page{Limit: 1})
				if err == nil && len(all) == 1 {
					cores[name] = 0.01 + float64(all[0].Load.Environments)
				}
			}
			return cores
		}}
}

// rebalances are all, the newest first.
func (l *loaded) rebalances() []mirror.Rebalance {
	l.t.Helper()
	all, _, err := l.store.Views.Rebalances(l.t.Context(), view.Scope{}, view.Filter{},
		view.Page{Limit: 100})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// becomes waits until the newest rebalance has a state whose message contains text.
func (l *loaded) becomes(state mirror.RebalanceState, text string) (r mirror.Rebalance) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("the rebalance is %s: %s", state, text), func() error {
		all := l.rebalances()
		if len(all) == 0 {
			return errors.New("there is none")
		}
		r = all[0]
		if r.State != state || !strings.Contains(r.Message, text) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	return r
}

func (l *loaded) decide(of func(context.Context, mirror.RebalanceDecision) error, id string) {
	l.t.Helper()
	err := of(l.t.Context(), mirror.RebalanceDecision{ID: id, By: "token:ann", Reason: "lunch"})
	if err != nil {
		l.t.Fatal(err)
	}
}

func moveLine(environment, from, to any) string {
	return fmt.Sprintf("%v: %v to %v", environment, from, to)
}

// The proposal is what the simulation shows, and after its acceptance nothing else happens.
func TestAnAcceptedRebalanceMovesWhatItProposed(t *testing.T) {
	t.Parallel()
	l := newLoaded(t, fleet.RebalancePropose)
	r := l.start("a", l.options())
	l.ready()
	l.measured.Store(true)
	proposed := l.becomes(mirror.RebalanceProposed, "relieves engine eu-1 from 8.01 to 4.58 CPU")
	out, err := reconciler.NewSimulator(l.store.Plans, l.store.Views,
		measuring{l.store.Views, l.options().loads}).Simulate(t.Context(),
		placement.Change{Kind: placement.Rebalance})
	if err != nil {
		t.Fatal(err)
	}
	var simulated, want, got []string
	for _, m := range out.Moves {
		simulated = append(simulated, moveLine(m.Environment, m.From, m.To))
	}
	for _, m := range proposed.Moves {
		want = append(want, moveLine(m.Environment, m.From, m.To))
	}
	if len(want) != 3 || !slices.Equal(want, simulated) {
		t.Fatalf("proposed %q, simulated %q", want, simulated)
	}
	l.passes(r, 5)
	if n := l.moveRequests(); n != 0 {
		t.Fatalf("%d moves before the acceptance", n)
	}
	if all := l.rebalances(); len(all) != 1 {
		t.Fatalf("the same load is proposed again: %+v", all)
	}
	l.decide(l.store.Decisions.AcceptRebalance, proposed.ID)
	l.eventually("the first move has begun", func() error {
		if l.begun(1) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	l.kill(r) // another replica continues
	l.start("b", l.options())
	done := l.becomes(mirror.RebalanceDone, "3 moved")
	for _, m := range l.moves() {
		got = append(got, moveLine(fmt.Sprintf("%s/%s", m.Tenant, m.Environment), m.From, m.To))
		if m.State != mirror.OperationSucceeded || m.RequestedBy != "argosy" {
			t.Errorf("%+v", m)
		}
	}
	if !slices.Equal(got, want) || done.ID != proposed.ID || done.AcceptedBy != "token:ann" {
		t.Errorf("moved %q, proposed %q: %+v", got, want, done)
	}
	if e := l.engine("eu-1"); e.Load.Environments != 5 {
		t.Errorf("%+v", e.Load)
	}
	p, err := l.store.Views.Explain(t.Context(), view.Scope{}, proposed.Moves[0].Environment)
	if err != nil || !strings.Contains(p.Reason, "rebalance "+proposed.ID) {
		t.Errorf("%+v, %v", p, err)
	}
}

// With mode Act, Argosy accepts its proposals. Three moves in trouble stop it until a person
// resumes or rejects it; a paused one requests nothing.
func TestARebalanceThatActsStopsWhenMovesFail(t *testing.T) {
	t.Parallel()
	l := newLoaded(t, fleet.RebalanceAct)
	var fixed atomic.Bool
	o := failing(&fixed, "e01", "e02", "e03", "e04")
	o.patience = 2 * time.Second
	o.loads, o.measureAgain = l.options().loads, l.options().measureAgain
	r := l.start("a", o)
	l.ready()
	l.limit(9, fleet.RebalanceAct)
	l.measured.Store(true)
	stopped := l.becomes(mirror.RebalanceStopped, "waits in Compare")
	if stopped.AcceptedBy != "argosy" {
		t.Errorf("%+v", stopped)
	}
	l.decide(l.store.Decisions.PauseRebalance, stopped.ID)
	l.passes(r, 5)
	l.becomes(mirror.RebalancePaused, "by token:ann: lunch")
	l.decide(l.store.Decisions.ResumeRebalance, stopped.ID)
	l.becomes(mirror.RebalanceWaiting, "waits in Compare")
	fixed.Store(true)
	l.becomes(mirror.RebalanceDone, "3 moved")
}

// An environment whose Application cannot move holds up no other one of the list.
func TestARebalancePassesOverAnEnvironmentThatCannotMove(t *testing.T) {
	t.Parallel()
	l := newLoaded(t, fleet.RebalancePropose)
	var name atomic.Value
	o := l.options()
	o.engine = func(call string, key fleet.ObjectKey) error {
		if call == "apply" && key.Name == name.Load() {
			return errAway
		}
		return nil
	}
	r := l.start("a", o)
	l.ready()
	l.measured.Store(true)
	proposed := l.becomes(mirror.RebalanceProposed, "")
	stuck := proposed.Moves[0].Environment
	id := fleet.ApplicationID{Tenant: stuck.Tenant, Deployment: "app00", Environment: stuck.Name}
	name.Store(fleet.ApplicationName(id))
	const path = "tenants/acme/deployments/app00.yaml"
	l.commit("a release", map[string]string{
		path: strings.ReplaceAll(filesOf(8, 2, "{}")[path], ": v1}", ": v2}")})
	l.eventually("a change is not on the engine", func() error {
		all, err := l.store.Plans.MoveObstacles(t.Context(), mirror.MoveRequest{Environment: stuck,
			To: "eu-2"})
		if err != nil {
			return err
		}
		if len(all) != 1 || !strings.Contains(all[0].Text, "its last change") {
			return fmt.Errorf("the obstacles are %+v", all)
		}
		return nil
	})
	l.decide(l.store.Decisions.AcceptRebalance, proposed.ID)
	done := l.becomes(mirror.RebalanceDone, "2 moved, 1 refused")
	if m := done.Moves[0]; m.State != mirror.RebalanceMoveRefused || m.Operation != "" ||
		!strings.HasPrefix(m.Message, "was refused, since it could not begin for ") {
		t.Errorf("%+v", m)
	}
	l.passes(r, 8)
	for _, next := range l.rebalances() {
		if next.ID != done.ID && slices.ContainsFunc(next.Moves, func(
			m mirror.RebalanceMove) bool {
			return m.Environment == stuck
		}) {
			t.Errorf("it is proposed again: %+v", next)
		}
	}
}

func TestARejectedRebalanceIsNotProposedAgain(t *testing.T) {
	t.Parallel()
	l := newLoaded(t, fleet.RebalancePropose)
	r := l.start("a", l.options())
	l.ready()
	l.measured.Store(true)
	proposed := l.becomes(mirror.RebalanceProposed, "")
	l.decide(l.store.Decisions.RejectRebalance, proposed.ID)
	err := l.store.Decisions.AcceptRebalance(t.Context(),
		mirror.RebalanceDecision{ID: proposed.ID})
	if !errors.Is(err, mirror.ErrRebalanceState) {
		t.Errorf("accepted after the rejection: %v", err)
	}
	l.passes(r, 8)
	if all := l.rebalances(); len(all) != 1 || l.moveRequests() != 0 ||
		all[0].Message != "by token:ann: lunch" {
		t.Errorf("%+v", all)
	}
}

func TestAProposalEndsWhenItDoesNotHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*loaded)
		want   string
	}{
		"the load is low": {func(l *loaded) { l.measured.Store(false) }, "is not measured"},
		"rebalances are off": {func(l *loaded) {
			l.limit(1, fleet.RebalanceOff)
		}, "mode is Off"},
		"the other engine is cordoned": {func(l *loaded) {
			l.commit("eu-2 is cordoned", engineState("eu-2", "Cordoned"))
		}, "engine eu-1 is not overloaded any more"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoaded(t, fleet.RebalancePropose)
			l.start("a", l.options())
			l.ready()
			l.measured.Store(true)
			l.becomes(mirror.RebalanceProposed, "")
			c.change(l)
			ended := l.becomes(mirror.RebalanceObsolete, c.want)
			if ended.EndedAt == nil || l.moveRequests() != 0 {
				t.Errorf("%+v", ended)
			}
		})
	}
}
