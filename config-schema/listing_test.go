package configschema

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

const discovered = `apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeploymentSet
metadata: {name: shop}
spec:
  directories:
    repoURL: https://git.example.com/acme/services.git
    targetRevision: main
    paths: ["services/*", "!services/legacy"]
  template:
    metadata:
      name: ${item.name}
    spec:
      source:
        repoURL: https://git.example.com/acme/services.git
        path: ${item.path}
        targetRevision: main
      destination: {environments: [staging], namespace: "${item.path.segments.1}"}
`

// discoveredFiles is a set of files, with another template.
var discoveredFiles = strings.NewReplacer("directories:", "files:",
	`["services/*", "!services/legacy"]`, `["apps/*/config.yaml"]`,
	"name: ${item.name}", "name: ${item.path.basename}",
	"targetRevision: main\n      d", "targetRevision: ${item.release.tag}\n      d",
	"${item.path.segments.1}", "${item.zones.0}").Replace(discovered)

func discover(text string, listings fleet.Listings) Document {
	return Decode(File{Path: "tenants/acme/sets/shop.yaml", Blob: "blob", Bytes: []byte(text),
		Listings: listings})
}

// found answers every request with these entries.
func found(entries ...fleet.Listed) fleet.Listings {
	return func(r fleet.ListingRequest) (fleet.Listing, error) {
		return fleet.NewListing(r, "c1", entries)
	}
}

func atPaths(paths ...string) fleet.Listings {
	var all []fleet.Listed
	for _, p := range paths {
		all = append(all, fleet.Listed{Path: p})
	}
	return found(all...)
}

func TestAFolderIsAnItem(t *testing.T) {
	doc := discover(discovered, atPaths("services/web", "services/api"))
	if len(doc.Problems) > 0 || len(doc.Declaration.Set.Unexpanded) > 0 {
		t.Fatal(doc.Problems, doc.Declaration.Set.Unexpanded)
	}
	list := strings.NewReplacer("item.path.segments.1", "item.segment").Replace(discovered)
	from, to := strings.Index(list, "  directories:"), strings.Index(list, "  template:")
	byHand := discover(list[:from]+"  list:\n"+
		"    - {name: api, path: services/api, segment: api}\n"+
		"    - {name: web, path: services/web, segment: web}\n"+list[to:], nil)
	if got, want := doc.Declaration.Set.Generated, byHand.Declaration.Set.Generated; len(
		got) != 2 ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if l := doc.Declaration.Set.Listings; len(l) != 1 || l[0].Commit != "c1" ||
		l[0].Request != doc.Declaration.Set.Requests("acme")[0] {
		t.Errorf("the declaration has the listings %+v", l)
	}
}

func TestAFilesFieldsAreThoseOfItsItem(t *testing.T) {
	doc := discover(discoveredFiles, found(
		ListFile("apps/web/config.yaml",
			[]byte("release: {tag: 1.10}\nzones: [shop]\npath: /etc\n")),
		ListFile("apps/api/config.yaml", []byte("release: {tag: [v1]}\nzones: [shop]\n")),
		ListFile("apps/bad/config.yaml", []byte("a: b: c\n"))))
	if len(doc.Problems) > 0 || len(doc.Declaration.Set.Unexpanded) > 0 {
		t.Fatal(doc.Problems, doc.Declaration.Set.Unexpanded)
	}
	all := doc.Declaration.Set.Generated
	if len(all) != 3 || all[0].Name != "api" || all[1].Name != "bad" || all[2].Declaration == nil {
		t.Fatalf("%+v", all)
	}
	if s := all[2].Declaration.Deployment; s.Source.TargetRevision != "1.10" ||
		s.Source.Path != "apps/web" || s.Destination.Namespace != "shop" {
		t.Errorf("%+v", s)
	}
	for i, want := range []string{
		`16:25: error[invalid-value]: deployment "api", file "apps/api/config.yaml": ` +
			`targetRevision: the item has no field "release.tag"`,
		`deployment "bad", file "apps/bad/config.yaml": apps/bad/config.yaml: line 1, column`} {
		if len(all[i].Problems) != 1 || !strings.Contains(all[i].Problems[0].String(), want) {
			t.Errorf("%v", all[i].Problems)
		}
	}
}

func TestOnlyShortScalarsOfAFileAreFields(t *testing.T) {
	l := ListFile("a.json", []byte(`{"name": "web", "n": 3, "on": true, "none": null, "two": "a\nb",
"nested": {"list": ["x", {"y": "z"}]}, "a.b": "c", "$x": "d", "var": "${item.name}",
"long": "`+strings.Repeat("a", 1025)+`"}`))
	want := map[string]string{"name": "web", "n": "3", "on": "true", "nested.list.0": "x",
		"nested.list.1.y": "z"}
	if l.Problem != "" || !reflect.DeepEqual(l.Fields, want) {
		t.Errorf("%+v", l)
	}
	many := ""
	for i := range 101 {
		many += fmt.Sprintf("f%d: a\n", i)
	}
	for what, content := range map[string]string{
		"plaintext":             "password: hunter22hunter22\n",
		"the file holds no map": "- a\n",
		"more than 100 fields":  many,
		"several documents":     "a: b\n---\na: b\n",
		"line 1, column 4":      "a: &x b\n",
		"line 2, column 1":      "a: b\na: c\n",
		"a Git LFS pointer":     "version https://git-lfs.github.com/spec/v1\n",
	} {
		l := ListFile("a.yaml", []byte(content))
		if l.Fields != nil || !strings.Contains(l.Problem, what) ||
			strings.Contains(l.Problem, "hunter22") {
			t.Errorf("%s: %+v", what, l)
		}
	}
}

func TestASetThatCannotBeExpandedStillHasItsRequests(t *testing.T) {
	matrix := strings.Replace(discovered, "  template:", `  list:
    - {name: a}
  template:`, 1)
	eleven, hundred := make([]string, 11), ""
	for i := range eleven {
		eleven[i] = fmt.Sprintf("services/s%d", i)
	}
	for i := range 100 {
		hundred += fmt.Sprintf("    - {zone: z%d}\n", i)
	}
	large := strings.Replace(discovered, "  template:", "  list:\n"+hundred+"  template:", 1)
	for what, doc := range map[string]Document{
		"main: the repository has not been read yet": discover(discovered, nil),
		"main: connection refused": discover(discovered,
			func(fleet.ListingRequest) (fleet.Listing, error) {
				return fleet.Listing{}, errors.New("connection refused")
			}),
		"main: nothing matches": discover(discovered, found()),
		`folder "services/My_App": name: `: discover(discovered,
			atPaths("services/a", "services/My_App")),
		`item 1 both have the field "name"`:       discover(matrix, atPaths("services/a")),
		"11 x 100 = 1100 combinations; at most 1": discover(large, atPaths(eleven...)),
	} {
		if len(doc.Problems) > 0 || doc.Declaration == nil {
			t.Fatal(doc.Problems)
		}
		set := doc.Declaration.Set
		if len(set.Generated) > 0 || len(set.Requests("acme")) != 1 || len(set.Unexpanded) == 0 ||
			!strings.Contains(set.Unexpanded[0].String(), what) {
			t.Errorf("%s: %v", what, set.Unexpanded)
		}
		for _, p := range set.Unexpanded {
			checkProblem(t, p)
		}
	}
}

func TestSeveralSourcesGiveTheirProduct(t *testing.T) {
	text := strings.NewReplacer("  template:", `  list:
    - {zone: eu}
    - {zone: us}
  template:`, "name: ${item.name}", "name: ${item.name}-${item.zone}").Replace(discovered)
	doc := discover(text, atPaths("services/a", "services/b"))
	names := ""
	for _, g := range doc.Declaration.Set.Generated {
		names += string(g.Name) + " "
	}
	if names != "a-eu a-us b-eu b-us " {
		t.Error(names, doc.Problems, doc.Declaration.Set.Unexpanded)
	}
	doc = discover(strings.Replace(text, "-${item.zone}", "", 1), atPaths("services/a"))
	if p := doc.Declaration.Set.Generated[0].Problems; len(p) != 1 ||
		!strings.Contains(p[0].Message,
			`folder "services/a" with item 1 and folder "services/a" with item 2 both give`) {
		t.Error(p)
	}
}

func TestPatternsAreBoundedAndNotAllExclude(t *testing.T) {
	many := ""
	for i := range 20 {
		many += fmt.Sprintf(`"%d/%s*", `, i, strings.Repeat("a", 230))
	}
	for what, paths := range map[string]string{
		"the patterns have 4670 bytes; at most 4096": many,
		"every pattern excludes":                     `"!a/*"`,
		"'**' is a whole segment":                    `"a**"`,
	} {
		doc := discover(strings.Replace(discovered, `"services/*", "!services/legacy"`,
			strings.TrimSuffix(paths, ", "), 1), atPaths("a/b"))
		if len(doc.Problems) != 1 || !strings.Contains(doc.Problems[0].String(), what) {
			t.Errorf("%s: %v", what, doc.Problems)
		}
	}
	doc := discover(strings.Replace(discovered, "https://git.example.com/acme/services.git\n    t",
		"registry.example.com/charts\n    t", 1), nil)
	if len(doc.Problems) != 1 || doc.Problems[0].Field != "spec.directories.repoURL" {
		t.Error(doc.Problems)
	}
}

// An owner reviewed the template, and no one the pushes to the listed repository.
func TestAPathIsOneLineWithoutVariables(t *testing.T) {
	set := strings.NewReplacer("path: ${item.path}", "path: .\n        kustomize: {patches: [{"+
		`target: {kind: Deployment}, patch: "- {op: add, path: /metadata/labels/a, value: ${item.path}}"}]}`,
		"services/*", "services/**", "name: ${item.name}", "name: ${item.path.basename}",
		"${item.path.segments.1}", "shop").Replace(discovered)
	for _, folder := range []string{"x}\n- {op: remove, path: /spec, value: y", "x\ry",
		"${environment.name}", "x\u202ey"} {
		doc := discover(set, atPaths("services/"+folder+"/web", "services/good/api"))
		all := doc.Declaration.Set.Generated
		if len(doc.Problems) > 0 || len(all) != 2 || len(all[0].Problems) > 0 ||
			all[1].Declaration != nil || len(all[1].Problems) != 1 ||
			!strings.Contains(all[1].Problems[0].Message, "holds a line break") {
			t.Errorf("%q: %v %+v", folder, doc.Problems, all)
		}
	}
	files := strings.Replace(discoveredFiles, "${item.path.basename}", "${item.name}", 1)
	files = strings.Replace(files, "apps/*/config.yaml", "apps/*/*", 1)
	doc := discover(files, found(ListFile("apps/web/a\nb",
		[]byte("name: web\nrelease: {tag: v1}\nzones: [shop]\n")), ListFile("apps/api/c.yaml",
		[]byte("name: api\nrelease: {tag: v1}\nzones: [shop]\n"))))
	if all := doc.Declaration.Set.Generated; len(all) != 2 || len(all[0].Problems) > 0 ||
		all[1].Declaration != nil {
		t.Errorf("%+v %v", all, doc.Problems)
	}
}
