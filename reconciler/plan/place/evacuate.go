package place

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
)

const evacuated = "is evacuated"

// evacuate gives an environment of an evacuated engine another one, or explains why it stays. The
// evacuated engine has no part in it: its rows are unwanted from now on, and its worker removes the
// objects, but no workload, if it ever comes back (ADR 0058).
func (p placer) evacuate(id fleet.EnvironmentID, _ fleet.EngineName) string {
	pl, _ := p.Placements.Get(id)
	from, next := pl.Engine, pl
	switch {
	case slices.Contains(p.Evacuated, pl.From): // its move has begun: the new engine takes it over
		from = pl.From
	case pl.From != "": // it was moving here: the engine before takes it back
		next.Engine = pl.From
	}
	departing, why := p.stranded(id, from)
	if why == "" && pl.From != "" && p.behindAgent(next.Engine) {
		why = fmt.Sprintf("it is moving, and engine %s is behind an agent", next.Engine)
	}
	if why != "" {
		return p.stay(id, pl, from, why, nil)
	}
	if pl.From == "" {
		next = placement.Decide(p.item(id), p.refuges(departing, from), p.conflicts(id))
		if next.Engine == "" {
			why := "no other engine can take it"
			if next.TooLarge != nil {
				why = next.Reason
			}
			return p.stay(id, pl, from, why, next.Alternatives)
		}
		p.Place(id, next.Engine, 1)
	}
	next.Reason = fmt.Sprintf("engine %s %s", from, evacuated)
	next.From, next.Revision, next.Alternatives = "", p.Revision, nil
	next.Evacuated = slices.Clone(pl.Evacuated)
	if !slices.Contains(next.Evacuated, from) {
		next.Evacuated = append(next.Evacuated, from)
		slices.Sort(next.Evacuated)
	}
	p.Placements.Set(id, next)
	p.out.Placements[id] = next
	p.leave(id, from)
	p.out.Begun = append(p.out.Begun, Move{Environment: id, From: from, To: next.Engine,
		Applications: departing, Evacuates: true})
	p.out.Environments[id] = true
	p.out.Shares[applied.Share{Tenant: id.Tenant, Engine: next.Engine}] = true
	for _, dep := range p.after.DeploymentsIn(id) {
		p.applications[applied.ApplicationID(dep, id)] = true
	}
	return ""
}

// stranded lists the Applications of an environment that the evacuated engine may still have,
// sorted, or why the environment has to stay.
func (p placer) stranded(id fleet.EnvironmentID, from fleet.EngineName) (
	all []fleet.ApplicationID, why string) {
	if why := p.fixed(id, fleet.Placement{Engine: from}); why != "" {
		return nil, why
	}
	if p.behindAgent(from) {
		return nil, fmt.Sprintf("engine %s is behind an agent", from)
	}
	for _, h := range p.Held.Base() {
		if h.Application.In() == id {
			return nil, fmt.Sprintf("the deletion of %s waits for an approval; release it, or "+
				"restore its file", h.Application)
		}
	}
	for _, dep := range p.after.DeploymentsIn(id) {
		app := applied.ApplicationID(dep, id)
		if _, exists := p.Rows.Get(applied.ApplicationKey(from, app)); exists {
			all = append(all, app)
		}
	}
	slices.SortFunc(all, applied.CompareApplications)
	return all, ""
}

// refuges returns the engines that can carry out the steps for these Applications.
func (p placer) refuges(departing []fleet.ApplicationID,
	from fleet.EngineName) []placement.Engine {
	return slices.DeleteFunc(p.candidates(), func(e placement.Engine) bool {
		return p.behindAgent(e.Name) || slices.ContainsFunc(departing,
			func(id fleet.ApplicationID) bool { return p.unadoptable(id, from, e.Name) != "" })
	})
}

// stay keeps an environment on its evacuated engine, and records why.
func (p placer) stay(id fleet.EnvironmentID, pl fleet.Placement, from fleet.EngineName, why string,
	alternatives []fleet.Alternative) string {
	if pl.Engine == from {
		reason := fmt.Sprintf("engine %s %s, but the environment stays: %s", from, evacuated, why)
		if pl.Reason != reason {
			pl.Reason, pl.Alternatives = reason, alternatives
			p.out.Placements[id] = pl
			pl.Alternatives = nil
			p.Placements.Set(id, pl)
		}
	}
	return why
}

// readmit lets environments forget the engines whose evacuation ends. It walks all placements, as
// seldom as engines are evacuated.
func (p placer) readmit() {
	if len(p.Readmit) == 0 {
		return
	}
	for id, pl := range p.Placements.Base() {
		kept := slices.DeleteFunc(slices.Clone(pl.Evacuated), func(e fleet.EngineName) bool {
			return slices.Contains(p.Readmit, e)
		})
		if len(kept) == len(pl.Evacuated) {
			continue
		}
		if pl.Evacuated = kept; len(kept) == 0 {
			pl.Evacuated = nil
		}
		p.Placements.Set(id, pl)
		p.out.Placements[id] = pl
		p.out.Environments[id] = true
	}
}
