// Package placement decides which engine serves an environment, and records why. Simulate decides
// which environments move when an engine drains, joins, is lost or gets another capacity.
//
// Rules:
//   - pure: the same item, engines and loads give the same answer, on every replica;
//   - sticky: a placed environment keeps its engine. Verify reports the constraint that no longer
//     holds, and only a move acts on it;
//   - weighted rendezvous hashing (Thaler and Ravishankar, 1998; weights by logarithm) ranks the
//     engines, so that adding or removing an engine changes the first choice only of the items that
//     it wins or had;
//   - bounded load (Mirrokni, Thorup, Zadimoghaddam, 2016): an engine at or above 1.25 times the
//     average load, relative to capacity, of the engines that are eligible for the item is skipped,
//     and no engine is ever filled above its capacity.
//
// To place many items, use one Fleet. It caches what items have in common, so that one more item
// costs a hash per engine, and formats texts again only for the engine whose load has changed.
package placement

import "argosy.dev/argosy/fleet"

// LoadFactor is the maximum of an engine's load, relative to the average, at which it gets new
// environments.
const LoadFactor = 1.25

// Engine is an engine as placement sees it.
type Engine struct {
	Name   fleet.EngineName
	Labels map[string]string
	Spec   fleet.EngineSpec
	Load   fleet.EngineLoad // without the item that is being placed
}

// Item is a slice of an environment to place, by default all of it.
type Item struct {
	Environment  fleet.EnvironmentID
	Slice        fleet.Slice
	Region       string
	Constraints  fleet.TenantPlacement
	Applications int // of the slice
}

// ID identifies the slice.
func (i Item) ID() fleet.SliceID { return i.Environment.Slice(i.Slice) }

// Decide places one environment and records every engine's ranking, best first. conflicts returns
// why an engine cannot take the item for a reason outside of both (a repository that two tenants
// read with different credentials), or ""; nil means that there is none. If no engine is eligible,
// Engine is empty and Reason names what to change.
func Decide(item Item, engines []Engine, conflicts func(fleet.EngineName) string) fleet.Placement {
	return newFleet(engines).Decide(item, conflicts)
}

// Verify returns why today's constraints exclude an engine that serves the item, or "". It ignores
// load and capacity, because placements are sticky, and a cordon, which only excludes new
// environments.
func Verify(item Item, e Engine) string {
	switch b := constraint(item, &e); b {
	case free, cordoned:
		if e.Spec.State == fleet.EngineDraining {
			return draining.text(item, &e)
		}
		return ""
	default:
		return b.text(item, &e)
	}
}

// Assign places items one after the other, each with the loads of the earlier ones, and returns the
// engine of each; "" if none is eligible. It simulates a whole fleet: the same choices as Decide,
// without texts. It updates the loads in engines.
func Assign(items []Item, engines []Engine) []fleet.EngineName {
	out := make([]fleet.EngineName, len(items))
	f := newFleet(engines)
	for i, item := range items {
		r := f.hold(item, nil)
		best := r.choose()
		if best < 0 {
			continue
		}
		e := &engines[best]
		out[i] = e.Name
		f.carry(best, fleet.EngineLoad{Applications: e.Load.Applications + item.Applications,
			Environments: e.Load.Environments + 1})
	}
	return out
}
