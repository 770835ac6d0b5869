package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// Impact is what recording a revision changed, for the reports on pull requests.
type Impact struct {
	Tenants []fleet.TenantName // whose declarations or objects changed; "" is the platform
	Effects []Effect           // nil: they say nothing about the merge of a pull request
}

// Effect is what a reviewed plan does to one object.
type Effect struct {
	Key         fleet.ObjectKey       `json:"key"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	Deletes     bool                  `json:"deletes,omitempty"`
	Hash        string                `json:"hash,omitempty"` // of the manifest that it is to have
}

// ReviewedDeletion is a deletion that the reviewers of a merged pull request saw.
type ReviewedDeletion struct {
	Key      fleet.ObjectKey
	Approved bool   // somebody who may has approved it beyond the guards
	By       string // who
	Pull     int
}

// Deletion is one Application that was allowed to go, for the guards' window.
type Deletion struct {
	Key         fleet.ObjectKey       `json:"key"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	Revision    fleet.Revision        `json:"revision"`
	// by a person: it does not count against the guards
	Approved bool `json:"approved,omitempty"`
	// by the store's clock; given back by Load, not read by Record
	At time.Time `json:"at"`
}

// SyncRequest asks for one Application to be synced at a revision of its source.
type SyncRequest struct {
	// the same for the same SyncRun and Application: recording it twice is recording it once
	ID          string                `json:"id"`
	Key         fleet.ObjectKey       `json:"key"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	SyncRun     fleet.SyncRunName     `json:"syncRun"`
	// of an autonomous cluster's own Application (OwnApplication), which has no Deployment and no
	// SyncRun
	Namespace string         `json:"namespace,omitempty"`
	Revision  string         `json:"revision"` // of the application's repository
	Prune     bool           `json:"prune,omitempty"`
	State     OperationState `json:"state"` // Pending when it is new
	Message   string         `json:"message,omitempty"`
}

// SyncHold keeps the automation of one Application off. It ends when the effective targetRevision
// is no longer the one that it was accepted with. At most one stands per Application.
type SyncHold struct {
	SyncRun        fleet.SyncRunName   `json:"syncRun"`
	Application    fleet.ApplicationID `json:"application"`
	TargetRevision string              `json:"targetRevision"`
}

// SealedBlob is the ciphertext of one *.sops.yaml, as it stands in Git.
type SealedBlob struct {
	Tenant fleet.TenantName
	Blob   string // git blob id
	Bytes  []byte
}

// HoldID is the identity of a Hold.
type HoldID struct {
	Revision fleet.Revision
	Reason   HoldReason
	Tenant   fleet.TenantName
}

// Record is one revision of the config repo as the store is to take it: the difference between what
// stands (Base) and what is to stand. It has one effect however often it is recorded.
type Record struct {
	// applied when the plan was computed; empty: nothing was. Another one in the store is ErrStale
	Base fleet.Revision
	// the same as Base when a standing revision is planned anew, e.g. after an approval
	Revision fleet.Revision
	// of the plan; (Revision, PlanHash) is the key under which a repeated Record is recognised
	PlanHash string
	// the revision as a whole waits: only Holds are recorded, and Base stays applied
	Withheld bool

	Author      string // as the commit says; shown, never used to decide
	Subject     string
	CommittedAt time.Time
	Created     int // objects, for people
	Changed     int
	Deleted     int
	HeldBack    int

	Declarations []fleet.Declaration // effective ones that are new or changed
	Removed      []fleet.Key         // that are no longer in effect
	Sealed       []SealedBlob

	// The problems of every declaration that the record names (Declarations, Removed, Quarantined,
	// Cleared, Checked) are replaced by those in Problems, which hold those of Quarantined too.
	Quarantined []fleet.Quarantine // new or changed
	Cleared     []fleet.Key        // no longer quarantined
	Checked     []fleet.Key        // judged again without another change
	Problems    []fleet.Problem

	Placements []fleet.Placement // new or changed
	Unplaced   []fleet.EnvironmentID

	// changed; with Unwanted set, the row is marked for removal and keeps its manifest. Seq and
	// Revision are the store's
	Rows     []Row
	Held     []fleet.ObjectKey // rows that stay because their removal waits for an approval
	Released []fleet.ObjectKey // rows that no longer do

	Impact Impact // kept for the reports on pull requests; zero: no Git host is configured

	Holds     []Hold   // new or changed
	EndedHold []HoldID // approved, or no longer needed
	Deletions []Deletion

	Syncs          []SyncRequest
	SyncHolds      []SyncHold // replaces the one of the same Application
	EndedSyncHolds []fleet.ApplicationID

	// what the planner has to remember beside all this, one JSON document, replaced as a whole;
	// nil: as it was
	Memory []byte
}

// Empty reports whether nothing changes but the applied revision.
func (r *Record) Empty() bool {
	return len(r.Declarations)+len(r.Removed)+len(r.Sealed)+len(r.Quarantined)+len(r.Cleared)+
		len(r.Checked)+len(r.Problems)+
		len(r.Placements)+len(r.Unplaced)+len(r.Rows)+len(r.Held)+len(r.Released)+len(r.Holds)+
		len(r.EndedHold)+len(r.Deletions)+
		len(r.Syncs)+len(r.SyncHolds)+len(r.EndedSyncHolds)+len(r.Memory) == 0
}

// Indexed is what the planner keeps of one row: all but its body.
type Indexed struct {
	Key         fleet.ObjectKey
	Hash        string
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Deployment  fleet.DeploymentName
	Credential  *fleet.CredentialSource
	Deletion    fleet.DeletionPolicy
	Unwanted    bool // marked for removal, not yet acknowledged
	Held        bool // its removal waits for an approval
	Seq         int64
}

// Snapshot is the mirror at one moment, all that a start needs to go on from where the last one
// ended.
type Snapshot struct {
	Applied      fleet.Revision // empty: nothing was recorded yet
	Seq          int64
	Declarations []fleet.Declaration // effective
	Quarantines  []fleet.Quarantine
	Placements   []fleet.Placement
	Objects      []Indexed
	Holds        []Hold // those with an approval too
	Approvals    []Approval
	SyncHolds    []SyncHold
	Deletions    []Deletion // of the last 168 hours, the widest window that guards may have
	Memory       []byte     // the last Record.Memory that was not nil
}

// EngineReport is how one engine stands, as the worker that holds its lease says.
type EngineReport struct {
	Engine    fleet.EngineName
	Reachable bool
	Message   string // why not, or what is wrong with it; capped at 1 KiB, never with a secret
	ArgoCD    string // version, when known; an empty one keeps what was known
}

// Recent is what the deletion guards look back on.
type Recent struct {
	Now     time.Time // by the store's clock
	Deleted []Deletion
}
