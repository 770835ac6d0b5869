package catalog

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// checkOwn is what is wrong with a head in the light of what it refers to and of the grants over
// it. What others want too is for checkShared.
func (w *work) checkOwn(e *entry, d *fleet.Declaration) []fleet.Problem {
	var grant *fleet.TenantSpec
	if e.key.Tenant != "" {
		t := w.st.get(tenantKey(e.key.Tenant))
		if t == nil {
			return []fleet.Problem{w.unknownTenant(e, "", e.key.Tenant)}
		}
		grant = t.Tenant
	}
	switch {
	case d.Fleet != nil:
		return checkFleet(e)
	case d.Tenant != nil:
		return checkTenant(e)
	case d.Engine != nil:
		return w.checkTenants(e, "spec.dedicatedTo", d.Engine.DedicatedTo)
	case d.Policy != nil:
		return w.checkTenants(e, "spec.tenants", d.Policy.Tenants)
	case d.Environment != nil:
		return w.checkEnvironment(e, d.Environment, grant)
	case d.Credential != nil:
		return w.checkRepository(e, "spec.repoURL", d.Credential.RepoURL, grant)
	case d.Deployment != nil:
		return append(w.checkRepository(e, "spec.source.repoURL", d.Deployment.Source.RepoURL,
			grant), w.checkDestinations(e, d.Deployment)...)
	case d.SyncRun != nil:
		return w.checkSyncRun(e, d.SyncRun)
	}
	return nil
}

func (w *work) unknownTenant(e *entry, field string, t fleet.TenantName) fleet.Problem {
	if other := w.st.entries.get(tenantKey(t)); other.quarantined() {
		return e.problem(field, codeUnknownTenant, "mend "+other.path,
			"tenant %q is quarantined and has no good state", t)
	}
	return e.problem(field, codeUnknownTenant, w.declareTenant(t), "tenant %q is not declared", t)
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

const tenantNamespace = "argosy-tenant-"

// checkTenant refuses a name that no namespace for the tenant's secrets can be made of.
func checkTenant(e *entry) []fleet.Problem {
	if most := 63 - len(tenantNamespace); len(e.key.Name) > most {
		return []fleet.Problem{
			e.problem("metadata.name", codeReservedName, fmt.Sprintf("use at most %d characters",
				most),
				"the name is %d characters long, and its secrets live in the namespace %s<name>, "+
					"which has at most 63", len(e.key.Name), tenantNamespace)}
	}
	if err := fleet.ValidateName(e.key.Name); err != nil {
		return []fleet.Problem{e.problem("metadata.name", codeReservedName, "choose another name",
			"%v", err)}
	}
	return nil
}

// checkTenants is what is wrong with a list of tenants of an Engine or a Policy.
func (w *work) checkTenants(e *entry, field string, tenants []fleet.TenantName) []fleet.Problem {
	var problems []fleet.Problem
	for i, t := range tenants {
		if w.st.get(tenantKey(t)) == nil {
			problems = append(problems, w.unknownTenant(e, fmt.Sprintf("%s[%d]", field, i), t))
		}
	}
	return problems
}

func (w *work) checkEnvironment(e *entry, spec *fleet.EnvironmentSpec,
	grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	if spec.Cluster != nil {
		problems = w.checkServer(e, spec, grant)
	}
	if a := spec.Agent; a != nil {
		if i := slices.Index(spec.Namespaces, a.Namespace()); i >= 0 {
			problems = append(problems, e.problem(fmt.Sprintf("spec.namespaces[%d]", i),
				codeEngineNamespace, "use another namespace",
				"namespace %q is the one in which the cluster's own Argo CD lives "+
					"(spec.agent.argocdNamespace)", a.Namespace()))
		}
	}
	if spec.ClusterResources && len(grant.ClusterResources) == 0 {
		problems = append(problems, e.problem("spec.clusterResources", codeClusterResources,
			"leave it out, or ask the platform to grant kinds in fleet/tenants/"+
				string(e.key.Tenant)+".yaml", "tenant %q is granted no cluster-scoped kinds",
			e.key.Tenant))
	}
	if regions := grant.Placement.Regions; len(regions) > 0 && !slices.Contains(regions,
		spec.Region) {
		problems = append(problems, e.problem("spec.region", codeRegion,
			"use one of "+strings.Join(sorted(regions), ", "),
			"tenant %q may not be placed in region %q", e.key.Tenant, spec.Region))
	}
	return problems
}

// checkServer holds the API server of an environment against the fleet's hosts and the tenant's
// grants, and its namespaces against those of other tenants on that server. What the environment
// has in effect on the server it keeps.
func (w *work) checkServer(e *entry, spec *fleet.EnvironmentSpec,
	grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	server, hosts := spec.Cluster.Server, w.hosts()
	if why := fleet.InternalServer(server, hosts.ClusterHosts,
		hosts.RefusePrivateClusters); why != "" {
		problems = append(problems, e.problem("spec.cluster.server", codeClusterHost,
			"write the address that the engines reach it by, or ask the platform to list the "+
				"host in clusterHosts of fleet/fleet.yaml",
			"%s is a %s, which the fleet does not allow", strings.TrimPrefix(server, "https://"),
			why))
	}
	file := "fleet/tenants/" + string(e.key.Tenant) + ".yaml"
	if !fleet.ServerGranted(grant.Clusters, server) {
		return append(problems, e.problem("spec.cluster.server", codeClusterGrant,
			fmt.Sprintf("ask the platform to add %q to clusters of %s", server, file),
			"tenant %q is not granted the API server %s", e.key.Tenant, server))
	}
	if !w.sharedServer(server, e.key.Tenant) {
		return problems
	}
	for i, ns := range spec.Namespaces {
		if !w.mayName(e, server, ns) {
			problems = append(problems, e.problem(fmt.Sprintf("spec.namespaces[%d]", i),
				codeNamespaceGrant,
				fmt.Sprintf("ask the platform to add %q to namespaces of %s", ns, file),
				"%s is granted to other tenants too, and namespace %q on it is not granted to "+
					"tenant %q", server, ns, e.key.Tenant))
		}
	}
	return problems
}

// mayName reports whether the environment may name the namespace on an API server that other
// tenants are granted too.
func (w *work) mayName(e *entry, server, namespace string) bool {
	t := w.st.get(tenantKey(e.key.Tenant))
	return t != nil && fleet.NamespaceGranted(t.Tenant.Namespaces, namespace) ||
		e.has(server, namespace)
}

// sharedServer reports whether a tenant other than one is granted the API server.
func (w *work) sharedServer(server string, other fleet.TenantName) bool {
	for _, g := range fleet.ServerGrants(server) {
		for k := range w.st.index.each(term{what: grantsServer, a: g}) {
			if d := w.st.get(k); d != nil && k.Name != string(other) &&
				slices.Contains(d.Tenant.Clusters, g) {
				return true
			}
		}
	}
	return false
}

// has reports whether the environment has the namespace of the API server in effect.
func (e *entry) has(server, namespace string) bool {
	if e.effective == nil || e.effective.Environment.Cluster == nil {
		return false
	}
	in := e.effective.Environment
	return in.Cluster.Server == server && slices.Contains(in.Namespaces, namespace)
}

// hosts is the fleet as far as hosts go; without a Fleet none is allowed.
func (w *work) hosts() fleet.FleetSpec {
	if d := w.st.get(fleetKey()); d != nil {
		return *d.Fleet
	}
	return fleet.FleetSpec{}
}

func (w *work) checkRepository(e *entry, field, raw string,
	grant *fleet.TenantSpec) []fleet.Problem {
	u, err := fleet.ParseRepoURL(raw)
	if err != nil {
		return []fleet.Problem{e.problem(field, codeRepository, "write an https:// or ssh:// URL",
			"%v", err)}
	}
	var problems []fleet.Problem
	if !fleet.GitHostAllowed(w.hosts().GitHosts, u) {
		problems = append(problems, e.problem(field, codeGitHost, w.allowedHosts(),
			"the fleet does not allow repositories of %s://%s", u.Scheme, u.Host))
	}
	if !fleet.RepositoryGranted(grant.Repositories, raw) {
		problems = append(problems, e.problem(field, codeRepository, grantedTo(e.key.Tenant, grant),
			"tenant %q is not granted %s", e.key.Tenant, u.String()))
	}
	return problems
}

// codeURL is config-schema's for a URL that cannot be one.
const codeURL = "invalid-url"

// withHosts adds the hosts that the fleet allows to the problems of a repository URL that did not
// decode: whoever reads a file alone does not know them.
func (w *work) withHosts(problems []fleet.Problem) []fleet.Problem {
	var out []fleet.Problem
	for i, p := range problems {
		if p.Code != codeURL || !strings.HasSuffix(p.Field, "repoURL") {
			continue
		}
		if out == nil {
			out = slices.Clone(problems)
		}
		if hosts := sorted(w.hosts().GitHosts); len(hosts) > 0 {
			out[i].Fix += ": " + some(hosts)
		}
	}
	if out == nil {
		return problems
	}
	return out
}

func (w *work) allowedHosts() string {
	if w.st.get(fleetKey()) == nil {
		return "the platform declares fleet/fleet.yaml with gitHosts; there is none in effect"
	}
	hosts := sorted(w.hosts().GitHosts)
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

func (w *work) checkDestinations(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	for i, n := range spec.Destination.Environments {
		field := fmt.Sprintf("spec.destination.environments[%d]", i)
		id := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}
		env := w.st.get(environmentKey(id))
		if env == nil {
			problems = append(problems, w.unknownEnvironment(e, field, id, i))
		} else if env.Environment.Agent.Autonomous() {
			problems = append(problems, e.problem(field, codeAutonomous,
				"remove it here: who runs that cluster makes its Applications there; or set "+
					"spec.agent.mode: managed in "+env.Path,
				"environment %q is autonomous: its cluster's own Applications are the truth, "+
					"and nothing is deployed there from here", n))
		} else if ns := spec.Destination.Namespace; !slices.Contains(env.Environment.Namespaces,
			ns) {
			problems = append(problems, e.problem("spec.destination.namespace", codeNamespace,
				"use one of "+some(sorted(env.Environment.Namespaces))+
					", or add it to namespaces of "+env.Path, "environment %q has no namespace %q",
				n, ns))
		}
	}
	problems = append(problems, w.checkSelected(e)...)
	for i, o := range spec.Overrides {
		field := fmt.Sprintf("spec.overrides[%d].environment", i)
		id := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: o.Environment}
		named := slices.Contains(spec.Destination.Environments, o.Environment)
		switch {
		case slices.ContainsFunc(spec.Overrides[:i], func(p fleet.Override) bool {
			return p.Environment == o.Environment
		}):
			problems = append(problems, e.problem(field, codeDuplicateOverride, "merge the two",
				"environment %q has an override already", o.Environment))
		case spec.Destination.EnvironmentSelector == nil && !named:
			problems = append(problems, e.problem(field, codeNotADestination,
				"add it to spec.destination.environments or remove the override",
				"the deployment does not go to environment %q", o.Environment))
		case !named && w.st.get(environmentKey(id)) == nil:
			problems = append(problems, w.unknownEnvironment(e, field, id, i))
		}
	}
	return problems
}

// checkSelected refuses a selector that matches autonomous environments: whoever labelled one of
// them for it expects something there.
func (w *work) checkSelected(e *entry) []fleet.Problem {
	names := w.matched(e.head, func(env *fleet.Declaration) bool {
		return matches(e.head, env) &&
			env.Environment.Agent.Autonomous()
	})
	if len(names) == 0 {
		return nil
	}
	return []fleet.Problem{e.problem("spec.destination.environmentSelector", codeAutonomous,
		"narrow the selector or take the label off them, or set spec.agent.mode: managed there",
		"the selector matches autonomous environments: their clusters' own Applications are the "+
			"truth, and nothing is deployed there from here: %s", some(names))}
}

// unknownEnvironment names the closest environment for the first few mistakes of a file.
func (w *work) unknownEnvironment(e *entry, field string, id fleet.EnvironmentID,
	nth int) fleet.Problem {
	path := "tenants/" + string(id.Tenant) + "/environments/" + string(id.Name) + ".yaml"
	if other := w.st.entries.get(environmentKey(id)); other != nil {
		return e.problem(field, codeUnknownEnv, "mend "+other.path,
			"environment %q is quarantined and has no good state", id.Name)
	}
	fix := "declare it in " + path
	if nth < 10 {
		fix = didYouMean(string(id.Name),
			w.st.effectiveNames(id.Tenant, fleet.KindManagedEnvironment), fix)
	}
	return e.problem(field, codeUnknownEnv, fix, "tenant %q has no environment %q", id.Tenant,
		id.Name)
}

func (w *work) checkSyncRun(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	if e.effective != nil {
		return checkImmutable(e, spec)
	}
	id := fleet.DeploymentID{Tenant: e.key.Tenant, Name: spec.Deployment}
	d := w.st.get(deploymentKey(id))
	if d == nil {
		return []fleet.Problem{w.unknownDeployment(e, id)}
	}
	targets := w.st.targets(d)
	var problems []fleet.Problem
	for i, n := range spec.Environments {
		field := fmt.Sprintf("spec.environments[%d]", i)
		env := fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}
		switch {
		case w.st.get(environmentKey(env)) == nil:
			problems = append(problems, w.unknownEnvironment(e, field, env, i))
		case !slices.Contains(targets, env):
			problems = append(problems, e.problem(field, codeNotADestination, goesTo(d, targets),
				"deployment %q does not go to environment %q", id.Name, n))
		}
	}
	return problems
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

func (w *work) unknownDeployment(e *entry, id fleet.DeploymentID) fleet.Problem {
	if other := w.st.entries.get(deploymentKey(id)); other != nil {
		return e.problem("spec.deployment", codeUnknownDeployment, "mend "+other.path,
			"deployment %q is quarantined and has no good state", id.Name)
	}
	fix := didYouMean(string(id.Name), w.st.effectiveNames(id.Tenant, fleet.KindGitOpsDeployment),
		"declare it in tenants/"+string(id.Tenant)+"/deployments/"+string(id.Name)+".yaml")
	return e.problem("spec.deployment", codeUnknownDeployment, fix,
		"tenant %q has no deployment %q", id.Tenant, id.Name)
}

// checkImmutable refuses a changed SyncRun: its first state was acted on, and a second state would
// not be.
func checkImmutable(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	was := e.effective.SyncRun
	if was.Deployment == spec.Deployment && was.Revision == spec.Revision &&
		was.Hold == spec.Hold && slices.Equal(was.Environments, spec.Environments) {
		return nil
	}
	return []fleet.Problem{
		e.problem("spec", codeImmutable, "restore it, and write another SyncRun under a new name",
			"a SyncRun does not change once it is in effect")}
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// some lists names, not too many.
func some(names []string) string {
	if len(names) > 8 {
		return strings.Join(names[:8], ", ") + fmt.Sprintf(" or one of %d others", len(names)-8)
	}
	return strings.Join(names, ", ")
}
