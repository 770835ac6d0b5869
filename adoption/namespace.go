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

// judgeNamespaces refuses Applications to adopt in namespaces that no declaration can give to their
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
		case len(all) > 1:
			a.refuse("namespace %s has Applications of tenants %s, and every account that may "+
				"write Applications there may deploy as its tenant: it is given to one; "+
				"choose the tenants with --tenant-by, or %s", a.Namespace,
				strings.Join(all, " and "), otherwise)
		}
	}
}

// privileged returns whether a writer of a namespace acts as another than the tenant: the namespace
// is Argo CD's own, or its Applications are another tenant's.
func (im *importer) privileged() func(ns string, t fleet.TenantName) bool {
	given := im.given(anyApp)
	return func(ns string, t fleet.TenantName) bool {
		of, known := given[ns]
		return ns == im.ArgoNamespace || known && of != t
	}
}

// given are the namespaces from which deployments adopt, with their tenants: those of the
// Applications that count.
func (im *importer) given(counts func(*app) bool) map[string]fleet.TenantName {
	given := map[string]fleet.TenantName{}
	for _, a := range im.apps {
		if !a.out() && im.further(a) && counts(a) {
			given[a.Namespace] = a.tenant
		}
	}
	return given
}

func anyApp(*app) bool { return true }

// byEngine reports whether an engine serves the Application's environment, and no agent.
func (im *importer) byEngine(a *app) bool {
	return !slices.ContainsFunc(im.tenants[a.tenant].envs, func(e *environment) bool {
		return e.cluster == a.cluster && e.by == byAgent
	})
}
