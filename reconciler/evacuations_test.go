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
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// evacuees is a house in which an engine with acme/prod dies. Both engines compare all the time.
type evacuees struct {
	*house
	dead, alive *site

	armed atomic.Bool // the engine has died
	mu    sync.Mutex
	calls []string // writes to the dead engine after its death: the call and the name
}

func newEvacuees(t *testing.T, start func(*evacuees) *replica) *evacuees {
	t.Helper()
	e := &evacuees{house: newHouse(t, together(small(), unhealed()))}
	start(e)
	e.eventually("the fleet is in sync", e.converged)
	e.dead = e.engineOf("acme", "prod")
	e.alive = e.engines["eu-1"]
	if e.dead == e.alive {
		e.alive = e.engines["eu-2"]
	}
	done, one, other := make(chan struct{}), e.dead.server, e.alive.server
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(30 * time.Millisecond):
			}
			one.Reconcile(managed...)
			other.Reconcile(managed...)
		}
	})
	t.Cleanup(func() { close(done); all.Wait() })
	return e
}

// start starts a replica whose writes to the dead engine are noted.
func (e *evacuees) start(name string, o options) *replica {
	inner := o.engine
	o.engine = func(call string, key fleet.ObjectKey) error {
		if inner != nil {
			if err := inner(call, key); err != nil {
				return err
			}
		}
		if e.armed.Load() && key.Engine == e.dead.name && !e.dead.away.Load() &&
			slices.Contains([]string{"apply", "delete", "freezeaway", "sync", "park"}, call) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.calls = append(e.calls, call+" "+string(key.Kind)+" "+key.Name)
		}
		return nil
	}
	return e.house.start(name, o)
}

// dies makes the engine unreachable, and waits until the mirror knows it.
func (e *evacuees) dies() {
	e.t.Helper()
	e.dead.away.Store(true)
	e.armed.Store(true)
	e.eventually("the engine is unreachable", func() error {
		if v := e.view(e.dead.name); v.Reachable {
			return errors.New("it is reachable")
		}
		return nil
	})
}

func (e *evacuees) view(name fleet.EngineName) view.Engine {
	e.t.Helper()
	all, _, err := e.store.Views.Engines(context.Background(), view.Scope{},
		view.Filter{Engine: name}, view.Page{Limit: 1})
	if err != nil || len(all) != 1 {
		e.t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

func (e *evacuees) evacuate(end bool) error {
	r := mirror.EvacuationRequest{Engine: e.dead.name, By: "token:ann", Reason: "it burned"}
	if end {
		return e.store.Decisions.EndEvacuation(e.t.Context(), r)
	}
	r.ConfirmGone = r.Engine
	return e.store.Decisions.RequestEvacuation(e.t.Context(), r)
}

// elsewhere returns an error until both Applications are served by the other engine.
func (e *evacuees) elsewhere() error {
	if got := e.placements()["acme/prod"]; got != e.alive.name {
		return fmt.Errorf("acme/prod is on %q", got)
	}
	for _, name := range []string{"web", "api"} {
		key := keyOf(e.alive, "acme", name, "prod")
		if !automated(e.alive, name) || e.alive.server.Field(key,
			"metadata.annotations|argosy.dev/move") != "" {
			return fmt.Errorf("%s is not served", name)
		}
		if e.alive.server.Field(key,
			"status.operationState.operation.sync.resources") == "" {
			return fmt.Errorf("%s is not adopted", name)
		}
	}
	return nil
}

// emptied returns an error until the engine that is back has no Application of acme/prod.
func (e *evacuees) emptied() error {
	for _, name := range []string{"web", "api"} {
		if e.dead.server.Exists(keyOf(e.dead, "acme", name, "prod")) {
			return fmt.Errorf("%s is on %s: %+v", name, e.dead.name, e.view(e.dead.name).Evacuation)
		}
	}
	if v := e.view(e.dead.name).Evacuation; v == nil || v.Objects+v.Open > 0 ||
		v.State != mirror.EvacuationMoved {
		return fmt.Errorf("%+v", v)
	}
	return nil
}

// check fails if the engine that came back got a write that no evacuated engine may get: a freeze
// of every Application comes first, then deletions, and no workload goes with them.
func (e *evacuees) check() {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	frozen, deleted := 0, 0
	for _, call := range e.calls {
		what, _, _ := strings.Cut(call, " ")
		switch what {
		case "freezeaway":
			frozen++
		case "delete":
			deleted++
			if frozen < 2 {
				e.t.Errorf("a deletion before every Application is frozen: %q", e.calls)
			}
		default:
			e.t.Errorf("the evacuated engine gets %q", call)
		}
	}
	if frozen == 0 {
		e.t.Error("nothing was frozen")
	}
	for _, s := range e.engines {
		s.mu.Lock()
		for _, key := range s.cascaded {
			e.t.Errorf("the deletion of %s on %s took its workload along", key.Name, s.name)
		}
		s.mu.Unlock()
		if err := s.backwards(); err != nil {
			e.t.Error(err)
		}
	}
}

func TestADeadEngineIsEvacuatedAndTouchesNothingWhenItComesBack(t *testing.T) {
	t.Parallel()
	e := newEvacuees(t, func(e *evacuees) *replica { return e.start("a", options{}) })
	if err := e.evacuate(false); !errors.Is(err, mirror.ErrEngineAnswers) {
		t.Fatalf("a person confirms that an engine is gone that answers: %v", err)
	}
	e.dies()
	if err := e.evacuate(true); !errors.Is(err, mirror.ErrNotEvacuated) {
		t.Errorf("the end of none: %v", err)
	}
	if err := e.evacuate(false); err != nil {
		t.Fatal(err)
	}
	if err := e.evacuate(false); !errors.Is(err, mirror.ErrEvacuated) {
		t.Errorf("a second one: %v", err)
	}
	e.eventually("its environments are elsewhere", e.elsewhere)
	e.eventually("the evacuation has ended as far as it can", func() error {
		v := e.view(e.dead.name).Evacuation
		if v == nil || v.State != mirror.EvacuationMoved || v.Open > 0 || v.Objects == 0 {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if got := e.application("acme/web@prod"); got.Engine != e.alive.name {
		t.Errorf("people see it on %s", got.Engine)
	}
	if err := e.evacuate(true); !errors.Is(err, mirror.ErrEvacuatedAway) {
		t.Errorf("its end while the engine may have them: %v", err)
	}
	for _, name := range []string{"web", "api"} {
		if !automated(e.dead, name) {
			t.Fatalf("%s has changed on the dead engine", name)
		}
	}
	e.commit("another version", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	e.eventually("the new engine follows the head", func() error {
		if got := e.alive.server.Field(keyOf(e.alive, "acme", "web", "prod"),
			"spec.source.targetRevision"); got != "v2" {
			return fmt.Errorf("at %q", got)
		}
		return nil
	})
	e.dead.away.Store(false)
	e.eventually("the engine is emptied", e.emptied)
	e.check()
	e.eventually("it is readmitted", func() error {
		if err := e.evacuate(true); err != nil && !errors.Is(err, mirror.ErrNotEvacuated) {
			return err
		}
		if v := e.view(e.dead.name).Evacuation; v != nil {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	e.armed.Store(false)
	e.commit("a tenant more", tenant("initech", "prod"))
	e.eventually("the fleet is in sync, and no Cluster remembers the evacuation", func() error {
		for _, s := range e.engines {
			for _, live := range s.inventory() {
				if len(live.Evacuated) > 0 {
					return fmt.Errorf("%s remembers %v", live.Key.Name, live.Evacuated)
				}
			}
		}
		return e.converged()
	})
	if got := e.placements()["initech/prod"]; got != e.dead.name {
		t.Errorf("the readmitted engine gets nothing: initech/prod is on %q", got)
	}
}

// Each cell: the replica dies before the call has an effect, another one continues.
func TestAnEvacuationContinuesOnAnotherReplica(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"record", "recorded", "advancemove Return", "endmove"} {
		t.Run("dies at "+call, func(t *testing.T) { evacuatesOnce(t, "", call) })
	}
	for _, call := range []string{"return", "apply", "freezeaway", "delete"} {
		t.Run("dies at "+call, func(t *testing.T) { evacuatesOnce(t, call, "") })
	}
}

func evacuatesOnce(t *testing.T, engineCall, storeCall string) {
	t.Helper()
	t.Parallel()
	var a *replica
	var armed atomic.Bool
	died := make(chan struct{})
	var once sync.Once
	die := func() error {
		once.Do(func() {
			a.dead.Store(true)
			close(died)
		})
		return errDead
	}
	e := newEvacuees(t, func(e *evacuees) *replica {
		a = e.start("a", options{
			engine: func(of string, key fleet.ObjectKey) error {
				if armed.Load() && of == engineCall && key.Kind == fleet.ObjectApplication {
					return die()
				}
				return nil
			},
			fail: func(of string) error {
				if armed.Load() && of == storeCall {
					return die()
				}
				return nil
			}})
		return a
	})
	e.dies()
	armed.Store(true)
	if err := e.evacuate(false); err != nil {
		t.Fatal(err)
	}
	back := engineCall == "freezeaway" || engineCall == "delete"
	if back {
		e.eventually("its environments are elsewhere", e.elsewhere)
		e.dead.away.Store(false)
	}
	e.eventually("the replica dies", func() error {
		select {
		case <-died:
			return nil
		default:
			return errors.New("it has not come to that")
		}
	})
	e.kill(a)
	e.start("b", options{})
	e.eventually("its environments are elsewhere", e.elsewhere)
	e.dead.away.Store(false)
	e.eventually("the engine is emptied", e.emptied)
	e.check()
}

// The engine dies while the environment moves, off it or to it, at each step.
func TestAnEvacuationTakesOverAMove(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"checkdeparture", "compare", "freeze", "adopt", "delete"} {
		t.Run("off the engine, at "+step, func(t *testing.T) { diesMoving(t, step, false) })
	}
	for _, step := range []string{"compare", "freeze", "adopt", "delete", "apply", "apply of api"} {
		t.Run("to the engine, at "+step, func(t *testing.T) { diesMoving(t, step, true) })
	}
}

func diesMoving(t *testing.T, step string, into bool) {
	t.Helper()
	t.Parallel()
	var stuck atomic.Bool
	call, of, only := strings.Cut(step, " of ")
	e := newEvacuees(t, func(e *evacuees) *replica {
		return e.start("a", options{engine: func(c string, key fleet.ObjectKey) error {
			if stuck.Load() && c == call && key.Kind == fleet.ObjectApplication &&
				(!only || key.Name == keyOf(e.dead, "acme", of, "prod").Name) {
				return errAway
			}
			return nil
		}})
	})
	to := e.alive
	if into {
		e.dead, e.alive = e.alive, e.dead
	}
	stuck.Store(true)
	e.moveOf(fleet.EnvironmentID{Tenant: "acme", Name: "prod"}, to.name)
	e.eventually("it waits at the step", func() error {
		moves, _, err := e.store.Views.Moves(t.Context(), view.Scope{},
			view.Filter{Tenant: "acme"}, view.Page{Limit: 1})
		if err != nil || len(moves) != 1 {
			return fmt.Errorf("%v, %w", moves, err)
		}
		waits := 0
		for _, a := range moves[0].Applications {
			if strings.Contains(a.Message, errAway.Error()) {
				waits++
			} else if only && a.Step != mirror.MoveDone {
				return fmt.Errorf("%s is at %s", a.Deployment, a.Step)
			}
		}
		if waits == 0 {
			return errors.New("none waits")
		}
		return nil
	})
	e.dies()
	stuck.Store(false)
	if err := e.evacuate(false); err != nil {
		t.Fatal(err)
	}
	e.eventually("its environments are elsewhere", e.elsewhere)
	e.dead.away.Store(false)
	e.eventually("the engine is emptied", e.emptied)
	for _, s := range e.engines {
		s.mu.Lock()
		for _, key := range s.cascaded {
			t.Errorf("the deletion of %s on %s took its workload along", key.Name, s.name)
		}
		s.mu.Unlock()
	}
}

// The database is lost after the evacuation, and the engine comes back.
func TestALostMirrorGivesNoEvacuatedApplicationTwoOwners(t *testing.T) {
	t.Parallel()
	var a *replica
	e := newEvacuees(t, func(e *evacuees) *replica {
		a = e.start("a", options{})
		return a
	})
	e.dies()
	if err := e.evacuate(false); err != nil {
		t.Fatal(err)
	}
	e.eventually("its environments are elsewhere", e.elsewhere)
	a.stop()
	e.newDatabase()
	e.dead.away.Store(false)
	e.start("b", options{})
	e.eventually("its Applications are frozen", func() error {
		for _, name := range []string{"web", "api"} {
			if automated(e.dead, name) || !automated(e.alive, name) {
				return fmt.Errorf("%s is not", name)
			}
		}
		if got := e.placements()["acme/prod"]; got != e.alive.name {
			return fmt.Errorf("acme/prod is on %q", got)
		}
		if v := e.view(e.dead.name).Evacuation; v == nil {
			return errors.New("the evacuation is not recorded again")
		}
		return nil
	})
	e.check()
}

// An environment that no other engine may have stays, with the reason; undoing the evacuation is
// possible as long as none is elsewhere.
func TestAnEvacuationWithoutAnotherEngineIsExplainedAndUndone(t *testing.T) {
	t.Parallel()
	e := newEvacuees(t, func(e *evacuees) *replica { return e.start("a", options{}) })
	file := "fleet/engines/" + string(e.alive.name) + ".yaml"
	e.commit("the other engine takes nothing", map[string]string{file: strings.Replace(
		platform()[file], "region: eu", "region: eu\n  state: Cordoned", 1)})
	e.eventually("it is in sync", e.converged)
	on := e.placements()
	e.dies()
	if err := e.evacuate(false); err != nil {
		t.Fatal(err)
	}
	e.eventually("it waits", func() error {
		v := e.view(e.dead.name).Evacuation
		if v == nil || v.State != mirror.EvacuationWaiting ||
			!strings.Contains(v.Message, "acme/prod: no other engine can take it") {
			return fmt.Errorf("%+v", v)
		}
		explained, err := e.store.Views.Explain(t.Context(), view.Scope{},
			fleet.EnvironmentID{Tenant: "acme", Name: "prod"})
		if err != nil || !strings.Contains(explained.Reason, "the environment stays") {
			return fmt.Errorf("%q, %w", explained.Reason, err)
		}
		return nil
	})
	if err := e.evacuate(true); err != nil {
		t.Fatal(err)
	}
	e.armed.Store(false)
	e.dead.away.Store(false)
	e.eventually("the engine serves them again", func() error {
		if v := e.view(e.dead.name).Evacuation; v != nil {
			return fmt.Errorf("%+v", v)
		}
		return e.converged()
	})
	for id, engine := range e.placements() {
		if engine != on[id] {
			t.Errorf("%s is on %s", id, engine)
		}
	}
}
