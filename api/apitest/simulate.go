package apitest

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
)

// Simulate implements api.Simulator over the engines and environments of the mirror, which have no
// constraints but their regions.
func (s *Store) Simulate(_ context.Context, c placement.Change) (placement.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return placement.Outcome{}, s.fail
	}
	now := placement.Snapshot{Measured: map[fleet.EngineName]float64{}}
	for _, e := range s.m.Engines {
		now.Engines = append(now.Engines, placement.Engine{Name: e.Name, Load: e.Load,
			Spec: fleet.EngineSpec{Region: e.Region, Capacity: e.Capacity, State: e.State}})
		if cores, known := e.Measured.Cores(time.Now()); known {
			now.Measured[e.Name] = cores
		}
	}
	for _, e := range s.m.Environments {
		now.Environments = append(now.Environments, placement.Served{
			Item: placement.Item{
				Environment: fleet.EnvironmentID{Tenant: e.Tenant, Name: e.Name}, Region: e.Region,
				Applications: e.Counts.Applications},
			Engine:  e.Engine,
			Unready: e.Counts.Applications - min(e.Counts.Synced, e.Counts.Healthy)})
	}
	return placement.Simulate(now, c)
}
