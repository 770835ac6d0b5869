package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	// rows that FleetStats reads in all to count pending ones, and as many for the rollout of
	// revisions
	walkRows   = 20_000
	leastWalk  = 200 // of them, for each revision
	openAtMost = 100 // revisions that count as not applied: the oldest
)

// FleetStats returns the statistics of the fleet for metrics. Every replica calls it every few
// seconds, and gets an answer if it holds the lease "reconciler"; for others it reads only that
// lease. It counts up to view.MaxFigure and reads at most 40,000 rows, along indexes, however many
// there are: without pending rows it reads none.
func (s *Views) FleetStats(ctx context.Context, ask view.StatsQuery) (view.FleetStats, error) {
	var f view.FleetStats
	err := s.within(ctx, view.Scope{}, func(tx pgx.Tx) error {
		f = view.FleetStats{Agents: view.AgentStats{Rows: map[mirror.ApplyState]int{}}}
		if err := tx.QueryRow(ctx, `
			SELECT now(), EXISTS (SELECT FROM leases WHERE name = 'reconciler' AND holder = $1 AND expires_at > clock_timestamp())`, ask.Holder).
			Scan(&f.At, &f.Leads); err != nil || !f.Leads {
			return err
		}
		for _, part := range []func(context.Context, pgx.Tx, *view.FleetStats) error{
			sourceStats, engineStats, agentStats, orphanStats, pendingStats, countStats,
			queueStats,
			func(ctx context.Context, tx pgx.Tx, f *view.FleetStats) error {
				return latencyStats(ctx, tx, ask, f)
			},
		} {
			if err := part(ctx, tx, &f); err != nil {
				return err
			}
		}
		return nil
	})
	return f, wrap(err, "fleet statistics")
}

func sourceStats(ctx context.Context, tx pgx.Tx, f *view.FleetStats) error {
	var fetched, recorded *time.Time
	err := tx.QueryRow(ctx, `
		SELECT s.fetched_at, r.recorded_at, s.error <> '', s.head NOT IN ('', m.applied)
		FROM source s CROSS JOIN mirror m LEFT JOIN revisions r ON r.revision = m.applied`).
		Scan(&fetched, &recorded, &f.Source.Failing, &f.Source.Behind)
	f.Source.FetchedAt, f.Source.RecordedAt = orZero(fetched), orZero(recorded)
	if err != nil {
		return err
	}
	var since *time.Time
	err = tx.QueryRow(ctx, `
		SELECT count(*), min(since) FROM (SELECT since FROM listings WHERE since IS NOT NULL LIMIT $1) l`, view.MaxFigure).
		Scan(&f.Listings.Count, &since)
	f.Listings.Oldest = orZero(since)
	return err
}

// engineStats counts for the platform's engines. An engine behind an agent is reachable while the
// agent is connected and reaches it.
func engineStats(ctx context.Context, tx pgx.Tx, f *view.FleetStats) (err error) {
	f.Engines, err = read(ctx, tx, func(row pgx.CollectableRow) (view.EngineStats, error) {
		e := view.EngineStats{Rows: map[mirror.ApplyState]int{}}
		var seen *time.Time
		err := row.Scan(&e.Engine, &e.Reachable, &e.Attended, &seen, &e.Work, &e.Load,
			&e.RemedyFailed, &e.FenceBroken)
		if !e.Load.Fresh(f.At) {
			e.Load = nil
		}
		e.LastSeenAt = orZero(seen)
		if !e.Reachable {
			e.Work = ""
		}
		return e, err
	}, `
		SELECT e.name, coalesce(g.reachable, false) AND NOT `+engineAway+`, coalesce(l.expires_at > clock_timestamp(), false), silent_since(e.name), coalesce(g.work, ''), CASE WHEN e.body #> '{engine,metrics}' IS NOT NULL THEN g.load END, `+sqlRemedyFailed+`, `+sqlFenceBroken+fromEngines+`
		WHERE e.kind = 'Engine' AND e.tenant = '' ORDER BY e.name LIMIT 1000`)
	if err != nil {
		return err
	}
	return reachStats(ctx, tx, f)
}

// reachStats counts unreachable environments: at most one row for each environment.
func reachStats(ctx context.Context, tx pgx.Tx, f *view.FleetStats) error {
	byName := map[fleet.EngineName]*view.EngineStats{}
	for i := range f.Engines {
		f.Engines[i].Unreachable = map[mirror.UnreachableReason]int{}
		byName[f.Engines[i].Engine] = &f.Engines[i]
	}
	rows, err := tx.Query(ctx,
		`SELECT engine, reason, count(*), sum(parked) FROM reach GROUP BY 1, 2`)
	if err != nil {
		return err
	}
	var name fleet.EngineName
	var reason mirror.UnreachableReason
	var n, parked int
	_, err = pgx.ForEachRow(rows, []any{&name, &reason, &n, &parked}, func() error {
		if e := byName[name]; e != nil {
			e.Unreachable[reason] = n
			e.Parked += parked
		}
		return nil
	})
	return err
}

// lastRow is above the number of every row. The rows of one revision are read as a range of the
// index (revision, seq): with an equality on the revision, the planner would scan all rows by
// number as soon as a revision has many.
const lastRow = `9223372036854775807`

// sqlPendingRows scans each open revision's own rows from the first row that is known to be pending
// (settle stores it). The status of each is looked up by its key: for a join the planner would read
// whole tables.
const sqlPendingRows = `
	SELECT w.engine, w.state, count(*), min(w.changed_at) FROM unnest($1::text[], $2::bigint[]) AS o (revision, witness) CROSS JOIN LATERAL (
		SELECT d.engine, d.changed_at, CASE WHEN s.seq = d.seq THEN s.state ELSE 'Pending' END AS state
		FROM desired d LEFT JOIN LATERAL (SELECT s.seq, s.state FROM status s WHERE s.engine = d.engine AND s.kind = d.kind AND s.name = d.name OFFSET 0) s ON true
		WHERE (d.revision, d.seq) >= (o.revision, o.witness) AND (d.revision, d.seq) <= (o.revision, ` + lastRow + `) ORDER BY d.revision, d.seq LIMIT $3) w
	WHERE w.state <> 'Applied' GROUP BY 1, 2 ORDER BY 1, 2`

func pendingStats(ctx context.Context, tx pgx.Tx, f *view.FleetStats) error {
	var revisions []string
	var witnesses []int64
	rows, err := tx.Query(ctx,
		`SELECT revision, witness, recorded_at FROM revisions WHERE applied_at IS NULL ORDER BY n LIMIT $1`, openAtMost)
	if err != nil {
		return err
	}
	var revision string
	var witness int64
	var recorded time.Time
	if _, err = pgx.ForEachRow(rows, []any{&revision, &witness, &recorded}, func() error {
		revisions, witnesses = append(revisions, revision), append(witnesses, witness)
		join(&f.Unapplied, 1, recorded)
		return nil
	}); err != nil || len(revisions) == 0 {
		return err
	}
	if rows, err = tx.Query(ctx, sqlPendingRows, revisions, witnesses,
		shareOf(len(revisions))); err != nil {
		return err
	}
	return pendingByEngine(rows, f)
}

// shareOf is the number of rows that each of n scans may read.
func shareOf(n int) int { return max(leastWalk, walkRows/n) }

// pendingByEngine counts pending rows by engine of the platform, and those on environments' own
// clusters together.
func pendingByEngine(rows pgx.Rows, f *view.FleetStats) error {
	byName := map[fleet.EngineName]*view.EngineStats{}
	for i := range f.Engines {
		byName[f.Engines[i].Engine] = &f.Engines[i]
	}
	var name fleet.EngineName
	var state mirror.ApplyState
	var n int
	var oldest time.Time
	_, err := pgx.ForEachRow(rows, []any{&name, &state, &n, &oldest}, func() error {
		switch e := byName[name]; {
		case e != nil:
			e.Rows[state] += n
			if state == mirror.ApplyPending {
				join(&e.Waiting, n, oldest)
			}
		case name.OfEnvironment():
			f.Agents.Rows[state] += n
			if state == mirror.ApplyPending {
				f.Agents.Waiting = append(f.Agents.Waiting, view.Backlog{Count: n, Oldest: oldest})
			}
		}
		return nil
	})
	return err
}

func join(b *view.Backlog, n int, oldest time.Time) {
	if b.Count += n; b.Oldest.IsZero() || oldest.Before(b.Oldest) {
		b.Oldest = oldest
	}
}

// agentStats counts identities rather than rows: one read for each declaration and each agent, of
// which there are at most some ten thousand.
func agentStats(ctx context.Context, tx pgx.Tx, f *view.FleetStats) error {
	return tx.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE a.live AND a.fresh), count(*) FILTER (WHERE a.live AND NOT a.fresh), count(*) FILTER (WHERE a.live IS NULL)
		FROM (
			SELECT d.tenant, d.name FROM declarations d WHERE d.kind = 'ManagedEnvironment' AND d.body #> '{environment,agent}' IS NOT NULL
			UNION ALL
			SELECT d.tenant, d.name FROM declarations d WHERE d.kind = 'Engine' AND d.tenant = '' AND d.body #> '{engine,connection,agent}' IS NOT NULL) e
		FULL JOIN (
			SELECT i.tenant, i.name, true AS live, coalesce(r.beat_at > clock_timestamp() - `+agentSeen+`, false) AS fresh
			FROM agents i LEFT JOIN replicas r ON r.replica = i.connected_to WHERE i.ended_at IS NULL) a ON a.tenant = e.tenant AND a.name = e.name`).
		Scan(&f.Agents.Connected, &f.Agents.Stale, &f.Agents.Never)
}

// orphanStats counts orphans by engine: on the platform's engines, and on clusters behind agents
// that have any.
func orphanStats(ctx context.Context, tx pgx.Tx, f *view.FleetStats) error {
	f.Orphans = map[fleet.EngineName]int{}
	for _, e := range f.Engines {
		f.Orphans[e.Engine] = 0
	}
	rows, err := tx.Query(ctx, `
		SELECT w.engine, max(w.n) FROM (
			SELECT engine, count(*) AS n FROM (SELECT engine FROM strays LIMIT $1) s GROUP BY engine
			UNION ALL SELECT engine, strays FROM agents WHERE ended_at IS NULL AND strays > 0) w
		GROUP BY w.engine ORDER BY 2 DESC, 1 LIMIT 1000`, view.MaxFigure)
	if err != nil {
		return err
	}
	var name fleet.EngineName
	var n int
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
		f.Orphans[name] = n
		return nil
	})
	return err
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// few is a statement that counts a table's rows by word, up to view.MaxFigure in all.
func few(word, since, from string) string {
	return fmt.Sprintf(
		`SELECT word, count(*), min(since) FROM (SELECT %s AS word, %s AS since FROM %s LIMIT %d) w GROUP BY word`, word, since, from, view.MaxFigure)
}

const noTime = `NULL::timestamptz`

// backlogs reads the result of few.
func backlogs[K ~string](ctx context.Context, tx pgx.Tx, sql string) (map[K]view.Backlog, error) {
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	found := map[K]view.Backlog{}
	var word K
	var n int
	var oldest *time.Time
	_, err = pgx.ForEachRow(rows, []any{&word, &n, &oldest}, func() error {
		found[word] = view.Backlog{Count: n, Oldest: orZero(oldest)}
		return nil
	})
	return found, err
}

func countsOf[K ~string](from map[K]view.Backlog) map[K]int {
	counts := map[K]int{}
	for word, b := range from {
		counts[word] = b.Count
	}
	return counts
}

// countStats counts items for people to decide or fix.
func countStats(ctx context.Context, tx pgx.Tx, f *view.FleetStats) (err error) {
	if f.Holds, err = backlogs[mirror.HoldReason](ctx, tx,
		few("reason", "since", "holds")); err != nil {
		return err
	}
	if f.Stops, err = backlogs[mirror.StopScope](ctx, tx, few("scope", "at", "stops")); err != nil {
		return err
	}
	if f.Unproven, err = backlogs[mirror.Lost](ctx, tx,
		few("lost", "forgotten_at", "unproven")); err != nil {
		return err
	}
	if f.HaltedRings, err = backlogs[string](ctx, tx,
		few("name", "since", "rings WHERE state IN ('Halted', 'Unavailable')")); err != nil {
		return err
	}
	if f.DifferingRings, err = backlogs[string](ctx, tx,
		few("name", "since", "rings WHERE state = 'Differs'")); err != nil {
		return err
	}
	stuck := "pools WHERE state = 'Full' AND waiting > 0 OR state IN ('Blocked', 'Unknown')"
	if f.StuckPools, err = backlogs[string](ctx, tx, few("name", "since", stuck)); err != nil {
		return err
	}
	large, err := backlogs[string](ctx, tx,
		few("(engine <> '')::text", noTime, "placements WHERE body ? 'tooLarge'"))
	f.TooLarge.Placed, f.TooLarge.Unplaced = large["true"].Count, large["false"].Count
	if err != nil {
		return err
	}
	problems, err := backlogs[fleet.Severity](ctx, tx, few("severity", noTime, sqlProblems+" p"))
	if err != nil {
		return err
	}
	quarantines, err := backlogs[string](ctx, tx, few("''", noTime, "quarantines"))
	f.Problems, f.Quarantines = countsOf(problems), quarantines[""].Count
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx,
		`SELECT coalesce((SELECT state FROM rebalances WHERE ended_at IS NULL), '')`).Scan(
		&f.Rebalance)
}

// queueStats counts pending review jobs. An ended job is stored for a while and not counted,
// unless it failed permanently.
func queueStats(ctx context.Context, tx pgx.Tx, f *view.FleetStats) error {
	rechecks, err := backlogs[string](ctx, tx, few("''", "at", "looks WHERE wanted"))
	if err != nil {
		return err
	}
	jobs, err := backlogs[string](ctx, tx, few("state::text", noTime,
		"river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', "+
			"'discarded') AND queue = '"+jobQueue+"'"))
	f.Rechecks, f.Jobs = rechecks[""], countsOf(jobs)
	return err
}

// newLatencies is the number of revisions that may start between two calls; of more, the oldest are
// not followed.
const newLatencies = 50

const latencyColumns = `n, revision, committed_at, recorded_at, applied_at, created + changed + deleted`

func scanLatency(row pgx.CollectableRow) (view.RolloutLatency, error) {
	var t view.RolloutLatency
	var applied *time.Time
	err := row.Scan(&t.Number, &t.Revision, &t.CommittedAt, &t.RecordedAt, &applied, &t.Changes)
	t.AppliedAt = orZero(applied)
	return t, err
}

// latencyStats measures the progress of revisions that are rolling out or have started.
func latencyStats(ctx context.Context, tx pgx.Tx, ask view.StatsQuery,
	f *view.FleetStats) (err error) {
	if f.Rollouts, err = latencies(ctx, tx, ask); err != nil {
		return err
	}
	var lanes []lane
	for i := range f.Rollouts {
		t := &f.Rollouts[i]
		for _, l := range []lane{{t.Revision, false, &t.Synced}, {t.Revision, true, &t.Healthy}} {
			if !l.phase.Done {
				lanes = append(lanes, l)
			}
		}
	}
	return walk(ctx, tx, lanes)
}

// latencies returns the requested revisions that are still recorded, in their current state, and
// those that have started, by number.
func latencies(ctx context.Context, tx pgx.Tx, ask view.StatsQuery) ([]view.RolloutLatency, error) {
	known := map[int64]view.RolloutLatency{}
	for _, t := range ask.Latencies {
		known[t.Number] = t
	}
	found, err := read(ctx, tx, scanLatency, `
		SELECT `+latencyColumns+` FROM revisions WHERE n IN (
			SELECT unnest($1::bigint[])
			UNION (SELECT n FROM (SELECT n, recorded_at FROM revisions WHERE n > $2 ORDER BY n DESC LIMIT $5) r WHERE recorded_at >= $3)
			UNION (SELECT n FROM revisions WHERE applied_at IS NULL AND $4 ORDER BY n DESC LIMIT $5)) ORDER BY n`,
		column(ask.Latencies, func(t view.RolloutLatency) int64 { return t.Number }), ask.After,
		ask.Since,
		ask.Open, newLatencies)
	for i := range found {
		if before, ok := known[found[i].Number]; ok {
			found[i].Synced, found[i].Healthy = before.Synced, before.Healthy
		}
	}
	return found, err
}

// lane is one revision's progress to one state.
type lane struct {
	revision fleet.Revision
	healthy  bool
	phase    *view.Phase
}

// sqlWalk scans the rows of each lane from where it stopped. An Application matches its row when
// the row was acknowledged and the engine has reported since, or has had a minute to do so: an
// earlier report is about the row before.
const sqlWalk = `
	SELECT l.i, count(*), coalesce(max(w.seq), 0), coalesce(min(w.seq) FILTER (WHERE NOT w.there), 0), max(w.at) FILTER (WHERE w.there)
	FROM unnest($1::text[], $2::bigint[], $3::boolean[]) WITH ORDINALITY AS l (revision, next, healthy, i) CROSS JOIN LATERAL (
		SELECT d.seq, greatest(s.acked_at, s.observed_at) AS at, coalesce(s.seq = d.seq AND s.state = 'Applied' AND s.sync = 'Synced'
			AND (NOT l.healthy OR s.health = 'Healthy') AND (s.observed_at >= s.acked_at OR s.acked_at < now() - interval '1 minute'), false) AS there
		FROM desired d LEFT JOIN LATERAL (
			SELECT s.seq, s.state, s.sync, s.health, s.acked_at, s.observed_at FROM status s
			WHERE s.engine = d.engine AND s.kind = d.kind AND s.name = d.name OFFSET 0) s ON true
		WHERE (d.revision, d.seq) >= (l.revision, l.next) AND (d.revision, d.seq) <= (l.revision, ` + lastRow + `) AND d.kind = 'Application' AND NOT d.absent
		ORDER BY d.revision, d.seq LIMIT $4) w
	GROUP BY l.i`

// walk advances each lane as far as its Applications have come. A lane without rows left is done.
func walk(ctx context.Context, tx pgx.Tx, lanes []lane) error {
	if len(lanes) == 0 {
		return nil
	}
	share := shareOf(len(lanes))
	rows, err := tx.Query(ctx, sqlWalk,
		column(lanes, func(l lane) string { return string(l.revision) }),
		column(lanes, func(l lane) int64 { return l.phase.Next }),
		column(lanes, func(l lane) bool { return l.healthy }), share)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		l.phase.Done = true
	}
	var i, n int
	var last, first int64
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{&i, &n, &last, &first, &at}, func() error {
		s := lanes[i-1].phase
		s.Any = true
		if at != nil && at.After(s.At) {
			s.At = *at
		}
		switch {
		case first > 0:
			s.Next, s.Done = first, false
		case n == share:
			s.Next, s.Done = last+1, false
		}
		return nil
	})
	return err
}
