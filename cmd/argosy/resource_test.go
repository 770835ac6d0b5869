package main

import (
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func named(exact bool, group, kind, namespace, name string) resourceName {
	return resourceName{view.ResourceRef{Group: group, Kind: kind, Namespace: namespace,
		Name: name}, exact}
}

var resourceTexts = map[string]resourceName{
	"Deployment/web":          named(false, "", "Deployment", "", "web"),
	"Deployment/shop/web":     named(false, "", "Deployment", "shop", "web"),
	"Deployment.apps/web":     named(true, "apps", "Deployment", "", "web"),
	"apps:Deployment:web":     named(true, "apps", "Deployment", "", "web"),
	":Service:shop/web":       named(true, "", "Service", "shop", "web"),
	"ClusterRole/system:node": named(false, "", "ClusterRole", "", "system:node"),
	"rbac.authorization.k8s.io:ClusterRole:system:node": named(true, "rbac.authorization.k8s.io",
		"ClusterRole", "", "system:node"),
}

func TestBothNotationsOfAResourceAreRead(t *testing.T) {
	for text, want := range resourceTexts {
		if got, err := parseResource(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "Pod", "/", "Pod/", "/web", "Pod//web", "Pod/a/b/c", "a:b",
		"::web", "apps:Deployment:", "apps:Deployment:a/b/c", "Pod/a b", "Apps:Deployment:web",
		"Pod/" + strings.Repeat("x", 300)} {
		if got, err := parseResource(text); err == nil ||
			!strings.Contains(err.Error(), "write KIND/NAME") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// An action needs the group of a resource, which a person seldom writes.
func TestAnActionTakesTheGroupFromTheTree(t *testing.T) {
	tree := drawnTree()
	tree.Nodes[0].Group = "apps"
	reads := 0
	read := func() (view.Tree, error) {
		reads++
		return tree, nil
	}
	names, err := parseResources([]string{"deployment/checkout", "Service/checkout",
		":ConfigMap:new"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := actedOn(names, read)
	want := []mirror.ActionResource{
		{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "checkout"},
		{Kind: "Service", Namespace: "shop", Name: "checkout"}, {Kind: "ConfigMap", Name: "new"}}
	if err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] ||
		reads != 1 {
		t.Errorf("%+v after %d reads, %v", got, reads, err)
	}
	away := func() (view.Tree, error) { return view.Tree{}, errors.New("the engine is away") }
	if _, err := actedOn(names, away); err == nil ||
		!strings.Contains(err.Error(), "GROUP:KIND:[NAMESPACE/]NAME") {
		t.Errorf("without a tree: %v", err)
	}
	if got, err := actedOn(names[2:], away); err != nil || len(got) != 1 {
		t.Errorf("with a group: %+v, %v", got, err)
	}
	if _, err := findNode(tree, named(true, "", "Deployment", "", "checkout")); err == nil {
		t.Error("a Deployment of the core group is found")
	}
}

func FuzzResource(f *testing.F) {
	for text := range resourceTexts {
		f.Add(text)
	}
	f.Add("Pod//x")
	f.Add("a:b:c:d/e")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseResource(text)
		if err != nil {
			return
		}
		if again, err := parseResource(r.String()); err != nil || again != r {
			t.Errorf("%q is %+v, and %q is %+v, %v", text, r, r.String(), again, err)
		}
		if strings.ContainsAny(r.Kind+r.Group+r.Namespace+r.Name, "/ \n") {
			t.Errorf("%q is %+v", text, r)
		}
	})
}
