package hub

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what an operator watches. Labels are of fixed sets: no agent, engine or tenant is
// one.
type Metrics struct {
	reg      prometheus.Registerer
	rows     prometheus.Counter
	reports  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	opened   prometheus.Counter
	looks    *prometheus.CounterVec
}

// NewMetrics registers the hub's metrics; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		reg: reg,
		rows: prometheus.NewCounter(prometheus.CounterOpts{Name: "argosy_agent_rows_total",
			Help: "Rows that were sent to agents, on streams and in snapshots."}),
		opened: prometheus.NewCounter(prometheus.CounterOpts{Name: "argosy_agent_streams_total",
			Help: "Streams that agents have opened."}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argosy_agent_reports_total",
			Help: "Reports of agents, by how they ended: taken, replayed, superseded, failed."},
			[]string{"result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argosy_agent_refusals_total",
			Help: "Requests of agents that were refused, by code."}, []string{"code"}),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "argosy_agent_looks_total",
			Help: "Looks at the mirror for all agents of this replica, by result: ok, failed."},
			[]string{"result"}),
	}
	if reg != nil {
		reg.MustRegister(m.rows, m.opened, m.reports, m.refusals, m.looks)
	}
	return m
}

// watch registers what is asked for when metrics are read.
func (m *Metrics) watch(connected, waiting func() int) {
	if m.reg == nil {
		return
	}
	gauge := func(name, help string, read func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(read()) })
	}
	m.reg.MustRegister(
		gauge("argosy_agent_connected", "Streams of agents that are open on this replica.",
			connected),
		gauge("argosy_agent_openings_waiting",
			"Agents that wait for their turn to open a session on this replica.", waiting))
}

func (m *Metrics) refused(code string) { m.refusals.WithLabelValues(code).Inc() }
