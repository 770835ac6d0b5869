package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// Impact is what recording a revision changed, for the reports on pull requests.
type Impact struct {
	Tenants []fleet.TenantName // whose declarations or objects changed; "" is the platform
	Effects []Effect           // nil: unknown for the merge of a pull request
}

// Effect is the effect of a reviewed plan on one object.
type Effect struct {
	Key         fleet.ObjectKey       `json:"key"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	Deletes     bool                  `json:"deletes,omitempty"`
	Hash        string                `json:"hash,omitempty"` // of the desired manifest
}

// ReviewedDeletion is a deletion that the plan of a merged pull request showed to its reviewers.
type ReviewedDeletion struct {
	Key      fleet.ObjectKey
	Approved bool   // an authorized person approved it beyond the guards
	By       string // approver
	Pull     int
}

// Deletion is the permitted deletion of one Application within the guards' window.
type Deletion struct {
	Key         fleet.ObjectKey       `json:"key"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	Revision    fleet.Revision        `json:"revision"`
	// by a person: the guards do not count it
	Approved bool `json:"approved,omitempty"`
	// by the store's clock; Load returns it, Record ignores it
	At time.Time `json:"at"`
}

// SyncRequest requests a sync of one Application at a revision of its source.
type SyncRequest struct {
	// equal for the same SyncRun and Application: recording it twice has one effect
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
	// Operation exists already, and shows the sync; "": the store makes one
	Operation string `json:"-"`
}

// SyncHold disables the automation of one Application. It ends when the effective targetRevision is
// no longer the one it was accepted with. An Application has at most one.
type SyncHold struct {
	SyncRun        fleet.SyncRunName   `json:"syncRun"`
	Application    fleet.ApplicationID `json:"application"`
	TargetRevision string              `json:"targetRevision"`
}

// SealedBlob is the content of one SOPS-encrypted file in Git.
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

// Summary is the commit of a revision and its numbers, for people. Nothing is decided by it.
type Summary struct {
	Author      string // from the commit; shown, never used for a decision
	Subject     string
	CommittedAt time.Time
	Created     int // number of objects, for people
	Changed     int
	Deleted     int
	HeldBack    int
}

// Record is one revision of the config repo for the store: the difference between the applied state
// (Base) and the new one. Recording it again has no further effect.
type Record struct {
	// applied when the plan was computed; empty: none. If the store has another one: ErrStale
	Base fleet.Revision
	// equal to Base when an applied revision is planned again, e.g. after an approval
	Revision fleet.Revision
	// of the plan; (Revision, PlanHash) identifies a repeated Record
	PlanHash string
	// the revision as a whole is held: only Holds are recorded, and Base stays applied
	RevisionHeld bool

	Summary

	// FetchedAt, CheckedAt and PlannedAt are when the leader first saw the revision at the head of
	// the branch, had read its files, and had the plan. Zero: not known, as of an earlier commit.
	FetchedAt, CheckedAt, PlannedAt time.Time

	Declarations []fleet.Declaration // effective declarations that are new or changed
	Removed      []fleet.Key         // declarations that are no longer in effect
	Sealed       []SealedBlob

	// Problems replaces the problems of every declaration that the record lists (Declarations,
	// Removed, Quarantined, Cleared, Checked), including those of Quarantined.
	Quarantined []fleet.Quarantine // new or changed
	Cleared     []fleet.Key        // no longer quarantined
	Checked     []fleet.Key        // evaluated again without another change
	Problems    []fleet.Problem

	Placements []fleet.Placement // new or changed
	Unplaced   []fleet.SliceID   // that are no longer placed slices

	// changed; an unwanted row is marked for deletion and keeps its manifest. The store sets Seq
	// and Revision
	Rows     []Row
	Held     []fleet.ObjectKey // rows whose deletion or change waits for an approval
	Released []fleet.ObjectKey // rows whose deletion no longer waits

	Impact Impact // kept for the reports on pull requests; zero: no Git host is configured

	Holds     []Hold   // new or changed
	EndedHold []HoldID // approved, or no longer needed
	Deletions []Deletion

	Moves []Move // that begin

	Syncs          []SyncRequest
	SyncHolds      []SyncHold // replaces the hold of the same Application
	EndedSyncHolds []fleet.ApplicationID
	// actions of kind ActionRollback that the plan has taken: those of Syncs have begun, and the
	// others have ended
	Rollbacks []string

	Rollouts []Rollout // that begin, take a step or end
	// manifests that members of Rollouts may return to from now on, and that no row has
	LastGood []RolloutManifest

	// the planner's other state, one JSON document, replaced as a whole; nil: unchanged
	Memory []byte
}

// Empty reports whether only the applied revision changes.
func (r *Record) Empty() bool {
	return len(r.Declarations)+len(r.Removed)+len(r.Sealed)+len(r.Quarantined)+len(r.Cleared)+
		len(r.Checked)+len(r.Problems)+
		len(r.Placements)+len(r.Unplaced)+len(r.Rows)+len(r.Held)+len(r.Released)+len(r.Holds)+
		len(r.EndedHold)+len(r.Deletions)+
		len(r.Moves)+
		len(r.Syncs)+len(r.SyncHolds)+len(r.EndedSyncHolds)+len(r.Rollbacks)+
		len(r.Rollouts)+len(r.Memory) == 0
}

// Indexed is a row without its body, for the planner.
type Indexed struct {
	Key         fleet.ObjectKey
	Hash        string
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Deployment  fleet.DeploymentName
	Credential  *fleet.CredentialSource
	Deletion    fleet.DeletionPolicy
	Unwanted    bool // marked for deletion, not yet acknowledged
	Held        bool // its deletion waits for an approval
	Seq         int64
}

// Snapshot is the mirror at one moment: everything that a replica needs to continue after a
// restart.
type Snapshot struct {
	Applied      fleet.Revision // empty: nothing was recorded yet
	Seq          int64
	Declarations []fleet.Declaration // effective
	Quarantines  []fleet.Quarantine
	Placements   []fleet.Placement
	Objects      []Indexed
	Holds        []Hold // including approved ones
	Approvals    []Approval
	SyncHolds    []SyncHold
	Rollouts     []Rollout  // that have not ended
	Deletions    []Deletion // of the last 168 hours, the widest window of the guards
	Memory       []byte     // the last Record.Memory that was not nil
}

// EngineReport is the state of one engine as the worker with its lease reports it.
type EngineReport struct {
	Engine    fleet.EngineName
	Reachable bool
	Message   string // reason or warning; at most 1 KiB, never with a secret
	Unfit     string // why a reachable engine refuses writes; "": it does not, or is not reachable
	ArgoCD    string // version, if known; an empty one keeps the known one
	Work      Work   // whether a reachable engine works; zero: unknown
	Load      *Load  // measured; nil: nothing is, or not yet
}

// Recent is the history that the deletion guards evaluate, and the engines' Argo CDs.
type Recent struct {
	Now     time.Time // by the store's clock
	Deleted []Deletion
	ArgoCD  map[fleet.EngineName]string // versions, as far as they are known
}

// Clone is the clone of a repository that a tenant left on an engine: the tenant read it with a
// credential of its own, and no longer does. Argo CD has no limit for its age.
type Clone struct {
	Engine     fleet.EngineName `json:"engine"`
	Repository string           `json:"repository"` // as fleet.NormalizeRepoURL returns it
	Tenant     fleet.TenantName `json:"tenant"`
	// Removed is set once the tenant is removed: a later tenant of the name is another one.
	Removed bool `json:"removed,omitempty"`
	// Since is the time from which the tenant has not read it with a credential, and Argo CD has
	// not had the Secret of the credential.
	Since  time.Time `json:"since"`
	Secret string    `json:"secret,omitempty"` // the object's name; "": none was written
}
