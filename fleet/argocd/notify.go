package argocd

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/pacing"
)

// Watch follows the engine's Applications, AppProjects and our Secrets until ctx ends. It reports
// each Application's latest state at most once per window, and the objects to recheck. It recovers
// from failures by itself and returns only ctx's error.
func (e *Engine) Watch(ctx context.Context, sink engine.Sink) error {
	var all sync.WaitGroup
	for _, r := range e.cache.wanted {
		all.Go(func() { e.follow(r).run(ctx) })
	}
	e.deliver(ctx, sink)
	all.Wait()
	return context.Cause(ctx)
}

// deliver calls the sink once per window. It collects changes while the sink is busy, and keeps
// only the latest state of an Application.
func (e *Engine) deliver(ctx context.Context, sink engine.Sink) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.cache.dirty:
		}
		p := e.cache.take()
		if p.wentBack != "" && sink.WentBack != nil {
			sink.WentBack(p.wentBack)
		}
		if len(p.observed) > 0 && sink.Observe != nil {
			sink.Observe(p.observed)
		}
		if len(p.contacts) > 0 && sink.Contact != nil {
			sink.Contact(p.contacts)
		}
		if len(p.wakes) > 0 && sink.Wake != nil {
			sink.Wake(p.wakes)
		}
		pacing.Sleep(ctx, e.options.Window)
	}
}

// health holds the failures of resources that are not followed.
type health struct {
	mu     sync.Mutex
	broken map[*resource]failure
}

type failure struct {
	err   error
	since time.Time
}

func (e *Engine) healthy(r *resource) {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	delete(e.health.broken, r)
}

func (e *Engine) unhealthy(r *resource, err error) {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	since := time.Now()
	if before, ok := e.health.broken[r]; ok {
		since = before.since
	}
	e.health.broken[r] = failure{err, since}
}

// Health returns nil while everything is followed, and otherwise the failure with its start.
func (e *Engine) Health() error {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	if len(e.health.broken) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(e.health.broken)), func(a, b *resource) int {
		return strings.Compare(a.plural, b.plural)
	})
	f := e.health.broken[first]
	return &brokenError{f}
}

type brokenError struct{ failure }

func (b *brokenError) Error() string {
	return b.err.Error() + " (since " + b.since.UTC().Format(time.RFC3339) + ")"
}

func (b *brokenError) Unwrap() error { return b.err }
