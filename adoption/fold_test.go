package adoption

import (
	"strings"
	"testing"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// renderNothing renders every deployment as an object that is equal to its original.
var renderNothing = Tools{
	Normalize: func(o map[string]any, _ func(string) bool) (Normal, error) {
		return Normal{Spec: map[string]any{"project": text(o, "spec", "project")}}, nil
	},
	Render: func(files []configschema.File) (all []Rendered, _ []fleet.Problem, _ error) {
		s := catalog.New().Prepare(configschema.Inputs(files))
		for _, t := range s.Tenants() {
			for _, id := range s.DeploymentsOf(t) {
				for _, env := range s.Targets(id) {
					all = append(all, Rendered{Tenant: t, Deployment: id.Name,
						Environment: env.Name, Object: map[string]any{}})
				}
			}
		}
		return all, s.Problems(), nil
	}}

// atHand is a tree of files with their content.
func atHand(files map[string]string) *Tree {
	dirs := map[string]bool{}
	for f := range files {
		for i, c := range f {
			if c == '/' {
				dirs[f[:i]] = true
			}
		}
	}
	return &Tree{Dirs: keys(dirs), Files: keys(files), Read: func(f string) ([]byte, error) {
		return []byte(files[f]), nil
	}}
}

const foldedTemplate = `
template:
  metadata: {name: 'NAME'}
  spec:
    project: default
    source: {repoURL: "https://git.example.com/acme/services", path: 'PATH', targetRevision: main}
    destination: {server: "SERVER", namespace: 'NAMESPACE'}
`

// folded imports one ApplicationSet and returns its result and the file of the set, or "".
func folded(t *testing.T, spec string, o Options) (Result, string) {
	t.Helper()
	tree, err := parse("apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\n" +
		"metadata: {name: services, namespace: argocd}\nspec:\n" + indent(spec))
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Originals: FromObject("set.yaml", tree), Tree: atHand(map[string]string{
		"services/cart/x.yaml": "a: b", "services/web/x.yaml": "a: b", "services/old/x.yaml": "",
		"apps/cart/config.yaml": "name: cart\nrelease: {path: services/cart}\n",
		"apps/web/config.yaml":  "name: web\nrelease: {path: services/web}\n"})}
	for _, name := range []string{"eu", "us"} {
		found, _ := Read(name, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: "+name+
			", namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster, tier: prod}}\n"+
			"stringData: {name: "+name+", server: 'https://"+name+".example.com'}\n"))
		in.Originals = append(in.Originals, found...)
	}
	o.Engine, o.Region, o.DefaultTenant = "main", "main", "platform"
	outcome, err := Import(in, o, renderNothing)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range configschema.Check(outcome.Files) {
		if p.Severity == fleet.SeverityError && p.Code != configschema.CodeNotExpanded {
			t.Error(p)
		}
	}
	for _, r := range outcome.Report.Objects {
		if r.Kind != KindApplicationSet {
			continue
		}
		for _, f := range outcome.Files {
			if f.Path == r.File && strings.Contains(f.Path, "/sets/") {
				return r, string(f.Bytes)
			}
		}
		return r, ""
	}
	t.Fatal("no result")
	return Result{}, ""
}

func filled(name, path, server, namespace string) string {
	return strings.NewReplacer("NAME'", name+"'", "PATH", path, "SERVER", server, "NAMESPACE",
		namespace).Replace(foldedTemplate)
}

const local = "https://kubernetes.default.svc"

func TestAnApplicationSetBecomesASet(t *testing.T) {
	t.Parallel()
	git := `{git: {repoURL: "https://git.example.com/acme/services", revision: main, `
	folders := git + `directories: [{path: services/*}, {path: services/old, exclude: true}]}}`
	files := git + `files: [{path: "apps/**/config.yaml"}]}}`
	for what, c := range map[string]struct {
		spec string
		want []string
	}{
		"a list": {"generators: [{list: {elements: [{name: cart, at: {path: a}}, " +
			"{name: web, at: {path: b}, unused: x}]}}]" +
			filled("{{name}}", "{{at.path}}", local, "{{name}}-ns"), []string{
			"  list:\n    - at-path: a\n      name: cart\n    - at-path: b\n      name: web\n",
			"path: ${item.at-path}\n", "namespace: ${item.name}-ns\n"}},
		"folders": {"generators: [" + folders + "]" +
			filled("{{path.basename}}", "{{path}}", local, "{{path[1]}}"), []string{
			"  directories:\n    repoURL: https://git.example.com/acme/services\n" +
				"    targetRevision: main\n    paths:\n      - services/*\n" +
				"      - '!services/old'\n", "name: ${item.path.basename}\n",
			"path: ${item.path}\n", "namespace: ${item.path.segments.1}\n"}},
		"a prefix of the parameters": {"generators: [" + strings.Replace(folders, "directories:",
			"pathParamPrefix: in, directories:", 1) + "]" +
			filled("{{in.path.basename}}", "{{in.path}}", local, "{{in.path[1]}}"), []string{
			"name: ${item.path.basename}\n", "namespace: ${item.path.segments.1}\n"}},
		"files of Go templates": {"goTemplate: true\ngenerators: [" + files + "]" +
			filled("{{.name}}", "{{.release.path}}", local, "x-{{index .path.segments 1}}"),
			[]string{"  files:\n", "      - apps/**/config.yaml\n", "name: ${item.name}\n",
				"path: ${item.release.path}\n", "namespace: x-${item.path.segments.1}\n"}},
		"a function that gives the value": {"goTemplate: true\ngenerators: [" + folders + "]" +
			filled("{{.path.basename | lower}}", "{{.path.path}}", local, "a"),
			[]string{"name: ${item.path.basename}\n"}},
		"folders times a list": {"generators: [{matrix: {generators: [" + folders +
			", {list: {elements: [{zone: a}, {zone: b}]}}]}}]" +
			filled("{{path.basename}}-{{zone}}", "{{path}}", local, "{{zone}}"), []string{
			"  directories:\n", "  list:\n    - zone: a\n    - zone: b\n",
			"name: ${item.path.basename}-${item.zone}\n"}},
		"folders times clusters": {"generators: [{matrix: {generators: [" + folders +
			", {clusters: {selector: {matchLabels: {tier: prod}}}}]}}]" +
			filled("{{path.basename}}-{{name}}", "{{path}}", "{{server}}", "{{path.basename}}"),
			[]string{"name: ${item.path.basename}\n", "environmentSelector:\n"}},
	} {
		r, set := folded(t, c.spec, Options{})
		if r.File != "tenants/platform/sets/services.yaml" || r.Status == Refused {
			t.Errorf("%s: %+v", what, r)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(set, want) {
				t.Errorf("%s: %q is not in\n%s", what, want, set)
			}
		}
		if strings.Contains(set, "zq") || strings.Contains(set, "unused") {
			t.Errorf("%s: a mark or an unused field is in\n%s", what, set)
		}
		if want := strings.Contains(what, "function"); want != strings.Contains(
			writeYAML(r.Differences), "compare what a new item gives") {
			t.Errorf("%s: %+v", what, r.Differences)
		}
		for _, d := range r.Differences {
			if strings.HasSuffix(d.Path, ".git") {
				t.Errorf("%s: the set has the generator, and the report has %+v", what, d)
			}
		}
	}
}

// The Applications of a live ApplicationSet show what its repository has.
func TestALiveApplicationSetBecomesASetWithoutItsRepository(t *testing.T) {
	t.Parallel()
	git := `generators: [{git: {repoURL: "https://git.example.com/acme/services", revision: main, `
	goFiles := "goTemplate: true\n" + git + `files: [{path: "apps/*/config.yaml"}]}}]`
	for what, c := range map[string]struct{ spec, variable string }{
		"folders": {git + "directories: [{path: services/*}]}}]" +
			filled("x-{{path.basename}}", "{{path}}", local, "{{path.basename}}"), "item.path}"},
		"folders by their names": {git + "directories: [{path: services/*}]}}]" +
			filled("{{path.basename}}", "x/{{path.basename}}", local, "a"), "item.path.basename}"},
		"files": {git + `files: [{path: "apps/*/config.yaml"}]}}]` +
			filled("{{name}}", "{{release.path}}", local, "{{name}}"), "item.release.path}"},
		"files of Go templates": {goFiles + filled("{{ .name }}", "{{.release.path}}", local,
			"a"), "item.release.path}"},
		"a function": {goFiles + filled("{{ .name }}", "{{ default .release.path .other }}", local,
			"a"), ""},
	} {
		tree, err := parse("apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\n" +
			"metadata: {name: services, namespace: argocd}\nspec:\n" + indent(c.spec))
		if err != nil {
			t.Fatal(err)
		}
		in := Input{Originals: FromObject("", tree)}
		for _, name := range []string{"cart", "web"} {
			values := parameters{"path": "services/" + name, "path.basename": name, "name": name,
				"release.path": "at/" + name}
			goTemplate, _ := at(tree, "spec", "goTemplate").(bool)
			if goTemplate {
				values = parameters{"name": name, "release": map[string]any{"path": "at/" + name}}
			}
			o, err := renderer{goTemplate: goTemplate}.tree(object(tree, "spec", "template"),
				values)
			if err != nil {
				t.Fatal(err)
			}
			app, _ := o.(map[string]any)
			app["apiVersion"], app["kind"] = "argoproj.io/v1alpha1", KindApplication
			metadata := object(app, "metadata")
			metadata["namespace"], metadata["finalizers"] = "argocd", []any{finalizer}
			metadata["ownerReferences"] = []any{map[string]any{"kind": KindApplicationSet,
				"apiVersion": "argoproj.io/v1alpha1", "name": "services"}}
			in.Originals = append(in.Originals, FromObject("", app)...)
		}
		outcome, err := Import(in, Options{Engine: "main", Region: "main",
			DefaultTenant: "platform"}, renderNothing)
		if err != nil {
			t.Fatal(err)
		}
		set := ""
		for _, f := range outcome.Files {
			if f.Path == "tenants/platform/sets/services.yaml" {
				set = string(f.Bytes)
			}
		}
		if !strings.Contains(set, c.variable) || (set == "") != (c.variable == "") {
			t.Errorf("%s: %+v\n%s", what, outcome.Report.Objects, set)
		}
		for _, r := range outcome.Report.Objects {
			if r.Kind == KindApplicationSet && set != "" && r.Status != Exact {
				t.Errorf("%s: %+v", what, r)
			}
		}
	}
}

// A set that would give other deployments is not written: each Application keeps its own.
func TestAnApplicationSetThatASetCannotRepeatBecomesDeployments(t *testing.T) {
	t.Parallel()
	elements := "goTemplate: true\ngenerators: [{list: {elements: [{name: Cart}, {name: Web}]}}]"
	for what, c := range map[string]struct {
		spec    string
		options Options
	}{
		"a function of the value": {elements + filled("{{.name | lower}}", "a", local, "a"),
			Options{}},
		"a condition": {strings.ReplaceAll(strings.ToLower(strings.Replace(elements,
			"goTemplate", "GOTEMPLATE", 1)), "gotemplate", "goTemplate") +
			filled("{{.name}}", `{{if eq .name "cart"}}a{{else}}b{{end}}`, local, "a"), Options{}},
	} {
		if r, set := folded(t, c.spec, c.options); set != "" || r.Status == Refused ||
			!strings.Contains(r.File, "/deployments/") {
			t.Errorf("%s: %+v\n%s", what, r, set)
		}
	}
}

// A set adopts what the ApplicationSet generated, by the name that the item gives it, and creates
// what it would have generated for a new item.
func TestAnApplicationSetBecomesASetThatAdopts(t *testing.T) {
	t.Parallel()
	git := `{git: {repoURL: "https://git.example.com/acme/services", revision: main, ` +
		`directories: [{path: services/*}, {path: services/old, exclude: true}]}}`
	for what, c := range map[string]struct {
		spec string
		want []string
	}{
		"a list": {"generators: [{list: {elements: [{name: cart}, {name: web}]}}]" +
			filled("shop-{{name}}-prod", "{{name}}", local, "{{name}}"), []string{
			"      adopt:\n        - environment: main\n" +
				"          application: shop-${item.name}-prod\n          orCreate: true\n",
			"      deletionPolicy: Release\n"}},
		"folders in every cluster": {"generators: [{matrix: {generators: [" + git +
			", {clusters: {}}]}}]" +
			filled("{{path.basename}}-{{name}}", "{{path}}", "{{server}}", "x"), []string{
			"        - environment: eu\n" +
				"          application: ${item.path.basename}-eu\n          orCreate: true\n",
			"        - environment: us\n" +
				"          application: ${item.path.basename}-us\n          orCreate: true\n"}},
	} {
		r, set := folded(t, c.spec, Options{Adopt: true})
		for _, want := range c.want {
			if !strings.Contains(set, want) {
				t.Errorf("%s: %+v\n%s\nlacks %s", what, r, set, want)
			}
		}
		if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes,
			"kubectl -n argocd delete applicationset services --cascade=orphan") {
			t.Errorf("%s: %q", what, notes)
		}
	}
}
