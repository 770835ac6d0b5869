// Package onsite puts the agent together: what runs on a cluster that dials out. It is the control
// plane's own engine worker over the cluster's Argo CD, with its rows from the hub instead of the
// database. It decides nothing.
package onsite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
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

// Config is where and how an agent runs.
type Config struct {
	Hub             string // URL
	Namespace       string // of the agent itself: its Secret and its ConfigMap
	ArgoCDNamespace string
	CA              []byte   // PEM, trusted for the hub beside the system's authorities
	Proxy           *url.URL // nil: that of the environment
	MaxDeletions    int      // Applications deleted within an hour without an approval
	NoSecrets       bool     // leave the Secrets of Argo CD's namespace alone
	InFlight        int      // objects that are written at a time
	Cluster         *rest.Config
	Ops             string // host:port of /healthz, /readyz and /metrics; empty: none
	Version         string
	Log             *slog.Logger
}

// Agent is one process of an agent.
type Agent struct {
	c        Config
	log      *slog.Logger
	registry *prometheus.Registry
	kube     kubernetes.Interface
	keeper   *edge.IdentityStore
	client   *edge.Client
	follower *edge.Follower
	stops    *worker.StopBoard
	manager  *worker.Manager
	metrics  *worker.Metrics
	own      *own

	heard   chan struct{} // closed when the emergency stops were heard
	hearing sync.Once

	mu     sync.Mutex
	hello  agent.Hello           // of the last session
	read   bool                  // a complete snapshot was read
	target *edge.DeletionLimiter // that the worker writes to at present
}

// rowPoll is how often the worker looks at its rows when nothing wakes it. They are in memory.
const rowPoll = 5 * time.Second

// New prepares an agent. Nothing is sent.
func New(c Config) (*Agent, error) {
	kube, err := kubernetes.NewForConfig(c.Cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	a := &Agent{c: c, log: c.Log, registry: prometheus.NewRegistry(), kube: kube,
		keeper: edge.NewIdentityStore(edge.SecretStore(kube, c.Namespace, edge.Name)),
		stops:  worker.NewStopBoard(), heard: make(chan struct{})}
	a.client, err = edge.NewClient(edge.Settings{Hub: c.Hub, CA: c.CA, Proxy: c.Proxy,
		Version: c.Version, Log: c.Log}, a.keeper)
	if err != nil {
		return nil, err
	}
	a.metrics = worker.NewMetrics(a.registry)
	a.manager = worker.NewManager(a, rowPoll, c.Log, a.worker)
	a.follower = edge.NewFollower(edge.FollowerConfig{
		Client: a.client, Namespace: c.ArgoCDNamespace, Version: c.Version, Log: c.Log,
		Wake: a.wake, Rotated: a.manager.Rotated, Stopped: a.stopsHeard, Opened: a.opened,
		Held: a.held, Local: a.local,
	})
	a.own = newOwn(a)
	a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argosy_agent_report_waiting",
		Help: "Things that are still to be reported to the hub."},
		func() float64 { return float64(a.follower.Outbox.Waiting()) }))
	return a, nil
}

// Run works until ctx ends, or until somebody has to do something first: then the error is an
// *edge.TerminalError whose text says what. Writes under way are finished.
func (a *Agent) Run(ctx context.Context) error {
	defer a.client.Close()
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := a.serveOps(ctx, &all); err != nil {
		return err
	}
	if err := a.identify(ctx); err != nil {
		return err
	}
	all.Go(func() { a.followStops(ctx) })
	all.Go(func() { a.manager.Run(ctx) })
	all.Go(func() { a.own.run(ctx) })
	all.Go(func() { a.ready(ctx) })
	err := a.follower.Run(ctx)
	cancel(err)
	return err
}

// identifyEvery is how often it is looked again for what has to be there first.
const identifyEvery = 5 * time.Second

// identify waits until the cluster has an identity: until it has joined, or a registrationToken in
// the Secret could be swapped.
func (a *Agent) identify(ctx context.Context) error {
	said := ""
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
		case err.Error() != said:
			said = err.Error()
			a.log.Info("the agent waits", "for", said)
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
	return a.keeper.Ensure(ctx, a.c.Hub, a.client, uid, a.c.Version)
}

// stopsHeard takes that the hub has told of emergency stops.
func (a *Agent) stopsHeard() {
	a.hearing.Do(func() { close(a.heard) })
	a.stops.Wake()
}

// followStops keeps the board of emergency stops, which forbids everything until it was read:
// before the hub was heard there is nothing to read.
func (a *Agent) followStops(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-a.heard:
		a.stops.Run(ctx, edge.StopsOf(a.follower), a.log)
	}
}

// ready says when there is something to work from.
func (a *Agent) ready(ctx context.Context) {
	a.log.Info("the agent waits", "for",
		"the hub's first complete snapshot; until then nothing is written")
	if _, err := a.follower.Await(ctx); err != nil {
		return // Run says why
	}
	a.mu.Lock()
	a.read = true
	a.mu.Unlock()
	a.manager.Wake()
}

// wake has the worker and the own Applications looked at.
func (a *Agent) wake() {
	a.manager.Wake()
	a.own.wake()
}

// opened takes what the hub declares at present.
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

// lease is the session's: what is reported under another one is refused.
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

// spec is the local Argo CD: in the namespace that the agent was installed for, whatever the hub
// says.
func (a *Agent) spec(hello agent.Hello) fleet.EngineSpec {
	return fleet.EngineSpec{ArgoCD: fleet.ArgoCDInstance{Namespace: a.c.ArgoCDNamespace,
		InstallationID: hello.ArgoCD.InstallationID}, Connection: fleet.Connection{InCluster: true},
		DedicatedTo: hello.DedicatedTo}
}

func (a *Agent) worker(name fleet.EngineName, spec fleet.EngineSpec) worker.Config {
	return worker.Config{
		Engine: name, Spec: spec, Holder: "agent", Rows: a.follower, Leases: edge.LeasesOf(a.follower),
		Secrets: edge.CredentialsOf(a.follower), Stops: a.stops, Dial: a.dial,
		Metrics: a.metrics, Log: a.log, Poll: rowPoll, Flight: a.c.InFlight,
	}
}

// dial prepares the connection to the local Argo CD, behind the cluster's own limit on deletions.
func (a *Agent) dial(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec,
	stopped func(fleet.TenantName) bool) (engine.Engine, error) {
	inner, err := argocd.Connect(name, spec, a.c.Cluster, a.options(spec, stopped))
	if err != nil {
		return nil, err
	}
	limited := edge.NewDeletionLimiter(inner, edge.DeletionLimiterConfig{
		Ledger: edge.ConfigMapStore(a.kube, a.c.Namespace, edge.DeletionsName), MaxPerHour: a.c.MaxDeletions,
		Pending: a.follower.Deletions, Log: a.log})
	a.mu.Lock()
	a.target = limited
	a.mu.Unlock()
	return fitting{limited, a}, nil
}

// options are those of the connection. A hub of an earlier version does not tell whom the engine is
// dedicated to: then what lets its tenants reach each other is reported, and does not block.
func (a *Agent) options(spec fleet.EngineSpec, stopped func(fleet.TenantName) bool) argocd.Options {
	return argocd.Options{Stopped: stopped, InFlight: 2 * a.c.InFlight, Public: a.c.NoSecrets,
		Advise: spec.DedicatedTo == nil, NoParams: true}
}

// fitting is an engine whose preflight says nothing of how an autonomous cluster's people have set
// their Argo CD up: nothing is declared to be written there. What is left to be removed is refused
// all the same while it would do harm.
type fitting struct {
	engine.Engine
	a *Agent
}

// Preflight implements engine.Engine.
func (f fitting) Preflight(ctx context.Context) (engine.Report, error) {
	report, err := f.Engine.Preflight(ctx)
	if f.a.own.autonomous() {
		report.Findings = nil
	}
	return report, err
}

func (a *Agent) limited() *edge.DeletionLimiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.target
}

// held says why a deletion waits for the cluster's admin, if it does.
func (a *Agent) held(key fleet.ObjectKey) (string, bool) {
	if target := a.limited(); target != nil {
		return target.HeldReason(key)
	}
	return "", false
}

// local is what only the cluster knows.
func (a *Agent) local() edge.Local {
	target := a.limited()
	if target == nil {
		return edge.Local{}
	}
	local := edge.Local{Held: target.Held()}
	if target.Synced() {
		local.Inventory = target.Inventory()
	}
	return local
}
