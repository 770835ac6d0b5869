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
	// Acquire takes the lease when it is free, expired or already the holder's; false when another
	// holds it. Then the lease that it returns says until when, by our clock; zero: not known.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (fleet.Lease, bool, error)
	// Renew prolongs it; false when it was lost.
	Renew(ctx context.Context, lease fleet.Lease, ttl time.Duration) (bool, error)
	// RaiseEpoch moves a lease that is held above floor: after the database was lost epochs begin
	// anew, and objects still bear those of before.
	RaiseEpoch(ctx context.Context, lease fleet.Lease, floor int64) (fleet.Lease, error)
	// Release gives it up and tells every replica, so that the next holder need not wait. With to,
	// it is kept for that replica for a moment.
	Release(ctx context.Context, lease fleet.Lease, to string) error
}

// ErrLeaseLost says that another replica may act now; the work is dropped, not retried.
var ErrLeaseLost = errors.New("the lease is lost")

const (
	// leaseTTL is the longest time without an owner after a replica was killed. A shorter one would
	// end sessions, each of which begins by listing its engine, for a short fault of the database.
	leaseTTL = 7 * time.Second
	// before the lease's end, from which on it counts as lost: for what is on its way, and for
	// clocks that drift
	leaseMargin = time.Second
	leasePoll   = 2 * time.Second // at most, between looks at a lease that another holds
	leaseSlack  = 20 * time.Millisecond
)

// candidate asks for a lease.
type candidate struct {
	leases       Leases
	name, holder string
	poll         time.Duration
	// the lease may be free; may be nil
	released <-chan struct{}
	// before it is asked for; may be nil
	enter func(context.Context) (leave func(), err error)
}

// hold waits for the lease, runs act while it is held, and cancels act's context as soon as it is
// not. It returns when act does. The deadline by our own clock is counted from before the renewal
// was sent, so that it is never later than the store's. When act ends with handedOver, the lease is
// kept for that replica.
func (c candidate) hold(ctx context.Context, act func(context.Context, *heldLease) error) error {
	lease, begun, leave, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	defer leave()
	held := newHeldLease(lease, begun.Add(leaseTTL-leaseMargin))
	held.leave = leave
	actCtx, lose := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { held.keep(actCtx, c.leases, lose) })
	err = act(actCtx, held)
	lose(context.Canceled)
	keeping.Wait()
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var over handedOver
	errors.As(err, &over)
	if rerr := c.leases.Release(release, held.lease(), over.to); rerr != nil && err == nil {
		err = fmt.Errorf("release lease %s: %w", c.name, rerr)
	}
	return err
}

// acquire asks again when the lease runs out by the store's clock, when released says so, and at
// least every leasePoll. leave ends the turn that enter gave.
func (c candidate) acquire(ctx context.Context) (l fleet.Lease, begun time.Time, leave func(),
	err error) {
	for {
		leave = func() {}
		if c.enter != nil {
			if leave, err = c.enter(ctx); err != nil {
				return fleet.Lease{}, begun, nil, fmt.Errorf("acquire lease %s: %w", c.name, err)
			}
		}
		begun = time.Now()
		lease, ok, err := c.leases.Acquire(ctx, c.name, c.holder, leaseTTL)
		if err == nil && ok {
			return lease, begun, leave, nil
		}
		leave()
		pause := min(c.poll, leasePoll)
		if left := time.Until(lease.Expires) + leaseSlack; left > 0 {
			pause = min(pause, left)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-c.released:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			if err == nil {
				err = ctx.Err()
			}
			return fleet.Lease{}, begun, nil, fmt.Errorf("acquire lease %s: %w", c.name, err)
		}
	}
}

// heldLease is a lease in our hands. Valid is asked immediately before each write.
type heldLease struct {
	// held by one renewal or raise at a time: a renewal of the epoch that is being raised would
	// look like a loss
	changing chan struct{}
	leave    func() // ends the turn to prepare

	mu      sync.Mutex
	current fleet.Lease
	until   time.Time
}

func newHeldLease(lease fleet.Lease, until time.Time) *heldLease {
	return &heldLease{changing: make(chan struct{}, 1), leave: func() {}, current: lease,
		until: until}
}

// change runs f alone among those that change the lease.
func (h *heldLease) change(ctx context.Context, f func() error) error {
	select {
	case h.changing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-h.changing }()
	return f()
}

func (h *heldLease) lease() fleet.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// raise moves the lease's epoch above the highest that its engine shows. An equal one counts as our
// own only if mine says so: a database that has lost exactly one change of hands gives the same
// epoch twice.
func (h *heldLease) raise(ctx context.Context, leases Leases, highest int64,
	mine func(fleet.Lease) bool) error {
	return h.change(ctx, func() error {
		if now := h.lease(); now.Epoch > highest || now.Epoch == highest && mine(now) {
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
	})
}

// Valid reports whether the lease surely still holds by our own clock.
func (h *heldLease) Valid() bool { return h.left() > 0 }

// left is how long it still holds. A machine that was suspended may know of that by its wall clock
// alone.
func (h *heldLease) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	return min(h.until.Sub(now), h.until.Round(0).Sub(now.Round(0)))
}

// keep renews the lease until ctx ends, and says at its end at the latest that it is lost, whether
// the store answers or not.
func (h *heldLease) keep(ctx context.Context, leases Leases, lose context.CancelCauseFunc) {
	for wait(ctx, min(leaseTTL/3, h.left())) {
		ok, err := h.renew(ctx, leases)
		switch {
		case err == nil && ok:
		case err == nil:
			lose(fmt.Errorf("%w: another replica holds it now, or the database went back in time",
				ErrLeaseLost))
			return
		case !h.Valid():
			lose(fmt.Errorf("%w: it could not be renewed before it ran out: %w", ErrLeaseLost, err))
			return
		}
	}
}

func (h *heldLease) renew(ctx context.Context, leases Leases) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.left())
	defer cancel()
	err = h.change(ctx, func() error {
		begun := time.Now()
		if ok, err = leases.Renew(ctx, h.lease(), leaseTTL); err == nil && ok {
			h.mu.Lock()
			h.until = begun.Add(leaseTTL - leaseMargin)
			h.mu.Unlock()
		}
		return err
	})
	return ok, err
}

// writing is the context of one write to an engine. A stop of the work does not cut it off: the
// engine would carry out a request that it has received, and by then the lease might be another's.
// It ends with the write, at the latest with the lease.
func (h *heldLease) writing(ctx context.Context) (context.Context, context.CancelFunc) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); lost(cause) {
			end(cause)
			return
		}
		if wait(out, h.left()) {
			end(ErrLeaseLost)
		}
	})
	return out, func() { stop(); end(context.Canceled) }
}

// lost reports whether an error says that the right to act is gone.
func lost(err error) bool { return errors.Is(err, ErrLeaseLost) || errors.Is(err, fleet.ErrFenced) }

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
