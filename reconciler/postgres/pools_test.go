package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// While every reader connection is in use and more readers wait, leases are renewed, a stop is set
// and read, workers read and acknowledge, the loop records, and the replica is ready.
func TestReadersDelayNoOtherPool(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	_, reconciler, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	s := openWith(t, url, postgres.Options{Connections: postgres.Connections{Readers: 2}})
	blocker := connect(t, url)
	defer blocker.Close(context.Background())
	tx := must(blocker.Begin(t.Context()))(t)
	_, err := tx.Exec(t.Context(), `LOCK TABLE problems IN ACCESS EXCLUSIVE MODE`)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			for ctx.Err() == nil {
				_, _, _ = s.Readers().Views.Problems(ctx, view.Scope{}, view.Filter{}, view.Page{
					Limit: 10})
			}
		})
	}
	full := func() bool {
		return one[int](t, url,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'argosy' AND wait_event_type = 'Lock'`) == 2
	}
	until(t, "the readers to take their connections", full)
	until(t, "the pools to report waiting callers", func() bool {
		p := s.Pools()
		return p[2].InUse == 2 && p[2].Size == 2 && p[2].Waiting >= 14 &&
			p[0].Waiting+p[1].Waiting == 0
	})
	for what, f := range map[string]func() error{
		"renew a lease": func() error {
			_, err := s.Leases.Renew(t.Context(), worker, time.Hour)
			return err
		},
		"set a stop": func() error {
			_, err := s.Decisions.SetStop(
				t.Context(), mirror.Stop{Scope: mirror.StopFleet, By: "ann",
					Reason: "r"}, true)
			return err
		},
		"read the stops": func() error {
			_, err := s.Views.Stops(t.Context(), view.Scope{})
			return err
		},
		"be ready": func() error { return s.Ping(t.Context()) },
		"read changed rows": func() error {
			_, err := s.Work.Changed(t.Context(), "eu-1", 0, 10)
			return err
		},
		"acknowledge": func() error {
			return s.Work.Acknowledge(t.Context(), worker, applied(rows))
		},
		"record": func() error {
			_, err := s.Plans.Record(t.Context(), reconciler,
				step(1, 2, func(r *mirror.Record) {
					r.Rows = []mirror.Row{application("eu-1", "acme", "b", "prod", "v1")}
				}))
			return err
		},
	} {
		until(t, "the readers to have their connections", full)
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	cancel()
	readers.Wait()
	check(t, tx.Rollback(t.Context()))
}

// A client dies in the middle of a large write, and a proxy keeps its connection. Its locks do not
// keep other leases from being renewed, its own lease passes on within seconds of its expiry, and
// nothing of the write remains.
func TestHalfSentWriteOfADeadClientKeepsItsLeaseForSecondsOnly(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"reconciler", "engine/eu-1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newDatabase(t)
			between := newProxy(t, url)
			dying, s := open(t, between.url), open(t, url)
			leader, worker, other := hold(t, dying, "reconciler"), hold(t, dying, "engine/eu-1"),
				hold(t, s, "engine/other")
			// prepares its statements
			must(dying.Plans.Record(t.Context(), leader, fullRecord(0, 1, 10)))(t)
			rows := must(dying.Work.Changed(t.Context(), "eu-1", 0, 1000))(t)
			check(t, dying.Work.Acknowledge(t.Context(), worker, applied(rows)))
			write := func(ctx context.Context) {
				_, _ = dying.Plans.Record(ctx, leader, fullRecord(1, 2, 5000))
			}
			if name != "reconciler" {
				acks := make([]mirror.Ack, 10_000)
				for i := range acks {
					acks[i] = mirror.Ack{Key: rows[0].Key, Seq: rows[0].Seq,
						State: mirror.ApplyFailed, Message: strings.Repeat("m", 500)}
					acks[i].Key.Name = fmt.Sprint(i)
				}
				write = func(ctx context.Context) { _ = dying.Work.Acknowledge(ctx, worker, acks) }
			}
			between.remaining.Store(1 << 20)
			ctx, cancel := context.WithCancel(t.Context())
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				write(ctx)
			}()
			<-between.Taken
			until(t, "the server to wait for the rest of the request", func() bool {
				return one[int](t, url,
					`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientRead'
					AND state = 'active' AND xact_start IS NOT NULL`) == 1
			})
			cancel()
			<-sent
			exec(t, url, `UPDATE leases SET expires_at = now() - interval '1 s' WHERE name = $1`,
				name)
			ended := time.Now()
			var next mirror.Lease
			until(t, "the lease to pass on", func() bool {
				l, ok, err := s.Leases.Acquire(t.Context(), name, "replica-2", time.Hour)
				check(t, err)
				if ok, err := s.Leases.Renew(t.Context(), other, time.Hour); !ok || err != nil {
					t.Errorf("renewing another lease: %v, %v", ok, err)
				}
				next = l
				return ok
			})
			if took := time.Since(ended); took > 40*time.Second {
				t.Errorf("the lease passed on after %s", took)
			}
			expect(t, url, `SELECT count(*) FROM revisions`, 1)
			expect(t, url, `SELECT count(*) FROM status WHERE state = 'Failed'`, 0)
			if name == "reconciler" {
				must(s.Plans.Record(t.Context(), next, fullRecord(1, 2, 10)))(t)
			} else {
				check(t, s.Work.Acknowledge(t.Context(), next, applied(rows)))
			}
		})
	}
}

// A takeover waits for a write that is only slow and whose client is alive.
func TestTakeoverWaitsForAWriteThatTheServerWorksOn(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	hold(t, s, "engine/eu-1")
	writer := connect(t, url)
	defer writer.Close(context.Background())
	tx := must(writer.Begin(t.Context()))(t)
	_, err := tx.Exec(t.Context(), `SELECT fence('engine/eu-1', 'replica-1', 1)`)
	check(t, err)
	busy := make(chan error, 1)
	go func() {
		_, err := tx.Exec(context.Background(), `SELECT pg_sleep(4)`)
		busy <- err
	}()
	expire(t, url, "engine/eu-1")
	for len(busy) == 0 {
		if l, ok, err := s.Leases.Acquire(t.Context(), "engine/eu-1", "replica-2", time.Hour); ok ||
			err != nil {
			t.Fatalf("taken over from a write under way: %+v, %v", l, err)
		}
	}
	check(t, <-busy)
	check(t, tx.Commit(t.Context()))
	if _, ok, err := s.Leases.Acquire(t.Context(), "engine/eu-1", "replica-2", time.Hour); !ok ||
		err != nil {
		t.Errorf("after the write: %v, %v", ok, err)
	}
}

// pool_max_conns of the URL is divided; an explicit size is kept.
func TestTheURLsConnectionsAreDividedAmongPools(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	most := func(s *postgres.Store) string {
		t.Helper()
		var sizes []string
		for _, n := range s.PoolSizes() {
			sizes = append(sizes, fmt.Sprint(n))
		}
		return strings.Join(sizes, " ")
	}
	for _, c := range []struct {
		poolMax string
		given   postgres.Connections
		want    string // of control, workers, readers
	}{
		{"", postgres.Connections{}, "4 8 8"},
		{"", postgres.Connections{Workers: 20}, "4 20 8"},
		{"20", postgres.Connections{}, "4 8 8"},
		{"10", postgres.Connections{}, "2 4 4"},
		{"3", postgres.Connections{}, "1 1 1"},
		{"30", postgres.Connections{Readers: 4}, "8 18 4"},
	} {
		at := url
		if c.poolMax != "" {
			at += "&pool_max_conns=" + c.poolMax
		}
		if got := most(openWith(t, at, postgres.Options{Connections: c.given})); got != c.want {
			t.Errorf("%s of the URL and %+v: %s, want %s", c.poolMax, c.given, got, c.want)
		}
	}
	_, err := postgres.Open(t.Context(), url+"&pool_max_conns=4", postgres.Options{
		Connections: postgres.Connections{Workers: 3}})
	if err == nil || !strings.Contains(err.Error(), "raise it to 5 or more") {
		t.Errorf("too few connections: %v", err)
	}
}

// A statement whose caller has no time left drops no other connection of its pool: callers that
// wait together would otherwise starve each other. An unanswered statement that had a second drops
// them all, for they are likely dead too.
func TestAStatementWithoutTimeKeepsThePoolsConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given time.Duration
		kept  bool
	}{"given no time": {100 * time.Millisecond, true}, "given time": {3 * time.Second,
		false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newDatabase(t)
			s := openWith(t, url, postgres.Options{Connections: postgres.Connections{Readers: 2}})
			blocker := connect(t, url)
			defer blocker.Close(context.Background())
			waiting := func() []int32 {
				return one[[]int32](t, url,
					`SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
					WHERE datname = current_database() AND application_name = 'argosy' AND wait_event_type = 'Lock'`)
			}
			read := func(ctx context.Context) error {
				_, _, err := s.Readers().Views.Problems(ctx, view.Scope{}, view.Filter{}, view.Page{
					Limit: 10})
				return err
			}
			// behind reads while the table is locked, and returns the process of the server that
			// does it.
			behind := func(meanwhile func()) int32 {
				tx := must(blocker.Begin(t.Context()))(t)
				_, err := tx.Exec(t.Context(), `LOCK TABLE problems IN ACCESS EXCLUSIVE MODE`)
				check(t, err)
				done := make(chan error, 1)
				go func() { done <- read(t.Context()) }()
				until(t, "a read to wait", func() bool { return len(waiting()) == 1 })
				pid := waiting()[0]
				meanwhile()
				check(t, tx.Rollback(t.Context()))
				check(t, <-done)
				return pid
			}
			first := behind(func() {
				ctx, cancel := context.WithTimeout(t.Context(), c.given)
				defer cancel()
				if read(ctx) == nil {
					t.Error("a locked table was read")
				}
			})
			if second := behind(func() {}); (second == first) != c.kept {
				t.Errorf("read by process %d and then by %d; want the same: %v", first, second,
					c.kept)
			}
		})
	}
}
