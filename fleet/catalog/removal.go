package catalog

import (
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
)

// checkRemoval is why a declaration may not go: the Fleet never does, and nothing goes that a file
// at the head names, be that file good or quarantined. Whether something in effect still names it
// is verified at the end.
func (w *work) checkRemoval(e *entry) []fleet.Problem {
	if e.effective == nil {
		return nil
	}
	switch e.key.Kind {
	case fleet.KindFleet:
		return []fleet.Problem{
			e.problem("", codeFleetRequired, "restore "+e.path, "the Fleet cannot be removed")}
	case fleet.KindTenant:
		if p := w.inhabited(e, func(other *entry) bool { return !other.removed }); p != nil {
			return []fleet.Problem{*p}
		}
	}
	for _, k := range w.st.index.list(referrersOf(e.key)) {
		if other := w.st.entries.get(k); mentions(other.head, e.key) {
			return []fleet.Problem{referenced(e, other, other.head)}
		}
	}
	return nil
}

// inhabited is why a Tenant may not go: declarations of it that stay.
func (w *work) inhabited(e *entry, stays func(*entry) bool) *fleet.Problem {
	var paths []string
	for _, kind := range tenantKinds {
		for k := range w.st.index.each(membersOf(fleet.TenantName(e.key.Name), kind)) {
			if other := w.st.entries.get(k); stays(other) {
				paths = append(paths, other.path)
			}
		}
	}
	if len(paths) == 0 {
		return nil
	}
	slices.Sort(paths)
	p := e.problem("", codeReferenced,
		"restore it, or remove the tenant's declarations in the same commit",
		"tenant %q still has %d declarations, e.g. %s", e.key.Name, len(paths), paths[0])
	return &p
}

func mentions(d *fleet.Declaration, k fleet.Key) bool {
	return d != nil && slices.Contains(references(d), k)
}

func referenced(e, other *entry, d *fleet.Declaration) fleet.Problem {
	return e.problem("", codeReferenced, "restore it, or mend "+other.path+" in the same commit",
		"%s is still named by %s (%s)", e.key, other.path, mention(d, e.key))
}

// mention is the field in which a declaration names a key.
func mention(d *fleet.Declaration, k fleet.Key) string {
	i := 0
	indexed := func(format string) string { return fmt.Sprintf(format, i) }
	switch i = slices.Index(references(d), k); {
	case d.Engine != nil:
		return indexed("spec.dedicatedTo[%d]")
	case d.Policy != nil:
		return indexed("spec.tenants[%d]")
	case d.SyncRun != nil && i == 0:
		return "spec.deployment"
	case d.SyncRun != nil:
		i--
		return indexed("spec.environments[%d]")
	case i < len(d.Deployment.Destination.Environments):
		return indexed("spec.destination.environments[%d]")
	default:
		i -= len(d.Deployment.Destination.Environments)
		return indexed("spec.overrides[%d].environment")
	}
}

// verify finds what was taken away from under something that did not change as its head promised:
// the removal or narrowing is denied.
func (w *work) verify() map[fleet.Key]fleet.Problem {
	broken := map[fleet.Key]fleet.Problem{}
	for k := range w.taken {
		before := w.st.under.get(k)
		if before == nil {
			continue
		}
		if p := w.missed(k, before, w.st.get(k)); p != nil {
			broken[k] = *p
		}
	}
	maps.Copy(broken, w.reached())
	return broken
}

func inUse(e, other *entry, after *fleet.EnvironmentSpec) fleet.Problem {
	if after.Agent.Autonomous() {
		return e.problem("spec.agent.mode", codeAutonomous, "take it out of "+other.path+
			", and change the mode when its Applications are gone",
			"the environment becomes autonomous while %s deploys to it", other.path)
	}
	ns := other.effective.Deployment.Destination.Namespace
	return e.problem("spec.namespaces", codeNamespaceInUse,
		"keep it, or move the deployment to another namespace in the same commit",
		"namespace %q is dropped while %s deploys to it", ns, other.path)
}

// narrows reports whether an environment drops a namespace, or all of them by becoming autonomous.
func narrows(before, after *fleet.Declaration) bool {
	return closes(before.Environment, after.Environment) ||
		slices.ContainsFunc(before.Environment.Namespaces, func(ns string) bool {
			return !slices.Contains(after.Environment.Namespaces, ns)
		})
}

// closes reports whether an environment becomes autonomous: nothing may be deployed there any more.
func closes(before, after *fleet.EnvironmentSpec) bool {
	return !before.Agent.Autonomous() && after.Agent.Autonomous()
}

// stranded reports whether a deployment names an environment whose new spec drops its namespace, or
// takes no deployment.
func stranded(d, before *fleet.Declaration, after *fleet.EnvironmentSpec) bool {
	if d == nil || d.Deployment == nil || !slices.Contains(d.Deployment.Destination.Environments,
		fleet.EnvironmentName(before.Key.Name)) {
		return false
	}
	ns := d.Deployment.Destination.Namespace
	return closes(before.Environment, after) || slices.Contains(before.Environment.Namespaces,
		ns) && !slices.Contains(after.Namespaces, ns)
}

// missed is why a change that was taken over cannot stand: what is in effect still needs what it
// takes away.
func (w *work) missed(k fleet.Key, before, after *fleet.Declaration) *fleet.Problem {
	e := &entry{key: k, path: before.Path, effective: before}
	if after != nil {
		e.path = after.Path
	}
	if after == nil && before.Tenant != nil {
		if p := w.inhabited(e, func(other *entry) bool {
			return other.effective != nil
		}); p != nil {
			return p
		}
	}
	if after != nil && after.Environment != nil && closes(before.Environment, after.Environment) {
		if keys := w.st.matching(after); len(keys) > 0 {
			p := inUse(e, w.st.entries.get(slices.MinFunc(keys, compareKeys)), after.Environment)
			return &p
		}
	}
	for _, r := range w.st.index.list(referrersOf(k)) {
		other := w.st.entries.get(r)
		switch {
		case after == nil && mentions(other.effective, k):
			p := referenced(e, other, other.effective)
			return &p
		case after != nil && after.Environment != nil && stranded(other.effective, before,
			after.Environment):
			p := inUse(e, other, after.Environment)
			return &p
		}
	}
	return nil
}

// unfounded reports whether a denied removal or narrowing takes nothing away from what is in effect
// now.
func (w *work) unfounded(e *entry) bool {
	switch {
	case w.wouldBring(e):
		return false
	case e.removed:
		return len(w.checkRemoval(e)) == 0 && w.missed(e.key, e.effective, nil) == nil
	}
	return e.effective == nil || w.missed(e.key, e.effective, e.head) == nil
}

// denyTenants adds every removal and narrowing of the tenants in which one is broken.
func (w *work) denyTenants(broken map[fleet.Key]fleet.Problem) {
	tenants := map[fleet.TenantName]bool{}
	for k := range broken {
		tenants[owner(k)] = true
	}
	for k := range w.taken {
		before, after := w.st.under.get(k), w.st.get(k)
		_, known := broken[k]
		if known || before == nil || !tenants[owner(k)] || after != nil &&
			(after.Environment == nil || !narrows(before, after)) {
			continue
		}
		e := &entry{key: k, path: before.Path}
		broken[k] = e.problem("", codeReferenced, "remove less in one commit",
			"too many removals of this commit wait for one another; this one waits as well")
	}
}

func owner(k fleet.Key) fleet.TenantName {
	if k.Kind == fleet.KindTenant {
		return fleet.TenantName(k.Name)
	}
	return k.Tenant
}
