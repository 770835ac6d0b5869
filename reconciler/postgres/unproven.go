package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// ForgetEngine decides that an evacuated engine never returns: its rows and orphans leave their
// lists and become unproven objects. The record of the evacuation stays, so that an engine that
// returns in spite of that is frozen. mirror.ErrNotEvacuated if the engine is not evacuated,
// mirror.ErrEngineAnswers if it is reachable, mirror.ErrServes while environments or moves need
// it, mirror.ErrForgotten if nothing of it is left to forget.
func (s *Decisions) ForgetEngine(ctx context.Context, r mirror.EngineForgetting) error {
	engine := text(string(r.Engine))
	err := s.transact(ctx, func(tx pgx.Tx) error {
		if err := lockToForget(ctx, tx, engine); err != nil {
			return err
		}
		forgotten, err := forgettable(ctx, tx, engine)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlForgetEngine, engine, text(r.By), message(r.Reason),
			string(mirror.LostEngine))
		if err != nil {
			return err
		}
		n := tag.RowsAffected()
		if forgotten && n == 0 {
			return mirror.ErrForgotten
		}
		if _, err := tx.Exec(ctx, `DELETE FROM reach WHERE engine = $1`, engine); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx,
			`UPDATE evacuations SET forgotten_at = now(), forgotten_by = $2 WHERE engine = $1`,
			engine, text(r.By)); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{kind: mirror.OperationForget,
			subject: "engine " + engine, engine: r.Engine, by: r.By, note: r.Reason,
			event: view.Event{Kind: "engine", Name: engine, Text: fmt.Sprintf(
				"is forgotten: %s confirms that it never returns; the deletion of %d objects is "+
					"not proven", r.By, n)}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "forget engine %s", r.Engine)
}

// lockToForget takes the engine's lock and then the mirror's, in the order of a worker's reports.
func lockToForget(ctx context.Context, tx pgx.Tx, engine string) error {
	if _, err := tx.Exec(ctx,
		`SELECT pg_advisory_xact_lock(hashtextextended('argosy engine/' || $1, 0))`,
		engine); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT FROM mirror FOR UPDATE`)
	return err
}

// forgettable returns why an engine is not forgotten now, and whether it was forgotten before.
func forgettable(ctx context.Context, tx pgx.Tx, engine string) (forgotten bool, err error) {
	err = tx.QueryRow(ctx, `SELECT forgotten_at IS NOT NULL FROM evacuations
		WHERE engine = $1 AND state <> 'Ending' FOR UPDATE`, engine).Scan(&forgotten)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, mirror.ErrNotEvacuated
	}
	if err == nil {
		err = refuseIfAnswers(ctx, tx, engine)
	}
	if err != nil {
		return false, err
	}
	var placed, open, wanted int
	if err := tx.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM placements WHERE engine = $1),
			(SELECT count(*) FROM application_moves WHERE $1 IN (from_engine, to_engine) AND step <> 'Done'),
			(SELECT count(*) FROM desired WHERE engine = $1 AND NOT absent)`, engine).
		Scan(&placed, &open, &wanted); err != nil {
		return false, err
	}
	switch {
	case placed > 0:
		err = fmt.Errorf("%w: %d environments are still on it", mirror.ErrServes, placed)
	case open > 0:
		err = fmt.Errorf("%w: %d Applications are not adopted by their new engines yet",
			mirror.ErrServes, open)
	case wanted > 0:
		err = fmt.Errorf("%w: %d of its objects are still declared", mirror.ErrServes, wanted)
	}
	return forgotten, err
}

// sqlForgetEngine makes every row and orphan of an engine unproven. The rows count as removed for
// the plan (see Vanished): the decision of a person takes the place of the proof.
const sqlForgetEngine = `
	WITH gone AS (DELETE FROM desired WHERE engine = $1 RETURNING *),
	reported AS (DELETE FROM status WHERE engine = $1 RETURNING *),
	orphans AS (DELETE FROM strays WHERE engine = $1 RETURNING *),
	silent AS MATERIALIZED (SELECT coalesce(silent_since($1), now()) AS since),
	lost AS (
		SELECT g.kind, g.name, g.tenant, g.environment, g.deployment, coalesce(nullif(g.uid, ''), s.uid, '') AS uid, g.hash, g.body,
			CASE WHEN s.acked_at IS NOT NULL OR s.uid <> '' THEN silent.since END AS seen_at
		FROM silent, gone g LEFT JOIN reported s ON s.kind = g.kind AND s.name = g.name
		UNION ALL
		SELECT o.kind, o.name, o.tenant, o.environment, o.deployment, o.uid, encode(sha256('{}'), 'hex'), '{}', silent.since
		FROM silent, orphans o WHERE NOT EXISTS (SELECT FROM gone g WHERE g.kind = o.kind AND g.name = o.name))
	INSERT INTO unproven (lost, engine, kind, name, tenant, environment, deployment, uid, hash, body, seen_at, forgotten_by, reason)
	SELECT $4, $1, kind, name, tenant, environment, deployment, uid, hash, body, seen_at, $2, $3 FROM lost
	ON CONFLICT (lost, engine, kind, name, uid) DO UPDATE SET seen_at = excluded.seen_at, forgotten_at = now(),
		forgotten_by = excluded.forgotten_by, reason = excluded.reason`

// ForgetCluster decides that the cluster of a removed environment never returns, and returns the
// number of objects that are unproven since. Applications whose deletion waits for the cluster are
// removed from their engine without it. The rows of a cluster with its own Argo CD and agent become
// unproven objects. mirror.ErrDeclared, mirror.ErrClusterAnswers, mirror.ErrServes while an
// Application is declared or held, mirror.ErrNotFound if no deletion waits.
func (s *Decisions) ForgetCluster(ctx context.Context, r mirror.ClusterForgetting) (n int,
	err error) {
	subject := "cluster of environment " + text(r.ID().String())
	own := text(string(fleet.AgentEngine(r.ID())))
	err = s.transact(ctx, func(tx pgx.Tx) error {
		if err := lockToForget(ctx, tx, own); err != nil {
			return err
		}
		if err := clusterForgettable(ctx, tx, r.ID()); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlForgetEngine, own, text(r.By), message(r.Reason),
			string(mirror.LostCluster))
		if err != nil {
			return err
		}
		n = int(tag.RowsAffected())
		tag, err = tx.Exec(ctx, sqlForgetCluster, text(string(r.Tenant)),
			text(string(r.Environment)), text(r.By), message(r.Reason))
		if err != nil {
			return err
		}
		if n += int(tag.RowsAffected()); n == 0 {
			return mirror.ErrNotFound
		}
		return recordDecision(ctx, tx, decision{kind: mirror.OperationForget, subject: subject,
			tenant: r.Tenant, by: r.By, note: r.Reason, event: view.Event{Kind: "environment",
				Tenant: r.Tenant, Name: r.ID().String(), Text: "its cluster is forgotten: " + r.By +
					" confirms that it never returns"}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return n, wrap(err, "forget the %s", subject)
}

// clusterForgettable returns why the cluster of an environment is not forgotten now.
func clusterForgettable(ctx context.Context, tx pgx.Tx, id fleet.EnvironmentID) error {
	var declared, agent bool
	var wanted, moving int
	var reads string
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM declarations WHERE kind = 'ManagedEnvironment' AND tenant = $1 AND name = $2)
				AND NOT EXISTS (`+sqlRemovalDeferred+`),
			EXISTS (SELECT FROM agents WHERE engine = $3 AND ended_at IS NULL),
			(SELECT count(*) FROM desired WHERE kind = 'Application' AND tenant = $1 AND environment = $2 AND NOT absent),
			(SELECT count(*) FROM application_moves WHERE tenant = $1 AND environment = $2 AND step <> 'Done'),
			coalesce((SELECT min(d.engine) FROM desired d WHERE `+sqlWaitsForCluster+` AND d.engine <> $3 AND NOT EXISTS (
				SELECT FROM reach r WHERE r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment)), '')`,
		text(string(id.Tenant)), text(string(id.Name)), text(string(fleet.AgentEngine(id)))).
		Scan(&declared, &agent, &wanted, &moving, &reads)
	switch {
	case err != nil:
		return err
	case declared:
		return mirror.ErrDeclared
	case wanted > 0:
		return fmt.Errorf("%w: %d Applications are declared, or their deletions are held",
			mirror.ErrServes, wanted)
	case moving > 0:
		return fmt.Errorf("%w: %d Applications are moving", mirror.ErrServes, moving)
	case agent:
		return fmt.Errorf("%w: its agent may return", mirror.ErrClusterAnswers)
	case reads != "":
		return fmt.Errorf("%w: engine %s reads it", mirror.ErrClusterAnswers, reads)
	}
	return nil
}

// sqlRemovalDeferred selects the removal of environment $1/$2 that waits for its Applications:
// until then, the declaration stays in effect.
const sqlRemovalDeferred = `SELECT FROM memory m, jsonb_path_query(convert_from(m.body, 'UTF8')::jsonb, '$.deferred[*]') AS x
	WHERE x ->> 'going' = 'true' AND x #>> '{input,Key,kind}' = 'ManagedEnvironment'
		AND x #>> '{input,Key,tenant}' = $1 AND x #>> '{input,Key,name}' = $2`

// sqlWaitsForCluster is whether desired d is an Application of environment $1/$2 that is deleted
// with its workload.
const sqlWaitsForCluster = `d.kind = 'Application' AND d.tenant = $1 AND d.environment = $2 AND d.absent AND d.deletion = 'Delete' AND d.uid = ''`

// sqlForgetCluster has the engines remove the Applications of an environment without their
// workloads, which become unproven. It changes the rows as Abandon does.
const sqlForgetCluster = `
	WITH lost AS MATERIALIZED (
		SELECT d.*, coalesce(s.uid, '') AS live_uid, r.since, row_number() OVER (ORDER BY d.seq) AS n
		FROM desired d LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
			LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
		WHERE ` + sqlWaitsForCluster + `),
	next AS (UPDATE mirror SET seq = seq + (SELECT count(*) FROM lost) WHERE EXISTS (SELECT FROM lost)
		RETURNING seq - (SELECT count(*) FROM lost) AS seq),
	changed AS (
		UPDATE desired d SET deletion = 'Orphan', seq = next.seq + l.n, changed_at = now() FROM lost l, next
		WHERE d.engine = l.engine AND d.kind = l.kind AND d.name = l.name)
	INSERT INTO unproven (lost, engine, kind, name, tenant, environment, deployment, uid, hash, body, seen_at, forgotten_by, reason)
	SELECT 'Cluster', engine, kind, name, tenant, environment, deployment, live_uid, hash, body, since, $3, $4 FROM lost
	ON CONFLICT (lost, engine, kind, name, uid) DO UPDATE SET seen_at = excluded.seen_at, forgotten_at = now(),
		forgotten_by = excluded.forgotten_by, reason = excluded.reason`

// Recall makes the unproven objects of an engine that has returned rows again, which remove the
// objects without their workloads, and returns their number. The end of each deletion is proven as
// always, and takes the object off the list. mirror.ErrFenced when the lease has passed on.
func (s *Work) Recall(ctx context.Context, lease mirror.Lease) (n int, err error) {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return 0, err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(sqlRecall, string(engine)).QueryRow(func(row pgx.Row) error {
			return row.Scan(&n)
		})
	})
	return n, wrap(err, "unproven objects of engine %s", engine)
}

const sqlRecall = `
	WITH back AS MATERIALIZED (
		SELECT u.*, row_number() OVER (ORDER BY u.id) AS n FROM unproven u WHERE u.lost = 'Engine' AND u.engine = $1
			AND NOT EXISTS (SELECT FROM desired d WHERE d.engine = u.engine AND d.kind = u.kind AND d.name = u.name)
			AND NOT EXISTS (SELECT FROM unproven v WHERE v.lost = u.lost AND v.engine = u.engine AND v.kind = u.kind AND v.name = u.name AND v.id < u.id)),
	next AS (UPDATE mirror SET seq = seq + (SELECT count(*) FROM back) WHERE EXISTS (SELECT FROM back)
		RETURNING seq - (SELECT count(*) FROM back) AS seq),
	inserted AS (
		INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body, uid)
		SELECT b.engine, b.kind, b.name, b.tenant, b.environment, b.deployment, next.seq + b.n, now(), now(), true, 'Orphan', '', b.hash, b.body, b.uid
		FROM back b, next
		RETURNING engine)
	SELECT count(*) FROM inserted`

// ResolveUnproven takes objects off the list by the decision of a person, and returns their number.
// mirror.ErrNotFound if the request selects none.
func (s *Decisions) ResolveUnproven(ctx context.Context, r mirror.UnprovenResolution) (n int,
	err error) {
	subject := fmt.Sprintf("unproven objects %d", r.IDs)
	switch {
	case r.Engine != "":
		subject = "unproven objects of engine " + text(string(r.Engine))
	case r.Environment != "":
		subject = "unproven objects of environment " +
			text(string(r.Tenant)+"/"+string(r.Environment))
	}
	if r.Scopes() != 1 {
		return 0, fmt.Errorf("%s: select them by IDs, by engine or by environment", subject)
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		type object struct{ engine, kind, name string }
		gone, err := read(ctx, tx, func(row pgx.CollectableRow) (o object, err error) {
			err = row.Scan(&o.engine, &o.kind, &o.name)
			return o, err
		}, `
			DELETE FROM unproven WHERE id = ANY ($1::bigint[]) OR engine = $2 AND $2 <> '' OR tenant = $3 AND environment = $4 AND $4 <> ''
			RETURNING engine, kind, name`, r.IDs, text(string(r.Engine)), text(string(r.Tenant)),
			text(string(r.Environment)))
		if err != nil {
			return err
		}
		if n = len(gone); n == 0 {
			return mirror.ErrNotFound
		}
		if len(r.IDs) > 0 {
			subject = "unproven objects"
			for _, o := range gone {
				subject += " " + o.engine + "/" + o.kind + "/" + o.name
			}
		}
		return recordDecision(ctx, tx, decision{kind: mirror.OperationResolve,
			subject: subject, tenant: r.Tenant, engine: r.Engine, by: r.By, note: r.Reason,
			event: view.Event{Kind: "engine", Name: string(r.Engine),
				Text: fmt.Sprintf("%d unproven objects are resolved by %s", n, r.By)}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return n, wrap(err, "%s", subject)
}

// Unproven match Filter.{Engine, Tenant, Environment}, the latest first. They belong to the
// platform: a tenant's scope has none.
func (s *Views) Unproven(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Unproven, string, error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	f := filter{}
	f.equal("engine", string(by.Engine))
	f.equal("tenant", string(by.Tenant))
	f.equal("environment", string(by.Environment))
	return list(ctx, s.database, scope, listing[view.Unproven]{
		name: "unproven", keys: []string{"id"}, newest: true, scan: scanUnproven,
		sql: `SELECT id, lost, engine, kind, name, tenant, environment, deployment, uid, body, seen_at, forgotten_at, forgotten_by, reason
			FROM unproven`,
		key: func(v view.Unproven) []string { return []string{fmt.Sprint(v.ID)} },
	}, f, page, nil)
}

func scanUnproven(row pgx.CollectableRow) (view.Unproven, error) {
	var v view.Unproven
	var body []byte
	err := row.Scan(&v.ID, &v.Lost, &v.Engine, &v.Kind, &v.Name, &v.Tenant, &v.Environment,
		&v.Deployment, &v.UID, &body, &v.SeenAt, &v.ForgottenAt, &v.ForgottenBy, &v.Reason)
	var manifest struct {
		Spec struct {
			Destination struct{ Server, Namespace string }
		}
		Data struct{ Server []byte }
	}
	// We wrote the manifest. An invalid one is no reason to hide its object.
	_ = json.Unmarshal(body, &manifest)
	to := manifest.Spec.Destination
	v.Server, v.Namespace = to.Server, to.Namespace
	if v.Kind == fleet.ObjectCluster {
		v.Server = string(manifest.Data.Server)
	}
	v.Risk = v.RiskOf()
	return v, err
}
