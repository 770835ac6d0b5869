// Package adoption turns the Applications, ApplicationSets, AppProjects and Secrets of a running
// Argo CD into a config repo, and reports for each object what became of it.
//
// Rules of this package:
//   - values in, values out: no I/O, and no result depends on the order of the originals;
//   - every field of an original is written, or is a Difference of its Result, or its object is
//     refused; nothing is lost without a line in the report;
//   - exact is proven: the written declarations are planned and rendered, and the rendered object
//     equals the original in Argo CD's own normal form;
//   - everything that is written validates together;
//   - no credential is written or reported.
package adoption

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// Normal is the normal form of an Application: see fleet/argocd/original.
type Normal struct {
	Spec    map[string]any
	Unknown map[string]any // fields that Argo CD's types lack, by path
}

// Rendered is an Application as Argosy renders it from the written declarations.
type Rendered struct {
	Tenant      fleet.TenantName
	Deployment  fleet.DeploymentName
	Environment fleet.EnvironmentName
	Object      map[string]any
}

// Tools are what the import needs of Argo CD's types and of the planner.
type Tools struct {
	Normalize func(object map[string]any, charts func(folder string) bool) (Normal, error)
	// Render plans the declarations offline and returns the Applications of every engine.
	// The problems name the deployments that cannot be rendered.
	Render func(files []configschema.File) ([]Rendered, []fleet.Problem, error)
}

// Options are the choices of the person who imports.
type Options struct {
	Engine        string // name of the engine that the Argo CD becomes
	ArgoNamespace string // of the Argo CD; empty: that of most Applications, else argocd
	DefaultTenant string // tenant of project default
	// PlatformTenant has the Applications in namespaces that no other tenant may have; empty: they
	// are refused where there are several tenants.
	PlatformTenant string
	Owners         []string // of tenants whose project names no group
	Region         string
	TenantBy       TenantBy
	// Clusters are the API servers of clusters that destinations name without a Secret.
	Clusters map[string]string
	// Annotations are values of annotations of clusters that are not at hand, from which
	// ApplicationSets take a repository or a chart.
	Annotations map[string]string
	Only        []string // patterns of KIND/NAME, NAMESPACE/NAME or NAME; empty: all
	// Adopt makes the deployments take over the originals, which keep their objects and names.
	Adopt bool
}

// TenantBy chooses the tenant of an Application: by its project, by a label, or by the list of a
// file, whose patterns match the name of the Application or of its project.
type TenantBy struct {
	Label string
	List  []TenantRule
}

// TenantRule gives the Applications that a pattern matches to a tenant.
type TenantRule struct {
	Pattern, Tenant string
}

// Input is what was read.
type Input struct {
	Originals []Original
	Refused   []Result // documents that could not be read
	Unread    []string // parts of the source that could not be read, with the reason
	// Whole: the Originals are those of a live Argo CD in all namespaces. Manifests prove no
	// absence.
	Whole bool
	// Present are the files of the config repo before the import.
	Present []configschema.File
	// Tree is the repository that the files are in; nil: not at hand.
	Tree *Tree
}

// Outcome is the config repo and the report.
type Outcome struct {
	Files     []configschema.File
	Report    Report
	Namespace string // of the Argo CD
}

// Object returns an Application as a declaration of the Outcome adopts it.
func (o *Outcome) Object(namespace, name string) string {
	return objectIn(namespace, name, o.Namespace)
}

// importer holds one import.
type importer struct {
	Input
	Options
	tools    Tools
	results  []Result
	apps     []*app
	sets     []*set
	tenants  map[fleet.TenantName]*tenant
	leftOut  []*project // by Only
	clusters *clusters

	credentials []*credential
	filesAt     map[string]bool       // files of the Tree
	owned       map[string][]Original // live Applications of the ApplicationSets
	created     map[string]bool       // tenants of Applications that Argosy created
	neighbours  []neighbour
	commands    []string
	spaces      map[fleet.TenantName]bool // whose namespaces the commands need
	notes       []string

	decision
	shared    []string      // repositories that the written Fleet shares
	contests  []contest     // over namespaces
	ownerless map[site]bool // namespaces that no tenant may have beside others

	patternNames map[fleet.Key]bool
	sharing      map[*draft][]*app // Applications of each deployment, before overrides
	probed       []*set            // the ApplicationSets that this import probes: see fold
	marks        int               // of probes
}

// Import returns the config repo for the originals. If tenants would keep each other from a
// namespace that their projects both permit, a second attempt gives those projects to one tenant.
// If no tenant may have a namespace, a further one gives its Applications to the platform's tenant.
// The attempt that refuses the fewest counts.
func Import(in Input, o Options, tools Tools) (*Outcome, error) {
	best, im, err := attempt(in, o, tools, decision{})
	if err != nil {
		return nil, err
	}
	try := func(d decision) bool {
		next, by, err := attempt(in, o, tools, d)
		if err != nil || next.Report.refused() >= best.Report.refused() {
			return false
		}
		best, im = next, by
		return true
	}
	if merged := im.openProjects(); len(merged) > 1 {
		try(decision{merged: merged})
	}
	for sites := im.platformSites(); sites != nil; sites = im.platformSites() {
		if !try(decision{merged: im.merged, platform: sites}) {
			break
		}
	}
	return best, nil
}

func attempt(in Input, o Options, tools Tools, d decision) (*Outcome, *importer, error) {
	im := newImporter(in, o, tools)
	im.decision = d
	im.read()
	files, err := im.complete()
	if err == nil {
		files, err = im.fold(files)
	}
	if err != nil {
		return nil, nil, err
	}
	im.conclude(files)
	report := Report{Objects: im.results, Mapping: im.mapping(), Commands: im.allCommands(),
		Notes: im.notes, Unread: slices.Clone(in.Unread)}
	report.finish()
	return &Outcome{Files: files, Report: report, Namespace: im.ArgoNamespace}, im, nil
}

func newImporter(in Input, o Options, tools Tools) *importer {
	im := &importer{Input: in, Options: o, tools: tools, results: slices.Clone(in.Refused),
		tenants: map[fleet.TenantName]*tenant{}, filesAt: map[string]bool{},
		owned: map[string][]Original{}, patternNames: map[fleet.Key]bool{},
		ownerless: map[site]bool{}}
	for _, f := range im.files() {
		im.filesAt[f] = true
	}
	return im
}

// read drafts a deployment for each Application.
func (im *importer) read() {
	im.created = createdFor(im.Originals)
	im.neighbours = neighboursIn(im.Present)
	im.Originals = beforeAdoption(im.Originals)
	slices.SortFunc(im.Originals, compareOriginals)
	im.results = slices.DeleteFunc(im.results, func(r Result) bool {
		return !im.wanted(r.Kind, r.Namespace, r.Name)
	})
	im.findNamespace()
	im.readSecrets()
	im.readProjects()
	im.readApplications()
	im.readSets()
	im.parents()
	im.propose()
}

func compareOriginals(a, b Original) int {
	for _, c := range []int{strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.File, b.File)} {
		if c != 0 {
			return c
		}
	}
	return 0
}

func (im *importer) of(kind string) (found []Original) {
	for _, o := range im.Originals {
		if o.Kind == kind {
			found = append(found, o)
		}
	}
	return found
}

// wanted reports whether the patterns of Only choose an object.
func (im *importer) wanted(kind, namespace, name string) bool {
	if len(im.Only) == 0 {
		return true
	}
	for _, pattern := range im.Only {
		for _, s := range []string{name, namespace + "/" + name, kind + "/" + name} {
			if ok, err := path.Match(pattern, s); err == nil && ok {
				return true
			}
		}
	}
	return false
}

func (im *importer) findNamespace() {
	if im.ArgoNamespace != "" {
		return
	}
	count := map[string]int{}
	for _, o := range im.Originals {
		if o.Namespace != "" && o.Kind != KindSecret {
			count[o.Namespace]++
		}
	}
	im.ArgoNamespace = "argocd"
	most := 0
	for _, ns := range keys(count) {
		if count[ns] > most {
			im.ArgoNamespace, most = ns, count[ns]
		}
	}
}

// readApplications accepts the Applications that are whole.
func (im *importer) readApplications() {
	sets := map[string]bool{}
	for _, o := range im.of(KindApplicationSet) {
		if im.wanted(o.Kind, o.Namespace, o.Name) {
			sets[o.Namespace+"/"+o.Name] = true
		}
	}
	for _, o := range im.of(KindApplication) {
		owners := ownersOf(o)
		if len(owners) > 1 {
			if im.wanted(o.Kind, o.Namespace, o.Name) {
				im.add(o, nil).refuse("ApplicationSets %s own it and overwrite each other: leave "+
					"one of them in metadata.ownerReferences", strings.Join(owners, " and "))
			}
			continue
		}
		if len(owners) == 1 && sets[owners[0]] {
			im.owned[owners[0]] = append(im.owned[owners[0]], o)
		} else if im.wanted(o.Kind, o.Namespace, o.Name) {
			im.add(o, nil)
		}
	}
}

// ownersOf are the namespaces and names of the ApplicationSets that own a live Application.
func ownersOf(o Original) (owners []string) {
	for _, r := range list(o.Object, "metadata", "ownerReferences") {
		m, _ := r.(map[string]any)
		if text(m, "kind") == KindApplicationSet && group(text(m, "apiVersion")) == "argoproj.io" {
			owners = append(owners, o.Namespace+"/"+text(m, "name"))
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

// add takes an Application in. from is the ApplicationSet that generates it, or nil.
func (im *importer) add(o Original, from *set) *app {
	a := &app{Original: o, set: from, result: Result{Kind: o.Kind, Namespace: o.Namespace,
		Name: o.Name, Source: o.File, Adopted: o.adopted}}
	im.apps = append(im.apps, a)
	if reason := im.incomplete(o); reason != "" {
		a.refuse(reason)
		return a
	}
	normal, err := im.tools.Normalize(o.Object, im.chart)
	if err != nil {
		a.refuse(err.Error())
		return a
	}
	a.normal = normal
	a.project = text(normal.Spec, "project")
	c, reason := im.clusters.of(object(o.Object, "spec", "destination"))
	if reason != "" {
		a.refuse(reason)
		return a
	}
	a.cluster = c
	a.tenant = im.tenantOf(a)
	if own := tenantName(im.PlatformTenant); im.isPlatforms(a) && a.tenant != own {
		a.tenant, a.moved = own, true
	}
	return a
}

// incomplete is the reason why an Application cannot be read as it is: a template, or the patch of
// an overlay.
func (im *importer) incomplete(o Original) string {
	spec := object(o.Object, "spec")
	if o.Name == "" {
		return "it has no name"
	}
	if spec["sourceHydrator"] != nil {
		return "spec.sourceHydrator: the source hydrator writes commits, which Argosy does not ask for"
	}
	source, sources := object(spec, "source"), list(spec, "sources")
	if len(source) == 0 && len(sources) == 0 || len(object(spec, "destination")) == 0 {
		return "it has no source or no destination: it is a patch of an overlay; import what " +
			"kustomize build prints, or the live objects"
	}
	all := append(slices.Clone(sources), any(source))
	for _, s := range all {
		m, _ := s.(map[string]any)
		for _, k := range []string{"repoURL", "path", "chart", "targetRevision"} {
			if reason := templated(text(m, k)); reason != "" {
				return "source." + k + ": " + reason
			}
		}
		if len(m) > 0 && text(m, "repoURL") == "" {
			return "it has no repoURL: it is a patch of an overlay; import what kustomize build " +
				"prints, or the live objects"
		}
	}
	for _, k := range []string{"server", "name", "namespace"} {
		if reason := templated(text(spec, "destination", k)); reason != "" {
			return "destination." + k + ": " + reason
		}
	}
	if reason := templated(o.Name + text(spec, "project")); reason != "" {
		return reason
	}
	return ""
}

// each runs a function for every Application that is not refused, on all cores.
func (im *importer) each(do func(*app)) {
	next := make(chan *app)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for a := range next {
				do(a)
			}
		})
	}
	for _, a := range im.apps {
		if !a.out() {
			next <- a
		}
	}
	close(next)
	workers.Wait()
}

// propose drafts a deployment for each Application and fits it to the schema.
func (im *importer) propose() {
	im.nameEnvironments()
	names := map[fleet.DeploymentID]*app{}
	byName := map[*app]string{}
	for _, a := range im.apps {
		if a.out() {
			continue
		}
		name := validName(a.Name, "app")
		id := fleet.DeploymentID{Tenant: a.tenant, Name: fleet.DeploymentName(name)}
		if first := names[id]; first != nil || im.patternNames[fleet.Key{
			Kind: fleet.KindGitOpsDeployment, Tenant: a.tenant, Name: name}] {
			if first == nil {
				first = a
			} else if a.equals(first) {
				a.same = first
				continue
			}

			name = im.free(names, id, a, first)
			id.Name = fleet.DeploymentName(name)
		}
		names[id], byName[a] = a, name
	}
	im.each(func(a *app) {
		a.draft = a.deployment(byName[a], im.chart)
		if a.draft.fit(); a.draft.refusal != "" {
			a.refuse(a.draft.refusal)
			return
		}
		a.namespace = text(a.draft.document, "spec", "destination", "namespace")
		namespace := im.ArgoNamespace
		if im.further(a) {
			namespace = a.Namespace // its Application stays there
		}
		a.lost = a.metadataLost(namespace)
		if a.moved {
			a.lost = append(a.lost, im.movedDifference(a))
		}
		if byName[a] != a.Name {
			a.lost = append(a.lost, Difference{Path: "metadata.name", From: a.Name, To: byName[a],
				Reason: "a deployment is named by a DNS label, once per tenant"})
		}
	})
	im.judgeNamespaces()
}

// equals reports whether two Applications are one that is in two files.
func (a *app) equals(b *app) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace && a.set == b.set &&
		same(a.normal.Spec, b.normal.Spec) &&
		same(a.Object["metadata"], b.Object["metadata"])
}

// free is a name for a second Application of one name: from the folder or the namespace in which it
// differs from the first one, or with a number.
func (im *importer) free(taken map[fleet.DeploymentID]*app, id fleet.DeploymentID, a,
	first *app) string {
	suffix := ""
	if a.Namespace != first.Namespace && a.Namespace != "" {
		suffix = a.Namespace
	} else {
		mine, others := strings.Split(a.File, "/"), strings.Split(first.File, "/")
		for i, part := range mine {
			if i >= len(others) || part != others[i] {
				suffix = strings.TrimSuffix(part, path.Ext(part))
				break
			}
		}
	}
	base := string(id.Name)
	for n := 1; ; n++ {
		name := base + "-" + suffix
		if n > 1 || suffix == "" {
			name = fmt.Sprintf("%s-%d", strings.TrimSuffix(name, "-"), n+1)
		}
		name = validName(name, "app")
		if taken[fleet.DeploymentID{Tenant: id.Tenant, Name: fleet.DeploymentName(name)}] == nil {
			return name
		}
	}
}

// validName makes a name of a declaration of any text.
func validName(s, otherwise string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 {
			b.WriteByte('-')
		}
	}
	name := b.String()
	for strings.Contains(name, "--") && !strings.Contains(s, "--") {
		name = strings.ReplaceAll(name, "--", "-")
	}
	if len(name) > 63 {
		name = name[:63]
	}
	name = strings.Trim(name, "-")
	if name == "" {
		name = otherwise
	}
	if fleet.ValidateName(name) != nil {
		name = strings.Trim(name+"-"+otherwise, "-")
	}
	return name
}
