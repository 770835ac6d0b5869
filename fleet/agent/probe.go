package agent

import (
	"io"
	"net/http"
	"time"

	"argosy.dev/argosy/fleet/pacing"
)

// PathProbe serves an unauthenticated stream: two comments, ProbeGap apart, then the end. If both
// arrive at once, a proxy buffers responses. An agent can check this before it joins.
const (
	PathProbe = "/api/v1/cluster/probe"
	ProbeGap  = time.Second

	maxProbes = 16
)

// Probe serves PathProbe. It reads nothing, and limits concurrency because callers are anonymous.
func Probe() http.Handler {
	slots := make(chan struct{}, maxProbes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.Header().Set("Retry-After", "2")
			http.Error(w, "too many probes at once", http.StatusServiceUnavailable)
			return
		}
		head := w.Header()
		head.Set("Content-Type", "text/event-stream")
		head.Set("Cache-Control", "no-store")
		head.Set("X-Accel-Buffering", "no")
		flow := http.NewResponseController(w)
		for i := range 2 {
			if i > 0 && !pacing.Sleep(r.Context(), ProbeGap) {
				return
			}
			if _, err := io.WriteString(w, ": probe\n\n"); err != nil || flow.Flush() != nil {
				return
			}
		}
	})
}
