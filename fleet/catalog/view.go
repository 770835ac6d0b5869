package catalog

import (
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
)

// View reads the effective state, of a Catalog or as it will be after a Stage. Single declarations
// are nil when they are not in effect; lists are sorted and of what is in effect.
type View interface {
	// Fleet is the fleet's guards and defaults with every field resolved.
	Fleet() fleet.FleetSpec
	Declaration(fleet.Key) *fleet.Declaration
	Engine(fleet.EngineName) *fleet.Declaration
	Tenant(fleet.TenantName) *fleet.Declaration
	Environment(fleet.EnvironmentID) *fleet.Declaration
	Deployment(fleet.DeploymentID) *fleet.Declaration
	Credential(fleet.CredentialID) *fleet.Declaration
	SyncRun(fleet.SyncRunID) *fleet.Declaration
	// Sealed is the encrypted file <name>.sops.yaml in folder "environments" or "credentials".
	Sealed(tenant fleet.TenantName, folder, name string) *fleet.Declaration

	Engines() []fleet.EngineName
	Tenants() []fleet.TenantName
	EnvironmentsOf(fleet.TenantName) []fleet.EnvironmentID
	DeploymentsOf(fleet.TenantName) []fleet.DeploymentID
	CredentialsOf(fleet.TenantName) []fleet.CredentialID
	SyncRunsOf(fleet.DeploymentID) []fleet.SyncRunID

	// Targets is the environments that a deployment names or selects: one Application each.
	Targets(fleet.DeploymentID) []fleet.EnvironmentID
	// DeploymentsIn is the deployments that name or select an environment.
	DeploymentsIn(fleet.EnvironmentID) []fleet.DeploymentID
	// DeploymentsFrom is the tenant's deployments whose source is that repository, in whatever
	// spelling.
	DeploymentsFrom(tenant fleet.TenantName, repoURL string) []fleet.DeploymentID
	// CredentialFor is the tenant's credential for a repository; nil when it has none.
	CredentialFor(tenant fleet.TenantName, repoURL string) *fleet.Declaration
	// Repositories is what the deployments of an environment read, and as whom.
	Repositories(fleet.EnvironmentID) []Repository
	// Used is what a tenant has in effect, to be held against its quota.
	Used(fleet.TenantName) fleet.Quota

	// Effective is every declaration in effect; it costs the whole fleet.
	Effective() []*fleet.Declaration
	// Quarantines is every quarantined file; it costs the whole fleet.
	Quarantines() []Quarantine
	Quarantine(fleet.Key) (Quarantine, bool)
	Count() (effective, quarantined int)
}

// Repository is a repository as an environment's deployments read it. Argo CD keeps credentials by
// URL, so an engine must not hold one URL with two tenants' credentials.
type Repository struct {
	Key        string             // of the URL: fleet.NormalizeRepoURL
	Credential fleet.CredentialID // zero: read without one
}

// Identity is the repository and the credential, if any, in one comparable string; two are in each
// other's way when their keys are equal and their identities are not.
func (r Repository) Identity() string {
	if r.Credential == (fleet.CredentialID{}) {
		return r.Key
	}
	return r.Key + " " + r.Credential.String()
}

// view is the View of a state under the catalog's lock.
type view struct {
	mu *sync.RWMutex
	st *state
}

var _, _ View = (*Catalog)(nil), (*Changeset)(nil)

func (v *view) Declaration(k fleet.Key) *fleet.Declaration {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.get(k)
}

func (v *view) Engine(n fleet.EngineName) *fleet.Declaration { return v.Declaration(engineKey(n)) }
func (v *view) Tenant(n fleet.TenantName) *fleet.Declaration { return v.Declaration(tenantKey(n)) }
func (v *view) Environment(id fleet.EnvironmentID) *fleet.Declaration {
	return v.Declaration(environmentKey(id))
}
func (v *view) Deployment(id fleet.DeploymentID) *fleet.Declaration {
	return v.Declaration(deploymentKey(id))
}
func (v *view) Credential(id fleet.CredentialID) *fleet.Declaration {
	return v.Declaration(credentialKey(id))
}
func (v *view) SyncRun(id fleet.SyncRunID) *fleet.Declaration {
	return v.Declaration(syncRunKey(id))
}
func (v *view) Sealed(tenant fleet.TenantName, folder, name string) *fleet.Declaration {
	return v.Declaration(SealedKey(tenant, folder, name))
}

func (v *view) Fleet() fleet.FleetSpec {
	var spec fleet.FleetSpec
	if d := v.Declaration(fleetKey()); d != nil {
		spec = *d.Fleet
	}
	orInt := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}
	orInt(&spec.Guards.MaxDeletes, 20)
	orInt(&spec.Guards.MaxDeletePercent, 20)
	orInt(&spec.Guards.AlwaysAllowed, 5)
	if spec.Guards.Window == 0 {
		spec.Guards.Window = fleet.Duration(time.Hour)
	}
	orBool := func(b **bool, otherwise bool) {
		if *b == nil {
			*b = &otherwise
		}
	}
	sync := &spec.Defaults.Sync
	if sync.Mode == "" {
		sync.Mode = fleet.SyncAutomated
	}
	orBool(&sync.Prune, true)
	orBool(&sync.SelfHeal, true)
	orBool(&sync.CreateNamespace, false)
	return spec
}

func (v *view) Engines() []fleet.EngineName {
	return members(v, membersOf("", fleet.KindEngine), func(k fleet.Key) fleet.EngineName {
		return fleet.EngineName(k.Name)
	})
}

func (v *view) Tenants() []fleet.TenantName {
	return members(v, membersOf("", fleet.KindTenant), func(k fleet.Key) fleet.TenantName {
		return fleet.TenantName(k.Name)
	})
}

func (v *view) EnvironmentsOf(t fleet.TenantName) []fleet.EnvironmentID {
	return members(v, membersOf(t, fleet.KindManagedEnvironment), environmentID)
}

func (v *view) DeploymentsOf(t fleet.TenantName) []fleet.DeploymentID {
	return members(v, membersOf(t, fleet.KindGitOpsDeployment), deploymentID)
}

func (v *view) CredentialsOf(t fleet.TenantName) []fleet.CredentialID {
	return members(v, membersOf(t, fleet.KindRepositoryCredential), credentialID)
}
