package view

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Credential is access of a tenant to a private repository, or to a folder of repositories, and
// whether the engines have it. It has no secret: it names one.
type Credential struct {
	Tenant  fleet.TenantName     `json:"tenant"`
	Name    fleet.CredentialName `json:"name"`
	Path    string               `json:"path" doc:"of its declaration"`
	RepoURL string               `json:"repoURL" doc:"a folder ends in a slash"`
	Type    fleet.RepositoryType `json:"type" enum:"git,helm,oci"`
	Secret  string               `json:"secret" doc:"name of the tenant's secret that it names"`
	// of the Secrets of its repositories on the engines: the first of Failed, Conflict, Deleting
	// and Pending that one of them has, or Applied
	State   mirror.ApplyState  `json:"state,omitempty" doc:"absent: no Application needs it"`
	Message string             `json:"message,omitempty" doc:"why it is not Applied"`
	Engines []fleet.EngineName `json:"engines" doc:"that have it, or are to get it"`
}

// ID identifies the credential.
func (c Credential) ID() fleet.CredentialID {
	return fleet.CredentialID{Tenant: c.Tenant, Name: c.Name}
}

// Policy is a rule for the declarations of tenants.
type Policy struct {
	Name             string `json:"name"`
	Path             string `json:"path,omitempty" doc:"of its declaration; absent for tenants"`
	fleet.PolicySpec        // of a tenant's view: without the expressions and Tenants
}

// ForTenant returns the policy as a tenant sees it: the path, the expressions and Tenants may name
// other tenants.
func (p Policy) ForTenant() Policy {
	p.Path, p.Tenants, p.Rule, p.MessageExpression = "", nil, "", ""
	return p
}
