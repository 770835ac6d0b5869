package reconciler

import (
	"context"
	"sync"
	"time"
)

// terms are the times during which this replica leads, for tasks that run meanwhile.
type terms struct {
	mu      sync.Mutex
	current *term         // nil while another replica leads
	begun   chan struct{} // closed when a term begins
}

type term struct {
	ctx   context.Context // ends with the term
	end   context.CancelFunc
	tasks sync.WaitGroup
}

func newTerms() *terms { return &terms{begun: make(chan struct{})} }

// begin starts a term, unless one is under way.
func (t *terms) begin(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		return
	}
	now := &term{}
	now.ctx, now.end = context.WithCancel(ctx)
	t.current = now
	close(t.begun)
	t.begun = make(chan struct{})
}

// end ends the term and waits until its tasks have returned.
func (t *terms) end() {
	t.mu.Lock()
	ended := t.current
	t.current = nil
	t.mu.Unlock()
	if ended != nil {
		ended.end()
		ended.tasks.Wait()
	}
}

// join enters the current term as a task. Without one it returns a channel that is closed when the
// next begins.
func (t *terms) join() (*term, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.tasks.Add(1)
	}
	return t.current, t.begun
}

// WhileLeading runs task whenever this replica leads and has loaded what is applied, until ctx
// ends. The loop gives its lease up only after task has returned: two replicas never run it at the
// same time.
func (l *Loop) WhileLeading(ctx context.Context, task func(context.Context)) {
	for ctx.Err() == nil {
		now, next := l.terms.join()
		if now == nil {
			select {
			case <-ctx.Done():
			case <-next:
			}
			continue
		}
		within, cancel := context.WithCancel(now.ctx)
		stop := context.AfterFunc(ctx, cancel)
		task(within)
		stop()
		cancel()
		now.tasks.Done()
		select {
		case <-ctx.Done():
		case <-now.ctx.Done(): // a task that returned early starts again in the next term
		}
	}
}

const (
	// Of a burst of pushes, pushBurst reconcile at once and the others in one reconcile per
	// pushPeriod: 1,000 pushes in ten seconds cause at most 20 reconciles.
	pushBurst  = 3
	pushPeriod = 700 * time.Millisecond
)

// throttle passes the first events of a burst on at once, then one per period. It always passes one
// on after the last event.
type throttle struct {
	burst  int
	period time.Duration
	pass   func() // must not block

	mu    sync.Mutex
	next  time.Time // when the next event is due without a burst
	armed bool      // an event waits for its time
}

func (t *throttle) event() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed {
		return
	}
	now := time.Now()
	if t.next.Before(now) {
		t.next = now
	}
	pause := t.next.Sub(now) - time.Duration(t.burst-1)*t.period
	t.next = t.next.Add(t.period)
	if pause <= 0 {
		t.pass()
		return
	}
	t.armed = true
	time.AfterFunc(pause, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.armed = false
		t.pass()
	})
}

// Pushed wakes the loop, because the branch may have moved. It never blocks.
func (l *Loop) Pushed() { l.pushes.event() }
