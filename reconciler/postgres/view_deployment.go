package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// Deployments match Filter.{Tenant, Deployment, Environment}, by tenant and name; Environment
// matches deployments that name or select it.
func (s *Views) Deployments(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Deployment, string, error) {
	f := filter{conditions: []string{"e.kind = 'GitOpsDeployment'"}}
	f.tenants("e.tenant", scope, by.Tenant)
	f.equal("e.name", string(by.Deployment))
	if by.Environment != "" {
		f.and(
			`EXISTS (SELECT FROM declarations t WHERE t.kind = 'ManagedEnvironment' AND t.tenant = e.tenant
			AND t.name = ` + f.place(text(string(by.Environment))) + ` AND ` + sqlTargets + `)`)
	}
	return list(ctx, s.database, scope, listing[view.Deployment]{
		name: "deployments", keys: []string{"e.tenant", "e.name"},
		sql: `SELECT e.body FROM declarations e`, scan: scanDeployment,
		key: func(d view.Deployment) []string {
			return []string{string(d.Tenant), string(d.Name)}
		},
	}, f, page, completeDeployments)
}

// sqlTargets is whether the environment t is one of the deployment e: named, or selected by every
// one of at least one label.
const sqlTargets = `(
	coalesce((e.body #> '{deployment,destination,environments}') ? t.name, false) OR
	coalesce(nullif(e.body #> '{deployment,destination,environmentSelector,matchLabels}', '{}') <@ (t.body -> 'labels'), false))`

func scanDeployment(row pgx.CollectableRow) (view.Deployment, error) {
	var d fleet.Declaration
	err := row.Scan(&d)
	v := view.Deployment{Tenant: d.Key.Tenant, Name: fleet.DeploymentName(d.Key.Name),
		Labels: d.Labels, Environments: []fleet.EnvironmentName{}}
	if d.Deployment != nil {
		v.Source, v.Namespace = d.Deployment.Source, d.Deployment.Destination.Namespace
	}
	return v, err
}

func completeDeployments(ctx context.Context, tx pgx.Tx, deployments []view.Deployment) error {
	names := column(deployments, func(d view.Deployment) pair {
		return pair{string(d.Tenant), string(d.Name)}
	})
	counts, err := standings(ctx, tx, "d.tenant", "d.deployment", names)
	if err != nil {
		return err
	}
	problems, err := problemsOf(ctx, tx, fleet.KindGitOpsDeployment, names)
	if err != nil {
		return err
	}
	targets := map[pair][]fleet.EnvironmentName{}
	rows, err := tx.Query(ctx, `
		SELECT e.tenant, e.name, t.name FROM declarations e JOIN declarations t ON t.kind = 'ManagedEnvironment' AND t.tenant = e.tenant AND `+sqlTargets+`
		WHERE e.kind = 'GitOpsDeployment' AND (e.tenant, e.name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
		ORDER BY 1, 2, 3`, firsts(names), seconds(names))
	if err != nil {
		return err
	}
	var p pair
	var environment fleet.EnvironmentName
	if _, err = pgx.ForEachRow(rows, []any{&p[0], &p[1], &environment}, func() error {
		targets[p] = append(targets[p], environment)
		return nil
	}); err != nil {
		return err
	}
	for i := range deployments {
		d := &deployments[i]
		d.Counts, d.Problems = counts[names[i]].Counts, problems[names[i]]
		d.Environments = append(d.Environments, targets[names[i]]...)
	}
	return nil
}
