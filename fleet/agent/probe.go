package agent

import (
	"io"
	"net/http"
	"time"

	"argosy.dev/argosy/fleet/pacing"
)

// PathProbe is a stream for whoever asks: two comments, ProbeGap apart, and its end. Something on
// the way that gathers answers before it passes them on shows by when they come, before an agent
// has joined.
const (
	PathProbe = "/api/v1/cluster/probe"
	ProbeGap  = time.Second

	probesAtOnce = 16
)

// Probe answers PathProbe. It reads nothing, and serves few at a time, since nobody has to say who
// they are.
func Probe() http.Handler {
	slots := make(chan struct{}, probesAtOnce)
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
