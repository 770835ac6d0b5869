// Package lease elects the replica that may act: the one that plans, and the one that writes to an
// engine. A lease carries an epoch, which every write bears.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// Store grants leases by its own clock, so that two replicas with different clocks agree.
type Store interface {
	// Acquire takes a lease that is free, expired or already the holder's; false when another
	// holder has it. The returned lease then carries its expiry by our clock; zero: unknown.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (mirror.Lease, bool, error)
	// Renew prolongs the lease; false when it was lost.
	Renew(ctx context.Context, lease mirror.Lease, ttl time.Duration) (bool, error)
	// RaiseEpoch moves the epoch of a held lease above floor: epochs begin again after the
	// database was lost, and objects still bear the earlier ones.
	RaiseEpoch(ctx context.Context, lease mirror.Lease, floor int64) (mirror.Lease, error)
	// Release gives the lease up and notifies every replica, so that the next holder need not
	// wait. With to, the store reserves the lease for that replica for a moment.
	Release(ctx context.Context, lease mirror.Lease, to string) error
}

// ErrLost means that another replica may act now. The work under the lease is dropped, not retried.
var ErrLost = errors.New("the lease is lost")

// Lost reports whether the right to act is gone.
func Lost(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, mirror.ErrFenced) }

// HandedOver ends the work under a lease that another replica takes over.
type HandedOver struct{ To string }

func (h HandedOver) Error() string { return "engine handed over to replica " + h.To }

const (
	// ttl is the longest time without a holder after a replica was killed. A shorter one would end
	// sessions, each of which begins by listing its engine, for a short fault of the database.
	ttl = 7 * time.Second
	// margin before its end makes a lease count as lost, for writes under way and clocks that
	// drift.
	margin = time.Second
	poll   = 2 * time.Second // at most, between requests for a lease that another holder has
	slack  = 20 * time.Millisecond

	releaseTime = 5 * time.Second
)

// Candidate requests a lease.
type Candidate struct {
	Store        Store
	Name, Holder string
	Poll         time.Duration
	Released     <-chan struct{} // the lease may be free; may be nil
	// Slot waits for a slot before each request; may be nil. free gives the slot back and may be
	// called several times.
	Slot func(context.Context) (free func(), err error)
}

// Hold waits for the lease, runs act while the lease is held, and cancels act's context as soon as
// the lease is lost. Hold returns when act does. The local deadline counts from before a renewal
// was sent, so that it is never later than the store's. If act returns HandedOver, the store
// reserves the lease for that replica.
func (c Candidate) Hold(ctx context.Context, act func(context.Context, *Held) error) error {
	held, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	defer held.free()
	actCtx, lose := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { held.keep(actCtx, c.Store, lose) })
	err = act(actCtx, held)
	lose(context.Canceled)
	keeping.Wait()
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	var over HandedOver
	errors.As(err, &over)
	if rerr := c.Store.Release(release, held.Lease(), over.To); rerr != nil && err == nil {
		err = fmt.Errorf("release lease %s: %w", c.Name, rerr)
	}
	return err
}

// acquire requests the lease again when it expires by the store's clock, when Released is
// signalled, and at least every poll.
func (c Candidate) acquire(ctx context.Context) (*Held, error) {
	for {
		free := func() {}
		if c.Slot != nil {
			var err error
			if free, err = c.Slot(ctx); err != nil {
				return nil, fmt.Errorf("acquire lease %s: %w", c.Name, err)
			}
		}
		begun := time.Now()
		lease, ok, err := c.Store.Acquire(ctx, c.Name, c.Holder, ttl)
		if err == nil && ok {
			held := NewHeld(lease, begun.Add(ttl-margin))
			held.free = free
			return held, nil
		}
		free()
		pause := min(c.Poll, poll)
		if left := time.Until(lease.Expires) + slack; left > 0 {
			pause = min(pause, left)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-c.Released:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			if err == nil {
				err = ctx.Err()
			}
			return nil, fmt.Errorf("acquire lease %s: %w", c.Name, err)
		}
	}
}

// Held is a lease that this replica holds.
type Held struct {
	// changing admits one renewal or raise at a time: a renewal of the epoch that is being raised
	// would look like a loss.
	changing chan struct{}
	free     func() // gives back the candidate's slot

	mu      sync.Mutex
	current mirror.Lease
	until   time.Time
}

// NewHeld returns a lease that counts as held until that time.
func NewHeld(lease mirror.Lease, until time.Time) *Held {
	return &Held{changing: make(chan struct{}, 1), free: func() {}, current: lease, until: until}
}

// FreeSlot gives back the candidate's slot before the lease ends.
func (h *Held) FreeSlot() { h.free() }

// Lease is the lease with its present epoch.
func (h *Held) Lease() mirror.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// change runs f while no other change of the lease runs.
func (h *Held) change(ctx context.Context, f func() error) error {
	select {
	case h.changing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-h.changing }()
	return f()
}

// Raise moves the lease's epoch above the highest epoch that its engine shows. An equal epoch is
// ours only if mine reports so: a database that lost exactly one change of holder grants the same
// epoch twice.
func (h *Held) Raise(ctx context.Context, store Store, highest int64,
	mine func(mirror.Lease) bool) error {
	return h.change(ctx, func() error {
		if now := h.Lease(); now.Epoch > highest || now.Epoch == highest && mine(now) {
			return nil
		}
		raised, err := store.RaiseEpoch(ctx, h.Lease(), highest)
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.current = raised
		return nil
	})
}

// Valid reports whether the lease surely still holds by our own clock. Every write checks it first.
func (h *Held) Valid() bool { return h.left() > 0 }

// left is how long the lease still holds. After a suspension of the machine only the wall clock has
// moved on.
func (h *Held) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	return min(h.until.Sub(now), h.until.Round(0).Sub(now.Round(0)))
}

// keep renews the lease until ctx ends. It calls lose before the lease ends at the latest, whether
// or not the store answers.
func (h *Held) keep(ctx context.Context, store Store, lose context.CancelCauseFunc) {
	for pacing.Sleep(ctx, min(ttl/3, h.left())) {
		ok, err := h.renew(ctx, store)
		switch {
		case err == nil && ok:
		case err == nil:
			lose(fmt.Errorf(
				"%w: another replica holds it now, or the database went back in time", ErrLost))
			return
		case !h.Valid():
			lose(fmt.Errorf("%w: the renewal failed until the lease expired: %w", ErrLost, err))
			return
		}
	}
}

func (h *Held) renew(ctx context.Context, store Store) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.left())
	defer cancel()
	err = h.change(ctx, func() error {
		begun := time.Now()
		if ok, err = store.Renew(ctx, h.Lease(), ttl); err == nil && ok {
			h.mu.Lock()
			h.until = begun.Add(ttl - margin)
			h.mu.Unlock()
		}
		return err
	})
	return ok, err
}

// Writing returns the context of one write to an engine. A stop of the work does not cancel the
// write: the engine would carry out a request that it has received, by then perhaps under another
// holder's lease. The context ends with the write, at the latest with the lease.
func (h *Held) Writing(ctx context.Context) (context.Context, context.CancelFunc) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); Lost(cause) {
			end(cause)
			return
		}
		if pacing.Sleep(out, h.left()) {
			end(ErrLost)
		}
	})
	return out, func() { stop(); end(context.Canceled) }
}
