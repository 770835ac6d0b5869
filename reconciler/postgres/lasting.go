package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Lasting returns the pull requests of rollbacks for all deployments with a rollback in force or an
// open pull request.
func (s *Pulls) Lasting(ctx context.Context) ([]forge.Lasting, error) {
	all, err := collect(ctx, s.database, func(row pgx.CollectableRow) (l forge.Lasting, err error) {
		return l, row.Scan(&l.Deployment.Tenant, &l.Deployment.Name, &l.Rollbacks, &l.Pull, &l.Due,
			&l.State, &l.Covers, &l.Blob, &l.Branch, &l.Proposed.Number, &l.Proposed.URL,
			&l.Message, &l.Attempts)
	}, `
		WITH rolled AS (
			SELECT h.tenant, h.deployment, jsonb_agg(jsonb_build_object('environment', h.environment, 'operation', h.operation,
				'revision', coalesce(a.options ->> 'revision', ''), 'by', coalesce(a.by, ''), 'note', coalesce(a.note, '')) ORDER BY h.environment) AS rollbacks
			FROM (SELECT tenant, deployment, environment, substr(sync_run, length($1) + 1) AS operation FROM sync_holds WHERE sync_run LIKE 'rollback-%') h
			LEFT JOIN actions a ON a.id = h.operation AND a.tenant = h.tenant AND a.deployment = h.deployment AND a.environment = h.environment
			GROUP BY 1, 2),
		due AS (SELECT tenant, deployment FROM rolled UNION SELECT tenant, deployment FROM lasting_rollbacks WHERE state = 'Open')
		SELECT k.tenant, k.deployment, coalesce(r.rollbacks, '[]'), coalesce(p.state, ''),
			coalesce(l.again_at <= now(), true), coalesce(l.state, ''), coalesce(l.covers, '{}'), coalesce(l.blob, ''), coalesce(l.branch, ''),
			coalesce(l.number, 0), coalesce(l.url, ''), coalesce(l.message, ''), coalesce(l.attempts, 0)
		FROM due k LEFT JOIN rolled r ON r.tenant = k.tenant AND r.deployment = k.deployment
		LEFT JOIN lasting_rollbacks l ON l.tenant = k.tenant AND l.deployment = k.deployment AND (l.tenant_uid = live_tenant(l.tenant) OR l.state = 'Open')
		LEFT JOIN pulls p ON p.number = l.number AND l.number > 0
		ORDER BY 1, 2`, string(mirror.RollbackHold("")))
	return all, wrap(err, "pull requests of rollbacks")
}

// SaveLasting records the outcome of a step. The next one is due after so long.
func (s *Pulls) SaveLasting(ctx context.Context, l forge.Lasting, again time.Duration) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `
			INSERT INTO lasting_rollbacks AS l (tenant, tenant_uid, deployment, state, covers, blob, branch, number, url, message, attempts, again_at)
			VALUES ($1, live_tenant($1), $2, $3, $4, $5, $6, $7, $8, $9, $10, now() + $11::interval)
			ON CONFLICT (tenant, deployment) DO UPDATE SET tenant_uid = excluded.tenant_uid, state = excluded.state, covers = excluded.covers,
				blob = excluded.blob, branch = excluded.branch, number = excluded.number, url = excluded.url, message = excluded.message,
				attempts = excluded.attempts, again_at = excluded.again_at, changed_at = now()`,
			text(string(l.Deployment.Tenant)), text(string(l.Deployment.Name)), string(l.State),
			append([]string{}, l.Covers...), l.Blob, l.Branch, l.Proposed.Number,
			text(l.Proposed.URL), message(l.Message), l.Attempts, again)
		return err
	})
	return wrap(err, "pull request of the rollbacks of deployment %s", l.Deployment)
}

// addRollbackPulls adds the pull requests of rollbacks. It reads nothing where none is in force.
func addRollbackPulls(ctx context.Context, tx pgx.Tx, all []view.Application) error {
	var tenants, deployments []string
	for _, a := range all {
		if mirror.RollbackOf(a.Hold) != "" {
			tenants = append(tenants, string(a.Tenant))
			deployments = append(deployments, string(a.Deployment))
		}
	}
	if len(tenants) == 0 {
		return nil
	}
	type entry struct {
		id     fleet.DeploymentID
		covers []string
		of     view.RollbackPull
	}
	found, err := read(ctx, tx, func(row pgx.CollectableRow) (e entry, err error) {
		return e, row.Scan(&e.id.Tenant, &e.id.Name, &e.covers, &e.of.State, &e.of.Number,
			&e.of.URL, &e.of.Message)
	}, `
		SELECT tenant, deployment, covers, state, number, url, message FROM lasting_rollbacks
		WHERE (tenant, deployment) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND tenant_uid = live_tenant(tenant)`,
		tenants, deployments)
	if err != nil {
		return err
	}
	for i := range all {
		operation := mirror.RollbackOf(all[i].Hold)
		for _, e := range found {
			of := fleet.DeploymentID{Tenant: all[i].Tenant, Name: all[i].Deployment}
			if operation != "" && e.id == of && slices.Contains(e.covers, operation) {
				pull := e.of
				all[i].RollbackPull = &pull
			}
		}
	}
	return nil
}
