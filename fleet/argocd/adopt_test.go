package argocd

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
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

// Kargo and Argo CD Image Updater write to the Applications that have their annotations.
func TestAnApplicationThatAnotherControllerWritesIsNotAdopted(t *testing.T) {
	const updater = "argocd-image-updater.argoproj.io/"
	for name, c := range map[string]struct {
		annotations map[string]any
		want        string
	}{
		"none":  {nil, ""},
		"Kargo": {map[string]any{"kargo.akuity.io/authorized-stage": "shop:prod"}, "kargo"},
		"images": {map[string]any{updater + "image-list": "app=registry.example.com/app"},
			updater + "image-list"},
		"images by the API": {map[string]any{updater + "image-list": "a",
			updater + "write-back-method": "argocd"}, updater + "image-list"},
		"images in Git": {map[string]any{updater + "image-list": "a",
			updater + "write-back-method": "git:repocreds"}, ""},
		"images of another method": {map[string]any{updater + "image-list": "a",
			updater + "write-back-method": "github"}, updater + "image-list"},
		"no images":      {map[string]any{updater + "image-list": ""}, ""},
		"settings alone": {map[string]any{updater + "a.force-update": "true"}, ""},
	} {
		spec := map[string]any{"source": map[string]any{"path": "deploy"}}
		w := &desired{object: "web", tree: map[string]any{"spec": spec}}
		err := (&Engine{}).adoptable(w, map[string]any{"spec": spec,
			"metadata": map[string]any{"annotations": c.annotations}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
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
	return adoptedIn(t, places{own: "argocd"}, name, version, change)
}

func adoptedIn(t *testing.T, in places, name, version string,
	change func(meta map[string]any)) *entry {
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
	return newEntry(testEngine, in, applications, live)
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
	for _, bad := range []string{"Upper", "a b", "a..b", "*", "a/", "/b", "a/b/c",
		"kube-system/b", "a*/b", "a.b/c"} {
		o.Application.Adopt = bad
		if _, err := (Renderer{}).Render(engineSpec(), o); err == nil {
			t.Errorf("%q is rendered", bad)
		}
	}
}

// further are places with a namespace of tenant acme and one of globex.
var further = places{"argocd", map[string]fleet.TenantName{"apps": acme, "globex-apps": "globex"}}

// claimed is an object that claims checkout's identity by its labels and annotation.
func claimed(t *testing.T, namespace, name, uid, version string) *entry {
	t.Helper()
	out := adoptedIn(t, further, name, version, func(meta map[string]any) {
		meta["namespace"], meta["uid"] = namespace, uid
		if namespace != further.own {
			child(meta, "annotations")[annotationAdopted] = namespace + "/" + name
		}
	})
	return out
}

func TestAnObjectInANamespaceOfATenantIsThatTenantsAlone(t *testing.T) {
	key := applicationObject(checkoutID, exampleServer).Key
	if e := claimed(t, "apps", "shop", "1", "1"); !e.Ours || e.Key != key ||
		e.object != "apps/shop" {
		t.Errorf("%+v", e)
	}
	for _, namespace := range []string{"globex-apps", "elsewhere"} {
		if e := claimed(t, namespace, "shop", "1", "1"); e.Ours ||
			e.Key.Name != namespace+"/shop" {
			t.Errorf("a copy of acme's in %s: %+v", namespace, e)
		}
	}
	if e := adoptedIn(t, further, "checkout-prod", "1", func(meta map[string]any) {
		meta["namespace"] = "apps"
	}); e.Ours {
		t.Error("a copy of an Application in Argo CD's own namespace is ours")
	}
}

func TestACopyInANamespaceOfATenantTakesNoPlace(t *testing.T) {
	own := func(version string) *entry {
		return claimed(t, "argocd", "checkout-prod", "own", version)
	}
	copied := func(version string) *entry { return claimed(t, "apps", "shop", "copy", version) }
	key := own("1").Key
	for name, in := range map[string][]*entry{
		"a copy after it":  {own("1"), copied("2")},
		"a copy before it": {copied("1"), own("2")},
		"both again":       {own("1"), copied("2"), own("3"), copied("4")},
	} {
		c := newCache(resources, further)
		for _, e := range in {
			c.put(c.lister(applications, e), e)
		}
		if live := c.get(key); live == nil || live.UID != "own" || !live.Ours {
			t.Errorf("%s: %+v", name, live)
		}
		foreign := fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectApplication,
			Name: "apps/shop"}
		if live := c.get(foreign); live == nil || live.Ours {
			t.Errorf("%s: the copy is %+v", name, live)
		}
		for _, seen := range c.take().observed {
			if seen.Key == key && seen.UID != "own" && seen.ResourceVersion != "1" {
				t.Errorf("%s: the copy's state is reported: %+v", name, seen)
			}
		}
		if got := c.inventory(); len(got) != 1 || got[0].UID != "own" {
			t.Errorf("%s: the inventory has %+v", name, got)
		}
		c.remove(c.further[0], copied("9"), "9")
		if live := c.get(key); live == nil || live.UID != "own" {
			t.Errorf("%s: its deletion has removed %+v", name, live)
		}
		if live := c.get(foreign); live != nil {
			t.Errorf("%s: the deleted copy is %+v", name, live)
		}
		c.put(c.further[0], copied("10"))
		c.replaceAll(c.further[0], map[string]*entry{}, "11")
		if live := c.get(key); live == nil || live.UID != "own" {
			t.Errorf("%s: an empty list of its namespace has removed %+v", name, live)
		}
		c.replaceAll(applications, map[string]*entry{}, "12")
		if live := c.get(key); live != nil {
			t.Errorf("%s: an empty list keeps %+v", name, live)
		}
	}
}

func TestAnEpochInANamespaceOfATenantFencesNothing(t *testing.T) {
	forged := func(namespace string) *entry {
		e := claimed(t, namespace, "checkout-prod", "1", "1")
		e.Epoch = 9
		return e
	}
	if !forged("argocd").fenced(8) || forged("argocd").fenced(9) || forged("apps").fenced(8) {
		t.Error("the fence of the wrong object")
	}
	for namespace, want := range map[string]int64{"argocd": 9, "apps": 0} {
		c, e := newCache(resources, further), forged(namespace)
		c.put(c.lister(applications, e), e)
		if all := c.inventory(); len(all) != 1 || all[0].Epoch != want {
			t.Errorf("%s: the inventory has %+v", namespace, all)
		}
	}
}

func TestAWriterOfANamespaceKeepsNoObjectOfAnotherTenant(t *testing.T) {
	for namespace, want := range map[string]int{"argocd": 1, "apps": 1, "globex-apps": 0} {
		e := &Engine{name: testEngine, places: further, cache: newCache(resources, further)}
		a := claimed(t, namespace, "shop", "1", "1")
		a.project = fleet.ProjectName(acme)
		e.cache.put(e.cache.lister(applications, a), a)
		if n := len(e.users(acme, func(a *entry) bool {
			return a.project == fleet.ProjectName(acme)
		})); n != want {
			t.Errorf("%d Applications of namespace %s use acme's AppProject, want %d", n, namespace,
				want)
		}
	}
}

func TestALostNamespaceConcernsItsTenantAlone(t *testing.T) {
	c := newCache(resources, further)
	for _, r := range resources {
		c.replaceAll(r, map[string]*entry{}, "1")
	}
	e := &Engine{name: testEngine, places: further, cache: c,
		health: health{broken: map[*resource]failure{}}}
	if !e.Synced() || e.namespaceError("apps") == nil || e.namespaceError("") != nil {
		t.Error("an unread namespace of a tenant stops the engine")
	}
	c.replaceAll(c.further[0], map[string]*entry{}, "1")
	if err := e.namespaceError("apps"); err != nil {
		t.Error(err)
	}
	e.health.set(c.further[0], &statusError{Code: 403, Reason: "Forbidden"})
	if err := e.namespaceError("apps"); err == nil || e.Health() != nil ||
		!strings.Contains(err.Error(), "create a Role there") {
		t.Errorf("%v; the engine's health is %v", err, e.Health())
	}
	row := rowOf(t, applicationObject(checkoutID, exampleServer), 1)
	if err := e.reachable(row, "shop"); err != nil {
		t.Error(err)
	}
	if err := e.reachable(row, "globex-apps/shop"); err == nil {
		t.Error("a tenant adopts from another tenant's namespace")
	}
}

func TestAManifestNamesTheNamespaceOfItsApplication(t *testing.T) {
	spec := engineSpec()
	spec.ApplicationNamespaces = []fleet.ApplicationNamespace{{Namespace: "apps", Tenant: acme}}
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Adopt = "apps/shop"
	w, err := prepare(rowFor(t, spec, o, 1), fleet.Secret{}, mirror.Lease{})
	if err != nil {
		t.Fatal(err)
	}
	meta := child(w.tree, "metadata")
	if w.object != "apps/shop" || meta["name"] != "shop" || meta["namespace"] != "apps" ||
		child(meta, "annotations")[annotationAdopted] != "apps/shop" ||
		further.path(applications, w.object) !=
			"/apis/argoproj.io/v1alpha1/namespaces/apps/applications/shop" {
		t.Errorf("%s: %v", w.object, meta)
	}
	project := projectObject(acme)
	project.Project.SourceNamespaces = []string{"apps"}
	if w, err = prepare(rowFor(t, spec, project, 1), fleet.Secret{}, mirror.Lease{}); err != nil {
		t.Fatal(err)
	}
	if got, _ := child(w.tree, "spec")["sourceNamespaces"].([]any); !slices.Equal(got,
		[]any{"apps"}) {
		t.Errorf("its AppProject permits %v", got)
	}
	for _, bad := range []string{"more", "apps*", "*", "/apps/", "argocd"} {
		project.Project.SourceNamespaces = []string{bad}
		if _, err := (Renderer{}).Render(spec, project); err == nil {
			t.Errorf("an AppProject permits %q", bad)
		}
	}
}

func TestNamespacesAreServedByNameAndPattern(t *testing.T) {
	for list, want := range map[string]bool{"": false, "apps": true, "other, apps": true,
		"app": false, "app*": true, "*": true, "/^ap+s$/": true, "/^x$/": false,
		"apps-*": false} {
		if got := servesNamespace(list, "apps"); got != want {
			t.Errorf("%q: %t", list, got)
		}
	}
}

func TestTheCacheFollowsAnAdoptionAndARelease(t *testing.T) {
	c := newCache(resources, places{})
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
	c.remove(applications, adoptedObject(t, "checkout-prod", "5", nil), "6")
	if got := names(); got != "" || len(c.adopted) > 0 {
		t.Errorf("deleted: %q, %v", got, c.adopted)
	}
}
