package worker

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// task is one row that a worker must bring to its engine.
type task struct {
	row    mirror.Row
	inHand bool // a worker has it, and it counts among the tasks that read a secret
	// the engine has the row's object; only its credential is compared
	check    bool
	attempts int // failures in a row; 0 after a success
	waits    int // waits for another object in a row
	calls    int // requests for the present step of a move
	// when Compare of a move may be tried again, although the status has changed before
	compareAt time.Time
	waves     time.Time // since when it waits for another wave; zero: it does not
	reason    string    // last reported reason of a wait
	reported  time.Time // when waitUnused reported it
	waiting   bool      // the last attempt was too early for its wave
	counted   bool      // waiting, in the queue's count
	hastened  bool      // while a worker had it
	at        time.Time // of the next attempt
	in        *taskHeap // nil while a worker has the task
	index     int       // in that heap
}

// phase orders the work on one engine: dependencies are applied first and deleted last. If a
// cluster Secret were deleted before its Applications, Argo CD would silently remove their
// finalizers and orphan the workloads.
func phase(row mirror.Row) int {
	if row.Unwanted {
		return 5 - row.Key.Kind.Rank()
	}
	return row.Key.Kind.Rank()
}

// checkPhase comes after every phase of a row: a takeover that compares thousands of credentials
// delays no change.
const checkPhase = 100

func (t *task) phase() int {
	if t.check {
		return checkPhase
	}
	return phase(t.row)
}

// readsSecret reports whether the task reads a credential's content, which may take long.
func (t *task) readsSecret() bool { return t.row.Credential != nil && !t.row.Unwanted }

// queue holds at most one task per object: a newer row replaces a waiting one, and a row that comes
// while a worker has its object follows afterwards. The queue is level-triggered: putting a row
// twice equals putting it once.
type queue struct {
	mu           sync.Mutex
	tasks        map[fleet.ObjectKey]*task
	environments map[fleet.EnvironmentID]*environmentTasks
	ready        taskHeap                       // due, by phase
	reads        taskHeap                       // due, by phase, of tasks that read a secret
	read         int                            // tasks in hand that read a secret
	most         int                            // tasks that may read a secret at a time
	later        taskHeap                       // not due yet, by time
	moves        map[fleet.ObjectKey]*task      // of Applications that move, or did
	waiting      int                            // tasks that wait for another wave
	again        map[fleet.ObjectKey]mirror.Row // rows of objects that a worker has
	// closed and replaced when a task may be due earlier than next returned
	wake chan struct{}
}

// newQueue returns a queue that hands out at most mostReads tasks at a time that read a secret:
// when the secret store does not answer, workers are left for other tasks.
func newQueue(mostReads int) *queue {
	return &queue{
		most:         max(mostReads, 1),
		tasks:        map[fleet.ObjectKey]*task{},
		environments: map[fleet.EnvironmentID]*environmentTasks{},
		moves:        map[fleet.ObjectKey]*task{},
		again:        map[fleet.ObjectKey]mirror.Row{},
		ready:        taskHeap{less: byPhase},
		reads:        taskHeap{less: byPhase},
		later:        taskHeap{less: byTime},
		wake:         make(chan struct{}),
	}
}

// put queues a row for its phase. It drops a row that is older than the waiting one.
func (q *queue) put(row mirror.Row) { q.add(row, false) }

// check queues a comparison of the row's credential after everything else. A waiting task for the
// same row stays.
func (q *queue) check(row mirror.Row) { q.add(row, true) }

func (q *queue) add(row mirror.Row, check bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, ok := q.tasks[row.Key]
	if !ok {
		t = &task{row: row, check: check}
		q.tasks[row.Key] = t
	}
	q.join(t, row)
	if row.Moving {
		q.moves[row.Key] = t
	}
	switch {
	case !ok:
	case check && row.Seq <= t.row.Seq:
		return
	case row.Seq < t.row.Seq:
		return
	case t.in == nil:
		if newer, ok := q.again[row.Key]; !ok || row.Seq >= newer.Seq {
			q.again[row.Key] = row
		}
		return
	default:
		heap.Remove(t.in, t.index)
		if row.Seq > t.row.Seq {
			t.renewed()
		}
		t.row, t.check = row, check
		q.count(t)
	}
	q.due(t)
}

// renewed forgets the waits of an older row.
func (t *task) renewed() {
	t.attempts, t.waits, t.waves, t.reason, t.waiting = 0, 0, time.Time{}, "", false
	t.reported = time.Time{}
}

// count counts a task that waits for another wave.
func (q *queue) count(t *task) {
	switch {
	case t.waiting && !t.counted:
		q.waiting++
	case !t.waiting && t.counted:
		q.waiting--
	}
	t.counted = t.waiting
}

// environmentTasks are the tasks of the Applications of one environment.
type environmentTasks struct {
	tasks map[fleet.ObjectKey]*task
	waves bool // a row with a wave other than 0 has come since there are tasks
}

// join and leave maintain the tasks of each environment. An object never changes its environment.
func (q *queue) join(t *task, row mirror.Row) {
	if row.Key.Kind != fleet.ObjectApplication {
		return
	}
	id := fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment}
	e := q.environments[id]
	if e == nil {
		e = &environmentTasks{tasks: map[fleet.ObjectKey]*task{}}
		q.environments[id] = e
	}
	e.tasks[row.Key], e.waves = t, e.waves || row.Wave() != 0
}

func (q *queue) leave(row mirror.Row) {
	id := fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment}
	e := q.environments[id]
	if e == nil || row.Key.Kind != fleet.ObjectApplication {
		return
	}
	if delete(e.tasks, row.Key); len(e.tasks) == 0 {
		delete(q.environments, id)
	}
}

// waves reports whether the queue may have an Application of the environment with a wave.
func (q *queue) waves(id fleet.EnvironmentID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.environments[id]
	return e != nil && e.waves
}

// of returns the newest queued row of each Application of an environment. It costs these.
func (q *queue) of(id fleet.EnvironmentID) map[fleet.ObjectKey]mirror.Row {
	q.mu.Lock()
	defer q.mu.Unlock()
	rows := map[fleet.ObjectKey]mirror.Row{}
	if e := q.environments[id]; e != nil {
		for key, t := range e.tasks {
			rows[key] = t.row
			if newer, ok := q.again[key]; ok {
				rows[key] = newer
			}
		}
	}
	return rows
}

// due makes a task ready for a worker.
func (q *queue) due(t *task) {
	if t.readsSecret() {
		q.push(&q.reads, t)
	} else {
		q.push(&q.ready, t)
	}
}

// take waits for the next task that is due, lowest phase first; false when ctx ends.
func (q *queue) take(ctx context.Context) (*task, bool) {
	for {
		t, next, wake := q.next()
		if t != nil {
			return t, true
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil, false
		}
	}
}

// next is the next task, or the time until a task may be due.
func (q *queue) next() (*task, time.Duration, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for q.later.Len() > 0 && !q.later.tasks[0].at.After(now) {
		q.due(heap.Pop(&q.later).(*task))
	}
	if t := q.pop(); t != nil {
		return t, 0, nil
	}
	if q.later.Len() > 0 {
		return nil, q.later.tasks[0].at.Sub(now), q.wake
	}
	return nil, time.Hour, q.wake
}

// pop takes the ready task of the lowest phase; nil when there is none.
func (q *queue) pop() *task {
	from := &q.ready
	if q.reads.Len() > 0 && q.read < q.most &&
		(q.ready.Len() == 0 || byPhase(q.reads.tasks[0], q.ready.tasks[0])) {
		from = &q.reads
	}
	if from.Len() == 0 {
		return nil
	}
	t := heap.Pop(from).(*task)
	if t.inHand = t.readsSecret(); t.inHand {
		q.read++
	}
	return t
}

// done ends a task, or repeats it after retry if that is not 0.
func (q *queue) done(t *task, retry time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.inHand {
		t.inHand = false
		q.read--
		q.signal()
	}
	defer q.count(t)
	if row, ok := q.again[t.row.Key]; ok {
		delete(q.again, t.row.Key)
		if row.Seq > t.row.Seq {
			t.renewed()
		}
		t.row, t.check = row, false
		q.due(t)
		return
	}
	if t.hastened && retry != 0 {
		t.hastened = false
		q.due(t)
		return
	}
	if retry == 0 {
		delete(q.tasks, t.row.Key)
		delete(q.moves, t.row.Key)
		q.leave(t.row)
		return
	}
	t.at = time.Now().Add(retry)
	q.push(&q.later, t)
}

// hasten makes every waiting task due, after a change that many of them may have waited for.
func (q *queue) hasten() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.later.Len() > 0 {
		q.due(heap.Pop(&q.later).(*task))
	}
	for _, t := range q.tasks {
		t.hastened = t.in == nil // its worker may have read what was before
	}
}

// hastenSteps makes the tasks of moving Applications that have another step due.
func (q *queue) hastenSteps(steps mirror.Stepped) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.environments[steps.Environment]
	if e == nil {
		return
	}
	for key, t := range e.tasks {
		if steps.Deployments == nil || slices.Contains(steps.Deployments, t.row.Deployment) {
			q.hastenOne(key)
		}
	}
}

// hastenMove makes the task of a moving Application due, whose state on the engine has changed.
func (q *queue) hastenMove(key fleet.ObjectKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hastenOne(key)
}

func (q *queue) hastenOne(key fleet.ObjectKey) {
	switch t := q.moves[key]; {
	case t == nil:
	case t.in == &q.later:
		heap.Remove(t.in, t.index)
		q.due(t)
	case t.in == nil: // the worker may have read what was before
		t.hastened = true
	}
}

// size is the number of waiting and running tasks.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tasks)
}

// waitingForWave is the number of tasks whose last attempt was too early for their wave.
func (q *queue) waitingForWave() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

func (q *queue) push(h *taskHeap, t *task) {
	heap.Push(h, t)
	q.signal()
}

func (q *queue) signal() {
	close(q.wake)
	q.wake = make(chan struct{})
}

func byPhase(a, b *task) bool {
	if x, y := a.phase(), b.phase(); x != y {
		return x < y
	}
	return a.row.Seq < b.row.Seq
}

func byTime(a, b *task) bool { return a.at.Before(b.at) }

// taskHeap is a container/heap of tasks, each of which knows its index.
type taskHeap struct {
	tasks []*task
	less  func(a, b *task) bool
}

func (h *taskHeap) Len() int { return len(h.tasks) }

func (h *taskHeap) Less(i, j int) bool { return h.less(h.tasks[i], h.tasks[j]) }

func (h *taskHeap) Swap(i, j int) {
	h.tasks[i], h.tasks[j] = h.tasks[j], h.tasks[i]
	h.tasks[i].index, h.tasks[j].index = i, j
}

// Push is container/heap's.
func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.in, t.index = h, len(h.tasks)
	h.tasks = append(h.tasks, t)
}

// Pop is container/heap's.
func (h *taskHeap) Pop() any {
	last := len(h.tasks) - 1
	t := h.tasks[last]
	h.tasks[last] = nil
	h.tasks = h.tasks[:last]
	t.in = nil
	return t
}
