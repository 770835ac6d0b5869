package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// recorded is a store with these rows recorded as revision 1, and the leases of the reconciler and
// of engine eu-1.
func recorded(t testing.TB, url string, rows ...mirror.Row) (s *postgres.Store, reconciler,
	worker mirror.Lease, stored []mirror.Row) {
	t.Helper()
	s = open(t, url)
	reconciler, worker = hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	must(s.Plans.Record(t.Context(), reconciler, step(0, 1, func(r *mirror.Record) {
		r.Declarations, r.Rows, r.Created = []fleet.Declaration{tenantDeclaration("acme")}, rows,
			len(rows)
	})))(t)
	return s, reconciler, worker, must(s.Work.Changed(t.Context(), "eu-1", 0, 100_000))(t)
}

func TestAcknowledgeOfAnOlderRowChangesNothingNewer(t *testing.T) {
	t.Parallel()
	a := application("eu-1", "acme", "a", "prod", "v1")
	s, reconciler, worker, old := recorded(t, newDatabase(t), a)
	must(s.Plans.Record(t.Context(), reconciler,
		step(1, 2, func(r *mirror.Record) {
			r.Rows = []mirror.Row{application("eu-1", "acme", "a", "prod", "v2")}
		})))(t)
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(old)))
	row, ok, err := s.Work.Row(t.Context(), a.Key)
	if err != nil || !ok || row.Apply != mirror.ApplyPending {
		t.Fatalf("%+v, %v, %v", row.Apply, ok, err)
	}
	check(t, s.Work.Acknowledge(t.Context(), worker, applied([]mirror.Row{row})))
	if row, _, _ := s.Work.Row(t.Context(), a.Key); row.Apply != mirror.ApplyApplied {
		t.Fatalf("acknowledged at its number: %s", row.Apply)
	}
}

func TestAcknowledgeOfARemovalTakesTheRowOnlyIfItIsToGo(t *testing.T) {
	t.Parallel()
	a, b := application("eu-1", "acme", "a", "prod", "v1"), application("eu-1", "acme", "b", "prod",
		"v1")
	url := newDatabase(t)
	s, reconciler, worker, rows := recorded(t, url, a, b)
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{{Key: a.Key}, {Key: b.Key}}))
	check(t, s.Work.Acknowledge(t.Context(), worker, []mirror.Ack{
		{Key: a.Key, Seq: rows[0].Seq, Removed: true}}))
	life := must(s.Plans.Mirror(t.Context()))(t).Life
	if gone := must(s.Plans.Vanished(t.Context(), life, []fleet.ObjectKey{a.Key, b.Key}))(t); len(
		gone) != 0 {
		t.Fatalf("a row that is wanted went: %v", gone)
	}
	b.Unwanted = true
	must(s.Plans.Record(t.Context(), reconciler,
		step(1, 2, func(r *mirror.Record) { r.Rows = []mirror.Row{b} })))(t)
	absent := must(s.Work.Changed(t.Context(), "eu-1", 2, 10))(t)

	// Wanted again before the worker has reported: its report is about an older row.
	b.Unwanted = false
	must(s.Plans.Record(t.Context(), reconciler,
		step(2, 3, func(r *mirror.Record) { r.Rows = []mirror.Row{b} })))(t)
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(absent)))
	if gone := must(s.Plans.Vanished(t.Context(), life, []fleet.ObjectKey{b.Key}))(t); len(
		gone) != 0 {
		t.Fatal("a row that is wanted again went")
	}
	b.Unwanted = true
	must(s.Plans.Record(t.Context(), reconciler,
		step(3, 4, func(r *mirror.Record) { r.Rows = []mirror.Row{b} })))(t)
	check(t, s.Work.Acknowledge(t.Context(), worker,
		applied(must(s.Work.Changed(t.Context(), "eu-1", 4-1, 10))(t))))
	if gone := must(s.Plans.Vanished(t.Context(), life, []fleet.ObjectKey{a.Key, b.Key}))(
		t); !cmp.Equal(
		gone,
		[]fleet.ObjectKey{b.Key}) {
		t.Fatalf("gone: %v", gone)
	}
	if n := one[int](t, url, `SELECT count(*) FROM status`); n != 1 {
		t.Errorf("%d rows of status", n)
	}
}

func TestRevisionIsAppliedWhenItsLastObjectIs(t *testing.T) {
	t.Parallel()
	s, reconciler, worker, rows := recorded(t, newDatabase(t), application("eu-1", "acme", "a",
		"prod", "v1"), application("eu-1", "acme", "b", "prod", "v1"))
	look := func() (view.Revision, mirror.Operation) {
		t.Helper()
		v, _, err := s.Views.Revisions(t.Context(), view.Scope{}, view.Filter{
			Revision: revision(1)},
			view.Page{Limit: 1})
		check(t, err)
		o, _, err := s.Views.Operations(t.Context(), view.Scope{}, view.Filter{
			Revision: revision(1)},
			view.Page{Limit: 1})
		check(t, err)
		return v[0], o[0]
	}
	if v, o := look(); v.Pending != 2 || v.AppliedAt != nil || o.State != mirror.OperationRunning ||
		o.Done != 0 || o.Total != 2 {
		t.Fatalf("at first: %+v, %+v", v, o)
	}
	check(t, s.Work.Acknowledge(t.Context(), worker, []mirror.Ack{
		{Key: rows[0].Key, Seq: rows[0].Seq, State: mirror.ApplyApplied},
		{Key: rows[1].Key, Seq: rows[1].Seq, State: mirror.ApplyFailed, Message: "refused"}}))
	if v, o := look(); v.Pending != 1 || v.AppliedAt != nil || o.Done != 1 {
		t.Fatalf("after one: %+v, %+v", v, o)
	}
	// A later revision replaces the other row: the first has no work left.
	must(s.Plans.Record(t.Context(), reconciler,
		step(1, 2, func(r *mirror.Record) {
			r.Rows = []mirror.Row{application("eu-1", "acme", "b", "prod", "v2")}
		})))(t)
	if v, o := look(); v.Pending != 0 || v.AppliedAt == nil ||
		o.State != mirror.OperationSucceeded || o.Done != 2 || o.EndedAt == nil {
		t.Fatalf("at last: %+v, %+v", v, o)
	}
}

func TestObserveWritesWhatIsNewAndNothingElse(t *testing.T) {
	t.Parallel()
	a := application("eu-1", "acme", "a", "prod", "v1")
	url := newDatabase(t)
	s, _, worker, _ := recorded(t, url, a)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	seen := mirror.Observation{Key: a.Key, UID: "u1", Sync: mirror.SyncSynced,
		Health: mirror.HealthProgressing, SyncedRevision: "abc", OperationPhase: "Running",
		OperationID: "op", OperationError: "e", Message: strings.Repeat("ü", 2000), Resources: 7,
		ReconciledAt: at, ResourceVersion: "1"}
	check(
		t,
		s.Work.Observe(t.Context(), worker, []mirror.Observation{{Key: a.Key, Sync: "older"}, seen,
			{
				Key: fleet.ObjectKey{
					Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "stranger"}}}))
	if n := one[int](t, url, `SELECT count(*) FROM status`); n != 1 {
		t.Fatalf("%d rows of status", n)
	}
	before := writes(t, url)
	seen.ResourceVersion, seen.ReconciledAt = "2", at.Add(time.Minute)
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{seen}))
	if d := cmp.Diff(before, writes(t, url)); d != "" {
		t.Errorf("no news was written:\n%s", d)
	}
	seen.Health = mirror.HealthHealthy
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{seen}))
	views, _, err := s.Views.Applications(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{
		Health: mirror.HealthHealthy}, view.Page{Limit: 10})
	check(t, err)
	if len(views) != 1 || views[0].Sync != mirror.SyncSynced || views[0].Resources != 7 ||
		views[0].SyncedRevision != "abc" || views[0].ObservedAt == nil ||
		len(views[0].Message) > 1024 || !strings.HasSuffix(views[0].Message, "ü…") {
		t.Fatalf("%+v", views)
	}
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{
		{Key: a.Key, UID: "u1", Sync: mirror.SyncSynced, Health: mirror.HealthHealthy,
			Deleted: true}}))
	views, _, err = s.Views.Applications(t.Context(), view.Scope{}, view.Filter{}, view.Page{
		Limit: 10})
	check(t, err)
	if views[0].Health != mirror.HealthMissing || views[0].Sync != mirror.SyncUnknown {
		t.Errorf("a deleted Application is %s and %s", views[0].Sync, views[0].Health)
	}
}

func TestEngineReportHasTheTimeOfTheChange(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	worker := hold(t, s, "engine/eu-1")
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"),
		step(0, 1, func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{
				engineDeclaration("eu-1")}
		})))(t)
	report := func(r mirror.EngineReport) view.Engine {
		t.Helper()
		r.Engine = "eu-1"
		check(t, s.Work.ReportEngine(t.Context(), worker, r))
		v, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{Engine: "eu-1"},
			view.Page{
				Limit: 1})
		check(t, err)
		return v[0]
	}
	up := report(mirror.EngineReport{Reachable: true, ArgoCD: "v2.14.21"})
	before := writes(t, url)
	report(mirror.EngineReport{Reachable: true})
	if d := cmp.Diff(before, writes(t, url)); d != "" {
		t.Errorf("no news was written:\n%s", d)
	}
	report(mirror.EngineReport{Reachable: true, Unfit: "it tracks by label"})
	expect(t, url, `SELECT count(*) FROM engines WHERE unfit = 'it tracks by label'`, 1)
	report(mirror.EngineReport{Reachable: true})
	expect(t, url, `SELECT count(*) FROM engines WHERE unfit = ''`, 1)
	down := report(mirror.EngineReport{Message: "connection refused"})
	still := report(mirror.EngineReport{Message: "no route to host"})
	if !up.Reachable || up.ArgoCD != "v2.14.21" || up.Holder != "replica-1" || up.Epoch != 1 ||
		down.Reachable || down.ArgoCD != "v2.14.21" ||
		still.Message != "no route to host" || !still.Since.Equal(*down.Since) ||
		!down.Since.After(*up.Since) {
		t.Errorf("up %+v\ndown %+v\nstill %+v", up, down, still)
	}
}

func TestCursorOnlyGrows(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	worker := hold(t, s, "engine/eu-1")
	for _, n := range []int64{5, 9, 7} {
		check(t, s.Work.SetCursor(t.Context(), worker, n))
	}
	if n := must(s.Work.Cursor(t.Context(), "eu-1"))(t); n != 9 {
		t.Errorf("cursor %d", n)
	}
	if n := must(s.Work.Cursor(t.Context(), "other"))(t); n != 0 {
		t.Errorf("cursor of an engine that is new: %d", n)
	}
}

func TestEngineIsListedUntilItsLastRowIsDeleted(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	reconciler, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	row := application("eu-1", "acme", "a", "prod", "v1")
	must(s.Plans.Record(t.Context(), reconciler, step(0, 1, func(r *mirror.Record) {
		r.Declarations, r.Rows = []fleet.Declaration{engineDeclaration("eu-1"),
			engineDeclaration("us-1")}, []mirror.Row{row}
	})))(t)
	row.Unwanted = true
	must(s.Plans.Record(t.Context(), reconciler, step(1, 2, func(r *mirror.Record) {
		r.Removed, r.Rows = []fleet.Key{engineDeclaration("eu-1").Key,
			engineDeclaration("us-1").Key}, []mirror.Row{row}
	})))(t)
	specs := must(s.Plans.EngineSpecs(t.Context()))(t)
	if len(specs) != 1 || specs["eu-1"].ArgoCD.InstallationID != "eu-1" {
		t.Fatalf("engines: %+v", specs)
	}
	check(t, s.Work.Acknowledge(t.Context(), worker,
		applied(must(s.Work.Changed(t.Context(), "eu-1", 0, 10))(t))))
	if specs := must(s.Plans.EngineSpecs(t.Context()))(t); len(specs) != 0 {
		t.Errorf("engines: %+v", specs)
	}
}

func TestSyncIsAskedForOnceAndEndsOnce(t *testing.T) {
	t.Parallel()
	a := application("eu-1", "acme", "a", "prod", "v1")
	s, reconciler, worker, _ := recorded(t, newDatabase(t), a)
	ask := mirror.SyncRequest{ID: "rollback/a", Key: a.Key, Tenant: "acme", Environment: "prod",
		Deployment: "a", SyncRun: "rollback", Revision: "4f1c", Prune: true,
		State: mirror.OperationPending}
	for n := 1; n < 3; n++ {
		must(s.Plans.Record(t.Context(), reconciler,
			step(n, n+1, func(r *mirror.Record) { r.Syncs = []mirror.SyncRequest{ask} })))(t)
	}
	if pending := must(s.Work.PendingSyncs(t.Context(), "eu-1"))(t); !cmp.Equal(pending,
		[]mirror.SyncRequest{ask}) {
		t.Fatalf("pending: %s", cmp.Diff(pending, []mirror.SyncRequest{ask}))
	}
	check(t, s.Work.UpdateSync(t.Context(), worker, ask.ID, mirror.OperationRunning, ""))
	check(t, s.Work.UpdateSync(t.Context(), worker, ask.ID, mirror.OperationSucceeded, "done"))
	check(t, s.Work.UpdateSync(t.Context(), worker, ask.ID, mirror.OperationFailed, "late news"))
	operations, _, err := s.Views.Operations(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	if len(operations) != 1 || operations[0].State != mirror.OperationSucceeded ||
		operations[0].Subject != "acme/a@prod" || operations[0].Done != 1 ||
		operations[0].EndedAt == nil || operations[0].Message != "done" {
		t.Fatalf("operations: %+v", operations)
	}
	if pending := must(s.Work.PendingSyncs(t.Context(), "eu-1"))(t); len(pending) != 0 {
		t.Errorf("pending: %+v", pending)
	}
}

// A query plan from when the mirror was small must not stay in use after it has grown: the number
// of rows read per row written stays small.
func TestWorkGrowsNoFasterThanTheMirror(t *testing.T) {
	t.Parallel()
	const n = 3000
	url := newDatabase(t)
	s := openWith(t, url, postgres.Options{Connections: postgres.Connections{Workers: 1}})
	lease, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	revisions := 0
	round := func(size int) {
		revisions++
		must(s.Plans.Record(t.Context(), lease, fullRecord(revisions-1, revisions, size)))(t)
		rows := must(s.Work.Changed(t.Context(), "eu-1", 0, size))(t)
		for part := range slices.Chunk(rows, 500) {
			var seen []mirror.Observation
			for _, r := range part {
				seen = append(seen, mirror.Observation{Key: r.Key, Resources: revisions})
			}
			check(t, s.Work.Observe(t.Context(), worker, seen))
			check(t, s.Work.Acknowledge(t.Context(), worker, applied(part)))
		}
	}
	for range 12 {
		round(1)
	}
	round(n)
	round(n)
	s.Close() // its sessions report their statistics when they end
	until(t, "the statistics", func() bool {
		return one[int](t, url,
			`SELECT count(*) FROM pg_stat_user_tables WHERE relname IN ('desired', 'status') AND n_tup_upd >= $1`, n) == 2
	})
	if read := one[int](t, url,
		`SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables WHERE relname IN ('desired', 'status')`); read > 100*2*n {
		t.Errorf("%d rows were read to write %d twice", read, n)
	}
}

// A missing row proves nothing. Only a row that was deleted because its object was proven deleted
// does, to a state of this incarnation of the database.
func TestARowThatWasLostHasNotVanished(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	recorder, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	lost, gone := application("eu-1", "acme", "lost", "prod", "v1"),
		application("eu-1", "acme", "gone", "prod", "v1")
	must(s.Plans.Record(t.Context(), recorder,
		step(0, 1, func(r *mirror.Record) { r.Rows = []mirror.Row{lost, gone} })))(t)
	lost.Unwanted, gone.Unwanted = true, true
	must(s.Plans.Record(t.Context(), recorder,
		step(1, 2, func(r *mirror.Record) { r.Rows = []mirror.Row{lost, gone} })))(t)
	exec(t, url, `ALTER TABLE desired DISABLE TRIGGER removals`)
	exec(t, url, `DELETE FROM desired WHERE name = $1`, lost.Key.Name)
	exec(t, url, `ALTER TABLE desired ENABLE TRIGGER removals`)
	rows := must(s.Work.Changed(t.Context(), "eu-1", 0, 10))(t)
	if len(rows) != 1 {
		t.Fatalf("rows %+v", rows)
	}
	check(t, s.Work.Acknowledge(t.Context(), worker, []mirror.Ack{
		{Key: gone.Key, Seq: rows[0].Seq + 5, State: mirror.ApplyDeleting, Removed: true}}))
	keys := []fleet.ObjectKey{lost.Key, gone.Key}
	life := must(s.Plans.Mirror(t.Context()))(t).Life
	if got := must(s.Plans.Vanished(t.Context(), life, keys))(t); len(got) != 0 {
		t.Errorf("vanished: %v; an acknowledgement of another row counted", got)
	}
	check(t, s.Work.Acknowledge(t.Context(), worker, []mirror.Ack{
		{Key: gone.Key, Seq: rows[0].Seq, State: mirror.ApplyDeleting, Removed: true}}))
	if got := must(s.Plans.Vanished(t.Context(), life, keys))(t); !cmp.Equal(
		got, []fleet.ObjectKey{gone.Key}) {
		t.Errorf("vanished: %v", got)
	}
	exec(t, url, `UPDATE mirror SET life = gen_random_uuid()`)
	if got := must(s.Plans.Vanished(t.Context(), life, keys))(t); len(got) != 0 {
		t.Errorf("vanished: %v; the state is of another incarnation", got)
	}
	// what was loaded from this incarnation has the rows that it has
	now := must(s.Plans.Mirror(t.Context()))(t).Life
	if got := must(s.Plans.Vanished(t.Context(), now, keys))(t); !cmp.Equal(
		got, []fleet.ObjectKey{gone.Key}) {
		t.Errorf("vanished: %v", got)
	}
	if ok, err := s.Leases.Renew(t.Context(), worker, time.Hour); ok || err != nil {
		t.Errorf("a lease of another incarnation is renewed: %v, %v", ok, err)
	}
	err := s.Work.Acknowledge(t.Context(), worker, []mirror.Ack{
		{Key: gone.Key, Seq: 1, State: mirror.ApplyApplied}})
	if !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("an acknowledgement under a lease of another incarnation: %v", err)
	}
}
