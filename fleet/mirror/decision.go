package mirror

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// OwnerRelease is the decision that whoever has a name now counts from now on.
type OwnerRelease struct {
	Name string `json:"name" minLength:"1" maxLength:"300" doc:"as it is listed: alice, or acme/leads"`
	ID   int64  `json:"id" minimum:"1" doc:"of exactly the account or team that was looked at; another one stays without a say"`
	By   string `json:"-"`
	Note string `json:"note,omitempty" maxLength:"1024"`
}

// DeletionBlockedAfter is how long a cluster has been unreachable when the deletion of an
// Application there counts as blocked. From then on the platform or the tenant may orphan it: the
// Application is removed and its workload is left running.
const DeletionBlockedAfter = time.Hour

// Orphaning decides that an Application whose deletion is blocked is removed without its cluster.
// UID is that of the Application that was looked at: another one of its name stays.
type Orphaning struct {
	Application fleet.ApplicationID
	UID         string
	By          string
	Note        string
}

// ErrNotBlocked says that the deletion of an Application is not blocked.
var ErrNotBlocked = errors.New("its deletion is not blocked")

// ID is the hold's identity.
func (h Hold) ID() HoldID { return HoldID{h.Revision, h.Reason, h.Tenant} }

// StopScope says what an emergency stop covers.
type StopScope string

// Scopes of a stop.
const (
	StopFleet  StopScope = "fleet"
	StopTenant StopScope = "tenant"
	StopEngine StopScope = "engine"
)

// Stop forbids every write to engines within its scope until it is resumed. It survives restarts,
// and a database that goes back in time: it is over when there is a StopEnd of its place that is
// not before it, and never because it is missing.
type Stop struct {
	Scope  StopScope `json:"scope"`
	Name   string    `json:"name,omitempty"` // tenant or engine; empty for the fleet
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// StopEnd is the latest end of the stops of a place.
type StopEnd struct {
	Scope StopScope `json:"scope"`
	Name  string    `json:"name,omitempty"`
	By    string    `json:"by,omitempty"`
	At    time.Time `json:"at"`
}

// StopRecords are the emergency stops that are in force, and how those that are not have ended.
type StopRecords struct {
	Stops []Stop    // the fleet's first
	Ends  []StopEnd // one for each place that ever was resumed

	// Unended: they are of a hub that does not tell ends. A stop that it no longer lists has ended.
	Unended bool
}

// HoldReason says why something waits for an approval.
type HoldReason string

// Reasons of holds.
const (
	HoldDeletions HoldReason = "deletions" // more deletions than the guards allow
	HoldEmpty     HoldReason = "empty"     // the revision holds no declaration at all
	HoldOlder     HoldReason = "older"     // the branch went back to an older commit
	HoldRewritten HoldReason = "rewritten" // the branch's history was rewritten
	// HoldUnreviewed is of files and deletions that no reviewed pull request is known to have
	// shown. It also ends when one turns out to have.
	HoldUnreviewed HoldReason = "unreviewed"
)

// Hold is a change that waits for `argosy release REV`. An approval is bound to the revision and
// releases what is listed, no more.
type Hold struct {
	Revision fleet.Revision   `json:"revision"`
	Reason   HoldReason       `json:"reason"`
	Tenant   fleet.TenantName `json:"tenant,omitempty"` // empty: fleet-wide
	// of HoldDeletions and HoldUnreviewed: the Applications, exactly
	Items []fleet.ObjectKey `json:"items,omitempty"`
	// of HoldUnreviewed: the files, each as it was applied before
	Paths   []string  `json:"paths,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// Approval releases the holds of one revision.
type Approval struct {
	Revision fleet.Revision `json:"revision"`
	By       string         `json:"by"`
	At       time.Time      `json:"at"`
	Note     string         `json:"note,omitempty"`
}
