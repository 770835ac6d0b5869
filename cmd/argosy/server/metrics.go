package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/worker"
)

//go:generate go test -run TestMetricsReference -update .

// newMetrics registers the metrics of the process, its version and its work. docs/metrics.md is
// generated from the descriptions.
func newMetrics(reg prometheus.Registerer, version string) (*reconciler.Metrics, *worker.Metrics) {
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "argosy_build_info",
		Help:        "1, with the version that this replica runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}})
	build.Set(1)
	reg.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return reconciler.NewMetrics(reg), worker.NewMetrics(reg)
}

// newNotificationCounter counts attempts to send messages.
func newNotificationCounter(reg prometheus.Registerer) func(fleet.ChannelKind,
	mirror.NotificationState) {
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argosy_notification_attempts_total",
		Help: "Attempts to send a message, by the kind of the channel and outcome: Sent, Pending " +
			"(another attempt follows), Failed (given up)."}, []string{"kind", "outcome"})
	for _, kind := range []fleet.ChannelKind{fleet.ChannelSlack, fleet.ChannelTeams,
		fleet.ChannelEmail, fleet.ChannelWebhook} {
		for _, outcome := range []mirror.NotificationState{mirror.NotificationSent,
			mirror.NotificationPending, mirror.NotificationFailed} {
			attempts.WithLabelValues(string(kind), string(outcome))
		}
	}
	reg.MustRegister(attempts)
	return func(kind fleet.ChannelKind, outcome mirror.NotificationState) {
		attempts.WithLabelValues(string(kind), string(outcome)).Inc()
	}
}

// newPushCounter counts handled pushes to repositories of Applications.
func newPushCounter(reg prometheus.Registerer) func(refreshes int) {
	pushes := prometheus.NewCounter(prometheus.CounterOpts{Name: "argosy_pushes_total",
		Help: "Pushes to repositories that this replica handled while it led."})
	refreshes := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "argosy_push_refreshes_total",
		Help: "Refreshes of Applications that those pushes requested: none if no Application deploys from the pushed place."})
	reg.MustRegister(pushes, refreshes)
	return func(n int) {
		pushes.Inc()
		refreshes.Add(float64(n))
	}
}

// newCommitCounter counts reports of commits.
func newCommitCounter(reg prometheus.Registerer) func(fleet.CommitHostAPI,
	mirror.NotificationState) {
	reports := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argosy_commit_status_reports_total",
		Help: "Reports of commits on the repositories of Applications, by the API of the Git host " +
			"and outcome: Sent, Pending (another attempt follows), Failed (given up), Dropped (no " +
			"longer declared)."}, []string{"api", "outcome"})
	for _, api := range []fleet.CommitHostAPI{fleet.CommitHostGitHub, fleet.CommitHostGitea} {
		for _, outcome := range []mirror.NotificationState{mirror.NotificationSent,
			mirror.NotificationPending, mirror.NotificationFailed, mirror.NotificationDropped} {
			reports.WithLabelValues(string(api), string(outcome))
		}
	}
	reg.MustRegister(reports)
	return func(api fleet.CommitHostAPI, outcome mirror.NotificationState) {
		reports.WithLabelValues(string(api), string(outcome)).Inc()
	}
}

// registerStops exports the age of this replica's view of the emergency stops.
func registerStops(reg prometheus.Registerer, stops *worker.StopBoard) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argosy_emergency_stops_age_seconds",
		Help: "Time since this replica read the emergency stops; above 4 it writes nothing " +
			"until it can read them."},
		func() float64 { return stops.Age().Seconds() }))
}

// poolMetrics exports the state of the connection pools.
type poolMetrics struct {
	read                               func() []postgres.PoolStats
	size, inUse, waiting, wait, gaveUp *prometheus.Desc
}

// registerPools exports the state of the store's connection pools.
func registerPools(reg prometheus.Registerer, read func() []postgres.PoolStats) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("argosy_database_"+name, help, []string{"pool"}, nil)
	}
	reg.MustRegister(&poolMetrics{
		read: read,
		size: desc("connections_max",
			"Connections to the database that this replica opens at most, by pool: control, "+
				"workers, readers."),
		inUse: desc("connections_in_use",
			"Connections to the database that this replica uses now, by pool."),
		waiting: desc("connections_waiting", "Callers that wait for a connection of the pool now."),
		wait: desc("connection_wait_seconds_total",
			"Time that callers have waited for a connection while all of the pool were in use."),
		gaveUp: desc("connection_given_up_total",
			"Callers that have waited too long for a connection of the pool, and failed."),
	})
}

// Describe is prometheus.Collector's.
func (m *poolMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.size, m.inUse, m.waiting, m.wait, m.gaveUp} {
		to <- d
	}
}

// Collect is prometheus.Collector's.
func (m *poolMetrics) Collect(to chan<- prometheus.Metric) {
	for _, p := range m.read() {
		show := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			to <- prometheus.MustNewConstMetric(d, kind, v, p.Name)
		}
		show(m.size, prometheus.GaugeValue, float64(p.Size))
		show(m.inUse, prometheus.GaugeValue, float64(p.InUse))
		show(m.waiting, prometheus.GaugeValue, float64(p.Waiting))
		show(m.wait, prometheus.CounterValue, p.Waited.Seconds())
		show(m.gaveUp, prometheus.CounterValue, float64(p.GaveUp))
	}
}
