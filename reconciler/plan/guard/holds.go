package guard

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Release decides about the deletions that are held: those that an approval releases, those that
// are reviewed by now or pass a freeze, and those whose message changes because they are known not
// to be reviewed.
func Release(s *applied.State, r Request) (freed place.Freed, explained []applied.Held) {
	freed = place.Freed{}
	for id, h := range s.Held.Base() {
		if reviews.Approved(r.Approvals, h.Revision, h.Since) {
			freed[id] = place.Approved
			continue
		}
		if h.Reason == mirror.HoldFrozen {
			now, still := r.frozen(s, id)
			if !still || now.Scope != h.Scope || r.passes(h, now) {
				freed[id] = place.Reviewed
			}
			continue
		}
		if r.Reviews == nil || h.Reason != mirror.HoldUnreviewed {
			continue
		}
		seen, answered := r.Reviews.Earlier[h.Span()]
		if _, reviewed := seen[h.Key]; reviewed {
			freed[id] = place.Reviewed
		} else if answered && h.Why != reviews.Missing {
			h.Why = reviews.Missing
			explained = append(explained, h)
		}
	}
	return freed, explained
}

// WholeRevision returns the hold of a whole revision, or nil. A hold that was listed before keeps
// its date, and ends with its approval. It lists the Applications that the revision would delete,
// so that the approval releases exactly these.
func WholeRevision(
	s *applied.State, after applied.Files, unwanted []place.Unwanted, r Request,
) *mirror.Hold {
	reason, why := wholeRevision(s, after, r)
	if reason == "" {
		return nil
	}
	h := &mirror.Hold{Revision: r.Revision, Reason: reason, Message: why, Since: r.Now}
	if was := s.RevisionHold; was != nil && was.ID() == h.ID() {
		if reviews.Approved(r.Approvals, was.Revision, was.Since) {
			return nil
		}
		h.Since = was.Since
	}
	for _, u := range unwanted {
		if u.Was == nil { // another revision asked for the deletions that were held before
			h.Items = append(h.Items, u.Key)
		}
	}
	slices.SortFunc(h.Items, applied.CompareKeys)
	return h
}

func wholeRevision(s *applied.State, after applied.Files, r Request) (mirror.HoldReason, string) {
	head, base := r.Revision.Short(), s.Revision.Short()
	switch {
	case !s.Started() && r.Rebuilt != "":
		return mirror.HoldUnreviewed, r.Rebuilt
	case !s.Started() || r.Revision == s.Revision:
		return "", ""
	}
	switch r.Relation {
	case mirror.RelationSame, mirror.RelationDescendant:
	case mirror.RelationOlder:
		return mirror.HoldOlder, fmt.Sprintf("the branch went back from %s to the older %s", base,
			head)
	default:
		return mirror.HoldRewritten,
			fmt.Sprintf("the branch was rewritten: %s does not descend from %s", head, base)
	}
	empty := func(folder string, was int) (mirror.HoldReason, string) {
		return mirror.HoldEmpty,
			fmt.Sprintf("the revision holds no declaration under %s/, where there were %d", folder,
				was)
	}
	switch was := s.Files; {
	case was.Tenants > 0 && after.Tenants == 0:
		return empty("tenants", was.Tenants)
	case was.Fleet > 0 && after.Fleet == 0:
		return empty("fleet", was.Fleet)
	}
	return "", ""
}

// Holds groups held deletions, frozen changes and held files as people approve them: by revision,
// reason and scope.
func Holds(deletions map[fleet.ApplicationID]applied.Held,
	frozen map[fleet.ApplicationID]applied.Frozen, files map[string]applied.HeldFile,
) map[mirror.HoldID]mirror.Hold {
	out := map[mirror.HoldID]mirror.Hold{}
	add := func(id mirror.HoldID, key fleet.ObjectKey, since time.Time, why string) {
		hold, ok := out[id]
		if !ok {
			hold = mirror.Hold{Revision: id.Revision, Reason: id.Reason, Tenant: id.Tenant}
		}
		if !ok || since.After(hold.Since) {
			hold.Since, hold.Message = since, why
		}
		hold.Items = append(hold.Items, key)
		out[id] = hold
	}
	for _, id := range slices.SortedFunc(maps.Keys(deletions), applied.CompareApplications) {
		h := deletions[id]
		add(h.Hold(), h.Key, h.Since, h.Why)
	}
	for _, id := range slices.SortedFunc(maps.Keys(frozen), applied.CompareApplications) {
		f := frozen[id]
		if f.Rollout {
			continue // people decide about its rollout
		}
		add(f.Hold(), f.Key, f.Since, f.Why)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		h := files[path]
		hold, ok := out[h.Hold()]
		if !ok {
			hold = mirror.Hold{Revision: h.Revision, Reason: mirror.HoldUnreviewed,
				Tenant: h.Hold().Tenant}
		}
		if !ok || h.Since.After(hold.Since) {
			hold.Since, hold.Message = h.Since, h.Why
		}
		hold.Paths = append(hold.Paths, path)
		out[h.Hold()] = hold
	}
	return out
}
