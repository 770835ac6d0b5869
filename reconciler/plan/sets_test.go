package plan

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const shop = "tenants/acme/sets/shop.yaml"

// shopSet is a set with a deployment for each name, at v1 unless the name has "@<revision>".
func shopSet(names ...string) string {
	var items strings.Builder
	for _, n := range names {
		name, revision, _ := strings.Cut(n+"@v1", "@")
		revision, _, _ = strings.Cut(revision, "@")
		fmt.Fprintf(&items, "    - {name: %s, revision: %s}\n", name, revision)
	}
	return "apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeploymentSet\nmetadata: {name: shop}\n" +
		"spec:\n  list:\n" + items.String() + `  template:
    metadata: {name: "${item.name}"}
    spec:
      source:
        repoURL: https://git.example.com/acme/shared
        path: ${item.name}
        targetRevision: ${item.revision}
      destination: {environments: [prod], namespace: app}
`
}

func many(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("svc-%d", i))
	}
	return names
}

func TestAnEditOfOneItemRendersOneApplication(t *testing.T) {
	h := newHouse(t)
	h.apply(small().with(shop, shopSet(many(50)...)))
	h.render.rendered = 0
	names := many(50)
	names[7] += "@v2"
	p := h.compute(small().with(shop, shopSet(names...)), func(r *Request) { r.Explain = false })
	wantActions(t, p, "update Application svc-7@prod")
	if h.render.rendered != 1 {
		t.Errorf("%d objects are rendered", h.render.rendered)
	}
	h.render.rendered = 0
	h.compute(version(h.files, cart, "v2"), func(r *Request) { r.Explain = false })
	if h.render.rendered != 1 {
		t.Errorf("a commit of another file renders %d objects", h.render.rendered)
	}
}

func TestRemovedItemsAreHeldByTheGuards(t *testing.T) {
	h := newHouse(t)
	h.apply(small().with(shop, shopSet(many(50)...)))
	for what, files := range map[string]tree{
		"items": small().with(shop, shopSet(many(5)...)), "the file": small()} {
		p := h.compute(files)
		if p.Counts.Deleted != 0 || p.Counts.Held < 45 || len(p.Holds) != 1 ||
			p.Holds[0].Reason != mirror.HoldDeletions {
			t.Errorf("%s removed: %+v, holds %+v", what, p.Counts, p.Holds)
		}
	}
}

func TestAnUnreviewedSetKeepsItsDeployments(t *testing.T) {
	h := newHouse(t)
	h.apply(small().with(shop, shopSet("a", "b", "c")))
	after := small().with(shop, shopSet("a@v2", "c"))
	p := h.apply(after, paths(nil))
	wantActions(t, p)
	if len(p.Holds) != 1 || len(p.Holds[0].Paths) != 1 || p.Holds[0].Paths[0] != shop {
		t.Fatalf("%+v", p.Holds)
	}
	h.restart()
	p = h.again(paths(nil), approve(h, h.w.Revision()))
	wantActions(t, p, "update Application a@prod", "delete Application b@prod")
	if d := h.w.Catalog().Deployment(fleet.DeploymentID{Tenant: "acme", Name: "b"}); d != nil {
		t.Error("the deployment of the removed item is in effect")
	}
	checkState(t, h)
}
