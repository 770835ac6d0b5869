package fleet

import (
	"errors"
	"time"
)

// Errors of the store that a caller tells apart with errors.Is.
var (
	// ErrFenced says that the lease under which something was to be written has run out or passed
	// on. The work is dropped.
	ErrFenced = errors.New("the lease has run out or passed to another holder")
	// ErrStale says that the state that a Record was computed from is no longer the one that
	// stands. Load anew and plan again.
	ErrStale = errors.New("the mirror has moved on since it was read")
	// ErrTooManySyncs says that as many syncs of one cluster's own Applications wait as may.
	ErrTooManySyncs = errors.New("too many syncs of this cluster's own applications are waiting")
)

// Quarantine is a file at the head that may not act: its declaration is held at its last good
// state, if it has one.
type Quarantine struct {
	Key  Key    `json:"key"`
	Path string `json:"path"`
	Blob string `json:"blob"`
	// what the file says, to be judged again when what it needs comes; nil when it did not decode
	// or was removed
	Declaration *Declaration `json:"declaration,omitempty"`
	Problems    []Problem    `json:"problems"`
	HasLastGood bool         `json:"hasLastGood"`
	// the file is gone, but what it declared may not go yet
	Removed bool `json:"removed,omitempty"`
}

// Deletion is one Application that was allowed to go, for the guards' window.
type Deletion struct {
	Key         ObjectKey       `json:"key"`
	Tenant      TenantName      `json:"tenant"`
	Environment EnvironmentName `json:"environment"`
	Deployment  DeploymentName  `json:"deployment"`
	Revision    Revision        `json:"revision"`
	// by a person: it does not count against the guards
	Approved bool `json:"approved,omitempty"`
	// by the store's clock; given back by Load, not read by Record
	At time.Time `json:"at"`
}

// SyncRequest asks for one Application to be synced at a revision of its source.
type SyncRequest struct {
	// the same for the same SyncRun and Application: recording it twice is recording it once
	ID          string          `json:"id"`
	Key         ObjectKey       `json:"key"`
	Tenant      TenantName      `json:"tenant"`
	Environment EnvironmentName `json:"environment"`
	Deployment  DeploymentName  `json:"deployment"`
	SyncRun     SyncRunName     `json:"syncRun"`
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
	SyncRun        SyncRunName   `json:"syncRun"`
	Application    ApplicationID `json:"application"`
	TargetRevision string        `json:"targetRevision"`
}

// SealedBlob is the ciphertext of one *.sops.yaml, as it stands in Git.
type SealedBlob struct {
	Tenant TenantName
	Blob   string // git blob id
	Bytes  []byte
}

// HoldID is the identity of a Hold.
type HoldID struct {
	Revision Revision
	Reason   HoldReason
	Tenant   TenantName
}

// ID is the hold's identity.
func (h Hold) ID() HoldID { return HoldID{h.Revision, h.Reason, h.Tenant} }

// Record is one revision of the config repo as the store is to take it: the difference between what
// stands (Base) and what is to stand. It has one effect however often it is recorded.
type Record struct {
	// applied when the plan was computed; empty: nothing was. Another one in the store is ErrStale
	Base Revision
	// the same as Base when a standing revision is planned anew, e.g. after an approval
	Revision Revision
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

	Declarations []Declaration // effective ones that are new or changed
	Removed      []Key         // that are no longer in effect
	Sealed       []SealedBlob

	// The problems of every declaration that the record names (Declarations, Removed, Quarantined,
	// Cleared, Checked) are replaced by those in Problems, which hold those of Quarantined too.
	Quarantined []Quarantine // new or changed
	Cleared     []Key        // no longer quarantined
	Checked     []Key        // judged again without another change
	Problems    []Problem

	Placements []Placement // new or changed
	Unplaced   []EnvironmentID

	// changed; with Unwanted set, the row is marked for removal and keeps its manifest. Seq and
	// Revision are the store's
	Rows     []Row
	Held     []ObjectKey // rows that stay because their removal waits for an approval
	Released []ObjectKey // rows that no longer do

	Holds     []Hold   // new or changed
	EndedHold []HoldID // approved, or no longer needed
	Deletions []Deletion

	Syncs          []SyncRequest
	SyncHolds      []SyncHold // replaces the one of the same Application
	EndedSyncHolds []ApplicationID

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
	Key         ObjectKey
	Hash        string
	Tenant      TenantName
	Environment EnvironmentName
	Deployment  DeploymentName
	Credential  *CredentialSource
	Deletion    DeletionPolicy
	Unwanted    bool // marked for removal, not yet acknowledged
	Held        bool // its removal waits for an approval
	Seq         int64
}

// Snapshot is the mirror at one moment, all that a start needs to go on from where the last one
// ended.
type Snapshot struct {
	Applied      Revision // empty: nothing was recorded yet
	Seq          int64
	Declarations []Declaration // effective
	Quarantines  []Quarantine
	Placements   []Placement
	Objects      []Indexed
	Holds        []Hold // those with an approval too
	Approvals    []Approval
	SyncHolds    []SyncHold
	Deletions    []Deletion // of the last 168 hours, the widest window that guards may have
	Memory       []byte     // the last Record.Memory that was not nil
}

// EngineReport is how one engine stands, as the worker that holds its lease says.
type EngineReport struct {
	Engine    EngineName
	Reachable bool
	Message   string // why not, or what is wrong with it; capped at 1 KiB, never with a secret
	ArgoCD    string // version, when known; an empty one keeps what was known
}

// Recent is what the deletion guards look back on.
type Recent struct {
	Now     time.Time // by the store's clock
	Deleted []Deletion
}
