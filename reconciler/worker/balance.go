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

// Replicas connects replicas through the store, so that each holds its share of the engines'
// leases.
type Replicas interface {
	// BeatWorkers records that a replica's workers run, and returns the replicas whose workers run
	// and the holders of the leases.
	BeatWorkers(ctx context.Context, beat mirror.ReplicaBeat) (mirror.Replicas, error)
	// LeaveWorkers records that a replica's workers end.
	LeaveWorkers(ctx context.Context, replica string) error
}

const (
	beatEvery = 2 * time.Second
	// calmBeats is the number of beats without a change of replicas before leases are handed over:
	// a restart of a replica, or its start beside others, moves no lease twice.
	calmBeats = 5
	// handoverBeats is between handovers: by then the session of the new holder shows as prepared.
	handoverBeats = 2
	// mostCalm bounds the multiple of calmBeats between handovers that fail.
	mostCalm = 64
	// handoversMost bounds the leases that pass at a time in the whole fleet; more pass once these
	// engines are written to again.
	handoversMost = 4
)

// handover is one lease that passes to another replica.
type handover struct{ lease, from, to string }

// handovers plans the leases that pass, until no replica holds two more than another. All replicas
// compute the same plan from the same view. The plan is empty while a lease is free or a session
// prepares: that is a takeover.
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
	failed  int       // failed handovers in a row
	given   []string  // leases of the last handover
}

// decide returns the leases that this replica hands over now.
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

// balance beats, and hands engines over to replicas with fewer engines, until ctx ends.
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
			m.Log.Warn("failed to read the replicas; no engine is handed over", "error", err)
		}
		if !pacing.Sleep(ctx, b.beat*3/4+rand.N(b.beat/2)) {
			break
		}
	}
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := m.Replicas.LeaveWorkers(leave, m.Holder); err != nil {
		m.Log.Debug("failed to record the end of the workers; other replicas will notice", "error",
			err)
	}
}

// stage is the progress of a worker's session.
type stage struct {
	end   context.CancelCauseFunc // nil: no session
	begun time.Time
	ready bool // the session has begun to write
}

// preparingMost is how long a session counts as preparing. Otherwise an engine that is down would
// prevent all handovers.
const preparingMost = 30 * time.Second

func (w *Worker) preparing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stage.end != nil && !w.stage.ready && time.Since(w.stage.begun) < preparingMost
}

// handOver ends the session, if there is one, as a stop of the process would, and reserves the
// lease for that replica.
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

// semaphores bound the sessions that prepare at a time, each of which lists its engine and reads
// its rows. Sessions that take an engine over and sessions that begin again after a failure have
// semaphores of their own, so that engines that are down delay no takeover. Nil semaphores bound
// nothing.
type semaphores struct{ first, again chan struct{} }

const (
	semaphoreSize = 8
	// slotTime is how long a session may keep its slot: a session with a slow engine goes on beside
	// the next one.
	slotTime = 5 * time.Second
)

func newSemaphores() *semaphores {
	return &semaphores{make(chan struct{}, semaphoreSize), make(chan struct{}, semaphoreSize)}
}

// acquire waits for a slot, first come, first served, and returns the function that frees it.
func (s *semaphores) acquire(ctx context.Context, again bool) (free func(), err error) {
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
