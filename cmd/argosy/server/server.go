// Package server puts the control plane together from its settings: source, store, secrets, loop,
// workers, API. It decides nothing.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/hub"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/deliver"
	"argosy.dev/argosy/reconciler/fleetstats"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/promql"
	"argosy.dev/argosy/reconciler/pushes"
	"argosy.dev/argosy/reconciler/secrets"
	"argosy.dev/argosy/reconciler/tracing"
	"argosy.dev/argosy/reconciler/worker"
)

// Server is one replica of the control plane.
type Server struct {
	settings settings.Settings
	log      *slog.Logger
	version  string
	holder   string

	database *database
	store    *postgres.Store
	mirror   *gitrepo.Mirror
	secrets  *secrets.Resolver
	registry *prometheus.Registry

	loop    *reconciler.Loop
	manager *worker.Manager
	stops   *worker.StopBoard
	stats   *fleetstats.Collector
	sealer  *sealer
	api     *api.Server
	inspect *inspector
	pulls   *pulls // nil without a Git host
	pushes  *pushes.Runner
	sources http.Handler
	hub     *hub.Hub // nil when agents are switched off, or without a public URL

	listener, ops net.Listener
	tracing       *tracing.Exporter // nil: not configured
	probing       *probing
	back          *http.Server // answers the probes
	backEnded     chan error
}

// New opens everything and starts nothing but the answers to probes: a database that is not there
// yet is waited for. Close releases what Run has not.
func New(ctx context.Context, s settings.Settings, log *slog.Logger, version string) (_ *Server,
	err error) {
	v := &Server{settings: s, log: log, version: version, holder: holder(),
		registry: prometheus.NewRegistry(), probing: &probing{}}
	defer func() {
		if err != nil {
			v.Close()
		}
	}()
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("dataDir: %w", err)
	}
	if v.database, err = openDatabase(ctx, s.Database, log); err != nil {
		return nil, err
	}
	if err := v.listenOps(ctx); err != nil {
		return nil, err
	}
	if v.store, err = v.database.await(ctx, v.probing.waiting); err != nil {
		return nil, err
	}
	if v.mirror, err = openSource(ctx, s); err != nil {
		return nil, err
	}
	if v.secrets, err = openSecrets(s.Secrets, v.store.Plans.Sealed); err != nil {
		return nil, err
	}
	if err := v.assemble(); err != nil {
		return nil, err
	}
	full := v.probes()
	v.probing.full.Store(&full)
	return v, v.listen(ctx)
}

// holder names this replica in leases: the host, the process and when it started, so that a
// restarted one is another.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(os.Getpid()) + "/" + strconv.FormatInt(time.Now().UnixNano(),
		36)
}

func (v *Server) assemble() error {
	s := v.settings
	loopMetrics, workerMetrics := newMetrics(v.registry, v.version)
	v.stats = fleetstats.NewCollector(v.registry, v.store.Views, v.holder, v.log)
	connect := engines{secrets: v.secrets, inFlight: s.Engines.InFlight}
	v.stops = worker.NewStopBoard()
	registerStops(v.registry, v.stops)
	registerPools(v.registry, v.store.Pools)
	v.sealer = &sealer{store: v.store.Audit}
	registerAudit(v.registry, v.sealer)
	var err error
	if v.tracing, err = v.openTracing(s.Tracing, registerTraces(v.registry)); err != nil {
		return err
	}
	lister, err := newLister(s, v.secrets)
	if err != nil {
		return err
	}
	download, err := Downloader(s.Source.CAFile)
	if err != nil {
		return err
	}
	loop := reconciler.Config{
		Source: source{v.mirror, v.log}, Lister: lister, Decoder: decoder{},
		Renderer: argocd.Renderer{},
		Store:    v.store.Plans, Leases: v.store.Leases, Stops: v.store.Decisions,
		Engines: connect, Agents: v.store.Views, Unready: v.store.Views,
		Loads: v.store.Views,
		Rings: v.store.Plans, CheckManifests: instance.Check, Download: download.Files,
		RingProblem: instance.Problem,
		Prometheus:  promql.Client{Secret: v.secrets.Get},
		Pools:       v.store.Plans, Instances: connect,
		Notifier: reconciler.Notifier{Store: v.store.Notifications, Sender: &deliver.Sender{},
			Secret: v.secrets.Get, Public: s.Listen.Public,
			Count:   newNotificationCounter(v.registry),
			Commits: v.store.Notifications, Reporter: commitReporter{&deliver.Sender{}},
			CountCommit: newCommitCounter(v.registry)},
		Judge:  policy.New().Judge,
		Holder: v.holder, URL: v.mirror.Source(), Branch: s.Source.Branch,
		Poll: time.Duration(s.Source.Poll), Metrics: loopMetrics, Log: v.log,
	}
	if err := v.connectForge(&loop); err != nil {
		return err
	}
	v.loop = reconciler.NewLoop(loop)
	if err := errors.Join(v.assemblePulls(), v.assembleSources()); err != nil {
		return err
	}
	v.manager = worker.NewManager(v.store.Plans, time.Duration(s.Engines.Poll), v.log,
		func(name fleet.EngineName, spec fleet.EngineSpec) worker.Config {
			return worker.Config{
				Engine: name, Spec: spec, Holder: v.holder, Rows: v.store.Work,
				Reports: v.store.Work,
				Leases:  v.store.Leases,
				Secrets: v.secrets, Stops: v.stops, Dial: connect.dial,
				Metrics: workerMetrics, Log: v.log, Poll: time.Duration(s.Engines.Poll),
				Flight: s.Engines.InFlight,
			}
		})
	v.manager.Replicas, v.manager.Holder = v.store.Leases, v.holder
	v.inspect = newInspector(connect, v.manager.Spec, v.log)
	readers, plans := v.store.Readers().Views, v.store.Readers().Plans
	config := api.Config{
		Reader: api.Reader{Inventory: readers, History: readers, State: readers,
			PullReader: readers, AuditReader: readers, Finder: readers,
			Simulator: reconciler.NewSimulator(plans, readers, readers)},
		Inspector: v.inspect,
		Deciding:  v.store.Views, Decider: v.store.Decisions,
		Tokens: withBootstrap(v.store.Tokens, s.Bootstrap), Agents: v.agents(), Log: v.log,
		Sessions: v.store.Sessions, Lines: v.lineOf, Version: v.version, Hub: s.Listen.Public,
		Proposals: s.Forge != nil && s.Forge.Proposals}
	if err := v.signsIn(&config); err != nil {
		return err
	}
	v.api = api.New(config)
	return v.assembleAgents()
}

// front serves listen.address: the API and the page, the Git host's deliveries, and agents.
func (v *Server) front() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", v.api)
	if v.pulls != nil && v.pulls.receiver != nil {
		mux.Handle(hookPath, v.pulls.receiver)
	}
	if v.sources != nil {
		mux.Handle(sourcePath, v.sources)
		mux.Handle(sourcePath+"/{tenant}", v.sources)
	}
	v.mountAgents(mux)
	return mux
}

func (v *Server) listen(ctx context.Context) (err error) {
	var l net.ListenConfig
	if v.listener, err = l.Listen(ctx, "tcp", v.settings.Listen.Address); err != nil {
		return fmt.Errorf("listen.address: %w", err)
	}
	return nil
}

// listenOps answers the probes from now on.
func (v *Server) listenOps(ctx context.Context) (err error) {
	var l net.ListenConfig
	if v.ops, err = l.Listen(ctx, "tcp", v.settings.Listen.Ops); err != nil {
		return fmt.Errorf("listen.ops: %w", err)
	}
	v.back, v.backEnded = api.HTTP(v.probing, v.log), make(chan error, 1)
	go func(s *http.Server, l net.Listener, ended chan<- error) { ended <- s.Serve(l) }(v.back,
		v.ops, v.backEnded)
	return nil
}

// Address is where the API answers.
func (v *Server) Address() string { return v.listener.Addr().String() }

// Run works until ctx ends and everything under way has ended with it: writes are finished, leases
// are given up.
func (v *Server) Run(ctx context.Context) error {
	defer v.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, part := range []func(context.Context){
		v.loop.Run, v.manager.Run, v.api.Run, v.runAgents, v.review, v.handlePushes,
		v.wakes, v.prune,
		v.endRevisions, v.seal, v.exportTraces,
		v.stats.Run, v.keepUses,
		func(ctx context.Context) { v.stops.Run(ctx, v.store.Decisions, v.log) },
		func(ctx context.Context) { v.secrets.Watch(ctx, v.rotated) },
	} {
		all.Go(func() { part(ctx) })
	}
	front, back := api.HTTP(v.front(), v.log), v.back
	hub.Detect(front)
	ends := func(err error) {
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			cancel(err)
		}
	}
	all.Go(func() { ends(v.serve(front, v.listener)) })
	all.Go(func() { ends(<-v.backEnded) })
	v.log.Info("argosy serves", "api", v.Address(), "ops", v.ops.Addr().String(), "source",
		v.mirror.Source(), "version", v.version)
	<-ctx.Done()
	v.log.Info("argosy stops")
	down, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	err := errors.Join(front.Shutdown(down), back.Shutdown(down))
	all.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (v *Server) serve(s *http.Server, l net.Listener) error {
	if c := v.settings.Listen; c.CertFile != "" && l == v.listener {
		s.TLSConfig = reloadingTLS(c.CertFile, c.KeyFile)
		return s.ServeTLS(l, "", "")
	}
	return s.Serve(l)
}

// wakes forwards the store's notifications.
func (v *Server) wakes(ctx context.Context) {
	v.store.Listen(ctx, func(by string) {
		if lease, ok := strings.CutPrefix(by, postgres.Released); ok {
			v.loop.Released(lease)
			v.manager.Released(lease)
			return
		}
		if e, ok := mirror.Inspect(by); ok {
			if v.hub != nil {
				v.hub.Inspect(e)
			}
			return // the hub alone relays reads
		}
		if replica, id, ok := mirror.Answered(by); ok {
			if v.hub != nil {
				v.hub.Answered(replica, id)
			}
			return
		}
		if by == mirror.NoticeSourcePush {
			v.pushes.Wake()
			return
		}
		if engines, ok := mirror.Actions(by); ok {
			v.act(engines)
			return
		}
		v.loop.Notified(by)
		if _, pushed := mirror.Pushed(by); pushed {
			return // the loop alone reads the branch
		}
		if _, _, _, moved := mirror.Moved(by); moved {
			return // and the repositories of sets
		}
		if steps, stepped := mirror.MoveStepped(by); stepped {
			v.manager.Stepped(steps)
			v.api.Wake()
			if v.hub != nil {
				v.hub.Wake()
			}
			return
		}
		_, engines, recorded := mirror.Recorded(by)
		if v.pulls != nil && (recorded || by == "") {
			v.pulls.reviewer.Wake()
		}
		if by == "" {
			v.pushes.Wake()
		}
		switch {
		case recorded && engines != nil:
			v.manager.WakeEngines(engines)
		case by != mirror.NoticeAgents:
			v.stops.Wake()
			v.manager.Wake()
		}
		v.api.Wake()
		if v.hub != nil {
			v.hub.Wake()
		}
	})
}

// act wakes what carries out actions on the Applications of these engines; none: any.
func (v *Server) act(engines []fleet.EngineName) {
	if len(engines) == 0 {
		v.manager.Wake()
	} else {
		v.manager.WakeEngines(engines)
	}
	v.api.Wake()
	if v.hub != nil {
		v.hub.Wake()
	}
}

// endRevisions ends revisions that neither their last acknowledgement nor their record ended, as
// after a connection that was lost in between.
func (v *Server) endRevisions(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		if err := v.store.Plans.CompleteRevisions(ctx); err != nil && ctx.Err() == nil {
			v.log.Warn("failed to end applied revisions; trying again in ten seconds", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// prune deletes history older than the settings allow. Replicas may run it at the same time.
func (v *Server) prune(ctx context.Context) {
	days := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
	r := v.settings.Retention
	keep := postgres.Retention{Events: days(r.Events), Operations: days(r.Operations),
		Revisions: days(r.Revisions), Pulls: days(r.Pulls), Audit: days(r.Audit)}
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if _, err := v.store.Prune(ctx, keep); err != nil && ctx.Err() == nil {
			v.log.Warn("failed to drop old history; trying again in an hour", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close releases everything. It may be called more than once.
func (v *Server) Close() {
	if v.back != nil {
		_ = v.back.Close() // shut down before, or about to end with the process
	}
	for _, l := range []net.Listener{v.listener, v.ops} {
		if l != nil {
			_ = l.Close() // closed before, or about to end with the process
		}
	}
	if v.mirror != nil {
		if err := v.mirror.Close(); err != nil {
			v.log.Warn("the mirror of the config repo was not closed", "error", err)
		}
		v.mirror = nil
	}
	if v.store != nil {
		v.store.Close()
		v.store = nil
	}
	if v.database != nil {
		v.database.close()
		v.database = nil
	}
}

func trim(b []byte) string { return strings.TrimSpace(string(b)) }
