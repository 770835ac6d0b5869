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
)

// Outbox holds what is to be reported until the hub has taken it: the latest value of each thing,
// so that it is bounded by the number of objects however long an outage lasts. What the hub has
// already is not said again. Its methods may be called at the same time.
//
// One report is on its way at a time. It keeps its number and its bytes until it is answered, so
// that one whose answer was lost is taken once.
type Outbox struct {
	// Taken hears of each acknowledgement that the hub has taken.
	Taken func(agent.Ack)

	mu       sync.Mutex
	lists    [len(listNames)]list
	standing single
	whole    bool // with the last of the own Applications, OwnWhole is to be said
	epoch    int64
	seq      int64 // of the last report
	open     bool  // a session stands
	total    int   // items in the next report, at most; agent.MaxItems of each list anyway
	flying   *parcel
	heard    []agent.Ack // that were taken, and of which Taken has not heard yet
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

// list is what waits of one kind of thing, oldest first, and what the hub has of it.
type list struct {
	waiting map[string]waiting
	order   []string
	told    map[string][sha256.Size]byte
}

// waiting is one thing, as it will be sent. The value is an agent.Ack, or nil.
type waiting struct {
	key string
	raw json.RawMessage
	ack *agent.Ack
}

// single is the one thing of its kind.
type single struct {
	raw  json.RawMessage // waits; nil: nothing does
	told string
}

// parcel is a report on its way.
type parcel struct {
	epoch, seq int64
	body       []byte
	items      [len(listNames)][]waiting
	standing   json.RawMessage
	whole      bool
}

func (p *parcel) size() int {
	n := 0
	for _, items := range p.items {
		n += len(items)
	}
	if p.standing != nil {
		n++
	}
	return n
}

// unlimited is more items than a report has room for.
const unlimited = len(listNames)*agent.MaxItems + 1

// NewOutbox is empty.
func NewOutbox() *Outbox {
	o := &Outbox{total: unlimited, changed: make(chan struct{})}
	for i := range o.lists {
		o.lists[i] = list{waiting: map[string]waiting{}, told: map[string][sha256.Size]byte{}}
	}
	return o
}

// Acknowledge reports what was done with rows.
func (o *Outbox) Acknowledge(acks ...agent.Ack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range acks {
		a.Message = cut(a.Message)
		o.put(listAcks, string(a.Kind)+"/"+a.Name, a, &a)
	}
}

// Observe reports what the cluster shows.
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

// UpdateSync reports how a sync stands.
func (o *Outbox) UpdateSync(end agent.SyncEnd) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end.Message = cut(end.Message)
	o.put(listSyncs, end.ID, end, nil)
}

// Stand reports how the agent stands.
func (o *Outbox) Stand(s agent.Standing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Message = cut(s.Message)
	raw, err := json.Marshal(s)
	if err != nil {
		return // a struct of texts and numbers has a form
	}
	o.standing.raw = nil
	if string(raw) != o.standing.told || o.flying != nil && o.flying.standing != nil {
		o.standing.raw = raw
		o.wake()
	}
}

// Own reports Applications that the cluster's own people made. With whole, these are all that there
// are: whatever was reported before and is not among them is gone.
func (o *Outbox) Own(own []fleet.OwnApplication, whole bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &o.lists[listOwn]
	if whole {
		clear(l.told)
		clear(l.waiting)
		l.order = nil
		o.whole = true
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

// put lets a thing wait in place of an older state of it, unless the hub has just that.
func (o *Outbox) put(at int, key string, v any, ack *agent.Ack) {
	raw, err := json.Marshal(v)
	if err != nil {
		return
	}
	l := &o.lists[at]
	if told, ok := l.told[key]; ok && told == sha256.Sum256(raw) && !o.onItsWay(at, key) {
		delete(l.waiting, key) // it has gone there and back
		return
	}
	l.add(waiting{key, raw, ack})
	o.wake()
}

// add lets a thing wait at the end, or in the place of its older state.
func (l *list) add(w waiting) {
	if _, ok := l.waiting[w.key]; !ok {
		l.order = append(l.order, w.key)
	}
	l.waiting[w.key] = w
	// of things that came and went while nothing could be sent
	if len(l.order) > 2*len(l.waiting)+64 {
		seen := map[string]bool{}
		l.order = slices.DeleteFunc(l.order, func(key string) bool {
			_, waits := l.waiting[key]
			again := seen[key]
			seen[key] = true
			return !waits || again
		})
	}
}

// onItsWay reports whether another state of the thing is in the report that is not answered yet.
func (o *Outbox) onItsWay(at int, key string) bool {
	if o.flying == nil {
		return false
	}
	for _, w := range o.flying.items[at] {
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

// forget drops what the hub was told of a row that is no more.
func (o *Outbox) forget(key fleet.ObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.lists[listAcks].told, string(key.Kind)+"/"+key.Name)
	if key.Kind == fleet.ObjectApplication {
		delete(o.lists[listObserved].told, key.Name)
	}
}

// keepSyncs drops what the hub was told of syncs that are not open any more.
func (o *Outbox) keepSyncs(open func(id string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.lists[listSyncs].told {
		if !open(id) {
			delete(o.lists[listSyncs].told, id)
		}
	}
}

// Waiting is how many things are still to be reported.
func (o *Outbox) Waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for i := range o.lists {
		n += len(o.lists[i].waiting)
	}
	if o.standing.raw != nil {
		n++
	}
	if o.flying != nil {
		n += o.flying.size()
	}
	return n
}

// cut shortens a text to what a report takes, between characters.
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
