// Package catalog holds the declarations of the config repo that are in effect, and judges the
// changes of each commit.
//
// Rules of this package:
//   - pure: no I/O, no clock, no randomness; equal inputs give equal results, every list is sorted;
//   - a file at the head is good if it decoded and its references hold in the effective state, the
//     other good files of its commit included. A bad file is quarantined alone: its last good state
//     stays in effect and everything else proceeds;
//   - an object in use is never removed: neither a declaration that another one names nor a
//     namespace of an environment (see Quarantine.Removed);
//   - a changeset costs what changed and its dependents. A change of a Tenant checks that tenant
//     again, a change of Fleet.gitHosts or Fleet.clusterHosts everything, the first or last engine
//     of a region the environments of that region;
//   - one tenant's file never takes anything from the effective state of another tenant. If two
//     tenants want the same thing, the first effective owner keeps it, and of two newcomers neither
//     gets it.
//
// Declarations given to the catalog or returned by it are shared: they must not be changed.
package catalog

import (
	"maps"
	"slices"
	"sync"

	"argosy.dev/argosy/fleet"
)

// Input is one changed file at the head of the config repo.
type Input struct {
	Key         fleet.Key
	Path, Blob  string
	Declaration *fleet.Declaration // nil when it did not decode or was removed
	Problems    []fleet.Problem    // of decoding; one of severity error makes the file bad
	Removed     bool               // the file was removed
}

// Change is one change of the effective state. Before is nil for a new declaration, After for a
// removed one.
type Change struct {
	Key           fleet.Key
	Before, After *fleet.Declaration
}

// Catalog is the effective state and the quarantined files. It is safe for concurrent use: any
// number of stages may be made and read beside each other, and one of them may be committed, after
// which the others are stale.
type Catalog struct {
	View
	judge Judge
	// counts commits, so that a changeset can compare its base's generation with its own
	generation int
}

// Judge returns why a declaration breaks a policy, in the policy's words, or "" if it does not. An
// error means that the policy could not be evaluated. A Judge is pure, and any number of changesets
// call it concurrently.
type Judge func(p *fleet.PolicySpec, s *fleet.Subject) (broken string, err error)

// Changeset is a commit's changes with the verdict on each. As a View it shows the state after
// Commit. It keeps only the differences to its base: if another changeset was committed to the base
// meanwhile, everything else that it shows is of the new base (see Stale).
type Changeset struct {
	View
	base       *Catalog
	generation int
	in         []Input
	again      []fleet.Key
	refused    map[fleet.Key]fleet.Problem
	resumed    bool

	changes     []Change
	quarantined []fleet.Quarantine
	cleared     []fleet.Key
	checked     []fleet.Key
	problems    []fleet.Problem
}

// Restore returns the catalog with these effective declarations and quarantined files. It checks
// nothing again: an effective declaration stays in effect until a change touches it. Only the
// decoder's warnings are lost; they return with the next change of their file.
func Restore(effective []fleet.Declaration, quarantined []fleet.Quarantine) *Catalog {
	c := New()
	for i := range effective {
		d := &effective[i]
		c.st.put(d.Key, &entry{key: d.Key, path: d.Path, blob: d.Blob, effective: d, head: d})
	}
	for _, q := range quarantined {
		e := &entry{key: q.Key, path: q.Path, blob: q.Blob, head: q.Declaration, removed: q.Removed,
			quarantine: q.Problems}
		if old := c.st.entries.get(q.Key); old != nil {
			e.effective = old.effective
			e.head = same(e.head, e.effective)
		}
		if e.head == nil && !e.removed {
			e.notes = q.Problems
		}
		c.st.put(q.Key, e)
		if heldByPolicy(e) {
			c.st.pending[q.Key] = true // the last commit may have changed a policy: see notReady
		}
	}
	c.st.recount()
	return c
}

// New is an empty catalog.
func New() *Catalog {
	return &Catalog{View: View{mu: new(sync.RWMutex), st: newState()}}
}

// Judging sets the judge of the catalog's policies, and returns the catalog. It must not run
// concurrently with a changeset. Without a judge, policies have no effect.
//
// The policies from before a commit judge its files: no commit can bring or loosen the policies
// that judge it. The policies after the commit judge the declarations that it only reaches. An
// empty catalog has no policies, so the first commit's own policies judge it.
//
// The input of a policy is the declaration, its Tenant and, for a deployment, the environments that
// it reaches. A changed policy is applied only to declarations that a policy holds back or warns
// about; the others wait until the catalog judges them for another reason.
func (c *Catalog) Judging(j Judge) *Catalog {
	c.judge = j
	return c
}

// Prepare judges changed files against the catalog, which does not change until Commit. Two inputs
// with one key are a moved file if one of them is removed, and an error otherwise. It also judges
// the keys in again, whose files did not change: their quarantine has a cause outside the catalog,
// such as Changeset.Refuse of an engine in use.
func (c *Catalog) Prepare(in []Input, again ...fleet.Key) *Changeset {
	return c.prepare(in, again, nil, false)
}

// Resume is Prepare for the first commit of a catalog that lost its state, for instance with its
// database. A declaration may be older than the policy that it breaks, so it gets a warning and
// stays in effect.
func (c *Catalog) Resume(in []Input, again ...fleet.Key) *Changeset {
	return c.prepare(in, again, nil, true)
}

// Changes returns the changes of the effective state, each after those that it refers to.
func (s *Changeset) Changes() []Change { return slices.Clone(s.changes) }

// Quarantined is the quarantines that this stage makes or changes.
func (s *Changeset) Quarantined() []fleet.Quarantine { return slices.Clone(s.quarantined) }

// Cleared returns the keys whose quarantine this changeset ends: fixed or removed.
func (s *Changeset) Cleared() []fleet.Key { return slices.Clone(s.cleared) }

// Problems returns the problems of Quarantined, and the warnings of every key in Checked. Those of
// cross-references have a Field and no line.
func (s *Changeset) Problems() []fleet.Problem { return slices.Clone(s.problems) }

// Checked returns the keys that this changeset judged, sorted. It supersedes their earlier
// problems: the current ones are in Problems or, for an unchanged quarantine, in Quarantine.
func (s *Changeset) Checked() []fleet.Key { return slices.Clone(s.checked) }

// Refuse judges the same files again without the changes of some keys: it quarantines each
// problem's key, which keeps its last good state, and judges the dependents accordingly. A planner
// uses it to keep an engine whose environments have not moved yet. It does not change the receiver.
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

func (c *Catalog) prepare(in []Input, again []fleet.Key, refused map[fleet.Key]fleet.Problem,
	resumed bool) *Changeset {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := &Changeset{base: c, generation: c.generation, in: in, again: again, refused: refused,
		resumed: resumed}
	s.View.mu = c.mu
	s.converge()
	return s
}

// Stale reports whether another stage was committed since this one was judged.
func (s *Changeset) Stale() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.generation != s.base.generation
}

// Commit makes the changeset's state the catalog's, and the changeset then reads that. A changeset
// can be committed once, and not when it is Stale: that is a bug, and Commit panics, since the
// state that judged the files no longer exists.
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
