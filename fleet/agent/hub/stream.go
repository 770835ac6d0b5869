package hub

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/pacing"
)

const (
	// at most, and a sixth less at least, so that not all end together
	streamLife = 30 * time.Minute
	batchRows  = 100
	batchBytes = 1 << 20 // of manifests in one message, unless one alone is larger
	againAfter = 2 * time.Second
	closeTime  = 5 * time.Second
	missEvery  = 2 // beats between tries to find a secret that was not to be had
)

// stream is one open stream. What it holds while it is idle is this and its goroutine.
type stream struct {
	hub      *Hub
	opening  fleet.AgentOpening
	instance string
	wake     pacing.Signal
	out      *writer
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// of the feed, under its lock
	due   due
	asked bool // syncs were sent that had not ended

	// of its goroutine
	cursor             int64
	syncs, stops, ends [sha256.Size]byte // as they were last sent
	stopsSent          bool
	missing            []secretName // that rows were sent without
}

// goodbye is the cause of a stream's end that its agent is told.
type goodbye struct{ agent.Bye }

func (*goodbye) Error() string { return "the hub ends the stream" }

func (s *stream) engine() fleet.EngineName { return s.opening.Agent.Engine }

// leave ends the stream, and any write or read that hangs. It never blocks; the first reason is the
// one that is told.
func (s *stream) leave(bye agent.Bye) { s.cancel(&goodbye{bye}) }

// stream answers PathStream.
func (h *Hub) stream(w http.ResponseWriter, r *http.Request) error {
	control := lift(w, r)
	who, session, err := h.session(r, agent.PathStream)
	if err != nil {
		return err
	}
	opening, err := h.open(r.Context(), who, session)
	if err != nil {
		return err
	}
	defer h.close(r.Context(), opening, session)
	s := &stream{hub: h, opening: opening, instance: session.Instance, wake: pacing.NewSignal(),
		cursor: session.Cursor,
		out:    &writer{w: w, control: control}}
	s.ctx, s.cancel = context.WithCancelCause(r.Context())
	defer s.cancel(nil)
	if !h.feed.standing(opening.Lease.Life) {
		h.log.DebugContext(r.Context(), "a stream begins before the rows are confirmed", "engine",
			s.engine())
	} else if newest, err := h.newest(s.ctx, s.cursor); err != nil {
		return err
	} else if s.cursor > newest {
		s.cursor = 0 // a number from another life of the mirror
	}
	if !h.feed.join(s) {
		return busy("this replica of the hub ends", time.Second)
	}
	defer h.feed.part(s)
	defer s.out.end()
	defer context.AfterFunc(s.ctx, s.out.cut)()
	h.metrics.opened.Inc()
	s.serve()
	return nil
}

// waitTime bounds what comes before the first byte of a long answer: a turn, and a read of the
// store.
const waitTime = time.Minute

// lift takes the server's deadlines off a request with a long answer, which sets its own. What is
// left of them on a connection of HTTP/1 would be the next request's, so that there is none.
func lift(w http.ResponseWriter, r *http.Request) *http.ResponseController {
	control := http.NewResponseController(w)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	// a connection that is gone is noticed by the first write
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(waitTime))
	return control
}

func (h *Hub) newest(ctx context.Context, cursor int64) (newest int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return h.feed.newest(ctx, cursor)
}

// open begins a session when it is the agent's turn.
func (h *Hub) open(ctx context.Context, who prover, s agent.Session) (fleet.AgentOpening, error) {
	if err := h.openings.wait(ctx); err != nil {
		return fleet.AgentOpening{}, err
	}
	var opening fleet.AgentOpening
	confirmed := h.feed.confirmedLife()
	err := h.briefly(ctx, h.reads, func(ctx context.Context) (err error) {
		opening, err = h.store.OpenAgent(ctx, fleet.AgentSession{
			Agent: who.ID, Instance: s.Instance, Replica: h.replica, Floor: s.Epoch,
			Version: s.Version, Proof: who.proof, Confirmed: confirmed})
		return err
	})
	switch {
	case errors.Is(err, fleet.ErrNotFound):
		return opening, undeclared(30*time.Second + rand.N(30*time.Second))
	case errors.Is(err, fleet.ErrReplayed):
		return opening, seenBefore()
	case errors.Is(err, fleet.ErrAgentBusy):
		r := refused(http.StatusTooManyRequests, agent.CodeBusy,
			"this agent begins too many sessions", "wait for as long as Retry-After says")
		r.after = time.Minute
		return opening, r
	}
	return opening, err
}

// undeclared sends an agent away that nobody needs now, or of which that is not known yet.
func undeclared(after time.Duration) *refusal {
	r := refused(http.StatusServiceUnavailable, agent.CodeUndeclared,
		"nothing is declared for this agent at present",
		"if that lasts, look whether its environment or engine is still declared with an agent")
	r.after = after
	return r
}

// close keeps that the session has ended, even though the request has.
func (h *Hub) close(ctx context.Context, opening fleet.AgentOpening, s agent.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := h.reads.within(ctx, func() error {
		return h.store.CloseAgent(ctx, fleet.AgentSession{Agent: opening.Agent.ID,
			Instance: s.Instance, Replica: h.replica, Version: s.Version, Opening: opening.Opening})
	})
	if err != nil {
		h.log.WarnContext(ctx,
			"an agent may be shown as connected a while longer: the end of its session is not "+
				"recorded", "agent", opening.Agent.ID, "error", err)
	}
}

// serve sends what there is and then what comes, until the agent goes, the stream has stood long
// enough, or the hub ends it.
func (s *stream) serve() {
	life := min(streamLife-rand.N(streamLife/6), s.opening.Agent.ExpiresAt.Sub(s.hub.now()))
	end := time.AfterFunc(life,
		func() {
			s.leave(agent.Bye{Code: agent.CodeRenew, Message: "the stream has stood long enough"})
		})
	defer end.Stop()
	err := s.greet()
	if err == nil {
		err = s.follow()
	}
	var bye *goodbye
	if errors.As(context.Cause(s.ctx), &bye) {
		_ = s.out.message(agent.EventBye, -1, bye.Bye) // the agent may be gone
	} else if err != nil && !errors.Is(err, errGone) && s.ctx.Err() == nil {
		s.hub.log.Error("an agent's stream fails inside", "agent", s.opening.Agent.ID, "error", err)
	}
}

// greet sends the hello and what stands. Stops come before rows, so that nothing is applied that is
// stopped; while they are not known, there are no rows.
func (s *stream) greet() error {
	o := s.opening
	hello := agent.Hello{Protocol: agent.Protocol, Hub: s.hub.version, Time: s.hub.now().UTC(),
		Engine: s.engine(), ArgoCD: o.ArgoCD, Mode: o.Mode,
		Epoch: o.Lease.Epoch, Holder: o.Lease.Holder, ReportSeq: o.ReportSeq,
		ExpiresAt: o.Agent.ExpiresAt.UTC(), Cursor: s.cursor,
		DedicatedTo: append([]fleet.TenantName{}, o.DedicatedTo...)}
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
		case <-time.After(agent.Beat):
			if err := s.out.alive(); err != nil {
				return err
			}
		}
	}
	s.hub.feed.again(s, due{rows: true, syncs: true})
	return nil
}

// follow does what the feed says is due.
func (s *stream) follow() error {
	first := true
	beat := time.NewTicker(agent.Beat)
	defer beat.Stop()
	for beats := 1; ; {
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.wake:
			err := s.work(s.hub.feed.take(s), &first)
			if err != nil && s.ctx.Err() == nil {
				return err
			}
		case <-beat.C:
			if err := s.out.alive(); err != nil {
				return err
			}
			if beats++; beats%missEvery == 0 && len(s.missing) > 0 {
				s.findMissing()
			}
		}
	}
}

// work sends what is due. What the store does not give now is due again a little later; the stream
// stands meanwhile.
func (s *stream) work(d due, first *bool) error {
	err := s.pay(&d, first)
	var read errRead
	if errors.As(err, &read) {
		time.AfterFunc(againAfter, func() { s.hub.feed.again(s, d) })
		return nil
	}
	return err
}

// pay does what is due, and takes off what is done.
func (s *stream) pay(d *due, first *bool) error {
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
	if d.syncs {
		if err := s.sendSyncs(); err != nil {
			return err
		}
		d.syncs = false
	}
	for len(d.secrets) > 0 {
		if err := s.sendAgain(d.secrets[0], true); err != nil {
			return err
		}
		d.secrets = d.secrets[1:]
	}
	return nil
}

// errRead marks an error of the store, after which the stream goes on.
type errRead struct{ error }

func (s *stream) read(f func(context.Context) error) error {
	if err := s.hub.briefly(s.ctx, s.hub.reads, f); err != nil {
		return errRead{err}
	}
	return nil
}

// same reports whether rows may be sent: they are of the incarnation of the database that the
// stream began in, which the config repo has confirmed.
func (s *stream) same(rows []fleet.Row) bool {
	life := s.opening.Lease.Life
	return s.hub.feed.standing(life) && !slices.ContainsFunc(rows, func(r fleet.Row) bool {
		return r.Life != life
	})
}

// sendRows sends what stands above the cursor, and moves it.
func (s *stream) sendRows(first *bool) error {
	for s.same(nil) {
		var batch []fleet.Row
		err := s.read(func(ctx context.Context) (err error) {
			batch, err = s.hub.store.AgentChanged(ctx, s.engine(), s.cursor, batchRows)
			return err
		})
		if err != nil {
			return err
		}
		if !s.same(batch) {
			return nil // the feed ends the stream, or goes on with it, when the rows are confirmed
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

// sendBatch sends rows in messages of a bounded size. Each moves the cursor, so that a stream that
// is cut goes on behind the last one.
func (s *stream) sendBatch(batch []fleet.Row, more, opening bool) error {
	for begun := false; !begun || len(batch) > 0; begun = true {
		n, size := 0, 0
		for n < len(batch) && (n == 0 || size+len(batch[n].Manifest.Body) <= batchBytes) {
			size += len(batch[n].Manifest.Body)
			n++
		}
		rows, missing, err := s.hub.rows(s.ctx, s.opening.Agent, batch[:n])
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
		s.lacks(missing...)
		s.hub.metrics.rows.Add(float64(n))
	}
	return nil
}

// lacks remembers secrets that were not to be had.
func (s *stream) lacks(names ...secretName) {
	for _, name := range names {
		if !slices.Contains(s.missing, name) {
			s.missing = append(s.missing, name)
		}
	}
}

// findMissing tries once more to find what rows were sent without.
func (s *stream) findMissing() {
	missing := s.missing
	s.missing = nil
	for _, name := range missing {
		if s.sendAgain(name, false) != nil {
			s.lacks(name)
		}
	}
}

// sendAgain sends the rows that need a secret once more. Those whose secret is not to be had are
// sent, with the reason, only if it was there before.
func (s *stream) sendAgain(name secretName, withProblems bool) error {
	if !s.same(nil) {
		return errRead{errUnconfirmed}
	}
	var batch []fleet.Row
	err := s.read(func(ctx context.Context) (err error) {
		batch, err = s.hub.store.AgentCredentialRows(ctx, s.engine(), name.tenant, name.name)
		return err
	})
	if err != nil {
		return err
	}
	if !s.same(batch) {
		return errRead{errUnconfirmed}
	}
	rows, missing, err := s.hub.rows(s.ctx, s.opening.Agent, batch)
	if err != nil {
		return err
	}
	s.lacks(missing...)
	var out []agent.Row
	for _, r := range rows {
		if r.Credential == nil || (r.Credential.Problem != "" && !withProblems) {
			continue
		}
		if out = append(out, r); len(out) == batchRows {
			if err := s.out.message(agent.EventAgain, -1, agent.Rows{
				Rows: out, Cursor: s.cursor}); err != nil {
				return err
			}
			out = nil
		}
	}
	if len(out) == 0 {
		return nil
	}
	return s.out.message(agent.EventAgain, -1, agent.Rows{Rows: out, Cursor: s.cursor})
}

// sendSyncs sends all syncs that have not ended, if they are others than were sent last.
func (s *stream) sendSyncs() error {
	var open []fleet.SyncRequest
	err := s.read(func(ctx context.Context) (err error) {
		open, err = s.hub.store.AgentSyncs(ctx, s.engine())
		return err
	})
	if err != nil {
		return err
	}
	s.hub.feed.asked(s, len(open) > 0)
	all := make([]agent.Sync, 0, len(open))
	for _, o := range open {
		all = append(all, agent.Sync{ID: o.ID, Namespace: o.Namespace, Name: o.Key.Name,
			Revision: o.Revision, Prune: o.Prune})
	}
	return s.sendList(agent.EventSyncs, all, &s.syncs)
}

// sendStops sends the stops that concern the engine, if they are known and others than were sent
// last. Ends come first: an agent that hears of them ends no stop that is merely missing.
func (s *stream) sendStops() error {
	stops, known := s.hub.stopsFor(s.opening.Agent)
	if !known {
		return nil
	}
	if err := s.sendList(agent.EventEnds, s.hub.endsFor(s.opening.Agent), &s.ends); err != nil {
		return err
	}
	s.stopsSent = true
	return s.sendList(agent.EventStops, stops, &s.stops)
}

// stopsFor lists the stops that concern an agent; false while they are not known. A tenant's own
// agent is not told of other tenants'.
func (h *Hub) stopsFor(to fleet.Agent) ([]fleet.Stop, bool) {
	on := h.stops.On(to.Engine)
	if len(on) == 0 && h.stops.Stopped(to.Engine)("") {
		return nil, false
	}
	stops := make([]fleet.Stop, 0, len(on))
	for _, s := range on {
		if tells(to, s.Scope, s.Name) {
			stops = append(stops, s)
		}
	}
	return stops, true
}

// endsFor lists the ends of stops that an agent is told of. Who ended them is not its tenant's to
// know.
func (h *Hub) endsFor(to fleet.Agent) []fleet.StopEnd {
	ends := []fleet.StopEnd{}
	for _, e := range h.stops.Ends(to.Engine) {
		if tells(to, e.Scope, e.Name) {
			ends = append(ends, fleet.StopEnd{Scope: e.Scope, Name: e.Name, At: e.At})
		}
	}
	return ends
}

// tells reports whether an agent hears of stops of that place.
func tells(to fleet.Agent, scope fleet.StopScope, name string) bool {
	return to.Tenant == "" || scope != fleet.StopTenant || name == string(to.Tenant)
}

// sendList sends a list as a whole when it differs from the last one.
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
