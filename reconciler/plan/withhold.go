package plan

import (
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// stepped replaces what may not act yet. A removal is left out, so that the declaration stays in
// force. A change that takes something away is replaced by one that takes nothing away and has the
// rest: were the whole change left out, a label that it changes would keep the very Applications
// that it waits for.
func stepped(base catalog.View, in []catalog.Input,
	withheld map[fleet.Key]deferred) []catalog.Input {
	if len(withheld) == 0 {
		return in
	}
	in = slices.DeleteFunc(in, func(i catalog.Input) bool { _, ok := withheld[i.Key]; return ok })
	for _, k := range slices.SortedFunc(maps.Keys(withheld), compareDeclarations) {
		i, before := withheld[k].Input, base.Declaration(k)
		step := *before
		switch {
		case i.Removed:
			if _, quarantined := base.Quarantine(k); !quarantined {
				continue
			}
			// The catalog itself waits to let it go: as far as it is concerned, the file is back.
		case k.Kind == fleet.KindManagedEnvironment:
			step.Labels, step.Environment = i.Declaration.Labels,
				stepEnvironment(before.Environment, i.Declaration.Environment)
		case k.Kind == fleet.KindTenant:
			step.Tenant = stepTenant(before.Tenant, i.Declaration.Tenant)
		}
		in = append(in, catalog.Input{Key: k, Path: before.Path, Blob: before.Blob,
			Declaration: &step})
	}
	return in
}

func stepEnvironment(before, after *fleet.EnvironmentSpec) *fleet.EnvironmentSpec {
	step := *after
	if !sameServer(before, after) {
		step.Cluster, step.Agent = before.Cluster, before.Agent
	}
	step.Namespaces = union(before.Namespaces, after.Namespaces)
	step.ClusterResources = before.ClusterResources || after.ClusterResources
	return &step
}

func sameServer(before, after *fleet.EnvironmentSpec) bool {
	if before.Cluster == nil || after.Cluster == nil {
		return sameConnection(before, after)
	}
	return before.Cluster.Server == after.Cluster.Server
}

func stepTenant(before, after *fleet.TenantSpec) *fleet.TenantSpec {
	step := *after
	step.ClusterResources = union(before.ClusterResources, after.ClusterResources)
	return &step
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

// takesAway reports whether a change takes from an environment or tenant what an Application that
// is still there may need.
func takesAway(c catalog.Change) bool {
	switch {
	case c.Before == nil:
		return false
	case c.After == nil:
		return true
	case c.Key.Kind == fleet.KindManagedEnvironment:
		b, a := c.Before.Environment, c.After.Environment
		return !sameServer(b, a) || missing(b.Namespaces, a.Namespaces) || b.ClusterResources &&
			!a.ClusterResources
	case c.Key.Kind == fleet.KindTenant:
		return missing(c.Before.Tenant.ClusterResources, c.After.Tenant.ClusterResources)
	}
	return false
}

func missing[T comparable](want, in []T) bool {
	return slices.ContainsFunc(want, func(x T) bool { return !slices.Contains(in, x) })
}

// withhold finds the changes of this draft that may not act yet, and reports whether there are any
// beside those already withheld. Then the draft is to be made again without them. It costs the
// changes that take something away, and for those what is leaving or held.
func (d *draft) withhold(withheld map[fleet.Key]deferred) bool {
	n := len(withheld)
	var lasting map[fleet.TenantName][]remnant
	for _, c := range d.changes {
		if !takesAway(c) {
			continue
		}
		if lasting == nil {
			lasting = d.remnants()
		}
		if d.needed(c, lasting[tenantOf(c.Key)]) {
			d.keepBack(c, withheld)
		}
	}
	return len(withheld) > n
}

func (d *draft) keepBack(c catalog.Change, withheld map[fleet.Key]deferred) {
	withheld[c.Key] = deferred{Input: d.head(c.Key), Going: c.After == nil &&
		c.Key.Kind == fleet.KindManagedEnvironment}
	if c.After != nil {
		return
	}
	// The encrypted credential goes with what it opens, not before.
	var sealed fleet.Key
	switch c.Key.Kind {
	case fleet.KindManagedEnvironment:
		cluster := c.Before.Environment.Cluster
		if cluster == nil {
			return // an agent's credential is its own
		}
		sealed = catalog.SealedKey(c.Key.Tenant, "environments", cluster.CredentialsRef.Name)
	case fleet.KindRepositoryCredential:
		sealed = catalog.SealedKey(c.Key.Tenant, "credentials",
			c.Before.Credential.CredentialsRef.Name)
	}
	for _, other := range d.changes {
		if _, done := withheld[other.Key]; !done && other.Key == sealed && other.After == nil {
			d.keepBack(other, withheld)
		}
	}
}

// head is what the plan's head says of a key.
func (d *draft) head(k fleet.Key) catalog.Input {
	in, found := catalog.Input{}, false
	for _, i := range d.r.Files {
		// a file that moved is removed in one place and stands in another
		if i.Key == k && (!found || !i.Removed) {
			in, found = i, true
		}
	}
	if !found {
		in = d.w.headOf(k)
	}
	return in
}

// headOf is what the base's head says of a key that is not in force as the head says it: it was
// deferred or quarantined before.
func (w *AppliedState) headOf(k fleet.Key) catalog.Input {
	if x, ok := w.deferred[k]; ok {
		return x.Input
	}
	q, ok := w.catalog.Quarantine(k)
	if !ok {
		return catalog.Input{}
	}
	return catalog.Input{Key: k, Path: q.Path, Blob: q.Blob, Declaration: q.Declaration,
		Removed: q.Removed}
}

func tenantOf(k fleet.Key) fleet.TenantName {
	if k.Kind == fleet.KindTenant {
		return fleet.TenantName(k.Name)
	}
	return k.Tenant
}

// remnant is an Application that no declaration wants and that is still there.
type remnant struct {
	id  fleet.ApplicationID
	url string
}

func (d *draft) remnants() map[fleet.TenantName][]remnant {
	out := map[fleet.TenantName][]remnant{}
	d.leaving.each(func(_ fleet.ObjectKey, l leaving) {
		out[l.Application.Tenant] = append(out[l.Application.Tenant],
			remnant{l.Application, l.RepoURL})
	})
	d.held.each(func(id fleet.ApplicationID, h held) {
		out[id.Tenant] = append(out[id.Tenant], remnant{id, h.Deployment.Deployment.Source.RepoURL})
	})
	return out
}

func (d *draft) needed(c catalog.Change, remnants []remnant) bool {
	return slices.ContainsFunc(remnants, func(r remnant) bool {
		switch c.Key.Kind {
		case fleet.KindManagedEnvironment:
			return r.id.In() == environmentID(c.Key)
		case fleet.KindTenant:
			return true
		case fleet.KindRepositoryCredential:
			return repoKey(r.url) == repoKey(c.Before.Credential.RepoURL)
		}
		return false
	})
}
