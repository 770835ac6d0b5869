package plan

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/place"
)

// Simulate returns what a change of an engine would move. unready counts the Applications of each
// environment that are not Synced and Healthy. It costs the whole fleet, and a Commit waits for it.
//
// The error is a placement.ImpossibleError.
func (w *AppliedState) Simulate(c placement.Change, unready map[fleet.EnvironmentID]int) (
	placement.Outcome, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return place.Simulate(w.state, c, unready, nil)
}

// Rebalance returns what would move to relieve engines with a high measured load: the CPU in use of
// those that are measured, in cores.
func (w *AppliedState) Rebalance(c placement.Change, unready map[fleet.EnvironmentID]int,
	measured map[fleet.EngineName]float64) (placement.Outcome, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return place.Simulate(w.state, c, unready, measured)
}
