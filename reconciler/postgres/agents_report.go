package postgres

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

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
		b.Queue(sqlReportAgentEngine, string(engine), report.Reachable, message(report.Message),
			message(report.ArgoCD), text(holdingAgent(lease)))
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
			INSERT INTO engines AS e (engine, reachable, message, argocd, since) VALUES ($1, $2, $3, $4, now())
			ON CONFLICT (engine) DO UPDATE SET reachable = excluded.reachable, message = excluded.message,
				argocd = CASE WHEN excluded.argocd = '' THEN e.argocd ELSE excluded.argocd END,
				since = CASE WHEN e.reachable = excluded.reachable THEN e.since ELSE now() END
			WHERE (e.reachable, e.message) <> (excluded.reachable, excluded.message) OR excluded.argocd NOT IN ('', e.argocd)
			RETURNING *)
		SELECT new_event('engine', a.tenant, c.engine, CASE WHEN c.reachable THEN 'reachable' ELSE 'not reachable' END)
		FROM changed c JOIN agents a ON a.id = $5`
)

// orphanEnvironments converts environments to their column's type; nil if the agent reports none.
func orphanEnvironments(told []fleet.EnvironmentID) []string {
	if told == nil {
		return nil
	}
	return column(told[:min(len(told), mirror.MaxOrphanEnvironments)],
		func(id fleet.EnvironmentID) string {
			return text(string(id.Tenant)) + "/" + text(string(id.Name))
		})
}

// OrphanEnvironments are the environments of the orphans on an engine's cluster, as last reported
// by its agent, at most the maximum. The result is false when no agent has joined, or it is too old
// to report them.
func (s *Views) OrphanEnvironments(ctx context.Context,
	engine fleet.EngineName) (of []fleet.EnvironmentID, told bool, err error) {
	err = s.again(ctx, func() error {
		of, told = nil, false
		var words []string
		err := s.work.QueryRow(ctx,
			`SELECT stray_environments FROM agents WHERE engine = $1 AND ended_at IS NULL`,
			text(string(engine))).Scan(&words)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		told = words != nil
		for _, word := range words {
			tenant, name, _ := strings.Cut(word, "/")
			of = append(of, fleet.EnvironmentID{Tenant: fleet.TenantName(tenant),
				Name: fleet.EnvironmentName(name)})
		}
		return err
	})
	return of, told, wrap(err, "strays on engine %s", engine)
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
