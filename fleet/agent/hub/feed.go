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
	"argosy.dev/argosy/fleet/pacing"
)

const (
	// when nothing woke the feed: a notification may be lost, a look may not
	lookEvery = 2 * time.Second
	lookPause = 50 * time.Millisecond // between looks: wakes within it count once
	lookTime  = 5 * time.Second
	whyTime   = time.Second // to ask why an identity has ended; its stream is cut in any case
	leaveTime = 5 * time.Second

	confirmTime = 5 * time.Second // that one who asks for rows waits for them to be confirmed
)

// feed looks for news once for all open streams of a replica and wakes those that they concern. It
// passes on no row itself: each stream reads its own.
type feed struct {
	store Store
	log   *slog.Logger
	rate  int // of openings, to spread those that are sent away at the end
	wake  pacing.Signal

	mu      sync.Mutex
	streams map[fleet.EngineName]map[*stream]struct{}
	open    int
	closed  bool
	empty   chan struct{} // closed when the last stream has left a closed feed
	turned  []secretName  // secrets that have changed and whose engines are to be asked for
	seq     int64
	since   time.Time

	life      string        // incarnation of the database at the last look; "" before the first
	need      int64         // the confirmation that was asked for since; 0 before that
	confirmed bool          // the rows of this incarnation follow from the config repo
	settled   chan struct{} // closed when they do; another one when they do no more

	failing bool // of the goroutine that looks: the last look failed
}

type secretName struct {
	tenant fleet.TenantName
	name   string
}

// due is what a stream has to do.
type due struct {
	rows, syncs, stops bool
	secrets            []secretName
}

func newFeed(store Store, log *slog.Logger, rate int) *feed {
	return &feed{store: store, log: log, rate: rate, wake: pacing.NewSignal(),
		streams: map[fleet.EngineName]map[*stream]struct{}{}, empty: make(chan struct{}),
		settled: make(chan struct{})}
}

func (f *feed) connected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// join adds a stream, and ends those that the same agent has here: its own, which it has given up,
// and those of another process, which it follows. It is false when the replica ends.
func (f *feed) join(s *stream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	for other := range f.streams[s.engine()] {
		if other.opening.Opening > s.opening.Opening { // opened later, and here already
			s.leave(superseded(s, other))
		} else {
			other.leave(superseded(other, s))
		}
	}
	if f.confirmed && s.stale(f.life) { // it opened before that was known
		s.leave(another)
	}
	if f.streams[s.engine()] == nil {
		f.streams[s.engine()] = map[*stream]struct{}{}
	}
	f.streams[s.engine()][s] = struct{}{}
	f.open++
	return true
}

// superseded is what the earlier stream is told.
func superseded(earlier, later *stream) agent.Bye {
	switch {
	case earlier.opening.Agent.ID != later.opening.Agent.ID:
		return agent.Bye{Code: agent.CodeRevoked,
			Message: "another identity was given for the engine"}
	case earlier.instance != later.instance:
		return agent.Bye{Code: agent.CodeSuperseded,
			Message: "another process of this agent has taken over"}
	default:
		return agent.Bye{Code: agent.CodeRenew, Message: "the agent has opened another stream"}
	}
}

func (f *feed) part(s *stream) {
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

// take hands out what a stream has to do.
func (f *feed) take(s *stream) due {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := s.due
	s.due = due{}
	return d
}

// mark adds to what a stream has to do. f.mu is held.
func (s *stream) mark(set func(*due)) {
	set(&s.due)
	s.wake.Set()
}

// again adds what a stream has to do, at its opening and when something did not work.
func (f *feed) again(s *stream, more due) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.mark(func(d *due) {
		d.rows, d.syncs, d.stops = d.rows || more.rows, d.syncs || more.syncs, d.stops || more.stops
		d.secrets = append(d.secrets, more.secrets...)
	})
}

// asked keeps whether a stream was sent syncs that had not ended: it is woken too when there are
// none any more.
func (f *feed) asked(s *stream, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.asked = open
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
	f.each(func(s *stream) { s.mark(func(d *due) { d.stops = true }) })
}

func (f *feed) rotate(name secretName) {
	f.mu.Lock()
	if !slices.Contains(f.turned, name) {
		f.turned = append(f.turned, name)
	}
	f.mu.Unlock()
	f.wake.Set()
}

// end ends the streams of one identity.
func (f *feed) end(agentID string, bye agent.Bye) {
	f.each(func(s *stream) {
		if s.opening.Agent.ID == agentID {
			s.leave(bye)
		}
	})
}

// run looks until ctx ends.
func (f *feed) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		f.look(ctx)
		f.lookAtSecrets(ctx)
		if !pacing.Sleep(ctx, lookPause) {
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

// close ends every stream and waits until they are gone.
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
		s.leave(agent.Bye{Code: agent.CodeShutdown, Message: "this replica of the hub ends",
			After: rand.N(over + 1)})
	})
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	select {
	case <-f.empty:
	case <-timer.C:
	}
}

// look asks once what is new for all agents.
func (f *feed) look(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	f.mu.Lock()
	seq, since := f.seq, f.since
	f.mu.Unlock()
	news, err := f.store.AgentNews(within, seq, since)
	if err != nil {
		if !f.failing && ctx.Err() == nil {
			f.log.WarnContext(ctx, "agents' streams stand still: the mirror cannot be read",
				"error", err)
		}
		f.failing = true
		return
	}
	f.failing = false
	if !f.follow(within, news) {
		return
	}
	f.spread(news)
	f.dismiss(ctx, news.Ended)
}

// follow notices that the database is another incarnation than at the last look, or has gone back
// in time. Its rows may be older than what agents have: none is sent before the config repo has
// confirmed them, and the agents keep what they have. Stops are sent all the same. It is false when
// the news count for nothing.
func (f *feed) follow(ctx context.Context, news fleet.AgentNews) bool {
	f.mu.Lock()
	back := f.life == news.Life && news.Seq < f.seq
	if back || f.life != news.Life {
		if f.confirmed {
			f.log.Warn(
				"the database went back in time, or is another one: agents are sent no rows " +
					"until the config repo has confirmed them")
		}
		f.unsettle(news.Life)
	}
	ask := !f.confirmed && f.need == 0
	f.mu.Unlock()
	if back { // every replica, and every session of an agent, has to know
		if err := f.store.BeginLife(ctx, news.Life); err != nil {
			f.log.WarnContext(ctx,
				"failed to record that the database went back in time; it is tried again", "error",
				err)
		}
		f.wake.Set()
		return false // the next look finds another incarnation
	}
	if ask {
		f.ask(ctx)
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.confirmed && news.Confirmed >= f.need {
		f.confirmed = true
		close(f.settled)
		f.settle()
	}
	return true
}

// unsettle begins another incarnation. f.mu is held.
func (f *feed) unsettle(life string) {
	if f.confirmed {
		f.settled = make(chan struct{})
	}
	f.life, f.need, f.confirmed = life, 0, false
}

// ask asks for a confirmation of the rows.
func (f *feed) ask(ctx context.Context) {
	need, err := f.store.WantConfirmed(ctx)
	if err != nil {
		f.log.WarnContext(ctx,
			"failed to ask for a confirmation of the rows; agents are sent none yet", "error", err)
		return
	}
	f.mu.Lock()
	f.need = need
	f.mu.Unlock()
	f.wake.Set()
	if err := f.store.Notify(ctx, "confirm agents"); err != nil {
		f.log.DebugContext(ctx, "no notification; the loop polls", "error", err)
	}
}

// another is told to agents that have to read their rows anew.
var another = agent.Bye{Code: agent.CodeRenew, Message: "the mirror is another than before"}

// stale reports whether what the stream's agent knows of rows is of another incarnation than that.
func (s *stream) stale(life string) bool { return s.opening.Stale || s.opening.Lease.Life != life }

// settle lets the streams go on: those whose agents know rows of another incarnation begin anew,
// and the others are sent what waited. f.mu is held.
func (f *feed) settle() {
	for _, of := range f.streams {
		for s := range of {
			if s.stale(f.life) {
				s.leave(another)
				continue
			}
			s.mark(func(d *due) { d.rows = true })
		}
	}
}

// standing reports whether rows of that incarnation are confirmed.
func (f *feed) standing(life string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.confirmed && f.life == life
}

// confirmedLife is the incarnation whose rows are confirmed; "" while none is known to be.
func (f *feed) confirmedLife() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.confirmed {
		return ""
	}
	return f.life
}

// awaitConfirmed waits a while until the rows are confirmed.
func (f *feed) awaitConfirmed(ctx context.Context) {
	f.mu.Lock()
	settled := f.settled
	f.mu.Unlock()
	timer := time.NewTimer(confirmTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-settled:
	}
}

// errUnconfirmed says that rows may be older than what runs on clusters.
var errUnconfirmed = errors.New("the config repo has not confirmed the rows yet")

// unconfirmed sends an agent away that asks for rows too early.
func unconfirmed() *refusal {
	r := refused(http.StatusServiceUnavailable, agent.CodeUnconfirmed, errUnconfirmed.Error()+
		": the control plane has just started, or its database went back in time; what runs on "+
		"the cluster stays as it is",
		"if that lasts, look whether the control plane reaches its config repo: `argosy status` there")
	r.after = confirmTime + rand.N(2*confirmTime)
	return r
}

// spread wakes the streams that the news concern.
func (f *feed) spread(news fleet.AgentNews) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq, f.since = news.Seq, news.Now
	for _, engine := range news.Rows {
		for s := range f.streams[engine] {
			s.mark(func(d *due) { d.rows = true })
		}
	}
	asked := make(map[fleet.EngineName]bool, len(news.Syncs))
	for _, engine := range news.Syncs {
		asked[engine] = true
		for s := range f.streams[engine] {
			s.mark(func(d *due) { d.syncs = true })
		}
	}
	for engine, of := range f.streams {
		for s := range of {
			if s.asked && !asked[engine] {
				s.mark(func(d *due) { d.syncs = true })
			}
		}
	}
	f.renew(news.Changed)
}

// renew ends the streams whose declaration has changed since they were opened. f.mu is held.
func (f *feed) renew(changed []fleet.AgentChange) {
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
				s.leave(agent.Bye{Code: agent.CodeRenew,
					Message: "the agent's declaration has changed"})
			}
		}
	}
}

// dismiss ends the streams of identities that have ended. Why is asked for those that are connected
// here, and only for so long: they are cut whether or not there is an answer.
func (f *feed) dismiss(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		return
	}
	here := map[string]bool{}
	f.each(func(s *stream) { here[s.opening.Agent.ID] = true })
	within, cancel := context.WithTimeout(ctx, whyTime)
	defer cancel()
	for _, id := range ids {
		if !here[id] {
			continue
		}
		bye := agent.Bye{Code: agent.CodeRevoked, Message: "the identity was revoked; " + joinAgain}
		if _, err := f.store.Agent(within, id); err != nil {
			if r := ended(err); r != nil {
				bye = agent.Bye{Code: r.Code, Message: r.Detail + "; " + r.Next}
			}
		}
		f.end(id, bye)
	}
}

// lookAtSecrets finds the engines that need what was rotated. What cannot be asked now is asked at
// the next look.
func (f *feed) lookAtSecrets(ctx context.Context) {
	f.mu.Lock()
	turned := f.turned
	f.turned = nil
	idle := f.open == 0
	f.mu.Unlock()
	if idle {
		return // each stream reads the secrets as they are when it opens
	}
	for _, name := range turned {
		within, cancel := context.WithTimeout(ctx, lookTime)
		engines, err := f.store.CredentialEngines(within, name.tenant, name.name)
		cancel()
		if err != nil {
			f.log.WarnContext(ctx,
				"agents may not know yet that a secret has changed: the mirror cannot be read",
				"tenant", name.tenant, "secret", name.name, "error", err)
			f.mu.Lock()
			f.turned = append(f.turned, name)
			f.mu.Unlock()
			continue
		}
		f.mu.Lock()
		for _, engine := range engines {
			for s := range f.streams[engine] {
				s.mark(func(d *due) { d.secrets = append(d.secrets, name) })
			}
		}
		f.mu.Unlock()
	}
}

// newest is the mirror's newest number, at least as it stood when this was called if the cursor is
// above what the feed knows.
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
