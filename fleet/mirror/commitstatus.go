package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// CommitState is how the commit of an Application is deployed. A commit only goes forward through
// the states, so that it causes at most five reports; but one that is deployed again after its end
// begins again.
type CommitState string

// States of a commit.
const (
	CommitQueued     CommitState = "Queued"     // Argo CD knows the commit, and waits for a sync
	CommitInProgress CommitState = "InProgress" // it is being synced, or not Healthy yet
	CommitFailed     CommitState = "Failed"
	CommitSucceeded  CommitState = "Succeeded"
	CommitEnded      CommitState = "Ended" // another commit replaced it, or the Application is gone
)

// CommitStatus is what is reported of one commit of an Application on the Git host of its
// repository, and how far the report has come.
type CommitStatus struct {
	Tenant      fleet.TenantName      `json:"tenant"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	Environment fleet.EnvironmentName `json:"environment"`
	Repository  string                `json:"repository"` // as the deployment declares it
	Settings    string                `json:"settings"`   // name of the fleet.CommitStatuses
	Commit      string                `json:"commit"`
	State       CommitState           `json:"state" enum:"Queued,InProgress,Failed,Succeeded,Ended"`
	// of a commit that has ended: its state before, and the commit that replaced it; "": the
	// Application is gone, or is deployed from another repository
	Was        CommitState `json:"was,omitempty"`
	ReplacedBy string      `json:"replacedBy,omitempty"`
	Message    string      `json:"message,omitempty"` // as Argo CD has it; untrusted
	BegunAt    time.Time   `json:"begunAt"`           // when the commit was first seen
	ChangedAt  time.Time   `json:"changedAt"`

	Delivery NotificationState `json:"delivery" enum:"Pending,Sending,Sent,Failed,Dropped"`
	Attempts int               `json:"attempts"`
	Answer   string            `json:"answer,omitempty"` // of the Git host, or why it failed
	SentAt   *time.Time        `json:"sentAt,omitempty"`
}

// Of is the Application.
func (c CommitStatus) Of() fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: c.Tenant, Deployment: c.Deployment,
		Environment: c.Environment}
}

// CommitFacts is what decides about the commit statuses of one tenant, read in one transaction.
type CommitFacts struct {
	Applications []CommitApplication
	// those that were reported and have not ended
	Known []CommitStatus
	// object names of Applications that are proven gone, recently
	Gone []string
}

// CommitApplication is the state of one Application, by its row that is wanted, if there is one.
type CommitApplication struct {
	ID     fleet.ApplicationID
	Absent bool // the row wants its deletion
	// URLs of the row's sources, in order; "" for a source that is no Git repository
	Repositories []string
	// Current is whether Argo CD has compared the Application as the row declares it
	Current bool
	// Unknown is whether its engine is silent or its environment unreachable: its state is an old
	// one
	Unknown bool
	Sync    SyncState
	Health  HealthState
	// commits that Argo CD compares with, one for each source, joined
	Synced string
	// phase and commits of the last operation
	Phase, Operation string
	Message          string
}

// CommitStep is what the leader records of a decision, in one transaction.
type CommitStep struct{ Put []CommitStatus }

// CommitReport is one report that is due.
type CommitReport struct {
	CommitStatus
	Version int64 // of the state: the report settles this version alone
	// First is whether no report of the commit was ever tried
	First bool
	// Superseded is whether the Application has a later commit
	Superseded bool
}
