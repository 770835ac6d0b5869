package apitest

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Differences lists differences by tenant and Application.
func (s *Store) Differences(_ context.Context, scope view.Scope, f view.Filter, p view.Page) (
	[]mirror.Difference, string, error) {
	return listing(s, func(m *Mirror) []mirror.Difference { return m.Differences },
		func(d mirror.Difference) string {
			return string(d.Tenant) + " " + d.Application + " " + string(d.Engine)
		},
		func(d mirror.Difference) bool {
			return is(scope.Tenant, d.Tenant) && is(f.Tenant, d.Tenant) && is(f.Name, d.Ring) &&
				is(f.Engine, d.Engine) && is(f.Environment, d.Environment) &&
				is(f.Deployment, d.Deployment)
		}, p)
}

// ApproveDifferences implements api.Decider.
func (s *Store) ApproveDifferences(_ context.Context, a mirror.DifferenceApproval) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var approved []*mirror.Difference
	for _, c := range a.Differences {
		found := false
		for i := range s.m.Differences {
			d := &s.m.Differences[i]
			if d.Ring == a.Ring && d.Tenant == c.Tenant && d.Application == c.Application &&
				d.Hash == c.Hash {
				found, approved = true, append(approved, d)
			}
		}
		if !found {
			return mirror.ErrNoDifference
		}
	}
	now := time.Now().UTC()
	for _, d := range approved {
		d.ApprovedAt, d.ApprovedBy, d.Reason = &now, a.By, a.Reason
	}
	return nil
}
