package reconciler_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

// still waits until nothing has been fetched for a while, and says how often it was fetched until then.
func (h *house) still(r *replica) int64 {
	h.t.Helper()
	last, looks := r.source.fetches.Load(), 0
	h.eventually("the loop rests", func() error {
		if n := r.source.fetches.Load(); n != last {
			last, looks = n, 0
		}
		if looks++; looks < 20 {
			return errors.New("it fetches")
		}
		return nil
	})
	return last
}

// A commit is one fetch: that it was recorded, which the loop tells all replicas, is no news to the loop itself.
func TestACommitIsFetchedOnce(t *testing.T) {
	h := newHouse(t, small())
	r := h.start("a", options{poll: time.Hour})
	h.eventually("the fleet stands", h.settled)
	before := h.still(r)
	const commits = 5
	for i := range commits {
		heard := r.heard.Load()
		h.commit("another one", deployment("acme", "web", fmt.Sprint("v", i+2), "Delete", "prod", "staging"))
		r.Wake() // as a webhook does
		h.eventually("it is told to all replicas, and arrives", func() error {
			if r.heard.Load() == heard {
				return errors.New("not told")
			}
			return h.settled()
		})
	}
	if n := h.still(r) - before; n != commits {
		t.Errorf("%d fetches for %d commits", n, commits)
	}
}

// What others tell is heard at once, long before the next poll.
func TestWhatOthersTellWakesTheLoop(t *testing.T) {
	h := newHouse(t, small())
	r := h.start("a", options{poll: time.Hour})
	h.eventually("the fleet stands", h.settled)
	h.still(r)
	h.commit("by another replica's webhook", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	if err := h.store.Notify(t.Context(), "another replica"); err != nil {
		t.Fatal(err)
	}
	h.eventually("it arrives", h.settled)
	h.still(r)
	files := gone(together(tenant("acme", "prod", "staging"), tenant("globex", "prod"), deployment("acme", "web", "v1", "Delete", "prod"), deployment("globex", "shop", "v1", "Orphan", "prod")))
	empty := h.commit("everything gone", files)
	r.Wake()
	h.eventually("it waits", func() error { return h.held(empty, fleet.HoldEmpty) })
	h.still(r)
	approve(t, h, empty)
	h.eventually("an approval is heard", func() error {
		if s, err := h.store.Source(t.Context()); err != nil || s.Applied != empty {
			return fmt.Errorf("revision %s is applied, %w", s.Applied.Short(), err)
		}
		return nil
	})
}
