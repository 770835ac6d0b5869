package edge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
)

// Outbox holds pending reports until the hub has accepted them. It keeps only the latest value per
// item, so that the number of objects bounds it during an outage of any length. It does not repeat
// values that the hub has. Its methods are safe for concurrent use.
//
// One report is in flight at a time. It keeps its number and its bytes until the response, so that
// a report with a lost response is accepted once.
type Outbox struct {
	// Accepted is called for each acknowledgement that the hub has accepted.
	Accepted func(agent.Ack)

	mu       sync.Mutex
	lists    [len(listNames)]list
	status   single
	ownWhole bool // OwnWhole must be sent with the last own Application
	epoch    int64
	seq      int64 // of the last report
	open     bool  // a session is open
	maxItems int   // maximum items of the next report; each list has at most agent.MaxItems anyway
	inFlight *inFlight
	reported bool        // the hub has accepted a report
	failure  error       // of the last report; nil after an accepted one
	accepted []agent.Ack // accepted acknowledgements that Accepted has not received yet
	changed  chan struct{}
}

// The lists of a report.
const (
	listAcks = iota
	listObserved
	listSyncs
	listActions
	listOwn
	listMoves
	listInstances
	listComparisons
	listShadows
)

var listNames = [...]string{"acks", "observed", "syncs", "actions", "own", "moves",
	"instances", "comparisons", "shadows"}

// list holds the pending items of one kind, oldest first, and the hashes of the last reported ones.
type list struct {
	pending      map[string]item
	order        []string
	lastReported map[string][sha256.Size]byte
}

// item is an encoded item of a report. ack is nil in lists other than listAcks.
type item struct {
	key string
	raw json.RawMessage
	ack *agent.Ack
}

// single holds the only item of its kind.
type single struct {
	raw          json.RawMessage // pending; nil: none
	lastReported string
}

// inFlight is a report in flight.
type inFlight struct {
	epoch, seq int64
	body       []byte
	items      [len(listNames)][]item
	status     json.RawMessage
	whole      bool
}

func (p *inFlight) size() int {
	n := 0
	for _, items := range p.items {
		n += len(items)
	}
	if p.status != nil {
		n++
	}
	return n
}

// unlimited exceeds the number of items that fit into a report.
const unlimited = len(listNames)*agent.MaxItems + 1

// NewOutbox returns an empty Outbox.
func NewOutbox() *Outbox {
	o := &Outbox{maxItems: unlimited, changed: make(chan struct{})}
	for i := range o.lists {
		o.lists[i] = list{pending: map[string]item{}, lastReported: map[string][sha256.Size]byte{}}
	}
	return o
}

// Acknowledge reports the results of handled rows.
func (o *Outbox) Acknowledge(acks ...agent.Ack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range acks {
		a.Message = cut(a.Message)
		o.put(listAcks, string(a.Kind)+"/"+a.Name, a, &a)
	}
}

// Observe reports the state of Applications.
func (o *Outbox) Observe(seen ...agent.Observed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range seen {
		for _, text := range []*string{&v.UID, &v.SyncedRevision, &v.OperationPhase, &v.OperationID,
			&v.OperationError, &v.OperationRevision, &v.Message, &v.ResourceVersion} {
			*text = cut(*text)
		}
		o.put(listObserved, v.Name, v, nil)
	}
}

// UpdateSync reports the state of a sync.
func (o *Outbox) UpdateSync(end agent.SyncStatus) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end.Message = cut(end.Message)
	o.put(listSyncs, end.ID, end, nil)
}

// updateAction reports how far an action is. A status that is too large for a report loses the
// messages of its results first, and then results.
func (o *Outbox) updateAction(s agent.ActionStatus) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Message = cut(s.Message)
	s.Results = slices.Clone(s.Results[:min(len(s.Results), mirror.MaxActionResources)])
	for i := range s.Results {
		s.Results[i].Message = cut(s.Results[i].Message)
	}
	for cleared := false; len(s.Results) > 0; {
		if raw, err := json.Marshal(s); err != nil || len(raw) <= agent.MaxActionStatus {
			break
		}
		if cleared {
			s.Results = s.Results[:len(s.Results)/2]
			continue
		}
		for i := range s.Results {
			s.Results[i].Message = ""
		}
		cleared = true
	}
	o.put(listActions, s.ID, s, nil)
}

// ReportMove reports a step of a move. The end of a step is sent again if the hub does not answer
// it with the next one.
func (o *Outbox) ReportMove(r agent.MoveReport) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Message, r.Returns = cut(r.Message), cut(r.Returns)
	key := string(r.Tenant) + "/" + string(r.Environment) + "/" + string(r.Deployment)
	if r.Next != "" {
		delete(o.lists[listMoves].lastReported, key)
	}
	o.put(listMoves, key, r, nil)
}

// keepMoves drops the reported values of Applications that do not move any more.
func (o *Outbox) keepMoves(moves []agent.Move) {
	o.mu.Lock()
	defer o.mu.Unlock()
	keep := map[string]bool{}
	for _, m := range moves {
		keep[string(m.Tenant)+"/"+string(m.Environment)+"/"+string(m.Deployment)] = true
	}
	maps.DeleteFunc(o.lists[listMoves].lastReported, func(key string, _ [sha256.Size]byte) bool {
		return !keep[key]
	})
}

// instanceKey is the key of the only item of listInstances.
const instanceKey = "instance"

// reportInstance reports how far the engine's Argo CD has come.
func (o *Outbox) reportInstance(r agent.InstanceReport) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Message = cut(r.Message)
	o.put(listInstances, instanceKey, r, nil)
}

// forgetInstance drops the reported value: the hub has another state.
func (o *Outbox) forgetInstance() {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.lists[listInstances].lastReported, instanceKey)
}

// reportComparisons reports comparisons. The hub may have forgotten the same comparison since it
// was reported last: its tasks decide what is compared again.
func (o *Outbox) reportComparisons(all []agent.Comparison) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.lists[listComparisons].lastReported)
	for _, c := range all {
		o.put(listComparisons, c.Name, c, nil)
	}
}

// shadowKey is the key of the only item of listShadows.
const shadowKey = "shadow"

// reportShadow reports how far the comparison has come. The hub records when the last one was
// complete, so that the same state is reported again.
func (o *Outbox) reportShadow(r agent.ShadowReport) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Message = cut(r.Message)
	delete(o.lists[listShadows].lastReported, shadowKey)
	o.put(listShadows, shadowKey, r, nil)
}

// awaitAccepted waits until no item of a list is pending or in flight.
func (o *Outbox) awaitAccepted(ctx context.Context, at int) error {
	for {
		o.mu.Lock()
		waits := len(o.lists[at].pending) > 0 ||
			o.inFlight != nil && len(o.inFlight.items[at]) > 0
		changed := o.changed
		o.mu.Unlock()
		if !waits {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// isOpen reports whether a session is open.
func (o *Outbox) isOpen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}

// SetStatus reports the state of the agent.
func (o *Outbox) SetStatus(s agent.AgentStatus) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Message = cut(s.Message)
	raw, err := json.Marshal(s)
	if err != nil {
		return // a struct of strings and numbers always has a JSON form
	}
	o.status.raw = nil
	if string(raw) != o.status.lastReported || o.inFlight != nil && o.inFlight.status != nil {
		o.status.raw = raw
		o.wake()
	}
}

// ReportOwn reports the cluster's own Applications. With whole set, the list is complete: others
// that were reported before were deleted.
func (o *Outbox) ReportOwn(own []mirror.OwnApplication, whole bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &o.lists[listOwn]
	if whole {
		clear(l.lastReported)
		clear(l.pending)
		l.order = nil
		o.ownWhole = true
	}
	for _, a := range own {
		for _, text := range []*string{&a.UID, &a.Project, &a.RepoURL, &a.Path, &a.TargetRevision,
			&a.SyncedRevision, &a.OperationPhase, &a.OperationID, &a.Message} {
			*text = cut(*text)
		}
		o.put(listOwn, a.Namespace+"/"+a.Name, a, nil)
	}
	o.wake()
}

// put queues an item in place of its older value, unless the hub has this value.
func (o *Outbox) put(at int, key string, v any, ack *agent.Ack) {
	raw, err := json.Marshal(v)
	if err != nil {
		return
	}
	l := &o.lists[at]
	if last, ok := l.lastReported[key]; ok && last == sha256.Sum256(raw) && !o.isInFlight(at, key) {
		delete(l.pending, key) // the value has changed and changed back
		return
	}
	l.add(item{key, raw, ack})
	o.wake()
}

// add appends an item, or replaces its older value in place.
func (l *list) add(w item) {
	if _, ok := l.pending[w.key]; !ok {
		l.order = append(l.order, w.key)
	}
	l.pending[w.key] = w
	// drop entries of items that came and went while nothing could be sent
	if len(l.order) > 2*len(l.pending)+64 {
		seen := map[string]bool{}
		l.order = slices.DeleteFunc(l.order, func(key string) bool {
			_, waits := l.pending[key]
			again := seen[key]
			seen[key] = true
			return !waits || again
		})
	}
}

// isInFlight reports whether the report in flight has another value of the item.
func (o *Outbox) isInFlight(at int, key string) bool {
	if o.inFlight == nil {
		return false
	}
	for _, w := range o.inFlight.items[at] {
		if w.key == key {
			return true
		}
	}
	return false
}

func (o *Outbox) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// forget drops the reported values of a row that was deleted.
func (o *Outbox) forget(key fleet.ObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.lists[listAcks].lastReported, string(key.Kind)+"/"+key.Name)
	if key.Kind == fleet.ObjectApplication {
		delete(o.lists[listObserved].lastReported, key.Name)
	}
}

// keepReported drops the reported values of syncs or actions that are not open any more.
func (o *Outbox) keepReported(at int, open map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.lists[at].lastReported, func(id string, _ [sha256.Size]byte) bool {
		return !open[id]
	})
}

// Waiting returns the number of items that the hub has not accepted.
func (o *Outbox) Waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for i := range o.lists {
		n += len(o.lists[i].pending)
	}
	if o.status.raw != nil {
		n++
	}
	if o.inFlight != nil {
		n += o.inFlight.size()
	}
	return n
}

// cut shortens text to agent.MaxMessage bytes, between characters.
func cut(s string) string {
	return printable.Truncate(strings.ToValidUTF8(s, "?"), agent.MaxMessage)
}

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
	o.wake() // awaitAccepted
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
	Actions  []json.RawMessage `json:"actions,omitempty"`
	Status   json.RawMessage   `json:"standing,omitempty"`
	Own      []json.RawMessage `json:"own,omitempty"`
	OwnWhole bool              `json:"ownWhole,omitempty"`
	Moves    []json.RawMessage `json:"moves,omitempty"`
	// see agent.Report
	Instances   []json.RawMessage `json:"instances,omitempty"`
	Comparisons []json.RawMessage `json:"comparisons,omitempty"`
	Shadows     []json.RawMessage `json:"shadows,omitempty"`
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
		Actions: raws(p.items[listActions]), Status: p.status,
		Own: raws(p.items[listOwn]), OwnWhole: p.whole,
		Moves: raws(p.items[listMoves]), Instances: raws(p.items[listInstances]),
		Comparisons: raws(p.items[listComparisons]), Shadows: raws(p.items[listShadows])})
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
		if errors.As(err, &end) && (end.Code != agent.CodeSuperseded || o.current(p)) {
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

// current reports whether a report belongs to the open session. This process may have raised the
// epoch itself while an earlier report was in flight, so only a report of the open session proves
// that another process has taken over.
func (o *Outbox) current(p *inFlight) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open && o.epoch == p.epoch
}

// HasReported reports whether the hub has accepted a report of this process.
func (o *Outbox) HasReported() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reported
}

func (o *Outbox) problem() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failure
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
	o.reported, o.failure = o.reported || err == nil, err
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
