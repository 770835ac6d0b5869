package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// OperationKind is the kind of an Operation.
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
	OperationMove         OperationKind = "Move" // of an environment to another engine
	OperationEvacuate     OperationKind = "Evacuate"
	OperationFence        OperationKind = "Fence" // of an engine
	OperationForget       OperationKind = "Forget"
	OperationResolve      OperationKind = "ResolveUnproven"
	OperationRestart      OperationKind = "Restart" // of a component of an engine
	OperationRefresh      OperationKind = "Refresh" // of an Application
	OperationTerminate    OperationKind = "Terminate"
	OperationRollback     OperationKind = "Rollback"
	// of an Application's workloads
	OperationRestartWorkloads OperationKind = "RestartWorkloads"
)

// OperationState is the state of an Operation.
type OperationState string

// States of operations.
const (
	OperationPending   OperationState = "Pending"
	OperationRunning   OperationState = "Running"
	OperationSucceeded OperationState = "Succeeded"
	OperationFailed    OperationState = "Failed"
	OperationHeld      OperationState = "Held"
)

// Ended reports whether the operation is over.
func (s OperationState) Ended() bool { return s == OperationSucceeded || s == OperationFailed }

// OfEngine reports whether an engine may report the state, of a sync or an action.
func (s OperationState) OfEngine() bool {
	return s == OperationPending || s == OperationRunning || s.Ended()
}

// Operation is the record for people: who requested it, revision, engine, progress and result. It
// is history, never the truth.
type Operation struct {
	ID     string           `json:"id"` // sortable by time
	Kind   OperationKind    `json:"kind"`
	State  OperationState   `json:"state"`
	Tenant fleet.TenantName `json:"tenant,omitempty"`
	Engine fleet.EngineName `json:"engine,omitempty"`
	// e.g. "acme/checkout@prod-eu", "revision 4f1c9e2a"
	Subject     string         `json:"subject"`
	Revision    fleet.Revision `json:"revision,omitempty"`
	RequestedBy string         `json:"requestedBy"` // "git:<author>", "token:<name>", "argosy"
	Message     string         `json:"message,omitempty"`
	Done        int            `json:"done"`
	Total       int            `json:"total"`
	StartedAt   time.Time      `json:"startedAt"`
	EndedAt     *time.Time     `json:"endedAt,omitempty"`
}
