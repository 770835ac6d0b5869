package report

import (
	"fmt"

	"argosy.dev/argosy/fleet"
)

// Action is the change of a row.
type Action string

// Actions. A Create or Update is written even if the stored row has the same hash: the stored row
// may be unwanted, or differ in its deletion policy or in the source of its credential.
const (
	Create Action = "create"
	Update Action = "update"
	// the row becomes unwanted, and is removed when its object is proven deleted
	Delete Action = "delete"
	Hold   Action = "hold" // the deletion waits for an approval; the row stays as it is
	// the row becomes unwanted, and is removed when the Application is on its new engine
	Depart Action = "move"
	Freeze Action = "freeze" // a creation or update that waits for the end of a freeze
	Wave   Action = "wave"   // a creation or update that waits for its wave of a rollout
)

// Counts sums up the changes of a plan.
type Counts struct {
	Created int `json:"created"` // Applications, like the next three
	Changed int `json:"changed"`
	Deleted int `json:"deleted"`
	Held    int `json:"held"`             // deletions, new in this plan
	Frozen  int `json:"frozen,omitempty"` // creations and changes that wait, new in this plan
	Waves   int `json:"waves,omitempty"`  // creations and changes that go in waves, new
	Rows    int `json:"rows"`             // written, of every kind
	Placed  int `json:"placed"`           // environments that got an engine
	Moved   int `json:"moved,omitempty"`  // Applications that leave their engine
}

// Summary returns the changes of Applications as one sentence.
func (c Counts) Summary() string {
	s := fmt.Sprintf("Applications: %d to create, %d to change, %d to delete", c.Created, c.Changed,
		c.Deleted)
	if c.Held > 0 {
		s += fmt.Sprintf(", %d held", c.Held)
	}
	if c.Frozen > 0 {
		s += fmt.Sprintf(", %d held by a freeze", c.Frozen)
	}
	if c.Waves > 0 {
		s += fmt.Sprintf(", %d in waves", c.Waves)
	}
	if c.Moved > 0 {
		s += fmt.Sprintf(", %d to move", c.Moved)
	}
	return s
}

// Counts sums up the tenant's changes on this engine; Placed stays 0.
func (e Engine) Counts() Counts {
	var c Counts
	for _, change := range e.Changes {
		c.Add(change.Action, change.Kind)
	}
	return c
}

// Add counts one change.
func (c *Counts) Add(a Action, k fleet.ObjectKind) {
	if a != Hold && a != Freeze && a != Wave {
		c.Rows++
	}
	if k != fleet.ObjectApplication {
		return
	}
	switch a {
	case Create:
		c.Created++
	case Update:
		c.Changed++
	case Delete:
		c.Deleted++
	case Hold:
		c.Held++
	case Depart:
		c.Moved++
	case Freeze:
		c.Frozen++
	case Wave:
		c.Waves++
	}
}

// Sum adds the counts of another part of the plan; Placed stays.
func (c *Counts) Sum(other Counts) {
	c.Created += other.Created
	c.Changed += other.Changed
	c.Deleted += other.Deleted
	c.Held += other.Held
	c.Moved += other.Moved
	c.Frozen += other.Frozen
	c.Waves += other.Waves
	c.Rows += other.Rows
}

// Counts sums up the tenant's changes. Placed stays 0: see Placements.
func (t Tenant) Counts() Counts {
	var c Counts
	for _, e := range t.Engines {
		c.Sum(e.Counts())
	}
	return c
}
