package catalog

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
)

// warnings returns the warnings about an effective declaration. They never block it.
func (ch *checker) warnings(e *entry) []fleet.Problem {
	if e.quarantined() || e.effective == nil {
		return nil
	}
	var problems []fleet.Problem
	for _, p := range e.notes {
		if p.Severity == fleet.SeverityWarning {
			problems = append(problems, p)
		}
	}
	problems = append(problems, e.advice...)
	switch d := e.effective; {
	case d.Tenant != nil:
		problems = append(problems, ch.warnQuota(e, d.Tenant.Quota)...)
	case d.Environment != nil && d.Environment.Agent == nil &&
		!ch.served(d.Environment.Region, fleet.Key{}):
		problems = append(
			problems,
			e.warning("spec.region", codeNoEngine, ch.regions(),
				"no engine is in region %q, so the environment is not placed",
				d.Environment.Region))
	case d.Deployment != nil:
		problems = append(problems, ch.warnDestinations(e, d.Deployment)...)
		problems = append(problems, warnRanges(e, d.Deployment)...)
		problems = append(problems, ch.warnWaves(e, d.Deployment)...)
		problems = append(problems, ch.warnSubscriptions(e, d.Deployment)...)
	case d.Engine != nil && d.Engine.Ring != "" && !d.Engine.ArgoCD.Managed:
		problems = append(problems, ch.warnRing(e, d.Engine)...)
	case d.SyncRun != nil:
		problems = append(problems, ch.warnSpent(e, d.SyncRun)...)
	}
	return problems
}

// warnRing reports a ring that has no effect on an engine whose Argo CD is not managed.
func (ch *checker) warnRing(e *entry, spec *fleet.EngineSpec) []fleet.Problem {
	names := ch.rings()
	switch {
	case spec.Connection.Agent == nil:
		return []fleet.Problem{e.warning("spec.ring", codeRingUnused,
			"remove it, or add managed: true to argocd",
			"the ring has no effect: Argosy does not install the engine's Argo CD")}
	case !slices.Contains(names, spec.Ring):
		return []fleet.Problem{e.warning("spec.ring", codeRingUnused,
			didYouMean(spec.Ring, names, "declare it in spec.rings of fleet/fleet.yaml"),
			"the ring has no effect on the engine's agent: the Fleet has no ring %q", spec.Ring)}
	}
	return nil
}

// warnRanges reports the revisions of which Argo CD takes the newest: neither can the plan show
// them, nor do waves order them.
func warnRanges(e *entry, d *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	warn := func(field, revision string) {
		switch {
		case fleet.IsVersionRange(revision):
			problems = append(problems, e.warning(field+".targetRevision", codeFloats,
				"write one exact version to review each change",
				"%q floats: Argo CD deploys each new version in the range without a commit",
				revision))
		case d.Rollout != nil && revision != "" && fleet.LooksLikeABranch(revision):
			problems = append(problems, e.warning(field+".targetRevision", codePassesWaves,
				"write a tag or a commit, which the waves of spec.rollout order",
				"%q is the name of a branch: Argo CD deploys each new commit of it to all "+
					"environments at once", revision))
		}
	}
	for i, s := range d.AllSources() {
		if len(d.Sources) == 0 {
			warn("spec.source", s.TargetRevision)
			continue
		}
		warn(fmt.Sprintf("spec.sources[%d]", i), s.TargetRevision)
	}
	for i, o := range d.Overrides {
		warn(fmt.Sprintf("spec.overrides[%d].source", i), o.Source.TargetRevision)
	}
	return problems
}

func (ch *checker) warnQuota(e *entry, quota fleet.Quota) []fleet.Problem {
	used := ch.st.usedBy(fleet.TenantName(e.key.Name))
	var problems []fleet.Problem
	for _, q := range []struct {
		what        string
		used, quota int
	}{{"environments", used.Environments, quota.Environments},
		{"deployments", used.Deployments, quota.Deployments},
		{"applications", used.Applications, quota.Applications}} {
		if q.used > q.quota {
			problems = append(
				problems,
				e.warning("spec.quota."+q.what, codeOverQuota,
					"raise it, or ask the tenant to remove some",
					"tenant %q has %d %s and a quota of %d; they stay, and nothing is added",
					e.key.Name, q.used, q.what, q.quota))
		}
	}
	return problems
}

func (ch *checker) warnDestinations(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	targets := ch.st.targets(e.effective)
	if sel := spec.Destination.EnvironmentSelector; sel != nil {
		if len(targets) == 0 {
			problems = append(
				problems, e.warning("spec.destination.environmentSelector", codeSelectsNothing,
					"label an environment, or name environments",
					"the selector matches no environment that has namespace %q, so nothing is "+
						"deployed", spec.Destination.Namespace))
		}
		problems = append(problems, ch.warnLacking(e)...)
	}
	for i, o := range spec.Overrides {
		field, what := "environment", fmt.Sprintf("environment %q is not selected", o.Environment)
		if o.Environment == "" {
			field, what = "selector", "the selector matches no environment of the deployment"
		}
		if !slices.ContainsFunc(targets, func(id fleet.EnvironmentID) bool {
			return o.AppliesTo(ch.st.get(environmentKey(id)))
		}) {
			problems = append(
				problems, e.warning(fmt.Sprintf("spec.overrides[%d].%s", i, field),
					codeUnusedOverride, "remove the override, or label the environment", "%s",
					what))
		}
	}
	if create := spec.Sync.CreateNamespace; create != nil && *create {
		if n := ch.cannotCreate(e.key.Tenant, targets); n != "" {
			problems = append(problems, e.warning("spec.sync.createNamespace", codeCreateNamespace,
				"create the namespace beforehand, or ask the platform to grant kind Namespace "+
					"in "+ch.st.get(tenantKey(e.key.Tenant)).Path+" and set clusterResources in "+
					"the environment",
				"environment %q allows no Namespace to be created", n))
		}
	}
	return problems
}

// warnLacking names the environments that a deployment's selector matches and that do not list its
// namespace there.
func (ch *checker) warnLacking(e *entry) []fleet.Problem {
	d := e.effective
	left := map[[2]string][]string{} // by namespace and the field that holds it
	names := ch.matched(d, func(env *fleet.Declaration) bool { return !matches(d, env) })
	for _, n := range names {
		ns, field := d.NamespaceIn(ch.st.get(environmentKey(fleet.EnvironmentID{
			Tenant: d.Key.Tenant, Name: fleet.EnvironmentName(n)})))
		left[[2]string{ns, field}] = append(left[[2]string{ns, field}], n)
	}
	var problems []fleet.Problem
	for at, names := range left {
		problems = append(problems, e.warning(at[1], codeNamespace,
			"add it to their namespaces, or narrow the selector",
			"the selector matches environments without namespace %q, which are left out: %s",
			at[0], some(names)))
	}
	return sortProblems(problems)
}

// matched are the effective environments that a deployment's selector matches and that are so.
func (ch *checker) matched(d *fleet.Declaration, so func(*fleet.Declaration) bool) []string {
	sel := d.Deployment.Destination.EnvironmentSelector
	var names []string
	for _, a := range anchors(d.Key.Tenant, sel) {
		for key := range ch.st.index.each(a) {
			if env := ch.st.get(key); env != nil && sel.Matches(env.Labels) && so(env) {
				names = append(names, key.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names) // its labels in effect and at the head may be two anchors
}

// cannotCreate is the first target in which Argo CD may not create a namespace: the AppProject must
// allow the kind. It does if no environment on the engine has cluster-scoped resources, and if each
// that has may deploy the kind. An agent's own cluster has no namespaced cluster Secret, so the
// kind is granted there explicitly.
func (ch *checker) cannotCreate(t fleet.TenantName,
	targets []fleet.EnvironmentID) fleet.EnvironmentName {
	tenant := ch.st.get(tenantKey(t))
	may := func(env *fleet.Declaration) bool {
		scope := tenant.Tenant.ScopeOf(fleet.EnvironmentName(env.Key.Name), env.Environment)
		return scope.All || slices.Contains(scope.Kinds, fleet.KindNamespace)
	}
	regions := map[string]bool{}
	for _, id := range targets {
		env := ch.st.get(environmentKey(id))
		if tenant == nil || env == nil {
			return id.Name
		}
		able, known := regions[env.Environment.Region]
		switch {
		case env.Environment.Agent != nil || env.Environment.ClusterWide():
			able = may(env)
		case !known:
			able = !slices.ContainsFunc(ch.st.index.list(clusterWideIn(env)),
				func(k fleet.Key) bool {
					other := ch.st.get(k)
					return other != nil && other.Environment.ClusterWide() && !may(other)
				})
			regions[env.Environment.Region] = able
		}
		if !able {
			return id.Name
		}
	}
	return ""
}
