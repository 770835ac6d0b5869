package agentruntime

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serveOps answers /healthz (the process works), /readyz (a complete snapshot was read, however
// long ago: an outage of the hub is no reason to restart; with SelfUpgrade, the hub has accepted
// the process, which then waits for the one before) and /metrics. The endpoints need no
// token, and name no object of a tenant.
func (a *Agent) serveOps(ctx context.Context, all *sync.WaitGroup) error {
	if a.c.Ops == "" {
		return nil
	}
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", a.c.Ops)
	if err != nil {
		return fmt.Errorf("--ops: %w", err)
	}
	server := &http.Server{Handler: a.ops(), ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	all.Go(func() { _ = server.Serve(listener) }) // ends with Close
	all.Go(func() {
		<-ctx.Done()
		_ = server.Close() // the process ends
	})
	a.log.Info("the agent answers", "ops", listener.Addr().String())
	return nil
}

func (a *Agent) ops() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.isReady() {
			http.Error(w, "no complete snapshot was read yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	return mux
}

func (a *Agent) isReady() bool {
	_, read := a.declared()
	a.mu.Lock()
	defer a.mu.Unlock()
	return read || a.proven
}
