package place

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
)

const evacuated = "is evacuated"

// evacuate gives a slice of an evacuated engine another one, or explains why it stays. The
// evacuated engine has no part in it: its rows are unwanted from now on, and its worker removes the
// objects, but no workload, if it ever comes back (ADR 0058).
func (p placer) evacuate(id fleet.SliceID, m mirror.MoveRequest) string {
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
		next = placement.Decide(p.item(id), p.refuges(departing, from), p.conflicts(id.In()))
		if next.Engine == "" {
			why := "no other engine can take it"
			if p.evacuateHalves(id, m) {
				return ""
			}
			if next.TooLarge != nil {
				why = next.Reason
			}
			return p.stay(id, pl, from, why, next.Alternatives)
		}
	}
	if why := p.carry(id, next.Engine); len(why) > 0 {
		return p.stay(id, pl, from, why[0], nil)
	}
	if pl.From == "" {
		p.Place(id.In(), next.Engine, 1)
		p.arriving[next.Engine] += next.Applications
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
	p.leave(id.In(), from)
	p.joinable[id.In()] = true
	// Its Secrets for repositories are of no use to the tenant any more; readers that the dead
	// engine may still have keep none.
	share := applied.Share{Tenant: id.Tenant, Engine: from}
	for _, url := range p.Repos.Keys(share) {
		r := applied.Repo{Engine: from, Key: applied.RepoKey(url)}
		p.out.Readers[applied.Reader{Repo: r, Tenant: id.Tenant}] = true
	}
	p.out.Begun = append(p.out.Begun, Move{Environment: id.In(), Slice: id.Slice, From: from,
		To: next.Engine, Applications: departing, Evacuates: true})
	p.out.Environments[id.In()] = true
	p.out.Shares[applied.Share{Tenant: id.Tenant, Engine: next.Engine}] = true
	for _, dep := range p.deploymentsIn(id) {
		p.applications[applied.ApplicationID(dep, id.In())] = true
	}
	return ""
}

// evacuateHalves splits a slice that fits on no engine and evacuates its halves, if the Fleet
// allows that. It reports whether one of them leaves; otherwise the slice stays as it is.
func (p placer) evacuateHalves(id fleet.SliceID, m mirror.MoveRequest) bool {
	if !p.mayDivide() || p.indivisible(id) != "" {
		return false
	}
	pl, _ := p.Placements.Get(id)
	first, second := p.divide(id)
	if a, b := p.evacuate(first, m), p.evacuate(second, m); a != "" && b != "" {
		delete(p.out.Placements, first)
		delete(p.out.Placements, second)
		p.undivide(id, pl)
		return false
	}
	p.recordDivision(id, first, second)
	return true
}

// stranded lists the Applications of a slice that the evacuated engine may still have,
// sorted, or why the slice has to stay.
func (p placer) stranded(id fleet.SliceID, from fleet.EngineName) (
	all []fleet.ApplicationID, why string) {
	if why := p.fixed(id, fleet.Placement{Engine: from}); why != "" {
		return nil, why
	}
	if p.behindAgent(from) {
		return nil, fmt.Sprintf("engine %s is behind an agent", from)
	}
	for _, h := range p.Held.Base() {
		if h.Application.In() == id.In() && id.Holds(h.Application) {
			return nil, fmt.Sprintf("the deletion of %s waits for an approval; release it, or "+
				"restore its file", h.Application)
		}
	}
	if all := p.waiting(id, true); len(all) > 0 {
		return nil, all[0]
	}
	for _, dep := range p.deploymentsIn(id) {
		app := applied.ApplicationID(dep, id.In())
		if _, exists := p.Rows.Get(applied.ApplicationKey(from, app)); exists {
			all = append(all, app)
		}
	}
	slices.SortFunc(all, applied.CompareApplications)
	return all, ""
}

// refuges returns the engines that can carry out the steps for these Applications, with the load of
// the slices that the plan has given them.
func (p placer) refuges(departing []fleet.ApplicationID,
	from fleet.EngineName) []placement.Engine {
	all := p.candidates()
	for i := range all {
		all[i].Load.Applications += p.arriving[all[i].Name]
	}
	return slices.DeleteFunc(all, func(e placement.Engine) bool {
		return p.behindAgent(e.Name) || slices.ContainsFunc(departing,
			func(id fleet.ApplicationID) bool { return p.unadoptable(id, from, e.Name) != "" })
	})
}

// stay keeps an environment on its evacuated engine, and records why.
func (p placer) stay(id fleet.SliceID, pl fleet.Placement, from fleet.EngineName, why string,
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
		p.out.Environments[id.In()] = true
	}
}
