package argocd

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestSpecsThatMeanTheSameToArgoCDMayBeAdopted(t *testing.T) {
	const declared = `{"project":"acme","destination":{"server":"https://c?managedEnvironment=x",
		"namespace":"shop"},"source":{"repoURL":"https://git/x","path":"deploy",
		"targetRevision":"HEAD"},"syncPolicy":{"automated":{"prune":true}}}`
	tree := func(text string) map[string]any {
		out, err := decodeTree([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	with := func(field, value string) map[string]any {
		out := maps.Clone(tree(declared))
		out[field] = tree(`{"x":` + value + `}`)["x"]
		return out
	}
	const source = `{"repoURL":"https://git/x","path":"deploy","targetRevision":"HEAD"`
	for name, c := range map[string]struct {
		live map[string]any
		want string
	}{
		"the same":        {tree(declared), ""},
		"another project": {with("project", `"default"`), ""},
		"the plain server": {
			with("destination", `{"server":"https://c/","namespace":"shop","name":""}`), ""},
		"another server": {with("destination", `{"server":"https://d","namespace":"shop"}`),
			`spec.destination.server is "https://d", declared "https://c"`},
		"a server by name": {with("destination", `{"name":"c","namespace":"shop"}`),
			"spec.destination.name"},
		"defaults of the source": {with("source",
			`{"repoURL":"https://git/x","path":"./deploy/","kustomize":{},
			"directory":{"recurse":false,"jsonnet":{}}}`), ""},
		"another path": {with("source", `{"repoURL":"https://git/x","path":"deploy2"}`),
			"spec.source.path"},
		"a tool": {with("source", source+`,"directory":{"recurse":true}}`),
			"spec.source.directory is"},
		"values of a chart that are zero": {with("source",
			source+`,"helm":{"valuesObject":{"enabled":false}}}`),
			`spec.source.helm`},
		"an unknown field": {with("source", source+`,"new":0}`), "spec.source.new is 0"},
		"options without effect": {with("syncPolicy",
			`{"automated":{"prune":true,"selfHeal":false,"enabled":true},
			"syncOptions":["Validate=true","CreateNamespace=false"]}`), ""},
		"an option": {with("syncPolicy", `{"automated":{"prune":true},
			"syncOptions":["Validate=false"]}`), "spec.syncPolicy.syncOptions"},
		"automation that is off": {with("syncPolicy", `{"automated":{"prune":true,
			"enabled":false}}`), "spec.syncPolicy is not set"},
		"manual with automation off": {with("syncPolicy", `{"automated":{"enabled":false}}`),
			"spec.syncPolicy is not set"},
		"no automation": {with("syncPolicy", `{}`), "spec.syncPolicy is not set"},
		"retries that are off": {with("syncPolicy", `{"automated":{"prune":true},
			"retry":{"limit":0}}`), "spec.syncPolicy.retry"},
		"one spelling of the repository": {with("source",
			`{"repoURL":"https://GIT/x.git","path":"deploy"}`), ""},
		"another type": {with("source", `{"repoURL":7}`),
			"the live spec is no Application's: source.repoURL cannot be a number"},
		"no history": {with("revisionHistoryLimit", "0"),
			"spec.revisionHistoryLimit"},
		"a source of the hydrator": {with("sourceHydrator", `{"a":"b"}`), "spec.sourceHydrator"},
	} {
		got := specDifferences(tree(declared), c.live, "shop")
		if c.want == "" && len(got) > 0 || c.want != "" &&
			!strings.Contains(strings.Join(got, "; "), c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	empty := tree(`{"syncPolicy":{"automated":{}}}`)
	if got := specDifferences(empty, tree(`{}`), "x"); len(got) != 1 {
		t.Errorf("automated: {} is taken for none: %q", got)
	}
	chart := tree(`{"source":{"chart":"web","helm":{"releaseName":"shop"}}}`)
	if got := specDifferences(chart, tree(`{"source":{"chart":"web"}}`), "shop"); len(got) > 0 {
		t.Errorf("the default release name: %q", got)
	}
}

func TestListsOfDifferencesAreBounded(t *testing.T) {
	if got := listed([]string{"a", "b", "c", "d", "e", "f", "g"}); !strings.HasSuffix(got,
		"e; and 2 more") {
		t.Error(got)
	}
}

// adoptedObject is the live object of an adopted Application, of a name and version.
func adoptedObject(t *testing.T, name, version string, change func(meta map[string]any)) *entry {
	t.Helper()
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Adopt = "checkout-prod"
	m, err := Renderer{}.Render(engineSpec(), o)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := decodeTree(m.Body)
	if err != nil {
		t.Fatal(err)
	}
	meta := child(tree, "metadata")
	if meta["name"] != "checkout-prod" {
		t.Fatalf("its name is %v", meta["name"])
	}
	meta["name"], meta["uid"], meta["resourceVersion"] = name, "uid-1", version
	if change != nil {
		change(meta)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	live, err := decodeLive(text)
	if err != nil {
		t.Fatal(err)
	}
	return newEntry(testEngine, applications, live)
}

func TestAnAdoptedApplicationHasTheKeyOfItsIdentity(t *testing.T) {
	key := applicationObject(checkoutID, exampleServer).Key
	if e := adoptedObject(t, "checkout-prod", "1", nil); !e.Ours || e.Key != key ||
		e.object != "checkout-prod" {
		t.Errorf("%+v", e)
	}
	if e := adoptedObject(t, "copy", "1", nil); e.Ours {
		t.Error("a copy under another name is ours")
	}
	if e := adoptedObject(t, "checkout-prod", "1", func(meta map[string]any) {
		delete(child(meta, "labels"), labelTenant)
	}); e.Ours {
		t.Error("an object without a tenant is ours")
	}
	o := applicationObject(checkoutID, exampleServer)
	for _, bad := range []string{"Upper", "a b", "a..b", "*", "a/b"} {
		o.Application.Adopt = bad
		if _, err := (Renderer{}).Render(engineSpec(), o); err == nil {
			t.Errorf("%q is rendered", bad)
		}
	}
}

func TestTheCacheFollowsAnAdoptionAndARelease(t *testing.T) {
	c := newCache(resources)
	key := applicationObject(checkoutID, exampleServer).Key
	foreign := func(version string) *entry {
		return adoptedObject(t, "checkout-prod", version, func(meta map[string]any) {
			delete(meta, "labels")
			delete(meta, "annotations")
		})
	}
	names := func() string {
		return strings.Join(slices.Sorted(maps.Keys(c.objects[applications])), " ")
	}
	c.put(applications, foreign("1"))
	c.put(applications, adoptedObject(t, "checkout-prod", "3", nil))
	c.put(applications, foreign("2")) // a late event
	c.put(applications, adoptedObject(t, "checkout-prod", "3", nil))
	if got := names(); got != key.Name || !c.get(key).Ours {
		t.Errorf("adopted: %q", got)
	}
	c.take()
	c.put(applications, foreign("4"))
	p := c.take()
	if got := names(); got != "checkout-prod" || c.get(key) != nil || len(p.observed) != 1 ||
		!p.observed[0].Deleted || p.observed[0].Key != key {
		t.Errorf("released: %q, %+v", got, p.observed)
	}
	c.put(applications, adoptedObject(t, "checkout-prod", "5", nil))
	c.remove(applications, key.Name, "6")
	if got := names(); got != "" || len(c.adopted) > 0 {
		t.Errorf("deleted: %q, %v", got, c.adopted)
	}
}
