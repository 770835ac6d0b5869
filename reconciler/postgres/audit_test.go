package postgres_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// decideOften makes n decisions of each of several people, and stops of acme among them.
func decideOften(t testing.TB, s *postgres.Store, people, n int) {
	t.Helper()
	var all sync.WaitGroup
	for p := range people {
		all.Go(func() {
			for i := range n {
				stop := mirror.Stop{Scope: mirror.StopTenant, Name: "acme",
					By: fmt.Sprintf("token:person-%d", p), Reason: fmt.Sprint(i)}
				if p%2 == 0 {
					stop.Scope, stop.Name = mirror.StopEngine, fmt.Sprintf("eu-%d", p)
				}
				if _, err := s.Decisions.SetStop(t.Context(), stop, true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func verified(t testing.TB, s *postgres.Store, known ...audit.Head) audit.Report {
	t.Helper()
	return must(s.Audit.Verify(t.Context(), postgres.Verification{Known: known}))(t)
}

func wantFinding(t testing.TB, r audit.Report, text string) {
	t.Helper()
	for _, f := range r.Findings {
		if strings.Contains(f.String(), text) {
			return
		}
	}
	t.Errorf("no finding has %q: %v", text, r.Findings)
}

// Several replicas decide and seal at the same time: each entry is sealed once, without a gap, in
// the chain of the log and in that of its tenant.
func TestConcurrentDecisionsAndSealersMakeOneChain(t *testing.T) {
	t.Parallel()
	a, url := populated(t)
	b := open(t, url)
	ended := make(chan struct{})
	var sealers sync.WaitGroup
	for _, s := range []*postgres.Store{a, b, a, b} {
		sealers.Go(func() {
			for {
				if _, _, err := s.Audit.Seal(t.Context()); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	}
	var writers sync.WaitGroup
	for _, s := range []*postgres.Store{a, b} {
		writers.Go(func() { decideOften(t, s, 8, 25) })
	}
	writers.Wait()
	close(ended)
	sealers.Wait()
	check(t, a.Audit.SealAll(t.Context()))
	entries := one[int64](t, url, `SELECT count(*) FROM audit`)
	r := verified(t, b)
	if !r.OK() || r.Entries != entries || r.Last.Position != entries || r.Unsealed != 0 ||
		entries < 200 {
		t.Errorf("%d entries: %+v", entries, r)
	}
	expect(t, url, `SELECT count(*) - max(tenant_position) FROM audit WHERE tenant = 'acme'`, 0)
}

// A decision does not wait for a sealer that holds its locks, nor for another decision that is not
// committed.
func TestDecisionWaitsForNoSealer(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	sealer := connect(t, url)
	defer sealer.Close(t.Context())
	tx := must(sealer.Begin(t.Context()))(t)
	for _, sql := range []string{`SELECT FROM audit_heads FOR UPDATE`,
		`INSERT INTO audit (actor, action, subject, tenant) VALUES ('ann', 'slow', '', '')`} {
		_, err := tx.Exec(t.Context(), sql)
		check(t, err)
	}
	decideOften(t, s, 2, 2)
	if _, sealed, err := s.Audit.Seal(t.Context()); err != nil || sealed != 0 {
		t.Errorf("beside another sealer: %d, %v", sealed, err)
	}
	check(t, tx.Commit(t.Context()))
	check(t, s.Audit.SealAll(t.Context()))
	if r := verified(t, s); !r.OK() || r.Unsealed != 0 {
		t.Errorf("%+v", r)
	}
}

// The replica that seals dies in its transaction: the next one seals the same entries.
func TestSealerThatDiesLeavesNoGap(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	decideOften(t, s, 2, 3)
	sealer := connect(t, url)
	tx := must(sealer.Begin(t.Context()))(t)
	_, err := tx.Exec(t.Context(), `SELECT position FROM audit_heads FOR UPDATE;
		SELECT set_config('argosy.seal_audit', 'on', true);
		UPDATE audit SET position = 1, hash = 'half' WHERE n = (SELECT min(n) FROM audit);
		UPDATE audit_heads SET position = 1, hash = 'half'`)
	check(t, err)
	check(t, sealer.Close(t.Context()))
	exec(t, url, `SELECT FROM audit_heads FOR UPDATE`) // the server has ended the transaction
	check(t, s.Audit.SealAll(t.Context()))
	if r := verified(t, s); !r.OK() || r.Unsealed != 0 || r.Entries == 0 {
		t.Errorf("%+v", r)
	}
}

// A superuser of the database changes, deletes, adds and swaps entries: a verification finds each.
func TestVerificationFindsWhatASuperuserDid(t *testing.T) {
	t.Parallel()
	const unlocked = `SET session_replication_role = replica; `
	for name, c := range map[string]struct{ sql, want string }{
		"an entry is changed": {`UPDATE audit SET actor = 'token:nobody' WHERE position = 5`,
			"entry 5: its content does not match its hash"},
		"a count of an entry is changed": {
			`UPDATE audit SET deleted = deleted + 1 WHERE position = 3`,
			"entry 3: its content does not match its hash"},
		"the time of an entry is changed": {
			`UPDATE audit SET at = at + interval '1 second' WHERE position = 3`,
			"entry 3: its content does not match its hash"},
		"an entry is deleted": {`DELETE FROM audit WHERE position = 5`,
			"entry 6: entry 5 is missing before it"},
		"the first entries are deleted": {`DELETE FROM audit WHERE position < 4`,
			"entry 4: entries 1 to 3 are missing before it"},
		"the first entries are deleted, and the anchor with them": {
			`UPDATE audit_anchor SET position = 3, hash = (SELECT hash FROM audit WHERE position = 3), pruned = 3, recorded = 3;
			DELETE FROM audit WHERE position < 4`,
			"no entry records that those before were pruned"},
		"the last entries are deleted": {
			`DELETE FROM audit WHERE position > 10`, "the log ends at entry 10"},
		"an entry is added in the middle": {
			`INSERT INTO audit (actor, action, subject, tenant, format, position, hash)
			SELECT 'token:nobody', 'approve', '', '', 1, 5, hash FROM audit WHERE position = 5`,
			"entry 5: it is listed twice"},
		"an entry is added beside the chain": {
			`INSERT INTO audit (actor, action, subject, tenant, format, hash)
			VALUES ('token:nobody', 'approve', '', '', 1, '\x00')`, "lie outside of the chain"},
		"two entries are swapped": {
			`UPDATE audit SET position = -position WHERE position IN (5, 6);
			UPDATE audit SET position = 11 + position WHERE position < 0`,
			"entry 5: its content does not match its hash"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := populated(t)
			decideOften(t, s, 4, 5)
			check(t, s.Audit.SealAll(t.Context()))
			if r := verified(t, s); !r.OK() || r.Entries < 15 {
				t.Fatalf("before: %+v", r)
			}
			exec(t, url, unlocked+c.sql)
			wantFinding(t, verified(t, s), c.want)
		})
	}
}

// A head that was noted elsewhere reveals that the whole log was written again.
func TestNotedHeadFindsALogThatWasWrittenAgain(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	decideOften(t, s, 2, 3)
	check(t, s.Audit.SealAll(t.Context()))
	noted, _, err := s.Audit.Head(t.Context())
	check(t, err)
	check(t, s.Audit.Contains(t.Context(), noted))
	exec(t, url, `SET session_replication_role = replica;
		UPDATE audit SET actor = 'token:nobody' WHERE position = 2;
		UPDATE audit SET format = NULL, position = NULL, hash = NULL, previous = NULL, tenant_position = NULL, tenant_previous = NULL;
		DELETE FROM audit_heads WHERE owner <> '00000000-0000-0000-0000-000000000000'; UPDATE audit_heads SET position = 0, hash = ''`)
	check(t, s.Audit.SealAll(t.Context()))
	if r := verified(t, s); !r.OK() {
		t.Fatalf("the chain is whole again: %+v", r)
	}
	wantFinding(t, verified(t, s, noted), "the log was written again")
	if err := s.Audit.Contains(t.Context(), noted); err == nil ||
		!strings.Contains(err.Error(), "no longer contains") {
		t.Errorf("it contains %s: %v", noted, err)
	}
	wantFinding(t, verified(t, s, audit.Head{Position: noted.Position + 5, Hash: noted.Hash}),
		"the log ends at entry")
}

// Pruning drops the beginning of the chain. The rest verifies, alone and after an archive.
func TestPrunedLogVerifiesAndContinuesItsArchive(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	insert := `INSERT INTO audit (at, actor, action, subject, tenant)
		SELECT $2::timestamptz + i * interval '1 second', 'ann', 'old', i::text, '' FROM generate_series(1, $1::int) i`
	exec(t, url, insert, 300, "2019-01-10Z")
	exec(t, url, insert, 200, "2019-02-10Z")
	decideOften(t, s, 2, 3)
	check(t, s.Audit.SealAll(t.Context()))
	archive := must(s.Views.SealedAudit(t.Context(), view.Scope{}, view.Filter{}, 0, 1000))(t)
	must(s.Prune(t.Context(), postgres.Retention{}))(t)
	check(t, s.Audit.SealAll(t.Context()))
	expect(t, url, `SELECT count(*) FROM audit WHERE action = 'old'`, 0)
	r := verified(t, s)
	if !r.OK() || r.Pruned != 500 || r.First.Position != 501 {
		t.Errorf("%+v", r)
	}
	var v audit.Verifier
	for _, e := range archive {
		v.Add(e)
	}
	rest := must(s.Views.SealedAudit(t.Context(), view.Scope{}, view.Filter{},
		archive[len(archive)-1].Position, 1000))(t)
	for _, e := range rest {
		v.Add(e)
	}
	if r := v.End(); !r.OK() || len(rest) == 0 || r.First.Position != 1 {
		t.Errorf("the archive with the rest: %+v", r)
	}
	entry := one[string](t, url, `SELECT detail FROM audit WHERE action = 'prune audit log'`)
	if want := "after entry 500:" + string(archive[499].Hash); !strings.HasSuffix(entry, want) {
		t.Errorf("%q does not end with %q", entry, want)
	}
	must(s.Prune(t.Context(), postgres.Retention{}))(t)
	expect(t, url, `SELECT count(*) FROM audit WHERE action = 'prune audit log'`, 1)
}

// A partition whose entries all are too old goes as a whole.
func TestOldPartitionIsDropped(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	exec(t, url, `DO $$ BEGIN
			ALTER TABLE audit DETACH PARTITION audit_before;
			ALTER TABLE audit_before RENAME TO audit_y2019m02;
			EXECUTE format('ALTER TABLE audit ATTACH PARTITION audit_y2019m02 FOR VALUES FROM (''2019-02-01Z'') TO (%L)', date_trunc('month', now()) + interval '1 month');
		END $$;
		CREATE TABLE audit_y2019m01 PARTITION OF audit FOR VALUES FROM ('2019-01-01Z') TO ('2019-02-01Z');
		CREATE TABLE audit_before PARTITION OF audit FOR VALUES FROM (MINVALUE) TO ('2019-01-01Z')`)
	exec(t, url, `INSERT INTO audit (at, actor, action, subject, tenant)
		SELECT '2019-01-10Z', 'ann', 'old', '', '' FROM generate_series(1, 100) i`)
	decideOften(t, s, 2, 3)
	must(s.Prune(t.Context(), postgres.Retention{}))(t)
	expect(t, url, `SELECT count(*) FROM pg_class WHERE relname = 'audit_y2019m01'`, 0)
	check(t, s.Audit.SealAll(t.Context()))
	if r := verified(t, s); !r.OK() || r.First.Position != 101 || r.Pruned != 100 {
		t.Errorf("%+v", r)
	}
}

// The schema of the version before has entries. Its binary goes on writing and pruning with its own
// statements on a connection that it has had since before, while this version migrates.
func TestVersionBeforeWritesToThePartitionedLog(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	exec(t, url, toUnpartitioned)
	conn := connect(t, url)
	defer conn.Close(t.Context())
	insert := func(n int) {
		t.Helper()
		for range n { // prepared by the first, on the table of before
			_, err := conn.Exec(t.Context(),
				`INSERT INTO audit (actor, action, subject, tenant, tenant_uid, revision, detail) VALUES ($1, $2, $3, $4, live_tenant($4), $5, $6)`,
				"token:ops", "approve", "revision 1", "acme", "", "")
			check(t, err)
		}
	}
	insert(3)
	exec(t, url, history["audit"], 4, "3 years")
	exec(t, url, strings.ReplaceAll(string(must(os.ReadFile("migrations/00105_audit.sql"))(t)),
		"-- +goose", "--"))
	insert(2)
	_, err := conn.Exec(t.Context(), `SELECT FROM generate_series(1, prune_audit($1::interval, $2))`,
		730*24*time.Hour, 5000)
	check(t, err)
	check(t, s.Audit.SealAll(t.Context()))
	tag, err := conn.Exec(t.Context(), `SELECT FROM generate_series(1, prune_audit($1::interval, $2))`,
		730*24*time.Hour, 5000)
	check(t, err)
	if tag.RowsAffected() != 4 {
		t.Errorf("it pruned %d", tag.RowsAffected())
	}
	expect(t, url, `SELECT count(*) FROM audit WHERE actor = 'token:ops' AND tenant_uid = live_tenant('acme')`, 5)
	expect(t, url, `SELECT count(*) - count(DISTINCT n) FROM audit`, 0)
	if r := verified(t, s); !r.OK() || r.Entries < 5 || r.Unsealed != 0 {
		t.Errorf("%+v", r)
	}
}

// toUnpartitioned reverts the migration of the audit log.
const toUnpartitioned = `DROP TRIGGER operation_begins ON operations; DROP TRIGGER operation_ends ON operations;
	DROP TABLE audit CASCADE; DROP TABLE audit_heads, audit_anchor; DROP INDEX pulls_merged;
	CREATE TABLE audit (
		n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), actor text NOT NULL, action text NOT NULL,
		subject text NOT NULL, tenant text COLLATE "C" NOT NULL, tenant_uid uuid, revision text COLLATE "C" NOT NULL DEFAULT '', detail text NOT NULL DEFAULT '');
	ALTER TABLE audit ENABLE ROW LEVEL SECURITY; ALTER TABLE audit FORCE ROW LEVEL SECURITY;
	CREATE POLICY tenant_wall ON audit USING (in_scope(tenant, tenant_uid)) WITH CHECK (in_scope(tenant, tenant_uid));
	CREATE POLICY agent_wall ON audit AS RESTRICTIVE USING ((SELECT agent_bound()) <> 'yes');
	CREATE INDEX audit_at ON audit (at);
	CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();
	CREATE TRIGGER audit_keeps_news BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_audit_change()`

// A tenant reads the entries about itself, whatever it asks for, and its export verifies by itself.
func TestTenantReadsItsOwnEntries(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	decideOften(t, s, 4, 5)
	_, err := s.Decisions.SetStop(t.Context(), mirror.Stop{Scope: mirror.StopTenant, Name: "globex",
		By: "token:ops", Reason: "secret plan"}, true)
	check(t, err)
	decideOften(t, s, 2, 2)
	check(t, s.Audit.SealAll(t.Context()))
	acme := view.Scope{Tenant: "acme"}
	for _, by := range []view.Filter{{}, {Tenant: "globex"},
		{Entry: view.EntryFilter{Text: "secret"}}, {Entry: view.EntryFilter{Actor: "token:o*"}}} {
		entries, _, err := s.Views.Audit(t.Context(), acme, by, view.Page{Limit: 1000})
		check(t, err)
		for _, e := range entries {
			if e.Tenant != "acme" || strings.Contains(e.Detail, "secret") {
				t.Errorf("%+v: it reads %+v", by, e)
			}
		}
		if (by == view.Filter{}) != (len(entries) > 0) {
			t.Errorf("%+v: %d entries", by, len(entries))
		}
	}
	var v audit.Verifier
	own := must(s.Views.SealedAudit(t.Context(), acme, view.Filter{}, 0, 1000))(t)
	for _, e := range own {
		v.Add(e)
	}
	if r := v.End(); !r.OK() || r.Tenant != "acme" || int(r.Entries) != len(own) {
		t.Errorf("%+v", r)
	}
	exec(t, url, `UPDATE tenants SET removed_at = now() WHERE tenant = 'acme'`)
	left := must(s.Views.SealedAudit(t.Context(), acme, view.Filter{}, 0, 1000))(t)
	if len(left) > 0 {
		t.Errorf("the next tenant of that name reads %d entries", len(left))
	}
}

// The log has a recorded revision with its counts, and its end, with the operation that shows both.
// A page continues after the one before.
func TestRecordedRevisionAndItsEndAreEntries(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"),
		application("eu-1", "acme", "b", "prod", "v1"))
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	check(t, s.Plans.CompleteRevisions(t.Context()))
	of := view.Filter{Revision: revision(1)}
	entries, _, err := s.Views.Audit(t.Context(), view.Scope{}, of, view.Page{Limit: 10})
	check(t, err)
	var text []string
	for _, e := range entries {
		text = append(text, fmt.Sprintf("%s %s %q %d %s", e.Actor, e.Action, e.Tenant, e.Changed,
			e.Outcome))
		if e.Operation == "" || e.Operation != entries[0].Operation {
			t.Errorf("%s: operation %q", e.Action, e.Operation)
		}
	}
	want := `argosy end reconcile "" 0 Succeeded|git:Ann <ann@example.com> record "acme" 2 |git:Ann <ann@example.com> record "" 0 `
	if got := strings.Join(text, "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	page, next, err := s.Views.Audit(t.Context(), view.Scope{}, of, view.Page{Limit: 2})
	check(t, err)
	rest, _, err := s.Views.Audit(t.Context(), view.Scope{}, of, view.Page{Limit: 2, After: next})
	check(t, err)
	if len(page) != 2 || len(rest) != 1 || rest[0].N != entries[2].N {
		t.Errorf("%d, then %d", len(page), len(rest))
	}
}

// The entry of a decision identifies the caller beside the name.
func TestEntryNamesTheTokenOfTheCaller(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	id := audit.Identity{Token: "tok1", Session: "s1", Issuer: "https://dex", Account: "ann"}
	_, err := s.Decisions.SetStop(audit.WithIdentity(t.Context(), id), mirror.Stop{
		Scope: mirror.StopFleet, By: "person:ann", Reason: "r"}, true)
	check(t, err)
	entries, _, err := s.Views.Audit(t.Context(), view.Scope{},
		view.Filter{Entry: view.EntryFilter{Action: "stop"}}, view.Page{Limit: 10})
	if err != nil || len(entries) != 1 || entries[0].Identity != id || entries[0].Operation == "" {
		t.Errorf("%+v, %v", entries, err)
	}
}

// An entry survives its way through JSON with its hash.
func TestEntryVerifiesAfterJSON(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	_, err := s.Decisions.SetStop(t.Context(), mirror.Stop{Scope: mirror.StopTenant, Name: "acme",
		By: "token:<ann>", Reason: "a\nb\u202e\x1b[31m \"c\" & <d>"}, true)
	check(t, err)
	check(t, s.Audit.SealAll(t.Context()))
	entries := must(s.Views.SealedAudit(t.Context(), view.Scope{}, view.Filter{}, 0, 1000))(t)
	for _, e := range entries {
		var b bytes.Buffer
		check(t, json.NewEncoder(&b).Encode(e))
		var back audit.Entry
		check(t, json.Unmarshal(b.Bytes(), &back))
		if back.Sum() != e.Hash || back.Sum() != back.Hash {
			t.Errorf("%s", b.String())
		}
	}
}
