package mirror

import (
	"errors"

	"argosy.dev/argosy/fleet"
)

// Errors of decisions about what is gone for good.
var (
	// ErrServes means that environments or Applications still depend on an engine that a person
	// wants to forget.
	ErrServes = errors.New("the engine is not evacuated completely")
	// ErrForgotten means that the engine is forgotten, and that it has no object to forget.
	ErrForgotten = errors.New("the engine is forgotten already")
	// ErrDeclared means that an environment is declared whose cluster a person wants to forget.
	ErrDeclared = errors.New("the environment is still declared")
	// ErrClusterAnswers means that the engine of an environment reads its cluster, or that the
	// cluster's agent may return.
	ErrClusterAnswers = errors.New("the cluster is not known to be gone")
)

// ClusterForgetting is the decision of a person that the cluster of a removed environment never
// returns. Its Applications are removed without the proof that their workloads are, which are
// listed as unproven.
type ClusterForgetting struct {
	Tenant      fleet.TenantName      `json:"tenant" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	Environment fleet.EnvironmentName `json:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	// tenant/environment again: the person confirms that its cluster never returns
	ConfirmGone string `json:"confirmGone,omitempty" maxLength:"127"`
	Reason      string `json:"reason" minLength:"1" maxLength:"1024"`
	By          string `json:"-"`
}

// ID returns the environment.
func (r ClusterForgetting) ID() fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: r.Tenant, Name: r.Environment}
}

// EngineForgetting is the decision of a person that an evacuated engine never returns. Argosy
// stops waiting for the proof that its objects are deleted, and lists them as unproven (ADR 0065).
type EngineForgetting struct {
	Engine fleet.EngineName `json:"engine" maxLength:"63"`
	// the engine's name again: the person confirms that it never returns
	ConfirmGone fleet.EngineName `json:"confirmGone,omitempty" maxLength:"63"`
	Reason      string           `json:"reason" minLength:"1" maxLength:"1024"`
	By          string           `json:"-"`
}

// Lost names the part of the fleet that a person has forgotten.
type Lost string

// The things that a person forgets.
const (
	LostEngine  Lost = "Engine"  // an Argo CD with its API server
	LostCluster Lost = "Cluster" // the API server of an environment's workloads
)

// UnprovenResolution is the decision of a person who has proven that objects are gone, or cannot do
// harm: those with the IDs, or all of an engine, or all of an environment.
type UnprovenResolution struct {
	IDs         []int64               `json:"ids,omitempty" maxItems:"100"`
	Engine      fleet.EngineName      `json:"engine,omitempty" maxLength:"127"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty" maxLength:"63"`
	Environment fleet.EnvironmentName `json:"environment,omitempty" maxLength:"63"`
	Reason      string                `json:"reason" minLength:"1" maxLength:"1024"`
	By          string                `json:"-"`
}

// Scopes returns how many of the three ways to select objects the request uses; only one is valid.
func (r UnprovenResolution) Scopes() (n int) {
	for _, used := range []bool{len(r.IDs) > 0, r.Engine != "",
		r.Tenant != "" || r.Environment != ""} {
		if used {
			n++
		}
	}
	return n
}
