package place

import (
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// outgrow records which of the touched environments have more Applications than their engine has
// capacity, and which have no longer. Such an environment stays: only a move changes its engine.
func (p placer) outgrow() {
	touched := maps.Clone(p.out.Environments)
	for id := range p.applications {
		touched[id.In()] = true
	}
	for _, id := range p.shrunk {
		touched[id] = true
	}
	for _, env := range slices.SortedFunc(maps.Keys(touched), applied.CompareEnvironments) {
		if p.after.Environment(env) == nil {
			continue
		}
		for _, pl := range p.PlacementsOf(env) {
			p.outgrowOn(pl)
		}
	}
}

// outgrowOn records whether a slice has more Applications than its engine has capacity.
func (p placer) outgrowOn(pl fleet.Placement) {
	if pl.Engine == "" {
		return
	}
	id := pl.ID()
	now := p.tooLargeFor(id, pl.Engine)
	if now == pl.TooLarge || now != nil && pl.TooLarge != nil && *now == *pl.TooLarge {
		return
	}
	pl.TooLarge = now
	p.Placements.Set(id, pl)
	if fresh, ok := p.out.Placements[id]; ok {
		pl.Alternatives = fresh.Alternatives
	}
	p.out.Placements[id] = pl
}

// tooLargeFor returns the figures of a slice that has more Applications than its engine has
// capacity; nil for any other. An environment's own cluster has no capacity.
func (p placer) tooLargeFor(id fleet.SliceID, on fleet.EngineName) *fleet.TooLarge {
	e := p.after.Engine(on)
	if e == nil || on.OfEnvironment() {
		return nil
	}
	n, capacity := p.ApplicationsIn.Count(id, on), e.Engine.Capacity.Applications
	if n <= capacity {
		return nil
	}
	return &fleet.TooLarge{Applications: n, Engines: 1, LargestCapacity: capacity}
}
