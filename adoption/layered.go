package adoption

import (
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
)

// layered is the deployment of all clusters for an ApplicationSet whose merge changes some of them.
type layered struct {
	draft    *draft
	selector map[string]any
	losses   []Difference
	notes    []string
	named    map[*cluster]string // clusters that a list of the merge names
	// of the environments
	variables []string
}

// layer proves the deployment of all clusters with assumed ones, if the merge of an ApplicationSet
// changes some of them.
func (im *importer) layer(s *set) {
	if len(s.apps) == 0 || im.Adopt || slices.ContainsFunc(s.apps, (*app).refused) {
		return
	}
	layers, selectors, ok := layersOf(list(s.Object, "spec", "generators"))
	if !ok || len(layers) == 0 {
		return
	}
	trial := im.trial(im.clusters)
	trial.patternNames = maps.Clone(im.patternNames)
	of := &set{Original: s.Original}
	reason := trial.patterns(of, rendererOf(object(s.Object, "spec")))
	if reason != "" || len(of.patterns) != 1 || len(of.fixed) > 0 {
		return
	}
	l := &layered{draft: of.patterns[0].draft, selector: of.selector, losses: of.losses,
		notes: of.notes, named: map[*cluster]string{}, variables: of.variables}
	l.losses = slices.DeleteFunc(l.losses, func(d Difference) bool { return d.Path == ownCluster })
	for _, layer := range layers {
		name := text(selectors[layer], "matchLabels", clusterLabel)
		c := im.clusters.named(name)
		if layer.element < 0 || c == nil {
			continue
		}
		l.named[c] = name
		l.losses = slices.DeleteFunc(l.losses, func(d Difference) bool {
			return same(d.To, selectors[layer])
		})
	}
	s.layered = l
}

// named is the cluster at hand with a name, as it is or normalized, or nil.
func (c *clusters) named(name string) *cluster {
	for _, n := range keys(c.byName) {
		if n == name || normalizeName(n) == name {
			return c.byName[n]
		}
	}
	return nil
}

// joinLayers gives the Applications of each such ApplicationSet the deployment of all clusters. The
// comparison with the originals proves it, or splits it again. The environments of clusters that a
// list names get the label that the override for the cluster selects.
func (im *importer) joinLayers(taken map[fleet.Key]bool) {
	for _, s := range im.sets {
		l := s.layered
		if l == nil || !s.mayShare(im) {
			continue
		}
		own, name := map[fleet.Key]bool{}, l.draft.key.Name
		for _, a := range s.apps {
			own[a.draft.key] = true
		}
		for n := 2; im.patternNames[l.draft.key] || taken[l.draft.key] && !own[l.draft.key]; n++ {
			l.draft.key.Name = validName(fmt.Sprintf("%s-%d", name, n), "set")
			l.draft.put("metadata.name", l.draft.key.Name)
		}
		for c, name := range l.named {
			if c.labels == nil {
				c.labels = map[string]any{}
			}
			c.labels[clusterLabel] = name
		}
		taken[l.draft.key] = true
		for _, a := range s.apps {
			a.alone, a.draft = a.draft, l.draft
			if text(a.Object, "spec", "destination", "namespace") == "" {
				a.namespace = text(l.draft.document, "spec", "destination", "namespace")
			}
		}
	}
}

// mayShare reports whether the Applications of an ApplicationSet may have one deployment.
func (s *set) mayShare(im *importer) bool {
	for c, name := range s.layered.named {
		if has, ok := c.labels[clusterLabel]; ok && has != name {
			return false
		}
	}
	return distinctEnvironments(s.apps) && !slices.ContainsFunc(s.apps, func(a *app) bool {
		return a.out() || a.tenant != s.layered.draft.key.Tenant ||
			slices.ContainsFunc(im.sharing[a.draft], func(b *app) bool { return b.set != s })
	})
}

// isLayered reports whether the deployment of all clusters replaces the ApplicationSet.
func (s *set) isLayered() bool {
	return s.layered != nil && s.apps[0].draft == s.layered.draft
}

// environmentSelector is the selector of the clusters that get the deployments, or nil.
func (s *set) environmentSelector() map[string]any {
	if s.isLayered() {
		return s.layered.selector
	}
	return s.selector
}
