package hub

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// rateLimiter admits callers at a bounded rate, first come, first served. Each caller gets its slot
// when it arrives, so that no later one overtakes it. A caller that would wait longer than maxWait
// is rejected with a retry time; retry times are spread at the same rate. A caller that leaves
// early wastes its slot: the rate stays bounded.
type rateLimiter struct {
	interval time.Duration // between two callers
	burst    time.Duration // admitted at once after an idle period, as a duration
	maxWait  time.Duration // longer waits are rejected

	mu        sync.Mutex
	next      time.Time // the first free slot
	nextRetry time.Time // the first free retry time of rejected callers
	waiters   int       // callers that wait now
}

// maxRetryAfter bounds the retry time of a rejected caller.
const maxRetryAfter = 2 * time.Minute

func newRateLimiter(rate int, queue time.Duration) *rateLimiter {
	every := time.Second / time.Duration(rate)
	return &rateLimiter{interval: every, burst: time.Second / 10, maxWait: queue}
}

// busyError rejects a caller.
type busyError struct{ after time.Duration }

func (*busyError) Error() string { return "too many at once" }

// wait returns when the caller's slot begins. It returns a busyError at once if that is too late.
func (a *rateLimiter) wait(ctx context.Context) error {
	moment, err := a.reserve(time.Now())
	if err != nil {
		return err
	}
	defer a.done()
	pause := time.Until(moment)
	if pause <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reserve assigns the caller's slot.
func (a *rateLimiter) reserve(now time.Time) (time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	moment := latest(a.next, now.Add(-a.burst))
	if moment.Sub(now) > a.maxWait {
		return time.Time{}, &busyError{a.retryAfter(now)}
	}
	a.next = moment.Add(a.interval)
	a.waiters++
	return moment, nil
}

// retryAfter returns the pause of a rejected caller. By then the queue is empty and all callers
// rejected before have come back.
func (a *rateLimiter) retryAfter(now time.Time) time.Duration {
	a.nextRetry = latest(a.nextRetry, now.Add(a.maxWait)).Add(a.interval)
	if after := a.nextRetry.Sub(now); after <= maxRetryAfter {
		return after
	}
	a.nextRetry = now.Add(maxRetryAfter)
	return a.maxWait + rand.N(maxRetryAfter-a.maxWait+1)
}

func (a *rateLimiter) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiters--
}

func (a *rateLimiter) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waiters
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
