package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
)

// Secrets finds the content of a credential.
type Secrets interface {
	Get(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error)
}

// Stops is the replica's view of the emergency stops; asking it costs no query.
type Stops interface {
	// Stopped answers, for one engine, whether writes for a tenant are forbidden. Before the stops
	// were read once everything is.
	Stopped(engine fleet.EngineName) func(fleet.TenantName) bool
	// On lists the stops that concern an engine.
	On(engine fleet.EngineName) []fleet.Stop
	// Ends are the latest ends of stops that concern an engine.
	Ends(engine fleet.EngineName) []fleet.StopEnd
	// Changed is closed when the stops differ from now.
	Changed() <-chan struct{}
}

// Limits bound what agents may cost one replica. What is 0 has the value given here.
type Limits struct {
	OpenRate int // sessions that are opened in a second; 100
	// access tokens that agents this replica does not know yet are given in a second; 200
	TokenRate int
	JoinRate  int           // joins that are tried in a second, whoever tries; 20
	Queue     time.Duration // that one may wait for its turn before it is sent away; 20s
	Reads     int           // reads of the store for streams and snapshots at a time; 16
	// other reads at a time for agents that are known, and as many for others; 32
	Asks      int
	Snapshots int // that are made at a time; 4

	Proxies []netip.Prefix // whose X-Forwarded-For says who asks
}

// Config is what a Hub is made of. Log, Metrics, Version, Now and Limits may be left out.
type Config struct {
	Store           Store
	Secrets         Secrets
	Stops           Stops
	PublicURL       string // under which agents know the hub: assertions are made for it
	Replica         string
	Version         string // of the hub
	LegacyTokenPath bool   // answer GET /api/v1/cluster/<token>/applications
	Limits          Limits
	Log             *slog.Logger
	Metrics         *Metrics
	// the hub's clock, by which proofs are judged; nil: the system's
	Now func() time.Time
}

// Hub answers agents. Run must run beside it for its streams to flow.
type Hub struct {
	store    Store
	secrets  Secrets
	stops    Stops
	audience string
	replica  string
	version  string
	legacy   bool
	log      *slog.Logger
	metrics  *Metrics
	now      func() time.Time

	feed      *feed
	seen      *seen
	openings  *admission
	tokens    *admission
	joins     *admission
	limits    Limits
	known     recent[known]
	tokensOf  *recent[*admission] // by address
	joinsOf   *recent[*admission] // likewise
	lookups   *admission
	lookupsOf *recent[*admission] // likewise
	accesses  recent[struct{}]    // access tokens of agents, as their sums
	asks      slots               // reads for who is not known yet
	knownAsks slots               // reads for agents that are
	reads     slots
	resolving slots
	snapshots slots
	reporting sync.Map // IDs of agents whose report is being taken
}

// New makes a Hub.
func New(c Config) (*Hub, error) {
	audience, err := agent.Audience(c.PublicURL)
	if err != nil {
		return nil, err
	}
	if c.Store == nil || c.Secrets == nil || c.Stops == nil || c.Replica == "" {
		return nil, errors.New("the hub needs a store, secrets, stops and the replica's name")
	}
	h := &Hub{store: c.Store, secrets: c.Secrets, stops: c.Stops, audience: audience,
		replica: c.Replica, version: c.Version, legacy: c.LegacyTokenPath,
		log: c.Log, metrics: c.Metrics, now: c.Now, resolving: make(slots, 8)}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.now == nil {
		h.now = time.Now
	}
	l := c.Limits.filled()
	h.feed = newFeed(c.Store, h.log, l.OpenRate)
	h.seen = newSeen(h.now)
	h.openings, h.tokens, h.joins = newAdmission(l.OpenRate, l.Queue),
		newAdmission(l.TokenRate, l.Queue), newAdmission(l.JoinRate, l.Queue)
	h.limits, h.known.size, h.accesses.size = l, maxKnown, maxKnown
	h.lookups, h.lookupsOf = newAdmission(askFactor*l.TokenRate, l.Queue), &recent[*admission]{
		size: maxAddresses}
	h.tokensOf, h.joinsOf = &recent[*admission]{size: maxAddresses}, &recent[*admission]{
		size: maxAddresses}
	h.reads, h.snapshots = make(slots, l.Reads), make(slots, l.Snapshots)
	h.asks, h.knownAsks = make(slots, l.Asks), make(slots, l.Asks)
	if h.metrics == nil {
		h.metrics = NewMetrics(nil)
	}
	h.metrics.watch(h.feed.connected, h.openings.waiting)
	return h, nil
}

func (l Limits) filled() Limits {
	fill := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	fill(&l.OpenRate, 100)
	fill(&l.TokenRate, 200)
	fill(&l.JoinRate, 20)
	fill(&l.Reads, 16)
	fill(&l.Asks, 32)
	fill(&l.Snapshots, 4)
	if l.Queue <= 0 {
		l.Queue = 20 * time.Second
	}
	return l
}

// Register adds the protocol's paths to a mux, and nothing else: what is switched off is not there.
// The handlers set their own deadlines; no middleware may bound the time or the size of their
// answers.
func (h *Hub) Register(mux *http.ServeMux) {
	post, get := http.MethodPost, http.MethodGet
	h.handle(mux, post, agent.PathJoin, h.join)
	h.handle(mux, post, agent.PathToken, h.token)
	h.handle(mux, post, agent.PathKeys, h.rotate)
	h.handle(mux, get, agent.PathSnapshot, h.snapshot)
	h.handle(mux, get, agent.PathStream, h.stream)
	h.handle(mux, post, agent.PathStatus, h.status)
	probe := agent.Probe()
	h.handle(mux, get, agent.PathProbe, func(w http.ResponseWriter, r *http.Request) error {
		probe.ServeHTTP(w, r)
		return nil
	})
	if h.legacy {
		mux.HandleFunc("GET "+legacyPath, h.applications)
	}
}

// handle answers exactly one method and path, in the form in which they are written here.
func (h *Hub) handle(mux *http.ServeMux, method, path string, serve func(http.ResponseWriter,
	*http.Request) error) {
	mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method || r.URL.EscapedPath() != path {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Date", h.now().UTC().Format(http.TimeFormat))
		if err := serve(w, r); err != nil {
			h.refuse(w, r, err)
		}
	})
}

// Run feeds the streams and says that the replica lives, until ctx ends; then the open streams end,
// and are told to come back elsewhere.
func (h *Hub) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { h.beat(ctx) })
	all.Go(func() { h.followStops(ctx) })
	h.feed.run(ctx)
	all.Wait()
}

// Wake says "look": rows, syncs or identities may have changed. It never blocks.
func (h *Hub) Wake() { h.feed.wake.Set() }

// Rotated says that a secret has changed. It never blocks, and none is forgotten.
func (h *Hub) Rotated(tenant fleet.TenantName, name string) {
	h.feed.rotate(secretName{tenant, name})
}

const (
	beatEvery = 10 * time.Second
	beatTime  = 8 * time.Second
)

// beat keeps the replica's row young. It costs the same however many agents are connected.
func (h *Hub) beat(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		within, done := context.WithTimeout(ctx, beatTime)
		if err := h.store.BeatReplica(within, h.replica); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx,
				"agents of this replica may be shown as not connected: its beat is not recorded",
				"error", err)
		}
		done()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// followStops tells the streams when the emergency stops have changed.
func (h *Hub) followStops(ctx context.Context) {
	for {
		changed := h.stops.Changed()
		h.feed.stopsChanged()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// slots bound how much is done at a time.
type slots chan struct{}

func (s slots) take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slots) free() { <-s }

// within does f when a slot is free.
func (s slots) within(ctx context.Context, f func() error) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.free()
	return f()
}
