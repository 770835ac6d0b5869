package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const actionColumns = `a.id, a.request, a.kind, a.engine, a.name, a.tenant, a.environment, a.deployment, a.options, a.by, a.note,
	a.state, a.message, a.results, a.outcome, a.requested_at,
	CASE WHEN a.ended_at IS NOT NULL THEN false WHEN a.begun_at IS NULL THEN a.requested_at < now() - %[1]s
		ELSE a.kind NOT IN ('sync', 'rollback') AND a.begun_at < now() - %[2]s END`

// sqlActions selects actions with the bounds of their time.
var sqlActions = `SELECT ` + fmt.Sprintf(actionColumns, interval(mirror.ActionExpiry),
	interval(mirror.ActionAnswer)) + ` FROM actions a`

// interval returns a duration as SQL.
func interval(d time.Duration) string {
	return fmt.Sprintf("interval '%d seconds'", int(d.Seconds()))
}

func scanAction(row pgx.CollectableRow) (mirror.Action, error) {
	a := mirror.Action{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}}
	var options, results []byte
	if err := row.Scan(&a.ID, &a.Request, &a.Kind, &a.Key.Engine, &a.Key.Name, &a.Tenant,
		&a.Environment, &a.Deployment, &options, &a.By, &a.Note, &a.State, &a.Message, &results,
		&a.Outcome, &a.RequestedAt, &a.Late); err != nil {
		return a, err
	}
	return a, errors.Join(json.Unmarshal(options, &a.Options), json.Unmarshal(results, &a.Results))
}

// RequestAction records what a person asks of an Application, and returns the action with its
// operation's ID. A repeated Request returns the first action. mirror.ErrNotFound when the scope
// has no such Application, mirror.ErrMoving while it moves between engines,
// mirror.ErrAgentCannotAct, and mirror.ErrTooManyActions when too many of its environment are open.
// A rollback fails with mirror.ErrNeverHealthy or mirror.ErrNotRolledBack.
func (s *Decisions) RequestAction(ctx context.Context, scope view.Scope, a mirror.Action) (
	mirror.Action, error) {
	a.ID = newID()
	var made mirror.Action
	err := s.decide(ctx, func(tx pgx.Tx) (err error) {
		made, err = requestAction(ctx, tx, scope, a)
		return err
	})
	if err != nil {
		return made, wrap(err, "%s of %s", a.Kind, a.Application())
	}
	if a.Kind == mirror.ActionRollback {
		s.decided(ctx, "") // the loop plans it
		return made, nil
	}
	s.decided(ctx, mirror.NoticeActions([]fleet.EngineName{made.Key.Engine}))
	return made, nil
}

func requestAction(ctx context.Context, tx pgx.Tx, scope view.Scope, a mirror.Action) (
	mirror.Action, error) {
	if scope.Tenant != "" && scope.Tenant != a.Tenant {
		return a, mirror.ErrNotFound
	}
	of := []any{text(string(a.Tenant)), text(string(a.Environment)), text(string(a.Deployment))}
	// Requests for one Application are serialized: equal ones have one effect, and the count holds.
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('argosy action ' || $1 || '/' || $2, 0))`,
		of[0], of[1]); err != nil {
		return a, err
	}
	known, err := read(ctx, tx, scanAction, sqlActions+`
		WHERE a.tenant = $1 AND a.environment = $2 AND a.deployment = $3 AND a.request = $4 AND a.tenant_uid = live_tenant($1)`,
		append(of, text(a.Request))...)
	if err != nil || len(known) == 1 {
		return first(known), err
	}
	if _, err := tx.Exec(ctx, sqlExpireActions, expiredText, of[0], of[1]); err != nil {
		return a, err
	}
	var moving, old, healthy, rolledBack bool // old: its agent is too old
	var open int
	err = tx.QueryRow(ctx, `
		SELECT d.engine, d.name,
			EXISTS (SELECT FROM application_moves m WHERE m.tenant = $1 AND m.environment = $2 AND m.deployment = $3 AND m.step <> 'Done'),
			EXISTS (SELECT FROM agents g WHERE g.engine = d.engine AND g.ended_at IS NULL AND g.protocol < $4),
			EXISTS (SELECT FROM healthy_revisions h WHERE h.tenant = $1 AND h.environment = $2 AND h.deployment = $3 AND h.revision = $5
				AND h.tenant_uid = live_tenant($1)),
			EXISTS (SELECT FROM sync_holds h WHERE h.tenant = $1 AND h.environment = $2 AND h.deployment = $3 AND h.sync_run LIKE $6::text || '%'),
			(SELECT count(*) FROM actions o WHERE o.tenant = $1 AND o.environment = $2 AND o.ended_at IS NULL)
		FROM desired d WHERE d.kind = 'Application' AND d.tenant = $1 AND d.environment = $2 AND d.deployment = $3 AND NOT d.absent
			AND live_tenant($1) IS NOT NULL
		ORDER BY d.seq DESC LIMIT 1`, append(of, agent.ProtocolActions,
		text(a.Options.Revision), string(mirror.RollbackHold("")))...).Scan(&a.Key.Engine,
		&a.Key.Name, &moving, &old, &healthy, &rolledBack, &open)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return a, mirror.ErrNotFound
	case err != nil:
		return a, err
	case moving:
		return a, mirror.ErrMoving
	case a.Kind == mirror.ActionRollback && !a.Options.End && !healthy:
		return a, mirror.ErrNeverHealthy
	case a.Options.End && !rolledBack:
		return a, mirror.ErrNotRolledBack
	case old && a.Kind != mirror.ActionRollback: // its sync and its hold are in older protocols
		return a, mirror.ErrAgentCannotAct
	case open >= mirror.MaxOpenActions:
		return a, mirror.ErrTooManyActions
	}
	options, err := json.Marshal(a.Options)
	if err != nil {
		return a, err
	}
	// A row of an earlier tenant of the name gives way.
	if _, err := tx.Exec(ctx, `
		INSERT INTO actions (id, request, kind, engine, name, tenant, tenant_uid, environment, deployment, options, by, note)
		VALUES ($1, $2, $3, $4, $5, $6, live_tenant($6), $7, $8, $9, $10, $11)
		ON CONFLICT (tenant, environment, deployment, request) DO UPDATE SET id = excluded.id, kind = excluded.kind, engine = excluded.engine,
			name = excluded.name, tenant_uid = excluded.tenant_uid, options = excluded.options, by = excluded.by, note = excluded.note,
			state = 'Pending', message = '', results = '[]', outcome = '', requested_at = now(), begun_at = NULL, ended_at = NULL`,
		a.ID, text(a.Request), string(a.Kind), string(a.Key.Engine), a.Key.Name, of[0], of[1],
		of[2], options, text(a.By), message(a.Note)); err != nil {
		return a, err
	}
	subject := a.Application().String()
	what := describeAction(a)
	if _, err := tx.Exec(ctx, `
		INSERT INTO operations (id, kind, state, tenant, tenant_uid, engine, subject, revision, requested_by, message, done, total, started_at)
		VALUES ($1, $2, 'Pending', $3, live_tenant($3), $4, $5, '', $6, $7, 0, 1, now())`,
		a.ID, string(a.Kind.Operation()), of[0], string(a.Key.Engine), subject, text(a.By),
		message(what)); err != nil {
		return a, err
	}
	if err := recordDecision(ctx, tx, decision{action: string(a.Kind), subject: subject,
		tenant: a.Tenant, by: a.By, note: joinNote(what, a.Note),
		event: view.Event{Kind: "operation", Tenant: a.Tenant, Name: a.ID,
			Text: string(a.Kind) + " of " + subject + ": Pending"}}); err != nil {
		return a, err
	}
	made, err := read(ctx, tx, scanAction, sqlActions+` WHERE a.id = $1`, a.ID)
	if err == nil && len(made) != 1 {
		err = mirror.ErrNotFound
	}
	return first(made), err
}

func first[T any](all []T) (t T) {
	if len(all) > 0 {
		t = all[0]
	}
	return t
}

func joinNote(what, note string) string {
	if what == "" || note == "" {
		return what + note
	}
	return what + ": " + note
}

// describeAction returns the choices of an action for the record.
func describeAction(a mirror.Action) string {
	o, out := a.Options, ""
	add := func(words string) {
		if out != "" {
			out += ", "
		}
		out += words
	}
	if o.Hard {
		add("hard")
	}
	if o.DryRun {
		add("dry run")
	}
	if o.Revision != "" {
		add("at " + o.Revision)
	}
	if o.Prune {
		add("with prune")
	}
	if o.End {
		add("end of the rollback")
	}
	switch n := len(o.Resources); {
	case n == 1:
		add("of " + o.Resources[0].String())
	case n > 1:
		add(fmt.Sprintf("of %d resources", n))
	}
	return out
}

// OpenActions returns the engine's actions that have not ended, oldest first, and the refreshes
// that pushes requested. Rollbacks are not the worker's: see Plans.PendingRollbacks.
func (s *Work) OpenActions(ctx context.Context, engine fleet.EngineName) ([]mirror.Action, error) {
	all, err := collect(ctx, s.database, scanAction, sqlOpenActions, string(engine), true)
	return all, wrap(err, "actions of engine %s", engine)
}

// sqlOpenActions has none unless $2. Of refreshes and actions at the same time the order is free.
var sqlOpenActions = `SELECT o.* FROM ((` + sqlActions +
	` WHERE a.engine = $1 AND a.ended_at IS NULL AND a.kind <> 'rollback' ORDER BY a.id)
	UNION ALL (` + openRefreshesOf + `)) o WHERE $2::boolean ORDER BY o.requested_at, length(o.id), o.id`

// UpdateAction records how far an action of the lease's engine is, and its operation. An ended
// action stays unchanged. mirror.ErrFenced when the lease has passed on.
func (s *Work) UpdateAction(ctx context.Context, lease mirror.Lease, u mirror.ActionUpdate) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	if !u.State.OfEngine() {
		return fmt.Errorf("action %s: %q is no state of an action", u.ID, u.State)
	}
	if refresh, ok := refreshOf(u.ID); ok {
		return s.updateRefresh(ctx, lease, engine, refresh, u.State)
	}
	var results any
	if u.Results != nil {
		if results, err = json.Marshal(u.Results); err != nil {
			return fmt.Errorf("action %s: %w", u.ID, err)
		}
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			WITH changed AS (
				UPDATE actions SET state = $3, message = $4, results = coalesce($5::jsonb, results),
					outcome = CASE WHEN $6 = '' THEN outcome ELSE $6 END,
					begun_at = CASE WHEN $3 <> 'Pending' THEN coalesce(begun_at, now()) END,
					ended_at = CASE WHEN $3 IN ('Succeeded', 'Failed') THEN now() END
				WHERE id = $1 AND engine = $2 AND ended_at IS NULL
					AND ((state, message) <> ($3, $4) OR $5::jsonb IS NOT NULL OR $6 NOT IN ('', outcome))
				RETURNING id, kind, tenant, deployment || '@' || environment AS what),
			recorded AS (
				UPDATE operations o SET state = $3, message = CASE WHEN $4 = '' THEN o.message ELSE $4 END,
					done = CASE WHEN $3 = 'Succeeded' THEN o.total ELSE o.done END,
					ended_at = CASE WHEN $3 IN ('Succeeded', 'Failed') THEN now() END
				FROM changed c WHERE o.id = c.id)
			SELECT new_event('operation', tenant, id, kind || ' of ' || tenant || '/' || what || ': ' || $3) FROM changed`,
			u.ID, string(engine), string(u.State), message(u.Message), results, string(u.Outcome))
	})
	return wrap(err, "action %s", u.ID)
}

// Actions match Filter.{Tenant, Environment, Deployment, Engine, Name (the operation's ID)}, newest
// first, with their results.
func (s *Views) Actions(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
	[]mirror.Action, string, error) {
	f := filter{}
	f.tenants("a.tenant", scope, by.Tenant)
	f.and("a.tenant_uid = live_tenant(a.tenant)")
	f.equal("a.environment", string(by.Environment))
	f.equal("a.deployment", string(by.Deployment))
	f.equal("a.engine", string(by.Engine))
	f.equal("a.id", by.Name)
	return list(ctx, s.database, scope, listing[mirror.Action]{
		name: "actions", keys: []string{"a.id"}, newest: true, scan: scanAction, sql: sqlActions,
		key: func(a mirror.Action) []string { return []string{a.ID} },
	}, f, page, nil)
}

// sqlExpireActions ends actions that no worker ends: their engine has none that reaches it.
var sqlExpireActions = `
	WITH late AS (
		UPDATE actions a SET state = 'Failed', ended_at = now(), message = $1
		WHERE a.ended_at IS NULL AND ($2 = '' OR a.tenant = $2 AND a.environment = $3)
			AND (a.begun_at IS NULL AND a.requested_at < now() - ` +
	interval(2*mirror.ActionExpiry) + ` OR a.kind NOT IN ('sync', 'rollback') AND a.begun_at < now() - ` +
	interval(2*mirror.ActionAnswer) + `)
		RETURNING a.id, a.kind, a.tenant, a.deployment || '@' || a.environment AS what),
	ended AS (
		UPDATE operations o SET state = 'Failed', message = $1, ended_at = now() FROM late l WHERE o.id = l.id)
	SELECT count(new_event('operation', tenant, id, kind || ' of ' || tenant || '/' || what || ': Failed')) FROM late`

const expiredText = "nothing has carried it out in time: see the engine with `argosy get engines`, or the agent"

// expireActions ends the late actions of all environments.
func (s *Store) expireActions(ctx context.Context) error {
	return s.transact(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sqlExpireActions, expiredText, "", "")
		return err
	})
}
