package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// ledger is a store's lease table under a bubble's clock, with faults to order.
type ledger struct {
	mu   sync.Mutex
	now  map[string]mirror.Lease
	down bool
	// of Renew, before its read, and of RaiseEpoch, after its change
	slow func(ctx context.Context, call string) error
}

func (l *ledger) linger(ctx context.Context, call string) error {
	if l.slow == nil {
		return nil
	}
	return l.slow(ctx, call)
}

func newLedger() *ledger { return &ledger{now: map[string]mirror.Lease{}} }

func (l *ledger) Acquire(_ context.Context, name, holder string, ttl time.Duration) (mirror.Lease,
	bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.now[name]
	if l.down {
		return mirror.Lease{}, false, errors.New("the database is away")
	}
	if ok && at.Holder != holder && time.Now().Before(at.Expires) {
		return at, false, nil
	}
	next := mirror.Lease{Name: name, Holder: holder, Epoch: at.Epoch + 1,
		Expires: time.Now().Add(ttl)}
	l.now[name] = next
	return next, true, nil
}

func (l *ledger) Renew(ctx context.Context, lease mirror.Lease, ttl time.Duration) (bool, error) {
	if err := l.linger(ctx, "renew"); err != nil {
		return false, err
	}
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

func (l *ledger) RaiseEpoch(ctx context.Context, lease mirror.Lease, floor int64) (mirror.Lease,
	error) {
	l.mu.Lock()
	at := l.now[lease.Name]
	if at.Epoch != lease.Epoch {
		l.mu.Unlock()
		return lease, mirror.ErrFenced
	}
	at.Epoch = max(at.Epoch, floor+1)
	l.now[lease.Name] = at
	l.mu.Unlock()
	return at, l.linger(ctx, "raise")
}

func (l *ledger) Release(_ context.Context, lease mirror.Lease, _ string) error {
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

func candidate(l Store, holder string) Candidate {
	return Candidate{Store: l, Name: "engine/eu-1", Holder: holder, Poll: time.Second}
}

func TestALeaseIsHeldByOneAtATimeAndPassesOnAtOnceWhenReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		var mu sync.Mutex
		inside, most := 0, 0
		var all sync.WaitGroup
		for _, holder := range []string{"a", "b", "c"} {
			all.Go(func() {
				err := candidate(l, holder).Hold(t.Context(),
					func(ctx context.Context, held *Held) error {
						mu.Lock()
						inside++
						most = max(most, inside)
						mu.Unlock()
						pacing.Sleep(ctx, time.Minute) // far longer than the lease: it is renewed
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
		err := candidate(l, "a").Hold(t.Context(), func(ctx context.Context, held *Held) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, ErrLost) {
			t.Fatalf("got %v", err)
		}
		if lasted := time.Since(start); lasted >= ttl {
			t.Fatalf("work went on for %s without the store", lasted)
		}
		if text := err.Error(); strings.Contains(text, "replica") ||
			!strings.Contains(text, "the renewal failed until the lease expired: ") {
			t.Errorf("without another replica the error is %q", text)
		}
	})
}

func TestALeaseThatPassedOnEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		err := candidate(l, "a").Hold(t.Context(), func(ctx context.Context, _ *Held) error {
			l.mu.Lock()
			at := l.now["engine/eu-1"]
			at.Holder, at.Epoch = "b", at.Epoch+1
			l.now["engine/eu-1"] = at
			l.mu.Unlock()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, ErrLost) {
			t.Fatalf("got %v", err)
		}
		if !strings.Contains(err.Error(), "another replica holds it now") {
			t.Errorf("the error is %q", err)
		}
		if l.now["engine/eu-1"].Holder != "b" || l.now["engine/eu-1"].Expires.IsZero() {
			t.Fatal("the old holder released the new holder's lease")
		}
	})
}

// ours reports whether an epoch that the engine shows was granted to this process.
func ours(is bool) func(mirror.Lease) bool { return func(mirror.Lease) bool { return is } }

func TestAnEpochIsRaisedAboveWhatTheEngineShows(t *testing.T) {
	l := newLedger()
	lease, _, _ := l.Acquire(t.Context(), "engine/eu-1", "a", ttl)
	held := NewHeld(lease, time.Now().Add(ttl))
	if err := held.Raise(t.Context(), l, 1, ours(true)); err != nil || held.Lease().Epoch != 1 {
		t.Fatalf("its own epoch made it rise: %d, %v", held.Lease().Epoch, err)
	}
	if err := held.Raise(t.Context(), l, 1, ours(false)); err != nil || held.Lease().Epoch != 2 {
		t.Fatalf("epoch %d, %v; want 2: the objects bear the same one of another lease",
			held.Lease().Epoch, err)
	}
	if err := held.Raise(t.Context(), l, 7, ours(true)); err != nil || held.Lease().Epoch != 8 {
		t.Fatalf("epoch %d, %v; want 8", held.Lease().Epoch, err)
	}
}

// A renewal of an epoch that is no longer the newest resembles a loss: a raise and a renewal never
// overlap, whichever comes first.
func TestARaiseOfTheEpochDuringARenewalLosesNothing(t *testing.T) {
	for _, first := range []string{"renew", "raise"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLedger()
			arrived, release := make(chan struct{}, 1), make(chan struct{})
			l.slow = func(ctx context.Context, call string) error {
				if call != first || len(arrived) > 0 {
					return nil
				}
				arrived <- struct{}{}
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			err := candidate(l, "a").Hold(t.Context(), func(ctx context.Context, held *Held) error {
				if first == "renew" {
					pacing.Sleep(ctx, ttl/3)
					synctest.Wait() // the renewal is on its way
				}
				raised := make(chan error, 1)
				go func() { raised <- held.Raise(ctx, l, 7, ours(true)) }()
				synctest.Wait()
				if len(arrived) == 0 {
					return errors.New("neither is under way")
				}
				pacing.Sleep(ctx, ttl/3) // a renewal is due
				close(release)
				if err := <-raised; err != nil {
					return err
				}
				pacing.Sleep(ctx, 3*ttl)
				if epoch := held.Lease().Epoch; epoch != 8 || ctx.Err() != nil {
					return fmt.Errorf("epoch %d, %w", epoch, context.Cause(ctx))
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s first: %v", first, err)
			}
		})
	}
}

func TestARenewalThatHangsEndsTheWorkBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.slow = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		start := time.Now()
		err := candidate(l, "a").Hold(t.Context(), func(ctx context.Context, _ *Held) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if lasted := time.Since(start); !errors.Is(err, ErrLost) || lasted >= ttl {
			t.Fatalf("%v after %s; the lease is %s", err, lasted, ttl)
		}
	})
}

func TestAStopOfTheWorkLetsAWriteEndAndTheLossOfTheLeaseDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			cause error
			after time.Duration // until the write is cut off
		}{
			"stop":   {context.Canceled, 10 * time.Second}, // when the lease runs out
			"lost":   {ErrLost, 0},
			"fenced": {mirror.ErrFenced, 0},
		} {
			held := NewHeld(mirror.Lease{}, time.Now().Add(10*time.Second))
			ctx, cancel := context.WithCancelCause(t.Context())
			write, end := held.Writing(ctx)
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

func TestALeaseIsAskedForWhenItRunsOutAndWhenItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			give  func(*ledger, chan struct{}) // after a second
			after time.Duration
		}{
			"killed": {func(*ledger, chan struct{}) {}, ttl + slack},
			"released": {func(l *ledger, c chan struct{}) {
				_ = l.Release(t.Context(), l.now["reconciler"], "")
				c <- struct{}{}
			}, time.Second},
		} {
			l, released := newLedger(), make(chan struct{}, 1)
			if _, _, err := l.Acquire(t.Context(), "reconciler", "a", ttl); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			time.AfterFunc(time.Second, func() { c.give(l, released) })
			b := Candidate{Store: l, Name: "reconciler", Holder: "b", Poll: time.Minute,
				Released: released}
			_, err := b.acquire(t.Context())
			if took := time.Since(start); err != nil || took != c.after {
				t.Errorf("%s: acquired after %s, want %s; %v", name, took, c.after, err)
			}
		}
	})
}
