// Package guard decides which unwanted Applications are deleted and which deletions, or whole
// revisions, wait for an approval.
package guard

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/freeze"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Request is what the guards need of a plan's request.
type Request struct {
	Revision  fleet.Revision
	Relation  mirror.Relation          // to the applied revision
	Rebuilt   string                   // why the first revision needs an approval, if it does
	Recent    []mirror.Deletion        // earlier deletions that the guards allowed
	Created   map[fleet.TenantName]int // Applications created within the window
	Approvals []mirror.Approval
	Reviews   *reviews.Deletions // nil: deletions need no review
	Freezes   *freeze.Calendar   // nil: there is none
	Now       time.Time
}

// Verdict is the decision about one unwanted Application.
type Verdict struct {
	place.Unwanted
	Approved bool          // by a person: the deletion does not count against the guards
	Hold     *applied.Held // nil: the Application is deleted
}

// Judge decides about the unwanted Applications. The guards are those of the applied state: a
// commit cannot loosen what judges it. A deletion without a known review is held before the guards
// judge, and does not count as a deletion.
func Judge(
	s *applied.State, unwanted []place.Unwanted, released map[fleet.Key]effective.Release,
	r Request,
) []Verdict {
	if len(unwanted) == 0 {
		return nil
	}
	j := judge{Request: r, applied: s, released: released}
	var out []Verdict
	var judged []place.Unwanted
	waived, asked := j.waived(), map[fleet.TenantName]int{}
	for _, u := range unwanted {
		review, missing := j.reviewed(u)
		frozen, freezes := r.frozen(s, u.ID)
		switch {
		case waived[u.Key]:
			out = append(out, Verdict{Unwanted: u, Approved: true})
		case freezes && (u.Was == nil || !r.passes(*u.Was, frozen)):
			h := applied.Held{Scope: frozen.Scope, Reason: mirror.HoldFrozen, Why: frozen.String()}
			out = append(out, j.hold(u, h))
		case review.Approved:
			out = append(out, Verdict{Unwanted: u, Approved: true})
		case missing != "":
			h := applied.Held{Scope: u.ID.Tenant, Reason: mirror.HoldUnreviewed, Why: missing}
			out = append(out, j.hold(u, h))
		default:
			judged = append(judged, u)
			asked[u.ID.Tenant]++
		}
	}
	limits := exceeded(s.Catalog.Fleet().Guards, j.tallies(asked))
	for _, u := range judged {
		why, scope := limits.tenants[u.ID.Tenant], u.ID.Tenant
		if why == "" {
			why, scope = limits.fleet, ""
		}
		if why == "" {
			out = append(out, Verdict{Unwanted: u})
		} else {
			out = append(out, j.hold(u, applied.Held{Scope: scope, Why: why}))
		}
	}
	return out
}

// frozen returns the freeze that holds the deletion of an Application.
func (r Request) frozen(s *applied.State, id fleet.ApplicationID) (freeze.Hold, bool) {
	if r.Freezes == nil {
		return freeze.Hold{}, false
	}
	return s.HeldBy(r.Freezes, fleet.FreezeDeletions, id)
}

// passes reports whether an owner of the tenant has let the deletion pass the tenant's freeze. The
// guards judge it then, as at the end of the freeze.
func (r Request) passes(h applied.Held, now freeze.Hold) bool {
	return h.Reason == mirror.HoldFrozen && applied.Passes(r.Approvals, h.Hold(), h.Since, now)
}

type judge struct {
	Request
	applied  *applied.State
	released map[fleet.Key]effective.Release // files that are let in with this plan
}

// hold returns the hold of a deletion. A deletion that was held before for another reason keeps its
// revision and gets a new date: no approval covers the new reason yet.
func (j *judge) hold(u place.Unwanted, h applied.Held) Verdict {
	h.Application, h.Key, h.Since = u.ID, u.Key, j.Now
	if u.Was != nil {
		h.Revision, h.Base, h.Deployment = u.Was.Revision, u.Was.Base, u.Was.Deployment
	} else {
		h.Revision, h.Base = j.Revision, j.applied.Revision
		h.Deployment = j.applied.Catalog.Deployment(u.ID.Deployed())
	}
	return Verdict{Unwanted: u, Hold: &h}
}

// waived returns the deletions that were listed when the whole revision was held, once the revision
// is approved.
func (j *judge) waived() map[fleet.ObjectKey]bool {
	out := map[fleet.ObjectKey]bool{}
	w := j.applied.RevisionHold
	if w != nil && w.Revision == j.Revision && reviews.Approved(j.Approvals, w.Revision, w.Since) {
		for _, k := range w.Items {
			out[k] = true
		}
	}
	return out
}

// reviewed returns the review of a deletion, or why the deletion is held without one.
func (j *judge) reviewed(u place.Unwanted) (mirror.ReviewedDeletion, string) {
	release, follows := j.followsRelease(u.ID)
	switch {
	case u.Was == nil && follows && release.Approved:
		return mirror.ReviewedDeletion{}, "" // the file's approval covers it; the guards judge
	case j.Reviews == nil:
		return mirror.ReviewedDeletion{}, ""
	case u.Was != nil:
		return j.Reviews.Earlier[u.Was.Span()][u.Key], ""
	}
	review, ok := j.Reviews.Reviewed[u.Key]
	if !ok && follows {
		review, ok = j.Reviews.Earlier[release.Span][u.Key]
	}
	if ok {
		return review, ""
	}
	return review, reviews.Why(j.Reviews.Unknown)
}

// followsRelease reports whether a file that is let in with this plan changes an Application.
func (j *judge) followsRelease(id fleet.ApplicationID) (effective.Release, bool) {
	files := []fleet.Key{
		applied.DeploymentKey(id), applied.EnvironmentKey(id.In()), applied.TenantKey(id.Tenant),
	}
	if d := j.applied.Catalog.Deployment(id.Deployed()); d != nil {
		if set, generated := fleet.SetOf(d.Key, d.Path); generated {
			files = append(files, fleet.SetKey(id.Tenant, set))
		}
	}
	for _, k := range files {
		if release, ok := j.released[k]; ok {
			return release, true
		}
	}
	return effective.Release{}, false
}
