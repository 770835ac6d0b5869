package reconciler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
)

// Figures is the store as a Collector sees it.
type StatsReader interface {
	// Figures are how the fleet stands. Who does not hold the lease "reconciler" is told that
	// alone.
	FleetStats(ctx context.Context, ask fleet.StatsQuery) (fleet.FleetStats, error)
}

const (
	surveyEvery = 15 * time.Second
	surveyTime  = 5 * time.Second // that one look may take
	// what was seen is shown so long when the store cannot be read; then it is nothing
	surveyKeeps = 8 * surveyEvery
	// after which it is not waited any more for a revision to come further
	travelTime  = 6 * time.Hour
	travelsMost = 100 // under way at a time; of more, the oldest are not waited for
	// when it was recorded: how long ago it was made says nothing of how quick anything is
	oldCommit = 24 * time.Hour
)

// Collector shows, as metrics, how the whole fleet stands. It looks at the store every 15 seconds,
// whoever scrapes how often, and the replica that holds the lease "reconciler" shows what there is:
// a sum or a maximum over replicas is right. Labels are engines that the platform has declared and
// words of ours. No tenant is a label, nor an agent, of which there may be ten thousand.
type Collector struct {
	store   StatsReader
	holder  string
	log     *slog.Logger
	metrics surveyMetrics

	after   int64     // the highest number of a revision that was seen
	since   time.Time // when it was looked last without having the lease, by the store's clock
	led     bool      // at the last look
	travels []fleet.RolloutLatency

	mu   sync.Mutex
	seen fleet.FleetStats
	at   time.Time // by our clock, of the last look that succeeded
	up   bool
}

// NewCollector registers the fleet's metrics. holder is this replica's name in leases.
func NewCollector(reg prometheus.Registerer, store StatsReader, holder string, log *slog.Logger) *Collector {
	s := &Collector{store: store, holder: holder, log: log, metrics: newSurveyMetrics(),
		since: time.Now()}
	s.metrics.register(reg)
	reg.MustRegister(s)
	return s
}

// Run looks until ctx ends.
func (s *Collector) Run(ctx context.Context) {
	tick := time.NewTicker(surveyEvery)
	defer tick.Stop()
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Collector) look(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	began := time.Now()
	f, err := s.store.FleetStats(limited, fleet.StatsQuery{Holder: s.holder, After: s.after,
		Since: s.since, Open: !s.led, Travels: s.travels})
	s.metrics.took.Observe(time.Since(began).Seconds())
	if err == nil {
		s.follow(f)
	} else if ctx.Err() == nil {
		s.log.Warn("the figures for metrics are not read; trying again", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up = err == nil; s.up {
		s.seen, s.at = f, began
	}
}

// follow counts how far revisions have come. Who takes the lead goes on with those that are not
// applied, and with those that were recorded since it last looked without leading: what came
// further before is the former leader's to have counted.
func (s *Collector) follow(f fleet.FleetStats) {
	if !f.Leads {
		s.led, s.since, s.travels = false, f.At, nil
		return
	}
	before := map[int64]fleet.RolloutLatency{}
	for _, t := range s.travels {
		before[t.Number] = t
	}
	s.travels = nil
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
	for len(s.travels) > travelsMost {
		s.metrics.givenUp(s.travels[0])
		s.travels = s.travels[1:]
	}
}

// keep waits on for a revision, unless it has come to its end or has taken too long.
func (s *Collector) keep(t fleet.RolloutLatency, now time.Time) {
	switch {
	case !t.AppliedAt.IsZero() && t.Synced.Done && t.Healthy.Done:
	case now.Sub(t.RecordedAt) > travelTime:
		s.metrics.givenUp(t)
	default:
		s.travels = append(s.travels, t)
	}
}
