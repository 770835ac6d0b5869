package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// RequestMove requests the move of a slice of an environment and returns the id of its operation.
// The loop begins or refuses the move. A request for the engine that the slice is leaving undoes
// its move. mirror.ErrMoving if a move of a part of it is requested, or under way and not to be
// undone: an Application has left the engine.
func (s *Decisions) RequestMove(ctx context.Context, m mirror.MoveRequest) (string, error) {
	subject := moveSubject(m)
	if m.DryRun {
		subject += " (dry run)"
	}
	tenant := text(string(m.Environment.Tenant))
	m.Operation = newID()
	err := s.decideOnce(ctx, m.Operation, func(tx pgx.Tx, _ bool) error {
		undo, err := mayUndo(ctx, tx, m)
		if err != nil {
			return err
		}
		m.Undo = undo
		added, err := addMoveRequest(ctx, tx, m)
		if err == nil && !added {
			err = mirror.ErrMoving
		}
		if err != nil {
			return err
		}
		if undo && !m.DryRun {
			if _, err := tx.Exec(ctx, `UPDATE application_moves SET undo = true, message = ''
				WHERE `+sqlSlice+` AND step <> 'Done'`, sliceArgs(m.ID())...); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO operations (id, kind, state, tenant, tenant_uid, engine, subject, revision, requested_by, message, done, total, started_at)
			VALUES ($1, $2, 'Pending', $3, live_tenant($3), $4, $5, '', $6, $7, 0, 0, now())`,
			m.Operation, string(mirror.OperationMove), tenant, string(m.To), subject, text(m.By),
			message(m.Note)); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: "move", subject: subject,
			tenant: m.Environment.Tenant, engine: m.To, by: m.By, note: m.Note,
			event: view.Event{Kind: "operation", Tenant: m.Environment.Tenant, Name: m.Operation,
				Text: "move of " + subject + " requested"}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return m.Operation, wrap(err, "move %s", subject)
}

// moveSubject names a move in the record of its operation.
func moveSubject(m mirror.MoveRequest) string {
	subject := fmt.Sprintf("%s to engine %s", m.Moving(), m.To)
	if m.Split {
		subject += ", split off " + m.ID().String()
	}
	return subject
}

// sqlSlice selects the rows of the slice $1/$2/$3: see sliceArgs.
const sqlSlice = `tenant = $1 AND environment = $2 AND slice = $3`

// sliceArgs are the arguments of sqlSlice, and others after them.
func sliceArgs(id fleet.SliceID, more ...any) []any {
	return append([]any{text(string(id.Tenant)), text(string(id.Environment)),
		text(string(id.Slice))}, more...)
}

// tableOf is the table for new rows of a slice. A whole environment has the table of earlier
// versions, whose key has no slice.
func tableOf(whole string, s fleet.Slice) (table, key string) {
	if s == "" {
		return whole, "(tenant, environment)"
	}
	return whole + "_of_slices", "(tenant, environment, slice)"
}

// addMoveRequest stores a request; false if another one that concerns the same Applications is
// requested, or such a move is under way and m does not undo it.
func addMoveRequest(ctx context.Context, tx pgx.Tx, m mirror.MoveRequest) (bool, error) {
	table, key := tableOf("move_requests", m.Slice)
	tag, err := tx.Exec(ctx, `
		INSERT INTO `+table+` (tenant, environment, slice, tenant_uid, operation, split, to_engine, by, note, undo, dry_run, drain, rebalance)
		SELECT $1::text, $2::text, $3::text, live_tenant($1), $4, $5, $6, $7, $8, $9, $10, $11, $12
		WHERE NOT EXISTS (SELECT FROM move_requests r WHERE r.tenant = $1 AND r.environment = $2 AND slices_overlap(r.slice, $3))
			AND ($9 OR NOT EXISTS (SELECT FROM application_moves a
				WHERE a.tenant = $1 AND a.environment = $2 AND slices_overlap(a.slice, $3) AND a.step <> 'Done'))
		ON CONFLICT `+key+` DO NOTHING`,
		sliceArgs(m.ID(), m.Operation, m.Split, text(string(m.To)), text(m.By), message(m.Note),
			m.Undo, m.DryRun, m.Drain, m.Rebalance)...)
	return tag.RowsAffected() > 0, err
}

// mayUndo reports whether the request undoes a move under way. No worker deletes an Application on
// the engine that it leaves before the transaction ends.
func mayUndo(ctx context.Context, tx pgx.Tx, m mirror.MoveRequest) (bool, error) {
	all, err := read(ctx, tx, scanMove, `SELECT `+moveColumns+` FROM application_moves m
		WHERE `+sqlSlice+` AND step <> 'Done' ORDER BY deployment FOR UPDATE OF m`,
		sliceArgs(m.ID())...)
	if err != nil || len(all) == 0 || all[0].From != m.To || m.Split {
		return false, err
	}
	for _, a := range all {
		if a.Step == mirror.MoveDelete || a.Step == mirror.MoveEnable || a.Undo {
			return false, nil
		}
	}
	var complete bool
	err = tx.QueryRow(ctx, `
		SELECT o.done = 0 FROM operations o JOIN application_moves a ON a.operation = o.id
		WHERE a.tenant = $1 AND a.environment = $2 AND a.slice = $3 AND a.step <> 'Done' LIMIT 1`,
		sliceArgs(m.ID())...).Scan(&complete)
	return complete, err
}

// MoveRequests returns the requested moves that no plan has taken up yet.
func (s *Plans) MoveRequests(ctx context.Context) ([]mirror.MoveRequest, error) {
	all, err := collect(ctx, s.database, func(row pgx.CollectableRow) (m mirror.MoveRequest,
		err error) {
		err = row.Scan(&m.Operation, &m.Environment.Tenant, &m.Environment.Name, &m.Slice, &m.Split,
			&m.To, &m.By, &m.Note, &m.Undo, &m.DryRun, &m.Drain, &m.Rebalance)
		return m, err
	}, `SELECT operation, tenant, environment, slice, split, to_engine, by, note, undo, dry_run, drain, rebalance FROM move_requests ORDER BY operation`)
	return all, wrap(err, "requested moves")
}

// MoveObstacles lists the reasons against a move that the mirror knows, sorted. Applications that
// their engine never had are none: the new engine creates them. Nor are those that the new engine
// has already, without a row: the move only records them.
func (s *Plans) MoveObstacles(ctx context.Context, m mirror.MoveRequest) ([]mirror.MoveObstacle,
	error) {
	type found struct {
		mirror.MoveObstacle
		deployment fleet.DeploymentName // "": an engine is the obstacle
	}
	rows, err := collect(ctx, s.database, func(row pgx.CollectableRow) (o found, err error) {
		err = row.Scan(&o.Text, &o.Passes, &o.deployment)
		return o, err
	}, `
		WITH leaves AS (SELECT engine FROM placements WHERE tenant = $1 AND environment = $2 AND slice = $3),
		sides AS (SELECT e.*, silent_since(e.engine) AS silent FROM engines e
			WHERE e.engine = $4 OR e.engine = (SELECT engine FROM leaves)),
		leaving AS (SELECT d.tenant || '/' || d.deployment || '@' || d.environment AS id, d.deployment, d.seq AS wanted, s.*
			FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
			WHERE d.kind = 'Application' AND d.engine = (SELECT engine FROM leaves)
				AND d.tenant = $1 AND d.environment = $2 AND NOT d.absent AND s.uid <> '' AND NOT s.gone
				AND NOT EXISTS (SELECT FROM strays o WHERE o.engine = $4 AND o.kind = d.kind AND o.name = d.name))
		SELECT CASE WHEN `+sqlStuck("sides")+` THEN `+sqlStuckText("engine", "silent")+` ELSE
			'engine ' || engine || ' does not answer' || CASE WHEN NOT reachable THEN ': ' || message
			ELSE ' since ' || to_char(silent AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC') END END, false, ''
		FROM sides WHERE NOT reachable OR silent IS NOT NULL
		UNION ALL
		SELECT 'engine ' || engine || ' refuses writes: ' || unfit, false, '' FROM sides WHERE reachable AND unfit <> ''
		UNION ALL
		SELECT id || ': its last change is not on the engine: ' || state_message, false, deployment
		FROM leaving WHERE state IN ('Failed', 'Conflict') AND seq = wanted
		UNION ALL
		SELECT id || CASE WHEN sync = 'OutOfSync' THEN ' is OutOfSync; sync it first' ELSE ' is ' || sync || ': Argo CD has not compared it' END, false, deployment
		FROM leaving WHERE sync <> 'Synced' AND operation_phase <> 'Running'
		UNION ALL
		SELECT id || ': an operation runs', true, deployment FROM leaving WHERE operation_phase = 'Running'
		ORDER BY 1`, sliceArgs(m.ID(), string(m.To))...)
	var all []mirror.MoveObstacle
	for _, o := range rows {
		if o.deployment == "" || m.Moving().Slice.Holds(o.deployment) {
			all = append(all, o.MoveObstacle)
		}
	}
	return all, wrap(err, "move of %s", m.Moving())
}

// UnfitAgents lists the agents that cannot carry out the steps of a move, and what to do.
func (s *Plans) UnfitAgents(ctx context.Context, m mirror.MoveRequest) ([]string, error) {
	all, err := collect(ctx, s.database, pgx.RowTo[string], `
		SELECT 'engine ' || e.engine || ' is behind an agent, and ' || CASE
			WHEN a.id IS NULL THEN 'none has joined: make a token with argosy agent token create ' || CASE
				WHEN e.own THEN $1 || '/' || $2 ELSE '--engine ' || e.engine END
			ELSE 'its agent (version ' || a.version || ') does not know the steps of a move: upgrade it' END
		FROM (SELECT engine, position('.' IN engine) > 0 AS own FROM (
			SELECT $4::text AS engine UNION SELECT engine FROM placements WHERE `+sqlSlice+`) of) e
		LEFT JOIN agents a ON a.engine = e.engine AND a.ended_at IS NULL AND a.expires_at > clock_timestamp()
		WHERE (e.own OR agent_stand('', e.engine) <> '') AND coalesce(a.protocol, 0) < $5 ORDER BY 1`,
		sliceArgs(m.ID(), string(m.To), agent.ProtocolMoves)...)
	return all, wrap(err, "agents of the move of %s", m.Moving())
}

// EndDryRun records that a move could begin, with a summary.
func (s *Plans) EndDryRun(ctx context.Context, operation, summary string) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`DELETE FROM move_requests WHERE operation = $1`, operation)
		b.Queue(
			`UPDATE operations SET state = 'Succeeded', message = $2, ended_at = now() WHERE id = $1 AND ended_at IS NULL`,
			operation, message(summary))
	})
	return wrap(err, "dry run of move %s", operation)
}

// RefuseMove ends a requested move, and records the reason. A refused undo lets the move go on.
func (s *Plans) RefuseMove(ctx context.Context, operation, why string) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`
			UPDATE application_moves a SET undo = false FROM move_requests r
			WHERE r.operation = $1 AND r.undo AND NOT r.dry_run AND a.tenant = r.tenant AND a.environment = r.environment
				AND slices_overlap(a.slice, r.slice)`, operation)
		b.Queue(`DELETE FROM move_requests WHERE operation = $1`, operation)
		b.Queue(`UPDATE drain_moves SET state = 'Refused', message = $2, ended_at = now() WHERE operation = $1`,
			operation, message("was refused: "+why))
		b.Queue(`UPDATE rebalance_moves SET state = 'Refused', message = $2, ended_at = now() WHERE operation = $1 AND state = 'Requested'`,
			operation, message("was refused: "+why))
		b.Queue(`
			WITH ended AS (
				UPDATE operations SET state = 'Failed', message = $2, ended_at = now()
				WHERE id = $1 AND ended_at IS NULL RETURNING tenant, id, subject)
			SELECT new_event('operation', tenant, id, 'move of ' || subject || ' refused') FROM ended`,
			operation, message(why))
	})
	return wrap(err, "refuse move %s", operation)
}

// moveSteps stores the moves that begin.
func moveSteps(r *mirror.Record) ([]step, error) {
	var steps []step
	for _, m := range r.Moves {
		if m.Evacuates {
			steps = append(steps, evacuateSteps(r, m)...)
			continue
		}
		steps = append(steps,
			step{`DELETE FROM move_requests WHERE operation = $1`, []any{m.Operation}})
		if m.Undo {
			steps = append(steps, undoMove(m)...)
			continue
		}
		steps = append(steps,
			step{`DELETE FROM application_moves WHERE tenant = $1 AND environment = $2 AND slices_overlap(slice, $3)`,
				sliceArgs(m.Moving())},
			step{`
			INSERT INTO application_moves (tenant, environment, slice, deployment, tenant_uid, operation, from_engine, to_engine, step)
			SELECT $1::text, $2::text, $3::text, deployment, live_tenant($1), $4::text, $5::text, $6::text, 'Check' FROM unnest($7::text[]) AS a (deployment)`,
				sliceArgs(m.Moving(), m.Operation, string(m.From), string(m.To),
					column(m.Applications, func(id fleet.ApplicationID) string {
						return string(id.Deployment)
					}))},
			step{`
			UPDATE operations SET state = CASE WHEN $2 = 0 THEN 'Succeeded' ELSE 'Running' END, revision = $3, total = $2,
				ended_at = CASE WHEN $2 = 0 THEN now() END WHERE id = $1`,
				[]any{m.Operation, len(m.Applications), string(r.Revision)}})
	}
	return steps, nil
}

// undoMove ends the records of a move and its operation. The engine that takes an Application back
// marks its resources again: by itself, or in a step if the Application does not heal itself.
func undoMove(m mirror.Move) []step {
	id := m.ID()
	drains, key := tableOf("drain_moves", m.Slice)
	return []step{{`
		INSERT INTO ` + drains + ` AS d (tenant, environment, slice, tenant_uid, engine, operation, state, message, ended_at)
		SELECT $1::text, $2::text, $3::text, live_tenant($1), engine, $5, 'Undone', $6, now() FROM drains WHERE engine = $4
		ON CONFLICT ` + key + ` DO UPDATE SET tenant_uid = excluded.tenant_uid, engine = excluded.engine,
			state = 'Undone', message = excluded.message, ended_at = now()`,
		sliceArgs(id, string(m.To), m.Operation, message("was undone by "+m.By))}, {`
		UPDATE rebalance_moves SET state = 'Undone', message = $4, ended_at = now()
		WHERE state = 'Requested' AND operation IN (SELECT operation FROM application_moves WHERE ` + sqlSlice + ` AND step <> 'Done')`,
		sliceArgs(id, message("was undone by "+m.By))}, {`
		UPDATE operations SET state = 'Failed', message = $4, ended_at = now() WHERE id IN (
			SELECT operation FROM application_moves WHERE ` + sqlSlice + ` AND step <> 'Done')`,
		sliceArgs(id, message("undone by "+m.By))},
		{`
		DELETE FROM application_moves WHERE ` + sqlSlice + `
			AND (NOT (step = 'Adopt' OR step = 'Freeze' AND departure ? 'returns') OR (departure #>> '{spec,syncPolicy,automated,selfHeal}') = 'true')`,
			sliceArgs(id)},
		{`
		UPDATE application_moves SET step = 'Return', from_engine = to_engine, to_engine = from_engine, operation = $4,
			undo = true, message = '', since = now() WHERE ` + sqlSlice,
			sliceArgs(id, m.Operation)},
		{`
		UPDATE operations SET state = CASE WHEN n = 0 THEN 'Succeeded' ELSE 'Running' END, done = greatest($2 - n, 0),
			total = greatest($2, n), ended_at = CASE WHEN n = 0 THEN now() END
		FROM (SELECT count(*)::int AS n FROM application_moves WHERE operation = $1) AS left_ WHERE id = $1`,
			[]any{m.Operation, len(m.Applications)}}}
}

// ApplicationMove returns the move of an Application to the holder of the lease of one of its
// engines; false if it does not move. mirror.ErrFenced when the lease has expired or passed on.
func (s *Work) ApplicationMove(ctx context.Context, l mirror.Lease, id fleet.ApplicationID) (
	m mirror.ApplicationMove, moving bool, err error) {
	var held, recreated bool
	var unfenced string
	err = s.again(ctx, func() error {
		b := &pgx.Batch{}
		b.Queue(`SELECT EXISTS (SELECT FROM leases
			WHERE name = $1 AND holder = $2 AND epoch = $3 AND expires_at > clock_timestamp())`,
			l.Name, l.Holder, l.Epoch).QueryRow(func(r pgx.Row) error { return r.Scan(&held) })
		b.Queue(`SELECT `+moveColumns+` FROM application_moves m
			WHERE tenant = $1 AND environment = $2 AND deployment = $3 AND step <> 'Done'`, string(id.Tenant),
			string(id.Environment), string(id.Deployment)).Query(func(r pgx.Rows) error {
			all, err := pgx.CollectRows(r, scanMove)
			if moving = len(all) > 0; moving {
				m = all[0]
			}
			return err
		})
		b.Queue(`SELECT EXISTS (SELECT FROM application_moves m JOIN strays o ON o.engine = m.from_engine
				AND o.kind = 'Application' AND (o.tenant, o.environment, o.deployment) = (m.tenant, m.environment, m.deployment)
			WHERE (m.tenant, m.environment, m.deployment) = ($1, $2, $3) AND `+sqlDeparted+`)`,
			string(id.Tenant), string(id.Environment), string(id.Deployment)).QueryRow(
			func(r pgx.Row) error { return r.Scan(&recreated) })
		b.Queue(`SELECT coalesce((SELECT unfenced(from_engine) FROM application_moves WHERE (tenant, environment, deployment) = ($1, $2, $3)
				AND step <> 'Done' AND departure ? 'evacuated' AND NOT departure ? 'frozen'), '')`,
			string(id.Tenant), string(id.Environment), string(id.Deployment)).QueryRow(
			func(r pgx.Row) error { return r.Scan(&unfenced) })
		return s.work.SendBatch(ctx, b).Close()
	})
	if err == nil && !held {
		err = mirror.ErrFenced
	}
	m.Recreated, m.Unfenced = recreated, unfenced
	return m, moving, wrap(err, "move of %s", id)
}

const moveColumns = `tenant, environment, deployment, from_engine, to_engine, step, departure, message, since, undo,
	(SELECT count(*) FROM application_moves o WHERE o.tenant = m.tenant AND o.environment = m.environment AND o.slice = m.slice
		AND o.step IN ('Check', 'Compare', 'Ready', 'Freeze', 'Adopt') AND o.departure ->> 'uid' <> '')`

func scanMove(row pgx.CollectableRow) (mirror.ApplicationMove, error) {
	var m mirror.ApplicationMove
	var departure []byte
	err := row.Scan(&m.Application.Tenant, &m.Application.Environment, &m.Application.Deployment,
		&m.From, &m.To, &m.Step, &departure, &m.Message, &m.Since, &m.Undo,
		&m.Unadopted)
	return m, errors.Join(err, json.Unmarshal(departure, &m.Departure))
}

// movesAtOnce is how many Applications of a slice are on their way from Freeze to Done at a time:
// the others stay in the care of the old engine until then.
const movesAtOnce = 8

// sqlMoveOf selects the Applications that move together with the deployment $3 of environment
// $1/$2: those of its slice.
const sqlMoveOf = `tenant = $1 AND environment = $2
	AND slice = (SELECT a.slice FROM application_moves a WHERE a.tenant = $1 AND a.environment = $2 AND a.deployment = $3)`

// lockMove lets one transaction at a time count the steps of a slice's Applications.
func lockMove(b *pgx.Batch, m mirror.ApplicationMove) {
	b.Queue(`SELECT FROM application_moves WHERE `+sqlMoveOf+` ORDER BY deployment FOR UPDATE`,
		string(m.Application.Tenant), string(m.Application.Environment),
		string(m.Application.Deployment))
}

// letMove lets Applications that are equal on the new engine begin to leave the old one, and
// appends them to let: once all are equal, movesAtOnce at a time. Applications that the old engine
// never had are not counted: they wait in Freeze for the others.
func letMove(b *pgx.Batch, m mirror.ApplicationMove, let *[]fleet.DeploymentName) {
	b.Queue(`
		WITH all_ AS (SELECT deployment, step, coalesce(departure ->> 'uid', '') <> '' AS leaves FROM application_moves
			WHERE `+sqlMoveOf+`),
		ready AS (SELECT deployment, leaves, row_number() OVER (PARTITION BY leaves ORDER BY deployment) AS n FROM all_ WHERE step = 'Ready')
		UPDATE application_moves SET step = 'Freeze', since = now(), took = `+sqlTook("0")+`
		WHERE tenant = $1 AND environment = $2 AND deployment IN (
				SELECT deployment FROM ready WHERE NOT leaves
					OR n <= $4 - (SELECT count(*) FROM all_ WHERE leaves AND step IN ('Freeze', 'Adopt', 'Delete', 'Enable')))
			AND (NOT EXISTS (SELECT FROM all_ WHERE step IN ('Check', 'Compare'))
				OR EXISTS (SELECT FROM all_ WHERE step IN ('Adopt', 'Delete', 'Enable', 'Done')))
		RETURNING deployment`,
		string(m.Application.Tenant), string(m.Application.Environment),
		string(m.Application.Deployment), movesAtOnce).Query(
		func(rows pgx.Rows) (err error) {
			more, err := pgx.CollectRows(rows, pgx.RowTo[fleet.DeploymentName])
			*let = append(*let, more...)
			return err
		})
}

// AdvanceMove records that the lease's engine has carried out a step of a move. A move that is no
// longer at this step stays as it is. After the last Application of a slice is equal on the new
// engine, they go on: see letMove.
//
// With the end of MoveDelete, the row of the engine that the Application left is removed: its
// object is proven deleted. mirror.ErrFenced when the lease has passed on.
func (s *Work) AdvanceMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove,
	next mirror.MoveStep, row mirror.Row) error {
	departure, err := json.Marshal(m.Departure)
	if err != nil {
		return wrap(err, "move of %s", m.Application)
	}
	id := []any{string(m.Application.Tenant), string(m.Application.Environment),
		string(m.Application.Deployment)}
	var let []fleet.DeploymentName
	err = s.atomically(ctx, func(b *pgx.Batch) {
		let = nil
		fenceEngine(b, lease)
		if lease.Life != "" {
			b.Queue(`SELECT fence_life($1)`, lease.Life)
		}
		lockMove(b, m)
		b.Queue(`
			UPDATE application_moves SET step = $5, departure = $6, message = '', since = now(), took = `+sqlTook("$8")+`
			WHERE tenant = $1 AND environment = $2 AND deployment = $3 AND step = $4 AND undo = $7`,
			append(id, string(m.Step), string(next), string(departure), m.Undo,
				m.Calls)...)
		if next == mirror.MoveReady || next == mirror.MoveCheck {
			letMove(b, m, &let)
		}
		if m.Step == mirror.MoveDelete {
			b.Queue(sqlRemove, append(ackColumns([]mirror.Ack{{Key: row.Key, Seq: row.Seq,
				Hash: row.Manifest.Hash, State: mirror.ApplyDeleting, Removed: true}}, lease),
				lease.Epoch)...)
		}
	})
	if err == nil {
		s.notifyMove(ctx, m, let)
	}
	return wrap(err, "move of %s", m.Application)
}

// EndMove records that an Application has moved. mirror.ErrFenced when the lease has passed on.
func (s *Work) EndMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove) error {
	var let []fleet.DeploymentName
	err := s.atomically(ctx, func(b *pgx.Batch) {
		let = nil
		fenceEngine(b, lease)
		lockMove(b, m)
		b.Queue(`
			WITH ended AS (
				UPDATE application_moves SET step = 'Done', message = '', departure = '{}', since = now(), took = `+sqlTook("$4")+`
				WHERE tenant = $1 AND environment = $2 AND deployment = $3 AND step = 'Enable' RETURNING operation),
			counted AS (
				UPDATE operations o SET done = done + 1, state = CASE WHEN done + 1 >= total THEN 'Succeeded' ELSE state END,
					ended_at = CASE WHEN done + 1 >= total THEN now() END
				FROM ended e WHERE o.id = e.operation RETURNING o.tenant, o.id, o.subject, o.done, o.total)
			SELECT new_event('operation', tenant, id, 'move of ' || subject || ': ' || done || ' of ' || total) FROM counted`,
			string(m.Application.Tenant), string(m.Application.Environment),
			string(m.Application.Deployment), m.Calls)
		letMove(b, m, &let)
	})
	if err == nil {
		s.notifyMove(ctx, m, let)
	}
	return wrap(err, "move of %s", m.Application)
}

// sqlTook appends the present step, which ends, to the steps that have ended: at most 50, since an
// Application that its engine keeps syncing begins again each time.
func sqlTook(calls string) string {
	return `CASE WHEN jsonb_array_length(took) >= 50 THEN took - 0 ELSE took END || jsonb_build_object('step', step,
		'seconds', round(extract(epoch FROM clock_timestamp() - since)::numeric, 2), 'calls', ` + calls + `::int)`
}

// DelayMove records why a step of the lease's engine waits. mirror.ErrFenced when the lease has
// passed on.
func (s *Work) DelayMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove,
	why string) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			UPDATE application_moves SET message = $5 WHERE tenant = $1 AND environment = $2 AND deployment = $3 AND step = $4
				AND message <> $5`,
			string(m.Application.Tenant), string(m.Application.Environment),
			string(m.Application.Deployment), string(m.Step), message(why))
	})
	return wrap(err, "move of %s", m.Application)
}

// notifyMove wakes the workers of both engines for the Application, and for those that may leave.
func (s *Work) notifyMove(ctx context.Context, m mirror.ApplicationMove,
	let []fleet.DeploymentName) {
	notice := mirror.NoticeMove(mirror.Stepped{Engines: []fleet.EngineName{m.From, m.To},
		Environment: fleet.EnvironmentID{Tenant: m.Application.Tenant,
			Name: m.Application.Environment},
		Deployments: append(let, m.Application.Deployment)})
	if err := s.Notify(ctx, notice); err != nil {
		s.log.Debug("no notification; workers poll", "error", err)
	}
}

// Moves match Filter.{Tenant, Environment}: the last move of each slice.
func (s *Views) Moves(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
	[]view.Move, string, error) {
	f := filter{}
	f.tenants("m.tenant", scope, by.Tenant)
	f.equal("m.environment", string(by.Environment))
	return list(ctx, s.database, scope, listing[view.Move]{
		name: "moves", keys: []string{"m.tenant", "m.environment", "m.slice"}, scan: scanMoved,
		sql: `SELECT m.tenant, m.environment, m.slice, m.from_engine, m.to_engine, m.undo, m.applications, o.id, o.state, o.requested_by,
				o.message, o.done, o.total, o.started_at, o.ended_at
			FROM (SELECT tenant, environment, slice, operation, from_engine, to_engine, undo, jsonb_agg(jsonb_build_object(
					'deployment', deployment, 'step', step, 'message', ` + sqlMoveMessage(scope.Tenant == "") + `, 'since', since, 'took', took) ORDER BY deployment) AS applications
				FROM application_moves GROUP BY tenant, environment, slice, operation, from_engine, to_engine, undo) m
			JOIN operations o ON o.id = m.operation`,
		key: func(m view.Move) []string {
			return []string{string(m.Tenant), string(m.Environment), string(m.Slice)}
		},
	}, f, page, nil)
}

// sqlStuck is whether the engine of table t answers, and its application-controller does not.
func sqlStuck(t string) string {
	return t + `.reachable AND ` + t + `.work = 'ControllerStuck'`
}

// sqlStuckText explains that, and what a person can do about it; NULL if the engine is not silent.
func sqlStuckText(engine, since string) string {
	return `'the application-controller of engine ' || ` + engine + ` || ' does not answer since ' ||
		to_char(` + since + ` AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC') || ': restart it (argosy describe engine ' || ` + engine + ` ||
		'), or evacuate the engine without it: argosy evacuate engine ' || ` + engine + ` || ' --fence'`
}

// sqlMoveMessage is why a step waits: an engine that does not answer, or no agent of which is
// connected, cannot record it. The platform is shown whether the engine can be reached, too.
func sqlMoveMessage(platform bool) string {
	silent := `'engine ' || at.engine || ' does not answer since ' ||
			to_char(silent_since(at.engine) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC')`
	if platform {
		silent = `CASE WHEN EXISTS (SELECT FROM engines g WHERE g.engine = at.engine AND ` + sqlStuck("g") + `)
			THEN ` + sqlStuckText("at.engine", "silent_since(at.engine)") + ` ELSE ` + silent + ` END`
	}
	return `coalesce((SELECT ` + silent + `
		FROM (SELECT CASE WHEN step IN ('Compare', 'Adopt', 'Enable', 'Return') THEN to_engine ELSE from_engine END AS engine) at
		WHERE step NOT IN ('Ready', 'Done')), message)`
}

func scanMoved(row pgx.CollectableRow) (view.Move, error) {
	var m view.Move
	var applications []byte
	err := row.Scan(&m.Tenant, &m.Environment, &m.Slice, &m.From, &m.To, &m.Undo, &applications,
		&m.Operation, &m.State, &m.RequestedBy, &m.Message, &m.Done, &m.Total, &m.StartedAt,
		&m.EndedAt)
	return m, errors.Join(err, json.Unmarshal(applications, &m.Applications))
}
