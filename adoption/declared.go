package adoption

import (
	"regexp"
	"strings"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// Adopted returns the Applications that a deployment, or the deployments of a set, adopt.
func Adopted(f configschema.File) (all []fleet.Adoption) {
	d := configschema.Decode(f).Declaration
	switch {
	case d == nil:
	case d.Deployment != nil:
		all = d.Deployment.Adopt
	case d.Set != nil:
		for _, g := range d.Set.Generated {
			if g.Declaration != nil {
				all = append(all, g.Declaration.Deployment.Adopt...)
			}
		}
	}
	return all
}

// PatternsOf returns whether the set of a file may adopt an Application in an environment: whether
// some item gives its name. The items of a repository are not at hand.
func PatternsOf(f configschema.File) func(fleet.Adoption) bool {
	tree, err := parse(string(f.Bytes))
	if err != nil {
		return func(fleet.Adoption) bool { return false }
	}
	forms := map[string][]*regexp.Regexp{}
	for _, entry := range list(tree, "spec", "template", "spec", "adopt") {
		m, _ := entry.(map[string]any)
		parts := itemIn.Split(text(m, "application"), -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		form, err := regexp.Compile("^" + strings.Join(parts, ".+") + "$")
		if err != nil {
			continue
		}
		environment := text(m, "environment")
		forms[environment] = append(forms[environment], form)
	}
	return func(a fleet.Adoption) bool {
		for _, form := range forms[string(a.Environment)] {
			if form.MatchString(a.Application) {
				return true
			}
		}
		return false
	}
}
