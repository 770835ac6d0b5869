package argocd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestConflictPausesDouble(t *testing.T) {
	q := fieldConflicts{of: map[fleet.ObjectKey]fieldConflict{}}
	key := fleet.ObjectKey{Name: "x"}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const window = time.Minute
	overwritten := 0
	for range 24 * 60 * 60 { // a manager that changes it every second for a day
		if wait, _ := q.check(key, now, window); wait == 0 {
			q.overwritten(key, now, window)
			overwritten++
		}
		now = now.Add(time.Second)
	}
	if overwritten < 20 || overwritten > 60 {
		t.Errorf("%d overwrites in a day", overwritten)
	}
	if wait, again := q.check(key, now.Add(2*maxConflictPause), window); wait != 0 || again {
		t.Error("after a long pause the next drift is still a conflict")
	}
}

func TestFlowHalvesAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlow(8, 16)
		for range 8 {
			if err := f.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a ninth in flight: %v", err)
		}
		f.release(3 * time.Second)
		begun := time.Now()
		for range 7 {
			f.release(0)
		}
		if err := f.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited < 3*time.Second {
			t.Errorf("it went on after %s", waited)
		}
		f.release(0)
		if f.limit > 6 {
			t.Errorf("%d in flight after it was throttled", f.limit)
		}
		for range 1000 {
			if err := f.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.release(0)
		}
		if f.limit != 16 || f.used != 0 {
			t.Errorf("limit %d, used %d after a thousand successes", f.limit, f.used)
		}
	})
}

func TestFlowBoundsConcurrency(t *testing.T) {
	f := newFlow(1, 1)
	for range 100 {
		if err := f.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.release(time.Nanosecond)
	}
	if f.limit != 1 {
		t.Errorf("limit is %d", f.limit)
	}
}

func TestRetryAfterIsBounded(t *testing.T) {
	for header, least := range map[string]time.Duration{"": throttleWait, "2": 2 * time.Second,
		"x": throttleWait, "-5": throttleWait, "99999999": time.Minute} {
		if got := retryAfter(header, 0); got < least || got > least+least/4 {
			t.Errorf("%q gives %s", header, got)
		}
	}
	if got := retryAfter("", 3); got < 3*time.Second {
		t.Errorf("from the body: %s", got)
	}
}

func TestDecideComparesRowAndObject(t *testing.T) {
	row := rowOf(t, applicationObject(checkoutID, exampleServer), 1)
	w, err := prepare(row, fleet.Secret{}, mirror.Lease{Epoch: 5})
	if err != nil {
		t.Fatal(err)
	}
	live := func(change func(*entry)) *entry {
		e := &entry{object: w.object, content: w.content, applied: w.applied}
		e.Ours, e.Tenant, e.Epoch = true, acme, 5
		change(e)
		return e
	}
	cases := map[string]struct {
		known *entry
		want  verdict
	}{
		"nothing there":  {nil, doCreate},
		"the same":       {live(func(*entry) {}), doNothing},
		"an older epoch": {live(func(e *entry) { e.Epoch = 4 }), doNothing},
		"other content": {live(func(e *entry) { e.content[0]++; e.applied = "x" }),
			doUpdate},
		"another hash":  {live(func(e *entry) { e.applied = "x" }), doUpdate},
		"drifted":       {live(func(e *entry) { e.Drifted = true }), doRestore},
		"a later epoch": {live(func(e *entry) { e.Epoch = 6 }), isFenced},
		"a later epoch and drifted": {live(func(e *entry) { e.Epoch, e.Drifted = 6, true }),
			isFenced},
		"foreign":          {live(func(e *entry) { e.Ours = false }), isForeign},
		"another tenant's": {live(func(e *entry) { e.Tenant = "globex" }), isForeign},
		"being deleted":    {live(func(e *entry) { e.Deleting = true }), isDeleting},
	}
	for name, c := range cases {
		if got := w.decide(c.known); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}
	}
}
