package fleetstats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet/view"
)

// latencyMetrics are those that count rather than show.
type latencyMetrics struct {
	commit   *prometheus.HistogramVec
	revision *prometheus.HistogramVec
	overdue  *prometheus.CounterVec
	took     prometheus.Histogram
}

// latencyBuckets are seconds, from one to rolloutTime.
var latencyBuckets = []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200,
	rolloutTime.Seconds()}

// stages of a revision, in their order.
var stages = []string{"recorded", "applied", "synced", "healthy"}

func newLatencyMetrics() latencyMetrics {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: latencyBuckets}, []string{"stage"})
	}
	m := latencyMetrics{
		commit: histogram("argosy_commit_seconds",
			"From the time that a commit bears until its revision was recorded, until every "+
				"object of it was applied, "+
				"and until every Application of it had been Synced, and Healthy, by stage. Commits "+
				"that were over a day old when they were recorded do not count."),
		revision: histogram("argosy_revision_seconds",
			"From when a revision was recorded until every object of it was applied, and until "+
				"every Application "+
				"of it had been Synced, and Healthy, by stage. What a later revision has changed "+
				"again counts there."),
		overdue: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argosy_revision_overdue_total",
			Help: "Revisions that had not come to a stage six hours after they were recorded, " +
				"and are not waited for any more, by stage."}, []string{"stage"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "argosy_survey_seconds",
			Help:    "Time to read from the database what these metrics show, every 15 seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 13)}),
	}
	for _, stage := range stages {
		m.commit.WithLabelValues(stage)
		if stage != "recorded" {
			m.revision.WithLabelValues(stage)
			m.overdue.WithLabelValues(stage)
		}
	}
	return m
}

func (m latencyMetrics) register(reg prometheus.Registerer) {
	reg.MustRegister(m.commit, m.revision, m.overdue, m.took)
}

// reached counts that a revision came to a stage at that time.
func (m latencyMetrics) reached(stage string, t view.RolloutLatency, at time.Time) {
	if t.RecordedAt.Sub(t.CommittedAt) < oldCommitAge {
		// the clock of who committed may be ahead
		m.commit.WithLabelValues(stage).Observe(max(0, at.Sub(t.CommittedAt).Seconds()))
	}
	if stage != "recorded" {
		m.revision.WithLabelValues(stage).Observe(max(0, at.Sub(t.RecordedAt).Seconds()))
	}
}

// progress counts the stages that a revision has reached since the last read. A revision that
// changes nothing on any engine reaches none.
func (m latencyMetrics) progress(before, now view.RolloutLatency) {
	if before.AppliedAt.IsZero() && !now.AppliedAt.IsZero() && now.Changes > 0 {
		m.reached("applied", now, now.AppliedAt)
	}
	if !before.Synced.Done && now.Synced.Done && now.Synced.Any {
		m.reached("synced", now, now.Synced.At)
	}
	if !before.Healthy.Done && now.Healthy.Done && now.Healthy.Any {
		m.reached("healthy", now, now.Healthy.At)
	}
}

// abandon counts the stages that a revision has not come to.
func (m latencyMetrics) abandon(t view.RolloutLatency) {
	for stage, missed := range map[string]bool{"applied": t.AppliedAt.IsZero(),
		"synced": !t.Synced.Done, "healthy": !t.Healthy.Done} {
		if missed {
			m.overdue.WithLabelValues(stage).Inc()
		}
	}
}
