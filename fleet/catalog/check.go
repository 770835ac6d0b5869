package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// checker judges one file at the head against the effective state.
type checker struct {
	st       *state
	policies *policySet
	// suggestions for unknown tenants, computed once: every file of a folder needs the same
	guess map[string]string
}

func (ch *checker) checkShared(e *entry) []fleet.Problem {
	switch d := e.head; {
	case d.Engine != nil:
		return ch.checkInstance(e, d.Engine)
	case d.Cluster != nil:
		return ch.checkSameServer(e, d.Cluster)
	case d.Environment != nil:
		return ch.checkNamespaces(e, d)
	case d.Credential != nil:
		return ch.checkCredential(e, d.Credential)
	case d.Deployment != nil:
		return ch.checkName(e)
	}
	return nil
}

func (ch *checker) checkInstance(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	var problems []fleet.Problem
	id := spec.ArgoCD.InstallationID
	if r := ch.rival(e, term{what: installation, a: id}, e.itself, func(d *fleet.Declaration) bool {
		return d.Engine.ArgoCD.InstallationID == id
	}); r != nil {
		problems = append(
			problems, e.problem("spec.argocd.installationID", codeInstallationID,
				"choose an ID that no other engine has",
				"installationID %q is not free: engine %q %s (%s)", id, r.key.Name, r, r.path))
	}
	in := instanceOf(spec)
	if r := ch.rival(e, in, e.itself, func(d *fleet.Declaration) bool {
		return slices.Contains(servedBy(d.Engine), in)
	}); r != nil {
		problems = append(
			problems,
			e.problem("spec.argocd.namespace", codeInstance,
				"an engine is one Argo CD instance: name another namespace or connection",
				"the Argo CD in namespace %q of this connection is not free: engine %q %s (%s)",
				spec.ArgoCD.Namespace, r.key.Name, r, r.path))
	}
	if p := ch.checkInstanceNamespace(e, spec); p != nil {
		problems = append(problems, *p)
	}
	return append(problems, ch.checkSharedNamespaces(e, spec)...)
}

func (ch *checker) checkCredential(e *entry, spec *fleet.CredentialSpec) []fleet.Problem {
	scope := spec.Scope()
	r := ch.rival(e, term{what: accessTo, tenant: e.key.Tenant, a: scope}, e.itself,
		func(d *fleet.Declaration) bool { return d.Credential.Scope() == scope })
	if r == nil {
		return nil
	}
	return []fleet.Problem{
		e.problem("spec.repoURL", codeSameRepository, "keep one of the two",
			"credential %q is for the same repository: it %s (%s)", r.key.Name, r, r.path)}
}

// A rival has or wants the same thing as an entry.
type rival struct {
	*entry
	has bool
}

// rival returns the entry that has a term in effect, or the first other good entry that wants it.
// It returns nil if the owner has it already or there is no other. mine reports whether a key has
// the same owner, has whether a declaration has the term.
func (ch *checker) rival(e *entry, t term, mine func(fleet.Key) bool,
	has func(*fleet.Declaration) bool) *rival {
	var wants *rival
	for _, k := range ch.st.index.list(t) {
		other := ch.st.entries.get(k)
		switch holds := other.effective != nil && has(other.effective); {
		case holds && mine(k):
			return nil
		case holds:
			return &rival{other, true}
		case mine(k):
		case wants == nil && other.head != nil && has(other.head) && ch.wellBehaved(other):
			wants = &rival{other, false}
		}
	}
	return wants
}

// wellBehaved reports whether the head of an entry is good as far as it alone is concerned.
func (ch *checker) wellBehaved(e *entry) bool {
	problems := ch.checkOwn(e, e.head)
	return len(problems) == 0 && len(onlyErrors(ch.checkPolicies(e, problems))) == 0
}

// checkOwn checks the references of a head and the grants over it. checkShared checks conflicts
// with other declarations.
func (ch *checker) checkOwn(e *entry, d *fleet.Declaration) []fleet.Problem {
	var grant *fleet.TenantSpec
	if e.key.Tenant != "" {
		t := ch.st.get(tenantKey(e.key.Tenant))
		if t == nil {
			return []fleet.Problem{ch.unknownTenant(e, "", e.key.Tenant)}
		}
		grant = t.Tenant
	}
	switch {
	case d.Fleet != nil:
		return checkFleet(e)
	case d.Tenant != nil:
		return append(checkTenant(e), ch.checkWholeGrants(e, d.Tenant)...)
	case d.Engine != nil:
		return slices.Concat(ch.checkTenants(e, "spec.dedicatedTo", d.Engine.DedicatedTo),
			ch.checkPlatformTenant(e, d.Engine), ch.checkApplicationNamespaces(e, d.Engine))
	case d.Cluster != nil:
		return ch.checkCluster(e, d.Cluster)
	case d.Policy != nil:
		return ch.checkTenants(e, "spec.tenants", d.Policy.Tenants)
	case d.Environment != nil:
		return ch.checkEnvironment(e, d.Environment, grant)
	case d.Credential != nil:
		return ch.checkRepository(e, "spec.repoURL", d.Credential.RepoURL, grant)
	case d.Deployment != nil:
		var problems []fleet.Problem
		for i, s := range d.Deployment.AllSources() {
			field := "spec.source"
			if len(d.Deployment.Sources) > 0 {
				field = fmt.Sprintf("spec.sources[%d]", i)
			}
			problems = slices.Concat(problems,
				ch.checkRepository(e, field+".repoURL", s.RepoURL, grant),
				checkRange(e, field, s.TargetRevision, grant),
				checkTools(e, field, s.Kustomize, s.Plugin, grant),
				checkArtifact(e, field, s, grant),
				checkJsonnet(e, field, s.Directory, grant))
		}
		for i, o := range d.Deployment.Overrides {
			field := fmt.Sprintf("spec.overrides[%d].source", i)
			problems = slices.Concat(problems,
				checkRange(e, field, o.Source.TargetRevision, grant),
				checkTools(e, field, o.Source.Kustomize, o.Source.Plugin, grant),
				checkJsonnet(e, field, o.Source.Directory, grant))
		}
		problems = slices.Concat(problems, ch.checkDestinations(e, d.Deployment),
			ch.checkOverrides(e, d.Deployment), ch.checkResolved(e),
			checkSync(e, "spec.sync", d.Deployment.Sync, grant), checkAdoptions(e, grant),
			checkNotifications(e, grant))
		for i, o := range d.Deployment.Overrides {
			problems = append(problems,
				checkSync(e, fmt.Sprintf("spec.overrides[%d].sync", i), o.Sync, grant)...)
		}
		return problems
	case d.Set != nil:
		return ch.checkSet(e, d.Set, grant)
	case d.SyncRun != nil:
		return ch.checkSyncRun(e, d.SyncRun)
	case d.Defaults != nil:
		return checkSync(e, "spec.sync", d.Defaults.Sync, grant)
	}
	return nil
}

func checkFleet(e *entry) []fleet.Problem {
	if e.key != fleetKey() {
		return []fleet.Problem{
			e.problem("metadata.name", codeFleetName,
				"write it in fleet/fleet.yaml with the name fleet",
				"there is exactly one Fleet, named \"fleet\"")}
	}
	return nil
}

// checkTenant refuses a name that no tenant can have.
func checkTenant(e *entry) []fleet.Problem {
	if err := fleet.ValidateName(e.key.Name); err != nil {
		return []fleet.Problem{
			e.problem("metadata.name", codeReservedName, "choose another name", "%v", err)}
	}
	return nil
}

// checkTenants checks the list of tenants of an Engine or a Policy.
func (ch *checker) checkTenants(e *entry, field string,
	tenants []fleet.TenantName) []fleet.Problem {
	var problems []fleet.Problem
	for i, t := range tenants {
		if ch.st.get(tenantKey(t)) == nil {
			problems = append(problems, ch.unknownTenant(e, fmt.Sprintf("%s[%d]", field, i), t))
		}
	}
	return problems
}

func (ch *checker) checkPlatformTenant(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	if t := spec.PlatformTenant; t != "" && ch.st.get(tenantKey(t)) == nil {
		return []fleet.Problem{ch.unknownTenant(e, "spec.platformTenant", t)}
	}
	return nil
}

// checkApplicationNamespaces checks the namespaces of an Engine whose Applications tenants may
// adopt.
func (ch *checker) checkApplicationNamespaces(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, n := range spec.ApplicationNamespaces {
		field := fmt.Sprintf("spec.applicationNamespaces[%d].", i)
		if ch.st.get(tenantKey(n.Tenant)) == nil {
			problems = append(problems, ch.unknownTenant(e, field+"tenant", n.Tenant))
		}
		if n.Namespace == spec.ArgoCD.Namespace {
			problems = append(problems, e.problem(field+"namespace", codeApplicationNamespace,
				"remove the entry: deployments adopt Applications there by their names alone",
				"namespace %q is Argo CD's own, which belongs to no tenant", n.Namespace))
		}
	}
	if len(spec.ApplicationNamespaces) > 0 && spec.Connection.Agent != nil {
		problems = append(problems, e.problem("spec.applicationNamespaces",
			codeApplicationNamespace,
			"reach the engine with kubeconfigRef, or leave these Applications as they are",
			"an agent serves Applications in Argo CD's own namespace alone"))
	}
	return problems
}

// checkSharedNamespaces refuses namespaces with Applications that another engine serves.
func (ch *checker) checkSharedNamespaces(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, n := range spec.ApplicationNamespaces {
		in := servesIn(spec, n.Namespace)
		if r := ch.rival(e, in, e.itself, func(d *fleet.Declaration) bool {
			return slices.Contains(servedBy(d.Engine), in)
		}); r != nil {
			problems = append(problems, e.problem(
				fmt.Sprintf("spec.applicationNamespaces[%d].namespace", i),
				codeInstance, "name another namespace, or take it from that engine",
				"namespace %q of this connection is not free: engine %q %s (%s)", n.Namespace,
				r.key.Name, r, r.path))
		}
	}
	return problems
}

func (ch *checker) unknownTenant(e *entry, field string, t fleet.TenantName) fleet.Problem {
	if other := ch.st.entries.get(tenantKey(t)); other.quarantined() {
		return e.problem(field, codeUnknownTenant, "correct "+other.path,
			"tenant %q is quarantined and has no good state", t)
	}
	return e.problem(field, codeUnknownTenant, ch.declareTenant(t), "tenant %q is not declared", t)
}

// declareTenant is the fix for an unknown tenant, found once per name and round: a folder in the
// wrong place holds many files.
func (ch *checker) declareTenant(t fleet.TenantName) string {
	fix, known := ch.guess[string(t)]
	if !known {
		fix = didYouMean(string(t), ch.st.effectiveNames("", fleet.KindTenant),
			"the platform declares it in fleet/tenants/"+string(t)+".yaml")
		fix = strings.Replace(fix, "did you mean ", "did you mean the folder of tenant ", 1)
		ch.guess[string(t)] = fix
	}
	return fix
}

func (ch *checker) checkEnvironment(e *entry, spec *fleet.EnvironmentSpec,
	grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	if spec.Cluster != nil {
		problems = ch.checkServer(e, spec, grant)
	}
	mine := grant.GrantTo(fleet.EnvironmentName(e.key.Name))
	problems = append(problems, ch.checkReserved(e, spec, mine)...)
	problems = append(problems, ch.checkWhole(e, spec, mine)...)
	if a := spec.Agent; a != nil && !slices.Contains(mine.Namespaces, a.Namespace()) {
		if i := slices.Index(spec.Namespaces, a.Namespace()); i >= 0 {
			problems = append(
				problems, e.problem(fmt.Sprintf("spec.namespaces[%d]", i), codeEngineNamespace,
					"use another namespace",
					"namespace %q is the one in which the cluster's own Argo CD lives "+
						"(spec.agent.argocdNamespace)", a.Namespace()))
		}
	}
	if scope := grant.ScopeOf(mine.Name, spec); spec.ClusterResources && !scope.All &&
		len(grant.ClusterResources)+len(mine.ClusterResources) == 0 {
		problems = append(problems, e.problem("spec.clusterResources", codeClusterResources,
			"leave it out, or ask the platform to grant kinds in fleet/tenants/"+
				string(e.key.Tenant)+".yaml", "tenant %q is granted no cluster-scoped kinds",
			e.key.Tenant))
	}
	if regions := grant.Placement.Regions; len(regions) > 0 &&
		!slices.Contains(regions, spec.Region) {
		problems = append(
			problems,
			e.problem("spec.region", codeRegion, "use one of "+strings.Join(sorted(regions), ", "),
				"tenant %q may not be placed in region %q", e.key.Tenant, spec.Region))
	}
	return problems
}

// checkOnEngine checks the engine on whose own cluster an environment is.
func (ch *checker) checkOnEngine(e *entry, spec *fleet.EnvironmentSpec,
	name fleet.EngineName) []fleet.Problem {
	engine := ch.st.get(engineKey(name))
	switch {
	case engine == nil:
		return []fleet.Problem{e.problem("spec.cluster.engine", codeUnknownEngine,
			"the platform declares it in fleet/engines/"+string(name)+".yaml",
			"engine %q is not in effect", name)}
	case engine.Engine.Region != spec.Region:
		return []fleet.Problem{e.problem("spec.region", codeRegion,
			"write region: "+engine.Engine.Region, "engine %q, on whose cluster the environment "+
				"is, is in region %q", name, engine.Engine.Region)}
	}
	return nil
}

// checkServer checks the API server of an environment against the fleet's hosts and the tenant's
// grants, and its namespaces against those of other tenants on that server. The environment keeps
// every namespace of the server that it has in effect.
func (ch *checker) checkServer(e *entry, spec *fleet.EnvironmentSpec,
	grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	server, hosts := spec.Cluster.Address(), ch.hosts()
	field := "spec.cluster.server"
	if name := spec.Cluster.Engine; name != "" {
		field = "spec.cluster.engine"
		problems = ch.checkOnEngine(e, spec, name)
	} else if spec.Cluster.Ref != "" {
		field = "spec.cluster.ref"
		problems = ch.checkReference(e, spec)
	} else if why := fleet.InternalServer(server, hosts.ClusterHosts,
		hosts.RefusePrivateClusters); why != "" {
		problems = append(problems, e.problem("spec.cluster.server", codeClusterHost,
			"write the address that the engines reach it by, or ask the platform to list the "+
				"host in clusterHosts of fleet/fleet.yaml",
			"%s is a %s, which the fleet does not allow", strings.TrimPrefix(server, "https://"),
			why))
	} else {
		problems = ch.checkDeclaredServer(e, spec)
	}
	file := "fleet/tenants/" + string(e.key.Tenant) + ".yaml"
	if !fleet.ServerGranted(grant.Clusters, server) {
		return append(
			problems,
			e.problem(field, codeClusterGrant,
				fmt.Sprintf("ask the platform to add %q to clusters of %s", server, file),
				"tenant %q is not granted the API server %s", e.key.Tenant, server))
	}
	if !ch.sharedServer(server, e.key.Tenant) {
		return problems
	}
	for i, ns := range spec.Namespaces {
		if !ch.mayName(e, spec, ns) {
			problems = append(
				problems, e.problem(fmt.Sprintf("spec.namespaces[%d]", i), codeNamespaceGrant,
					fmt.Sprintf("ask the platform to add %q to namespaces of %s", ns, file),
					"%s is not tenant %[3]q's alone, and namespace %[2]q on it is not granted to it",
					server, ns, e.key.Tenant))
		}
	}
	return problems
}

func (ch *checker) checkRepository(e *entry, field, raw string,
	grant *fleet.TenantSpec) []fleet.Problem {
	u, folder, err := fleet.ParseRepoScope(raw)
	if err != nil {
		return []fleet.Problem{
			e.problem(field, codeRepository, "write an https:// or ssh:// URL", "%v", err)}
	}
	var problems []fleet.Problem
	if !fleet.GitHostAllowed(ch.hosts().GitHosts, u) {
		problems = append(
			problems,
			e.problem(field, codeGitHost, ch.allowedHosts(),
				"the fleet does not allow repositories of %s://%s", u.Scheme, u.Host))
	}
	if !fleet.RepositoryGranted(grant.Repositories, raw) {
		what := u.String()
		if folder {
			what = "every repository below " + what + "/"
		}
		problems = append(
			problems, e.problem(field, codeRepository, grantedTo(e.key.Tenant, grant),
				"tenant %q is not granted %s", e.key.Tenant, what))
	}
	return problems
}

func (ch *checker) allowedHosts() string {
	if ch.st.get(fleetKey()) == nil {
		return "the platform declares fleet/fleet.yaml with gitHosts; there is none in effect"
	}
	hosts := sorted(ch.hosts().GitHosts)
	if len(hosts) == 0 {
		return "the platform lists hosts in gitHosts of fleet/fleet.yaml; it lists none"
	}
	return "use one of " + some(hosts) +
		", or ask the platform to list the host in gitHosts of fleet/fleet.yaml"
}

func grantedTo(t fleet.TenantName, grant *fleet.TenantSpec) string {
	ask := "ask the platform to add it to repositories of fleet/tenants/" + string(t) + ".yaml"
	if len(grant.Repositories) == 0 {
		return ask
	}
	return "use " + some(sorted(grant.Repositories)) + ", or " + ask
}

// checkRange refuses a range of versions that the platform has not allowed.
func checkRange(e *entry, field, revision string, grant *fleet.TenantSpec) []fleet.Problem {
	if !fleet.IsVersionRange(revision) || grant.Allow.VersionRanges {
		return nil
	}
	return []fleet.Problem{e.problem(field+".targetRevision", codeVersionRange,
		"write one exact version, or ask the platform for allow: {versionRanges: true} in "+
			"fleet/tenants/"+string(e.key.Tenant)+".yaml",
		"%q is a range of versions, of which Argo CD takes the newest without a commit", revision)}
}

// checkTools refuses what the platform must allow of the tools that render a source.
func checkTools(e *entry, field string, k *fleet.KustomizeSource, p *fleet.PluginSource,
	grant *fleet.TenantSpec) []fleet.Problem {
	refuse := func(field, list string, granted []string, format string,
		name string) []fleet.Problem {
		if slices.Contains(granted, name) {
			return nil
		}
		fix := "leave it out, or ask the platform to add it to allow." + list +
			" of fleet/tenants/" + string(e.key.Tenant) + ".yaml"
		if len(granted) > 0 {
			fix = "use one of " + some(sorted(granted)) + "; or " + fix
		}
		return []fleet.Problem{e.problem(field, codeTool, fix, format, e.key.Tenant, name)}
	}
	switch {
	case k != nil && k.Version != "":
		return refuse(field+".kustomize.version", "kustomizeVersions",
			grant.Allow.KustomizeVersions, "tenant %q is not allowed to build with kustomize %s",
			k.Version)
	case p != nil:
		return refuse(field+".plugin.name", "plugins", grant.Allow.Plugins,
			"tenant %q is not allowed the plugin %q", p.Name)
	}
	return nil
}

// checkJsonnet refuses jsonnet to a tenant that shares engines: it can read files of the
// repo-server.
func checkJsonnet(e *entry, field string, d *fleet.DirectorySource,
	grant *fleet.TenantSpec) []fleet.Problem {
	if d == nil || d.Jsonnet == nil || grant.Placement.Alone {
		return nil
	}
	return []fleet.Problem{e.problem(field+".directory.jsonnet", codeTool,
		"render it in the repository's own CI, or ask the platform for placement: {alone: true} in "+
			"fleet/tenants/"+string(e.key.Tenant)+".yaml and for engines of the tenant's own",
		"jsonnet can read files of the repo-server, which tenant %q shares", e.key.Tenant)}
}

// checkArtifact refuses an OCI artifact that the platform does not trust to a tenant that shares
// engines: Argo CD merges a file .argocd-source.yaml of it over the declared source, and could so
// be made to run a plugin that the tenant is not granted. In Git repositories, a hook of the
// checkout refuses that file (ADR 0020).
func checkArtifact(e *entry, field string, s fleet.Source,
	grant *fleet.TenantSpec) []fleet.Problem {
	if !s.Artifact() || grant.Placement.Alone || grant.TrustsArtifact(s) {
		return nil
	}
	return []fleet.Problem{e.problem(field+".repoURL", codeTool,
		"deploy from Git or a chart; or ask the platform for placement: {alone: true} in "+
			"fleet/tenants/"+string(e.key.Tenant)+".yaml and engines of the tenant's own, or to "+
			"trust the artifact in its allow.artifacts",
		"a file .argocd-source.yaml of an OCI artifact can choose the tool that renders it, on "+
			"the repo-server that tenant %q shares", e.key.Tenant)}
}

// checkNotifications refuses services and recipients without the platform's grant: all tenants of
// an engine use the accounts that the platform has there.
func checkNotifications(e *entry, grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, n := range e.head.Deployment.Notifications {
		if !fleet.NotificationGranted(grant.Allow.Notifications, n) {
			problems = append(problems, e.problem(fmt.Sprintf("spec.notifications[%d]", i),
				codeNotification, "remove it, or ask the platform to add the service, with these "+
					"recipients or with any, to allow.notifications of fleet/tenants/"+
					string(e.key.Tenant)+".yaml",
				"tenant %q is not allowed to notify these recipients by %s", e.key.Tenant,
				n.Service))
		}
	}
	return problems
}

// checkAdoptions refuses Applications to adopt without the platform's grant, or in an environment
// where the deployment does not go.
func checkAdoptions(e *entry, grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	spec := e.head.Deployment
	if len(spec.Adopt) > 0 && !grant.Allow.Adopt {
		problems = append(problems, e.problem("spec.adopt", codeAdopt,
			"ask the platform for allow: {adopt: true} in fleet/tenants/"+string(e.key.Tenant)+
				".yaml, or remove adopt to create a new Application",
			"tenant %q is not allowed to take over Applications", e.key.Tenant))
	}
	for i, a := range spec.Adopt {
		if spec.Destination.EnvironmentSelector == nil &&
			!slices.Contains(spec.Destination.Environments, a.Environment) {
			problems = append(problems, e.problem(fmt.Sprintf("spec.adopt[%d].environment", i),
				codeNotADestination, "add it to spec.destination.environments or remove the entry",
				"the deployment does not go to environment %q", a.Environment))
		}
	}
	return problems
}

// checkSync checks sync settings that a tenant wrote against its grant. Settings of Fleet.defaults
// are the platform's and need none.
func checkSync(e *entry, field string, s fleet.SyncSettings,
	grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	file := "fleet/tenants/" + string(e.key.Tenant) + ".yaml"
	if s.Replace != nil && *s.Replace && !grant.Allow.Replace {
		problems = append(problems, e.problem(field+".replace", codeReplace,
			"use serverSideApply: true, annotate the one resource with "+
				"argocd.argoproj.io/sync-options: Replace=true in its manifest, or ask the "+
				"platform for allow: {replace: true} in "+file,
			"tenant %q is not allowed to replace resources", e.key.Tenant))
	}
	if m := s.ManagedNamespaceMetadata; m != nil {
		for _, part := range []struct {
			name string
			keys map[string]string
		}{{"labels", m.Labels}, {"annotations", m.Annotations}} {
			for _, key := range slices.Sorted(maps.Keys(part.keys)) {
				if fleet.NamespaceKeyGranted(grant.Allow.NamespaceMetadata, key) {
					continue
				}
				problems = append(problems, e.problem(
					field+".managedNamespaceMetadata."+part.name, codeNamespaceMetadata,
					"remove it, or ask the platform to add the key to allow.namespaceMetadata of "+
						file, "tenant %q is not granted the key %q of namespaces", e.key.Tenant,
					key))
			}
		}
	}
	return problems
}

func (ch *checker) checkDestinations(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, n := range spec.Destination.Environments {
		field := fmt.Sprintf("spec.destination.environments[%d]", i)
		id := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}
		env := ch.st.get(environmentKey(id))
		if env == nil {
			problems = append(problems, ch.unknownEnvironment(e, field, id, i))
		} else if env.Environment.Agent.Autonomous() {
			problems = append(
				problems,
				e.problem(field, codeAutonomous,
					"remove it here: who runs that cluster makes its Applications there; or set "+
						"spec.agent.mode: managed in "+env.Path,
					"environment %q is autonomous: its cluster's own Applications are the truth, "+
						"and nothing is deployed there from here", n))
		} else if !lists(env, e.head) {
			ns, at := e.head.NamespaceIn(env)
			if fleet.HasVariables(ns) {
				continue // checkResolved names the missing label
			}
			problems = append(problems, e.problem(at, codeNamespace,
				"use one of "+some(sorted(listed(env.Environment)))+
					", or add it to namespaces of "+env.Path, "environment %q has no namespace %q",
				n, ns))
		}
	}
	return append(problems, ch.checkSelected(e)...)
}

// listed are the namespaces of an environment for a message: a prefix is shop-<name>.
func listed(spec *fleet.EnvironmentSpec) []string {
	names := slices.Clone(spec.Namespaces)
	for i, n := range names {
		if fleet.IsNamespacePrefix(n) {
			names[i] = n + "<name>"
		}
	}
	return names
}

// checkOverrides checks the environments that overrides name. The labels that an override selects
// are of other files, so that an unused selector is a warning.
func (ch *checker) checkOverrides(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, o := range spec.Overrides {
		if o.Environment == "" {
			continue
		}
		field := fmt.Sprintf("spec.overrides[%d].environment", i)
		id := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: o.Environment}
		named := slices.Contains(spec.Destination.Environments, o.Environment)
		switch {
		case slices.ContainsFunc(spec.Overrides[:i], func(p fleet.Override) bool {
			return p.Environment == o.Environment
		}):
			problems = append(
				problems,
				e.problem(field, codeDuplicateOverride, "merge the two",
					"environment %q has an override already", o.Environment))
		case spec.Destination.EnvironmentSelector == nil && !named:
			problems = append(
				problems,
				e.problem(field, codeNotADestination,
					"add it to spec.destination.environments or remove the override",
					"the deployment does not go to environment %q", o.Environment))
		case !named && ch.st.get(environmentKey(id)) == nil:
			problems = append(problems, ch.unknownEnvironment(e, field, id, i))
		}
	}
	return problems
}

// checkResolved refuses a text that one of the deployment's environments gives no valid value.
func (ch *checker) checkResolved(e *entry) []fleet.Problem {
	if !e.head.Deployment.Varies() {
		return nil
	}
	var problems []fleet.Problem
	for _, id := range ch.st.targets(e.head) {
		env := ch.st.get(environmentKey(id))
		_, unresolved := e.head.TargetIn(env, fleet.Defaults{})
		for _, u := range unresolved {
			problems = append(problems, e.problem(u.Field, codeUnresolved,
				"correct the text, or the labels and variables in "+env.Path, "%v", u.Err))
		}
	}
	return problems
}

// checkSelected refuses a selector that matches autonomous environments: the label shows that
// someone expects the deployment there.
func (ch *checker) checkSelected(e *entry) []fleet.Problem {
	names := ch.matched(e.head, func(env *fleet.Declaration) bool {
		return matches(e.head, env) && env.Environment.Agent.Autonomous()
	})
	if len(names) == 0 {
		return nil
	}
	return []fleet.Problem{e.problem("spec.destination.environmentSelector", codeAutonomous,
		"narrow the selector or take the label off them, or set spec.agent.mode: managed there",
		"the selector matches autonomous environments: their clusters' own Applications are the "+
			"truth, and nothing is deployed there from here: %s", some(names))}
}

func (ch *checker) checkSyncRun(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	if e.effective != nil {
		return checkImmutable(e, spec)
	}
	id := fleet.DeploymentID{Tenant: e.key.Tenant, Name: spec.Deployment}
	d := ch.st.get(deploymentKey(id))
	if d == nil {
		return []fleet.Problem{ch.unknownDeployment(e, id)}
	}
	targets := ch.st.targets(d)
	problems := checkRevisions(e, spec, d)
	for i, n := range spec.Environments {
		field := fmt.Sprintf("spec.environments[%d]", i)
		env := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}
		switch {
		case ch.st.get(environmentKey(env)) == nil:
			problems = append(problems, ch.unknownEnvironment(e, field, env, i))
		case !slices.Contains(targets, env):
			problems = append(
				problems, e.problem(field, codeNotADestination, goesTo(d, targets),
					"deployment %q does not go to environment %q", id.Name, n))
		}
	}
	return problems
}

// checkRevisions refuses a SyncRun that does not have a revision for each source of the deployment.
func checkRevisions(e *entry, spec *fleet.SyncRunSpec, d *fleet.Declaration) []fleet.Problem {
	sources, revisions := len(d.Deployment.AllSources()), max(1, len(spec.Revisions))
	if revisions == sources {
		return nil
	}
	field := "spec.revisions"
	if len(spec.Revisions) == 0 {
		field = "spec.revision"
	}
	return []fleet.Problem{e.problem(field, codeRevisions,
		"write revisions: [...] with a full commit id, tag or chart version for each source, in "+
			"the order of "+d.Path,
		"deployment %q has %d sources, and the SyncRun names %d revisions", d.Key.Name, sources,
		revisions)}
}

// checkImmutable refuses a changed SyncRun: its first state was acted on, and a second state would
// not be.
func checkImmutable(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	was := e.effective.SyncRun
	if was.Deployment == spec.Deployment && was.AllRevisions() == spec.AllRevisions() &&
		was.Hold == spec.Hold && slices.Equal(was.Environments, spec.Environments) {
		return nil
	}
	return []fleet.Problem{
		e.problem("spec", codeImmutable, "restore it, and write another SyncRun under a new name",
			"a SyncRun does not change once it is in effect")}
}

func (ch *checker) unknownDeployment(e *entry, id fleet.DeploymentID) fleet.Problem {
	if other := ch.st.entries.get(deploymentKey(id)); other != nil {
		return e.problem("spec.deployment", codeUnknownDeployment, "correct "+other.path,
			"deployment %q is quarantined and has no good state", id.Name)
	}
	fix := didYouMean(string(id.Name), ch.st.effectiveNames(id.Tenant, fleet.KindGitOpsDeployment),
		"declare it in tenants/"+string(id.Tenant)+"/deployments/"+string(id.Name)+".yaml")
	return e.problem("spec.deployment", codeUnknownDeployment, fix,
		"tenant %q has no deployment %q", id.Tenant, id.Name)
}

// unknownEnvironment names the closest environment for the first few mistakes of a file.
func (ch *checker) unknownEnvironment(e *entry, field string, id fleet.EnvironmentID,
	nth int) fleet.Problem {
	path := "tenants/" + string(id.Tenant) + "/environments/" + string(id.Name) + ".yaml"
	if other := ch.st.entries.get(environmentKey(id)); other != nil {
		return e.problem(field, codeUnknownEnv, "correct "+other.path,
			"environment %q is quarantined and has no good state", id.Name)
	}
	fix := "declare it in " + path
	if nth < 10 {
		fix = didYouMean(
			string(id.Name), ch.st.effectiveNames(id.Tenant, fleet.KindManagedEnvironment), fix)
	}
	return e.problem(field, codeUnknownEnv, fix, "tenant %q has no environment %q", id.Tenant,
		id.Name)
}

// didYouMean is a fix that names the closest of some names, or otherwise.
func didYouMean(written string, names []string, otherwise string) string {
	if best := fleet.Closest(written, names); best != "" {
		return fmt.Sprintf("did you mean %q? Otherwise %s", best, otherwise)
	}
	return otherwise
}

// effectiveNames are the names of a kind of a tenant that are in effect.
func (s *state) effectiveNames(t fleet.TenantName, k fleet.Kind) []string {
	var names []string
	for _, key := range s.index.list(membersOf(t, k)) {
		if s.get(key) != nil {
			names = append(names, key.Name)
		}
	}
	return names
}

func goesTo(d *fleet.Declaration, targets []fleet.EnvironmentID) string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = string(t.Name)
	}
	if len(names) == 0 {
		return "it goes to none: see " + d.Path
	}
	return "it goes to " + some(names)
}

func (e *entry) itself(k fleet.Key) bool { return k == e.key }

// checkQuota refuses a declaration that would exceed the tenant's quota. Effective declarations
// stay, and may change if the change adds no more Applications than the quota has left.
func (ch *checker) checkQuota(e *entry) []fleet.Problem {
	t := ch.st.get(tenantKey(e.key.Tenant))
	if t == nil {
		return nil // the platform's
	}
	used, quota := ch.st.usedBy(e.key.Tenant), t.Tenant.Quota
	var problems []fleet.Problem
	over := func(field, what string, more, used, quota int) {
		if more > 0 && used+more > quota {
			problems = append(
				problems,
				e.problem(field, codeQuota, "remove some, or ask the platform for more in "+t.Path,
					"tenant %q has %d of %d %s and no room for %d more", e.key.Tenant, used, quota,
					what, more))
		}
	}
	over("spec", "environments", count(e.effective == nil && e.head.Environment != nil),
		used.Environments, quota.Environments)
	over("spec", "deployments", count(e.effective == nil && e.head.Deployment != nil),
		used.Deployments, quota.Deployments)
	field := "spec"
	if e.head.Deployment != nil {
		field = "spec.destination"
	}
	over(field, "applications", ch.st.applications(e.head)-ch.st.applications(e.effective),
		used.Applications, quota.Applications)
	return problems
}

// warnings returns the warnings about an effective declaration. They never block it.
func (ch *checker) warnings(e *entry) []fleet.Problem {
	if e.quarantined() || e.effective == nil {
		return nil
	}
	var problems []fleet.Problem
	for _, p := range e.notes {
		if p.Severity == fleet.SeverityWarning {
			problems = append(problems, p)
		}
	}
	problems = append(problems, e.advice...)
	switch d := e.effective; {
	case d.Tenant != nil:
		problems = append(problems, ch.warnQuota(e, d.Tenant.Quota)...)
	case d.Environment != nil && d.Environment.Agent == nil &&
		!ch.served(d.Environment.Region, fleet.Key{}):
		problems = append(
			problems,
			e.warning("spec.region", codeNoEngine, ch.regions(),
				"no engine is in region %q, so the environment is not placed",
				d.Environment.Region))
	case d.Deployment != nil:
		problems = append(problems, ch.warnDestinations(e, d.Deployment)...)
		problems = append(problems, warnRanges(e, d.Deployment)...)
	case d.SyncRun != nil:
		problems = append(problems, ch.warnSpent(e, d.SyncRun)...)
	}
	return problems
}

// warnRanges reports the revisions of which Argo CD takes the newest: the plan cannot show them.
func warnRanges(e *entry, d *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	warn := func(field, revision string) {
		if fleet.IsVersionRange(revision) {
			problems = append(problems, e.warning(field+".targetRevision", codeFloats,
				"write one exact version to review each change",
				"%q floats: Argo CD deploys each new version in the range without a commit",
				revision))
		}
	}
	for i, s := range d.AllSources() {
		if len(d.Sources) == 0 {
			warn("spec.source", s.TargetRevision)
			continue
		}
		warn(fmt.Sprintf("spec.sources[%d]", i), s.TargetRevision)
	}
	for i, o := range d.Overrides {
		warn(fmt.Sprintf("spec.overrides[%d].source", i), o.Source.TargetRevision)
	}
	return problems
}

func (ch *checker) warnQuota(e *entry, quota fleet.Quota) []fleet.Problem {
	used := ch.st.usedBy(fleet.TenantName(e.key.Name))
	var problems []fleet.Problem
	for _, q := range []struct {
		what        string
		used, quota int
	}{{"environments", used.Environments, quota.Environments},
		{"deployments", used.Deployments, quota.Deployments},
		{"applications", used.Applications, quota.Applications}} {
		if q.used > q.quota {
			problems = append(
				problems,
				e.warning("spec.quota."+q.what, codeOverQuota,
					"raise it, or ask the tenant to remove some",
					"tenant %q has %d %s and a quota of %d; they stay, and nothing is added",
					e.key.Name, q.used, q.what, q.quota))
		}
	}
	return problems
}

// served reports whether an engine other than one is in a region.
func (ch *checker) served(region string, other fleet.Key) bool {
	for k := range ch.st.index.each(term{what: servedIn, a: region}) {
		if d := ch.st.get(k); k != other && d != nil && d.Engine.Region == region {
			return true
		}
	}
	return false
}

func (ch *checker) regions() string {
	var regions []string
	for _, k := range ch.st.index.list(membersOf("", fleet.KindEngine)) {
		if d := ch.st.get(k); d != nil && !slices.Contains(regions, d.Engine.Region) {
			regions = append(regions, d.Engine.Region)
		}
	}
	if len(regions) == 0 {
		return "the platform declares engines in fleet/engines/; there is none"
	}
	slices.Sort(regions)
	return "regions with engines: " + some(regions)
}

func (ch *checker) warnDestinations(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	targets := ch.st.targets(e.effective)
	if sel := spec.Destination.EnvironmentSelector; sel != nil {
		if len(targets) == 0 {
			problems = append(
				problems, e.warning("spec.destination.environmentSelector", codeSelectsNothing,
					"label an environment, or name environments",
					"the selector matches no environment that has namespace %q, so nothing is "+
						"deployed", spec.Destination.Namespace))
		}
		problems = append(problems, ch.warnLacking(e)...)
	}
	for i, o := range spec.Overrides {
		field, what := "environment", fmt.Sprintf("environment %q is not selected", o.Environment)
		if o.Environment == "" {
			field, what = "selector", "the selector matches no environment of the deployment"
		}
		if !slices.ContainsFunc(targets, func(id fleet.EnvironmentID) bool {
			return o.AppliesTo(ch.st.get(environmentKey(id)))
		}) {
			problems = append(
				problems, e.warning(fmt.Sprintf("spec.overrides[%d].%s", i, field),
					codeUnusedOverride, "remove the override, or label the environment", "%s",
					what))
		}
	}
	if create := spec.Sync.CreateNamespace; create != nil && *create {
		if n := ch.cannotCreate(e.key.Tenant, targets); n != "" {
			problems = append(problems, e.warning("spec.sync.createNamespace", codeCreateNamespace,
				"create the namespace beforehand, or ask the platform to grant kind Namespace "+
					"in "+ch.st.get(tenantKey(e.key.Tenant)).Path+" and set clusterResources in "+
					"the environment",
				"environment %q allows no Namespace to be created", n))
		}
	}
	return problems
}

// warnLacking names the environments that a deployment's selector matches and that do not list its
// namespace there.
func (ch *checker) warnLacking(e *entry) []fleet.Problem {
	d := e.effective
	left := map[[2]string][]string{} // by namespace and the field that holds it
	names := ch.matched(d, func(env *fleet.Declaration) bool { return !matches(d, env) })
	for _, n := range names {
		ns, field := d.NamespaceIn(ch.st.get(environmentKey(fleet.EnvironmentID{
			Tenant: d.Key.Tenant, Name: fleet.EnvironmentName(n)})))
		left[[2]string{ns, field}] = append(left[[2]string{ns, field}], n)
	}
	var problems []fleet.Problem
	for at, names := range left {
		problems = append(problems, e.warning(at[1], codeNamespace,
			"add it to their namespaces, or narrow the selector",
			"the selector matches environments without namespace %q, which are left out: %s",
			at[0], some(names)))
	}
	return sortProblems(problems)
}

// matched are the effective environments that a deployment's selector matches and that are so.
func (ch *checker) matched(d *fleet.Declaration, so func(*fleet.Declaration) bool) []string {
	sel := d.Deployment.Destination.EnvironmentSelector
	var names []string
	for _, a := range anchors(d.Key.Tenant, sel) {
		for key := range ch.st.index.each(a) {
			if env := ch.st.get(key); env != nil && sel.Matches(env.Labels) && so(env) {
				names = append(names, key.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names) // its labels in effect and at the head may be two anchors
}

// cannotCreate is the first target in which Argo CD may not create a namespace: the AppProject must
// allow the kind. It does if no environment on the engine has cluster-scoped resources, and if each
// that has may deploy the kind. An agent's own cluster has no namespaced cluster Secret, so the
// kind is granted there explicitly.
func (ch *checker) cannotCreate(t fleet.TenantName,
	targets []fleet.EnvironmentID) fleet.EnvironmentName {
	tenant := ch.st.get(tenantKey(t))
	may := func(env *fleet.Declaration) bool {
		scope := tenant.Tenant.ScopeOf(fleet.EnvironmentName(env.Key.Name), env.Environment)
		return scope.All || slices.Contains(scope.Kinds, fleet.KindNamespace)
	}
	regions := map[string]bool{}
	for _, id := range targets {
		env := ch.st.get(environmentKey(id))
		if tenant == nil || env == nil {
			return id.Name
		}
		able, known := regions[env.Environment.Region]
		switch {
		case env.Environment.Agent != nil || env.Environment.ClusterWide():
			able = may(env)
		case !known:
			able = !slices.ContainsFunc(ch.st.index.list(clusterWideIn(env)),
				func(k fleet.Key) bool {
					other := ch.st.get(k)
					return other != nil && other.Environment.ClusterWide() && !may(other)
				})
			regions[env.Environment.Region] = able
		}
		if !able {
			return id.Name
		}
	}
	return ""
}

func (ch *checker) warnSpent(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	d := ch.st.get(deploymentKey(fleet.DeploymentID{Tenant: e.key.Tenant, Name: spec.Deployment}))
	if d == nil || len(spec.Environments) == 0 {
		return nil
	}
	targets := ch.st.targets(d)
	for i, n := range spec.Environments {
		if !slices.Contains(targets, fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}) {
			return []fleet.Problem{
				e.warning(fmt.Sprintf("spec.environments[%d]", i), codeSpentSyncRun,
					"remove the file",
					"deployment %q no longer goes to environment %q; the SyncRun has had its effect",
					spec.Deployment, n)}
		}
	}
	return nil
}

// codeURL is config-schema's for a URL that cannot be one.
const codeURL = "invalid-url"

// withHosts adds the fleet's allowed hosts to the problems of a repository URL that did not decode:
// the decoder of a single file does not know them.
func (ch *checker) withHosts(problems []fleet.Problem) []fleet.Problem {
	var out []fleet.Problem
	for i, p := range problems {
		if p.Code != codeURL || !strings.HasSuffix(p.Field, "repoURL") {
			continue
		}
		if out == nil {
			out = slices.Clone(problems)
		}
		if hosts := sorted(ch.hosts().GitHosts); len(hosts) > 0 {
			out[i].Fix += ": " + some(hosts)
		}
	}
	if out == nil {
		return problems
	}
	return out
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// hosts is the fleet as far as hosts go; without a Fleet none is allowed.
func (ch *checker) hosts() fleet.FleetSpec {
	if d := ch.st.get(fleetKey()); d != nil {
		return *d.Fleet
	}
	return fleet.FleetSpec{}
}

// some lists names, not too many.
func some(names []string) string {
	if len(names) > 8 {
		return strings.Join(names[:8], ", ") + fmt.Sprintf(" or one of %d others", len(names)-8)
	}
	return strings.Join(names, ", ")
}

// Several declarations may want the same thing: a namespace of an API server, a repository's
// credential, an Argo CD instance, a share of a quota. Its effective owner keeps it. Two newcomers
// are both refused, unless one of them has another error: then it does not block the other.

var sharedCodes = []string{codeNamespaceClaimed, codeEngineNamespace, codeSameRepository,
	codeInstallationID, codeInstance, codeQuota,
	codeWholeCluster, codeClusterScope, codeNamespaceInUse, codeReferenced,
	codePolicyReached}

// barred reports whether an entry is quarantined for a reason of its own, so that it is no rival of
// another.
func barred(e *entry) bool {
	return e.quarantined() && slices.ContainsFunc(e.quarantine, func(p fleet.Problem) bool {
		return !slices.Contains(sharedCodes, p.Code)
	})
}

// rivalTerms returns the terms of declarations that may conflict with this one.
func rivalTerms(d *fleet.Declaration) []term {
	switch {
	case d.Engine != nil:
		ts := append(servedBy(d.Engine),
			term{what: installation, a: d.Engine.ArgoCD.InstallationID})
		for _, entry := range entriesFor(d.Engine.ArgoCD.Namespace) {
			ts = append(ts, term{what: namespaceOf, a: entry})
		}
		return ts
	case d.Cluster != nil:
		return []term{clusterAt(d.Cluster.Server)}
	case d.Environment != nil:
		return environmentRivals(d)
	case d.Credential != nil:
		return []term{
			{what: accessTo, tenant: d.Key.Tenant, a: d.Credential.Scope()}}
	}
	return nil
}

// String describes the rival's claim.
func (r *rival) String() string {
	if r.has {
		return "has it"
	}
	return "wants it too"
}
