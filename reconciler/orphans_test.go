package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

var errOrdered = errors.New("a fault to order")

// deletions are the objects whose deletion was ever begun on any engine.
func (h *house) deletions() (all []fleet.ObjectKey) {
	for _, e := range h.engines {
		e.mu.Lock()
		all = append(all, e.deleted...)
		e.mu.Unlock()
	}
	return all
}

func (h *house) recorded(head fleet.Revision) error {
	source, err := h.store.Views.Source(h.t.Context())
	if err == nil && source.Applied != head {
		err = errors.New("not recorded yet")
	}
	return err
}

// The deletion is queued when a stop is set, and taken back while the worker cannot read its rows.
func TestADeletionReadsItsRowAgainRightBeforeItActs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	var blind atomic.Bool
	a := h.start("a", options{fail: func(call string) error {
		if blind.Load() && call == "changed" {
			return errOrdered
		}
		return nil
	}})
	h.eventually("the fleet is in sync", h.converged)
	h.setStop(mirror.Stop{Scope: mirror.StopFleet})
	for name := range h.engines {
		h.eventually("the stop is in force", func() error { return h.marked(name, 1) })
	}
	shop := deployment("globex", "shop", "v1", "Orphan", "prod")
	h.commit("a mistake", gone(shop))
	h.eventually("the mistake is recorded", func() error {
		for key, row := range h.rows() {
			if row.Unwanted && key.Kind == fleet.ObjectApplication {
				return nil
			}
		}
		return errors.New("no Application is to go")
	})
	h.passes(a, 10) // it waits in the queue
	blind.Store(true)
	restored := h.commit("its revert", shop)
	h.eventually("the revert is recorded", func() error { return h.recorded(restored) })
	if _, err := h.store.Decisions.ClearStop(t.Context(), mirror.StopFleet, "", "",
		"token:test"); err != nil {
		t.Fatal(err)
	}
	for name := range h.engines {
		h.eventually("the stop is over", func() error { return h.marked(name, 0) })
	}
	h.passes(a, 10)
	if gone := h.deletions(); len(gone) > 0 {
		t.Errorf("deleted for rows that were taken back: %v", gone)
	}
	blind.Store(false)
	h.eventually("the fleet is in sync again", h.converged)
}

// late is a write of a control plane that was given up: it arrives now, whatever was done since.
func (h *house) late(row mirror.Row, epoch int64) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	old := h.engines[row.Key.Engine].server.Connect(row.Key.Engine)
	_, _ = old.Preflight(ctx)
	_ = old.Watch(ctx, engine.Sink{}) // one list
	if out, err := old.Apply(context.Background(), row, fleet.Secret{}, mirror.Lease{
		Epoch: epoch}); err != nil || !out.Changed {
		h.t.Fatalf("the late write: %+v, %v", out, err)
	}
}

// appliedRow is the one row of a deployment's Application.
func (h *house) appliedRow(deployment string) mirror.Row {
	h.t.Helper()
	for _, row := range h.rows() {
		if string(row.Deployment) == deployment && row.Key.Kind == fleet.ObjectApplication {
			return row
		}
	}
	h.t.Fatalf("no row of %s", deployment)
	return mirror.Row{}
}

func (h *house) orphans(want int) func() error {
	return func() error {
		all, _, err := h.store.Views.Orphans(context.Background(), view.Scope{}, view.Filter{},
			view.Page{Limit: 100})
		if err == nil && len(all) != want {
			err = fmt.Errorf("%d orphans are listed, not %d: %+v", len(all), want, all)
		}
		return err
	}
}

func (h *house) orphan() view.Orphan {
	h.t.Helper()
	h.eventually("one orphan is listed", h.orphans(1))
	all, _, err := h.store.Views.Orphans(context.Background(), view.Scope{}, view.Filter{},
		view.Page{
			Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	return all[0]
}

func (h *house) absent(row mirror.Row) func() error {
	return func() error {
		if h.engines[row.Key.Engine].server.Exists(row.Key) {
			return fmt.Errorf("%s is there", row.Key.Name)
		}
		if _, ok := h.rows()[row.Key]; ok {
			return fmt.Errorf("%s has a row", row.Key.Name)
		}
		return nil
	}
}

func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	if err := stack.ExecSQL(context.Background(), h.url, sql, args...); err != nil {
		h.t.Fatal(err)
	}
}

func TestACreateThatArrivesAfterTheDeletionIsUndone(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	shop := h.appliedRow("shop")
	h.commit("shop leaves", gone(deployment("globex", "shop", "v1", "Orphan", "prod")))
	h.eventually("shop has left", h.absent(shop))
	h.late(shop, 1)
	h.eventually("the late create is undone", h.absent(shop))
	h.eventually("nothing is left of it", h.orphans(0))
	h.eventually("the fleet is in sync without it", h.converged)
}

func TestAOrphanIsListedAndRemovedByADecisionAboutItsUIDAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	shop := h.appliedRow("shop")
	h.commit("shop leaves", gone(deployment("globex", "shop", "v1", "Orphan", "prod")))
	h.eventually("shop has left", h.absent(shop))
	h.exec(`DELETE FROM argosy.tombstones`) // it was long ago
	before := len(h.deletions())
	h.late(shop, 1)
	s := h.orphan()
	if s.Engine != shop.Key.Engine || s.Name != shop.Key.Name || s.Tenant != "globex" ||
		s.Deployment != "shop" || s.UID == "" {
		t.Errorf("listed as %+v", s)
	}
	removal := mirror.OrphanRemoval{Engine: s.Engine, Kind: s.Kind, Name: s.Name, UID: "another",
		Deletion: fleet.DeletionOrphan, By: "token:test"}
	if _, err := h.store.Decisions.RemoveOrphan(t.Context(), removal); !errors.Is(
		err, mirror.ErrNotFound) {
		t.Errorf("a decision about another UID: %v", err)
	}
	if !h.engines[s.Engine].server.Exists(shop.Key) || len(h.deletions()) != before {
		t.Fatal("an orphan was removed without a decision")
	}
	removal.UID = s.UID
	if _, err := h.store.Decisions.RemoveOrphan(t.Context(), removal); err != nil {
		t.Fatal(err)
	}
	h.eventually("it is removed", h.absent(shop))
	h.eventually("and off the list", h.orphans(0))
}

func TestALateUpdateOfARowThatWasRevertedIsUndone(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	h.commit("v2", deployment("globex", "shop", "v2", "Orphan", "prod"))
	h.eventually("v2 is live", h.converged)
	v2 := h.appliedRow("shop")
	h.commit("back to v1", deployment("globex", "shop", "v1", "Orphan", "prod"))
	h.eventually("v1 is live", h.converged)
	live, _ := h.engines[v2.Key.Engine].eyes.Live(v2.Key)
	h.late(v2, live.Epoch)
	h.eventually("v1 is restored", h.converged)
}

func TestRowsThatWereTakenOutByHandAreFoundByVerification(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	a := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	a.stop()
	shop := h.appliedRow("shop")
	h.exec(`DELETE FROM argosy.desired WHERE name = $1`, shop.Key.Name)
	h.start("b", options{}) // begins with a verifying pass
	if s := h.orphan(); s.Name != shop.Key.Name {
		t.Errorf("listed as %+v", s)
	}
	if !h.engines[shop.Key.Engine].server.Exists(shop.Key) || len(h.deletions()) > 0 {
		t.Error("verification has deleted something")
	}
	h.commit("declared again", deployment("globex", "shop", "v2", "Orphan", "prod"))
	h.eventually("it is adopted", h.converged)
	h.eventually("and off the list", h.orphans(0))
}

// The deletion is held for an approval when the database is lost: Git has no word of the
// Application.
func TestARebuildListsWhatWasHeldAsOrphansAndDeletesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	a := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	head := h.commit("two at once",
		gone(deployment("acme", "web", "v1", "Delete", "prod", "staging")))
	h.eventually("the deletion is held", func() error {
		holds, _, err := h.store.Views.Holds(context.Background(), view.Scope{}, view.Filter{},
			view.Page{Limit: 10})
		if err == nil && len(holds) == 0 {
			err = errors.New("nothing is held")
		}
		return err
	})
	a.stop()
	h.newDatabase()
	b := h.start("b", options{})
	h.eventually("the mirror is restored", func() error { return h.recorded(head) })
	h.eventually("both are listed", h.orphans(2))
	h.passes(b, 10)
	if gone := h.deletions(); len(gone) > 0 {
		t.Errorf("the rebuild deleted %v", gone)
	}
}

// An engine's etcd is restored from before some commits. Nothing of it changed for the rows, and
// the objects are consistent in themselves.
func TestAnEngineThatWentBackIsBroughtToItsRowsAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, together(small(), deployment("globex", "old", "v1", "Orphan", "prod")))
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	shop, old := h.appliedRow("shop"), h.appliedRow("old")
	restore := h.engines[shop.Key.Engine].server.Backup()
	h.commit("one changed, one new", together(deployment("globex", "shop", "v2", "Orphan", "prod"),
		deployment("globex", "new", "v1", "Orphan", "prod")))
	h.eventually("both exist", h.converged)
	h.commit("one gone", gone(deployment("globex", "old", "v1", "Orphan", "prod")))
	h.eventually("it has gone", h.absent(old))
	begun := time.Now()
	restore()
	s := h.orphan()
	if s.Name != old.Key.Name {
		t.Errorf("listed as %+v, not what was deleted", s)
	}
	if _, err := h.store.Decisions.RemoveOrphan(t.Context(), mirror.OrphanRemoval{
		Engine: s.Engine, Kind: s.Kind,
		Name: s.Name, UID: s.UID,
		Deletion: fleet.DeletionOrphan, By: "token:test"}); err != nil {
		t.Fatal(err)
	}
	h.eventually("the engine holds what its rows want", h.converged)
	t.Logf("after %s", time.Since(begun).Round(time.Millisecond))
	engines, _, err := h.store.Views.Engines(t.Context(), view.Scope{}, view.Filter{
		Engine: shop.Key.Engine}, view.Page{Limit: 1})
	if err != nil || engines[0].WentBackAt == nil || engines[0].WentBack == "" {
		t.Errorf("the engine is shown as %+v, %v", engines, err)
	}
}
