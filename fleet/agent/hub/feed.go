package hub

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/pacing"
)

const (
	// without a wake-up: a notification may be lost
	pollInterval = 2 * time.Second
	minPollPause = 50 * time.Millisecond // between polls: wake-ups within it count once
	pollTimeout  = 5 * time.Second
	// to read why an identity has ended; its stream is closed in any case
	endReasonTimeout = time.Second
	drainTimeout     = 5 * time.Second

	confirmTimeout = 5 * time.Second // a request for rows waits that long for their confirmation
)

// feed polls the store once for all open streams of a replica and wakes the streams with changes.
// Each stream reads its own rows.
type feed struct {
	store Store
	log   *slog.Logger
	rate  int // openings per second; spreads the reconnects at shutdown
	wake  pacing.Signal

	mu      sync.Mutex
	streams map[fleet.EngineName]map[*stream]struct{}
	open    int
	closed  bool
	empty   chan struct{} // closed when the last stream leaves a closed feed
	rotated []secretName  // changed secrets whose engines are not looked up yet
	seq     int64
	since   time.Time

	life          string        // incarnation of the database at the last poll; "" before the first
	wantConfirmed int64         // the requested confirmation; 0 before the request
	confirmed     bool          // the rows of this incarnation follow from the config repo
	confirmedCh   chan struct{} // closed once confirmed; replaced when the confirmation is lost

	// used by run's goroutine only
	failing bool // the last poll failed
	swept   time.Time
}

type secretName struct {
	tenant fleet.TenantName
	name   string
}

// pendingWork lists what a stream has to send.
type pendingWork struct {
	rows, moves, syncs, actions, stops, instance, inspect bool
	secrets                                               []secretName
}

func newFeed(store Store, log *slog.Logger, rate int) *feed {
	return &feed{store: store, log: log, rate: rate, wake: pacing.NewSignal(),
		streams: map[fleet.EngineName]map[*stream]struct{}{}, empty: make(chan struct{}),
		confirmedCh: make(chan struct{})}
}

func (f *feed) connected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// add registers a stream and ends the agent's other streams on this replica: those that the same
// process abandoned, and those of another process. It returns false when the replica shuts down.
func (f *feed) add(s *stream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	for other := range f.streams[s.engine()] {
		if other.opening.Opening > s.opening.Opening { // opened later and already registered
			s.goAway(superseded(s, other))
		} else {
			other.goAway(superseded(other, s))
		}
	}
	if f.confirmed && s.stale(f.life) { // it opened before the confirmation
		s.goAway(mirrorReplaced)
	}
	if f.streams[s.engine()] == nil {
		f.streams[s.engine()] = map[*stream]struct{}{}
	}
	f.streams[s.engine()][s] = struct{}{}
	f.open++
	return true
}

// superseded returns the reason for the end of the earlier stream.
func superseded(earlier, later *stream) agent.GoAway {
	switch {
	case earlier.opening.Agent.ID != later.opening.Agent.ID:
		return agent.GoAway{Code: agent.CodeRevoked,
			Message: "the engine has another identity now"}
	case earlier.instance != later.instance:
		return agent.GoAway{Code: agent.CodeSuperseded,
			Message: "another process of this agent has taken over"}
	default:
		return agent.GoAway{Code: agent.CodeRenew, Message: "the agent has opened another stream"}
	}
}

func (f *feed) remove(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams[s.engine()], s)
	if len(f.streams[s.engine()]) == 0 {
		delete(f.streams, s.engine())
	}
	if f.open--; f.open == 0 && f.closed {
		close(f.empty)
	}
}

// takePending returns and clears the work of a stream.
func (f *feed) takePending(s *stream) pendingWork {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := s.pending
	s.pending = pendingWork{}
	return d
}

// mark adds work to a stream. f.mu is held.
func (s *stream) mark(set func(*pendingWork)) {
	set(&s.pending)
	s.wake.Set()
}

// requeue adds work to a stream when it opens and after a failure.
func (f *feed) requeue(s *stream, more pendingWork) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.mark(func(d *pendingWork) {
		d.rows, d.syncs, d.stops = d.rows || more.rows, d.syncs || more.syncs, d.stops || more.stops
		d.moves, d.instance = d.moves || more.moves, d.instance || more.instance
		d.inspect, d.actions = d.inspect || more.inspect, d.actions || more.actions
		d.secrets = append(d.secrets, more.secrets...)
	})
}

// note records in a field of a stream whether it was sent open items of a kind. If so, the feed
// wakes it once none is left.
func (f *feed) note(sent *bool, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*sent = open
}

// inspect makes the streams of an engine on this replica send the open reads; false if there is
// none.
func (f *feed) inspect(engine fleet.EngineName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams[engine] {
		s.mark(func(d *pendingWork) { d.inspect = true })
	}
	return len(f.streams[engine]) > 0
}

func (f *feed) each(do func(*stream)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.streams {
		for s := range of {
			do(s)
		}
	}
}

func (f *feed) stopsChanged() {
	f.each(func(s *stream) { s.mark(func(d *pendingWork) { d.stops = true }) })
}

func (f *feed) rotate(name secretName) {
	f.mu.Lock()
	if !slices.Contains(f.rotated, name) {
		f.rotated = append(f.rotated, name)
	}
	f.mu.Unlock()
	f.wake.Set()
}

// end closes the streams of one identity.
func (f *feed) end(agentID string, reason agent.GoAway) {
	f.each(func(s *stream) {
		if s.opening.Agent.ID == agentID {
			s.goAway(reason)
		}
	})
}

// run polls until ctx ends.
func (f *feed) run(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		f.poll(ctx)
		f.resyncSecrets(ctx)
		if !pacing.Sleep(ctx, minPollPause) {
			break
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-f.wake:
		}
	}
	f.close()
}

// close ends every stream and waits until all have left.
func (f *feed) close() {
	f.mu.Lock()
	f.closed = true
	n := f.open
	if n == 0 {
		close(f.empty)
	}
	f.mu.Unlock()
	over := time.Duration(n) * time.Second / time.Duration(f.rate)
	f.each(func(s *stream) {
		s.goAway(
			agent.GoAway{Code: agent.CodeShutdown, Message: "this replica of the hub shuts down",
				After: rand.N(over + 1)})
	})
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-f.empty:
	case <-timer.C:
	}
}

// poll reads the changes for all agents with one query.
func (f *feed) poll(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	f.mu.Lock()
	seq, since := f.seq, f.since
	f.mu.Unlock()
	news, err := f.store.AgentNews(within, seq, since)
	if err != nil {
		if !f.failing && ctx.Err() == nil {
			f.log.WarnContext(ctx, "failed to read the mirror: agents' streams are paused",
				"error", err)
		}
		f.failing = true
		return
	}
	f.failing = false
	if !f.checkIncarnation(within, news) {
		return
	}
	f.notify(news)
	f.sweep(within, news)
	f.closeEnded(ctx, news.Ended)
}

// sweepEvery is how often a replica drops reads whose reader has gone, while there is any read.
const sweepEvery = time.Minute

// sweep drops the reads that a dead replica has left.
func (f *feed) sweep(ctx context.Context, news registry.News) {
	if len(news.Inspections) == 0 || news.Now.Sub(f.swept) < sweepEvery {
		return
	}
	f.swept = news.Now
	if err := f.store.SweepInspections(ctx); err != nil {
		f.log.DebugContext(ctx, "failed to drop reads whose reader has gone", "error", err)
	}
}

// checkIncarnation detects that the database was replaced or restored since the last poll. Its rows
// may be older than those of the agents: no row is sent before the config repo has confirmed them,
// and the agents keep their rows. Stops are sent all the same. It returns false when the changes
// must be ignored.
func (f *feed) checkIncarnation(ctx context.Context, news registry.News) bool {
	f.mu.Lock()
	back := f.life == news.Life && news.Seq < f.seq
	if back || f.life != news.Life {
		if f.confirmed {
			f.log.Warn(
				"the database went back in time or was replaced: agents get no rows " +
					"until the config repo has confirmed them")
		}
		f.resetConfirmation(news.Life)
	}
	ask := !f.confirmed && f.wantConfirmed == 0
	f.mu.Unlock()
	if back { // every replica and every session of an agent has to know
		if err := f.store.BeginLife(ctx, news.Life); err != nil {
			f.log.WarnContext(ctx,
				"failed to record that the database went back in time; retrying", "error",
				err)
		}
		f.wake.Set()
		return false // the next poll sees the new incarnation
	}
	if ask {
		f.requestConfirmation(ctx)
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.confirmed && news.Confirmed >= f.wantConfirmed {
		f.confirmed = true
		close(f.confirmedCh)
		f.resumeStreams()
	}
	return true
}

// resetConfirmation starts another incarnation. f.mu is held.
func (f *feed) resetConfirmation(life string) {
	if f.confirmed {
		f.confirmedCh = make(chan struct{})
	}
	f.life, f.wantConfirmed, f.confirmed = life, 0, false
}

// requestConfirmation asks the loop to confirm the rows.
func (f *feed) requestConfirmation(ctx context.Context) {
	need, err := f.store.WantConfirmed(ctx)
	if err != nil {
		f.log.WarnContext(ctx,
			"failed to request a confirmation of the rows; agents get none yet", "error", err)
		return
	}
	f.mu.Lock()
	f.wantConfirmed = need
	f.mu.Unlock()
	f.wake.Set()
	if err := f.store.Notify(ctx, "confirm agents"); err != nil {
		f.log.DebugContext(ctx, "no notification; the loop polls", "error", err)
	}
}

// mirrorReplaced makes agents read all rows again.
var mirrorReplaced = agent.GoAway{Code: agent.CodeRenew, Message: "the mirror was replaced"}

// stale reports whether the stream's agent holds rows of another incarnation.
func (s *stream) stale(life string) bool { return s.opening.Stale || s.opening.Lease.Life != life }

// resumeStreams ends the streams whose agents hold rows of another incarnation, and wakes the
// others to send their rows. f.mu is held.
func (f *feed) resumeStreams() {
	for _, of := range f.streams {
		for s := range of {
			if s.stale(f.life) {
				s.goAway(mirrorReplaced)
				continue
			}
			s.mark(func(d *pendingWork) { d.rows, d.moves, d.instance = true, true, true })
		}
	}
}

// isConfirmed reports whether the rows of this incarnation are confirmed.
func (f *feed) isConfirmed(life string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.confirmed && f.life == life
}

// confirmedLife returns the incarnation whose rows are confirmed, or "".
func (f *feed) confirmedLife() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.confirmed {
		return ""
	}
	return f.life
}

// awaitConfirmed waits until the rows are confirmed, for at most confirmTimeout.
func (f *feed) awaitConfirmed(ctx context.Context) {
	f.mu.Lock()
	settled := f.confirmedCh
	f.mu.Unlock()
	timer := time.NewTimer(confirmTimeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-settled:
	}
}

// errUnconfirmed reports that rows may be older than the objects on the clusters.
var errUnconfirmed = errors.New("the config repo has not confirmed the rows yet")

// unconfirmed rejects a request for rows before their confirmation.
func unconfirmed() *refusal {
	r := refused(http.StatusServiceUnavailable, agent.CodeUnconfirmed, errUnconfirmed.Error()+
		": the control plane has just started, or its database went back in time; "+
		"the cluster stays as it is",
		"if it persists, check with `argosy status` whether the control plane reaches its "+
			"config repo")
	r.after = confirmTimeout + rand.N(2*confirmTimeout)
	return r
}

// notify wakes the streams with changes.
func (f *feed) notify(news registry.News) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq, f.since = news.Seq, news.Now
	for _, engine := range news.Rows {
		for s := range f.streams[engine] {
			s.mark(func(d *pendingWork) { d.rows = true })
		}
	}
	for _, engine := range news.Instances {
		for s := range f.streams[engine] {
			s.mark(func(d *pendingWork) { d.instance = true })
		}
	}
	asked, acting := engineSet(news.Syncs), engineSet(news.Actions)
	moving, read := engineSet(news.Moves), engineSet(news.Inspections)
	for engine, of := range f.streams {
		for s := range of {
			if s.syncsOpen || asked[engine] {
				s.mark(func(d *pendingWork) { d.syncs = true })
			}
			if s.acting || acting[engine] {
				s.mark(func(d *pendingWork) { d.actions = true })
			}
			if s.inspecting || read[engine] {
				s.mark(func(d *pendingWork) { d.inspect = true })
			}
			if s.moving || moving[engine] {
				s.mark(func(d *pendingWork) { d.moves = true })
			}
		}
	}
	f.closeChanged(news.Changed)
}

func engineSet(names []fleet.EngineName) map[fleet.EngineName]bool {
	set := make(map[fleet.EngineName]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// closeChanged ends the streams whose declaration has changed since they opened. f.mu is held.
func (f *feed) closeChanged(changed []registry.Change) {
	generations := make(map[string]int64, len(changed))
	for _, c := range changed {
		generations[c.Agent] = c.Generation
	}
	if len(generations) == 0 {
		return
	}
	for _, of := range f.streams {
		for s := range of {
			if g, ok := generations[s.opening.Agent.ID]; ok && g > s.opening.Generation {
				s.goAway(agent.GoAway{Code: agent.CodeRenew,
					Message: "the agent's declaration has changed"})
			}
		}
	}
}

// closeEnded ends the streams of ended identities. It reads the reason for those that are connected
// here, within endReasonTimeout: the streams end with or without it.
func (f *feed) closeEnded(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		return
	}
	here := map[string]bool{}
	f.each(func(s *stream) { here[s.opening.Agent.ID] = true })
	within, cancel := context.WithTimeout(ctx, endReasonTimeout)
	defer cancel()
	for _, id := range ids {
		if !here[id] {
			continue
		}
		reason := agent.GoAway{
			Code: agent.CodeRevoked, Message: "the identity was revoked; " + joinAgain}
		if _, err := f.store.Agent(within, id); err != nil {
			if r := ended(err); r != nil {
				reason = agent.GoAway{Code: r.Code, Message: r.Detail + "; " + r.Next}
			}
		}
		f.end(id, reason)
	}
}

// resyncSecrets finds the engines that need the rotated secrets. A failed query is repeated at the
// next poll.
func (f *feed) resyncSecrets(ctx context.Context) {
	f.mu.Lock()
	turned := f.rotated
	f.rotated = nil
	idle := f.open == 0
	f.mu.Unlock()
	if idle {
		return // each stream reads the current secrets when it opens
	}
	for _, name := range turned {
		within, cancel := context.WithTimeout(ctx, pollTimeout)
		engines, err := f.store.CredentialEngines(within, name.tenant, name.name)
		cancel()
		if err != nil {
			f.log.WarnContext(ctx,
				"failed to read the mirror: agents do not know yet that a secret has changed",
				"tenant", name.tenant, "secret", name.name, "error", err)
			f.mu.Lock()
			f.rotated = append(f.rotated, name)
			f.mu.Unlock()
			continue
		}
		f.mu.Lock()
		for _, engine := range engines {
			for s := range f.streams[engine] {
				s.mark(func(d *pendingWork) { d.secrets = append(d.secrets, name) })
			}
		}
		f.mu.Unlock()
	}
}

// newest returns the mirror's newest sequence number. It queries the store only if the cursor is
// above the feed's number.
func (f *feed) newest(ctx context.Context, cursor int64) (int64, error) {
	f.mu.Lock()
	seq, since := f.seq, f.since
	f.mu.Unlock()
	if cursor <= seq {
		return seq, nil
	}
	news, err := f.store.AgentNews(ctx, seq, since)
	return news.Seq, err
}
