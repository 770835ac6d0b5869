package reconciler

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
)

// batch gathers what is to be written and writes it together: the latest value of each object,
// never an older one. What could not be written is kept and written with the next; it is bounded by
// the number of objects.
type batch[T any] struct {
	every time.Duration
	most  int
	key   func(T) fleet.ObjectKey
	write func(context.Context, []T) error

	mu      sync.Mutex
	waiting map[fleet.ObjectKey]T
	full    chan struct{}
}

func newBatch[T any](every time.Duration, most int, key func(T) fleet.ObjectKey,
	write func(context.Context, []T) error) *batch[T] {
	return &batch[T]{every: every, most: most, key: key, write: write,
		waiting: map[fleet.ObjectKey]T{}, full: make(chan struct{}, 1)}
}

func (b *batch[T]) add(v T) {
	b.mu.Lock()
	b.waiting[b.key(v)] = v
	full := len(b.waiting) >= b.most
	b.mu.Unlock()
	if full {
		select {
		case b.full <- struct{}{}:
		default:
		}
	}
}

// run writes until ctx ends, and once more then. It returns early only when the right to write is
// lost.
func (b *batch[T]) run(ctx context.Context) error {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return b.flush(last)
		case <-tick.C:
		case <-b.full:
		}
		switch err := b.flush(ctx); {
		case err == nil || ctx.Err() != nil:
		case lost(err):
			return err
		default:
			slog.Warn("a batch is not recorded; it is tried again", "error", err)
			wait(ctx, time.Second)
		}
	}
}

func (b *batch[T]) flush(ctx context.Context) error {
	b.mu.Lock()
	writing := b.waiting
	b.waiting = make(map[fleet.ObjectKey]T, len(writing)/2)
	b.mu.Unlock()
	if len(writing) == 0 {
		return nil
	}
	err := b.write(ctx, slices.Collect(maps.Values(writing)))
	if err == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, v := range writing {
		if _, newer := b.waiting[key]; !newer {
			b.waiting[key] = v
		}
	}
	return err
}
