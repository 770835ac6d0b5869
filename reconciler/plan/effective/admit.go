package effective

import (
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Arrival is the changed files of a revision with the evidence that they were reviewed.
type Arrival struct {
	Revision  fleet.Revision
	Files     []catalog.Input
	Listed    []catalog.Input // sets of unchanged files, with other listings
	Instances []catalog.Input // of pools; their pool's file was reviewed
	Continues bool            // the revision descends from the applied one, or is the same
	Reviews   *reviews.Files  // nil: files need no review
	Approvals []mirror.Approval
	Now       time.Time
}

// Admission is the decision about the files of a revision.
type Admission struct {
	Files    []catalog.Input             // that the plan may use
	Held     map[string]applied.HeldFile // after the plan, by path
	Released map[fleet.Key]Release
	Changed  bool // Held differs from the applied state's
}

// Release is why a held file is let in. Deletions of Applications that follow from it are judged by
// that.
type Release struct {
	Span     reviews.Span
	Approved bool // by `argosy release` or a trusted push; otherwise a pull request showed it
}

// Admit holds the files without a known review, and lets in earlier held files that an approval or
// a review releases now. It costs the files of the arrival and the held ones.
//
// A set that has other listings needs no review: its file did not change. If that file is held, it
// is held with the listings.
func Admit(s *applied.State, a Arrival) Admission {
	out := admitFiles(s, a)
	changed := map[fleet.Key]bool{}
	for _, in := range out.Files {
		changed[in.Key] = true
	}
	for _, in := range a.Listed {
		h, held := out.Held[in.Path]
		switch {
		case held && h.Input.Key == in.Key && h.Input.Blob == in.Blob:
			if !out.Changed {
				out.Held, out.Changed = maps.Clone(out.Held), true
			}
			h.Input = in
			out.Held[in.Path] = h
		case !changed[in.Key] && asApplied(s, in):
			out.Files = append(slices.Clip(out.Files), in)
		}
	}
	out.Files = slices.Concat(out.Files, a.Instances)
	return out
}

func admitFiles(s *applied.State, a Arrival) Admission {
	out := Admission{Files: a.Files, Held: s.Unreviewed}
	if len(s.Unreviewed) == 0 && (a.Reviews == nil || len(a.Files) == 0) {
		return out
	}
	out.Held, out.Released = maps.Clone(s.Unreviewed), map[fleet.Key]Release{}
	if out.Held == nil {
		out.Held = map[string]applied.HeldFile{}
	}
	out.Files = nil
	declared := map[fleet.Key]bool{} // by a file that is let in
	for _, in := range a.Files {
		if !out.admit(s, a, in) {
			continue
		}
		out.Files = append(out.Files, in)
		declared[in.Key] = declared[in.Key] || !in.Removed
	}
	for _, path := range slices.Sorted(maps.Keys(out.Held)) {
		h := out.Held[path]
		release, ok := a.releases(h)
		switch {
		case h.Input.Removed && declared[h.Input.Key]:
			delete(out.Held, path) // another file declares the key now: nothing is left to remove
		case ok:
			delete(out.Held, path)
			out.Files = append(out.Files, h.Input)
			out.Released[h.Input.Key] = release
		case a.Reviews != nil && h.Why != reviews.Missing:
			if _, answered := a.Reviews.Earlier[h.Span()]; answered {
				h.Why = reviews.Missing
				out.Held[path] = h
			}
		}
	}
	out.Changed = !sameHeld(s.Unreviewed, out.Held)
	return out
}

// admit reports whether the plan may use a changed file. Otherwise the file is held, or it has the
// applied content again.
func (out *Admission) admit(s *applied.State, a Arrival, in catalog.Input) bool {
	judged := a.Reviews != nil && s.Started() && a.Continues
	was, before := out.Held[in.Path]
	delete(out.Held, in.Path)
	same := asApplied(s, in)
	if before && same {
		return false
	}
	if judged && !same && !reviews.Shows(a.Reviews.Reviewed, in) {
		h := applied.HeldFile{
			Input: in, Revision: a.Revision, Base: s.Revision, Since: a.Now,
			Why: reviews.Why(a.Reviews.Unknown),
		}
		if before && was.Input.Blob == in.Blob && was.Input.Removed == in.Removed {
			h = was
		}
		out.Held[in.Path] = h
		return false
	}
	if judged && a.Reviews.Trusted[in.Path] && reviews.Shows(a.Reviews.Reviewed, in) {
		out.Released[in.Key] = Release{Approved: true}
	}
	return true
}

// releases reports whether a held file is let in, and why.
func (a Arrival) releases(h applied.HeldFile) (Release, bool) {
	span := h.Span()
	switch {
	case reviews.Approved(a.Approvals, h.Revision, h.Since):
		return Release{span, true}, true
	case a.Reviews == nil:
		return Release{}, false
	}
	r, path := a.Reviews, h.Input.Path
	now, earlier := reviews.Shows(r.Reviewed, h.Input), reviews.Shows(r.Earlier[span], h.Input)
	trusted := now && r.Trusted[path] || earlier && r.EarlierTrusted[span][path]
	return Release{span, trusted}, now || earlier
}

// asApplied reports whether a file has the content that was last let in.
func asApplied(s *applied.State, in catalog.Input) bool {
	path, blob, there := s.Accepted(in.Key)
	if !there || path != in.Path {
		return in.Removed
	}
	return !in.Removed && blob == in.Blob
}

func sameHeld(a, b map[string]applied.HeldFile) bool {
	return maps.EqualFunc(a, b, func(x, y applied.HeldFile) bool {
		return x.Revision == y.Revision && x.Input.Blob == y.Input.Blob &&
			x.Input.Removed == y.Input.Removed && x.Why == y.Why && x.Since.Equal(y.Since)
	})
}
