package configschema

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func setFile(items, template string) File {
	return File{Path: "tenants/acme/sets/shop.yaml", Blob: "blob", Bytes: []byte(
		"apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeploymentSet\nmetadata: {name: shop}\n" +
			"spec:\n  list:\n" + items + "  template:\n" + template)}
}

const shopTemplate = `    metadata:
      name: ${item.name}-shop
      labels: {team: "${item.team}"}
    spec:
      source:
        repoURL: https://git.example.com/acme/${item.name}
        path: deploy/${environment.name}
        targetRevision: ${item.revision}
        helm:
          releaseName: ${item.name}
          valueFiles: ["values-${item.team}.yaml"]
          values: {image: {tag: "${item.revision}", note: "$${item.name}"}, replicas: 2}
      destination: {environments: [staging, "${item.team}"], namespace: "${item.name}"}
      sync: {mode: automated}
`

const shopItems = `    - {name: cart, team: payments, revision: "1.10"}
    - {name: api, team: search, revision: v2}
`

// writtenOut is the deployment of an item as people write it into a file of its own.
func writtenOut(t *testing.T, name, team, revision string) *fleet.Declaration {
	t.Helper()
	values := strings.NewReplacer("${item.name}", name, "${item.team}", team, "${item.revision}",
		revision, "$${item.name}", "${item.name}")
	spec, _ := strings.CutPrefix(shopTemplate, "    metadata:\n")
	text := "apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata:\n"
	for line := range strings.Lines(spec) {
		text += strings.TrimPrefix(line, "    ")
	}
	d := Decode(File{Path: "tenants/acme/deployments/" + name + "-shop.yaml",
		Bytes: []byte(strings.ReplaceAll(values.Replace(text), "targetRevision: 1.10",
			`targetRevision: "1.10"`))})
	if len(d.Problems) > 0 {
		t.Fatal(d.Problems)
	}
	return d.Declaration
}

func TestAnItemGivesTheDeploymentThatPeopleWouldWrite(t *testing.T) {
	doc := Decode(setFile(shopItems, shopTemplate))
	if len(doc.Problems) > 0 {
		t.Fatal(doc.Problems)
	}
	generated := doc.Declaration.Set.Generated
	if len(generated) != 2 || generated[0].Name != "api-shop" || generated[1].Name != "cart-shop" {
		t.Fatalf("%+v", generated)
	}
	for i, want := range []*fleet.Declaration{writtenOut(t, "api", "search", "v2"),
		writtenOut(t, "cart", "payments", "1.10")} {
		got := generated[i].Declaration
		if got == nil {
			t.Fatal(generated[i].Problems)
		}
		if got.Key != want.Key || got.Path != "tenants/acme/sets/shop.yaml" ||
			!reflect.DeepEqual(got.Labels, want.Labels) ||
			!reflect.DeepEqual(got.Deployment, want.Deployment) {
			t.Errorf("got\n%+v %+v\nwant\n%+v %+v", got, got.Deployment, want, want.Deployment)
		}
	}
}

func TestAnItemChangesTheHashOfItsDeploymentAlone(t *testing.T) {
	hashes := func(items string) map[fleet.DeploymentName]string {
		doc := Decode(setFile(items, shopTemplate))
		if len(doc.Problems) > 0 {
			t.Fatal(doc.Problems)
		}
		out := map[fleet.DeploymentName]string{}
		for _, g := range doc.Declaration.Set.Generated {
			if out[g.Name] = g.Blob; g.Declaration.Blob != g.Blob {
				t.Error("the declaration has another hash")
			}
		}
		return out
	}
	before := hashes(shopItems)
	after := hashes("    # moved down\n" + strings.Replace(shopItems, "v2", "v3", 1))
	if before["cart-shop"] != after["cart-shop"] || before["api-shop"] == after["api-shop"] {
		t.Errorf("before %v, after %v", before, after)
	}
}

func TestAMistakeOfOneItemHurtsItsDeploymentAlone(t *testing.T) {
	doc := Decode(setFile(shopItems+`    - {name: web, team: search, revision: ".."}
    - {name: mail, team: search}
`, shopTemplate))
	if len(doc.Problems) > 0 || doc.Declaration == nil {
		t.Fatal(doc.Problems)
	}
	bad := map[fleet.DeploymentName]string{}
	for _, g := range doc.Declaration.Set.Generated {
		for _, p := range g.Problems {
			checkProblem(t, p)
			bad[g.Name] += p.String()
		}
		if (g.Declaration == nil) != (len(g.Problems) > 0) {
			t.Errorf("%s has problems and a declaration, or neither", g.Name)
		}
	}
	if len(bad) != 2 || !strings.Contains(bad["web-shop"], `sets/shop.yaml:18:25: error[invalid-`+
		`revision]: deployment "web-shop", item 3: targetRevision`) ||
		!strings.Contains(bad["mail-shop"], `item 4: targetRevision: the item has no field "revision"`) {
		t.Errorf("%v", bad)
	}
}

func TestTheExamplesOfTheDocsDecode(t *testing.T) {
	page, err := os.ReadFile("../docs/sets.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, rest := range strings.Split(string(page), "```yaml\n")[1:] {
		example, _, _ := strings.Cut(rest, "```")
		path, _, _ := strings.Cut(strings.TrimPrefix(example, "# "), "\n")
		doc := Decode(File{Path: path, Bytes: []byte(example),
			Listings: atPaths("services/cart", "services/search")})
		if len(doc.Problems) > 0 {
			t.Fatal(doc.Problems)
		}
		set := doc.Declaration.Set
		if len(set.Generated) < 2 {
			t.Errorf("%s: %d deployments, %v", path, len(set.Generated), set.Unexpanded)
		}
		for _, g := range set.Generated {
			if len(g.Problems) > 0 {
				t.Error(g.Problems)
			}
		}
		if err := judge(compiled(t, CombinedSchema()), []byte(example)); err != nil {
			t.Error(err)
		}
		examples++
	}
	if examples != 2 {
		t.Errorf("%d examples", examples)
	}
}

func TestASetHasLimits(t *testing.T) {
	items := func(n int, more string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "    - {name: n%d, team: a, revision: v1%s}\n", i, more)
		}
		return b.String()
	}
	if doc := Decode(setFile(items(1000, ""), shopTemplate)); len(doc.Problems) > 0 ||
		len(doc.Declaration.Set.Generated) != 1000 {
		t.Error("1000 items:", doc.Problems)
	}
	large := strings.Replace(shopTemplate, "replicas: 2",
		"text: \""+strings.Repeat("${item.long}", 100)+"\"", 1)
	for what, doc := range map[string]Document{
		"list has 1001 entries; at most 1000": Decode(setFile(items(1001, ""), shopTemplate)),
		"the template and 60 items give up to": Decode(setFile(
			items(60, ", long: "+strings.Repeat("a", 1000)), large)),
	} {
		if doc.Declaration != nil || len(doc.Problems) != 1 ||
			!strings.Contains(doc.Problems[0].Message, what) {
			t.Errorf("%s: %v", what, doc.Problems)
		}
	}
}
