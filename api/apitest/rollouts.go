package apitest

import (
	"context"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Rollouts lists rollouts, newest first.
func (s *Store) Rollouts(_ context.Context, scope view.Scope, f view.Filter, p view.Page) (
	[]mirror.Rollout, string, error) {
	return listing(s, func(m *Mirror) []mirror.Rollout { return m.Rollouts },
		func(r mirror.Rollout) string { return newest(r.BegunAt) + r.ID },
		func(r mirror.Rollout) bool {
			return is(scope.Tenant, r.Tenant) && is(f.Tenant, r.Tenant) &&
				is(f.Deployment, r.Deployment)
		}, p)
}

// DecideRollout implements api.Decider. Its rollouts take no step.
func (s *Store) DecideRollout(_ context.Context, d mirror.RolloutDecision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Rollouts {
		r := &s.m.Rollouts[i]
		if r.Tenant == d.Tenant && r.Deployment == d.Deployment && r.Accepts(d.Verb) {
			r.Message = string(d.Verb) + " by " + d.By
			return nil
		}
	}
	return mirror.ErrRolloutState
}
