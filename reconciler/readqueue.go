package reconciler

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
)

const (
	// Concurrent reads of all listed repositories, and of one host. A tenant has one.
	readsOfAll, readsOfHost = 16, 4
	// Of these, slots that tenants with a debt leave to the others.
	reserveOfAll, reserveOfHost = 4, 1
	// A tenant is in debt for readDebt times the duration of its reads, at most for maxReadDebt.
	readDebt    = 4
	maxReadDebt = 15 * time.Minute
)

// readQueue orders the reads of listed repositories. A tenant reads one at a time; its next read
// competes when the one before has ended. Reads begin in the order in which they came, but a
// tenant's read counts as if it had come when the tenant's debt is paid: a tenant with slow
// repositories waits for the others and never fills all slots of a host. A tenant that waits always
// gets its turn, since later reads of others count as later too.
type readQueue struct {
	mu      sync.Mutex
	tenants map[fleet.TenantName]*readingTenant
	hosts   map[string]*readHost
	reading int
	swept   int // tenants after the last sweep
}

// readingTenant is kept while the tenant reads, waits or has a debt.
type readingTenant struct {
	waiting []*waitingRead // in the order in which they came; the first one competes
	reading bool
	debt    time.Time // when it is paid
}

// readHost is kept while a read of the host competes or goes on.
type readHost struct {
	competing readHeap // one read of each tenant
	reading   int
}

type waitingRead struct {
	tenant fleet.TenantName
	host   string
	came   time.Time
	due    time.Time     // counts as the time at which it came; while it competes
	index  int           // in the heap of its host; -1: it does not compete
	begun  chan struct{} // closed when the read may begin
}

func newReadQueue() *readQueue {
	return &readQueue{tenants: map[fleet.TenantName]*readingTenant{}, hosts: map[string]*readHost{}}
}

// enter waits until a read of a place may begin.
func (q *readQueue) enter(ctx context.Context, p place) (leave func(), err error) {
	r := &waitingRead{tenant: p.tenant, host: hostOf(p.repoURL), came: time.Now(), index: -1,
		begun: make(chan struct{})}
	q.mu.Lock()
	q.sweep()
	t := q.tenants[r.tenant]
	if t == nil {
		t = &readingTenant{}
		q.tenants[r.tenant] = t
	}
	t.waiting = append(t.waiting, r)
	q.compete(t)
	q.mu.Unlock()
	select {
	case <-r.begun:
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		select {
		case <-r.begun: // at the same time
			q.end(r, 0)
		default:
			q.withdraw(t, r)
		}
		return nil, context.Cause(ctx)
	}
	begin := time.Now()
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.end(r, time.Since(begin))
	}, nil
}

func hostOf(url string) string {
	if u, err := fleet.ParseRepoURL(url); err == nil {
		return u.Host
	}
	return url
}

// compete lets the first waiting read of a tenant compete if the tenant does not read.
func (q *readQueue) compete(t *readingTenant) {
	if !t.reading && len(t.waiting) > 0 && t.waiting[0].index < 0 {
		r := t.waiting[0]
		if r.due = r.came; t.debt.After(r.due) {
			r.due = t.debt
		}
		h := q.hosts[r.host]
		if h == nil {
			h = &readHost{}
			q.hosts[r.host] = h
		}
		heap.Push(&h.competing, r)
	}
	q.begin()
}

// begin begins every read that has a slot. It costs the hosts.
func (q *readQueue) begin() {
	now := time.Now()
	for {
		var next *waitingRead
		for _, h := range q.hosts {
			if len(h.competing) == 0 {
				continue
			}
			r := h.competing[0]
			ofAll, ofHost := readsOfAll, readsOfHost
			if r.due.After(now) {
				ofAll, ofHost = ofAll-reserveOfAll, ofHost-reserveOfHost
			}
			if q.reading < ofAll && h.reading < ofHost && (next == nil || r.before(next)) {
				next = r
			}
		}
		if next == nil {
			return
		}
		h, t := q.hosts[next.host], q.tenants[next.tenant]
		heap.Pop(&h.competing)
		t.waiting, t.reading = t.waiting[1:], true
		h.reading++
		q.reading++
		close(next.begun)
	}
}

// end ends a read.
func (q *readQueue) end(r *waitingRead, took time.Duration) {
	h, t, now := q.hosts[r.host], q.tenants[r.tenant], time.Now()
	q.reading--
	h.reading--
	t.reading = false
	debt := min(max(t.debt.Sub(now), 0)+readDebt*took, maxReadDebt)
	t.debt = now.Add(debt)
	q.compete(t)
	q.forget(r.host)
}

// withdraw removes a read that has not begun.
func (q *readQueue) withdraw(t *readingTenant, r *waitingRead) {
	if r.index >= 0 {
		heap.Remove(&q.hosts[r.host].competing, r.index)
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(w *waitingRead) bool { return w == r })
	q.compete(t)
	q.forget(r.host)
}

func (q *readQueue) forget(host string) {
	if h := q.hosts[host]; h != nil && h.reading == 0 && len(h.competing) == 0 {
		delete(q.hosts, host)
	}
}

// sweep forgets tenants without a debt, when there are twice as many as after the last time.
func (q *readQueue) sweep() {
	if len(q.tenants) < 2*q.swept+64 {
		return
	}
	now := time.Now()
	for name, t := range q.tenants {
		if !t.reading && len(t.waiting) == 0 && !t.debt.After(now) {
			delete(q.tenants, name)
		}
	}
	q.swept = len(q.tenants)
}

func (r *waitingRead) before(o *waitingRead) bool {
	return cmp.Or(r.due.Compare(o.due), r.came.Compare(o.came)) < 0
}

// readHeap is a container/heap of reads, each of which knows its index.
type readHeap []*waitingRead

func (h readHeap) Len() int           { return len(h) }
func (h readHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h readHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is container/heap's.
func (h *readHeap) Push(x any) {
	r := x.(*waitingRead)
	r.index = len(*h)
	*h = append(*h, r)
}

// Pop is container/heap's.
func (h *readHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h, r.index = (*h)[:last], -1
	return r
}
