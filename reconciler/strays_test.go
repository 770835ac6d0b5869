package reconciler_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"argosy.dev/argosy/fleet"
)

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
	source, err := h.store.Source(h.t.Context())
	if err == nil && source.Applied != head {
		err = errors.New("not recorded yet")
	}
	return err
}

// The deletion is queued when a stop is set, and taken back while the worker cannot read its rows.
func TestADeletionReadsItsRowAgainRightBeforeItActs(t *testing.T) {
	h := newHouse(t, small())
	var blind atomic.Bool
	a := h.start("a", options{fail: func(call string) error {
		if blind.Load() && call == "changed" {
			return errChaos
		}
		return nil
	}})
	h.eventually("the fleet stands", h.settled)
	h.setStop(fleet.Stop{Scope: fleet.StopFleet})
	for name := range h.engines {
		h.eventually("the stop is in force", func() error { return h.marked(name, 1) })
	}
	shop := deployment("globex", "shop", "v1", "Orphan", "prod")
	h.commit("a mistake", gone(shop))
	h.eventually("the mistake is recorded", func() error {
		for key, row := range h.rows() {
			if row.Absent && key.Kind == fleet.ObjectApplication {
				return nil
			}
		}
		return errors.New("no Application is to go")
	})
	h.passes(a, 10) // it waits in the queue
	blind.Store(true)
	restored := h.commit("its revert", shop)
	h.eventually("the revert is recorded", func() error { return h.recorded(restored) })
	if _, err := h.store.ClearStop(t.Context(), fleet.StopFleet, "", "", "token:test"); err != nil {
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
	h.eventually("the fleet stands again", h.settled)
}
