package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlRemedy is a remedy r as JSON.
const sqlRemedy = `jsonb_build_object('id', r.id, 'engine', r.engine, 'restarts', r.restarts, 'state', r.state, 'message', r.message,
	'since', r.since, 'fault', r.fault, 'faultSince', r.fault_since, 'requestedAt', r.requested_at, 'endedAt', r.ended_at)`

// sqlLastRemedy begins the subquery of the last remedy of an engine since it worked last.
const sqlLastRemedy = `(SELECT ` + sqlRemedy + ` FROM remedies r WHERE NOT r.over AND r.engine = `

// RemedyFacts returns the engines that do not work, or have not since their last remedy.
func (s *Plans) RemedyFacts(ctx context.Context) ([]mirror.RemedyFacts, error) {
	all, err := collect(ctx, s.database, func(row pgx.CollectableRow) (f mirror.RemedyFacts,
		err error) {
		var since *time.Time
		err = row.Scan(&f.Engine, &f.Now, &f.Followed, &f.Work.State, &f.Work.Message, &since,
			&f.Fenced, &f.Next, &f.LastHour, &f.Last)
		f.Work.Since = orZero(since)
		return f, err
	}, `
		SELECT e.engine, now(), e.reachable AND coalesce(l.expires_at > now(), false), e.work, e.work_message, e.work_since,
			EXISTS (SELECT FROM fences f WHERE f.engine = e.engine AND f.state <> 'Checking'), e.next_remedy,
			(SELECT count(*) FROM remedies r WHERE r.engine = e.engine AND r.requested_at > now() - interval '1 hour' AND r.state <> 'Unneeded'),
			`+sqlLastRemedy+`e.engine ORDER BY r.requested_at DESC LIMIT 1)
		FROM engines e LEFT JOIN leases l ON l.name = 'engine/' || e.engine
		WHERE e.engine IN (
			SELECT engine FROM engines WHERE work NOT IN ('', 'Working') OR next_remedy <> ''
			UNION ALL SELECT engine FROM remedies WHERE NOT over)
		ORDER BY e.engine`)
	return all, wrap(err, "remedies")
}

// TakeRemedyStep records a step of an engine. A request beyond the budgets, or beside an open
// remedy, changes nothing. mirror.ErrFenced when the lease has passed on.
func (s *Plans) TakeRemedyStep(ctx context.Context, lease mirror.Lease,
	step mirror.RemedyStep) error {
	engine := string(step.Engine)
	id := newID()
	err := s.transact(ctx, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		if step.End != "" {
			queueEndOfRemedy(b, step)
		}
		if step.Over {
			b.Queue(`UPDATE remedies SET over = true WHERE engine = $1 AND NOT over AND ended_at IS NOT NULL`, engine)
		}
		b.Queue(`UPDATE engines SET next_remedy = $2 WHERE engine = $1 AND next_remedy <> $2`, engine,
			message(step.Next))
		if err := tx.SendBatch(ctx, b).Close(); err != nil || step.Request == nil {
			return err
		}
		return requestRemedy(ctx, tx, id, step)
	})
	return wrap(err, "remedy of engine %s", step.Engine)
}

func queueEndOfRemedy(b *pgx.Batch, step mirror.RemedyStep) {
	helped := step.End == mirror.RemedyHelped || step.End == mirror.RemedyUnneeded
	b.Queue(`
		WITH ended AS (
			UPDATE remedies SET state = $2, message = $3, since = now(), ended_at = now() WHERE id = $1 AND ended_at IS NULL
			RETURNING id, engine),
		operation AS (
			UPDATE operations o SET state = CASE WHEN $4 THEN 'Succeeded' ELSE 'Failed' END, message = $3, ended_at = now(),
				done = CASE WHEN $4 THEN 1 ELSE 0 END FROM ended WHERE o.id = ended.id)
		SELECT new_event('engine', '', engine, 'remedy: ' || $2 || coalesce(nullif(': ' || $3, ': '), '')) FROM ended`,
		step.ID, string(step.End), message(step.Message), helped)
}

// requestRemedy records a request within the budgets. The lease of the leader is locked: no other
// request is counted at the same time.
func requestRemedy(ctx context.Context, tx pgx.Tx, id string, step mirror.RemedyStep) error {
	r := step.Request
	engine := string(step.Engine)
	tag, err := tx.Exec(ctx, `
		INSERT INTO remedies (id, engine, restarts, fault, fault_since)
		SELECT $1, $2, $3, $4, $5
		WHERE (SELECT count(*) FROM remedies WHERE ended_at IS NULL) < $6
			AND (SELECT count(*) FROM remedies WHERE engine = $2 AND requested_at > now() - interval '1 hour' AND state <> 'Unneeded') < $7
		ON CONFLICT (engine) WHERE ended_at IS NULL DO NOTHING`,
		id, engine, string(r.Restarts), string(r.Fault), r.FaultSince, step.AtOnce, step.PerHour)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	why := "it is " + string(r.Fault)
	b := &pgx.Batch{}
	b.Queue(`
		INSERT INTO operations (id, kind, state, tenant, engine, subject, revision, requested_by, message, done, total, started_at)
		VALUES ($1, $2, 'Pending', '', $3, $4, '', 'argosy', $5, 0, 1, now())`,
		id, string(mirror.OperationRestart), engine, r.Restarts.Label()+" of engine "+engine, why)
	b.Queue(`SELECT new_event('engine', '', $1, $2)`, engine,
		"remedy: restart of the "+r.Restarts.Label()+" requested: "+why)
	return tx.SendBatch(ctx, b).Close()
}

// OpenRemedy returns the remedy that the worker of the lease's engine has to carry out; false if
// there is none. mirror.ErrFenced when the lease has passed on.
func (s *Work) OpenRemedy(ctx context.Context, lease mirror.Lease) (r mirror.Remedy, ok bool,
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
		return tx.QueryRow(ctx, `SELECT `+sqlRemedy+` FROM remedies r
			WHERE r.engine = $1 AND r.state IN ('Requested', 'Restarting') AND r.ended_at IS NULL`,
			string(engine)).Scan(&r)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return r, false, nil
	}
	return r, err == nil, wrap(err, "remedy of engine %s", engine)
}

// ReportRemedy records how far the worker has come with an open remedy. mirror.RemedyFailed ends
// it. mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportRemedy(ctx context.Context, lease mirror.Lease, id string,
	state mirror.RemedyState, why string) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		if state.Ended() {
			queueEndOfRemedy(b, mirror.RemedyStep{ID: id, End: state, Message: why})
			return
		}
		b.Queue(`
			WITH changed AS (
				UPDATE remedies r SET state = $3, message = $4, since = CASE WHEN r.state = $3 THEN r.since ELSE now() END
				FROM remedies was WHERE was.id = r.id AND r.id = $1 AND r.engine = $2 AND r.ended_at IS NULL AND (r.state, r.message) <> ($3, $4)
				RETURNING r.id, r.engine, was.state <> $3 AS news),
			operation AS (UPDATE operations o SET state = 'Running', message = $4 FROM changed WHERE o.id = changed.id)
			SELECT new_event('engine', '', engine, 'remedy: ' || $3 || coalesce(nullif(': ' || $4, ': '), '')) FROM changed WHERE news`,
			id, string(engine), string(state), message(why))
	})
	return wrap(err, "remedy of engine %s", engine)
}

// Remedies match Filter.Engine, newest first. They belong to the platform: a tenant's scope has
// none.
func (s *Views) Remedies(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
	[]mirror.Remedy, string, error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	f := filter{}
	f.equal("r.engine", string(by.Engine))
	return list(ctx, s.database, scope, listing[mirror.Remedy]{
		name: "remedies", keys: []string{"r.id"}, newest: true,
		scan: func(row pgx.CollectableRow) (r mirror.Remedy, err error) {
			err = row.Scan(&r)
			return r, err
		},
		sql: `SELECT ` + sqlRemedy + ` FROM remedies r`,
		key: func(r mirror.Remedy) []string { return []string{r.ID} },
	}, f, page, nil)
}

// sqlRemedyFailed is whether the engine's last remedy has failed, and it has not worked since.
const sqlRemedyFailed = `EXISTS (SELECT FROM remedies r WHERE r.engine = e.name AND NOT r.over AND r.state IN ('DidNotHelp', 'Failed'))`
