package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlPool is a pool p as JSON, without its declaration.
const sqlPool = `jsonb_build_object('name', p.name, 'state', p.state, 'message', p.message, 'since', p.since, 'load', p.load,
	'waiting', p.waiting, 'highSince', p.high_since, 'lowSince', p.low_since, 'steppedAt', p.stepped_at, 'pausedAt', p.paused_at,
	'pausedBy', p.paused_by, 'pauseReason', p.pause_reason, 'sizing', p.sizing)`

// PoolFacts returns what decides about the pools. draining are the instances that may be empty. A
// pool is known if its clusters were read in this incarnation of the database.
func (s *Plans) PoolFacts(ctx context.Context, draining []fleet.EngineName) (mirror.PoolFacts,
	error) {
	f := mirror.PoolFacts{Pools: map[string]mirror.Pool{}, Known: map[string]bool{},
		Empty: map[fleet.EngineName]bool{}}
	err := s.transact(ctx, func(tx pgx.Tx) (err error) {
		if err = tx.QueryRow(ctx, `SELECT now()`).Scan(&f.Now); err != nil {
			return err
		}
		_, err = read(ctx, tx, func(row pgx.CollectableRow) (p mirror.Pool, err error) {
			known := false
			err = row.Scan(&p, &known)
			f.Pools[p.Name], f.Known[p.Name] = p, known
			return p, err
		}, `SELECT `+sqlPool+`, p.known_in = incarnation() FROM pools p`)
		if err != nil {
			return err
		}
		if f.Instances, err = instanceFacts(ctx, tx); err != nil {
			return err
		}
		if f.Measured, err = measuredLoads(ctx, tx); err != nil || len(draining) == 0 {
			return err
		}
		empty, err := read(ctx, tx, pgx.RowTo[fleet.EngineName], `
			SELECT engine FROM unnest($1::text[]) AS e (engine)
			WHERE NOT EXISTS (SELECT FROM placements p WHERE p.engine = e.engine)
				AND NOT EXISTS (SELECT FROM desired d WHERE d.engine = e.engine)
				AND NOT EXISTS (SELECT FROM application_moves m WHERE m.step <> 'Done' AND e.engine IN (m.from_engine, m.to_engine))`,
			column(draining, func(e fleet.EngineName) string { return string(e) }))
		for _, e := range empty {
			f.Empty[e] = true
		}
		return err
	})
	return f, wrap(err, "pools")
}

// measuredLoads returns the loads of measured instances.
func measuredLoads(ctx context.Context, tx pgx.Tx) (map[fleet.EngineName]*mirror.Load, error) {
	loads := map[fleet.EngineName]*mirror.Load{}
	_, err := read(ctx, tx, func(row pgx.CollectableRow) (l *mirror.Load, err error) {
		var e fleet.EngineName
		err = row.Scan(&e, &l)
		loads[e] = l
		return l, err
	}, `SELECT e.engine, e.load FROM engines e JOIN instances i ON i.engine = e.engine WHERE e.load IS NOT NULL`)
	return loads, err
}

// SetPool records the state of a pool, whose instances are known. mirror.ErrFenced when the lease
// has passed on.
func (s *Plans) SetPool(ctx context.Context, lease mirror.Lease, p mirror.Pool) error {
	sizing := p.Sizing
	if sizing == nil {
		sizing = map[int]mirror.SizeMemory{} // without an entry it is no NULL
	}
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		b.Queue(`
			WITH was AS (SELECT state FROM pools WHERE name = $1),
			now_ AS (
				INSERT INTO pools AS p (name, state, message, load, waiting, high_since, low_since, stepped_at, known_in, sizing)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, CASE WHEN $9 THEN incarnation() ELSE '' END, $10)
				ON CONFLICT (name) DO UPDATE SET state = $2, message = $3, load = $4, waiting = $5, high_since = $6, low_since = $7,
					stepped_at = $8, sizing = $10, known_in = CASE WHEN $9 THEN incarnation() ELSE p.known_in END,
					since = CASE WHEN p.state = $2 THEN p.since ELSE now() END
				RETURNING state)
			SELECT new_event('pool', '', $1, $2 || coalesce(nullif(': ' || $3, ': '), ''))
			FROM now_ WHERE NOT EXISTS (SELECT FROM was WHERE was.state = $2)`,
			p.Name, string(p.State), message(p.Message), p.Load, p.Waiting, p.HighSince, p.LowSince,
			p.SteppedAt, p.State != mirror.PoolUnknown, sizing)
	})
	return wrap(err, "pool %s", p.Name)
}

// KeepPools forgets all other pools. mirror.ErrFenced when the lease has passed on.
func (s *Plans) KeepPools(ctx context.Context, lease mirror.Lease, names []string) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		// without an entry it is no NULL
		b.Queue(`DELETE FROM pools WHERE NOT name = ANY($1)`, append([]string{}, names...))
	})
	return wrap(err, "pools")
}

// RemoveInstance has the worker of an engine remove its Argo CD. mirror.ErrFenced when the lease
// has passed on.
func (s *Plans) RemoveInstance(ctx context.Context, lease mirror.Lease,
	engine fleet.EngineName) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		b.Queue(`UPDATE instances SET state = 'Removing', message = '', since = now() WHERE engine = $1 AND state <> 'Removing'`,
			string(engine))
	})
	return wrap(err, "instance of engine %s", engine)
}

// Pools match Filter.Name, on one page. They belong to the platform: a tenant's scope has none.
func (s *Views) Pools(ctx context.Context, scope view.Scope, by view.Filter, _ view.Page) (
	all []mirror.Pool, next string, err error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	err = s.within(ctx, scope, func(tx pgx.Tx) error {
		all, err = read(ctx, tx, func(row pgx.CollectableRow) (p mirror.Pool, err error) {
			var d fleet.Declaration
			if err = row.Scan(&p, &d, &p.Instances); err == nil && d.Pool != nil {
				spec := d.Pool.OrDefaults()
				p.Min, p.Max, p.TargetLoad, p.Ring = spec.Min, spec.Max, spec.TargetLoad, spec.Ring
			}
			return p, err
		}, `
			SELECT `+sqlPool+`, d.body, (SELECT coalesce(jsonb_agg(i.body #> '{engine,pool}' ORDER BY (i.body #>> '{engine,pool,number}')::int), '[]')
				FROM declarations i WHERE i.kind = 'Engine' AND i.tenant = '' AND i.body #>> '{engine,pool,pool}' = p.name)
			FROM pools p JOIN declarations d ON d.kind = 'EnginePool' AND d.tenant = '' AND d.name = p.name
			WHERE $1 IN ('', p.name) ORDER BY p.name`, by.Name)
		return err
	})
	return all, "", wrap(err, "pools")
}

// PausePool keeps a pool from making or draining another instance; mirror.ErrNoPool if there is
// none.
func (s *Decisions) PausePool(ctx context.Context, d mirror.PoolDecision) error {
	return s.decidePool(ctx, d, "pause", "paused", `
		UPDATE pools SET paused_at = coalesce(paused_at, now()), paused_by = $2, pause_reason = $3 WHERE name = $1`)
}

// ResumePool ends a pause; mirror.ErrNoPool if there is no such pool.
func (s *Decisions) ResumePool(ctx context.Context, d mirror.PoolDecision) error {
	return s.decidePool(ctx, d, "resume", "resumed", `
		UPDATE pools SET paused_at = NULL, paused_by = '', pause_reason = ''
		WHERE name = $1 AND ($2::text, $3::text) IS NOT NULL`)
}

func (s *Decisions) decidePool(ctx context.Context, d mirror.PoolDecision, verb, news,
	update string) error {
	return s.decideNamed(ctx, named{"pool", d.Pool, d.By, d.Reason, mirror.ErrNoPool}, verb, news,
		update)
}
