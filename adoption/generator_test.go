package adoption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// names are the Applications that an ApplicationSet generates from a tree and cluster Secrets.
func names(t *testing.T, spec string, secrets ...string) ([]string, *set) {
	t.Helper()
	im := &importer{owned: map[string][]Original{}, filesAt: map[string]bool{}}
	for i, s := range secrets {
		found, _ := Read(fmt.Sprint(i), []byte(s))
		im.Originals = append(im.Originals, found...)
	}
	files := map[string]string{
		"apps/cart/app.yaml": "name: Cart", "apps/checkout/app.yaml": "name: C",
		"apps/internal/x": "", "clusters/eu/config.json": `{"cluster": {"name": "eu-1"}}`}
	im.Tree = &Tree{
		Dirs: []string{"apps", "apps/cart", "apps/checkout", "apps/internal", "clusters",
			"clusters/eu"}, Files: keys(files), Read: func(f string) ([]byte, error) {
			return []byte(files[f]), nil
		}}
	im.tools.Normalize = func(map[string]any, func(string) bool) (Normal, error) {
		return Normal{Spec: map[string]any{}}, nil
	}
	im.tenants = nil
	im.Options.Engine, im.Options.DefaultTenant = "main", "platform"
	im.readSecrets()
	tree, err := parse("apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\n" +
		"metadata: {name: set}\nspec:\n" + indent(spec))
	if err != nil {
		t.Fatal(err)
	}
	s := &set{Original: Original{Kind: KindApplicationSet, Name: "set", Object: tree}}
	if reason := im.expand(s); reason != "" {
		return []string{reason}, s
	}
	var found []string
	for _, a := range s.apps {
		found = append(found, a.Name)
	}
	slices.Sort(found)
	return found, s
}

const (
	oldForm = "\ntemplate: {metadata: {name: '%s'}, spec: {source: {repoURL: r, path: p}, destination: {name: in-cluster}}}"
	goForm  = "goTemplate: true" + oldForm
	eu      = "apiVersion: v1\nkind: Secret\nmetadata: {name: eu, labels: {argocd.argoproj.io/secret-type: " +
		"cluster, tier: prod}}\nstringData: {name: eu-1, server: 'https://eu.example.com'}\n"
)

func TestGenerators(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spec, want string }{
		"a list": {fmt.Sprintf(oldForm, "{{name}}-{{ sub.key }}") +
			"\ngenerators: [{list: {elements: [{name: a, sub: {key: x}}, {name: b, sub: {key: 2}}]}}]",
			"a-x b-2"},
		"a list for Go templates": {fmt.Sprintf(goForm, "{{.name | lower}}-{{index .l 1}}") +
			"\ngenerators: [{list: {elements: [{name: A, l: [1, 2]}]}}]", "a-2"},
		"clusters by label": {
			fmt.Sprintf(oldForm, "{{name}}-{{metadata.labels.tier}}-{{values.x}}") +
				"\ngenerators: [{clusters: {selector: {matchLabels: {tier: prod}}, values: " +
				"{x: '{{nameNormalized}}'}}}]", "eu-1-prod-eu-1"},
		"all clusters": {fmt.Sprintf(goForm, "{{.name}}") + "\ngenerators: [{clusters: {}}]",
			"eu-1 in-cluster"},
		"folders": {fmt.Sprintf(oldForm, "{{path.basename}}-{{path[0]}}") +
			"\ngenerators: [{git: {directories: [{path: apps/*}, {path: apps/internal, exclude: " +
			"true}]}}]",
			"cart-apps checkout-apps"},
		"files": {fmt.Sprintf(goForm, "{{.cluster.name}}-{{.path.basename}}") +
			"\ngenerators: [{git: {files: [{path: clusters/**/config.json}]}}]", "eu-1-eu"},
		"a matrix": {fmt.Sprintf(oldForm, "{{path.basename}}-{{env}}") +
			"\ngenerators: [{matrix: {generators: [{git: {directories: [{path: apps/c*}]}}, " +
			"{list: {elements: [{env: a}, {env: b}]}}]}}]", "cart-a cart-b checkout-a checkout-b"},
		"a matrix whose second part uses the first": {fmt.Sprintf(oldForm, "{{name}}-{{x}}") +
			"\ngenerators: [{matrix: {generators: [{list: {elements: [{name: a}]}}, " +
			"{list: {elements: [{x: 'of-{{name}}'}]}}]}}]", "a-of-a"},
		"a merge": {fmt.Sprintf(oldForm, "{{name}}-{{size}}") +
			"\ngenerators: [{merge: {mergeKeys: [name], generators: [{list: {elements: " +
			"[{name: a, size: s}, {name: b, size: s}]}}, {list: {elements: [{name: b, size: " +
			"l}]}}]}}]",
			"a-s b-l"},
	} {
		if got, _ := names(t, c.spec, eu); strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestGeneratorsThatCannotBeEvaluatedAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spec, want string }{
		"another system": {
			fmt.Sprintf(oldForm, "x") + "\ngenerators: [{pullRequest: {github: {}}}]",
			"asks another system"},
		"no cluster matches": {fmt.Sprintf(oldForm, "x") +
			"\ngenerators: [{clusters: {selector: {matchLabels: {tier: dev}}}}]",
			"spec.template.spec.destination"},
		"no folder matches": {fmt.Sprintf(oldForm, "x") +
			"\ngenerators: [{list: {elements: [{a: b}]}}, {git: {directories: [{path: nowhere/*}]}}]",
			"nothing at hand matches; import from a clone"},
		"a strict template": {fmt.Sprintf(goForm, "{{.missing}}") +
			"\ngoTemplateOptions: [missingkey=error]\ngenerators: [{list: {elements: [{a: b}]}}]",
			"missing"},
		"an unknown function": {fmt.Sprintf(goForm, "{{genPrivateKey}}") +
			"\ngenerators: [{list: {elements: [{a: b}]}}]", "genPrivateKey"},
	} {
		if got, _ := names(t, c.spec, eu); len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAPatchOfATemplateIsMerged(t *testing.T) {
	t.Parallel()
	_, s := names(t, fmt.Sprintf(goForm, "{{.name}}")+
		"\ntemplatePatch: \"spec: {source: {path: 'of-{{.name}}'}}\""+
		"\ngenerators: [{list: {elements: [{name: a}]}}]")
	if len(s.apps) != 1 || text(s.apps[0].Object, "spec", "source", "path") != "of-a" ||
		text(s.apps[0].Object, "spec", "source", "repoURL") != "r" {
		t.Errorf("%+v", s.apps)
	}
}

func TestALossOfDiscoveryIsReported(t *testing.T) {
	t.Parallel()
	_, s := names(t, fmt.Sprintf(oldForm, "{{path.basename}}")+
		"\ngenerators: [{git: {directories: [{path: apps/c*}]}}]")
	if len(s.losses) != 1 || s.losses[0].Path != "spec.generators[0].git" {
		t.Errorf("%+v", s.losses)
	}
}
