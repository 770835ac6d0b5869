package adoption

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// This file gives the Applications in the platform's namespaces to the platform's own tenant: in
// Argo CD's namespace and in kube-* of its cluster, which no tenant may have beside others, and in
// namespaces that Applications of several tenants share, which belong to none of them. The other
// tenants get nothing of each other.

// site is a namespace of a cluster.
type site struct {
	cluster, namespace string // key of the cluster
}

func siteOf(c *cluster, namespace string) site { return site{c.key, namespace} }

// codeEngineNamespace is the catalog's code of a namespace that owns an Argo CD.
const codeEngineNamespace = "namespace-of-engine"

// decision is what an attempt takes from the earlier ones.
type decision struct {
	merged   map[string]bool // projects that the default tenant has
	platform map[site]bool   // namespaces that the platform's tenant has
}

// chosen reports whether a person chose the tenants, which the import does not overrule.
func (by TenantBy) chosen() bool { return by.Label != "" || len(by.List) > 0 }

// platformSites are the namespaces of an attempt that go to the platform's tenant in the next one,
// and those that it had. It returns nil if there is no further one.
func (im *importer) platformSites() map[site]bool {
	if im.PlatformTenant == "" || im.TenantBy.chosen() {
		return nil
	}
	sites := map[site]bool{}
	for s := range im.platform {
		sites[s] = true
	}
	for s := range im.ownerless {
		sites[s] = true
	}
	if len(sites) == len(im.platform) {
		return nil
	}
	return sites
}

// isPlatforms reports whether an Application deploys to a namespace of the platform.
func (im *importer) isPlatforms(a *app) bool {
	return im.platform[siteOf(a.cluster, text(a.Object, "spec", "destination", "namespace"))]
}

// dispute remembers a namespace that several tenants deploy to, unless the project of exactly one
// of them names it: that tenant keeps it.
func (im *importer) dispute(ns string, envs []*environment, used func(*environment) int) {
	users, named := 0, 0
	for _, e := range envs {
		if used(e) > 0 {
			users++
		}
		if im.names(e, ns) {
			named++
		}
	}
	if users > 1 && named != 1 {
		im.ownerless[siteOf(envs[0].cluster, ns)] = true
	}
}

// names reports whether a project of the environment's tenant names the namespace exactly.
func (im *importer) names(e *environment, ns string) bool {
	return slices.ContainsFunc(im.tenants[e.tenant].projects, func(p *project) bool {
		return slices.ContainsFunc(list(p.Object, "spec", "destinations"), func(d any) bool {
			m, _ := d.(map[string]any)
			return text(m, "namespace") == ns && im.clusters.known(m) == e.cluster
		})
	})
}

// trusted is the platform's tenant if it has a namespace that owns the Argo CD beside other
// tenants, or deploys as one of them: that of the Argo CD or of another tenant's Applications, or
// one of Kubernetes on its cluster.
func (im *importer) trusted() string {
	t := im.tenants[tenantName(im.PlatformTenant)]
	if im.PlatformTenant == "" || t == nil || len(im.served()) < 2 {
		return ""
	}
	others := im.privileged()
	for _, e := range t.envs {
		for _, ns := range keys(e.namespaces) {
			if others(ns, t.name) ||
				e.cluster.key == inCluster && strings.HasPrefix(ns, "kube-") {
				return string(t.name)
			}
		}
	}
	return ""
}

// moved are the Applications of a project that the platform's tenant has.
func (im *importer) moved(project string) (names, namespaces []string) {
	for _, a := range im.apps {
		if a.moved && !a.out() && a.project == project {
			names, namespaces = append(names, a.Name), append(namespaces, a.namespace)
		}
	}
	slices.Sort(names)
	slices.Sort(namespaces)
	return slices.Compact(names), slices.Compact(namespaces)
}

// movedDifference is the line of an Application that goes to the platform's tenant.
func (im *importer) movedDifference(a *app) Difference {
	return Difference{Path: "spec.project", From: cmp.Or(a.project, defaultProject),
		To: string(a.tenant), Reason: fmt.Sprintf("namespace %s is the platform's, because who may "+
			"write there owns the Argo CD or deploys as another tenant, or because several projects "+
			"deploy to it: its Applications go to tenant %s", a.namespace, a.tenant)}
}

// notePlatform adds the note about the platform's tenant.
func (im *importer) notePlatform() {
	var names []string
	for _, s := range keysOf(im.platform) {
		names = append(names, fmt.Sprintf("%s of cluster %s", s.namespace, s.cluster))
	}
	slices.Sort(names)
	if t := im.tenants[tenantName(im.PlatformTenant)]; len(names) > 0 && t != nil &&
		t.draft != nil {
		im.notes = append(im.notes, fmt.Sprintf("tenant %s has the Applications in %s: no other "+
			"tenant may have these namespaces beside others; its owners are %s; choose another "+
			"tenant with --platform-tenant, or other tenants with --tenant-by FILE", t.name,
			strings.Join(names, ", "),
			strings.Join(texts(t.draft.document, "spec", "owners"), ", ")))
	}
	if t := im.trusted(); t != "" {
		im.notes = append(im.notes, fmt.Sprintf("engine %s names tenant %s as the platform's own "+
			"(platformTenant): it may write to the namespace of the Argo CD or of another tenant's "+
			"Applications, or to kube-*, and so owns the Argo CD that serves other tenants too", im.Engine, t))
	}
}

func keysOf(sites map[site]bool) (all []site) {
	for s := range sites {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b site) int {
		return cmp.Or(strings.Compare(a.cluster, b.cluster),
			strings.Compare(a.namespace, b.namespace))
	})
	return all
}
