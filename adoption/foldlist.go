package adoption

import (
	"fmt"
	"slices"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// This file writes ApplicationSets of lists alone as sets. Lists are known as a whole, so that the
// items of the set are what all generators give together, in any combination.

// listed reports whether lists alone give the parameters: on their own, in matrices or in merges.
func listed(generators []any) bool {
	for _, raw := range generators {
		m, _ := raw.(map[string]any)
		for _, k := range keys(m) {
			switch k {
			case "list", "selector":
			case "matrix", "merge":
				if !listed(list(m, k, "generators")) {
					return false
				}
			default:
				return false
			}
		}
	}
	return len(generators) > 0
}

// listItem is the parameters of one deployment, with the Application that they give.
type listItem struct {
	params parameters
	app    *app
}

// listItems are the parameters of the deployments of an ApplicationSet of lists, by tenant; nil if
// the Applications of the import are not those that it generates.
func (im *importer) listItems(s, of *set) map[fleet.TenantName][]listItem {
	spec := object(s.Object, "spec")
	g := &generator{im: im, set: &set{Original: s.Original}, r: rendererOf(spec)}
	apps := map[string]*app{}
	for _, a := range of.apps {
		apps[a.Name] = a
	}
	items, seen := map[fleet.TenantName][]listItem{}, map[*draft]bool{}
	found := 0
	for i, raw := range list(spec, "generators") {
		m, _ := raw.(map[string]any)
		all, err := g.generate(fmt.Sprintf("spec.generators[%d]", i), m, nil)
		if err != nil {
			return nil
		}
		for _, p := range all {
			o, err := im.generated(s, g.r, p)
			a := apps[o.Name]
			if err != nil || a == nil || a.draft == nil {
				return nil
			}
			found++
			if !seen[a.draft] {
				seen[a.draft] = true
				items[a.tenant] = append(items[a.tenant], listItem{p, a})
			}
		}
	}
	if found != len(of.apps) || len(apps) != found {
		return nil
	}
	return items
}

// addListProbes adds a probe for each tenant. Its Application has the project and the cluster of an
// original: the tenant and the environments of the items are known.
func (im *importer) addListProbes(s, of *set) {
	byTenant := im.listItems(s, of)
	r := rendererOf(object(s.Object, "spec"))
	for _, tenant := range keys(byTenant) {
		items := byTenant[tenant]
		p := &probe{marks: map[string]string{}, sources: map[string]any{}}
		g := &generator{im: im, probe: p}
		union := map[string]any{}
		for _, item := range items {
			merged(union, clone(map[string]any(item.params)))
			flat, fields := parameters{}, map[string]string{}
			flatten("", map[string]any(item.params), flat)
			for k, v := range flat {
				fields[listField(k)] = fmt.Sprint(v)
			}
			p.list = append(p.list, fields)
			p.names = append(p.names, item.app.draft.key.Name)
		}
		if !p.locate(items) {
			return
		}
		params, _ := g.marked(union, "", listField).(map[string]any)
		o, err := im.generated(s, renderer{goTemplate: r.goTemplate}, params)
		if err != nil {
			return
		}
		first := items[0].app
		put(o.Object, steps("spec.project"), at(first.Object, "spec", "project"))
		destination := object(o.Object, "spec", "destination")
		for _, k := range []string{"server", "name"} {
			delete(destination, k)
			if v := text(first.Object, "spec", "destination", k); v != "" {
				destination[k] = v
			}
		}
		a := im.add(o, s)
		a.tenant, a.moved = tenant, first.moved
		p.apps = []*app{a}
		for _, a := range of.apps {
			if a.tenant == tenant {
				p.of = append(p.of, a)
			}
		}
		s.probes = append(s.probes, p)
	}
}

// environmentField is the field of an item that names its environment, if they differ.
const environmentField = "environment"

// locate sets the environments of the template: those of all items, or a field of each. It reports
// whether it could.
func (p *probe) locate(items []listItem) bool {
	destination := func(i listItem) []any {
		return list(i.app.draft.document, "spec", "destination", "environments")
	}
	p.environments = destination(items[0])
	if !slices.ContainsFunc(items, func(i listItem) bool {
		return !same(destination(i), p.environments)
	}) {
		return len(p.environments) > 0
	}
	for n, item := range items {
		environments := destination(item)
		if len(environments) != 1 {
			return false
		}
		name, _ := environments[0].(string)
		if other, ok := p.list[n][environmentField]; ok && other != name {
			return false
		}
		p.list[n][environmentField] = name
	}
	p.environments = []any{"${item." + environmentField + "}"}
	return true
}

// nameField is the field of an item that names its deployment, if the template does not.
const nameField = "deployment"

// foldNamed is foldProbe for deployments that the import has named otherwise than the template
// does, because their names are taken: the items have the names as a field.
func (im *importer) foldNamed(s *set, p *probe, files []configschema.File) ([]configschema.File,
	string) {
	if p.named || len(p.names) == 0 || len(functionTags(object(s.Object, "spec"))) > 0 {
		return files, ""
	}
	p.named = true
	for i, name := range p.names {
		if other, ok := p.list[i][nameField]; ok && other != name {
			return files, ""
		}
		p.list[i][nameField] = name
	}
	return im.foldProbe(s, p, files)
}
