package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// forAgent runs reads of one snapshot for the agent of an engine, as argosy_agent with the engine
// set for this transaction alone: the database returns rows of that engine only, whatever f
// selects. See agent_scope in migrations/00005_agents.sql. declared: the engine is declared as
// served by an agent; otherwise the agent gets only the rows that it must delete. seq is the
// number of the newest row in that snapshot. mirror.ErrNotFound when the engine has neither a live
// identity nor a token of the older route, or is no longer served by agents.
func (s *Agents) forAgent(ctx context.Context, engine fleet.EngineName,
	f func(tx pgx.Tx, declared bool, seq int64) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, s.read, options, func(tx pgx.Tx) error {
		var seq int64
		word := ""
		batch := &pgx.Batch{}
		batch.Queue(`SELECT m.seq, coalesce((SELECT agent_stand(n.tenant, n.name) FROM (
				SELECT tenant, tenant_uid, name FROM agents WHERE engine = $1 AND ended_at IS NULL AND expires_at > clock_timestamp()
				UNION ALL
				SELECT tenant, tenant_uid, name FROM agent_tokens WHERE engine = $1 AND legacy AND revoked_at IS NULL AND expires_at > clock_timestamp()) n
			WHERE still_of(n.tenant, n.tenant_uid) LIMIT 1), '') FROM mirror m`, text(string(engine))).
			QueryRow(func(row pgx.Row) error { return row.Scan(&seq, &word) })
		batch.Queue(`SELECT set_config('argosy.engine', $1, true)`, text(string(engine)))
		batch.Queue(`SET LOCAL ROLE argosy_agent`)
		batch.Queue(`SET LOCAL statement_timeout = '` + statementTimeout + `'`)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if word == "" {
			return mirror.ErrNotFound
		}
		return f(tx, word == declaredAsAgent, seq)
	})
}

// AgentRows visits every row of the engine in one snapshot, by number, and returns the cursor for
// AgentChanged. It holds a database connection meanwhile: visit only collects and must not block.
// Once the declaration is deleted or no longer names an agent, only rows that the agent must delete
// are left. mirror.ErrNotFound when no agent serves the engine.
func (s *Agents) AgentRows(ctx context.Context, engine fleet.EngineName,
	visit func(mirror.Row) error) (int64, error) {
	var cursor int64
	err := s.forAgent(patient(ctx, longPatience), engine,
		func(tx pgx.Tx, declared bool, seq int64) error {
			cursor = seq
			rows, err := tx.Query(ctx,
				`SELECT `+rowColumns+fromRows+sqlOfAgent+` ORDER BY d.seq`,
				string(engine), declared)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				row, err := scanRow(rows)
				if err == nil {
					err = visit(row)
				}
				if err != nil {
					return err
				}
			}
			return rows.Err()
		})
	if err != nil {
		return 0, fmt.Errorf("rows for the agent of engine %s: %w", engine, plain(err))
	}
	return cursor, nil
}

const sqlOfAgent = `WHERE d.engine = $1 AND ($2 OR d.absent)`

// AgentChanged returns at most limit rows of the engine above after, by number; otherwise as
// AgentRows.
func (s *Agents) AgentChanged(ctx context.Context, engine fleet.EngineName, after int64,
	limit int) ([]mirror.Row, error) {
	rows, err := agentRead(ctx, s, engine, scanRow, func(declared bool) (string, []any) {
		return `SELECT ` + rowColumns + fromRows + sqlOfAgent +
			` AND d.seq > $3 ORDER BY d.seq LIMIT $4`, []any{string(engine), declared, after, limit}
	})
	return rows, wrap(err, "changed rows for the agent of engine %s", engine)
}

// AgentCredentialRows returns the engine's rows that need the tenant's secret; otherwise as
// AgentRows.
func (s *Agents) AgentCredentialRows(ctx context.Context, engine fleet.EngineName,
	tenant fleet.TenantName, secret string) ([]mirror.Row, error) {
	rows, err := agentRead(ctx, s, engine, scanRow, func(declared bool) (string, []any) {
		return `SELECT ` + rowColumns + fromRows + sqlOfAgent +
				` AND d.credential_tenant = $3 AND d.credential_name = $4 ORDER BY d.seq`,
			[]any{string(engine), declared, string(tenant), secret}
	})
	return rows, wrap(err, "rows for the agent of engine %s with credential %s/%s", engine, tenant,
		secret)
}

// AgentSyncs returns the engine's pending syncs, oldest first; none once the engine is no longer
// declared. Otherwise as AgentRows.
func (s *Agents) AgentSyncs(ctx context.Context, engine fleet.EngineName) ([]mirror.SyncRequest,
	error) {
	all, err := agentRead(ctx, s, engine, scanSync, func(declared bool) (string, []any) {
		return sqlOpenSyncs + ` AND $2 ORDER BY operation`, []any{string(engine), declared}
	})
	return all, wrap(err, "syncs for the agent of engine %s", engine)
}

// AgentActions returns the engine's open actions, oldest first; otherwise as AgentSyncs.
func (s *Agents) AgentActions(ctx context.Context, engine fleet.EngineName) ([]mirror.Action,
	error) {
	all, err := agentRead(ctx, s, engine, scanAction, func(declared bool) (string, []any) {
		return sqlOpenActions, []any{string(engine), declared}
	})
	return all, wrap(err, "actions for the agent of engine %s", engine)
}

// AgentMoves returns the Applications that move to or from the engine; otherwise as AgentRows.
func (s *Agents) AgentMoves(ctx context.Context, engine fleet.EngineName) (registry.Moves, error) {
	var moves registry.Moves
	err := s.again(ctx, func() error {
		return s.forAgent(ctx, engine, func(tx pgx.Tx, _ bool, _ int64) (err error) {
			moves.All, err = read(ctx, tx, scanMove, `SELECT `+moveColumns+` FROM application_moves m
				WHERE step <> 'Done' AND (from_engine = $1 OR to_engine = $1)
					AND NOT (undo AND step IN ('Return', 'Enable') AND from_engine = $1)
				ORDER BY tenant, environment, deployment`, string(engine))
			if err != nil {
				return err
			}
			return tx.QueryRow(ctx,
				`SELECT coalesce(max(seq), 0), incarnation() FROM desired WHERE engine = $1`,
				string(engine)).Scan(&moves.Rows, &moves.Life)
		})
	})
	return moves, wrap(err, "moves for the agent of engine %s", engine)
}

// AgentInstance returns the Argo CD that the engine is to have, and its shadow; otherwise as
// AgentRows.
func (s *Agents) AgentInstance(ctx context.Context, engine fleet.EngineName) (registry.Instance,
	error) {
	var found registry.Instance
	err := s.again(ctx, func() error {
		return s.forAgent(ctx, engine, func(tx pgx.Tx, _ bool, _ int64) error {
			return tx.QueryRow(ctx, `SELECT incarnation(), (SELECT `+sqlInstance+
				` FROM instances i WHERE i.engine = $1), (SELECT jsonb_build_object('version', w.version,
					'digest', w.digest, 'state', w.state, 'message', w.message)
					FROM shadows w WHERE w.engine = $1 AND w.state <> 'Ended')`, string(engine)).Scan(
				&found.Life, &found.Wanted, &found.Shadow)
		})
	})
	return found, wrap(err, "instance for the agent of engine %s", engine)
}

// AgentShadowTasks is Work.ShadowTasks for the agent of an engine; mirror.ErrNotFound if its
// Applications are not compared with the digest. Otherwise as AgentRows.
func (s *Agents) AgentShadowTasks(ctx context.Context, engine fleet.EngineName, digest, basis,
	after string, limit int) (tasks []mirror.ShadowTask, err error) {
	err = s.again(ctx, func() error {
		return s.forAgent(ctx, engine, func(tx pgx.Tx, _ bool, _ int64) error {
			var compared bool
			err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM shadows w WHERE w.engine = $1 AND w.digest = $2 AND `+
				sqlActive+`)`, string(engine), text(digest)).Scan(&compared)
			if err == nil && !compared {
				err = mirror.ErrNotFound
			}
			if err != nil {
				return err
			}
			tasks, err = read(ctx, tx, scanShadowTask, sqlShadowTasks, string(engine),
				text(digest), text(basis), text(after), limit)
			return err
		})
	})
	return tasks, wrap(err, "comparisons for the agent of engine %s", engine)
}

// AgentManifests returns the version of the manifests that the engine or its shadow is to have, and
// their packed files; mirror.ErrNotFound for others. Otherwise as AgentRows.
func (s *Agents) AgentManifests(ctx context.Context, engine fleet.EngineName, digest string) (
	version string, packed []byte, err error) {
	err = s.again(ctx, func() error {
		return s.forAgent(ctx, engine, func(tx pgx.Tx, _ bool, _ int64) error {
			err := tx.QueryRow(ctx, `SELECT version, files FROM ring_manifests WHERE digest = $1`,
				text(digest)).Scan(&version, &packed)
			if errors.Is(err, pgx.ErrNoRows) {
				return mirror.ErrNotFound
			}
			return err
		})
	})
	return version, packed, wrap(err, "manifests for the agent of engine %s", engine)
}

// agentRead returns all results of a statement for the agent of an engine. The statement may depend
// on whether the engine is declared.
func agentRead[T any](ctx context.Context, s *Agents, engine fleet.EngineName,
	scan pgx.RowToFunc[T],
	ask func(declared bool) (string, []any)) ([]T, error) {
	var all []T
	err := s.again(ctx, func() error {
		return s.forAgent(ctx, engine, func(tx pgx.Tx, declared bool, _ int64) (err error) {
			sql, args := ask(declared)
			all, err = read(ctx, tx, scan, sql, args...)
			return err
		})
	})
	return all, err
}

// AgentNews returns the changes for agents above the row number after and since the time since,
// which are Seq and Now of the previous result. It is one statement whatever the number of agents,
// and its cost depends on the changes alone. A negative after starts now, and the zero time starts
// two minutes ago. The times overlap by two minutes, because a transaction becomes visible when it
// commits but has the time of its writes: an ended identity or a changed declaration may be
// reported twice.
func (s *Agents) AgentNews(ctx context.Context, after int64, since time.Time) (registry.News,
	error) {
	var n registry.News
	err := s.again(ctx, func() error {
		var changed []string
		var generations []int64
		err := s.read.QueryRow(ctx, sqlAgentNews, after, moment(since)).Scan(&n.Seq, &n.Now,
			&n.Rows, &n.Syncs, &n.Actions, &n.Moves, &n.Instances, &n.Inspections, &n.Ended,
			&changed, &generations, &n.Life, &n.Confirmed)
		n.Changed = make([]registry.Change, len(changed))
		for i, id := range changed {
			n.Changed[i] = registry.Change{Agent: id, Generation: generations[i]}
		}
		return err
	})
	return n, wrap(err, "news for agents")
}

// Rows of environments' own engines, of which there may be many, are found by number. Rows of
// declared Engines behind agents, which are few, are found by a lookup of each engine.
const (
	sqlAgentNews = `
	SELECT m.seq, clock_timestamp(),
		ARRAY(SELECT c.engine FROM (
			SELECT DISTINCT d.engine FROM desired d WHERE $1::bigint >= 0 AND d.seq > $1 AND d.seq <= m.seq AND strpos(d.engine, '.') > 0) c WHERE ` + sqlServed + `
			UNION ALL
			SELECT a.engine FROM agents a WHERE a.tenant = '' AND a.ended_at IS NULL AND (
				SELECT true FROM desired d WHERE $1::bigint >= 0 AND d.engine = a.engine AND d.seq > $1 AND d.seq <= m.seq ORDER BY d.seq LIMIT 1)),
		ARRAY(SELECT c.engine FROM (SELECT DISTINCT q.engine FROM syncs q WHERE q.state IN ('Pending', 'Running')) c WHERE ` + sqlServed + `),
		ARRAY(SELECT c.engine FROM (SELECT DISTINCT q.engine FROM actions q WHERE q.ended_at IS NULL AND q.kind <> 'rollback'
			UNION SELECT q.engine FROM source_refreshes q) c WHERE ` + sqlServed + `),
		ARRAY(SELECT c.engine FROM (SELECT from_engine AS engine FROM application_moves WHERE step <> 'Done'
			UNION SELECT to_engine FROM application_moves WHERE step <> 'Done') c WHERE ` + sqlServed + `),
		ARRAY(SELECT c.engine FROM (SELECT i.engine FROM instances i WHERE i.changed_at > coalesce($2::timestamptz, now()) - interval '2 minutes'
			UNION SELECT w.engine FROM shadows w WHERE w.changed_at > coalesce($2::timestamptz, now()) - interval '2 minutes') c WHERE ` + sqlServed + `),
		ARRAY(SELECT DISTINCT i.engine FROM inspections i),
		ARRAY(SELECT a.id FROM agents a WHERE a.ended_at IS NOT NULL AND a.ended_at > coalesce($2::timestamptz, now()) - interval '2 minutes'),
		coalesce(g.ids, '{}'), coalesce(g.generations, '{}'), incarnation(), m.confirmed
	FROM mirror m, (
		SELECT array_agg(a.id ORDER BY a.id) AS ids, array_agg(a.generation ORDER BY a.id) AS generations FROM agents a
		WHERE a.ended_at IS NULL AND a.generation > 0 AND a.changed_at > coalesce($2::timestamptz, now()) - interval '2 minutes') g`
	sqlServed = `EXISTS (SELECT FROM agents a WHERE a.engine = c.engine AND a.ended_at IS NULL)`
)

// CredentialEngines are the agents' engines with rows that need the tenant's secret.
func (s *Agents) CredentialEngines(ctx context.Context, tenant fleet.TenantName,
	secret string) ([]fleet.EngineName, error) {
	all, err := collect(ctx, s.database, pgx.RowTo[fleet.EngineName], `
		SELECT a.engine FROM agents a WHERE a.ended_at IS NULL AND a.tenant IN ('', $1) AND EXISTS (
			SELECT FROM desired d WHERE d.engine = a.engine AND d.credential_tenant = $1 AND d.credential_name = $2) ORDER BY a.engine`,
		text(string(tenant)), text(secret))
	return all, wrap(err, "agents that need the credential %s/%s", tenant, secret)
}

// TakeReport checks, before a report is applied, that the lease is held and that the report is
// newer than the latest accepted one: mirror.ErrFenced, registry.ErrReplayed. mirror.ErrNotFound
// means that the lease was taken away and has no holder: the mirror is being rebuilt, the
// declaration has changed, or the database went back to before the lease was granted. The same
// process may acquire it again. last is the number of the latest accepted report, also with
// registry.ErrReplayed. TakeReport writes nothing: ReportTaken counts a report after all of its
// parts were applied. If the replica dies in between, the agent sends the report again and it is
// applied again, with one effect for each part. If a report were counted before it was applied, it
// would be lost.
func (s *Agents) TakeReport(ctx context.Context, lease mirror.Lease, seq int64) (last int64,
	err error) {
	free := false
	err = s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `
			SELECT a.report_seq, l.holder = '' OR l.epoch < $3 FROM leases l JOIN agents a ON a.id = $4 AND a.ended_at IS NULL AND 'engine/' || a.engine = l.name
			WHERE l.name = $1 AND (l.holder = '' OR l.epoch < $3 OR l.holder = $2 AND l.epoch = $3 AND l.expires_at > clock_timestamp())`,
			lease.Name, text(lease.Holder), lease.Epoch, text(holdingAgent(lease))).Scan(&last,
			&free)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = mirror.ErrFenced
	case err == nil && free:
		err = mirror.ErrNotFound
	case err == nil && seq <= last:
		err = registry.ErrReplayed
	}
	return last, wrap(err, "report %d under lease %s", seq, lease.Name)
}

// ReportTaken records that a report and all earlier ones were applied. A lower number than the
// latest changes nothing. mirror.ErrFenced when the lease has passed on.
func (s *Agents) ReportTaken(ctx context.Context, lease mirror.Lease, seq int64) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`UPDATE agents SET report_seq = $2 WHERE id = $1 AND report_seq < $2`,
			text(holdingAgent(lease)), seq)
	})
	return wrap(err, "report %d under lease %s", seq, lease.Name)
}

// ReportAgent records the state of the agent and its Argo CD. A report without news writes nothing.
// mirror.ErrFenced when the lease has passed on.
func (s *Agents) ReportAgent(ctx context.Context, lease mirror.Lease,
	report registry.Report) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(sqlReportAgent, text(holdingAgent(lease)), report.Reachable,
			message(report.Message), message(report.ArgoCD), message(report.Version),
			count(report.PendingDeletions), count(report.HeldDeletions), count(report.Orphans),
			count(report.Own), orphanEnvironments(report.Environments))
		if report.Reach != nil && !engine.OfEnvironment() {
			queueReach(b, engine, report.Reach, true)
		}
		b.Queue(sqlReportAgentEngine, append([]any{string(engine), report.Reachable,
			message(report.Message), message(report.ArgoCD), text(holdingAgent(lease)),
			message(report.Unfit)}, workArgs(report.Work)...)...)
		if !engine.OfEnvironment() {
			queueLoad(b, engine, report.Load)
		}
	})
	return wrap(err, "report of the agent of engine %s", engine)
}

const (
	sqlReportAgent = `
		UPDATE agents a SET reachable = $2, message = $3, argocd = CASE WHEN $4 = '' THEN a.argocd ELSE $4 END,
			version = CASE WHEN $5 = '' THEN a.version ELSE $5 END, pending_deletions = $6, held_deletions = $7, strays = $8, own = $9, stray_environments = $10
		WHERE a.id = $1 AND a.ended_at IS NULL AND ((a.reachable, a.message, a.pending_deletions, a.held_deletions, a.strays, a.own) <> ($2, $3, $6, $7, $8, $9)
			OR a.stray_environments IS DISTINCT FROM $10 OR $4 NOT IN ('', a.argocd) OR $5 NOT IN ('', a.version))`
	// As ReportEngine; for an environment's own cluster the event belongs to the tenant.
	sqlReportAgentEngine = `
		WITH changed AS (
			INSERT INTO engines AS e (engine, reachable, message, argocd, unfit, since, work, work_message, work_since) VALUES ($1, $2, $3, $4, $6, now(), $7, $8, $9)
			ON CONFLICT (engine) DO UPDATE SET reachable = excluded.reachable, message = excluded.message, unfit = excluded.unfit,
				argocd = CASE WHEN excluded.argocd = '' THEN e.argocd ELSE excluded.argocd END,
				since = CASE WHEN e.reachable = excluded.reachable THEN e.since ELSE now() END, work = CASE WHEN excluded.work_since IS NULL THEN e.work ELSE excluded.work END,
					work_message = CASE WHEN excluded.work_since IS NULL THEN e.work_message ELSE excluded.work_message END, work_since = coalesce(excluded.work_since, e.work_since)
			WHERE (e.reachable, e.message, e.unfit) <> (excluded.reachable, excluded.message, excluded.unfit) OR excluded.work_since IS NOT NULL AND excluded.work <> e.work OR excluded.argocd NOT IN ('', e.argocd)
			RETURNING *)
		SELECT new_event('engine', a.tenant, c.engine, CASE WHEN NOT c.reachable THEN 'not reachable' WHEN c.work IN ('', 'Working') THEN 'reachable' ELSE 'does not work: ' || c.work END)
		FROM changed c JOIN agents a ON a.id = $5`
)

// orphanEnvironments converts environments to their column's type; nil if the agent reports none.
func orphanEnvironments(reported []fleet.EnvironmentID) []string {
	if reported == nil {
		return nil
	}
	return column(reported[:min(len(reported), mirror.MaxOrphanEnvironments)],
		func(id fleet.EnvironmentID) string {
			return text(string(id.Tenant)) + "/" + text(string(id.Name))
		})
}

// OrphanEnvironments are the environments of the orphans on an engine's cluster, as last reported
// by its agent, at most the maximum. The result is false when no agent has joined, or it is too old
// to report them.
func (s *Views) OrphanEnvironments(ctx context.Context,
	engine fleet.EngineName) (of []fleet.EnvironmentID, reported bool, err error) {
	err = s.again(ctx, func() error {
		of, reported = nil, false
		var words []string
		err := s.work.QueryRow(ctx,
			`SELECT stray_environments FROM agents WHERE engine = $1 AND ended_at IS NULL`,
			text(string(engine))).Scan(&words)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		reported = words != nil
		for _, word := range words {
			tenant, name, _ := strings.Cut(word, "/")
			of = append(of, fleet.EnvironmentID{Tenant: fleet.TenantName(tenant),
				Name: fleet.EnvironmentName(name)})
		}
		return err
	})
	return of, reported, wrap(err, "orphans on engine %s", engine)
}

// count converts an untrusted number to its column's type.
func count(n int) int32 { return int32(min(max(n, 0), 1<<31-1)) }

// maxOwnText is the maximum length in bytes of each text of an own Application.
const maxOwnText = 512

// RecordOwn records the cluster's own Applications that are new, changed or deleted. It keeps
// mirror.MaxOwn of an environment and ignores the rest. whole: all of them were sent under this
// lease's epoch, so the missing ones are deleted. A report without news writes nothing, and so does
// a report of an agent that is not autonomous. mirror.ErrFenced when the lease has passed on.
func (s *Agents) RecordOwn(ctx context.Context, lease mirror.Lease, own []mirror.OwnApplication,
	whole bool) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil || len(own) == 0 && !whole {
		return err
	}
	var gone, there []mirror.OwnApplication
	for _, o := range newestOwn(own) {
		if o.Gone {
			gone = append(gone, o)
		} else {
			there = append(there, o)
		}
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		if len(gone) > 0 {
			b.Queue(
				`DELETE FROM own_applications o USING unnest($2::text[], $3::text[]) AS g (namespace, name)
				WHERE o.engine = $1 AND o.namespace = g.namespace AND o.name = g.name`, string(engine),
				column(gone, func(o mirror.OwnApplication) string { return ownWord(o.Namespace) }),
				column(gone, func(o mirror.OwnApplication) string { return ownWord(o.Name) }))
		}
		if whole {
			// The Applications in this report are written again below.
			b.Queue(
				`DELETE FROM own_applications WHERE engine = $1 AND epoch <> $2 AND (namespace, name) NOT IN (SELECT * FROM unnest($3::text[], $4::text[]))`,
				string(engine), lease.Epoch,
				column(there, func(o mirror.OwnApplication) string { return ownWord(o.Namespace) }),
				column(there, func(o mirror.OwnApplication) string { return ownWord(o.Name) }))
		}
		if len(there) > 0 {
			b.Queue(sqlRecordOwn,
				append([]any{text(holdingAgent(lease)), lease.Epoch, mirror.MaxOwn},
					ownColumns(there)...)...)
		}
	})
	return wrap(err, "%d own applications of engine %s", len(own), engine)
}

const sqlRecordOwn = `
	INSERT INTO own_applications AS o (engine, namespace, name, tenant, tenant_uid, environment, epoch, uid, project, repo_url, path, target_revision, sync, health,
		synced_revision, operation_phase, operation_id, message, resources, observed_at)
	SELECT a.engine, r.namespace, r.name, a.tenant, a.tenant_uid, a.name, $2, r.uid, r.project, r.repo_url, r.path, r.target_revision, r.sync, r.health,
		r.synced_revision, r.operation_phase, r.operation_id, r.message, r.resources, now()
	FROM agents a, (
		SELECT u.*, k.name IS NOT NULL AS known, row_number() OVER (PARTITION BY k.name IS NULL ORDER BY u.n) AS place
		FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
				$16::text[], $17::int[])
			WITH ORDINALITY AS u (namespace, name, uid, project, repo_url, path, target_revision, sync, health, synced_revision, operation_phase, operation_id,
				message, resources, n)
		LEFT JOIN own_applications k ON k.engine = (SELECT engine FROM agents WHERE id = $1) AND k.namespace = u.namespace AND k.name = u.name) r
	WHERE a.id = $1 AND a.tenant <> '' AND a.mode = 'autonomous' AND a.ended_at IS NULL AND
		(r.known OR r.place <= $3 - (SELECT count(*) FROM own_applications k WHERE k.engine = a.engine))
	ON CONFLICT (engine, namespace, name) DO UPDATE SET tenant = excluded.tenant, tenant_uid = excluded.tenant_uid, environment = excluded.environment,
		epoch = excluded.epoch, uid = excluded.uid, project = excluded.project, repo_url = excluded.repo_url, path = excluded.path,
		target_revision = excluded.target_revision, sync = excluded.sync, health = excluded.health, synced_revision = excluded.synced_revision,
		operation_phase = excluded.operation_phase, operation_id = excluded.operation_id, message = excluded.message, resources = excluded.resources,
		observed_at = CASE WHEN ` + sqlOwnNews + ` THEN excluded.observed_at ELSE o.observed_at END
	WHERE o.epoch <> excluded.epoch OR o.tenant_uid <> excluded.tenant_uid OR ` + sqlOwnNews

const sqlOwnNews = `(o.uid, o.project, o.repo_url, o.path, o.target_revision, o.sync, o.health, o.synced_revision, o.operation_phase, o.operation_id, o.message, o.resources)
	<> (excluded.uid, excluded.project, excluded.repo_url, excluded.path, excluded.target_revision, excluded.sync, excluded.health, excluded.synced_revision,
		excluded.operation_phase, excluded.operation_id, excluded.message, excluded.resources)`

func ownColumns(own []mirror.OwnApplication) []any {
	of := func(value func(mirror.OwnApplication) string) []string {
		return column(own, func(o mirror.OwnApplication) string { return ownWord(value(o)) })
	}
	return []any{
		of(func(o mirror.OwnApplication) string { return o.Namespace }),
		of(func(o mirror.OwnApplication) string { return o.Name }),
		of(func(o mirror.OwnApplication) string { return o.UID }),
		of(func(o mirror.OwnApplication) string { return o.Project }),
		of(func(o mirror.OwnApplication) string { return o.RepoURL }),
		of(func(o mirror.OwnApplication) string { return o.Path }),
		of(func(o mirror.OwnApplication) string { return o.TargetRevision }),
		of(func(o mirror.OwnApplication) string {
			return string(cmp.Or(o.Sync, mirror.SyncUnknown))
		}),
		of(func(o mirror.OwnApplication) string {
			return string(cmp.Or(o.Health, mirror.HealthUnknown))
		}),
		of(func(o mirror.OwnApplication) string { return o.SyncedRevision }),
		of(func(o mirror.OwnApplication) string { return o.OperationPhase }),
		of(func(o mirror.OwnApplication) string { return o.OperationID }),
		of(func(o mirror.OwnApplication) string { return o.Message }),
		column(own, func(o mirror.OwnApplication) int32 { return count(o.Resources) }),
	}
}

func ownWord(s string) string { return cut(text(s), maxOwnText) }

func newestOwn(own []mirror.OwnApplication) []mirror.OwnApplication {
	return newest(own, func(o mirror.OwnApplication) fleet.ObjectKey {
		return fleet.ObjectKey{Engine: fleet.EngineName(ownWord(o.Namespace)),
			Name: ownWord(o.Name)}
	})
}

const ownColumnNames = `o.tenant, o.environment, o.engine, o.namespace, o.name, o.uid, o.project, o.repo_url, o.path, o.target_revision, o.sync, o.health,
	o.synced_revision, o.operation_phase, o.operation_id, o.message, o.resources, o.observed_at, silent_since(o.engine)`

func scanOwn(row pgx.CollectableRow) (view.Own, error) {
	var o view.Own
	err := row.Scan(&o.Tenant, &o.Environment, &o.Engine, &o.Namespace, &o.Name, &o.UID, &o.Project,
		&o.RepoURL, &o.Path, &o.TargetRevision, &o.Sync, &o.Health,
		&o.SyncedRevision, &o.OperationPhase, &o.OperationID, &o.Message, &o.Resources,
		&o.ObservedAt, &o.LastSeenAt)
	if o.LastSeenAt != nil {
		o.Sync, o.Health = mirror.SyncUnknown, mirror.HealthUnknown
	}
	return o, err
}

// OwnApplications lists the Applications of autonomous clusters' own users, as last reported by
// their agents. They match Filter.{Tenant, Environment, Engine, Sync, Health, Name}, ordered by
// tenant, environment, namespace, name.
func (s *Views) OwnApplications(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Own, string, error) {
	f := filter{conditions: []string{"o.tenant_uid = live_tenant(o.tenant)"}}
	f.tenants("o.tenant", scope, by.Tenant)
	f.equal("o.environment", string(by.Environment))
	f.equal("o.engine", string(by.Engine))
	const silent = `(o.engine IN (SELECT silent_engines()))`
	f.known("o.sync", string(by.Sync), silent)
	f.known("o.health", string(by.Health), silent)
	f.equal("o.name", by.Name)
	return list(ctx, s.database, scope, listing[view.Own]{
		name: "own applications", sql: `SELECT ` + ownColumnNames + ` FROM own_applications o`,
		scan: scanOwn,
		keys: []string{"o.tenant", "o.environment", "o.namespace", "o.name"},
		key: func(o view.Own) []string {
			return []string{string(o.Tenant), string(o.Environment), o.Namespace, o.Name}
		},
	}, f, page, nil)
}

// maxAsked is the maximum number of pending syncs of one environment's own Applications.
const maxAsked = 100

// AskSync requests a sync of an autonomous cluster's own Application, by Tenant, Environment,
// Namespace and Key.Name, at Revision (empty: the Application's own) and with Prune. A pending sync
// of it is returned unchanged. mirror.ErrNotFound when the scope has no such Application, or its
// cluster is no longer autonomous. mirror.ErrTooManySyncs: a hundred syncs of its cluster are
// pending.
func (s *Agents) AskSync(ctx context.Context, scope view.Scope, ask mirror.SyncRequest,
	by string) (mirror.SyncRequest, error) {
	ask.ID = newID()
	operation := newID()
	var got mirror.SyncRequest
	err := s.transact(ctx, func(tx pgx.Tx) (err error) {
		got, err = askSync(ctx, tx, scope, ask, operation, by)
		return err
	})
	if err != nil {
		return mirror.SyncRequest{}, fmt.Errorf("sync of %s/%s: %s/%s: %w", ask.Tenant,
			ask.Environment, ask.Namespace, ask.Key.Name, err)
	}
	s.decided(ctx, mirror.NoticeAgents)
	return got, nil
}

func askSync(ctx context.Context, tx pgx.Tx, scope view.Scope, ask mirror.SyncRequest, operation,
	by string) (mirror.SyncRequest, error) {
	f := filter{conditions: []string{"o.tenant_uid = live_tenant(o.tenant)",
		"a.mode = 'autonomous'", "agent_stand(a.tenant, a.name) = 'declared'"}}
	f.tenants("o.tenant", scope, "")
	f.and("o.tenant = " + f.place(text(string(ask.Tenant))) + " AND o.environment = " +
		f.place(text(string(ask.Environment))))
	f.and("o.namespace = " + f.place(text(ask.Namespace)) + " AND o.name = " +
		f.place(text(ask.Key.Name)))
	var engine string
	var uid any
	// The agent's row is locked: requests are serialized, so that the count is exact.
	err := tx.QueryRow(ctx,
		`SELECT a.engine, a.tenant_uid::text FROM own_applications o JOIN agents a ON a.engine = o.engine AND a.ended_at IS NULL`+f.where()+
			` FOR NO KEY UPDATE OF a`, f.args...).Scan(&engine, &uid)
	if errors.Is(err, pgx.ErrNoRows) {
		return ask, mirror.ErrNotFound
	}
	if err != nil {
		return ask, err
	}
	open, err := read(ctx, tx, scanSync, sqlOpenSyncs+` AND deployment = '' ORDER BY operation`,
		engine)
	if err != nil {
		return ask, err
	}
	for _, q := range open {
		if q.Namespace == ask.Namespace && q.Key.Name == ask.Key.Name {
			return q, nil
		}
	}
	if len(open) >= maxAsked {
		return ask, mirror.ErrTooManySyncs
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO syncs (id, operation, engine, namespace, name, tenant, tenant_uid, environment, deployment, sync_run, revision, prune, state)
		VALUES ($1, $2, $3, $4, $5, $6, $7::text::uuid, $8, '', '', $9, $10, 'Pending') ON CONFLICT (id) DO NOTHING`,
		ask.ID, operation, engine, ask.Namespace, ask.Key.Name, string(ask.Tenant), uid,
		string(ask.Environment), message(ask.Revision), ask.Prune)
	if err != nil {
		return ask, err
	}
	subject := string(ask.Tenant) + "/" + string(ask.Environment) + ": " + ask.Namespace + "/" +
		ask.Key.Name
	_, err = tx.Exec(ctx, `
		INSERT INTO operations (id, kind, state, tenant, tenant_uid, engine, subject, revision, requested_by, message, done, total, started_at)
		VALUES ($1, 'Sync', 'Pending', $2, $3::text::uuid, $4, $5, '', $6, '', 0, 1, now())`, operation, string(ask.Tenant), uid, engine, subject, text(by))
	if err != nil {
		return ask, err
	}
	asked, err := read(ctx, tx, scanSync, sqlOpenSyncs+` AND id = $2`, engine, ask.ID)
	if err != nil {
		return ask, err
	}
	if len(asked) != 1 {
		return ask, mirror.ErrNotFound
	}
	return asked[0],
		recordDecision(ctx, tx, decision{action: "sync", subject: subject, tenant: ask.Tenant,
			by: by, note: ask.Revision,
			event: view.Event{Kind: "operation", Tenant: ask.Tenant, Name: operation,
				Text: "sync of " + subject + ": Pending"}})
}
