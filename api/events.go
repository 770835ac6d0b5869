package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

const (
	// between heartbeats, and between checks that the stream's token is still valid
	streamBeat  = 5 * time.Second
	streamWrite = 5 * time.Second // the stream ends if the client takes longer for one write
	streamBatch = 500
)

type eventsIn struct {
	LastEventID int64 `header:"Last-Event-ID" minimum:"0" doc:"Go on after this event; left out: from now on"`
}

func (s *Server) registerEvents() {
	op := operation(http.MethodGet, "/events", "events",
		"Changes as they happen (text/event-stream). An event names the changed object; it is "+
			"never the truth itself", "events", nil)
	op.Responses = map[string]*huma.Response{"200": {
		Description: "One message for each event: its id, its kind as the event's name, and the " +
			"event as data. The first one, named open, " +
			"has the starting id. Send the last id as Last-Event-ID to resume.",
		Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	huma.Register(s.api, op, func(ctx context.Context, in *eventsIn) (*huma.StreamResponse, error) {
		token := callerOf(ctx)
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			r, w := unwrap(hc)
			s.stream(w, r, token, bearer(r.Header.Get("Authorization")),
				lastEvent(r, in.LastEventID))
		}}, nil
	})
}

// lastEvent distinguishes "continue after 0" from "from now on".
func lastEvent(r *http.Request, id int64) int64 {
	if r.Header.Get("Last-Event-ID") == "" {
		return -1
	}
	return id
}

// stream sends events until the client disconnects, its token ends, or the server shuts down.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, token view.Token, plaintext string,
	after int64) {
	ctx := r.Context()
	l, ok := s.feed.join(token.Tenant, token.ID)
	if !ok {
		w.Header().Set("Retry-After", "10")
		writeProblem(w, problem(http.StatusTooManyRequests, "events",
			"too many event streams are open", "close one, or poll the lists instead"))
		return
	}
	defer s.feed.leave(l)
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	if err := out.control.SetReadDeadline(time.Time{}); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return // the client has disconnected
	}
	last, err := s.openStream(ctx, out, token.Scope(), after)
	if err != nil {
		if !out.begun {
			var p *wire.Refusal
			errors.As(s.answer(ctx, "events", err), &p)
			writeProblem(w, p)
		}
		return
	}
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.feed.done:
			return
		case <-l.missed:
			s.feed.resume(l)
			if last, err = s.send(ctx, out, token.Scope(), last); err != nil {
				return // the client reconnects with its last id
			}
		case batch := <-l.news:
			if last, err = out.batch(batch, token.Tenant, last); err != nil {
				return // the client reconnects with its last id
			}
		case <-beat.C:
			if !s.still(ctx, plaintext, token) {
				return
			}
			if out.comment("alive") != nil {
				return
			}
		}
	}
}

// openStream sends the start of the stream and the missed events.
func (s *Server) openStream(ctx context.Context, out *eventWriter, scope view.Scope,
	after int64) (int64, error) {
	_, newest, err := s.reader.Events(ctx, scope, -1, 0)
	if err != nil {
		return 0, err
	}
	// a number of an earlier mirror: everything may have changed
	if after < 0 || after > newest {
		after = newest
	}
	if err := out.event(view.Event{Seq: after, At: s.now().UTC(), Kind: "open"}); err != nil {
		return 0, err
	}
	return s.send(ctx, out, scope, after)
}

func (s *Server) send(ctx context.Context, out *eventWriter, scope view.Scope, last int64) (int64,
	error) {
	for {
		events, newest, err := s.reader.Events(ctx, scope, last, streamBatch)
		if err != nil {
			return last, err
		}
		s.feed.note(events)
		for _, e := range events {
			if err := out.event(e); err != nil {
				return last, err
			}
		}
		if last = newest; len(events) < streamBatch {
			return last, nil
		}
	}
}

// eventWriter writes the text/event-stream format, each message with a deadline of its own.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (o *eventWriter) event(e view.Event) error {
	text, err := messageOf(e)
	if err != nil {
		return err
	}
	return o.write(text)
}

// messageOf returns the event in the format of the stream.
func messageOf(e view.Event) (string, error) {
	data, err := json.Marshal(e)
	return "id: " + strconv.FormatInt(e.Seq, 10) + "\nevent: " + kindWord(e.Kind) +
		"\ndata: " + string(printable.JSON(data)) + "\n\n", err
}

// batch writes the events of a batch that are in scope and later than last, in one message to the
// network.
func (o *eventWriter) batch(b *eventBatch, tenant fleet.TenantName, last int64) (int64, error) {
	var text strings.Builder
	for i, e := range b.events {
		if e.Seq > last && visibleTo(tenant, e) {
			text.WriteString(b.messages[i])
		}
	}
	last = max(last, b.last)
	if text.Len() == 0 {
		return last, nil
	}
	return last, o.write(text.String())
}

// visibleTo reports whether a caller of the tenant, or of the platform, sees the event. It is the
// rule of History.Events within a scope: a tenant sees nothing of an earlier tenant of its name.
func visibleTo(tenant fleet.TenantName, e view.Event) bool {
	return tenant == "" || e.Tenant == tenant && !e.Former
}

func (o *eventWriter) comment(text string) error { return o.write(": " + text + "\n\n") }

func (o *eventWriter) write(text string) error {
	if err := o.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
		// a buffering proxy would delay every event
		o.w.Header().Set("X-Accel-Buffering", "no")
		o.w.WriteHeader(http.StatusOK)
	}
	if _, err := fmt.Fprint(o.w, text); err != nil {
		return err
	}
	return o.control.Flush()
}

// kindWord rejects all but plain words in the line with the event's name.
func kindWord(kind string) string {
	for i := range len(kind) {
		if kind[i] < 'a' || kind[i] > 'z' {
			return "event"
		}
	}
	return kind
}

const (
	// poll interval while a stream is open: changes of status send no notification, which would
	// serialize the commits of all engines
	feedInterval = 250 * time.Millisecond
	feedDebounce = 100 * time.Millisecond // notifications within it count once
	feedBatch    = 1000
)

// feed reads new events once for all open streams, encodes each once, and passes them on. Without
// an open stream it does not read. It waits for no stream: a stream that does not keep up reads its
// missed events itself.
type feed struct {
	reader History
	log    *slog.Logger
	wake   pacing.Signal
	done   chan struct{} // closed when run has ended

	mu      sync.Mutex
	streams map[*listener]struct{}
	perWho  map[string]int
	// when an event of a tenant, or of the platform, and of any was passed on last
	changed    map[fleet.TenantName]time.Time
	changedAny time.Time
}

// eventBatch is what one read of the feed has found. All streams share it, and none changes it.
type eventBatch struct {
	events   []view.Event
	messages []string // of the events, as they are sent
	last     int64    // newest number that was read
}

// listener is one open stream.
type listener struct {
	tenant fleet.TenantName
	who    string
	news   chan *eventBatch
	missed pacing.Signal // the stream must read from the store what it has not received
	// it gets no batches before it has read what it has missed: a later batch would hide that
	behind bool
}

func newFeed(reader History, log *slog.Logger) *feed {
	return &feed{reader: reader, log: log, wake: pacing.NewSignal(), done: make(chan struct{}),
		streams: map[*listener]struct{}{}, perWho: map[string]int{},
		changed: map[fleet.TenantName]time.Time{}}
}

func (f *feed) notify() { f.wake.Set() }

const (
	maxStreams       = 1024 // of this replica
	maxStreamsPerWho = 32   // of one token
	maxBatches       = 16   // that wait for one stream
)

// join opens a stream, or returns false if there are too many.
func (f *feed) join(tenant fleet.TenantName, who string) (*listener, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.streams) >= maxStreams || f.perWho[who] >= maxStreamsPerWho {
		return nil, false
	}
	l := &listener{tenant: tenant, who: who, news: make(chan *eventBatch, maxBatches),
		missed: pacing.NewSignal()}
	f.streams[l] = struct{}{}
	f.perWho[who]++
	return l, true
}

func (f *feed) leave(l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, l)
	if f.perWho[l.who]--; f.perWho[l.who] == 0 {
		delete(f.perWho, l.who)
	}
}

func (f *feed) open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams) > 0
}

// run polls until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	last := int64(-1) // nothing read yet
	tick := time.NewTicker(feedInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.wake:
			if !pacing.Sleep(ctx, feedDebounce) {
				return
			}
		}
		if f.open() {
			last = f.poll(ctx, last)
		} else {
			last = -1
		}
	}
}

// poll reads the events after last, passes them to the streams and returns the new last. The first
// poll has no earlier state: each stream reads for itself.
func (f *feed) poll(ctx context.Context, last int64) int64 {
	for {
		first := last < 0
		events, newest, err := f.reader.Events(ctx, view.Scope{}, last, feedBatch)
		if err != nil {
			f.log.WarnContext(ctx, "event streams are paused: the mirror cannot be read", "error",
				err)
			return last
		}
		if last = newest; first {
			f.missed()
			return last
		}
		f.publish(events, newest)
		if len(events) < feedBatch {
			return last
		}
	}
}

// missed makes every stream read from the store.
func (f *feed) missed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.streams {
		l.behind = true
		l.missed.Set()
	}
}

// resume passes batches to the stream again, and drops the unread ones: the stream reads the store
// next.
func (f *feed) resume(l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.behind = false
	for len(l.news) > 0 {
		<-l.news
	}
}

// note records that these events are sent now: no read that began before answers a request that
// follows.
func (f *feed) note(events []view.Event) {
	if len(events) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changedAny = time.Now()
	for _, e := range events {
		f.changed[e.Tenant] = f.changedAny
	}
}

// changedAt returns when an event was last passed on that concerns the tenant, or the platform if
// it is empty.
func (f *feed) changedAt(tenant fleet.TenantName) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if tenant == "" {
		return f.changedAny
	}
	if of := f.changed[tenant]; of.After(f.changed[""]) {
		return of
	}
	return f.changed[""]
}

// publish passes events to the streams that they concern.
func (f *feed) publish(events []view.Event, last int64) {
	if len(events) == 0 {
		return
	}
	batch := &eventBatch{events: events, messages: make([]string, len(events)), last: last}
	of := map[fleet.TenantName]bool{}
	f.note(events)
	for i, e := range events {
		of[e.Tenant] = true
		var err error
		if batch.messages[i], err = messageOf(e); err != nil {
			f.log.Error("failed to encode an event", "event", e.Seq, "error", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.streams {
		if l.behind || l.tenant != "" && !of[l.tenant] {
			continue
		}
		select {
		case l.news <- batch:
		default: // it is slow: it reads all of it later, at once
			l.behind = true
			l.missed.Set()
		}
	}
}
