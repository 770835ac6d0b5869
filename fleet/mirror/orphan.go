package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// MaxOrphanEnvironments is how many an agent tells of. Once these are placed their objects are no
// strays any more, and others are told.
const MaxOrphanEnvironments = 1000

// Orphan is a live object of ours that no row names: one that a late request made, that came back
// with a backup, or whose row is lost. It runs on, and nothing of it follows the config repo.
type Orphan struct {
	Key         fleet.ObjectKey
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Deployment  fleet.DeploymentName
	UID         string
	Revision    fleet.Revision // that it was last written for
	Epoch       int64          // of the lease that wrote it
	Pure        bool           // nobody else has written to it
}

// MaxListedOrphans is how many strays an agent lists. Those that are left are listed once some are
// gone.
const MaxListedOrphans = 200

// OrphanRemoval is a decision about one stray.
type OrphanRemoval struct {
	Engine   fleet.EngineName     `json:"engine"`
	Kind     fleet.ObjectKind     `json:"kind" enum:"Application,AppProject,Cluster,Repository"`
	Name     string               `json:"name"`
	UID      string               `json:"uid" minLength:"1" doc:"of exactly the object that was looked at; another one of that name stays"`
	Deletion fleet.DeletionPolicy `json:"deletion" enum:"Delete,Orphan" doc:"Delete takes the workload along, Orphan leaves it running"`
	By       string               `json:"-"`
	Note     string               `json:"note,omitempty" maxLength:"1024"`
}

// TombstoneTime is how long it is remembered that an object was proven gone. A request that was
// sent before can arrive as long as TCP retries it, about a quarter of an hour, and an API server
// holds it for a minute more; twice the lease and the timeout of a request is far below that.
const TombstoneTime = time.Hour
