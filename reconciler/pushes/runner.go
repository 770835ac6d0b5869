package pushes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// Store keeps pushes, the index of sources and the refreshes that follow.
type Store interface {
	SourcePushes(ctx context.Context, limit int) ([]mirror.SourcePush, error)
	UnwatchedObjects(ctx context.Context, limit int) (from int64, all []mirror.WatchedObject,
		err error)
	Watch(ctx context.Context, from, to int64, of []mirror.WatchedObject,
		watches []mirror.SourceWatch) (bool, error)
	RequestRefreshes(ctx context.Context, p mirror.SourcePush, refs, places []string) (int, error)
	ExpireSourcePushes(ctx context.Context) error
}

const (
	pushesAtOnce  = 10
	objectsAtOnce = 100
	poll          = 10 * time.Second
	expireEvery   = 5 * time.Minute
)

// Runner handles pushes, on the replica that leads.
type Runner struct {
	Store Store
	Log   *slog.Logger
	// Count counts a handled push with its refreshes.
	Count func(refreshes int)

	wake    pacing.Signal
	expired time.Time
}

// NewRunner returns a Runner.
func NewRunner(store Store, log *slog.Logger, count func(refreshes int)) *Runner {
	return &Runner{Store: store, Log: log, Count: count, wake: pacing.NewSignal()}
}

// Wake makes Run look for pushes. It never blocks.
func (r *Runner) Wake() { r.wake.Set() }

// Run handles pushes as they come, until ctx ends. It keeps the index up to date without pushes
// too, so that the first push does not wait for it.
func (r *Runner) Run(ctx context.Context) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := r.handle(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("failed to handle pushes to repositories of Applications; trying again",
				"error", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-r.wake:
		}
	}
}

func (r *Runner) handle(ctx context.Context) error {
	if time.Since(r.expired) >= expireEvery {
		if err := r.Store.ExpireSourcePushes(ctx); err != nil {
			return err
		}
		r.expired = time.Now()
	}
	for {
		if err := r.index(ctx); err != nil {
			return err
		}
		all, err := r.Store.SourcePushes(ctx, pushesAtOnce)
		if err != nil {
			return err
		}
		var failed []error
		for _, p := range all {
			n, err := r.Store.RequestRefreshes(ctx, p, Refs(p), Places(p))
			if err != nil { // the others do not wait for it
				failed = append(failed, err)
				continue
			}
			r.Count(n)
			r.Log.Debug("push", "repositories", p.Repositories, "ref", p.Ref, "tenant", p.Tenant,
				"applications", n)
		}
		if len(failed) > 0 || len(all) < pushesAtOnce {
			return errors.Join(failed...)
		}
	}
}

// index brings the index of sources up to date.
func (r *Runner) index(ctx context.Context) error {
	for {
		from, objects, err := r.Store.UnwatchedObjects(ctx, objectsAtOnce)
		if err != nil || len(objects) == 0 {
			return err
		}
		var watches []mirror.SourceWatch
		for _, o := range objects {
			if o.Gone {
				continue
			}
			more, err := Watches(o)
			if err != nil {
				r.Log.Error("no push refreshes this Application: its sources are not understood",
					"engine", o.Key.Engine, "name", o.Key.Name, "error", err)
				continue
			}
			watches = append(watches, more...)
		}
		to := objects[len(objects)-1].Seq
		if _, err := r.Store.Watch(ctx, from, to, objects, watches); err != nil {
			return err
		}
		if len(objects) < objectsAtOnce {
			return nil
		}
	}
}
