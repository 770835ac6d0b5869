package edge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/pacing"
)

// openSession starts a session: reports carry its epoch, and reportSeq is the last accepted number.
// A report in flight with at most this number was accepted if the session has its epoch. Under
// another epoch its content is sent again.
func (o *Outbox) openSession(epoch, reportSeq int64) {
	defer o.notify()
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.inFlight; p != nil {
		switch {
		case p.epoch != epoch:
			o.requeue(p)
		case p.seq <= reportSeq:
			o.accept(p)
		}
	}
	if o.inFlight == nil {
		o.seq = reportSeq
	}
	o.epoch, o.open = epoch, true
	o.wake()
}

// closeSession ends the session; items wait.
func (o *Outbox) closeSession() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = false
}

// reset forgets the reported values: the hub is another one or has lost its state. Pending
// acknowledgements belong to rows of another mirror.
func (o *Outbox) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.lists {
		clear(o.lists[i].lastReported)
	}
	clear(o.lists[listAcks].pending)
	o.lists[listAcks].order = nil
	if o.inFlight != nil {
		o.inFlight.items[listAcks] = nil
	}
	if o.status.raw == nil && o.status.lastReported != "" {
		o.status.raw = json.RawMessage(o.status.lastReported)
	}
	o.status.lastReported = ""
}

// requeue returns the items of a report to the lists, except those with a newer value.
func (o *Outbox) requeue(p *inFlight) {
	o.inFlight = nil
	for i, items := range p.items {
		l := &o.lists[i]
		var again []string
		for _, w := range items {
			if _, newer := l.pending[w.key]; !newer {
				l.pending[w.key] = w
				again = append(again, w.key)
			}
		}
		l.order = append(again, l.order...)
	}
	if o.status.raw == nil {
		o.status.raw = p.status
	}
	o.ownWhole = o.ownWhole || p.whole
}

// accept records an accepted report.
func (o *Outbox) accept(p *inFlight) {
	o.finish(p)
	for _, w := range p.items[listAcks] {
		o.accepted = append(o.accepted, *w.ack)
	}
}

// finish marks the report's items as reported.
func (o *Outbox) finish(p *inFlight) {
	o.inFlight, o.maxItems = nil, unlimited
	for i, items := range p.items {
		for _, w := range items {
			o.lists[i].lastReported[w.key] = sha256.Sum256(w.raw)
		}
	}
	if p.status != nil {
		o.status.lastReported = string(p.status)
	}
}

// notify calls Accepted without holding the lock.
func (o *Outbox) notify() {
	o.mu.Lock()
	accepted := o.accepted
	o.accepted = nil
	o.mu.Unlock()
	for _, a := range accepted {
		if o.Accepted != nil {
			o.Accepted(a)
		}
	}
}

// envelope is agent.Report with encoded items.
type envelope struct {
	Epoch    int64             `json:"epoch"`
	Seq      int64             `json:"seq"`
	Acks     []json.RawMessage `json:"acks,omitempty"`
	Observed []json.RawMessage `json:"observed,omitempty"`
	Syncs    []json.RawMessage `json:"syncs,omitempty"`
	Status   json.RawMessage   `json:"standing,omitempty"`
	Own      []json.RawMessage `json:"own,omitempty"`
	OwnWhole bool              `json:"ownWhole,omitempty"`
}

// maxItemBytes leaves space for the fields of a report other than the items.
const maxItemBytes = agent.MaxReport - 4<<10

// next returns the report to send: the one in flight, or a new one; nil if nothing is pending or no
// session is open. The channel is closed when that may have changed.
func (o *Outbox) next() (*inFlight, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open || o.inFlight != nil {
		if !o.open {
			return nil, o.changed
		}
		return o.inFlight, o.changed
	}
	p, left, total := &inFlight{epoch: o.epoch, seq: o.seq + 1}, maxItemBytes, o.maxItems
	if o.status.raw != nil {
		p.status, o.status.raw = o.status.raw, nil
		left, total = left-len(p.status), total-1
	}
	for i := range o.lists {
		p.items[i] = o.lists[i].take(min(total, agent.MaxItems), &left)
		total -= len(p.items[i])
	}
	if o.ownWhole && len(o.lists[listOwn].pending) == 0 {
		p.whole, o.ownWhole = true, false
	}
	if p.size() == 0 && !p.whole {
		return nil, o.changed
	}
	body, err := json.Marshal(envelope{Epoch: p.epoch, Seq: p.seq, Acks: raws(p.items[listAcks]),
		Observed: raws(p.items[listObserved]), Syncs: raws(p.items[listSyncs]),
		Status: p.status, Own: raws(p.items[listOwn]), OwnWhole: p.whole})
	if err != nil {
		return nil, o.changed // the raw values were encoded by the same package
	}
	p.body, o.inFlight, o.seq = body, p, p.seq
	return p, o.changed
}

// take removes the oldest items, at most most, while they fit into left bytes.
func (l *list) take(most int, left *int) []item {
	var taken []item
	for len(l.order) > 0 && len(taken) < most {
		w, ok := l.pending[l.order[0]]
		if ok && len(w.raw)+1 > *left {
			break
		}
		l.order = l.order[1:]
		if ok {
			delete(l.pending, w.key)
			*left -= len(w.raw) + 1
			taken = append(taken, w)
		}
	}
	return taken
}

func raws(items []item) []json.RawMessage {
	all := make([]json.RawMessage, len(items))
	for i, w := range items {
		all[i] = w.raw
	}
	return all
}

// batchDelay is how long the first item waits for others.
const batchDelay = 100 * time.Millisecond

// Run sends reports until ctx ends, or until the hub rejects the identity with a *TerminalError.
func (o *Outbox) Run(ctx context.Context, client *Client) error {
	return o.run(ctx, func(ctx context.Context, body []byte) error {
		return client.post(ctx, agent.PathStatus, body, nil)
	}, client.log)
}

func (o *Outbox) run(ctx context.Context, send func(context.Context, []byte) error,
	log *slog.Logger) error {
	for failures := 0; ; {
		p, err := o.await(ctx)
		if err != nil {
			return err
		}
		err = send(ctx, p.body)
		if o.answered(p, err, log) {
			failures = 0
			continue
		}
		var end *TerminalError
		if errors.As(err, &end) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failures++
		log.Warn("failed to send a report; retrying", "error", err, "waiting", o.Waiting())
		if !pacing.Sleep(ctx, pause(failures, err)) {
			return context.Cause(ctx)
		}
	}
}

// await waits for pending items, and then batchDelay for more.
func (o *Outbox) await(ctx context.Context) (*inFlight, error) {
	for {
		o.mu.Lock()
		idle, changed := !o.open || o.inFlight == nil && !o.hasPending(), o.changed
		o.mu.Unlock()
		if !idle {
			if !pacing.Sleep(ctx, batchDelay) {
				return nil, context.Cause(ctx)
			}
			if p, _ := o.next(); p != nil {
				return p, nil
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-changed:
		}
	}
}

func (o *Outbox) hasPending() bool {
	return o.status.raw != nil || o.ownWhole || slices.ContainsFunc(o.lists[:], func(l list) bool {
		return len(l.pending) > 0
	})
}

// answered handles the response to a report and reports whether the report is done.
func (o *Outbox) answered(p *inFlight, err error, log *slog.Logger) bool {
	defer o.notify()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inFlight != p { // a new session has handled the report
		return true
	}
	var r *Refusal
	errors.As(err, &r)
	switch {
	case err == nil:
		o.accept(p)
	case r == nil:
		return false
	// without a number, the proof was replayed: a proxy has sent the request twice
	case r.Code == agent.CodeReplay && r.ReportSeq > 0:
		o.replayed(p, r.ReportSeq)
	case r.Status == http.StatusRequestEntityTooLarge, r.Status == http.StatusBadRequest,
		r.Status == http.StatusUnprocessableEntity:
		o.split(p, err, log)
	default:
		return false
	}
	return true
}

// replayed handles a report whose number the hub has seen. It was accepted, unless the hub's count
// is behind ours: then the hub has lost its state, and the content is sent with a new number.
func (o *Outbox) replayed(p *inFlight, last int64) {
	if last >= p.seq {
		o.accept(p)
		o.seq = last
		return
	}
	o.requeue(p)
}

// split retries a rejected report in halves, down to the item that the hub rejects. It drops that
// item: the others must not wait for it.
func (o *Outbox) split(p *inFlight, err error, log *slog.Logger) {
	if p.size() <= 1 {
		log.Error("the hub rejected an item of a report; dropping it", "error", err, "bytes",
			len(p.body))
		o.finish(p)
		return
	}
	o.requeue(p)
	o.maxItems = p.size() / 2
}
