package adoption

import (
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// neighbour is an environment that the config repo had before the import.
type neighbour struct {
	tenant       fleet.TenantName
	name         string
	server       string // of its cluster
	engine       string // whose cluster it is
	undetermined bool   // an agent, a Cluster, or a file that does not parse
}

// on reports whether it may be on a cluster.
func (n neighbour) on(c *cluster, engine string) bool {
	switch {
	case n.server != "":
		return canonicalServer(n.server) == c.server
	case n.engine != "":
		return n.engine != engine || c.key == inCluster
	}
	return true
}

func neighboursIn(files []configschema.File) (found []neighbour) {
	for _, f := range files {
		key, _, _ := configschema.Classify(f.Path)
		if key.Kind != fleet.KindManagedEnvironment {
			continue
		}
		tree, _ := parse(string(f.Bytes)) // without a tree, its cluster is unknown
		n := neighbour{tenant: key.Tenant, name: key.Name,
			server: text(tree, "spec", "cluster", "server"),
			engine: text(tree, "spec", "cluster", "engine")}
		n.undetermined = n.server == "" && n.engine == ""
		found = append(found, n)
	}
	return found
}

// provesAbsence reports whether the originals are all that the Argo CD has: manifests, one
// namespace and a reading of which a part is missing prove the absence of nothing.
func (im *importer) provesAbsence() bool {
	return im.Whole && len(im.Unread) == 0 && len(im.Refused) == 0
}

// alone reports whether a tenant has all known Applications and ApplicationSets of the Argo CD, or
// of one of its clusters, those too that are refused, not chosen or created by Argosy, and all
// environments that the config repo had: they run beside those of the tenant.
func (im *importer) alone(t fleet.TenantName, only *cluster) bool {
	if only == nil && len(im.served()) > 1 {
		return false
	}
	for other := range im.created {
		if other != string(t) {
			return false
		}
	}
	for _, n := range im.neighbours {
		if n.tenant != t && (only == nil || n.on(only, im.Engine) &&
			(!n.undetermined || !im.writes(n))) {
			return false
		}
	}
	on := func(c *cluster) bool { return only == nil || c == nil || c == only }
	known := map[string]bool{} // by kind, namespace and name
	id := func(o Original) string { return o.Kind + "/" + o.Namespace + "/" + o.Name }
	for _, s := range im.sets {
		known[id(s.Original)] = s.result.Status != Refused
		for _, p := range s.patterns {
			if p.tenant != t {
				return false
			}
		}
	}
	for _, a := range im.apps {
		if a.parent || a.tenant == t {
			known[id(a.Original)] = true
		} else if a.tenant != "" && on(a.cluster) {
			return false
		}
	}
	for _, o := range im.Originals {
		spec := object(o.Object, "spec")
		if o.Kind == KindApplicationSet {
			spec = object(spec, "template", "spec")
		} else if o.Kind != KindApplication {
			continue
		}
		if !known[id(o)] && on(im.clusters.known(object(spec, "destination"))) &&
			im.tenantOf(&app{Original: o, project: text(spec, "project")}) != t {
			return false
		}
	}
	return true
}

// writes reports whether this import writes an environment: it knows its cluster.
func (im *importer) writes(n neighbour) bool {
	t := im.tenants[n.tenant]
	if t == nil {
		return false
	}
	for _, e := range t.envs {
		if string(e.name) == n.name && len(e.namespaces) > 0 {
			return true
		}
	}
	return false
}
