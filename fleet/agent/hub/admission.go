package hub

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// admission lets callers through at a bounded rate, in the order in which they came. Each is given
// its moment when it comes, so that none is passed by another; who would wait longer than the queue
// is long is sent away with a moment to come back at, which is spread at the same rate. A caller
// that goes before its moment leaves it empty: the rate is bounded all the same.
type admission struct {
	every time.Duration // between two
	burst time.Duration // that may come at once after a pause, in time
	queue time.Duration // the longest wait

	mu     sync.Mutex
	next   time.Time // the first moment that is not given
	later  time.Time // likewise of those that were sent away
	inside int       // that wait
}

// longestAway bounds for how long a caller is sent away.
const longestAway = 2 * time.Minute

func newAdmission(rate int, queue time.Duration) *admission {
	every := time.Second / time.Duration(rate)
	return &admission{every: every, burst: time.Second / 10, queue: queue}
}

// busyError sends a caller away.
type busyError struct{ after time.Duration }

func (*busyError) Error() string { return "too many at once" }

// wait returns when it is the caller's turn, or with a busyError at once.
func (a *admission) wait(ctx context.Context) error {
	moment, err := a.enter(time.Now())
	if err != nil {
		return err
	}
	defer a.leave()
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

// enter gives the caller its moment.
func (a *admission) enter(now time.Time) (time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	moment := latest(a.next, now.Add(-a.burst))
	if moment.Sub(now) > a.queue {
		return time.Time{}, &busyError{a.away(now)}
	}
	a.next = moment.Add(a.every)
	a.inside++
	return moment, nil
}

// away is for how long a caller is sent away: until the queue is empty and everybody who was sent
// away before has come back.
func (a *admission) away(now time.Time) time.Duration {
	a.later = latest(a.later, now.Add(a.queue)).Add(a.every)
	if after := a.later.Sub(now); after <= longestAway {
		return after
	}
	a.later = now.Add(longestAway)
	return a.queue + rand.N(longestAway-a.queue+1)
}

func (a *admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside--
}

func (a *admission) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inside
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
