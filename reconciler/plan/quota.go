package plan

import (
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// QuotaUse is how a tenant that the plan touches stands to its quota, before and after.
type QuotaUse struct {
	Tenant fleet.TenantName `json:"tenant"`
	Quota  fleet.Quota      `json:"quota"`
	Before fleet.Quota      `json:"before"`
	After  fleet.Quota      `json:"after"`
}

func (d *draft) quotasInto(p *Plan) {
	for _, t := range p.tenants() {
		u := QuotaUse{Tenant: t, Before: d.w.catalog.Used(t), After: d.changeset.Used(t)}
		if decl := d.changeset.Tenant(t); decl != nil {
			u.Quota = decl.Tenant.Quota
		}
		p.quotas = append(p.quotas, u)
	}
}

// Tenants is those whose objects, declarations or problems the plan changes, sorted; first "", if
// it changes a declaration of the platform.
func (p *Plan) Tenants() []fleet.TenantName {
	var out []fleet.TenantName
	platform := func(k fleet.Key) bool { return k.Tenant == "" }
	if slices.ContainsFunc(p.Declarations, func(c catalog.Change) bool {
		return platform(c.Key)
	}) ||
		slices.ContainsFunc(p.Quarantined, func(q catalog.Quarantine) bool {
			return platform(q.Key)
		}) || slices.ContainsFunc(p.Cleared, platform) {
		out = append(out, "")
	}
	return append(out, p.tenants()...)
}

// tenants is those that the plan touches, sorted.
func (p *Plan) tenants() []fleet.TenantName {
	seen := map[fleet.TenantName]bool{}
	for _, c := range p.Declarations {
		seen[tenantOf(c.Key)] = true
	}
	for _, q := range p.Quarantined {
		seen[tenantOf(q.Key)] = true
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
