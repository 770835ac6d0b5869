// Package applied holds the state that the last recorded plan left: declarations in effect,
// placements, an index of the rows, counts, and the changes that wait. A plan changes a draft of
// it.
package applied

import (
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
)

// State is the applied state of the whole fleet.
type State struct {
	Revision fleet.Revision
	Catalog  *catalog.Catalog
	Layers
	Deferred   map[fleet.Key]Deferred
	Unreviewed map[string]HeldFile // by path
	Files      Files               // at Revision
	Blocked    bool                // the last plan left environments unplaced: see Memory.Blocked
	Rebuilt    bool                // argosy rebuild dropped the mirror
	// Restored is set from a restore to the next commit. Rows may have vanished since the last plan
	// was recorded: what waits for that is tried again.
	Restored     bool
	RevisionHold *mirror.Hold // of a whole revision
	Memory       []byte       // as it was last stored
}

// New returns a State in which nothing is applied.
func New() *State {
	s := &State{Catalog: catalog.New(), Deferred: map[fleet.Key]Deferred{}}
	for _, layer := range s.all() {
		layer.init()
	}
	return s
}

// Started reports whether a revision was applied before. Without one, the plan is the first of a
// fleet or the first after a rebuild.
func (s *State) Started() bool { return s.Revision != "" }

// Head returns the file that the last accepted revision has for a key whose declaration in effect
// is another one: the change was deferred or quarantined.
func (s *State) Head(k fleet.Key) catalog.Input {
	if x, ok := s.Deferred[k]; ok {
		return x.Input
	}
	q, ok := s.Catalog.Quarantine(k)
	if !ok {
		return catalog.Input{}
	}
	return catalog.Input{
		Key: k, Path: q.Path, Blob: q.Blob, Declaration: q.Declaration, Removed: q.Removed,
	}
}

// Accepted returns the file of a key that was last let in, whether or not it is in effect. Without
// a file, there is false.
func (s *State) Accepted(k fleet.Key) (path, blob string, there bool) {
	if x, ok := s.Deferred[k]; ok {
		return x.Input.Path, x.Input.Blob, !x.Input.Removed
	}
	if q, ok := s.Catalog.Quarantine(k); ok {
		return q.Path, q.Blob, !q.Removed
	}
	if d := s.Catalog.Declaration(k); d != nil {
		return d.Path, d.Blob, true
	}
	return "", "", false
}

// Terminations lists, sorted, the unwanted rows whose objects are not proven deleted. It costs the
// whole index.
func (s *State) Terminations() []fleet.ObjectKey {
	var keys []fleet.ObjectKey
	for k, r := range s.Rows.Base() {
		if r.Unwanted {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, CompareKeys)
	return keys
}

// Files counts the declarations of a revision, in effect or not.
type Files struct{ Fleet, Tenants int }

func (f *Files) add(k fleet.Key, n int) {
	switch {
	case k.Kind == fleet.KindFile: // not a declaration
	case k.Tenant == "":
		f.Fleet += n
	default:
		f.Tenants += n
	}
}

// FilesAfter counts the declarations after the changes of some files.
func (s *State) FilesAfter(changed []catalog.Input) Files {
	now := s.Files
	present := map[fleet.Key]bool{}
	for _, i := range changed {
		if !fleet.IsGenerated(i.Key, i.Path) {
			present[i.Key] = present[i.Key] || !i.Removed
		}
	}
	for k, is := range present {
		path, _, was := s.Accepted(k)
		if fleet.IsGenerated(k, path) {
			was = false // the file of its set or pool is counted
		}
		switch {
		case is && !was:
			now.add(k, 1)
		case was && !is:
			now.add(k, -1)
		}
	}
	return now
}

// AwaitsApproval reports whether something waits that an approval releases.
func (s *State) AwaitsApproval() bool {
	return s.RevisionHold != nil ||
		len(s.Held.Base())+len(s.Unreviewed) > 0 || s.HasFrozen()
}
