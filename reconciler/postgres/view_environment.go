package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlPlacement is a complete placement of placements p. The previous version stored the
// alternatives in the body.
const sqlPlacement = `CASE WHEN p.alternatives IS NULL THEN p.body ELSE p.body || jsonb_build_object('alternatives', p.alternatives) END`

// Environments match Filter.{Tenant, Environment, Engine}, by tenant and name.
func (s *Views) Environments(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Environment, string, error) {
	f := filter{conditions: []string{"e.kind = 'ManagedEnvironment'"}}
	f.tenants("e.tenant", scope, by.Tenant)
	f.equal("e.name", string(by.Environment))
	f.equal("p.engine", string(by.Engine))
	return list(ctx, s.database, scope, listing[view.Environment]{
		name: "environments", keys: []string{"e.tenant", "e.name"}, scan: scanEnvironment,
		sql: `SELECT e.body, ` + sqlPlacement +
			` FROM declarations e LEFT JOIN placements p ON p.tenant = e.tenant AND p.environment = e.name`,
		key: func(e view.Environment) []string {
			return []string{string(e.Tenant), string(e.Name)}
		},
	}, f, page, completeEnvironments)
}

func scanEnvironment(row pgx.CollectableRow) (view.Environment, error) {
	var d fleet.Declaration
	var p *fleet.Placement
	if err := row.Scan(&d, &p); err != nil {
		return view.Environment{}, err
	}
	e := view.Environment{Tenant: d.Key.Tenant, Name: fleet.EnvironmentName(d.Key.Name),
		Labels: d.Labels}
	if spec := d.Environment; spec != nil {
		e.Namespaces, e.Region = spec.Namespaces, spec.Region
		if spec.Cluster != nil {
			e.Server = spec.Cluster.Server
		}
		if spec.Agent != nil {
			e.Agent = fleet.AgentManaged
		}
		if spec.Agent.Autonomous() {
			e.Agent = fleet.AgentAutonomous
		}
	}
	if p == nil {
		p = &fleet.Placement{Environment: fleet.EnvironmentID{Tenant: e.Tenant, Name: e.Name},
			Reason: "not decided yet"}
	}
	e.Engine, e.Placement = p.Engine, *p
	return e, nil
}

func completeEnvironments(ctx context.Context, tx pgx.Tx,
	environments []view.Environment) error {
	names := column(environments, func(e view.Environment) pair {
		return pair{string(e.Tenant), string(e.Name)}
	})
	counts, err := standings(ctx, tx, "d.tenant", "d.environment", names)
	if err != nil {
		return err
	}
	problems, err := problemsOf(ctx, tx, fleet.KindManagedEnvironment, names)
	if err != nil {
		return err
	}
	unreachable, err := unreachables(ctx, tx, names)
	if err != nil {
		return err
	}
	own, err := tally(ctx, tx, names, `
		SELECT tenant, environment, count(*) FROM own_applications
		WHERE (tenant, environment) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND tenant_uid = live_tenant(tenant) GROUP BY 1, 2`)
	if err != nil {
		return err
	}
	for i := range environments {
		e := &environments[i]
		e.Counts, e.Own, e.Problems = counts[names[i]].Counts, own[names[i]], problems[names[i]]
		e.Unreachable = unreachable[names[i]]
	}
	return nil
}

// Explain returns the stored placement of an environment; mirror.ErrNotFound if the scope has no
// such environment.
func (s *Views) Explain(ctx context.Context, scope view.Scope,
	environment fleet.EnvironmentID) (fleet.Placement, error) {
	f := filter{}
	f.tenants("tenant", scope, "")
	f.and("tenant = " + f.place(text(string(environment.Tenant))) + " AND environment = " +
		f.place(text(string(environment.Name))))
	var p fleet.Placement
	err := s.within(ctx, scope, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT `+sqlPlacement+` FROM placements p`+f.where(),
			f.args...).Scan(&p)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = mirror.ErrNotFound
	}
	return p, wrap(err, "environment %s", environment)
}
