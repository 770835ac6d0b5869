// Package view holds what people and programs read from the mirror. No type has a field that could
// hold a secret.
package view

import (
	"cmp"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

// Agent is one agent, or a declared one that has not joined yet.
type Agent struct {
	Engine      fleet.EngineName      `json:"engine"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	ID          string                `json:"id,omitempty"` // empty: not joined
	Mode        fleet.AgentMode       `json:"mode"`
	Connected   bool                  `json:"connected"`
	Reachable   bool                  `json:"reachable"` // its Argo CD, as last reported
	SeenAt      *time.Time            `json:"seenAt,omitempty"`
	JoinedAt    *time.Time            `json:"joinedAt,omitempty"`
	ExpiresAt   *time.Time            `json:"expiresAt,omitempty"`
	RevokedAt   *time.Time            `json:"revokedAt,omitempty"`
	// two processes use one identity: both are refused until the agent joins again
	Cloned  bool   `json:"cloned,omitempty"`
	Version string `json:"version,omitempty"`
	ArgoCD  string `json:"argocd,omitempty"`
	Message string `json:"message,omitempty"`
	Pending int    `json:"pending"` // rows not yet acknowledged
	// number of revisions of the config repo that the pending rows belong to
	Lag int `json:"lag"`
	// rows whose deletion is pending
	PendingDeletions int `json:"deletions"`
	HeldDeletions    int `json:"heldDeletions"`
	Orphans          int `json:"strays"`
	// Applications of the cluster's own users; at most MaxOwn of them are shown
	Own int `json:"own,omitempty"`
	// Upgrade is the version of the agent that its ring brings; nil if it follows none.
	Upgrade *AgentUpgrade `json:"upgrade,omitempty"`
}

// AgentUpgrade is how far an agent has come with the version of its ring.
type AgentUpgrade struct {
	Ring string `json:"ring"`
	// "": the version that it had before
	Version string               `json:"version,omitempty"`
	State   mirror.InstanceState `json:"state" enum:"Installing,Running,Refused,Releasing"`
	Message string               `json:"message,omitempty"`
}

// Own is one Application of a cluster's own users, as last reported by its agent.
type Own struct {
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Engine      fleet.EngineName      `json:"engine"`
	mirror.OwnApplication
	ObservedAt time.Time `json:"observedAt"` // of the last change
	// when the cluster was last seen, while it is silent: Sync and Health are Unknown
	LastSeenAt *time.Time `json:"lastSeenAt,omitempty"`
}

// Orphan is a listed orphan. It is deleted only after a decision about exactly this UID; a
// declaration adopts it again.
type Orphan struct {
	Engine      fleet.EngineName      `json:"engine"`
	Kind        fleet.ObjectKind      `json:"kind"`
	Name        string                `json:"name"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	UID         string                `json:"uid"`
	Revision    fleet.Revision        `json:"revision,omitempty"` // of its last write
	Epoch       int64                 `json:"epoch"`              // of the lease of its last write
	FoundAt     time.Time             `json:"foundAt"`
	Deletion    fleet.DeletionPolicy  `json:"deletion,omitempty"` // of a decided removal
	RemovedBy   string                `json:"removedBy,omitempty"`
	RemovedAt   *time.Time            `json:"removedAt,omitempty"` // when the removal was decided
}

// Freeze is a recurring period in which merged changes wait.
type Freeze struct {
	Tenant              fleet.TenantName   `json:"tenant,omitempty"` // absent: of the fleet
	Name                string             `json:"name"`
	Schedule            string             `json:"schedule"`
	Duration            fleet.Duration     `json:"duration"`
	TimeZone            string             `json:"timeZone"`
	EnvironmentSelector string             `json:"environmentSelector,omitempty"` // absent: all
	Kinds               []fleet.FreezeKind `json:"kinds"`
	Reason              string             `json:"reason,omitempty"`
	Until               *time.Time         `json:"until,omitempty"` // absent: it is not active
	Next                *time.Time         `json:"next,omitempty"`  // when it begins next
}

// Bulletin is a security release with the engines that lack it, managed or not.
type Bulletin struct {
	fleet.Bulletin
	Lacking []EngineVersion    `json:"lacking"` // by engine
	Unknown []fleet.EngineName `json:"unknown"` // engines whose version is not known
}

// EngineVersion is the version of Argo CD that an engine has reported last.
type EngineVersion struct {
	Engine  fleet.EngineName `json:"engine"`
	Version string           `json:"version"`
}

// Unproven is an object whose deletion is not proven, since a person has forgotten the engine or
// the cluster that had it (ADR 0065). It stays listed until a read of the returned engine or a
// person proves that it is gone.
type Unproven struct {
	ID          int64                 `json:"id"`
	Lost        mirror.Lost           `json:"lost" enum:"Engine,Cluster"` // what is forgotten
	Engine      fleet.EngineName      `json:"engine"`
	Kind        fleet.ObjectKind      `json:"kind"`
	Name        string                `json:"name"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	// of an Application's workload; of a cluster Secret, its API server
	Server    string `json:"server,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	UID       string `json:"uid,omitempty"` // absent: it was never seen
	// when the engine was last seen with it
	SeenAt      *time.Time `json:"seenAt,omitempty"`
	Risk        string     `json:"risk"` // what it may still do
	ForgottenAt time.Time  `json:"forgottenAt"`
	ForgottenBy string     `json:"forgottenBy"`
	Reason      string     `json:"reason,omitempty"`
}

// RiskOf returns what the object may do if it still exists.
func (u Unproven) RiskOf() string {
	app := fleet.ApplicationID{Tenant: u.Tenant, Deployment: u.Deployment,
		Environment: u.Environment}
	switch {
	case u.Lost == mirror.LostCluster && u.Kind == fleet.ObjectApplication:
		return "the workload of " + app.String() + " may still run on the cluster"
	case u.Lost == mirror.LostCluster:
		return "it may still be on the cluster"
	case u.Kind == fleet.ObjectApplication:
		return "its Argo CD may still sync the workload of " + app.String()
	case u.Kind == fleet.ObjectCluster:
		return "the credential of environment " + app.In().String() + " in it may still be used"
	case u.Kind == fleet.ObjectRepository:
		return "the repository's credential in it may still be used"
	}
	return "none by itself"
}

// Owner is an owner's name in declarations or settings, pinned to the account or team that had the
// name on first use. No other account counts by the name.
type Owner struct {
	Host     string    `json:"host"` // URL of the Git host's API
	Name     string    `json:"name"` // "alice", "acme/leads", in lower case
	ID       int64     `json:"id"`   // of the pinned account or team
	PinnedAt time.Time `json:"pinnedAt"`
	// of another account or team that has the name now and does not count
	NowID     int64      `json:"nowID,omitempty"`
	ChangedAt *time.Time `json:"changedAt,omitempty"` // when the change was first detected
}

// Changed reports whether another account or team has the name than the pinned one.
func (o Owner) Changed() bool { return o.NowID != 0 }

// Counts are the numbers of Applications by state.
type Counts struct {
	Applications int `json:"applications"`
	Synced       int `json:"synced"`
	Healthy      int `json:"healthy"`
	Failed       int `json:"failed"` // apply failed or in conflict
	// Unknown of a silent engine or cluster, whose last states count nowhere else
	Unknown int `json:"unknown"`
}

// Tenant is one tenant.
type Tenant struct {
	Name     fleet.TenantName `json:"name"`
	Owners   []string         `json:"owners"`
	Quota    fleet.Quota      `json:"quota"`
	Used     fleet.Quota      `json:"used"`
	Counts   Counts           `json:"counts"`
	Problems int              `json:"problems"`
	Held     int              `json:"held"`
	Stopped  bool             `json:"stopped"`
}

// Environment is one environment with its placement and the reason for it.
type Environment struct {
	Tenant fleet.TenantName      `json:"tenant"`
	Name   fleet.EnvironmentName `json:"name"`
	Server string                `json:"server"` // empty if an agent serves it
	// mode of the agent that serves it; empty: none
	Agent      fleet.AgentMode   `json:"agent,omitempty"`
	Namespaces []string          `json:"namespaces"`
	Region     string            `json:"region"`
	Labels     map[string]string `json:"labels,omitempty"`
	// of a split environment, the engine and the placement of its first slice
	Engine    fleet.EngineName `json:"engine,omitempty"`
	Placement fleet.Placement  `json:"placement"`
	// the placements of all slices of a split environment, in their order; absent: it is whole
	Slices []fleet.Placement `json:"slices,omitempty"`
	Counts Counts            `json:"counts"`
	// Applications of an autonomous cluster's own users that are shown; Counts excludes them
	Own int `json:"own,omitempty"`
	// Unreachable is set while the engine cannot read the environment's cluster.
	Unreachable *mirror.Unreachable `json:"unreachable,omitempty"`
	// when the engine or the cluster was last seen, while it is silent
	LastSeenAt *time.Time `json:"lastSeenAt,omitempty"`
	Problems   int        `json:"problems"`
}

// Explained is the placement of an environment. Of a split one it is that of the first slice.
type Explained struct {
	fleet.Placement
	// the placements of all slices of a split environment, in their order; absent: it is whole
	Slices []fleet.Placement `json:"slices,omitempty"`
}

// Deployment is one deployment with the states of its Applications.
type Deployment struct {
	Tenant       fleet.TenantName        `json:"tenant"`
	Name         fleet.DeploymentName    `json:"name"`
	Set          string                  `json:"set,omitempty"`      // that generates it
	Listings     []Listing               `json:"listings,omitempty"` // of the set
	Source       fleet.Source            `json:"source"`             // the first of several
	Sources      []fleet.Source          `json:"sources,omitempty"`
	Namespace    string                  `json:"namespace"`
	Labels       map[string]string       `json:"labels,omitempty"`
	Environments []fleet.EnvironmentName `json:"environments"`
	Counts       Counts                  `json:"counts"`
	Problems     int                     `json:"problems"`
}

// Listing is a repository that a set lists.
type Listing struct {
	RepoURL        string         `json:"repoURL"`
	TargetRevision string         `json:"targetRevision"`
	Commit         fleet.Revision `json:"commit" doc:"whose listing is in effect; later commits with an equal listing leave it"`
	Head           fleet.Revision `json:"head,omitempty" doc:"commit that was read last"`
	HeadAt         *time.Time     `json:"headAt,omitempty" doc:"first read of Head"`
	Error          string         `json:"error,omitempty" doc:"of the last read, since Since"`
	Since          *time.Time     `json:"since,omitempty"`
}

// Set is a set in effect.
type Set struct {
	Tenant      fleet.TenantName       `json:"tenant"`
	Name        string                 `json:"name"`
	Deployments []fleet.DeploymentName `json:"deployments" doc:"that it generates"`
	Listings    []Listing              `json:"listings,omitempty"` // none: it has a list only
	Problems    int                    `json:"problems" doc:"of its file, those of its deployments included"`
}

// AllSources returns the sources: one, or several in the order of the file.
func (d Deployment) AllSources() []fleet.Source {
	if len(d.Sources) > 0 {
		return d.Sources
	}
	return []fleet.Source{d.Source}
}

// Application is the desired and the observed state of one Application.
type Application struct {
	Tenant         fleet.TenantName      `json:"tenant"`
	Environment    fleet.EnvironmentName `json:"environment"`
	Deployment     fleet.DeploymentName  `json:"deployment"`
	Name           string                `json:"name"`
	Adopted        string                `json:"adopted,omitempty" doc:"its name in Argo CD, if it was adopted under another name; <namespace>/<name> outside Argo CD's own namespace"`
	Engine         fleet.EngineName      `json:"engine"`
	Revision       fleet.Revision        `json:"revision"` // of the config repo
	RepoURL        string                `json:"repoURL"`  // of the first source
	TargetRevision string                `json:"targetRevision"`
	Sources        int                   `json:"sources,omitempty"` // if it has several
	Apply          mirror.ApplyState     `json:"apply"`
	ApplyMessage   string                `json:"applyMessage,omitempty"`
	Sync           mirror.SyncState      `json:"sync"`
	Health         mirror.HealthState    `json:"health"`
	SyncedRevision string                `json:"syncedRevision,omitempty"`
	OperationPhase string                `json:"operationPhase,omitempty"`
	Message        string                `json:"message,omitempty"`
	Resources      int                   `json:"resources"`
	Images         []string              `json:"images,omitempty" doc:"that its workload runs, as Argo CD reports them; at most 20"`
	CreatedAt      time.Time             `json:"createdAt"`
	ChangedAt      time.Time             `json:"changedAt"` // of the desired state
	// the last report of the engine
	ObservedAt *time.Time `json:"observedAt,omitempty"`
	UID        string     `json:"uid,omitempty"` // on its engine
	// Unreachable is set while the engine cannot read the environment's cluster.
	Unreachable *mirror.Unreachable `json:"unreachable,omitempty"`
	// when the engine or the cluster was last seen, while it is silent: Sync and Health are Unknown
	LastSeenAt *time.Time `json:"lastSeenAt,omitempty"`
	// Hold is the SyncRun that pauses the automation, or the rollback: see mirror.RollbackOf.
	Hold fleet.SyncRunName `json:"hold,omitempty" doc:"the SyncRun that pauses its automation; rollback-<operation> for a rollback"`
	// RollbackPull is the pull request that makes the rollback in force lasting; nil: none yet
	RollbackPull *RollbackPull `json:"rollbackPull,omitempty"`
	// DeletionBlocked is true while the deletion waits for a cluster that has been unreachable for
	// DeletionBlockedAfter: see argosy abandon.
	DeletionBlocked bool `json:"deletionBlocked,omitempty"`
}

// RollbackPull is the pull request that makes a rollback lasting.
type RollbackPull struct {
	State   forge.LastingState `json:"state" enum:",Open,Merged,Closed,Impossible" doc:"empty while none could be opened yet"`
	Number  int                `json:"number,omitempty"`
	URL     string             `json:"url,omitempty"`
	Message string             `json:"message,omitempty" doc:"why there is none"`
}

// Object returns the name by which Argo CD knows the Application.
func (a Application) Object() string { return cmp.Or(a.Adopted, a.Name) }

// Engine is one engine with its load and its lag.
type Engine struct {
	Name      fleet.EngineName  `json:"name"`
	Region    string            `json:"region"`
	State     fleet.EngineState `json:"state"`
	Ring      string            `json:"ring"`
	Capacity  fleet.Capacity    `json:"capacity"`
	Load      fleet.EngineLoad  `json:"load"`
	Counts    Counts            `json:"counts"`
	Pending   int               `json:"pending"` // rows not yet acknowledged
	Holder    string            `json:"holder,omitempty"`
	Epoch     int64             `json:"epoch"`
	Reachable bool              `json:"reachable"`
	// error or warning
	Message string     `json:"message,omitempty"`
	Since   *time.Time `json:"since,omitempty"` // of Reachable
	// when it was last seen, while it is silent: its API server cannot be reached, its agent is not
	// connected, or no replica follows it
	LastSeenAt *time.Time `json:"lastSeenAt,omitempty"`
	ArgoCD     string     `json:"argocd,omitempty"` // version, if known
	Size       string     `json:"size,omitempty"`   // declared for its Argo CD
	// whether the reachable engine works, since when, and the evidence; absent while it is unknown
	Work *mirror.Work `json:"work,omitempty"`
	// the last remedy since it worked last, and what happens next about it, or why nothing does
	Remedy     *mirror.Remedy `json:"remedy,omitempty"`
	NextRemedy string         `json:"nextRemedy,omitempty"`
	// of its components; absent: it is not measured, and counts as the sum of its Applications
	Measured *mirror.Load `json:"measured,omitempty"`
	// absent unless the engine is evacuated
	Evacuation *mirror.Evacuation `json:"evacuation,omitempty"`
	// of its controllers, from the request until they have their replicas back; also a dry run
	Fence       *mirror.Fence `json:"fence,omitempty"`
	BehindAgent bool          `json:"behindAgent,omitempty"`
	Stopped     bool          `json:"stopped"`
	// how far it is emptied; absent unless it drains
	Drain      *mirror.Drain `json:"drain,omitempty"`
	InstanceID string        `json:"installationID"`
	Orphans    int           `json:"strays"` // number of live objects of ours without a row
	// when its state was last detected to go back in time, as after a restore from a backup
	WentBackAt *time.Time `json:"wentBackAt,omitempty"`
	WentBack   string     `json:"wentBack,omitempty"` // evidence for it
	// Unreachable is the number of environments whose clusters it cannot read, Parked the number of
	// Applications that it skips until they answer.
	Unreachable int `json:"unreachable"`
	Parked      int `json:"parked"`
	// the first objects besides Applications that are not as declared, with the reason
	Waiting []Waiting `json:"waiting,omitempty"`
}

// MaxWaiting bounds Engine.Waiting.
const MaxWaiting = 20

// Waiting is an object of an engine that is not as declared: the engine refuses it, or it waits for
// other objects.
type Waiting struct {
	Kind    fleet.ObjectKind `json:"kind"`
	Name    string           `json:"name"`
	Message string           `json:"message"`
}

// Revision is one recorded commit of the config repo.
type Revision struct {
	Revision    fleet.Revision `json:"revision"`
	Author      string         `json:"author"`
	Subject     string         `json:"subject"`
	CommittedAt time.Time      `json:"committedAt"`
	RecordedAt  time.Time      `json:"recordedAt"`
	Created     int            `json:"created"`
	Changed     int            `json:"changed"`
	Deleted     int            `json:"deleted"`
	Held        int            `json:"held"`
	Problems    int            `json:"problems"`
	// objects of this revision not yet acknowledged
	Pending   int        `json:"pending"`
	AppliedAt *time.Time `json:"appliedAt,omitempty"` // when the last of them was acknowledged
}

// Pull is one pull request with its latest verdict.
type Pull struct {
	Number int             `json:"number"`
	Title  string          `json:"title"`
	Author string          `json:"author"` // login
	State  forge.PullState `json:"state"`
	Head   fleet.Revision  `json:"head"`
	// applied revision that its plan is based on; empty: this head has no plan
	Base    fleet.Revision `json:"base,omitempty"`
	Hash    string         `json:"hash,omitempty"` // of that plan
	Verdict string         `json:"verdict,omitempty"`
	// owners of the changed files; "" is the platform
	Tenants []fleet.TenantName `json:"tenants"`
	// owners of all Tenants have approved this head
	Consented bool `json:"consented"`
	Held      bool `json:"held,omitempty"` // by /argosy lock
	// merged, and its result is not complete yet
	Following bool      `json:"following"`
	URL       string    `json:"url"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Source is the state of the config repo.
type Source struct {
	URL       string         `json:"url"` // without credentials
	Branch    string         `json:"branch"`
	Head      fleet.Revision `json:"head,omitempty"`    // latest known
	Applied   fleet.Revision `json:"applied,omitempty"` // latest recorded
	FetchedAt *time.Time     `json:"fetchedAt,omitempty"`
	Error     string         `json:"error,omitempty"` // since Since
	Since     *time.Time     `json:"since,omitempty"`
}

// Event is one change in the event stream. It triggers a read and is never the truth.
type Event struct {
	Seq int64     `json:"seq"`
	At  time.Time `json:"at"`
	// agent, application, engine, revision, problem, hold, stop, operation, rebalance
	Kind   string           `json:"kind"`
	Tenant fleet.TenantName `json:"tenant,omitempty"`
	Name   string           `json:"name"`
	Text   string           `json:"text"`
	// Former is set if the event is of an earlier tenant with the name, which a tenant never sees.
	Former bool `json:"-"`
}

// Filter narrows a list. An empty field matches everything, any other matches exactly.
type Filter struct {
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Deployment  fleet.DeploymentName
	Engine      fleet.EngineName
	Revision    fleet.Revision
	Sync        mirror.SyncState
	Health      mirror.HealthState
	Apply       mirror.ApplyState
	Name        string
	Pull        int // number of a pull request
	State       forge.PullState
	// of holds: also those whose approval has not taken effect yet
	Approved bool
	// of deployments and Applications: labels of the deployment, and for an Application also those
	// of its environment, which the deployment's override; nil: any
	Labels *fleet.LabelSelector
	Text   string // part of an Application's tenant/deployment@environment
	// a repository, with or without a tag, or a commit of a source, that an Application runs
	Image string
	// of operations
	OperationKind  mirror.OperationKind
	OperationState mirror.OperationState
	Entry          EntryFilter // of the audit log
}

// EntryFilter selects entries of the audit log. Actor, Action and Subject match exactly, or a
// prefix if they end in "*".
type EntryFilter struct {
	Actor, Action, Subject string
	Operation              string
	Since, Until           time.Time // from Since on, before Until
	Text                   string    // within actor, subject or detail, in any case
}

// Page requests at most Limit items (1..1000) after the opaque cursor After.
type Page struct {
	Limit int
	After string
}

// Scope is what a caller may read: everything, or one tenant.
type Scope struct {
	Tenant fleet.TenantName // empty: the platform
}

// Move is the last move of an environment, or of a slice of it, to another engine, under way or
// ended.
type Move struct {
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Slice       fleet.Slice           `json:"slice,omitempty"` // that moves; absent: all of it
	From        fleet.EngineName      `json:"from"`
	To          fleet.EngineName      `json:"to"`
	// the environment returns to the engine that it was leaving
	Undo         bool                  `json:"undo,omitempty"`
	Operation    string                `json:"operation"`
	State        mirror.OperationState `json:"state"`
	RequestedBy  string                `json:"requestedBy"`
	Message      string                `json:"message,omitempty"`
	Done         int                   `json:"done"`
	Total        int                   `json:"total"`
	StartedAt    time.Time             `json:"startedAt"`
	EndedAt      *time.Time            `json:"endedAt,omitempty"`
	Applications []MovedApplication    `json:"applications"`
}

// MovedApplication is an Application of a move.
type MovedApplication struct {
	Deployment fleet.DeploymentName `json:"deployment"`
	Step       mirror.MoveStep      `json:"step"`
	Message    string               `json:"message,omitempty"` // why the step waits
	Since      time.Time            `json:"since"`             // of the step
	Took       []mirror.EndedStep   `json:"took"`
}
