package applied

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Memory is the state that plans need and that is in no declaration, placement, row or hold: one
// JSON document, as large as what waits. The store keeps it unread (mirror.Record.Memory,
// mirror.Snapshot.Memory).
type Memory struct {
	Held         []Held               `json:"held,omitempty"`
	Deployments  []*fleet.Declaration `json:"deployments,omitempty"` // of Held
	Terminating  []Terminating        `json:"leaving,omitempty"`
	Deferred     []Deferred           `json:"deferred,omitempty"`
	Moved        []Moved              `json:"moved,omitempty"`
	Clones       []mirror.Clone       `json:"clones,omitempty"` // kept by argosy rebuild
	Unreviewed   []HeldFile           `json:"unreviewed,omitempty"`
	Frozen       []Frozen             `json:"frozen,omitempty"`
	RevisionHold *mirror.Hold         `json:"waiting,omitempty"` // of a whole head revision
	// by argosy rebuild: see postgres.Reset
	Rebuilt bool `json:"rebuilt,omitempty"`
	// environments stayed unplaced, because an engine was not read
	Blocked bool `json:"blocked,omitempty"`
}

// Held is a deletion that waits for an approval.
type Held struct {
	Application fleet.ApplicationID `json:"application"`
	Key         fleet.ObjectKey     `json:"key"`
	Revision    fleet.Revision      `json:"revision"`       // that first asked for the deletion
	Base        fleet.Revision      `json:"base,omitempty"` // that was applied before
	Since       time.Time           `json:"since"`          // when it was first held
	// whose guard holds it; empty: the fleet's
	Scope  fleet.TenantName  `json:"scope,omitempty"`
	Reason mirror.HoldReason `json:"reason,omitempty"` // empty: HoldDeletions
	Why    string            `json:"why"`
	// index in Memory.Deployments; only in the stored form
	From int `json:"from"`
	// last in effect: the Application is still rendered from it
	Deployment *fleet.Declaration `json:"-"`
}

// Hold identifies the hold that an approval releases.
func (h Held) Hold() mirror.HoldID {
	return mirror.HoldID{
		Revision: h.Revision, Reason: cmp.Or(h.Reason, mirror.HoldDeletions), Tenant: h.Scope,
	}
}

// Span is the part of the branch that asked for the deletion.
func (h Held) Span() reviews.Span { return reviews.Span{Base: h.Base, Head: h.Revision} }

// Frozen is an Application that a declaration creates or changes, and that a freeze or a rollout
// holds as it is.
type Frozen struct {
	Application fleet.ApplicationID `json:"application"`
	Key         fleet.ObjectKey     `json:"key"`
	Hash        string              `json:"hash"`     // of the manifest that waits
	Revision    fleet.Revision      `json:"revision"` // that brought the manifest
	Since       time.Time           `json:"since"`    // when it was first held
	// whose freeze it is; empty: the fleet's
	Scope fleet.TenantName `json:"scope,omitempty"`
	Why   string           `json:"why"`
	// Rollout is set if it waits for its wave, whatever the freezes.
	Rollout bool `json:"rollout,omitempty"`
	// Lost is set if the Application may exist without a row, since the mirror was lost: then it
	// counts as if it had one, with what it is declared to use.
	Lost bool `json:"lost,omitempty"`
	// what the Application uses as it is; RepoURLs is empty unless it exists
	RepoURLs fleet.RepoURLs `json:"repoURLs,omitempty"`
	Use
}

// Hold identifies the hold that an approval releases.
func (f Frozen) Hold() mirror.HoldID {
	return mirror.HoldID{Revision: f.Revision, Reason: mirror.HoldFrozen, Tenant: f.Scope}
}

// HeldFile is a file without a known review of its content.
type HeldFile struct {
	Input    catalog.Input  `json:"input"`    // the file on the branch
	Revision fleet.Revision `json:"revision"` // that brought it
	Base     fleet.Revision `json:"base"`     // that was applied before
	Since    time.Time      `json:"since"`
	Why      string         `json:"why"`
}

// Hold identifies the hold that an approval releases.
func (h HeldFile) Hold() mirror.HoldID {
	return mirror.HoldID{
		Revision: h.Revision, Reason: mirror.HoldUnreviewed, Tenant: reviews.TenantOf(h.Input.Path),
	}
}

// Span is the part of the branch that brought the file.
func (h HeldFile) Span() reviews.Span { return reviews.Span{Base: h.Base, Head: h.Revision} }

// Terminating is an Application whose row is unwanted and whose object is not proven deleted. It
// still uses its repositories and its environment.
type Terminating struct {
	Application fleet.ApplicationID `json:"application"`
	Key         fleet.ObjectKey     `json:"key"`
	// separated by blanks; plans before several sources wrote one URL
	RepoURLs fleet.RepoURLs `json:"repoURL"`
	Use
}

// Deferred is a change of the head that waits for other objects: it would remove something that
// terminating or held Applications or an engine's environments still need. Every plan that could
// let it in tries again.
type Deferred struct {
	Input catalog.Input `json:"input"`

	// Removing is set for the removal of an environment. Only what still exists there keeps it in
	// effect: no Application is wanted in it.
	Removing bool `json:"going,omitempty"`
}

// encode returns the stored form. A deployment that several held Applications come from is written
// once.
func (m Memory) encode() ([]byte, error) {
	at := map[*fleet.Declaration]int{}
	m.Held, m.Deployments = slices.Clone(m.Held), nil
	for i := range m.Held {
		d := m.Held[i].Deployment
		if _, ok := at[d]; !ok {
			at[d] = len(m.Deployments)
			m.Deployments = append(m.Deployments, d)
		}
		m.Held[i].From = at[d]
	}
	return json.Marshal(m)
}

// timeless returns the memory without the times since when something waits.
func (m Memory) timeless() Memory {
	m.Held = slices.Clone(m.Held)
	for i := range m.Held {
		m.Held[i].Since = time.Time{}
	}
	m.Unreviewed = slices.Clone(m.Unreviewed)
	for i := range m.Unreviewed {
		m.Unreviewed[i].Since = time.Time{}
	}
	m.Frozen = slices.Clone(m.Frozen)
	for i := range m.Frozen {
		m.Frozen[i].Since = time.Time{}
	}
	m.Clones = slices.Clone(m.Clones)
	for i := range m.Clones {
		m.Clones[i].Since = time.Time{}
	}
	if m.RevisionHold != nil {
		w := *m.RevisionHold
		w.Since = time.Time{}
		m.RevisionHold = &w
	}
	return m
}

func readMemory(b []byte) (Memory, error) {
	var m Memory
	if len(b) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("failed to read the planner's memory; run argosy rebuild: %w", err)
	}
	for i := range m.Held {
		if from := m.Held[i].From; from < 0 || from >= len(m.Deployments) {
			return m, fmt.Errorf("the planner's memory of %s is incomplete; run argosy rebuild",
				m.Held[i].Application)
		}
		m.Held[i].Deployment = m.Deployments[m.Held[i].From]
	}
	return m, nil
}

func (m Memory) empty() bool {
	return len(m.Held)+len(m.Terminating)+len(m.Deferred)+len(m.Unreviewed)+len(m.Moved)+
		len(m.Clones)+len(m.Frozen) == 0 &&
		m.RevisionHold == nil && !m.Blocked && !m.Rebuilt
}

// MemoryChange returns the stored form of a memory that differs from the stored one, and the same
// without times; nil when nothing changes.
func (s *State) MemoryChange(m Memory) (encoded, timeless []byte, err error) {
	if len(s.Memory) == 0 && m.empty() {
		return nil, nil, nil
	}
	encoded, err = m.encode()
	if err != nil || bytes.Equal(encoded, s.Memory) {
		return nil, nil, err
	}
	timeless, err = m.timeless().encode()
	return encoded, timeless, err
}

// Remember returns the memory of the applied state.
func (s *State) Remember() Memory {
	m := s.Layers.Remember(s.Deferred, s.Unreviewed)
	m.RevisionHold, m.Blocked, m.Rebuilt = s.RevisionHold, s.Blocked, s.Rebuilt
	return m
}

// Remember returns the memory of a draft: deletions and files that are held, terminating
// Applications and deferred changes.
func (l *Layers) Remember(deferred map[fleet.Key]Deferred, unreviewed map[string]HeldFile) Memory {
	var m Memory
	l.Held.Each(func(_ fleet.ApplicationID, h Held) { m.Held = append(m.Held, h) })
	slices.SortFunc(m.Held, func(a, b Held) int { return CompareKeys(a.Key, b.Key) })
	l.Frozen.Each(func(_ fleet.ApplicationID, f Frozen) { m.Frozen = append(m.Frozen, f) })
	slices.SortFunc(m.Frozen, func(a, b Frozen) int { return CompareKeys(a.Key, b.Key) })
	l.Terminating.Each(func(_ fleet.ObjectKey, t Terminating) {
		m.Terminating = append(m.Terminating, t)
	})
	slices.SortFunc(m.Terminating, func(a, b Terminating) int { return CompareKeys(a.Key, b.Key) })
	l.Moved.Each(func(k fleet.ObjectKey, namespaces string) {
		m.Moved = append(m.Moved, Moved{Key: k, Namespaces: namespaces})
	})
	slices.SortFunc(m.Moved, func(a, b Moved) int { return CompareKeys(a.Key, b.Key) })
	l.Clones.Each(func(_ Repo, clones []mirror.Clone) { m.Clones = append(m.Clones, clones...) })
	slices.SortFunc(m.Clones, compareClones)
	m.Unreviewed = slices.SortedFunc(maps.Values(unreviewed), func(a, b HeldFile) int {
		return cmp.Compare(a.Input.Path, b.Input.Path)
	})
	m.Deferred = slices.SortedFunc(maps.Values(deferred), func(a, b Deferred) int {
		return CompareDeclarations(a.Input.Key, b.Input.Key)
	})
	return m
}
