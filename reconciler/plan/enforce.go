package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// Paths says which content of which files people reviewed before it reached the branch. A file
// whose content nobody is known to have reviewed is held (fleet.HoldUnreviewed): its declaration
// stays as it was applied, and the rest of the commit proceeds.
type Paths struct {
	// Reviewed maps a path to the blob that it may have at Request.Revision, "" if it may be
	// removed.
	Reviewed map[string]string

	// Trusted is those of Reviewed that an account whose direct pushes count has pushed. The
	// deletions that follow from them count as reviewed too: no pull request could have shown them.
	Trusted map[string]bool

	// Unknown is why Reviewed is incomplete, if it is. It holds every path that is not in it.
	Unknown error

	// Earlier is Reviewed for spans that AppliedState.AwaitsReview names, and EarlierTrusted is Trusted of
	// it. Nothing is known of a span that is left out: its holds stay as they are.
	Earlier        map[Span]map[string]string
	EarlierTrusted map[Span]map[string]bool
}

// Seen is what the merged pull requests of a span showed, and their owners consented to.
type Seen struct {
	Deletions map[fleet.ObjectKey]fleet.ReviewedDeletion
	Paths     map[string]string // as Paths.Reviewed
	Trusted   map[string]bool   // as Paths.Trusted
}

// shows reports whether somebody reviewed just this content.
func shows(reviewed map[string]string, in catalog.Input) bool {
	blob, ok := reviewed[in.Path]
	return ok && (blob == "") == in.Removed && (in.Removed || blob == in.Blob)
}

// PathTenant is the tenant that a path of the config repo belongs to, "" for the platform.
func PathTenant(path string) fleet.TenantName {
	rest, below := strings.CutPrefix(path, "tenants/")
	name, _, nested := strings.Cut(rest, "/")
	if !below || !nested {
		return ""
	}
	return fleet.TenantName(name)
}

// heldPath is a file whose content nobody is known to have reviewed.
type heldPath struct {
	Input    catalog.Input  `json:"input"`    // what the branch has
	Revision fleet.Revision `json:"revision"` // that brought it
	Base     fleet.Revision `json:"base"`     // that was applied before
	Since    time.Time      `json:"since"`
	Why      string         `json:"why"`
}

func (h heldPath) span() Span { return Span{h.Base, h.Revision} }

func (h heldPath) hold() fleet.HoldID {
	return fleet.HoldID{
		Revision: h.Revision, Reason: fleet.HoldUnreviewed, Tenant: PathTenant(h.Input.Path),
	}
}

// release is why a held file is let in. Deletions of Applications that follow from it are judged by
// that.
type release struct {
	span     Span
	approved bool // by `argosy approve` or a trusted push; otherwise a pull request showed it
}

// enforcement is what a plan does about files that nobody reviewed.
type enforcement struct {
	held     map[string]heldPath // after the plan, by path
	released map[fleet.Key]release
	changed  bool // held differs from the AppliedState's
}

// enforce takes the files out of the request that nobody is known to have reviewed, and adds those
// held earlier that an approval or a review lets in now. It costs the request's files and what is
// held.
func (w *AppliedState) enforce(r Request) (Request, enforcement) {
	e := enforcement{held: w.unreviewed}
	if len(w.unreviewed) == 0 && (r.Paths == nil || len(r.Files) == 0) {
		return r, e
	}
	e.held, e.released = maps.Clone(w.unreviewed), map[fleet.Key]release{}
	if e.held == nil {
		e.held = map[string]heldPath{}
	}
	judged := r.Paths != nil && w.revision != "" && continues(r.Relation)
	var files []catalog.Input
	present := map[fleet.Key]bool{} // declared by a file that is let in
	for _, in := range r.Files {
		was, before := e.held[in.Path]
		delete(e.held, in.Path)
		if before && w.asApplied(in) {
			continue // restored: what is in force is what the branch has
		}
		if judged && !w.asApplied(in) && !shows(r.Paths.Reviewed, in) {
			h := heldPath{Input: in, Revision: r.Revision, Base: w.revision, Since: r.Now,
				Why: r.Paths.why()}
			if before && was.Input.Blob == in.Blob && was.Input.Removed == in.Removed {
				h = was
			}
			e.held[in.Path] = h
			continue
		}
		if judged && r.Paths.Trusted[in.Path] && shows(r.Paths.Reviewed, in) {
			e.released[in.Key] = release{approved: true}
		}
		files = append(files, in)
		present[in.Key] = present[in.Key] || !in.Removed
	}
	for _, path := range slices.Sorted(maps.Keys(e.held)) {
		h := e.held[path]
		rel, out := w.releases(r, h)
		switch {
		case h.Input.Removed && present[h.Input.Key]:
			delete(e.held, path) // another file declares it now: there is nothing left to remove
		case out:
			delete(e.held, path)
			files = append(files, h.Input)
			e.released[h.Input.Key] = rel
		case r.Paths != nil && h.Why != whyUnreviewed:
			if _, answered := r.Paths.Earlier[h.span()]; answered {
				h.Why = whyUnreviewed
				e.held[path] = h
			}
		}
	}
	r.Files = files
	e.changed = !sameHeld(w.unreviewed, e.held)
	return r, e
}

// releases reports whether a held file is let in, and why.
func (w *AppliedState) releases(r Request, h heldPath) (release, bool) {
	rel := release{span: h.span()}
	switch {
	case approvedSince(r.Approvals, h.Revision, h.Since):
		rel.approved = true
		return rel, true
	case r.Paths == nil:
		return rel, false
	}
	path, span := h.Input.Path, h.span()
	now, earlier := shows(r.Paths.Reviewed, h.Input), shows(r.Paths.Earlier[span], h.Input)
	rel.approved = now && r.Paths.Trusted[path] || earlier && r.Paths.EarlierTrusted[span][path]
	return rel, now || earlier
}

func (p *Paths) why() string {
	if p.Unknown != nil {
		return "whether anybody reviewed this is not known: " + clipped(oneLine(p.Unknown.Error()))
	}
	return whyUnreviewed
}

// asApplied reports whether a file is again what was applied of it.
func (w *AppliedState) asApplied(in catalog.Input) bool {
	path, blob, there := w.accepted(in.Key)
	if !there || path != in.Path {
		return in.Removed
	}
	return !in.Removed && blob == in.Blob
}

// accepted is the file of a key that the AppliedState last let in, whether or not it is in effect.
func (w *AppliedState) accepted(k fleet.Key) (path, blob string, there bool) {
	if x, ok := w.deferred[k]; ok {
		return x.Input.Path, x.Input.Blob, !x.Input.Removed
	}
	if q, ok := w.catalog.Quarantine(k); ok {
		return q.Path, q.Blob, !q.Removed
	}
	if d := w.catalog.Declaration(k); d != nil {
		return d.Path, d.Blob, true
	}
	return "", "", false
}

func sameHeld(a, b map[string]heldPath) bool {
	return maps.EqualFunc(a, b, func(x, y heldPath) bool {
		return x.Revision == y.Revision && x.Input.Blob == y.Input.Blob &&
			x.Input.Removed == y.Input.Removed &&
			x.Why == y.Why && x.Since.Equal(y.Since)
	})
}

// continues reports whether a head follows from what is applied. Any other waits as a whole, and
// whoever approves it has looked at all of it.
func continues(relation string) bool {
	return relation == "" || relation == RelationSame || relation == RelationDescendant
}

// Unreviewed lists the files that are held since nobody is known to have reviewed them, sorted by
// path.
func (w *AppliedState) Unreviewed() []HeldFile {
	w.mu.RLock()
	defer w.mu.RUnlock()
	out := make([]HeldFile, 0, len(w.unreviewed))
	for _, path := range slices.Sorted(maps.Keys(w.unreviewed)) {
		h := w.unreviewed[path]
		out = append(out, HeldFile{Key: h.Input.Key, Path: path, Blob: h.Input.Blob,
			Removed: h.Input.Removed, Revision: h.Revision})
	}
	return out
}

// HeldFile is a file whose content on the branch is held.
type HeldFile struct {
	Key      fleet.Key
	Path     string
	Blob     string
	Removed  bool
	Revision fleet.Revision // whose approval lets it in
}

// BranchCommit is one commit of the branch's own line, and what is known of how it got there.
type BranchCommit struct {
	ID      fleet.Revision
	Changed map[string]string // against its first parent: path to blob, "" if it is removed
	// likewise, of each pull request merged as this commit whose owners consented
	Shown   []map[string]string
	Trusted bool // pushed by an account whose direct pushes count as reviewed
}

// ReviewedPaths gives, of a span of the branch (oldest commit first), the paths whose content at
// its end somebody reviewed. A path counts by the last commit that changed it: when the account
// that pushed this commit is trusted, or when a pull request merged then or later showed just this
// content. So the several commits of a rebased pull request are judged by what it showed at its
// head, and content that slipped in between stays unreviewed until a pull request shows it. trusted
// is those of reviewed that count by their push.
func ReviewedPaths(commits []BranchCommit) (reviewed map[string]string, trusted map[string]bool) {
	now := map[string]string{}
	reviewed, trusted = map[string]string{}, map[string]bool{}
	for _, c := range commits {
		for path, blob := range c.Changed {
			now[path] = blob
			delete(reviewed, path)
			delete(trusted, path)
			if c.Trusted {
				reviewed[path], trusted[path] = blob, true
			}
		}
		for _, shown := range c.Shown {
			for path, blob := range shown {
				if have, changed := now[path]; !changed || have == blob {
					reviewed[path] = blob
				}
			}
		}
	}
	return reviewed, trusted
}

func compareHeldPaths(a, b heldPath) int { return cmp.Compare(a.Input.Path, b.Input.Path) }

// Rebuilt reports whether the mirror was dropped by argosy rebuild and nothing was applied since.
func (w *AppliedState) Rebuilt() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.rebuilt && w.revision == ""
}
