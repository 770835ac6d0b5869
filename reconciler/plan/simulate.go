package plan

import (
	"maps"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/place"
)

// Simulate returns what a change of an engine would move. unready counts the Applications of each
// slice that are not Synced and Healthy. It costs the whole fleet, and a Commit waits for it.
//
// The error is a placement.ImpossibleError.
func (w *AppliedState) Simulate(c placement.Change, unready map[fleet.SliceID]int) (
	placement.Outcome, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return place.Simulate(w.state, c, place.Status{Unready: unready})
}

// Rebalance returns what would move to relieve engines with a high measured load. It costs as much
// as Simulate.
func (w *AppliedState) Rebalance(unready map[fleet.SliceID]int, measured mirror.Measured) (
	placement.Outcome, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return place.Simulate(w.state, placement.Change{Kind: placement.Rebalance},
		place.Status{Unready: unready, Measured: measured})
}

// ContinueRebalance returns those moves of an earlier rebalance that are still right: see
// placement.Continue. It costs as much as Simulate.
func (w *AppliedState) ContinueRebalance(moves []placement.Move,
	unready map[fleet.SliceID]int, measured mirror.Measured) (placement.Outcome, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return place.Continue(w.state, moves, place.Status{Unready: unready, Measured: measured})
}

// Misplaced counts the misplaced environments of each engine, if Argosy moves them
// (Fleet.spec.placement.misplaced). An engine that an environment is leaving is counted too,
// perhaps with 0. A draining engine is not: all of its environments leave. It costs all placements.
func (w *AppliedState) Misplaced() map[fleet.EngineName]int {
	return read(w, func(s *applied.State) map[fleet.EngineName]int {
		if s.Catalog.Fleet().Placement.Misplaced != fleet.MisplacedMove {
			return nil
		}
		out := map[fleet.EngineName]int{}
		s.Placements.Each(func(_ fleet.SliceID, pl fleet.Placement) {
			if pl.Misplaced != "" {
				out[pl.Engine]++
			}
			if pl.From != "" {
				out[pl.From] += 0
			}
		})
		maps.DeleteFunc(out, func(name fleet.EngineName, _ int) bool {
			return drains(s.Catalog.Engine(name)) || name.OfEnvironment()
		})
		return out
	})
}

// LoadOf returns what an engine serves.
func (w *AppliedState) LoadOf(engine fleet.EngineName) fleet.EngineLoad {
	return read(w, func(s *applied.State) fleet.EngineLoad {
		load, _ := s.Loads.Get(engine)
		return load
	})
}

// WaitingFor counts the environments without an engine that an instance of a pool would serve
// without load, and their Applications. It costs the environments without an engine.
func (w *AppliedState) WaitingFor(pool *fleet.Declaration) fleet.EngineLoad {
	return read(w, func(s *applied.State) fleet.EngineLoad { return place.WaitingFor(s, pool) })
}
