package applied

import (
	"cmp"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// CompareKeys orders objects by engine, then by dependency, then by name.
func CompareKeys(a, b fleet.ObjectKey) int {
	return cmp.Or(
		cmp.Compare(a.Engine, b.Engine), a.Kind.Rank()-b.Kind.Rank(), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Name, b.Name),
	)
}

// CompareDeclarations orders declarations by kind, tenant and name.
func CompareDeclarations(a, b fleet.Key) int {
	return cmp.Or(
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name),
	)
}

// CompareApplications orders Applications by tenant, environment and deployment.
func CompareApplications(a, b fleet.ApplicationID) int {
	return cmp.Or(
		cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Environment, b.Environment),
		cmp.Compare(a.Deployment, b.Deployment),
	)
}

// CompareEnvironments orders environments by the text TENANT/NAME.
func CompareEnvironments(a, b fleet.EnvironmentID) int {
	return strings.Compare(string(a.Tenant)+"/"+string(a.Name), string(b.Tenant)+"/"+string(b.Name))
}

// CompareHolds orders holds by tenant, reason and revision.
func CompareHolds(a, b mirror.HoldID) int {
	return cmp.Or(
		cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.Revision, b.Revision),
	)
}

// EnvironmentID is the environment that a key declares.
func EnvironmentID(k fleet.Key) fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: k.Tenant, Name: fleet.EnvironmentName(k.Name)}
}

// EnvironmentKey is the key of an environment's declaration.
func EnvironmentKey(id fleet.EnvironmentID) fleet.Key {
	return fleet.Key{
		Kind: fleet.KindManagedEnvironment, Tenant: id.Tenant, Name: string(id.Name),
	}
}

// DeploymentID is the deployment that a key declares.
func DeploymentID(k fleet.Key) fleet.DeploymentID {
	return fleet.DeploymentID{Tenant: k.Tenant, Name: fleet.DeploymentName(k.Name)}
}

// DeploymentKey is the key of the declaration that an Application is rendered from.
func DeploymentKey(id fleet.ApplicationID) fleet.Key {
	return fleet.Key{
		Kind: fleet.KindGitOpsDeployment, Tenant: id.Tenant, Name: string(id.Deployment),
	}
}

// TenantKey is the key of a tenant's own declaration.
func TenantKey(t fleet.TenantName) fleet.Key {
	return fleet.Key{Kind: fleet.KindTenant, Name: string(t)}
}

// TenantOf is the tenant that a declaration belongs to or declares, "" for the platform.
func TenantOf(k fleet.Key) fleet.TenantName {
	if k.Kind == fleet.KindTenant {
		return fleet.TenantName(k.Name)
	}
	return k.Tenant
}

// ApplicationID is the Application of a deployment in one of its environments.
func ApplicationID(dep fleet.DeploymentID, env fleet.EnvironmentID) fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: dep.Tenant, Deployment: dep.Name, Environment: env.Name}
}

// ApplicationKey is the key of an Application's row.
func ApplicationKey(e fleet.EngineName, id fleet.ApplicationID) fleet.ObjectKey {
	return fleet.ObjectKey{
		Engine: e, Kind: fleet.ObjectApplication, Name: fleet.ApplicationName(id)}
}

// ClusterKey is the key of an environment's Cluster row.
func ClusterKey(e fleet.EngineName, id fleet.EnvironmentID) fleet.ObjectKey {
	return fleet.ObjectKey{Engine: e, Kind: fleet.ObjectCluster, Name: fleet.ClusterName(id)}
}

// RepoKey is the same for all spellings of a repository's URL. A URL of the catalog has passed
// NormalizeRepoURL.
func RepoKey(url string) string {
	key, err := fleet.NormalizeRepoURL(url)
	if err != nil {
		return url
	}
	return key
}

// Scopes are the keys of repositories and folders: see fleet.RepoScopeKey.
type Scopes map[string]bool

// SharedRepositories returns the repositories that the platform shares.
func SharedRepositories(spec fleet.FleetSpec) Scopes {
	if len(spec.SharedRepositories) == 0 {
		return nil
	}
	scopes := Scopes{}
	for _, url := range spec.SharedRepositories {
		if scope, err := fleet.RepoScopeKey(url); err == nil {
			scopes[scope] = true
		}
	}
	return scopes
}

// Covers reports whether a repository or one of its folders is among the scopes.
func (s Scopes) Covers(key string) bool {
	return len(s) > 0 && slices.ContainsFunc(fleet.RepoScopes(key), func(scope string) bool {
		return s[scope]
	})
}
