package reconciler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan"
)

// Metrics are what an operator watches. Labels are bounded by the number of engines and kinds; no tenant, no name of theirs is a label.
type Metrics struct {
	writes    *prometheus.CounterVec
	failures  *prometheus.CounterVec
	took      *prometheus.HistogramVec
	waiting   *prometheus.GaugeVec
	reachable *prometheus.GaugeVec
	passes    *prometheus.CounterVec
	passTook  prometheus.Histogram
	recorded  prometheus.Gauge
	problems  prometheus.Gauge
}

// NewMetrics registers the metrics of the loop and its workers.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		writes:   counter("argosy_engine_objects_total", "Objects that were handled, by engine, kind and whether they were applied or removed.", "engine", "kind", "verb"),
		failures: counter("argosy_engine_failures_total", "Objects that could not be handled, by engine and kind; each is tried again.", "engine", "kind"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "argosy_engine_handle_seconds", Help: "Time to handle one object on its engine.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 14)}, []string{"engine"}),
		waiting:   gauge("argosy_engine_waiting", "Objects that wait to be handled.", "engine"),
		reachable: gauge("argosy_engine_reachable", "1 while the engine is reached, else 0.", "engine"),
		passes:    counter("argosy_reconcile_total", "Passes of the loop, by how they ended: recorded, unchanged, held, failed.", "result"),
		passTook: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "argosy_reconcile_seconds", Help: "Time of a pass that recorded a revision, from fetch to commit.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}),
		recorded: prometheus.NewGauge(prometheus.GaugeOpts{Name: "argosy_source_recorded_timestamp_seconds", Help: "When the config repo was last seen to be fully recorded."}),
		problems: prometheus.NewGauge(prometheus.GaugeOpts{Name: "argosy_problems", Help: "Declarations in quarantine."}),
	}
	reg.MustRegister(m.writes, m.failures, m.took, m.waiting, m.reachable, m.passes, m.passTook, m.recorded, m.problems)
	return m
}

func (m *Metrics) handled(engine fleet.EngineName, row fleet.Row, started time.Time, err error) {
	verb := "apply"
	if row.Absent {
		verb = "remove"
	}
	m.took.WithLabelValues(string(engine)).Observe(time.Since(started).Seconds())
	if err != nil {
		m.failures.WithLabelValues(string(engine), string(row.Key.Kind)).Inc()
		return
	}
	m.writes.WithLabelValues(string(engine), string(row.Key.Kind), verb).Inc()
}

func (m *Metrics) engine(name fleet.EngineName, reachable bool) {
	v := 0.0
	if reachable {
		v = 1
	}
	m.reachable.WithLabelValues(string(name)).Set(v)
}

func (m *Metrics) queued(name fleet.EngineName, n int) {
	m.waiting.WithLabelValues(string(name)).Set(float64(n))
}

func (m *Metrics) pass(result string, took time.Duration) {
	m.passes.WithLabelValues(result).Inc()
	if result == "recorded" {
		m.passTook.Observe(took.Seconds())
	}
	if result != "failed" {
		m.recorded.SetToCurrentTime()
	}
}

func (m *Metrics) standing(w *plan.World) {
	_, quarantined := w.Catalog().Count()
	m.problems.Set(float64(quarantined))
}
