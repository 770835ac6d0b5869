package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Revisions count as healthy from their first report as Synced and Healthy. Argo CD reports the
// health of the workload before it has judged the new Pods, so a revision that gets Degraded soon
// after is forgotten again.
const (
	sqlHealthySettled = `interval '10 minutes'`
	// sqlHealthyEvery is how often the time of the last report is written.
	sqlHealthyEvery = `interval '1 hour'`
)

// sqlHealthy records the revisions of the first arrays of observationColumns that are Synced and
// Healthy. An earlier tenant's row of the name gives way.
const sqlHealthy = `
	INSERT INTO healthy_revisions (tenant, tenant_uid, environment, deployment, revision)
	SELECT DISTINCT d.tenant, live_tenant(d.tenant), d.environment, d.deployment, o.revision
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS o (engine, kind, name, revision)
	JOIN desired d ON d.engine = o.engine AND d.kind = o.kind AND d.name = o.name AND NOT d.absent
	WHERE live_tenant(d.tenant) IS NOT NULL AND NOT EXISTS (
		SELECT FROM healthy_revisions h WHERE h.tenant = d.tenant AND h.environment = d.environment AND h.deployment = d.deployment
			AND h.revision = o.revision AND h.last_at > now() - ` + sqlHealthyEvery + ` AND h.tenant_uid = live_tenant(d.tenant))
	ON CONFLICT (tenant, environment, deployment, revision) DO UPDATE SET last_at = now(), tenant_uid = excluded.tenant_uid,
		first_at = CASE WHEN healthy_revisions.tenant_uid = excluded.tenant_uid THEN healthy_revisions.first_at ELSE now() END`

// sqlUnhealthy forgets revisions that get Degraded soon after they were first Healthy.
const sqlUnhealthy = `
	DELETE FROM healthy_revisions h
	USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS o (engine, kind, name, revision)
	JOIN desired d ON d.engine = o.engine AND d.kind = o.kind AND d.name = o.name
	WHERE h.tenant = d.tenant AND h.environment = d.environment AND h.deployment = d.deployment AND h.revision = o.revision
		AND h.first_at > now() - ` + sqlHealthySettled

// queueHealthy records which revisions are Healthy, and forgets those that get Degraded.
func queueHealthy(b *pgx.Batch, seen []mirror.Observation) {
	var healthy, degraded []mirror.Observation
	for _, o := range seen {
		switch {
		case o.Deleted || o.Sync != mirror.SyncSynced || o.SyncedRevision == "":
		case o.Health == mirror.HealthHealthy:
			healthy = append(healthy, o)
		case o.Health == mirror.HealthDegraded:
			degraded = append(degraded, o)
		}
	}
	for sql, of := range map[string][]mirror.Observation{sqlHealthy: healthy,
		sqlUnhealthy: degraded} {
		if len(of) == 0 {
			continue
		}
		b.Queue(sql, append(objectColumns(column(of, func(o mirror.Observation) fleet.ObjectKey {
			return o.Key
		})), column(of, func(o mirror.Observation) string { return message(o.SyncedRevision) }))...)
	}
}

// HealthyRevisions returns the revisions with which an Application was Healthy, the latest first,
// at most mirror.MaxHealthyRevisions. While it is OutOfSync, as after a rollback, it runs the
// revision of its last sync: Argo CD compares it with the other one.
func (s *Views) HealthyRevisions(ctx context.Context, scope view.Scope, id fleet.ApplicationID) (
	[]mirror.HealthyRevision, error) {
	if scope.Tenant != "" && scope.Tenant != id.Tenant {
		return nil, nil
	}
	all, err := collect(ctx, s.database, func(row pgx.CollectableRow) (r mirror.HealthyRevision,
		err error) {
		return r, row.Scan(&r.Revision, &r.FirstAt, &r.LastAt, &r.Runs)
	}, `
		SELECT h.revision, h.first_at, h.last_at, EXISTS (
			SELECT FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
			WHERE d.kind = 'Application' AND d.tenant = h.tenant AND d.environment = h.environment AND d.deployment = h.deployment
				AND NOT d.absent AND h.revision = CASE WHEN s.sync = 'Synced' THEN s.synced_revision ELSE s.operation_revision END)
		FROM healthy_revisions h
		WHERE h.tenant = $1 AND h.environment = $2 AND h.deployment = $3 AND h.tenant_uid = live_tenant(h.tenant)
		ORDER BY h.last_at DESC, h.revision LIMIT $4`, text(string(id.Tenant)),
		text(string(id.Environment)), text(string(id.Deployment)), mirror.MaxHealthyRevisions)
	return all, wrap(err, "healthy revisions of %s", id)
}

// PendingRollbacks returns the requested rollbacks that no plan has taken up yet, oldest first.
func (s *Plans) PendingRollbacks(ctx context.Context) ([]mirror.Action, error) {
	all, err := collect(ctx, s.database, scanAction, sqlActions+`
		WHERE a.kind = 'rollback' AND a.begun_at IS NULL AND a.ended_at IS NULL ORDER BY a.id LIMIT 1000`)
	return all, wrap(err, "requested rollbacks")
}

// RefuseRollback ends a requested rollback, and records the reason.
func (s *Plans) RefuseRollback(ctx context.Context, operation, why string) error {
	err := s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`
			WITH ended AS (
				UPDATE actions SET state = 'Failed', message = $2, ended_at = now() WHERE id = $1 AND ended_at IS NULL RETURNING id),
			shown AS (
				UPDATE operations o SET state = 'Failed', message = $2, ended_at = now() FROM ended e WHERE o.id = e.id
				RETURNING o.tenant, o.id, o.subject)
			SELECT new_event('operation', tenant, id, 'rollback of ' || subject || ' refused') FROM shown`,
			operation, message(why))
	})
	return wrap(err, "refuse rollback %s", operation)
}

// rollbackSteps marks the rollbacks that a plan has taken. Those with a sync go on, and the others
// have ended the hold of an earlier one.
func rollbackSteps(r *mirror.Record) []step {
	if len(r.Rollbacks) == 0 {
		return nil
	}
	begun := []string{}
	for _, q := range r.Syncs {
		if q.Operation != "" {
			begun = append(begun, q.Operation)
		}
	}
	return []step{{`
		UPDATE actions SET begun_at = now(), state = CASE WHEN id = ANY($2::text[]) THEN 'Running' ELSE 'Succeeded' END,
			ended_at = CASE WHEN id = ANY($2::text[]) THEN NULL ELSE now() END
		WHERE id = ANY($1::text[]) AND ended_at IS NULL`, []any{r.Rollbacks, begun}}, {`
		WITH ended AS (
			UPDATE operations SET state = 'Succeeded', done = total, ended_at = now(), revision = $3
			WHERE id = ANY($1::text[]) AND NOT id = ANY($2::text[]) AND ended_at IS NULL RETURNING tenant, id, subject)
		SELECT new_event('operation', tenant, id, 'rollback of ' || subject || ': ended') FROM ended`,
		[]any{r.Rollbacks, begun, string(r.Revision)}}}
}
