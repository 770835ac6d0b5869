package adoption

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

const inCluster = "in-cluster"

// cluster is a destination of Applications, under all the names that it has.
type cluster struct {
	key    string // in-cluster, or its URL, or its name if the URL is unknown
	alias  string // for the names of environments
	server string // as declarations have it; empty: unknown
	caData string
	labels map[string]any
	secret *Original // nil: known from destinations alone
	// of an assumed cluster: the variables of its environment
	variables map[string]any
}

// clusters finds the cluster of a destination.
type clusters struct {
	byServer, byName map[string]*cluster
	duplicates       map[string]bool // names that two Secrets have
}

func newClusters(engine string, named map[string]string) *clusters {
	own := &cluster{key: inCluster, alias: engine}
	c := &clusters{byServer: map[string]*cluster{fleet.InClusterServer: own},
		byName: map[string]*cluster{inCluster: own}, duplicates: map[string]bool{}}
	for _, name := range keys(named) {
		c.add(name, named[name])
	}
	return c
}

func (c *clusters) own() *cluster { return c.byName[inCluster] }

// others reports whether the Secret of another cluster than Argo CD's own is at hand.
func (c *clusters) others() bool {
	for _, other := range c.byServer {
		if other.secret != nil && other != c.own() {
			return true
		}
	}
	return false
}

// add registers a cluster by its name and URL.
func (c *clusters) add(name, server string) *cluster {
	server = strings.TrimSuffix(server, "/")
	found := c.byServer[server]
	if base, _, keyed := strings.Cut(server, "?"); keyed && base == fleet.InClusterServer {
		found = c.own() // Argosy's own key of the cluster, which an export has
		c.byServer[server] = found
	}
	if found == nil {
		found = &cluster{key: server, server: canonicalServer(server), alias: name}
		c.byServer[server] = found
	}
	if name != "" {
		if other := c.byName[name]; other != nil && other != found {
			c.duplicates[name] = true
		} else {
			c.byName[name] = found
		}
		if found.key != inCluster {
			found.alias = name
		}
	}
	return found
}

// of returns the cluster of an Application's destination, or the reason why it has none.
func (c *clusters) of(destination map[string]any) (*cluster, string) {
	server, name := strings.TrimSuffix(text(destination, "server"), "/"), text(destination, "name")
	switch {
	case server != "" && name != "":
		return nil, "spec.destination: it has both server and name; Argo CD refuses that"
	case server == "" && name == "":
		return nil, "spec.destination: it has neither server nor name"
	case name != "" && c.duplicates[name]:
		return nil, fmt.Sprintf("spec.destination.name: two clusters are named %q", name)
	case name != "":
		if c.byName[name] == nil {
			c.byName[name] = &cluster{key: name, alias: name}
		}
		return c.byName[name], ""
	case c.byServer[server] == nil:
		return c.add("", server), ""
	}
	return c.byServer[server], ""
}

// canonicalServer is an API server's URL as declarations have it.
func canonicalServer(raw string) string {
	u, err := url.Parse(strings.ToLower(raw))
	if err != nil || u.Host == "" {
		return raw
	}
	return u.Scheme + "://" + strings.TrimSuffix(u.Host, ":443") + strings.TrimSuffix(u.Path, "/")
}

// name is the first part of the names of the cluster's environments.
func (c *cluster) name() string {
	if c.alias != "" {
		return validName(c.alias, "cluster")
	}
	u, err := url.Parse(c.server)
	if err != nil || u.Hostname() == "" {
		return validName(c.key, "cluster")
	}
	return validName(u.Hostname(), "cluster")
}

// readSecrets registers the clusters and remembers the credentials.
func (im *importer) readSecrets() {
	im.clusters = newClusters(im.Engine, im.Clusters)
	for _, o := range im.of(KindSecret) {
		if secretType(o.Object) != "cluster" {
			continue
		}
		server := strings.TrimSuffix(secretValue(o.Object, "server"), "/")
		if server == "" || templated(server) != "" {
			continue
		}
		c := im.clusters.add(secretValue(o.Object, "name"), server)
		secret := o
		c.secret, c.labels = &secret, map[string]any{}
		for k, v := range object(o.Object, "metadata", "labels") {
			if k != "argocd.argoproj.io/secret-type" {
				c.labels[k] = v
			}
		}
		var config struct {
			TLS struct {
				CAData string `json:"caData"`
			} `json:"tlsClientConfig"`
		}
		if json.Unmarshal([]byte(secretValue(o.Object, "config")), &config) == nil {
			c.caData = config.TLS.CAData
		}
	}
}

// secretValue is a value of a Secret that is no credential, decoded.
func secretValue(o map[string]any, name string) string {
	if s := text(o, "stringData", name); s != "" {
		return s
	}
	b, err := base64.StdEncoding.DecodeString(text(o, "data", name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// environment is a tenant's share of a cluster.
type environment struct {
	tenant     fleet.TenantName
	name       fleet.EnvironmentName
	cluster    *cluster
	namespaces map[string]bool
	banned     map[string]bool // namespaces that it may not have
	// whole: it has every namespace of its cluster, as its project does
	whole, neverWhole bool
	draft             *draft
	by                string
}

// nameEnvironments names the environments of every tenant: each is one cluster of one tenant.
func (im *importer) nameEnvironments() {
	for _, a := range im.apps {
		if !a.out() {
			t := im.tenant(a.tenant)
			a.env = t.environment(a.cluster).name
		}
	}
}

// tenant is one tenant of the config repo.
type tenant struct {
	name     fleet.TenantName
	projects []*project
	envs     []*environment
	draft    *draft
}

func (im *importer) tenant(name fleet.TenantName) *tenant {
	t := im.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		im.tenants[name] = t
	}
	return t
}

func (t *tenant) environment(c *cluster) *environment {
	for _, e := range t.envs {
		if e.cluster == c {
			return e
		}
	}
	name := c.name()
	for n := 2; slices.ContainsFunc(t.envs, func(e *environment) bool {
		return string(e.name) == name
	}); n++ {
		name = validName(fmt.Sprintf("%s-%d", c.name(), n), "cluster")
	}
	e := &environment{tenant: t.name, name: fleet.EnvironmentName(name), cluster: c,
		namespaces: map[string]bool{}}
	t.envs = append(t.envs, e)
	return e
}

// byAgent is the value of environment.by for an environment with an agent.
const byAgent = "agent"

// propose drafts the environment. The cluster that Argo CD runs on is the engine's own, with a
// service account of the environment; if the API server is unknown, an agent serves it.
func (e *environment) propose(im *importer, clusterResources bool) {
	agent := map[string]any{"argocdNamespace": im.ArgoNamespace}
	if given := im.given(func(a *app) bool {
		return a.tenant == e.tenant && a.cluster == e.cluster
	}); len(given) > 0 {
		agent["applicationNamespaces"] = anys(keys(given))
	}
	var reaches []map[string]any
	switch {
	case e.cluster.key == inCluster:
		reaches = append(reaches, map[string]any{"cluster": map[string]any{"engine": im.Engine}})
	case e.cluster.server != "":
		c := map[string]any{"server": e.cluster.server,
			"credentialsRef": map[string]any{"name": string(e.name)}}
		if e.cluster.caData != "" {
			c["caData"] = e.cluster.caData
		}
		reaches = append(reaches, map[string]any{"cluster": c})
	}
	reaches = append(reaches, map[string]any{"agent": agent})
	for _, reach := range reaches {
		d := newDraft(fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: e.tenant,
			Name: string(e.name)})
		for _, k := range keys(e.cluster.labels) {
			d.set("metadata.labels"+key(k), e.cluster.labels[k])
		}
		for k, v := range reach {
			d.set("spec."+k, v)
		}
		d.set("spec.variables", e.cluster.variables)
		var namespaces []any
		for _, ns := range keys(e.namespaces) {
			namespaces = append(namespaces, ns)
		}
		if e.whole && e.cluster.server != "" && reach["cluster"] != nil {
			d.set("spec.allNamespaces", true)
		} else {
			d.set("spec.namespaces", namespaces)
		}
		if clusterResources {
			d.set("spec.clusterResources", true)
		}
		d.set("spec.region", im.Region)
		d.fit()
		e.draft, e.by = d, byAgent
		if c, ok := reach["cluster"].(map[string]any); ok {
			e.by = "engine"
			if s, ok := c["server"].(string); ok {
				e.by = s
			}
		}
		kept := true // nothing of the way to reach it was removed
		for k, v := range reach {
			for part := range v.(map[string]any) {
				kept = kept && d.has("spec."+k+"."+part)
			}
		}
		if d.refusal == "" && kept {
			return
		}
	}
}

// known is the cluster of a destination that is already known, or nil. It registers none.
func (c *clusters) known(destination map[string]any) *cluster {
	if server := strings.TrimSuffix(text(destination, "server"), "/"); server != "" {
		return c.byServer[server]
	}
	return c.byName[text(destination, "name")]
}
