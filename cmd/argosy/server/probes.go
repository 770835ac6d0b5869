package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"argosy.dev/argosy/reconciler/postgres"
)

// probes answers /healthz (the process works), /readyz (the database takes writes, and the
// emergency stops were read) and /metrics. No token is asked for, so that an answer is a class of
// reasons: it names no tenant, host or error. The log has those.
func (v *Server) probes() http.Handler {
	mux := http.NewServeMux()
	var reason atomic.Pointer[string]
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()
		class, err := notReady(v.store.Ping(ctx), v.stops.Health())
		if before := reason.Swap(&class); class != "" && (before == nil || *before != class) {
			v.log.Warn("this replica is not ready", "reason", class, "error", err)
		}
		if class != "" {
			http.Error(w, class, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(v.registry, promhttp.HandlerOpts{}))
	return mux
}

// notReady returns the class of reasons that strangers see, and the reason itself; "" if the
// replica is ready.
func notReady(database, stops error) (class string, reason error) {
	switch {
	case errors.Is(database, postgres.ErrReadOnly):
		return "the database is read-only", database
	case database != nil:
		return "the database cannot be reached", database
	case stops != nil:
		return "the emergency stops are not known: nothing is written until they are", stops
	}
	return "", nil
}
