package postgres_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func TestSessionTakesTheLeaseOfItsEngine(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join(acmeEdge, "x")
	first := k.open(a, "one")
	if first.Lease.Name != "engine/acme.edge" || first.Lease.Holder != "agent/"+a.ID+"/one" ||
		time.Until(first.Lease.Expires) < 99*365*24*time.Hour {
		t.Errorf("lease %+v", first.Lease)
	}
	if first.Mode != fleet.AgentManaged || first.ArgoCD != (fleet.ArgoCDInstance{
		Namespace: "gitops"}) || first.Agent.ID != a.ID {
		t.Errorf("opening %+v", first)
	}
	if again := k.open(a, "one"); again.Lease.Epoch != first.Lease.Epoch ||
		again.Opening <= first.Opening {
		t.Errorf("the same process: %+v", again)
	}
	rows := must(k.Agents.AgentChanged(ctx, acmeEdge, 0, 100))(t)
	second := k.open(a, "two")
	if second.Lease.Epoch != first.Lease.Epoch+1 {
		t.Errorf("epochs %d, %d", first.Lease.Epoch, second.Lease.Epoch)
	}
	for what, err := range map[string]error{
		"Acknowledge": k.Work.Acknowledge(ctx, first.Lease, applied(rows)),
		"Observe":     k.Work.Observe(ctx, first.Lease, []mirror.Observation{{Key: rows[0].Key}}),
		"UpdateSync":  k.Work.UpdateSync(ctx, first.Lease, "x", mirror.OperationFailed, ""),
		"ReportAgent": k.Agents.ReportAgent(ctx, first.Lease, registry.Report{}),
		"RecordOwn":   k.Agents.RecordOwn(ctx, first.Lease, nil, true),
		"TakeReport": func() error {
			_, err := k.Agents.TakeReport(ctx, first.Lease, 1)
			return err
		}(),
		"ReportTaken": k.Agents.ReportTaken(ctx, first.Lease, 1),
	} {
		if !errors.Is(err, mirror.ErrFenced) {
			t.Errorf("%s of the process before: %v", what, err)
		}
	}
	check(t, k.Work.Acknowledge(ctx, second.Lease, applied(rows)))

	t.Run("above the floor that the cluster shows", func(t *testing.T) {
		for _, c := range []struct {
			floor, want int64
		}{{second.Lease.Epoch - 1, second.Lease.Epoch}, {500, 501}, {500, 501}, {3, 501}} {
			s := session(a, "two")
			s.Floor = c.floor
			if o := must(k.Agents.OpenAgent(ctx, s))(t); o.Lease.Epoch != c.want {
				t.Errorf("floor %d: epoch %d, want %d", c.floor, o.Lease.Epoch, c.want)
			}
		}
		s := session(a, "two")
		s.Floor = 1<<53 + 1
		if _, err := k.Agents.OpenAgent(ctx, s); err == nil {
			t.Error("an impossible floor is taken")
		}
	})
	t.Run("no replica acquires the lease of an agent", func(t *testing.T) {
		if _, ok, err := k.Leases.Acquire(ctx, "engine/acme.edge", "replica-1", time.Minute); ok ||
			err != nil {
			t.Errorf("acquired %v, %v", ok, err)
		}
	})
	t.Run("the worker of before an Engine was given to an agent is fenced", func(t *testing.T) {
		worker := hold(t, k.Store, "engine/far-1")
		o := k.open(k.join("far-1", "far"), "one")
		if o.Lease.Epoch <= worker.Epoch ||
			o.ArgoCD != (fleet.ArgoCDInstance{Namespace: "argocd-far-1", InstallationID: "far-1"}) {
			t.Errorf("%+v", o)
		}
		if err := k.Work.Acknowledge(ctx, worker, []mirror.Ack{
			{Key: fleet.ObjectKey{Engine: "far-1"}}}); !errors.Is(err, mirror.ErrFenced) {
			t.Errorf("the worker: %v", err)
		}
	})
}

// It ends at once, for writes in progress, on every replica and permanently.
func TestRevokedAgentEndsAtOnceEverywhere(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join(acmeEdge, "x")
	o := k.open(a, "one")
	hash := sha256.Sum256([]byte("access"))
	check(t, k.Agents.SaveAccess(ctx, a.ID, "j", hash, time.Minute))
	if got := must(k.Agents.AccessAgent(ctx, hash))(t); got.ID != a.ID {
		t.Fatalf("access of %+v", got)
	}
	other := open(t, k.url)
	notified := make(chan struct{}, 100)
	listening, stop := context.WithCancel(ctx)
	var listener sync.WaitGroup
	listener.Go(func() { other.Listen(listening, func(string) { notified <- struct{}{} }) })
	defer listener.Wait()
	defer stop()
	<-notified // it listens

	// The revocation waits for a write that holds the lease; the next write is refused.
	tx := must(connect(t, k.url).Begin(ctx))(t)
	_, err := tx.Exec(ctx, `SELECT fence_engine($1, $2, $3)`, o.Lease.Name, o.Lease.Holder,
		o.Lease.Epoch)
	check(t, err)
	revoked := make(chan error, 1)
	go func() {
		revoked <- k.Agents.RevokeAgent(ctx, view.Scope{Tenant: "acme"}, acmeEdge, "ann")
	}()
	until(t, "the revocation to wait", func() bool {
		return one[bool](t, k.url,
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	check(t, tx.Commit(ctx))
	check(t, <-revoked)
	<-notified

	again := open(t, k.url) // and after a restart
	for _, s := range []interface {
		Agent(context.Context, string) (registry.Agent, error)
		AccessAgent(context.Context, [32]byte) (registry.Agent, error)
		OpenAgent(context.Context, registry.Session) (registry.Opening, error)
		ReportAgent(context.Context, mirror.Lease, registry.Report) error
		RotateAgent(context.Context, string, string, registry.Keys) (registry.Agent, error)
		AgentNews(context.Context, int64, time.Time) (registry.News, error)
	}{k.Store.Agents, other.Agents, again.Agents} {
		if got, err := s.Agent(ctx, a.ID); !errors.Is(err, registry.ErrRevoked) ||
			got.Keys.Thumb() != a.Keys.Thumb() {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := s.AccessAgent(ctx, hash); !errors.Is(err, mirror.ErrNotFound) {
			t.Errorf("its access token: %v", err)
		}
		if _, err := s.OpenAgent(ctx, session(a, "one")); !errors.Is(err, registry.ErrRevoked) {
			t.Errorf("a session: %v", err)
		}
		if err := s.ReportAgent(ctx, o.Lease, registry.Report{}); !errors.Is(err,
			mirror.ErrFenced) {
			t.Errorf("a report: %v", err)
		}
		if _, err := s.RotateAgent(ctx, a.ID, a.Keys.Thumb(), keys("y")); !errors.Is(err,
			registry.ErrRevoked) {
			t.Errorf("rotation: %v", err)
		}
		if news, err := s.AgentNews(ctx, -1, time.Now()); err != nil || len(news.Ended) != 1 ||
			news.Ended[0] != a.ID {
			t.Errorf("news %+v, %v", news, err)
		}
	}
	expect(t, k.url, `SELECT count(*) FROM agent_access`, 0)
	if err := k.Agents.RevokeAgent(ctx, view.Scope{}, acmeEdge, "ann"); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("once more: %v", err)
	}
	if v := k.view(acmeEdge); v.RevokedAt == nil || v.Connected || v.ID != a.ID {
		t.Errorf("view %+v", v)
	}
	k.join("globex.edge", "g")
	if err := k.Agents.RevokeAgent(ctx, view.Scope{Tenant: "acme"}, "globex.edge",
		"eve"); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("another tenant's: %v", err)
	}
}

func TestJoiningAgainEndsTheEarlierIdentity(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	former := k.join(acmeEdge, "x")
	before := k.open(former, "one")
	next := k.join(acmeEdge, "y")
	if _, err := k.Agents.Agent(t.Context(), former.ID); !errors.Is(err, registry.ErrRevoked) {
		t.Errorf("the earlier: %v", err)
	}
	if err := k.Agents.ReportTaken(t.Context(), before.Lease, 7); !errors.Is(
		err, mirror.ErrFenced) {
		t.Errorf("its report: %v", err)
	}
	after := k.open(next, "one")
	if after.Lease.Epoch <= before.Lease.Epoch || after.ReportSeq != 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if v := k.view(acmeEdge); v.ID != next.ID || v.RevokedAt != nil {
		t.Errorf("view %+v", v)
	}
}

func TestExpiredIdentityJoinsAgain(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join(acmeEdge, "x")
	if left := time.Until(a.ExpiresAt); left < registry.Lifetime-time.Minute ||
		left > registry.Lifetime+time.Minute {
		t.Errorf("lasts %s", left)
	}
	exec(t, k.url, `UPDATE agents SET expires_at = now() - interval '1 day'`)
	if got, err := k.Agents.Agent(ctx, a.ID); !errors.Is(err, registry.ErrExpired) ||
		got.ID != a.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := k.Agents.OpenAgent(ctx, session(a, "one")); !errors.Is(err, registry.ErrExpired) {
		t.Errorf("session: %v", err)
	}
	if _, err := k.Agents.AgentRows(ctx, acmeEdge, func(mirror.Row) error {
		return nil
	}); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("rows: %v", err)
	}
	next := k.join(acmeEdge, "x") // with the same keys
	must(k.Agents.OpenAgent(ctx, session(next, "one")))(t)
	if rows := k.rows(acmeEdge); len(rows) != 2 {
		t.Errorf("rows %v", rows)
	}
}

func TestRotationSwapsTheKeysOnce(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join(acmeEdge, "x")
	hash := sha256.Sum256([]byte("access"))
	check(t, k.Agents.SaveAccess(ctx, a.ID, "j", hash, time.Minute))
	exec(t, k.url, `UPDATE agents SET expires_at = now() + interval '1 hour'`)
	for range 2 {
		got := must(k.Agents.RotateAgent(ctx, a.ID, a.Keys.Thumb(), keys("y")))(t)
		if got.Keys.Thumb() != keys("y").Thumb() ||
			time.Until(got.ExpiresAt) < registry.Lifetime-time.Minute {
			t.Errorf("%+v", got)
		}
	}
	if _, err := k.Agents.AccessAgent(ctx, hash); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("an access token of the keys before: %v", err)
	}
	if _, err := k.Agents.RotateAgent(ctx, a.ID, a.Keys.Thumb(), keys("z")); !errors.Is(err,
		registry.ErrReplayed) {
		t.Errorf("from the keys before to others: %v", err)
	}
	must(k.Agents.RotateAgent(ctx, a.ID, keys("y").Thumb(), keys("z")))(t)
	if got := must(k.Agents.Agent(ctx, a.ID))(t); got.Keys.Thumb() != keys("z").Thumb() {
		t.Errorf("%+v", got)
	}
}

func TestAssertionIsGoodForOneToken(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a, b := k.join(acmeEdge, "x"), k.join("far-1", "y")
	hash := func(s string) [32]byte { return sha256.Sum256([]byte(s)) }
	check(t, k.Agents.SaveAccess(ctx, a.ID, "jti", hash("1"), time.Minute))
	check(t, k.Agents.SaveAccess(ctx, a.ID, "jti", hash("1"), time.Minute)) // after a lost answer
	if err := k.Agents.SaveAccess(ctx, a.ID, "jti", hash("2"), time.Minute); !errors.Is(err,
		registry.ErrReplayed) {
		t.Errorf("replayed: %v", err)
	}
	check(t, k.Agents.SaveAccess(ctx, b.ID, "jti", hash("3"), time.Minute))
	exec(t, k.url, `UPDATE agent_access SET expires_at = now() - interval '1 second'`)
	if _, err := k.Agents.AccessAgent(ctx, hash("1")); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("after its time: %v", err)
	}
	if err := k.Agents.SaveAccess(ctx, a.ID, "jti", hash("4"), time.Minute); !errors.Is(err,
		registry.ErrReplayed) {
		t.Errorf("replayed when its token has run out: %v", err)
	}
	exec(t, k.url, `UPDATE agent_access SET expires_at = now() - interval '11 minutes'`)
	check(t, k.Agents.SaveAccess(ctx, a.ID, "next", hash("5"), time.Minute))
	expect(t, k.url, `SELECT count(*) FROM agent_access WHERE agent = '`+a.ID+`'`, 1)
	for i := range 199 {
		check(t, k.Agents.SaveAccess(ctx, a.ID, fmt.Sprint("more", i), hash(fmt.Sprint("more", i)),
			time.Minute))
	}
	if err := k.Agents.SaveAccess(ctx, a.ID, "too many", hash("6"), time.Minute); !errors.Is(err,
		registry.ErrBusy) {
		t.Errorf("the 201st: %v", err)
	}
}

// A proof that was recorded in transit opens no second session, on any replica.
func TestAProofOpensOneSession(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a, b, other := k.join(acmeEdge, "x"), k.join("far-1", "y"), open(t, k.url)
	s := session(a, "one")
	first := must(k.Agents.OpenAgent(ctx, s))(t)
	s.Replica = "hub-2"
	if _, err := other.Agents.OpenAgent(ctx, s); !errors.Is(err, registry.ErrReplayed) {
		t.Errorf("on another replica: %v", err)
	}
	var opened atomic.Int32
	var all sync.WaitGroup
	next := session(a, "one")
	for i := range 8 {
		all.Go(func() {
			switch _, err := []*postgres.Store{k.Store, other}[i%2].Agents.OpenAgent(ctx, next); {
			case err == nil:
				opened.Add(1)
			case !errors.Is(err, registry.ErrReplayed):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if now := must(k.Agents.OpenAgent(ctx, session(a, "one")))(t); opened.Load() != 1 ||
		now.Opening != first.Opening+2 {
		t.Errorf("%d of 8 were opened; the openings went from %d to %d", opened.Load(),
			first.Opening, now.Opening)
	}
	s.Agent = b.ID
	must(k.Agents.OpenAgent(ctx, s))(t) // one agent's proof is not another's

	exec(t, k.url,
		`UPDATE agents SET proofs = (SELECT jsonb_object_agg(key, value || jsonb_build_object('until', now() + interval '1 minute')) FROM jsonb_each(proofs)) WHERE id = '`+a.ID+`'`)
	s.Agent = a.ID
	if _, err := other.Agents.OpenAgent(ctx, s); !errors.Is(err, registry.ErrReplayed) {
		t.Errorf("while it may hold: %v", err)
	}
	exec(t, k.url,
		`UPDATE agents SET proofs = (SELECT jsonb_object_agg(n, jsonb_build_object('call', '', 'until', now() + CASE WHEN n < 150 THEN interval '0' ELSE interval '1 minute' END)) FROM generate_series(1, 349) n)
		WHERE id = '`+a.ID+`'`)
	if _, err := k.Agents.OpenAgent(ctx, session(a, "one")); !errors.Is(err, registry.ErrBusy) {
		t.Errorf("the 201st within three minutes: %v", err)
	}
	exec(t, k.url, `UPDATE agents SET proofs = proofs - '349' WHERE id = '`+a.ID+`'`)
	k.open(a, "one")
	expect(t, k.url, `SELECT count(*) FROM agents, jsonb_each(proofs) WHERE id = '`+a.ID+`'`, 200)
	for _, proof := range []string{"", strings.Repeat("p", 65), "a\x00b"} {
		s := session(a, "one")
		if s.Proof = proof; !failed(k.Agents.OpenAgent(ctx, s)) {
			t.Errorf("proof %q is taken", proof)
		}
	}
}

func failed[T any](_ T, err error) bool { return err != nil }

// A part of a report is refused once the report, or a later one, was accepted, on any replica.
func TestLateDuplicateOfAReportOverwritesNothing(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	o := k.open(k.join(acmeEdge, "x"), "one")
	row := must(k.Agents.AgentChanged(ctx, acmeEdge, 0, 10))(t)[0]
	part := func(report int64, message string) error {
		lease := o.Lease
		lease.Report = report
		return k.Work.Acknowledge(ctx, lease, []mirror.Ack{
			{Key: row.Key, Seq: row.Seq, State: mirror.ApplyFailed, Message: message}})
	}
	must(k.Agents.TakeReport(ctx, o.Lease, 7))(t) // on the slow replica
	check(t, part(7, "seventh"))
	check(t, part(7, "seventh"))
	check(t, k.Agents.ReportTaken(ctx, o.Lease, 7))
	check(t, part(8, "eighth"))
	check(t, k.Agents.ReportTaken(ctx, o.Lease, 8))
	for _, late := range []int64{7, 8} {
		if err := part(late, "late"); !errors.Is(err, registry.ErrReplayed) {
			t.Errorf("a late part of report %d: %v", late, err)
		}
	}
	if got := one[string](t, k.url, `SELECT state_message FROM status WHERE name = $1`,
		row.Key.Name); got != "eighth" {
		t.Errorf("the row has %s", got)
	}
}

func TestReportsGoForward(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join(acmeEdge, "x")
	o := k.open(a, "one")
	take := func(l mirror.Lease, seq, last int64, want error) {
		t.Helper()
		if got, err := k.Agents.TakeReport(ctx, l, seq); !errors.Is(err, want) || want == nil &&
			err != nil || got != last {
			t.Errorf("report %d: last %d, %v", seq, got, err)
		}
	}
	take(o.Lease, 1, 0, nil)
	take(o.Lease, 1, 0, nil) // the replica died before the report was accepted
	check(t, k.Agents.ReportTaken(ctx, o.Lease, 1))
	take(o.Lease, 1, 1, registry.ErrReplayed)
	take(o.Lease, 0, 1, registry.ErrReplayed)
	check(t, k.Agents.ReportTaken(ctx, o.Lease, 5))
	check(t, k.Agents.ReportTaken(ctx, o.Lease, 3))
	take(o.Lease, 5, 5, registry.ErrReplayed)
	take(o.Lease, 6, 5, nil)
	next := k.open(a, "two")
	if next.ReportSeq != 5 {
		t.Errorf("opening %+v", next)
	}
	take(o.Lease, 6, 0, mirror.ErrFenced)
	take(next.Lease, 6, 5, nil)
	far := k.open(k.join("far-1", "f"), "one")
	forged := next.Lease
	forged.Holder = far.Lease.Holder
	take(forged, 9, 0, mirror.ErrFenced)
}

func TestClonedIdentityIsRefusedUntilItJoinsAgain(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join(acmeEdge, "x")
	k.open(a, "one")
	k.open(a, "two")
	before := k.open(a, "one")
	if _, err := k.Agents.OpenAgent(ctx, session(a, "two")); !errors.Is(err, registry.ErrCloned) {
		t.Fatalf("to and fro: %v", err)
	}
	for _, instance := range []string{"one", "two", "three"} {
		if _, err := k.Agents.OpenAgent(ctx, session(a, instance)); !errors.Is(
			err, registry.ErrCloned) {
			t.Errorf("%s: %v", instance, err)
		}
	}
	if got, err := k.Agents.Agent(ctx, a.ID); !errors.Is(err, registry.ErrCloned) ||
		got.ID != a.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if err := k.Agents.ReportAgent(ctx, before.Lease, registry.Report{}); !errors.Is(err,
		mirror.ErrFenced) {
		t.Errorf("the session of one: %v", err)
	}
	if v := k.view(acmeEdge); !v.Cloned || v.RevokedAt != nil {
		t.Errorf("view %+v", v)
	}
	if news := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t); len(news.Ended) != 1 {
		t.Errorf("news %+v", news)
	}
	next := k.join(acmeEdge, "y")
	if o := k.open(next, "one"); o.Lease.Epoch <= before.Lease.Epoch {
		t.Errorf("%+v", o)
	}
	if v := k.view(acmeEdge); v.Cloned {
		t.Errorf("view %+v", v)
	}
}

func TestRestartsAndRolloutsAreNoClone(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	for name, instances := range map[string][]string{
		"restarts in a row": {"1", "2", "3", "4", "5", "6", "7", "8", "9",
			"10", "11", "12", "13", "14", "15", "16", "17", "18"},
		"a process that comes back to itself":     {"1", "1", "1", "1", "2", "2", "2"},
		"a process without news of its successor": {"1", "2", "1", "3", "3", "4", "5"},
	} {
		a := k.join(acmeEdge, name)
		for _, i := range instances {
			if _, err := k.Agents.OpenAgent(t.Context(), session(a, i)); err != nil {
				t.Errorf("%s: at %s: %v", name, i, err)
			}
		}
	}
	t.Run("nor are takeovers older than ten minutes", func(t *testing.T) {
		a := k.join(acmeEdge, "slow")
		for range 6 {
			for _, i := range []string{"1", "2"} {
				if _, err := k.Agents.OpenAgent(t.Context(), session(a, i)); err != nil {
					t.Fatal(err)
				}
				exec(t, k.url, `UPDATE agents SET turns = (
					SELECT jsonb_agg(jsonb_set(e, '{at}', to_jsonb((e ->> 'at')::timestamptz - interval '11 minutes')) ORDER BY n)
					FROM jsonb_array_elements(turns) WITH ORDINALITY AS e (e, n)) WHERE id = $1`, a.ID)
			}
		}
	})
	check(t, k.Agents.BeatReplica(t.Context(), session(registry.Agent{}, "").Replica))
	t.Run("crashes that are noticed, and rollouts", func(t *testing.T) {
		a := k.join(acmeEdge, "crashing")
		for i := range 18 {
			if i == 5 || i == 9 {
				// the end was not detected before the next session
				k.open(a, fmt.Sprint("lost-", i))
			}
			instance := fmt.Sprint("crashing-", i)
			o := k.open(a, instance)
			s := session(a, instance)
			s.Opening = o.Opening
			check(t, k.Agents.CloseAgent(t.Context(), s))
		}
	})
	t.Run("two processes that end on a takeover and restart are", func(t *testing.T) {
		a := k.join(acmeEdge, "ending")
		for i := range 4 {
			k.open(a, fmt.Sprint("ending-", i))
		}
		if _, err := k.Agents.OpenAgent(t.Context(), session(a, "ending-4")); !errors.Is(err,
			registry.ErrCloned) {
			t.Errorf("%v", err)
		}
	})
	t.Run("three that take turns are", func(t *testing.T) {
		a := k.join(acmeEdge, "three")
		for _, i := range []string{"1", "2", "3", "1"} {
			k.open(a, i)
		}
		if _, err := k.Agents.OpenAgent(t.Context(), session(a, "2")); !errors.Is(
			err, registry.ErrCloned) {
			t.Errorf("%v", err)
		}
	})
}

func TestPresenceFollowsSessionsAndReplicas(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join(acmeEdge, "x")
	if v := k.view(acmeEdge); v.Connected || v.SeenAt != nil || v.JoinedAt == nil ||
		v.Version != "v1.0.0" {
		t.Errorf("joined: %+v", v)
	}
	s := session(a, "one")
	s.Opening = k.open(a, "one").Opening
	if v := k.view(acmeEdge); v.Connected {
		t.Errorf("on a replica that never beat: %+v", v)
	}
	check(t, k.Agents.BeatReplica(ctx, "hub-1"))
	if v := k.view(acmeEdge); !v.Connected || v.SeenAt == nil || v.Version != "v1.1.0" {
		t.Errorf("connected: %+v", v)
	}
	exec(t, k.url,
		`UPDATE replicas SET beat_at = now() - interval '31 seconds'; UPDATE agents SET seen_at = now() - interval '1 hour'`)
	if v := k.view(acmeEdge); v.Connected || time.Since(*v.SeenAt) > time.Minute {
		t.Errorf("its replica died: %+v", v)
	}
	moved := s
	moved.Replica = "hub-2"
	check(t, k.Agents.BeatReplica(ctx, "hub-2"))
	moved.Opening = must(k.Agents.OpenAgent(ctx, withNewProof(moved)))(t).Opening
	check(t, k.Agents.CloseAgent(ctx, s)) // the old stream ends after the new one began
	if v := k.view(acmeEdge); !v.Connected {
		t.Errorf("moved to another replica: %+v", v)
	}
	check(t, k.Agents.CloseAgent(ctx, moved))
	if v := k.view(acmeEdge); v.Connected || time.Since(*v.SeenAt) > time.Minute {
		t.Errorf("closed: %+v", v)
	}
	first, second := moved, moved
	first.Opening = must(k.Agents.OpenAgent(ctx, withNewProof(moved)))(t).Opening
	second.Opening = must(k.Agents.OpenAgent(ctx, withNewProof(moved)))(t).Opening
	check(t, k.Agents.CloseAgent(ctx, first))
	if v := k.view(acmeEdge); !v.Connected {
		t.Errorf("the same replica, a newer session: %+v", v)
	}
}

func TestASessionHasTheNamespacesOfApplications(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	a, far := k.join(acmeEdge, "x"), k.join("far-1", "y")
	if n := k.open(a, "one").ApplicationNamespaces; len(n) > 0 {
		t.Errorf("none is declared: %v", n)
	}
	shared := []fleet.ApplicationNamespace{{Namespace: "apps", Tenant: "acme"},
		{Namespace: "more", Tenant: "globex"}}
	k.record(func(r *mirror.Record) {
		d, engine := edge("acme", "edge", ""), behind("far-1")
		d.Environment.Agent.ApplicationNamespaces = []string{"apps", "more"}
		engine.Engine.ApplicationNamespaces = shared
		r.Declarations = []fleet.Declaration{d, engine}
		project := application("acme.edge", "acme", "p", "edge", "v1")
		project.Key.Kind, project.Key.Name = fleet.ObjectProject, "p"
		project.Manifest.Body = []byte(`{"spec":{"sourceNamespaces":["apps","more"]}}`)
		r.Rows = []mirror.Row{project}
	})
	own := []fleet.ApplicationNamespace{{Namespace: "apps", Tenant: "acme"},
		{Namespace: "more", Tenant: "acme"}}
	if n := k.open(a, "one").ApplicationNamespaces; !slices.Equal(n, own) {
		t.Errorf("of an environment: %v", n)
	}
	if n := k.open(far, "one").ApplicationNamespaces; !slices.Equal(n, shared) {
		t.Errorf("of an Engine: %v", n)
	}
	// an agent that is too old for it
	lease, key := k.open(a, "one").Lease, fleet.ObjectKey{Engine: acmeEdge,
		Kind: fleet.ObjectProject, Name: "p"}
	seq := one[int64](t, k.url, `SELECT seq FROM desired WHERE engine = 'acme.edge' AND name = 'p'`)
	fail := func(state mirror.ApplyState) {
		check(t, k.Work.Acknowledge(t.Context(), lease, []mirror.Ack{{Key: key, Seq: seq,
			State: state, Message: "upgrade the agent"}}))
	}
	fail(mirror.ApplyFailed)
	if m := k.view(acmeEdge).Message; m != "AppProject p: upgrade the agent" {
		t.Errorf("it is shown with %q", m)
	}
	fail(mirror.ApplyApplied)
	if m := k.view(acmeEdge).Message; m != "" {
		t.Errorf("applied, it is shown with %q", m)
	}
	// its AppProject is deleted when no Application in these namespaces uses it
	k.record(func(r *mirror.Record) { r.Removed = []fleet.Key{edge("acme", "edge", "").Key} })
	if n := k.open(a, "one").ApplicationNamespaces; !slices.Equal(n, own) {
		t.Errorf("after the declaration: %v", n)
	}
}
