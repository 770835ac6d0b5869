package catalog

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// This file judges Clusters of the platform and the environments that name them. The address of a
// Cluster is "cluster:<name>". Its API server is not named by its URL too, so that tenants are kept
// apart by addresses.

func clusterKey(n fleet.PlatformClusterName) fleet.Key {
	return fleet.Key{Kind: fleet.KindCluster, Name: string(n)}
}

// clusterAt returns the term of the Clusters with an API server.
func clusterAt(server string) term { return term{what: clusterServer, a: server} }

// checkCluster judges a Cluster by itself: its address, and the environments that name it.
func (ch *checker) checkCluster(e *entry, spec *fleet.PlatformClusterSpec) []fleet.Problem {
	var problems []fleet.Problem
	hosts := ch.hosts()
	if why := fleet.InternalServer(spec.Server, hosts.ClusterHosts,
		hosts.RefusePrivateClusters); why != "" {
		problems = append(problems, e.problem("spec.server", codeClusterHost,
			"write the address that the engines reach it by, or list the host in clusterHosts of "+
				"fleet/fleet.yaml",
			"%s is a %s, which the fleet does not allow", strings.TrimPrefix(spec.Server,
				"https://"), why))
	}
	if e.effective == nil {
		return problems
	}
	users := ch.environmentsOn(e.key)
	if len(users) > 0 && e.effective.Cluster.Server != spec.Server {
		problems = append(problems, e.problem("spec.server", codeImmutable,
			"declare another Cluster and move the environments to it",
			"environment %s is on this API server: it does not change under it",
			environmentID(users[0].Key)))
	}
	if spec.Cloud() != nil && e.effective.Cluster.Cloud() == nil {
		for _, env := range users {
			if env.Key.Tenant != users[0].Key.Tenant {
				problems = append(problems, e.problem("spec", codeSharedIdentity,
					"keep credentialsRef, or declare a Cluster for each tenant",
					"environments %s and %s of two tenants would share one identity",
					environmentID(users[0].Key), environmentID(env.Key)))
				break
			}
		}
	}
	return problems
}

// environmentsOn returns the effective environments that name a Cluster, sorted.
func (ch *checker) environmentsOn(cluster fleet.Key) []*fleet.Declaration {
	var users []*fleet.Declaration
	for _, k := range ch.st.index.list(referrersOf(cluster)) {
		if env := ch.st.get(k); mentions(env, cluster) {
			users = append(users, env)
		}
	}
	return users
}

// checkSameServer refuses a second Cluster with one API server.
func (ch *checker) checkSameServer(e *entry, spec *fleet.PlatformClusterSpec) []fleet.Problem {
	r := ch.rival(e, clusterAt(spec.Server), e.itself, func(d *fleet.Declaration) bool {
		return d.Cluster.Server == spec.Server
	})
	if r == nil {
		return nil
	}
	return []fleet.Problem{e.problem("spec.server", codeSameServer, "keep one of the two",
		"Cluster %q is the same API server: it %s (%s)", r.key.Name, r, r.path)}
}

// checkReference checks the Cluster that an environment names. One identity of a cloud serves the
// environments of one tenant only: Argo CD bounds a PostDelete hook by nothing but the credential.
func (ch *checker) checkReference(e *entry, spec *fleet.EnvironmentSpec) []fleet.Problem {
	name := spec.Cluster.Ref
	cluster := ch.st.get(clusterKey(name))
	if cluster == nil {
		return []fleet.Problem{e.problem("spec.cluster.ref", codeUnknownCluster,
			didYouMean(string(name), ch.st.effectiveNames("", fleet.KindCluster),
				"the platform declares it in fleet/clusters/"+string(name)+".yaml"),
			"cluster %q is not in effect", name)}
	}
	kept := e.effective != nil && e.effective.Environment.Cluster != nil &&
		e.effective.Environment.Cluster.Ref == name
	if cluster.Cluster.Cloud() == nil || kept ||
		!ch.sharedServer(spec.Cluster.Address(), e.key.Tenant) {
		return nil
	}
	return []fleet.Problem{e.problem("spec.cluster.ref", codeSharedIdentity,
		"ask the platform to grant "+spec.Cluster.Address()+" to this tenant alone, or to give "+
			"the Cluster a credentialsRef, with which each environment gets a service account",
		"Argo CD has one identity at %s, which several tenants are granted", name)}
}

// checkDeclaredServer refuses an environment that names the API server of a Cluster by its URL. It
// keeps the namespaces that it has in effect.
func (ch *checker) checkDeclaredServer(e *entry, spec *fleet.EnvironmentSpec) []fleet.Problem {
	var declared *fleet.Declaration
	for _, k := range ch.st.index.list(clusterAt(spec.Cluster.Server)) {
		if d := ch.st.get(k); d != nil && d.Cluster.Server == spec.Cluster.Server {
			declared = d
		}
	}
	if declared == nil || !spec.AllNamespaces && !slices.ContainsFunc(spec.Namespaces,
		func(ns string) bool { return !e.keeps(spec, ns) }) ||
		spec.AllNamespaces && e.keeps(spec, everyNamespace) {
		return nil
	}
	return []fleet.Problem{e.problem("spec.cluster.server", codeDeclaredServer,
		fmt.Sprintf("write cluster: {ref: %s}, granted as cluster:%[1]s", declared.Key.Name),
		"%s is a Cluster of the platform (%s)", spec.Cluster.Server, declared.Path)}
}

// byURL returns an environment on a Cluster as one that names the same API server by its URL; nil
// if it is on none. Environments that were there before the Cluster keep their namespaces.
func (ch *checker) byURL(env *fleet.Declaration) *fleet.Declaration {
	c := env.Environment.Cluster
	if c == nil || c.Ref == "" {
		return nil
	}
	cluster := ch.st.get(clusterKey(c.Ref))
	if cluster == nil {
		return nil
	}
	out, spec := *env, *env.Environment
	spec.Cluster = &fleet.ClusterSpec{Server: cluster.Cluster.Server}
	out.Environment = &spec
	return &out
}

// wakeCluster queues the environments whose verdict a Cluster may alter: those that name it, and
// the quarantined ones that name its API server.
func (w *work) wakeCluster(k fleet.Key, before, after *fleet.Declaration) {
	w.enqueueAll(referrersOf(k))
	for _, d := range []*fleet.Declaration{before, after} {
		if d == nil {
			continue
		}
		for env := range w.st.index.each(term{what: onServer, a: d.Cluster.Server}) {
			if w.st.entries.get(env).quarantined() {
				w.enqueue(env)
			}
		}
	}
}

// wakeOnCluster queues the quarantined environments on the Cluster whose API server an environment
// names by its URL.
func (w *work) wakeOnCluster(env *fleet.Declaration) {
	if env.Environment == nil || env.Environment.Cluster == nil ||
		env.Environment.Cluster.Server == "" {
		return
	}
	for k := range w.st.index.each(clusterAt(env.Environment.Cluster.Server)) {
		for other := range w.st.index.each(referrersOf(k)) {
			if w.st.entries.get(other).quarantined() {
				w.enqueue(other)
			}
		}
	}
}
