package api

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
)

const (
	sharedAge  = time.Second      // maximum age of a reused result
	forgetting = 30 * time.Second // after which an unused result is dropped
)

// sharedRead shares one read among all callers: one read at a time for each tenant (the platform is
// "") and subject. Each caller sees the mirror as it was at most sharedAge before its request, or
// four times a read's duration, and never as it was before an event that was sent before the
// request: reads cost the database the same, however many pages are open.
type sharedRead[T any] struct {
	// changed returns when an event was last sent that concerns the tenant; nil: never
	changed func(fleet.TenantName) time.Time

	mu sync.Mutex
	of map[readKey]*reading[T]
}

type readKey struct {
	tenant  fleet.TenantName
	subject string
}

type reading[T any] struct {
	began time.Time
	took  time.Duration
	done  chan struct{} // closed when the three below are set
	value T
	err   error
}

func (o *sharedRead[T]) get(ctx context.Context, of fleet.TenantName,
	read func(context.Context) (T, error)) (T, error) {
	return o.getOf(ctx, of, "", read)
}

func (o *sharedRead[T]) getOf(ctx context.Context, of fleet.TenantName, subject string,
	read func(context.Context) (T, error)) (T, error) {
	asked := demand{at: time.Now()}
	if o.changed != nil {
		asked.changed = o.changed(of)
	}
	for {
		r := o.join(ctx, readKey{of, subject}, asked, read)
		select {
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		case <-r.done:
		}
		if r.fresh(asked) {
			return r.value, r.err
		}
	}
}

// demand is when a result was requested, and when an event was last sent before that.
type demand struct{ at, changed time.Time }

// fresh reports whether the result is recent enough for a request.
func (r *reading[T]) fresh(asked demand) bool {
	return asked.at.Sub(r.began) <= max(sharedAge, 4*r.took) && !r.began.Before(asked.changed)
}

// join returns the read in progress, or the last one if it is fresh enough, or a new one.
func (o *sharedRead[T]) join(ctx context.Context, of readKey, asked demand,
	read func(context.Context) (T, error)) *reading[T] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.of[of]; r != nil {
		select {
		case <-r.done:
			if r.fresh(asked) && r.err == nil {
				return r
			}
		default:
			return r
		}
	}
	r := &reading[T]{began: time.Now(), done: make(chan struct{})}
	if o.of == nil {
		o.of = map[readKey]*reading[T]{}
	}
	for key, old := range o.of {
		if r.began.Sub(old.began) > forgetting {
			delete(o.of, key)
		}
	}
	o.of[of] = r
	go func() {
		// Its first caller may cancel; the others still wait for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
		defer cancel()
		defer func() {
			if cause := recover(); cause != nil {
				r.err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			}
			r.took = time.Since(r.began)
			close(r.done)
		}()
		r.value, r.err = read(ctx)
	}()
	return r
}
