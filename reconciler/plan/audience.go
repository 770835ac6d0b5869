package plan

import (
	"slices"

	"argosy.dev/argosy/fleet"
)

// Counts is what the plan comes to on this engine for this tenant; Placed stays 0.
func (e EngineReport) Counts() Counts {
	var c Counts
	for _, change := range e.Changes {
		c.add(change.Action, change.Kind)
	}
	return c
}

// add counts one change.
func (c *Counts) add(a Action, k fleet.ObjectKind) {
	if a != Hold {
		c.Rows++
	}
	if k != fleet.ObjectApplication {
		return
	}
	switch a {
	case Create:
		c.Created++
	case Update:
		c.Changed++
	case Delete:
		c.Deleted++
	case Hold:
		c.Held++
	}
}

func (c *Counts) sum(other Counts) {
	c.Created += other.Created
	c.Changed += other.Changed
	c.Deleted += other.Deleted
	c.Held += other.Held
	c.Rows += other.Rows
}

// Counts is what the plan comes to for this tenant. Placed stays 0: Placements has more to say.
func (t TenantReport) Counts() Counts {
	var c Counts
	for _, e := range t.Engines {
		c.sum(e.Counts())
	}
	return c
}

// For is the report as a reader of one tenant may see it: without what is another tenant's or the
// platform's. Of the platform's declarations only the tenant's own is named; of holds, those of the
// tenant's guard; that a whole revision waits is told without what it would delete.
func (r Report) For(tenant fleet.TenantName) Report {
	own := fleet.Key{Kind: fleet.KindTenant, Name: string(tenant)}
	out := Report{Base: r.Base, Head: r.Head, Hash: r.Hash, Radius: []fleet.TenantName{},
		Tenants: []TenantReport{}}
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
	case all.Waiting != nil:
		hold := *all.Waiting
		hold.Items = nil
		r.Waiting, r.Summary = &hold, all.Summary
	case len(r.Tenants)+len(r.Holds)+len(r.Problems) == 0:
		r.Summary = "nothing changes"
	default:
		r.Summary = r.Counts.summary()
	}
}

// placed counts the environments that get an engine: what is only told anew was decided for another
// revision.
func (t TenantReport) placed(head fleet.Revision) (n int) {
	for _, pl := range t.Placements {
		if pl.Engine != "" && pl.Revision == head {
			n++
		}
	}
	return n
}
