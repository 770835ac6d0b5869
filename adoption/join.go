package adoption

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// joinByOverrides makes one deployment of the Applications of one service that are named for their
// environments, such as checkout-eu and checkout-us: the first one's fields are the deployment's,
// and overrides hold what differs in the others. The comparison with the originals splits those
// again that an override does not repeat exactly.
func (im *importer) joinByOverrides(taken map[fleet.Key]bool) {
	groups := map[string][]*app{}
	for _, a := range im.apps {
		source := object(a.documentOrNil(), "spec", "source")
		base := withoutEnvironment(a)
		if a.out() || source == nil || base == "" || a.shared(im) || a.alone != nil {
			continue
		}
		id := strings.Join([]string{string(a.tenant), base, text(source, "repoURL"),
			text(source, "chart")}, "\n")
		groups[id] = append(groups[id], a)
	}
	for _, id := range keys(groups) {
		apps := groups[id]
		key := apps[0].draft.key
		key.Name = strings.Split(id, "\n")[1]
		if len(apps) > 1 && !taken[key] && distinctEnvironments(apps) {
			if d := overridden(key, apps); d != nil {
				taken[key] = true
				for _, a := range apps {
					a.alone, a.draft = a.draft, d
				}
			}
		}
	}
}

func (a *app) documentOrNil() map[string]any {
	if a.draft == nil {
		return nil
	}
	return a.draft.document
}

// shared reports whether another Application has the same deployment already.
func (a *app) shared(im *importer) bool {
	return slices.ContainsFunc(im.sharing[a.draft], func(b *app) bool { return b != a })
}

// withoutEnvironment is the name of an Application without that of its environment, or "".
func withoutEnvironment(a *app) string {
	if a.draft == nil {
		return ""
	}
	env := string(a.env)
	for _, base := range []string{strings.TrimSuffix(a.draft.key.Name, "-"+env),
		strings.TrimPrefix(a.draft.key.Name, env+"-")} {
		if base != a.draft.key.Name && fleet.ValidateName(base) == nil {
			return base
		}
	}
	return ""
}

func distinctEnvironments(apps []*app) bool {
	seen := map[fleet.EnvironmentName]bool{}
	for _, a := range apps {
		if seen[a.env] {
			return false
		}
		seen[a.env] = true
	}
	return true
}

// overridden is the deployment of several Applications, or nil if overrides cannot hold what
// differs.
func overridden(key fleet.Key, apps []*app) *draft {
	slices.SortFunc(
		apps, func(a, b *app) int { return strings.Compare(string(a.env), string(b.env)) })
	d := newDraft(key)
	d.document = withRelease(apps[0])
	put(d.document, steps("metadata.name"), key.Name)
	var environments, overrides []any
	for _, a := range apps {
		environments = append(environments, string(a.env))
		if a == apps[0] {
			continue
		}
		o, ok := override(d.document, withRelease(a))
		if !ok {
			return nil
		}
		if len(o) > 0 {
			o["environment"] = string(a.env)
			overrides = append(overrides, o)
		}
	}
	d.put("spec.destination.environments", environments)
	d.set("spec.overrides", overrides)
	if d.fit(); d.refusal != "" || len(d.removed) > 0 {
		return nil
	}
	return d
}

// withRelease is the document of an Application with the name of its Helm release, which would
// otherwise be the deployment's.
func withRelease(a *app) map[string]any {
	document := clone(a.draft.document).(map[string]any)
	if implicitRelease(document) {
		put(document, steps("spec.source.helm.releaseName"), a.draft.key.Name)
	}
	return document
}

// override holds what differs between two documents; ok is false if it cannot.
func override(base, other map[string]any) (o map[string]any, ok bool) {
	var diffs []Difference
	diff("", base, other, &diffs)
	o = map[string]any{}
	for _, d := range diffs {
		field := strings.TrimPrefix(d.Path, ".")
		switch {
		case field == "metadata.name", strings.HasPrefix(field, "spec.destination.environments"):
		case field == "spec.destination.namespace":
			o["namespace"] = d.To
		case field == "spec.source.path", field == "spec.source.targetRevision":
			put(o, steps(strings.TrimPrefix(field, "spec.")), d.To)
		case strings.HasPrefix(field, "spec.source.helm."):
			put(o, steps("source.helm"), clone(at(other, "spec", "source", "helm")))
		case strings.HasPrefix(field, "spec.sync."):
			setting := steps(field)[2]
			v := at(other, "spec", "sync", setting)
			on, isBool := at(base, "spec", "sync", setting).(bool)
			if v == nil && isBool {
				if !on {
					continue
				}
				v = false
			}
			if v == nil {
				return nil, false // an override cannot leave out what the deployment has
			}
			put(o, steps("sync."+setting), clone(v))
		default:
			return nil, false
		}
	}
	return o, true
}

// split gives Applications that an override does not repeat exactly a deployment of their own
// again.
func (im *importer) split() (any bool) {
	failed := map[*draft]bool{}
	for _, a := range im.apps {
		if a.inexact {
			failed[a.draft] = true
		}
	}
	for _, a := range im.apps {
		if failed[a.draft] && a.alone != nil {
			a.draft, a.alone, a.inexact = a.alone, nil, false
			a.namespace = text(a.draft.document, "spec", "destination", "namespace")
			a.result.Status, a.result.Reason, any = "", "", true
		}
	}
	return any
}
