package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlFence is a fence f as JSON.
const sqlFence = `jsonb_build_object('id', f.id, 'state', f.state, 'message', f.message, 'since', f.since, 'by', f.by, 'reason', f.reason,
	'at', f.at, 'provenAt', f.proven_at, 'workloads', f.workloads, 'confirmedBy', f.confirmed_by)`

// sqlFenceBroken is whether a fence of engine e does not hold, or cannot be proven.
const sqlFenceBroken = `EXISTS (SELECT FROM fences f WHERE f.engine = e.name AND (f.state = 'Broken' OR f.state = 'Fenced' AND unfenced(f.engine) <> ''))`

// RequestFence records the decision to fence an engine and to evacuate it then, and returns the id
// of its operation. A dry run only checks. A fence that is broken or being lifted is requested
// again. mirror.ErrEngineSilent if no worker reaches the engine, mirror.ErrFenceForbidden unless
// the platform allows it, mirror.ErrFencing if there is a fence, mirror.ErrEvacuated if an
// evacuation of it ends.
func (s *Decisions) RequestFence(ctx context.Context, r mirror.EvacuationRequest) (string, error) {
	engine, id := text(string(r.Engine)), newID()
	state, action := mirror.FenceScaling, "fence"
	if r.DryRun {
		state, action = mirror.FenceChecking, "check the fence of"
	}
	err := s.decideOnce(ctx, id, func(tx pgx.Tx, _ bool) error {
		if err := mayFence(ctx, tx, engine); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			WITH earlier AS (
				UPDATE operations o SET state = 'Failed', message = 'requested again', ended_at = now() FROM fences f
				WHERE f.engine = $1 AND o.id = f.id AND o.ended_at IS NULL AND (f.state = 'Checking' OR f.state IN ('Broken', 'Lifting') AND $3 <> 'Checking'))
			INSERT INTO fences AS f (engine, id, state, by, reason) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (engine) DO UPDATE SET id = $2, state = $3, message = '', since = now(), by = $4, reason = $5, at = now(),
				proven_at = NULL, confirmed_by = ''
			WHERE f.state = 'Checking' OR f.state IN ('Broken', 'Lifting') AND $3 <> 'Checking'`,
			engine, id, string(state), text(r.By), message(r.Reason))
		if err == nil && tag.RowsAffected() == 0 {
			err = mirror.ErrFencing
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO operations (id, kind, state, tenant, engine, subject, revision, requested_by, message, done, total, started_at)
			VALUES ($1, $2, 'Pending', '', $3, $4, '', $5, $6, 0, 1, now())`,
			id, string(mirror.OperationFence), engine, action+" engine "+engine, text(r.By),
			message(r.Reason)); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{action: action, subject: "engine " + engine,
			engine: r.Engine, by: r.By, note: r.Reason, event: view.Event{Kind: "engine",
				Name: engine, Text: "fence: " + string(state) + ", requested by " + r.By}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return id, wrap(err, "fence of engine %s", r.Engine)
}

// mayFence returns why an engine cannot be fenced.
func mayFence(ctx context.Context, tx pgx.Tx, engine string) error {
	var allowed, ending bool
	err := tx.QueryRow(ctx, `
		SELECT coalesce(nullif((SELECT g.spec #>> '{remedies,fence}' FROM engines g WHERE g.engine = $1), ''),
				(SELECT d.body #>> '{fleet,remedies,fence}' FROM declarations d WHERE d.kind = 'Fleet' AND d.tenant = '' LIMIT 1)) IS NOT DISTINCT FROM $2,
			EXISTS (SELECT FROM evacuations WHERE engine = $1 AND state = 'Ending')`,
		engine, string(fleet.RemedyAllowed)).Scan(&allowed, &ending)
	switch {
	case err != nil:
		return err
	case !allowed:
		return mirror.ErrFenceForbidden
	case ending:
		return mirror.ErrEvacuated
	}
	switch err := refuseIfAnswers(ctx, tx, engine); {
	case errors.Is(err, mirror.ErrEngineAnswers):
		return nil
	default:
		return cmp.Or(err, mirror.ErrEngineSilent)
	}
}

// liftFence begins to lift the fence of an engine, and reports whether there is one.
func liftFence(ctx context.Context, tx pgx.Tx, engine, by string) (bool, error) {
	tag, err := tx.Exec(ctx, `
		WITH lifted AS (
			UPDATE fences SET state = 'Lifting', message = '', since = now() WHERE engine = $1 AND state NOT IN ('Checking', 'Lifting')
			RETURNING id)
		UPDATE operations o SET state = CASE WHEN o.ended_at IS NULL THEN 'Failed' ELSE o.state END, ended_at = coalesce(o.ended_at, now()),
			message = CASE WHEN o.ended_at IS NULL THEN $2 ELSE o.message END FROM lifted WHERE o.id = lifted.id`,
		engine, message("undone by "+by))
	return tag.RowsAffected() > 0, err
}

// OpenFence returns the fence of the lease's engine; false if there is none. mirror.ErrFenced when
// the lease has passed on.
func (s *Work) OpenFence(ctx context.Context, lease mirror.Lease) (r mirror.Fence, ok bool,
	err error) {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return r, false, err
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		f := fence(lease)
		if _, err := tx.Exec(ctx, f.sql, f.args...); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT `+sqlFence+` FROM fences f WHERE f.engine = $1`,
			string(engine)).Scan(&r)
	})
	r.Engine = engine
	if errors.Is(err, pgx.ErrNoRows) {
		return r, false, nil
	}
	return r, err == nil, wrap(err, "fence of engine %s", engine)
}

// ReportFence records a step of the fence of the lease's engine, which was in state was; a fence
// that a person has changed meanwhile stays as it is. The first proof records the evacuation.
// mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportFence(ctx context.Context, lease mirror.Lease, was mirror.FenceState,
	r mirror.FenceReport) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	news := false
	err = s.transact(ctx, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		fenceEngine(b, lease)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		var of mirror.Fence
		var workloads any
		if r.Workloads != nil {
			workloads = r.Workloads
		}
		err := tx.QueryRow(ctx, `
			UPDATE fences f SET state = $4, message = $5, since = CASE WHEN f.state = $4 THEN f.since ELSE now() END,
				workloads = coalesce($6::jsonb, f.workloads), proven_at = CASE WHEN $7 THEN clock_timestamp() - $8::interval ELSE f.proven_at END
			WHERE f.engine = $1 AND f.id = $2 AND f.state = $3 RETURNING `+sqlFence,
			string(engine), r.ID, string(was), string(r.State), message(r.Message), workloads,
			r.Proven, r.Took).Scan(&of)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		queueFenceStep(b, string(engine), was, of, r)
		news = b.Len() > 0
		return tx.SendBatch(ctx, b).Close()
	})
	if err == nil && news {
		if err := s.Notify(ctx, "fence "+lease.Name); err != nil {
			s.log.Debug("no notification; the loop polls", "error", err)
		}
	}
	return wrap(err, "fence of engine %s", engine)
}

// queueFenceStep records what people see of a changed fence, and the evacuation with its proof.
func queueFenceStep(b *pgx.Batch, engine string, was mirror.FenceState, of mirror.Fence,
	r mirror.FenceReport) {
	if r.End {
		b.Queue(`DELETE FROM fences WHERE engine = $1 AND id = $2`, engine, r.ID)
		b.Queue(`
			UPDATE operations SET state = CASE WHEN $3 THEN 'Failed' ELSE 'Succeeded' END, done = CASE WHEN $3 THEN 0 ELSE 1 END,
				message = $2, ended_at = now() WHERE id = $1 AND ended_at IS NULL`,
			r.ID, message(r.Message), r.Failed)
		if was == mirror.FenceLifting {
			b.Queue(`SELECT new_event('engine', '', $1, 'fence: lifted')`, engine)
		}
		return
	}
	if was == r.State {
		return
	}
	b.Queue(`
		UPDATE operations SET state = CASE WHEN $3 THEN 'Succeeded' ELSE 'Running' END, done = CASE WHEN $3 THEN 1 ELSE 0 END,
			message = $2, ended_at = CASE WHEN $3 THEN now() END WHERE id = $1 AND ended_at IS NULL`,
		r.ID, message(r.Message), r.State == mirror.FenceFenced)
	b.Queue(`SELECT new_event('engine', '', $1, 'fence: ' || $2 || coalesce(nullif(': ' || $3, ': '), ''))`,
		engine, string(r.State), message(r.Message))
	if r.State == mirror.FenceFenced {
		operation := newID()
		b.Queue(sqlEvacuate, engine, operation, of.By, of.Reason, mirror.EvacuationRestored)
		b.Queue(sqlEvacuateOperation+` AND EXISTS (SELECT FROM evacuations e WHERE e.engine = $3 AND e.operation = $1)`,
			operation, string(mirror.OperationEvacuate), engine, of.By, of.Reason)
	}
}

// FencedEngines are the engines with a fence.
func (s *Plans) FencedEngines(ctx context.Context) (map[fleet.EngineName]bool, error) {
	names, err := collect(ctx, s.database, pgx.RowTo[fleet.EngineName],
		`SELECT engine FROM fences`)
	all := make(map[fleet.EngineName]bool, len(names))
	for _, name := range names {
		all[name] = true
	}
	return all, wrap(err, "fenced engines")
}

// FreezeMove records that the evacuated engine of the lease has frozen an Application that leaves
// it: its move needs the fence no longer. mirror.ErrFenced when the lease has passed on.
func (s *Work) FreezeMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			UPDATE application_moves SET departure = departure || '{"frozen": true}'
			WHERE tenant = $1 AND environment = $2 AND deployment = $3 AND from_engine = $4 AND step <> 'Done' AND departure ? 'evacuated'`,
			string(m.Application.Tenant), string(m.Application.Environment),
			string(m.Application.Deployment), string(m.From))
	})
	return wrap(err, "move of %s", m.Application)
}
