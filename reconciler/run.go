package reconciler

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/lease"
)

// loopLease elects the replica that turns commits into rows.
const loopLease = "reconciler"

// Released wakes a replica that waits for the lease, if that lease was released. It never blocks.
func (l *Loop) Released(lease string) {
	if lease == loopLease {
		l.released.Set()
	}
}

// Notified wakes the loop for a notice of the store: another replica has recorded a revision, a
// worker has deleted objects, a person has approved. It ignores the loop's own notices, and those
// about emergency stops and agents, which any tenant can cause: a needless reconcile costs a fetch.
func (l *Loop) Notified(notice string) {
	if by, ok := mirror.Pushed(notice); ok {
		if by != l.Holder {
			l.Pushed()
		}
		return
	}
	if by, ref, urls, ok := mirror.Moved(notice); ok {
		if by != l.Holder {
			l.Moved(ref, urls)
		}
		return
	}
	if _, is := mirror.MoveStepped(notice); is {
		l.drains.Set()
		return // the workers act on it
	}
	switch by, _, ok := mirror.Recorded(notice); {
	case ok && by == l.Holder, notice == l.Holder, notice == mirror.NoticeStops,
		notice == mirror.NoticeAgents:
	default:
		l.Wake()
	}
}

// Run works until ctx ends. It loads the stored state whenever it gets the lease, so that the
// records of another replica count.
func (l *Loop) Run(ctx context.Context) {
	var leading atomic.Bool
	var standby sync.WaitGroup
	defer standby.Wait()
	standby.Go(func() { l.follow(ctx, &leading) })
	if l.Unready != nil {
		standby.Go(func() { l.WhileLeading(ctx, l.drain) })
	}
	standby.Go(func() { l.WhileLeading(ctx, l.remedy) })
	if l.Notifier.Store != nil {
		standby.Go(func() { l.WhileLeading(ctx, l.notify) })
		standby.Go(func() { l.WhileLeading(ctx, l.sendNotifications) })
	}
	if l.Config.Rings != nil {
		standby.Go(func() { l.WhileLeading(ctx, l.ring) })
	}
	for attempts := 1; ctx.Err() == nil; attempts++ {
		began := time.Now()
		election := lease.Candidate{Store: l.Leases, Name: loopLease, Holder: l.Holder,
			Poll: l.Poll, Released: l.released}
		err := election.Hold(ctx, func(ctx context.Context, held *lease.Held) error {
			began = time.Now()
			leading.Store(true)
			defer leading.Store(false)
			return l.lead(ctx, held)
		})
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute { // no failed attempt
			attempts = 1
		}
		l.Log.Warn("the loop starts again", "error", err)
		pacing.Sleep(ctx, pacing.Backoff(min(attempts, 5)))
	}
}

// lead reconciles under the lease whenever the loop is woken, and at least every Poll.
func (l *Loop) lead(ctx context.Context, held *lease.Held) error {
	l.stored.state, l.reported, l.term = nil, sourceStatus{}, held.Lease()
	defer l.terms.end()
	defer l.withdraw()
	defer l.recovery.Stop()
	defer l.pools.stop()
	l.gates = newGates(l.Prometheus)
	defer l.gates.asking.Wait()
	defer l.listed.begin(ctx)()
	if l.asker != nil {
		ctx, end := context.WithCancel(ctx)
		var asking sync.WaitGroup
		asking.Go(func() { l.asker.run(ctx) })
		defer asking.Wait()
		defer end()
	}
	rolls := false // check rollouts only
	due := time.Now()
	for {
		started := time.Now()
		var err error
		if rolls {
			err = l.takeRollouts(ctx, held.Lease())
		} else {
			var result string
			result, err = l.reconcile(ctx, held.Lease())
			l.Metrics.reconciled(result, time.Since(started))
			due = time.Now().Add(l.Poll)
		}
		switch {
		case errors.Is(err, mirror.ErrFenced):
			return err
		case errors.Is(err, mirror.ErrStale):
			l.stored.state = nil // the next reconcile loads it
		case err != nil && ctx.Err() == nil:
			l.Log.Warn("nothing is changed; the last good state stays", "error", err)
		}
		l.publish()
		if l.stored.state != nil {
			l.terms.begin(ctx)
			l.drains.Set()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.wake:
			rolls = false
		case <-time.After(l.pause(due)):
			rolls = time.Now().Before(due)
		}
	}
}

// pause returns the time until the next reconcile, or until rollouts are checked.
func (l *Loop) pause(due time.Time) time.Duration {
	until := max(time.Until(due), 0)
	if rolls := l.rolls(); rolls > 0 {
		return min(rolls, until)
	}
	return until
}

// standbyEvery is between fetches of a replica that does not lead, a quarter more or less. The
// first fetch is within a tenth of it.
const standbyEvery = 5 * time.Minute

// follow keeps this replica's copy of the config repo close to the branch's head while another
// replica leads, so that a takeover does not begin with a clone.
func (l *Loop) follow(ctx context.Context, leading *atomic.Bool) {
	every := cmp.Or(l.Standby, standbyEvery)
	for pause := rand.N(every / 10); pacing.Sleep(ctx, pause); pause = every*3/4 + rand.N(every/2) {
		if leading.Load() {
			continue
		}
		if _, err := l.Source.Fetch(ctx); err != nil && ctx.Err() == nil {
			l.Log.Info("failed to fetch the config repo while another replica leads; trying again",
				"error", err)
		}
	}
}
