package reconciler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count what the loop of this replica does. The state of the fleet is fleetstats' to
// export.
type Metrics struct {
	passes   *prometheus.CounterVec
	passTook prometheus.Histogram
	recorded prometheus.Gauge
}

// NewMetrics registers the metrics of the loop.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "argosy_reconcile_total",
			Help: "Reconciles of the loop, by result: recorded, unchanged, held, failed."},
			[]string{"result"}),
		passTook: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "argosy_reconcile_seconds",
			Help:    "Time of a reconcile that recorded a revision, from fetch to commit.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}),
		recorded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argosy_source_recorded_timestamp_seconds",
			Help: "When this replica last found that nothing is left to record; 0 when it never led."}),
	}
	reg.MustRegister(m.passes, m.passTook, m.recorded)
	for _, result := range []string{"recorded", "unchanged", "held", "failed"} {
		m.passes.WithLabelValues(result)
	}
	return m
}

func (m *Metrics) reconciled(result string, took time.Duration) {
	m.passes.WithLabelValues(result).Inc()
	if result == "recorded" {
		m.passTook.Observe(took.Seconds())
	}
	if result != "failed" {
		m.recorded.SetToCurrentTime()
	}
}
