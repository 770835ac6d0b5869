package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/postgres"
)

// The replica runs in a process of its own, so that its CPU time is its own.

const (
	emptyPath    = "/bench/empty"    // the floor of a page
	countersPath = "/bench/counters" // counters as JSON
	selectPath   = "/bench/select"   // the floor of a read: one SELECT 1
)

// counters are the costs of the replica so far.
type counters struct {
	Statements int64         `json:"statements"`
	CPU        time.Duration `json:"cpu"`
}

// statements counts what the store sends.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	s.n.Add(1)
}

func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// serve runs a replica of the API and the page over the database, until its standard input ends. It
// prints its address.
func serve(ctx context.Context, database string, treeOf fleet.ApplicationID, nodes int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	count := &statements{}
	store, err := postgres.Open(ctx, database, postgres.Options{Tracer: count})
	if err != nil {
		return err
	}
	defer store.Close()
	readers := store.Readers()
	server := api.New(api.Config{
		Reader: api.Reader{Inventory: readers.Views, History: readers.Views, State: readers.Views,
			PullReader: readers.Views, Finder: readers.Views, AuditReader: readers.Views,
			Simulator: reconciler.NewSimulator(readers.Plans, readers.Views, readers.Views)},
		Deciding: store.Views, Decider: store.Decisions, Tokens: store.Tokens,
		Inspector: apitest.NewInspector(map[fleet.ApplicationID]apitest.Resources{
			treeOf: {Tree: treeOfNodes(nodes)}}),
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	go server.Run(ctx)
	go store.Listen(ctx, func(string) { server.Wake() })
	mux := http.NewServeMux()
	mux.Handle("/", server)
	mux.HandleFunc(emptyPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><title>empty</title><p>empty</p>")
	})
	mux.HandleFunc(selectPath, func(w http.ResponseWriter, r *http.Request) {
		if err := readers.Ping(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc(countersPath, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(counters{count.n.Load(), cpuOf(os.Getpid())})
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http1 := api.HTTP(mux, slog.New(slog.DiscardHandler))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent has ended
		cancel()
		_ = http1.Close()
	}()
	fmt.Println("http://" + listener.Addr().String())
	if err := http1.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// treeOfNodes is a tree of Deployments with their ReplicaSets and Pods.
func treeOfNodes(n int) mirror.Tree {
	t := mirror.Tree{}
	add := func(node mirror.TreeNode) int {
		node.Version, node.Health, node.Namespace = "v1", mirror.HealthHealthy, "shop"
		node.UID = fmt.Sprintf("uid-%d", len(t.Nodes))
		if t.Nodes = append(t.Nodes, node); node.Parent >= 0 {
			t.Nodes[len(t.Nodes)-1].Depth = t.Nodes[node.Parent].Depth + 1
		}
		return len(t.Nodes) - 1
	}
	for i := 0; len(t.Nodes) < n; i++ {
		name := fmt.Sprintf("web-%d", i)
		root := add(mirror.TreeNode{ResourceRef: mirror.ResourceRef{Group: "apps",
			Kind: "Deployment", Name: name}, Parent: -1, Managed: true, Sync: mirror.SyncSynced})
		set := add(mirror.TreeNode{ResourceRef: mirror.ResourceRef{Group: "apps",
			Kind: "ReplicaSet", Name: name + "-5f7"}, Parent: root, Revision: "Rev:3"})
		for pod := range 8 {
			add(mirror.TreeNode{ResourceRef: mirror.ResourceRef{Kind: "Pod",
				Name: fmt.Sprintf("%s-5f7-%d", name, pod)}, Parent: set, Ready: "1/1",
				Images: []string{"ghcr.io/acme/web:v1.4.2"}})
		}
	}
	t.Nodes = t.Nodes[:n]
	return t
}

// cpuOf is the CPU time of a process so far; 0 without /proc.
func cpuOf(pid int) time.Duration {
	const tick = 10 * time.Millisecond
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick
}
