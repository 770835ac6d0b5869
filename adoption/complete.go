package adoption

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// whole is the config repo of one round: its files, and what each came from.
type whole struct {
	files       []configschema.File
	deployments map[fleet.Key][]*app
	envs        map[fleet.Key]*environment
	tenants     map[fleet.Key]*tenant
	credentials map[fleet.Key]*credential
	patterns    map[fleet.Key]*pattern
}

// maxRounds bounds the rounds of converge. Each refuses an Application or a namespace, and most
// repos need two or three.
const maxRounds = 100

// complete assembles the config repo, proves it, and returns its files. An Application whose
// rendered object would behave otherwise is refused, and the repo is assembled again without it.
func (im *importer) complete() ([]configschema.File, error) {
	im.join()
	for range maxRounds {
		w, err := im.converge()
		if err != nil {
			return nil, err
		}
		refused, err := im.prove(w)
		if err != nil {
			return nil, err
		}
		if !refused {
			return w.files, nil
		}
	}
	return nil, fmt.Errorf("the import does not converge")
}

// converge assembles the config repo until it validates. Each round refuses what a problem names.
func (im *importer) converge() (*whole, error) {
	for range maxRounds {
		w, again, err := im.assemble()
		if err != nil {
			return nil, err
		}
		if again {
			continue
		}
		var problems []fleet.Problem
		for _, p := range configschema.Check(w.files) {
			// the repository of a set may be not at hand
			if p.Severity == fleet.SeverityError && p.Code != configschema.CodeNotExpanded {
				problems = append(problems, p)
			}
		}
		if len(problems) == 0 {
			return w, nil
		}
		if !im.repair(w, problems) {
			return nil, fmt.Errorf("the config repo does not validate: %s", problems[0])
		}
	}
	return nil, fmt.Errorf("the import does not converge")
}

// join makes one deployment of Applications that are equal but for their environment. Releases of
// Helm keep their names, so Applications whose releases are named for them stay apart.
func (im *importer) join() {
	groups := map[string][]*app{}
	var order []string
	for _, a := range im.apps {
		if a.out() {
			continue
		}
		document := clone(a.draft.document).(map[string]any)
		put(document, steps("metadata.name"), "")
		put(document, steps("spec.destination.environments"), "")
		id := string(a.tenant) + "\n" + writeYAML(document)
		if len(groups[id]) == 0 {
			order = append(order, id)
		}
		groups[id] = append(groups[id], a)
	}
	taken := map[fleet.Key]bool{}
	for _, a := range im.apps {
		if a.draft != nil {
			taken[a.draft.key] = true
		}
	}
	for _, id := range order {
		apps := groups[id]
		if len(apps) < 2 || implicitRelease(apps[0].draft.document) {
			continue
		}
		var environments []string
		for _, a := range apps {
			environments = append(environments, string(a.env))
		}
		slices.Sort(environments)
		if len(slices.Compact(slices.Clone(environments))) < len(apps) {
			continue // two Applications in one environment
		}
		d := apps[0].draft
		if name := commonName(apps); name != "" {
			key := d.key
			key.Name = name
			if !taken[key] {
				taken[key] = true
				d.key = key
				d.put("metadata.name", name)
			}
		}
		d.put("spec.destination.environments", anys(environments))
		for _, a := range apps {
			a.draft = d
		}
	}
	im.sharing = map[*draft][]*app{}
	for _, a := range im.apps {
		if !a.out() {
			im.sharing[a.draft] = append(im.sharing[a.draft], a)
		}
	}
	im.joinLayers(taken)
	im.joinByOverrides(taken)
}

// implicitRelease reports whether a source of a deployment names its Helm release for the
// deployment.
func implicitRelease(document map[string]any) bool {
	return slices.ContainsFunc(sourcesOf(document), func(s map[string]any) bool {
		return (text(s, "chart") != "" || s["helm"] != nil) && text(s, "helm", "releaseName") == ""
	})
}

// commonName is what the names of Applications have in common, as one or more whole words, or "".
func commonName(apps []*app) string {
	words := strings.Split(apps[0].draft.key.Name, "-")
	for _, a := range apps[1:] {
		others := strings.Split(a.draft.key.Name, "-")
		n := 0
		for n < len(words) && n < len(others) && words[n] == others[n] {
			n++
		}
		words = words[:n]
	}
	name := strings.Join(words, "-")
	if fleet.ValidateName(name) != nil {
		return ""
	}
	return name
}

// assemble writes every declaration of the accepted Applications. again is set if that refused one.
func (im *importer) assemble() (w *whole, again bool, err error) {
	w = &whole{deployments: map[fleet.Key][]*app{}, envs: map[fleet.Key]*environment{},
		tenants: map[fleet.Key]*tenant{}, credentials: map[fleet.Key]*credential{},
		patterns: map[fleet.Key]*pattern{}}
	joined := im.joined()
	im.collectNamespaces()
	servers := map[string]int{}
	for _, t := range im.tenants {
		for _, e := range t.envs {
			if len(e.namespaces) > 0 {
				servers[e.cluster.key]++
			}
		}
	}
	var drafts []*draft
	others := im.privileged()
	applications, environments := 0, 0
	for _, name := range keys(im.tenants) {
		t := im.tenants[name]
		shared := slices.ContainsFunc(t.envs, func(e *environment) bool {
			return len(e.namespaces) > 0 && servers[e.cluster.key] > 1
		})
		patterns := im.patternsOf(t.name)
		g := im.grantsOf(t, joined[t.name], patterns)
		for _, e := range t.envs {
			e.whole = !e.neverWhole && servers[e.cluster.key] == 1 && e.cluster.server != "" &&
				len(e.namespaces) > 0 && g.kinds[fleet.KindNamespace] && im.openTo(t, e.cluster) &&
				im.provesAbsence() && im.alone(t.name, e.cluster)
		}
		for _, c := range im.credentialsOf(t, g) {
			drafts = append(drafts, c.draft)
			w.credentials[c.draft.key] = c
			g.repositories[c.url()] = true
		}
		t.propose(g, shared, others)
		if t.draft.refusal != "" {
			again = im.refuseTenant(t, t.draft.refusal) || again
			continue
		}
		drafts = append(drafts, t.draft)
		w.tenants[t.draft.key] = t
		for _, e := range t.envs {
			if len(e.namespaces) == 0 {
				e.draft = nil
				continue
			}
			e.propose(im, len(g.kinds) > 0 && t.draft.has("spec.clusterResources"))
			if e.draft.refusal != "" {
				again = im.refuseEnvironment(e, e.draft.refusal) || again
				continue
			}
			for _, r := range e.draft.removed {
				again = im.removedNamespace(e, r) || again
			}
			environments++
			drafts = append(drafts, e.draft)
			w.envs[e.draft.key] = e
		}
		for d, apps := range joined[t.name] {
			drafts = append(drafts, d)
			w.deployments[d.key] = apps
			applications += len(apps)
		}
		for _, p := range patterns {
			drafts = append(drafts, p.draft)
			w.patterns[p.draft.key] = p
		}
	}
	if again {
		return nil, true, nil
	}
	im.selectEnvironments(w)
	drafts = append(drafts, im.engine(applications, environments), im.fleet(w))
	for _, d := range drafts {
		if d.refusal != "" {
			return nil, false, fmt.Errorf("%s: %s", d.key, d.refusal)
		}
		f, err := d.file()
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", d.key, err)
		}
		w.files = append(w.files, f)
	}
	slices.SortFunc(w.files, func(a, b configschema.File) int {
		return strings.Compare(a.Path, b.Path)
	})
	return w, false, nil
}

// patternsOf are the deployments of a tenant for clusters that are not at hand.
func (im *importer) patternsOf(t fleet.TenantName) (found []*pattern) {
	for _, s := range im.sets {
		for _, p := range s.patterns {
			if p.tenant == t && p.refusal == "" && s.result.Status != Refused {
				found = append(found, p)
			}
		}
	}
	return found
}

// joined are the deployments of each tenant with their Applications.
func (im *importer) joined() map[fleet.TenantName]map[*draft][]*app {
	of := map[fleet.TenantName]map[*draft][]*app{}
	for _, a := range im.apps {
		if a.out() {
			continue
		}
		if of[a.tenant] == nil {
			of[a.tenant] = map[*draft][]*app{}
		}
		of[a.tenant][a.draft] = append(of[a.tenant][a.draft], a)
	}
	for _, deployments := range of {
		for d, apps := range deployments {
			var environments []string
			for _, a := range apps {
				environments = append(environments, string(a.env))
			}
			slices.Sort(environments)
			if overrides := list(d.document, "spec", "overrides"); len(overrides) > 0 {
				d.put(
					"spec.overrides", slices.DeleteFunc(slices.Clone(overrides), func(o any) bool {
						env := text(o.(map[string]any), "environment")
						return env != "" && !slices.Contains(environments, env)
					}))
				if len(list(d.document, "spec", "overrides")) == 0 {
					remove(d.document, steps("spec.overrides"))
				}
			}
			d.put("spec.destination", map[string]any{
				"environments": anys(slices.Compact(environments)),
				"namespace":    text(d.document, "spec", "destination", "namespace")})
			if im.Adopt {
				im.takeOver(d, apps)
			}
		}
	}
	return of
}

// takeOver makes a deployment adopt its Applications, and give them back when it is removed.
func (im *importer) takeOver(d *draft, apps []*app) {
	entries := map[string]any{}
	for _, a := range apps {
		entries[string(a.env)] = map[string]any{"environment": string(a.env),
			"application": objectIn(a.Namespace, a.Name, im.ArgoNamespace)}
	}
	var adopt []any
	for _, env := range keys(entries) {
		adopt = append(adopt, entries[env])
	}
	d.put("spec.adopt", adopt)
	d.put("spec.deletionPolicy", string(fleet.DeletionRelease))
}

// selectEnvironments replaces the names of environments by the selector of a clusters generator, or
// by the selector that an earlier import wrote, where both choose the same environments of the
// tenant: then a new environment with these labels gets the deployment, as a new cluster did.
func (im *importer) selectEnvironments(w *whole) {
	present := im.selecting()
	for _, apps := range w.deployments {
		d := apps[0].draft
		selector := selectorOf(apps)
		if selector == nil {
			selector = earlierSelector(d, present[configschema.PathOf(d.key)])
		}
		if selector == nil || !im.selectsAlike(selector, apps) {
			continue
		}
		destination := map[string]any{"environmentSelector": selector,
			"namespace": text(d.document, "spec", "destination", "namespace")}
		trial := &draft{key: d.key, document: clone(d.document).(map[string]any)}
		put(trial.document, steps("spec.destination"), destination)
		if trial.fit(); trial.refusal == "" && len(trial.removed) == 0 {
			d.put("spec.destination", destination)
		}
	}
}

// selectorOf returns the selector of the ApplicationSet of all the Applications, or nil.
func selectorOf(apps []*app) map[string]any {
	s := apps[0].set
	if s == nil || slices.ContainsFunc(apps, func(a *app) bool { return a.set != s }) {
		return nil
	}
	return s.environmentSelector()
}

// selecting returns the files of the config repo that may have a selector, by path.
func (im *importer) selecting() map[string][]byte {
	files := map[string][]byte{}
	for _, f := range im.Present {
		if bytes.Contains(f.Bytes, []byte("environmentSelector")) {
			files[f.Path] = f.Bytes
		}
	}
	return files
}

// earlierSelector returns the selector of the file that an earlier import wrote for a deployment,
// while the Applications still had their ApplicationSet; nil without such a file.
func earlierSelector(d *draft, file []byte) map[string]any {
	if file == nil {
		return nil
	}
	later, err := configschema.WriteDocument(d.document)
	if err != nil || !SameButSelector(file, later) {
		return nil
	}
	tree, _ := parse(string(file)) // SameButSelector has parsed it
	return object(tree, "spec", "destination", "environmentSelector")
}

// selectsAlike reports whether a selector chooses the environments of the Applications, and no
// other one of their tenant.
func (im *importer) selectsAlike(selector map[string]any, apps []*app) bool {
	for _, e := range im.tenants[apps[0].tenant].envs {
		if e.draft == nil || e.draft.refusal != "" {
			continue
		}
		labels := map[string]string{}
		for k, v := range object(e.draft.document, "metadata", "labels") {
			labels[k], _ = v.(string)
		}
		if selects(selector, labels) != slices.ContainsFunc(apps, func(a *app) bool {
			return a.env == e.name
		}) {
			return false
		}
	}
	return true
}

// collectNamespaces gives every environment the namespaces of its deployments, and those that its
// project names exactly.
func (im *importer) collectNamespaces() {
	for _, t := range im.tenants {
		for _, e := range t.envs {
			clear(e.namespaces)
		}
	}
	for _, a := range im.apps {
		if a.out() {
			continue
		}
		e := im.tenants[a.tenant].environment(a.cluster)
		e.namespaces[a.namespace] = true
	}
	others := im.privileged()
	for _, s := range im.sets {
		for _, p := range s.patterns {
			switch {
			case p.env == nil || p.namespace == "" || p.refusal != "":
			case p.env.banned[p.namespace]:
				p.refusal = "spec.template.spec.destination.namespace: the environment may not " +
					"have namespace " + p.namespace
			case s.result.Status != Refused:
				p.env.namespaces[p.namespace] = true
			}
		}
	}
	for _, t := range im.tenants {
		for _, p := range t.projects {
			for _, d := range list(p.Object, "spec", "destinations") {
				m, _ := d.(map[string]any)
				ns, c := text(m, "namespace"), im.clusters.known(m)
				for _, e := range t.envs {
					if e.cluster == c && len(e.namespaces) > 0 && !e.banned[ns] &&
						fleet.ValidateNamespace(ns) == nil && !others(ns, t.name) {
						e.namespaces[ns] = true
					}
				}
			}
		}
	}
}

// engine is the Argo CD that was read.
func (im *importer) engine(applications, environments int) *draft {
	d := newDraft(fleet.Key{Kind: fleet.KindEngine, Name: im.Engine})
	d.set("spec.argocd.namespace", im.ArgoNamespace)
	d.set("spec.argocd.installationID", im.Engine)
	d.set("spec.connection.inCluster", true)
	d.set("spec.region", im.Region)
	d.set("spec.capacity", map[string]any{"applications": max(1500, quotaFor(applications)),
		"environments": max(100, quotaFor(environments))})
	if tenants := im.served(); len(tenants) == 1 {
		// an engine of one tenant alone may serve Argo CD's own namespace to it
		d.set("spec.dedicatedTo", anys(tenants))
	}
	d.set("spec.platformTenant", im.trusted())
	var given []any
	namespaces := im.given(im.byEngine)
	for _, ns := range keys(namespaces) {
		given = append(given, map[string]any{"namespace": ns, "tenant": string(namespaces[ns])})
	}
	if len(given) > 0 {
		d.set("spec.applicationNamespaces", given)
	}
	d.fit()
	return d
}

// served are the tenants that deploy to an environment.
func (im *importer) served() (tenants []string) {
	for _, name := range keys(im.tenants) {
		if slices.ContainsFunc(im.tenants[name].envs, func(e *environment) bool {
			return len(e.namespaces) > 0
		}) {
			tenants = append(tenants, string(name))
		}
	}
	return tenants
}

// fleet is the Fleet, with the hosts of every repository and of every internal API server.
func (im *importer) fleet(w *whole) *draft {
	d := newDraft(fleet.Key{Kind: fleet.KindFleet, Name: "fleet"})
	hosts, servers := map[string]bool{}, map[string]bool{}
	add := func(url string) {
		if h := gitHost(url); h != "" && fleet.CheckGitHost(h) == nil {
			hosts[h] = true
		}
	}
	for _, apps := range w.deployments {
		for _, url := range repositories(apps[0].draft.document) {
			add(url)
		}
	}
	for _, p := range w.patterns {
		for _, url := range append(repositories(p.deployment()), p.lists...) {
			add(url)
		}
	}
	for _, t := range w.tenants {
		for _, url := range texts(t.draft.document, "spec", "repositories") {
			add(url)
		}
	}
	for _, e := range w.envs {
		if e.by == e.cluster.server && e.by != "" &&
			fleet.InternalServer(e.cluster.server, nil, false) != "" {
			servers[strings.TrimPrefix(e.cluster.server, "https://")] = true
		}
	}
	if len(hosts) == 0 {
		hosts["github.com"] = true // the list may not be empty
	}
	d.set("spec.gitHosts", anys(keys(hosts)))
	im.shared = im.sharedRepositories(w)
	d.set("spec.sharedRepositories", anys(im.shared))
	d.set("spec.clusterHosts", anys(keys(servers)))
	d.fit()
	return d
}

// gitHost is the entry of Fleet.gitHosts that a repository needs.
func gitHost(url string) string {
	scheme, rest, found := strings.Cut(url, "://")
	if !found {
		scheme, rest = "", url
		if user, path, scp := strings.Cut(url, ":"); scp && strings.Contains(user, "@") {
			rest = user + "/" + path
		}
	}
	host, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if scheme == "http" {
		return "http://" + host
	}
	return host
}

func (im *importer) refuseTenant(t *tenant, reason string) (any bool) {
	for _, a := range im.apps {
		if !a.out() && a.tenant == t.name {
			a.refuse("tenant %s: %s", t.name, reason)
			any = true
		}
	}
	for _, p := range t.projects {
		p.result.Status, p.result.Reason = Refused, reason
		im.results = append(im.results, p.result)
		any = true
	}
	t.projects = nil
	if !any {
		delete(im.tenants, t.name)
	}
	return true
}

func (im *importer) refuseEnvironment(e *environment, reason string) (any bool) {
	for _, a := range im.apps {
		if !a.out() && a.tenant == e.tenant && a.cluster == e.cluster {
			a.refuse("environment %s: %s", e.name, reason)
			any = true
		}
	}
	return any
}

// removedNamespace refuses the Applications of a namespace that the schema refuses.
func (im *importer) removedNamespace(e *environment, r removal) bool {
	if !strings.HasPrefix(r.field, "spec.namespaces") {
		return false
	}
	written := texts(e.draft.document, "spec", "namespaces")
	refused := false
	for _, ns := range keys(e.namespaces) {
		if !slices.Contains(written, ns) {
			refused = im.ban(e, ns, r.reason) || refused
		}
	}
	return refused
}

// ban refuses the Applications of an environment that deploy to a namespace.
func (im *importer) ban(e *environment, ns, reason string) (any bool) {
	if e.banned == nil {
		e.banned = map[string]bool{}
	}
	any = !e.banned[ns]
	e.banned[ns] = true
	im.contests = append(im.contests, contest{e.tenant, e.cluster})
	for _, a := range im.apps {
		if !a.out() && a.tenant == e.tenant && a.cluster == e.cluster &&
			a.namespace == ns {
			a.refuse("spec.destination.namespace: %s", reason)
			a.result.reasons = append(a.result.reasons, "spec.destination.namespace: "+
				strings.ReplaceAll(reason, fmt.Sprintf("%q", ns), "…"))
			any = true
		}
	}
	return any
}

// claimed is the catalog's code of a namespace that two tenants want on one API server.
const claimed = "namespace-claimed"

// repair refuses what the problems name: environments and tenants first, because the problems of
// their deployments follow from theirs. It reports whether it refused anything.
func (im *importer) repair(w *whole, problems []fleet.Problem) (any bool) {
	claims := map[string][]*environment{}
	for _, p := range problems {
		if t := w.tenants[p.Key]; t != nil {
			any = im.refuseTenant(t, explained(p)) || any
		}
		e := w.envs[p.Key]
		if e == nil {
			continue
		}
		if e.whole {
			e.neverWhole, any = true, true
			continue
		}
		ns, ok := get(e.draft.document, steps(p.Field))
		name, isText := ns.(string)
		switch {
		case ok && isText && strings.HasPrefix(p.Field, "spec.namespaces[") && p.Code == claimed:
			id := e.cluster.key + "\n" + name
			claims[id] = append(claims[id], e)
		case ok && isText && strings.HasPrefix(p.Field, "spec.namespaces["):
			if p.Code == codeEngineNamespace {
				im.ownerless[siteOf(e.cluster, name)] = true
			}
			any = im.ban(e, name, withFix(p)) || any
		default:
			any = im.refuseEnvironment(e, explained(p)) || any
		}
	}
	for _, id := range keys(claims) {
		_, ns, _ := strings.Cut(id, "\n")
		any = im.award(ns, claims[id]) || any
	}
	for _, p := range problems {
		if c := w.credentials[p.Key]; c != nil {
			any = c.refuse(explained(p)) || any
		}
	}
	if any {
		return true
	}
	for _, p := range problems {
		if pattern := w.patterns[p.Key]; pattern != nil {
			pattern.refusal = p.Field + ": " + explained(p)
			any = true
		}
		for _, a := range w.deployments[p.Key] {
			if !a.out() {
				a.refuse("%s: %s", p.Field, explained(p))
				any = true
			}
		}
	}
	return any
}

// withFix explains a problem of a namespace, for which one more fix may exist.
func withFix(p fleet.Problem) string {
	if p.Fix == "" {
		return explained(p)
	}
	return p.Message + "; " + p.Fix + "; or give all projects of the cluster to one tenant " +
		"(--tenant-by tenant:NAME)"
}

// award leaves a namespace that several tenants want to the one with the most Applications in it.
func (im *importer) award(ns string, envs []*environment) (any bool) {
	used := func(e *environment) (n int) {
		for _, a := range im.apps {
			if !a.out() && a.tenant == e.tenant && a.cluster == e.cluster &&
				a.namespace == ns {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(envs, func(a, b *environment) int {
		if c := used(b) - used(a); c != 0 {
			return c
		}
		return strings.Compare(string(a.tenant), string(b.tenant))
	})
	im.dispute(ns, envs, used)
	for _, e := range envs[1:] {
		any = im.ban(e, ns, fmt.Sprintf("namespace %q of the cluster is tenant %s's; give both "+
			"projects to one tenant (--tenant-by tenant:NAME)", ns, envs[0].tenant)) || any
	}
	return any
}
