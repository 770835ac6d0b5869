package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// passes waits until the loop has looked at the branch n times more.
func (h *house) passes(r *replica, n int64) {
	h.t.Helper()
	from := r.source.fetches.Load()
	h.eventually("the loop goes on", func() error {
		if r.source.fetches.Load() < from+n {
			return errors.New("no pass")
		}
		return nil
	})
}

func TestAReconcileWithoutNewsPlansNothingAndWritesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	h.passes(r, 3)
	calls := []string{"record", "lately", "acknowledge", "observe", "updatesync", "rows", "load"}
	before, written := r.store.asked(calls...), h.engines["eu-1"].server.Writes()+
		h.engines["eu-2"].server.Writes()
	sourced, began := r.store.asked("source"), time.Now()
	h.passes(r, 20)
	if n := r.store.asked(calls...) - before; n != 0 {
		t.Errorf("%d calls of %v in 20 passes without news", n, calls)
	}
	if n := r.store.asked("source") - sourced; n > 1+int(time.Since(began)/(10*time.Second)) {
		t.Errorf("the state of the source was recorded %d times in 20 passes", n)
	}
	if n := h.engines["eu-1"].server.Writes() +
		h.engines["eu-2"].server.Writes() - written; n != 0 {
		t.Errorf("%d writes to engines", n)
	}
}

func TestARevisionThatWaitsIsReadAndRecordedOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	first := h.head()
	if _, err := h.repo.Git(t.Context(), "update-ref", "-d", "refs/heads/main"); err != nil {
		t.Fatal(err)
	}
	rewritten := h.commit("another history",
		together(small(), deployment("acme", "web", "v2", "Delete", "prod", "staging")))
	h.eventually("the rewritten history waits", func() error {
		return h.held(rewritten, mirror.HoldRewritten)
	})
	h.passes(r, 3)
	records, reads := r.store.asked("record"), r.source.reads.Load()
	h.passes(r, 10)
	if n := r.store.asked("record") - records; n != 0 {
		t.Errorf("recorded %d times while it waits", n)
	}
	if n := r.source.reads.Load() - reads; n != 0 {
		t.Errorf("read %d times while it waits", n)
	}
	if s, _ := h.store.Views.Source(t.Context()); s.Applied != first {
		t.Errorf("revision %s is applied", s.Applied.Short())
	}
	approve(t, h, rewritten)
	h.eventually("it is applied once approved", h.converged)
}

func TestARevisionThatWaitsASecondTimeIsApprovedASecondTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	first := h.head()
	second := h.commit("forward", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.eventually("it is applied", h.converged)
	for range 2 {
		h.point(first)
		h.eventually("the older revision waits", func() error {
			return h.held(first, mirror.HoldOlder)
		})
		h.passes(r, 3) // the first approval is known, and is not enough
		approve(t, h, first)
		h.eventually("it is applied once approved", h.converged)
		h.point(second)
		h.eventually("forward again", h.converged)
	}
}

func TestAHoldEndsWhenTheBranchIsBackAtWhatIsApplied(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	first := h.head()
	second := h.commit("forward", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.eventually("it is applied", h.converged)
	h.point(first)
	h.eventually("the older revision waits", func() error {
		return h.held(first, mirror.HoldOlder)
	})
	h.point(second)
	h.passes(r, 3)
	holds, _, err := h.store.Views.Holds(t.Context(), view.Scope{}, view.Filter{}, view.Page{
		Limit: 10})
	if err != nil || len(holds) > 0 {
		t.Errorf("%v, %+v", err, holds)
	}
}

// point sets the branch to a commit of before.
func (h *house) point(at fleet.Revision) {
	h.t.Helper()
	if _, err := h.repo.Git(context.Background(), "update-ref", "refs/heads/main",
		string(at)); err != nil {
		h.t.Fatal(err)
	}
}

func TestARestartWhileARevisionWaitsRecordsItOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	empty := h.commit("everything gone",
		gone(together(tenant("acme", "prod", "staging"), tenant("globex", "prod"),
			deployment("acme", "web", "v1", "Delete", "prod"), deployment("globex", "shop", "v1",
				"Orphan", "prod"))))
	h.eventually("the empty revision waits", func() error {
		return h.held(empty, mirror.HoldEmpty)
	})
	r.stop()
	r = h.start("b", options{})
	h.passes(r, 5)
	if err := h.held(empty, mirror.HoldEmpty); err != nil {
		t.Error(err)
	}
	all, _, err := h.store.Views.Operations(t.Context(), view.Scope{}, view.Filter{Revision: empty},
		view.Page{Limit: 100})
	if err != nil || len(all) != 1 {
		t.Errorf("%d operations for the revision that waits: %v", len(all), err)
	}
}

func (h *house) held(revision fleet.Revision, reason mirror.HoldReason) error {
	holds, _, err := h.store.Views.Holds(context.Background(), view.Scope{}, view.Filter{},
		view.Page{
			Limit: 100})
	if err != nil {
		return err
	}
	if len(holds) != 1 || holds[0].Revision != revision || holds[0].Reason != reason {
		return fmt.Errorf("held: %+v", holds)
	}
	return nil
}

func approve(t *testing.T, h *house, revision fleet.Revision) {
	t.Helper()
	if _, err := h.store.Decisions.Approve(t.Context(), mirror.Approval{
		Revision: revision, By: "token:test"}); err != nil {
		t.Fatal(err)
	}
}

func TestAnOutageOfTheSourceIsRecordedWithItsBeginAndHeals(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	r.source.away.Store(true)
	var begin view.Source
	h.eventually("the outage is recorded", func() (err error) {
		if begin, err = h.store.Views.Source(t.Context()); err == nil &&
			(begin.Since == nil || !strings.Contains(begin.Error, "away")) {
			err = fmt.Errorf("source: %+v", begin)
		}
		return err
	})
	h.passes(r, 5)
	if s, _ := h.store.Views.Source(t.Context()); !s.Since.Equal(*begin.Since) {
		t.Errorf("the outage began %s, and later %s", begin.Since, s.Since)
	}
	h.commit("during the outage", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	r.source.away.Store(false)
	h.eventually("the commit made meanwhile arrives", h.converged)
	h.eventually("the outage is over", func() error {
		if s, err := h.store.Views.Source(t.Context()); err != nil || s.Error != "" ||
			s.Since != nil {
			return fmt.Errorf("source: %+v, %w", s, err)
		}
		return nil
	})
}

func TestAFaultOfTheDatabaseIsNotTheSources(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	h := newHouse(t, small())
	r := h.start("a", options{fail: failFor(&failing, "lately", "record")})
	h.eventually("the fleet is in sync", h.converged)
	failing.Store(true)
	h.commit("while the database is away", deployment("acme", "web", "v2", "Delete", "prod",
		"staging"))
	h.passes(r, 4)
	if s, err := h.store.Views.Source(t.Context()); err != nil || s.Error != "" {
		t.Errorf("the source is blamed: %+v, %v", s, err)
	}
	failing.Store(false)
	h.eventually("the commit arrives", h.converged)
}

func TestARecordWhoseAnswerIsLostHasOneEffect(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	failing.Store(true)
	h := newHouse(t, small())
	r := h.start("a", options{fail: failFor(&failing, "recorded")})
	h.eventually("it was recorded", func() error {
		if r.store.asked("recorded") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	failing.Store(false)
	h.eventually("the fleet is in sync", h.converged)
	revisions, _, err := h.store.Views.Revisions(t.Context(), view.Scope{}, view.Filter{},
		view.Page{
			Limit: 10})
	if err != nil || len(revisions) != 1 || revisions[0].Created != 3 {
		t.Errorf("%d revisions: %+v, %v", len(revisions), revisions, err)
	}
}

// failFor fails the named calls while on.
func failFor(on *atomic.Bool, calls ...string) func(string) error {
	return func(call string) error {
		for _, c := range calls {
			if on.Load() && c == call {
				return errors.New("the database is away")
			}
		}
		return nil
	}
}
