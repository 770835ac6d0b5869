package catalog

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// This file keeps environments out of each other's namespaces and out of Argo CD's. An entry of an
// environment is a namespace, or a prefix that ends in '-'.

// everyNamespace is the entry of an environment that may have the whole cluster.
const everyNamespace = "*"

// clusterOf identifies the cluster of an environment. An agent's cluster belongs to its environment
// alone.
func clusterOf(d *fleet.Declaration) string {
	if c := d.Environment.Cluster; c != nil {
		return c.Address()
	}
	return "agent of " + environmentID(d.Key).String()
}

// claim returns the term for an entry of an environment on its cluster.
func claim(d *fleet.Declaration, entry string) term {
	return term{what: claimOf, a: clusterOf(d), b: entry}
}

// firstWord is the text up to the first '-', with it; "" without one. Every prefix of an entry
// begins with the entry's first word.
func firstWord(entry string) string {
	word, _, more := strings.Cut(entry, "-")
	if !more {
		return ""
	}
	return word + "-"
}

// entriesFor returns the entries that cover a namespace or a prefix: itself, and each prefix of it.
func entriesFor(entry string) []string {
	entries := []string{entry}
	for i := range len(entry) - 1 {
		if entry[i] == '-' {
			entries = append(entries, entry[:i+1])
		}
	}
	return entries
}

// overlap reports whether two entries cover a common namespace.
func overlap(a, b string) bool {
	return a == b || fleet.IsNamespacePrefix(a) && strings.HasPrefix(b, a) ||
		fleet.IsNamespacePrefix(b) && strings.HasPrefix(a, b)
}

// claims returns the terms of an environment's entries.
func claims(d *fleet.Declaration) []term {
	ts := make([]term, 0, 2*len(d.Environment.Namespaces)+1)
	for _, entry := range d.Environment.Namespaces {
		ts = append(ts, claim(d, entry), term{what: namespaceOf, a: entry})
		if word := firstWord(entry); word != "" && d.Environment.Cluster != nil {
			ts = append(ts, term{what: claimUnder, a: clusterOf(d), b: word})
		}
	}
	if d.Environment.ClusterWide() && d.Environment.Cluster != nil {
		ts = append(ts, claim(d, everyNamespace), clusterWideIn(d))
	}
	return ts
}

func clusterWideIn(d *fleet.Declaration) term {
	return term{what: clusterWide, tenant: d.Key.Tenant, a: d.Environment.Region}
}

// rivalsOf returns the terms of entries that may overlap an entry of an environment.
func rivalsOf(d *fleet.Declaration, entry string) []term {
	var ts []term
	for _, e := range entriesFor(entry) {
		ts = append(ts, claim(d, e))
	}
	if fleet.IsNamespacePrefix(entry) {
		ts = append(ts, term{what: claimUnder, a: clusterOf(d), b: firstWord(entry)})
	}
	return ts
}

// environmentRivals returns the terms of declarations that may conflict with an environment.
func environmentRivals(d *fleet.Declaration) []term {
	var ts []term
	for _, entry := range d.Environment.Namespaces {
		ts = append(append(ts, rivalsOf(d, entry)...), enginesAt(entry))
	}
	ts = append(ts, claim(d, everyNamespace))
	if c := d.Environment.Cluster; c != nil && d.Environment.ClusterWide() {
		ts = append(ts, term{what: onServer, a: c.Address()}, clusterWideIn(d))
	}
	return ts
}

// enginesAt returns the term of the engines whose namespace an entry may cover.
func enginesAt(entry string) term {
	if fleet.IsNamespacePrefix(entry) {
		return term{what: argoCDUnder, a: firstWord(entry)}
	}
	return term{what: argoCDIn, a: entry}
}

// checkNamespaces checks the entries of an environment against those of other tenants and against
// the namespaces of engines. Only its kubeconfig knows an engine's API server, so the namespace of
// an engine is refused on every server: write access to that namespace creates Applications.
func (ch *checker) checkNamespaces(e *entry, head *fleet.Declaration) []fleet.Problem {
	var problems []fleet.Problem
	may, shared := ch.mayUse(head), head.Environment.Cluster != nil &&
		ch.sharedServer(head.Environment.Cluster.Address(), e.key.Tenant)
	for i, ns := range head.Environment.Namespaces {
		field := fmt.Sprintf("spec.namespaces[%d]", i)
		if p := ch.checkArgoNamespace(e, head, field, ns); p != nil {
			problems = append(problems, *p)
		}
		if !may || shared && !ch.mayName(e, head.Environment, ns) {
			continue // never reveal the user of a namespace that the tenant may not use
		}
		named := ch.byURL(head)
		if named != nil && e.keeps(named.Environment, ns) {
			continue // it was there before the Cluster
		}
		other := ch.claimant(e, head, ns)
		if other == nil && named != nil {
			other = ch.claimant(e, named, ns)
		}
		if other != nil {
			// Without the other's name: a tenant learns nothing of the others.
			problems = append(
				problems,
				e.problem(field, codeNamespaceClaimed,
					"use a namespace of your own, or ask the platform to grant it to one tenant "+
						"alone in namespaces of fleet/tenants/",
					"%s of %s is not free: another tenant's environment %s", covered(ns),
					clusterOf(head), other))
		}
	}
	if may {
		problems = append(problems, ch.checkNeighbours(e, head)...)
		if named := ch.byURL(head); named != nil {
			problems = append(problems, ch.checkNeighbours(e, named)...)
		}
	}
	return append(problems, ch.checkScope(e, head)...)
}

func covered(entry string) string {
	if fleet.IsNamespacePrefix(entry) {
		return fmt.Sprintf("a namespace that begins with %q", entry)
	}
	return fmt.Sprintf("namespace %q", entry)
}

// claimant returns the environment of another tenant that has a namespace of the entry in effect,
// or the first other good one that wants one. It returns nil if the tenant has the whole entry
// already, or there is no other.
func (ch *checker) claimant(e *entry, head *fleet.Declaration, entry string) *rival {
	overlaps := func(d *fleet.Declaration) bool {
		return d != nil && clusterOf(d) == clusterOf(head) &&
			slices.ContainsFunc(d.Environment.Namespaces, func(ns string) bool {
				return overlap(ns, entry)
			})
	}
	var has, wants *rival
	for _, t := range rivalsOf(head, entry) {
		for _, k := range ch.st.index.list(t) {
			other := ch.st.entries.get(k)
			switch holds := overlaps(other.effective); {
			case k.Tenant == e.key.Tenant:
				if holds && other.effective.Environment.Lists(entry) {
					return nil
				}
			case holds && has == nil:
				has = &rival{other, true}
			case wants == nil && !holds && overlaps(other.head) && ch.wellBehaved(other):
				wants = &rival{other, false}
			}
		}
	}
	if has != nil {
		return has
	}
	return wants
}

// ownCluster reports whether the environment's cluster is its tenant's alone: behind its own agent,
// or at an API server that no other tenant is granted. Naming namespaces there keeps the platform
// from nothing.
func (ch *checker) ownCluster(env *fleet.Declaration) bool {
	c := env.Environment.Cluster
	if c == nil {
		return true
	}
	return ch.mayUse(env) && !ch.sharedServer(c.Address(), env.Key.Tenant)
}

// mayUse reports whether the tenant is granted the environment's API server, or needs no grant.
func (ch *checker) mayUse(env *fleet.Declaration) bool {
	c := env.Environment.Cluster
	if c == nil {
		return true
	}
	t := ch.st.get(tenantKey(env.Key.Tenant))
	return t != nil && fleet.ServerGranted(t.Tenant.Clusters, c.Address())
}

// granted returns the platform's grant for an environment.
func (ch *checker) granted(k fleet.Key) fleet.EnvironmentGrant {
	var spec *fleet.TenantSpec
	if t := ch.st.get(tenantKey(k.Tenant)); t != nil {
		spec = t.Tenant
	}
	return spec.GrantTo(fleet.EnvironmentName(k.Name))
}

// checkArgoNamespace refuses a namespace whose Applications an engine's Argo CD serves, unless the
// tenant may have it. The environment keeps what it has in effect on its cluster.
func (ch *checker) checkArgoNamespace(e *entry, head *fleet.Declaration, field,
	ns string) *fleet.Problem {
	named := ch.byURL(head)
	if e.keeps(head.Environment, ns) || named != nil && e.keeps(named.Environment, ns) {
		return nil
	}
	for _, k := range ch.st.index.list(enginesAt(ns)) {
		for _, d := range ch.st.entries.get(k).versions() {
			for _, n := range served(d.Engine) {
				if overlap(n.Namespace, ns) && !ch.opened(d.Engine, n, e.key, ns) {
					p := ch.ofEngine(e, n, field, ns)
					return &p
				}
			}
		}
	}
	return nil
}

// opened reports whether an environment may deploy to a namespace whose Applications an engine's
// Argo CD serves: they are its own tenant's, or the platform grants the environment exactly this
// namespace and lets the tenant own the instance.
func (ch *checker) opened(engine *fleet.EngineSpec, n fleet.ApplicationNamespace, env fleet.Key,
	entry string) bool {
	return n.Tenant == env.Tenant || entry == n.Namespace && engine.Trusts(env.Tenant) &&
		slices.Contains(ch.granted(env).Namespaces, entry)
}

// ofEngine is the problem of an environment with a namespace of an engine. It names no other
// tenant.
func (ch *checker) ofEngine(e *entry, n fleet.ApplicationNamespace, field,
	ns string) fleet.Problem {
	fix := "use another namespace"
	if n.Tenant != "" {
		return e.problem(field, codeEngineNamespace, fix, "%s is one in which an engine's Argo "+
			"CD serves the Applications of another tenant: who may write there deploys as that "+
			"tenant", covered(ns))
	}
	if slices.Contains(ch.granted(e.key).Namespaces, ns) {
		fix += fmt.Sprintf(", or ask the platform to set dedicatedTo: [%s], or for a "+
			"tenant of its own platformTenant: %[1]s, on each engine in a namespace of "+
			"this name: who may write there owns that Argo CD", e.key.Tenant)
	}
	return e.problem(field, codeEngineNamespace, fix,
		"%s is one in which an engine's Argo CD lives", covered(ns))
}

// checkInstanceNamespace refuses an engine that serves Applications in a namespace to which an
// environment deploys that may not have it, and one that withdraws its trust in a tenant that needs
// it.
func (ch *checker) checkInstanceNamespace(e *entry, spec *fleet.EngineSpec) *fleet.Problem {
	held := e.effective
	for _, k := range ch.st.index.list(referrersOf(e.key)) {
		env := ch.st.get(k)
		if env == nil || env.Environment == nil || env.Environment.OnEngine() == "" ||
			held == nil {
			continue
		}
		whole := ch.whole(env) && held.Engine.Serves(k.Tenant) && !spec.Serves(k.Tenant)
		if whole || slices.ContainsFunc(env.Environment.Namespaces, ofKubernetes) &&
			held.Engine.Trusts(k.Tenant) && !spec.Trusts(k.Tenant) {
			p := e.problem(trustField(held.Engine, k.Tenant), codeEngineNamespace,
				"keep "+trust(held.Engine, k.Tenant)+", or have kube-* and allNamespaces "+
					"taken out of the environment first",
				"environment %s has the cluster that the engine runs on (%s), so the engine "+
					"serves no other tenant, unless it is the platform's own and has kube-* alone",
				environmentID(k), env.Path)
			return &p
		}
	}
	for i, n := range served(spec) {
		field := "spec.argocd.namespace"
		if i > 0 {
			field = fmt.Sprintf("spec.applicationNamespaces[%d].namespace", i-1)
		}
		if p := ch.checkServed(e, spec, field, n); p != nil {
			return p
		}
	}
	return nil
}

// checkServed checks one namespace whose Applications an engine is to serve against the
// environments that deploy to a namespace of this name.
func (ch *checker) checkServed(e *entry, spec *fleet.EngineSpec, field string,
	n fleet.ApplicationNamespace) *fleet.Problem {
	held := e.effective
	same := held != nil && slices.Contains(served(held.Engine), n)
	power, instead := "owns this Argo CD, so the tenant has it alone or is the platform's own",
		"choose a namespace that no tenant deploys to, or "
	if n.Tenant != "" {
		power = fmt.Sprintf("deploys as tenant %s", n.Tenant)
		instead = "leave the Applications there as they are (docs/adopting.md), or "
	}
	for _, entry := range entriesFor(n.Namespace) {
		for _, k := range ch.st.index.list(term{what: namespaceOf, a: entry}) {
			env := ch.st.get(k)
			if env == nil || !slices.Contains(env.Environment.Namespaces, entry) ||
				ch.opened(spec, n, k, entry) {
				continue
			}
			withdrawn := held != nil && held.Engine.Trusts(k.Tenant) && !spec.Trusts(k.Tenant)
			switch on := env.Environment.OnEngine(); {
			case same && withdrawn:
				p := e.problem(trustField(held.Engine, k.Tenant), codeEngineNamespace,
					"keep "+trust(held.Engine, k.Tenant)+", or have the namespace taken out of "+
						"the environment first",
					"environment %s deploys to namespace %q (%s): who may write there %s",
					environmentID(k), n.Namespace, env.Path, power)
				return &p
			case !same && (!ch.ownCluster(env) || withdrawn && on == fleet.EngineName(e.key.Name)):
				p := e.problem(field, codeEngineNamespace,
					instead+"take it out of namespaces of fleet/tenants/"+string(k.Tenant)+
						".yaml and of the environment",
					"namespace %q is one that environment %s deploys to (%s): who may write "+
						"there %s", n.Namespace, environmentID(k), env.Path, power)
				return &p
			}
		}
	}
	return nil
}

// trust is the line of an engine by which a tenant may own it.
func trust(engine *fleet.EngineSpec, t fleet.TenantName) string {
	if engine.Serves(t) {
		return "dedicatedTo: [" + string(t) + "]"
	}
	return "platformTenant: " + string(t)
}

func trustField(engine *fleet.EngineSpec, t fleet.TenantName) string {
	if engine.Serves(t) {
		return "spec.dedicatedTo"
	}
	return "spec.platformTenant"
}

// platformOf reports whether the platform names the tenant as its own on an engine.
func (ch *checker) platformOf(name fleet.EngineName, t fleet.TenantName) bool {
	engine := ch.st.get(engineKey(name))
	return engine != nil && t != "" && engine.Engine.PlatformTenant == t
}

func ofKubernetes(namespace string) bool { return strings.HasPrefix(namespace, "kube-") }

// checkReserved refuses reserved namespaces that the platform does not grant to the environment. It
// keeps those that it has in effect.
func (ch *checker) checkReserved(e *entry, spec *fleet.EnvironmentSpec,
	mine fleet.EnvironmentGrant) []fleet.Problem {
	var problems []fleet.Problem
	for i, ns := range spec.Namespaces {
		if name := spec.OnEngine(); name != "" && ofKubernetes(ns) && !e.keeps(spec, ns) &&
			ch.sharedServer(spec.Cluster.Address(), e.key.Tenant) &&
			!ch.platformOf(name, e.key.Tenant) {
			problems = append(problems, e.problem(fmt.Sprintf("spec.namespaces[%d]", i),
				codeEngineNamespace,
				fmt.Sprintf("use another namespace, or ask the platform to set dedicatedTo: [%s] "+
					"on the engine and to grant %s to no other tenant, or for a tenant of its own "+
					"platformTenant: %[1]s", e.key.Tenant, spec.Cluster.Address()),
				"write access to %q is the cluster, on which engine %q lives", ns, name))
			continue
		}
		if !fleet.ReservedNamespace(ns) || slices.Contains(mine.Namespaces, ns) ||
			e.keeps(spec, ns) {
			continue
		}
		problems = append(problems, e.problem(fmt.Sprintf("spec.namespaces[%d]", i),
			codeNamespaceReserved,
			fmt.Sprintf("use another namespace, or ask the platform to add {name: %s, "+
				"namespaces: [%s]} to environments of fleet/tenants/%s.yaml", e.key.Name, ns,
				e.key.Tenant),
			"namespace %q is reserved by Kubernetes or Argo CD, and not granted to environment %q",
			ns, e.key.Name))
	}
	return problems
}

// checkWhole refuses all namespaces or all cluster-scoped kinds of a cluster without a grant, and
// on an API server that other tenants are granted too. The environment keeps what it has in effect.
func (ch *checker) checkWhole(e *entry, spec *fleet.EnvironmentSpec,
	mine fleet.EnvironmentGrant) []fleet.Problem {
	field := "spec.allNamespaces"
	switch kept := e.keeps(spec, everyNamespace); {
	case spec.AllNamespaces && kept:
		return nil
	case spec.AllNamespaces && !mine.AllNamespaces:
		return []fleet.Problem{e.problem(field, codeWholeCluster,
			fmt.Sprintf("list the namespaces, or ask the platform to add {name: %s, "+
				"allNamespaces: true} to environments of fleet/tenants/%s.yaml", e.key.Name,
				e.key.Tenant),
			"environment %q is not granted all namespaces of its cluster", e.key.Name)}
	case spec.AllNamespaces:
	case spec.ClusterResources && mine.AllClusterResources && !ch.whole(e.effective):
		field = "spec.clusterResources"
	default:
		return nil
	}
	if spec.Cluster == nil || !ch.sharedServer(spec.Cluster.Address(), e.key.Tenant) {
		return nil
	}
	return []fleet.Problem{e.problem(field, codeWholeCluster,
		"ask the platform to list namespaces and kinds in environments of fleet/tenants/"+
			string(e.key.Tenant)+".yaml, in place of all of them; or to grant the cluster to "+
			"no other tenant, and an engine's own one with dedicatedTo: ["+
			string(e.key.Tenant)+"]",
		"%s is not this tenant's alone, so that it may not have all of it",
		spec.Cluster.Address())}
}

// checkWholeGrants refuses a grant of all cluster-scoped kinds to an environment that is in effect
// on an API server of several tenants: the grant would open it at once.
func (ch *checker) checkWholeGrants(e *entry, spec *fleet.TenantSpec) []fleet.Problem {
	var problems []fleet.Problem
	tenant := fleet.TenantName(e.key.Name)
	for i, g := range spec.Environments {
		env := ch.st.get(environmentKey(fleet.EnvironmentID{Tenant: tenant, Name: g.Name}))
		if !g.AllClusterResources || env == nil || env.Environment.Cluster == nil ||
			!env.Environment.ClusterResources || ch.whole(env) ||
			!ch.sharedServer(env.Environment.Cluster.Address(), tenant) {
			continue
		}
		problems = append(problems, e.problem(
			fmt.Sprintf("spec.environments[%d].allClusterResources", i), codeWholeCluster,
			"list the kinds in clusterResources",
			"environment %q is on %s, which is not this tenant's alone", g.Name,
			env.Environment.Cluster.Address()))
	}
	return problems
}

// whole reports whether an environment that an engine reaches has all namespaces or all
// cluster-scoped kinds of its cluster.
func (ch *checker) whole(env *fleet.Declaration) bool {
	return env != nil && env.Environment.Cluster != nil && (env.Environment.AllNamespaces ||
		env.Environment.ClusterResources && ch.granted(env.Key).AllClusterResources)
}

// checkNeighbours refuses an environment on a cluster that another tenant has wholly, and a whole
// one on a cluster that another tenant deploys to.
func (ch *checker) checkNeighbours(e *entry, head *fleet.Declaration) []fleet.Problem {
	if head.Environment.Cluster == nil || e.effective != nil &&
		clusterOf(e.effective) == clusterOf(head) && ch.whole(e.effective) == ch.whole(head) {
		return nil
	}
	t, conflicts := claim(head, everyNamespace), ch.whole
	if ch.whole(head) {
		t, conflicts = term{what: onServer, a: clusterOf(head)}, func(*fleet.Declaration) bool {
			return true
		}
	}
	other := ch.rival(e, t, func(k fleet.Key) bool { return k.Tenant == e.key.Tenant },
		func(d *fleet.Declaration) bool {
			return clusterOf(d) == clusterOf(head) && conflicts(d)
		})
	if other == nil {
		return nil
	}
	return []fleet.Problem{e.problem("spec.cluster.server", codeWholeCluster,
		"use another cluster, or ask the platform to grant it to one tenant alone",
		"one tenant has all of %s, and no other may deploy there: another tenant's environment %s",
		clusterOf(head), other)}
}

// checkScope refuses an environment whose cluster-scoped kinds differ from those of another one
// that may be on the same engine: Argo CD has one list of kinds for a tenant on an engine.
func (ch *checker) checkScope(e *entry, head *fleet.Declaration) []fleet.Problem {
	t := ch.st.get(tenantKey(e.key.Tenant))
	if t == nil || head.Environment.Cluster == nil || !head.Environment.ClusterWide() ||
		len(t.Tenant.Environments) == 0 && !head.Environment.AllNamespaces {
		return nil
	}
	scope := t.Tenant.ScopeOf(fleet.EnvironmentName(e.key.Name), head.Environment)
	for _, k := range ch.st.index.list(clusterWideIn(head)) {
		env := ch.st.get(k)
		if k == e.key || env == nil || env.Environment.Region != head.Environment.Region ||
			env.Environment.Cluster == nil || !env.Environment.ClusterWide() ||
			t.Tenant.ScopeOf(fleet.EnvironmentName(k.Name), env.Environment).Equal(scope) {
			continue
		}
		return []fleet.Problem{e.problem("spec.clusterResources", codeClusterScope,
			fmt.Sprintf("leave clusterResources out in one of the two, or ask the platform to "+
				"grant both the same kinds in environments of %s", t.Path),
			"environment %q in region %s may deploy other cluster-scoped kinds, and Argo CD has "+
				"one list of kinds for a tenant on an engine", k.Name, env.Environment.Region)}
	}
	return nil
}

// sharedServer reports whether a tenant other than one is granted the API server. An engine's own
// cluster is the tenant's only if the engine serves that tenant alone.
func (ch *checker) sharedServer(server string, other fleet.TenantName) bool {
	if name, own := strings.CutPrefix(server, "engine:"); own {
		engine := ch.st.get(engineKey(fleet.EngineName(name)))
		if engine == nil || !engine.Engine.Serves(other) {
			return true
		}
	}
	for _, g := range fleet.ServerGrants(server) {
		for k := range ch.st.index.each(term{what: grantsServer, a: g}) {
			if d := ch.st.get(k); d != nil && k.Name != string(other) &&
				slices.Contains(d.Tenant.Clusters, g) {
				return true
			}
		}
	}
	return false
}

// mayName reports whether the environment may list the entry on an API server that other tenants
// are granted too.
func (ch *checker) mayName(e *entry, spec *fleet.EnvironmentSpec, entry string) bool {
	if t := ch.st.get(tenantKey(e.key.Tenant)); t != nil &&
		(fleet.NamespaceGranted(t.Tenant.Namespaces, entry) ||
			slices.Contains(ch.granted(e.key).Namespaces, entry)) {
		return true
	}
	return e.keeps(spec, entry)
}

// keeps reports whether the environment lists the entry in effect, on the same cluster.
func (e *entry) keeps(head *fleet.EnvironmentSpec, entry string) bool {
	if e.effective == nil {
		return false
	}
	in := e.effective.Environment
	if (in.Cluster == nil) != (head.Cluster == nil) ||
		in.Cluster != nil && in.Cluster.Address() != head.Cluster.Address() {
		return false
	}
	if entry == everyNamespace {
		return in.AllNamespaces
	}
	return in.Lists(entry)
}
