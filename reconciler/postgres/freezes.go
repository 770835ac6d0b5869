package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// Freezes match Filter.Tenant: the fleet's freezes, then those of tenants. A tenant sees the
// fleet's and its own. They have no time at which they are active.
func (s *Views) Freezes(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Freeze, string, error) {
	f := filter{conditions: []string{"d.tenant = ''", "d.kind IN ('Fleet', 'Tenant')"}}
	if only := cmp.Or(scope.Tenant, by.Tenant); only != "" {
		f.and("(d.kind = 'Fleet' OR d.name = " + f.place(text(string(only))) + ")")
	}
	if scope.Tenant != "" && by.Tenant != "" && by.Tenant != scope.Tenant {
		return nil, "", nil
	}
	type numbered struct {
		view.Freeze
		kind, name, n string
	}
	// within the platform: the row policies hide the Fleet from tenants
	found, next, err := list(ctx, s.database, view.Scope{}, listing[numbered]{
		name: "freezes", keys: []string{"d.kind", "d.name", "f.n"},
		sql: `SELECT d.kind, d.name, f.n, f.body FROM declarations d CROSS JOIN LATERAL (
			SELECT lpad(i::text, 3, '0') AS n, body FROM jsonb_array_elements(coalesce(
				nullif(d.body #> '{fleet,freezes}', 'null'), nullif(d.body #> '{tenant,freezes}', 'null'), '[]')) WITH ORDINALITY AS e (body, i)) f`,
		scan: func(row pgx.CollectableRow) (n numbered, err error) {
			var of fleet.Freeze
			if err = row.Scan(&n.kind, &n.name, &n.n, &of); err != nil {
				return n, err
			}
			n.Freeze = view.Freeze{Name: of.Name, Schedule: of.Schedule, Duration: of.Duration,
				TimeZone: cmp.Or(of.TimeZone, "UTC"), Kinds: of.Kinds, Reason: of.Reason}
			if n.kind == string(fleet.KindTenant) {
				n.Tenant = fleet.TenantName(n.name)
			}
			if of.EnvironmentSelector != nil {
				n.EnvironmentSelector = of.EnvironmentSelector.String()
			}
			if len(of.Kinds) == 0 {
				n.Kinds = fleet.FreezeKinds
			}
			return n, nil
		},
		key: func(n numbered) []string { return []string{n.kind, n.name, n.n} },
	}, f, page, nil)
	out := make([]view.Freeze, len(found))
	for i, n := range found {
		out[i] = n.Freeze
	}
	return out, next, err
}
