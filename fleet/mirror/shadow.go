package mirror

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// ErrNoDifference is returned for the approval of a difference that the shadow does not show, or
// not any more.
var ErrNoDifference = errors.New("the shadow shows no such difference")

// ShadowState is how far the shadow of an engine has come: the next version's repo-server beside
// the present one (ADR 0072).
type ShadowState string

// States of shadows.
const (
	ShadowRendering ShadowState = "Rendering" // it is being started, or renders
	ShadowCompared  ShadowState = "Compared"  // every Application was compared
	ShadowFailed    ShadowState = "Failed"    // it cannot render; it tries again
	ShadowEnding    ShadowState = "Ending"    // it is not needed any more
	ShadowEnded     ShadowState = "Ended"     // it is removed; its differences are kept
)

// Shadow is the comparison of one engine's Applications under the next version of its Argo CD.
type Shadow struct {
	Engine  fleet.EngineName `json:"engine"`
	State   ShadowState      `json:"state" enum:"Rendering,Compared,Failed,Ending,Ended"`
	Version string           `json:"version"` // that the shadow has
	Digest  string           `json:"digest"`  // of the version's manifests
	Message string           `json:"message,omitempty"`
	Since   time.Time        `json:"since"` // of the state
	// the last complete comparison
	ComparedAt   *time.Time `json:"comparedAt,omitempty"`
	Applications int        `json:"applications"` // that were compared
	Unrendered   int        `json:"unrendered"`   // that neither version renders
	Differences  int        `json:"differences"`  // Applications that differ
	Pending      int        `json:"pending"`      // of them, those without an approval
	// of the pending ones
	Tenants []fleet.TenantName `json:"tenants,omitempty"`
}

// Active reports whether the worker of the engine keeps the shadow.
func (s Shadow) Active() bool {
	return s.State == ShadowRendering || s.State == ShadowCompared || s.State == ShadowFailed
}

// Changes of a resource.
const (
	ResourceAdded   = "Added"   // the next version alone renders it
	ResourceRemoved = "Removed" // the present version alone renders it
	ResourceChanged = "Changed"
)

// Limits of what is kept of one Application's difference.
const (
	MaxDifferentResources = 20
	MaxDifferentFields    = 20  // of one resource
	MaxDifferentValue     = 256 // bytes of a value
)

// ResourceDifference is one resource that two versions render differently.
type ResourceDifference struct {
	Group      string            `json:"group,omitempty"`
	Kind       string            `json:"kind"`
	Namespace  string            `json:"namespace,omitempty"`
	Name       string            `json:"name"`
	Change     string            `json:"change" enum:"Added,Removed,Changed"`
	Fields     []FieldDifference `json:"fields,omitempty"` // of a changed one
	MoreFields int               `json:"moreFields,omitempty"`
}

// FieldDifference is a field that differs; "" where a version does not render it. The content of a
// Secret is never part of it.
type FieldDifference struct {
	Path   string `json:"path"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Rendered counts the Applications of a ring whose last comparison was with the manifests of a
// digest.
type Rendered struct {
	Ring, Digest string
	Applications int
	Differences  int // of them
	Pending      int // of the differences: not approved
}

// Difference is what the next version renders differently for one Application.
type Difference struct {
	Ring        string                `json:"ring"`
	Engine      fleet.EngineName      `json:"engine"`
	Application string                `json:"application"` // as in `argosy get applications`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	Version     string                `json:"version"`  // that renders it differently
	Revision    string                `json:"revision"` // of the sources
	// Hash identifies the difference: an approval counts for it alone.
	Hash string `json:"id"`
	// Error is why the next version does not render it at all.
	Error         string               `json:"error,omitempty"`
	Resources     []ResourceDifference `json:"resources"`
	MoreResources int                  `json:"moreResources,omitempty"`
	FoundAt       time.Time            `json:"foundAt"`
	ApprovedAt    *time.Time           `json:"approvedAt,omitempty"`
	ApprovedBy    string               `json:"approvedBy,omitempty"`
	Reason        string               `json:"reason,omitempty"` // of the approval
}

// ShadowTask is one Application that a worker has to render.
type ShadowTask struct {
	Name        string
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Deployment  fleet.DeploymentName
	Inputs      string // identifies what the rendering depends on
}

// ShadowResult is the comparison of one Application.
type ShadowResult struct {
	ShadowTask
	Revision string
	// Unrendered is why neither version renders it; "" if one does.
	Unrendered    string
	Error         string // why the next version alone does not render it
	Hash          string // of the difference; "" without one
	Resources     []ResourceDifference
	MoreResources int
}

// DifferenceApproval approves exactly the named differences of a ring.
type DifferenceApproval struct {
	Ring        string             `json:"ring" minLength:"1" maxLength:"63"`
	Differences []DifferenceChoice `json:"differences" minItems:"1" maxItems:"1000"`
	Reason      string             `json:"reason" minLength:"1" maxLength:"512"`
	By          string             `json:"-"`
}

// DifferenceChoice names a difference.
type DifferenceChoice struct {
	Tenant      fleet.TenantName `json:"tenant" minLength:"1" maxLength:"63"`
	Application string           `json:"application" minLength:"1" maxLength:"253"`
	Hash        string           `json:"id" minLength:"64" maxLength:"64"`
}
