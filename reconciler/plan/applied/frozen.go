package applied

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/freeze"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// FreezesOf returns the freezes of declarations that are active at a time.
func FreezesOf(view *catalog.View, now time.Time) *freeze.Calendar {
	return freeze.At(now, view.Fleet().Freezes, func(t fleet.TenantName) []fleet.Freeze {
		if d := view.Tenant(t); d != nil {
			return d.Tenant.Freezes
		}
		return nil
	})
}

// Freezes returns the freezes of the applied declarations that are active at a time.
func (s *State) Freezes(now time.Time) *freeze.Calendar { return FreezesOf(&s.Catalog.View, now) }

// HeldBy returns the freeze that holds a kind of change to an Application of an environment in
// effect.
func (s *State) HeldBy(c *freeze.Calendar, k fleet.FreezeKind, id fleet.ApplicationID) (
	h freeze.Hold, held bool) {
	env := s.Catalog.Environment(id.In())
	if env == nil {
		return h, false
	}
	return c.Holds(k, id.Tenant, env.Labels)
}

// Thawing returns the changes that no freeze holds any more; true: since a person has released
// them. It costs what freezes hold.
func (s *State) Thawing(c *freeze.Calendar,
	approvals []mirror.Approval) (out map[fleet.ApplicationID]bool) {
	for id, f := range s.Frozen.Base() {
		if f.Rollout {
			continue
		}
		released := reviews.Approved(approvals, f.Revision, f.Since)
		if _, still := s.HeldBy(c, fleet.FreezeChanges, id); released || !still {
			Set(&out, id, released)
		}
	}
	return out
}

// HasFrozen reports whether a freeze holds a change.
func (s *State) HasFrozen() bool {
	for _, f := range s.Frozen.Base() {
		if !f.Rollout {
			return true
		}
	}
	return false
}

// Unknown reports whether an earlier version held the first revision after a loss of the mirror as
// a whole, since a freeze was active. The next plan of it holds what differs.
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
		if h.Reason != mirror.HoldFrozen || s.Catalog.Environment(id.In()) == nil {
			continue
		}
		if _, still := s.HeldBy(c, fleet.FreezeDeletions, id); !still {
			return true
		}
	}
	return false
}
