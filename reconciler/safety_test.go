package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func (h *house) setStop(s mirror.Stop) {
	h.t.Helper()
	s.By, s.Reason = "token:test", "a drill"
	if _, err := h.store.Decisions.SetStop(context.Background(), s, true); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) marked(name fleet.EngineName, want int) error {
	stops, err := h.engines[name].eyes.ReadStops(context.Background())
	if err == nil && len(stops) != want {
		err = fmt.Errorf("engine %s remembers %d stops, not %d", name, len(stops), want)
	}
	return err
}

func TestAStopHoldsBackEveryWriteAndItsEndHastensThem(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	a := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	h.setStop(mirror.Stop{Scope: mirror.StopFleet})
	for name := range h.engines {
		h.eventually("the engine remembers the stop", func() error { return h.marked(name, 1) })
	}
	written := h.engines["eu-1"].writes() + h.engines["eu-2"].writes()
	head := h.commit("during the stop",
		together(deployment("acme", "web", "v2", "Delete", "prod", "staging"),
			deployment("globex", "shop", "v2", "Orphan", "prod")))
	h.eventually("it is recorded", func() error {
		if s, _ := h.store.Views.Source(t.Context()); s.Applied != head {
			return errors.New("not recorded")
		}
		return nil
	})
	at := h.engineOf("acme", "prod")
	at.server.Merge(keyOf(at, "acme", "web", "prod"),
		`{"spec":{"source":{"targetRevision":"meddled"}}}`)
	h.passes(a, 10)
	a.stop() // a stop survives a restart
	h.passes(h.start("b", options{}), 10)
	if n := h.engines["eu-1"].writes() + h.engines["eu-2"].writes() - written; n != 0 {
		t.Errorf("%d writes during the stop", n)
	}
	if _, err := h.store.Decisions.ClearStop(t.Context(), mirror.StopFleet, "", "",
		"token:test"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	h.eventually("everything is done when it ends", h.converged)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("it took %s to go on", took)
	}
	for name := range h.engines {
		h.eventually("the engine forgets the stop", func() error { return h.marked(name, 0) })
	}
}

func TestTheMirrorComesBackFromGitAndTheEnginesWithoutAWrite(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	r.stop()
	placed, written := h.placements(), h.engines["eu-1"].writes()+h.engines["eu-2"].writes()
	h.newDatabase()
	h.start("b", options{})
	h.eventually("the fleet is in sync again", h.converged)
	if n := h.engines["eu-1"].writes() + h.engines["eu-2"].writes() - written; n != 0 {
		t.Errorf("the rebuild made %d writes", n)
	}
	if is := h.placements(); fmt.Sprint(is) != fmt.Sprint(placed) {
		t.Errorf("placed %v, and before %v", is, placed)
	}
	h.commit("life goes on", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.eventually("a commit arrives", h.converged)
	for _, e := range h.engines {
		if err := e.backwards(); err != nil {
			t.Error("epochs began again: ", err)
		}
	}
}

func (h *house) placements() map[string]fleet.EngineName {
	h.t.Helper()
	all, _, err := h.store.Views.Environments(context.Background(), view.Scope{}, view.Filter{},
		view.Page{Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	out := map[string]fleet.EngineName{}
	for _, e := range all {
		out[string(e.Tenant)+"/"+string(e.Name)] = e.Engine
	}
	return out
}

// The database is lost while a stop of one engine is in force, and its worker comes there before
// the engine was read: what the engine remembers is all that is left of the stop.
func TestAStopOfAnEngineThatIsNotReadYetOutlivesTheDatabase(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	at := h.engineOf("acme", "prod")
	h.setStop(mirror.Stop{Scope: mirror.StopEngine, Name: string(at.name)})
	h.eventually("the engine remembers the stop", func() error { return h.marked(at.name, 1) })
	r.stop()
	placed, written := h.placements(), at.writes()

	h.newDatabase()
	at.hidden.Store(true)
	dials := at.dials.Load()
	h.commit("meanwhile", together(deployment("acme", "web", "v2", "Delete", "prod", "staging"),
		deployment("globex", "shop", "v2", "Orphan", "prod")))
	b := h.start("b", options{})
	h.eventually("what can be read is recorded, and nothing new is placed", func() error {
		if s, _ := h.store.Views.Source(t.Context()); s.Applied != h.head() {
			return errors.New("not recorded")
		}
		for id, engine := range h.placements() {
			if want := placed[id]; want == at.name && engine != "" || want != at.name &&
				engine != want {
				t.Fatalf("%s is on %q, and was on %s", id, engine, want)
			}
		}
		return nil
	})
	h.eventually("its worker is there", func() error {
		if at.dials.Load() == dials || b.store.asked("syncs "+string(at.name)) < 3 {
			return errors.New("not yet")
		}
		return h.marked(at.name, 1)
	})
	at.hidden.Store(false)
	h.eventually("its environments are found where they were", func() error {
		if is := h.placements(); fmt.Sprint(is) != fmt.Sprint(placed) {
			return fmt.Errorf("placed %v, and before %v", is, placed)
		}
		return nil
	})
	stops, err := h.store.Views.Stops(t.Context(), view.Scope{})
	if err != nil || len(stops) != 1 || stops[0].Name != string(at.name) {
		t.Fatalf("the stop is lost: %v, %v", stops, err)
	}
	if err := h.marked(at.name, 1); err != nil {
		t.Error(err)
	}
	if n := at.writes() - written; n != 0 {
		t.Errorf("%d writes in spite of the stop", n)
	}
	if _, err := h.store.Decisions.ClearStop(t.Context(), mirror.StopEngine, string(at.name), "",
		"token:test"); err != nil {
		t.Fatal(err)
	}
	h.eventually("it goes on when resumed", h.converged)
}

func TestNothingIsWrittenAndNoStopForgottenWhileTheStopsCannotBeRead(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	a := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	h.setStop(mirror.Stop{Scope: mirror.StopFleet})
	for name := range h.engines {
		h.eventually("the engine remembers the stop", func() error { return h.marked(name, 1) })
	}
	a.stop()
	written := h.engines["eu-1"].writes() + h.engines["eu-2"].writes()
	var failing atomic.Bool
	failing.Store(true)
	b := h.start("b", options{fail: failFor(&failing, "stops")})
	h.commit("in the dark", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.passes(b, 10)
	for name := range h.engines {
		if err := h.marked(name, 1); err != nil {
			t.Error(err)
		}
	}
	failing.Store(false)
	h.eventually("the stops are read, and hold", func() error {
		if b.store.asked("changed") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := h.engines["eu-1"].writes() + h.engines["eu-2"].writes() - written; n != 0 {
		t.Errorf("%d writes in spite of the stop", n)
	}
}

func TestARebuildUnderARunningReplicaIsNoticed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	placed, written := h.placements(), h.engines["eu-1"].writes()+h.engines["eu-2"].writes()
	if err := h.store.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.eventually("the mirror comes back", func() error {
		if is := h.placements(); fmt.Sprint(is) != fmt.Sprint(placed) {
			return fmt.Errorf("placed %v, and before %v", is, placed)
		}
		return h.converged()
	})
	if n := h.engines["eu-1"].writes() + h.engines["eu-2"].writes() - written; n != 0 {
		t.Errorf("the rebuild made %d writes", n)
	}
}

func TestAWriteUnderWayEndsBeforeItsLeasePassesOn(t *testing.T) {
	t.Parallel()
	var blocked, entered atomic.Bool
	release := make(chan struct{})
	h := newHouse(t, small())
	a := h.start("a", options{flight: 1, engine: func(call string, _ fleet.ObjectKey) error {
		if call == "apply" && blocked.Load() {
			entered.Store(true)
			<-release
		}
		return nil
	}})
	h.eventually("the fleet is in sync", h.converged)
	b := h.start("b", options{})
	blocked.Store(true)
	h.commit("slow", deployment("globex", "shop", "v2", "Orphan", "prod"))
	h.eventually("a write is under way", func() error {
		if !entered.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	name := "engine/" + string(h.engineOf("globex", "prod").name)
	var stopping sync.WaitGroup
	stopping.Go(a.stop)
	tried := b.store.asked("acquire")
	h.eventually("the other replica asks for the lease", func() error {
		if b.store.asked("acquire") < tried+10 {
			return errors.New("not yet")
		}
		return nil
	})
	if _, early := b.store.lease(name); early {
		t.Error("the lease has passed on while a write was under way")
	}
	blocked.Store(false)
	close(release)
	stopping.Wait()
	h.eventually("the other replica takes over", func() error {
		if _, ok := b.store.lease(name); !ok {
			return errors.New("not yet")
		}
		return nil
	})
	h.eventually("the write counts", h.converged)
}

// A secret of an engine's own connection changes: its worker restarts, and both are the same
// holder of the engine's lease.
func TestTwoWorkersOfOneReplicaNeverServeAnEngineTogether(t *testing.T) {
	t.Parallel()
	var blocked, entered atomic.Bool
	release := make(chan struct{})
	h := newHouse(t, small())
	a := h.start("a", options{flight: 1, engine: func(call string, _ fleet.ObjectKey) error {
		if call == "apply" && blocked.Load() {
			entered.Store(true)
			<-release
		}
		return nil
	}})
	h.eventually("the fleet is in sync", h.converged)
	at := h.engineOf("globex", "prod")
	blocked.Store(true)
	h.commit("slow", deployment("globex", "shop", "v2", "Orphan", "prod"))
	h.eventually("a write is under way", func() error {
		if !entered.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	dials, other := at.dials.Load(), a.store.asked("changed")
	a.manager.Rotated("", "engine-"+string(at.name))
	h.eventually("the other engine's worker goes on", func() error {
		if a.store.asked("changed") < other+10 {
			return errors.New("not yet")
		}
		return nil
	})
	if at.dials.Load() != dials {
		t.Error("a second worker has connected while the first one writes")
	}
	blocked.Store(false)
	close(release)
	h.eventually("the new worker connects", func() error {
		if at.dials.Load() == dials {
			return errors.New("not yet")
		}
		return nil
	})
	h.eventually("nothing is lost", h.converged)
}

func TestARestartWithMuchToDoHasNoMoreInFlightThanAllowed(t *testing.T) {
	t.Parallel()
	files := small()
	for i := range 40 {
		for path, text := range deployment("acme", fmt.Sprintf("app-%03d", i), "v1", "Delete",
			"prod", "staging") {
			files[path] = text
		}
	}
	h := newHouse(t, files)
	h.setStop(mirror.Stop{Scope: mirror.StopFleet})
	r := h.start("a", options{})
	h.eventually("all is recorded and nothing written", func() error {
		if len(h.rows()) < 80 {
			return errors.New("not yet")
		}
		return nil
	})
	r.stop()
	if _, err := h.store.Decisions.ClearStop(t.Context(), mirror.StopFleet, "", "",
		"token:test"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now, most := map[fleet.EngineName]int{}, 0
	crowded := make(chan struct{}) // never closed if the limit holds
	rested := make(chan struct{})  // closed some time after so many as are allowed have come
	var full sync.Once
	count := func(e fleet.EngineName, n int) {
		mu.Lock()
		defer mu.Unlock()
		now[e] += n
		if most = max(most, now[e]); now[e] == 4 {
			close(crowded)
		}
		if now[e] == 3 {
			full.Do(func() { time.AfterFunc(500*time.Millisecond, func() { close(rested) }) })
		}
	}
	h.start("b", options{flight: 3, engine: func(call string, key fleet.ObjectKey) error {
		if call == "apply" && key.Kind == fleet.ObjectApplication {
			count(key.Engine, 1)
			defer count(key.Engine, -1)
			select { // a slow engine, until more could have come
			case <-crowded:
			case <-rested:
			case <-t.Context().Done():
			}
		}
		return nil
	}})
	h.eventually("everything arrives", h.converged)
	if most != 3 {
		t.Errorf("%d objects in flight on one engine; 3 are allowed", most)
	}
}
