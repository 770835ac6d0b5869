package server

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/reconciler/tracing"
)

// exportEvery is how often a replica reads the commits to export.
const exportEvery = 10 * time.Second

// registerTraces counts the commits whose spans are exported.
func registerTraces(reg prometheus.Registerer) *prometheus.CounterVec {
	commits := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "argosy_traced_commits_total",
		Help: "Commits whose spans this replica exported; retried: the collector was away, they " +
			"are exported again; dropped: it refused them, or was away for a day."},
		[]string{"result"})
	for _, result := range []string{tracing.ResultExported, tracing.ResultRetried,
		tracing.ResultDropped} {
		commits.WithLabelValues(result)
	}
	reg.MustRegister(commits)
	return commits
}

// openTracing returns the exporter of the settings; nil without one.
func (v *Server) openTracing(t *settings.Tracing, commits *prometheus.CounterVec) (
	*tracing.Exporter, error) {
	if t == nil {
		return nil, nil
	}
	var roots *x509.CertPool
	if t.CAFile != "" {
		var err error
		if roots, err = rootsIn("tracing.caFile", t.CAFile); err != nil {
			return nil, err
		}
	}
	return tracing.New(tracing.Config{Store: v.store.Traces, Endpoint: t.Endpoint, Roots: roots,
		Version: v.version, Log: v.log, Every: exportEvery, Patience: time.Duration(t.Patience),
		Count: func(result string, n int) { commits.WithLabelValues(result).Add(float64(n)) }})
}

func (v *Server) exportTraces(ctx context.Context) {
	if v.tracing != nil {
		v.tracing.Run(ctx)
	}
}
