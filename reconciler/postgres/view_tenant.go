package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Tenants match Filter.Tenant, by name.
func (s *Views) Tenants(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Tenant, string, error) {
	f := filter{conditions: []string{"e.kind = 'Tenant'", "e.tenant = ''"}}
	f.tenants("e.name", scope, by.Tenant)
	return list(ctx, s.database, scope, listing[view.Tenant]{
		name: "tenants", sql: `SELECT e.name, e.body FROM declarations e`, keys: []string{"e.name"},
		scan: func(row pgx.CollectableRow) (view.Tenant, error) {
			var t view.Tenant
			var d fleet.Declaration
			err := row.Scan(&t.Name, &d)
			if d.Tenant != nil {
				t.Owners, t.Quota = d.Tenant.Owners, d.Tenant.Quota
			}
			return t, err
		},
		key: func(t view.Tenant) []string { return []string{string(t.Name)} },
	}, f, page, completeTenants)
}

func completeTenants(ctx context.Context, tx pgx.Tx, tenants []view.Tenant) error {
	names := column(tenants, func(t view.Tenant) pair { return pair{string(t.Name), ""} })
	counts, err := standings(ctx, tx, "d.tenant", "''", names)
	if err != nil {
		return err
	}
	declared := func(kind fleet.Kind) (map[pair]int, error) {
		return tally(ctx, tx, names, `
			SELECT tenant, '', count(*) FROM declarations
			WHERE kind = '`+string(kind)+`' AND (tenant, '') IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1`)
	}
	environments, err := declared(fleet.KindManagedEnvironment)
	if err != nil {
		return err
	}
	deployments, err := declared(fleet.KindGitOpsDeployment)
	if err != nil {
		return err
	}
	problems, err := tally(ctx, tx, names, `
		SELECT tenant, '', count(*) FROM `+sqlProblems+` p WHERE (tenant, '') IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1`)
	if err != nil {
		return err
	}
	stops, err := read(ctx, tx, scanStop,
		`SELECT scope, name, by, reason, at FROM stops WHERE scope IN ('fleet', 'tenant')`)
	if err != nil {
		return err
	}
	for i := range tenants {
		t, c := &tenants[i], counts[names[i]]
		t.Counts, t.Held, t.Problems = c.Counts, c.held, problems[names[i]]
		t.Used = fleet.Quota{Environments: environments[names[i]],
			Deployments: deployments[names[i]], Applications: c.Applications}
		for _, stop := range stops {
			t.Stopped = t.Stopped || stop.Scope == mirror.StopFleet || stop.Name == string(t.Name)
		}
	}
	return nil
}
