package fleet

import "time"

// The views are what people and programs read of the mirror. None of them has a field that could
// hold a secret.

// Counts is how many Applications stand how.
type Counts struct {
	Applications int `json:"applications"`
	Synced       int `json:"synced"`
	Healthy      int `json:"healthy"`
	Failed       int `json:"failed"` // apply failed or in conflict
}

// TenantView is one tenant.
type TenantView struct {
	Name     TenantName `json:"name"`
	Owners   []string   `json:"owners"`
	Quota    Quota      `json:"quota"`
	Used     Quota      `json:"used"`
	Counts   Counts     `json:"counts"`
	Problems int        `json:"problems"`
	Held     int        `json:"held"`
	Stopped  bool       `json:"stopped"`
}

// EnvironmentView is one environment with where it is placed and why.
type EnvironmentView struct {
	Tenant TenantName      `json:"tenant"`
	Name   EnvironmentName `json:"name"`
	Server string          `json:"server"` // empty when an agent serves it
	// of the agent that serves it; empty: none does
	Agent      AgentMode         `json:"agent,omitempty"`
	Namespaces []string          `json:"namespaces"`
	Region     string            `json:"region"`
	Labels     map[string]string `json:"labels,omitempty"`
	Engine     EngineName        `json:"engine,omitempty"`
	Placement  Placement         `json:"placement"`
	Counts     Counts            `json:"counts"`
	// Applications of an autonomous cluster's own people that are shown; Counts has none of them
	Own int `json:"own,omitempty"`
	// Unreachable is that the engine cannot read the environment's cluster.
	Unreachable *Unreachable `json:"unreachable,omitempty"`
	Problems    int          `json:"problems"`
}

// DeploymentView is one deployment with how its Applications stand.
type DeploymentView struct {
	Tenant       TenantName        `json:"tenant"`
	Name         DeploymentName    `json:"name"`
	Source       Source            `json:"source"`
	Namespace    string            `json:"namespace"`
	Labels       map[string]string `json:"labels,omitempty"`
	Environments []EnvironmentName `json:"environments"`
	Counts       Counts            `json:"counts"`
	Problems     int               `json:"problems"`
}

// ApplicationView is one Application: what is wanted of it and how it stands on its engine.
type ApplicationView struct {
	Tenant         TenantName      `json:"tenant"`
	Environment    EnvironmentName `json:"environment"`
	Deployment     DeploymentName  `json:"deployment"`
	Name           string          `json:"name"`
	Engine         EngineName      `json:"engine"`
	Revision       Revision        `json:"revision"` // of the config repo
	RepoURL        string          `json:"repoURL"`
	TargetRevision string          `json:"targetRevision"`
	Apply          ApplyState      `json:"apply"`
	ApplyMessage   string          `json:"applyMessage,omitempty"`
	Sync           SyncState       `json:"sync"`
	Health         HealthState     `json:"health"`
	SyncedRevision string          `json:"syncedRevision,omitempty"`
	OperationPhase string          `json:"operationPhase,omitempty"`
	Message        string          `json:"message,omitempty"`
	Resources      int             `json:"resources"`
	CreatedAt      time.Time       `json:"createdAt"`
	ChangedAt      time.Time       `json:"changedAt"`            // the desired state
	ObservedAt     *time.Time      `json:"observedAt,omitempty"` // the last report of the engine
	UID            string          `json:"uid,omitempty"`        // on its engine
	// Unreachable is that the engine cannot read the environment's cluster.
	Unreachable *Unreachable `json:"unreachable,omitempty"`
	// DeletionBlocked is that its deletion waits for a cluster that has been unreachable for
	// DeletionBlockedAfter: see argosy orphan.
	DeletionBlocked bool `json:"deletionBlocked,omitempty"`
}

// EngineView is one engine with what it carries and how far it is behind.
type EngineView struct {
	Name      EngineName  `json:"name"`
	Region    string      `json:"region"`
	State     EngineState `json:"state"`
	Ring      string      `json:"ring"`
	Capacity  Capacity    `json:"capacity"`
	Load      EngineLoad  `json:"load"`
	Counts    Counts      `json:"counts"`
	Pending   int         `json:"pending"` // rows not yet acknowledged
	Holder    string      `json:"holder,omitempty"`
	Epoch     int64       `json:"epoch"`
	Reachable bool        `json:"reachable"`
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

// RevisionView is one recorded commit of the config repo.
type RevisionView struct {
	Revision    Revision  `json:"revision"`
	Author      string    `json:"author"`
	Subject     string    `json:"subject"`
	CommittedAt time.Time `json:"committedAt"`
	RecordedAt  time.Time `json:"recordedAt"`
	Created     int       `json:"created"`
	Changed     int       `json:"changed"`
	Deleted     int       `json:"deleted"`
	Held        int       `json:"held"`
	Problems    int       `json:"problems"`
	// objects of this revision not yet acknowledged
	Pending   int        `json:"pending"`
	AppliedAt *time.Time `json:"appliedAt,omitempty"` // when the last of them was
}

// PullView is one pull request as it was last judged.
type PullView struct {
	Number int       `json:"number"`
	Title  string    `json:"title"`
	Author string    `json:"author"` // login, as it is shown
	State  PullState `json:"state"`
	Head   Revision  `json:"head"`
	// applied revision that its plan was computed from; empty: there is no plan of this head
	Base      Revision     `json:"base,omitempty"`
	Hash      string       `json:"hash,omitempty"` // of that plan
	Verdict   string       `json:"verdict,omitempty"`
	Tenants   []TenantName `json:"tenants"`        // whose files it changes; "" is the platform
	Consented bool         `json:"consented"`      // owners of all of them have approved this head
	Held      bool         `json:"held,omitempty"` // by /argosy hold
	Following bool         `json:"following"`      // merged, and its result is not all there yet
	URL       string       `json:"url"`
	UpdatedAt time.Time    `json:"updatedAt"`
}

// SourceView is how the config repo stands.
type SourceView struct {
	URL       string     `json:"url"` // without credentials
	Branch    string     `json:"branch"`
	Head      Revision   `json:"head,omitempty"`    // last seen
	Applied   Revision   `json:"applied,omitempty"` // last recorded
	FetchedAt *time.Time `json:"fetchedAt,omitempty"`
	Error     string     `json:"error,omitempty"` // since Since
	Since     *time.Time `json:"since,omitempty"`
}

// Event is one change that the event stream tells of: "look", never the truth.
type Event struct {
	Seq int64     `json:"seq"`
	At  time.Time `json:"at"`
	// agent, application, engine, revision, problem, hold, stop, operation
	Kind   string     `json:"kind"`
	Tenant TenantName `json:"tenant,omitempty"`
	Name   string     `json:"name"`
	Text   string     `json:"text"`
}

// Filter narrows a list; empty fields match everything, and each that is set matches exactly.
type Filter struct {
	Tenant      TenantName
	Environment EnvironmentName
	Deployment  DeploymentName
	Engine      EngineName
	Revision    Revision
	Sync        SyncState
	Health      HealthState
	Apply       ApplyState
	Name        string
	Pull        int // number of a pull request
	State       PullState
}

// Page asks for at most Limit items (1..1000) after the opaque cursor After.
type Page struct {
	Limit int
	After string
}

// Scope is what a caller may see: everything, or one tenant.
type Scope struct {
	Tenant TenantName // empty: the platform
}
