package argocd

import (
	"context"
	"sync"
	"time"
)

// flow bounds how many requests are in flight to one engine and obeys its "not now". It grows by
// one for each window of successes and halves when the engine throttles, which also pauses
// everybody for as long as the engine asks. Engines do not share one.
type flow struct {
	mu      sync.Mutex
	limit   int // in flight now allowed
	most    int
	used    int
	good    int       // successes since the limit last changed
	until   time.Time // nobody starts before
	changed chan struct{}
}

const leastInFlight = 1

func newFlow(start, most int) *flow {
	return &flow{limit: min(start, most), most: most, changed: make(chan struct{})}
}

// acquire waits for a place. release must be called once with how it went.
func (f *flow) acquire(ctx context.Context) error {
	for {
		f.mu.Lock()
		pause := time.Until(f.until)
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

// waitFor waits for the channel or, when pause is positive, until it has passed.
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

// release gives the place back. throttled is how long the engine wants to be left alone; 0 when it
// did not say so.
func (f *flow) release(throttled time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used--
	if throttled > 0 {
		if until := time.Now().Add(throttled); until.After(f.until) {
			f.until = until
			f.limit = max(leastInFlight, f.limit/2)
		}
		f.good = 0
	} else if f.good++; f.good >= f.limit && f.limit < f.most {
		f.limit++
		f.good = 0
	}
	close(f.changed)
	f.changed = make(chan struct{})
}
