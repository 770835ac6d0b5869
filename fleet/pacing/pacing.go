// Package pacing has the small tools of loops that wait and wake: a signal, a wait that a context
// ends, a backoff, a debouncer and a batch.
package pacing

import (
	"context"
	"math/rand/v2"
	"time"
)

// Signal wakes one loop, which receives from it. Signals sent before the loop receives count once.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes the loop. It never blocks.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Clear drops a signal that was not received.
func (s Signal) Clear() {
	select {
	case <-s:
	default:
	}
}

// Sleep waits for d or until ctx ends. It reports whether d has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// FirstRetry and LastRetry bound Backoff.
const (
	FirstRetry = 500 * time.Millisecond
	LastRetry  = 2 * time.Minute
)

// Backoff doubles from FirstRetry to LastRetry with the failed attempts in a row. A jitter of a
// quarter keeps tasks that failed together from returning together.
func Backoff(attempts int) time.Duration {
	d := LastRetry
	if attempts < 9 {
		d = min(FirstRetry<<max(attempts-1, 0), LastRetry)
	}
	return d - rand.N(d/4)
}

// SleepAbout is Sleep for d, half of d more or less, so that replicas that failed together do not
// return together.
func SleepAbout(ctx context.Context, d time.Duration) bool {
	return Sleep(ctx, d/2+rand.N(d))
}
