package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// ReportEngine records the state of an engine. A report without news writes nothing.
// mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportEngine(ctx context.Context, lease mirror.Lease,
	report mirror.EngineReport) error {
	engine, err := leasedEngine(lease, []mirror.EngineReport{report},
		func(r mirror.EngineReport) fleet.ObjectKey {
			return fleet.ObjectKey{Engine: r.Engine, Name: "the report"}
		})
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			WITH changed AS (
				INSERT INTO engines AS e (engine, reachable, message, argocd, since) VALUES ($1, $2, $3, $4, now())
				ON CONFLICT (engine) DO UPDATE SET reachable = excluded.reachable, message = excluded.message,
					argocd = CASE WHEN excluded.argocd = '' THEN e.argocd ELSE excluded.argocd END,
					since = CASE WHEN e.reachable = excluded.reachable THEN e.since ELSE now() END
				WHERE (e.reachable, e.message) <> (excluded.reachable, excluded.message) OR excluded.argocd NOT IN ('', e.argocd)
				RETURNING *)
			SELECT new_event('engine', '', engine, CASE WHEN reachable THEN 'reachable' ELSE 'not reachable' END) FROM changed`,
			string(engine), report.Reachable, message(report.Message), message(report.ArgoCD))
	})
	return wrap(err, "report of engine %s", engine)
}

// SetCursor stores the number up to which a worker has read its rows. It never decreases.
// mirror.ErrFenced when the lease has passed on.
func (s *Work) SetCursor(ctx context.Context, lease mirror.Lease, cursor int64) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			INSERT INTO engines AS e (engine, cursor) VALUES ($1, $2)
			ON CONFLICT (engine) DO UPDATE SET cursor = excluded.cursor WHERE e.cursor < excluded.cursor`, string(engine), cursor)
	})
	return wrap(err, "cursor of engine %s", engine)
}

// Cursor is the latest number of SetCursor, or 0. The rows up to it were read, not necessarily
// acknowledged.
func (s *Work) Cursor(ctx context.Context, engine fleet.EngineName) (int64, error) {
	var cursor int64
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `SELECT cursor FROM engines WHERE engine = $1`,
			string(engine)).Scan(&cursor)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return cursor, wrap(err, "cursor of engine %s", engine)
}

// EngineSpecs returns the declared engines, and undeclared ones that still have rows to delete.
func (s *Plans) EngineSpecs(ctx context.Context) (map[fleet.EngineName]fleet.EngineSpec, error) {
	type named struct {
		name fleet.EngineName
		spec fleet.EngineSpec
	}
	all, err := collect(ctx, s.database, func(row pgx.CollectableRow) (named, error) {
		var n named
		err := row.Scan(&n.name, &n.spec)
		return n, err
	}, `
		SELECT e.engine, e.spec FROM engines e
		WHERE e.spec IS NOT NULL AND (
			EXISTS (SELECT FROM declarations d WHERE d.kind = 'Engine' AND d.tenant = '' AND d.name = e.engine) OR
			EXISTS (SELECT FROM desired d WHERE d.engine = e.engine))`)
	specs := make(map[fleet.EngineName]fleet.EngineSpec, len(all))
	for _, n := range all {
		specs[n.name] = n.spec
	}
	return specs, wrap(err, "engines")
}
