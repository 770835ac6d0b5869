package report

import (
	"slices"

	"argosy.dev/argosy/fleet"
)

// For returns the report for a reader of one tenant, without other tenants and the platform. It
// keeps the tenant's own declaration among the platform's, and the holds of the tenant's guard. If
// the whole revision waits, it leaves out what the revision would delete.
func (r Report) For(tenant fleet.TenantName) Report {
	own := fleet.Key{Kind: fleet.KindTenant, Name: string(tenant)}
	out := Report{Base: r.Base, Head: r.Head, Hash: r.Hash, Radius: []fleet.TenantName{},
		Tenants: []Tenant{}}
	for _, verb := range []string{"new ", "removed ", "changed "} {
		if slices.Contains(r.Platform, verb+own.String()) {
			out.Platform = append(out.Platform, verb+own.String())
		}
	}
	for _, t := range r.Tenants {
		if t.Name == tenant {
			out.Tenants, out.Counts = append(out.Tenants, t), t.Counts()
			out.Counts.Placed = t.placed(r.Head)
		}
	}
	for _, h := range r.Holds {
		if h.Tenant == tenant {
			out.Holds = append(out.Holds, h)
		}
	}
	for _, p := range r.Problems {
		if p.Key.Tenant == tenant || p.Key == own {
			out.Problems = append(out.Problems, p)
		}
	}
	out.waiting(r)
	return out
}

func (r *Report) waiting(all Report) {
	switch {
	case all.RevisionHold != nil:
		hold := *all.RevisionHold
		hold.Items = nil
		r.RevisionHold, r.Summary = &hold, all.Summary
	case len(r.Tenants)+len(r.Holds)+len(r.Problems) == 0:
		r.Summary = "nothing changes"
	default:
		r.Summary = r.Counts.Summary()
	}
}

// placed counts the environments that get an engine with the head. Repeated placements have another
// revision.
func (t Tenant) placed(head fleet.Revision) (n int) {
	for _, pl := range t.Placements {
		if pl.Engine != "" && pl.Revision == head {
			n++
		}
	}
	return n
}
