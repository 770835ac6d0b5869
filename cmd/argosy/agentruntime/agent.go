// Package agentruntime runs an agent, which dials out from a cluster. It is the control plane's own
// engine worker over the cluster's Argo CD, with rows from the hub instead of the database. It
// decides nothing.
package agentruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/worker"
)

// Config is the place and the settings of an agent.
type Config struct {
	Hub             string // URL
	Namespace       string // of the agent itself: its Secret and its ConfigMap
	ArgoCDNamespace string
	// further namespaces with Applications that the cluster's admin allows
	ApplicationNamespaces []string

	CA           []byte   // PEM, trusted for the hub in addition to the system's authorities
	Proxy        *url.URL // nil: the environment's
	MaxDeletions int      // Applications deleted within an hour without an approval
	NoSecrets    bool     // keep off the Secrets of Argo CD's namespace
	// Reads lets people see the resources of Applications, and ReadNamespaces those namespaces of
	// workloads whose Pods, logs and events they see too (ADR 0085).
	Reads          bool
	ReadNamespaces []string
	// Restarts lets people restart the workloads in ReadNamespaces (ADR 0096).
	Restarts bool
	// SelfUpgrade lets the agent change the image of its own Deployment, whose Pods work one after
	// the other (ADR 0075).
	SelfUpgrade bool
	Upgrade     string // that has brought the image of this process, see EnvUpgrade; or ""
	// SessionWithin is the time for the first session after an upgrade; default SessionWithin.
	SessionWithin time.Duration
	InFlight      int // parallel writes
	Cluster       *rest.Config
	Ops           string // host:port of /healthz, /readyz and /metrics; empty: none
	Version       string
	Log           *slog.Logger
}

// Agent is one process of an agent.
type Agent struct {
	c          Config
	log        *slog.Logger
	registry   *prometheus.Registry
	kube       kubernetes.Interface
	identities *edge.IdentityStore
	client     *edge.Client
	follower   *edge.Follower
	stops      *worker.StopBoard
	manager    *worker.Manager
	metrics    *worker.Metrics
	own        *own
	inspector  *inspector

	stopsKnown chan struct{} // closed when the hub has sent the emergency stops
	stopsOnce  sync.Once

	mu      sync.Mutex
	hello   agent.Hello           // of the last session
	read    bool                  // a complete snapshot was read
	target  *edge.DeletionLimiter // the worker's present target
	hold    *edge.Hold            // as last read; nil: it never was
	proven  bool                  // the control plane has accepted this process
	elected bool                  // it has the Lease: the process before it has ended
}

// rowPoll is how often the worker reads its rows, which are in memory, when nothing wakes it.
const rowPoll = 5 * time.Second

// New prepares an agent. It sends nothing.
func New(c Config) (*Agent, error) {
	kube, err := kubernetes.NewForConfig(c.Cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	a := &Agent{c: c, log: c.Log, registry: prometheus.NewRegistry(), kube: kube,
		identities: edge.NewIdentityStore(edge.SecretStore(kube, c.Namespace, edge.Name)),
		stops:      worker.NewStopBoard(), stopsKnown: make(chan struct{})}
	a.client, err = edge.NewClient(edge.Settings{Hub: c.Hub, CA: c.CA, Proxy: c.Proxy,
		Version: c.Version, Log: c.Log}, a.identities)
	if err != nil {
		return nil, err
	}
	a.metrics = worker.NewMetrics(a.registry)
	a.inspector = &inspector{a: a}
	a.manager = worker.NewManager(a, rowPoll, c.Log, a.worker)
	a.follower = edge.NewFollower(edge.FollowerConfig{
		Client: a.client, Namespace: c.ArgoCDNamespace,
		ApplicationNamespaces: c.ApplicationNamespaces, Version: c.Version, Log: c.Log,
		Wake: a.wake, Stepped: a.manager.Stepped, Rotated: a.manager.Rotated,
		Stopped: a.stopsReceived, Opened: a.opened, Held: a.held, Local: a.local,
		Inspector: a.inspector,
	})
	if c.SelfUpgrade {
		a.follower.Upgrader = a.upgrade
		a.c.SessionWithin = cmp.Or(c.SessionWithin, SessionWithin)
	} else {
		a.c.Upgrade = ""
	}
	a.stops.Hold(true) // until it is known that the cluster's admin does not hold the agent
	a.own = newOwn(a)
	a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argosy_agent_report_waiting",
		Help: "Things that are still to be reported to the hub."},
		func() float64 { return float64(a.follower.Outbox.Waiting()) }))
	return a, nil
}

// Run works until ctx ends, or until a person must act first: then the error is an
// *edge.TerminalError whose text names the action. Run finishes writes under way.
func (a *Agent) Run(ctx context.Context) error {
	defer a.client.Close()
	defer a.inspector.close()
	release := func() {} // lets the next process begin, after this one has ended
	defer func() { release() }()
	defer a.tryLast(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := a.serveOps(ctx, &all); err != nil {
		return err
	}
	all.Go(func() { a.try(ctx) })
	if err := a.identify(ctx); err != nil {
		return err
	}
	if a.c.SelfUpgrade {
		var err error
		if release, err = a.await(ctx, cancel); err != nil {
			release = func() {}
			return err
		}
		a.mu.Lock()
		a.elected = true
		a.mu.Unlock()
		if err := a.identify(ctx); err != nil { // the process before may have changed the keys
			return err
		}
	}
	all.Go(func() { a.followHold(ctx) })
	all.Go(func() { a.followStops(ctx) })
	all.Go(func() { a.manager.Run(ctx) })
	all.Go(func() { a.own.run(ctx) })
	all.Go(func() { a.ready(ctx) })
	err := a.follower.Run(ctx)
	cancel(err)
	return err
}

// identifyEvery is the pause before identify tries again.
const identifyEvery = 5 * time.Second

// identify waits until the cluster has an identity: until it has joined, or a registrationToken in
// the Secret could be exchanged.
func (a *Agent) identify(ctx context.Context) error {
	logged := ""
	for {
		id, err := a.ensure(ctx)
		var ended *edge.TerminalError
		switch {
		case err == nil:
			a.log.Info("this agent is known", "engine", id.Engine, "id", id.Agent, "hub", id.Hub)
			return nil
		case errors.As(err, &ended):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err.Error() != logged:
			logged = err.Error()
			a.log.Info("the agent waits", "for", logged)
		}
		if !pacing.Sleep(ctx, identifyEvery) {
			return context.Cause(ctx)
		}
	}
}

func (a *Agent) ensure(ctx context.Context) (edge.Identity, error) {
	uid, err := edge.ClusterUID(ctx, a.kube)
	if err != nil {
		return edge.Identity{}, err
	}
	return a.identities.Ensure(ctx, a.c.Hub, a.client, uid, a.c.Version)
}

// stopsReceived handles emergency stops from the hub.
func (a *Agent) stopsReceived() {
	a.stopsOnce.Do(func() { close(a.stopsKnown) })
	a.stops.Wake()
}

// followStops refreshes the board of emergency stops, which forbids every write until its first
// read. It begins when the hub has sent the stops.
func (a *Agent) followStops(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-a.stopsKnown:
		a.stops.Run(ctx, edge.StopsOf(a.follower), a.log)
	}
}

// holdPoll is how often the agent reads whether the cluster's admin holds its writes.
const holdPoll = 3 * time.Second

// followHold obeys the holds of the cluster's admin. Nothing is written before the first read. If a
// later read fails, the last known hold stays in force until its end.
func (a *Agent) followHold(ctx context.Context) {
	store := edge.ConfigMapStore(a.kube, a.c.Namespace, edge.DeletionsName)
	failing, shown := false, ""
	for {
		h, err := edge.ReadHold(ctx, store)
		switch {
		case err == nil:
			a.mu.Lock()
			a.hold = &h
			a.mu.Unlock()
		case ctx.Err() != nil:
			return
		case !failing:
			a.log.Warn("failed to read whether the cluster's admin holds the agent", "error", err)
		}
		failing = err != nil
		why, held := a.heldByAdmin()
		a.stops.Hold(held)
		if why != shown {
			shown = why
			a.follower.ReportLocal()
			a.log.Info("the hold of the cluster's admin has changed", "now",
				cmp.Or(why, "there is none"))
		}
		if !pacing.Sleep(ctx, holdPoll) {
			return
		}
	}
}

// heldByAdmin reports whether the cluster's admin forbids every write, and why.
func (a *Agent) heldByAdmin() (why string, held bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.hold == nil:
		return "", true // unknown
	case a.hold.Active(time.Now()):
		return a.hold.String(), true
	}
	return "", false
}

// ready waits for the first complete snapshot and starts the worker then.
func (a *Agent) ready(ctx context.Context) {
	a.log.Info("the agent waits", "for",
		"the hub's first complete snapshot; until then nothing is written")
	if _, err := a.follower.Await(ctx); err != nil {
		return // Run returns the reason
	}
	a.mu.Lock()
	a.read = true
	a.mu.Unlock()
	a.manager.Wake()
}

// wake makes the worker read its rows, and own check its Applications.
func (a *Agent) wake() {
	a.manager.Wake()
	a.own.wake()
}

// opened handles the hello of a new session.
func (a *Agent) opened(hello agent.Hello) {
	a.mu.Lock()
	a.hello = hello
	a.mu.Unlock()
	a.manager.Wake()
	a.own.opened()
}

// declared is the last hello, and whether the rows were read.
func (a *Agent) declared() (agent.Hello, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hello, a.read && a.hello.Engine != ""
}

// lease is the session's lease. The hub refuses reports under another one.
func (a *Agent) lease() mirror.Lease {
	hello, _ := a.declared()
	return mirror.Lease{Name: "engine/" + string(hello.Engine), Holder: hello.Holder,
		Epoch: hello.Epoch}
}

// EngineSpecs is the agent's one engine, once its rows are known. It implements
// worker.EngineLister.
func (a *Agent) EngineSpecs(context.Context) (map[fleet.EngineName]fleet.EngineSpec, error) {
	hello, ok := a.declared()
	if !ok {
		return nil, nil
	}
	return map[fleet.EngineName]fleet.EngineSpec{hello.Engine: a.spec(hello)}, nil
}

// spec is the local Argo CD in the namespace that the agent was installed for, independent of the
// hub, with those of the declared namespaces that the cluster's admin allows.
func (a *Agent) spec(hello agent.Hello) fleet.EngineSpec {
	given, _ := a.namespaces(hello)
	return fleet.EngineSpec{ArgoCD: fleet.ArgoCDInstance{Namespace: a.c.ArgoCDNamespace,
		InstallationID: hello.ArgoCD.InstallationID, Managed: hello.ArgoCD.Managed,
		Size: hello.ArgoCD.Size},
		Connection:  fleet.Connection{InCluster: true},
		DedicatedTo: hello.DedicatedTo, ApplicationNamespaces: given,
		Metrics: hello.Metrics.ThroughAPIServer()}
}

// namespaces divides the declared namespaces with Applications into those that the cluster's admin
// allows, and the names of the others.
func (a *Agent) namespaces(hello agent.Hello) (given []fleet.ApplicationNamespace,
	refused []string) {
	for _, n := range hello.ApplicationNamespaces {
		if slices.Contains(a.c.ApplicationNamespaces, n.Namespace) {
			given = append(given, n)
		} else {
			refused = append(refused, n.Namespace)
		}
	}
	return given, refused
}

var (
	_ worker.Moves     = (*edge.Follower)(nil)
	_ worker.Instances = (*edge.Follower)(nil)
	_ worker.Shadows   = (*edge.Follower)(nil)
)

func (a *Agent) worker(name fleet.EngineName, spec fleet.EngineSpec) worker.Config {
	return worker.Config{
		Engine: name, Spec: spec, Holder: "agent", Rows: a.follower, Reports: a.follower,
		Leases: edge.LeasesOf(a.follower), Secrets: edge.CredentialsOf(a.follower), Stops: a.stops,
		Dial:    a.dial,
		Metrics: a.metrics, Log: a.log, Poll: rowPoll, Flight: a.c.InFlight,
	}
}

// dial connects to the local Argo CD, behind the cluster's own limit on deletions.
func (a *Agent) dial(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec,
	stopped func(fleet.TenantName) bool) (engine.Engine, error) {
	inner, err := argocd.Connect(name, spec, a.c.Cluster, a.options(spec, stopped))
	if err != nil {
		return nil, err
	}
	limited := edge.NewDeletionLimiter(inner, edge.DeletionLimiterConfig{
		Ledger:     edge.ConfigMapStore(a.kube, a.c.Namespace, edge.DeletionsName),
		MaxPerHour: a.c.MaxDeletions,
		Pending:    a.follower.Deletions, Log: a.log})
	a.mu.Lock()
	a.target = limited
	a.mu.Unlock()
	return fitting{limited, a}, nil
}

// options are the options of the connection. A hub of an earlier version does not send the tenants
// that the engine is dedicated to: then a weak isolation between tenants is reported and does not
// block.
func (a *Agent) options(spec fleet.EngineSpec, stopped func(fleet.TenantName) bool) argocd.Options {
	restarts := ""
	if !a.c.Restarts {
		restarts = "the admin of its cluster does not let the agent restart workloads; they set " +
			"argocd.restarts of the chart argosy-agent (--restarts)"
	}
	return argocd.Options{Stopped: stopped, InFlight: 2 * a.c.InFlight, Public: a.c.NoSecrets,
		Advise: spec.DedicatedTo == nil, NoParams: true, Shadows: true,
		Inspects: a.c.Reads, NoRestarts: restarts}
}

// fitting drops the findings about the Argo CD of an autonomous cluster, whose people set it up: no
// row is written there. The engine still refuses a harmful deletion of earlier rows. It adds the
// declared namespaces that the cluster's admin does not allow, and an upgrade that the agent may
// not make.
type fitting struct {
	engine.Engine
	a *Agent
}

// Unwrap returns the engine with all findings.
func (f fitting) Unwrap() engine.Engine { return f.Engine }

// Preflight implements engine.Engine.
func (f fitting) Preflight(ctx context.Context) (engine.Report, error) {
	report, err := f.Engine.Preflight(ctx)
	if f.a.own.autonomous() {
		report.Findings = nil
	}
	hello, _ := f.a.declared()
	if _, refused := f.a.namespaces(hello); len(refused) > 0 {
		report.Findings = append(report.Findings, engine.Finding{Code: "application-namespace",
			Message: "the agent's settings do not allow the declared applicationNamespaces " +
				strings.Join(refused, ", ") + ", whose Applications keep their last good state",
			Fix: "the admin of the cluster adds them to argocd.applicationNamespaces of the " +
				"chart argosy-agent (--application-namespaces), or remove them from the " +
				"declaration"})
	}
	if finding, ok := f.a.upgradeFinding(ctx); ok {
		report.Findings = append(report.Findings, finding)
	}
	return report, err
}

func (a *Agent) limited() *edge.DeletionLimiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.target
}

// held explains why a deletion waits for the cluster's admin, if it does.
func (a *Agent) held(key fleet.ObjectKey) (string, bool) {
	if target := a.limited(); target != nil {
		return target.HeldReason(key)
	}
	return "", false
}

// local is the state that only the cluster knows.
func (a *Agent) local() edge.Local {
	var local edge.Local
	local.Hold, _ = a.heldByAdmin()
	target := a.limited()
	if target == nil {
		return local
	}
	local.Held = target.Held()
	if target.Synced() {
		local.Inventory = target.Inventory()
	}
	return local
}
