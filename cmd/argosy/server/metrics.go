package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"argosy.dev/argosy/reconciler"
)

//go:generate go test -run TestMetricsReference -update .

// newMetrics registers what a replica tells of itself: the process, its version, and what it does. docs/metrics.md is made from the
// descriptions.
func newMetrics(reg prometheus.Registerer, version string) *reconciler.Metrics {
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "argosy_build_info", Help: "1, with the version that this replica runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}})
	build.Set(1)
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return reconciler.NewMetrics(reg)
}

// registerStops tells how old this replica's view of the emergency stops is.
func registerStops(reg prometheus.Registerer, stops *reconciler.StopBoard) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "argosy_emergency_stops_age_seconds",
		Help: "Time since this replica read the emergency stops; above 4 it writes nothing until it can read them."},
		func() float64 { return stops.Age().Seconds() }))
}
