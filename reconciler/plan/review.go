package plan

import (
	"cmp"
	"slices"

	"argosy.dev/argosy/fleet"
)

// Review is what is known of who saw the deletions of a plan before they were merged. A deletion of
// an Application that nobody is known to have seen is held (fleet.HoldUnreviewed), whatever the
// guards would say; its deletion policy makes no difference. One that was seen is held against the
// guards, unless it was approved beyond them; then it does not count against the window either.
type Review struct {
	// Deletions were seen in the pull requests that were merged between the AppliedState's revision and
	// Request.Revision.
	Deletions map[fleet.ObjectKey]fleet.ReviewedDeletion

	// Unknown is why Deletions is incomplete, if it is. It holds what is not in it, and is told
	// with the hold.
	Unknown error

	// Earlier is the same for spans that AppliedState.AwaitsReview names. For one that is left out nothing
	// is known, and its holds stay as they are.
	Earlier map[Span]map[fleet.ObjectKey]fleet.ReviewedDeletion
}

// Span is a part of the branch's history: the commits that Head has and Base does not have.
type Span struct{ Base, Head fleet.Revision }

// AwaitsReview lists, sorted, the spans that brought files or deletions that are held because
// nobody is known to have reviewed them. It costs what is held.
func (w *AppliedState) AwaitsReview() []Span {
	w.mu.RLock()
	defer w.mu.RUnlock()
	seen := map[Span]bool{}
	var out []Span
	for _, h := range w.held.base {
		if h.Reason == fleet.HoldUnreviewed && !seen[h.span()] {
			seen[h.span()] = true
			out = append(out, h.span())
		}
	}
	for _, h := range w.unreviewed {
		if !seen[h.span()] {
			seen[h.span()] = true
			out = append(out, h.span())
		}
	}
	slices.SortFunc(out, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Head, b.Head))
	})
	return out
}

func (h held) span() Span { return Span{h.Base, h.Revision} }

const whyUnreviewed = "nobody reviewed this: no merged pull request of the revision showed it"

// reviewed says who saw the deletion, or why it is to be held since nobody did.
func (d *draft) reviewed(u unwanted) (fleet.ReviewedDeletion, string) {
	r := d.r.Review
	rel, followsRelease := d.followsRelease(u.id)
	switch {
	case u.was == nil && followsRelease && rel.approved:
		// whoever approved the file has seen it; the guards judge
		return fleet.ReviewedDeletion{}, ""
	case r == nil:
		return fleet.ReviewedDeletion{}, ""
	case u.was != nil:
		return r.Earlier[u.was.span()][u.key], ""
	}
	seen, ok := r.Deletions[u.key]
	if !ok && followsRelease {
		seen, ok = r.Earlier[rel.span][u.key]
	}
	switch {
	case ok:
		return seen, ""
	case r.Unknown != nil:
		return seen, "whether anybody reviewed this is not known: " +
			clipped(oneLine(r.Unknown.Error()))
	default:
		return seen, whyUnreviewed
	}
}

// followsRelease reports whether a file that is let in now is behind an Application's change.
func (d *draft) followsRelease(id fleet.ApplicationID) (release, bool) {
	dep := fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: id.Tenant,
		Name: string(id.Deployment)}
	for _, k := range []fleet.Key{dep, environmentKey(id.In()), tenantKey(id.Tenant)} {
		if rel, ok := d.enforcement.released[k]; ok {
			return rel, true
		}
	}
	return release{}, false
}

// nowReviewed reports whether a deletion that is held because nobody reviewed it turns out to have
// been.
func (d *draft) nowReviewed(h held) bool {
	if d.r.Review == nil || h.Reason != fleet.HoldUnreviewed {
		return false
	}
	_, ok := d.r.Review.Earlier[h.span()][h.Key]
	return ok
}

// explain tells once it is known that nobody reviewed what could not be asked before.
func (d *draft) explain(id fleet.ApplicationID, h held) {
	if d.r.Review == nil || h.Reason != fleet.HoldUnreviewed || h.Why == whyUnreviewed {
		return
	}
	if _, answered := d.r.Review.Earlier[h.span()]; answered {
		h.Why = whyUnreviewed
		d.held.set(id, h)
	}
}
