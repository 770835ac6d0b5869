package fleet

import "time"

// Orphan is a live object of ours that no row names: one that a late request made, that came back
// with a backup, or whose row is lost. It runs on, and nothing of it follows the config repo.
type Orphan struct {
	Key         ObjectKey
	Tenant      TenantName
	Environment EnvironmentName
	Deployment  DeploymentName
	UID         string
	Revision    Revision // that it was last written for
	Epoch       int64    // of the lease that wrote it
	Pure        bool     // nobody else has written to it
}

// MaxListedOrphans is how many strays an agent lists. Those that are left are listed once some are
// gone.
const MaxListedOrphans = 200

// OrphanView is a listed stray. It is removed only when somebody has decided so of exactly this UID;
// declaring it again adopts it.
type OrphanView struct {
	Engine      EngineName      `json:"engine"`
	Kind        ObjectKind      `json:"kind"`
	Name        string          `json:"name"`
	Tenant      TenantName      `json:"tenant"`
	Environment EnvironmentName `json:"environment,omitempty"`
	Deployment  DeploymentName  `json:"deployment,omitempty"`
	UID         string          `json:"uid"`
	Revision    Revision        `json:"revision,omitempty"` // that it was last written for
	Epoch       int64           `json:"epoch"`              // of the lease that wrote it
	FoundAt     time.Time       `json:"foundAt"`
	Deletion    DeletionPolicy  `json:"deletion,omitempty"` // of a removal that is decided
	RemovedBy   string          `json:"removedBy,omitempty"`
	RemovedAt   *time.Time      `json:"removedAt,omitempty"` // when the removal was decided
}

// OrphanRemoval is a decision about one stray.
type OrphanRemoval struct {
	Engine   EngineName     `json:"engine"`
	Kind     ObjectKind     `json:"kind" enum:"Application,AppProject,Cluster,Repository"`
	Name     string         `json:"name"`
	UID      string         `json:"uid" minLength:"1" doc:"of exactly the object that was looked at; another one of that name stays"`
	Deletion DeletionPolicy `json:"deletion" enum:"Delete,Orphan" doc:"Delete takes the workload along, Orphan leaves it running"`
	By       string         `json:"-"`
	Note     string         `json:"note,omitempty" maxLength:"1024"`
}

// TombstoneTime is how long it is remembered that an object was proven gone. A request that was
// sent before can arrive as long as TCP retries it, about a quarter of an hour, and an API server
// holds it for a minute more; twice the lease and the timeout of a request is far below that.
const TombstoneTime = time.Hour
