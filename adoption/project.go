package adoption

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// project is an AppProject of the originals.
type project struct {
	Original
	tenant fleet.TenantName
	result Result
}

const defaultProject = "default"

// readProjects registers a tenant for every AppProject. Projects of one tenant add up. A project
// that Only leaves out still bounds the grants of its Applications.
func (im *importer) readProjects() {
	for _, o := range im.of(KindProject) {
		p := &project{Original: o, result: Result{Kind: o.Kind, Namespace: o.Namespace,
			Name: o.Name, Source: o.File}}
		p.tenant = im.tenantOfProject(o.Name)
		wanted := im.wanted(o.Kind, o.Namespace, o.Name)
		switch reason := projectRefusal(o); {
		case reason != "" && wanted:
			p.result.Status, p.result.Reason = Refused, reason
			im.results = append(im.results, p.result)
		case reason != "":
		case wanted:
			t := im.tenant(p.tenant)
			t.projects = append(t.projects, p)
		default:
			im.leftOut = append(im.leftOut, p)
		}
	}
}

func projectRefusal(o Original) string {
	if o.Name == "" {
		return "it has no name"
	}
	if object(o.Object, "spec") == nil {
		return "it has no spec: it is a patch of an overlay"
	}
	if reason := templated(o.Name); reason != "" {
		return reason
	}
	for _, k := range []string{"sourceRepos", "sourceNamespaces"} {
		for _, s := range texts(o.Object, "spec", k) {
			if reason := templated(s); reason != "" {
				return "spec." + k + ": " + reason
			}
		}
	}
	for _, d := range list(o.Object, "spec", "destinations") {
		m, _ := d.(map[string]any)
		for _, k := range keys(m) {
			if reason := templated(text(m, k)); reason != "" {
				return "spec.destinations: " + reason
			}
		}
	}
	return ""
}

// tenantOfProject is the tenant of a project's Applications.
func (im *importer) tenantOfProject(name string) fleet.TenantName {
	if t := im.TenantBy.of(name); t != "" {
		return tenantName(t)
	}
	if name == defaultProject || name == "" || im.merged[name] {
		return tenantName(im.DefaultTenant)
	}
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		// an AppProject of Argosy, from an export: its name proves the tenant
		if t := fleet.TenantName(name[:i]); fleet.ProjectName(t) == name {
			return t
		}
	}
	return tenantName(name)
}

// of is the tenant that the first matching rule gives, or "".
func (by TenantBy) of(names ...string) string {
	for _, rule := range by.List {
		for _, name := range names {
			if ok, err := path.Match(rule.Pattern, name); err == nil && ok {
				return rule.Tenant
			}
		}
	}
	return ""
}

func (im *importer) tenantOf(a *app) fleet.TenantName {
	if l := im.TenantBy.Label; l != "" {
		if v := text(a.Object, "metadata", "labels", l); v != "" {
			return tenantName(v)
		}
	}
	if t := im.TenantBy.of(a.Name, a.Namespace+"/"+a.Name, a.project); t != "" {
		return tenantName(t)
	}
	return im.tenantOfProject(a.project)
}

func tenantName(s string) fleet.TenantName { return fleet.TenantName(validName(s, "tenant")) }

// usualKinds are the cluster-scoped kinds of Kubernetes and of common operators that an import
// grants in place of "every kind", which no tenant is granted.
var usualKinds = []fleet.GroupKind{
	{Group: "", Kind: "Namespace"},
	{Group: "", Kind: "PersistentVolume"},
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"},
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
	{Group: "apiregistration.k8s.io", Kind: "APIService"},
	{Group: "cert-manager.io", Kind: "ClusterIssuer"},
	{Group: "external-secrets.io", Kind: "ClusterSecretStore"},
	{Group: "gateway.networking.k8s.io", Kind: "GatewayClass"},
	{Group: "kyverno.io", Kind: "ClusterPolicy"},
	{Group: "networking.k8s.io", Kind: "IngressClass"},
	{Group: "node.k8s.io", Kind: "RuntimeClass"},
	{Group: "policy", Kind: "PodSecurityPolicy"},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"},
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"},
	{Group: "storage.k8s.io", Kind: "CSIDriver"},
	{Group: "storage.k8s.io", Kind: "StorageClass"},
}

// clusterKinds are the cluster-scoped kinds that a project's whitelist permits, and the entries
// that no grant can have.
func clusterKinds(whitelist []any) (kinds []fleet.GroupKind, patterns []int) {
	for i, e := range whitelist {
		m, _ := e.(map[string]any)
		g, k := text(m, "group"), text(m, "kind")
		switch {
		case !strings.ContainsAny(g+k, "*?[!"):
			kinds = append(kinds, fleet.GroupKind{Group: g, Kind: k})
			continue
		case strings.ContainsAny(g, "?[!") || strings.ContainsAny(k, "?[!"):
		default:
			for _, u := range usualKinds {
				if matches(g, u.Group) && matches(k, u.Kind) {
					kinds = append(kinds, u)
				}
			}
		}
		patterns = append(patterns, i)
	}
	return kinds, patterns
}

func matches(pattern, s string) bool {
	ok, err := path.Match(pattern, s)
	return err == nil && ok
}

// ownersIn are the groups of a project's roles as owners, and those that no owner can name.
func ownersIn(p *project) (owners, others []string) {
	for _, role := range list(p.Object, "spec", "roles") {
		m, _ := role.(map[string]any)
		for _, group := range texts(m, "groups") {
			if _, err := fleet.ParseOwner("group:" + group); err != nil {
				others = append(others, group)
			} else {
				owners = append(owners, "group:"+group)
			}
		}
	}
	return owners, others
}

// grants collects what a tenant needs, from its projects and from its deployments.
type grants struct {
	repositories, clusters, namespaces, owners map[string]bool
	kinds                                      map[fleet.GroupKind]bool
	allow                                      allowances
	deployments, applications                  int
	alone                                      bool // on the engine, which it must be
}

// grantsOf collects the grants of a tenant for the Applications that are accepted.
func (im *importer) grantsOf(t *tenant, joined map[*draft][]*app, patterns []*pattern) grants {
	g := grants{repositories: map[string]bool{}, clusters: map[string]bool{},
		namespaces: map[string]bool{}, owners: map[string]bool{},
		kinds: map[fleet.GroupKind]bool{}, allow: allowances{}, deployments: len(joined)}
	open := false // applications of a project that permits every kind
	of := map[string]bool{}
	for d, apps := range joined {
		for _, url := range repositories(d.document) {
			g.repositories[url] = true
		}
		g.applications += len(apps)
		g.allow.need(d.document)
		g.alone = g.alone || needsAlone(d.document) && len(im.served()) == 1
		for _, a := range apps {
			open = open || a.project == defaultProject
			of[a.project] = true
		}
	}
	for _, p := range patterns {
		for _, url := range append(repositories(p.deployment()), p.lists...) {
			g.repositories[url] = true
		}
		g.allow.need(p.deployment())
		g.deployments++
		open = open || p.app.project == defaultProject
		of[p.app.project] = true
	}
	if g.alone {
		delete(g.allow, "artifacts")
	}
	for _, e := range t.envs {
		if e.cluster.server != "" && len(e.namespaces) > 0 {
			g.clusters[e.cluster.server] = true
		}
		if e.cluster.key == inCluster && len(e.namespaces) > 0 {
			g.clusters["engine:"+im.Engine] = true
		}
	}
	for _, p := range t.projects {
		for _, url := range texts(p.Object, "spec", "sourceRepos") {
			if grant, ok := grantOf(url); ok {
				g.repositories[grant] = true
			}
		}
	}
	projects := slices.Concat(t.projects, slices.DeleteFunc(slices.Clone(im.leftOut),
		func(p *project) bool { return !of[p.Name] }))
	for _, p := range projects {
		kinds, _ := clusterKinds(list(p.Object, "spec", "clusterResourceWhitelist"))
		for _, k := range kinds {
			g.kinds[k] = true
		}
		open = open && p.Name != defaultProject // its whitelist is at hand
		owners, _ := ownersIn(p)
		for _, owner := range owners {
			g.owners[owner] = true
		}
	}
	if open || len(projects) == 0 && g.deployments > 0 {
		for _, k := range usualKinds {
			g.kinds[k] = true
		}
	}
	if len(g.owners) == 0 {
		for _, o := range im.Owners {
			g.owners[o] = true
		}
	}
	if len(g.owners) == 0 {
		g.owners["group:"+string(t.name)] = true
	}
	return g
}

// allowances are the fields of declarations that a tenant must be granted: flags without a value,
// lists with their entries.
type allowances map[string]map[string]bool

// need adds what a deployment needs.
func (a allowances) need(document map[string]any) {
	add := func(name string, entries ...string) {
		if a[name] == nil {
			a[name] = map[string]bool{}
		}
		for _, e := range entries {
			a[name][e] = true
		}
	}
	if replace, _ := at(document, "spec", "sync", "replace").(bool); replace {
		add("replace")
	}
	if len(list(document, "spec", "adopt")) > 0 {
		add("adopt")
	}
	for _, k := range []string{"labels", "annotations"} {
		entries := object(document, "spec", "sync", "managedNamespaceMetadata", k)
		if len(entries) > 0 {
			add("namespaceMetadata", keys(entries)...)
		}
	}
	for _, n := range list(document, "spec", "notifications") {
		if m, ok := n.(map[string]any); ok {
			recipients := texts(m, "recipients")
			if len(recipients) == 0 {
				recipients = []string{""}
			}
			for _, r := range recipients {
				add("notifications", text(m, "service")+" "+r)
			}
		}
	}
	for _, s := range sourcesOf(document) {
		if url := text(s, "repoURL"); strings.HasPrefix(url, "oci://") {
			add("artifacts", url)
		}
		if name := text(s, "plugin", "name"); name != "" {
			add("plugins", name)
		}
		if v := text(s, "kustomize", "version"); v != "" {
			add("kustomizeVersions", v)
		}
		if strings.ContainsAny(text(s, "targetRevision"), "^~<>=|, *") ||
			text(s, "chart") != "" && versionRange.MatchString(text(s, "targetRevision")) {
			add("versionRanges")
		}
	}
}

// noteGrants adds a note for each tenant that is granted what no tenant has by itself: the import
// grants what the Applications use, and the platform decides.
func (im *importer) noteGrants() {
	for _, name := range keys(im.tenants) {
		t := im.tenants[name]
		if t.draft == nil {
			continue
		}
		var granted []string
		allow := object(t.draft.document, "spec", "allow")
		for _, k := range keys(allow) {
			switch entries := grantedEntries(allow[k]); {
			case k == "adopt": // a person asks for it
			case entries == "":
				granted = append(granted, k)
			default:
				granted = append(granted, k+" ("+entries+")")
			}
		}
		for _, e := range list(t.draft.document, "spec", "environments") {
			m, _ := e.(map[string]any)
			if all, _ := m["allNamespaces"].(bool); all {
				granted = append(granted, "all namespaces of environment "+text(m, "name"))
			}
			if reserved := texts(m, "namespaces"); len(reserved) > 0 {
				granted = append(granted, fmt.Sprintf("reserved namespaces of environment %s (%s)",
					text(m, "name"), strings.Join(reserved, ", ")))
			}
		}
		var kinds []string
		for _, k := range list(t.draft.document, "spec", "clusterResources") {
			m, _ := k.(map[string]any)
			kinds = append(kinds, text(m, "kind"))
		}
		if len(kinds) > 0 {
			granted = append(granted, "cluster-scoped kinds ("+strings.Join(kinds, ", ")+")")
		}
		if len(granted) == 0 {
			continue
		}
		note := fmt.Sprintf("tenant %s is granted %s; review it in %s", name,
			strings.Join(granted, "; "), pathOf(t.draft.key))
		if allow["artifacts"] != nil {
			note += "; an artifact may choose the tool that renders it, on engines that other " +
				"tenants use too: allow those that you trust (docs/sources.md)"
		}
		im.notes = append(im.notes, note)
	}
}

// grantedEntries lists the entries of a grant; "" for a flag.
func grantedEntries(grant any) string {
	var entries []string
	all, _ := grant.([]any)
	for _, e := range all {
		switch e := e.(type) {
		case string:
			entries = append(entries, e)
		case map[string]any:
			recipients := "any recipient"
			if named := texts(e, "recipients"); len(named) > 0 {
				recipients = strings.Join(named, ", ")
			}
			entries = append(entries, text(e, "service")+": "+recipients)
		}
	}
	return strings.Join(entries, ", ")
}

// needsAlone reports whether a deployment has a source that is rendered for a tenant alone.
func needsAlone(document map[string]any) bool {
	return slices.ContainsFunc(sourcesOf(document), func(s map[string]any) bool {
		return strings.HasPrefix(text(s, "repoURL"), "oci://") ||
			at(s, "directory", "jsonnet") != nil
	})
}

// services are the grants of notifications, of entries "service recipient", sorted. A service that
// is used without a recipient is granted with any.
func services(entries []string) (grants []any) {
	recipients, names := map[string][]any{}, []string{}
	for _, e := range entries {
		service, recipient, _ := strings.Cut(e, " ")
		if !slices.Contains(names, service) {
			names = append(names, service)
		}
		if recipient != "" && slices.Contains(entries, service+" ") {
			continue
		}
		if recipient != "" {
			recipients[service] = append(recipients[service], recipient)
		}
	}
	for _, service := range names {
		grant := map[string]any{"service": service}
		if len(recipients[service]) > 0 {
			grant["recipients"] = recipients[service]
		}
		grants = append(grants, grant)
	}
	return grants
}

var versionRange = regexp.MustCompile(`^v?[0-9]+(\.[0-9]+)?$|(^|\.)[xX](\.|$)`)

// sourcesOf are the sources of a deployment.
func sourcesOf(document map[string]any) (sources []map[string]any) {
	if one := object(document, "spec", "source"); one != nil {
		sources = append(sources, one)
	}
	for _, s := range list(document, "spec", "sources") {
		if m, ok := s.(map[string]any); ok {
			sources = append(sources, m)
		}
	}
	return sources
}

// grantOf is an entry of a project's sourceRepos as a grant. A pattern is one only if it means
// everything below a folder.
func grantOf(url string) (string, bool) {
	below, folder := strings.CutSuffix(url, "/**")
	if !folder {
		below, folder = strings.CutSuffix(url, "/*")
	}
	if strings.ContainsAny(below, "*?[!{") {
		return "", false
	}
	if folder {
		return below + "/", fleet.CheckRepoScope(below+"/") == nil
	}
	if fleet.CheckRepoScope(url) == nil {
		return url, true
	}
	for _, s := range spellingsOf(url) {
		if other := s.(string); fleet.CheckRepoScope(other) == nil {
			return other, true
		}
	}
	return "", false
}

// repositories are the URLs of the sources of a deployment.
func repositories(document map[string]any) (urls []string) {
	for _, s := range sourcesOf(document) {
		if url := text(s, "repoURL"); url != "" {
			urls = append(urls, url)
		}
	}
	return urls
}

// propose drafts the tenant. shared: another tenant deploys to one of its clusters. argocd is the
// namespace of the Argo CD.
func (t *tenant) propose(g grants, shared bool,
	others func(string, fleet.TenantName) bool) {
	d := newDraft(fleet.Key{Kind: fleet.KindTenant, Name: string(t.name)})
	for _, p := range t.projects {
		d.comment = append(d.comment, text(p.Object, "spec", "description"))
	}
	d.set("spec.owners", anys(keys(g.owners)))
	d.put("spec.quota", map[string]any{"environments": quotaFor(len(t.envs)),
		"deployments": quotaFor(g.deployments), "applications": quotaFor(g.applications)})
	d.set("spec.repositories", anys(keys(g.repositories)))
	d.set("spec.clusters", anys(keys(g.clusters)))
	used := map[string]bool{}
	var environments []any
	for _, e := range t.envs {
		if e.whole {
			environments = append(environments, map[string]any{"name": string(e.name),
				"allNamespaces": true})
			continue
		}
		var reserved []string
		for _, ns := range keys(e.namespaces) {
			if others(ns, t.name) || fleet.ValidateNamespace(ns) != nil {
				reserved = append(reserved, ns)
			} else {
				used[ns] = true
			}
		}
		if len(reserved) > 0 {
			environments = append(environments, map[string]any{"name": string(e.name),
				"namespaces": anys(reserved)})
		}
	}
	if shared || slices.ContainsFunc(t.envs, func(e *environment) bool {
		return e.cluster.key == inCluster
	}) {
		d.set("spec.namespaces", anys(keys(used)))
	}
	d.set("spec.environments", environments)
	if g.alone {
		d.set("spec.placement.alone", true)
	}
	d.set("spec.clusterResources", kindList(g.kinds))
	for _, k := range keys(g.allow) {
		if len(g.allow[k]) == 0 {
			d.set("spec.allow."+k, true)
		} else {
			entries := anys(keys(g.allow[k]))
			if k == "notifications" {
				entries = services(keys(g.allow[k]))
			}
			d.set("spec.allow."+k, entries)
		}
	}
	d.fit()
	t.draft = d
}

func kindList(kinds map[fleet.GroupKind]bool) (out []any) {
	var all []fleet.GroupKind
	for k := range kinds {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b fleet.GroupKind) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		return strings.Compare(a.Kind, b.Kind)
	})
	for _, k := range all {
		out = append(out, map[string]any{"group": k.Group, "kind": k.Kind})
	}
	return out
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}

// quotaFor is a quota with space for growth: twice what is used, at least 10.
func quotaFor(used int) int { return max(10, 2*used) }

// judge compares a project with the tenant that is written for it.
func (im *importer) judge(p *project, t *tenant) {
	r := &p.result
	r.File = pathOf(t.draft.key)
	spec := object(p.Object, "spec")
	differ := func(path string, from, to any, reason string) {
		r.Differences = append(r.Differences, Difference{Path: path, From: from, To: to,
			Reason: reason})
	}
	written := texts(t.draft.document, "spec", "repositories")
	for i, url := range texts(spec, "sourceRepos") {
		if grant, ok := grantOf(url); !ok || !slices.Contains(written, grant) {
			differ(fmt.Sprintf("spec.sourceRepos[%d]", i), url, anys(written),
				"a grant names repositories or folders of a host; the tenant is granted those in use")
		}
	}
	for _, k := range []string{"labels", "annotations"} {
		entries := object(p.Object, "metadata", k)
		for _, name := range keys(entries) {
			if !machinery[name] {
				differ("metadata."+k+key(name), entries[name], nil, "a Tenant has no "+k)
			}
		}
	}
	_, patterns := clusterKinds(list(spec, "clusterResourceWhitelist"))
	for _, i := range patterns {
		differ(fmt.Sprintf("spec.clusterResourceWhitelist[%d]", i),
			list(spec, "clusterResourceWhitelist")[i],
			list(t.draft.document, "spec", "clusterResources"),
			"a grant names each kind; the usual cluster-scoped kinds are granted")
	}
	for _, kind := range list(spec, "clusterResourceWhitelist") {
		m, _ := kind.(map[string]any)
		k := map[string]any{"group": text(m, "group"), "kind": text(m, "kind")}
		if !strings.ContainsAny(text(m, "group")+text(m, "kind"), "*?[!") &&
			!slices.ContainsFunc(list(t.draft.document, "spec", "clusterResources"),
				func(have any) bool { return same(have, k) }) {
			differ("spec.clusterResourceWhitelist", k, nil, t.draft.reason("spec.clusterResources"))
		}
	}
	im.judgeDestinations(p, t, differ)
	if _, others := ownersIn(p); len(others) > 0 {
		differ("spec.roles[].groups", anys(others), anys(texts(t.draft.document, "spec", "owners")),
			"an owner is a group of letters, digits, '-', '_', '.' and '/': correct the owners of "+
				"the tenant before you merge")
	}
	if names, namespaces := im.moved(p.Name); len(names) > 0 {
		differ("spec.destinations", anys(namespaces), nil, fmt.Sprintf("these namespaces are the "+
			"platform's: Applications %s go to tenant %s", strings.Join(names, ", "),
			tenantName(im.PlatformTenant)))
	}
	for _, k := range keys(spec) {
		switch k {
		case "sourceRepos", "destinations", "clusterResourceWhitelist", "description":
		case "permitOnlyProjectScopedClusters":
		case "sourceNamespaces":
			given := im.given(anyApp)
			for _, ns := range texts(spec, k) {
				if im.Adopt && ns != im.ArgoNamespace && given[ns] != t.name {
					differ("spec."+k, ns, nil, projectFields[k])
				}
			}
			if !im.Adopt && len(texts(spec, k)) > 0 {
				differ("spec."+k, spec[k], nil, "Argosy writes new Applications into Argo CD's own "+
					"namespace")
			}
		case "namespaceResourceWhitelist":
			if !everyKind(list(spec, k)) && compact(clone(spec[k])) != nil {
				differ("spec."+k, spec[k], nil, projectFields[k])
			}
		default:
			if compact(clone(spec[k])) != nil {
				differ("spec."+k, spec[k], nil, projectFields[k])
			}
		}
	}
	r.Status = Exact
	if len(r.Differences) > 0 {
		r.Status = Changed
	}
	if p.Name != string(t.name) {
		r.Notes = append(r.Notes, "project "+p.Name+" becomes tenant "+string(t.name))
	}
}

// everyKind reports whether a whitelist permits every kind.
func everyKind(whitelist []any) bool {
	return slices.ContainsFunc(whitelist, func(e any) bool {
		m, _ := e.(map[string]any)
		return text(m, "group") == "*" && text(m, "kind") == "*"
	})
}

// projectFields are the reasons why fields of an AppProject have no counterpart.
var projectFields = map[string]string{
	"roles": "people have no access to Argo CD; the groups of the roles own the tenant, and " +
		"tokens end",
	"orphanedResources":          "argosy get orphans lists them for the whole fleet",
	"syncWindows":                "write a Policy, or merge in the window",
	"namespaceResourceBlacklist": "write a Policy; Argo CD's own kinds are always denied",
	"namespaceResourceWhitelist": "write a Policy; Argo CD's own kinds are always denied",
	"signatureKeys": "Argosy deploys reviewed commits; it does not check GnuPG " +
		"signatures",
	"sourceNamespaces": "a tenant gets the exact namespaces from which its deployments adopt " +
		"(applicationNamespaces)",
	"destinationServiceAccounts": "each environment has one credential",
	"clusterResourceBlacklist":   "kinds that are not granted are denied",
}

// judgeDestinations compares the project's destinations with the tenant's environments.
func (im *importer) judgeDestinations(p *project, t *tenant,
	differ func(path string, from, to any, reason string)) {
	for i, d := range list(p.Object, "spec", "destinations") {
		m, _ := d.(map[string]any)
		ns := text(m, "namespace")
		exact := false
		for _, e := range t.envs {
			if e.draft == nil || e.draft.refusal != "" || len(e.namespaces) == 0 {
				continue
			}
			exact = exact || im.clusters.known(m) == e.cluster && (e.whole || slices.Contains(
				texts(e.draft.document, "spec", "namespaces"), ns))
		}
		if !exact {
			differ(fmt.Sprintf("spec.destinations[%d]", i), d, im.destinationsOf(t),
				"an environment names its namespaces; those in use are named")
		}
	}
}

func (im *importer) destinationsOf(t *tenant) []any {
	out := []any{}
	for _, e := range t.envs {
		if e.draft == nil || e.draft.refusal != "" || len(e.namespaces) == 0 {
			continue
		}
		if e.whole {
			out = append(out, map[string]any{"environment": string(e.name), "allNamespaces": true})
			continue
		}
		out = append(out, map[string]any{"environment": string(e.name),
			"namespaces": e.draft.document["spec"].(map[string]any)["namespaces"]})
	}
	return out
}
