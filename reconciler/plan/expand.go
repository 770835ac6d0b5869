package plan

import (
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// application is what a deployment is to be in one of its environments, every default and override
// resolved.
func application(defaults fleet.SyncSettings, dep, env *fleet.Declaration,
	hold fleet.SyncRunName) *fleet.Application {
	id := fleet.ApplicationID{Tenant: dep.Key.Tenant,
		Deployment:  fleet.DeploymentName(dep.Key.Name),
		Environment: fleet.EnvironmentName(env.Key.Name)}
	target := dep.Deployment.TargetIn(env, defaults)
	sync := target.Sync
	sync.Automated = sync.Automated && hold == ""
	return &fleet.Application{
		ID: id, Name: fleet.ApplicationName(id), Project: fleet.ProjectName(id.Tenant),
		Source: target.Source,
		Destination: fleet.Destination{Server: serverKey(env.Environment, id.In()),
			Namespace: target.Namespace},
		Sync:           sync,
		Hold:           hold,
		DeletionPolicy: target.DeletionPolicy,
	}
}

// cluster is an environment's API server as its engine is to know it. One with an agent has none:
// the agent's Argo CD runs there.
func cluster(view catalog.View, env *fleet.Declaration) *fleet.Cluster {
	id := environmentID(env.Key)
	c := env.Environment.Cluster
	return &fleet.Cluster{
		ID: id, Name: fleet.ClusterName(id), Project: fleet.ProjectName(id.Tenant),
		Server: fleet.ServerKey(c.Server, id), CAData: c.CAData,
		Namespaces:       slices.Sorted(slices.Values(env.Environment.Namespaces)),
		ClusterResources: env.Environment.ClusterResources,
		Credential: credentialSource(view, id.Tenant, fleet.ObjectCluster,
			c.CredentialsRef.Name),
	}
}

func repository(view catalog.View, cred *fleet.Declaration) *fleet.Repository {
	id := fleet.CredentialID{Tenant: cred.Key.Tenant, Name: fleet.CredentialName(cred.Key.Name)}
	return &fleet.Repository{
		ID: id, Name: fleet.RepositoryName(id), Project: fleet.ProjectName(id.Tenant),
		URL: cred.Credential.RepoURL,
		Credential: credentialSource(view, id.Tenant, fleet.ObjectRepository,
			cred.Credential.CredentialsRef.Name),
	}
}

// credentialSource prefers the encrypted file beside the declaration.
func credentialSource(view catalog.View, t fleet.TenantName, kind fleet.ObjectKind,
	name string) fleet.CredentialSource {
	s := fleet.CredentialSource{Tenant: t, Folder: kind.CredentialFolder(), Name: name}
	if d := view.Sealed(t, s.Folder, name); d != nil {
		s.Sealed = d.Blob
	}
	return s
}

// project is what a tenant may do on one engine: exactly the repositories that its Applications
// there read, and the namespaces of its environments there. Cluster-scoped kinds are those of its
// grant, if one of these environments asks for them.
func project(view catalog.View, t fleet.TenantName, environments []fleet.EnvironmentName,
	repos []string) *fleet.Project {
	p := &fleet.Project{Tenant: t, Name: fleet.ProjectName(t),
		SourceRepos: slices.Sorted(slices.Values(repos))}
	clusterResources := false
	slices.Sort(environments)
	for _, name := range environments {
		id := fleet.EnvironmentID{Tenant: t, Name: name}
		env := view.Environment(id)
		if env == nil {
			continue
		}
		server := serverKey(env.Environment, id)
		for _, ns := range slices.Sorted(slices.Values(env.Environment.Namespaces)) {
			p.Destinations = append(p.Destinations, fleet.Destination{
				Server: server, Namespace: ns})
		}
		clusterResources = clusterResources || env.Environment.ClusterResources
	}
	if tenant := view.Tenant(t); clusterResources && tenant != nil {
		p.ClusterResources = slices.Clone(tenant.Tenant.ClusterResources)
	}
	return p
}

func environmentID(k fleet.Key) fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: k.Tenant, Name: fleet.EnvironmentName(k.Name)}
}

func deploymentID(k fleet.Key) fleet.DeploymentID {
	return fleet.DeploymentID{Tenant: k.Tenant, Name: fleet.DeploymentName(k.Name)}
}

// repoKey is what all spellings of a repository share. What stands in the catalog has passed
// NormalizeRepoURL.
func repoKey(url string) string {
	key, err := fleet.NormalizeRepoURL(url)
	if err != nil {
		return url
	}
	return key
}
