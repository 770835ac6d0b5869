package pacing

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Batch collects values and writes them together: the latest value of each key. A failed write
// keeps its values for the next write, so that the number of keys bounds a Batch.
type Batch[K comparable, V any] struct {
	config  BatchConfig[K, V]
	mu      sync.Mutex
	pending map[K]V
	full    Signal
}

// BatchConfig is the schedule and the target of a Batch.
type BatchConfig[K comparable, V any] struct {
	Every time.Duration // between writes
	Size  int           // values that are written without waiting for Every
	Key   func(V) K
	Write func(context.Context, []V) error
	Fatal func(error) bool // reports an error that ends Run instead of another attempt
	Log   *slog.Logger
}

// NewBatch returns an empty batch.
func NewBatch[K comparable, V any](c BatchConfig[K, V]) *Batch[K, V] {
	return &Batch[K, V]{config: c, pending: map[K]V{}, full: NewSignal()}
}

// Add replaces the pending value of the same key.
func (b *Batch[K, V]) Add(v V) {
	b.mu.Lock()
	b.pending[b.config.Key(v)] = v
	full := len(b.pending) >= b.config.Size
	b.mu.Unlock()
	if full {
		b.full.Set()
	}
}

// flushTime bounds the last write, after the context of Run has ended.
const flushTime = 5 * time.Second

// Run writes until ctx ends, and then once more. It returns early only with a fatal error.
func (b *Batch[K, V]) Run(ctx context.Context) error {
	tick := time.NewTicker(b.config.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
			defer cancel()
			return b.flush(last)
		case <-tick.C:
		case <-b.full:
		}
		switch err := b.flush(ctx); {
		case err == nil || ctx.Err() != nil:
		case b.config.Fatal(err):
			return err
		default:
			b.config.Log.Warn("failed to record a batch; trying again", "error", err)
			Sleep(ctx, time.Second)
		}
	}
}

func (b *Batch[K, V]) flush(ctx context.Context) error {
	b.mu.Lock()
	writing := b.pending
	b.pending = make(map[K]V, len(writing)/2)
	b.mu.Unlock()
	if len(writing) == 0 {
		return nil
	}
	err := b.config.Write(ctx, slices.Collect(maps.Values(writing)))
	if err == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, v := range writing {
		if _, newer := b.pending[key]; !newer {
			b.pending[key] = v
		}
	}
	return err
}
