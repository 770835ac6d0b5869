package hub

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the hub's Prometheus metrics. Their labels have fixed values: no agent, engine or
// tenant.
type Metrics struct {
	reg      prometheus.Registerer
	rows     prometheus.Counter
	reports  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	opened   prometheus.Counter
	polls    *prometheus.CounterVec
}

// NewMetrics registers the hub's metrics; nil registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		reg: reg,
		rows: prometheus.NewCounter(prometheus.CounterOpts{Name: "argosy_agent_rows_total",
			Help: "Rows sent to agents, on streams and in snapshots."}),
		opened: prometheus.NewCounter(prometheus.CounterOpts{Name: "argosy_agent_streams_total",
			Help: "Streams opened by agents."}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argosy_agent_reports_total",
			Help: "Reports of agents, by result: taken, replayed, superseded, failed."},
			[]string{"result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argosy_agent_refusals_total",
			Help: "Refused requests of agents, by code."}, []string{"code"}),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "argosy_agent_looks_total",
			Help: "Polls of the mirror for the agents of this replica, by result: ok, failed."},
			[]string{"result"}),
	}
	if reg != nil {
		reg.MustRegister(m.rows, m.opened, m.reports, m.refusals, m.polls)
	}
	return m
}

// watch registers the gauges that are read at each scrape.
func (m *Metrics) watch(connected, waiting func() int) {
	if m.reg == nil {
		return
	}
	gauge := func(name, help string, read func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(read()) })
	}
	m.reg.MustRegister(
		gauge("argosy_agent_connected", "Open streams of agents on this replica.",
			connected),
		gauge("argosy_agent_openings_waiting",
			"Agents that wait to open a session on this replica.", waiting))
}

func (m *Metrics) refused(code string) { m.refusals.WithLabelValues(code).Inc() }
