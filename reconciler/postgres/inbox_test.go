package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
)

var (
	branch = forge.Recheck{Kind: forge.RecheckBranch}
	sweep  = forge.Recheck{Kind: forge.RecheckAll}
)

func pullJob(n int) forge.Recheck { return forge.Recheck{Kind: forge.RecheckPull, Number: n} }

func delivery(n int) forge.Delivery {
	return forge.Delivery{ID: fmt.Sprintf("72d3162e-cc78-11e3-81ab-%012d", n), Event: "push"}
}

const (
	countJobs       = `SELECT count(*) FROM river_job WHERE kind = 'look'`
	countDeliveries = `SELECT count(*) FROM deliveries`
	countWanted     = `SELECT count(*) FROM looks WHERE wanted`
)

func expect(t testing.TB, url, sql string, want int) {
	t.Helper()
	if got := one[int](t, url, sql); got != want {
		t.Errorf("%s: %d, want %d", sql, got, want)
	}
}

func TestDeliveryIsTakenOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	var fresh atomic.Int64
	var senders sync.WaitGroup
	for range 16 {
		senders.Go(func() {
			for range 1000 / 16 {
				is, err := s.Pulls.Accept(context.Background(), delivery(1), []forge.Recheck{
					branch, pullJob(7)})
				if err != nil {
					t.Error(err)
				}
				if is {
					fresh.Add(1)
				}
			}
		})
	}
	senders.Wait()
	if fresh.Load() != 1 {
		t.Errorf("it was fresh %d times", fresh.Load())
	}
	expect(t, url, countDeliveries, 1)
	expect(t, url, countJobs, 2)
	s.Close()
	exec(t, url, `UPDATE looks SET wanted = false; DELETE FROM river_job`)
	if is := must(open(t, url).Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{branch}))(
		t); is {
		t.Error("it is fresh once more after a restart")
	}
	expect(t, url, countJobs, 0)
}

func TestManyDeliveriesAboutOneThingLeaveOneJob(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	const n, senders = 10_000, 8
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			for j := range n / senders {
				if is, err := s.Pulls.Accept(context.Background(), delivery(i*n+j), []forge.Recheck{
					branch}); err != nil || !is {
					t.Errorf("delivery %d: %v, %v", i*n+j, is, err)
					return
				}
			}
		})
	}
	all.Wait()
	expect(t, url, countDeliveries, n)
	expect(t, url, countJobs, 1)
}

// Two deliveries ask for the same at the same moment: the one that comes second finds it wanted.
func TestJobThatAnotherDeliveryRequestedMeanwhile(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	check(t, s.Pulls.Ask(t.Context(), []forge.Recheck{branch}))
	exec(t, url, `UPDATE looks SET wanted = false; DELETE FROM river_job`)
	conn := connect(t, url)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE looks SET wanted = true`)
	check(t, err)
	taken := make(chan error, 1)
	go func() {
		_, err := s.Pulls.Accept(context.Background(), delivery(1), []forge.Recheck{branch, sweep})
		taken <- err
	}()
	until(t, "the delivery to wait", func() bool { return waiting(t, url) == 1 })
	check(t, tx.Commit(t.Context()))
	check(t, <-taken)
	// the other's
	expect(t, url, `SELECT count(*) FROM river_job WHERE args = '{"key": "branch"}'`, 0)
	expect(t, url, countJobs, 1)
}

// In a burst no delivery waits for another: Accept does not lock a wanted job.
func TestWantedJobIsNotLocked(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	check(t, s.Pulls.Ask(t.Context(), []forge.Recheck{branch}))
	conn := connect(t, url)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	check(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), `SELECT FROM looks FOR UPDATE`)
	check(t, err)
	must(s.Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{branch}))(t)
	expect(t, url, countDeliveries, 1)
}

// waiting is how many of the store's sessions wait for a lock.
func waiting(t testing.TB, url string) int {
	t.Helper()
	return one[int](t, url,
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'argosy' AND wait_event_type = 'Lock'`)
}

// Requests for several jobs in any order never deadlock.
func TestDeliveriesAboutTheSameThingsInOtherOrders(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	var tries roundTrips
	s := openWith(t, url, postgres.Options{Tracer: &tries})
	var all sync.WaitGroup
	jobs := []forge.Recheck{branch, sweep}
	for i := range 20 {
		jobs = append(jobs, pullJob(i+1))
	}
	for i := range 8 {
		all.Go(func() {
			mine := slices.Clone(jobs)
			if i%2 == 0 {
				slices.Reverse(mine)
			}
			for j := range 20 {
				if _, err := s.Pulls.Accept(context.Background(), delivery(i*100+j),
					mine); err != nil {
					t.Error(err)
				}
				exec(t, url,
					`UPDATE looks SET wanted = false WHERE key IN (SELECT key FROM looks ORDER BY key LIMIT 11 FOR UPDATE)`)
			}
		})
	}
	all.Wait()
	expect(t, url, countDeliveries, 160)
	deadlocks := one[int](t, url,
		`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
	if deadlocks != 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
}

func TestJobIsRequestedAgainOnceItHasBegun(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	for i := range 3 {
		must(
			s.Pulls.Accept(t.Context(), delivery(i), []forge.Recheck{branch, branch, pullJob(7)}))(
			t)
		check(t, s.Pulls.Ask(t.Context(), []forge.Recheck{pullJob(7)}))
	}
	expect(t, url, countJobs, 2)
	// as the job's first act does
	exec(t, url, `UPDATE looks SET wanted = false WHERE key = 'branch'`)
	check(t, s.Pulls.Ask(t.Context(), []forge.Recheck{branch, pullJob(7)}))
	expect(t, url, countJobs, 3)
	expect(t, url,
		`SELECT count(*) FROM river_job WHERE args = '{"key": "branch"}' AND priority = 1`, 2)
	expect(t, url,
		`SELECT count(*) FROM river_job WHERE args = '{"key": "pull/7"}' AND priority = 3`, 1)
	expect(t, url, countDeliveries, 3)
}

func TestDeliveryOfAStrangeNameIsRefused(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	many := make([]forge.Recheck, 1001)
	for i := range many {
		many[i] = pullJob(i + 1)
	}
	for name, c := range map[string]struct {
		delivery forge.Delivery
		jobs     []forge.Recheck
	}{
		"no id":      {forge.Delivery{Event: "push"}, nil},
		"long id":    {forge.Delivery{ID: strings.Repeat("a", 129), Event: "push"}, nil},
		"quote":      {forge.Delivery{ID: "a'b", Event: "push"}, nil},
		"line":       {forge.Delivery{ID: "a\n", Event: "push"}, nil},
		"NUL":        {forge.Delivery{ID: "a\x00", Event: "push"}, nil},
		"no event":   {forge.Delivery{ID: "a"}, nil},
		"long event": {forge.Delivery{ID: "a", Event: strings.Repeat("a", 65)}, nil},
		"event":      {forge.Delivery{ID: "a", Event: "Push!"}, nil},
		"no job":     {delivery(1), []forge.Recheck{{}}},
		"long job": {
			delivery(1), []forge.Recheck{
				{Kind: forge.RecheckHead, Head: fleet.Revision(strings.Repeat("a", 200))}}},
		"job of NUL": {delivery(1), []forge.Recheck{{Kind: forge.RecheckHead, Head: "\x00"}}},
		"many jobs":  {delivery(1), many},
	} {
		if fresh, err := s.Pulls.Accept(t.Context(), c.delivery, c.jobs); err == nil || fresh {
			t.Errorf("%s: fresh %v, %v", name, fresh, err)
		}
	}
	expect(t, url, countDeliveries, 0)
	check(t, s.Pulls.Ask(t.Context(), append(many, many...))) // a resync of many
	expect(t, url, countJobs, len(many))
	longest := forge.Delivery{ID: strings.Repeat("aZ0-", 32), Event: "pull_request"}
	group := forge.Recheck{Kind: forge.RecheckGroup, Head: revision(1),
		Ref: "refs/heads/\x00gh-readonly-queue/\xff"}
	if !must(s.Pulls.Accept(t.Context(), longest, []forge.Recheck{group}))(t) {
		t.Error("the longest id")
	}
}

// The database stores a delivery as a whole or not at all, and the redelivery works.
func TestDeliveryThatWasNotStoredWorksAgain(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	check(t, s.Pulls.Ask(t.Context(), []forge.Recheck{pullJob(7)}))
	exec(t, url, `UPDATE looks SET wanted = false; DELETE FROM river_job`)
	conn := connect(t, url)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM looks FOR UPDATE`)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := s.Pulls.Accept(ctx, delivery(1), []forge.Recheck{branch, pullJob(7)})
		failed <- err
	}()
	until(t, "the delivery to wait", func() bool { return waiting(t, url) == 1 })
	cancel() // the process dies, or the Git host gives up
	if err := <-failed; err == nil {
		t.Fatal("it was stored")
	}
	until(t, "the session to end", func() bool { return waiting(t, url) == 0 })
	check(t, tx.Rollback(t.Context()))
	expect(t, url, countDeliveries, 0)
	expect(t, url, countWanted, 0)
	expect(t, url, countJobs, 0)
	if !must(s.Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{branch, pullJob(7)}))(t) {
		t.Error("the redelivery is not fresh")
	}
	expect(t, url, countJobs, 2)
}

// Sessions are ended at random while deliveries come in: each has its effect once.
func TestTerminatedSessionsLoseNoDelivery(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	conn := connect(t, url)
	defer conn.Close(context.Background())
	killer.Go(func() {
		for ctx.Err() == nil {
			_, err := conn.Exec(ctx,
				`SELECT pg_terminate_backend(pid), pg_sleep(0.02) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'argosy' AND random() < 0.3`)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	const n = 300
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			for j := range n / 4 {
				for tries := 0; ; tries++ { // the Git host delivers again
					if _, err := s.Pulls.Accept(context.Background(), delivery(i*n+j),
						[]forge.Recheck{
							pullJob(i*n + j + 1)}); err == nil {
						break
					} else if tries == 100 {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	senders.Wait()
	cancel()
	killer.Wait()
	expect(t, url, countDeliveries, n)
	expect(t, url, countWanted, n)
	expect(t, url, countJobs, n)
}

// Accept inserts the same job as River.
func TestJobIsOneOfRiversOwn(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	check(t, s.Pulls.Ask(t.Context(), []forge.Recheck{pullJob(7)}))
	client, err := river.NewClient(riverpgxv5.New(nil), &river.Config{Schema: "argosy"})
	check(t, err)
	conn := connect(t, url)
	defer conn.Close(context.Background())
	check(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := client.InsertTx(t.Context(), tx, reviewJob{Key: "pull/7"}, &river.InsertOpts{
			Queue: "looks", Priority: 3, MaxAttempts: 10})
		return err
	}))
	rows, err := conn.Query(t.Context(),
		`SELECT (to_jsonb(j) - '{id,created_at,scheduled_at}'::text[])::text FROM river_job j ORDER BY id`)
	check(t, err)
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	if len(jobs) != 2 || jobs[0] != jobs[1] {
		t.Errorf("ours and River's:\n%s", strings.Join(jobs, "\n"))
	}
}

type reviewJob struct {
	Key string `json:"key"`
}

func (reviewJob) Kind() string { return "look" }

// A new job is notified after the transaction, a wanted job is not.
func TestOnlyANewJobIsNotified(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	conn := connect(t, url)
	defer conn.Close(context.Background())
	_, err := conn.Exec(t.Context(), `LISTEN "argosy.river_insert"`)
	check(t, err)
	must(s.Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{branch}))(t)
	n, err := conn.WaitForNotification(t.Context())
	check(t, err)
	if n.Payload != `{"queue": "looks"}` {
		t.Errorf("payload %s", n.Payload)
	}
	must(s.Pulls.Accept(t.Context(), delivery(2), []forge.Recheck{branch}))(t)
	check(t, s.Pulls.Ask(t.Context(), []forge.Recheck{branch}))
	must(s.Pulls.Accept(t.Context(), delivery(2), []forge.Recheck{sweep}))(t)
	exec(t, url, `SELECT pg_notify('argosy.river_insert', 'last')`)
	if n, err = conn.WaitForNotification(t.Context()); err != nil || n.Payload != "last" {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestAcceptIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	var trips roundTrips
	s := openWith(t, newDatabase(t), postgres.Options{Connections: postgres.Connections{Workers: 1},
		Tracer: &trips})
	accept := func(n int, jobs ...forge.Recheck) int64 {
		before := trips.n.Load()
		must(s.Pulls.Accept(t.Context(), delivery(n), jobs))(t)
		return trips.n.Load() - before
	}
	accept(1, branch) // prepares its statements
	if n := accept(2, branch); n != 1 {
		t.Errorf("a wanted job: %d round trips", n)
	}
	if n := accept(3, sweep, pullJob(1), pullJob(2)); n != 2 {
		t.Errorf("new jobs: %d round trips, one of them to notify", n)
	}
	if n := accept(3, sweep); n != 1 {
		t.Errorf("a stored delivery: %d round trips", n)
	}
}

func TestTidyDropsWhatIsOldAndNothingElse(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ctx := t.Context()
	for i := range 4 {
		must(s.Pulls.Accept(ctx, delivery(i), []forge.Recheck{pullJob(i + 1)}))(t)
	}
	exec(t, url,
		`UPDATE looks SET wanted = false WHERE key <> 'pull/3'; UPDATE looks SET at = now() - interval '31 days' WHERE key <> 'pull/1';
		UPDATE deliveries SET at = now() - interval '31 days' WHERE id LIKE '%2'; UPDATE deliveries SET at = now() - interval '29 days' WHERE id LIKE '%3'`)
	for number, heads := range map[int][]int{1: {1, 2, 3}, 2: {4}} {
		for _, head := range heads {
			check(t, s.Pulls.SavePull(ctx, pull(number, forge.PullMerged, "acme")))
			check(t, s.Pulls.SaveReviewed(ctx, reviewed(number, head, "a.yaml")))
		}
	}
	exec(t, url,
		`UPDATE reviewed_plans SET saved_at = now() - interval '91 days' WHERE head <> $1;`,
		string(revision(2)))
	exec(t, url, `UPDATE reviewed_plans SET saved_at = now() - interval '89 days' WHERE head = $1;`,
		string(revision(2)))
	exec(t, url, `UPDATE pulls SET changed_at = now() - interval '91 days' WHERE number = 2`)
	if n := must(s.Pulls.Tidy(ctx))(t); n != 1+2+2+1 {
		t.Errorf("%d rows are dropped", n)
	}
	for sql, want := range map[string]string{
		`SELECT string_agg(right(id, 1), ' ' ORDER BY id) FROM deliveries`: "0 1 3",
		`SELECT string_agg(key, ' ' ORDER BY key) FROM looks`:              "pull/1 pull/3",
		`SELECT string_agg(number::text, ' ') FROM pull_touches`:           "1",

		`SELECT string_agg(number || '/' || right(head, 1), ' ' ORDER BY head) FROM reviewed_plans`: "1/2 2/4",
	} {
		if got := one[string](t, url, sql); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	if n := must(s.Pulls.Tidy(ctx))(t); n != 0 {
		t.Errorf("%d rows are dropped once more", n)
	}
}

func TestAPushIsKeptWithTheFirstDeliveryThatReportsIt(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	push := forge.Push{Before: revision(1), After: revision(2), By: forge.Person{
		ID: 7, Login: "alice"}}
	for i, p := range []forge.Push{push, {Before: revision(1), After: revision(2), By: forge.Person{
		ID: 8, Login: "eve"}}, push} {
		d := delivery(i/2 + 1)
		d.Push = &p
		if i == 2 {
			d.ID = delivery(1).ID // stored before: its push does not count
			d.Push = &forge.Push{Before: revision(3), After: revision(4), By: p.By}
		}
		must(s.Pulls.Accept(t.Context(), d, []forge.Recheck{branch}))(t)
	}
	must(s.Pulls.Accept(t.Context(), delivery(9), []forge.Recheck{branch}))(t)
	got := must(open(t, url).Pulls.Pushes(t.Context(), []fleet.Revision{revision(2), revision(4),
		revision(9)}))(t)
	if len(got) != 1 || got[0].At.IsZero() {
		t.Fatalf("%+v", got)
	}
	if got[0].At = push.At; got[0] != push {
		t.Errorf("%+v", got[0])
	}
	check(t, s.Reset(t.Context()))
	expect(t, url, `SELECT count(*) FROM pushes`, 1)
}

// The notice is a part of the delivery's own transaction: the replica that stored it may die at
// once.
func TestAPushIsNotifiedWithTheTransactionThatStoresIt(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	conn := connect(t, url)
	defer conn.Close(context.Background())
	_, err := conn.Exec(t.Context(), `LISTEN argosy`)
	check(t, err)
	push := delivery(1)
	push.Notice = mirror.NoticePushed("a")
	for i := range 2 {
		if fresh := must(s.Pulls.Accept(t.Context(), push, nil))(t); fresh != (i == 0) {
			t.Errorf("try %d: fresh %t", i+1, fresh)
		}
	}
	must(s.Pulls.Accept(t.Context(), delivery(2), []forge.Recheck{pullJob(1)}))(t)
	exec(t, url, `SELECT pg_notify('argosy', 'last')`)
	for _, want := range []string{"pushed a", "last"} {
		if n, err := conn.WaitForNotification(t.Context()); err != nil || n.Payload != want {
			t.Errorf("%+v (%v), not %s", n, err, want)
		}
	}
	expect(t, url, countJobs, 1)
}
