package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/reviews"
	"argosy.dev/argosy/test/stack"
)

// reviewers return the reviews of a test, and can be away.
type reviewers struct {
	// of which they have reviewed every file; nil: only files are reviewed
	repo *stack.Repo

	mu    sync.Mutex
	know  map[reviews.Span]map[fleet.ObjectKey]mirror.ReviewedDeletion
	files map[reviews.Span]map[string]string
	away  error
	asked []reviews.Span
}

// Reviewed is reconciler.Reviews.
func (r *reviewers) Reviewed(ctx context.Context, base, head fleet.Revision) (reviews.Reviewed,
	error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	span := reviews.Span{Base: base, Head: head}
	r.asked = append(r.asked, span)
	if r.away != nil {
		return reviews.Reviewed{}, r.away
	}
	seen := reviews.Reviewed{Deletions: maps.Clone(r.know[span]), Paths: maps.Clone(r.files[span])}
	if r.repo != nil {
		paths, err := changed(ctx, r.repo, base, head)
		if err != nil {
			return reviews.Reviewed{}, err
		}
		seen.Paths = paths
	}
	return seen, nil
}

// changed is the files that differ between two commits: path to blob, "" if it is removed.
func changed(ctx context.Context, repo *stack.Repo, base, head fleet.Revision) (map[string]string,
	error) {
	out, err := repo.Git(ctx, "diff-tree", "-r", "--no-renames", "--no-abbrev", string(base),
		string(head))
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line) // :mode mode blob blob status path
		if blob := fields[3]; strings.Trim(blob, "0") != "" {
			paths[fields[5]] = blob
		} else {
			paths[fields[5]] = ""
		}
	}
	return paths, nil
}

// sawFiles adds reviews of these files of one span.
func (r *reviewers) sawFiles(t testing.TB, h *house, base, head fleet.Revision, paths ...string) {
	t.Helper()
	all, err := changed(t.Context(), h.repo, base, head)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files == nil {
		r.files = map[reviews.Span]map[string]string{}
	}
	seen := map[string]string{}
	for _, p := range paths {
		blob, ok := all[p]
		if !ok {
			t.Fatalf("%s does not change: %v", p, all)
		}
		seen[p] = blob
	}
	r.files[reviews.Span{Base: base, Head: head}] = seen
}

func (r *reviewers) lose(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = err
}

// saw adds reviews of the deletions of one span.
func (r *reviewers) saw(base, head fleet.Revision, approved bool, keys ...fleet.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.know == nil {
		r.know = map[reviews.Span]map[fleet.ObjectKey]mirror.ReviewedDeletion{}
	}
	seen := map[fleet.ObjectKey]mirror.ReviewedDeletion{}
	for _, k := range keys {
		seen[k] = mirror.ReviewedDeletion{Key: k, Approved: approved, By: "ada", Pull: 7}
	}
	r.know[reviews.Span{Base: base, Head: head}] = seen
}

func (r *reviewers) spans() []reviews.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// applications are the keys of a tenant's deployment in its environments.
func (h *house) applications(tenant fleet.TenantName, name fleet.DeploymentName) []fleet.ObjectKey {
	h.t.Helper()
	var keys []fleet.ObjectKey
	for k, row := range h.rows() {
		if k.Kind == fleet.ObjectApplication && row.Tenant == tenant && row.Deployment == name {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		h.t.Fatalf("%s/%s has no Application", tenant, name)
	}
	return keys
}

// heldFor waits for a hold of a revision and gives it.
func (h *house) heldFor(revision fleet.Revision, reason mirror.HoldReason,
	text string) mirror.Hold {
	h.t.Helper()
	var out mirror.Hold
	h.eventually("it is held as "+string(reason), func() error {
		holds, _, err := h.store.Views.Holds(context.Background(), view.Scope{}, view.Filter{},
			view.Page{Limit: 100})
		if err != nil {
			return err
		}
		for _, hold := range holds {
			if out = hold; hold.Revision == revision && hold.Reason == reason &&
				strings.Contains(hold.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("held: %+v", holds)
	})
	return out
}

func TestAnUnreviewedDeletionWaitsForAReview(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	people := &reviewers{repo: h.repo}
	r := h.start("a", options{reviews: people})
	h.atRest(r)
	if n := len(people.spans()); n != 0 {
		t.Errorf("asked %d times, and nothing was deleted", n)
	}
	base, shop := h.head(), h.applications("globex", "shop")
	head := h.commit("pushed past everybody",
		together(gone(deployment("globex", "shop", "v1", "Orphan", "prod")),
			deployment("acme", "web", "v2", "Delete", "prod", "staging")))
	hold := h.heldFor(head, mirror.HoldUnreviewed, "not reviewed")
	if hold.Tenant != "globex" || !slices.Equal(hold.Items, shop) {
		t.Errorf("%+v", hold)
	}
	h.eventually("the rest of the commit is applied, and what is held stays", func() error {
		if err := h.converged(); err != nil {
			return err
		}
		if a := h.application("acme/web@prod"); a.TargetRevision != "v2" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	h.passes(r, 5)
	if !h.engines[shop[0].Engine].server.Exists(shop[0]) {
		t.Fatal("it is gone")
	}
	work := r.store.asked("record", "recent")
	h.eventually("they are asked again", func() error {
		if n := len(people.spans()); n < 4 {
			return fmt.Errorf("asked %d times", n)
		}
		return nil
	})
	if n := r.store.asked("record", "recent") - work; n != 0 {
		t.Errorf("%d calls of the store while nothing new is known", n)
	}
	asked := people.spans()
	if slices.ContainsFunc(asked, func(s reviews.Span) bool {
		return s != reviews.Span{Base: base, Head: head}
	}) {
		t.Errorf("asked %v", asked)
	}

	t.Run("over a restart and other commits", func(t *testing.T) {
		r.stop()
		n := len(people.spans())
		r = h.start("b", options{reviews: people})
		h.eventually("they are asked again without a commit", func() error {
			if len(people.spans()) == n {
				return errors.New("not yet")
			}
			return nil
		})
		h.commit("another", deployment("acme", "web", "v3", "Delete", "prod", "staging"))
		h.eventually("it is applied", h.converged)
		h.heldFor(head, mirror.HoldUnreviewed, "not reviewed")
	})
	t.Run("until somebody turns out to have", func(t *testing.T) {
		people.saw(base, head, false, shop...)
		r.AskReviews()
		h.eventually("it goes", func() error {
			if h.engines[shop[0].Engine].server.Exists(shop[0]) {
				return errors.New("it is there")
			}
			return h.converged()
		})
		if holds, _, err := h.store.Views.Holds(t.Context(), view.Scope{}, view.Filter{}, view.Page{
			Limit: 10}); err != nil || len(holds) != 0 {
			t.Errorf("%+v %v", holds, err)
		}
		n := len(people.spans())
		h.passes(r, 3)
		if len(people.spans()) != n {
			t.Error("they are still asked")
		}
	})
}

func TestReviewersThatAreAwayHoldWhatIsNotKnownAndNothingElse(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	people := &reviewers{repo: h.repo, away: errors.New("the Git host is away")}
	r := h.start("a", options{reviews: people})
	h.atRest(r)
	base, shop := h.head(), h.applications("globex", "shop")
	head := h.commit("while they are away",
		together(gone(deployment("globex", "shop", "v1", "Orphan", "prod")),
			deployment("acme", "web", "v2", "Delete", "prod", "staging")))
	h.heldFor(head, mirror.HoldUnreviewed, "the Git host is away")
	if hold := h.heldOf(head, "acme"); !slices.Equal(hold.Paths,
		[]string{"tenants/acme/deployments/web.yaml"}) {
		t.Errorf("%+v", hold)
	}
	h.commit("restored, still away", deployment("acme", "web", "v1", "Delete", "prod", "staging"))
	h.eventually("it is held no longer", func() error {
		if hold := h.heldOf(head, "acme"); hold.Paths != nil {
			return fmt.Errorf("%+v", hold)
		}
		return h.converged()
	})
	if !h.engines[shop[0].Engine].server.Exists(shop[0]) {
		t.Fatal("it is gone")
	}
	people.saw(base, head, false, shop...)
	people.lose(nil)
	h.eventually("what turns out to be reviewed goes", func() error {
		if h.engines[shop[0].Engine].server.Exists(shop[0]) {
			return errors.New("it is there")
		}
		return h.converged()
	})
	if s := people.spans()[0]; s != (reviews.Span{Base: base, Head: head}) {
		t.Errorf("asked %v first", s)
	}
}

// heldOf is the hold of one revision and tenant, as it is now.
func (h *house) heldOf(revision fleet.Revision, tenant fleet.TenantName) mirror.Hold {
	h.t.Helper()
	holds, _, err := h.store.Views.Holds(context.Background(), view.Scope{}, view.Filter{},
		view.Page{
			Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, hold := range holds {
		if hold.Revision == revision && hold.Tenant == tenant {
			return hold
		}
	}
	return mirror.Hold{}
}

func TestReviewedDeletionsGoAtOnceAndApprovedOnesPassTheGuards(t *testing.T) {
	t.Parallel()
	five := func() map[string]string {
		out := map[string]string{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			maps.Copy(out, deployment("acme", name, "v1", "Delete", "prod"))
		}
		return out
	}
	for name, approved := range map[string]bool{"approved": true, "only seen": false} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, together(small(), five()))
			people := &reviewers{repo: h.repo}
			r := h.start("a", options{reviews: people})
			h.atRest(r)
			base := h.head()
			var keys []fleet.ObjectKey
			for _, name := range []fleet.DeploymentName{"a", "b", "c", "d", "e"} {
				keys = append(keys, h.applications("acme", name)...)
			}
			// Reviewed and merged: the reviewers know of it before the branch moves.
			request := h.propose(7, base, gone(five()))
			p := h.preview(r, request)
			shown := slices.DeleteFunc(p.Plan.Effects(), func(e mirror.Effect) bool {
				return !e.Deletes
			})
			if len(shown) != 5 || p.Plan.Counts.Held != 5 ||
				p.Plan.Holds[0].Reason != mirror.HoldDeletions || len(people.spans()) != 0 ||
				len(p.Shown) != 5 {
				t.Fatalf("%+v %+v %+v, asked %v", shown, p.Plan.Counts, p.Plan.Holds,
					people.spans())
			}
			merged := h.merge(request)
			people.saw(base, merged, approved, keys...)
			r.Wake()
			if !approved {
				h.heldFor(merged, mirror.HoldDeletions, "more than maxDeletes")
				return
			}
			h.eventually("all of them go", func() error {
				for _, k := range keys {
					if h.engines[k.Engine].server.Exists(k) {
						return fmt.Errorf("%s is there", k.Name)
					}
				}
				return h.converged()
			})
			if recent, err := h.store.Plans.Recent(t.Context(), time.Hour); err != nil ||
				len(recent.Deleted) != 0 {
				t.Errorf("they count against the guards: %v %v", recent.Deleted, err)
			}
		})
	}
}

func TestATaskOfTheLeaderRunsWhereTheLeaseIs(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	running, began, linger := map[string]bool{}, 0, make(chan struct{})
	watch := func(name string) func(context.Context) {
		return func(ctx context.Context) {
			mu.Lock()
			running[name] = true
			began++
			if len(running) > 1 {
				t.Errorf("on several replicas at once: %v", running)
			}
			mu.Unlock()
			<-ctx.Done()
			<-linger
			mu.Lock()
			delete(running, name)
			mu.Unlock()
		}
	}
	where := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(slices.Sorted(maps.Keys(running)), " ")
	}
	h := newHouse(t, small())
	a := h.start("a", options{task: watch("a")})
	h.eventually("it runs on the only replica", func() error {
		if where() != "a" {
			return errors.New(where())
		}
		return nil
	})
	h.atRest(a)
	b := h.start("b", options{task: watch("b")})
	if where() != "a" {
		t.Errorf("it runs on %q", where())
	}
	stopped := make(chan struct{})
	go func() { a.stop(); close(stopped) }()
	asked := b.store.asked("acquire")
	h.eventually("the other asks for the lease meanwhile", func() error {
		if b.store.asked("acquire") < asked+5 {
			return errors.New("not yet")
		}
		return nil
	})
	if where() != "a" {
		t.Errorf("it has not ended, and runs on %q", where())
	}
	close(linger)
	<-stopped
	h.eventually("it runs on the other", func() error {
		if where() != "b" {
			return fmt.Errorf("%q", where())
		}
		return nil
	})
	if p := h.preview(b, h.propose(7, h.head(), deployment("acme", "new", "v1", "Delete",
		"prod"))); p.Plan.Counts.Created != 1 {
		t.Errorf("%+v", p.Plan.Counts)
	}
	b.stop()
	if where() != "" || began != 2 {
		t.Errorf("it runs on %q, and began %d times", where(), began)
	}
}

func TestARecordKeepsWhatItChangedForTheReportsOnPullRequests(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.atRest(r)
	_, newest, err := h.store.Pulls.ChangedSince(t.Context(), -1)
	if err != nil {
		t.Fatal(err)
	}
	base := h.head()
	for _, c := range []struct {
		files map[string]string
		want  []fleet.TenantName
	}{
		{deployment("acme", "web", "v2", "Delete", "prod", "staging"), []fleet.TenantName{"acme"}},
		{
			map[string]string{
				"fleet/tenants/globex.yaml": strings.Replace(small()["fleet/tenants/globex.yaml"],
					"deployments: 300", "deployments: 301", 1)}, []fleet.TenantName{"", "globex"}},
		{map[string]string{"tenants/globex/deployments/bad.yaml": "kind: ["}, []fleet.TenantName{
			"globex"}},
	} {
		head := h.commit("change", c.files)
		var got []fleet.TenantName
		h.eventually("the revision is recorded", func() (err error) {
			if _, _, known, _ := h.store.Pulls.RecordedEffects(t.Context(), head); !known {
				return errors.New("no effects")
			}
			got, newest, err = h.store.Pulls.ChangedSince(t.Context(), newest)
			return err
		})
		if d := cmp.Diff(c.want, got); d != "" {
			t.Error(d)
		}
		from, effects, known, err := h.store.Pulls.RecordedEffects(t.Context(), head)
		if err != nil || !known || from != base || effects == nil ||
			(len(effects) > 0) != (c.want[0] == "acme") {
			t.Errorf("%v: from %s, not %s: %+v, %t, %v", c.want, from, base, effects, known, err)
		}
		base = head
	}
}

func TestReviewersAreNotAskedAtEveryWake(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	people := &reviewers{repo: h.repo}
	r := h.start("a", options{reviews: people, poll: time.Hour})
	h.eventually("the fleet is in sync", h.converged)
	began := time.Now()
	head := h.commit("pushed past everybody",
		gone(deployment("globex", "shop", "v1", "Orphan", "prod")))
	r.Wake()
	h.heldFor(head, mirror.HoldUnreviewed, "not reviewed")
	for range 10 {
		from := r.source.fetches.Load()
		h.eventually("a reconcile has run", func() error {
			if r.Wake(); r.source.fetches.Load() == from {
				return errors.New("not yet")
			}
			return nil
		})
	}
	// a span is asked for again a second later at the earliest
	if n := len(people.spans()); n < 1 || n > 1+int(time.Since(began)/time.Second) {
		t.Errorf("asked %d times in %s", n, time.Since(began))
	}
}
