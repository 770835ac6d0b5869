package plan

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	configschema "argosy.dev/argosy/config-schema"
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

// discoveringSet is shopSet with a file for each item in place of a list. Its comments are the
// listing; without any file, the repository cannot be read.
func discoveringSet(revisions map[string]string) string {
	text := strings.NewReplacer("list:\n", "files:\n"+
		"    repoURL: https://git.example.com/acme/services\n"+
		"    targetRevision: main\n    paths: [\"services/*/config.yaml\"]\n",
		"${item.name}", "${item.path.basename}").Replace(shopSet())
	for _, name := range slices.Sorted(maps.Keys(revisions)) {
		text += fmt.Sprintf("# services/%s/config.yaml: revision: %s\n", name, revisions[name])
	}
	return text
}

// listedIn returns the listing in the comments of a set.
func listedIn(text string) fleet.Listings {
	return func(r fleet.ListingRequest) (fleet.Listing, error) {
		var files []fleet.Listed
		for line := range strings.Lines(text) {
			if path, content, is := strings.Cut(strings.TrimPrefix(line, "# "), ": "); is &&
				r.Wants(path) {
				files = append(files, configschema.ListFile(path, []byte(content)))
			}
		}
		if len(files) == 0 {
			return fleet.Listing{}, errors.New("connection refused")
		}
		return fleet.NewListing(r, "c1", files)
	}
}

// The deployments of a set with a listing are those of a list that people wrote, through restarts
// and failed reads, and cost the same.
func TestAListingGivesTheDeploymentsOfItsListByHand(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		listed, byHand := newHouse(t), newHouse(t)
		start := small().with("fleet/fleet.yaml", fleetFile(loose))
		listed.apply(start)
		byHand.apply(start)
		items := map[string]string{"first": "v1"}
		for range 30 {
			for range r.IntN(3) {
				name := many(8)[r.IntN(8)]
				items[name] = fmt.Sprintf("v%d", r.IntN(3))
				if r.IntN(3) == 0 {
					delete(items, name)
				}
			}
			var written []string
			for _, name := range slices.Sorted(maps.Keys(items)) {
				written = append(written, name+"@"+items[name])
			}
			listed.render.rendered, byHand.render.rendered = 0, 0
			unread := listed.files.with(shop, discoveringSet(nil))
			if p := listed.apply(unread); len(p.Rows) > 0 {
				t.Fatalf("seed %d: a failed read changes %s", seed, actions(p))
			}
			if r.IntN(3) == 0 {
				listed.restart()
			}
			a := listed.apply(listed.files.with(shop, discoveringSet(items)))
			b := byHand.apply(byHand.files.with(shop, shopSet(written...)))
			if actions(a) != actions(b) {
				t.Fatalf("seed %d: %s\nby hand: %s", seed, actions(a), actions(b))
			}
			if n := listed.render.rendered; n != byHand.render.rendered {
				t.Fatalf("seed %d: %d objects are rendered, by hand %d", seed, n,
					byHand.render.rendered)
			}
			if got, want := listed.desired(), byHand.desired(); !maps.Equal(got, want) {
				t.Fatalf("seed %d: the rows are %v, by hand %v", seed, got, want)
			}
			checkState(t, listed)
		}
	}
}

func TestFoldersThatVanishAreHeldByTheGuards(t *testing.T) {
	h := newHouse(t)
	items := map[string]string{}
	for _, name := range many(50) {
		items[name] = "v1"
	}
	h.apply(small().with(shop, discoveringSet(items)))
	p := h.compute(small().with(shop, discoveringSet(map[string]string{"svc-1": "v1"})))
	if p.Counts.Deleted != 0 || p.Counts.Held < 45 || len(p.Holds) != 1 ||
		p.Holds[0].Reason != mirror.HoldDeletions {
		t.Errorf("%+v, holds %+v", p.Counts, p.Holds)
	}
}

// relisted is a set's unchanged file with other listings: the deployments differ, the blob does
// not.
func relisted(file, generates string) func(*Request) {
	was, _ := input(shop, file)
	now, _ := input(shop, generates)
	now.Blob, now.Declaration.Blob = was.Blob, was.Blob
	return func(r *Request) { r.Listed = append(r.Listed, now) }
}

func TestAListingIsPlannedAsACommitAndNeedsNoReview(t *testing.T) {
	h := newHouse(t)
	file := shopSet(many(50)...)
	h.apply(small().with(shop, file))
	before := h.w.Revision()
	more := shopSet(append(many(50), "new")...)
	p := h.again(relisted(file, more))
	wantActions(t, p, "create Application new@prod")
	if h.w.Revision() != before {
		t.Errorf("the revision is %s", h.w.Revision())
	}
	if p := h.again(relisted(file, more)); len(p.Rows)+len(p.Declarations) > 0 {
		t.Errorf("an equal listing changes %+v", p.Declarations)
	}
	p = h.again(relisted(file, shopSet(many(5)...)))
	if p.Counts.Deleted != 0 || p.Counts.Held < 45 || p.Holds[0].Reason != mirror.HoldDeletions ||
		p.Holds[0].Revision != before {
		t.Errorf("folders that vanish: %+v, %+v", p.Counts, p.Holds)
	}
	h.restart()
	checkState(t, h)
}

func TestAListingDoesNotReleaseAHeldFileOfItsSet(t *testing.T) {
	h := newHouse(t)
	file, edited := shopSet("a", "b"), shopSet("a@v2", "b")
	h.apply(small().with(shop, file))
	h.apply(small().with(shop, edited), paths(nil))
	for range 2 { // also of the file that is held
		p := h.again(relisted(file, shopSet("a", "b", "c")),
			relisted(edited, shopSet("a@v2", "b", "c")))
		if n := len(p.Rows); n > 1 {
			t.Fatalf("%d rows", n)
		}
	}
	h.restart()
	// what is released has the listing of now: c stays
	p := h.again(paths(nil), approve(h, h.w.Revision()))
	wantActions(t, p, "update Application a@prod")
	if d := h.w.Catalog().Deployment(fleet.DeploymentID{Tenant: "acme", Name: "c"}); d == nil {
		t.Error("the release of the file dropped what its listing had brought")
	}
	// a file of the head wins over a listing of the applied one
	p = h.apply(small().with(shop, shopSet("a@v2")), relisted(edited, shopSet("a@v2", "b", "d")))
	wantActions(t, p, "delete Application b@prod", "delete Application c@prod")
	checkState(t, h)
}
