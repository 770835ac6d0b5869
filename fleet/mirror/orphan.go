package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// MaxOrphanEnvironments is the number of environments that an agent lists. Once these are placed,
// their objects are no longer orphans, and the agent lists others.
const MaxOrphanEnvironments = 1000

// Orphan is a live object of ours without a row: a late request created it, a backup restored it,
// or its row was lost. It keeps running and does not follow the config repo.
type Orphan struct {
	Key         fleet.ObjectKey
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Deployment  fleet.DeploymentName
	UID         string
	Revision    fleet.Revision // of its last write
	Epoch       int64          // of the lease of its last write
	Pure        bool           // no other field manager has written to it
}

// MaxListedOrphans is the number of orphans that an agent lists. It lists others once some are
// removed.
const MaxListedOrphans = 200

// OrphanRemoval is the decision to delete one orphan.
type OrphanRemoval struct {
	Engine   fleet.EngineName     `json:"engine"`
	Kind     fleet.ObjectKind     `json:"kind" enum:"Application,AppProject,Cluster,Repository"`
	Name     string               `json:"name"`
	UID      string               `json:"uid" minLength:"1" doc:"of exactly the object that was looked at; another one of that name stays"`
	Deletion fleet.DeletionPolicy `json:"deletion" enum:"Delete,Orphan" doc:"Delete takes the workload along, Orphan leaves it running"`
	By       string               `json:"-"`
	Note     string               `json:"note,omitempty" maxLength:"1024"`
}

// TombstoneTime is how long the store remembers that an object was proven deleted. An earlier
// request can arrive as long as TCP retries it, about a quarter of an hour, and an API server
// delays it for one more minute; twice the lease and the request timeout is far below that.
const TombstoneTime = time.Hour
