package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// MaxOwn is how many own Applications of one environment are stored. The agent's report counts the
// others too.
const MaxOwn = 5000

// OwnApplication is an Application that the cluster's own users created (AgentAutonomous). Argosy
// shows it and never writes it.
type OwnApplication struct {
	Namespace      string      `json:"namespace"`
	Name           string      `json:"name"`
	UID            string      `json:"uid"`
	Project        string      `json:"project"`
	RepoURL        string      `json:"repoURL"`
	Path           string      `json:"path,omitempty"`
	TargetRevision string      `json:"targetRevision,omitempty"`
	Sync           SyncState   `json:"sync"`
	Health         HealthState `json:"health"`
	SyncedRevision string      `json:"syncedRevision,omitempty"`
	OperationPhase string      `json:"operationPhase,omitempty"`
	OperationID    string      `json:"operationID,omitempty"` // of a sync that Argosy requested
	Message        string      `json:"message,omitempty"`
	Resources      int         `json:"resources"`
	Gone           bool        `json:"gone,omitempty"`
}

// SyncState is Argo CD's comparison of an Application with its source.
type SyncState string

// HealthState is Argo CD's assessment of an Application's resources.
type HealthState string

// Sync and health states, in Argo CD's words. Unknown is also the state before the first report.
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

// ApplyState is the progress of an object on its engine.
type ApplyState string

// Apply states.
const (
	ApplyPending ApplyState = "Pending" // recorded, not yet on the engine
	ApplyApplied ApplyState = "Applied" // the engine's object matches the row
	// refused or unreachable, see Message; the worker tries again
	ApplyFailed   ApplyState = "Failed"
	ApplyConflict ApplyState = "Conflict" // another manager keeps changing a field of ours
	ApplyDeleting ApplyState = "Deleting" // deletion requested, in progress on the engine
	ApplyHeld     ApplyState = "Held"     // a deletion or change waits for an approval
)

// Observation is the latest state of one Application that its engine reported. It is a fact about a
// moment, never a wish.
type Observation struct {
	Key            fleet.ObjectKey
	UID            string
	Sync           SyncState
	Health         HealthState
	SyncedRevision string // of the application's repository
	OperationPhase string // Running, Succeeded, Failed, Error, Terminating or ""
	OperationID    string // the SyncRun that requested it, or ""
	// OperationRevision is the commit that the last operation deployed or tried to, of several
	// sources joined; "": none, or an agent of an earlier version does not report it
	OperationRevision string
	OperationError    string    // at most 1 KiB
	Message           string    // of conditions or health; at most 1 KiB
	Resources         int       // number of managed resources
	Images            Images    // of its workload
	ReconciledAt      time.Time // by Argo CD
	ResourceVersion   string
	// Compared is the hash of the manifest with whose source and destination Argo CD has compared
	// the Application last; "": of an earlier one, or an agent of an earlier version does not
	// report it.
	Compared string
	Deleted  bool // the Application no longer exists on the engine
}

// Ack is a worker's acknowledgement of one handled row.
type Ack struct {
	Key     fleet.ObjectKey
	Seq     int64 // of the handled row; an Ack for an older row changes nothing newer
	State   ApplyState
	Message string // of a failure; at most 1 KiB, never with a secret
	Removed bool   // the object is proven deleted: the row is deleted too
	// of the handled row; "": of an agent of an earlier version, whose sequence numbers alone count
	Hash string
}
