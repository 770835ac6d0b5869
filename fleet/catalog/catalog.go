// Package catalog holds the declarations of the config repo as they are in effect, and judges each
// commit's changes to them.
//
// Rules of this package:
//   - pure: no I/O, no clock, no randomness; equal inputs give equal results, and every list is sorted;
//   - a file at the head is good if it decoded and what it refers to holds in the effective state, the other good files of its commit
//     included. A bad file is quarantined alone: its last good state stays in effect and everything else proceeds;
//   - nothing goes that something else still names: neither a declaration nor a namespace of an environment (see Quarantine.Removed);
//   - a stage costs what changed and what depends on it. A Tenant's change checks that tenant again, a change of Fleet.gitHosts or
//     Fleet.clusterHosts everything, an engine that is the first or last of its region the environments of that region;
//   - one tenant's file never takes anything from the effective state of another tenant. What two want, the first effective owner keeps,
//     and of two newcomers neither gets it.
//
// Declarations that are given to the catalog or returned by it are shared: nobody changes them.
package catalog

import (
	"sync"

	"argosy.dev/argosy/fleet"
)

// Input is one changed file at the head of the config repo.
type Input struct {
	Key         fleet.Key
	Path, Blob  string
	Declaration *fleet.Declaration // nil when it did not decode or was removed
	Problems    []fleet.Problem    // of decoding; one of severity error makes the file bad
	Removed     bool               // the file is gone
}

// Quarantine is a file at the head that is not in effect.
type Quarantine struct {
	Key  fleet.Key `json:"key"`
	Path string    `json:"path"`
	Blob string    `json:"blob,omitempty"`
	// what the file says; nil when it did not decode or was removed
	Declaration *fleet.Declaration `json:"declaration,omitempty"`
	Problems    []fleet.Problem    `json:"problems"` // why: each of severity error
	// an earlier state stays in effect
	HasLastGood bool `json:"hasLastGood"`
	// the file is gone, and what it declared may not go yet
	Removed bool `json:"removed,omitempty"`
}

// Change is one change of the effective state. Before is nil for what is new, After for what goes.
type Change struct {
	Key           fleet.Key
	Before, After *fleet.Declaration
}

// Catalog is the effective state and the quarantined files. It is safe for concurrent use: any
// number of stages may be made and read beside each other, and one of them may be committed, after
// which the others are stale.
type Catalog struct {
	view
	judge Judge
	// counts commits, so that a stage knows whether its base is still the one that it was judged on
	generation int
}

// New is an empty catalog.
func New() *Catalog {
	return &Catalog{view: view{mu: new(sync.RWMutex), st: newState()}}
}

// Restore is the catalog that had these effective declarations and quarantined files. Nothing is
// checked again: what was in effect stays so until a change touches it. The decoder's warnings are
// the only thing that it no longer knows; they come again with the next change of their file.
func Restore(effective []fleet.Declaration, quarantined []Quarantine) *Catalog {
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
			// a policy may have changed with the last commit: see unsettled
			c.st.pending[q.Key] = true
		}
	}
	c.st.recount()
	return c
}

// Stage judges changed files against the catalog, which stays as it is until Commit. Two inputs of
// one key are a file that moved when one of them is removed, and a mistake otherwise. Keys in again
// are judged once more though their files did not change: quarantines whose cause the catalog does
// not know of, such as Stage.Refuse of an engine in use.
func (c *Catalog) Prepare(in []Input, again ...fleet.Key) *Changeset {
	return c.prepare(in, again, nil, false)
}

func (c *Catalog) prepare(in []Input, again []fleet.Key, refused map[fleet.Key]fleet.Problem,
	resumed bool) *Changeset {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := &Changeset{base: c, generation: c.generation, in: in, again: again, refused: refused,
		resumed: resumed}
	s.view.mu = c.mu
	s.settle()
	return s
}
