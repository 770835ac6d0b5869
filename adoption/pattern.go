package adoption

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// errNoClusters is the error of a clusters generator if no cluster Secret is at hand.
var errNoClusters = errors.New("no cluster Secret is at hand")

// pattern is a deployment with a selector for the clusters of an ApplicationSet that are not at
// hand: what differs between clusters is written as variables and overrides.
type pattern struct {
	draft  *draft
	tenant fleet.TenantName
	app    *app // that the first assumed cluster would get

	// of a set whose repository is not at hand: see unlisted
	from      map[string]any // the deployment of its template
	lists     []string       // repositories
	env       *environment   // nil: those that a selector chooses
	namespace string         // of every item, or a prefix; "" if it varies

	refusal string // of the whole config repo
}

// deployment is the document of a deployment with what the pattern needs to be granted.
func (p *pattern) deployment() map[string]any {
	if p.from != nil {
		return p.from
	}
	return p.draft.document
}

// assumed is a cluster with the labels and annotations that a template reads. Its name and their
// values are marks that occur nowhere else, so that their places can be written as variables.
type assumed struct {
	name                string
	labels, annotations map[string]any
	in                  map[layer]bool // that change what it gets
	marks               map[string]string
}

// markOfCluster is the beginning of the marks of assumed clusters.
const markOfCluster = "zqx-"

func (a assumed) server() string { return "https://" + a.name + ".example.com" }

var metadataInTemplate = regexp.MustCompile(
	`metadata\.(labels|annotations)(?:\.([A-Za-z0-9][A-Za-z0-9_./-]*)|\s+"([^"]+)")`)

// assume is an assumed cluster of a set.
func (s *set) assume(suffix string, in ...layer) assumed {
	c := assumed{name: markOfCluster + "name-" + suffix, labels: map[string]any{},
		annotations: map[string]any{}, in: map[layer]bool{}, marks: map[string]string{}}
	c.marks[c.name] = "${environment.name}"
	for _, l := range in {
		c.in[l] = true
	}
	for _, found := range metadataInTemplate.FindAllStringSubmatch(
		fmt.Sprint(s.Object["spec"]), -1) {
		values, variable := c.labels, "${environment.labels."
		if found[1] == "annotations" {
			values, variable = c.annotations, "${environment.variables."
		}
		name := annotationOf(found)
		switch fixed, isFixed := s.fixed[name]; {
		case values[name] != nil:
		case isFixed && found[1] == "annotations":
			values[name] = fixed
		default:
			mark := fmt.Sprintf("%s%s%d-%s", markOfCluster, found[1][:1], len(values), suffix)
			values[name] = mark
			c.marks[mark] = variable + name + "}"
		}
	}
	return c
}

// annotationOf is the name in a match of metadataInTemplate.
func annotationOf(found []string) string { return strings.TrimRight(found[2], "_./-") + found[3] }

// layer is a generator after the first one of a merge of clusters, or one element of a list there:
// it changes the parameters of some clusters.
type layer struct {
	generator, element int // the element is -1 if the generator is of clusters
}

// layersOf are the layers of an ApplicationSet whose only generator is a merge of clusters, and the
// selector of each: of a list, the label with the name of the cluster. ok is false if there is
// another generator.
func layersOf(generators []any) (layers []layer, selectors map[layer]map[string]any, ok bool) {
	if len(generators) != 1 {
		return nil, nil, false
	}
	only, _ := generators[0].(map[string]any)
	block := object(only, "merge")
	names := texts(block, "mergeKeys")
	if len(names) != 1 || !slices.Contains([]string{"server", "name", "nameNormalized"}, names[0]) {
		return nil, nil, false
	}
	selectors = map[layer]map[string]any{}
	for i, raw := range list(block, "generators") {
		part, _ := raw.(map[string]any)
		clusters, isClusters := part["clusters"].(map[string]any)
		elements, isList := part["list"].(map[string]any)
		switch {
		case len(part) != 1 || i == 0 && !isClusters:
			return nil, nil, false
		case i == 0:
		case isClusters:
			l := layer{i, -1}
			layers, selectors[l] = append(layers, l), withoutType(object(clusters, "selector"))
		case isList && names[0] != "server" && text(elements, "elementsYaml") == "":
			for j, e := range list(elements, "elements") {
				m, _ := e.(map[string]any)
				l := layer{i, j}
				layers, selectors[l] = append(layers, l), map[string]any{
					"matchLabels": map[string]any{clusterLabel: text(m, names[0])}}
			}
		default:
			return nil, nil, false
		}
	}
	return layers, selectors, true
}

// clusterLabel is the label of an environment that an override for one cluster selects.
const clusterLabel = "cluster"

// clusterType is the label that every cluster Secret has.
const clusterType = "argocd.argoproj.io/secret-type"

// allBut begins the label whose absence selects every environment.
const allBut = "without-"

// withoutType is a selector of cluster Secrets for environments: without the label that every
// cluster Secret has.
func withoutType(selector map[string]any) map[string]any {
	out, _ := clone(selector).(map[string]any)
	delete(object(out, "matchLabels"), clusterType)
	out, _ = compact(any(out)).(map[string]any)
	return out
}

// layered are the parameters that one generator of a merge adds to the assumed cluster.
func (a assumed) layered(generator int, found []parameters, isList bool) (kept []parameters) {
	for i, p := range found {
		l := layer{generator, -1}
		if isList {
			l.element = i
			for k, v := range map[string]string{"name": a.name, "nameNormalized": a.name} {
				if _, ok := p[k]; ok {
					p[k] = v
				}
			}
		}
		if a.in[l] {
			kept = append(kept, p)
		}
	}
	return kept
}

// maxLayers bounds the assumed clusters of one ApplicationSet: each is rendered.
const maxLayers = 60

// patterns writes an ApplicationSet over clusters that are not at hand as deployments with the
// selector of its generator, or returns why it cannot. Assumed clusters prove each of them: what is
// rendered in their environments equals what the ApplicationSet generates for them. There are two,
// one more for each layer, and one for each two layers that change something.
func (im *importer) patterns(s *set, r renderer) string {
	generators := list(s.Object, "spec", "generators")
	layers, selectors, merged := layersOf(generators)
	if s.selector == nil && merged {
		s.selector = clusterSelector(partsOf(s)[:1], s.Name)
	}
	if s.selector == nil {
		return "spec.generators: no cluster Secret at hand matches, and one selector cannot replace " +
			"the generators; import with the cluster Secrets, or from the live Argo CD"
	}
	if len(layers) > maxLayers {
		return fmt.Sprintf("spec.generators: the merge changes more than %d clusters", maxLayers)
	}
	im.loseOwn(s)
	r.guarded = true
	if err := im.fixAnnotations(s, r); errors.Is(err, errNotListed) {
		return im.unlisted(s, r)
	} else if err != nil {
		return err.Error()
	}
	clusters := []assumed{s.assume("one"), s.assume("two")}
	for i, l := range layers {
		clusters = append(clusters, s.assume(fmt.Sprintf("l%d", i), l))
	}
	var all [][]Original // by cluster
	for _, c := range clusters {
		apps, err := im.assumedApplications(s, r, c)
		if err != nil {
			return err.Error()
		}
		if all = append(all, apps); len(apps) != len(all[0]) {
			return "spec.generators: the number of Applications depends on the cluster"
		}
	}
	changing := changingLayers(layers, clusters, all)
	for i, a := range changing {
		for j, b := range changing[:i] {
			if len(clusters) > 2*maxLayers || a.element >= 0 && a.generator == b.generator {
				continue
			}
			c := s.assume(fmt.Sprintf("p%dx%d", j, i), b, a)
			apps, err := im.assumedApplications(s, r, c)
			if err != nil {
				return err.Error()
			}
			clusters, all = append(clusters, c), append(all, apps)
		}
	}
	for i := range all[0] {
		var originals []Original
		for _, apps := range all {
			originals = append(originals, apps[i])
		}
		if reason := im.pattern(s, originals, clusters, changing, selectors); reason != "" {
			return reason
		}
	}
	for _, l := range changing {
		if l.element >= 0 {
			s.lose(Difference{Path: fmt.Sprintf("spec.generators[0].merge.generators[%d].list."+
				"elements[%d]", l.generator, l.element),
				From: list(partsOf(s)[l.generator].(map[string]any), "list",
					"elements")[l.element], To: selectors[l],
				Reason: "an override selects the cluster: give this label to its environment"})
		}
	}
	im.noteVariables(s, clusters[0])
	return ""
}

// ownCluster is the path of the differences of loseOwn.
const ownCluster = "spec.generators.clusters.in-cluster"

// loseOwn reports that a selector of all environments chooses those of Argo CD's own cluster too,
// which no assumed cluster proves, and which the label of cluster Secrets alone excludes.
func (im *importer) loseOwn(s *set) {
	generators := list(s.Object, "spec", "generators")
	for _, e := range list(s.selector, "matchExpressions") {
		m, _ := e.(map[string]any)
		switch label := text(m, "key"); {
		case !strings.HasPrefix(label, allBut):
		case strings.Contains(fmt.Sprint(generators), clusterType):
			s.lose(Difference{Path: "spec.generators.clusters.selector", From: clusterType,
				To: s.selector, Reason: "every cluster Secret has this label, and Argo CD's own " +
					"cluster has no Secret: give label " + label + " to the environments there"})
		default:
			s.lose(Difference{Path: ownCluster, From: inCluster, To: s.selector,
				Reason: "not proven on Argo CD's own cluster, whose environment may have another " +
					"name: compare what it gets, or give it label " + label})
		}
	}
}

// partsOf are the generators of the merge of an ApplicationSet.
func partsOf(s *set) []any {
	only, _ := list(s.Object, "spec", "generators")[0].(map[string]any)
	return list(only, "merge", "generators")
}

// changingLayers are the layers whose clusters get another Application than the others.
func changingLayers(layers []layer, clusters []assumed, all [][]Original) (found []layer) {
	plain := func(i int) string {
		objects := make([]any, len(all[i]))
		for n, o := range all[i] {
			objects[n] = unmarked(o.Object, withServer(clusters[i]))
		}
		return writeYAML(objects)
	}
	for i, l := range layers {
		if plain(i+2) != plain(0) {
			found = append(found, l)
		}
	}
	return found
}

// withServer are the marks of a cluster and its server.
func withServer(c assumed) map[string]string {
	marks := maps.Clone(c.marks)
	marks[c.server()] = "{{server}}"
	return marks
}

// fixAnnotations finds the annotations that a repository or chart comes from, which are the same in
// every environment. Their values are those of the options, or names that no host has.
func (im *importer) fixAnnotations(s *set, r renderer) error {
	c := s.assume("one")
	apps, err := im.assumedApplications(s, r, c)
	if err != nil {
		return err
	}
	for _, o := range apps {
		spec := object(o.Object, "spec")
		for _, raw := range append(slices.Clone(list(spec, "sources")), spec["source"]) {
			source, _ := raw.(map[string]any)
			for _, field := range []string{"repoURL", "chart"} {
				written := text(source, field)
				for _, name := range keys(c.annotations) {
					mark, _ := c.annotations[name].(string)
					if at := strings.Index(written, mark); at >= 0 {
						im.fixAnnotation(s, name, field, at == 0)
					}
				}
			}
		}
	}
	return nil
}

// placeholderHost is the end of hosts that exist nowhere (RFC 2606).
const placeholderHost = ".invalid"

func (im *importer) fixAnnotation(s *set, name, field string, first bool) {
	if s.fixed == nil {
		s.fixed = map[string]string{}
	}
	if _, ok := s.fixed[name]; ok {
		return
	}
	loss := Difference{Path: "spec.generators.clusters.metadata.annotations" + key(name),
		Reason: "--annotation gives it for every cluster, since a repository and a chart are " +
			"the same in every environment"}
	value, given := im.Annotations[name]
	if !given {
		value = validName(name, "annotation")
		if field == "repoURL" && first {
			value = "https://" + value + placeholderHost + "/set-me"
		}
		loss.hard = true
		loss.Reason = "no cluster at hand has the annotation, and a repository and a chart are the " +
			"same in every environment: nothing is deployed until you import with --annotation " +
			name + "=VALUE, or replace the value in the file"
	}
	s.fixed[name], loss.From, loss.To = value, "{{metadata.annotations."+name+"}}", value
	s.lose(loss)
}

// noteClusters adds what all ApplicationSets need of clusters that are not at hand: the variables
// of environments, and values of annotations.
func (im *importer) noteClusters() {
	variables, values, waiting := map[string]int{}, map[string]bool{}, 0
	for _, s := range im.sets {
		if s.result.Status == Refused {
			continue
		}
		for _, name := range s.variables {
			variables[name]++
		}
		missing := slices.DeleteFunc(keys(s.fixed), func(name string) bool {
			_, given := im.Annotations[name]
			return given
		})
		for _, name := range missing {
			values[name] = true
		}
		if len(missing) > 0 {
			waiting++
		}
	}
	if len(variables) > 0 {
		var names []string
		for _, name := range keys(variables) {
			names = append(names, fmt.Sprintf("%s (%s)", name, plural(variables[name],
				"ApplicationSet")))
		}
		im.notes = append(im.notes, "give each environment that a selector chooses the variables "+
			strings.Join(names, ", ")+": the values of these annotations of its cluster")
	}
	if len(values) > 0 {
		var flags []string
		for _, name := range keys(values) {
			flags = append(flags, "--annotation "+name+"=VALUE")
		}
		im.notes = append(im.notes, fmt.Sprintf("import again with %s: no cluster at hand has "+
			"these annotations, without which %s cannot deploy", strings.Join(flags, " "),
			plural(waiting, "ApplicationSet")))
	}
}

// noteVariables adds what the environments must have, and the functions whose result depends on it.
func (im *importer) noteVariables(s *set, c assumed) {
	var names []string
	for _, name := range keys(c.annotations) {
		if v, _ := c.annotations[name].(string); c.marks[v] != "" {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		s.variables = names
		s.notes = append(s.notes, "give each environment the variables "+strings.Join(names, ", ")+
			": the values of these annotations of its cluster")
	}
	tags := slices.DeleteFunc(functionTags(object(s.Object, "spec")), func(tag string) bool {
		return !ofCluster.MatchString(tag)
	})
	if len(tags) > 0 {
		s.lose(Difference{Path: "spec.template", From: anys(tags), Reason: "evaluated for a " +
			"cluster that has every label and annotation, in lower case; compare what each " +
			"environment gets"})
	}
}

var ofCluster = regexp.MustCompile(`\.(metadata|name|nameNormalized|server|values)\b`)

// assumedApplications are the Applications that the ApplicationSet generates for one cluster.
func (im *importer) assumedApplications(s *set, r renderer, c assumed) (all []Original, err error) {
	g := &generator{im: im, set: s, r: r, assumed: &c, probe: s.blind}
	for i, raw := range list(s.Object, "spec", "generators") {
		m, _ := raw.(map[string]any)
		params, err := g.generate(fmt.Sprintf("spec.generators[%d]", i), m, nil)
		if err != nil {
			return nil, err
		}
		for _, p := range params {
			o, err := im.generated(s, r, p)
			if err != nil {
				return nil, err
			}
			all = append(all, o)
		}
	}
	return all, nil
}

// pattern proves one deployment in an import of its own and keeps it.
func (im *importer) pattern(s *set, originals []Original, clusters []assumed, layers []layer,
	selectors map[layer]map[string]any) string {
	trial := im.trial(newClusters(im.Engine, nil))
	apps := make([]*app, len(originals))
	for i, o := range originals {
		known := trial.clusters.add(clusters[i].name, clusters[i].server())
		known.labels, known.variables = maps.Clone(clusters[i].labels), clusters[i].annotations
		for n, l := range layers {
			if clusters[i].in[l] {
				known.labels[trialLabel(n)] = "true"
			}
		}
		apps[i] = trial.add(im.ofEveryCluster(s, o, clusters[i]), s)
		if apps[i].refused() {
			return apps[i].result.Reason
		}
		if apps[i].cluster != known {
			return "spec.template.spec.destination: it is not the cluster of the generator, and no " +
				"set has an item for each cluster; import with the cluster Secrets, or from the " +
				"live Argo CD, for a deployment for each"
		}
		if apps[i].tenant != apps[0].tenant {
			return "spec.template.spec.project: it depends on the cluster"
		}
	}
	trial.nameEnvironments()
	name := patternName(apps[0].Name, clusters[0].marks, s.Name)
	d := unmarkedDeployment(apps[0], name, clusters[0])
	overrides, of := []any{}, []layer{}
	for i, c := range clusters {
		if len(c.in) != 1 {
			continue
		}
		n := slices.IndexFunc(layers, func(l layer) bool { return c.in[l] })
		if n < 0 {
			continue
		}
		all, reason := layerOverrides(d.document, unmarkedDeployment(apps[i], name, c).document)
		if reason != "" {
			return "spec.generators[0].merge: " + reason
		}
		for _, o := range all {
			o["selector"] = map[string]any{"matchLabels": map[string]any{trialLabel(n): "true"}}
			overrides, of = append(overrides, o), append(of, layers[n])
		}
	}
	d.set("spec.overrides", overrides)
	var environments []any
	for _, a := range apps {
		environments = append(environments, string(a.env))
	}
	d.put("spec.destination.environments", environments)
	d.fit()
	if d.refusal == "" && len(list(d.document, "spec", "overrides")) != len(overrides) {
		d.refusal = "spec.generators[0].merge: " + d.reason("spec.overrides")
	}
	if d.refusal != "" {
		return d.refusal
	}
	for _, a := range apps {
		a.draft = d
		a.namespace = text(a.Object, "spec", "destination", "namespace")
		if a.namespace == "" {
			a.namespace = name
		}
		a.lost = a.metadataLost(im.ArgoNamespace)
	}
	if _, err := trial.complete(); err != nil {
		return err.Error()
	}
	for _, a := range apps {
		if a.refused() {
			s.result.reasons = append(s.result.reasons, a.result.causes()...)
			return a.result.Reason
		}
	}
	for i, l := range of {
		d.put(fmt.Sprintf("spec.overrides[%d].selector", i), selectors[l])
	}
	im.keepPattern(s, d, apps, clusters)
	return ""
}

// trial is an import of its own that proves one deployment.
func (im *importer) trial(c *clusters) *importer {
	return &importer{Options: im.Options, tools: im.tools,
		tenants: map[fleet.TenantName]*tenant{}, clusters: c, decision: im.decision,
		ownerless: map[site]bool{}, filesAt: im.filesAt, owned: map[string][]Original{}}
}

// trialLabel is the label that the assumed clusters of a layer have.
func trialLabel(n int) string { return fmt.Sprintf("%slayer-%d", markOfCluster, n) }

// unmarkedDeployment proposes the deployment of an Application of an assumed cluster, with
// variables in place of marks.
func unmarkedDeployment(a *app, name string, c assumed) *draft {
	d := a.deployment(name, nil)
	d.document, _ = unmarked(d.document, c.marks).(map[string]any)
	for field, others := range d.spellings {
		for i := range others {
			others[i] = unmarked(others[i], c.marks)
		}
		d.spellings[field] = others
	}
	return d
}

// ofEveryCluster is an Application in the project of all clusters, if each cluster has one of its
// own: a deployment belongs to one tenant.
func (im *importer) ofEveryCluster(s *set, o Original, c assumed) Original {
	project := text(o.Object, "spec", "project")
	if _, depends := unmarked(project, withServer(c)).(string); !depends ||
		unmarked(project, withServer(c)) == project {
		return o
	}
	o.Object, _ = clone(o.Object).(map[string]any)
	put(o.Object, steps("spec.project"), defaultProject)
	s.lose(Difference{Path: "spec.template.spec.project",
		From: text(s.Object, "spec", "template", "spec", "project"),
		To:   string(im.tenantOfProject(defaultProject)),
		Reason: "each cluster has a project of its own, and the deployment of all clusters " +
			"belongs to one tenant; its environments keep the clusters apart"})
	return o
}

// layerOverrides are the overrides that change one deployment into another, one for each source; or
// the reason why there are none.
func layerOverrides(base, other map[string]any) (all []map[string]any, reason string) {
	var diffs []Difference
	diff("", base, other, &diffs)
	parts := map[string]map[string]any{}
	for _, d := range diffs {
		field, of, source := strings.TrimPrefix(d.Path, "."), "", "spec.source"
		if found := inSources.FindStringSubmatch(field); found != nil {
			field, source = "spec.source"+found[2], found[1]
			raw, _ := get(base, steps(found[1]))
			one, _ := raw.(map[string]any)
			of = cmp.Or(text(one, "ref"), text(one, "chart"), text(one, "path"))
		}
		if parts[of] == nil {
			parts[of] = map[string]any{}
		}
		if of != "" {
			put(parts[of], steps("source.of"), of)
		}
		tool := strings.Split(strings.TrimPrefix(field, "spec.source."), ".")[0]
		switch {
		case field == "metadata.name", strings.HasPrefix(field, "spec.destination.environments"):
		case field == "spec.destination.namespace":
			parts[of]["namespace"] = d.To
		case d.To == nil:
			return nil, field + ": an override removes no field"
		case field == "spec.source.path", field == "spec.source.targetRevision":
			put(parts[of], steps("source."+tool), d.To)
		case slices.Contains([]string{"helm", "kustomize", "directory"}, tool):
			whole, _ := get(other, steps(source+"."+tool))
			put(parts[of], steps("source."+tool), clone(whole))
		case strings.HasPrefix(field, "spec.sync."):
			setting := steps(field)[2]
			put(parts[of], steps("sync."+setting), clone(at(other, "spec", "sync", setting)))
		default:
			return nil, field + " differs between clusters, and no override has it"
		}
	}
	for _, of := range keys(parts) {
		if len(parts[of]) > 0 {
			all = append(all, parts[of])
		}
	}
	return all, ""
}

var inSources = regexp.MustCompile(`^(spec\.sources\[\d+\])(\..*)$`)

// keepPattern gives the proven deployment its selector and a free name.
func (im *importer) keepPattern(s *set, d *draft, apps []*app, clusters []assumed) {
	d.put("spec.destination", map[string]any{"environmentSelector": s.selector,
		"namespace": text(d.document, "spec", "destination", "namespace")})
	name := d.key.Name
	for n := 2; im.patternNames[d.key]; n++ {
		d.key.Name = validName(fmt.Sprintf("%s-%d", name, n), "set")
	}
	im.patternNames[d.key] = true
	d.put("metadata.name", d.key.Name)
	first := apps[0]
	seen := map[string]bool{}
	var differences []Difference
	for i, a := range apps {
		for _, l := range a.result.Differences {
			if !seen[l.Path] {
				seen[l.Path] = true
				l.From = unmarked(l.From, map[string]string{clusters[i].name: "{{name}}"})
				differences = append(differences, l)
			}
		}
	}
	first.result.Differences = differences
	s.patterns = append(s.patterns, &pattern{draft: d, tenant: first.tenant, app: first})
	im.tenant(first.tenant)
}

// patternName is the name of a deployment: that of its Applications without the cluster's.
func patternName(name string, marks map[string]string, otherwise string) string {
	for _, m := range keys(marks) {
		name = strings.ReplaceAll(name, m, "-")
	}
	name = strings.Trim(strings.ReplaceAll(strings.ReplaceAll(name, "---", "-"), "--", "-"), "-.")
	if name == "" {
		name = otherwise
	}
	return validName(name, "set")
}

// unmarked is a tree with variables in place of marks.
func unmarked(v any, marks map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = unmarked(e, marks)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = unmarked(e, marks)
		}
		return out
	case string:
		// longer marks first: label10 before label1
		for _, m := range slices.Backward(keys(marks)) {
			v = strings.ReplaceAll(v, m, marks[m])
		}
		return v
	}
	return v
}
