package diff

import (
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// application returns the Application of a deployment in one of its environments, with every
// default, override and variable resolved.
func application(
	engine fleet.EngineName, on *fleet.EngineSpec, view *catalog.View, id fleet.ApplicationID,
	target fleet.Target, hold fleet.SyncRunName,
) *fleet.Application {
	env, sync := target.Environment.Environment, target.Sync
	sync.Automated = sync.Automated && hold == ""
	return &fleet.Application{
		ID: id, Name: fleet.ApplicationName(id), Project: fleet.ProjectName(id.Tenant),
		Sources: target.Sources, SourceList: target.SourceList,
		TrustedArtifacts: trusted(view, id.Tenant, target.Sources),
		Destination: fleet.Destination{
			Server: serverKey(engine, view, env, id.In()), Namespace: target.Namespace,
			Granted: env.Granted(target.Namespace, on.ArgoCD.Namespace), OnEngine: env.OnEngine(),
		},
		Sync:           sync,
		Hold:           hold,
		DeletionPolicy: target.DeletionPolicy,
		Adopt:          target.Adopt.Application,
		AdoptOrCreate:  target.Adopt.OrCreate,

		Wave:                 target.Wave,
		IgnoreDifferences:    target.IgnoreDifferences,
		RevisionHistoryLimit: target.RevisionHistoryLimit,
		Info:                 target.Info,
		Links:                target.Links,
		Notifications:        target.Notifications,
		WatchPaths:           target.WatchPaths,
	}
}

// trusted reports whether there are OCI artifacts among the sources and the platform trusts each.
func trusted(view *catalog.View, t fleet.TenantName, sources []fleet.Source) bool {
	found := false
	for _, s := range sources {
		if !s.Artifact() {
			continue
		}
		tenant := view.Tenant(t)
		if found = tenant != nil && tenant.Tenant.TrustsArtifact(s); !found {
			return false
		}
	}
	return found
}

// serverKey returns the environment's API server under the name that its engine has for it. An
// agent's own Argo CD always has the in-cluster name.
func serverKey(
	engine fleet.EngineName, view *catalog.View, spec *fleet.EnvironmentSpec,
	id fleet.EnvironmentID,
) string {
	if engine.OfEnvironment() {
		return fleet.InClusterServer
	}
	return fleet.ServerKey(spec.Cluster.URL(view.PlatformCluster(spec)), id)
}

// cluster returns the Cluster of an environment without an agent on one engine.
func cluster(
	engine fleet.EngineName, on *fleet.EngineSpec, view *catalog.View, l *applied.Layers,
	env *fleet.Declaration,
) *fleet.Cluster {
	id := applied.EnvironmentID(env.Key)
	c := env.Environment.Cluster
	evacuated, parts := slicesOn(l, id, engine)
	out := &fleet.Cluster{
		Evacuated: evacuated, Slices: parts,
		ID: id, Name: fleet.ClusterName(id), Project: fleet.ProjectName(id.Tenant),
		Server: serverKey(engine, view, env.Environment, id), OnEngine: c.Engine, CAData: c.CAData,
		AllNamespaces:    env.Environment.AllNamespaces,
		ClusterResources: env.Environment.ClusterResources,
		Credential: credentialSource(view, id.Tenant, fleet.ObjectCluster,
			c.CredentialsRef.Name),
	}
	if platform := view.PlatformCluster(env.Environment); platform != nil {
		out.CAData, out.Cloud = platform.CAData, platform.Cloud()
		out.Credential = fleet.CredentialSource{}
		if ref := platform.CredentialsRef; ref != nil {
			out.Credential.Folder = fleet.ObjectCluster.CredentialFolder()
			out.Credential.Name = ref.Name
		}
	}
	if c.CredentialsRef.Name == "" && out.Cloud == nil {
		account := fleet.AccountOf(id)
		out.ServiceAccount = &account
	}
	if out.AllNamespaces {
		return out
	}
	out.Namespaces = namespaces(l, id, env.Environment)
	out.Unused = len(out.Namespaces) == 0
	for _, ns := range out.Namespaces {
		if env.Environment.Granted(ns, on.ArgoCD.Namespace) {
			out.Granted = append(out.Granted, ns)
		}
	}
	return out
}

// slicesOn returns what an environment's Cluster on an engine shows of the environment's placement:
// the evacuated engines that its slices there were on, and these slices, if the environment is
// split. A slice that moves is on both engines.
func slicesOn(l *applied.Layers, id fleet.EnvironmentID, engine fleet.EngineName) (
	evacuated []fleet.EngineName, parts []fleet.Slice) {
	for _, pl := range l.PlacementsOf(id) {
		if pl.Engine != engine && pl.From != engine {
			continue
		}
		evacuated = append(evacuated, pl.Evacuated...)
		if pl.Slice != "" {
			parts = append(parts, pl.Slice)
		}
	}
	slices.Sort(evacuated)
	return slices.Compact(evacuated), parts
}

// repository returns the Secret of one repository. A credential for a folder gives one Secret to
// each repository that is read, with its URL: a template for the folder, which is Argo CD's own
// form, would be without a project.
func repository(
	view *catalog.View, l *applied.Layers, r applied.Reader, cred *fleet.Declaration,
) *fleet.Repository {
	tenant, ref := cred.Key.Tenant, cred.Credential.CredentialsRef.Name
	out := &fleet.Repository{
		ID: credentialID(cred), Part: cred.Credential.Part(r.Key),
		Project:    fleet.ProjectName(tenant),
		URL:        cred.Credential.RepoURL,
		Type:       cred.Credential.TypeOf(),
		Credential: credentialSource(view, tenant, fleet.ObjectRepository, ref),
	}
	out.Name = fleet.RepositoryName(out.ID, out.Part)
	if out.Part != "" {
		out.URL = l.URLOf(r)
	}
	return out
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
// Applications there read, and the namespaces of its environments there.
func project(
	on *fleet.EngineSpec, view *catalog.View, l *applied.Layers, s applied.Share,
) *fleet.Project {
	t := s.Tenant
	p := &fleet.Project{
		Tenant: t, Name: fleet.ProjectName(t), SourceRepos: slices.Sorted(slices.Values(
			l.Repos.Keys(s))), SourceNamespaces: on.ApplicationNamespacesOf(t)}
	tenant := view.Tenant(t)
	var kinds kinds
	environments := slices.Sorted(slices.Values(l.Environments.Keys(s)))
	for _, name := range environments {
		id := fleet.EnvironmentID{Tenant: t, Name: name}
		env := view.Environment(id)
		if env == nil {
			continue
		}
		p.Destinations = append(p.Destinations,
			destinations(s.Engine, on, view, l, id, env.Environment)...)
		if tenant != nil && env.Environment.ClusterWide() {
			kinds.narrow(tenant.Tenant.ScopeOf(name, env.Environment))
		}
	}
	p.Freezes = windows(s.Engine, view, tenant, t, environments)
	switch {
	case on.PauseAdoption:
		p.AdoptionPaused = fleet.PausedByEngine
	case tenant != nil && tenant.Tenant.PauseAdoption:
		p.AdoptionPaused = fleet.PausedByTenant
	}
	scope := kinds.of(!s.Engine.OfEnvironment() && l.Creators.Count(s, struct{}{}) > 0)
	p.ClusterResources, p.AllClusterResources = scope.Kinds, scope.All
	return p
}

// windows returns the freezes that keep an engine's Argo CD from syncing environments of a tenant
// by itself.
func windows(engine fleet.EngineName, view *catalog.View, tenant *fleet.Declaration,
	t fleet.TenantName, environments []fleet.EnvironmentName) (out []fleet.FreezeWindow) {
	all := view.Fleet().Freezes
	if tenant != nil {
		all = slices.Concat(all, tenant.Tenant.Freezes)
	}
	for _, f := range all {
		if !f.Holds(fleet.FreezeSyncs) {
			continue
		}
		w := fleet.FreezeWindow{Schedule: f.Schedule, Duration: f.Duration, TimeZone: f.TimeZone}
		for _, name := range environments {
			id := fleet.EnvironmentID{Tenant: t, Name: name}
			if env := view.Environment(id); env != nil && f.Covers(env.Labels) {
				w.Clusters = append(w.Clusters, fleet.Destination{
					Server:   serverKey(engine, view, env.Environment, id),
					OnEngine: env.Environment.OnEngine()})
			}
		}
		if len(w.Clusters) > 0 {
			out = append(out, w)
		}
	}
	return out
}

// kinds gathers the cluster-scoped kinds of an AppProject. Argo CD has one list for all
// environments of a tenant on an engine: the kinds that each environment with cluster-scoped
// resources may deploy.
type kinds struct{ scope *fleet.ClusterScope }

func (k *kinds) narrow(scope fleet.ClusterScope) {
	if k.scope != nil {
		scope = k.scope.And(scope)
	}
	k.scope = &scope
}

// of returns the list. For CreateNamespace it has the kind Namespace if no environment on the
// engine has cluster-scoped resources: the cluster Secrets of such environments are namespaced, so
// that Argo CD makes the namespace of a destination and refuses every Namespace of a repository.
func (k *kinds) of(creates bool) fleet.ClusterScope {
	switch {
	case k.scope != nil:
		return *k.scope
	case creates:
		return fleet.ClusterScope{Kinds: []fleet.GroupKind{fleet.KindNamespace}}
	}
	return fleet.ClusterScope{}
}

// destinations are the namespaces of an environment under the server that its engine has for it.
func destinations(
	engine fleet.EngineName, on *fleet.EngineSpec, view *catalog.View, l *applied.Layers,
	id fleet.EnvironmentID, env *fleet.EnvironmentSpec,
) []fleet.Destination {
	server := serverKey(engine, view, env, id)
	if env.AllNamespaces {
		return []fleet.Destination{{Server: server, OnEngine: env.OnEngine(), All: true}}
	}
	out := make([]fleet.Destination, 0, len(env.Namespaces))
	for _, ns := range namespaces(l, id, env) {
		out = append(out, fleet.Destination{
			Server: server, OnEngine: env.OnEngine(), Namespace: ns,
			Granted: env.Granted(ns, on.ArgoCD.Namespace)})
	}
	return out
}

// namespaces returns the exact names that an environment's entries cover: a prefix covers the
// namespaces that its Applications use, so that no pattern reaches Argo CD.
func namespaces(
	l *applied.Layers, id fleet.EnvironmentID, env *fleet.EnvironmentSpec,
) []string {
	if !env.HasPrefixes() {
		return slices.Sorted(slices.Values(env.Namespaces))
	}
	return env.NamespacesWith(l.NamespacesIn.Keys(id))
}
