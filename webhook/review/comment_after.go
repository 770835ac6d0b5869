package review

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
)

// context is what a tenant's rows lead to: quotas that are used otherwise, and where environments
// go and why.
func context(p *page, t report.Tenant, d detail) {
	if used := quota(t.Quota); used != "" {
		p.para("Quota of " + prose(tenant(t.Name)) + ": " + used + ".")
	}
	var list []string
	for _, pl := range t.Placements {
		if pl.Engine.OfEnvironment() {
			list = append(list, prose("Environment "+tick(string(pl.Environment.Name)))+" is on "+
				words(pl.Reason))
			continue
		}
		if pl.Engine != "" && pl.Misplaced == "" {
			list = append(list, prose("Environment "+tick(string(pl.Environment.Name))+
				" goes to engine "+tick(string(pl.Engine)))+": "+words(pl.Reason))
		}
	}
	for _, name := range t.Unplaced {
		list = append(list, prose("Environment "+tick(name)+" leaves its engine: it is gone"))
	}
	p.items(list, d.list)
}

// quota is what is used otherwise than before.
func quota(u report.QuotaUse) string {
	var parts []string
	add := func(what string, before, after, limit int) {
		if before != after {
			parts = append(parts, fmt.Sprintf("%s %d → %d of %d", what, before, after, limit))
		}
	}
	add("environments", u.Before.Environments, u.After.Environments, u.Quota.Environments)
	add("deployments", u.Before.Deployments, u.After.Deployments, u.Quota.Deployments)
	add("Applications", u.Before.Applications, u.After.Applications, u.Quota.Applications)
	return strings.Join(parts, ", ")
}

// after is what happens once it is merged.
func (c *comment) after(p *page) {
	if c.f.Plan == nil || c.f.Plan.Waiting != nil || len(c.f.Conflicts) > 0 {
		return
	}
	parts := append(c.arrival(), c.workloads()...)
	if len(c.v.Held) > 0 {
		parts = append(parts, "Deletions that are held stay held until they are approved.")
	}
	p.para("**After the merge** " +
		strings.Join(append(parts, "This comment then tells how each Application comes up."), " "))
}

// arrival is when which engine has it.
func (c *comment) arrival() []string {
	var now, later []string
	for _, name := range c.written() {
		if e, known := c.f.Engines[name]; known && (!e.Reachable || e.Agent.away(c.f.Now)) ||
			c.f.stops(name) {
			later = append(later, tick(string(name)))
		} else {
			now = append(now, tick(string(name)))
		}
	}
	var parts []string
	if len(now)+len(later) == 0 {
		parts = append(parts, "nothing changes on any engine.")
	}
	if len(now) > 0 {
		parts = append(parts, prose(series(now, 5))+plural(len(now), " has", " have")+
			" it within seconds.")
	}
	if len(later) > 0 {
		parts = append(parts, prose(series(later, 5))+plural(len(later), " has", " have")+
			" it once "+plural(len(later), "it", "they")+" can be written to.")
	}
	return parts
}

// written is every engine that something changes on, sorted: what is held changes nothing.
func (c *comment) written() []fleet.EngineName {
	return engineNames(slices.DeleteFunc(slices.Clone(c.rows), func(r change) bool {
		return r.verb == held
	}))
}

// stops reports whether an engine, or the whole fleet, may not be written to.
func (f Facts) stops(name fleet.EngineName) bool {
	return slices.ContainsFunc(f.Stops, func(s mirror.Stop) bool {
		return s.Scope == mirror.StopFleet || s.Scope == mirror.StopEngine && s.Name == string(name)
	})
}

// workloads is what becomes of those of the Applications that are deleted.
func (c *comment) workloads() []string {
	var parts []string
	gone, kept := 0, 0
	for _, r := range c.rows {
		switch {
		case r.verb != deleted || r.kind != fleet.ObjectApplication:
		case r.kept:
			kept++
		default:
			gone++
		}
	}
	if gone > 0 {
		parts = append(parts, plural(gone, "The workload of 1 Application is deleted.",
			fmt.Sprintf("The workloads of %d Applications are deleted.", gone)))
	}
	if kept > 0 {
		parts = append(parts,
			plural(kept, "The workload of 1 Application that goes stays (deletionPolicy Orphan).",
				fmt.Sprintf(
					"The workloads of %d Applications that go stay (deletionPolicy Orphan).",
					kept)))
	}
	return parts
}
