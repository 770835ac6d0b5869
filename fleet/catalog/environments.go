package catalog

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

func (ch *checker) checkEnvironment(e *entry, spec *fleet.EnvironmentSpec,
	grant *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	if spec.Cluster != nil {
		problems = ch.checkServer(e, spec, grant)
	}
	mine := grant.GrantTo(fleet.EnvironmentName(e.key.Name))
	problems = append(problems, ch.checkReserved(e, spec, mine)...)
	problems = append(problems, ch.checkWhole(e, spec, mine)...)
	problems = append(problems, checkAgentNamespaces(e, spec.Agent)...)
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

// checkAgentNamespaces checks the namespaces of an agent's cluster whose Applications the tenant
// may adopt.
func checkAgentNamespaces(e *entry, a *fleet.AgentSpec) []fleet.Problem {
	if a == nil || len(a.ApplicationNamespaces) == 0 {
		return nil
	}
	const field = "spec.agent.applicationNamespaces"
	if a.Autonomous() {
		return []fleet.Problem{e.problem(field, codeApplicationNamespace,
			"remove it: argosy get applications shows those of Argo CD's own namespace",
			"no deployment goes to an autonomous cluster, so that none adopts an Application")}
	}
	if i := slices.Index(a.ApplicationNamespaces, a.Namespace()); i >= 0 {
		return []fleet.Problem{e.problem(fmt.Sprintf("%s[%d]", field, i),
			codeApplicationNamespace,
			"remove the entry: deployments adopt Applications there by their names alone",
			"namespace %q is Argo CD's own", a.Namespace())}
	}
	return nil
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

// served reports whether an engine or a pool other than one is in a region.
func (ch *checker) served(region string, other fleet.Key) bool {
	for k := range ch.st.index.each(term{what: servedIn, a: region}) {
		if d := ch.st.get(k); k != other && regionOf(d) == region {
			return true
		}
	}
	return false
}

// regionOf returns the region that an engine or a pool serves; "" without one.
func regionOf(d *fleet.Declaration) string {
	switch {
	case d != nil && d.Engine != nil:
		return d.Engine.Region
	case d != nil && d.Pool != nil:
		return d.Pool.Template.Region
	}
	return ""
}

func (ch *checker) regions() string {
	var regions []string
	for _, kind := range []fleet.Kind{fleet.KindEngine, fleet.KindEnginePool} {
		for _, k := range ch.st.index.list(membersOf("", kind)) {
			if r := regionOf(ch.st.get(k)); r != "" && !slices.Contains(regions, r) {
				regions = append(regions, r)
			}
		}
	}
	if len(regions) == 0 {
		return "the platform declares engines in fleet/engines/; there is none"
	}
	slices.Sort(regions)
	return "regions with engines: " + some(regions)
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

// hosts is the fleet as far as hosts go; without a Fleet none is allowed.
func (ch *checker) hosts() fleet.FleetSpec {
	if d := ch.st.get(fleetKey()); d != nil {
		return *d.Fleet
	}
	return fleet.FleetSpec{}
}
