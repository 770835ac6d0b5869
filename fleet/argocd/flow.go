package argocd

import (
	"context"
	"sync"
	"time"
)

// flow limits the concurrent requests to one engine. The limit grows by one after each window of
// successes. When the engine throttles, the limit halves, and all requests pause for as long as the
// engine asks. Each engine has its own.
type flow struct {
	mu          sync.Mutex
	limit       int // the current limit
	maxLimit    int
	used        int
	successes   int       // successes since the limit last changed
	pausedUntil time.Time // no request starts before
	changed     chan struct{}
}

const minInFlight = 1

func newFlow(start, most int) *flow {
	return &flow{limit: min(start, most), maxLimit: most, changed: make(chan struct{})}
}

// acquire waits for a slot. Call release once with the result.
func (f *flow) acquire(ctx context.Context) error {
	for {
		f.mu.Lock()
		pause := time.Until(f.pausedUntil)
		if pause <= 0 && f.used < f.limit {
			f.used++
			f.mu.Unlock()
			return nil
		}
		changed := f.changed
		f.mu.Unlock()
		if err := waitFor(ctx, changed, pause); err != nil {
			return err
		}
	}
}

// waitFor waits for the channel or, if pause is positive, for the pause.
func waitFor(ctx context.Context, changed <-chan struct{}, pause time.Duration) error {
	var timeout <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		timeout, changed = t.C, nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-timeout:
	}
	return nil
}

// release frees the slot. throttled is the pause that the engine has requested; 0 without one.
func (f *flow) release(throttled time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used--
	if throttled > 0 {
		if until := time.Now().Add(throttled); until.After(f.pausedUntil) {
			f.pausedUntil = until
			f.limit = max(minInFlight, f.limit/2)
		}
		f.successes = 0
	} else if f.successes++; f.successes >= f.limit && f.limit < f.maxLimit {
		f.limit++
		f.successes = 0
	}
	close(f.changed)
	f.changed = make(chan struct{})
}
