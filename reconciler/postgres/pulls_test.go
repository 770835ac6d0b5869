package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// pull is the record of a pull request that changes the tenants.
func pull(number int, state forge.PullState, tenants ...fleet.TenantName) forge.PullRecord {
	at := time.Date(2026, 11, 20, 12, 0, number, 0, time.UTC)
	ann := forge.Person{ID: 1, Login: "ann"}
	return forge.PullRecord{
		Pull: forge.Pull{Number: number, Title: fmt.Sprint("change ", number), Author: ann,
			State: state, Base: "main", Head: revision(number),
			URL: fmt.Sprint("https://git.example.com/config/pulls/", number), UpdatedAt: at},
		Commented: 11, Sticky: 12, CommentHash: "said", Marked: "marked", Held: &forge.Clearance{
			By: ann, Head: revision(number), At: at},
		Cleared: &forge.Clearance{By: ann, Head: revision(number), At: at,
			Deletions: []fleet.ObjectKey{
				{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "a"}}},
		Consents:  []forge.Clearance{{By: ann, Head: revision(number), At: at}},
		Consented: revision(number),
		Shown:     map[string]string{"tenants/acme/a.yaml": "b1", "tenants/acme/gone.yaml": ""},
		Replies:   []string{"held"}, Verdict: "1 to add", Tenants: tenants,
	}
}

func reviewed(number, head int, touches ...string) forge.ReviewedPlan {
	return forge.ReviewedPlan{Number: number, Base: revision(1000), Head: revision(head),
		Hash: fmt.Sprint("plan-", head), Report: fmt.Appendf(nil, `{"pull":%d}`, number),
		Effects: []mirror.Effect{
			{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "a"},
				Tenant: "acme", Deletes: true, Hash: "h"}},
		Touches: touches, At: time.Date(2026, 11, 20, 13, 0, head, 0, time.UTC)}
}

// savePulls saves four pull requests with a plan each: of acme, of globex, of both, and of the
// platform.
func savePulls(t testing.TB, s *postgres.Store) {
	t.Helper()
	for i, tenants := range [][]fleet.TenantName{{"acme"}, {"globex"}, {"", "acme", "globex"},
		{""}} {
		check(t, s.Pulls.SavePull(t.Context(), pull(i+1, forge.PullOpen, tenants...)))
		check(t, s.Pulls.SaveReviewed(t.Context(), reviewed(i+1, i+1, "a.yaml")))
	}
}

func TestPullRecordComesBackAsItWasSaved(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	if _, known, err := s.Pulls.PullRecord(ctx, 1); known || err != nil {
		t.Fatalf("known %v, %v", known, err)
	}
	record := pull(1, forge.PullOpen, "acme", "")
	for range 2 {
		check(t, s.Pulls.SavePull(ctx, record))
		got, known, err := s.Pulls.PullRecord(ctx, 1)
		if d := cmp.Diff(record, got); d != "" || !known || err != nil {
			t.Fatalf("known %v, %v\n%s", known, err, d)
		}
		at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
		record.State, record.MergeCommit, record.FollowedAt, record.Held = forge.PullMerged,
			revision(9), &at, nil
	}
	written := one[string](t, url, `SELECT xmin::text FROM pulls`)
	check(t, s.Pulls.SavePull(ctx, record))
	if again := one[string](t, url, `SELECT xmin::text FROM pulls`); again != written {
		t.Error("an unchanged record is written")
	}
	if err := s.Pulls.SavePull(ctx, forge.PullRecord{
		Pull: forge.Pull{Number: 2, State: "ajar"}}); err == nil {
		t.Error("a state that is none is kept")
	}
	strange := pull(3, forge.PullOpen, "acme")
	strange.Title, strange.Base = "a\x00b \xff \\u0000", "\x00"
	check(t, s.Pulls.SavePull(ctx, strange))
	if got, _, err := s.Pulls.PullRecord(ctx, 3); err != nil ||
		got.Title != "a\ufffdb \ufffd \\u0000" {
		t.Errorf("%q, %v", got.Title, err)
	}
}

func TestUnfinishedPulls(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i, state := range []forge.PullState{forge.PullOpen, forge.PullMerged, forge.PullClosed} {
		for j, settled := range []bool{false, true} {
			r := pull(10*i+j, state)
			r.Finished = settled
			check(t, s.Pulls.SavePull(t.Context(), r))
		}
	}
	var numbers []int
	for _, r := range must(s.Pulls.UnfinishedPulls(t.Context()))(t) {
		if numbers = append(numbers, r.Number); r.Shown != nil || r.Consented == "" {
			t.Errorf("%d is read with its files, or without the rest: %+v", r.Number, r)
		}
	}
	if !slices.Equal(numbers, []int{0, 1, 10, 20}) {
		t.Errorf("unfinished: %v", numbers)
	}
}

func TestReviewedPlanIsTheNewestOfItsHead(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	for i, head := range []int{1, 2, 1} {
		p := reviewed(7, head, "a.yaml", "b.yaml")
		p.Hash = fmt.Sprint("plan ", i)
		p.Report = []byte("\x00\xff any bytes")
		check(t, s.Pulls.SaveReviewed(ctx, p))
		got, known, err := s.Pulls.Reviewed(ctx, 7, revision(head))
		if d := cmp.Diff(p, got); d != "" || !known || err != nil {
			t.Fatalf("known %v, %v\n%s", known, err, d)
		}
	}
	check(t, s.Pulls.SaveReviewed(ctx, forge.ReviewedPlan{Number: 8, Head: revision(1)}))
	if got, known, err := s.Pulls.Reviewed(ctx, 8, revision(1)); !known || err != nil ||
		got.At.IsZero() || len(got.Effects)+len(got.Touches)+len(got.Report) != 0 {
		t.Errorf("a plan of nothing: %+v, %v", got, err)
	}
	for number, head := range map[int]int{7: 3, 9: 1} {
		if _, known, err := s.Pulls.Reviewed(ctx, number, revision(head)); known || err != nil {
			t.Errorf("plan of %d at %d: %v, %v", number, head, known, err)
		}
	}
	expect(t, url, `SELECT count(*) FROM reviewed_plans`, 3)
}

func TestCollidingPulls(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	long := strings.Repeat("x", 5000)
	for number, touches := range map[int][]string{1: {"a.yaml", "b.yaml", "b.yaml", long + "1"},
		2: {"b.yaml", "a.yaml", "c.yaml"}, 3: {"c.yaml", long + "1"}, 4: {"a.yaml"}, 5: nil,
		6: {long + "2", "\x00"}} {
		state := forge.PullOpen
		if number == 4 {
			state = forge.PullClosed
		}
		check(t, s.Pulls.SavePull(ctx, pull(number, state)))
		check(t, s.Pulls.SaveReviewed(ctx, reviewed(number, number, touches...)))
	}
	// without a record that it is open
	check(t, s.Pulls.SaveReviewed(ctx, reviewed(99, 99, "a.yaml")))
	colliding := func(number int, touches ...string) []forge.Collision {
		return must(s.Pulls.Colliding(ctx, number, touches))(t)
	}
	if got, want := colliding(1, "a.yaml", "b.yaml", "c.yaml"), []forge.Collision{
		{Number: 2, Touches: []string{"a.yaml", "b.yaml", "c.yaml"}},
		{Number: 3, Touches: []string{"c.yaml"}}}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if got := colliding(0, long+"1"); len(got) != 2 || got[0].Number != 1 || got[1].Number != 3 {
		t.Errorf("of a long path: %+v", got)
	}
	if got := colliding(6, "\x00", long+"2", "a", "A.yaml", "a.yaml "); len(got) != 0 {
		t.Errorf("of nothing in common: %+v", got)
	}
	check(t, s.Pulls.SaveReviewed(ctx, reviewed(2, 22, "d.yaml")))
	if got := colliding(1, "a.yaml", "b.yaml"); len(got) != 0 {
		t.Errorf("after the other's plan is another: %+v", got)
	}
	written := one[string](t, url, `SELECT xmin::text FROM pull_touches WHERE number = 2`)
	check(t, s.Pulls.SaveReviewed(ctx, reviewed(2, 22, "d.yaml")))
	if again := one[string](t, url,
		`SELECT xmin::text FROM pull_touches WHERE number = 2`); again != written {
		t.Error("an unchanged record is written")
	}
	check(t, s.Pulls.SavePull(ctx, pull(3, forge.PullMerged)))
	if got := colliding(1, "c.yaml", "d.yaml"); len(got) != 1 || got[0].Number != 2 {
		t.Errorf("after the merge of one: %+v", got)
	}
}

func TestPullStoreIsOneRoundTripEach(t *testing.T) {
	t.Parallel()
	var trips roundTrips
	s := openWith(t, newDatabase(t), postgres.Options{Connections: postgres.Connections{Workers: 1},
		Tracer: &trips})
	ctx := t.Context()
	many := make([]fleet.ObjectKey, 20_000)
	for name, f := range map[string]func(){
		"SavePull":     func() { check(t, s.Pulls.SavePull(ctx, pull(1, forge.PullOpen, "acme"))) },
		"PullRecord":   func() { _, _, err := s.Pulls.PullRecord(ctx, 1); check(t, err) },
		"SaveReviewed": func() { check(t, s.Pulls.SaveReviewed(ctx, reviewed(1, 1, "a.yaml"))) },
		"Reviewed": func() {
			_, _, err := s.Pulls.Reviewed(ctx, 1, revision(1))
			check(t, err)
		},
		"Colliding":  func() { must(s.Pulls.Colliding(ctx, 1, []string{"a.yaml"}))(t) },
		"Outcomes":   func() { must(s.Views.Outcomes(ctx, many))(t) },
		"Unfinished": func() { must(s.Pulls.UnfinishedPulls(ctx))(t) },
	} {
		f() // prepares its statements
		before := trips.n.Load()
		f()
		if n := trips.n.Load() - before; n != 1 {
			t.Errorf("%s: %d round trips", name, n)
		}
	}
}

// The connection is lost before the request arrives, or after COMMIT and before the answer.
func TestConnectionLostWhilePullsAreSavedHasOneEffect(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]int32{"the request is lost": cutRequest,
		"the answer is lost": cutAnswer} {
		t.Run(name, func(t *testing.T) {
			url := newDatabase(t)
			between := newProxy(t, url)
			s := openWith(t, between.url, postgres.Options{Connections: postgres.Connections{
				Workers: 1}})
			ctx := t.Context()
			deliveries, saves := 0, 0
			for what, f := range map[string]func(){
				"Accept": func() {
					deliveries++
					_, err := s.Pulls.Accept(ctx, delivery(deliveries), []forge.Recheck{
						pullJob(deliveries)})
					check(t, err)
				},
				"Ask": func() { check(t, s.Pulls.Ask(ctx, []forge.Recheck{branch})) },
				"SavePull": func() {
					saves++
					check(t,
						s.Pulls.SavePull(ctx,
							pull(1, forge.PullOpen, fleet.TenantName(fmt.Sprint("t", saves)))))
				},
				"SaveReviewed": func() {
					saves++
					check(t, s.Pulls.SaveReviewed(ctx, reviewed(1, 1, fmt.Sprint(saves, ".yaml"))))
				},
			} {
				f()
				between.cut.Store(cut)
				f()
				select {
				case <-between.Taken:
				default:
					t.Errorf("%s was not cut", what)
				}
				f()
			}
			expect(t, url, countDeliveries, deliveries)
			expect(t, url, countWanted, deliveries+1)
			expect(t, url, countJobs, deliveries+1)
			expect(t, url, `SELECT count(*) FROM pulls`, 1)
			expect(t, url, `SELECT count(*) FROM reviewed_plans`, 1)
			expect(t, url, `SELECT count(*) FROM pull_touches`, 1)
		})
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	rows := map[string]mirror.Row{}
	for _, name := range []string{"healthy", "failed", "pending", "unseen", "old", "settled",
		"held", "going", "retry"} {
		rows[name] = application("eu-1", "acme", name, "prod", "v1")
	}
	project := mirror.Row{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectProject,
		Name: "acme"}, Tenant: "acme", Manifest: manifest("{}")}
	reconciler, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	must(s.Plans.Record(ctx, reconciler, step(0, 1, func(r *mirror.Record) {
		r.Declarations, r.Rows = []fleet.Declaration{tenantDeclaration("acme")}, []mirror.Row{
			project}
		for _, row := range rows {
			r.Rows = append(r.Rows, row)
		}
		r.Held = []fleet.ObjectKey{rows["held"].Key}
	})))(t)
	seqs := map[fleet.ObjectKey]int64{}
	for _, r := range must(s.Work.Changed(ctx, "eu-1", 0, 100))(t) {
		seqs[r.Key] = r.Seq
	}
	observe := func(names ...string) {
		for _, name := range names {
			check(t, s.Work.Observe(ctx, worker, []mirror.Observation{
				{Key: rows[name].Key, Sync: mirror.SyncSynced, Health: mirror.HealthHealthy,
					SyncedRevision: "r1", Message: name}}))
		}
	}
	ack := func(state mirror.ApplyState, names ...string) {
		for _, name := range names {
			check(t,
				s.Work.Acknowledge(ctx, worker, []mirror.Ack{
					{Key: rows[name].Key, Seq: seqs[rows[name].Key], State: state,
						Message: map[bool]string{true: "refused"}[state == mirror.ApplyFailed]}}))
		}
	}
	check(t,
		s.Work.Acknowledge(ctx, worker, []mirror.Ack{
			{Key: project.Key, Seq: seqs[project.Key], State: mirror.ApplyApplied}}))
	observe("old", "settled")
	ack(mirror.ApplyApplied, "healthy", "unseen", "old", "settled", "going", "retry")
	ack(mirror.ApplyFailed, "failed")
	observe("healthy", "failed", "going", "retry")
	exec(t, url,
		`UPDATE status SET acked_at = acked_at - interval '2 min', observed_at = observed_at - interval '2 min' WHERE name = $1`, rows["settled"].Key.Name)
	must(s.Plans.Record(ctx, reconciler, step(1, 2, func(r *mirror.Record) {
		going, again := rows["going"], application("eu-1", "acme", "retry", "prod", "v2")
		going.Unwanted = true
		r.Rows = []mirror.Row{going, again}
		rows["retry"] = again
	})))(t)

	present := func(name string, o forge.Outcome) forge.Outcome {
		o.Key, o.Present, o.Hash = rows[name].Key, true, rows[name].Manifest.Hash
		if o.Revision == "" {
			o.Revision = revision(1)
		}
		return o
	}
	observed := func(name string, o forge.Outcome) forge.Outcome {
		o.Sync, o.Health, o.SyncedRevision, o.Message = mirror.SyncSynced, mirror.HealthHealthy,
			"r1",
			name
		return present(name, o)
	}
	unobserved := func(name string, o forge.Outcome) forge.Outcome {
		o.Sync, o.Health, o.Stale = mirror.SyncUnknown, mirror.HealthUnknown, true
		return present(name, o)
	}
	gone := fleet.ObjectKey{Engine: "us-1", Kind: fleet.ObjectApplication, Name: "gone"}
	want := []forge.Outcome{
		observed("healthy", forge.Outcome{Apply: mirror.ApplyApplied}),
		{Key: gone},
		observed("failed", forge.Outcome{Apply: mirror.ApplyFailed, ApplyMessage: "refused"}),
		unobserved("pending", forge.Outcome{Apply: mirror.ApplyPending}),
		unobserved("unseen", forge.Outcome{Apply: mirror.ApplyApplied}),
		observed("old", forge.Outcome{Apply: mirror.ApplyApplied, Stale: true}),
		observed("settled", forge.Outcome{Apply: mirror.ApplyApplied}),
		unobserved("held", forge.Outcome{Apply: mirror.ApplyHeld, Held: true}),
		observed("going", forge.Outcome{Apply: mirror.ApplyDeleting, Unwanted: true, Stale: true,
			Revision: revision(2)}),
		observed(
			"retry", forge.Outcome{Apply: mirror.ApplyPending, Stale: true, Revision: revision(2)}),
		{Key: project.Key, Present: true, Revision: revision(1), Hash: project.Manifest.Hash,
			Apply: mirror.ApplyApplied},
		// requested twice, answered twice
		observed("healthy", forge.Outcome{Apply: mirror.ApplyApplied}),
		{Key: fleet.ObjectKey{Engine: "eu-1", Kind: "'", Name: "\x00\xff"}},
	}
	keys := make([]fleet.ObjectKey, len(want))
	for i := range want {
		keys[i] = want[i].Key
	}
	if d := cmp.Diff(want, must(s.Views.Outcomes(ctx, keys))(t)); d != "" {
		t.Error(d)
	}
	if none := must(s.Views.Outcomes(ctx, nil))(t); len(none) != 0 {
		t.Errorf("%+v", none)
	}
}

func TestPullViews(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	ctx, all, page := t.Context(), view.Scope{}, view.Page{Limit: 100}
	savePulls(t, s)
	merged := pull(5, forge.PullMerged, "acme")
	merged.Held, merged.Consented, merged.FollowedAt = nil, revision(4), &merged.UpdatedAt
	check(t, s.Pulls.SavePull(ctx, merged))
	check(t, s.Pulls.SaveReviewed(ctx, reviewed(5, 77, "a.yaml"))) // of another head
	numbers := func(scope view.Scope, by view.Filter) (found []int) {
		t.Helper()
		got, _, err := s.Views.Pulls(ctx, scope, by, page)
		check(t, err)
		for _, p := range got {
			found = append(found, p.Number)
		}
		return found
	}
	for name, c := range map[string]struct {
		scope view.Scope
		by    view.Filter
		want  []int
	}{
		"all":            {all, view.Filter{}, []int{5, 4, 3, 2, 1}},
		"open":           {all, view.Filter{State: forge.PullOpen}, []int{4, 3, 2, 1}},
		"merged":         {all, view.Filter{State: forge.PullMerged}, []int{5}},
		"of acme":        {all, view.Filter{Tenant: "acme"}, []int{5, 3, 1}},
		"one":            {all, view.Filter{Pull: 2}, []int{2}},
		"one of another": {view.Scope{Tenant: "acme"}, view.Filter{Pull: 2}, nil},
		"quote":          {all, view.Filter{Tenant: "' OR true --"}, nil},
		"as acme":        {view.Scope{Tenant: "acme"}, view.Filter{}, []int{5, 3, 1}},
		"as globex": {view.Scope{Tenant: "globex"}, view.Filter{State: forge.PullOpen},
			[]int{3, 2}},
		"as acme of globex":    {view.Scope{Tenant: "acme"}, view.Filter{Tenant: "globex"}, nil},
		"as a stranger":        {view.Scope{Tenant: "initech"}, view.Filter{}, nil},
		"as one with no name":  {view.Scope{Tenant: "\x00"}, view.Filter{}, nil},
		"as one with a quote'": {view.Scope{Tenant: "acme' OR '1'='1"}, view.Filter{}, nil},
	} {
		if got := numbers(c.scope, c.by); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := pages(t, 2, func(p view.Page) ([]view.Pull, string, error) {
		return s.Views.Pulls(ctx, all, view.Filter{}, p)
	}); len(got) != 5 {
		t.Errorf("%d in pages of 2", len(got))
	}
	if _, _, err := s.Views.Pulls(ctx, all, view.Filter{},
		view.Page{Limit: 1, After: "x"}); !errors.Is(
		err, mirror.ErrCursor) {
		t.Errorf("a forged cursor: %v", err)
	}

	want := view.Pull{Number: 1, Title: "change 1", Author: "ann", State: forge.PullOpen,
		Head: revision(1), Base: revision(1000), Hash: "plan-1",
		Verdict: "1 to add", Tenants: []fleet.TenantName{"acme"}, Consented: true, Held: true,
		URL:       "https://git.example.com/config/pulls/1",
		UpdatedAt: time.Date(2026, 11, 20, 12, 0, 1, 0, time.UTC)}
	for _, scope := range []view.Scope{all, {Tenant: "acme"}} {
		got, report, err := s.Views.PullOf(ctx, scope, 1)
		check(t, err)
		if d := cmp.Diff(want, got); d != "" || string(report) != `{"pull":1}` ||
			string(must(s.Views.PullPlan(ctx, scope, 1))(t)) != `{"pull":1}` {
			t.Errorf("in %v: %s\n%s", scope, report, d)
		}
	}
	if got, report, err := s.Views.PullOf(ctx, all, 5); err != nil || got.Base != "" ||
		got.Hash != "" ||
		report != nil || !got.Following || got.Held || got.Consented {
		t.Errorf("without a plan of its head: %+v, %s, %v", got, report, err)
	}
	if _, err := s.Views.PullPlan(ctx, all, 5); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("no plan of its head: %v", err)
	}
	shared, _, err := s.Views.PullOf(ctx, view.Scope{Tenant: "acme"}, 3)
	check(t, err)
	if text := must(json.Marshal(shared))(t); strings.Contains(string(text), "globex") ||
		shared.Verdict != "" || !slices.Equal(shared.Tenants, []fleet.TenantName{"acme"}) {
		t.Errorf("acme sees a pull request that touches globex too as %s", text)
	}
	for _, c := range []struct {
		scope  view.Scope
		number int
	}{{all, 6}, {all, 0}, {all, -1}, {view.Scope{Tenant: "acme"}, 2},
		{view.Scope{Tenant: "acme"}, 4}, {view.Scope{Tenant: "initech"}, 1}} {
		if _, report, err := s.Views.PullOf(ctx, c.scope, c.number); !errors.Is(
			err, mirror.ErrNotFound) ||
			report != nil {
			t.Errorf("%d in %v: %s, %v", c.number, c.scope, report, err)
		}
	}

	t.Run("a new tenant of the same name sees no earlier pull request", func(t *testing.T) {
		exec(t, url,
			`UPDATE tenants SET removed_at = now() WHERE tenant = 'acme'; INSERT INTO tenants (tenant) VALUES ('acme')`)
		acme := view.Scope{Tenant: "acme"}
		if got := numbers(acme, view.Filter{}); got != nil {
			t.Errorf("it sees %v", got)
		}
		check(t, s.Pulls.SavePull(ctx, pull(3, forge.PullOpen, "acme")))
		if got := numbers(acme, view.Filter{}); !slices.Equal(got, []int{3}) {
			t.Errorf("of its own pull requests it sees %v", got)
		}
	})
}

// Data that Git cannot restore survives a rebuild.
func TestResetKeepsPulls(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	ctx := t.Context()
	savePulls(t, s)
	must(s.Pulls.Accept(ctx, delivery(1), []forge.Recheck{branch}))(t)
	sizes := func() (all []int) {
		for _, table := range []string{"deliveries", "looks", "pulls", "reviewed_plans",
			"pull_touches", "river_job"} {
			n := one[int](t, url, `SELECT count(*) FROM `+table)
			if n == 0 {
				t.Errorf("%s is empty", table)
			}
			all = append(all, n)
		}
		return all
	}
	before := sizes()
	check(t, s.Reset(ctx))
	if after := sizes(); !slices.Equal(after, before) {
		t.Errorf("rows %v, before %v", after, before)
	}
	if fresh := must(s.Pulls.Accept(ctx, delivery(1), []forge.Recheck{branch}))(t); fresh {
		t.Error("a delivery of before is taken once more")
	}
	if _, known, err := s.Pulls.Reviewed(ctx, 1, revision(1)); !known || err != nil {
		t.Errorf("the plan that reviewers saw: %v, %v", known, err)
	}
	if got, _, err := s.Views.Pulls(ctx, view.Scope{Tenant: "acme"}, view.Filter{}, view.Page{
		Limit: 10}); err != nil || len(got) != 2 {
		t.Errorf("acme sees %d, %v", len(got), err)
	}
}

// Two plans of one pull request are saved one after the other: its files are those of one plan,
// never of both.
func TestPlansOfOnePullAreSavedOneByOne(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	conn := connect(t, url)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(),
		`SELECT pg_advisory_xact_lock(hashtextextended('argosy plan of 7', 0))`)
	check(t, err)
	saved := make(chan error, 1)
	go func() { saved <- s.Pulls.SaveReviewed(context.Background(), reviewed(7, 1, "a.yaml")) }()
	until(t, "the plan to wait", func() bool { return waiting(t, url) == 1 })
	check(t, s.Pulls.SaveReviewed(t.Context(), reviewed(8, 1, "a.yaml"))) // of another
	check(t, tx.Rollback(t.Context()))
	check(t, <-saved)
	expect(t, url, `SELECT count(*) FROM pull_touches`, 2)
}

// Several replicas save the same pull request at once.
func TestPullsAreSavedSideBySide(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				if err := s.Pulls.SavePull(context.Background(),
					pull(j%3, forge.PullOpen, fleet.TenantName(fmt.Sprint("t", i)))); err != nil {
					t.Error(err)
				}
				if err := s.Pulls.SaveReviewed(context.Background(),
					reviewed(j%3, j%2, "a.yaml", fmt.Sprint(i, ".yaml"),
						fmt.Sprint(j, ".yaml"))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	expect(t, url, `SELECT count(*) FROM pulls`, 3)
	expect(t, url, `SELECT count(*) FROM pull_touches t WHERE touch <> ALL (
		SELECT unnest(touches) FROM (SELECT touches FROM reviewed_plans r WHERE r.number = t.number ORDER BY saved_at DESC LIMIT 1) newest)`, 0)
}
