package mirror

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// Bounds of a read of an Application's resources (ADR 0084). Every implementation of
// engine.Inspector keeps them, and every reader may rely on them.
const (
	MaxTreeNodes     = 10_000  // nodes of a tree; further ones are counted
	MaxManifestBytes = 1 << 20 // of one manifest or diff; the rest is cut off
	MaxDiffs         = 500     // resources with a difference; further ones are counted
	MaxDiffBytes     = 4 << 20 // of all diffs of an Application together
	MaxEvents        = 200     // newest first
	MaxSyncs         = 10      // newest first
	MaxSyncResults   = 500     // of one sync; failed ones first
	MaxMessageBytes  = 2 << 10 // of one message of a resource, an event or a sync
	MaxImages        = 32      // of one node
	MaxLogBytes      = 8 << 20 // of one stream of logs
	MaxLogLineBytes  = 8 << 10 // the rest of a line is cut off
	MaxLogTail       = 10_000  // lines
	MaxLogTime       = 15 * time.Minute
	// InspectTime bounds every read but a stream of logs.
	InspectTime = 20 * time.Second
)

// InspectedApplication is the Application whose resources are read, as the mirror has it. The
// caller has checked that it is in the reader's scope.
type InspectedApplication struct {
	ID     fleet.ApplicationID `json:"id"`
	Engine fleet.EngineName    `json:"engine"`
	// Name is the object's, Object the name by which Argo CD knows it if that differs: see
	// view.Application.
	Name   string `json:"name"`
	Object string `json:"object"`
	// UID is the Application's on its engine, as last observed; "" if it was never observed. An
	// engine that has another one of the name refuses the read.
	UID string `json:"uid,omitempty"`
}

// ResourceRef identifies one object of a cluster.
type ResourceRef struct {
	Group     string `json:"group,omitempty" doc:"empty: the core group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty" doc:"empty: cluster-scoped"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty" doc:"absent: it is desired and does not exist"`
}

// SameObject reports whether both identify one object. A UID that either side lacks is not
// compared.
func (r ResourceRef) SameObject(o ResourceRef) bool {
	if r.UID != "" && o.UID != "" && r.UID != o.UID {
		return false
	}
	return r.Group == o.Group && r.Kind == o.Kind && r.Namespace == o.Namespace && r.Name == o.Name
}

// String is KIND/NAME, as people write it on the command line.
func (r ResourceRef) String() string { return r.Kind + "/" + r.Name }

// Tree is an Application's resources down to its Pods, as its engine has them.
type Tree struct {
	// Nodes are in depth-first order: a node follows its parent, and its children follow it.
	Nodes []TreeNode `json:"nodes"`
	More  int        `json:"more,omitempty" doc:"nodes that are left out: at most 10,000 are listed"`
	// ComparedAt is when the engine last compared the Application; nil: never.
	ComparedAt *time.Time `json:"comparedAt,omitempty"`
}

// TreeNode is one resource. Every text in it may come from a workload.
type TreeNode struct {
	ResourceRef
	Version string `json:"version,omitempty"`
	Parent  int    `json:"parent" doc:"index of its parent in nodes; -1: it has none"`
	Depth   int    `json:"depth" doc:"0: it has no parent"`
	// Managed is true for the resources that the source declares. Only these have Sync.
	Managed bool      `json:"managed,omitempty"`
	Sync    SyncState `json:"sync,omitempty"`
	// Health is empty for kinds without one. Message is its reason.
	Health    HealthState `json:"health,omitempty"`
	Message   string      `json:"message,omitempty"`
	CreatedAt *time.Time  `json:"createdAt,omitempty"`
	Images    []string    `json:"images,omitempty"`
	// of a Pod
	Ready    string `json:"ready,omitempty" doc:"of a Pod, e.g. 1/2"`
	Restarts int    `json:"restarts,omitempty"`
	Reason   string `json:"reason,omitempty" doc:"of a Pod, e.g. CrashLoopBackOff"`
	Revision string `json:"revision,omitempty" doc:"of a ReplicaSet, e.g. Rev:3"`
	Hook     bool   `json:"hook,omitempty"`
	Prune    bool   `json:"prune,omitempty" doc:"it exists, is not desired, and the next sync with pruning deletes it"`
	Missing  bool   `json:"missing,omitempty" doc:"it is desired and does not exist"`
}

// ResourceDetail is one resource of an Application, with secret values masked.
type ResourceDetail struct {
	ResourceRef
	Version string `json:"version,omitempty"`
	// Live and Desired are YAML; Desired is what the next sync would make of the resource. Only a
	// managed resource has one.
	Live    string `json:"live,omitempty"`
	Desired string `json:"desired,omitempty"`
	// Diff is a unified diff from live to desired, without what the engine ignores; "": there is
	// none.
	Diff      string `json:"diff,omitempty"`
	Masked    bool   `json:"masked,omitempty" doc:"secret values are replaced by plus signs"`
	Truncated bool   `json:"truncated,omitempty" doc:"a text is longer than 1 MiB and cut off"`
	// Containers of a Pod, those of initialization first.
	Containers []Container `json:"containers,omitempty"`
	// Note is why a part is missing, with the next step; "": nothing is.
	Note string `json:"note,omitempty"`
}

// Container is the state of one container of a Pod.
type Container struct {
	Name     string     `json:"name"`
	Image    string     `json:"image"`
	Init     bool       `json:"init,omitempty"`
	Ready    bool       `json:"ready"`
	Restarts int        `json:"restarts"`
	State    string     `json:"state" enum:"Waiting,Running,Terminated"`
	Reason   string     `json:"reason,omitempty"`
	Message  string     `json:"message,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	// Last is how the container before the last restart ended, e.g. "OOMKilled, exit code 137".
	Last string `json:"last,omitempty"`
}

// ResourceChange is what the next sync would do with a resource.
type ResourceChange string

// Changes.
const (
	ResourceCreated ResourceChange = "Create"
	ResourceUpdated ResourceChange = "Update"
	// ResourcePruned is a resource that a sync deletes if it prunes.
	ResourcePruned ResourceChange = "Prune"
)

// ApplicationDiff is the difference between the live and the desired resources of an Application.
type ApplicationDiff struct {
	Resources []ResourceDiff `json:"resources"`
	More      int            `json:"more,omitempty" doc:"resources with a difference that are left out"`
	Same      int            `json:"same" doc:"managed resources without a difference"`
	// ComparedAt is when the engine last compared them; nil: never.
	ComparedAt *time.Time `json:"comparedAt,omitempty"`
}

// ResourceDiff is one resource with a difference.
type ResourceDiff struct {
	ResourceRef
	Change    ResourceChange `json:"change" enum:"Create,Update,Prune"`
	Diff      string         `json:"diff" doc:"unified, from live to desired"`
	Masked    bool           `json:"masked,omitempty"`
	Truncated bool           `json:"truncated,omitempty"`
}

// ResourceEvent is a Kubernetes Event about a resource of an Application. Its texts come from the
// cluster.
type ResourceEvent struct {
	Resource ResourceRef `json:"resource"`
	Type     string      `json:"type" doc:"Normal or Warning"`
	Reason   string      `json:"reason"`
	Message  string      `json:"message"`
	Count    int         `json:"count"`
	FirstAt  *time.Time  `json:"firstAt,omitempty"`
	LastAt   *time.Time  `json:"lastAt,omitempty"`
	Source   string      `json:"source,omitempty" doc:"the component that reports it"`
}

// LogRequest selects the logs of one container.
type LogRequest struct {
	Pod       ResourceRef   `json:"pod"`
	Container string        `json:"container,omitempty"` // empty: the only one, or the default one
	Follow    bool          `json:"follow,omitempty"`
	Previous  bool          `json:"previous,omitempty"` // of the container before its last restart
	Since     time.Duration `json:"since,omitempty"`    // 0: from the start
	Tail      int           `json:"tail,omitempty"`     // last lines; 0: MaxLogTail
}

// LogLine is one line that a container has written.
type LogLine struct {
	At        *time.Time `json:"at,omitempty"`
	Text      string     `json:"text"`
	Truncated bool       `json:"truncated,omitempty"` // longer than MaxLogLineBytes
}

// LogEnd is why a stream of logs has ended.
type LogEnd string

// Reasons. Only the first one means that the reader has all of it.
const (
	LogComplete  LogEnd = "Complete"  // the container has ended, or the log has without Follow
	LogTooLong   LogEnd = "TooLong"   // MaxLogBytes were sent
	LogTimedOut  LogEnd = "TimedOut"  // MaxLogTime has passed
	LogCut       LogEnd = "Cut"       // the connection to the cluster has failed
	LogCancelled LogEnd = "Cancelled" // the reader has gone
)

// PastSync is a sync of an Application that has run, or runs.
type PastSync struct {
	// ID is Argo CD's number in the Application's history; -1 for a sync that is not in it: it has
	// failed, or runs.
	ID         int64      `json:"id"`
	Revisions  []string   `json:"revisions" doc:"commits or versions, one for each source"`
	By         string     `json:"by,omitempty" doc:"empty: unknown"`
	Automated  bool       `json:"automated,omitempty"`
	DryRun     bool       `json:"dryRun,omitempty"`
	Phase      string     `json:"phase" doc:"Running, Terminating, Succeeded, Failed or Error"`
	Message    string     `json:"message,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// Results by resource are known of the last sync only.
	Results []SyncResult `json:"results,omitempty"`
	More    int          `json:"more,omitempty" doc:"results that are left out"`
}

// SyncResult is what a sync has done with one resource.
type SyncResult struct {
	ResourceRef
	Status  string `json:"status" doc:"Synced, SyncFailed, Pruned or PruneSkipped; of a hook its phase"`
	Message string `json:"message,omitempty"`
	Hook    string `json:"hook,omitempty" doc:"PreSync, Sync, PostSync, SyncFail or PostDelete"`
}

// InspectError is an error of a read of resources. Its text is for the tenant whose Application is
// read; its cause, which may name parts of the platform, is for the log.
type InspectError struct {
	Kind  error // one of those below
	Text  string
	Cause error // nil: there is none besides the text
}

// Error returns the text without the cause.
func (e *InspectError) Error() string { return e.Kind.Error() + ": " + e.Text }

// Unwrap returns the kind and the cause.
func (e *InspectError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Errors of a read of resources, each wrapped with its subject and the next step.
var (
	// ErrNoTree means that the engine has no resources of the Application in its cache: it has not
	// compared it yet, or its cache was emptied. A refresh brings them back.
	ErrNoTree = errors.New("the engine has no resources of the Application in its cache")
	// ErrNotInTree means that the object is not a resource of the Application, or not any more:
	// nothing of it was read.
	ErrNotInTree = errors.New("not a resource of the Application")
	// ErrInspectRefused means that the read cannot work before a person has changed something.
	ErrInspectRefused = errors.New("the resources cannot be read")
	// ErrInspectBusy means that too many reads of the engine are in progress.
	ErrInspectBusy = errors.New("too many reads of this engine are in progress")
	// ErrInspectUnreachable means that the engine or the cluster does not answer.
	ErrInspectUnreachable = errors.New("the engine or the cluster does not answer")
)
