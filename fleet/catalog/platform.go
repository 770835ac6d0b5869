package catalog

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

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

// checkMetrics refuses addresses of an engine behind an agent, which follows none.
func checkMetrics(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	var problems []fleet.Problem
	for _, c := range []fleet.Component{fleet.ApplicationController, fleet.RepoServer} {
		for i, from := range spec.Metrics.Of(c) {
			if spec.Connection.Agent != nil && from.URL != "" {
				problems = append(problems, e.problem(
					fmt.Sprintf("spec.metrics.%s[%d].url", c, i), codeMetricsURL,
					"write service: {name: ..., port: ...} or pod: {name: ..., port: ...}",
					"an agent reads metrics through the API server alone, and follows no url"))
			}
		}
	}
	return problems
}

// checkManaged refuses a managed engine whose ring is not declared, and a size of another one.
func (ch *checker) checkManaged(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	switch {
	case !spec.ArgoCD.Managed && spec.ArgoCD.Size != nil:
		return []fleet.Problem{e.problem("spec.argocd.size", codeUnmanagedSize,
			"write managed: true, or remove the field",
			"Argosy does not install this Argo CD, and sets no size of it")}
	case !spec.ArgoCD.Managed:
		return nil
	}
	return ch.checkRing(e, "spec.ring", spec.RingName())
}

// checkRing refuses a ring that the Fleet does not have.
func (ch *checker) checkRing(e *entry, field, ring string) []fleet.Problem {
	names := ch.rings()
	if slices.Contains(names, ring) {
		return nil
	}
	return []fleet.Problem{e.problem(field, codeUnknownRing,
		didYouMean(ring, names, "declare it in spec.rings of fleet/fleet.yaml"),
		"the Fleet has no ring %q", ring)}
}

// rings are the names of the Fleet's rings.
func (ch *checker) rings() []string {
	if d := ch.st.get(fleetKey()); d != nil {
		return ringNames(d.Fleet)
	}
	return nil
}

// checkAgentRings refuses rings of agents that the Fleet does not have.
func (ch *checker) checkAgentRings(e *entry, spec *fleet.TenantSpec) (problems []fleet.Problem) {
	for _, r := range agentRings(spec) {
		problems = append(problems, ch.checkRing(e, r.field, r.name)...)
	}
	return problems
}

// agentRing is a ring that a tenant names, and the field that names it.
type agentRing struct{ field, name string }

func agentRings(spec *fleet.TenantSpec) (all []agentRing) {
	if spec.AgentRing != "" {
		all = append(all, agentRing{"spec.agentRing", spec.AgentRing})
	}
	for i, g := range spec.Environments {
		if g.AgentRing != "" {
			all = append(all, agentRing{fmt.Sprintf("spec.environments[%d].agentRing", i),
				g.AgentRing})
		}
	}
	return all
}

func ringNames(f *fleet.FleetSpec) (names []string) {
	for _, r := range f.Rings {
		names = append(names, r.Name)
	}
	return names
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
