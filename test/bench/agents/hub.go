package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/fleet/agent/hub"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/secrets"
	"argosy.dev/argosy/reconciler/worker"
)

// hubConfig is what the process of a hub is started with.
type hubConfig struct {
	Database  string
	Public    string // URL by which agents know it
	Address   string // where it answers them
	Control   string // address of its metrics and statements
	Cert, Key string // files
	OpenRate  int    // 0: as shipped
	TokenRate int
}

// runHub is the process of a hub.
func runHub(file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c hubConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	count := &statements{of: map[string]int{}}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := postgres.Open(ctx, c.Database, postgres.Options{Log: log, Tracer: count})
	if err != nil {
		return err
	}
	defer store.Close()
	stops, registry := worker.NewStopBoard(), prometheus.NewRegistry()
	h, err := hub.New(hub.Config{Secrets: &secrets.Resolver{}, Stops: stops,
		Store: hub.Store{Identities: store.Agents, Sessions: store.Agents, Rows: store.Agents,
			Changes: store.Agents, Reports: struct {
				*postgres.Agents
				*postgres.Work
			}{store.Agents, store.Work}, Inspections: store.Inspections()},
		PublicURL: c.Public, Replica: "bench/" + strconv.Itoa(os.Getpid()),
		Version: "bench", Limits: hub.Limits{OpenRate: c.OpenRate, TokenRate: c.TokenRate},
		Log: log, Metrics: hub.NewMetrics(registry)})
	if err != nil {
		return err
	}
	return serve(ctx, c, h, log, serveMeasurements(registry, count),
		func(ctx context.Context) { stops.Run(ctx, store.Decisions, log) }, h.Run,
		func(ctx context.Context) { store.Listen(ctx, func(string) { stops.Wake(); h.Wake() }) })
}

// serve answers agents as `argosy serve` does with listen.certFile, until ctx ends.
func serve(ctx context.Context, c hubConfig, h *hub.Hub, log *slog.Logger, control http.Handler,
	parts ...func(context.Context)) error {
	mux := http.NewServeMux()
	h.Register(mux)
	front, back := api.HTTP(mux, log), &http.Server{
		Handler: control, ReadHeaderTimeout: time.Second}
	front.Addr, back.Addr = c.Address, c.Control
	hub.Detect(front)
	var all sync.WaitGroup
	ended := make(chan error, 2)
	for _, part := range parts {
		all.Go(func() { part(ctx) })
	}
	all.Go(func() { ended <- front.ListenAndServeTLS(c.Cert, c.Key) })
	all.Go(func() { ended <- back.ListenAndServe() })
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	err = errors.Join(err, front.Close(), back.Close())
	all.Wait()
	return err
}

// serveMeasurements serves the measurements: metrics, statements by text, a full garbage
// collection, and profiles.
func serveMeasurements(registry *prometheus.Registry, count *statements) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	// the client notices
	mux.HandleFunc("/statements", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(count.all())
	})
	mux.HandleFunc("/gc", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC() // objects with a finalizer are freed by the second
		runtime.GC()
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprintf(w, "heap %d\nstacks %d\ngoroutines %d\n", m.HeapInuse, m.StackInuse,
			runtime.NumGoroutine())
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	return mux
}

// statements counts statements to the database by text.
type statements struct {
	mu sync.Mutex
	of map[string]int
}

func (s *statements) count(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[sql]++
}

func (s *statements) all() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.of)
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	data pgx.TraceQueryStartData) context.Context {
	s.count(data.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (*statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.count(data.SQL)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
