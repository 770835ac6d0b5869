package adoption

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// errNotListed is the error of a git generator whose repository is not at hand.
var errNotListed = errors.New("nothing at hand matches")

// unlistable reports whether the generators of an ApplicationSet have a counterpart in a set
// without the repository of the git generator: one git generator, alone or in a matrix with a list
// or with clusters.
func unlistable(generators []any) (clusters, ok bool) {
	if len(generators) != 1 {
		return false, false
	}
	parts := generators
	if only, _ := generators[0].(map[string]any); only["matrix"] != nil {
		parts = list(only, "matrix", "generators")
	}
	count := map[string]int{}
	for _, raw := range parts {
		m, _ := raw.(map[string]any)
		for _, k := range keys(m) {
			block, _ := m[k].(map[string]any)
			if len(m) != 1 || !slices.Contains([]string{"git", "list", "clusters"}, k) ||
				text(block, "elementsYaml") != "" {
				return false, false
			}
			count[k]++
		}
	}
	return count["clusters"] > 0, count["git"] == 1 && count["list"] < 2 && count["clusters"] < 2
}

// unlisted writes an ApplicationSet whose repository is not at hand as a set, or returns why it
// cannot. An assumed item proves the template: what is rendered for it equals what the
// ApplicationSet generates. The listing of the repository is not proven, and the report states it.
func (im *importer) unlisted(s *set, r renderer) string {
	clusters, ok := unlistable(list(s.Object, "spec", "generators"))
	if !ok || im.Adopt || clusters && s.selector == nil {
		return "import from a clone of its repository, or from the live Argo CD"
	}
	r.guarded = true
	s.blind = newBlind()
	if clusters {
		return im.unlistedOverClusters(s, r)
	}
	o, err := im.blindApplication(s, r, nil)
	if err != nil {
		return err.Error()
	}
	if reason := im.sameForAnotherItem(s, r, o, nil); reason != "" {
		return reason
	}
	return im.unlistedInPlace(s, o)
}

func newBlind() *probe {
	return &probe{marks: map[string]string{}, sources: map[string]any{}, known: map[string]string{}}
}

// blindApplication is the Application of the assumed item, for an assumed cluster if there is one.
func (im *importer) blindApplication(s *set, r renderer, c *assumed) (o Original, err error) {
	first, _ := list(s.Object, "spec", "generators")[0].(map[string]any)
	g := &generator{im: im, set: &set{Original: s.Original}, probe: s.blind, r: r, assumed: c}
	params, err := g.generate("spec.generators[0]", first, nil)
	if err != nil {
		return o, err
	}
	if len(params) != 1 {
		return o, errors.New("spec.generators: an item gives several Applications")
	}
	return im.generated(s, r, params[0])
}

// sameForAnotherItem proves that the template gives any item what it gives the assumed one: it is
// evaluated for a second one.
func (im *importer) sameForAnotherItem(s *set, r renderer, o Original, c *assumed) string {
	first := s.blind
	s.blind = newBlind()
	defer func() { s.blind = first }()
	other, err := im.blindApplication(s, r, c)
	if err != nil {
		return err.Error()
	}
	if writeYAML(unmarked(o.Object, first.marks)) != writeYAML(
		unmarked(other.Object, s.blind.marks)) {
		return "spec.template: it changes a field of its item, and no variable has the result"
	}
	return ""
}

// unlistedInPlace proves the template on the cluster that it names.
func (im *importer) unlistedInPlace(s *set, o Original) string {
	trial := im.trial(im.clusters)
	a := trial.add(o, s)
	if a.refused() {
		return a.result.Reason
	}
	if unmarked(a.cluster.key, s.blind.marks) != a.cluster.key ||
		unmarked(a.project, s.blind.marks) != a.project {
		return "spec.template.spec: the cluster or the project depends on the item"
	}
	trial.nameEnvironments()
	d := a.deployment(validName(a.Name, "app"), nil)
	if d.fit(); d.refusal != "" {
		return d.refusal
	}
	a.draft, a.namespace = d, text(d.document, "spec", "destination", "namespace")
	a.lost = a.metadataLost(im.ArgoNamespace)
	if _, err := trial.complete(); err != nil {
		return err.Error()
	}
	if a.refused() {
		s.result.reasons = append(s.result.reasons, a.result.causes()...)
		return a.result.Reason
	}
	e := im.tenant(a.tenant).environment(a.cluster)
	d.put("spec.destination.environments", []any{string(e.name)})
	s.patterns = append(s.patterns, &pattern{draft: d, tenant: a.tenant, app: a, env: e})
	return im.asSet(s)
}

// unlistedOverClusters proves the template in the environments of two assumed clusters.
func (im *importer) unlistedOverClusters(s *set, r renderer) string {
	im.loseOwn(s)
	im.fixInGenerators(s)
	if err := im.fixAnnotations(s, r); err != nil {
		return err.Error()
	}
	clusters := []assumed{s.assume("one"), s.assume("two")}
	var originals []Original
	for i := range clusters {
		o, err := im.blindApplication(s, r, &clusters[i])
		if err != nil {
			return err.Error()
		}
		originals = append(originals, o)
	}
	if strings.Contains(fmt.Sprint(s.blind.sources, s.blind.list), markOfCluster) {
		return "spec.generators: the items depend on a name or label of the cluster, and a set " +
			"has the same items in every environment; import with the cluster Secrets and the " +
			"repository, or from the live Argo CD, for a deployment for each"
	}
	if reason := im.sameForAnotherItem(s, r, originals[0], &clusters[0]); reason != "" {
		return reason
	}
	if reason := im.pattern(s, originals, clusters, nil, nil); reason != "" {
		return reason
	}
	reason := im.asSet(s)
	im.noteVariables(s, clusters[0])
	return reason
}

// fixInGenerators fixes the annotations that give the repository of a git generator, a revision or
// a path of it: a set lists the same in every environment.
func (im *importer) fixInGenerators(s *set) {
	block := s.git()
	for _, found := range metadataInTemplate.FindAllStringSubmatch(fmt.Sprint(block), -1) {
		if name := annotationOf(found); found[1] == "annotations" {
			field := "path"
			if strings.Contains(text(block, "repoURL"), name) {
				field = "repoURL"
			}
			im.fixAnnotation(s, name, field, true)
		}
	}
}

// asSet replaces the deployment that was proven for an assumed item by the set that gives it.
func (im *importer) asSet(s *set) string {
	p := s.patterns[len(s.patterns)-1]
	document, _ := unmarked(p.draft.document, s.blind.marks).(map[string]any)
	p.from = document
	for _, url := range repositories(document) {
		if strings.Contains(url, "${") {
			return "spec.template.spec.source.repoURL: it depends on the item"
		}
	}
	template := map[string]any{"metadata": document["metadata"], "spec": document["spec"]}
	if name := text(document, "metadata", "name"); !strings.Contains(name, "${item.") ||
		variableKey(template) {
		return "spec.template.metadata.name: items give equal names, or keys that depend on them"
	}
	d := newDraft(fleet.SetKey(p.tenant, im.setName(s, p.tenant)))
	for _, source := range keys(s.blind.sources) {
		put(d.document, steps("spec."+source), s.blind.sources[source])
		p.lists = append(p.lists, text(s.blind.sources, source, "repoURL"))
	}
	if items := s.blind.list; items != nil {
		put(d.document, steps("spec.list"), usedFields(items, writeYAML(template)))
	}
	put(d.document, steps("spec.template"), template)
	if d.fit(); d.refusal != "" {
		return d.refusal
	} else if len(d.removed) > 0 {
		return d.removed[0].field + ": " + d.removed[0].reason
	}
	for i := range p.app.result.Differences {
		l := &p.app.result.Differences[i]
		l.From, l.To = unmarked(l.From, s.blind.marks), unmarked(l.To, s.blind.marks)
	}
	p.draft, p.namespace = d, text(document, "spec", "destination", "namespace")
	s.lose(Difference{Path: "spec.generators.git", From: s.git(), To: s.blind.sources,
		Reason: "the repository is not at hand: the template is proven for an assumed item, and " +
			"its present items are not; compare with what argosy render --listing " + p.lists[0] +
			"=FOLDER gives for a clone in FOLDER"})
	if functions := functionTags(object(s.Object, "spec")); len(functions) > 0 {
		s.lose(Difference{Path: "spec.template", From: anys(functions),
			Reason: "evaluated for an item that has every field, in lower case; compare what " +
				"each item gives"})
	}
	if before, _, varies := strings.Cut(p.namespace, "${"); varies && p.env != nil {
		p.namespace = ""
		if strings.HasSuffix(before, "-") && fleet.CheckNamespaceEntry(before) == nil {
			p.namespace = before
		} else {
			s.lose(Difference{Path: "spec.template.spec.destination.namespace",
				From:   text(s.Object, "spec", "template", "spec", "destination", "namespace"),
				Reason: "list the namespaces of the items in environment " + string(p.env.name)})
		}
	}
	s.notes = append(s.notes, "in paths of the set, * matches within one folder")
	return ""
}

// git is the block of the only git generator of an ApplicationSet.
func (s *set) git() map[string]any {
	only, _ := list(s.Object, "spec", "generators")[0].(map[string]any)
	for _, raw := range append([]any{only}, list(only, "matrix", "generators")...) {
		m, _ := raw.(map[string]any)
		if block := object(m, "git"); block != nil {
			return block
		}
	}
	return nil
}

// variableKey reports whether a key of a tree holds a variable.
func variableKey(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if strings.Contains(k, "${item.") || variableKey(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, variableKey)
	}
	return false
}

// fieldsOfClusters are the parameters of a clusters generator. A file that has one of them too
// makes Argo CD refuse the matrix.
var fieldsOfClusters = map[string]bool{"name": true, "nameNormalized": true, "server": true,
	"metadata": true, "values": true, "project": true}

// blindContent is the content of an assumed file: the fields that the template reads.
func (g *generator) blindContent(prefix string) map[string]any {
	content := g.fieldsRead()
	maps.DeleteFunc(content, func(k string, _ any) bool {
		return k == prefix || k == "values" || g.assumed != nil && fieldsOfClusters[k]
	})
	return content
}
