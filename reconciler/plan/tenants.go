package plan

import (
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// Tenants returns the tenants whose objects, declarations or problems the plan changes, sorted. If
// it changes a declaration of the platform, "" comes first.
func (p *Plan) Tenants() []fleet.TenantName {
	var out []fleet.TenantName
	platform := func(k fleet.Key) bool { return k.Tenant == "" }
	if slices.ContainsFunc(p.Declarations, func(c catalog.Change) bool {
		return platform(c.Key)
	}) ||
		slices.ContainsFunc(p.Quarantined, func(q fleet.Quarantine) bool {
			return platform(q.Key)
		}) || slices.ContainsFunc(p.Cleared, platform) {
		out = append(out, "")
	}
	return append(out, p.tenants()...)
}

// tenants returns the tenants that the plan touches, sorted.
func (p *Plan) tenants() []fleet.TenantName {
	seen := map[fleet.TenantName]bool{}
	for _, c := range p.Declarations {
		seen[applied.TenantOf(c.Key)] = true
	}
	for _, q := range p.Quarantined {
		seen[applied.TenantOf(q.Key)] = true
	}
	for _, c := range p.Rows {
		seen[c.Row.Tenant] = true
	}
	for _, pl := range p.Placements {
		seen[pl.Environment.Tenant] = true
	}
	for _, id := range p.Unplaced {
		seen[id.Tenant] = true
	}
	delete(seen, "")
	return slices.Sorted(maps.Keys(seen))
}
