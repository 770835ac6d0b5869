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
