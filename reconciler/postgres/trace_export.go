package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

const (
	exportedAtOnce = 20   // commits
	exportedOf     = 5000 // newest commits; earlier ones are not exported
	exportedFor    = 24 * time.Hour
)

// Traces has the commits whose spans are exported.
type Traces struct{ *database }

// Take claims at most 20 commits that have come to their end, or that were recorded longer ago than
// patience, and returns their traces. Each commit is claimed once, by one replica. Commits that are
// older than a day are not exported.
func (s *Traces) Take(ctx context.Context, patience time.Duration) ([]view.Trace, error) {
	type candidate struct {
		revision fleet.Revision
		late     bool
	}
	candidates, err := collect(ctx, s.database, func(row pgx.CollectableRow) (c candidate,
		err error) {
		err = row.Scan(&c.revision, &c.late)
		return c, err
	}, `SELECT revision, recorded_at < now() - $1::interval
		FROM (SELECT n, revision, recorded_at, applied_at, traced_at FROM revisions ORDER BY n DESC LIMIT $2) r
		WHERE traced_at IS NULL AND recorded_at > now() - $3::interval AND (applied_at IS NOT NULL OR recorded_at < now() - $1::interval)
		ORDER BY n LIMIT $4`, patience, exportedOf, exportedFor, exportedAtOnce)
	if err != nil {
		return nil, wrap(err, "commits to export")
	}
	views := &Views{s.database}
	var taken []view.Trace
	for _, c := range candidates {
		t, err := views.Trace(ctx, view.Scope{}, c.revision, view.Filter{})
		if err != nil {
			return taken, err
		}
		if !t.Complete() && !c.late {
			continue
		}
		var mine int64
		err = s.again(ctx, func() error {
			tag, err := s.work.Exec(ctx, `UPDATE revisions SET traced_at = now() WHERE revision = $1 AND traced_at IS NULL`,
				string(c.revision))
			mine = tag.RowsAffected()
			return err
		})
		if err != nil {
			return taken, wrap(err, "export of commit %s", c.revision.Short())
		}
		if mine > 0 {
			taken = append(taken, t)
		}
	}
	return taken, nil
}

// Return gives back claimed commits for a later Take, and returns how many are too old for one.
func (s *Traces) Return(ctx context.Context, traces []view.Trace) (dropped int, err error) {
	var kept int64
	err = s.again(ctx, func() error {
		tag, err := s.work.Exec(ctx, `UPDATE revisions SET traced_at = NULL WHERE revision = ANY($1::text[]) AND recorded_at > now() - $2::interval`,
			column(traces, func(t view.Trace) string { return string(t.Revision) }), exportedFor)
		kept = tag.RowsAffected()
		return err
	})
	return len(traces) - int(kept), wrap(err, "return %d commits", len(traces))
}
