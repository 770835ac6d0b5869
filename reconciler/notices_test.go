package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// still waits until nothing has been fetched for a while, and returns the number of fetches until
// then.
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

// A commit is one fetch: the loop ignores the notice of its own record.
func TestACommitIsFetchedOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{poll: time.Hour})
	h.eventually("the fleet is in sync", h.converged)
	before := h.still(r)
	const commits = 5
	for i := range commits {
		noticed := r.notices.Load()
		h.commit("another one", deployment("acme", "web", fmt.Sprint("v", i+2), "Delete", "prod",
			"staging"))
		r.Wake() // as a webhook does
		h.eventually("it is sent to all replicas, and arrives", func() error {
			if r.notices.Load() == noticed {
				return errors.New("not sent")
			}
			return h.converged()
		})
	}
	if n := h.still(r) - before; n != commits {
		t.Errorf("%d fetches for %d commits", n, commits)
	}
}

// An emergency stop, and a sync that a tenant asks of its own cluster, are no reason to fetch the
// config repo: tenants would drive fetches.
func TestStopsAndSyncsOfTenantsCostNoFetch(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{poll: time.Hour})
	h.eventually("the fleet is in sync", h.converged)
	before, noticed := h.still(r), r.notices.Load()
	h.setStop(mirror.Stop{Scope: mirror.StopTenant, Name: "acme", By: "token:acme/ci"})
	if _, err := h.store.Decisions.ClearStop(t.Context(), mirror.StopTenant, "acme", "",
		"token:acme/ci"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := h.store.Notify(t.Context(), mirror.NoticeAgents); err != nil {
			t.Fatal(err)
		}
	}
	h.eventually("all of them arrive", func() error {
		if n := r.notices.Load() - noticed; n < 22 {
			return fmt.Errorf("%d notices", n)
		}
		return nil
	})
	if n := h.still(r) - before; n != 0 {
		t.Errorf("%d fetches", n)
	}
}

// A revision wakes the workers that have something to do, and no others: these
// workers get a notice.
func TestARecordNamesTheEnginesThatItConcerns(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{poll: time.Hour})
	h.eventually("the fleet is in sync", h.converged)
	h.still(r)
	notices := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	listening.Go(func() { h.store.Listen(ctx, func(notice string) { notices <- notice }) })
	defer listening.Wait()
	defer cancel()
	<-notices // it is connected
	h.commit("globex alone", deployment("globex", "shop", "v2", "Orphan", "prod"))
	r.Wake()
	by, engines, ok := mirror.Recorded(<-notices)
	of := map[fleet.EngineName]bool{}
	for key, row := range h.rows() {
		if row.Tenant == "globex" && key.Kind == fleet.ObjectApplication {
			of[key.Engine] = true
		}
	}
	if !ok || by != "a" || len(engines) != 1 || !of[engines[0]] {
		t.Errorf("%s names %v, want one of %v", by, engines, of)
	}
}

// A notice of others wakes the loop at once, long before the next poll.
func TestNoticesOfOthersWakeTheLoop(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{poll: time.Hour})
	h.eventually("the fleet is in sync", h.converged)
	h.still(r)
	h.commit("by another replica's webhook", deployment("acme", "web", "v2", "Delete", "prod",
		"staging"))
	if err := h.store.Notify(t.Context(), "another replica"); err != nil {
		t.Fatal(err)
	}
	h.eventually("it arrives", h.converged)
	h.still(r)
	files := gone(together(tenant("acme", "prod", "staging"), tenant("globex", "prod"),
		deployment("acme", "web", "v1", "Delete", "prod"), deployment("globex", "shop", "v1",
			"Orphan", "prod")))
	empty := h.commit("everything gone", files)
	r.Wake()
	h.eventually("it waits", func() error { return h.held(empty, mirror.HoldEmpty) })
	h.still(r)
	approve(t, h, empty)
	h.eventually("an approval takes effect", func() error {
		if s, err := h.store.Views.Source(t.Context()); err != nil || s.Applied != empty {
			return fmt.Errorf("revision %s is applied, %w", s.Applied.Short(), err)
		}
		return nil
	})
}

// The dependencies of an Application are deleted right after it, before the next poll. Everything
// that is deleted together leads to one notice.
func TestWhatIsProvenGoneWakesTheLoop(t *testing.T) {
	t.Parallel()
	files := together(small(), map[string]string{"fleet/fleet.yaml": document("Fleet", "fleet",
		"guards: {maxDeletes: 100, maxDeletePercent: 100, alwaysAllowed: 100, window: 1h}\n  "+
			"gitHosts: [git.example.com]")})
	leaving := tenant("globex", "prod")
	for i := range 20 {
		maps.Copy(leaving, deployment("globex", fmt.Sprint("shop-", i), "v1", "Orphan", "prod"))
	}
	h := newHouse(t, together(files, leaving))
	r := h.start("a", options{poll: time.Hour})
	h.eventually("the fleet is in sync", h.converged)
	before, sent := h.still(r), r.store.asked("notify engine")
	if sent != 0 {
		t.Fatalf("%d notices of deleted objects before a deletion", sent)
	}
	h.commit("globex leaves",
		together(gone(leaving), gone(deployment("globex", "shop", "v1", "Orphan", "prod"))))
	r.Wake()
	h.eventually("all of it is gone", func() error {
		for _, row := range h.rows() {
			if row.Tenant == "globex" {
				return fmt.Errorf("%s %s stands", row.Key.Kind, row.Key.Name)
			}
		}
		return h.converged()
	})
	h.eventually("it gets notices of the Applications, and of their dependencies", func() error {
		if sent = r.store.asked("notify engine"); sent < 2 {
			return fmt.Errorf("%d notices", sent)
		}
		return nil
	})
	if fetches := h.still(r) - before; sent > 6 || fetches > int64(r.store.asked("notify engine"))+
		1 {
		t.Errorf("21 Applications and their dependencies: %d notices, %d fetches", sent, fetches)
	}
	recorded := r.store.asked("record")
	if err := r.store.Notify(t.Context(), "engine/eu-1"); err != nil {
		t.Fatal(err)
	}
	h.eventually("it reconciles, and finds nothing", func() error {
		if h.still(r)-before <= int64(sent) {
			return errors.New("it does not look")
		}
		return nil
	})
	// the begin, the commit, what the Applications needed, and once more if they were slow to go
	if again := r.store.asked("record"); again != recorded || recorded > 4 {
		t.Errorf("%d records, then %d after a notice without a change", recorded, again)
	}
}
