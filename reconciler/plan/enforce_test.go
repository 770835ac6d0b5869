package plan

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

const checkout, cart = "tenants/acme/deployments/checkout.yaml",
	"tenants/acme/deployments/cart.yaml"

func paths(reviewed map[string]string) func(*Request) {
	return func(r *Request) {
		r.FileReviews = &reviews.Files{Reviewed: reviewed}
		r.DeletionReviews = &reviews.Deletions{}
	}
}

// blobs maps the given paths to their blobs in a tree.
func blobs(files tree, of ...string) map[string]string {
	out := map[string]string{}
	for _, p := range of {
		out[p] = ""
		if text, ok := files[p]; ok {
			i, _ := input(p, text)
			out[p] = i.Blob
		}
	}
	return out
}

func version(files tree, path, v string) tree {
	return files.edit(path, "targetRevision: v1", "targetRevision: "+v)
}

func heldPaths(h *house) []string {
	return slices.Sorted(maps.Keys(h.w.state.Unreviewed))
}

func TestAnUnreviewedFileKeepsItsLastGoodState(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	base, fine := h.w.Revision(), h.desired()
	after := version(version(small(), checkout, "evil"), cart, "v2")
	p := h.apply(after, paths(blobs(after, cart)))
	head := h.w.Revision()
	wantActions(t, p, "update Application cart@prod")
	if len(p.Holds) != 1 || p.Holds[0].Reason != mirror.HoldUnreviewed ||
		p.Holds[0].Tenant != "acme" || p.Holds[0].Revision != head ||
		!slices.Equal(p.Holds[0].Paths, []string{checkout}) ||
		!strings.Contains(p.Holds[0].Message, "not reviewed") {
		t.Fatalf("%+v", p.Holds)
	}
	h.restart()
	if d := cmp.Diff([]reviews.Span{{Base: base, Head: head}}, h.w.AwaitsReview()); d != "" ||
		!h.w.AwaitsApproval() {
		t.Error(d)
	}
	for name, r := range map[string]func(*Request){
		"not asked": func(*Request) {}, "not answered": func(r *Request) {
			r.FileReviews = &reviews.Files{}
		},
		"no reviewer": func(r *Request) {
			r.FileReviews = &reviews.Files{
				Earlier: map[reviews.Span]map[string]string{{Base: base, Head: head}: {}}}
		},
		"another span": func(r *Request) {
			r.FileReviews = &reviews.Files{
				Earlier: map[reviews.Span]map[string]string{
					{Base: head, Head: head}: blobs(after, checkout)}}
		},
		"another content": func(r *Request) {
			r.FileReviews = &reviews.Files{
				Earlier: map[reviews.Span]map[string]string{
					{Base: base, Head: head}: blobs(small(), checkout)}}
		},
		"approved before": func(r *Request) {
			r.Approvals = []mirror.Approval{{Revision: head, At: h.now.Add(-time.Second)}}
		},
		"another revision": func(r *Request) {
			r.Approvals = []mirror.Approval{{Revision: base, At: h.now}}
		},
	} {
		if p := h.again(r); !p.Empty() {
			t.Errorf("%s: %s %v", name, actions(p), p.Holds)
		}
	}
	if p := h.again(func(r *Request) {
		r.FileReviews = &reviews.Files{
			Earlier: map[reviews.Span]map[string]string{
				{Base: base, Head: head}: blobs(after, checkout)}}
	}); p.Counts.Changed != 2 || len(p.Ended) != 1 || len(h.w.AwaitsReview()) != 0 {
		t.Errorf("reviewed after all: %s %v", actions(p), p.Ended)
	}
	if len(h.desired()) != len(fine) {
		t.Error("something is gone")
	}
	checkState(t, h)
}

func TestAHeldFileIsLetInByAnApprovalOfItsRevision(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	after := version(small(), checkout, "evil").with("fleet/engines/eu-3.yaml",
		engineFile("eu-3", "eu", ""))
	p := h.apply(after, paths(nil))
	if len(p.Rows) != 0 || len(p.Holds) != 2 {
		t.Fatalf("%s %+v", actions(p), p.Holds)
	}
	head := h.w.Revision()
	h.apply(version(after, cart, "v2"), paths(blobs(version(after, cart, "v2"), cart)))
	h.restart()
	p = h.again(approve(h, head))
	if p.Counts.Changed != 2 || len(p.Ended) != 2 || len(heldPaths(h)) != 0 {
		t.Errorf("%s ended %v, held %v", actions(p), p.Ended, heldPaths(h))
	}
	checkState(t, h)
}

func TestTheLaterContentOfAHeldFileCounts(t *testing.T) {
	unreviewed := version(small(), checkout, "evil")
	for name, c := range map[string]struct {
		next tree
		by   []string
		rows int
		held int
	}{
		"restored":                 {small(), nil, 0, 0},
		"reviewed":                 {version(small(), checkout, "v3"), []string{checkout}, 2, 0},
		"removed, reviewed":        {small().without(checkout), []string{checkout}, 2, 0},
		"unreviewed again":         {version(small(), checkout, "worse"), nil, 0, 1},
		"removed, unreviewed":      {small().without(checkout), nil, 0, 1},
		"something else, reviewed": {version(unreviewed, cart, "v2"), []string{cart}, 1, 1},
		"shown as it is": {version(unreviewed, cart, "v2"), []string{cart, checkout}, 3,
			0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(small())
			h.apply(unreviewed, paths(nil))
			h.restart()
			seen := blobs(c.next, c.by...)
			p := h.apply(c.next, paths(seen), func(r *Request) { r.DeletionReviews = nil })
			n := 0
			for _, row := range p.Rows {
				if row.Row.Key.Kind == fleet.ObjectApplication {
					n++
				}
			}
			if n != c.rows || len(heldPaths(h)) != c.held {
				t.Errorf("%s, held %v", actions(p), heldPaths(h))
			}
			checkState(t, h)
		})
	}
}

func TestAnUnreviewedDeletionOfAFileKeepsItsApplications(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	after := small().without("tenants/")
	p := h.apply(after, paths(nil))
	if len(p.Rows) != 0 || p.RevisionHold != nil || len(heldPaths(h)) != 5 {
		t.Fatalf("%s, waiting %v, held %v", actions(p), p.RevisionHold, heldPaths(h))
	}
	head := h.w.Revision()
	h.restart()
	if p = h.again(approve(h, head)); p.Counts.Deleted != 3 || len(p.Approved) != 0 ||
		len(p.Record().Deletions) != 3 {
		t.Errorf("%+v approved %v", p.Counts, p.Approved)
	}
	h.work()
	if len(h.desired()) != 0 {
		t.Errorf("%v", h.desired())
	}
}

func TestTheGuardsJudgeADeletionThatFollowsFromAnApprovedFile(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	h.apply(h.files.drop("acme", 0, 25), paths(nil))
	head := h.w.Revision()
	p := h.again(approve(h, head))
	if p.Counts.Held != 25 || len(p.Holds) != 1 || p.Holds[0].Reason != mirror.HoldDeletions {
		t.Errorf("%+v %+v", p.Counts, p.Holds)
	}
}

func TestAReferenceToAHeldFileIsQuarantinedAloneUntilTheFileIsLetIn(t *testing.T) {
	h := newHouse(t)
	h.apply(small().with("fleet/tenants/globex.yaml", tenantFile("globex", "")).with(
		"tenants/globex/environments/shops.yaml", environmentFile("shops", "eu", "", "app")))
	env, dep, other := "tenants/acme/environments/new.yaml", "tenants/acme/deployments/new.yaml",
		"tenants/globex/deployments/shop.yaml"
	after := h.files.with(env, environmentFile("new", "eu", "", "app")).with(
		dep, deploymentFile("new", "acme/new", "environments: [new]", "")).
		with(other, deploymentFile("shop", "globex/shop", "environments: [shops]", ""))
	p := h.apply(after, paths(blobs(after, dep, other)))
	if p.Counts.Created != 1 || len(p.Quarantined) != 1 || p.Quarantined[0].Path != dep {
		t.Fatalf("%s, quarantined %+v", actions(p), p.Quarantined)
	}
	head := h.w.Revision()
	h.restart()
	if p := h.again(approve(h, head)); p.Counts.Created != 1 || len(p.Cleared) != 1 {
		t.Errorf("%s, cleared %v", actions(p), p.Cleared)
	}
	checkState(t, h)
}

func TestAnUnreviewedDuplicateRemovesNothing(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	double := strings.Replace(checkout, ".yaml", ".yml", 1)
	if i, ours := input(double, small()[checkout]); !ours || i.Key.Name != "checkout" {
		t.Skip("one path alone has the key")
	}
	h.apply(small().with(double, small()[checkout]), paths(nil))
	h.restart()
	if p := h.apply(small(), paths(nil)); len(p.Rows) != 0 || len(p.Declarations) != 0 ||
		len(heldPaths(h)) != 0 {
		t.Errorf("%s %v", actions(p), p.Declarations)
	}
}

func TestUnknownReviewsHoldAndReportWhy(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	base, after := h.w.Revision(), version(version(small(), checkout, "v2"), cart, "v2")
	p := h.apply(after, func(r *Request) {
		r.FileReviews = &reviews.Files{
			Unknown: errors.New("the Git host\nis away"), Reviewed: blobs(after, cart)}
	})
	if p.Counts.Changed != 1 ||
		!strings.Contains(p.Holds[0].Message, "reviews are unknown: the Git host is away") {
		t.Fatalf("%s %+v", actions(p), p.Holds)
	}
	span := reviews.Span{Base: base, Head: h.w.Revision()}
	h.restart()
	p = h.again(
		func(r *Request) {
			r.FileReviews = &reviews.Files{Earlier: map[reviews.Span]map[string]string{span: {}}}
		})
	if len(p.Rows) != 0 || len(p.Holds) != 1 || p.Holds[0].Message != reviews.Missing {
		t.Errorf("%s %+v", actions(p), p.Holds)
	}
}

func TestARebuiltMirrorWaitsForAnApprovalIfRequested(t *testing.T) {
	h := newHouse(t)
	p := h.apply(small(), func(r *Request) { r.Rebuilt = "engines hold objects" })
	if p.RevisionHold == nil || p.RevisionHold.Reason != mirror.HoldUnreviewed ||
		p.RevisionHold.Message != "engines hold objects" || h.w.Revision() != "" {
		t.Fatalf("%+v", p.RevisionHold)
	}
	h.restart()
	h.n--
	p = h.apply(small(), func(r *Request) {
		r.Rebuilt, r.Approvals = "engines hold objects", []mirror.Approval{
			{Revision: revision(h.n + 1), At: h.now}}
	})
	if p.RevisionHold != nil || p.Counts.Created != 3 {
		t.Errorf("%+v %+v", p.RevisionHold, p.Counts)
	}
}

func TestAnApprovedRewrittenHistoryIsLetInAsAWhole(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	after := version(small(), checkout, "v2")
	rewritten := func(r *Request) {
		r.Relation, r.FileReviews = mirror.RelationRewritten,
			&reviews.Files{}
	}
	if p := h.apply(after, rewritten); p.RevisionHold == nil {
		t.Fatal("it does not wait")
	}
	h.n--
	if p := h.apply(after, rewritten, approve(h, revision(h.n+1))); p.Counts.Changed != 2 ||
		len(heldPaths(h)) != 0 {
		t.Errorf("%+v %v", p.Counts, heldPaths(h))
	}
}

// Whatever is reviewed, and whenever, the desired rows are those of the reviewed contents alone.
func TestNoRowIsRenderedFromAnUnreviewedFile(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		enforced, model := newHouse(t), newHouse(t)
		branch := small().with("fleet/fleet.yaml",
			fleetFile(
				"  guards: {maxDeletes: 1000, maxDeletePercent: 100, alwaysAllowed: 1000, "+
					"window: 1h}\n"))
		enforced.apply(branch)
		model.apply(branch)
		effective := branch
		for step := range 25 {
			before := branch
			for range 1 + rnd.IntN(3) {
				branch = mutated(rnd, branch)
			}
			reviewed := map[string]string{}
			for _, in := range inputs(before, branch) {
				if rnd.IntN(2) == 0 {
					maps.Copy(reviewed, blobs(branch, in.Path))
				}
			}
			for path := range reviewed {
				effective = effective.without(path)
				if text, ok := branch[path]; ok {
					effective = effective.with(path, text)
				}
			}
			enforced.apply(
				branch, func(r *Request) { r.FileReviews = &reviews.Files{Reviewed: reviewed} })
			model.apply(effective)
			if rnd.IntN(4) == 0 {
				enforced.restart()
			}
			enforced.work()
			model.work()
			if d := cmp.Diff(model.desired(), enforced.desired()); d != "" {
				t.Fatalf("seed %d, step %d, reviewed %v: %s", seed, step,
					slices.Sorted(maps.Keys(reviewed)), d)
			}
			var want []string
			for _, in := range inputs(effective, branch) {
				want = append(want, in.Path)
			}
			if d := cmp.Diff(want, heldPaths(enforced)); d != "" {
				t.Fatalf("seed %d, step %d: held: %s", seed, step, d)
			}
		}
		checkState(t, enforced)
	}
}

// mutated changes, adds or removes one declaration.
func mutated(rnd *rand.Rand, files tree) tree {
	path := fmt.Sprintf("tenants/acme/deployments/d-%d.yaml", rnd.IntN(4))
	name := strings.TrimSuffix(path[len("tenants/acme/deployments/"):], ".yaml")
	switch rnd.IntN(5) {
	case 0:
		return files.without(path)
	case 1:
		env := fmt.Sprintf("e-%d", rnd.IntN(2))
		file := "tenants/acme/environments/" + env + ".yaml"
		if _, ok := files[file]; ok {
			return files.without(file)
		}
		return files.with(file, environmentFile(env, "eu", "tier: prod", "app"))
	default:
		to := []string{"prod", "staging", "e-0", "e-1"}[rnd.IntN(4)]
		return files.with(
			path, strings.Replace(deploymentFile(name, "acme/"+name, "environments: ["+to+"]", ""),
				"targetRevision: v1", fmt.Sprintf("targetRevision: v%d", rnd.IntN(3)), 1))
	}
}

func TestOnlyTheGuardsJudgeDeletionsThatFollowFromATrustedPush(t *testing.T) {
	trusted := map[string]bool{checkout: true}
	for _, late := range []bool{false, true} {
		h := newHouse(t)
		h.apply(small())
		base, after := h.w.Revision(), small().without(checkout)
		seen := blobs(after, checkout)
		var p *Plan
		if late {
			h.apply(after, paths(nil))
			span := reviews.Span{Base: base, Head: h.w.Revision()}
			p = h.again(func(r *Request) {
				r.DeletionReviews = &reviews.Deletions{
					Earlier: map[reviews.Span]map[fleet.ObjectKey]mirror.ReviewedDeletion{span: {}}}
				r.FileReviews = &reviews.Files{
					Earlier:        map[reviews.Span]map[string]string{span: seen},
					EarlierTrusted: map[reviews.Span]map[string]bool{span: trusted}}
			})
		} else {
			p = h.apply(after, paths(seen), func(r *Request) { r.FileReviews.Trusted = trusted })
		}
		if p.Counts.Deleted != 2 || p.Counts.Held != 0 || len(p.Record().Deletions) != 2 ||
			len(heldPaths(h)) != 0 {
			t.Errorf("late %v: %+v, holds %+v", late, p.Counts, p.Holds)
		}
	}
}
