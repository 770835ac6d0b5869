package postgres_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestStopStaysUntilItIsEnded(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	byTenant := mirror.Stop{Scope: mirror.StopTenant, Name: "acme", By: "token:acme/ci",
		Reason: "deploy freeze"}
	if got := must(s.Decisions.SetStop(ctx, byTenant, false))(t); got.By != byTenant.By ||
		got.At.IsZero() {
		t.Fatalf("%+v", got)
	}
	byPlatform := mirror.Stop{Scope: mirror.StopTenant, Name: "acme", By: "token:ops",
		Reason: "incident"}
	if got := must(s.Decisions.SetStop(ctx, byPlatform, true))(t); got.By != "token:ops" {
		t.Fatalf("the platform does not replace it: %+v", got)
	}
	if got := must(s.Decisions.SetStop(ctx, byTenant, false))(t); got.By != "token:ops" {
		t.Fatalf("a tenant replaces the platform's: %+v", got)
	}
	if must(s.Decisions.ClearStop(ctx, mirror.StopTenant, "acme", "token:acme/", "token:acme/ci"))(
		t) {
		t.Error("a tenant ends the platform's stop")
	}
	if stops := must(open(t, url).Views.Stops(ctx, view.Scope{}))(t); len(stops) != 1 {
		t.Fatalf("after a restart: %+v", stops)
	}
	if !must(s.Decisions.ClearStop(ctx, mirror.StopTenant, "acme", "", "token:ops"))(t) ||
		must(s.Decisions.ClearStop(ctx, mirror.StopTenant, "acme", "", "token:ops"))(t) {
		t.Error("a stop ends once")
	}
	if n := one[int](t, url,
		`SELECT count(*) FROM operations WHERE kind IN ('Stop', 'Resume')`); n != 3 {
		t.Errorf("%d operations record it, want 3", n)
	}
	if n := one[int](t, url,
		`SELECT count(*) FROM audit WHERE action IN ('stop', 'resume')`); n != 3 {
		t.Errorf("%d entries of the audit log, want 3", n)
	}
	if _, err := s.Decisions.SetStop(ctx, mirror.Stop{Scope: mirror.StopTenant}, true); err == nil {
		t.Error("a stop of no tenant")
	}
}

// An end is recorded whatever deletes the row. It is later than the stop that it ends and earlier
// than the next one, whatever the clocks.
func TestTheEndOfAStopIsARecord(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	// of a replica with a fast clock
	future := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	stop := must(
		s.Decisions.SetStop(ctx, mirror.Stop{Scope: mirror.StopFleet, By: "token:ops", At: future},
			true))(t)
	must(s.Decisions.ClearStop(ctx, mirror.StopFleet, "", "", "token:ops"))(t)
	first := must(s.Decisions.StopRecords(ctx))(t)
	if len(first.Stops) != 0 || len(first.Ends) != 1 || !first.Ends[0].At.After(stop.At) ||
		first.Ends[0].By != "token:ops" {
		t.Fatalf("%+v", first)
	}
	check(t, s.Decisions.RestoreStop(ctx, stop))
	if got := must(s.Decisions.StopRecords(ctx))(t); len(got.Stops) != 0 {
		t.Errorf("a stop that has ended was restored: %+v", got)
	}
	again := must(s.Decisions.SetStop(ctx, mirror.Stop{Scope: mirror.StopFleet, By: "token:ops",
		At: time.Now()}, true))(t)
	if !again.At.After(first.Ends[0].At) {
		t.Errorf("the second stop, of %s, is not after the end of the first, %s", again.At,
			first.Ends[0].At)
	}
	// as a binary of an earlier version resumes
	exec(t, url, `DELETE FROM stops WHERE scope = 'fleet' AND name = ''`)
	if got := must(s.Decisions.StopRecords(ctx))(t); len(got.Stops) != 0 || len(got.Ends) != 1 ||
		!got.Ends[0].At.After(again.At) {
		t.Errorf("%+v", got)
	}
}

// A stop that the database has lost is restored unchanged, and a resume ends a stop that only an
// engine remembers.
func TestALostStopIsRestoredAndEndsByARecord(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx := t.Context()
	lost := mirror.Stop{Scope: mirror.StopTenant, Name: "acme", By: "token:ops", Reason: "incident",
		At: time.Now().Add(-time.Minute).Truncate(time.Microsecond)}
	check(t, s.Decisions.RestoreStop(ctx, lost))
	check(t, s.Decisions.RestoreStop(ctx, lost))
	if got := must(s.Decisions.StopRecords(ctx))(t); len(got.Stops) != 1 ||
		got.Stops[0].By != lost.By ||
		!got.Stops[0].At.Equal(lost.At) {
		t.Fatalf("%+v", got)
	}
	if must(s.Decisions.ClearStop(ctx, mirror.StopEngine, "eu-1", "", "token:ops"))(t) {
		t.Error("a stop was ended that there is not")
	}
	got := must(s.Decisions.StopRecords(ctx))(t)
	if len(got.Ends) != 1 || got.Ends[0].Name != "eu-1" ||
		time.Since(got.Ends[0].At) > time.Minute {
		t.Errorf("%+v", got)
	}
	if must(s.Decisions.ClearStop(ctx, mirror.StopEngine, "eu-2", "token:acme/", "token:acme/ci"))(
		t) ||
		len(must(s.Decisions.StopRecords(ctx))(t).Ends) != 1 {
		t.Error("a tenant recorded the end of a stop that is not its own")
	}
}

func TestStopsOfATenantAreItsOwnAndTheFleets(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, stop := range []mirror.Stop{{Scope: mirror.StopFleet},
		{Scope: mirror.StopTenant, Name: "acme"}, {Scope: mirror.StopTenant, Name: "globex"},
		{Scope: mirror.StopEngine, Name: "acme"}} {
		must(s.Decisions.SetStop(t.Context(), stop, true))(t)
	}
	got := must(s.Views.Stops(t.Context(), view.Scope{Tenant: "acme"}))(t)
	if len(got) != 2 || got[0].Scope != mirror.StopFleet || got[1].Name != "acme" ||
		got[1].Scope != mirror.StopTenant {
		t.Errorf("%+v", got)
	}
	if all := must(s.Views.Stops(t.Context(), view.Scope{}))(t); len(all) != 4 {
		t.Errorf("%+v", all)
	}
}

func TestApprovalReleasesWhatWasHeldBeforeIt(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	ctx := t.Context()
	holds := func(approved bool) int {
		t.Helper()
		holds, _, err := s.Views.Holds(ctx, view.Scope{}, view.Filter{Revision: revision(1),
			Approved: approved}, view.Page{Limit: 10})
		check(t, err)
		return len(holds)
	}
	waiting := func() int { return holds(false) }
	all := waiting()
	done := must(s.Decisions.Approve(ctx, mirror.Approval{Revision: revision(1), By: "token:ann",
		Note: "the first", At: time.Now().Add(time.Hour)}))(t)
	first := must(s.Plans.Approvals(ctx))(t)
	if len(first) != 1 || !done.At.Equal(first[0].At) || done.By != "token:ann" ||
		done.Note != "the first" || done.Revision != revision(1) {
		t.Errorf("answered %+v, recorded %+v", done, first)
	}
	if len(first) != 1 || first[0].By != "token:ann" ||
		first[0].At.After(time.Now().Add(time.Minute)) {
		t.Fatalf("not dated by the database: %+v", first)
	}
	if n := waiting(); all == 0 || n != 0 {
		t.Errorf("%d of %d still wait", n, all)
	}
	if n := holds(true); n != all {
		t.Errorf("%d of %d have not taken effect", n, all)
	}
	if snap := must(s.Plans.Load(ctx))(t); len(snap.Holds) != 2 {
		t.Errorf("the reconciler, which is to release them, sees %d holds", len(snap.Holds))
	}
	// More changes of the same revision are held afterwards.
	must(s.Plans.Record(ctx, hold(t, s, "reconciler"), step(1, 2, func(r *mirror.Record) {
		r.Holds = []mirror.Hold{
			{Revision: revision(1), Reason: mirror.HoldDeletions, Tenant: "acme",
				Message: "more of acme",
				Since:   must(s.Plans.Recent(ctx, time.Hour))(t).Now, Items: []fleet.ObjectKey{
					application("eu-1", "acme", "cart", "prod", "v1").Key}}}
	})))(t)
	if n := waiting(); n != 1 {
		t.Errorf("%d holds wait for a second approval, want 1", n)
	}
	must(s.Decisions.Approve(ctx, mirror.Approval{Revision: revision(1), By: "token:bob",
		Note: "the second"}))(t)
	again := must(s.Plans.Approvals(ctx))(t)
	if len(again) != 1 || again[0].By != "token:bob" || !again[0].At.After(first[0].At) {
		t.Errorf("the second approval does not replace the first: %+v, first %+v", again, first)
	}
	if n := waiting(); n != 0 {
		t.Errorf("%d still wait", n)
	}
	for _, sql := range []string{
		`SELECT string_agg(requested_by || ' ' || message, ', ' ORDER BY started_at) FROM operations WHERE kind = 'Approve'`,
		`SELECT string_agg(actor || ' ' || detail, ', ' ORDER BY at) FROM audit WHERE action = 'approve'`,
	} {
		if got := one[string](t, url, sql); got != "token:ann the first, token:bob the second" {
			t.Errorf("%s: %s", sql, got)
		}
	}
}

func TestAuditLogIsOnlyAddedTo(t *testing.T) {
	t.Parallel()
	_, url := populated(t)
	conn := connect(t, url)
	defer conn.Close(t.Context())
	for _, sql := range []string{`DELETE FROM audit`, `UPDATE audit SET actor = 'nobody'`,
		`TRUNCATE audit`, `DELETE FROM audit WHERE false`} {
		_, err := conn.Exec(t.Context(), sql)
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	lease := hold(t, s, "reconciler")
	must(
		s.Plans.Record(ctx, lease,
			step(0, 1, func(r *mirror.Record) {
				r.Declarations = []fleet.Declaration{
					tenantDeclaration("acme")}
			})))(t)
	make1 := func(token view.Token) (view.Token, string) {
		t.Helper()
		token.CreatedBy = "token:ops"
		made, plaintext, err := s.Tokens.CreateToken(ctx, token)
		check(t, err)
		return made, plaintext
	}
	known := func(plaintext string) bool {
		t.Helper()
		_, err := s.Tokens.VerifyToken(ctx, plaintext)
		if err != nil && !errors.Is(err, mirror.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}

	made, plaintext := make1(view.Token{Name: "ci", Tenant: "acme", Role: view.RoleWrite,
		Owner: "github:alice"})
	if got := must(s.Tokens.VerifyToken(ctx, plaintext))(t); got != made ||
		got.Subject() != "token:acme/ci" || got.Role != view.RoleWrite {
		t.Fatalf("made %+v, verified %+v", made, got)
	}
	t.Run("its plaintext is kept nowhere", func(t *testing.T) {
		secret := plaintext[strings.LastIndex(plaintext, "_")+1:]
		if len(secret) < 26 {
			t.Errorf("the secret has %d characters of 5 bits", len(secret))
		}
		for _, table := range []string{"tokens", "audit", "operations", "events"} {
			if n := one[int](t, url, `SELECT count(*) FROM `+table+
				` x WHERE x::text ILIKE '%' || $1 || '%'`, secret); n != 0 {
				t.Errorf("%s holds it", table)
			}
		}
	})
	t.Run("a malformed token is refused", func(t *testing.T) {
		for _, bad := range []string{"", "argosy_", "argosy__", "argosy_" + made.ID,
			"argosy_" + made.ID + "_", plaintext + "x", plaintext[:len(plaintext)-1],
			strings.ToUpper(plaintext),
			strings.Replace(plaintext, made.ID, "0"+made.ID[1:], 1) + "0", "argosy_\x00_x",
			strings.Repeat("argosy_a_", 1000), " " + plaintext} {
			if known(bad) {
				t.Errorf("%q is let in", bad)
			}
		}
	})
	t.Run("it ends with its time", func(t *testing.T) {
		past, future := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
		if _, p := make1(view.Token{Name: "old", Role: view.RoleRead, ExpiresAt: &past}); known(
			p) {
			t.Error("it is let in after its time")
		}
		if _, p := make1(view.Token{Name: "young", Role: view.RoleRead,
			ExpiresAt: &future}); !known(p) {
			t.Error("it is not let in before its time")
		}
	})
	t.Run("it ends when it is revoked", func(t *testing.T) {
		token, p := make1(view.Token{Name: "gone", Role: view.RoleRead})
		check(t, s.Tokens.RevokeToken(ctx, token.ID, "token:ops"))
		check(t, s.Tokens.RevokeToken(ctx, token.ID, "token:ops"))
		if known(p) {
			t.Error("it is let in")
		}
		if err := s.Tokens.RevokeToken(ctx, "nope", "token:ops"); !errors.Is(
			err, mirror.ErrNotFound) {
			t.Errorf("an unknown token: %v", err)
		}
	})
	t.Run("it needs a tenant that there is, a role and a name", func(t *testing.T) {
		for _, bad := range []view.Token{{Name: "ci", Tenant: "nope", Role: view.RoleRead},
			{Name: "ci", Role: "admin"}, {Name: "a/b", Role: view.RoleRead}} {
			if _, _, err := s.Tokens.CreateToken(ctx, bad); err == nil {
				t.Errorf("%+v is made", bad)
			}
		}
	})
}

// A tenant that is removed and created again with the same name is another tenant.
func TestTenantOfTheSameNameInheritsNothing(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	a := application("eu-1", "acme", "a", "prod", "v1")
	s, reconciler, worker, rows := recorded(t, url, a)
	ctx, acme := t.Context(), view.Scope{Tenant: "acme"}
	_, plaintext, err := s.Tokens.CreateToken(ctx, view.Token{Name: "ci", Tenant: "acme",
		Role: view.RoleRead})
	check(t, err)
	check(t, s.Work.Acknowledge(ctx, worker, applied(rows)))
	check(t, s.Work.Observe(ctx, worker, []mirror.Observation{
		{Key: a.Key, Message: "secret of the former"}}))
	must(
		s.Decisions.SetStop(
			ctx, mirror.Stop{Scope: mirror.StopTenant, Name: "acme", By: "token:acme/ci"},
			true))(t)
	if o, _, err := s.Views.Operations(ctx, acme, view.Filter{},
		view.Page{Limit: 10}); err != nil ||
		len(o) != 1 {
		t.Fatalf("before: %+v, %v", o, err)
	}
	must(s.Plans.Record(ctx, reconciler,
		step(1, 2, func(r *mirror.Record) {
			r.Removed = []fleet.Key{{Kind: fleet.KindTenant, Name: "acme"}}
		})))(t)
	must(s.Plans.Record(ctx, reconciler,
		step(2, 3, func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{
				tenantDeclaration("acme")}
		})))(t)

	if _, err := s.Tokens.VerifyToken(ctx, plaintext); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("the former's token: %v", err)
	}
	if o, _, err := s.Views.Operations(ctx, acme, view.Filter{},
		view.Page{Limit: 10}); err != nil ||
		len(o) != 0 {
		t.Errorf("the former's operations: %+v, %v", o, err)
	}
	if e, _, err := s.Views.Events(ctx, acme, 0, 100); err != nil || len(e) != 0 {
		t.Errorf("the former's events: %+v, %v", e, err)
	}
	apps, _, err := s.Views.Applications(ctx, acme, view.Filter{}, view.Page{Limit: 10})
	check(t, err)
	if len(apps) != 1 || apps[0].Message != "" || apps[0].ObservedAt != nil {
		t.Errorf("the former's status: %+v", apps)
	}
	if again := one[int](t, url, `SELECT count(*) FROM tenants WHERE tenant = 'acme'`); again != 2 {
		t.Errorf("%d lives of acme", again)
	}
	must(s.Plans.Record(ctx, reconciler,
		step(3, 4, func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{
				tenantDeclaration("acme")}
		})))(t)
	if again := one[int](t, url, `SELECT count(*) FROM tenants WHERE tenant = 'acme'`); again != 2 {
		t.Errorf("a changed tenant is taken for a new one: %d lives", again)
	}
}

// Events are numbered so that no reader misses one that is committed late.
func TestEventsArePassedOverByNoReader(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	_, begin, err := s.Views.Events(ctx, view.Scope{}, -1, 0)
	check(t, err)
	late := connect(t, url)
	defer late.Close(ctx)
	tx, err := late.Begin(ctx)
	check(t, err)
	_, err = tx.Exec(ctx, `SELECT new_event('hold', '', 'late', '')`)
	check(t, err)
	exec(t, url, `SELECT new_event('hold', '', 'early', '')`)
	first, last, err := s.Views.Events(ctx, view.Scope{}, begin, 10)
	check(t, err)
	check(t, tx.Commit(ctx))
	second, _, err := s.Views.Events(ctx, view.Scope{}, last, 10)
	check(t, err)
	var names []string
	for _, e := range append(first, second...) {
		names = append(names, e.Name)
	}
	if strings.Join(names, " ") != "late early" {
		t.Fatalf("seen: %v", names)
	}
}

func TestEventsOfManyWritersAreAllSeenOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	var writers sync.WaitGroup
	const each, count = 40, 6
	for range count {
		conn := connect(t, url)
		writers.Go(func() {
			defer conn.Close(t.Context())
			for range each {
				_, err := conn.Exec(t.Context(),
					`SELECT new_event('hold', '', 'n', ''), pg_sleep(random() * 0.004)`)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	seen, last := map[int64]bool{}, int64(0)
	for end := time.Now().Add(2 * time.Minute); len(seen) < each*count && time.Now().Before(end); {
		events, next, err := s.Views.Events(t.Context(), view.Scope{}, last, 7)
		check(t, err)
		for _, e := range events {
			if seen[e.Seq] || e.Seq <= last {
				t.Fatalf("event %d again", e.Seq)
			}
			seen[e.Seq] = true
		}
		last = next
	}
	<-done
	if len(seen) != each*count {
		t.Fatalf("%d of %d events were seen", len(seen), each*count)
	}
}
