package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

// Retention is how long history is kept. Zero means the default.
type Retention struct {
	Events time.Duration // of event streams and the page; default 7 days
	// ended ones, and approvals without pending changes; default 90 days
	Operations time.Duration
	// without objects, and ended syncs whose SyncRun is deleted; default 365 days
	Revisions time.Duration
	Pulls     time.Duration // closed ones, with their plans; default 365 days
	Audit     time.Duration // default two years, at least 90 days
}

const day = 24 * time.Hour

func (r Retention) orDefaults() Retention {
	for of, d := range map[*time.Duration]time.Duration{
		&r.Events: 7 * day, &r.Operations: 90 * day, &r.Revisions: 365 * day, &r.Pulls: 365 * day,
		&r.Audit: 730 * day,
	} {
		if *of == 0 {
			*of = d
		}
	}
	r.Audit = max(r.Audit, 90*day)
	return r
}

const pruneBatch = 5000

// pruning is one kind of row that is deleted by age. Its statement takes the age, unless it names
// one, and the size of a batch.
type pruning struct {
	what string
	age  time.Duration
	sql  string
}

func (p pruning) args() []any {
	if p.age == 0 { // the statement names it
		return []any{pruneBatch}
	}
	return []any{p.age, pruneBatch}
}

// prunings are all tables that shrink by age. Other tables hold the config repo's declarations, the
// engines' reports about them, or one row for each permanent item: an epoch of a lease may never
// decrease, so leases stay.
func prunings(r Retention) []pruning {
	return []pruning{
		{
			"events", r.Events,
			`DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE at < now() - $1::interval ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"deletions", 169 * time.Hour,
			`DELETE FROM deletions WHERE n IN (SELECT n FROM deletions WHERE at < now() - $1::interval ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"operations", r.Operations, `DELETE FROM operations WHERE id IN (
			SELECT id FROM operations WHERE started_at < now() - $1::interval AND ended_at < now() - $1::interval ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"moves", r.Operations, `DELETE FROM application_moves WHERE (tenant, environment, deployment) IN (
			SELECT tenant, environment, deployment FROM application_moves WHERE step = 'Done' AND since < now() - $1::interval
			LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"rebalances", r.Operations, `DELETE FROM rebalances WHERE id IN (
			SELECT id FROM rebalances WHERE ended_at < now() - $1::interval ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"rollouts", r.Operations, `DELETE FROM rollouts WHERE id IN (
			SELECT id FROM rollouts WHERE ended_at < now() - $1::interval ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"actions", r.Operations, `DELETE FROM actions WHERE id IN (
			SELECT id FROM actions WHERE ended_at < now() - $1::interval ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"healthy revisions", r.Revisions, `DELETE FROM healthy_revisions WHERE (tenant, environment, deployment, revision) IN (
			SELECT h.tenant, h.environment, h.deployment, h.revision FROM healthy_revisions h WHERE h.last_at < now() - $1::interval AND (
				EXISTS (SELECT FROM healthy_revisions n WHERE n.tenant = h.tenant AND n.environment = h.environment AND n.deployment = h.deployment
					AND n.last_at > h.last_at)
				OR NOT EXISTS (SELECT FROM desired d WHERE d.kind = 'Application' AND d.tenant = h.tenant AND d.environment = h.environment
					AND d.deployment = h.deployment))
			ORDER BY h.last_at LIMIT $2 FOR UPDATE OF h SKIP LOCKED)`},
		// that of a rollback in force stays: what a person closed would be opened again
		{"pull requests of rollbacks", r.Operations, `DELETE FROM lasting_rollbacks WHERE (tenant, deployment) IN (
			SELECT l.tenant, l.deployment FROM lasting_rollbacks l WHERE l.state <> 'Open' AND l.changed_at < now() - $1::interval
				AND NOT EXISTS (SELECT FROM sync_holds h WHERE h.tenant = l.tenant AND h.deployment = l.deployment AND h.sync_run LIKE 'rollback-%')
			ORDER BY l.changed_at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"remedies", r.Operations, `DELETE FROM remedies WHERE id IN (
			SELECT id FROM remedies WHERE ended_at < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"approvals", r.Operations, `DELETE FROM approvals WHERE revision IN (
			SELECT revision FROM approvals a WHERE at < now() - $1::interval AND NOT EXISTS (SELECT FROM holds h WHERE h.revision = a.revision)
			ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"freeze releases", r.Operations, `DELETE FROM freeze_releases WHERE (revision, tenant) IN (
			SELECT revision, tenant FROM freeze_releases a WHERE at < now() - $1::interval AND NOT EXISTS (SELECT FROM holds h WHERE h.revision = a.revision)
			ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"syncs", r.Revisions, `DELETE FROM syncs WHERE id IN (
			SELECT s.id FROM syncs s WHERE s.state IN ('Succeeded', 'Failed')
				AND NOT EXISTS (SELECT FROM operations o WHERE o.id = s.operation AND o.started_at > now() - $1::interval)
				AND NOT EXISTS (SELECT FROM declarations d WHERE d.kind = 'SyncRun' AND d.tenant = s.tenant AND d.name = s.sync_run)
			LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"revisions", r.Revisions, `DELETE FROM revisions WHERE n IN (
			SELECT n FROM revisions r WHERE recorded_at < now() - $1::interval AND applied_at IS NOT NULL
				AND revision <> (SELECT applied FROM mirror) AND NOT EXISTS (SELECT FROM desired d WHERE d.revision = r.revision)
				AND NOT EXISTS (SELECT FROM holds h WHERE h.revision = r.revision)
			ORDER BY n LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"pull requests", r.Pulls, `
			WITH old AS (
				SELECT number FROM pulls WHERE state <> 'open' AND settled AND changed_at < now() - $1::interval ORDER BY number LIMIT $2 FOR UPDATE SKIP LOCKED),
			plans AS (DELETE FROM reviewed_plans r USING old WHERE r.number = old.number),
			touches AS (DELETE FROM pull_touches t USING old WHERE t.number = old.number),
			tenants AS (DELETE FROM pull_tenants t USING old WHERE t.number = old.number)
			DELETE FROM pulls p USING old WHERE p.number = old.number`},
		// one row for each deleted one
		{"audit log", r.Audit, `SELECT FROM generate_series(1, prune_audit($1::interval, $2))`},
		{"tokens", r.Operations, `DELETE FROM tokens WHERE id IN (
			SELECT id FROM tokens WHERE least(revoked_at, expires_at) < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"sessions", r.Operations, `DELETE FROM sessions WHERE id IN (
			SELECT id FROM sessions WHERE expires_at < now() - $1::interval ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"sign-ins", day, `DELETE FROM sign_ins WHERE hash IN (
			SELECT hash FROM sign_ins WHERE at < now() - $1::interval ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"tenants", r.Audit, `DELETE FROM tenants WHERE uid IN (
			SELECT uid FROM tenants WHERE removed_at < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"engines", 30 * day, `DELETE FROM engines WHERE engine IN (
			SELECT e.engine FROM engines e WHERE e.since < now() - $1::interval
				AND NOT EXISTS (SELECT FROM declarations d WHERE d.kind = 'Engine' AND d.tenant = '' AND d.name = e.engine)
				AND NOT EXISTS (SELECT FROM placements p WHERE p.engine = e.engine) AND NOT EXISTS (SELECT FROM desired d WHERE d.engine = e.engine)
				AND NOT EXISTS (SELECT FROM unproven u WHERE u.lost = 'Engine' AND u.engine = e.engine)
				AND NOT EXISTS (SELECT FROM agents a WHERE a.engine = e.engine AND a.ended_at IS NULL)
			LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"access tokens", 10 * time.Minute, `DELETE FROM agent_access WHERE hash IN (
			SELECT hash FROM agent_access WHERE expires_at < now() - $1::interval ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"registration tokens", 30 * day, `DELETE FROM agent_tokens WHERE id IN (
			SELECT id FROM agent_tokens WHERE least(expires_at, CASE WHEN NOT legacy THEN used_at END, revoked_at) < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"agents", 90 * day, `DELETE FROM agents WHERE id IN (
			SELECT id FROM agents WHERE ended_at < now() - $1::interval ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"tombstones", time.Hour, `DELETE FROM tombstones WHERE (engine, kind, name) IN (
			SELECT engine, kind, name FROM tombstones WHERE at < now() - $1::interval ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"removals", 30 * day, `DELETE FROM removals WHERE (engine, kind, name) IN (
			SELECT engine, kind, name FROM removals WHERE at < now() - $1::interval ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`},
		{"replicas", day, `DELETE FROM replicas WHERE replica IN (
			SELECT replica FROM replicas WHERE greatest(beat_at, worked_at) < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)`},
	}
}

// Prune deletes rows that are older than their retention, in small batches with pauses as long as
// the batches take. Any number of replicas may call it periodically. It returns the number of
// deleted rows.
func (s *Store) Prune(ctx context.Context, r Retention) (int64, error) {
	if _, err := s.work.Exec(ctx, `SELECT partition_audit()`); err != nil {
		return 0, fmt.Errorf("prune: partitions of the audit log: %w", err)
	}
	if err := s.Audit.SealAll(ctx); err != nil { // an entry that is not sealed stays
		return 0, fmt.Errorf("prune: %w", err)
	}
	var all int64
	if err := s.expireActions(ctx); err != nil {
		return 0, fmt.Errorf("expire actions: %w", err)
	}
	for _, p := range prunings(r.orDefaults()) {
		dropped, err := s.prune(ctx, p)
		if all += dropped; err != nil {
			return all, fmt.Errorf("prune %s: %w", p.what, err)
		}
		if p.what != "audit log" {
			continue
		}
		if err := s.recordPruning(ctx, fleet.Age(p.age)); err != nil {
			return all, fmt.Errorf("prune %s: %w", p.what, err)
		}
	}
	return all, nil
}

func (s *database) prune(ctx context.Context, p pruning) (dropped int64, err error) {
	for {
		began := time.Now()
		var n int64
		err := s.again(ctx, func() error {
			tag, err := s.work.Exec(ctx, p.sql, p.args()...)
			n = tag.RowsAffected()
			return err
		})
		if dropped += n; err != nil || n < pruneBatch {
			return dropped, err
		}
		if !pacing.Sleep(ctx, time.Since(began)) {
			return dropped, ctx.Err()
		}
	}
}

// Reset deletes everything that Git and the engines can restore, for `argosy rebuild`. People's
// decisions and actions stay (stops, approvals, tokens, operations, the audit log), and so do the
// joined agents, the epochs of leases, which may never decrease, the guards' history of deletions,
// and the requested syncs, which must not run twice. Numbers of rows continue. A replica that runs
// meanwhile loses the reconciler's lease, and with it its knowledge of the mirror; Reset waits for
// a record in progress.
//
// Agents lose the leases of their engines, and with them their knowledge of rows: the next session
// has a higher epoch, for which they read all rows again. Their earlier reports are deleted, since
// an object with a row in the old mirror was no orphan: placements follow from the reports on the
// new mirror.
//
// Moves under way end: an environment goes on where its Applications are, as after a loss of the
// database (ADR 0045).
func (s *Store) Reset(ctx context.Context) error {
	ctx = patient(ctx, longPatience)
	err := s.transact(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			UPDATE leases SET holder = '', epoch = epoch + 1, expires_at = '-infinity'
				WHERE name = 'reconciler' OR starts_with(name, 'engine/') AND starts_with(holder, 'agent/');
			TRUNCATE declarations, sealed, quarantines, problems, placements, desired, status, revisions, holds, sync_holds, strays, tombstones, reach, listings,
				application_moves, move_requests, rollouts, rollout_manifests, rollout_decisions, source_watches, source_refreshes;
			UPDATE mirror SET applied = '', plan = '';
			UPDATE engines SET cursor = 0;
			UPDATE pools SET known_in = '';
			UPDATE engines e SET reachable = false, message = 'the mirror is rebuilt', since = now()
				FROM agents a WHERE a.engine = e.engine AND a.ended_at IS NULL;
			UPDATE agents SET declared = false, reachable = false, strays = 0, stray_environments = NULL WHERE ended_at IS NULL;
			UPDATE operations SET state = 'Failed', message = 'the mirror was rebuilt', ended_at = now() WHERE ended_at IS NULL AND kind IN ('Reconcile', 'Move')`)
		if err != nil {
			return err
		}
		if err := resetMemory(ctx, tx); err != nil {
			return err
		}
		return recordDecision(
			ctx, tx, decision{kind: mirror.OperationRebuild, subject: "the mirror", by: "argosy",
				event: view.Event{Kind: "revision", Text: "the mirror is rebuilt"}})
	})
	return wrap(err, "reset the mirror")
}

// resetMemory deletes the planner's memory except for the clones that tenants left on engines: an
// engine does not report them.
func resetMemory(ctx context.Context, tx pgx.Tx) error {
	var body []byte
	if err := tx.QueryRow(ctx, `SELECT body FROM memory FOR UPDATE`).Scan(&body); err != nil {
		return err
	}
	var kept struct {
		Rebuilt bool           `json:"rebuilt"`
		Clones  []mirror.Clone `json:"clones,omitempty"`
	}
	if json.Unmarshal(body, &kept) != nil { // a reason for a rebuild
		kept.Clones = nil
	}
	kept.Rebuilt = true
	body, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE memory SET body = $1`, body)
	return err
}
