package adoption

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// prove renders the config repo and compares every Application with its original. It refuses those
// that would behave otherwise, and reports whether it refused any.
func (im *importer) prove(w *whole) (refused bool, err error) {
	rendered, problems, err := im.tools.Render(w.files)
	if err != nil {
		return false, err
	}
	objects := make(map[fleet.ApplicationID]map[string]any, len(rendered))
	for _, r := range rendered {
		objects[fleet.ApplicationID{Tenant: r.Tenant, Environment: r.Environment,
			Deployment: r.Deployment}] = r.Object
	}
	unrendered := map[fleet.Key]string{}
	for _, p := range problems {
		if p.Severity == fleet.SeverityError && unrendered[p.Key] == "" {
			unrendered[p.Key] = p.Message
		}
	}
	im.each(func(a *app) {
		o := objects[fleet.ApplicationID{Tenant: a.tenant, Environment: a.env,
			Deployment: fleet.DeploymentName(a.draft.key.Name)}]
		if o == nil {
			if a.alone != nil {
				a.inexact = true
				return
			}
			reason := unrendered[a.draft.key]
			unplaced := unrendered[fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: a.tenant,
				Name: string(a.env)}]
			switch {
			case reason != "":
			case unplaced != "":
				reason = fmt.Sprintf("environment %s: %s; or give all projects of the cluster to "+
					"one tenant (--tenant-by tenant:NAME)", a.env, unplaced)
				a.unplaced = true
			default:
				reason = "no engine renders it"
			}
			a.refuse(reason)
			return
		}
		im.compare(a, o)
	})
	for _, a := range im.apps {
		if a.unplaced {
			im.contests = append(im.contests, contest{a.tenant, a.cluster})
		}
	}
	refused = im.split()
	for _, a := range im.apps {
		if a.refused() && a.result.File == "" && a.draft != nil &&
			slices.Contains(w.deployments[a.draft.key], a) {
			refused = true
		}
	}
	return refused, nil
}

// compare sets the result of an Application from its original and the rendered object.
func (im *importer) compare(a *app, o map[string]any) {
	normal, err := im.tools.Normalize(o, im.chart)
	if err != nil {
		a.refuse("the rendered Application: %s", err)
		return
	}
	was, is := withoutIdentity(a.normal.Spec), withoutIdentity(normal.Spec)
	var diffs []Difference
	moved := ofRegistries(was)
	diff("spec", was, is, &diffs)
	for i := range diffs {
		d := &diffs[i]
		d.hard = hardDifference(*d, was)
		if d.Reason == "" {
			d.Reason = a.draft.reason(counterpart(d.Path))
		}
	}
	for _, k := range keys(a.normal.Unknown) {
		diffs = append(diffs, Difference{Path: k, From: a.normal.Unknown[k],
			Reason: "Argo CD's types lack the field"})
	}
	diffs = append(append(diffs, moved...), a.lost...)
	a.result.Differences = diffs
	if a.alone != nil && slices.ContainsFunc(diffs, func(d Difference) bool { return d.hard }) {
		a.inexact = true
		return
	}
	for _, d := range diffs {
		if d.hard {
			reason := d.Reason
			if !strings.HasPrefix(reason, d.Path+": ") { // it names its own field
				reason = strings.TrimSuffix(d.Path+": "+reason, ": ")
			}
			a.refuse(reason)
			return
		}
	}
	a.result.Status = Exact
	if len(diffs) > 0 {
		a.result.Status = Changed
	}
}

// ofRegistries writes the charts of a spec as declarations name them: see chartOfRegistry.
func ofRegistries(spec map[string]any) (diffs []Difference) {
	join := func(path string, raw any) {
		s, _ := raw.(map[string]any)
		was, chart := text(s, "repoURL"), text(s, "chart")
		if url, name := chartOfRegistry(was, chart); url != was {
			s["repoURL"], s["chart"] = url, name
			diffs = append(diffs, Difference{Path: path + ".repoURL", From: was + ", " + chart,
				To: url + ", " + name, Reason: "the folder of the registry is a part of the URL; " +
					"a credential must be for this URL"})
		}
	}
	join("spec.source", spec["source"])
	for i, s := range list(spec, "sources") {
		join(fmt.Sprintf("spec.sources[%d]", i), s)
	}
	return diffs
}

// withoutIdentity is a spec without the project and the cluster, which the report maps once.
func withoutIdentity(spec map[string]any) map[string]any {
	out := clone(spec).(map[string]any)
	delete(out, "project")
	if d := object(out, "destination"); d != nil {
		delete(d, "server")
		delete(d, "name")
		if len(d) == 0 {
			delete(out, "destination")
		}
	}
	return out
}

// diff collects the fields in which two trees differ. Lists of texts of the sync options are sets;
// other lists are compared by place.
func diff(path string, from, to any, into *[]Difference) {
	switch a := from.(type) {
	case map[string]any:
		b, ok := to.(map[string]any)
		if !ok && to != nil {
			break
		}
		if to == nil && len(a) == 0 {
			break
		}
		all := keys(a)
		for k := range b {
			if _, ok := a[k]; !ok {
				all = append(all, k)
			}
		}
		slices.Sort(all)
		for _, k := range all {
			diff(path+key(k), a[k], b[k], into)
		}
		return
	case []any:
		b, ok := to.([]any)
		if !ok && to != nil {
			break
		}
		if strings.HasSuffix(path, ".syncOptions") {
			diffSet(path, a, b, into)
			return
		}
		for i := range max(len(a), len(b)) {
			var x, y any
			if i < len(a) {
				x = a[i]
			}
			if i < len(b) {
				y = b[i]
			}
			diff(fmt.Sprintf("%s[%d]", path, i), x, y, into)
		}
		return
	case nil:
		if m, ok := to.(map[string]any); ok && len(m) > 0 {
			diff(path, map[string]any{}, to, into)
			return
		}
		if l, ok := to.([]any); ok && len(l) > 0 {
			diff(path, []any{}, to, into)
			return
		}
	}
	if !same(from, to) {
		*into = append(*into, Difference{Path: path, From: from, To: to})
	}
}

func diffSet(path string, a, b []any, into *[]Difference) {
	for _, v := range a {
		if !slices.ContainsFunc(b, func(w any) bool { return same(v, w) }) {
			*into = append(*into, Difference{Path: fmt.Sprintf("%s[%v]", path, v), From: v})
		}
	}
	for _, v := range b {
		if !slices.ContainsFunc(a, func(w any) bool { return same(v, w) }) {
			*into = append(*into, Difference{Path: fmt.Sprintf("%s[%v]", path, v), To: v})
		}
	}
}

func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// conclude adds the results of Applications, ApplicationSets and AppProjects.
func (im *importer) conclude(files []configschema.File) {
	written := map[string]bool{}
	for _, f := range files {
		written[f.Path] = true
	}
	for _, a := range im.apps {
		if a.same != nil {
			continue
		}
		if !a.out() {
			a.result.File = cmp.Or(a.folded, pathOf(a.draft.key))
			if a.result.Status == "" {
				a.refuse("it was not proven")
			}
		} else if len(a.result.Differences) == 0 {
			a.result.Differences = a.lost
		}
		if a.set == nil {
			im.results = append(im.results, a.result)
		}
	}
	for _, a := range im.apps {
		if first := a.same; first != nil {
			a.result.Status, a.result.Reason = first.result.Status, first.result.Reason
			a.result.Differences, a.result.File = first.result.Differences, first.result.File
			a.result.Notes = append(a.result.Notes, "it is the same as in "+first.File)
			im.results = append(im.results, a.result)
		}
	}
	im.concludeSets()
	for _, name := range keys(im.tenants) {
		t := im.tenants[name]
		for _, p := range t.projects {
			if t.draft == nil || !written[pathOf(t.draft.key)] {
				p.result.Status, p.result.Reason = Refused, "its tenant is not written"
			} else {
				im.judge(p, t)
			}
			im.results = append(im.results, p.result)
		}
	}
	im.concludeSecrets()
	im.noteClusters()
	im.noteMerged()
	im.noteShared()
	im.notePlatform()
	im.noteGrants()
	im.noteAccounts()
	slices.Sort(im.notes)
}

// noteAccounts adds the commands that create the service accounts of environments on the Argo CD's
// own cluster. There was none: Argo CD used its own. An account has role admin in each namespace of
// its environment. If the environment has cluster-scoped kinds and it is proven that no other
// tenant has Applications there, the account has the rights of Argo CD: beside other tenants, they
// would give one tenant the objects of all. Argosy may request its tokens.
//
// Role admin does not list every kind, and Argo CD reads nothing of a cluster of which it may not
// list every kind. So the account may also list all kinds of its namespaces.
func (im *importer) noteAccounts() {
	reads := false
	for _, name := range keys(im.tenants) {
		space := ""
		for _, e := range im.tenants[name].envs {
			if e.by != "engine" || e.draft == nil || len(e.namespaces) == 0 {
				continue
			}
			account := fleet.AccountOf(fleet.EnvironmentID{Tenant: name, Name: e.name})
			if space == "" {
				space = account.Namespace
				im.space(name)
				im.run("kubectl -n %s create role argosy-tokens --verb=create "+
					"--resource=serviceaccounts/token", space)
				im.run("kubectl -n %s create rolebinding argosy-tokens --role=argosy-tokens "+
					"--serviceaccount=argosy:argosy", space)
			}
			im.run("kubectl -n %s create serviceaccount %s", space, account.Name)
			binding := fmt.Sprintf("argosy-%s-%s --serviceaccount=%s:%s", name, e.name, space,
				account.Name)
			rights, alone := "narrow its rights as you like", im.alone(name, nil)
			if e.draft.has("spec.clusterResources") && alone && im.provesAbsence() {
				im.run("kubectl create clusterrolebinding %s --clusterrole=cluster-admin", binding)
			} else {
				if !reads {
					im.run("kubectl create clusterrole argosy-reads --verb=list,watch " +
						"'--resource=*.*'")
				}
				reads = true
				im.run("for namespace in %s; do kubectl get namespace $namespace -o name || "+
					"kubectl create namespace $namespace; for role in admin argosy-reads; do "+
					"kubectl -n $namespace create rolebinding argosy-%s-%s-$role "+
					"--clusterrole=$role --serviceaccount=%s:%s; done; done",
					strings.Join(keys(e.namespaces), " "), name, e.name, space, account.Name)
				if e.draft.has("spec.clusterResources") {
					rights = "bind ClusterRoles with which it deploys its cluster-scoped kinds " +
						"and lists all of them"
					if alone {
						rights += "; or import the live Argo CD whole (--kubeconfig, without " +
							"--namespace): if it has Applications of no other tenant, the " +
							"account gets cluster-admin, as Argo CD has"
					}
				}
			}
			im.notes = append(im.notes, fmt.Sprintf("tenant %s deploys to the cluster of engine %s: "+
				"the commands create service account %s there, and let argosy:argosy, the "+
				"service account of the control plane, request its tokens; %s (docs/places.md and "+
				"docs/clusters.md)", name, im.Engine, account, rights))
		}
	}
}

func (im *importer) run(format string, args ...any) {
	im.commands = append(im.commands, fmt.Sprintf(format, args...))
}

// space remembers that commands need the namespace of a tenant's secrets and service accounts.
func (im *importer) space(t fleet.TenantName) {
	if im.spaces == nil {
		im.spaces = map[fleet.TenantName]bool{}
	}
	im.spaces[t] = true
}

// allCommands are the commands in the order in which they work: the namespaces that are missing,
// then what is in them.
func (im *importer) allCommands() []string {
	var all []string
	for _, t := range keys(im.spaces) {
		all = append(all, fmt.Sprintf("kubectl get namespace %[1]s -o name || "+
			"kubectl create namespace %[1]s", fleet.TenantNamespace(t)))
	}
	return append(all, im.commands...)
}

// mapping lists the tenants and environments that replace projects and clusters.
func (im *importer) mapping() (m Mapping) {
	seen := map[TenantMapping]bool{}
	for _, a := range im.apps {
		if !a.out() {
			seen[TenantMapping{a.project, string(a.tenant)}] = true
		}
	}
	for t := range seen {
		m.Tenants = append(m.Tenants, t)
	}
	slices.SortFunc(m.Tenants, func(a, b TenantMapping) int {
		return strings.Compare(a.Project+"\n"+a.Tenant, b.Project+"\n"+b.Tenant)
	})
	for _, name := range keys(im.tenants) {
		t := im.tenants[name]
		for _, e := range t.envs {
			if e.draft != nil && len(e.namespaces) > 0 {
				m.Environments = append(m.Environments, EnvironmentMapping{e.cluster.key,
					string(t.name), string(e.name), e.by})
			}
		}
	}
	slices.SortFunc(m.Environments, func(a, b EnvironmentMapping) int {
		return strings.Compare(a.Tenant+"\n"+a.Environment, b.Tenant+"\n"+b.Environment)
	})
	return m
}

func pathOf(k fleet.Key) string { return configschema.PathOf(k) }

// writeYAML is a tree as text.
func writeYAML(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	if b, err = yaml.JSONToYAML(b); err != nil {
		return ""
	}
	return string(b)
}
