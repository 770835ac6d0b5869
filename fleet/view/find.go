package view

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Limits of a search.
const (
	MaxSearchText = 200 // bytes of the text
	MaxHits       = 50  // of one result
)

// HitKind is the kind of an object that a search has found.
type HitKind string

// Kinds of hits, in the order in which equally good hits are listed.
const (
	HitTenant      HitKind = "Tenant"
	HitApplication HitKind = "Application"
	HitDeployment  HitKind = "Deployment"
	HitEnvironment HitKind = "Environment"
	HitEngine      HitKind = "Engine"
	HitAgent       HitKind = "Agent"
	HitSet         HitKind = "Set"
	HitRing        HitKind = "Ring"
	HitPool        HitKind = "Pool"
	HitRevision    HitKind = "Revision"  // a recorded commit of the config repo
	HitCommit      HitKind = "Commit"    // of an application's repository, that Applications run
	HitImage       HitKind = "Image"     // that Applications run
	HitPull        HitKind = "Pull"      // a pull request of the config repo
	HitOperation   HitKind = "Operation" // by its ID
)

// Hit is one object that a search has found. The fields that identify the object are set, the
// others are empty.
type Hit struct {
	Kind        HitKind               `json:"kind" enum:"Tenant,Application,Deployment,Environment,Engine,Agent,Set,Ring,Pool,Revision,Commit,Image,Pull,Operation"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	// Name is the object's name, a commit, an image, the number of a pull request or the ID of an
	// operation.
	Name  string `json:"name"`
	Title string `json:"title,omitempty" doc:"subject of a commit, title of a pull request, subject of an operation, engine of an environment"`
	// Applications counts those that run the commit or the image.
	Applications int `json:"applications,omitempty"`
}

// SearchResult is what a search has found, the best hits first.
type SearchResult struct {
	Query string `json:"query"`
	Hits  []Hit  `json:"hits"`
	More  bool   `json:"more" doc:"there are further hits: make the text longer"`
}

// MaxColumns bounds the columns of a matrix.
const MaxColumns = 60

// Matrix is what runs where: one row for each deployment, one column for each name of an
// environment.
type Matrix struct {
	// Environments are the columns, from the first stage to the last.
	Environments []fleet.EnvironmentName `json:"environments"`
	Rows         []MatrixRow             `json:"rows"`
	Next         string                  `json:"next,omitempty" doc:"cursor of the following page"`
	// HiddenEnvironments counts the columns beyond MaxColumns.
	HiddenEnvironments int `json:"hiddenEnvironments,omitempty"`
}

// MatrixRow is one deployment.
type MatrixRow struct {
	Tenant     fleet.TenantName     `json:"tenant"`
	Deployment fleet.DeploymentName `json:"deployment"`
	// Usual is the version that most Applications of the row run; empty if none is more frequent
	// than the others.
	Usual string `json:"usual,omitempty"`
	// Versions has one item for each column; null: the deployment has no Application there.
	Versions []*MatrixVersion `json:"versions"`
}

// MatrixVersion is what one Application runs, beside those of the other environments.
type MatrixVersion struct {
	Environment fleet.EnvironmentName `json:"environment"`
	Engine      fleet.EngineName      `json:"engine"`
	// Version is the tag of the deployment's own image, else the target revision if that is a
	// version, else the synced commit.
	Version        string             `json:"version"`
	TargetRevision string             `json:"targetRevision"`
	SyncedRevision string             `json:"syncedRevision,omitempty"`
	Images         []string           `json:"images,omitempty"`
	Sync           mirror.SyncState   `json:"sync"`
	Health         mirror.HealthState `json:"health"`
	Apply          mirror.ApplyState  `json:"apply"`
	// Unusual is set if Version is not MatrixRow.Usual.
	Unusual bool `json:"unusual,omitempty"`
	// Differs lists what differs from the next environment to the left that has the deployment:
	// version, targetRevision, commit, images.
	Differs []string `json:"differs,omitempty"`
}

// StateCount is a number of Applications that are alike in everything that a list of Applications
// counts by.
type StateCount struct {
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Engine      fleet.EngineName
	Sync        mirror.SyncState
	Health      mirror.HealthState
	Apply       mirror.ApplyState
	Count       int
}

// Facets count the Applications of a filter by each of their states. The counts of one field
// ignore the filter's value of that field: they answer how many there are if it is changed.
type Facets struct {
	Total        int     `json:"total"`
	Sync         []Facet `json:"sync"`
	Health       []Facet `json:"health"`
	Apply        []Facet `json:"apply"`
	Engines      []Facet `json:"engines"`
	Environments []Facet `json:"environments"`
	Tenants      []Facet `json:"tenants"`
}

// Facet is one value of a field and the number of Applications that have it.
type Facet struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// Change is an object whose desired state a revision has written. A revision that is not the last
// one lists the objects that no later revision has written again.
type Change struct {
	Revision    fleet.Revision        `json:"revision"`
	Engine      fleet.EngineName      `json:"engine"`
	Kind        fleet.ObjectKind      `json:"kind"`
	Name        string                `json:"name"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	// Action is create, update or delete; of an object that the revision has both created and
	// changed since, create.
	Action  string            `json:"action" enum:"create,update,delete"`
	Apply   mirror.ApplyState `json:"apply"`
	Message string            `json:"message,omitempty"` // why it is not applied
}
