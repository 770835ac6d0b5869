package worker

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/lease"
)

// Replicas tells replicas of each other, so that each holds its share of the engines' leases.
type Replicas interface {
	// BeatWorkers says that the workers of a replica run, and returns which others do and who holds
	// which lease.
	BeatWorkers(ctx context.Context, beat mirror.ReplicaBeat) (mirror.Replicas, error)
	// LeaveWorkers says that they end.
	LeaveWorkers(ctx context.Context, replica string) error
}

const (
	beatEvery = 2 * time.Second
	// calmBeats is for how many beats the same replicas have to be there before leases are handed
	// over: one that restarts, or starts beside others, moves nothing twice.
	calmBeats = 5
	// handoverBeats is between handovers: what was handed over is seen to be prepared by then.
	handoverBeats = 2
	// mostCalm bounds how many times calmBeats are between handovers that come to nothing.
	mostCalm = 64
	// handoversMost is how many leases pass at a time, in the whole fleet; the next ones pass when
	// these engines are written to again.
	handoversMost = 4
)

// handover is one lease that is to pass to another replica.
type handover struct{ lease, from, to string }

// handovers plans which leases pass, until no replica holds two more than another. All that see the
// same plan the same. There are none while a lease is free or a session prepares: that is a
// takeover.
func handovers(view mirror.Replicas, leases int, most int) []handover {
	if len(view.Holders) < leases {
		return nil
	}
	held := map[string][]string{}
	for replica, preparing := range view.Preparing {
		if preparing > 0 {
			return nil
		}
		held[replica] = nil
	}
	for _, lease := range slices.Sorted(maps.Keys(view.Holders)) {
		held[view.Holders[lease]] = append(held[view.Holders[lease]], lease)
	}
	var plan []handover
	for len(plan) < most {
		from, to := "", ""
		for _, replica := range slices.Sorted(maps.Keys(held)) {
			if from == "" || len(held[replica]) > len(held[from]) {
				from = replica
			}
			if _, works := view.Preparing[replica]; works &&
				(to == "" || len(held[replica]) < len(held[to])) {
				to = replica
			}
		}
		if to == "" || len(held[from]) < len(held[to])+2 {
			break
		}
		plan = append(plan, handover{held[from][0], from, to})
		held[to] = append(held[to], held[from][0])
		held[from] = held[from][1:]
	}
	return plan
}

// balance decides when this replica hands leases over.
type balance struct {
	me      string
	beat    time.Duration
	members []string
	calm    time.Time // no handover before
	failed  int       // handovers in a row that came to nothing
	given   []string  // leases that were handed over last
}

// decide returns what this replica is to hand over now.
func (b *balance) decide(view mirror.Replicas, leases int, now time.Time) []handover {
	members := slices.Sorted(maps.Keys(view.Preparing))
	if !slices.Equal(members, b.members) {
		b.members, b.failed, b.given, b.calm = members, 0, nil, now.Add(calmBeats*b.beat)
	}
	if now.Before(b.calm) {
		return nil
	}
	if slices.ContainsFunc(b.given, func(lease string) bool {
		return view.Holders[lease] == b.me
	}) {
		b.failed++
		b.given, b.calm = nil,
			now.Add(calmBeats*b.beat*time.Duration(min(1<<min(b.failed, 10), mostCalm)))
		return nil
	}
	plan := slices.DeleteFunc(handovers(view, leases, handoversMost), func(h handover) bool {
		return h.from != b.me
	})
	if len(plan) == 0 {
		return nil
	}
	b.given, b.calm = nil, now.Add(handoverBeats*b.beat)
	for _, h := range plan {
		b.given = append(b.given, h.lease)
	}
	return plan
}

// balance beats, and hands engines over to replicas that have fewer, until ctx ends.
func (m *Manager) balance(ctx context.Context) {
	b := balance{me: m.Holder, beat: cmp.Or(m.Beat, beatEvery)}
	for {
		workers := m.workers()
		beat := mirror.ReplicaBeat{Replica: m.Holder, Leases: make([]string, 0, len(workers))}
		byLease := make(map[string]*Worker, len(workers))
		for _, w := range workers {
			lease := engineLease + string(w.Engine)
			beat.Leases, byLease[lease] = append(beat.Leases, lease), w
			if w.preparing() {
				beat.Preparing++
			}
		}
		view, err := m.Replicas.BeatWorkers(ctx, beat)
		if err == nil {
			for _, h := range b.decide(view, len(workers), time.Now()) {
				byLease[h.lease].handOver(h.to)
			}
		} else if ctx.Err() == nil {
			m.Log.Warn("failed to read which replicas work; no engine is handed over", "error", err)
		}
		if !pacing.Sleep(ctx, b.beat*3/4+rand.N(b.beat/2)) {
			break
		}
	}
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := m.Replicas.LeaveWorkers(leave, m.Holder); err != nil {
		m.Log.Debug("failed to record that the workers end; others find out", "error", err)
	}
}

// stage is where a worker's session stands.
type stage struct {
	end   context.CancelCauseFunc // nil: there is none
	begun time.Time
	ready bool // it writes
}

// preparingMost is how long a session counts as one that prepares. An engine that is down would
// keep every other from being handed over.
const preparingMost = 30 * time.Second

func (w *Worker) preparing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stage.end != nil && !w.stage.ready && time.Since(w.stage.begun) < preparingMost
}

// handOver ends the session, if there is one, as a stop of the process would, and leaves the lease
// to that replica.
func (w *Worker) handOver(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stage.end != nil {
		w.Log.Info("engine handed over", "engine", w.Engine, "to", to)
		w.Metrics.handedOver(w.Engine)
		w.stage.end(lease.HandedOver{To: to})
	}
}

func (w *Worker) setStage(s stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stage = s
}

// slots bound the sessions that prepare at a time, each of which lists its engine and reads its rows.
// Sessions that take an engine over and sessions that begin again after a failure have slots of
// their own, so that engines that are down delay no takeover. Nil slots bound nothing.
type slots struct{ first, again chan struct{} }

const (
	slotsMost = 8
	// slotTime is how long a session may keep its slot: a session with a slow engine goes on beside
	// the next one.
	slotTime = 5 * time.Second
)

func newSlots() *slots {
	return &slots{make(chan struct{}, slotsMost), make(chan struct{}, slotsMost)}
}

// acquire waits for a slot, first come, first served, and returns the function that frees it.
func (s *slots) acquire(ctx context.Context, again bool) (free func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	of := s.first
	if again {
		of = s.again
	}
	select {
	case of <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return sync.OnceFunc(func() { <-of }), nil
}
