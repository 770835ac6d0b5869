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

// Passes reports whether an owner of a tenant has let a held change pass the freeze of the tenant
// that holds it now. No owner of a tenant passes a freeze of the Fleet.
func Passes(approvals []mirror.Approval, held mirror.HoldID, since time.Time,
	now freeze.Hold) bool {
	return held.Tenant != "" && held.Tenant == now.Scope &&
		reviews.PassedBy(approvals, held.Tenant, held.Revision, since)
}

// Thawing returns the changes that no freeze holds any more, that a person has released, which are
// true, and that wait for the freeze of another party than before. It costs what freezes hold.
func (s *State) Thawing(c *freeze.Calendar,
	approvals []mirror.Approval) (out map[fleet.ApplicationID]bool) {
	for id, f := range s.Frozen.Base() {
		if f.Rollout {
			continue
		}
		h, still := s.HeldBy(c, fleet.FreezeChanges, id)
		released := reviews.Approved(approvals, f.Revision, f.Since) ||
			still && Passes(approvals, f.Hold(), f.Since, h)
		if released || !still || h.Scope != f.Scope {
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

// Thaws reports whether the freeze that held a change or a deletion is over, or one of another
// party holds it now.
func (s *State) Thaws(now time.Time) bool {
	c := s.Freezes(now)
	if len(s.Thawing(c, nil)) > 0 || s.Unknown() {
		return true
	}
	for id, h := range s.Held.Base() {
		if h.Reason != mirror.HoldFrozen || s.Catalog.Environment(id.In()) == nil {
			continue
		}
		if now, still := s.HeldBy(c, fleet.FreezeDeletions, id); !still || now.Scope != h.Scope {
			return true
		}
	}
	return false
}
