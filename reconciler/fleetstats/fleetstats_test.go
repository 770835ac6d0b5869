package fleetstats

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// reader returns the stats of a test, and keeps the queries.
type reader struct {
	stats   view.FleetStats
	err     error
	queries []view.StatsQuery
}

func (s *reader) FleetStats(_ context.Context, ask view.StatsQuery) (view.FleetStats, error) {
	s.queries = append(s.queries, ask)
	f := s.stats
	f.At = time.Now()
	return f, s.err
}

// collectorOf returns a Collector over a reader, and a scrape of it.
func collectorOf(store *reader) (*Collector, func() string) {
	reg := prometheus.NewRegistry()
	return NewCollector(reg, store, "me", slog.New(slog.DiscardHandler)), func() string {
		w := httptest.NewRecorder()
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w,
			httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
}

// shows fails unless each line is among those that were scraped.
func shows(t *testing.T, scraped string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+scraped, "\n"+line+"\n") {
			t.Errorf("not shown: %s", line)
		}
	}
}

func TestCollectorExportsTheFleetOnTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reader{}
		s, scrape := collectorOf(store)
		shows(t, scrape(), "argosy_database_up 0", "argosy_leader 0")
		s.read(t.Context())
		if out := scrape(); strings.Contains(out, "argosy_holds") {
			t.Error("a replica that does not lead shows the fleet")
		}
		shows(t, scrape(), "argosy_database_up 1", "argosy_leader 0")
		store.stats = view.FleetStats{Leads: true, Quarantines: 3,
			Rebalance: mirror.RebalanceStopped,
			Source:    view.SourceStats{FetchedAt: time.Now(), Behind: true},
			Engines: []view.EngineStats{
				{Engine: "eu-1", Reachable: true, Rows: map[mirror.ApplyState]int{
					mirror.ApplyFailed: 2},
					Unreachable: map[mirror.UnreachableReason]int{mirror.UnreachableTimeout: 2},
					Parked:      16}},
			Orphans:     map[fleet.EngineName]int{"eu-1": 3, "acme.edge": 1},
			HaltedRings: map[string]view.Backlog{"canary": {Count: 1}},
			DifferingRings: map[string]view.Backlog{
				"stable": {Count: 1, Oldest: time.Unix(2000, 0)}},
			StuckPools: map[string]view.Backlog{"burst": {Count: 1}},
			Unproven:   map[mirror.Lost]view.Backlog{mirror.LostEngine: {Count: 5}},
			Agents: view.AgentStats{Connected: 9, Never: 1, Waiting: []view.Backlog{
				{Count: 1, Oldest: time.Now()},
				{Count: 1, Oldest: time.Now().Add(-30 * time.Minute)},
				{Count: 1, Oldest: time.Now().Add(-48 * time.Hour)}}},
			Holds: map[mirror.HoldReason]view.Backlog{
				mirror.HoldDeletions: {Count: 4, Oldest: time.Unix(1000, 0)}}}
		store.stats.TooLarge.Placed = 2
		s.read(t.Context())
		shows(t, scrape(), "argosy_leader 1", "argosy_quarantines 3",
			`argosy_environments_too_large{state="Placed"} 2`,
			`argosy_pool_stuck{pool="burst"} 1`,
			`argosy_environments_too_large{state="Unplaced"} 0`,
			`argosy_rebalance{state="Stopped"} 1`, `argosy_rebalance{state="Moving"} 0`,
			"argosy_source_behind 1",
			`argosy_engine_reachable{engine="eu-1"} 1`,
			`argosy_engine_attended{engine="eu-1"} 0`,
			`argosy_engine_rows{engine="eu-1",state="Failed"} 2`,
			`argosy_engine_rows{engine="eu-1",state="Pending"} 0`,
			`argosy_agents{state="connected"} 9`, `argosy_agents{state="never"} 1`,
			`argosy_agents_waiting{oldest="1m"} 1`, `argosy_agents_waiting{oldest="1h"} 1`,
			`argosy_agents_waiting{oldest="longer"} 1`, `argosy_holds{reason="deletions"} 4`,
			`argosy_holds{reason="empty"} 0`,
			`argosy_engine_unreachable_environments{engine="eu-1",reason="Timeout"} 2`,
			`argosy_engine_unreachable_environments{engine="eu-1",reason="Error"} 0`,
			`argosy_engine_parked_applications{engine="eu-1"} 16`, `argosy_strays{engine="eu-1"} 3`,
			`argosy_strays{engine="acme.edge"} 1`, `argosy_unproven_objects{lost="Engine"} 5`,
			`argosy_unproven_objects{lost="Cluster"} 0`, `argosy_ring_halted{ring="canary"} 1`,
			`argosy_ring_differs_timestamp_seconds{ring="stable"} 2000`,
			`argosy_holds_oldest_timestamp_seconds{reason="deletions"} 1000`)
		if strings.Contains(scrape(), `argosy_engine_oldest_waiting_timestamp_seconds{`) {
			t.Error("nothing waits, and has a time")
		}
	})
}

func TestCollectorExportsTheLastStatsForAWhileWithoutADatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reader{stats: view.FleetStats{Leads: true}}
		s, scrape := collectorOf(store)
		s.read(t.Context())
		store.err = errors.New("away")
		time.Sleep(interval)
		s.read(t.Context())
		shows(t, scrape(), "argosy_database_up 0", "argosy_leader 1", "argosy_quarantines 0")
		time.Sleep(staleAfter)
		shows(t, scrape(), "argosy_database_up 0", "argosy_leader 0")
		if strings.Contains(scrape(), "argosy_quarantines ") {
			t.Error("old stats are exported as current")
		}
	})
}

func TestCollectorCountsEachStageOfARevisionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reader{}
		s, scrape := collectorOf(store)
		s.read(t.Context())
		time.Sleep(interval)
		at := func(seconds int) time.Time {
			return time.Now().Add(time.Duration(seconds) * time.Second)
		}
		way := view.RolloutLatency{Number: 7, Changes: 2, CommittedAt: at(-12), RecordedAt: at(-10)}
		// recorded by the leader before us
		long := view.RolloutLatency{
			Number: 5, Changes: 2, CommittedAt: at(-100), RecordedAt: at(-90)}
		store.stats = view.FleetStats{Leads: true, Rollouts: []view.RolloutLatency{long, way}}
		s.read(t.Context())
		shows(t, scrape(), `argosy_commit_seconds_count{stage="recorded"} 1`,
			`argosy_commit_seconds_sum{stage="recorded"} 2`,
			`argosy_revision_seconds_count{stage="applied"} 0`,
			`argosy_revisions_under_way{stage="applied"} 2`)
		way.AppliedAt, way.Synced = at(-9), view.Phase{Any: true, Done: true, At: at(-5)}
		// of no Application
		long.AppliedAt, long.Synced, long.Healthy = at(-10), view.Phase{Done: true},
			view.Phase{Done: true}
		store.stats.Rollouts = []view.RolloutLatency{long, way}
		for range 3 {
			s.read(t.Context())
			// the other is not asked about any more
			store.stats.Rollouts = []view.RolloutLatency{way}
			time.Sleep(interval)
		}
		if last := store.queries[len(store.queries)-1]; last.After != 7 || last.Open ||
			len(last.Latencies) != 1 {
			t.Errorf("asked: %+v", last)
		}
		shows(t, scrape(), `argosy_revision_seconds_count{stage="applied"} 2`,
			`argosy_revision_seconds_sum{stage="synced"} 5`,
			`argosy_commit_seconds_sum{stage="synced"} 7`,
			`argosy_revision_seconds_count{stage="synced"} 1`,
			`argosy_revision_seconds_count{stage="healthy"} 0`)
		time.Sleep(rolloutTime)
		s.read(t.Context())
		if len(s.rollouts) != 0 {
			t.Errorf("still waited for: %+v", s.rollouts)
		}
		shows(t, scrape(), `argosy_revision_overdue_total{stage="healthy"} 1`,
			`argosy_revision_overdue_total{stage="synced"} 0`)
	})
}

// A commit that is old when it is recorded, as in a fleet's first start, is no measure of speed.
func TestCollectorDoesNotMeasureFromOldCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reader{stats: view.FleetStats{Leads: true}}
		s, scrape := collectorOf(store)
		s.read(t.Context())
		store.stats.Rollouts = []view.RolloutLatency{
			{Number: 1, Changes: 1, CommittedAt: time.Now().Add(-72 * time.Hour),
				RecordedAt: time.Now(), AppliedAt: time.Now(),
				Synced: view.Phase{Done: true}, Healthy: view.Phase{Done: true}}}
		s.read(t.Context())
		shows(t, scrape(), `argosy_commit_seconds_count{stage="recorded"} 0`,
			`argosy_commit_seconds_count{stage="applied"} 0`,
			`argosy_revision_seconds_count{stage="applied"} 1`)
	})
}

func TestCollectorFollowsABoundedNumberOfRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reader{stats: view.FleetStats{Leads: true}}
		s, scrape := collectorOf(store)
		for n := range maxRollouts + 5 {
			store.stats.Rollouts = append(s.rollouts, view.RolloutLatency{
				Number: int64(n + 1), Changes: 1,
				CommittedAt: time.Now(), RecordedAt: time.Now()})
			s.read(t.Context())
		}
		if len(s.rollouts) != maxRollouts || s.rollouts[0].Number != 6 {
			t.Errorf("%d, from %d", len(s.rollouts), s.rollouts[0].Number)
		}
		shows(t, scrape(), `argosy_revision_overdue_total{stage="applied"} 5`)
	})
}

func TestCollectorReadsEveryFifteenSecondsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reader{}
		s, _ := collectorOf(store)
		ctx, cancel := context.WithTimeout(t.Context(), 4*interval-time.Second)
		defer cancel()
		s.Run(ctx)
		if len(store.queries) != 4 {
			t.Errorf("%d reads", len(store.queries))
		}
	})
}
