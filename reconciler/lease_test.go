package reconciler

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
)

// ledger is a store's lease table under a bubble's clock, with faults to order.
type ledger struct {
	mu   sync.Mutex
	now  map[string]fleet.Lease
	down bool
}

func newLedger() *ledger { return &ledger{now: map[string]fleet.Lease{}} }

func (l *ledger) Acquire(_ context.Context, name, holder string, ttl time.Duration) (fleet.Lease, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.now[name]
	if l.down {
		return fleet.Lease{}, false, errors.New("the database is away")
	}
	if ok && at.Holder != holder && time.Now().Before(at.Expires) {
		return fleet.Lease{}, false, nil
	}
	next := fleet.Lease{Name: name, Holder: holder, Epoch: at.Epoch + 1, Expires: time.Now().Add(ttl)}
	l.now[name] = next
	return next, true, nil
}

func (l *ledger) Renew(_ context.Context, lease fleet.Lease, ttl time.Duration) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return false, errors.New("the database is away")
	}
	at := l.now[lease.Name]
	if at.Epoch != lease.Epoch {
		return false, nil
	}
	at.Expires = time.Now().Add(ttl)
	l.now[lease.Name] = at
	return true, nil
}

func (l *ledger) RaiseEpoch(_ context.Context, lease fleet.Lease, floor int64) (fleet.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.now[lease.Name]
	if at.Epoch != lease.Epoch {
		return lease, fleet.ErrFenced
	}
	at.Epoch = max(at.Epoch, floor+1)
	l.now[lease.Name] = at
	return at, nil
}

func (l *ledger) Release(_ context.Context, lease fleet.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.now[lease.Name]; at.Epoch == lease.Epoch {
		at.Expires = time.Time{}
		l.now[lease.Name] = at
	}
	return nil
}

func (l *ledger) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

func TestALeaseIsHeldByOneAtATimeAndPassesOnAtOnceWhenReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		var mu sync.Mutex
		inside, most := 0, 0
		var all sync.WaitGroup
		for _, holder := range []string{"a", "b", "c"} {
			all.Go(func() {
				err := holdLease(t.Context(), l, "engine/eu-1", holder, time.Second, func(ctx context.Context, held *heldLease) error {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					wait(ctx, time.Minute) // far longer than the lease: it is renewed
					mu.Lock()
					inside--
					mu.Unlock()
					if !held.Valid() {
						return errors.New("not valid while held")
					}
					return nil
				})
				if err != nil {
					t.Errorf("%s: %v", holder, err)
				}
			})
		}
		all.Wait()
		if most != 1 {
			t.Errorf("%d held it at the same time", most)
		}
		if e := l.now["engine/eu-1"].Epoch; e != 3 {
			t.Errorf("three holders made epoch %d", e)
		}
	})
}

func TestWorkEndsBeforeAnotherMayHoldTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		start := time.Now()
		time.AfterFunc(time.Second, func() { l.setDown(true) })
		err := holdLease(t.Context(), l, "engine/eu-1", "a", time.Second, func(ctx context.Context, held *heldLease) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, ErrLeaseLost) {
			t.Fatalf("got %v", err)
		}
		if lasted := time.Since(start); lasted > leaseTTL+leaseTTL/3 {
			t.Fatalf("work went on for %s without the store", lasted)
		}
	})
}

func TestALeaseThatPassedOnEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		err := holdLease(t.Context(), l, "engine/eu-1", "a", time.Second, func(ctx context.Context, _ *heldLease) error {
			l.mu.Lock()
			at := l.now["engine/eu-1"]
			at.Holder, at.Epoch = "b", at.Epoch+1
			l.now["engine/eu-1"] = at
			l.mu.Unlock()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, ErrLeaseLost) {
			t.Fatalf("got %v", err)
		}
		if l.now["engine/eu-1"].Holder != "b" || l.now["engine/eu-1"].Expires.IsZero() {
			t.Fatal("the old holder released the new holder's lease")
		}
	})
}

func TestAnEpochIsRaisedAboveWhatTheEngineShows(t *testing.T) {
	l := newLedger()
	lease, _, _ := l.Acquire(t.Context(), "engine/eu-1", "a", leaseTTL)
	held := &heldLease{current: lease}
	if err := held.raise(t.Context(), l, 1); err != nil || held.lease().Epoch != 1 {
		t.Fatalf("its own epoch made it rise: %d, %v", held.lease().Epoch, err)
	}
	if err := held.raise(t.Context(), l, 7); err != nil || held.lease().Epoch != 8 {
		t.Fatalf("epoch %d, %v; want 8", held.lease().Epoch, err)
	}
}

func TestAStopOfTheWorkLetsAWriteEndAndTheLossOfTheLeaseDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			cause error
			after time.Duration // until the write is cut off
		}{
			"stop":   {context.Canceled, 10 * time.Second}, // when the lease runs out
			"lost":   {ErrLeaseLost, 0},
			"fenced": {fleet.ErrFenced, 0},
		} {
			held := &heldLease{until: time.Now().Add(10 * time.Second)}
			ctx, cancel := context.WithCancelCause(t.Context())
			write, end := held.writing(ctx)
			start := time.Now()
			cancel(c.cause)
			<-write.Done()
			if took := time.Since(start); took != c.after {
				t.Errorf("%s: the write was cut off after %s, not %s", name, took, c.after)
			}
			end()
		}
	})
}
