package catalog

import (
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
)

// Stage is a commit's changes, judged. As a View it shows the state as it will be. It keeps only
// what differs from its base, so a stage whose base was committed to meanwhile shows a mixture in
// what it did not touch: see Stale.
type Changeset struct {
	view
	base       *Catalog
	generation int
	in         []Input
	again      []fleet.Key
	refused    map[fleet.Key]fleet.Problem
	resumed    bool

	changes     []Change
	quarantined []Quarantine
	cleared     []fleet.Key
	checked     []fleet.Key
	problems    []fleet.Problem
}

// Changes is how the effective state changes, sorted so that what is referred to comes before what
// refers to it.
func (s *Changeset) Changes() []Change { return slices.Clone(s.changes) }

// Quarantined is the quarantines that this stage makes or changes.
func (s *Changeset) Quarantined() []Quarantine { return slices.Clone(s.quarantined) }

// Cleared is the keys whose quarantine ends with this stage: mended, or gone.
func (s *Changeset) Cleared() []fleet.Key { return slices.Clone(s.cleared) }

// Problems is the problems of Quarantined, and the warnings of every key in Checked. Those of
// cross-references have no line: Field says where it is.
func (s *Changeset) Problems() []fleet.Problem { return slices.Clone(s.problems) }

// Checked is the keys that this stage judged, sorted. What was known of their problems before is
// out of date: theirs are in Problems, or, for a quarantine that did not change, in Quarantine.
func (s *Changeset) Checked() []fleet.Key { return slices.Clone(s.checked) }

// Refuse judges the same files anew, with the changes of some keys not allowed: each problem's key
// is quarantined with it and keeps its last good state, and what depends on it is judged by that.
// It is how a planner keeps an engine whose environments are not moved yet. The receiver stays as
// it is.
func (s *Changeset) Refuse(problems ...fleet.Problem) *Changeset {
	refused := maps.Clone(s.refused)
	if refused == nil {
		refused = map[fleet.Key]fleet.Problem{}
	}
	for _, p := range problems {
		p.Severity = fleet.SeverityError
		refused[p.Key] = p
	}
	return s.base.prepare(s.in, s.again, refused, s.resumed)
}

// Stale reports whether another stage was committed since this one was judged.
func (s *Changeset) Stale() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.generation != s.base.generation
}

// Commit makes the stage's state the catalog's, which the stage then reads as well. A stage can be
// committed once, and not when it is Stale: that is a fault of the program, and Commit panics,
// since the state that the files were judged against no longer holds.
func (s *Changeset) Commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != s.base.generation {
		panic(
			"catalog: a stage was committed after another one of the same base; stage its files again")
	}
	s.st.fold()
	s.st = s.base.st
	s.base.generation++
}
