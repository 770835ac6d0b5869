package edge

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
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
	accepted []agent.Ack // accepted acknowledgements that Accepted has not received yet
	changed  chan struct{}
}

// The lists of a report.
const (
	listAcks = iota
	listObserved
	listSyncs
	listOwn
)

var listNames = [...]string{"acks", "observed", "syncs", "own"}

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
			&v.OperationError, &v.Message, &v.ResourceVersion} {
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

// keepSyncs drops the reported values of syncs that are not open any more.
func (o *Outbox) keepSyncs(open func(id string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.lists[listSyncs].lastReported {
		if !open(id) {
			delete(o.lists[listSyncs].lastReported, id)
		}
	}
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
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= agent.MaxMessage {
		return s
	}
	const mark = "..."
	end := agent.MaxMessage - len(mark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
