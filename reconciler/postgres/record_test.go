package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func TestRecordNumbersRowsAndTheyAreReadInThatOrder(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lease := hold(t, s, "reconciler")
	a, b, c := application("eu-1", "acme", "a", "prod", "v1"), application("eu-1", "acme", "b",
		"prod", "v1"), application("us-1", "acme", "c", "prod", "v1")
	seq := must(s.Plans.Record(t.Context(), lease,
		step(0, 1, func(r *mirror.Record) { r.Rows = []mirror.Row{b, a, c} })))(t)
	if seq != 3 {
		t.Fatalf("newest number %d, want 3", seq)
	}
	rows := must(s.Work.Changed(t.Context(), "eu-1", 0, 10))(t)
	if len(rows) != 2 || rows[0].Key != b.Key || rows[0].Seq != 1 || rows[1].Key != a.Key ||
		rows[1].Seq != 2 {
		t.Fatalf("got %+v", rows)
	}
	b.Seq, b.Revision, b.Apply, b.Life = 1, revision(1), mirror.ApplyPending, lease.Life
	if d := cmp.Diff(b, rows[0]); d != "" {
		t.Errorf("the row came back different:\n%s", d)
	}
	if after := must(s.Work.Changed(t.Context(), "eu-1", 1, 10))(t); len(after) != 1 ||
		after[0].Key != a.Key {
		t.Errorf("after 1: %+v", after)
	}
}

func TestRecordLeavesWhatIsUnchangedAlone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lease := hold(t, s, "reconciler")
	a, b := application("eu-1", "acme", "a", "prod", "v1"), application("eu-1", "acme", "b", "prod",
		"v1")
	must(s.Plans.Record(t.Context(), lease,
		step(0, 1, func(r *mirror.Record) { r.Rows = []mirror.Row{a, b} })))(t)
	b = application("eu-1", "acme", "b", "prod", "v2")
	must(s.Plans.Record(t.Context(), lease,
		step(1, 2, func(r *mirror.Record) { r.Rows = []mirror.Row{a, b} })))(t)
	rows := must(s.Work.Changed(t.Context(), "eu-1", 2, 10))(t)
	if len(rows) != 1 || rows[0].Manifest.Hash != b.Manifest.Hash ||
		rows[0].Revision != revision(2) {
		t.Fatalf("changed: %+v", rows)
	}
}

func TestRecordOfNothingMovesAndListsTheRevisionAndWritesNothingElse(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	lease := hold(t, s, "reconciler")
	must(s.Plans.Record(t.Context(), lease,
		step(0, 1, func(r *mirror.Record) {
			r.Rows = []mirror.Row{application("eu-1", "acme", "a", "prod", "v1")}
		})))(t)
	before := writes(t, url)
	must(s.Plans.Record(t.Context(), lease, step(1, 2, func(*mirror.Record) {})))(t)
	after := writes(t, url)
	delete(before, "revisions")
	delete(after, "revisions")
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("rows were written:\n%s", d)
	}
	if snap := must(s.Plans.Load(t.Context()))(t); snap.Applied != revision(2) || snap.Seq != 1 {
		t.Errorf("applied %s, number %d", snap.Applied, snap.Seq)
	}
}

// writes counts row versions by table; the mirror's own row is left out.
func writes(t *testing.T, url string) map[string]string {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(),
		`SELECT relname FROM pg_class WHERE relnamespace = 'argosy'::regnamespace AND relkind = 'r' AND relname NOT IN ('mirror', 'leases')`)
	check(t, err)
	var tables []string
	for rows.Next() {
		var name string
		check(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	found := map[string]string{}
	for _, name := range tables {
		var n string
		check(t,
			conn.QueryRow(t.Context(),
				`SELECT count(*) || ' rows, newest transaction ' || coalesce(max(xmin::text::bigint)::text, '-') FROM `+name).Scan(&n))
		found[name] = n
	}
	return found
}

func TestRecordRefusesAnotherBase(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lease := hold(t, s, "reconciler")
	must(s.Plans.Record(t.Context(), lease, step(0, 1, func(*mirror.Record) {})))(t)
	_, err := s.Plans.Record(t.Context(), lease,
		step(7, 8, func(r *mirror.Record) {
			r.Rows = []mirror.Row{application("eu-1", "acme", "a", "prod", "v1")}
		}))
	if !errors.Is(err, mirror.ErrStale) {
		t.Fatalf("got %v", err)
	}
	if rows := must(s.Work.Changed(t.Context(), "eu-1", 0, 10))(t); len(rows) != 0 {
		t.Errorf("it left %d rows", len(rows))
	}
}

func TestRecordKeepsEverythingForTheNextStart(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	lease := hold(t, s, "reconciler")
	problem := fleet.Problem{Key: fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: "acme",
		Name: "cart"}, Path: "tenants/acme/deployments/cart.yaml", Line: 3,
		Severity: fleet.SeverityError, Code: "unknown-environment",
		Message: "environment stagign is unknown", Fix: "staging"}
	quarantine := fleet.Quarantine{Key: problem.Key, Path: problem.Path, Blob: "b1",
		Problems: []fleet.Problem{problem}, HasLastGood: true}
	row := application("eu-1", "acme", "checkout", "prod", "v1")
	cluster := mirror.Row{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectCluster,
		Name: "acme-prod"}, Tenant: "acme", Environment: "prod",
		Credential: &fleet.CredentialSource{Tenant: "acme", Folder: "environments", Name: "prod",
			Sealed: "blob-1"}, Manifest: manifest(`{}`)}
	hold1 := mirror.Hold{Revision: revision(1), Reason: mirror.HoldDeletions, Tenant: "acme",
		Items: []fleet.ObjectKey{row.Key}, Message: "1 deletion waits"}
	hold2 := mirror.Hold{Revision: revision(1), Reason: mirror.HoldUnreviewed, Tenant: "acme",
		Items: []fleet.ObjectKey{row.Key},
		Paths: []string{"tenants/acme/deployments/cart.yaml"}, Message: "not reviewed"}
	deletion := mirror.Deletion{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
		Name: "gone"}, Tenant: "acme", Environment: "prod", Deployment: "gone",
		Revision: revision(1), Approved: true}
	syncHold := mirror.SyncHold{SyncRun: "rollback", Application: fleet.ApplicationID{
		Tenant: "acme", Deployment: "checkout", Environment: "prod"}, TargetRevision: "v1"}
	declarations := []fleet.Declaration{engineDeclaration("eu-1"),
		deploymentDeclaration("acme", "checkout", "prod"), environmentDeclaration("acme", "prod"),
		tenantDeclaration("acme")}
	placed := placement("acme", "prod", "eu-1")
	must(s.Plans.Record(t.Context(), lease, step(0, 1, func(r *mirror.Record) {
		r.Declarations, r.Quarantined, r.Problems = declarations, []fleet.Quarantine{quarantine},
			[]fleet.Problem{problem}
		r.Placements, r.Rows, r.Held = []fleet.Placement{placed}, []mirror.Row{row, cluster},
			[]fleet.ObjectKey{row.Key}
		r.Holds, r.Deletions, r.SyncHolds = []mirror.Hold{hold1, hold2}, []mirror.Deletion{
			deletion},
			[]mirror.SyncHold{syncHold}
		r.Memory = []byte(`{"leaving":[]}`)
		r.Sealed = []mirror.SealedBlob{{Tenant: "acme", Blob: "blob-1", Bytes: []byte("ENC[...]")}}
	})))(t)
	must(s.Decisions.Approve(t.Context(), mirror.Approval{Revision: revision(1), By: "token:ops",
		Note: "fine"}))(t)

	snap := must(open(t, url).Plans.Load(t.Context()))(t)
	placed.Alternatives = nil // stored for people, and not read at a start
	want := mirror.Snapshot{Applied: revision(1), Seq: 2, Quarantines: []fleet.Quarantine{
		quarantine}, Placements: []fleet.Placement{placed},
		Declarations: []fleet.Declaration{engineDeclaration("eu-1"),
			deploymentDeclaration("acme", "checkout", "prod"),
			environmentDeclaration("acme", "prod"), tenantDeclaration("acme")},
		Objects: []mirror.Indexed{
			{Key: row.Key, Hash: row.Manifest.Hash, Tenant: "acme", Environment: "prod",
				Deployment: "checkout", Deletion: fleet.DeletionDelete, Held: true, Seq: 1},
			{Key: cluster.Key, Hash: cluster.Manifest.Hash, Tenant: "acme", Environment: "prod",
				Credential: cluster.Credential, Seq: 2}},
		Holds: []mirror.Hold{hold1, hold2}, Approvals: []mirror.Approval{
			{Revision: revision(1), By: "token:ops", Note: "fine"}},
		SyncHolds: []mirror.SyncHold{syncHold}, Rollouts: []mirror.Rollout{},
		Deletions: []mirror.Deletion{deletion},
		Memory:    []byte(`{"leaving":[]}`)}
	for _, at := range []*mirror.Hold{&snap.Holds[0], &snap.Holds[1]} {
		if at.Since.IsZero() {
			t.Error("the hold has no beginning")
		}
		at.Since = want.Holds[0].Since
	}
	snap.Approvals[0].At, snap.Deletions[0].At = want.Approvals[0].At, want.Deletions[0].At
	if d := cmp.Diff(want, snap); d != "" {
		t.Errorf("the snapshot differs:\n%s", d)
	}
	if sealed := must(s.Plans.Sealed(t.Context(), "blob-1"))(t); string(sealed) != "ENC[...]" {
		t.Errorf("sealed file %q", sealed)
	}
	if rows := must(s.Work.CredentialRows(t.Context(), "eu-1", "acme", "prod"))(t); len(
		rows) != 1 ||
		*rows[0].Credential != *cluster.Credential {
		t.Errorf("rows with the credential: %+v", rows)
	}

	must(s.Plans.Record(t.Context(), lease, step(1, 2, func(r *mirror.Record) {
		r.Removed, r.Cleared = []fleet.Key{
			{Kind: fleet.KindGitOpsDeployment, Tenant: "acme", Name: "checkout"},
			{Kind: fleet.KindSealedSecret, Tenant: "acme", Name: "prod"}}, []fleet.Key{
			quarantine.Key}
		r.Unplaced, r.EndedHold, r.EndedSyncHolds = []fleet.SliceID{placed.ID()},
			[]mirror.HoldID{hold1.ID(), hold2.ID()}, []fleet.ApplicationID{syncHold.Application}
		r.Released = []fleet.ObjectKey{row.Key}
	})))(t)
	snap = must(s.Plans.Load(t.Context()))(t)
	if len(snap.Declarations) != 3 || len(snap.Quarantines)+len(snap.Placements)+len(snap.Holds)+
		len(snap.SyncHolds) != 0 || snap.Objects[0].Held {
		t.Errorf("after the removal: %+v", snap)
	}
	if n := one[int](t, url, `SELECT count(*) FROM problems`); n != 0 {
		t.Errorf("%d problems are left", n)
	}
	if _, err := s.Plans.Sealed(t.Context(), "blob-1"); err != nil {
		t.Errorf("a ciphertext that a row still needs: %v", err)
	}
}

func TestRecordOfAHeldRevisionShowsTheHoldAndAppliesNothing(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	lease := hold(t, s, "reconciler")
	must(s.Plans.Record(t.Context(), lease,
		step(0, 1, func(r *mirror.Record) {
			r.Rows = []mirror.Row{application("eu-1", "acme", "a", "prod", "v1")}
		})))(t)
	held := step(1, 2, func(r *mirror.Record) {
		r.RevisionHeld, r.Holds = true, []mirror.Hold{
			{Revision: revision(2), Reason: mirror.HoldOlder, Message: "the branch went back"}}
	})
	for range 3 {
		must(s.Plans.Record(t.Context(), lease, held))(t)
	}
	snap := must(s.Plans.Load(t.Context()))(t)
	if snap.Applied != revision(1) || len(snap.Holds) != 1 {
		t.Errorf("applied %s, holds %+v", snap.Applied, snap.Holds)
	}
	if n := one[int](t, url, `SELECT count(*) FROM operations WHERE state = 'Held'`); n != 1 {
		t.Errorf("%d operations record it", n)
	}
	released := step(1, 2, func(r *mirror.Record) {
		r.EndedHold = []mirror.HoldID{held.Holds[0].ID()}
	})
	must(s.Plans.Record(t.Context(), lease, released))(t)
	if state := one[string](t, url, `SELECT state FROM operations WHERE revision = $1`,
		string(revision(2))); state != "Succeeded" {
		t.Errorf("the operation of the released revision is %s", state)
	}
}

func TestRecordAtTheSameRevisionAfterAnApproval(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lease := hold(t, s, "reconciler")
	a := application("eu-1", "acme", "a", "prod", "v1")
	must(s.Plans.Record(t.Context(), lease,
		step(0, 1, func(r *mirror.Record) {
			r.Rows, r.Held = []mirror.Row{a}, []fleet.ObjectKey{
				a.Key}
		})))(t)
	a.Unwanted = true
	again := step(1, 1, func(r *mirror.Record) {
		r.PlanHash, r.Rows, r.Released = "released", []mirror.Row{a}, []fleet.ObjectKey{a.Key}
	})
	seq := must(s.Plans.Record(t.Context(), lease, again))(t)
	rows := must(s.Work.Changed(t.Context(), "eu-1", 1, 10))(t)
	if seq != 2 || len(rows) != 1 || !rows[0].Unwanted || rows[0].Seq != 2 ||
		len(rows[0].Manifest.Body) == 0 {
		t.Fatalf("number %d, rows %+v", seq, rows)
	}
}

func TestRecordSurvivesWhatTheDatabaseCannotHold(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lease := hold(t, s, "reconciler")
	good := application("eu-1", "acme", "a", "prod", "v1")
	bad := func(b string) fleet.Problem {
		return fleet.Problem{Key: fleet.Key{Kind: fleet.KindFile, Name: "tenants/acme/" + b},
			Path: "tenants/acme/" + b, Severity: fleet.SeverityError, Code: "path",
			Message: "NUL \x00 and \\u0000 and \xff"}
	}
	must(s.Plans.Record(t.Context(), lease, step(0, 1, func(r *mirror.Record) {
		r.Author, r.Subject = "A\x00nn", "sub\xffject\x00"
		r.Rows = []mirror.Row{good}
		for _, p := range []fleet.Problem{bad("\xff"), bad("\xfe"), bad("\x00")} {
			r.Problems = append(r.Problems, p)
			r.Quarantined = append(r.Quarantined, fleet.Quarantine{Key: p.Key, Path: p.Path,
				Problems: []fleet.Problem{p}})
		}
	})))(t)
	snap := must(s.Plans.Load(t.Context()))(t)
	if len(snap.Quarantines) != 3 || len(snap.Objects) != 1 {
		t.Fatalf("%d quarantines, %d objects", len(snap.Quarantines), len(snap.Objects))
	}
	if m := snap.Quarantines[0].Problems[0].Message; m != "NUL \ufffd and \\u0000 and \ufffd" {
		t.Errorf("message %q", m)
	}
	engine := hold(t, s, "engine/eu-1")
	check(t, s.Work.Observe(t.Context(), engine, []mirror.Observation{
		{Key: good.Key, Sync: mirror.SyncSynced, Message: "a\x00b\xff"}}))
	check(t, s.Work.Acknowledge(t.Context(), engine, []mirror.Ack{
		{Key: good.Key, Seq: 1, State: mirror.ApplyFailed, Message: "\x00"}}))
}

func TestRecordUsesTheSameRoundTripsWhateverItsSize(t *testing.T) {
	t.Parallel()
	trips := map[int]int{}
	for _, n := range []int{10, 10_000} {
		counter := &roundTrips{}
		s := openWith(t, newDatabase(t), postgres.Options{Tracer: counter})
		lease := hold(t, s, "reconciler")
		must(s.Plans.Record(t.Context(), lease, fullRecord(0, 1, n)))(t) // prepares
		counter.n.Store(0)
		must(s.Plans.Record(t.Context(), lease, fullRecord(1, 2, n)))(t)
		trips[n] = int(counter.n.Load())
	}
	if trips[10] != trips[10_000] || trips[10] > 3 {
		t.Fatalf("round trips by rows: %v", trips)
	}
}

// fullRecord has n of every item that a large revision has many of.
func fullRecord(base, head, n int) mirror.Record {
	return step(base, head, func(r *mirror.Record) {
		for i := range n {
			name := fmt.Sprintf("d%06d", i)
			r.Declarations = append(r.Declarations, deploymentDeclaration("acme", name, "prod"))
			r.Rows = append(r.Rows, application("eu-1", "acme", name, "prod",
				fmt.Sprintf("v%d", head)))
		}
		r.Declarations = append(r.Declarations, tenantDeclaration("acme"),
			environmentDeclaration("acme", "prod"))
		r.Placements = []fleet.Placement{placement("acme", "prod", "eu-1")}
		r.Created = n
	})
}

// Deleting a SOPS-encrypted file reads that tenant's encrypted files and the objects that refer to
// them, and nothing else.
func TestSealedFilesAreLetGoWithoutReadingTheFleet(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	var seen asked
	s := openWith(t, url, postgres.Options{Tracer: &seen})
	lease := hold(t, s, "reconciler")
	sealed := func(n int, blob string) {
		must(s.Plans.Record(t.Context(), lease, step(n-1, n, func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{tenantDeclaration("acme"),
				{Key: fleet.Key{Kind: fleet.KindSealedSecret, Tenant: "acme", Name: "git"},
					Path: "p", Blob: blob}}
			r.Sealed = []mirror.SealedBlob{{Blob: blob, Tenant: "acme", Bytes: []byte(blob)}}
			if n == 1 {
				row := application("eu-1", "acme", "a", "prod", "v1")
				row.Credential = &fleet.CredentialSource{Tenant: "acme", Name: "git", Sealed: blob}
				r.Rows = []mirror.Row{row}
			}
		})))(t)
	}
	sealed(1, "first")
	exec(t, url, `
		INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body,
			credential_tenant, credential_name, credential_sealed)
		SELECT 'us-1', 'Cluster', 'c' || i, 'globex', 'prod', '', 1000 + i, now(), now(), false, 'Delete', 'r', '', '', 'globex', 'c' || i, CASE WHEN i % 2 = 0 THEN '' ELSE 'other-' || i END
		FROM generate_series(1, 5000) i;
		ANALYZE`)
	sealed(2, "second")
	sealed(3, "third")
	// an object refers to the first, a declaration to the third
	expect(t, url, `SELECT count(*) FROM sealed`, 2)
	asked := seen.batched(t, "DELETE FROM sealed")
	if got := costOf(t, url, asked.SQL, asked.Args...); got.rows > 10 {
		t.Errorf("it costs %+v beside 5000 other credentials", got)
	}
}

// Every start reads the placements without their alternatives, of which the best five are stored as
// an explanation.
func TestAlternativesOfPlacementsAreKeptApart(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	p := placement("acme", "prod", "eu-1")
	p.Alternatives = nil
	for i := range 100 {
		p.Alternatives = append(p.Alternatives, fleet.Alternative{
			Engine: fleet.EngineName(fmt.Sprint("e", i)), Reason: strings.Repeat("full ", 20)})
	}
	must(s.Plans.Record(t.Context(), hold(t, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"),
			environmentDeclaration("acme", "prod"), environmentDeclaration("acme", "old")}
		r.Placements = []fleet.Placement{p, placement("acme", "old", "eu-1")}
	})))(t)
	// As the previous version writes it.
	exec(t, url,
		`UPDATE placements SET body = body || jsonb_build_object('alternatives', alternatives), alternatives = NULL WHERE environment = 'old'`)
	for _, placed := range must(s.Plans.Load(t.Context()))(t).Placements {
		if len(placed.Alternatives) != 0 {
			t.Errorf("a start reads %d alternatives of %s", len(placed.Alternatives),
				placed.Environment)
		}
	}
	for environment, want := range map[fleet.EnvironmentName][]fleet.Alternative{
		"prod": p.Alternatives[:5], "old": placement("acme", "old", "eu-1").Alternatives} {
		got := must(s.Views.Explain(t.Context(), view.Scope{}, fleet.EnvironmentID{
			Tenant: "acme", Name: environment}))(t)
		if !cmp.Equal(got.Alternatives, want) {
			t.Errorf("%s: %s", environment, cmp.Diff(want, got.Alternatives))
		}
	}
	if n := one[int](t, url,
		`SELECT length(body::text) FROM placements WHERE environment = 'prod'`); n > 500 {
		t.Errorf("every start reads %d bytes", n)
	}
}

func TestARevisionThatChangesNothingIsListed(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lease := hold(t, s, "reconciler")
	must(s.Plans.Record(t.Context(), lease, step(0, 1, func(r *mirror.Record) {
		r.Rows = []mirror.Row{application("eu-1", "acme", "a", "prod", "v1")}
	})))(t)
	for range 2 { // the answer of the first one was lost
		must(s.Plans.Record(t.Context(), lease, step(1, 2, func(*mirror.Record) {})))(t)
	}
	all, _, err := s.Views.Revisions(t.Context(), view.Scope{}, view.Filter{}, view.Page{Limit: 9})
	check(t, err)
	if len(all) != 2 || all[0].Revision != revision(2) || all[0].Subject != "change 2" ||
		all[0].AppliedAt == nil || all[0].Pending+all[0].Created+all[0].Changed != 0 ||
		all[1].AppliedAt != nil {
		t.Errorf("%+v", all)
	}
	if f := must(s.Views.FleetStats(t.Context(), asLeader))(t); f.Source.RecordedAt.IsZero() ||
		f.Unapplied.Count != 1 {
		t.Errorf("%+v", f)
	}
}
