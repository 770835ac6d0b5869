package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/lease"
)

// connection is a connected engine under a lease. The parts of a session share it.
type connection struct {
	*Worker
	lease     *lease.Held
	target    engine.Engine
	healthy   bool        // as last reported; of the goroutine that prepares or maintains
	confirmed atomic.Bool // the rows follow from the config repo: see Confirmer
}

// errOtherDatabase ends a session that began with the rows of another database.
var errOtherDatabase = fmt.Errorf("the database went back in time, or is another one: %w",
	lease.ErrLost)

// checkLife returns an error for a row of another incarnation of the database.
func (c *connection) checkLife(life string) error {
	if begun := c.lease.Lease().Life; life != begun && life != "" && begun != "" {
		return errOtherDatabase
	}
	return nil
}

// mayApply reports whether a row may be applied yet. Before the rows are confirmed, the worker only
// repairs an object that already bears the row's hash.
func (c *connection) mayApply(row mirror.Row) bool {
	if c.confirmed.Load() {
		return true
	}
	live, ok := c.target.Live(row.Key)
	return ok && !row.Unwanted && live.Ours && live.Hash == row.Manifest.Hash
}

// maxEpoch is above every epoch that a lease reaches. We did not write an annotation with a higher
// epoch; it affects its own object only.
const maxEpoch = 1 << 40

// forged reports whether an object bears an epoch that no lease has granted.
func (c *connection) forged(key fleet.ObjectKey) bool {
	live, ok := c.target.Live(key)
	return ok && live.Epoch > maxEpoch
}

// refusal returns why the gate refused a write: a stop, or the end of the lease.
func (c *connection) refusal(err error) error {
	if errors.Is(err, engine.ErrStopped) && !c.lease.Valid() {
		return lease.ErrLost
	}
	return err
}

// runSteps runs the steps that are due. A step that fails stays due and does not end the session: a
// new session would begin by reading everything.
func (c *connection) runSteps(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil && !c.retryable(ctx, err) {
			return err
		}
	}
	return nil
}

// retryable reports whether the session goes on after an error, which it logs.
func (c *connection) retryable(ctx context.Context, err error) bool {
	if ctx.Err() != nil || lease.Lost(err) || errors.Is(err, engine.ErrFenced) {
		return false
	}
	c.Log.Warn("a step failed; trying again", "engine", c.Engine, "error", err)
	return true
}

// parallel calls do for all items, at most limit at a time, and joins their errors.
func parallel[T any](items []T, limit int, do func(T) error) error {
	var mu sync.Mutex
	var failed []error
	var all sync.WaitGroup
	slots := make(chan struct{}, limit)
	for _, item := range items {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := do(item); err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}
