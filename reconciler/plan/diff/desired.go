package diff

import (
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// application returns the Application of a deployment in one of its environments, with every
// default and override resolved.
func application(
	on *fleet.EngineSpec, defaults fleet.SyncSettings, dep, env *fleet.Declaration,
	hold fleet.SyncRunName,
) *fleet.Application {
	id := applied.ApplicationID(applied.DeploymentID(dep.Key), applied.EnvironmentID(env.Key))
	target := dep.Deployment.TargetIn(env, defaults)
	sync := target.Sync
	sync.Automated = sync.Automated && hold == ""
	return &fleet.Application{
		ID: id, Name: fleet.ApplicationName(id), Project: fleet.ProjectName(id.Tenant),
		Sources: target.Sources,
		Destination: fleet.Destination{
			Server: serverKey(env.Environment, id.In()), Namespace: target.Namespace,
			Granted: env.Environment.Granted(target.Namespace, on.ArgoCD.Namespace),
		},
		Sync:           sync,
		Hold:           hold,
		DeletionPolicy: target.DeletionPolicy,

		IgnoreDifferences:    dep.Deployment.IgnoreDifferences,
		RevisionHistoryLimit: dep.Deployment.RevisionHistoryLimit,
		Info:                 dep.Deployment.Info,
		Links:                dep.Deployment.Links,
	}
}

// serverKey returns the environment's API server under the name that its engine has for it. An
// agent's own Argo CD always has the in-cluster name.
func serverKey(spec *fleet.EnvironmentSpec, id fleet.EnvironmentID) string {
	if spec.Cluster == nil {
		return fleet.InClusterServer
	}
	return fleet.ServerKey(spec.Cluster.Server, id)
}

// cluster returns the Cluster of an environment without an agent.
func cluster(
	on *fleet.EngineSpec, view *catalog.View, env *fleet.Declaration,
) *fleet.Cluster {
	id := applied.EnvironmentID(env.Key)
	c := env.Environment.Cluster
	out := &fleet.Cluster{
		ID: id, Name: fleet.ClusterName(id), Project: fleet.ProjectName(id.Tenant),
		Server: fleet.ServerKey(c.Server, id), CAData: c.CAData,
		AllNamespaces:    env.Environment.AllNamespaces,
		ClusterResources: env.Environment.ClusterResources,
		Credential: credentialSource(view, id.Tenant, fleet.ObjectCluster,
			c.CredentialsRef.Name),
	}
	if out.AllNamespaces {
		return out
	}
	out.Namespaces = slices.Sorted(slices.Values(env.Environment.Namespaces))
	for _, ns := range out.Namespaces {
		if env.Environment.Granted(ns, on.ArgoCD.Namespace) {
			out.Granted = append(out.Granted, ns)
		}
	}
	return out
}

func repository(view *catalog.View, cred *fleet.Declaration) *fleet.Repository {
	tenant, ref := cred.Key.Tenant, cred.Credential.CredentialsRef.Name
	id := fleet.CredentialID{Tenant: tenant, Name: fleet.CredentialName(cred.Key.Name)}
	return &fleet.Repository{
		ID: id, Name: fleet.RepositoryName(id), Project: fleet.ProjectName(tenant),
		URL:        cred.Credential.RepoURL,
		Type:       cred.Credential.TypeOf(),
		Credential: credentialSource(view, tenant, fleet.ObjectRepository, ref),
	}
}

// credentialSource prefers the encrypted file beside the declaration.
func credentialSource(
	view *catalog.View, t fleet.TenantName, kind fleet.ObjectKind, name string,
) fleet.CredentialSource {
	s := fleet.CredentialSource{Tenant: t, Folder: kind.CredentialFolder(), Name: name}
	if d := view.Sealed(t, s.Folder, name); d != nil {
		s.Sealed = d.Blob
	}
	return s
}

// project returns the AppProject of a tenant on one engine: exactly the repositories that its
// Applications there read, and the namespaces of its environments there. Argo CD has one list of
// cluster-scoped kinds for all of them: the kinds that each environment with cluster-scoped
// resources may deploy.
func project(
	on *fleet.EngineSpec, view *catalog.View, t fleet.TenantName,
	environments []fleet.EnvironmentName, repos []string,
) *fleet.Project {
	p := &fleet.Project{
		Tenant: t, Name: fleet.ProjectName(t), SourceRepos: slices.Sorted(slices.Values(repos))}
	tenant := view.Tenant(t)
	scope, clusterWide := fleet.ClusterScope{All: true}, false
	slices.Sort(environments)
	for _, name := range environments {
		id := fleet.EnvironmentID{Tenant: t, Name: name}
		env := view.Environment(id)
		if env == nil {
			continue
		}
		p.Destinations = append(p.Destinations, destinations(on, id, env.Environment)...)
		if tenant != nil && env.Environment.ClusterWide() {
			scope, clusterWide = scope.And(tenant.Tenant.ScopeOf(name, env.Environment)), true
		}
	}
	if clusterWide {
		p.ClusterResources, p.AllClusterResources = scope.Kinds, scope.All
	}
	return p
}

// destinations are the namespaces of an environment under the server that its engine has for it.
func destinations(
	on *fleet.EngineSpec, id fleet.EnvironmentID, env *fleet.EnvironmentSpec,
) []fleet.Destination {
	server := serverKey(env, id)
	if env.AllNamespaces {
		return []fleet.Destination{{Server: server, All: true}}
	}
	out := make([]fleet.Destination, 0, len(env.Namespaces))
	for _, ns := range slices.Sorted(slices.Values(env.Namespaces)) {
		out = append(out, fleet.Destination{
			Server: server, Namespace: ns, Granted: env.Granted(ns, on.ArgoCD.Namespace)})
	}
	return out
}
