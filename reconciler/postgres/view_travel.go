package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// newTravels is the number of revisions that may start between two calls; of more, the oldest are
// not followed.
const newTravels = 50

const travelColumns = `n, revision, committed_at, recorded_at, applied_at, created + changed + deleted`

func scanTravel(row pgx.CollectableRow) (view.RolloutLatency, error) {
	var t view.RolloutLatency
	var applied *time.Time
	err := row.Scan(&t.Number, &t.Revision, &t.CommittedAt, &t.RecordedAt, &applied, &t.Changes)
	t.AppliedAt = orZero(applied)
	return t, err
}

// travelFigures measures the progress of revisions that are rolling out or have started.
func travelFigures(ctx context.Context, tx pgx.Tx, ask view.StatsQuery,
	f *view.FleetStats) (err error) {
	if f.Rollouts, err = travels(ctx, tx, ask); err != nil {
		return err
	}
	var lanes []lane
	for i := range f.Rollouts {
		t := &f.Rollouts[i]
		for _, l := range []lane{{t.Revision, false, &t.Synced}, {t.Revision, true, &t.Healthy}} {
			if !l.stretch.Done {
				lanes = append(lanes, l)
			}
		}
	}
	return walk(ctx, tx, lanes)
}

// travels returns the requested revisions that are still recorded, in their current state, and
// those that have started, by number.
func travels(ctx context.Context, tx pgx.Tx, ask view.StatsQuery) ([]view.RolloutLatency, error) {
	known := map[int64]view.RolloutLatency{}
	for _, t := range ask.Travels {
		known[t.Number] = t
	}
	found, err := read(ctx, tx, scanTravel, `
		SELECT `+travelColumns+` FROM revisions WHERE n IN (
			SELECT unnest($1::bigint[])
			UNION (SELECT n FROM (SELECT n, recorded_at FROM revisions WHERE n > $2 ORDER BY n DESC LIMIT $5) r WHERE recorded_at >= $3)
			UNION (SELECT n FROM revisions WHERE applied_at IS NULL AND $4 ORDER BY n DESC LIMIT $5)) ORDER BY n`,
		column(ask.Travels, func(t view.RolloutLatency) int64 { return t.Number }), ask.After, ask.Since,
		ask.Open, newTravels)
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
	stretch  *view.Phase
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
		column(lanes, func(l lane) int64 { return l.stretch.Next }),
		column(lanes, func(l lane) bool { return l.healthy }), share)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		l.stretch.Done = true
	}
	var i, n int
	var last, first int64
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{&i, &n, &last, &first, &at}, func() error {
		s := lanes[i-1].stretch
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
