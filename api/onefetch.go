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
	// of what is shown again; a page asks a second and a half after the event that it was told of
	sharedAge  = time.Second
	forgetting = 10 * time.Minute // after which what nobody asks for is dropped
)

// oneFetch reads what many look at once for all of them: one reading at a time for each tenant (the
// platform is ""), whoever asks. Each sees the mirror as it was at most sharedAge before it asked,
// or a quarter of the time that a reading takes later: readings cost the database the same, however
// many pages are open.
type oneFetch[T any] struct {
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

func (o *oneFetch[T]) get(ctx context.Context, of fleet.TenantName,
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

// fresh reports whether the reading is young enough for who asked at that time.
func (r *reading[T]) fresh(asked time.Time) bool {
	return asked.Sub(r.began) <= max(sharedAge, 4*r.took)
}

// join is the reading that is under way, or the last one when it is fresh enough, or a new one.
func (o *oneFetch[T]) join(ctx context.Context, of fleet.TenantName, asked time.Time,
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
		// Whoever began it may go; the others still wait for it.
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
