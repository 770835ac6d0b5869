package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Measured returns the CPU in use of each measured engine, and what excludes engines and
// environments from a rebalance. After the end of a move, its engines are measured again.
func (s *Views) Measured(ctx context.Context, again time.Duration) (m mirror.Measured, err error) {
	err = s.within(ctx, view.Scope{}, func(tx pgx.Tx) error {
		m = mirror.Measured{Cores: map[fleet.EngineName]float64{},
			Moving: map[fleet.EngineName]bool{}, Fixed: map[fleet.SliceID]string{}}
		moving, err := read(ctx, tx, pgx.RowTo[fleet.EngineName], `
			WITH recent AS (SELECT from_engine, to_engine FROM application_moves WHERE step <> 'Done'
				UNION SELECT from_engine, to_engine FROM application_moves WHERE since > now() - $1::interval
				UNION SELECT p.engine, r.to_engine FROM move_requests r JOIN placements p USING (tenant, environment, slice) WHERE NOT r.dry_run)
			SELECT from_engine FROM recent UNION SELECT to_engine FROM recent`, again)
		if err != nil {
			return err
		}
		for _, engine := range moving {
			m.Moving[engine] = true
		}
		if err := measuredCores(ctx, tx, m); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			SELECT p.tenant, p.environment, p.slice, 'rebalance ' || r.id || ' of its engine was rejected ' || r.message
			FROM rebalances r JOIN rebalance_moves m ON m.rebalance = r.id JOIN placements p ON p.engine = m.from_engine
			WHERE r.state = 'Rejected' AND r.ended_at > now() - $1::interval
			UNION ALL
			SELECT p.tenant, p.environment, p.slice, 'its move by rebalance ' || rebalance || ' ' || message
			FROM rebalance_moves m JOIN placements p ON p.tenant = m.tenant AND p.environment = m.environment AND slices_overlap(p.slice, m.slice)
			WHERE state IN ('Refused', 'Undone') AND ended_at > now() - $1::interval ORDER BY 1, 2, 3, 4`,
			mirror.RebalanceMemory)
		if err != nil {
			return err
		}
		var id fleet.SliceID
		var why string
		into := []any{&id.Tenant, &id.Environment, &id.Slice, &why}
		_, err = pgx.ForEachRow(rows, into, func() error {
			m.Fixed[id] = why + "; that counts for a day"
			return nil
		})
		return err
	})
	return m, wrap(err, "measured load of engines")
}

func measuredCores(ctx context.Context, tx pgx.Tx, m mirror.Measured) error {
	rows, err := tx.Query(ctx, `SELECT e.name, g.load FROM declarations e JOIN engines g ON g.engine = e.name
		WHERE e.kind = 'Engine' AND e.tenant = '' AND e.body #> '{engine,metrics}' IS NOT NULL AND g.load IS NOT NULL`)
	if err != nil {
		return err
	}
	var name fleet.EngineName
	var load *mirror.Load
	now := time.Now()
	_, err = pgx.ForEachRow(rows, []any{&name, &load}, func() error {
		if cores, known := load.Cores(now); known && !m.Moving[name] {
			m.Cores[name] = cores
		}
		load = nil
		return nil
	})
	return err
}

// sqlRebalance is a rebalance with its moves; patience is $1.
const sqlRebalance = `SELECT r.id, r.state, r.message, r.since, r.engines, r.proposed_at, r.accepted_by, r.accepted_at, r.ended_at,
		(SELECT coalesce(jsonb_agg(jsonb_build_object(
			'environment', jsonb_build_object('tenant', m.tenant, 'name', m.environment), 'slice', m.slice, 'from', m.from_engine, 'to', m.to_engine,
			'applications', m.applications, 'unready', m.unready, 'state', m.state, 'message', m.message, 'operation', m.operation)
			ORDER BY m.position), '[]') FROM rebalance_moves m WHERE m.rebalance = r.id)
	FROM rebalances r`

func scanRebalance(row pgx.CollectableRow) (r mirror.Rebalance, err error) {
	var engines, moves []byte
	err = row.Scan(&r.ID, &r.State, &r.Message, &r.Since, &engines, &r.ProposedAt, &r.AcceptedBy,
		&r.AcceptedAt, &r.EndedAt, &moves)
	return r, errors.Join(err, json.Unmarshal(engines, &r.Engines), json.Unmarshal(moves, &r.Moves))
}

// Rebalances match Filter.Name (the rebalance's ID), newest first. The API calls it with the
// platform in scope only.
func (s *Views) Rebalances(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
	[]mirror.Rebalance, string, error) {
	f := filter{}
	f.equal("r.id", by.Name)
	return list(ctx, s.database, scope, listing[mirror.Rebalance]{
		name: "rebalances", keys: []string{"r.id"}, newest: true, scan: scanRebalance,
		sql: sqlRebalance, key: func(r mirror.Rebalance) []string { return []string{r.ID} },
	}, f, page, nil)
}

// Rebalance returns what is known of rebalances, and records the moves that have ended. A move is
// in trouble while a step of it takes longer than patience, or an Application of it is back on the
// engine because the new one could not adopt it. A move that was never requested is in no trouble.
func (s *Plans) Rebalance(ctx context.Context, patience time.Duration) (f mirror.RebalanceFacts,
	err error) {
	err = s.transact(ctx, func(tx pgx.Tx) (err error) {
		// a move ends with its operation: in Moved, or undone by a person, whose operation it
		// is then
		if _, err := tx.Exec(ctx, `
			UPDATE rebalance_moves m SET state = CASE WHEN o.state = 'Succeeded' THEN 'Moved' ELSE 'Undone' END,
				message = CASE WHEN o.state = 'Succeeded' THEN '' ELSE 'has ended: ' || coalesce(o.message, 'its operation is gone') END,
				ended_at = coalesce(o.ended_at, now())
			FROM rebalance_moves open LEFT JOIN operations o ON o.id = open.operation
			WHERE open.state = 'Requested' AND (o.id IS NULL OR o.ended_at IS NOT NULL)
				AND (m.rebalance, m.position) = (open.rebalance, open.position)`); err != nil {
			return err
		}
		f, err = rebalanceFacts(ctx, tx, patience)
		return err
	})
	return f, wrap(err, "rebalance")
}

func rebalanceFacts(ctx context.Context, tx pgx.Tx, patience time.Duration) (
	f mirror.RebalanceFacts, err error) {
	// the lock orders requests and the decisions of people
	open, err := read(ctx, tx, scanRebalance, sqlRebalance+` WHERE r.ended_at IS NULL FOR UPDATE OF r`)
	if err != nil {
		return f, err
	}
	if err := tx.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM (SELECT tenant, environment, slice FROM application_moves WHERE step <> 'Done'
				UNION SELECT tenant, environment, slice FROM move_requests WHERE NOT dry_run) AS open),
			(SELECT count(*) FROM rebalance_moves WHERE state <> 'Refused' AND requested_at > now() - interval '1 hour')
				+ (SELECT count(*) FROM drain_moves WHERE state <> 'Refused' AND at > now() - interval '1 hour'),
			ARRAY(SELECT engine FROM drains WHERE state = 'Moving' ORDER BY 1)`).Scan(&f.UnderWay,
		&f.BegunLastHour, &f.Draining); err != nil || len(open) == 0 {
		return f, err
	}
	f.Open = &open[0]
	rows, err := tx.Query(ctx, `
		WITH moves AS (SELECT m.*, r.resumed_at FROM rebalance_moves m JOIN rebalances r ON r.id = m.rebalance WHERE r.id = $1),
		waits AS (
			SELECT m.position, max(a.since) > m.resumed_at AS counts,
				coalesce(min(why) FILTER (WHERE known), min(why)) AS why
			FROM moves m JOIN LATERAL (
				SELECT a.since, a.message <> '' AS known, 'waits in ' || a.step || ': '
					|| coalesce(nullif(a.message, ''), a.departure ->> 'returns', 'its engine is unreachable or stopped') AS why
				FROM application_moves a WHERE (a.tenant, a.environment, a.operation) = (m.tenant, m.environment, m.operation) AND a.step <> 'Done'
					AND (a.departure ? 'returns' OR a.step <> 'Ready' AND a.since < now() - $2::interval)) a ON true
			WHERE m.state = 'Requested' GROUP BY 1, m.resumed_at)
		SELECT m.position, m.tenant || '/' || m.environment || CASE m.slice WHEN '' THEN ' ' ELSE ' slice ' || m.slice || ' ' END || coalesce(w.why, m.message), coalesce(w.counts, m.ended_at > m.resumed_at)
		FROM moves m LEFT JOIN waits w USING (position) WHERE w.position IS NOT NULL OR m.state IN ('Refused', 'Undone') AND m.operation <> ''
		ORDER BY m.position`, f.Open.ID, patience)
	if err != nil {
		return f, err
	}
	var position int
	var why string
	var counts bool
	_, err = pgx.ForEachRow(rows, []any{&position, &why, &counts}, func() error {
		f.Troubles = append(f.Troubles, why)
		if counts {
			f.Counts++
		}
		return nil
	})
	return f, err
}

// ProposeRebalance records a rebalance with its Moves, Engines and Message, accepted if AcceptedBy
// is set, in place of the open proposal with the id instead. mirror.ErrFenced when the lease has
// passed on, mirror.ErrRebalanceState if another one is open, or a person has accepted that one.
func (s *Plans) ProposeRebalance(ctx context.Context, lease mirror.Lease, r mirror.Rebalance,
	instead string) error {
	r.ID = newID()
	engines, err := json.Marshal(r.Engines)
	if err != nil {
		return wrap(err, "rebalance")
	}
	state, news := mirror.RebalanceProposed, "proposed"
	if r.AcceptedBy != "" {
		state, news = mirror.RebalanceMoving, "proposed and accepted by "+r.AcceptedBy
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		f := fence(lease)
		if _, err := tx.Exec(ctx, f.sql, f.args...); err != nil {
			return err
		}
		if err := endRebalance(ctx, tx, instead, mirror.RebalanceObsolete,
			"rebalance "+r.ID+" replaces it", true); instead != "" && err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			INSERT INTO rebalances (id, state, message, engines, accepted_by, accepted_at)
			VALUES ($1, $2, $3, $4, $5::text, CASE WHEN $5 <> '' THEN now() END) ON CONFLICT ((true)) WHERE ended_at IS NULL DO NOTHING`,
			r.ID, string(state), message(r.Message), string(engines), text(r.AcceptedBy))
		if err == nil && tag.RowsAffected() == 0 {
			err = mirror.ErrRebalanceState
		}
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		for i, m := range r.Moves {
			b.Queue(`
				INSERT INTO rebalance_moves (rebalance, position, tenant, environment, slice, tenant_uid, from_engine, to_engine, applications, unready)
				VALUES ($1, $2, $3, $4, $5, live_tenant($3), $6, $7, $8, $9)`,
				r.ID, i, string(m.Environment.Tenant), string(m.Environment.Name), string(m.Slice),
				string(m.From), string(m.To), m.Applications, m.Unready)
		}
		b.Queue(`SELECT new_event('rebalance', '', $1, $2)`, r.ID, news)
		return tx.SendBatch(ctx, b).Close()
	})
	return wrap(err, "rebalance %s", r.ID)
}

// endRebalance ends an open rebalance; mirror.ErrRebalanceState if it is not open, or has to be a
// proposal and is accepted. Moves under way go on.
func endRebalance(ctx context.Context, tx pgx.Tx, id string, state mirror.RebalanceState,
	why string, proposed bool) error {
	tag, err := tx.Exec(ctx, `UPDATE rebalances SET state = $2, message = $3, since = now(), ended_at = now()
		WHERE id = $1 AND ended_at IS NULL AND (NOT $4 OR state = 'Proposed')`,
		id, string(state), message(why), proposed)
	if err == nil && tag.RowsAffected() == 0 {
		err = mirror.ErrRebalanceState
	}
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(`UPDATE rebalance_moves SET state = 'Skipped', ended_at = now() WHERE rebalance = $1 AND state = 'Planned'`,
		id)
	b.Queue(`SELECT new_event('rebalance', '', $1, $2)`, id, string(state)+": "+why)
	return tx.SendBatch(ctx, b).Close()
}

// SetRebalance records the state of a rebalance and its message. A state that is not open ends it.
// Nothing is recorded if the rebalance has ended, or a person has paused, resumed or accepted it
// since was read. mirror.ErrFenced when the lease has passed on.
func (s *Plans) SetRebalance(ctx context.Context, lease mirror.Lease, was mirror.Rebalance,
	state mirror.RebalanceState, why string) error {
	err := s.transact(ctx, func(tx pgx.Tx) error {
		f := fence(lease)
		if _, err := tx.Exec(ctx, f.sql, f.args...); err != nil {
			return err
		}
		var same bool
		err := tx.QueryRow(ctx, `SELECT state = $2 AND since = $3 FROM rebalances WHERE id = $1 AND ended_at IS NULL FOR UPDATE`,
			was.ID, string(was.State), was.Since).Scan(&same)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !same {
			return nil
		}
		if err == nil && !state.Open() {
			return endRebalance(ctx, tx, was.ID, state, why, false)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `
				WITH changed AS (
					UPDATE rebalances r SET state = $2, message = $3, since = CASE WHEN r.state = $2 THEN r.since ELSE now() END
					FROM rebalances was WHERE was.id = r.id AND r.id = $1 AND (r.state, r.message) <> ($2, $3)
					RETURNING was.state <> $2 AS news)
				SELECT new_event('rebalance', '', $1, $2 || ': ' || $3) FROM changed WHERE news`,
				was.ID, string(state), message(why))
		}
		return err
	})
	return wrap(err, "rebalance %s", was.ID)
}

// TakeRebalance accepts a proposal without a person. It does nothing if the proposal has been
// decided. mirror.ErrFenced when the lease has passed on.
func (s *Plans) TakeRebalance(ctx context.Context, lease mirror.Lease, id, by string) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		b.Queue(`
			WITH taken AS (
				UPDATE rebalances SET state = 'Moving', message = '', since = now(), accepted_by = $2, accepted_at = now()
				WHERE id = $1 AND state = 'Proposed' RETURNING id)
			SELECT new_event('rebalance', '', id, 'accepted by ' || $2) FROM taken`, id, text(by))
	})
	return wrap(err, "rebalance %s", id)
}

// RequestRebalance requests moves of an accepted rebalance as long as the budget allows another,
// and returns how many. skip are moves that are not to be made, with the reason as Message: Skipped
// ones are not right any more, Refused ones could not begin.
// It does nothing if the rebalance has ended or is paused. The transaction of the requests checks
// the budget: no second leader exceeds it. mirror.ErrFenced when the lease has passed on.
func (s *Plans) RequestRebalance(ctx context.Context, lease mirror.Lease, id string,
	churn fleet.Churn, moves []mirror.MoveRequest, skip []mirror.RebalanceMove) (n int, err error) {
	for i := range moves {
		moves[i].Operation = newID()
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		n = 0
		fenced := fence(lease)
		if _, err := tx.Exec(ctx, fenced.sql, fenced.args...); err != nil {
			return err
		}
		f, err := rebalanceFacts(ctx, tx, time.Hour)
		if err != nil || f.Open == nil || f.Open.ID != id || !f.Open.State.Requests() {
			return err
		}
		b := &pgx.Batch{}
		for _, m := range skip {
			b.Queue(`UPDATE rebalance_moves SET state = $6, message = $5, ended_at = now()
				WHERE `+sqlSlice+` AND rebalance = $4 AND state = 'Planned'`,
				sliceArgs(m.ID(), id, message(m.Message), string(m.State))...)
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		allowed := min(churn.AtOnce-f.UnderWay, churn.PerHour-f.BegunLastHour)
		for _, m := range moves {
			if n >= allowed {
				return nil
			}
			requested, err := requestMove(ctx, tx, m)
			if err != nil {
				return err
			}
			if !requested {
				continue
			}
			n++
			if _, err := tx.Exec(ctx, `UPDATE rebalance_moves SET state = 'Requested', operation = $5, requested_at = now()
				WHERE `+sqlSlice+` AND rebalance = $4 AND state = 'Planned'`,
				sliceArgs(m.ID(), id, m.Operation)...); err != nil {
				return err
			}
		}
		return nil
	})
	return n, wrap(err, "rebalance %s", id)
}

// AcceptRebalance lets a proposed rebalance request its moves. mirror.ErrRebalanceState if it is
// not proposed.
func (s *Decisions) AcceptRebalance(ctx context.Context, d mirror.RebalanceDecision) error {
	return s.decideRebalance(ctx, d, "accept rebalance", "accepted", `
		UPDATE rebalances SET state = 'Moving', message = '', since = now(), accepted_by = $2, accepted_at = now()
		WHERE id = $1 AND state = 'Proposed' AND $3::text IS NOT NULL`)
}

// RejectRebalance ends a rebalance that is proposed or accepted. Moves that are requested or under
// way go on. mirror.ErrRebalanceState if it has ended.
func (s *Decisions) RejectRebalance(ctx context.Context, d mirror.RebalanceDecision) error {
	return s.decideRebalance(ctx, d, "reject rebalance", "rejected", `
		WITH ended AS (
			UPDATE rebalances SET state = 'Rejected', message = 'by ' || $2 || coalesce(nullif(': ' || $3, ': '), ''), since = now(), ended_at = now()
			WHERE id = $1 AND ended_at IS NULL RETURNING id),
		skipped AS (
			UPDATE rebalance_moves m SET state = 'Skipped', ended_at = now() FROM ended e WHERE m.rebalance = e.id AND m.state = 'Planned')
		SELECT FROM ended`)
}

// PauseRebalance keeps an accepted rebalance from requesting moves; those that are requested or
// under way go on. mirror.ErrRebalanceState if it is not accepted, or has ended.
func (s *Decisions) PauseRebalance(ctx context.Context, d mirror.RebalanceDecision) error {
	return s.decideRebalance(ctx, d, "pause rebalance", "paused", `
		UPDATE rebalances SET state = 'Paused', message = 'by ' || $2 || coalesce(nullif(': ' || $3, ': '), ''), since = now()
		WHERE id = $1 AND state IN ('Moving', 'Waiting', 'Stopped')`)
}

// ResumeRebalance ends a pause. Moves that wait, were refused or undone before no longer stop the
// rebalance. mirror.ErrRebalanceState if it is not accepted, or has ended.
func (s *Decisions) ResumeRebalance(ctx context.Context, d mirror.RebalanceDecision) error {
	return s.decideRebalance(ctx, d, "resume rebalance", "resumed", `
		UPDATE rebalances SET state = 'Moving', message = '', since = now(), resumed_at = clock_timestamp()
		WHERE id = $1 AND state IN ('Moving', 'Waiting', 'Stopped', 'Paused') AND ($2::text, $3::text) IS NOT NULL`)
}

func (s *Decisions) decideRebalance(ctx context.Context, d mirror.RebalanceDecision, action, news,
	update string) error {
	id := text(d.ID)
	err := s.decide(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, update, id, text(d.By), message(d.Reason))
		if err == nil && tag.RowsAffected() == 0 {
			err = mirror.ErrRebalanceState
		}
		if err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: action, subject: "rebalance " + id,
			by: d.By, note: d.Reason, event: view.Event{Kind: "rebalance", Name: id, Text: news}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "%s %s", action, d.ID)
}
