package worker

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// renewals are the objects to apply again at a certain time, because their tokens expire. After a
// restart the verification of the engine fills them: it applies every object with a credential.
type renewals struct {
	mu   sync.Mutex
	at   map[fleet.ObjectKey]time.Time
	heap renewalHeap // also has entries that a later set has replaced
}

type renewal struct {
	key fleet.ObjectKey
	at  time.Time
}

func newRenewals() *renewals { return &renewals{at: map[fleet.ObjectKey]time.Time{}} }

// closeTogether is the difference below which two times of one object are the same.
const closeTogether = time.Second

// set replaces the time of an object.
func (r *renewals) set(key fleet.ObjectKey, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.at[key]; ok && known.Sub(at).Abs() < closeTogether {
		return
	}
	r.at[key] = at
	heap.Push(&r.heap, renewal{key, at})
}

// due removes and returns the objects whose time has come. It costs these alone.
func (r *renewals) due(now time.Time) []fleet.ObjectKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []fleet.ObjectKey
	for len(r.heap) > 0 && !r.heap[0].at.After(now) {
		next := heap.Pop(&r.heap).(renewal)
		if r.at[next.key].Equal(next.at) {
			delete(r.at, next.key)
			keys = append(keys, next.key)
		}
	}
	return keys
}

// renew queues the rows whose tokens are due.
func (s *session) renew(ctx context.Context) error {
	now := time.Now()
	keys := s.renewals.due(now)
	err := s.lookup(ctx, keys, func(row mirror.Row) {
		if !row.Unwanted {
			s.queue.check(row)
		}
	})
	if err != nil {
		for _, key := range keys {
			s.renewals.set(key, now)
		}
	}
	return err
}

// renewalHeap is a container/heap by time.
type renewalHeap []renewal

func (h renewalHeap) Len() int           { return len(h) }
func (h renewalHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h renewalHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is container/heap's.
func (h *renewalHeap) Push(x any) { *h = append(*h, x.(renewal)) }

// Pop is container/heap's.
func (h *renewalHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
