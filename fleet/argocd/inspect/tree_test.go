package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet/mirror"
)

func ref(kind, name string) v1alpha1.ResourceRef {
	return v1alpha1.ResourceRef{Version: "v1", Kind: kind, Namespace: "shop", Name: name,
		UID: "uid-" + kind + "-" + name}
}

func under(n v1alpha1.ResourceRef, parents ...v1alpha1.ResourceRef) v1alpha1.ResourceNode {
	return v1alpha1.ResourceNode{ResourceRef: n, ParentRefs: parents}
}

func treeOf(nodes ...v1alpha1.ResourceNode) mirror.Tree {
	return Tree(&v1alpha1.Application{}, &v1alpha1.ApplicationTree{Nodes: nodes})
}

// drawn is the tree with two blanks for each level.
func drawn(t mirror.Tree) string {
	var out strings.Builder
	for _, n := range t.Nodes {
		fmt.Fprintf(&out, "%s%s\n", strings.Repeat("  ", n.Depth), n.ResourceRef)
	}
	return out.String()
}

// checkOrder fails unless every node follows its parent, one level below it.
func checkOrder(t *testing.T, tree mirror.Tree) {
	t.Helper()
	for i, n := range tree.Nodes {
		if n.Parent >= i || n.Parent < -1 {
			t.Fatalf("node %d has parent %d", i, n.Parent)
		}
		if depth := 0; n.Parent >= 0 {
			if depth = tree.Nodes[n.Parent].Depth + 1; n.Depth != depth {
				t.Fatalf("node %d has depth %d below depth %d", i, n.Depth, depth-1)
			}
		} else if n.Depth != 0 {
			t.Fatalf("node %d has depth %d without a parent", i, n.Depth)
		}
	}
}

func TestNodesFollowTheirParents(t *testing.T) {
	tree := treeOf(under(ref("Pod", "a-1"), ref("ReplicaSet", "a")),
		under(ref("ReplicaSet", "a"), ref("Deployment", "a")),
		under(ref("Deployment", "a")), under(ref("ConfigMap", "c")))
	checkOrder(t, tree)
	if got, want := drawn(tree),
		"ConfigMap/c\nDeployment/a\n  ReplicaSet/a\n    Pod/a-1\n"; got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func TestANodeWithoutItsParentHasNone(t *testing.T) {
	tree := treeOf(under(ref("Pod", "a"), ref("ReplicaSet", "deleted")))
	if checkOrder(t, tree); len(tree.Nodes) != 1 || tree.Nodes[0].Parent != -1 {
		t.Errorf("got %+v", tree.Nodes)
	}
}

func TestACycleIsCutAndEachNodeIsShownOnce(t *testing.T) {
	a, b, c := ref("A", "a"), ref("B", "b"), ref("C", "c")
	for _, nodes := range [][]v1alpha1.ResourceNode{
		{under(a, c), under(b, a), under(c, b)}, {under(a, a)}, {under(a, b), under(b, a)},
		{under(a, b), under(b, a), under(c, a), under(ref("D", "d"))}} {
		tree := treeOf(nodes...)
		if checkOrder(t, tree); len(tree.Nodes) != len(nodes) {
			t.Errorf("got\n%s", drawn(tree))
		}
	}
}

func TestATreeOfTenThousandNodesAndMoreIsBounded(t *testing.T) {
	nodes := []v1alpha1.ResourceNode{under(ref("Deployment", "root"))}
	last := nodes[0].ResourceRef
	for i := range mirror.MaxTreeNodes + 500 { // one below the other: as deep as it can be
		n := under(ref("Chain", fmt.Sprint(i)), last)
		nodes, last = append(nodes, n), n.ResourceRef
	}
	tree := treeOf(nodes...)
	if checkOrder(t, tree); len(tree.Nodes) != mirror.MaxTreeNodes || tree.More != 501 {
		t.Errorf("%d nodes and %d more", len(tree.Nodes), tree.More)
	}
}

func TestShardsThatOverlapGiveEachNodeOnce(t *testing.T) {
	missing := v1alpha1.ResourceNode{ResourceRef: v1alpha1.ResourceRef{Kind: "ConfigMap",
		Namespace: "shop", Name: "missing"}}
	tree := treeOf(under(ref("Pod", "a")), under(ref("Pod", "a")), missing, missing)
	if len(tree.Nodes) != 2 {
		t.Errorf("got\n%s", drawn(tree))
	}
}

func TestAPodHasItsRestartsReasonAndImages(t *testing.T) {
	n := under(ref("Pod", "a"))
	n.Info = []v1alpha1.InfoItem{{Name: "Status Reason", Value: "CrashLoopBackOff"},
		{Name: "Containers", Value: "0/1"}, {Name: "Restart Count", Value: "7"}}
	n.Images = []string{"example.com/b:1", "example.com/a:1"}
	n.Health = &v1alpha1.HealthStatus{Status: "Degraded", Message: strings.Repeat("x", 1<<20)}
	got := treeOf(n).Nodes[0]
	if got.Reason != "CrashLoopBackOff" || got.Ready != "0/1" || got.Restarts != 7 ||
		got.Images[0] != "example.com/a:1" || got.Health != "Degraded" ||
		len(got.Message) > mirror.MaxMessageBytes {
		t.Errorf("got %+v", got)
	}
}

func TestAReferenceFindsOneNodeOrNone(t *testing.T) {
	other := under(ref("Pod", "a"))
	other.Namespace, other.UID = "cart", "other"
	tree := treeOf(under(ref("Pod", "a")), other)
	for name, c := range map[string]struct {
		ref   mirror.ResourceRef
		found bool
	}{
		"by namespace":  {mirror.ResourceRef{Kind: "Pod", Namespace: "shop", Name: "a"}, true},
		"by UID":        {mirror.ResourceRef{Kind: "Pod", Name: "a", UID: "other"}, true},
		"two of a name": {mirror.ResourceRef{Kind: "Pod", Name: "a"}, false},
		"a replaced object": {mirror.ResourceRef{Kind: "Pod", Namespace: "shop", Name: "a",
			UID: "earlier"}, false},
		"of another kind": {mirror.ResourceRef{Kind: "Secret", Namespace: "shop",
			Name: "a"}, false},
		"of no tree": {mirror.ResourceRef{Kind: "Pod", Namespace: "kube-system",
			Name: "a"}, false},
	} {
		if _, found := Find(tree, c.ref); found != c.found {
			t.Errorf("%s: found %t", name, found)
		}
	}
}

func FuzzEveryTreeIsAForest(f *testing.F) {
	for _, text := range []string{`{}`,
		`{"nodes":[{"kind":"A","name":"a","uid":"1","parentRefs":[{"uid":"2"}]},` +
			`{"kind":"B","name":"b","uid":"2","parentRefs":[{"uid":"1"}]}]}`,
		`{"nodes":[{"kind":"A","name":"a","parentRefs":[{"kind":"A","name":"a"}]}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var from v1alpha1.ApplicationTree
		if json.Unmarshal(text, &from) != nil {
			return
		}
		tree := Tree(&v1alpha1.Application{}, &from)
		checkOrder(t, tree)
		if len(tree.Nodes) > len(from.Nodes) {
			t.Errorf("%d nodes of %d", len(tree.Nodes), len(from.Nodes))
		}
	})
}
