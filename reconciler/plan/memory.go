package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// memory is what plans pass on to each other beside declarations, placements, rows, holds: one JSON
// document, as small as what waits. The store keeps it as it is (fleet.Record.Memory,
// fleet.Snapshot.Memory).
type memory struct {
	Held        []held               `json:"held,omitempty"`
	Deployments []*fleet.Declaration `json:"deployments,omitempty"` // of Held
	Leaving     []leaving            `json:"leaving,omitempty"`
	Deferred    []deferred           `json:"deferred,omitempty"`
	Unreviewed  []heldPath           `json:"unreviewed,omitempty"`
	Waiting     *fleet.Hold          `json:"waiting,omitempty"` // the whole of a head revision
	// argosy rebuild has dropped the mirror: see postgres.Reset
	Rebuilt bool `json:"rebuilt,omitempty"`
	// the last plan placed nothing, since an engine was not read
	Blocked bool `json:"blocked,omitempty"`
}

// held is a deletion that waits for an approval.
type held struct {
	Application fleet.ApplicationID `json:"application"`
	Key         fleet.ObjectKey     `json:"key"`
	Revision    fleet.Revision      `json:"revision"`       // that first asked for it
	Base        fleet.Revision      `json:"base,omitempty"` // that was applied before
	Since       time.Time           `json:"since"`          // when that was
	// whose guard holds it; empty: the fleet's
	Scope  fleet.TenantName `json:"scope,omitempty"`
	Reason fleet.HoldReason `json:"reason,omitempty"` // empty: HoldDeletions
	Why    string           `json:"why"`
	// index in memory.Deployments; only in the stored form
	From int `json:"from"`
	// as it last was in force: the Application is still made from it
	Deployment *fleet.Declaration `json:"-"`
}

func (h held) hold() fleet.HoldID {
	return fleet.HoldID{Revision: h.Revision, Reason: cmp.Or(h.Reason, fleet.HoldDeletions),
		Tenant: h.Scope}
}

// leaving is an Application whose row is absent and whose object is not proven gone. It still uses
// its repository.
type leaving struct {
	Application fleet.ApplicationID `json:"application"`
	Key         fleet.ObjectKey     `json:"key"`
	RepoURL     string              `json:"repoURL"`
}

// deferred is a change of the head that may not act yet: what it takes away is still needed by
// Applications that are leaving or held, or by an engine's environments. It is tried again with
// every plan that could let it through.
type deferred struct {
	Input catalog.Input `json:"input"`
	// an environment whose removal holds but for what still stands in it
	Going bool `json:"going,omitempty"`
}

// encode is the stored form, nil when nothing waits. A deployment that several held Applications
// come from is written once.
func (m memory) encode() ([]byte, error) {
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

// timeless is the memory without the times since when something waits.
func (m memory) timeless() memory {
	m.Held = slices.Clone(m.Held)
	for i := range m.Held {
		m.Held[i].Since = time.Time{}
	}
	m.Unreviewed = slices.Clone(m.Unreviewed)
	for i := range m.Unreviewed {
		m.Unreviewed[i].Since = time.Time{}
	}
	if m.Waiting != nil {
		w := *m.Waiting
		w.Since = time.Time{}
		m.Waiting = &w
	}
	return m
}

func readMemory(b []byte) (memory, error) {
	var m memory
	if len(b) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("the planner's memory cannot be read; run argosy rebuild: %w", err)
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

func (m memory) empty() bool {
	return len(m.Held)+len(m.Leaving)+len(m.Deferred)+len(m.Unreviewed) == 0 && m.Waiting == nil &&
		!m.Blocked && !m.Rebuilt
}

func (d *draft) remembered() memory {
	return d.state.remembered(d.deferred, d.enforcement.held, d.blocked, d.waitingNow)
}

func (s *state) remembered(waits map[fleet.Key]deferred, unreviewed map[string]heldPath,
	blocked bool, waiting *fleet.Hold) memory {
	m := memory{Waiting: waiting, Blocked: blocked}
	s.held.each(func(_ fleet.ApplicationID, h held) { m.Held = append(m.Held, h) })
	slices.SortFunc(m.Held, func(a, b held) int { return compareKeys(a.Key, b.Key) })
	s.leaving.each(func(_ fleet.ObjectKey, l leaving) { m.Leaving = append(m.Leaving, l) })
	slices.SortFunc(m.Leaving, func(a, b leaving) int { return compareKeys(a.Key, b.Key) })
	m.Unreviewed = slices.SortedFunc(maps.Values(unreviewed), compareHeldPaths)
	for _, x := range waits {
		m.Deferred = append(m.Deferred, x)
	}
	slices.SortFunc(m.Deferred, func(a, b deferred) int {
		return compareDeclarations(a.Input.Key, b.Input.Key)
	})
	return m
}
