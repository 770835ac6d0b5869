package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

const (
	// at most; shortened by up to a sixth at random, so that streams do not all end together
	maxStreamAge      = 30 * time.Minute
	batchRows         = 100
	batchBytes        = 1 << 20 // of manifests per message, unless a single manifest is larger
	retryDelay        = 2 * time.Second
	closeTimeout      = 5 * time.Second
	retryMissingEvery = 2 // heartbeats between retries of unavailable secrets
)

// stream is one open stream. While it is idle, it holds only this struct and its goroutine.
type stream struct {
	hub      *Hub
	opening  registry.Opening
	instance string
	version  string // of the agent
	protocol int    // of the agent
	wake     pacing.Signal
	out      *writer
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// guarded by the feed's lock
	pending   pendingWork
	syncsOpen bool // open syncs were sent
	acting    bool // open actions were sent
	moving    bool // moves were sent
	// open reads were sent
	inspecting bool

	// used by its goroutine only
	cursor int64
	// hashes of the lists sent last
	moves, syncs, actions, stops [sha256.Size]byte
	ends, instances, shadows     [sha256.Size]byte
	inspections                  string // IDs of the reads sent last
	stopsSent                    bool
	unavailable                  []secretName // unavailable secrets of sent rows
}

// goAwayError is the cause of a stream's end, which is sent to its agent.
type goAwayError struct{ agent.GoAway }

func (*goAwayError) Error() string { return "the hub ended the stream" }

func (s *stream) engine() fleet.EngineName { return s.opening.Agent.Engine }

// goAway ends the stream and any blocked read or write. It never blocks. The agent gets the first
// reason.
func (s *stream) goAway(reason agent.GoAway) { s.cancel(&goAwayError{reason}) }

// stream serves PathStream.
func (h *Hub) stream(w http.ResponseWriter, r *http.Request) error {
	control := clearDeadlines(w, r)
	who, session, err := h.authenticateGet(r, agent.PathStream)
	if err != nil {
		return err
	}
	opening, err := h.open(r.Context(), who, session)
	if err != nil {
		return err
	}
	defer h.close(r.Context(), opening, session)
	s := &stream{hub: h, opening: opening, instance: session.Instance, version: session.Version,
		protocol: session.Protocol, wake: pacing.NewSignal(), cursor: session.Cursor,
		out: &writer{w: w, control: control}}
	s.ctx, s.cancel = context.WithCancelCause(r.Context())
	defer s.cancel(nil)
	if !h.feed.isConfirmed(opening.Lease.Life) {
		h.log.DebugContext(r.Context(), "a stream begins before the rows are confirmed", "engine",
			s.engine())
	} else if newest, err := h.newest(s.ctx, s.cursor); err != nil {
		return err
	} else if s.cursor > newest {
		s.cursor = 0 // a number of an earlier incarnation of the mirror
	}
	if !h.feed.add(s) {
		return busy("this replica of the hub shuts down", time.Second)
	}
	defer h.feed.remove(s)
	defer s.out.end()
	defer context.AfterFunc(s.ctx, s.out.cut)()
	h.metrics.opened.Inc()
	s.serve()
	return nil
}

// firstByteTimeout bounds the time before the first byte of a long response: the wait for a slot,
// and one read of the store.
const firstByteTimeout = time.Minute

// clearDeadlines replaces the server's deadlines for a long response. On HTTP/1 the remaining
// deadline would apply to the connection's next request, so the connection is closed after this
// one.
func clearDeadlines(w http.ResponseWriter, r *http.Request) *http.ResponseController {
	control := http.NewResponseController(w)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	// the first write detects a dead connection
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(firstByteTimeout))
	return control
}

func (h *Hub) newest(ctx context.Context, cursor int64) (newest int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return h.feed.newest(ctx, cursor)
}

// open opens a session within the rate limit.
func (h *Hub) open(ctx context.Context, who provenAgent, s agent.Session) (registry.Opening,
	error) {
	if err := h.admission.openings.wait(ctx); err != nil {
		return registry.Opening{}, err
	}
	var opening registry.Opening
	confirmed := h.feed.confirmedLife()
	err := h.withTimeout(ctx, h.reads, func(ctx context.Context) (err error) {
		opening, err = h.store.OpenAgent(ctx, registry.Session{
			Agent: who.ID, Instance: s.Instance, Replica: h.replica, Floor: s.Epoch,
			Version: s.Version, Protocol: s.Protocol, Proof: who.proof, Confirmed: confirmed})
		return err
	})
	switch {
	case errors.Is(err, mirror.ErrNotFound):
		return opening, undeclared(30*time.Second + rand.N(30*time.Second))
	case errors.Is(err, registry.ErrReplayed):
		return opening, replayedRequest()
	case errors.Is(err, registry.ErrBusy):
		r := refused(http.StatusTooManyRequests, agent.CodeBusy,
			"this agent opens too many sessions", "wait for the time in Retry-After")
		r.after = time.Minute
		return opening, r
	}
	return opening, err
}

// undeclared rejects an agent that no declaration needs now, or not yet.
func undeclared(after time.Duration) *refusal {
	r := refused(http.StatusServiceUnavailable, agent.CodeUndeclared,
		"nothing is declared for this agent now",
		"if it persists, check whether its environment or engine is still declared with an agent")
	r.after = after
	return r
}

// close records the end of the session even though the request's context has ended.
func (h *Hub) close(ctx context.Context, opening registry.Opening, s agent.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := h.reads.run(ctx, func() error {
		return h.store.CloseAgent(ctx, registry.Session{Agent: opening.Agent.ID,
			Instance: s.Instance, Replica: h.replica, Version: s.Version, Opening: opening.Opening})
	})
	if err != nil {
		h.log.WarnContext(ctx,
			"an agent may be shown as connected a while longer: the end of its session is not "+
				"recorded", "agent", opening.Agent.ID, "error", err)
	}
}

// serve sends the current state and then changes, until the agent disconnects, the stream reaches
// its maximum age, or the hub ends it.
func (s *stream) serve() {
	life := min(maxStreamAge-rand.N(maxStreamAge/6), s.opening.Agent.ExpiresAt.Sub(s.hub.now()))
	end := time.AfterFunc(life,
		func() {
			s.goAway(
				agent.GoAway{
					Code: agent.CodeRenew, Message: "the stream has reached its maximum age"})
		})
	defer end.Stop()
	err := s.sendHello()
	if err == nil {
		err = s.run()
	}
	var goAway *goAwayError
	if errors.As(context.Cause(s.ctx), &goAway) {
		_ = s.out.message(agent.EventGoAway, -1, goAway.GoAway) // the agent may have disconnected
	} else if err != nil && !errors.Is(err, errDisconnected) && s.ctx.Err() == nil {
		s.hub.log.Error("an agent's stream failed", "agent", s.opening.Agent.ID, "error", err)
	}
}

// sendHello sends the hello and the stops. Stops precede rows, so that an agent does not apply a
// stopped row. Until the stops are known, no rows are sent.
func (s *stream) sendHello() error {
	o := s.opening
	hello := agent.Hello{Protocol: agent.Protocol, Hub: s.hub.version, Time: s.hub.now().UTC(),
		Engine: s.engine(), ArgoCD: o.ArgoCD, Mode: o.Mode,
		Epoch: o.Lease.Epoch, Holder: o.Lease.Holder, ReportSeq: o.ReportSeq,
		ExpiresAt: o.Agent.ExpiresAt.UTC(), Cursor: s.cursor,
		DedicatedTo:           append([]fleet.TenantName{}, o.DedicatedTo...),
		ApplicationNamespaces: o.ApplicationNamespaces, Metrics: o.Metrics}
	if err := s.out.message(agent.EventHello, -1, hello); err != nil {
		return err
	}
	for !s.stopsSent {
		changed := s.hub.stops.Changed()
		if err := s.sendStops(); err != nil {
			return err
		}
		if s.stopsSent {
			break
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-changed:
		case <-time.After(agent.Heartbeat):
			if err := s.out.keepAlive(); err != nil {
				return err
			}
		}
	}
	s.hub.feed.requeue(s, pendingWork{rows: true, moves: true, syncs: true,
		actions: true, instance: true})
	return nil
}

// run sends the work that the feed adds.
func (s *stream) run() error {
	first := true
	beat := time.NewTicker(agent.Heartbeat)
	defer beat.Stop()
	for beats := 1; ; {
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.wake:
			err := s.send(s.hub.feed.takePending(s), &first)
			if err != nil && s.ctx.Err() == nil {
				return err
			}
		case <-beat.C:
			if err := s.out.keepAlive(); err != nil {
				return err
			}
			if beats++; beats%retryMissingEvery == 0 && len(s.unavailable) > 0 {
				s.retryMissing()
			}
		}
	}
}

// send sends pending work. After a failed read of the store it requeues the rest after retryDelay,
// and the stream stays open.
func (s *stream) send(d pendingWork, first *bool) error {
	err := s.sendPending(&d, first)
	var read storeError
	if errors.As(err, &read) {
		time.AfterFunc(retryDelay, func() { s.hub.feed.requeue(s, d) })
		return nil
	}
	return err
}

// sendPending sends pending work and removes what was sent.
func (s *stream) sendPending(d *pendingWork, first *bool) error {
	if d.stops {
		if err := s.sendStops(); err != nil {
			return err
		}
		d.stops = false
	}
	if d.rows {
		if err := s.sendRows(first); err != nil {
			return err
		}
		d.rows = false
	}
	if d.moves { // after the rows, which an agent needs for them
		if err := s.sendMoves(); err != nil {
			return err
		}
		d.moves = false
	}
	if d.instance {
		if err := s.sendInstance(); err != nil {
			return err
		}
		d.instance = false
	}
	if d.syncs {
		if err := s.sendSyncs(); err != nil {
			return err
		}
		d.syncs = false
	}
	if d.actions {
		if err := s.sendActions(); err != nil {
			return err
		}
		d.actions = false
	}
	for len(d.secrets) > 0 {
		if err := s.resendRows(d.secrets[0], true); err != nil {
			return err
		}
		d.secrets = d.secrets[1:]
	}
	if d.inspect { // last: nothing waits for it
		if err := s.sendInspections(); err != nil {
			return err
		}
		d.inspect = false
	}
	return nil
}

// storeError marks an error of the store, which does not end the stream.
type storeError struct{ error }

func (s *stream) read(f func(context.Context) error) error {
	if err := s.hub.withTimeout(s.ctx, s.hub.reads, f); err != nil {
		return storeError{err}
	}
	return nil
}

// sendable reports whether rows may be sent: they belong to the incarnation of the database in
// which the stream began, and the config repo has confirmed them.
func (s *stream) sendable(rows []mirror.Row) bool {
	life := s.opening.Lease.Life
	return s.hub.feed.isConfirmed(life) && !slices.ContainsFunc(rows, func(r mirror.Row) bool {
		return r.Life != life
	})
}

// sendRows sends the rows above the cursor and advances it.
func (s *stream) sendRows(first *bool) error {
	for s.sendable(nil) {
		var batch []mirror.Row
		err := s.read(func(ctx context.Context) (err error) {
			batch, err = s.hub.store.AgentChanged(ctx, s.engine(), s.cursor, batchRows)
			return err
		})
		if err != nil {
			return err
		}
		if !s.sendable(batch) {
			return nil // after the confirmation the feed ends or resumes the stream
		}
		whole := len(batch) < batchRows
		if len(batch) > 0 || *first {
			if err := s.sendBatch(batch, *first && !whole, *first); err != nil {
				return err
			}
		}
		if whole {
			*first = false
			return nil
		}
	}
	return nil
}

// sendBatch sends rows in messages of bounded size. Each message advances the cursor, so that an
// interrupted stream resumes after the last one.
func (s *stream) sendBatch(batch []mirror.Row, more, opening bool) error {
	for begun := false; !begun || len(batch) > 0; begun = true {
		n, size := 0, 0
		for n < len(batch) && (n == 0 || size+len(batch[n].Manifest.Body) <= batchBytes) {
			size += len(batch[n].Manifest.Body)
			n++
		}
		rows, missing, err := s.hub.wireRows(s.ctx, s.opening.Agent, batch[:n])
		if err != nil {
			return err
		}
		cursor := s.cursor
		if n > 0 {
			cursor = batch[n-1].Seq
		}
		batch = batch[n:]
		if err := s.out.message(agent.EventRows, cursor, agent.Rows{Rows: rows, Cursor: cursor,
			More: more || (opening && len(batch) > 0)}); err != nil {
			return err
		}
		s.cursor = cursor
		s.addMissing(missing...)
		s.hub.metrics.rows.Add(float64(n))
	}
	return nil
}

// addMissing remembers unavailable secrets.
func (s *stream) addMissing(names ...secretName) {
	for _, name := range names {
		if !slices.Contains(s.unavailable, name) {
			s.unavailable = append(s.unavailable, name)
		}
	}
}

// retryMissing retries the unavailable secrets.
func (s *stream) retryMissing() {
	missing := s.unavailable
	s.unavailable = nil
	for _, name := range missing {
		if s.resendRows(name, false) != nil {
			s.addMissing(name)
		}
	}
}

// resendRows sends the rows again that need a secret. Rows whose secret is unavailable are sent,
// with the reason, only if withProblems is set.
func (s *stream) resendRows(name secretName, withProblems bool) error {
	if !s.sendable(nil) {
		return storeError{errUnconfirmed}
	}
	var batch []mirror.Row
	err := s.read(func(ctx context.Context) (err error) {
		batch, err = s.hub.store.AgentCredentialRows(ctx, s.engine(), name.tenant, name.name)
		return err
	})
	if err != nil {
		return err
	}
	if !s.sendable(batch) {
		return storeError{errUnconfirmed}
	}
	rows, missing, err := s.hub.wireRows(s.ctx, s.opening.Agent, batch)
	if err != nil {
		return err
	}
	s.addMissing(missing...)
	var out []agent.Row
	for _, r := range rows {
		if r.Credential == nil || (r.Credential.Problem != "" && !withProblems) {
			continue
		}
		if out = append(out, r); len(out) == batchRows {
			if err := s.out.message(agent.EventCredentials, -1, agent.Rows{
				Rows: out, Cursor: s.cursor}); err != nil {
				return err
			}
			out = nil
		}
	}
	if len(out) == 0 {
		return nil
	}
	return s.out.message(agent.EventCredentials, -1, agent.Rows{Rows: out, Cursor: s.cursor})
}

// sendSyncs sends all open syncs if they differ from those sent last.
func (s *stream) sendSyncs() error {
	var open []mirror.SyncRequest
	err := s.read(func(ctx context.Context) (err error) {
		open, err = s.hub.store.AgentSyncs(ctx, s.engine())
		return err
	})
	if err != nil {
		return err
	}
	s.hub.feed.note(&s.syncsOpen, len(open) > 0)
	all := make([]agent.Sync, 0, len(open))
	for _, o := range open {
		all = append(all, agent.Sync{ID: o.ID, Namespace: o.Namespace, Name: o.Key.Name,
			Revision: o.Revision, Prune: o.Prune})
	}
	return s.sendList(agent.EventSyncs, all, &s.syncs)
}

// sendStops sends the stops that apply to the engine, if they are known and differ from those sent
// last. Ends come first: an agent that knows the ends does not lift a stop because it is missing.
func (s *stream) sendStops() error {
	stops, known := s.hub.stopsFor(s.opening.Agent)
	if !known {
		return nil
	}
	if err := s.sendList(agent.EventStopEnds, s.hub.endsFor(s.opening.Agent), &s.ends); err != nil {
		return err
	}
	s.stopsSent = true
	return s.sendList(agent.EventStops, stops, &s.stops)
}

// stopsFor lists the stops that apply to an agent; false until they are known. A tenant's own agent
// does not see other tenants' stops.
func (h *Hub) stopsFor(to registry.Agent) ([]mirror.Stop, bool) {
	on := h.stops.On(to.Engine)
	if len(on) == 0 && h.stops.Stopped(to.Engine)("") {
		return nil, false
	}
	stops := make([]mirror.Stop, 0, len(on))
	for _, s := range on {
		if visible(to, s.Scope, s.Name) {
			stops = append(stops, s)
		}
	}
	return stops, true
}

// endsFor lists the ends of stops for an agent, without the actor: a tenant must not see it.
func (h *Hub) endsFor(to registry.Agent) []mirror.StopEnd {
	ends := []mirror.StopEnd{}
	for _, e := range h.stops.Ends(to.Engine) {
		if visible(to, e.Scope, e.Name) {
			ends = append(ends, mirror.StopEnd{Scope: e.Scope, Name: e.Name, At: e.At})
		}
	}
	return ends
}

// visible reports whether an agent may see stops of this scope.
func visible(to registry.Agent, scope mirror.StopScope, name string) bool {
	return to.Tenant == "" || scope != mirror.StopTenant || name == string(to.Tenant)
}

// sendList sends a complete list if it differs from the one sent last.
func (s *stream) sendList(event string, list any, last *[sha256.Size]byte) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if sum == *last {
		return nil
	}
	if err := s.out.message(event, -1, list); err != nil {
		return err
	}
	*last = sum
	return nil
}

const (
	// to send one message; a slower client is disconnected
	messageTimeout = 10 * time.Second
	flushTimeout   = time.Second // to flush what is in flight when a stream ends
	// bytes; a larger buffer is not reused
	keptBuffer = 64 << 10
)

// writer writes text/event-stream with a deadline per message. It holds no buffer between messages.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool

	mu            sync.Mutex
	finalDeadline time.Time // no write extends beyond it once the stream is cut
	closed        bool      // the handler has returned and no longer owns the connection
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// message writes one event. A negative id is omitted.
func (o *writer) message(event string, id int64, value any) error {
	b := buffers.Get().(*bytes.Buffer)
	defer func() {
		if b.Cap() <= keptBuffer {
			b.Reset()
			buffers.Put(b)
		}
	}()
	if id >= 0 {
		b.WriteString("id: " + strconv.FormatInt(id, 10) + "\n")
	}
	b.WriteString("event: " + event + "\ndata: ")
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false) // the manifest's bytes are hashed
	if err := enc.Encode(value); err != nil {
		return err
	}
	b.WriteByte('\n')
	return o.write(b.Bytes())
}

func (o *writer) keepAlive() error { return o.write([]byte(": alive\n\n")) }

// errDisconnected reports an agent that has disconnected or accepts no data.
var errDisconnected = errors.New("the agent has disconnected")

func (o *writer) write(b []byte) error {
	if err := o.setDeadline(time.Now().Add(messageTimeout)); err != nil {
		return errDisconnected
	}
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
		// a buffering proxy would hold back every message
		o.w.Header().Set("X-Accel-Buffering", "no")
		o.w.WriteHeader(http.StatusOK)
	}
	if _, err := o.w.Write(b); err != nil {
		return errDisconnected
	}
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errDisconnected
	}
	return o.clearDeadline()
}

// clearDeadline removes the deadline between messages: over HTTP/2 an expired deadline ends the
// stream even while nothing is being written.
func (o *writer) clearDeadline() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || !o.finalDeadline.IsZero() {
		return nil // a cut stream keeps its deadline
	}
	if err := o.control.SetWriteDeadline(time.Time{}); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return errDisconnected
	}
	return nil
}

// setDeadline sets the write deadline, no later than the end of a cut stream.
func (o *writer) setDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return errDisconnected
	}
	if !o.finalDeadline.IsZero() && o.finalDeadline.Before(t) {
		t = o.finalDeadline
	}
	if err := o.control.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// cut also unblocks a hanging write. It may be called at any time.
func (o *writer) cut() {
	now := time.Now()
	o.mu.Lock()
	if o.finalDeadline.IsZero() {
		o.finalDeadline = now.Add(flushTimeout)
	}
	o.mu.Unlock()
	_ = o.setDeadline(now.Add(flushTimeout)) // an error means that the connection is closed already
}

func (o *writer) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}
