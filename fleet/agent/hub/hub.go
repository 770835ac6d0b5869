package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// Secrets resolves the content of a credential.
type Secrets interface {
	Get(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error)
}

// Stops is the replica's view of the emergency stops. It runs no query.
type Stops interface {
	// Stopped returns whether writes for a tenant are forbidden on an engine. Everything is stopped
	// until the stops have been read once.
	Stopped(engine fleet.EngineName) func(fleet.TenantName) bool
	// On lists the stops that apply to an engine.
	On(engine fleet.EngineName) []mirror.Stop
	// Ends lists the latest ends of stops that applied to an engine.
	Ends(engine fleet.EngineName) []mirror.StopEnd
	// Changed returns a channel that is closed at the next change of the stops.
	Changed() <-chan struct{}
}

// Limits bounds what agents may cost one replica. A zero field takes the default named here.
type Limits struct {
	OpenRate int // sessions opened per second; 100
	// access tokens granted per second to agents that are new to this replica; 200
	TokenRate int
	JoinRate  int           // joins attempted per second, by all clients; 20
	Queue     time.Duration // maximum wait for a slot; 20s
	Reads     int           // concurrent reads of the store for streams and snapshots; 16
	// other concurrent reads for known agents, and as many for other clients; 32
	Asks      int
	Snapshots int // concurrent snapshots; 4

	Proxies []netip.Prefix // proxies whose X-Forwarded-For is trusted
}

// Config configures a Hub. Log, Metrics, Version, Now and Limits are optional.
type Config struct {
	Store           Store
	Secrets         Secrets
	Stops           Stops
	PublicURL       string // the audience of the agents' assertions
	Replica         string
	Version         string // of the hub
	LegacyTokenPath bool   // serve GET /api/v1/cluster/<token>/applications
	Limits          Limits
	Log             *slog.Logger
	Metrics         *Metrics
	// the hub's clock, which verifies proofs; nil: the system's
	Now func() time.Time
}

// Hub serves agents. Run must run too, or its streams send nothing.
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
	proofs    *replayCache
	admission *admission
	reads     semaphore
	resolving semaphore
	snapshots semaphore
	reporting sync.Map // IDs of agents whose report is being processed
	inspector *Inspector
}

// New returns a Hub.
func New(c Config) (*Hub, error) {
	audience, err := agent.Audience(c.PublicURL)
	if err != nil {
		return nil, err
	}
	if !c.Store.complete() || c.Secrets == nil || c.Stops == nil || c.Replica == "" {
		return nil, errors.New("the hub needs a store, secrets, stops and the replica's name")
	}
	h := &Hub{store: c.Store, secrets: c.Secrets, stops: c.Stops, audience: audience,
		replica: c.Replica, version: c.Version, legacy: c.LegacyTokenPath,
		log: c.Log, metrics: c.Metrics, now: c.Now, resolving: make(semaphore, 8)}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.now == nil {
		h.now = time.Now
	}
	l := c.Limits.filled()
	h.inspector = newInspector(h)
	h.feed = newFeed(c.Store, h.log, l.OpenRate)
	h.proofs = newReplayCache(h.now)
	h.admission = newAdmission(l, audience, h.now)
	h.reads, h.snapshots = make(semaphore, l.Reads), make(semaphore, l.Snapshots)
	if h.metrics == nil {
		h.metrics = NewMetrics(nil)
	}
	h.metrics.watch(h.feed.connected, h.admission.openings.waiting)
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

// Register adds the protocol's paths to a mux; a disabled path is not added. The handlers set their
// own deadlines: no middleware may bound the time or the size of their responses.
func (h *Hub) Register(mux *http.ServeMux) {
	post, get := http.MethodPost, http.MethodGet
	h.handle(mux, post, agent.PathJoin, h.join)
	h.handle(mux, post, agent.PathToken, h.token)
	h.handle(mux, post, agent.PathKeys, h.rotate)
	h.handle(mux, get, agent.PathSnapshot, h.snapshot)
	h.handle(mux, get, agent.PathStream, h.stream)
	h.handle(mux, post, agent.PathStatus, h.status)
	h.handle(mux, post, agent.PathManifests, h.manifests)
	h.handle(mux, post, agent.PathComparisons, h.comparisons)
	h.handle(mux, post, agent.PathInspections, h.inspections)
	probe := agent.Probe()
	h.handle(mux, get, agent.PathProbe, func(w http.ResponseWriter, r *http.Request) error {
		probe.ServeHTTP(w, r)
		return nil
	})
	if h.legacy {
		mux.HandleFunc("GET "+legacyPath, h.applications)
	}
}

// handle serves exactly one method and one literal path.
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

// Run feeds the streams and records the replica's heartbeat until ctx ends. Then it ends the
// streams and lets their agents reconnect to another replica.
func (h *Hub) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { h.heartbeat(ctx) })
	all.Go(func() { h.followStops(ctx) })
	h.feed.run(ctx)
	all.Wait()
}

// Wake triggers a poll: rows, syncs or identities may have changed. It never blocks.
func (h *Hub) Wake() { h.feed.wake.Set() }

// Rotated records that a secret has changed. It never blocks, and loses none.
func (h *Hub) Rotated(tenant fleet.TenantName, name string) {
	h.feed.rotate(secretName{tenant, name})
}

const (
	heartbeatInterval = 10 * time.Second
	heartbeatTimeout  = 8 * time.Second
)

// heartbeat refreshes the replica's row. Its cost does not depend on the number of agents.
func (h *Hub) heartbeat(ctx context.Context) {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		within, done := context.WithTimeout(ctx, heartbeatTimeout)
		if err := h.store.BeatReplica(within, h.replica); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx,
				"failed to record the replica's heartbeat: its agents may be shown as disconnected",
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

// followStops wakes the streams when the emergency stops change.
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

// Metrics are the hub's Prometheus metrics. Their labels have fixed values: no agent, engine or
// tenant.
type Metrics struct {
	reg      prometheus.Registerer
	rows     prometheus.Counter
	reports  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	opened   prometheus.Counter
	polls    *prometheus.CounterVec
}

// NewMetrics registers the hub's metrics; nil registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		reg: reg,
		rows: prometheus.NewCounter(prometheus.CounterOpts{Name: "argosy_agent_rows_total",
			Help: "Rows sent to agents, on streams and in snapshots."}),
		opened: prometheus.NewCounter(prometheus.CounterOpts{Name: "argosy_agent_streams_total",
			Help: "Streams opened by agents."}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argosy_agent_reports_total",
			Help: "Reports of agents, by result: taken, replayed, superseded, failed."},
			[]string{"result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argosy_agent_refusals_total",
			Help: "Refused requests of agents, by code."}, []string{"code"}),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "argosy_agent_looks_total",
			Help: "Polls of the mirror for the agents of this replica, by result: ok, failed."},
			[]string{"result"}),
	}
	if reg != nil {
		reg.MustRegister(m.rows, m.opened, m.reports, m.refusals, m.polls)
	}
	return m
}

// watch registers the gauges that are read at each scrape.
func (m *Metrics) watch(connected, waiting func() int) {
	if m.reg == nil {
		return
	}
	gauge := func(name, help string, read func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(read()) })
	}
	m.reg.MustRegister(
		gauge("argosy_agent_connected", "Open streams of agents on this replica.",
			connected),
		gauge("argosy_agent_openings_waiting",
			"Agents that wait to open a session on this replica.", waiting))
}

func (m *Metrics) refused(code string) { m.refusals.WithLabelValues(code).Inc() }
