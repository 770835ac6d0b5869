package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Recent is the Applications that were deleted within the window that ends now, by the database's
// clock.
func (s *Plans) Recent(ctx context.Context, window time.Duration) (mirror.Recent, error) {
	var l mirror.Recent
	err := s.within(ctx, view.Scope{}, func(tx pgx.Tx) (err error) {
		if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&l.Now); err != nil {
			return err
		}
		l.Deleted, err = read(ctx, tx, scanDeletion, `SELECT `+deletionColumns+
			` FROM deletions WHERE at > now() - $1::interval ORDER BY n`, window)
		return err
	})
	return l, wrap(err, "what was lately deleted")
}

// RecentCreations counts the Applications that were created within the window: they did not stand
// when it began. It costs as much as was created, so it is for plans that delete something.
func (s *Plans) RecentCreations(ctx context.Context, window time.Duration) (map[fleet.TenantName]int,
	error) {
	created := map[fleet.TenantName]int{}
	err := s.within(ctx, view.Scope{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT tenant, count(*) FROM desired
			WHERE kind = 'Application' AND created_at > now() - $1::interval AND NOT absent GROUP BY tenant`, window)
		if err != nil {
			return err
		}
		clear(created)
		var tenant fleet.TenantName
		var n int
		_, err = pgx.ForEachRow(rows, []any{&tenant, &n}, func() error {
			created[tenant] = n
			return nil
		})
		return err
	})
	return created, wrap(err, "what was lately created")
}

// Vanished returns the keys whose rows were deleted because their objects were proven deleted. A
// missing row alone proves nothing: the database may have lost it.
func (s *Plans) Vanished(ctx context.Context, keys []fleet.ObjectKey) ([]fleet.ObjectKey, error) {
	gone, err := collect(ctx, s.database, pgx.RowToStructByPos[fleet.ObjectKey], `
		SELECT k.engine, k.kind, k.name FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (engine, kind, name, n)
		JOIN removals r ON r.engine = k.engine AND r.kind = k.kind AND r.name = k.name AND r.life = (SELECT incarnation())
		WHERE NOT EXISTS (SELECT FROM desired d WHERE d.engine = k.engine AND d.kind = k.kind AND d.name = k.name) ORDER BY k.n`, objectColumns(keys)...)
	return gone, wrap(err, "rows that have gone")
}
