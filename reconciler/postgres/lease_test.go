package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestLeaseIsHeldByOneAndItsEpochGrowsWithEachHolder(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	first, ok, err := s.Leases.Acquire(ctx, "engine/eu-1", "a", time.Hour)
	if err != nil || !ok || first.Epoch != 1 || first.Holder != "a" {
		t.Fatalf("%+v, %v, %v", first, ok, err)
	}
	if l, ok, err := s.Leases.Acquire(ctx, "engine/eu-1", "b", time.Hour); err != nil || ok {
		t.Fatalf("two hold it: %+v, %v", l, err)
	} else if left := time.Until(l.Expires); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the replica that waits reads %s left, want an hour", left)
	}
	if again, ok, err := s.Leases.Acquire(ctx, "engine/eu-1", "a", 2*time.Hour); err != nil ||
		!ok ||
		again.Epoch != 1 || !again.Expires.After(first.Expires) {
		t.Fatalf("its holder asks again: %+v, %v, %v", again, ok, err)
	}
	expire(t, url, "engine/eu-1")
	second, ok, err := s.Leases.Acquire(ctx, "engine/eu-1", "b", time.Hour)
	if err != nil || !ok || second.Epoch != 2 {
		t.Fatalf("after it ran out: %+v, %v, %v", second, ok, err)
	}
	if ok, err := s.Leases.Renew(ctx, first, time.Hour); err != nil || ok {
		t.Errorf("the former holder renews: %v, %v", ok, err)
	}
	check(t, s.Leases.Release(ctx, first, ""))
	if ok, err := s.Leases.Renew(ctx, second, time.Hour); err != nil || !ok {
		t.Errorf("the former holder's release ended the lease: %v, %v", ok, err)
	}
	check(t, s.Leases.Release(ctx, second, ""))
	third, ok, err := s.Leases.Acquire(ctx, "engine/eu-1", "a", time.Hour)
	if err != nil || !ok || third.Epoch != 3 {
		t.Errorf("after a release: %+v, %v, %v", third, ok, err)
	}
	if ok, err := s.Leases.Renew(ctx, second, time.Hour); err != nil || ok {
		t.Errorf("the replica that released the lease renews it: %v, %v", ok, err)
	}
}

func TestLeaseThatIsReleasedForOneReplicaIsKeptForIt(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	taken := func(by string) bool {
		t.Helper()
		l, ok, err := s.Leases.Acquire(ctx, "engine/eu-1", by, time.Hour)
		check(t, err)
		if left := time.Until(l.Expires); !ok && left <= 0 {
			t.Errorf("replica %s must wait %s for a lease that is kept for another", by, left)
		}
		return ok
	}
	first := hold(t, s, "engine/eu-1")
	check(t, s.Leases.Release(ctx, first, "b"))
	if !one[bool](t, url, `SELECT offered_until <= now() + interval '3 s' FROM leases`) {
		t.Error("the lease is kept for more than 3 s")
	}
	exec(t, url, `UPDATE leases SET offered_until = now() + interval '1 hour'`)
	if taken("c") || taken(first.Holder) {
		t.Error("another replica takes the lease that is kept for b")
	}
	if !taken("b") {
		t.Error("b does not get the lease that is kept for it")
	}
	second, _, err := s.Leases.Acquire(ctx, "engine/eu-1", "b", time.Hour)
	check(t, err)
	check(t, s.Leases.Release(ctx, second, "gone"))
	exec(t, url, `UPDATE leases SET offered_until = now() - interval '1 ms'`)
	third, ok, err := s.Leases.Acquire(ctx, "engine/eu-1", "c", time.Hour)
	if check(t, err); !ok {
		t.Fatal("a lease that its replica does not take stays free")
	}
	check(t, s.Leases.Release(ctx, third, ""))
	if !taken("d") {
		t.Error("a lease that is released for no replica is kept")
	}
}

func TestReplicasSeeWhoWorksAndWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	hold(t, s, "engine/eu-1")
	hold(t, s, "engine/acme/prod")
	expire(t, url, "engine/acme/prod")
	names := []string{"engine/acme/prod", "engine/eu-1", "engine/eu-2"}
	view := must(
		s.Leases.BeatWorkers(ctx, mirror.ReplicaBeat{Replica: "a", Preparing: 2, Leases: names}))(
		t)
	if fmt.Sprint(view) != "{map[a:2] map[engine/eu-1:replica-1]}" {
		t.Errorf("one replica: %v", view)
	}
	check(t, s.Agents.BeatReplica(ctx, "an agents' hub without workers"))
	view = must(s.Leases.BeatWorkers(ctx, mirror.ReplicaBeat{Replica: "b", Leases: names[2:]}))(t)
	if fmt.Sprint(view) != "{map[a:2 b:0] map[]}" {
		t.Errorf("two replicas: %v", view)
	}
	check(t, s.Leases.LeaveWorkers(ctx, "a"))
	exec(t, url, `UPDATE replicas SET worked_at = worked_at - interval '6 s' WHERE replica = 'b'`)
	view = must(s.Leases.BeatWorkers(ctx, mirror.ReplicaBeat{Replica: "c", Leases: names[:0]}))(t)
	if fmt.Sprint(view) != "{map[c:0] map[]}" {
		t.Errorf("after one has left and one was killed: %v", view)
	}
}

func TestLeaseEpochRisesAboveWhatTheEngineShows(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	l := hold(t, s, "engine/eu-1")
	raised := must(s.Leases.RaiseEpoch(t.Context(), l, 41))(t)
	if raised.Epoch != 42 || must(s.Leases.RaiseEpoch(t.Context(), raised, 41))(t).Epoch != 42 {
		t.Fatalf("epoch %d", raised.Epoch)
	}
	if err := s.Work.Observe(t.Context(), l, []mirror.Observation{
		{Key: fleet.ObjectKey{Engine: "eu-1"}}}); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a write at the epoch before: %v", err)
	}
	if _, err := s.Leases.RaiseEpoch(
		t.Context(), mirror.Lease{Name: "engine/eu-1", Holder: "b", Epoch: 1},
		50); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("another raises it: %v", err)
	}
}

// A leader that was paused past its lease resumes, and all of its writes are refused.
func TestWritesOfAnOlderEpochAreRefused(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	leader := hold(t, s, "reconciler")
	a := application("eu-1", "acme", "a", "prod", "v1")
	must(
		s.Plans.Record(
			ctx, leader, step(0, 1, func(r *mirror.Record) { r.Rows = []mirror.Row{a} })))(t)
	worker := hold(t, s, "engine/eu-1")
	for _, name := range []string{"reconciler", "engine/eu-1"} {
		expire(t, url, name)
		if _, ok, err := s.Leases.Acquire(ctx, name, "replica-2", time.Hour); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	before := writes(t, url)
	_, recorded := s.Plans.Record(ctx, leader,
		step(1, 2, func(r *mirror.Record) {
			r.Rows = []mirror.Row{application("eu-1", "acme", "a", "prod", "v2")}
		}))
	_, moved := s.Plans.Record(ctx, leader, step(1, 2, func(*mirror.Record) {}))
	for what, err := range map[string]error{
		"Record":       recorded,
		"empty Record": moved,
		"Acknowledge": s.Work.Acknowledge(ctx, worker, []mirror.Ack{
			{Key: a.Key, Seq: 1, State: mirror.ApplyApplied}}),
		"Observe": s.Work.Observe(ctx, worker, []mirror.Observation{
			{Key: a.Key, Sync: mirror.SyncSynced}}),
		"ReportEngine": s.Work.ReportEngine(ctx, worker, mirror.EngineReport{
			Engine: "eu-1", Reachable: true}),
		"UpdateSync": s.Work.UpdateSync(ctx, worker, "x", mirror.OperationRunning, ""),
		"SetCursor":  s.Work.SetCursor(ctx, worker, 9),
	} {
		if !errors.Is(err, mirror.ErrFenced) {
			t.Errorf("%s: %v", what, err)
		}
	}
	after := writes(t, url)
	for table, state := range before {
		if after[table] != state {
			t.Errorf("%s changed from %s to %s", table, state, after[table])
		}
	}
	if snap := must(s.Plans.Load(ctx))(t); snap.Applied != revision(1) {
		t.Errorf("applied %s", snap.Applied)
	}
}

func TestLeaseOfOneEngineGivesNoRightToAnother(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	eu := hold(t, s, "engine/eu-1")
	key := fleet.ObjectKey{Engine: "us-1", Kind: fleet.ObjectApplication, Name: "a"}
	for what, err := range map[string]error{
		"Acknowledge": s.Work.Acknowledge(t.Context(), eu, []mirror.Ack{{Key: key, Seq: 1}}),
		"Observe":     s.Work.Observe(t.Context(), eu, []mirror.Observation{{Key: key}}),
		"ReportEngine": s.Work.ReportEngine(t.Context(), eu, mirror.EngineReport{
			Engine: "us-1"}),
		"Observe as reconciler": s.Work.Observe(t.Context(), hold(t, s, "reconciler"),
			[]mirror.Observation{{Key: key}}),
		"Observe without an entry": s.Work.Observe(t.Context(), mirror.Lease{Name: "engine/us-1",
			Holder: "x", Epoch: 1}, []mirror.Observation{{Key: key}}),
	} {
		if err == nil {
			t.Errorf("%s is let through", what)
		}
	}
}

// Two replicas both take themselves for the leader: never two writers at a time, and no write of a
// lower epoch after one of a higher.
func TestTwoReplicasNeverWriteOutOfOrder(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	setup := open(t, url)
	row := application("eu-1", "acme", "a", "prod", "v1")
	must(setup.Plans.Record(ctx, hold(t, setup, "reconciler"),
		step(0, 1, func(r *mirror.Record) { r.Rows = []mirror.Row{row} })))(t)
	exec(t, url, `CREATE TABLE argosy.told (n bigint GENERATED ALWAYS AS IDENTITY, epoch bigint);
		CREATE FUNCTION argosy.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO argosy.told (epoch) VALUES (NEW.uid::bigint); RETURN NEW; END $$;
		CREATE TRIGGER tell BEFORE UPDATE ON argosy.status FOR EACH ROW EXECUTE FUNCTION argosy.tell()`)
	var fenced, written atomic.Int64
	var replicas sync.WaitGroup
	for i := range 4 {
		s := open(t, url)
		replicas.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l, ok, err := s.Leases.Acquire(ctx, "engine/eu-1",
					fmt.Sprintf("replica-%d-%d", i, n),
					50*time.Millisecond)
				if err != nil || !ok {
					continue
				}
				for ctx.Err() == nil { // past the lease, until it is refused
					err := s.Work.Observe(ctx, l, []mirror.Observation{
						{Key: row.Key, UID: fmt.Sprint(l.Epoch), Resources: n,
							Message: fmt.Sprint(written.Add(1))}})
					if errors.Is(err, mirror.ErrFenced) {
						fenced.Add(1)
						break
					}
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	until(t, "the replicas to meet", func() bool {
		return fenced.Load() > 10 && one[int](t, url, `SELECT count(DISTINCT epoch) FROM told`) > 10
	})
	cancel()
	replicas.Wait()
	if n := one[int](t, url,
		`SELECT count(*) FROM (SELECT epoch < lag(epoch) OVER (ORDER BY n) AS lower FROM told) e WHERE lower`); n != 0 {
		t.Errorf("%d writes of a lower epoch followed one of a higher", n)
	}
}

func TestLeaseThatRanOutGivesNoRight(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	worker := hold(t, s, "engine/eu-1")
	expire(t, url, "engine/eu-1")
	report := mirror.EngineReport{Engine: "eu-1", Reachable: true}
	if err := s.Work.ReportEngine(t.Context(), worker, report); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("after it ran out: %v", err)
	}
	if ok, err := s.Leases.Renew(t.Context(), worker, time.Hour); err != nil || !ok {
		t.Fatalf("an expired lease without a new holder: %v, %v", ok, err)
	}
	check(t, s.Work.ReportEngine(t.Context(), worker, report))
}

func expire(t *testing.T, url, name string) {
	t.Helper()
	exec(t, url, `UPDATE leases SET expires_at = now() - interval '1 s' WHERE name = $1`, name)
}
