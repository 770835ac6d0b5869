// Package placement decides which engine serves an environment, and says why.
//
// Rules:
//   - pure: the same item, engines and loads give the same answer, on every replica;
//   - sticky: nothing here moves what is placed. Verify says what no longer holds, and the move procedure acts on it;
//   - weighted rendezvous hashing (Thaler and Ravishankar, 1998; weights by logarithm) ranks the engines, so that an engine that comes or
//     goes changes the first choice only of what it wins or had;
//   - bounded load (Mirrokni, Thorup, Zadimoghaddam, 2016): an engine at or above 1.25 times the average load, relative to capacity, of the
//     engines that may serve the item is passed over, and no engine is ever filled above its capacity.
//
// Who places many items does so on one Fleet. It holds what items have in common, so that one more
// item costs a hash per engine; words are made anew only for the engine whose load has changed.
package placement

import "argosy.dev/argosy/fleet"

// LoadFactor is how far above the average an engine may be and still be given more.
const LoadFactor = 1.25

// Engine is an engine as placement sees it.
type Engine struct {
	Name   fleet.EngineName
	Labels map[string]string
	Spec   fleet.EngineSpec
	Load   fleet.EngineLoad // without the item that is being placed
}

// Item is an environment that wants an engine.
type Item struct {
	Environment  fleet.EnvironmentID
	Region       string
	Constraints  fleet.TenantPlacement
	Applications int // that it brings
}

// Decide places one environment, with every engine's standing told, best first. conflicts says why
// an engine cannot take the item for a reason that lies outside of both (a repository that two
// tenants read with different credentials), or ""; nil means that there is none. When no engine may
// serve it, Engine is empty and Reason says what to change.
func Decide(item Item, engines []Engine, conflicts func(fleet.EngineName) string) fleet.Placement {
	return newFleet(engines).Decide(item, conflicts)
}

// Verify says why an engine that serves the item would not be given it today, or "". Load and
// capacity are no reason: what is placed stays, and neither is a cordon, which only keeps new
// environments off.
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

// Assign places items one after the other, each with the loads that the earlier ones made, and
// returns the engine of each; "" where none may serve it. It is the what-if of a whole fleet: the
// same choices as Decide makes, without their words. engines' loads are updated.
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
