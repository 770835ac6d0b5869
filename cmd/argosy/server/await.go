package server

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/postgres"
)

const (
	firstAwait = 200 * time.Millisecond
	lastAwait  = 5 * time.Second
	logAwait   = time.Minute // between lines about one reason
)

// await calls open until the database is available, or until an error that waiting cannot fix. It
// passes the class of each reason to waiting.
func await[T any](ctx context.Context, host string, log *slog.Logger, waiting func(why string),
	open func() (T, error)) (T, error) {
	began, logged, loggedAt := time.Now(), "", time.Time{}
	for pause := firstAwait; ; pause = min(2*pause, lastAwait) {
		opened, err := open()
		if err == nil {
			if logged != "" {
				log.Info("the database is there", "host", host, "waited",
					time.Since(began).Round(time.Millisecond))
			}
			return opened, nil
		}
		why, ok := postgres.Awaited(err)
		if !ok || ctx.Err() != nil {
			return opened, err
		}
		waiting(why)
		if why != logged || time.Since(loggedAt) > logAwait {
			log.Warn("waiting for the database", "host", host, "reason", why, "error", err,
				"next",
				"start PostgreSQL there, or correct database.url; nothing else has to be done")
			logged, loggedAt = why, time.Now()
		}
		if !pacing.Sleep(ctx, pause/2+rand.N(pause/2+1)) {
			return opened, fmt.Errorf("%w while waiting for the database at %s: %w",
				context.Cause(ctx), host, err)
		}
	}
}

// probing answers the probes from the start of the process: as starting until everything is open,
// then through full.
type probing struct {
	why  atomic.Pointer[string]
	full atomic.Pointer[http.Handler]
}

func (p *probing) waiting(why string) { p.why.Store(&why) }

func (p *probing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if full := p.full.Load(); full != nil {
		(*full).ServeHTTP(w, r)
		return
	}
	switch why := p.why.Load(); {
	case r.URL.Path == "/healthz":
		fmt.Fprintln(w, "ok")
	case r.URL.Path != "/readyz":
		http.NotFound(w, r)
	case why == nil:
		http.Error(w, "starting", http.StatusServiceUnavailable)
	default:
		http.Error(w, "starting: waiting for the database: "+*why, http.StatusServiceUnavailable)
	}
}
