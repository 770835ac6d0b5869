package catalog

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
)

// warnings is what a person should know of a declaration that is in effect. They hold nothing back.
func (w *work) warnings(e *entry) []fleet.Problem {
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
		problems = append(problems, w.warnQuota(e, d.Tenant.Quota)...)
	case d.Environment != nil && d.Environment.Agent == nil && !w.served(d.Environment.Region,
		fleet.Key{}):
		problems = append(problems, e.warning("spec.region", codeNoEngine, w.regions(),
			"no engine is in region %q, so the environment is not placed", d.Environment.Region))
	case d.Deployment != nil:
		problems = append(problems, w.warnDestinations(e, d.Deployment)...)
	case d.SyncRun != nil:
		problems = append(problems, w.warnSpent(e, d.SyncRun)...)
	}
	return problems
}

func (w *work) warnQuota(e *entry, quota fleet.Quota) []fleet.Problem {
	used := w.st.usedBy(fleet.TenantName(e.key.Name))
	var problems []fleet.Problem
	for _, q := range []struct {
		what        string
		used, quota int
	}{{"environments", used.Environments, quota.Environments}, {"deployments", used.Deployments,
		quota.Deployments},
		{"applications", used.Applications, quota.Applications}} {
		if q.used > q.quota {
			problems = append(problems, e.warning("spec.quota."+q.what, codeOverQuota,
				"raise it, or ask the tenant to remove some",
				"tenant %q has %d %s and a quota of %d; they stay, and nothing is added",
				e.key.Name, q.used, q.what, q.quota))
		}
	}
	return problems
}

func (w *work) regions() string {
	var regions []string
	for _, k := range w.st.index.list(membersOf("", fleet.KindEngine)) {
		if d := w.st.get(k); d != nil && !slices.Contains(regions, d.Engine.Region) {
			regions = append(regions, d.Engine.Region)
		}
	}
	if len(regions) == 0 {
		return "the platform declares engines in fleet/engines/; there is none"
	}
	slices.Sort(regions)
	return "regions with engines: " + some(regions)
}

func (w *work) warnDestinations(e *entry, spec *fleet.DeploymentSpec) []fleet.Problem {
	var problems []fleet.Problem
	targets := w.st.targets(e.effective)
	if sel := spec.Destination.EnvironmentSelector; sel != nil {
		if len(targets) == 0 {
			problems = append(problems, e.warning("spec.destination.environmentSelector",
				codeSelectsNothing,
				"label an environment, or name environments",
				"the selector matches no environment that has namespace %q, so nothing is deployed",
				spec.Destination.Namespace))
		}
		if lacking := w.lacking(e.effective); len(lacking) > 0 {
			problems = append(problems, e.warning("spec.destination.namespace", codeNamespace,
				"add it to their namespaces, or narrow the selector",
				"the selector matches environments without namespace %q, which are left out: %s",
				spec.Destination.Namespace, some(lacking)))
		}
		for i, o := range spec.Overrides {
			if !slices.Contains(targets, fleet.EnvironmentID{Tenant: e.key.Tenant,
				Name: o.Environment}) {
				problems = append(problems,
					e.warning(fmt.Sprintf("spec.overrides[%d].environment", i), codeUnusedOverride,
						"remove the override, or label the environment",
						"environment %q is not selected", o.Environment))
			}
		}
	}
	if create := spec.Sync.CreateNamespace; create != nil && *create {
		if n := w.cannotCreate(e.key.Tenant, targets); n != "" {
			problems = append(problems, e.warning("spec.sync.createNamespace", codeCreateNamespace,
				"make the namespace there beforehand, or have the tenant granted kind Namespace "+
					"and the environment set clusterResources",
				"environment %q allows no Namespace to be created", n))
		}
	}
	return problems
}

// lacking are the environments that a deployment's selector matches and that do not list its
// namespace.
func (w *work) lacking(d *fleet.Declaration) []string {
	return w.matched(d, func(env *fleet.Declaration) bool { return !matches(d, env) })
}

// matched are the effective environments that a deployment's selector matches and that are so.
func (w *work) matched(d *fleet.Declaration, so func(*fleet.Declaration) bool) []string {
	sel := d.Deployment.Destination.EnvironmentSelector
	k, v, ok := firstLabel(sel)
	if !ok {
		return nil
	}
	var names []string
	for key := range w.st.index.each(term{what: labelled, tenant: d.Key.Tenant, a: k, b: v}) {
		if env := w.st.get(key); env != nil && sel.Matches(env.Labels) && so(env) {
			names = append(names, key.Name)
		}
	}
	slices.Sort(names)
	return names
}

// cannotCreate is the first target in which Argo CD may not create a namespace: a Namespace is
// cluster-scoped, so the project must allow the kind and the cluster Secret cluster-scoped
// resources.
func (w *work) cannotCreate(t fleet.TenantName,
	targets []fleet.EnvironmentID) fleet.EnvironmentName {
	tenant := w.st.get(tenantKey(t))
	granted := tenant != nil && slices.Contains(tenant.Tenant.ClusterResources, fleet.GroupKind{
		Kind: "Namespace"})
	for _, id := range targets {
		if env := w.st.get(environmentKey(id)); !granted || env == nil ||
			!env.Environment.ClusterResources {
			return id.Name
		}
	}
	return ""
}

func (w *work) warnSpent(e *entry, spec *fleet.SyncRunSpec) []fleet.Problem {
	d := w.st.get(deploymentKey(fleet.DeploymentID{Tenant: e.key.Tenant, Name: spec.Deployment}))
	if d == nil || len(spec.Environments) == 0 {
		return nil
	}
	targets := w.st.targets(d)
	for i, n := range spec.Environments {
		if !slices.Contains(targets, fleet.EnvironmentID{Tenant: e.key.Tenant, Name: n}) {
			return []fleet.Problem{
				e.warning(fmt.Sprintf("spec.environments[%d]", i), codeSpentSyncRun,
					"remove the file",
					"deployment %q no longer goes to environment %q; the SyncRun has had its effect",
					spec.Deployment, n)}
		}
	}
	return nil
}
