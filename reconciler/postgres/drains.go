package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// EndDrains forgets the drains of all engines but those that drain. mirror.ErrFenced when the lease
// has passed on.
func (s *Plans) EndDrains(ctx context.Context, lease mirror.Lease,
	draining []fleet.EngineName) error {
	names := column(draining, func(e fleet.EngineName) string { return string(e) })
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		b.Queue(`DELETE FROM drain_moves WHERE engine <> ALL($1::text[])`, names)
		b.Queue(`DELETE FROM drains WHERE engine <> ALL($1::text[])`, names)
	})
	return wrap(err, "end drains")
}

// Drain returns the progress of an engine's drain, which begins with the first call. A move is in
// trouble while a step of it takes longer than patience, or an Application of it is back on the
// engine because the new one could not adopt it; a refused one is for as long as patience.
func (s *Plans) Drain(ctx context.Context, engine fleet.EngineName, patience time.Duration) (
	f mirror.DrainFacts, err error) {
	name := string(engine)
	err = s.transact(ctx, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, `INSERT INTO drains (engine, state) VALUES ($1, 'Moving')
			ON CONFLICT (engine) DO NOTHING`, name); err != nil {
			return err
		}
		f, err = drainFacts(ctx, tx, name, patience)
		return err
	})
	return f, wrap(err, "drain of engine %s", engine)
}

func drainFacts(ctx context.Context, tx pgx.Tx, engine string, patience time.Duration) (
	f mirror.DrainFacts, err error) {
	// the lock orders requests and the decisions of people
	err = tx.QueryRow(ctx, `
		SELECT state, message, since, CASE WHEN paused_at IS NOT NULL THEN paused_by ELSE '' END, pause_reason,
			(SELECT count(*) FROM placements WHERE engine = $1),
			(SELECT count(*) FROM (SELECT FROM desired WHERE engine = $1 LIMIT 1000) AS few),
			(SELECT count(*) FROM drain_moves WHERE engine = $1 AND state <> 'Refused' AND at > now() - interval '1 hour')
		FROM drains WHERE engine = $1 FOR UPDATE`, engine).Scan(&f.State, &f.Message, &f.Since,
		&f.PausedBy, &f.PauseReason, &f.Environments, &f.Objects, &f.BegunLastHour)
	if err != nil {
		return f, err
	}
	f.Open, err = read(ctx, tx, scanDrainMove, `
		WITH leaving AS (
			SELECT tenant, environment, slice, message <> '' AS known, since,
				departure ? 'returns' OR step <> 'Ready' AND since < now() - $2::interval AS waits,
				'waits in ' || step || ': ' || coalesce(nullif(message, ''), departure ->> 'returns', 'its engine is unreachable or stopped') AS why
			FROM application_moves WHERE from_engine = $1 AND step <> 'Done')
		SELECT tenant, environment, slice, coalesce(min(why) FILTER (WHERE waits AND known), min(why) FILTER (WHERE waits), ''),
			coalesce(bool_or(waits AND since > (SELECT resumed_at FROM drains WHERE engine = $1)), false)
		FROM leaving GROUP BY 1, 2, 3
		UNION ALL
		SELECT r.tenant, r.environment, r.slice, '', false FROM move_requests r JOIN placements p USING (tenant, environment, slice)
		WHERE p.engine = $1 AND NOT r.undo AND NOT r.dry_run
		ORDER BY 1, 2, 3`, engine, patience)
	if err != nil {
		return f, err
	}
	// what has failed was perhaps split or joined since
	f.Failed, err = read(ctx, tx, scanDrainMove, `
		SELECT m.tenant, m.environment, p.slice, m.message, true
		FROM drain_moves m JOIN placements p ON p.tenant = m.tenant AND p.environment = m.environment AND slices_overlap(p.slice, m.slice)
		WHERE m.engine = $1 AND p.engine = $1 AND m.ended_at > (SELECT resumed_at FROM drains WHERE engine = $1)
			AND (m.state = 'Undone' OR m.state = 'Refused' AND m.ended_at > now() - $2::interval)
		ORDER BY 1, 2, 3`, engine, patience)
	return f, err
}

func scanDrainMove(row pgx.CollectableRow) (m mirror.DrainMove, err error) {
	err = row.Scan(&m.Environment.Tenant, &m.Environment.Name, &m.Slice, &m.Trouble, &m.Counts)
	return m, err
}

// SetDrain records the state of an engine's drain.
func (s *Plans) SetDrain(ctx context.Context, engine fleet.EngineName, d mirror.Drain) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`
			WITH changed AS (
				UPDATE drains d SET state = $2, message = $3, since = CASE WHEN d.state = $2 THEN d.since ELSE now() END
				FROM drains was WHERE was.engine = d.engine AND d.engine = $1 AND (d.state, d.message) <> ($2, $3)
				RETURNING was.state <> $2 AS news)
			SELECT new_event('engine', '', $1, 'drain: ' || $2 || coalesce(nullif(': ' || $3, ': '), '')) FROM changed WHERE news`,
			string(engine), string(d.State), message(d.Message))
	})
	return wrap(err, "drain of engine %s", engine)
}

// RequestDrain requests moves off an engine as long as the budget allows another, and returns how
// many. It requests none if the drain is paused. The budget is checked in the transaction of the
// requests: no second leader exceeds it.
func (s *Plans) RequestDrain(ctx context.Context, engine fleet.EngineName, churn fleet.Churn,
	moves []mirror.MoveRequest) (n int, err error) {
	for i := range moves {
		moves[i].Operation = newID()
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		n = 0
		f, err := drainFacts(ctx, tx, string(engine), time.Hour)
		if err != nil || f.PausedBy != "" {
			return err
		}
		allowed := min(churn.AtOnce-len(f.Open), churn.PerHour-f.BegunLastHour)
		for _, m := range moves {
			if n >= allowed {
				return nil
			}
			requested, err := requestDrain(ctx, tx, engine, m)
			if err != nil {
				return err
			}
			if requested {
				n++
			}
		}
		return nil
	})
	return n, wrap(err, "drain of engine %s", engine)
}

// requestDrain requests one move; false if another one of the slice is requested or under way.
func requestDrain(ctx context.Context, tx pgx.Tx, engine fleet.EngineName, m mirror.MoveRequest) (
	bool, error) {
	requested, err := requestMove(ctx, tx, m)
	if err != nil || !requested {
		return false, err
	}
	table, key := tableOf("drain_moves", m.Moving().Slice)
	_, err = tx.Exec(ctx, `
		INSERT INTO `+table+` AS d (tenant, environment, slice, tenant_uid, engine, operation)
		VALUES ($1, $2, $3, live_tenant($1), $4, $5)
		ON CONFLICT `+key+` DO UPDATE SET tenant_uid = excluded.tenant_uid, engine = excluded.engine,
			operation = excluded.operation, state = 'Requested', message = '', at = now(), ended_at = NULL`,
		sliceArgs(m.Moving(), string(engine), m.Operation)...)
	return true, err
}

// requestMove requests a move that no person requests; false if another one of the slice is
// requested or under way.
func requestMove(ctx context.Context, tx pgx.Tx, m mirror.MoveRequest) (bool, error) {
	m.Undo, m.DryRun = false, false
	requested, err := addMoveRequest(ctx, tx, m)
	if err != nil || !requested {
		return false, err
	}
	tenant, subject := string(m.Environment.Tenant), moveSubject(m)
	batch := &pgx.Batch{}
	batch.Queue(`
		INSERT INTO operations (id, kind, state, tenant, tenant_uid, engine, subject, revision, requested_by, message, done, total, started_at)
		VALUES ($1, $2, 'Pending', $3, live_tenant($3), $4, $5, '', $6, $7, 0, 0, now())`,
		m.Operation, string(mirror.OperationMove), tenant, string(m.To), subject, text(m.By),
		message(m.Note))
	batch.Queue(`SELECT new_event('operation', $1, $2, $3)`, tenant, m.Operation,
		"move of "+subject+" requested")
	return true, tx.SendBatch(ctx, batch).Close()
}

// PauseDrain keeps an engine's drain from requesting moves; those that are requested or under way
// go on. mirror.ErrNotDraining if there is none.
func (s *Decisions) PauseDrain(ctx context.Context, p mirror.DrainPause) error {
	return s.decideDrain(ctx, p, "pause drain", "drain: paused", `
		UPDATE drains SET paused_at = coalesce(paused_at, now()), paused_by = $2, pause_reason = $3, state = 'Paused', message = '',
			since = CASE WHEN state = 'Paused' THEN since ELSE now() END WHERE engine = $1`)
}

// ResumeDrain ends a pause. Moves that wait, were refused or undone before no longer stop the
// drain, and undone ones are requested again. mirror.ErrNotDraining if there is none.
func (s *Decisions) ResumeDrain(ctx context.Context, p mirror.DrainPause) error {
	return s.decideDrain(ctx, p, "resume drain", "drain: resumed", `
		UPDATE drains SET paused_at = NULL, paused_by = '', pause_reason = '', resumed_at = clock_timestamp(), state = 'Moving', message = '',
			since = now() WHERE engine = $1 AND ($2::text, $3::text) IS NOT NULL`)
}

func (s *Decisions) decideDrain(ctx context.Context, p mirror.DrainPause, action, news,
	update string) error {
	err := s.decide(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, update, string(p.Engine), text(p.By), message(p.Reason))
		if err == nil && tag.RowsAffected() == 0 {
			err = mirror.ErrNotDraining
		}
		if err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: action, subject: "engine " +
			string(p.Engine), engine: p.Engine, by: p.By, note: p.Reason,
			event: view.Event{Kind: "engine", Name: string(p.Engine), Text: news}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "%s of engine %s", action, p.Engine)
}
