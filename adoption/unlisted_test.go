package adoption

import (
	"strings"
	"testing"
)

// Without the repository of its git generator, an ApplicationSet becomes a set that is proven for
// an assumed item. The report states that the present items are not proven.
func TestAnApplicationSetBecomesASetWithoutItsRepository(t *testing.T) {
	t.Parallel()
	git := `{git: {repoURL: "https://git.example.com/acme/other", revision: main, `
	folders := git + `directories: [{path: other/*}, {path: other/old, exclude: true}]}}`
	files := git + `files: [{path: "other/**/app.yaml"}]}}`
	for what, c := range map[string]struct {
		spec string
		want []string
		path string // of another difference
	}{
		"folders": {"generators: [" + folders + "]" +
			filled("{{path.basename}}", "{{path}}", local, "a"), []string{
			"  directories:\n    repoURL: https://git.example.com/acme/other\n",
			"      - other/*\n      - '!other/old'\n", "name: ${item.path.basename}\n",
			"path: ${item.path}\n", "namespace: a\n", "environments:\n          - main\n"}, ""},
		"namespaces of items": {"generators: [" + folders + "]" +
			filled("{{path.basename}}", "{{path}}", local, "{{path.basename}}"),
			[]string{"namespace: ${item.path.basename}\n"},
			"spec.template.spec.destination.namespace"},
		"files of Go templates": {"goTemplate: true\ngenerators: [" + files + "]" +
			filled("{{.name}}", "{{.release.path}}", local, "a"),
			[]string{"  files:\n", "name: ${item.name}\n", "path: ${item.release.path}\n"}, ""},
		"a prefix of the parameters": {"goTemplate: true\ngenerators: [" + git +
			"pathParamPrefix: app, directories: [{path: other/*}]}}]" +
			filled("{{.app.path.basename}}", "{{.app.path.path}}", local, "a"),
			[]string{"name: ${item.path.basename}\n", "path: ${item.path}\n"}, ""},
		"folders times a list": {"generators: [{matrix: {generators: [" + folders +
			", {list: {elements: [{zone: a}, {zone: b}]}}]}}]" +
			filled("{{path.basename}}-{{zone}}", "{{path}}", local, "a"), []string{
			"  list:\n    - zone: a\n    - zone: b\n",
			"name: ${item.path.basename}-${item.zone}\n"}, ""},
		"folders times clusters": {"generators: [{matrix: {generators: [{clusters: {selector: " +
			"{matchLabels: {zone: x}}}}, " + folders + "]}}]" +
			filled("{{path.basename}}-{{name}}", "{{path}}/{{metadata.labels.zone}}", "{{server}}",
				"{{path.basename}}"), []string{"name: ${item.path.basename}\n",
			"path: ${item.path}/${environment.labels.zone}\n", "zone: x\n",
			"namespace: ${item.path.basename}\n"}, ""},
		"a default": {"goTemplate: true\ngenerators: [" + files + "]" +
			filled("{{.name}}", `{{ default "x" .release }}`, local, "a"),
			[]string{"path: ${item.release}\n"}, "spec.template"},
	} {
		r, set := folded(t, c.spec, Options{})
		if r.Status != Changed || set == "" {
			t.Errorf("%s: %+v", what, r)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(set, want) {
				t.Errorf("%s: %q is not in\n%s", what, want, set)
			}
		}
		if report := writeYAML(r); strings.Contains(set+report, "zq") {
			t.Errorf("%s: a mark is in\n%s\n%s", what, set, report)
		}
		paths := " "
		for _, d := range r.Differences {
			paths += d.Path + " "
		}
		if !strings.Contains(paths, " spec.generators.git ") ||
			c.path != "" && !strings.Contains(paths, " "+c.path+" ") {
			t.Errorf("%s: the differences are of%s", what, paths)
		}
	}
}

func TestAnApplicationSetWithoutItsRepositoryIsRefusedIfVariablesCannotRepeatIt(t *testing.T) {
	t.Parallel()
	git := `{git: {repoURL: "https://git.example.com/acme/other", revision: main, ` +
		`directories: [{path: other/*}]}}`
	one := "goTemplate: true\ngenerators: [" + git + "]"
	for what, spec := range map[string]string{
		"another form of a field": one + filled("{{.path.basename | upper | lower}}x",
			"{{.path.basename | upper}}", local, "a"),
		"a comparison": one + filled("{{.path.basename}}",
			`{{if eq .path.basename "cart"}}a{{else}}b{{end}}`, local, "a"),
		"equal names": one + filled("a", "{{.path.path}}", local, "a"),
		"the cluster of an item": one + filled("{{.path.basename}}", "{{.path.path}}",
			"https://{{.path.basename}}.example.com", "a"),
		"folders that depend on the cluster": "goTemplate: true\ngenerators: [{matrix: " +
			"{generators: [{clusters: {selector: {matchLabels: {zone: x}}}}, " +
			strings.Replace(git, "other/*", "'other/{{.name}}/*'", 1) + "]}}]" +
			filled("{{.path.basename}}", "{{.path.path}}", "{{.server}}", "a"),
		"two generators": "goTemplate: true\ngenerators: [" + git + ", " + git + "]" +
			filled("{{.path.basename}}", "{{.path.path}}", local, "a"),
	} {
		if r, set := folded(t, spec, Options{}); r.Status != Refused || set != "" {
			t.Errorf("%s: %+v\n%s", what, r, set)
		}
	}
	if r, set := folded(t, one+filled("{{.path.basename}}", "a", local, "a"),
		Options{Adopt: true}); r.Status != Refused {
		t.Errorf("an adoption: %+v\n%s", r, set)
	}
}
