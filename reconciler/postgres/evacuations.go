package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlAway is the placed slices that engine $1 has lost by its evacuation.
const sqlAway = `FROM placements p WHERE p.body ? 'evacuated' AND p.body -> 'evacuated' ? `

// sqlEvacuate records an evacuation, with operation $2, unless a person has requested one.
const sqlEvacuate = `
	INSERT INTO evacuations AS e (engine, operation, state, by, reason, restored)
	VALUES ($1, $2, 'Moving', $3, $4, EXISTS (SELECT ` + sqlAway + `$1))
	ON CONFLICT (engine) DO UPDATE SET operation = $2, state = 'Moving', message = '', since = now(), by = $3, reason = $4, at = now()
	WHERE e.by = $5 AND e.state <> 'Ending'`

// sqlEvacuateOperation records the operation of an evacuation.
const sqlEvacuateOperation = `
	INSERT INTO operations (id, kind, state, tenant, engine, subject, revision, requested_by, message, done, total, started_at)
	SELECT $1::text, $2, 'Running', '', $3, 'engine ' || $3, '', $4, $5, 0, (SELECT count(*) FROM placements WHERE engine = $3), now()
	WHERE true`

// RequestEvacuation records the decision to evacuate an engine. mirror.ErrEvacuated if it is,
// mirror.ErrEngineAnswers if the engine is reachable: a person cannot confirm then that it is gone.
// Of a fenced engine that does not answer any more, it records that the person confirms it.
func (s *Decisions) RequestEvacuation(ctx context.Context, r mirror.EvacuationRequest) error {
	engine, operation := text(string(r.Engine)), newID()
	err := s.decideOnce(ctx, operation, func(tx pgx.Tx, retried bool) error {
		if err := refuseIfAnswers(ctx, tx, engine); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlEvacuate, engine, operation, text(r.By), message(r.Reason),
			mirror.EvacuationRestored)
		if err == nil && tag.RowsAffected() == 0 {
			// nothing proves the fence of a silent engine; this confirmation records no operation
			tag, err = tx.Exec(ctx, `UPDATE fences SET confirmed_by = $2 WHERE engine = $1 AND state <> 'Checking'
				AND (confirmed_by = '' OR $3 AND confirmed_by = $2)`, engine, text(r.By), retried)
			if err == nil && tag.RowsAffected() == 0 {
				err = mirror.ErrEvacuated
			}
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlEvacuateOperation+` AND EXISTS (SELECT FROM evacuations e WHERE e.engine = $3 AND e.operation = $1)`,
			operation, string(mirror.OperationEvacuate), engine, text(r.By),
			message(r.Reason)); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: "evacuate", subject: "engine " + engine,
			engine: r.Engine, by: r.By, note: r.Reason, event: view.Event{Kind: "engine",
				Name: engine, Text: "is evacuated: " + r.By + " confirms that it is gone"}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "evacuation of engine %s", r.Engine)
}

// refuseIfAnswers returns mirror.ErrEngineAnswers if a worker reaches the engine now.
func refuseIfAnswers(ctx context.Context, tx pgx.Tx, engine string) error {
	var answers bool
	err := tx.QueryRow(ctx, `
		SELECT coalesce(bool_or(e.reachable AND l.expires_at > now()), false) FROM engines e
		LEFT JOIN leases l ON l.name = 'engine/' || e.engine WHERE e.engine = $1`, engine).Scan(&answers)
	if err == nil && answers {
		err = mirror.ErrEngineAnswers
	}
	return err
}

// EndEvacuation ends an evacuation: it is undone if no environment is elsewhere yet; otherwise the
// engine has to be back, and proven to have no object of the environments that left it. Else
// mirror.ErrEvacuatedAway. It begins to lift the engine's fence. mirror.ErrNotEvacuated if there is
// neither.
func (s *Decisions) EndEvacuation(ctx context.Context, r mirror.EvacuationRequest) error {
	engine := text(string(r.Engine))
	err := s.decide(ctx, func(tx pgx.Tx) error {
		lifts, err := liftFence(ctx, tx, engine, r.By)
		if err != nil {
			return err
		}
		if err := endEvacuation(ctx, tx, engine, r.By); err != nil &&
			(!lifts || !errors.Is(err, mirror.ErrNotEvacuated)) {
			return err
		}
		return recordDecision(ctx, tx, decision{action: "end evacuation",
			subject: "engine " + engine, engine: r.Engine, by: r.By, note: r.Reason,
			event: view.Event{Kind: "engine", Name: engine, Text: "its evacuation ends"}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "end of the evacuation of engine %s", r.Engine)
}

func endEvacuation(ctx context.Context, tx pgx.Tx, engine, by string) error {
	var operation string
	err := tx.QueryRow(ctx, `SELECT operation FROM evacuations WHERE engine = $1 FOR UPDATE`,
		engine).Scan(&operation)
	if errors.Is(err, pgx.ErrNoRows) {
		return mirror.ErrNotEvacuated
	}
	if err != nil {
		return err
	}
	away, err := provenEmpty(ctx, tx, engine)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE evacuations SET state = 'Ending', message = '', since = now() WHERE engine = $1`,
		engine); err != nil || away > 0 {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE operations SET state = 'Failed', message = $2, ended_at = now() WHERE id = $1`,
		operation, message("undone by "+by))
	return err
}

// provenEmpty counts the environments that are elsewhere. If there are some, or a person has
// forgotten the engine, it returns mirror.ErrEvacuatedAway unless the engine's worker has proven
// that none of their objects is left.
// If the record was lost, the objects have no rows, and a worker that has just connected may not
// have listed them yet.
func provenEmpty(ctx context.Context, tx pgx.Tx, engine string) (away int, err error) {
	var open, rows, orphans, unproven int
	var back, forgotten bool
	err = tx.QueryRow(ctx, `
		SELECT (SELECT count(*) `+sqlAway+`$1),
			(SELECT count(*) FROM application_moves WHERE from_engine = $1 AND step <> 'Done'),
			(SELECT count(*) FROM desired WHERE engine = $1 AND absent),
			(SELECT count(*) FROM strays WHERE engine = $1),
			(SELECT count(*) FROM unproven WHERE engine = $1 AND lost = 'Engine'),
			coalesce((SELECT forgotten_at IS NOT NULL FROM evacuations WHERE engine = $1), false),
			coalesce((SELECT e.reachable AND l.expires_at > now() AND (e.since < now() - interval '1 minute'
					OR NOT (SELECT restored FROM evacuations WHERE engine = $1))
				FROM engines e JOIN leases l ON l.name = 'engine/' || e.engine WHERE e.engine = $1), false)`, engine).
		Scan(&away, &open, &rows, &orphans, &unproven, &forgotten, &back)
	switch {
	case err != nil || away == 0 && !forgotten:
		return away, err
	case open > 0:
		return away, fmt.Errorf("%w: %d Applications are not adopted by their new engines yet",
			mirror.ErrEvacuatedAway, open)
	case !back:
		return away, fmt.Errorf("%w: it is not reachable, or since less than a minute",
			mirror.ErrEvacuatedAway)
	case rows+orphans > 0:
		return away, fmt.Errorf("%w: %d objects are not removed yet, and %d are orphans",
			mirror.ErrEvacuatedAway, rows, orphans)
	case unproven > 0:
		return away, fmt.Errorf("%w: the deletion of %d objects is not proven",
			mirror.ErrEvacuatedAway, unproven)
	}
	return away, nil
}

// Evacuations returns the evacuated engines, sorted. One whose record was lost, and that placements
// show, is Lost.
func (s *Plans) Evacuations(ctx context.Context) ([]mirror.Evacuation, error) {
	all, err := collect(ctx, s.database, func(row pgx.CollectableRow) (e mirror.Evacuation,
		err error) {
		err = row.Scan(&e.Engine, &e.State, &e.Message, &e.Since, &e.By, &e.Reason, &e.At, &e.Away,
			&e.Open, &e.Answers, &e.Lost, &e.Fenced, &e.Unfenced)
		return e, err
	}, `
		SELECT e.engine, e.state, e.message, e.since, e.by, e.reason, e.at, (SELECT count(*) `+sqlAway+`e.engine),
			(SELECT count(*) FROM application_moves m WHERE m.from_engine = e.engine AND m.step <> 'Done'),
			EXISTS (SELECT FROM engines g JOIN leases l ON l.name = 'engine/' || g.engine WHERE g.engine = e.engine AND g.reachable AND l.expires_at > now()), false,
			EXISTS (SELECT FROM fences f WHERE f.engine = e.engine AND f.state <> 'Checking'), unfenced(e.engine)
		FROM evacuations e
		UNION ALL
		SELECT DISTINCT n.engine COLLATE "C", 'Moved', '', now(), '', '', now(), 0, 0, false, true, false, '' FROM placements p,
			jsonb_array_elements_text(p.body -> 'evacuated') AS n (engine)
		WHERE p.body ? 'evacuated' AND NOT EXISTS (SELECT FROM evacuations e WHERE e.engine = n.engine)
		ORDER BY 1`)
	return all, wrap(err, "evacuations")
}

// EvacuatedEngines are the engines that get no write but those that take objects away.
func (s *Plans) EvacuatedEngines(ctx context.Context) (map[fleet.EngineName]bool, error) {
	names, err := collect(ctx, s.database, pgx.RowTo[string], `
		SELECT engine FROM evacuations WHERE state <> 'Ending'
		UNION
		SELECT n.engine FROM placements p, jsonb_array_elements_text(p.body -> 'evacuated') AS n (engine)
		WHERE p.body ? 'evacuated'`)
	all := make(map[fleet.EngineName]bool, len(names))
	for _, name := range names {
		all[fleet.EngineName(name)] = true
	}
	return all, wrap(err, "evacuated engines")
}

// RestoreEvacuation records an evacuation again whose record was lost.
func (s *Plans) RestoreEvacuation(ctx context.Context, engine fleet.EngineName) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`
			WITH lost AS (
				INSERT INTO evacuations (engine, operation, state, by, restored, reason)
				VALUES ($1, $2, 'Moved', $3, true, 'the record was lost; the engines that have its environments show it')
				ON CONFLICT (engine) DO NOTHING RETURNING engine)
			SELECT new_event('engine', '', engine, 'is evacuated, as the engines that have its environments show') FROM lost`,
			string(engine), newID(), mirror.EvacuationRestored)
	})
	return wrap(err, "evacuation of engine %s", engine)
}

// SetEvacuation records the progress of an evacuation. mirror.ErrNotEvacuated if it has ended.
func (s *Plans) SetEvacuation(ctx context.Context, e mirror.Evacuation) error {
	err := s.transact(ctx, func(tx pgx.Tx) error {
		var operation string
		var news bool
		err := tx.QueryRow(ctx, `
			UPDATE evacuations e SET state = $2, message = $3, since = CASE WHEN e.state = $2 THEN e.since ELSE now() END
			FROM evacuations was WHERE was.engine = e.engine AND e.engine = $1 AND e.state <> 'Ending'
			RETURNING e.operation, was.state <> $2`,
			string(e.Engine), string(e.State), message(e.Message)).Scan(&operation, &news)
		if errors.Is(err, pgx.ErrNoRows) {
			return mirror.ErrNotEvacuated
		}
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`
			UPDATE operations SET done = $2, total = greatest(total, $2), message = $3,
				state = CASE WHEN $4 THEN 'Succeeded' ELSE 'Running' END, ended_at = CASE WHEN $4 THEN now() END WHERE id = $1`,
			operation, e.Away, message(e.Message), e.State == mirror.EvacuationMoved)
		if news {
			b.Queue(`SELECT new_event('engine', '', $1, 'evacuation: ' || $2 || coalesce(nullif(': ' || $3, ': '), ''))`,
				string(e.Engine), string(e.State), message(e.Message))
		}
		return tx.SendBatch(ctx, b).Close()
	})
	return wrap(err, "evacuation of engine %s", e.Engine)
}

// ReadmitEngine removes the record of an evacuation that a person has ended, once the Clusters that
// were changed since are applied, and reports whether it has.
func (s *Plans) ReadmitEngine(ctx context.Context, engine fleet.EngineName) (ended bool,
	err error) {
	err = s.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			DELETE FROM evacuations e WHERE e.engine = $1 AND e.state = 'Ending' AND NOT EXISTS (
				SELECT FROM desired d LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
				WHERE d.kind = 'Cluster' AND NOT d.absent AND d.engine <> $1 AND d.changed_at >= e.since
					AND (s.state IS DISTINCT FROM 'Applied' OR s.seq <> d.seq))`, string(engine))
		ended = tag.RowsAffected() > 0
		return err
	})
	return ended, wrap(err, "evacuation of engine %s", engine)
}

// Away returns the slices that an evacuated engine has lost to other engines. The environments of
// Applications that a person has forgotten are among them, also if they are declared no more.
func (s *Work) Away(ctx context.Context, engine fleet.EngineName) (map[fleet.SliceID]bool,
	error) {
	ids, err := collect(ctx, s.database, pgx.RowToStructByPos[fleet.SliceID],
		`SELECT p.tenant, p.environment, p.slice `+sqlAway+`$1
		UNION SELECT u.tenant, u.environment, '' FROM unproven u WHERE u.lost = 'Engine' AND u.engine = $1 AND u.kind = 'Application'`,
		string(engine))
	all := make(map[fleet.SliceID]bool, len(ids))
	for _, id := range ids {
		all[id] = true
	}
	return all, wrap(err, "environments that left engine %s", engine)
}

// evacuateSteps stores the Applications that an engine adopts from an evacuated one. Nothing
// else of them is known but their rows, and the commit that a single source was last synced at.
func evacuateSteps(r *mirror.Record, m mirror.Move) []step {
	operation := newID()
	id := m.Moving()
	apps := column(m.Applications, func(id fleet.ApplicationID) string {
		return string(id.Deployment)
	})
	return []step{
		{`SELECT fence_evacuation($1)`, []any{string(m.From)}},
		{`
		UPDATE operations SET state = 'Failed', message = $5, ended_at = now() WHERE ended_at IS NULL AND id IN (
			SELECT operation FROM application_moves WHERE tenant = $1 AND environment = $2 AND slices_overlap(slice, $3)
				AND step <> 'Done' AND deployment = ANY ($4::text[]))`,
			sliceArgs(id, apps, message("engine "+string(m.From)+" is evacuated"))},
		{`
		DELETE FROM application_moves WHERE tenant = $1 AND environment = $2 AND slices_overlap(slice, $3)
			AND (step = 'Done' OR deployment = ANY ($4::text[]))`,
			sliceArgs(id, apps)},
		{`
		WITH ended AS (
			UPDATE syncs SET state = 'Failed', message = $5
			WHERE tenant = $1 AND environment = $2 AND engine = $3 AND deployment = ANY ($4::text[]) AND state IN ('Pending', 'Running')
			RETURNING operation, tenant, deployment || '@' || environment AS what),
		operation AS (
			UPDATE operations o SET state = 'Failed', message = $5, ended_at = now() FROM ended e WHERE o.id = e.operation AND o.ended_at IS NULL)
		SELECT new_event('operation', tenant, operation, 'sync of ' || tenant || '/' || what || ': Failed') FROM ended`,
			[]any{string(id.Tenant), string(id.Environment), string(m.From), apps,
				message("engine " + string(m.From) + " is evacuated; add another SyncRun")}},
		{`
		INSERT INTO application_moves (tenant, environment, slice, deployment, tenant_uid, operation, from_engine, to_engine, step, departure)
		SELECT d.tenant, d.environment, $3::text, d.deployment, live_tenant(d.tenant), $4::text, $5::text, $6::text, 'Return',
			jsonb_build_object('uid', $4::text, 'evacuated', true, 'resources', '[]'::jsonb, 'spec', b.spec,
				'revisions', CASE WHEN s.synced_revision <> '' AND NOT b.spec ? 'sources' THEN jsonb_build_array(s.synced_revision)
					ELSE '[]'::jsonb END)
		FROM desired d CROSS JOIN LATERAL (SELECT convert_from(d.body, 'UTF8')::jsonb -> 'spec' AS spec) b
			LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
		WHERE d.kind = 'Application' AND d.engine = $5 AND d.tenant = $1 AND d.environment = $2 AND d.deployment = ANY ($7::text[])`,
			sliceArgs(id, operation, string(m.From), string(m.To), apps)},
		{`
		INSERT INTO operations (id, kind, state, tenant, tenant_uid, engine, subject, revision, requested_by, message, done, total, started_at, ended_at)
		SELECT $1::text, $2, CASE WHEN n = 0 THEN 'Succeeded' ELSE 'Running' END, $3::text, live_tenant($3), $4, $5, $6, $7, '', 0, n, now(),
			CASE WHEN n = 0 THEN now() END FROM (SELECT count(*)::int AS n FROM application_moves WHERE operation = $1) AS m`,
			[]any{operation, string(mirror.OperationMove), string(id.Tenant), string(m.To),
				id.String() + " from evacuated engine " + string(m.From) +
					" to engine " + string(m.To), string(r.Revision), m.By}},
	}
}
