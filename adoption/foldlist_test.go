package adoption

import (
	"strings"
	"testing"

	configschema "argosy.dev/argosy/config-schema"
)

// Lists are known as a whole, so that any combination of them is the list of one set.
func TestCombinedListsBecomeOneList(t *testing.T) {
	t.Parallel()
	const (
		stages  = `{list: {elements: [{stage: dev}, {stage: prod}]}}`
		targets = `{list: {elements: [{zone: a, to: "https://eu.example.com"}, ` +
			`{zone: b, to: "https://us.example.com"}]}}`
		cross = "  list:\n    - name: cart\n      stage: dev\n    - name: cart\n      stage: prod\n" +
			"    - name: web\n      stage: dev\n    - name: web\n      stage: prod\n"
	)
	apps := func(more string) string {
		return `{list: {elements: [{name: cart}, {name: web}]}` + more + `}`
	}
	matrix := func(parts ...string) string {
		return "{matrix: {generators: [" + strings.Join(parts, ", ") + "]}}"
	}
	both := filled("{{name}}-{{stage}}", "at/{{stage}}", local, "{{name}}")
	for what, c := range map[string]struct {
		spec string
		want []string
	}{
		"a matrix": {"generators: [" + matrix(apps(""), stages) + "]" + both, []string{cross,
			"name: ${item.name}-${item.stage}\n", "path: at/${item.stage}\n"}},
		"nested": {"generators: [" + matrix(apps(""), matrix(stages, `{list: {elements: `+
			`[{unused: x}]}}`)) + "]" + both, []string{cross}},
		"a selector": {"generators: [" + matrix(apps(", selector: {matchLabels: {name: web}}"),
			stages) + "]" + both, []string{
			"  list:\n    - name: web\n      stage: dev\n    - name: web\n      stage: prod\n"}},
		"several": {"generators: [{list: {elements: [{name: cart, stage: dev}]}}, " +
			"{list: {elements: [{name: web, stage: prod}]}}]" + both, []string{
			"  list:\n    - name: cart\n      stage: dev\n    - name: web\n      stage: prod\n"}},
		"a merge": {"generators: [{merge: {mergeKeys: [name], generators: [{list: {elements: " +
			"[{name: cart, stage: dev}, {name: web, stage: dev}]}}, {list: {elements: " +
			"[{name: web, stage: prod}]}}]}}]" + both, []string{
			"    - name: cart\n      stage: dev\n    - name: web\n      stage: prod\n"}},
		"elements of a text": {"generators: [{list: {elements: [], elementsYaml: " +
			`"[{name: cart, stage: dev}]"}}]` + both, []string{
			"  list:\n    - name: cart\n      stage: dev\n"}},
		"clusters of items": {"generators: [{list: {elements: [{name: cart, " +
			`to: "https://eu.example.com"}, {name: web, to: "https://us.example.com"}]}}]` +
			filled("{{name}}", "a/{{name}}", "{{to}}", "a"), []string{
			"    - environment: eu\n      name: cart\n    - environment: us\n      name: web\n",
			"environments:\n          - ${item.environment}\n"}},
		"clusters of all items": {"generators: [" + matrix(apps(""), targets) + "]" +
			filled("{{name}}-{{zone}}", "a/{{name}}", "{{to}}", "a"), []string{
			"  list:\n    - deployment: cart\n      name: cart\n    - deployment: web\n",
			"environments:\n          - eu\n          - us\n"}},
		"Go templates": {"goTemplate: true\ngenerators: [" + matrix(`{list: {elements: [{in: `+
			`{name: cart}}]}}`, stages) + "]" + filled("{{.in.name}}-{{.stage}}", "a", local, "a"),
			[]string{"    - in-name: cart\n      stage: dev\n    - in-name: cart\n",
				"name: ${item.in-name}-${item.stage}\n"}},
	} {
		r, set := folded(t, c.spec, Options{})
		if r.File != "tenants/platform/sets/services.yaml" || r.Status != Exact {
			t.Errorf("%s: %+v", what, r)
		}
		for _, want := range c.want {
			if !strings.Contains(set, want) {
				t.Errorf("%s: %q is not in\n%s", what, want, set)
			}
		}
		if strings.Contains(set, "zq") || strings.Contains(set, "unused") {
			t.Errorf("%s: a mark or an unused field is in\n%s", what, set)
		}
	}
}

// A declaration has one tenant: the items of a list that names the projects become one set for
// each. A deployment whose name another one has keeps the name that the import gave it.
func TestAListOfSeveralProjectsBecomesASetForEachTenant(t *testing.T) {
	t.Parallel()
	spec := `generators: [{list: {elements: [{name: cart, team: shop}, {name: pay, team: shop}, ` +
		`{name: home, team: site}]}}]` + strings.Replace(filled("{{name}}", "at/{{name}}", local,
		"{{team}}"), "project: default", "project: '{{team}}'", 1)
	const taken = `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: home, namespace: argocd}
spec:
  project: site
  source: {repoURL: "https://git.example.com/acme/other", path: x}
  destination: {name: in-cluster, namespace: site}
`
	tree, err := parse("apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\n" +
		"metadata: {name: services, namespace: argocd}\nspec:\n" + indent(spec))
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Originals: FromObject("set.yaml", tree)}
	found, _ := Read("app.yaml", []byte(taken))
	in.Originals = append(in.Originals, found...)
	outcome, err := Import(in, Options{Engine: "main", Region: "main", DefaultTenant: "platform"},
		renderNothing)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range outcome.Files {
		files[f.Path] = string(f.Bytes)
		if strings.Contains(f.Path, "/deployments/") && f.Path !=
			"tenants/site/deployments/home.yaml" {
			t.Errorf("%s is written too", f.Path)
		}
	}
	for tenant, want := range map[string]string{
		"shop": "    - name: cart\n      team: shop\n    - name: pay\n      team: shop\n",
		"site": "    - deployment: home-",
	} {
		if set := files["tenants/"+tenant+"/sets/services.yaml"]; !strings.Contains(set, want) {
			t.Errorf("%s: %q is not in\n%s", tenant, want, set)
		}
	}
	for _, r := range outcome.Report.Objects {
		if notes := strings.Join(r.Notes, " "); r.Kind == KindApplicationSet &&
			!strings.Contains(notes, "in 2 sets, one for each tenant") {
			t.Errorf("%+v", r)
		}
	}
	for _, p := range configschema.Check(outcome.Files) {
		t.Error(p)
	}
}
