package fleet

import "time"

// SyncState is Argo CD's comparison of an Application with its source.
type SyncState string

// HealthState is Argo CD's assessment of an Application's resources.
type HealthState string

// Sync and health states, in Argo CD's words. Unknown is also what holds before the first report.
const (
	SyncSynced    SyncState = "Synced"
	SyncOutOfSync SyncState = "OutOfSync"
	SyncUnknown   SyncState = "Unknown"

	HealthHealthy     HealthState = "Healthy"
	HealthProgressing HealthState = "Progressing"
	HealthDegraded    HealthState = "Degraded"
	HealthSuspended   HealthState = "Suspended"
	HealthMissing     HealthState = "Missing"
	HealthUnknown     HealthState = "Unknown"
)

// ApplyState is how far an object has come on its engine.
type ApplyState string

// Apply states.
const (
	ApplyPending ApplyState = "Pending" // recorded, not yet on the engine
	ApplyApplied ApplyState = "Applied" // the engine has what the mirror wants
	// refused or unreachable; Message says why; it is tried again
	ApplyFailed   ApplyState = "Failed"
	ApplyConflict ApplyState = "Conflict" // another manager keeps changing a field of ours
	ApplyDeleting ApplyState = "Deleting" // deletion asked for, the engine is at it
	ApplyHeld     ApplyState = "Held"     // a deletion waits for an approval
)

// Observation is what an engine last said of one Application. It is a fact about a moment, never a
// wish.
type Observation struct {
	Key             ObjectKey
	UID             string
	Sync            SyncState
	Health          HealthState
	SyncedRevision  string    // of the application's repository
	OperationPhase  string    // Running, Succeeded, Failed, Error, Terminating or ""
	OperationID     string    // the SyncRun that asked for it, or ""
	OperationError  string    // capped at 1 KiB
	Message         string    // of conditions or health; capped at 1 KiB
	Resources       int       // managed resources
	ReconciledAt    time.Time // by Argo CD
	ResourceVersion string
	Deleted         bool // the Application no longer exists on the engine
}

// Ack is what a worker says of one row that it has handled.
type Ack struct {
	Key     ObjectKey
	Seq     int64 // of the row as it was handled; an Ack for an older row changes nothing newer
	State   ApplyState
	Message string // of a failure; capped at 1 KiB, never with a secret
	Removed bool   // the object is proven gone: the row goes too
	// of the row as it was handled; "": of an agent of an earlier version, whose numbers alone
	// count
	Hash string
}

// Lease is the right to act on one engine (or to record revisions), for a while. Every write
// carries its Epoch; the database refuses a lower one and the object shows it.
type Lease struct {
	Name    string // "engine/<name>" or "reconciler"
	Holder  string
	Epoch   int64
	Expires time.Time
	Report  int64 // of an agent, that a write under the lease is a part of; 0: of none
	// incarnation of the database that gave it, which may be restored or fail over; empty: not
	// known
	Life string
}

// ReplicaBeat is what a replica says of its workers.
type ReplicaBeat struct {
	Replica   string   // as Lease.Holder
	Preparing int      // its sessions that have begun and do not write yet
	Leases    []string // whose holders it asks for
}

// ReplicaView is which replicas work, and who holds what.
type ReplicaView struct {
	Preparing map[string]int    // by replica whose workers run
	Holders   map[string]string // by lease; without those that nobody holds
}

// MirrorState is where the mirror stands.
type MirrorState struct {
	Life      string // see Lease
	Applied   Revision
	Plan      string // hash of the plan that was recorded last
	Seq       int64  // the newest row's number
	Wanted    int64  // the latest confirmation that a worker asked for
	Confirmed int64  // the latest that the loop gave
}

// OperationKind says what an Operation does.
type OperationKind string

// Kinds of operations.
const (
	OperationReconcile    OperationKind = "Reconcile" // a revision of the config repo was recorded
	OperationSync         OperationKind = "Sync"      // a SyncRun on one Application
	OperationApprove      OperationKind = "Approve"
	OperationStop         OperationKind = "Stop"
	OperationRemoveOrphan OperationKind = "RemoveStray"
	OperationAbandon      OperationKind = "Orphan"
	OperationReleaseOwner OperationKind = "ReleaseOwner"
	OperationResume       OperationKind = "Resume"
	OperationRebuild      OperationKind = "Rebuild"
)

// OperationState is how an Operation stands.
type OperationState string

// States of operations.
const (
	OperationPending   OperationState = "Pending"
	OperationRunning   OperationState = "Running"
	OperationSucceeded OperationState = "Succeeded"
	OperationFailed    OperationState = "Failed"
	OperationHeld      OperationState = "Held"
)

// Operation is the record that people read: who asked, which revision, which engine, how far, how
// it ended. It is kept, never the truth.
type Operation struct {
	ID          string         `json:"id"` // sortable by time
	Kind        OperationKind  `json:"kind"`
	State       OperationState `json:"state"`
	Tenant      TenantName     `json:"tenant,omitempty"`
	Engine      EngineName     `json:"engine,omitempty"`
	Subject     string         `json:"subject"` // e.g. "acme/checkout@prod-eu", "revision 4f1c9e2a"
	Revision    Revision       `json:"revision,omitempty"`
	RequestedBy string         `json:"requestedBy"` // "git:<author>", "token:<name>", "argosy"
	Message     string         `json:"message,omitempty"`
	Done        int            `json:"done"`
	Total       int            `json:"total"`
	StartedAt   time.Time      `json:"startedAt"`
	EndedAt     *time.Time     `json:"endedAt,omitempty"`
}

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

// Hold is a change that waits for `argosy approve REV`. An approval is bound to the revision and
// releases what is listed, no more.
type Hold struct {
	Revision Revision   `json:"revision"`
	Reason   HoldReason `json:"reason"`
	Tenant   TenantName `json:"tenant,omitempty"` // empty: fleet-wide
	// of HoldDeletions and HoldUnreviewed: the Applications, exactly
	Items []ObjectKey `json:"items,omitempty"`
	// of HoldUnreviewed: the files, each as it was applied before
	Paths   []string  `json:"paths,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// Approval releases the holds of one revision.
type Approval struct {
	Revision Revision  `json:"revision"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Note     string    `json:"note,omitempty"`
}
