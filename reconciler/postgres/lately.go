package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
)

// Lately is what the deletion guards look back on: the Applications that were deleted and created within the window that ends now, by the
// database's clock.
func (s *Store) Lately(ctx context.Context, window time.Duration) (fleet.Lately, error) {
	var l fleet.Lately
	err := s.within(ctx, fleet.Scope{}, func(tx pgx.Tx) (err error) {
		if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&l.Now); err != nil {
			return err
		}
		if l.Deleted, err = read(ctx, tx, scanDeletion, `SELECT `+deletionColumns+` FROM deletions WHERE at > now() - $1::interval ORDER BY n`, window); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			SELECT tenant, count(*) FROM desired
			WHERE kind = 'Application' AND created_at > now() - $1::interval AND NOT absent GROUP BY tenant`, window)
		if err != nil {
			return err
		}
		l.Created = map[fleet.TenantName]int{}
		var tenant fleet.TenantName
		var n int
		_, err = pgx.ForEachRow(rows, []any{&tenant, &n}, func() error {
			l.Created[tenant] = n
			return nil
		})
		return err
	})
	return l, wrap(err, "what was lately created and deleted")
}

// Vanished are those of the keys that have no row any more: their objects were proven gone.
func (s *Store) Vanished(ctx context.Context, keys []fleet.ObjectKey) ([]fleet.ObjectKey, error) {
	gone, err := collect(ctx, s, pgx.RowToStructByPos[fleet.ObjectKey], `
		SELECT k.engine, k.kind, k.name FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (engine, kind, name, n)
		WHERE NOT EXISTS (SELECT FROM desired d WHERE d.engine = k.engine AND d.kind = k.kind AND d.name = k.name) ORDER BY k.n`, objectColumns(keys)...)
	return gone, wrap(err, "rows that have gone")
}
