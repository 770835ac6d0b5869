// Package fleetstats exports the state of the fleet as metrics, and measures how long a commit
// takes to healthy Applications.
package fleetstats

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet/view"
)

// Reader reads the state of the fleet from the store.
type Reader interface {
	// FleetStats returns only the time to replicas without the lease "reconciler".
	FleetStats(ctx context.Context, query view.StatsQuery) (view.FleetStats, error)
}

const (
	interval = 15 * time.Second
	readTime = 5 * time.Second // for one read of the store
	// staleAfter is how long the last stats are exported while the store cannot be read.
	staleAfter = 8 * interval
	// rolloutTime is how long a revision is followed before it counts as overdue.
	rolloutTime = 6 * time.Hour
	maxRollouts = 100 // followed at a time; the oldest are dropped first
	// oldCommitAge at recording keeps a commit out of the latencies from commits: its
	// age is no measure of the speed of a rollout.
	oldCommitAge = 24 * time.Hour
)

// Collector exports the state of the whole fleet as metrics. It reads the store every 15 seconds,
// independent of scrapes. Only the replica that holds the lease "reconciler" exports the fleet, so
// that a sum or a maximum over replicas is right. Labels are the platform's engines and fixed
// words. Neither tenants nor agents are labels: there may be ten thousand agents.
type Collector struct {
	store   Reader
	holder  string
	log     *slog.Logger
	metrics latencyMetrics

	after    int64     // the highest number of a revision that was read
	since    time.Time // of the last read without the lease, by the store's clock
	led      bool      // at the last read
	rollouts []view.RolloutLatency

	mu   sync.Mutex
	seen view.FleetStats
	at   time.Time // of the last read that succeeded, by our clock
	up   bool
}

// NewCollector registers the fleet's metrics. holder is this replica's name in leases.
func NewCollector(reg prometheus.Registerer, store Reader, holder string,
	log *slog.Logger) *Collector {
	s := &Collector{store: store, holder: holder, log: log, metrics: newLatencyMetrics(),
		since: time.Now()}
	s.metrics.register(reg)
	reg.MustRegister(s)
	return s
}

// Run reads the store until ctx ends.
func (s *Collector) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		s.read(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Collector) read(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	began := time.Now()
	f, err := s.store.FleetStats(limited, view.StatsQuery{Holder: s.holder, After: s.after,
		Since: s.since, Open: !s.led, Latencies: s.rollouts})
	s.metrics.took.Observe(time.Since(began).Seconds())
	if err == nil {
		s.follow(f)
	} else if ctx.Err() == nil {
		s.log.Warn("failed to read the fleet's stats for metrics; trying again", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up = err == nil; s.up {
		s.seen, s.at = f, began
	}
}

// follow measures the progress of revisions. A new leader goes on with revisions that are not
// applied, and with revisions that were recorded since its last read without the lease: the former
// leader has counted the stages before.
func (s *Collector) follow(f view.FleetStats) {
	if !f.Leads {
		s.led, s.since, s.rollouts = false, f.At, nil
		return
	}
	before := map[int64]view.RolloutLatency{}
	for _, t := range s.rollouts {
		before[t.Number] = t
	}
	s.rollouts = nil
	for _, t := range f.Rollouts {
		old, known := before[t.Number]
		if !known && (s.led || !t.RecordedAt.Before(s.since)) {
			s.metrics.reached("recorded", t, t.RecordedAt)
		}
		s.metrics.progress(old, t)
		s.after = max(s.after, t.Number)
		s.keep(t, f.At)
	}
	s.led = true
	for len(s.rollouts) > maxRollouts {
		s.metrics.abandon(s.rollouts[0])
		s.rollouts = s.rollouts[1:]
	}
}

// keep follows a revision further, unless its rollout is complete or has taken too long.
func (s *Collector) keep(t view.RolloutLatency, now time.Time) {
	switch {
	case !t.AppliedAt.IsZero() && t.Synced.Done && t.Healthy.Done:
	case now.Sub(t.RecordedAt) > rolloutTime:
		s.metrics.abandon(t)
	default:
		s.rollouts = append(s.rollouts, t)
	}
}
