package adoption

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// set is an ApplicationSet on its way into the config repo: the Applications that it generates are
// written as deployments.
type set struct {
	Original
	result Result
	apps   []*app
	// why new clusters, folders or files no longer get an Application by themselves
	losses []Difference
	notes  []string
	// of a single clusters generator: the selector of its clusters; nil: another generator, or all
	selector  map[string]any
	variables []string // of the environments of clusters that are not at hand
	// annotations of clusters that are not at hand whose value is written: see fixAnnotations
	fixed    map[string]string
	blind    *probe     // the assumed item of a repository that is not at hand
	patterns []*pattern // in place of apps, if the clusters are not at hand
	combined bool       // one generator is in place of several: see combined
	layered  *layered   // the deployment of all clusters, if its merge changes some of them
	probes   []*probe   // of an importer that probes
	folded   bool       // a set replaces the deployments
}

// readSets expands the ApplicationSets.
func (im *importer) readSets() {
	for _, o := range im.of(KindApplicationSet) {
		if !im.wanted(o.Kind, o.Namespace, o.Name) {
			continue
		}
		s := &set{Original: o, result: Result{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
			Source: o.File}}
		im.sets = append(im.sets, s)
		if one := combined(list(o.Object, "spec", "generators")); one != nil {
			s.Object, s.combined = clone(o.Object).(map[string]any), true
			put(s.Object, steps("spec.generators"), []any{one})
		}
		reason := im.expand(s)
		if im.probed == nil && reason == "" {
			im.layer(s)
		}
		if im.probed != nil && reason == "" && foldable(object(s.Object, "spec")) {
			im.addProbe(s, im.probed[len(im.sets)-1])
		}
		if reason != "" {
			for _, a := range s.apps {
				a.refuse(reason)
			}
			s.result.Status, s.result.Reason = Refused, reason
		}
	}
}

// maxGenerated bounds the Applications of one ApplicationSet.
const maxGenerated = 2000

// expand adds the Applications that an ApplicationSet generates, or returns why it cannot.
func (im *importer) expand(s *set) string {
	spec := object(s.Object, "spec")
	if object(spec, "template") == nil || len(list(spec, "generators")) == 0 {
		return "it has no generators or no template: it is a patch of an overlay"
	}
	s.selector = clusterSelector(list(spec, "generators"), s.Name)
	if owned := im.owned[s.Namespace+"/"+s.Name]; len(owned) > 0 {
		im.adopt(s, owned)
		return ""
	}
	g := &generator{im: im, set: s, r: rendererOf(spec)}
	var params []parameters
	for i, raw := range list(spec, "generators") {
		m, _ := raw.(map[string]any)
		found, err := g.generate(fmt.Sprintf("spec.generators[%d]", i), m, nil)
		if errors.Is(err, errNoClusters) {
			return im.patterns(s, g.r)
		}
		if errors.Is(err, errNotListed) {
			if reason := im.unlisted(s, g.r); reason != "" {
				return err.Error() + "; " + reason
			}
			return ""
		}
		if err != nil {
			return err.Error()
		}
		params = append(params, found...)
		if len(params) > maxGenerated {
			return fmt.Sprintf("it generates more than %d Applications", maxGenerated)
		}
	}
	if len(params) == 0 {
		return "it generates no Application from what is at hand"
	}
	for _, p := range params {
		o, err := im.generated(s, g.r, p)
		if err != nil {
			return err.Error()
		}
		s.apps = append(s.apps, im.add(o, s))
	}
	return ""
}

// rendererOf fills the templates of an ApplicationSet.
func rendererOf(spec map[string]any) renderer {
	goTemplate, _ := spec["goTemplate"].(bool)
	return renderer{goTemplate: goTemplate,
		strict: slices.Contains(texts(spec, "goTemplateOptions"), "missingkey=error")}
}

// clusterSelector is the selector of the only generator of clusters of an ApplicationSet, on its
// own, in a matrix, or first in a merge that changes nothing; nil if there is none, or several.
// Without a selector, the generator selects every cluster: so does an environmentSelector for the
// absence of a label. The clusters of a Placement are those that its label selects.
func clusterSelector(generators []any, name string) (selector map[string]any) {
	found := 0
	var visit func(all []any)
	visit = func(all []any) {
		for _, raw := range all {
			m, _ := raw.(map[string]any)
			if block, ok := m["clusters"]; ok {
				found++
				c, _ := block.(map[string]any)
				selector = withoutType(object(c, "selector"))
			}
			if block := object(m, "clusterDecisionResource"); block != nil {
				found++
				selector, _ = compact(clone(any(object(block, "labelSelector")))).(map[string]any)
				if selector == nil {
					found = 2 // its name selects no label of a cluster
				}
			}
			visit(list(m, "matrix", "generators"))
			for i, g := range list(m, "merge", "generators") {
				part, _ := g.(map[string]any)
				switch elements, listed := part["list"].(map[string]any); {
				case i == 0:
					visit([]any{g})
				case !listed || len(list(elements, "elements")) > 0 ||
					text(elements, "elementsYaml") != "":
					found = 2 // it changes the parameters of some clusters
				}
			}
		}
	}
	if visit(generators); found != 1 || len(generators) != 1 {
		return nil
	}
	if selector == nil {
		selector = map[string]any{"matchExpressions": []any{map[string]any{
			"key": allBut + validName(name, "set"), "operator": "DoesNotExist"}}}
	}
	return selector
}

// adopt takes the live Applications of an ApplicationSet for those that it generates.
func (im *importer) adopt(s *set, owned []Original) {
	for _, o := range owned {
		s.apps = append(s.apps, im.add(o, s))
	}
	for i, raw := range list(s.Object, "spec", "generators") {
		m, _ := raw.(map[string]any)
		for _, k := range keys(m) {
			if k != "list" && k != "selector" {
				s.lose(Difference{Path: fmt.Sprintf("spec.generators[%d].%s", i, k), From: m[k],
					Reason: "each live Application is written; what the generator would add later " +
						"needs a deployment of its own"})
			}
		}
	}
}

// generated is the Application of one set of parameters.
func (im *importer) generated(s *set, r renderer, p parameters) (Original, error) {
	template, err := r.tree(object(s.Object, "spec", "template"), p)
	if err != nil {
		return Original{}, err
	}
	o, _ := template.(map[string]any)
	if patch := text(s.Object, "spec", "templatePatch"); patch != "" {
		rendered, err := r.text(patch, p)
		if err != nil {
			return Original{}, fmt.Errorf("spec.templatePatch: %w", err)
		}
		tree, err := parse(rendered)
		if err != nil {
			return Original{}, fmt.Errorf("spec.templatePatch: %w", err)
		}
		o, _ = merged(o, tree).(map[string]any)
	}
	o["apiVersion"], o["kind"] = "argoproj.io/v1alpha1", KindApplication
	metadata := object(o, "metadata")
	if metadata == nil {
		return Original{}, fmt.Errorf("spec.template.metadata: it has no name")
	}
	metadata["namespace"] = s.Namespace
	preserve, _ := at(s.Object, "spec", "syncPolicy", "preserveResourcesOnDeletion").(bool)
	if !preserve && len(list(metadata, "finalizers")) == 0 {
		metadata["finalizers"] = []any{finalizer} // as the controller of ApplicationSets does
	}
	return Original{Kind: KindApplication, Namespace: s.Namespace, Name: text(metadata, "name"),
		File: s.File, Object: o}, nil
}

// merged is a tree with a patch over it: maps are merged, other values replaced, null removes.
func merged(base, patch any) any {
	b, okB := base.(map[string]any)
	p, okP := patch.(map[string]any)
	if !okB || !okP {
		return patch
	}
	for k, v := range p {
		if v == nil {
			delete(b, k)
		} else {
			b[k] = merged(b[k], v)
		}
	}
	return b
}

// concludeSets sums the results of the generated Applications up for each ApplicationSet.
func (im *importer) concludeSets() {
	for _, s := range im.sets {
		im.concludeSet(s)
		r := s.result
		r.Reason = s.asWrittenPath(r.Reason)
		for i := range r.Differences {
			r.Differences[i].Path = s.asWrittenPath(r.Differences[i].Path)
		}
		im.results = append(im.results, r)
	}
}

// concludeSet sets the result of one ApplicationSet.
func (im *importer) concludeSet(s *set) {
	r := &s.result
	if r.Status == Refused {
		return
	}
	r.Status = Exact
	if len(s.patterns) > 0 {
		im.concludePatterns(s)
		return
	}
	refused := 0
	files := map[string]bool{}
	seen := map[string]bool{}
	for _, a := range s.apps {
		if a.refused() {
			refused++
			if r.Reason == "" {
				r.Reason = "Application " + a.Name + ": " + a.result.Reason
			}
			r.reasons = append(r.reasons, a.result.causes()...)
			continue
		}
		files[a.result.File] = true
		for _, d := range a.result.Differences {
			d.Path = "spec.template." + d.Path
			if id := d.Path + writeYAML(d.From); !seen[id] {
				seen[id] = true
				r.Differences = append(r.Differences, d)
			}
		}
	}
	switch written := keys(files); {
	case refused == len(s.apps):
		r.Status = Refused
	case refused > 0:
		r.Status = Changed
		r.Differences = append(r.Differences, Difference{Path: "spec.generators",
			From: len(s.apps), To: len(s.apps) - refused,
			Reason: plural(refused, "generated Application") + " refused; " + r.Reason,
			hard:   true})
		r.File = written[0]
	default:
		r.Reason, r.File = "", written[0]
	}
	if r.Status != Refused {
		selected := s.selected()
		if selected && s.isLayered() {
			s.losses = append(s.losses, s.layered.losses...)
			s.notes = append(s.notes, s.layered.notes...)
			s.variables = s.layered.variables
		}
		for _, l := range s.losses {
			if !selected || !strings.HasSuffix(l.Path, ".clusters") {
				r.Differences = append(r.Differences, l)
			}
		}
		r.Differences = append(r.Differences, s.lostFields()...)
		if len(r.Differences) > 0 {
			r.Status = Changed
		}
		written := plural(len(files), "deployment")
		if s.folded && len(files) == 1 {
			written = "a set"
		} else if s.folded {
			written = plural(len(files), "set") + ", one for each tenant"
		}
		r.Notes = append(s.notes, fmt.Sprintf("%s in %s", plural(len(s.apps)-refused,
			"generated Application"), written))
		if im.Adopt {
			r.Notes = append(r.Notes, fmt.Sprintf("release the Applications before the merge: "+
				"kubectl -n %s delete applicationset %s --cascade=orphan",
				cmp.Or(s.Namespace, im.ArgoNamespace), s.Name))
		}
	}
}

// concludePatterns is the result of an ApplicationSet over clusters that are not at hand.
func (im *importer) concludePatterns(s *set) {
	r := &s.result
	seen := map[string]bool{}
	for _, p := range s.patterns {
		r.File = pathOf(p.draft.key)
		for _, d := range p.app.result.Differences {
			d.Path = "spec.template." + d.Path
			if id := d.Path + writeYAML(d.From); !seen[id] {
				seen[id] = true
				r.Differences = append(r.Differences, d)
			}
		}
		if p.refusal != "" {
			r.Status, r.Reason = Refused, p.refusal
		}
	}
	if r.Status != Refused {
		for _, l := range s.losses {
			if !strings.HasSuffix(l.Path, ".clusters") {
				r.Differences = append(r.Differences, l)
			}
		}
		if r.Differences = append(r.Differences, s.lostFields()...); len(r.Differences) > 0 {
			r.Status = Changed
		}
		r.File = pathOf(s.patterns[0].draft.key)
		written := plural(len(s.patterns), "deployment")
		if s.patterns[0].from != nil {
			written = "a set"
		}
		if s.patterns[0].env == nil {
			written += " with the selector of its clusters, which are not at hand: environments " +
				"with these labels get it"
		}
		r.Notes = append(s.notes, written)
	}
}

// selected reports whether deployments with the selector of the clusters generator replace the
// ApplicationSet.
func (s *set) selected() bool {
	return s.environmentSelector() != nil && !slices.ContainsFunc(s.apps, func(a *app) bool {
		return a.refused() || !a.draft.has("spec.destination.environmentSelector")
	})
}

// lostFields are the fields of an ApplicationSet that concern its controller alone.
func (s *set) lostFields() (lost []Difference) {
	spec := object(s.Object, "spec")
	reasons := map[string]string{
		"strategy":                     "waves order the Applications of one environment",
		"ignoreApplicationDifferences": "no controller overwrites a declaration",
		"syncPolicy.applicationsSync":  "the guard of the fleet bounds deletions",
	}
	for _, path := range keys(reasons) {
		if v := at(spec, strings.Split(path, ".")...); compact(clone(v)) != nil {
			lost = append(lost, Difference{Path: "spec." + path, From: v, Reason: reasons[path]})
		}
	}
	return lost
}
