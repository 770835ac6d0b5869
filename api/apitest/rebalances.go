package apitest

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Rebalances lists rebalances, newest first.
func (s *Store) Rebalances(_ context.Context, _ view.Scope, f view.Filter, p view.Page) (
	[]mirror.Rebalance, string, error) {
	return listing(s, func(m *Mirror) []mirror.Rebalance { return m.Rebalances },
		func(r mirror.Rebalance) string { return newest(r.ProposedAt) + r.ID },
		func(r mirror.Rebalance) bool { return is(f.Name, r.ID) }, p)
}

// AcceptRebalance implements api.Decider.
func (s *Store) AcceptRebalance(_ context.Context, d mirror.RebalanceDecision) error {
	return s.setRebalance(d, mirror.RebalanceMoving, func(r mirror.RebalanceState) bool {
		return r == mirror.RebalanceProposed
	})
}

// RejectRebalance implements api.Decider.
func (s *Store) RejectRebalance(_ context.Context, d mirror.RebalanceDecision) error {
	return s.setRebalance(d, mirror.RebalanceRejected, mirror.RebalanceState.Open)
}

// PauseRebalance implements api.Decider.
func (s *Store) PauseRebalance(_ context.Context, d mirror.RebalanceDecision) error {
	return s.setRebalance(d, mirror.RebalancePaused, accepted)
}

// ResumeRebalance implements api.Decider.
func (s *Store) ResumeRebalance(_ context.Context, d mirror.RebalanceDecision) error {
	return s.setRebalance(d, mirror.RebalanceMoving, accepted)
}

func accepted(r mirror.RebalanceState) bool { return r.Open() && r != mirror.RebalanceProposed }

func (s *Store) setRebalance(d mirror.RebalanceDecision, state mirror.RebalanceState,
	may func(mirror.RebalanceState) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Rebalances {
		r := &s.m.Rebalances[i]
		if r.ID != d.ID || !may(r.State) {
			continue
		}
		if r.State == mirror.RebalanceProposed && state == mirror.RebalanceMoving {
			r.AcceptedBy = d.By
		}
		r.State, r.Since, r.Message = state, time.Now().UTC(), "by "+d.By+": "+d.Reason
		return nil
	}
	return mirror.ErrRebalanceState
}
