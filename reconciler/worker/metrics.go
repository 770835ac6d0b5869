package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Metrics count this replica's work on engines. Labels are engines and kinds, whose number is
// bounded. Neither tenants nor names of their objects are labels.
type Metrics struct {
	writes    *prometheus.CounterVec
	failures  *prometheus.CounterVec
	took      *prometheus.HistogramVec
	waiting   *prometheus.GaugeVec
	waves     *prometheus.GaugeVec
	connected *prometheus.GaugeVec
	handovers *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	probes    *prometheus.HistogramVec
}

// NewMetrics registers the metrics of the workers.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		writes: counter("argosy_engine_objects_total",
			"Objects that were handled, by engine, kind and whether they were applied or removed.",
			"engine", "kind", "verb"),
		failures: counter("argosy_engine_failures_total",
			"Objects that could not be handled, by engine and kind; each is tried again.", "engine",
			"kind"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "argosy_engine_handle_seconds", Help: "Time to handle one object on its engine.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 14)}, []string{"engine"}),
		waiting: gauge("argosy_engine_waiting",
			"Objects that this replica is to handle, those that are tried again among them; "+
				"absent while it does not write to the engine.", "engine"),
		waves: gauge("argosy_engine_waiting_for_wave",
			"Applications whose change waits for an Application of another wave; absent while "+
				"this replica does not write to the engine.", "engine"),
		connected: gauge("argosy_engine_connected",
			"1 while this replica reaches the engine, 0 while it tries to; absent while the "+
				"engine is another replica's.", "engine"),
		probes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "argosy_engine_probe_seconds",
			Help: "Time from a requested refresh of an engine's probe until its " +
				"application-controller had handled it, in steps of five seconds. A refresh " +
				"without an answer counts when it is answered.",
			Buckets: prometheus.ExponentialBuckets(5, 2, 10)}, []string{"engine"}),
		handovers: counter("argosy_engine_handovers_total",
			"Times that this replica handed the engine over to one that had fewer.", "engine"),
		tokens: counter("argosy_engine_tokens_total",
			"Requests for tokens of service accounts, by engine and result: renewed, or kept "+
				"when a request failed and the token before still works. Failures without such a "+
				"token count in argosy_engine_failures_total.", "engine", "result"),
	}
	reg.MustRegister(m.writes, m.failures, m.took, m.waiting, m.waves, m.connected, m.handovers,
		m.tokens, m.probes)
	return m
}

func (m *Metrics) handled(engine fleet.EngineName, row mirror.Row, started time.Time, err error) {
	verb := "apply"
	if row.Unwanted {
		verb = "remove"
	}
	m.took.WithLabelValues(string(engine)).Observe(time.Since(started).Seconds())
	if err != nil {
		m.failures.WithLabelValues(string(engine), string(row.Key.Kind)).Inc()
		return
	}
	m.writes.WithLabelValues(string(engine), string(row.Key.Kind), verb).Inc()
}

// token counts a request for a token; an outcome without one counts nothing.
func (m *Metrics) token(name fleet.EngineName, out engine.Outcome) {
	switch {
	case out.Kept:
		m.tokens.WithLabelValues(string(name), "kept").Inc()
	case out.Changed:
		m.tokens.WithLabelValues(string(name), "renewed").Inc()
	}
}

func (m *Metrics) engine(name fleet.EngineName, reachable bool) {
	v := 0.0
	if reachable {
		v = 1
	}
	m.connected.WithLabelValues(string(name)).Set(v)
}

func (m *Metrics) probed(name fleet.EngineName, took time.Duration) {
	m.probes.WithLabelValues(string(name)).Observe(took.Seconds())
}

func (m *Metrics) handedOver(name fleet.EngineName) {
	m.handovers.WithLabelValues(string(name)).Inc()
}

func (m *Metrics) queued(name fleet.EngineName, all, waves int) {
	m.waiting.WithLabelValues(string(name)).Set(float64(all))
	m.waves.WithLabelValues(string(name)).Set(float64(waves))
}

// left drops the gauges of an engine that this replica no longer writes to.
func (m *Metrics) left(name fleet.EngineName) {
	m.connected.DeleteLabelValues(string(name))
	m.waiting.DeleteLabelValues(string(name))
	m.waves.DeleteLabelValues(string(name))
}
