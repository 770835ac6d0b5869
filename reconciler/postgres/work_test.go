package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/reconciler/postgres"
)

// desk runs review jobs as a test directs, and records them.
type desk struct {
	t    *testing.T
	s    *postgres.Store
	stop func()

	mu      sync.Mutex
	begun   []string
	running map[string]int
	most    int // at once
	twice   bool
	answer  func(context.Context, forge.Recheck) error
}

// work starts Work, which ends with the test.
func work(t *testing.T, s *postgres.Store,
	answer func(context.Context, forge.Recheck) error) *desk {
	t.Helper()
	d := &desk{t: t, s: s, running: map[string]int{}, answer: answer}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Pulls.Work(ctx, d.do) }()
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(d.stop)
	return d
}

func (d *desk) do(ctx context.Context, l forge.Recheck) error {
	key := l.Key()
	d.mu.Lock()
	d.begun = append(d.begun, key)
	d.running[key]++
	d.twice = d.twice || d.running[key] > 1
	all := 0
	for _, n := range d.running {
		all += n
	}
	d.most = max(d.most, all)
	answer := d.answer
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running[key]--
	}()
	return answer(ctx, l)
}

func (d *desk) count(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, k := range d.begun {
		if k == key || key == "" {
			n++
		}
	}
	return n
}

func (d *desk) set(answer func(context.Context, forge.Recheck) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
}

func nothing(context.Context, forge.Recheck) error { return nil }

// once is a job that ends when release is closed.
func once(release chan struct{}) func(context.Context, forge.Recheck) error {
	return func(ctx context.Context, _ forge.Recheck) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *desk) seen(key string, n int) {
	d.t.Helper()
	until(d.t, "job "+key, func() bool { return d.count(key) >= n })
}

func ask(t *testing.T, s *postgres.Store, jobs ...forge.Recheck) {
	t.Helper()
	check(t, s.Pulls.Ask(t.Context(), jobs))
}

// book is a log that a test reads.
type testLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *testLog) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *testLog) has(words ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.b.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

func openLogged(t *testing.T, url string) (*postgres.Store, *testLog) {
	b := &testLog{}
	return openWith(t, url, postgres.Options{Log: slog.New(slog.NewTextHandler(b, nil))}), b
}

// A job that one replica requests runs on the working replica at once, not at the next poll.
func TestRequestedJobsRunAtOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	other := open(t, url)
	group := forge.Recheck{Kind: forge.RecheckGroup, Head: revision(1),
		Ref: "refs/heads/gh-readonly-queue/main/pr-7"}
	got := make(chan forge.Recheck, 100)
	d := work(t, open(t, url), func(_ context.Context, l forge.Recheck) error {
		got <- l
		return nil
	})
	ask(t, other, sweep)
	<-got
	until(t, "the work to listen", func() bool { return listening(t, url) })
	began := time.Now()
	const n = 10
	for i := range n {
		must(other.Pulls.Accept(t.Context(), delivery(i), []forge.Recheck{group}))(t)
		if l := <-got; l != group {
			t.Fatalf("%+v", l)
		}
	}
	if took := time.Since(began); took > n*time.Second/2 {
		t.Errorf("%d jobs one after the other took %s: they waited for polls", n, took)
	}
	d.stop()
	expect(t, url, `SELECT count(*) FROM river_job WHERE state <> 'completed'`, 0)
	expect(t, url, countWanted, 0)
}

func listening(t *testing.T, url string) bool {
	t.Helper()
	return one[bool](t, url,
		`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%')`)
}

func TestTheBranchIsFirstAndSweepsAreLast(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ask(t, s, sweep)
	for i := range 9 {
		ask(t, s, pullJob(i+1))
	}
	ask(t, s, branch)
	release := make(chan struct{})
	d := work(t, s, once(release))
	d.seen("", 4)
	if d.count("branch") != 1 || d.count("sweep") != 0 {
		t.Errorf("the first four: %v", d.begun)
	}
	close(release)
	d.seen("", 11)
	d.stop()
	// those that River fetches together begin together
	if slices.Index(d.begun, "sweep") < 7 || d.most != 4 {
		t.Errorf("in this order, %d at once: %v", d.most, d.begun)
	}
}

// A job that is requested while it runs, runs once more afterwards.
func TestJobOfTheSameKeyWaitsForTheRunningOne(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	release := make(chan struct{})
	d := work(t, s, once(release))
	ask(t, s, pullJob(7))
	d.seen("pull/7", 1)
	for range 5 {
		ask(t, s, pullJob(7))
	}
	expect(t, url, countJobs, 2)
	until(t, "the second job to be put off", func() bool {
		return one[bool](t, url,
			`SELECT EXISTS (SELECT FROM river_job WHERE (metadata->>'snoozes')::int > 0)`)
	})
	ask(t, s, pullJob(8))
	d.seen("pull/8", 1) // others continue meanwhile
	expect(t, url, countWanted, 1)
	close(release)
	d.seen("pull/7", 2)
	d.stop()
	if d.twice || d.count("pull/7") != 2 {
		t.Errorf("two of the same at once: %v; %v", d.twice, d.begun)
	}
}

func TestJobOfABusyHostRunsAgainAtItsTime(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	var free time.Time
	d := work(t, s, nothing)
	d.set(func(context.Context, forge.Recheck) error {
		d.set(nothing)
		free = time.Now().Add(2 * time.Second)
		return &wrapped{&forge.Busy{Until: free, Err: errors.New("rate limit of tenant acme")}}
	})
	ask(t, s, pullJob(7))
	d.seen("pull/7", 2)
	if early := time.Until(free); early > 0 {
		t.Errorf("it was asked %s too early", early)
	}
	d.set(func(context.Context, forge.Recheck) error {
		return &forge.Busy{Until: time.Now().Add(1000 * time.Hour), Err: errors.New("no")}
	})
	ask(t, s, pullJob(8))
	until(t, "the job to be postponed", func() bool {
		return one[bool](t, url,
			`SELECT EXISTS (SELECT FROM river_job WHERE args = '{"key": "pull/8"}' AND state = 'scheduled' AND attempt = 0
			AND scheduled_at BETWEEN now() + interval '50 minutes' AND now() + interval '61 minutes')`)
	})
	d.set(nothing)
	ask(t, s, pullJob(8)) // a new delivery does not wait for that
	d.seen("pull/8", 2)
	until(t, "no job to be left", func() bool {
		return one[int](t, url,
			`SELECT count(*) FROM river_job WHERE args = '{"key": "pull/8"}' AND state <> 'completed'`) == 0
	})
}

// wrapped is an error around another.
type wrapped struct{ err error }

func (w *wrapped) Error() string { return "review: " + w.err.Error() }
func (w *wrapped) Unwrap() error { return w.err }

func TestFailedJobIsRetriedAndItsErrorIsNotStored(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, log := openLogged(t, url)
	d := work(t, s, nothing)
	d.set(func(context.Context, forge.Recheck) error {
		d.set(nothing)
		return errors.New("tenant acme\x00 does \xff not exist")
	})
	ask(t, s, pullJob(7))
	d.seen("pull/7", 2)
	d.stop()
	expect(t, url, `SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 2`, 1)
	expect(t, url, `SELECT count(*) FROM river_job j WHERE to_jsonb(j)::text LIKE '%acme%'`, 0)
	if !log.has("a review job failed; trying again", "job=pull/7", "tenant acme") {
		t.Errorf("the log:\n%s", log.b.String())
	}
}

func TestPanicFailsItsJobAlone(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, log := openLogged(t, url)
	d := work(t, s, nothing)
	d.set(func(_ context.Context, l forge.Recheck) error {
		if l.Number == 7 && d.count("pull/7") == 1 {
			panic("tenant acme")
		}
		return nil
	})
	ask(t, s, pullJob(7), pullJob(8))
	d.seen("pull/8", 1)
	d.seen("pull/7", 2)
	d.stop()
	expect(t, url, `SELECT count(*) FROM river_job WHERE state = 'completed'`, 2)
	expect(t, url, `SELECT count(*) FROM river_job j WHERE to_jsonb(j)::text LIKE '%acme%'`, 0)
	if !log.has("panic: tenant acme", "job=pull/7") {
		t.Errorf("the log:\n%s", log.b.String())
	}
}

// After ten attempts a job is discarded, and the next request starts a new one.
func TestDiscardedJobCanBeRequestedAgain(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, log := openLogged(t, url)
	ask(t, s, pullJob(7))
	exec(t, url, `UPDATE river_job SET attempt = 9`)
	d := work(t, s, func(context.Context, forge.Recheck) error {
		return errors.New("no such Git host")
	})
	until(t, "the job to be discarded", func() bool {
		return one[int](t, url, `SELECT count(*) FROM river_job WHERE state = 'discarded'`) == 1
	})
	if !log.has("ERROR", "failed for good", "job=pull/7", "tries=10", "no such Git host") {
		t.Errorf("the log:\n%s", log.b.String())
	}
	d.set(nothing)
	must(s.Pulls.Accept(t.Context(), delivery(1), []forge.Recheck{pullJob(7)}))(t)
	d.seen("pull/7", 2)
}

// However often a job fails and is requested, one retry of it is pending.
func TestFailingJobHasOneRetry(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	d := work(t, s, func(context.Context, forge.Recheck) error { return errors.New("no") })
	for i := range 5 {
		ask(t, s, pullJob(7))
		d.seen("pull/7", i+1)
		until(t, "the job to wait", func() bool {
			return one[int](t, url,
				`SELECT count(*) FROM river_job WHERE state NOT IN ('running', 'completed')`) > 0
		})
		exec(t, url,
			`UPDATE river_job SET state = 'retryable', scheduled_at = now() + interval '1 hour' WHERE state IN ('available', 'retryable')`)
	}
	until(t, "one job to be left", func() bool {
		return one[int](t, url,
			`SELECT count(*) FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled')`) == 1
	})
}

// A requested subject whose job was deleted before it started gets another job.
func TestRequestWithoutItsJobGetsAnotherJob(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ask(t, s, pullJob(7), pullJob(8), branch)
	exec(t, url, `DELETE FROM river_job WHERE args = '{"key": "pull/7"}';
		UPDATE river_job SET state = 'discarded', finalized_at = now() WHERE args = '{"key": "branch"}'`)
	d := work(t, s, nothing)
	d.seen("", 3)
	d.stop()
	for _, key := range []string{"pull/7", "pull/8", "branch"} {
		if n := d.count(key); n != 1 {
			t.Errorf("%s: %d looks", key, n)
		}
	}
}

// The replica that ran a job was killed: the next working replica runs it again.
func TestJobOfADeadReplicaRunsAgain(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ask(t, s, pullJob(7), pullJob(8))
	exec(t, url, `UPDATE looks SET wanted = false;
		UPDATE river_job SET state = 'running', attempt = 1, attempted_by = '{dead}', attempted_at = now() - CASE args->>'key'
			WHEN 'pull/7' THEN interval '4 minutes' ELSE interval '1 minute' END`)
	d := work(t, s, nothing)
	d.seen("pull/7", 1)
	d.stop()
	if n := d.count("pull/8"); n != 0 {
		t.Errorf("a job that may still run runs again")
	}
}

// When the work stops, jobs get time to end; the rest are cancelled, and the next worker runs them
// again.
func TestWorkThatStops(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	ask(t, s, pullJob(7), pullJob(8))
	quick := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var begun sync.WaitGroup
	begun.Add(2)
	done := make(chan error, 1)
	var cancelled, ended time.Time
	go func() {
		done <- s.Pulls.Work(ctx, func(ctx context.Context, l forge.Recheck) error {
			begun.Done()
			if l.Number == 7 {
				err := once(quick)(ctx, l)
				ended = time.Now()
				return err
			}
			<-ctx.Done()
			cancelled = time.Now()
			return errors.New("interrupted")
		})
	}()
	begun.Wait()
	stopped := time.Now()
	cancel()
	ask(t, s, sweep) // for the next worker
	close(quick)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if grace := cancelled.Sub(stopped); grace < 9*time.Second || grace > 90*time.Second ||
		ended.IsZero() {
		t.Errorf("%s of grace", grace)
	}
	expect(t, url,
		`SELECT count(*) FROM river_job WHERE args = '{"key": "pull/7"}' AND state = 'completed'`,
		1)
	expect(t, url,
		`SELECT count(*) FROM river_job WHERE args = '{"key": "pull/8"}' AND state = 'available' AND attempt = 0`, 1)
	until(t, "the listener to end", func() bool { return !listening(t, url) })
	next := work(t, open(t, url), nothing)
	next.seen("pull/8", 1)
	next.seen("sweep", 1)
}

// River has few connections of its own.
func TestWorkTakesNoConnectionOfTheStore(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := openWith(t, url, postgres.Options{Connections: postgres.Connections{Workers: 1}})
	sessions := func() int {
		return one[int](t, url,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'argosy'`)
	}
	d := work(t, s, func(ctx context.Context, l forge.Recheck) error {
		_, _, err := s.Pulls.PullRecord(ctx, l.Number)
		return err
	})
	for i := range 40 {
		ask(t, s, pullJob(i+1))
	}
	d.seen("", 40)
	if n := sessions(); n > 1+2+4 {
		t.Errorf("%d sessions", n)
	}
	d.stop()
	until(t, "River's sessions to end", func() bool { return sessions() <= 1+2 })
	if n := d.count(""); n != 40 {
		t.Errorf("%d looks", n)
	}
}

// Sessions are terminated at random: no job is lost.
func TestWorkSurvivesLostConnections(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	d := work(t, s, nothing)
	for i := range 10 {
		exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'argosy' AND random() < 0.5`)
		for err := errors.New(""); err != nil; {
			err = s.Pulls.Ask(t.Context(), []forge.Recheck{pullJob(i + 1)})
		}
	}
	for i := range 10 {
		d.seen(pullJob(i+1).Key(), 1)
	}
}

// The database cannot be reached when the work begins.
func TestWorkWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, log := openLogged(t, url)
	ask(t, s, branch)
	exec(t, databaseURL(t, "postgres"), `ALTER DATABASE `+databaseOf(url)+
		` ALLOW_CONNECTIONS false`)
	d := work(t, s, nothing)
	until(t, "a warning", func() bool { return log.has("webhook deliveries are kept") })
	exec(t, databaseURL(t, "postgres"), `ALTER DATABASE `+databaseOf(url)+` ALLOW_CONNECTIONS true`)
	d.seen("branch", 1)
}
