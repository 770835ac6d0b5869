package inspect

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
)

const (
	maxName  = 512 // bytes of a name or another short text
	maxImage = 1024
)

func short(s string) string   { return printable.Truncate(s, maxName) }
func message(s string) string { return printable.Truncate(s, mirror.MaxMessageBytes) }

// object identifies a resource of an Application by its name.
type object struct{ group, kind, namespace, name string }

func objectOf(r mirror.ResourceRef) object {
	return object{r.Group, r.Kind, r.Namespace, r.Name}
}

// Tree returns the tree of an Application, each node after its parent. A node whose parents are not
// in the tree, or are its own children, has none. Resources that the namespace has besides the
// Application's (Argo CD's orphaned ones) are left out.
func Tree(app *v1alpha1.Application, from *v1alpha1.ApplicationTree) mirror.Tree {
	b := newForest(from.Nodes, statuses(app))
	order := b.order()
	t := mirror.Tree{Nodes: []mirror.TreeNode{}, ComparedAt: timeOf(app.Status.ReconciledAt)}
	at := make(map[int]int, len(order)) // by node, its index in the result
	for _, i := range order {
		if len(t.Nodes) == mirror.MaxTreeNodes {
			t.More = len(order) - mirror.MaxTreeNodes
			break
		}
		n := b.nodes[i]
		n.Parent = -1
		if p := b.parent[i]; p >= 0 {
			n.Parent = at[p]
			n.Depth = t.Nodes[n.Parent].Depth + 1
		}
		at[i] = len(t.Nodes)
		t.Nodes = append(t.Nodes, n)
	}
	return t
}

func statuses(app *v1alpha1.Application) map[object]v1alpha1.ResourceStatus {
	of := make(map[object]v1alpha1.ResourceStatus, len(app.Status.Resources))
	for _, r := range app.Status.Resources {
		of[object{r.Group, r.Kind, r.Namespace, r.Name}] = r
	}
	return of
}

// forest is the nodes of a tree with one parent each.
type forest struct {
	nodes    []mirror.TreeNode
	parent   []int // -1: none
	children [][]int
}

func newForest(nodes []v1alpha1.ResourceNode, of map[object]v1alpha1.ResourceStatus) *forest {
	b := &forest{}
	byUID, byName := map[string]int{}, map[object]int{}
	var from []*v1alpha1.ResourceNode
	for i := range nodes {
		n := node(&nodes[i], of)
		key := objectOf(n.ResourceRef)
		_, sameName := byName[key]
		_, sameUID := byUID[n.UID]
		if n.UID == "" && sameName || n.UID != "" && sameUID {
			continue // shards of a tree may overlap
		}
		if !sameName {
			byName[key] = len(b.nodes)
		}
		if n.UID != "" {
			byUID[n.UID] = len(b.nodes)
		}
		b.nodes, from = append(b.nodes, n), append(from, &nodes[i])
	}
	b.parent, b.children = make([]int, len(b.nodes)), make([][]int, len(b.nodes))
	for i := range b.nodes {
		b.parent[i] = -1
		for _, p := range from[i].ParentRefs {
			at, found := byUID[p.UID]
			if p.UID == "" || !found {
				at, found = byName[object{p.Group, p.Kind, p.Namespace, p.Name}]
				found = found && (p.UID == "" || b.nodes[at].UID == p.UID)
			}
			if found && at != i {
				b.parent[i] = at
				b.children[at] = append(b.children[at], i)
				break
			}
		}
	}
	return b
}

// order lists all nodes depth first. A cycle begins at the first of its nodes, which has no parent
// then.
func (b *forest) order() []int {
	less := func(x, y int) int {
		a, c := &b.nodes[x], &b.nodes[y]
		return cmp.Or(cmp.Compare(a.Namespace, c.Namespace), cmp.Compare(a.Kind, c.Kind),
			cmp.Compare(a.Name, c.Name), cmp.Compare(a.Group, c.Group), cmp.Compare(a.UID, c.UID))
	}
	all := make([]int, len(b.nodes))
	for i := range all {
		all[i] = i
	}
	slices.SortFunc(all, less)
	seen, out := make([]bool, len(all)), make([]int, 0, len(all))
	walk := func(root int) {
		stack := []int{root}
		for len(stack) > 0 {
			i := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[i] {
				continue
			}
			seen[i] = true
			out = append(out, i)
			next := slices.DeleteFunc(slices.Clone(b.children[i]), func(c int) bool {
				return seen[c]
			})
			slices.SortFunc(next, func(x, y int) int { return less(y, x) })
			stack = append(stack, next...)
		}
	}
	for _, i := range all {
		if b.parent[i] < 0 {
			walk(i)
		}
	}
	for _, i := range all {
		if !seen[i] {
			b.parent[i] = -1
			walk(i)
		}
	}
	return out
}

func node(n *v1alpha1.ResourceNode, of map[object]v1alpha1.ResourceStatus) mirror.TreeNode {
	out := mirror.TreeNode{ResourceRef: mirror.ResourceRef{Group: short(n.Group),
		Kind: short(n.Kind), Namespace: short(n.Namespace), Name: short(n.Name),
		UID: short(n.UID)}, Version: short(n.Version), CreatedAt: timeOf(n.CreatedAt),
		Missing: n.UID == ""}
	if h := n.Health; h != nil {
		out.Health, out.Message = mirror.HealthState(short(string(h.Status))), message(h.Message)
	}
	for _, image := range n.Images {
		if len(out.Images) == mirror.MaxImages {
			break
		}
		out.Images = append(out.Images, printable.Truncate(image, maxImage))
	}
	slices.Sort(out.Images) // Argo CD has them in the order of a map
	for _, info := range n.Info {
		switch info.Name {
		case "Status Reason":
			out.Reason = short(info.Value)
		case "Containers":
			out.Ready = short(info.Value)
		case "Restart Count":
			out.Restarts, _ = strconv.Atoi(info.Value)
		case "Revision":
			out.Revision = short(strings.TrimPrefix(info.Value, "Rev:"))
		}
	}
	r, managed := of[object{n.Group, n.Kind, n.Namespace, n.Name}]
	if !managed {
		return out
	}
	out.Managed, out.Sync = true, mirror.SyncState(short(string(r.Status)))
	out.Hook, out.Prune = r.Hook, r.RequiresPruning
	out.Missing = out.Missing && !r.Hook
	if r.Health != nil && out.Health == "" {
		out.Health, out.Message = mirror.HealthState(short(string(r.Health.Status))),
			message(r.Health.Message)
	}
	if out.Missing {
		out.Health = mirror.HealthMissing
	}
	return out
}

func timeOf(t *metav1.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	at := t.UTC()
	return &at
}

// Find returns the node of a tree that a reference means: the one with its UID, or the only one of
// its name if it has none. A reference without a group means any group, and one without a namespace
// any namespace, if only one node fits.
func Find(t mirror.Tree, ref mirror.ResourceRef) (mirror.TreeNode, bool) {
	found := -1
	for i, n := range t.Nodes {
		if n.Kind != ref.Kind || n.Name != ref.Name || ref.UID != "" && n.UID != ref.UID ||
			ref.Namespace != "" && n.Namespace != ref.Namespace ||
			ref.Group != "" && n.Group != ref.Group {
			continue
		}
		if found >= 0 {
			return mirror.TreeNode{}, false
		}
		found = i
	}
	if found < 0 {
		return mirror.TreeNode{}, false
	}
	return t.Nodes[found], true
}
