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
	// maximum age of a reused result; a page requests it a second and a half after its event
	sharedAge  = time.Second
	forgetting = 10 * time.Minute // after which an unused result is dropped
)

// sharedRead shares one read among all callers: one read at a time for each tenant (the platform is
// ""). Each caller sees the mirror as it was at most sharedAge before its request, or later by a
// quarter of a read's duration: reads cost the database the same, however many pages are open.
type sharedRead[T any] struct {
	mu sync.Mutex
	of map[fleet.TenantName]*reading[T]
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
	asked := time.Now()
	for {
		r := o.join(ctx, of, asked, read)
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

// fresh reports whether the result is recent enough for a request at that time.
func (r *reading[T]) fresh(asked time.Time) bool {
	return asked.Sub(r.began) <= max(sharedAge, 4*r.took)
}

// join returns the read in progress, or the last one if it is fresh enough, or a new one.
func (o *sharedRead[T]) join(ctx context.Context, of fleet.TenantName, asked time.Time,
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
		o.of = map[fleet.TenantName]*reading[T]{}
	}
	for tenant, old := range o.of {
		if r.began.Sub(old.began) > forgetting {
			delete(o.of, tenant)
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
