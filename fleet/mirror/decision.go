package mirror

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// OwnerRelease accepts the account or team that now has a name as its owner.
type OwnerRelease struct {
	Name string `json:"name" minLength:"1" maxLength:"300" doc:"as it is listed: alice, or acme/leads"`
	ID   int64  `json:"id" minimum:"1" doc:"of exactly the account or team that was looked at; another one stays without a say"`
	By   string `json:"-"`
	Note string `json:"note,omitempty" maxLength:"1024"`
}

// DeletionBlockedAfter is how long a cluster is unreachable before the deletion of an Application
// on it counts as blocked. From then on the platform or the tenant may orphan it: the Application
// is deleted and its workload keeps running.
const DeletionBlockedAfter = time.Hour

// Orphaning is the decision to delete an Application, whose deletion is blocked, without its
// cluster. Only the Application with this UID is deleted.
type Orphaning struct {
	Application fleet.ApplicationID
	UID         string
	By          string
	Note        string
}

// ErrNotBlocked means that the deletion of an Application is not blocked.
var ErrNotBlocked = errors.New("its deletion is not blocked")

// ID is the hold's identity.
func (h Hold) ID() HoldID { return HoldID{h.Revision, h.Reason, h.Tenant} }

// StopScope is the scope of an emergency stop.
type StopScope string

// Scopes of a stop.
const (
	StopFleet  StopScope = "fleet"
	StopTenant StopScope = "tenant"
	StopEngine StopScope = "engine"
)

// Stop forbids every write to engines within its scope until it is ended. It survives restarts and
// a restored database: only a later StopEnd of the same scope and name ends it, never its absence.
type Stop struct {
	Scope  StopScope `json:"scope"`
	Name   string    `json:"name,omitempty"` // tenant or engine; empty for the fleet
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Covers reports whether the stop forbids writes to a tenant's objects on an engine.
func (s Stop) Covers(t fleet.TenantName, e fleet.EngineName) bool {
	switch s.Scope {
	case StopFleet:
		return true
	case StopTenant:
		return s.Name == string(t)
	case StopEngine:
		return s.Name == string(e)
	}
	return false
}

// StopEnd is the latest end of the stops of one scope and name.
type StopEnd struct {
	Scope StopScope `json:"scope"`
	Name  string    `json:"name,omitempty"`
	By    string    `json:"by,omitempty"`
	At    time.Time `json:"at"`
}

// StopRecords are the active emergency stops and the ends of earlier ones.
type StopRecords struct {
	Stops []Stop    // the fleet's first
	Ends  []StopEnd // one for each scope and name that was ever resumed

	// Unended is true for records of a control plane that does not report ends. A stop that is no
	// longer listed has ended.
	Unended bool
}

// HoldReason is why a change waits for an approval.
type HoldReason string

// Reasons of holds.
const (
	HoldDeletions HoldReason = "deletions" // more deletions than the guards allow
	HoldEmpty     HoldReason = "empty"     // the revision holds no declaration at all
	HoldOlder     HoldReason = "older"     // the branch went back to an older commit
	HoldRewritten HoldReason = "rewritten" // the branch's history was rewritten
	// HoldUnreviewed holds files and deletions that no known reviewed pull request has shown. The
	// hold also ends when a reviewed pull request turns out to have shown them.
	HoldUnreviewed HoldReason = "unreviewed"
	// HoldFrozen holds Applications that are created, changed or deleted during a freeze. The hold
	// also ends when the freeze does.
	HoldFrozen HoldReason = "frozen"
)

// Hold is a change that waits for `argosy release REV`. An approval is bound to the revision and
// releases only the listed items.
type Hold struct {
	Revision fleet.Revision   `json:"revision"`
	Reason   HoldReason       `json:"reason"`
	Tenant   fleet.TenantName `json:"tenant,omitempty"` // empty: fleet-wide
	// of HoldDeletions, HoldUnreviewed and HoldFrozen: the Applications, exactly
	Items []fleet.ObjectKey `json:"items,omitempty"`
	// of HoldUnreviewed: the files, each held at its applied version
	Paths   []string  `json:"paths,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// Approval releases the holds of one revision.
type Approval struct {
	Revision fleet.Revision `json:"revision"`
	// whose owner releases what the tenant's own freezes hold, and nothing else; empty: the
	// platform releases everything
	Tenant fleet.TenantName `json:"tenant,omitempty"`
	By     string           `json:"by"`
	At     time.Time        `json:"at"`
	Note   string           `json:"note,omitempty"`
}
