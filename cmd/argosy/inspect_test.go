package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

var drawnID = fleet.ApplicationID{Tenant: "acme", Deployment: "checkout", Environment: "prod-eu"}

func drawnTree() view.Tree {
	node := func(kind, name string, parent, depth int) view.TreeNode {
		return view.TreeNode{ResourceRef: view.ResourceRef{Kind: kind, Namespace: "shop",
			Name: name, UID: kind + name}, Parent: parent, Depth: depth,
			Health: mirror.HealthHealthy}
	}
	t := view.Tree{Nodes: []view.TreeNode{node("Deployment", "checkout", -1, 0),
		node("ReplicaSet", "checkout-7d9c5b8f6", 0, 1),
		node("Pod", "checkout-7d9c5b8f6-x2x4z", 1, 2), node("Pod", "other", 1, 2),
		node("Service", "checkout", -1, 0)}}
	pod := &t.Nodes[2]
	pod.Health, pod.Ready, pod.Restarts = mirror.HealthDegraded, "0/1", 4
	pod.Reason, pod.Message = "CrashLoopBackOff", "\x1b[31mback-off\u202e "+strings.Repeat("x", 200)
	return t
}

func drawing(t *testing.T, tree view.Tree) string {
	t.Helper()
	var out, hints bytes.Buffer
	a := &app{out: &out, err: &hints, getenv: func(string) string { return "" }}
	if err := a.drawTree(drawnID, tree, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestATreeIsReadableIn80Columns(t *testing.T) {
	text := drawing(t, drawnTree())
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, part := range []string{"acme/checkout@prod-eu\n", "\n├─ Deployment/checkout ",
		"\n│  └─ ReplicaSet/", "\n│     ├─ Pod/checkout-7d9c5b8f6-x2x4z ", "0/1  4 restarts",
		"\n│     │  CrashLoopBackOff: ", "\n│     └─ Pod/other ", "\n└─ Service/checkout "} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("a text of the workload is printed raw: %q", text)
	}
}

func TestADeepTreeIsDrawn(t *testing.T) {
	var tree view.Tree
	for i := range 5000 {
		tree.Nodes = append(tree.Nodes, view.TreeNode{ResourceRef: view.ResourceRef{Kind: "Chain",
			Name: fmt.Sprint(i)}, Parent: i - 1, Depth: i})
	}
	if text := drawing(t, tree); strings.Count(text, "\n") != 5001 || len(text) > 2<<20 {
		t.Errorf("%d bytes", len(text))
	}
}

func TestTheOnlyPodOfAResourceIsFound(t *testing.T) {
	tree := drawnTree()
	for resource, want := range map[string]string{"Pod/other": "other",
		"pod/shop/checkout-7d9c5b8f6-x2x4z": "checkout-7d9c5b8f6-x2x4z"} {
		if pod, err := podOf(tree, resource); err != nil || pod.Name != want {
			t.Errorf("%s: %v, %v", resource, pod, err)
		}
	}
	for resource, want := range map[string]string{"": "has 2 Pods", "Deployment/checkout": "2 Pods",
		"Service/checkout": "has no Pod", "Pod/none": "no resource of the Application",
		"Pod": "write KIND/NAME"} {
		if _, err := podOf(tree, resource); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", resource, err)
		}
	}
}

func TestADiffIsPrintedAndEndsWithOne(t *testing.T) {
	var out, hints bytes.Buffer
	a := &app{out: &out, err: &hints, getenv: func(string) string { return "" }}
	err := a.printDiff(drawnID, view.ApplicationDiff{Same: 3, Resources: []view.ResourceDiff{{
		ResourceRef: view.ResourceRef{Kind: "ConfigMap", Namespace: "shop", Name: "settings"},
		Change:      mirror.ResourceUpdated,
		Diff:        "@@ -1,2 +1,2 @@\n-  value: by\u202ehand\n+  value: one\n"}}})
	var found findings
	if !errors.As(err, &found) || out.String() != "--- live/ConfigMap/shop/settings\n"+
		"+++ desired/ConfigMap/shop/settings  Update\n@@ -1,2 +1,2 @@\n"+
		"-  value: by\\u202ehand\n+  value: one\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	if err := a.printDiff(drawnID, view.ApplicationDiff{Same: 3}); err != nil ||
		!strings.Contains(hints.String(), "no difference in 3 resources") {
		t.Errorf("%v: %s", err, hints.String())
	}
}
