package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/postgres/embedded"
)

// The connection is lost before the request arrives, or after COMMIT and before the answer. Either
// way there is one effect.
func TestConnectionLostDuringCommitHasOneEffect(t *testing.T) {
	t.Parallel()
	a := application("eu-1", "acme", "a", "prod", "v1")
	for name, cut := range map[string]int32{"the request is lost": cutRequest,
		"the answer is lost": cutAnswer} {
		t.Run(name, func(t *testing.T) {
			url := newDatabase(t)
			between := newProxy(t, url)
			s := openWith(t, between.url, postgres.Options{Connections: postgres.Connections{
				Workers: 1}})
			ctx := t.Context()
			lease, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
			n := 0
			record := func() {
				n++
				a = application("eu-1", "acme", "a", "prod", fmt.Sprint("v", n))
				seq, err := s.Plans.Record(ctx, lease, step(n-1, n, func(r *mirror.Record) {
					r.Declarations, r.Rows = []fleet.Declaration{tenantDeclaration("acme")},
						[]mirror.Row{a}
					r.Deletions = []mirror.Deletion{{Key: a.Key, Tenant: "acme"}}
				}))
				if err != nil || seq != int64(n) {
					t.Errorf("number %d, want %d: %v", seq, n, err)
				}
			}
			tokens, stops, approvals := 0, 0, 0
			for what, f := range map[string]func(){
				"Record": record,
				"Acknowledge": func() {
					check(t,
						s.Work.Acknowledge(ctx, worker, []mirror.Ack{
							{Key: a.Key, Seq: int64(n), State: mirror.ApplyApplied}}))
				},
				"Observe": func() {
					check(t, s.Work.Observe(ctx, worker, []mirror.Observation{
						{Key: a.Key, Message: fmt.Sprint(n)}}))
				},
				"Approve": func() {
					approvals++
					must(s.Decisions.Approve(ctx, mirror.Approval{Revision: revision(1000)}))(t)
				},
				"SetStop": func() {
					stops++
					must(
						s.Decisions.SetStop(ctx, mirror.Stop{Scope: mirror.StopEngine,
							Name: fmt.Sprint("e", stops)}, true))(t)
				},
				"CreateToken": func() {
					tokens++
					_, plaintext, err := s.Tokens.CreateToken(
						ctx, view.Token{Name: "ci", Tenant: "acme",
							Role: view.RoleRead})
					check(t, err)
					must(s.Tokens.VerifyToken(ctx, plaintext))(t)
				},
				"Load": func() { must(s.Plans.Load(ctx))(t) },
				"Acquire": func() {
					if l, ok, err := s.Leases.Acquire(ctx, "engine/eu-1", "replica-1",
						time.Hour); err != nil || !ok || l.Epoch != 1 {
						t.Errorf("%+v, %v, %v", l, ok, err)
					}
				},
			} {
				if what != "Record" && n == 0 {
					record()
				}
				f() // prepares its statements
				between.cut.Store(cut)
				f()
				select {
				case <-between.Taken:
				default:
					t.Errorf("%s was not cut", what)
				}
				f()
			}
			for what, want := range map[string]int{
				`SELECT count(*) FROM operations WHERE kind = 'Reconcile'`: n,
				`SELECT count(*) FROM revisions`:                           n,
				`SELECT count(*) FROM deletions`:                           n,
				`SELECT count(*) FROM desired`:                             1,
				`SELECT count(*) FROM tokens`:                              tokens,
				`SELECT count(*) FROM audit WHERE action = 'create token'`: tokens,
				`SELECT count(*) FROM operations WHERE kind = 'Stop'`:      stops,
				`SELECT count(*) FROM operations WHERE kind = 'Approve'`:   approvals,
				`SELECT count(*) FROM audit WHERE action = 'approve'`:      approvals,
				`SELECT count(*) FROM tenants`:                             1,

				`SELECT count(*) FROM audit WHERE action = 'record' AND tenant = ''`:     n,
				`SELECT count(*) FROM audit WHERE action = 'record' AND tenant = 'acme'`: n,

				`SELECT count(*) FROM (SELECT FROM events WHERE kind = 'revision' GROUP BY name HAVING count(*) > 1) e`: 0,
			} {
				if got := one[int](t, url, what); got != want {
					t.Errorf("%s: %d, want %d", what, got, want)
				}
			}
		})
	}
}

// Every request and every answer of a person's decision is lost once. The decision takes effect
// once, and the person is not refused for a second decision.
func TestADecisionWhoseAnswerIsLostIsNotRefused(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		prepare, undo string
		kind          mirror.OperationKind
		decide        func(context.Context, *postgres.Decisions) error
	}{
		"a move": {"SELECT", "DELETE FROM move_requests", mirror.OperationMove,
			func(ctx context.Context, d *postgres.Decisions) error {
				_, err := d.RequestMove(ctx, mirror.MoveRequest{Environment: prod, To: "eu-2",
					By: "token:ann"})
				return err
			}},
		"a fence": {`UPDATE engines SET spec = '{"remedies": {"fence": "Allowed"}}', reachable = true`,
			"DELETE FROM fences", mirror.OperationFence,
			func(ctx context.Context, d *postgres.Decisions) error {
				_, err := d.RequestFence(ctx, mirror.EvacuationRequest{Engine: "eu-1", Fence: true,
					By: "token:ann"})
				return err
			}},
		"an evacuation": {"UPDATE engines SET reachable = false", "DELETE FROM evacuations",
			mirror.OperationEvacuate, evacuate},
		"the confirmation of a fence": {`WITH silent AS (UPDATE engines SET reachable = false)
			INSERT INTO evacuations (engine, operation, state, by) VALUES ('eu-1', 'x', 'Moving', 'y')`,
			`INSERT INTO fences (engine, id, state, by, reason) VALUES ('eu-1', 'f', 'Scaling', 'y', '')
			ON CONFLICT (engine) DO UPDATE SET confirmed_by = ''`,
			"", evacuate},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := newEvacuating(t)
			between := newProxy(t, e.url)
			s := openWith(t, between.url, postgres.Options{})
			exec(t, e.url, c.prepare)
			for _, cut := range []int32{cutRequest, cutAnswer} {
				for skip, met := int32(0), true; met; skip++ {
					exec(t, e.url, c.undo)
					exec(t, e.url, `DELETE FROM operations`)
					between.skip.Store(skip)
					between.cut.Store(cut)
					if err := c.decide(t.Context(), s.Decisions); err != nil {
						t.Fatalf("after request %d was cut (%d): %v", skip+1, cut, err)
					}
					met = !between.cut.CompareAndSwap(cut, cutNothing)
					want := 1
					if c.kind == "" {
						want = 0
					}
					if n := one[int](t, e.url, `SELECT count(*) FROM operations`); n != want {
						t.Fatalf("after request %d was cut (%d): %d operations", skip+1, cut, n)
					}
				}
			}
		})
	}
}

func evacuate(ctx context.Context, d *postgres.Decisions) error {
	return d.RequestEvacuation(ctx, mirror.EvacuationRequest{Engine: "eu-1", ConfirmGone: "eu-1",
		By: "token:ann"})
}

// Sessions are terminated at random while revisions are recorded. In the end the database holds
// exactly the recorded revisions.
func TestTerminatedSessionsLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	lease := hold(t, s, "reconciler")
	ctx, cancel := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	conn := connect(t, url)
	defer conn.Close(context.Background())
	killer.Go(func() {
		for ctx.Err() == nil {
			_, err := conn.Exec(ctx,
				`SELECT pg_terminate_backend(pid), pg_sleep(0.1) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'argosy' AND random() < 0.2`)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	const revisions, rows = 15, 50
	for n := 1; n <= revisions; n++ {
		for end := time.Now().Add(2 * time.Minute); ; {
			_, err := s.Plans.Record(t.Context(), lease, fullRecord(n-1, n, rows))
			if err == nil {
				break
			}
			if time.Now().After(end) || errors.Is(err, mirror.ErrStale) {
				t.Fatalf("revision %d: %v", n, err)
			}
		}
	}
	cancel()
	killer.Wait()
	snap := must(s.Plans.Load(t.Context()))(t)
	if snap.Applied != revision(revisions) || snap.Seq != revisions*rows ||
		len(snap.Objects) != rows {
		t.Errorf("applied %s, number %d, %d objects", snap.Applied, snap.Seq, len(snap.Objects))
	}
	if n := one[int](t, url, `SELECT count(*) FROM revisions`); n != revisions {
		t.Errorf("%d revisions", n)
	}
}

// privateServer is a server that a test may break.
func privateServer(t *testing.T, set ...string) (*embedded.Server, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "argosy-postgres-own-")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o711))
	own, err := embedded.StartWith(t.Context(), dir+"/db", embedded.Options{Set: set})
	check(t, err)
	t.Cleanup(func() { own.Stop() })
	must(postgres.Migrate(t.Context(), own.URL))(t)
	return own, dir + "/db"
}

// The server crashes. Recorded revisions survive; of others nothing is left, not even a part.
func TestServerCrashKeepsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	own, dir := privateServer(t)
	s := open(t, own.URL)
	lease := hold(t, s, "reconciler")
	var last atomic.Int64
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 1; ; n++ {
			if _, err := s.Plans.Record(context.Background(), lease,
				fullRecord(n-1, n, 200)); err != nil {
				return
			}
			last.Store(int64(n))
		}
	}()
	until(t, "five revisions", func() bool { return last.Load() >= 5 })
	raw, err := os.ReadFile(dir + "/data/postmaster.pid")
	check(t, err)
	pid, err := strconv.Atoi(strings.SplitN(string(raw), "\n", 2)[0])
	check(t, err)
	check(t, syscall.Kill(pid, syscall.SIGQUIT)) // at once, nothing written back
	<-own.Done()
	<-stopped
	check(t, own.Stop())
	again, err := embedded.Start(t.Context(), dir)
	check(t, err)
	t.Cleanup(func() { again.Stop() })
	snap := must(open(t, again.URL).Plans.Load(t.Context()))(t)
	n := last.Load()
	if snap.Applied != revision(int(n)) && snap.Applied != revision(int(n)+1) {
		t.Errorf("applied %s, recorded %d", snap.Applied, n)
	}
	for _, o := range snap.Objects {
		if o.Seq <= snap.Seq-200 {
			t.Fatalf("an object of an earlier revision: number %d of %d", o.Seq, snap.Seq)
		}
	}
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		select {
		case <-t.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The listening session is terminated, and a notification is sent before it reconnects.
func TestNotificationInTheGapIsMadeUpFor(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	var calls atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Listen(ctx, func(string) { calls.Add(1) }) }()
	until(t, "the first notification", func() bool { return calls.Load() == 1 })
	check(t, s.Notify(t.Context(), "replica-1"))
	until(t, "a call for the notification", func() bool { return calls.Load() == 2 })
	exec(t, url,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
	check(t, s.Notify(t.Context(), "replica-1"))
	until(t, "a call after the gap", func() bool { return calls.Load() >= 3 })
	before := calls.Load()
	until(t, "a call for a notification after the gap", func() bool {
		check(t, s.Notify(t.Context(), "replica-1"))
		return calls.Load() > before
	})
	cancel()
	<-done
}

// The primary becomes read-only under open connections.
func TestReadOnlyPrimaryIsLeftAndFoundAgain(t *testing.T) {
	t.Parallel()
	own, _ := privateServer(t, quick...)
	s := open(t, own.URL)
	check(t, s.Ping(t.Context()))
	readOnly := func(state string) {
		conn := connect(t, own.URL)
		defer conn.Close(context.Background())
		for _, sql := range []string{`ALTER SYSTEM SET default_transaction_read_only = ` + state,
			`SELECT pg_reload_conf()`} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	sessions := func() string {
		return one[string](t, own.URL,
			`SELECT coalesce(string_agg(pid::text, ' ' ORDER BY pid), '') FROM pg_stat_activity WHERE application_name = 'argosy'`)
	}
	warm := sessions()
	readOnly("on")
	until(t, "the setting", func() bool { return s.Ping(t.Context()) != nil })
	_, err := s.Decisions.SetStop(t.Context(), mirror.Stop{Scope: mirror.StopFleet}, true)
	if err == nil {
		t.Fatal("a write to a read-only database succeeds")
	}
	for pid := range strings.FieldsSeq(warm) {
		if strings.Contains(sessions(), pid) {
			t.Errorf("session %s is kept", pid)
		}
	}
	readOnly("off")
	began := time.Now()
	until(t, "readiness", func() bool { return s.Ping(t.Context()) == nil })
	must(s.Decisions.SetStop(t.Context(), mirror.Stop{Scope: mirror.StopFleet}, true))(t)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// Open sessions get the refusal themselves.
func TestRefusedWriteIsNamed(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	exec(t, url,
		`CREATE FUNCTION argosy.demoted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN SET LOCAL transaction_read_only = on; INSERT INTO argosy.leases VALUES ('x', 'x', 1, now()); RETURN NEW; END $$;
		CREATE TRIGGER demoted BEFORE INSERT ON argosy.stops FOR EACH ROW EXECUTE FUNCTION argosy.demoted()`)
	if _, err := s.Decisions.SetStop(t.Context(), mirror.Stop{Scope: mirror.StopFleet},
		true); !errors.Is(err,
		postgres.ErrReadOnly) {
		t.Fatalf("got %v", err)
	}
}

// Many writers, retryable conflicts, and a full work pool.
func TestConflictsAreTriedAgainAndBounded(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01", "55P03"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			a := application("eu-1", "acme", "a", "prod", "v1")
			url := newDatabase(t)
			s, _, worker, rows := recorded(t, url, a)
			exec(t, url, `CREATE SEQUENCE argosy.tries;
				CREATE FUNCTION argosy.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF nextval('argosy.tries') < 4 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '`+code+`'; END IF; RETURN NEW; END $$;
				CREATE TRIGGER conflict BEFORE INSERT ON argosy.status FOR EACH ROW EXECUTE FUNCTION argosy.conflict()`)
			check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
			if n := one[int](t, url, `SELECT last_value FROM tries`); n != 4 {
				t.Errorf("it took %d attempts", n)
			}
			exec(t, url,
				`DELETE FROM status; ALTER SEQUENCE argosy.tries RESTART; CREATE OR REPLACE FUNCTION argosy.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				PERFORM nextval('argosy.tries'); RAISE EXCEPTION 'conflict' USING ERRCODE = '`+code+`'; END $$`)
			if err := s.Work.Acknowledge(t.Context(), worker, applied(rows)); err == nil {
				t.Error("a conflict for good is no error")
			}
			if n := one[int](t, url, `SELECT last_value FROM tries`); n < 3 || n > 10 {
				t.Errorf("%d attempts before it gave up", n)
			}
		})
	}
}

func TestRealDeadlockIsSurvived(t *testing.T) {
	t.Parallel()
	a, b := application("eu-1", "acme", "a", "prod", "v1"), application("eu-1", "acme", "b", "prod",
		"v1")
	url := newDatabase(t)
	s, _, worker, rows := recorded(t, url, a, b)
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{{Key: a.Key}, {Key: b.Key}}))
	other := connect(t, url)
	defer other.Close(t.Context())
	// the store's session detects the deadlock first
	_, err := other.Exec(t.Context(), `SET deadlock_timeout = '10s'`)
	check(t, err)
	tx, err := other.Begin(t.Context())
	check(t, err)
	lock := func(name string) error {
		_, err := tx.Exec(t.Context(), `UPDATE status SET message = 'x' WHERE name = $1`, name)
		return err
	}
	check(t, lock(b.Key.Name))
	observed := make(chan error, 1)
	go func() {
		err := s.Work.Observe(t.Context(), worker, []mirror.Observation{{Key: a.Key, Message: "1"}})
		if err == nil { // both in one batch: whichever row it takes first, it waits for b
			err = s.Work.Observe(t.Context(), worker, []mirror.Observation{
				{Key: a.Key, Message: "2"},
				{Key: b.Key, Message: "2"}})
		}
		observed <- err
	}()
	until(t, "the store to wait", func() bool {
		return one[int](t, url,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'argosy' AND wait_event_type = 'Lock'`) > 0
	})
	check(t, lock(a.Key.Name))
	check(t, tx.Commit(t.Context()))
	check(t, <-observed)
	if m := one[string](t, url, `SELECT string_agg(message, ' ') FROM status`); m != "2 2" {
		t.Errorf("messages %s", m)
	}
}

func TestLeasesAreRenewedWhileThePoolIsFull(t *testing.T) {
	t.Parallel()
	a := application("eu-1", "acme", "a", "prod", "v1")
	url := newDatabase(t)
	_, _, worker, rows := recorded(t, url, a)
	s := openWith(t, url, postgres.Options{Connections: postgres.Connections{Workers: 2}})
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	blocker := connect(t, url)
	defer blocker.Close(t.Context())
	tx, err := blocker.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE status SET message = 'x'`)
	check(t, err)
	var writers sync.WaitGroup
	for i := range 32 {
		writers.Go(func() {
			if err := s.Work.Observe(t.Context(), worker, []mirror.Observation{
				{Key: a.Key, Message: fmt.Sprint(i)}}); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "a full pool", func() bool {
		return one[int](t, url,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'argosy' AND wait_event_type = 'Lock'`) == 2
	})
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if ok, err := s.Leases.Renew(ctx, worker, time.Hour); err != nil || !ok {
			t.Errorf("renewed: %v, %v", ok, err)
		}
		cancel()
	}
	check(t, tx.Rollback(t.Context()))
	writers.Wait()
}

func TestANotificationNamesItsSenderAndADecisionNotifies(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	senders, done := make(chan string, 10), make(chan struct{})
	go func() { defer close(done); s.Listen(ctx, func(by string) { senders <- by }) }()
	stop := mirror.Stop{Scope: mirror.StopFleet, By: "token:ops"}
	for i, c := range []struct {
		notify func() error
		want   string
	}{
		{func() error { return nil }, ""}, // it connects
		{func() error { return s.Notify(ctx, "replica-1") }, "replica-1"},
		{func() error { return s.Notify(ctx, "replica-2\x00") }, `replica-2\x00`},
		{func() error {
			_, err := s.Decisions.Approve(
				ctx, mirror.Approval{Revision: revision(1), By: "token:ops"})
			return err
		}, ""},
		{func() error { _, err := s.Decisions.SetStop(ctx, stop, true); return err },
			mirror.NoticeStops},
		{func() error {
			_, err := s.Decisions.ClearStop(ctx, stop.Scope, stop.Name, "", "token:ops")
			return err
		}, mirror.NoticeStops},
	} {
		check(t, c.notify())
		if got := <-senders; got != c.want {
			t.Errorf("notification %d is from %q, want %q", i, got, c.want)
		}
	}
	cancel()
	<-done
}
