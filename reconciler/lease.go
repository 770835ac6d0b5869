package reconciler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
)

// Leases hands out the right to act. Time is the store's: two replicas with different clocks agree.
type Leases interface {
	// Acquire takes the lease when it is free, expired or already the holder's; false when another holds it.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (fleet.Lease, bool, error)
	// Renew prolongs it; false when it was lost.
	Renew(ctx context.Context, lease fleet.Lease, ttl time.Duration) (bool, error)
	// RaiseEpoch moves a lease that is held above floor: after the database was lost epochs begin anew, and objects still bear those of before.
	RaiseEpoch(ctx context.Context, lease fleet.Lease, floor int64) (fleet.Lease, error)
	// Release gives it up, so that the next holder need not wait.
	Release(ctx context.Context, lease fleet.Lease) error
}

// ErrLeaseLost says that another replica may act now; the work is dropped, not retried.
var ErrLeaseLost = errors.New("lease lost to another replica")

const leaseTTL = 15 * time.Second

// holdLease waits for the lease, runs act while it is held, and cancels act's context as soon as it is not. It returns when act does.
// The deadline by our own clock is counted from before the renewal was sent, so that it is never later than the store's.
func holdLease(ctx context.Context, leases Leases, name, holder string, poll time.Duration, act func(context.Context, *heldLease) error) error {
	lease, begun, err := acquire(ctx, leases, name, holder, poll)
	if err != nil {
		return err
	}
	held := &heldLease{current: lease, until: begun.Add(leaseTTL)}
	actCtx, lose := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { held.keep(actCtx, leases, lose) })
	err = act(actCtx, held)
	lose(context.Canceled)
	keeping.Wait()
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if rerr := leases.Release(release, held.lease()); rerr != nil && err == nil {
		err = fmt.Errorf("release lease %s: %w", name, rerr)
	}
	return err
}

func acquire(ctx context.Context, leases Leases, name, holder string, poll time.Duration) (fleet.Lease, time.Time, error) {
	for {
		begun := time.Now()
		lease, ok, err := leases.Acquire(ctx, name, holder, leaseTTL)
		if err == nil && ok {
			return lease, begun, nil
		}
		if !wait(ctx, poll) {
			if err == nil {
				err = ctx.Err()
			}
			return fleet.Lease{}, begun, fmt.Errorf("acquire lease %s: %w", name, err)
		}
	}
}

// heldLease is a lease in our hands. Valid is asked immediately before each write.
type heldLease struct {
	mu      sync.Mutex
	current fleet.Lease
	until   time.Time
}

func (h *heldLease) lease() fleet.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// raise moves the lease's epoch above the highest that its engine shows, unless it is that one already.
func (h *heldLease) raise(ctx context.Context, leases Leases, highest int64) error {
	if h.lease().Epoch >= highest {
		return nil
	}
	raised, err := leases.RaiseEpoch(ctx, h.lease(), highest)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = raised
	return nil
}

// Valid reports whether the lease surely still holds by our own clock.
func (h *heldLease) Valid() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.until)
}

func (h *heldLease) keep(ctx context.Context, leases Leases, lose context.CancelCauseFunc) {
	for wait(ctx, leaseTTL/3) {
		begun := time.Now()
		ok, err := leases.Renew(ctx, h.lease(), leaseTTL)
		switch {
		case err == nil && ok:
			h.mu.Lock()
			h.until = begun.Add(leaseTTL)
			h.mu.Unlock()
		case err == nil || !h.Valid():
			lose(ErrLeaseLost)
			return
		}
	}
}

// wait sleeps for d, or less when ctx ends; it reports whether the time has passed.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
