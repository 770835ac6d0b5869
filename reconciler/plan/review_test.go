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
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

type seen = map[fleet.ObjectKey]mirror.ReviewedDeletion

func with(r *reviews.Deletions) func(*Request) { return func(q *Request) { q.DeletionReviews = r } }

// deletions returns the Applications that a plan deletes or holds for the first time.
func deletions(p *Plan) []fleet.ObjectKey {
	var keys []fleet.ObjectKey
	for _, c := range p.Rows {
		if c.Row.Key.Kind == fleet.ObjectApplication &&
			(c.Action == report.Delete || c.Action == report.Hold) {
			keys = append(keys, c.Row.Key)
		}
	}
	return keys
}

func listed(approved bool, keys ...fleet.ObjectKey) seen {
	out := seen{}
	for _, k := range keys {
		out[k] = mirror.ReviewedDeletion{Key: k, Approved: approved, Pull: 7}
	}
	return out
}

func TestAnUnreviewedDeletionIsHeldHoweverFewThereAre(t *testing.T) {
	h := newHouse(t)
	h.apply(
		crowd(30).edit("tenants/acme/deployments/d-01.yaml", "spec:",
			"spec:\n  deletionPolicy: Orphan"))
	base := h.w.Revision()
	after := h.files.drop("acme", 0, 3).with("tenants/globex/deployments/new.yaml",
		deploymentFile("new", "globex/new", "environments: [prod]", ""))
	shown := deletions(h.compute(after))
	p := h.apply(after, with(&reviews.Deletions{Reviewed: listed(false, shown[2])}))
	head := h.w.Revision()
	if p.Counts.Deleted != 1 || p.Counts.Held != 2 || p.Counts.Created != 1 || len(p.Holds) != 1 {
		t.Fatalf("%+v, %v", p.Counts, p.Holds)
	}
	hold := p.Holds[0]
	if hold.Reason != mirror.HoldUnreviewed || hold.Tenant != "acme" || hold.Revision != head ||
		!slices.Equal(hold.Items, shown[:2]) || !strings.Contains(hold.Message, "not reviewed") {
		t.Errorf("%+v", hold)
	}
	if n := len(p.Record().Deletions); n != 1 {
		t.Errorf("%d deletions count against the guards", n)
	}
	h.restart()
	if d := cmp.Diff([]reviews.Span{{Base: base, Head: head}}, h.w.AwaitsReview()); d != "" {
		t.Error(d)
	}

	t.Run(
		"it stays held without a known review of the deletion",
		func(t *testing.T) {
			for name, r := range map[string]*reviews.Deletions{
				"not asked": nil, "not answered": {}, "no reviewer": {
					Earlier: map[reviews.Span]seen{{Base: base, Head: head}: {}}}, "another span": {
					Reviewed: listed(true, shown...), Earlier: map[reviews.Span]seen{
						{Base: head, Head: head}: listed(true, shown...)}},
				"another object": {
					Earlier: map[reviews.Span]seen{
						{Base: base, Head: head}: listed(true, shown[2])}},
			} {
				if p := h.again(with(r)); !p.Empty() {
					t.Errorf("%s: %s %v", name, actions(p), p.Holds)
				}
			}
		})
	t.Run("it goes once somebody turns out to have reviewed it", func(t *testing.T) {
		p := h.again(
			with(
				&reviews.Deletions{
					Earlier: map[reviews.Span]seen{
						{Base: base, Head: head}: listed(false, shown[0])}}))
		if p.Counts.Deleted != 1 || len(p.Freed) != 1 || len(p.Approved) != 0 ||
			len(p.Record().Deletions) != 1 || len(p.Holds) != 1 || len(p.Holds[0].Items) != 1 {
			t.Errorf("%+v freed %v approved %v holds %v", p.Counts, p.Freed, p.Approved, p.Holds)
		}
		checkState(t, h)
	})
	t.Run("it goes when its revision is approved", func(t *testing.T) {
		p := h.again(approve(h, head))
		if p.Counts.Deleted != 1 || len(p.Approved) != 1 || len(p.Record().Deletions) != 0 ||
			len(p.Ended) != 1 || p.Ended[0].Reason != mirror.HoldUnreviewed {
			t.Errorf("%+v approved %v ended %v", p.Counts, p.Approved, p.Ended)
		}
		if p.Rows[0].Row.Deletion != fleet.DeletionOrphan || len(h.w.AwaitsReview()) != 0 {
			t.Errorf("%+v %v", p.Rows, h.w.AwaitsReview())
		}
		checkState(t, h)
	})
}

func TestARestoredFileEndsTheHoldOfAnUnreviewedDeletion(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(3))
	files := h.files
	h.apply(files.drop("acme", 0, 1), with(&reviews.Deletions{}))
	if p := h.apply(files, with(&reviews.Deletions{})); len(p.Freed) != 1 || len(p.Ended) != 1 ||
		len(p.Rows) != 0 || len(h.w.AwaitsReview()) != 0 {
		t.Errorf("freed %v, ended %v, rows %s", p.Freed, p.Ended, actions(p))
	}
}

func TestReviewedDeletionsAreHeldAgainstTheGuards(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	base, after := h.w.Revision(), h.files.drop("acme", 0, 25)
	shown := deletions(h.compute(after))
	if len(shown) != 25 {
		t.Fatal(len(shown))
	}
	t.Run("without an approval", func(t *testing.T) {
		if p := h.compute(
			after,
			with(&reviews.Deletions{Reviewed: listed(false, shown...)})); p.Counts.Held != 25 ||
			p.Holds[0].Reason != mirror.HoldDeletions {
			t.Errorf("%+v %v", p.Counts, p.Holds)
		}
	})
	t.Run("what is approved passes and does not count, neither now nor later", func(t *testing.T) {
		some := listed(false, shown...)
		maps.Copy(some, listed(true, shown[:20]...))
		p := h.compute(after, with(&reviews.Deletions{Reviewed: some}))
		// 5 are always allowed
		if p.Counts.Deleted != 25 || len(p.Approved) != 20 || len(p.Record().Deletions) != 5 {
			t.Errorf("%+v approved %d", p.Counts, len(p.Approved))
		}
	})
	t.Run("reviews that come later meet the guards too", func(t *testing.T) {
		away := &reviews.Deletions{Unknown: errors.New("the forge\nis away")}
		p := h.apply(after, with(away))
		if p.Counts.Held != 25 ||
			!strings.Contains(p.Holds[0].Message, "reviews are unknown: the forge is away") {
			t.Fatalf("%+v %v", p.Counts, p.Holds)
		}
		head := h.w.Revision()
		span := reviews.Span{Base: base, Head: head}
		h.now = h.now.Add(time.Minute)
		if p := h.again(
			with(
				&reviews.Deletions{Earlier: map[reviews.Span]seen{span: listed(false, shown...)}}),
			func(r *Request) {
				r.Explain = false
			}); p.Counts.Deleted+p.Counts.Held != 0 || len(p.Holds) != 1 ||
			p.Holds[0].Reason != mirror.HoldDeletions || !p.Holds[0].Since.Equal(h.now) ||
			p.Holds[0].Revision != head || len(p.Ended) != 1 {
			t.Errorf("%s, %v, ended %v", actions(p), p.Holds, p.Ended)
		}
		h.restart()
		checkState(t, h)
		if len(h.w.AwaitsReview()) != 0 {
			t.Error("it is still asked for")
		}
		old := func(r *Request) {
			r.Approvals = []mirror.Approval{{Revision: head, At: h.now.Add(-time.Second)}}
		}
		if p := h.again(old); !p.Empty() {
			t.Errorf("an approval from before it was listed lets it go: %s", actions(p))
		}
		if p := h.again(approve(h, head)); p.Counts.Deleted != 25 {
			t.Errorf("%+v", p.Counts)
		}
	})
}

func TestAHoldReportsReviewsThatAreKnownLater(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(3))
	base := h.w.Revision()
	h.apply(h.files.drop("acme", 0, 1), with(&reviews.Deletions{Unknown: errors.New("away")}))
	since, span := h.now, reviews.Span{Base: base, Head: h.w.Revision()}
	h.now = h.now.Add(time.Hour)
	answer := with(&reviews.Deletions{Earlier: map[reviews.Span]seen{span: {}}})
	p := h.again(answer)
	if len(p.Holds) != 1 || !strings.Contains(p.Holds[0].Message, "not reviewed") ||
		!p.Holds[0].Since.Equal(since) || len(p.Rows) != 0 {
		t.Errorf("%v %s", p.Holds, actions(p))
	}
	if p := h.again(answer); !p.Empty() {
		t.Errorf("it is reported twice: %v", p.Holds)
	}
}

func TestAHeldApplicationReviewedWithANewDefaultIsUpdated(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	base, after := h.w.Revision(), h.files.drop("acme", 0, 25)
	shown := deletions(h.compute(after))
	h.apply(after, with(&reviews.Deletions{}))
	late := &reviews.Deletions{
		Earlier: map[reviews.Span]seen{{Base: base, Head: h.w.Revision()}: listed(false, shown...)}}
	p := h.apply(
		h.files.edit("fleet/fleet.yaml", "gitHosts:",
			"defaults: {sync: {prune: false}}\n  gitHosts:"), with(late))
	if p.Counts.Changed != 60 || p.Counts.Held+p.Counts.Deleted != 0 {
		t.Errorf("%+v", p.Counts)
	}
	checkState(t, h)
}

func TestAWaitingRevisionListsOnlyItsOwnDeletions(t *testing.T) {
	h := newHouse(t)
	h.apply(crowd(30))
	base, after := h.w.Revision(), h.files.drop("acme", 0, 2)
	shown := deletions(h.compute(after))
	h.apply(after, with(&reviews.Deletions{}))
	rewritten := func(r *Request) { r.Relation = mirror.RelationRewritten }
	late := with(
		&reviews.Deletions{
			Earlier: map[reviews.Span]seen{
				{Base: base, Head: h.w.Revision()}: listed(false, shown...)}})
	head := h.files.drop("acme", 2, 6)
	a, b := h.compute(head, rewritten), h.compute(head, rewritten, late)
	if len(a.RevisionHold.Items) != 4 || a.Hash != b.Hash {
		t.Errorf("%v, and with the reviews of another revision %v", a.RevisionHold.Items,
			b.RevisionHold.Items)
	}
	t.Run("once approved, its list is reviewed enough", func(t *testing.T) {
		h.apply(head, rewritten)
		h.n--
		p := h.apply(head, rewritten, approve(h, h.w.state.RevisionHold.Revision),
			with(&reviews.Deletions{}))
		if p.Counts.Deleted != 4 || len(p.Approved) != 4 || p.Counts.Held != 0 {
			t.Errorf("%+v", p.Counts)
		}
	})
}

// Random histories in which random deletions are reviewed, approved, or have unknown reviews: an
// Application is deleted only if its deletion was reviewed or its revision approved, and held
// deletions stay held over restarts.
func TestAnyHistoryHoldsUnreviewedDeletions(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = nil
		for n := range uint64(40) {
			seeds = append(seeds, n+1)
		}
	}
	for _, s := range seeds {
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) { reviewedHistory(t, s) })
	}
}

// reviewers is the model: the held deletions with their spans.
type reviewers struct {
	*house
	r    *rand.Rand
	held map[fleet.ObjectKey]reviews.Span
}

func reviewedHistory(t *testing.T, seed uint64) {
	e := &editor{r: rand.New(rand.NewPCG(seed, 7)), files: startingTree()}
	m := &reviewers{house: newHouse(t), r: e.r, held: map[fleet.ObjectKey]reviews.Span{}}
	m.apply(e.files)
	for range 50 {
		for range 1 + e.r.IntN(4) {
			e.edit()
		}
		m.step(e.files)
		switch e.r.IntN(4) {
		case 0:
			m.leave()
		case 1:
			m.restart()
		}
		checkState(t, m.house)
		m.check()
	}
	for _, s := range m.w.AwaitsReview() {
		m.again(approve(m.house, s.Head))
	}
	m.work()
	checkState(t, m.house)
	compareWithScratch(t, m.house)
}

// step applies a tree. A plan without required reviews lists its deletions. Its guards allow
// everything.
func (m *reviewers) step(files tree) {
	m.t.Helper()
	asked := deletions(m.compute(files))
	review := &reviews.Deletions{Reviewed: seen{}, Earlier: map[reviews.Span]seen{}}
	for _, k := range asked {
		if m.r.IntN(2) == 0 {
			review.Reviewed[k] = mirror.ReviewedDeletion{Key: k, Approved: m.r.IntN(3) == 0}
		}
	}
	if m.r.IntN(4) == 0 {
		review.Unknown = errors.New("away")
	}
	may := maps.Clone(review.Reviewed)
	for k, span := range m.held {
		if m.r.IntN(4) == 0 {
			if review.Earlier[span] == nil {
				review.Earlier[span] = seen{}
			}
			review.Earlier[span][k] = mirror.ReviewedDeletion{Key: k}
			may[k] = mirror.ReviewedDeletion{Key: k}
		}
	}
	base := m.w.Revision()
	p := m.apply(files, with(review))
	for _, k := range p.Freed {
		delete(m.held, k)
	}
	for _, c := range p.Rows {
		k := c.Row.Key
		if k.Kind != fleet.ObjectApplication {
			continue
		}
		if _, reviewed := may[k]; c.Action == report.Delete && !reviewed {
			m.t.Fatalf("%s is deleted without a review", k.Name)
		}
		if c.Action == report.Hold {
			m.held[k] = reviews.Span{Base: base, Head: p.Head}
		}
	}
	for _, k := range asked {
		_, reviewed := review.Reviewed[k]
		if _, held := m.held[k]; held == reviewed {
			m.t.Fatalf("%s: reviewed %v, held %v", k.Name, reviewed, held)
		}
	}
	for k := range may {
		if _, held := m.held[k]; held {
			m.t.Fatalf("%s is held, though it was reviewed by now", k.Name)
		}
	}
}

// leave reports deleted objects without any evidence of reviews: held deletions stay held.
func (m *reviewers) leave() {
	m.t.Helper()
	for range 10 {
		gone := m.w.Terminating()
		if len(gone) == 0 {
			return
		}
		for _, k := range gone {
			delete(m.rows, k)
		}
		base := m.w.Revision()
		p := m.again(func(r *Request) { r.Deleted, r.DeletionReviews = gone, &reviews.Deletions{} })
		for _, c := range p.Rows {
			if c.Action == report.Delete && c.Row.Key.Kind == fleet.ObjectApplication {
				m.t.Fatalf("%s is deleted without a review", c.Row.Key.Name)
			}
			if c.Action == report.Hold {
				m.held[c.Row.Key] = reviews.Span{Base: base, Head: base}
			}
		}
		for _, k := range p.Freed {
			delete(m.held, k)
		}
	}
}

// check compares the AppliedState with the model.
func (m *reviewers) check() {
	m.t.Helper()
	got, spans := map[fleet.ObjectKey]reviews.Span{}, map[reviews.Span]bool{}
	for _, h := range m.w.state.Held.Base() {
		if h.Reason != mirror.HoldUnreviewed {
			m.t.Fatalf("%s is held for %s", h.Key.Name, h.Reason)
		}
		got[h.Key] = h.Span()
		spans[h.Span()] = true
		if r, ok := m.rows[h.Key]; !ok || r.Unwanted {
			m.t.Fatalf("%s is held and does not exist", h.Key.Name)
		}
	}
	if d := cmp.Diff(m.held, got); d != "" {
		m.t.Fatal(d)
	}
	if awaited := m.w.AwaitsReview(); len(awaited) != len(spans) {
		m.t.Fatalf("%v is awaited", awaited)
	}
}
