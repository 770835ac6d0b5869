// Package fleet is the domain of Argosy: declarations and identities of tenants, environments,
// deployments, engines and Applications, and the rules that they follow.
//
// Rules of this package:
//   - standard library only, and no I/O: values in, values out;
//   - each kind of name is a string type of its own, so that a tenant's name cannot be used as an
//     engine's;
//   - identity is exact: two identities are equal or different, never similar;
//   - no type has a field for a plaintext secret.
//
// The kinds are the contract of the config repo (apiVersion argosy.dev/v1alpha1). Everything that
// Argo CD reads is built from these typed values, never from an unchecked string of a tenant.
package fleet

// APIVersion is the only apiVersion that a declaration may carry.
const APIVersion = "argosy.dev/v1alpha1"

// Kind names a kind of declaration, exactly as it is written in `kind:`.
type Kind string

// The kinds that have an effect.
const (
	KindFleet                Kind = "Fleet"
	KindEngine               Kind = "Engine"
	KindEnginePool           Kind = "EnginePool"
	KindCluster              Kind = "Cluster"
	KindTenant               Kind = "Tenant"
	KindPolicy               Kind = "Policy"
	KindAccess               Kind = "Access"
	KindManagedEnvironment   Kind = "ManagedEnvironment"
	KindGitOpsDeployment     Kind = "GitOpsDeployment"
	KindRepositoryCredential Kind = "RepositoryCredential"
	KindGitOpsDeploymentSet  Kind = "GitOpsDeploymentSet"
	KindSyncRun              Kind = "SyncRun"
	KindTenantDefaults       Kind = "TenantDefaults"
	KindTenantNotifications  Kind = "TenantNotifications"
	// KindSealedSecret is a SOPS-encrypted `*.sops.yaml` next to a declaration. No declaration has
	// this kind.
	KindSealedSecret Kind = "SealedSecret"
	// KindFile is a file in the declarations' folders that is no declaration (wrong path, wrong
	// extension, symlink). Its Name is its path, so that its problem is never attached to a
	// declaration.
	KindFile Kind = "File"
)

// Each kind of name is a type of its own. All are DNS-1123 labels of at most 63 characters
// (ValidateName).
type (
	// TenantName names a Tenant.
	TenantName string
	// EnvironmentName names a ManagedEnvironment within its tenant.
	EnvironmentName string
	// DeploymentName names a GitOpsDeployment within its tenant.
	DeploymentName string
	// EngineName names an Engine.
	EngineName string
	// CredentialName names a RepositoryCredential within its tenant.
	CredentialName string
	// SyncRunName names a SyncRun within its tenant.
	SyncRunName string
)

// Revision is a full commit id of the config repo, 40 lower-case hexadecimal digits.
type Revision string

// Short is the revision's first 8 digits, for people.
func (r Revision) Short() string {
	if len(r) > 8 {
		return string(r[:8])
	}
	return string(r)
}

// EnvironmentID is the identity of a ManagedEnvironment.
type EnvironmentID struct {
	Tenant TenantName      `json:"tenant"`
	Name   EnvironmentName `json:"name"`
}

// DeploymentID is the identity of a GitOpsDeployment.
type DeploymentID struct {
	Tenant TenantName     `json:"tenant"`
	Name   DeploymentName `json:"name"`
}

// CredentialID is the identity of a RepositoryCredential.
type CredentialID struct {
	Tenant TenantName     `json:"tenant"`
	Name   CredentialName `json:"name"`
}

// SyncRunID is the identity of a SyncRun.
type SyncRunID struct {
	Tenant TenantName  `json:"tenant"`
	Name   SyncRunName `json:"name"`
}

// ApplicationID is the identity of an Application: a deployment in one environment of the same
// tenant.
type ApplicationID struct {
	Tenant      TenantName      `json:"tenant"`
	Deployment  DeploymentName  `json:"deployment"`
	Environment EnvironmentName `json:"environment"`
}

// Deployed is the deployment that the Application comes from.
func (id ApplicationID) Deployed() DeploymentID { return DeploymentID{id.Tenant, id.Deployment} }

// In is the environment that the Application runs in.
func (id ApplicationID) In() EnvironmentID { return EnvironmentID{id.Tenant, id.Environment} }

// String is tenant/name, as people write it on the command line.
func (id EnvironmentID) String() string { return string(id.Tenant) + "/" + string(id.Name) }

// String is tenant/name, as people write it on the command line.
func (id DeploymentID) String() string { return string(id.Tenant) + "/" + string(id.Name) }

// String is tenant/name, as people write it on the command line.
func (id CredentialID) String() string { return string(id.Tenant) + "/" + string(id.Name) }

// String is tenant/name, as people write it on the command line.
func (id SyncRunID) String() string { return string(id.Tenant) + "/" + string(id.Name) }

// String is tenant/deployment@environment.
func (id ApplicationID) String() string {
	return string(id.Tenant) + "/" + string(id.Deployment) + "@" + string(id.Environment)
}
