package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"argosy.dev/argosy/fleet/view"
)

// within runs reads of one snapshot within a scope. For a tenant they run as argosy_reader with the
// tenant set for this transaction alone: the database returns that tenant's rows only, whatever f
// selects. See in_scope in migrations/00002_rules.sql.
func (s *database) within(ctx context.Context, scope view.Scope, f func(pgx.Tx) error) error {
	return s.withinOf(ctx, s.work, scope, f)
}

func (s *database) withinOf(ctx context.Context, from *pgxpool.Pool, scope view.Scope,
	f func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return s.again(ctx, func() error {
		return pgx.BeginTxFunc(ctx, from, options, func(tx pgx.Tx) error {
			if scope.Tenant != "" {
				batch := &pgx.Batch{}
				batch.Queue(`SELECT set_config('argosy.tenant', $1, true)`,
					text(string(scope.Tenant)))
				batch.Queue(`SET LOCAL ROLE argosy_reader`)
				if err := tx.SendBatch(ctx, batch).Close(); err != nil {
					return err
				}
			}
			return f(tx)
		})
	})
}
