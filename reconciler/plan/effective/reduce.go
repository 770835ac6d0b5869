package effective

import (
	"cmp"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// reduced replaces the deferred changes. A removal is left out, so that the declaration stays in
// effect. A change that removes something is replaced by one that removes nothing and has the rest:
// without the whole change, a label that it changes would keep the very Applications that it waits
// for.
func reduced(
	base *catalog.View, in []catalog.Input, deferred map[fleet.Key]applied.Deferred,
) []catalog.Input {
	if len(deferred) == 0 {
		return in
	}
	in = slices.DeleteFunc(in, func(i catalog.Input) bool {
		_, ok := deferred[i.Key]
		return ok
	})
	for _, k := range slices.SortedFunc(maps.Keys(deferred), applied.CompareDeclarations) {
		i, before := deferred[k].Input, base.Declaration(k)
		step := *before
		switch {
		case i.Removed:
			if _, quarantined := base.Quarantine(k); !quarantined {
				continue
			}
			// The catalog itself waits to remove the declaration: for the catalog, the file is
			// back.
		case k.Kind == fleet.KindManagedEnvironment:
			step.Labels = i.Declaration.Labels
			step.Environment = reducedEnvironment(before.Environment, i.Declaration.Environment)
		case k.Kind == fleet.KindTenant:
			step.Tenant = reducedTenant(before.Tenant, i.Declaration.Tenant)
		}
		in = append(
			in, catalog.Input{Key: k, Path: before.Path, Blob: before.Blob, Declaration: &step})
	}
	return in
}

func reducedEnvironment(before, after *fleet.EnvironmentSpec) *fleet.EnvironmentSpec {
	step := *after
	switch {
	case handsOver(before, after):
		step.Cluster, step.Agent = cmp.Or(before.Cluster, after.Cluster),
			cmp.Or(before.Agent, after.Agent)
	case !sameServer(before, after):
		step.Cluster, step.Agent = before.Cluster, before.Agent
	}
	step.Namespaces = union(before.Namespaces, after.Namespaces)
	step.AllNamespaces = before.AllNamespaces || after.AllNamespaces
	step.ClusterResources = before.ClusterResources || after.ClusterResources
	return &step
}

func reducedTenant(before, after *fleet.TenantSpec) *fleet.TenantSpec {
	step := *after
	step.ClusterResources = union(before.ClusterResources, after.ClusterResources)
	step.Environments = slices.Clone(after.Environments)
	for _, b := range before.Environments {
		i := slices.IndexFunc(step.Environments, func(g fleet.EnvironmentGrant) bool {
			return g.Name == b.Name
		})
		if i < 0 {
			step.Environments = append(step.Environments, b)
			continue
		}
		g := &step.Environments[i]
		g.ClusterResources = union(b.ClusterResources, g.ClusterResources)
		g.AllClusterResources = b.AllClusterResources || g.AllClusterResources
	}
	return &step
}

func sameServer(before, after *fleet.EnvironmentSpec) bool {
	if before.Cluster == nil || after.Cluster == nil {
		return sameConnection(before, after)
	}
	return before.Cluster.Address() == after.Cluster.Address()
}

func union[T comparable](a, b []T) []T {
	out := slices.Clone(b)
	for _, x := range a {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// removes reports whether a change removes something that an existing Application may need.
func removes(c catalog.Change) bool {
	switch {
	case c.Before == nil:
		return false
	case c.After == nil:
		return true
	case c.Key.Kind == fleet.KindManagedEnvironment:
		b, a := c.Before.Environment, c.After.Environment
		return !sameServer(b, a) || missing(b.Namespaces, a.Namespaces) ||
			b.AllNamespaces && !a.AllNamespaces || b.ClusterResources && !a.ClusterResources
	case c.Key.Kind == fleet.KindTenant:
		b, a := c.Before.Tenant, c.After.Tenant
		return missing(b.ClusterResources, a.ClusterResources) || revokes(b, a)
	}
	return false
}

// revokes reports whether a single environment of the tenant loses cluster-scoped kinds.
func revokes(before, after *fleet.TenantSpec) bool {
	return slices.ContainsFunc(before.Environments, func(b fleet.EnvironmentGrant) bool {
		a := after.GrantTo(b.Name)
		return b.AllClusterResources && !a.AllClusterResources ||
			missing(b.ClusterResources, a.ClusterResources)
	})
}

func missing[T comparable](want, in []T) bool {
	return slices.ContainsFunc(want, func(x T) bool { return !slices.Contains(in, x) })
}
