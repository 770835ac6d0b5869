package adoption

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// objectIn returns an Application as a declaration adopts it: see fleet.Adoption.
func objectIn(namespace, name, argocd string) string {
	if namespace == argocd {
		return name
	}
	return fleet.JoinObject(namespace, name)
}

// further reports whether a deployment adopts an Application in another namespace than Argo CD's.
func (im *importer) further(a *app) bool {
	return im.Adopt && strings.Contains(objectIn(a.Namespace, a.Name, im.ArgoNamespace), "/")
}

// judgeNamespaces refuses Applications to adopt in namespaces that an Engine cannot give to their
// tenant alone.
func (im *importer) judgeNamespaces() {
	tenants := map[string][]string{}
	for _, a := range im.apps {
		if !a.out() && im.further(a) {
			tenants[a.Namespace] = append(tenants[a.Namespace], string(a.tenant))
		}
	}
	for _, a := range im.apps {
		if a.out() || !im.further(a) {
			continue
		}
		all := slices.Compact(slices.Sorted(slices.Values(tenants[a.Namespace])))
		err := fleet.ValidateNamespace(a.Namespace)
		const otherwise = "leave it as it is, or import it without --adopt, which gives it a new " +
			"Application (docs/adopting.md)"
		switch {
		case err != nil:
			a.refuse("Argosy adopts from no such namespace: %v; %s", err, otherwise)
		case a.cluster.server == "" && a.cluster.key != inCluster:
			a.refuse("it is in namespace %s, and an agent serves the Applications of Argo CD's "+
				"own namespace, %s, alone; name its API server (--cluster), or %s", a.Namespace,
				im.ArgoNamespace, otherwise)
		case len(all) > 1:
			a.refuse("namespace %s has Applications of tenants %s, and every account that may "+
				"write Applications there may deploy as its tenant: an Engine gives it to one; "+
				"choose the tenants with --tenant-by, or %s", a.Namespace,
				strings.Join(all, " and "), otherwise)
		}
	}
}

// given are the namespaces from which deployments adopt, with their tenants.
func (im *importer) given() map[string]fleet.TenantName {
	given := map[string]fleet.TenantName{}
	for _, a := range im.apps {
		if !a.out() && im.further(a) {
			given[a.Namespace] = a.tenant
		}
	}
	return given
}
