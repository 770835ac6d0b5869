package adoption

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// probe is in place of one item of each list and git generator of an ApplicationSet. Its values are
// marks that occur nowhere else: their places in the deployment are the variables of a set.
type probe struct {
	marks   map[string]string // variable by mark
	sources map[string]any    // directories, files and list of the set
	list    []map[string]string
	// marks by field, of an item whose repository is not at hand; nil: it is at hand, or live
	known map[string]string

	name string // of the set
	apps []*app // the Applications of the item, one for each cluster
	// of lists alone: the Applications of the items, and the environments of their deployments
	of           []*app
	environments []any
	names        []string // of the deployments of the items
	named        bool     // the items have them as a field
}

// mark is a mark for a field, in the form of one of its values: a repository is a URL. No two
// ApplicationSets of an import have one, so that their namespaces differ.
func (g *generator) mark(field string, value any) string {
	if m := g.probe.known[field]; m != "" {
		return m
	}
	g.im.marks++
	m := fmt.Sprintf("zq%dx", g.im.marks)
	switch s := fmt.Sprint(value); {
	case strings.HasPrefix(s, "https://"):
		m = "https://" + m + ".example.com/" + m + "/" + m
	case strings.HasPrefix(s, "git@"):
		m = "git@" + m + ".example.com:" + m + "/" + m
	}
	g.probe.marks[m] = "${item." + field + "}"
	if g.probe.known != nil {
		g.probe.known[field] = m
	}
	return m
}

// foldable reports whether the generators of an ApplicationSet have a counterpart in a set: lists
// alone, one git generator, or a matrix of two generators of which neither reads the other.
func foldable(spec map[string]any) bool {
	generators := list(spec, "generators")
	if listed(generators) {
		return true
	}
	if len(generators) != 1 {
		return false
	}
	sources := map[string]int{}
	leaf := func(raw any) bool {
		m, _ := raw.(map[string]any)
		for _, k := range keys(m) {
			block, _ := m[k].(map[string]any)
			kind := k
			switch {
			case k == "clusters":
				continue
			case k == "git" && len(list(block, "files")) > 0:
				kind = "files"
			case k != "git" && k != "list":
				return false
			}
			if sources[kind]++; sources[kind] > 1 || m["selector"] != nil ||
				text(block, "elementsYaml") != "" {
				return false
			}
		}
		return len(m) == 1
	}
	m, _ := generators[0].(map[string]any)
	if parts := list(m, "matrix", "generators"); len(parts) == 2 {
		return leaf(parts[0]) && leaf(parts[1]) && len(sources) > 0 &&
			!strings.Contains(writeYAML(without(parts[1], "values")), "{{")
	}
	return leaf(generators[0]) && len(sources) > 0
}

// without is a generator without one field of its block: clusters render their values by
// themselves.
func without(generator any, field string) any {
	out, _ := clone(generator).(map[string]any)
	for _, k := range keys(out) {
		if block, ok := out[k].(map[string]any); ok {
			delete(block, field)
		}
	}
	return out
}

// probeList is the item of a list generator.
func (g *generator) probeList(block map[string]any) []parameters {
	union := map[string]any{}
	var items []map[string]string
	for _, e := range list(block, "elements") {
		m, _ := e.(map[string]any)
		merged(union, clone(m))
		flat, item := parameters{}, map[string]string{}
		flatten("", m, flat)
		for k, v := range flat {
			item[listField(k)] = fmt.Sprint(v)
		}
		items = append(items, item)
	}
	g.probe.list = items
	return []parameters{g.params(g.marked(union, "", listField).(map[string]any))}
}

// listField is the name of an item's field for a parameter that may be nested.
func listField(name string) string { return strings.ReplaceAll(name, ".", "-") }

func asWritten(name string) string { return name }

// marked is a tree with a mark in place of each scalar.
func (g *generator) marked(v any, name string, field func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range keys(v) {
			at := k
			if name != "" {
				at = name + "." + k
			}
			out[k] = g.marked(v[k], at, field)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = g.marked(e, fmt.Sprintf("%s.%d", name, i), field)
		}
		return out
	}
	return g.mark(field(name), v)
}

// probeGit is the item of a git generator.
func (g *generator) probeGit(block map[string]any) ([]parameters, error) {
	files := list(block, "files")
	name, form := "directories", list(block, "directories")
	if len(files) > 0 {
		name, form = "files", files
	}
	var patterns []any
	for _, f := range form {
		m, _ := f.(map[string]any)
		pattern, sign := text(m, "path"), ""
		if exclude, _ := m["exclude"].(bool); exclude {
			sign = "!"
		}
		for _, one := range alternatives(strings.TrimPrefix(pattern, "./")) {
			if err := fleet.CheckListPattern(sign + one); err != nil {
				return nil, fmt.Errorf("pattern %q: %w", pattern, err)
			}
			patterns = append(patterns, sign+one)
		}
	}
	url, revision := text(block, "repoURL"), text(block, "revision")
	if others := spellingsOf(url); len(others) > 0 {
		url, _ = others[len(others)-1].(string)
	}
	if revision == "" {
		revision = "HEAD"
	}
	g.probe.sources[name] = map[string]any{"repoURL": url, "targetRevision": revision,
		"paths": patterns}
	content := map[string]any{}
	prefix := text(block, "pathParamPrefix")
	if name == "files" && g.probe.known != nil {
		content = g.blindContent(prefix)
	} else if name == "files" && g.im.Tree == nil {
		if strings.Contains(writeYAML(g.set.Object["spec"]), "clusters:") {
			return nil, errors.New("a field may be the cluster's or the file's")
		}
		content = g.fieldsRead()
	} else if name == "files" {
		for _, file := range g.im.files() {
			if !slices.ContainsFunc(files, func(f any) bool {
				m, _ := f.(map[string]any)
				form, err := lsFiles(text(m, "path"))
				return err == nil && form.MatchString(file)
			}) {
				continue
			}
			found, err := g.file(file)
			if err != nil || len(found) != 1 {
				return nil, errors.New("a file does not hold one map")
			}
			merged(content, clone(found[0]))
		}
	}
	content, _ = g.marked(content, "", asWritten).(map[string]any)
	segments := make([]any, 8)
	for i := range segments {
		segments[i] = g.mark(fmt.Sprintf("path.segments.%d", i), "")
	}
	folder, base := g.mark("path", ""), g.mark("path.basename", "")
	p := g.params(content)
	at := map[string]any{"path": folder, "basename": base, "basenameNormalized": base,
		"segments": segments}
	if name == "files" {
		file := g.mark("path.filename", "")
		at["filename"], at["filenameNormalized"] = file, file
	}
	switch {
	case g.r.goTemplate && prefix != "":
		p[prefix] = map[string]any{"path": at}
	case g.r.goTemplate:
		p["path"] = at
	default:
		name := strings.TrimPrefix(prefix+".path", ".")
		p[name] = folder
		for k, v := range at {
			if k != "path" && k != "segments" {
				p[name+"."+k] = v
			}
		}
		for i, s := range segments {
			p[fmt.Sprintf("%s[%d]", name, i)] = s
		}
	}
	values, err := g.r.tree(orEmpty(object(block, "values")), p)
	if err != nil {
		return nil, err
	}
	if g.r.goTemplate {
		p["values"] = values
	} else {
		flatten("values", values, p)
	}
	return []parameters{p}, nil
}

var (
	goTag = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	// of a tag that gives the value of a field as it is
	goPlain = regexp.MustCompile(
		`^\{\{-?\s*(\.[A-Za-z_][\w.]*|index\s+\.path\.segments\s+\d+|index\s+\.metadata\.\w+\s+"[^"]*")\s*-?\}\}$`)
	goField = regexp.MustCompile(`(?:^|[^\w)\]"])\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)`)
)

// fieldsRead are the fields of a file that the template of the ApplicationSet reads, with any
// values.
func (g *generator) fieldsRead() map[string]any {
	out := map[string]any{}
	add := func(name string) {
		if first, _, _ := strings.Cut(strings.Replace(name, "[", ".", 1), "."); first != "path" {
			put(out, strings.Split(name, "."), "")
		}
	}
	spec := fmt.Sprint(g.set.Object["spec"])
	if !g.r.goTemplate {
		for _, found := range tag.FindAllStringSubmatch(spec, -1) {
			add(found[1])
		}
		return out
	}
	for _, found := range goTag.FindAllString(spec, -1) {
		for _, field := range goField.FindAllStringSubmatch(found, -1) {
			add(field[1])
		}
	}
	return out
}

var braces = regexp.MustCompile(`\{([^{}]*)\}`)

// alternatives are the patterns that one with groups {a,b} is short for.
func alternatives(pattern string) (all []string) {
	at := braces.FindStringSubmatchIndex(pattern)
	if at == nil {
		return []string{pattern}
	}
	for _, one := range strings.Split(pattern[at[2]:at[3]], ",") {
		all = append(all, alternatives(pattern[:at[0]]+one+pattern[at[1]:])...)
	}
	return all
}

// listing is what the repository at hand has for a request.
func (im *importer) listing(r fleet.ListingRequest) (fleet.Listing, error) {
	if im.Tree == nil {
		return fleet.Listing{}, fleet.ErrNoListing
	}
	var entries []fleet.Listed
	all := im.Tree.Dirs
	if r.Files {
		all = im.Tree.Files
	}
	for _, p := range all {
		switch {
		case !r.Wants(p):
		case !r.Files:
			entries = append(entries, fleet.Listed{Path: p})
		default:
			b, err := im.Tree.Read(p)
			if err != nil {
				return fleet.Listing{}, err
			}
			entries = append(entries, configschema.ListFile(p, b))
		}
	}
	return fleet.NewListing(r, "", entries)
}

// addProbe adds the Applications that an ApplicationSet generates for the probe, one for each
// cluster.
func (im *importer) addProbe(s, of *set) {
	spec := object(s.Object, "spec")
	if listed(list(spec, "generators")) {
		im.addListProbes(s, of)
		return
	}
	p := &probe{marks: map[string]string{}, sources: map[string]any{}}
	g := &generator{im: im, set: &set{Original: s.Original}, probe: p,
		r: renderer{goTemplate: rendererOf(spec).goTemplate}}
	first, _ := list(spec, "generators")[0].(map[string]any)
	found, err := g.generate("spec.generators[0]", first, nil)
	if err != nil {
		return
	}
	charts := len(s.apps) > 0
	for _, a := range s.apps {
		charts = charts && im.chart(text(a.Object, "spec", "source", "path"))
	}
	for _, params := range found {
		o, err := im.generated(s, g.r, params)
		if err != nil {
			return
		}
		if folder := text(o.Object, "spec", "source", "path"); charts && folder != "" {
			im.filesAt[path.Join(path.Clean(folder), "Chart.yaml")] = true
		}
		p.apps = append(p.apps, im.add(o, s))
	}
	s.probes = append(s.probes, p)
}

// fold writes ApplicationSets as sets: a set replaces the deployments of an ApplicationSet if it
// gives exactly them. A second import, with a probe in each ApplicationSet, shows which texts of
// the deployment come from an item.
func (im *importer) fold(files []configschema.File) ([]configschema.File, error) {
	if !slices.ContainsFunc(im.sets, (*set).whole) {
		return files, nil
	}
	trial := newImporter(im.Input, im.Options, im.tools)
	trial.probed, trial.decision = im.sets, im.decision
	trial.read()
	if _, err := trial.complete(); err != nil {
		return nil, err
	}
	for i, s := range im.sets {
		if s.whole() && len(trial.sets[i].probes) > 0 && !slices.ContainsFunc(s.apps, im.further) {
			files = im.foldSet(s, trial.sets[i], files)
		}
	}
	return files, nil
}

// whole reports whether every Application of a foldable ApplicationSet is written, in deployments
// that no other Application shares.
func (s *set) whole() bool {
	return len(s.apps) > 0 && foldable(object(s.Object, "spec")) &&
		!slices.ContainsFunc(s.apps, func(a *app) bool { return a.out() || a.draft == nil })
}

// foldSet returns the files with sets in place of the deployments of an ApplicationSet, one for
// each tenant, or unchanged if there are none that give them.
func (im *importer) foldSet(s, trial *set, files []configschema.File) []configschema.File {
	next, folded := files, map[*app]string{}
	for _, p := range trial.probes {
		if p.of == nil {
			p.of = s.apps
		}
		var file string
		if next, file = im.foldProbe(s, p, next); file == "" {
			return files
		}
		for _, a := range p.of {
			folded[a] = file
		}
	}
	for _, a := range s.apps {
		a.folded = folded[a]
	}
	s.folded = true
	p := trial.probes[0]
	// without a selector, a new cluster needs an edit, as before
	clusters := strings.Contains(writeYAML(object(s.Object, "spec")["generators"]), "clusters:") &&
		!strings.Contains(writeYAML(p.template()), "environmentSelector:")
	s.losses = slices.DeleteFunc(s.losses, func(l Difference) bool {
		return !clusters && !strings.HasSuffix(l.Path, ".clusters") ||
			strings.HasSuffix(l.Path, ".git")
	})
	if functions := functionTags(object(s.Object, "spec")); len(functions) > 0 {
		s.lose(Difference{Path: "spec.template", From: anys(functions),
			Reason: "evaluated for the present items; compare what a new item gives"})
	}
	if p.sources["files"] != nil {
		s.notes = append(s.notes, "in paths of the set, * matches within one folder")
	}
	return next
}

// foldProbe returns the files with the set of a probe in place of deployments, and the file of the
// set, or "" if it does not give them.
func (im *importer) foldProbe(s *set, p *probe, files []configschema.File) ([]configschema.File,
	string) {
	template, apps := p.template(), p.of
	if template == nil {
		return files, ""
	}
	mine := map[string]bool{}
	for _, a := range apps {
		mine[pathOf(a.draft.key)] = true
	}
	for _, a := range im.apps {
		if a.set != s && !a.out() && mine[pathOf(a.draft.key)] {
			return files, ""
		}
	}
	tenant := apps[0].draft.key.Tenant
	if p.name == "" {
		p.name = im.setName(s, tenant)
	}
	d := newDraft(fleet.SetKey(tenant, p.name))
	for _, source := range keys(p.sources) {
		put(d.document, steps("spec."+source), p.sources[source])
	}
	if items := p.list; items != nil {
		put(d.document, steps("spec.list"), usedFields(items, writeYAML(template)))
	}
	put(d.document, steps("spec.template"), template)
	file, err := d.file()
	if err != nil {
		return files, ""
	}
	file.Listings = im.listing
	if im.Tree == nil && len(p.sources) > 0 {
		// the Applications do not show the fields if a function may have chosen between two
		if len(functionTags(object(s.Object, "spec"))) > 0 {
			return files, ""
		}
		file.Listings = listingOf(template, draftsOf(apps))
	}
	if !gives(file, mine, files) {
		return im.foldNamed(s, p, files)
	}
	if im.Adopt {
		orCreate(d, template)
		listings := file.Listings
		if file, err = d.file(); err != nil {
			return files, ""
		}
		file.Listings = listings
	}
	next := slices.DeleteFunc(slices.Clone(files), func(f configschema.File) bool {
		return mine[f.Path]
	})
	next = append(next, file)
	var granted []any
	for _, source := range keys(p.sources) {
		url := text(p.sources, source, "repoURL")
		grant := im.tenants[tenant].draft
		if written := texts(grant.document, "spec", "repositories"); !fleet.RepositoryGranted(
			written, url) {
			granted = list(grant.document, "spec", "repositories")
			grant.put("spec.repositories", append(slices.Clone(granted), any(url)))
			next = replaced(next, grant)
		}
	}
	slices.SortFunc(next, func(a, b configschema.File) int {
		return strings.Compare(a.Path, b.Path)
	})
	if slices.ContainsFunc(configschema.Check(next), func(p fleet.Problem) bool {
		return p.Severity == fleet.SeverityError
	}) {
		if granted != nil {
			im.tenants[tenant].draft.put("spec.repositories", granted)
		}
		return files, ""
	}
	return next, pathOf(d.key)
}

// orCreate lets a set create the Applications of new items, as the ApplicationSet did.
func orCreate(d *draft, template map[string]any) {
	for _, entry := range list(template, "spec", "adopt") {
		if m, ok := entry.(map[string]any); ok {
			m["orCreate"] = true
		}
	}
	put(d.document, steps("spec.template"), template)
	d.text = nil
}

// functionTags are the tags of an ApplicationSet that are more than the value of a field, sorted.
func functionTags(spec map[string]any) (found []string) {
	if goTemplate, _ := spec["goTemplate"].(bool); !goTemplate {
		return nil
	}
	for _, one := range goTag.FindAllString(fmt.Sprint(spec), -1) {
		if !goPlain.MatchString(one) {
			found = append(found, one)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// draftsOf are the deployments of some Applications, each once.
func draftsOf(apps []*app) (all []*draft) {
	for _, a := range apps {
		if !slices.Contains(all, a.draft) {
			all = append(all, a.draft)
		}
	}
	return all
}

// listingOf is the listing from which a template gives some deployments: that of the repository
// when Argo CD generated them. Fields that the template lacks are not in it.
func listingOf(template map[string]any, drafts []*draft) fleet.Listings {
	return func(r fleet.ListingRequest) (fleet.Listing, error) {
		l := fleet.Listing{Request: r}
		for i, d := range drafts {
			fields := map[string]string{}
			for range 4 { // a text with two fields gives one of them when the other is known
				unify(template["metadata"], d.document["metadata"], fields)
				unify(template["spec"], d.document["spec"], fields)
			}
			e := fleet.Listed{Path: pathIn(r, fields, i)}
			if r.Files {
				e.Fields = map[string]string{}
				for k, v := range fields {
					if k != "path" && !strings.HasPrefix(k, "path.") {
						e.Fields[k] = v
					}
				}
			}
			if !r.Wants(e.Path) {
				return fleet.Listing{}, fmt.Errorf("%q is no item", e.Path)
			}
			l.Entries = append(l.Entries, e)
		}
		slices.SortFunc(l.Entries, func(a, b fleet.Listed) int {
			return strings.Compare(a.Path, b.Path)
		})
		return l, nil
	}
}

// unify adds the fields of an item that follow from the texts of a template and of what it gave.
func unify(template, given any, fields map[string]string) {
	switch t := template.(type) {
	case map[string]any:
		g, _ := given.(map[string]any)
		for k := range t {
			unify(t[k], g[k], fields)
		}
	case []any:
		g, _ := given.([]any)
		for i := range min(len(t), len(g)) {
			unify(t[i], g[i], fields)
		}
	case string:
		g, isText := given.(string)
		for k, v := range fields {
			t = strings.ReplaceAll(t, "${item."+k+"}", v)
		}
		found := itemIn.FindAllStringSubmatchIndex(t, -1)
		if !isText || len(found) != 1 {
			return
		}
		at := found[0]
		rest, before := strings.CutPrefix(g, t[:at[0]])
		value, after := strings.CutSuffix(rest, t[at[1]:])
		if before && after {
			fields[t[at[2]:at[3]]] = value
		}
	}
}

// pathIn is the path of an item with some fields. Segments that do not follow from them are those
// of the request's pattern.
func pathIn(r fleet.ListingRequest, fields map[string]string, number int) string {
	pattern := ""
	for p := range strings.SplitSeq(r.Paths, "\n") {
		if !strings.HasPrefix(p, "!") && pattern == "" {
			pattern = p
		}
	}
	folder, file := pattern, ""
	if r.Files {
		folder, file = path.Dir(pattern), "/"+path.Base(pattern)
		if name := fields["path.filename"]; name != "" {
			file = "/" + name
		}
	}
	if whole := fields["path"]; whole != "" {
		return whole + file
	}
	segments := strings.Split(folder, "/")
	for i := range segments {
		if s := fields[fmt.Sprintf("path.segments.%d", i)]; s != "" {
			segments[i] = s
		}
	}
	last := len(segments) - 1
	if base := fields["path.basename"]; base != "" {
		segments[last] = base
	}
	for i := range segments {
		if segments[i] == "*" || segments[i] == "**" {
			segments[i] = fmt.Sprintf("item-%d", number)
		}
	}
	return strings.Join(segments, "/") + file
}

// replaced returns the files with that of a draft.
func replaced(files []configschema.File, d *draft) []configschema.File {
	f, err := d.file()
	if err != nil {
		return files
	}
	for i := range files {
		if files[i].Path == f.Path {
			files[i] = f
		}
	}
	return files
}

// setName is a free name of a set.
func (im *importer) setName(s *set, t fleet.TenantName) string {
	name := validName(s.Name, "set")
	for n := 2; ; n++ {
		k := fleet.SetKey(t, name)
		if !im.patternNames[k] {
			im.patternNames[k] = true
			return name
		}
		name = validName(fmt.Sprintf("%s-%d", s.Name, n), "set")
	}
}

// template is the template of the set: the deployment of the probe, with variables in place of
// marks; nil if the clusters give the probe several deployments.
func (p *probe) template() map[string]any {
	var d *draft
	for _, a := range p.apps {
		if a.out() || a.draft == nil || d != nil && a.draft != d {
			return nil
		}
		d = a.draft
	}
	if d == nil {
		return nil
	}
	document, _ := unmarked(d.document, p.marks).(map[string]any)
	if p.named {
		put(document, steps("metadata.name"), "${item."+nameField+"}")
	}
	if p.environments != nil {
		put(document, steps("spec.destination.environments"), p.environments)
	}
	return map[string]any{"metadata": document["metadata"], "spec": document["spec"]}
}

var itemIn = regexp.MustCompile(`\$\{item\.([^}]+)\}`)

// usedFields are the items of a list with the fields that a template has.
func usedFields(items []map[string]string, template string) (out []any) {
	used := map[string]bool{}
	for _, found := range itemIn.FindAllStringSubmatch(template, -1) {
		used[found[1]] = true
	}
	for _, item := range items {
		m := map[string]any{}
		for _, k := range keys(used) {
			if v, ok := item[k]; ok {
				m[k] = v
			}
		}
		out = append(out, m)
	}
	return out
}

// gives reports whether a set gives the deployments of some files, and no others.
func gives(file configschema.File, paths map[string]bool, files []configschema.File) bool {
	doc := configschema.Decode(file)
	if doc.Declaration == nil || len(doc.Declaration.Set.Generated) != len(paths) {
		return false
	}
	given := map[string]*fleet.Declaration{}
	for _, g := range doc.Declaration.Set.Generated {
		if g.Declaration == nil {
			return false
		}
		given[pathOf(g.Declaration.Key)] = g.Declaration
	}
	for _, f := range files {
		if !paths[f.Path] {
			continue
		}
		want, got := configschema.Decode(f).Declaration, given[f.Path]
		if want == nil || got == nil || !reflect.DeepEqual(want.Labels, got.Labels) ||
			!reflect.DeepEqual(want.Deployment, got.Deployment) {
			return false
		}
	}
	return true
}
