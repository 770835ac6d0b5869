package applied

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/freeze"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Freezes returns the freezes of the applied declarations that are active at a time.
func (s *State) Freezes(now time.Time) *freeze.Calendar {
	return freeze.At(now, s.Catalog.Fleet().Freezes, func(t fleet.TenantName) []fleet.Freeze {
		if d := s.Catalog.Tenant(t); d != nil {
			return d.Tenant.Freezes
		}
		return nil
	})
}

// Thawing returns the changes that no freeze holds any more; true: since a person has released
// them. It costs what freezes hold.
func (s *State) Thawing(c *freeze.Calendar,
	approvals []mirror.Approval) (out map[fleet.ApplicationID]bool) {
	for id, f := range s.Frozen.Base() {
		released := reviews.Approved(approvals, f.Revision, f.Since)
		env := s.Catalog.Environment(id.In())
		if env == nil {
			Set(&out, id, released)
			continue
		}
		if _, still := c.Holds(fleet.FreezeChanges, id.Tenant, env.Labels); released || !still {
			Set(&out, id, released)
		}
	}
	return out
}

// Unknown reports whether the first revision after a loss of the mirror waits for the end of a
// freeze: only a plan of it knows the freeze.
func (s *State) Unknown() bool {
	return s.RevisionHold != nil && s.RevisionHold.Reason == mirror.HoldFrozen
}

// Thaws reports whether a freeze that held a change or a deletion is over.
func (s *State) Thaws(now time.Time) bool {
	c := s.Freezes(now)
	if len(s.Thawing(c, nil)) > 0 || s.Unknown() {
		return true
	}
	for id, h := range s.Held.Base() {
		env := s.Catalog.Environment(id.In())
		if h.Reason != mirror.HoldFrozen || env == nil {
			continue
		}
		if _, still := c.Holds(fleet.FreezeDeletions, id.Tenant, env.Labels); !still {
			return true
		}
	}
	return false
}
