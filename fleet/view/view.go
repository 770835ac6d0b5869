// Package view holds what people and programs read from the mirror. No type has a field that could
// hold a secret.
package view

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

// Agent is one agent, or one that is declared and has not joined yet.
type Agent struct {
	Engine      fleet.EngineName      `json:"engine"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	ID          string                `json:"id,omitempty"` // empty: nobody has joined
	Mode        fleet.AgentMode       `json:"mode"`
	Connected   bool                  `json:"connected"`
	Reachable   bool                  `json:"reachable"` // its Argo CD, as it last said
	SeenAt      *time.Time            `json:"seenAt,omitempty"`
	JoinedAt    *time.Time            `json:"joinedAt,omitempty"`
	ExpiresAt   *time.Time            `json:"expiresAt,omitempty"`
	RevokedAt   *time.Time            `json:"revokedAt,omitempty"`
	// two processes use one identity: both are refused until it joins again
	Cloned  bool   `json:"cloned,omitempty"`
	Version string `json:"version,omitempty"`
	ArgoCD  string `json:"argocd,omitempty"`
	Message string `json:"message,omitempty"`
	Pending int    `json:"pending"` // rows not yet acknowledged
	// revisions of the config repo that these rows are of
	Lag int `json:"lag"`
	// rows that ask for a deletion, not yet done
	PendingDeletions int `json:"deletions"`
	HeldDeletions    int `json:"heldDeletions"`
	Orphans          int `json:"strays"`
	// Applications of the cluster's own people; at most MaxOwn of them are shown
	Own int `json:"own,omitempty"`
}

// Own is one Application of a cluster's own people, as its agent last said.
type Own struct {
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Engine      fleet.EngineName      `json:"engine"`
	mirror.OwnApplication
	ObservedAt time.Time `json:"observedAt"` // when it last changed
}

// Orphan is a listed stray. It is removed only when somebody has decided so of exactly this UID;
// declaring it again adopts it.
type Orphan struct {
	Engine      fleet.EngineName      `json:"engine"`
	Kind        fleet.ObjectKind      `json:"kind"`
	Name        string                `json:"name"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	UID         string                `json:"uid"`
	Revision    fleet.Revision        `json:"revision,omitempty"` // that it was last written for
	Epoch       int64                 `json:"epoch"`              // of the lease that wrote it
	FoundAt     time.Time             `json:"foundAt"`
	Deletion    fleet.DeletionPolicy  `json:"deletion,omitempty"` // of a removal that is decided
	RemovedBy   string                `json:"removedBy,omitempty"`
	RemovedAt   *time.Time            `json:"removedAt,omitempty"` // when the removal was decided
}

// Owner is a name that declarations or the settings give to owners, and the account or team
// that it is pinned to: the one that had the name when it was first looked up. Nobody else counts
// by the name.
type Owner struct {
	Host     string    `json:"host"` // whose name it is: the URL of the Git host's API
	Name     string    `json:"name"` // "alice", "acme/leads", in lower case
	ID       int64     `json:"id"`   // that counts
	PinnedAt time.Time `json:"pinnedAt"`
	// another account or team that has the name now, and does not count
	NowID     int64      `json:"nowID,omitempty"`
	ChangedAt *time.Time `json:"changedAt,omitempty"` // when that was first seen
}

// Changed reports whether another account or team has the name than the one that counts.
func (o Owner) Changed() bool { return o.NowID != 0 }

// Counts is how many Applications stand how.
type Counts struct {
	Applications int `json:"applications"`
	Synced       int `json:"synced"`
	Healthy      int `json:"healthy"`
	Failed       int `json:"failed"` // apply failed or in conflict
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

// Environment is one environment with where it is placed and why.
type Environment struct {
	Tenant fleet.TenantName      `json:"tenant"`
	Name   fleet.EnvironmentName `json:"name"`
	Server string                `json:"server"` // empty when an agent serves it
	// of the agent that serves it; empty: none does
	Agent      fleet.AgentMode   `json:"agent,omitempty"`
	Namespaces []string          `json:"namespaces"`
	Region     string            `json:"region"`
	Labels     map[string]string `json:"labels,omitempty"`
	Engine     fleet.EngineName  `json:"engine,omitempty"`
	Placement  fleet.Placement   `json:"placement"`
	Counts     Counts            `json:"counts"`
	// Applications of an autonomous cluster's own people that are shown; Counts has none of them
	Own int `json:"own,omitempty"`
	// Unreachable is that the engine cannot read the environment's cluster.
	Unreachable *mirror.Unreachable `json:"unreachable,omitempty"`
	Problems    int                 `json:"problems"`
}

// Deployment is one deployment with how its Applications stand.
type Deployment struct {
	Tenant       fleet.TenantName        `json:"tenant"`
	Name         fleet.DeploymentName    `json:"name"`
	Source       fleet.Source            `json:"source"`
	Namespace    string                  `json:"namespace"`
	Labels       map[string]string       `json:"labels,omitempty"`
	Environments []fleet.EnvironmentName `json:"environments"`
	Counts       Counts                  `json:"counts"`
	Problems     int                     `json:"problems"`
}

// Application is one Application: what is wanted of it and how it stands on its engine.
type Application struct {
	Tenant         fleet.TenantName      `json:"tenant"`
	Environment    fleet.EnvironmentName `json:"environment"`
	Deployment     fleet.DeploymentName  `json:"deployment"`
	Name           string                `json:"name"`
	Engine         fleet.EngineName      `json:"engine"`
	Revision       fleet.Revision        `json:"revision"` // of the config repo
	RepoURL        string                `json:"repoURL"`
	TargetRevision string                `json:"targetRevision"`
	Apply          mirror.ApplyState     `json:"apply"`
	ApplyMessage   string                `json:"applyMessage,omitempty"`
	Sync           mirror.SyncState      `json:"sync"`
	Health         mirror.HealthState    `json:"health"`
	SyncedRevision string                `json:"syncedRevision,omitempty"`
	OperationPhase string                `json:"operationPhase,omitempty"`
	Message        string                `json:"message,omitempty"`
	Resources      int                   `json:"resources"`
	CreatedAt      time.Time             `json:"createdAt"`
	ChangedAt      time.Time             `json:"changedAt"` // the desired state
	// the last report of the engine
	ObservedAt *time.Time `json:"observedAt,omitempty"`
	UID        string     `json:"uid,omitempty"` // on its engine
	// Unreachable is that the engine cannot read the environment's cluster.
	Unreachable *mirror.Unreachable `json:"unreachable,omitempty"`
	// DeletionBlocked is that its deletion waits for a cluster that has been unreachable for
	// DeletionBlockedAfter: see argosy abandon.
	DeletionBlocked bool `json:"deletionBlocked,omitempty"`
}

// Engine is one engine with what it carries and how far it is behind.
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
	// why it is not reachable, or what is wrong with it
	Message    string     `json:"message,omitempty"`
	Since      *time.Time `json:"since,omitempty"`  // of Reachable
	ArgoCD     string     `json:"argocd,omitempty"` // version, when known
	Stopped    bool       `json:"stopped"`
	InstanceID string     `json:"installationID"`
	Orphans    int        `json:"strays"` // objects of ours that no row names
	// when its state was last seen to go back in time, as after a restore from a backup
	WentBackAt *time.Time `json:"wentBackAt,omitempty"`
	WentBack   string     `json:"wentBack,omitempty"` // how that showed
	// Unreachable is how many environments' clusters it cannot read, Parked how many Applications
	// it leaves alone until they answer.
	Unreachable int `json:"unreachable"`
	Parked      int `json:"parked"`
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
	AppliedAt *time.Time `json:"appliedAt,omitempty"` // when the last of them was
}

// Pull is one pull request as it was last judged.
type Pull struct {
	Number int             `json:"number"`
	Title  string          `json:"title"`
	Author string          `json:"author"` // login, as it is shown
	State  forge.PullState `json:"state"`
	Head   fleet.Revision  `json:"head"`
	// applied revision that its plan was computed from; empty: there is no plan of this head
	Base    fleet.Revision `json:"base,omitempty"`
	Hash    string         `json:"hash,omitempty"` // of that plan
	Verdict string         `json:"verdict,omitempty"`
	// whose files it changes; "" is the platform
	Tenants []fleet.TenantName `json:"tenants"`
	// owners of all of them have approved this head
	Consented bool `json:"consented"`
	Held      bool `json:"held,omitempty"` // by /argosy lock
	// merged, and its result is not all there yet
	Following bool      `json:"following"`
	URL       string    `json:"url"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Source is how the config repo stands.
type Source struct {
	URL       string         `json:"url"` // without credentials
	Branch    string         `json:"branch"`
	Head      fleet.Revision `json:"head,omitempty"`    // last seen
	Applied   fleet.Revision `json:"applied,omitempty"` // last recorded
	FetchedAt *time.Time     `json:"fetchedAt,omitempty"`
	Error     string         `json:"error,omitempty"` // since Since
	Since     *time.Time     `json:"since,omitempty"`
}

// Event is one change that the event stream tells of: "look", never the truth.
type Event struct {
	Seq int64     `json:"seq"`
	At  time.Time `json:"at"`
	// agent, application, engine, revision, problem, hold, stop, operation
	Kind   string           `json:"kind"`
	Tenant fleet.TenantName `json:"tenant,omitempty"`
	Name   string           `json:"name"`
	Text   string           `json:"text"`
}

// Filter narrows a list; empty fields match everything, and each that is set matches exactly.
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
}

// Page asks for at most Limit items (1..1000) after the opaque cursor After.
type Page struct {
	Limit int
	After string
}

// Scope is what a caller may see: everything, or one tenant.
type Scope struct {
	Tenant fleet.TenantName // empty: the platform
}
