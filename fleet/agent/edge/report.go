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

// session tells of a session that stands: under which epoch reports are sent, and the last number
// that the hub has taken. A report that is on its way and not above it was taken, if the session is
// of the same epoch; under another one its content is sent anew.
func (o *Outbox) session(epoch, reportSeq int64) {
	defer o.tell()
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.flying; p != nil {
		switch {
		case p.epoch != epoch:
			o.back(p)
		case p.seq <= reportSeq:
			o.took(p)
		}
	}
	if o.flying == nil {
		o.seq = reportSeq
	}
	o.epoch, o.open = epoch, true
	o.wake()
}

// pauseSession says that no session stands: what is to be reported waits.
func (o *Outbox) pauseSession() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = false
}

// anew forgets what the hub was told: it is another one, or has lost its memory. Acknowledgements
// that wait are of rows of another mirror.
func (o *Outbox) anew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.lists {
		clear(o.lists[i].told)
	}
	clear(o.lists[listAcks].waiting)
	o.lists[listAcks].order = nil
	if o.flying != nil {
		o.flying.items[listAcks] = nil
	}
	if o.standing.raw == nil && o.standing.told != "" {
		o.standing.raw = json.RawMessage(o.standing.told)
	}
	o.standing.told = ""
}

// back lets the content of a report wait again, but for what has a later state by now.
func (o *Outbox) back(p *parcel) {
	o.flying = nil
	for i, items := range p.items {
		l := &o.lists[i]
		var again []string
		for _, w := range items {
			if _, newer := l.waiting[w.key]; !newer {
				l.waiting[w.key] = w
				again = append(again, w.key)
			}
		}
		l.order = append(again, l.order...)
	}
	if o.standing.raw == nil {
		o.standing.raw = p.standing
	}
	o.whole = o.whole || p.whole
}

// took keeps what the hub knows now.
func (o *Outbox) took(p *parcel) {
	o.done(p)
	for _, w := range p.items[listAcks] {
		o.heard = append(o.heard, *w.ack)
	}
}

// done sends no more of a report's content as it is.
func (o *Outbox) done(p *parcel) {
	o.flying, o.total = nil, unlimited
	for i, items := range p.items {
		for _, w := range items {
			o.lists[i].told[w.key] = sha256.Sum256(w.raw)
		}
	}
	if p.standing != nil {
		o.standing.told = string(p.standing)
	}
}

// tell lets Taken hear of what was taken, without holding anybody up.
func (o *Outbox) tell() {
	o.mu.Lock()
	heard := o.heard
	o.heard = nil
	o.mu.Unlock()
	for _, a := range heard {
		if o.Taken != nil {
			o.Taken(a)
		}
	}
}

// envelope is agent.Report with what is in it written already.
type envelope struct {
	Epoch    int64             `json:"epoch"`
	Seq      int64             `json:"seq"`
	Acks     []json.RawMessage `json:"acks,omitempty"`
	Observed []json.RawMessage `json:"observed,omitempty"`
	Syncs    []json.RawMessage `json:"syncs,omitempty"`
	Standing json.RawMessage   `json:"standing,omitempty"`
	Own      []json.RawMessage `json:"own,omitempty"`
	OwnWhole bool              `json:"ownWhole,omitempty"`
}

// room is left of a report's bytes for all that is not an item.
const room = agent.MaxReport - 4<<10

// next is the report to send: the one that is on its way, or a new one; nil when nothing is to be
// said or no session stands. The channel is closed when that may have changed.
func (o *Outbox) next() (*parcel, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open || o.flying != nil {
		if !o.open {
			return nil, o.changed
		}
		return o.flying, o.changed
	}
	p, left, total := &parcel{epoch: o.epoch, seq: o.seq + 1}, room, o.total
	if o.standing.raw != nil {
		p.standing, o.standing.raw = o.standing.raw, nil
		left, total = left-len(p.standing), total-1
	}
	for i := range o.lists {
		p.items[i] = o.lists[i].take(min(total, agent.MaxItems), &left)
		total -= len(p.items[i])
	}
	if o.whole && len(o.lists[listOwn].waiting) == 0 {
		p.whole, o.whole = true, false
	}
	if p.size() == 0 && !p.whole {
		return nil, o.changed
	}
	body, err := json.Marshal(envelope{Epoch: p.epoch, Seq: p.seq, Acks: raws(p.items[listAcks]),
		Observed: raws(p.items[listObserved]), Syncs: raws(p.items[listSyncs]),
		Standing: p.standing, Own: raws(p.items[listOwn]), OwnWhole: p.whole})
	if err != nil {
		return nil, o.changed // what is raw was made by the same package
	}
	p.body, o.flying, o.seq = body, p, p.seq
	return p, o.changed
}

// take hands out the oldest things, at most so many, while there is room.
func (l *list) take(most int, left *int) []waiting {
	var taken []waiting
	for len(l.order) > 0 && len(taken) < most {
		w, ok := l.waiting[l.order[0]]
		if ok && len(w.raw)+1 > *left {
			break
		}
		l.order = l.order[1:]
		if ok {
			delete(l.waiting, w.key)
			*left -= len(w.raw) + 1
			taken = append(taken, w)
		}
	}
	return taken
}

func raws(items []waiting) []json.RawMessage {
	all := make([]json.RawMessage, len(items))
	for i, w := range items {
		all[i] = w.raw
	}
	return all
}

// gather is how long the first thing waits for others to go with it.
const gather = 100 * time.Millisecond

// Run sends what is to be reported until ctx ends, or until the identity is refused for good, which
// is an *Ended.
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
		var end *Ended
		if errors.As(err, &end) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failures++
		log.Warn("a report is not taken; it is sent again", "error", err, "waiting", o.Waiting())
		if !pacing.Sleep(ctx, pause(failures, err)) {
			return context.Cause(ctx)
		}
	}
}

// await waits for something to report, and a little longer for what comes with it.
func (o *Outbox) await(ctx context.Context) (*parcel, error) {
	for {
		o.mu.Lock()
		idle, changed := !o.open || o.flying == nil && !o.anything(), o.changed
		o.mu.Unlock()
		if !idle {
			if !pacing.Sleep(ctx, gather) {
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

func (o *Outbox) anything() bool {
	return o.standing.raw != nil || o.whole || slices.ContainsFunc(o.lists[:], func(l list) bool {
		return len(l.waiting) > 0
	})
}

// answered judges the answer to a report and says whether that is done with.
func (o *Outbox) answered(p *parcel, err error, log *slog.Logger) bool {
	defer o.tell()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.flying != p { // a new session has decided
		return true
	}
	var r *Refusal
	errors.As(err, &r)
	switch {
	case err == nil:
		o.took(p)
	case r == nil:
		return false
	// without a number it is the proof that was seen, which something on the way has sent twice
	case r.Code == agent.CodeReplay && r.ReportSeq > 0:
		o.replayed(p, r.ReportSeq)
	case r.Status == http.StatusRequestEntityTooLarge, r.Status == http.StatusBadRequest,
		r.Status == http.StatusUnprocessableEntity:
		o.halve(p, err, log)
	default:
		return false
	}
	return true
}

// replayed is about a report whose number the hub has seen: it was taken, unless the hub's count is
// behind ours, for then it has lost its memory and the content is sent under a number that it does
// not know.
func (o *Outbox) replayed(p *parcel, last int64) {
	if last >= p.seq {
		o.took(p)
		o.seq = last
		return
	}
	o.back(p)
}

// halve sends a report that the hub does not understand in smaller ones, down to the item that it
// is about, which is dropped: the others must not wait for it.
func (o *Outbox) halve(p *parcel, err error, log *slog.Logger) {
	if p.size() <= 1 {
		log.Error("the hub refuses an item of a report; it is dropped", "error", err, "bytes",
			len(p.body))
		o.done(p)
		return
	}
	o.back(p)
	o.total = p.size() / 2
}
