package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/pacing"
)

const (
	jobKind        = "look"
	jobQueue       = "looks"
	maxRunningJobs = 4 // at once

	jobTime     = 2 * time.Minute  // of one job
	jobRescue   = 3 * time.Minute  // after which a job of a dead replica runs again
	jobGrace    = 10 * time.Second // for jobs to end when the work stops
	jobPoll     = 5 * time.Second  // for jobs whose notification was lost
	jobPause    = time.Second      // before the retry of a key that is being worked on
	busyAtMost  = time.Hour        // longest pause that a Git host may ask for
	busyAtLeast = time.Second
	keepDone    = time.Hour // finished jobs

	// one of them listens. They are kept apart, so that neither River nor a flood of status takes
	// the other's
	riverConns   = 4
	restorePause = 15 * time.Second
	tidyPause    = time.Hour
	startPause   = 30 * time.Second // at most, between attempts to start
)

// sqlInsertJobs is followed by FROM and what has a key and a priority. Ten tries are some four
// hours, by River's pauses: 1 s, 16 s, 81 s, … each a fourth power.
const sqlInsertJobs = `
	INSERT INTO river_job (args, kind, queue, priority, max_attempts)
	SELECT jsonb_build_object('key', key), '` + jobKind + `', '` + jobQueue + `', priority, 10`

// jobArgs are a job's arguments: the key alone, no content.
type jobArgs struct {
	Key string `json:"key"`
}

// Kind names the jobs to River.
func (jobArgs) Kind() string { return jobKind }

// Work runs review jobs until ctx ends: at most four at once, never two of the same key, resyncs
// last. It is for the replica that holds the reconciler's lease. A *forge.Busy postpones a job
// until then (an hour at most). Other errors retry it, ten times in all with growing pauses; after
// that the next Accept or Ask of its key runs it again. A panic fails its job alone. A job has two
// minutes.
//
// When ctx ends, jobs get ten seconds to end. Then their context is cancelled, and the next leader
// runs them again. A job whose replica died runs again after three minutes. Work returns an error
// only when it cannot work at all.
func (s *Pulls) Work(ctx context.Context, do func(context.Context, forge.Recheck) error) error {
	pool, err := (pool{size: riverConns, patience: workPatience, acquire: 2 * workPatience}).open(
		context.WithoutCancel(ctx), s.base, s.tracer, &atomic.Int64{})
	if err != nil {
		return fmt.Errorf("work: %w", err)
	}
	defer pool.Close()
	workers, err := riverWorkers(&jobRunner{store: s, do: do, busy: map[string]bool{}}, nil)
	if err != nil {
		return fmt.Errorf("work: %w", err)
	}
	for failed := 0; ctx.Err() == nil; failed++ {
		client, err := river.NewClient(riverpgxv5.New(pool), riverConfig(workers, s.log))
		if err != nil {
			return fmt.Errorf("work: %w", err)
		}
		if err = client.Start(ctx); err == nil {
			s.maintain(ctx, pool)
			<-client.Stopped()
			break
		}
		if ctx.Err() == nil {
			s.log.Warn("webhook deliveries are kept and not worked on; trying again", "error", err)
			pacing.SleepAbout(ctx, min(100*time.Millisecond<<min(failed, 10), startPause))
		}
	}
	return nil
}

func riverConfig(workers *river.Workers, log *slog.Logger) *river.Config {
	return &river.Config{
		Schema: schema, Logger: slog.New(onlyWarnings{log.Handler()}),
		Workers: workers, Queues: map[string]river.QueueConfig{
			jobQueue: {MaxWorkers: maxRunningJobs}},
		FetchPollInterval: jobPoll,
		JobTimeout:        jobTime, RescueStuckJobsAfter: jobRescue, SoftStopTimeout: jobGrace,
		CompletedJobRetentionPeriod: keepDone,
	}
}

// maintain keeps the inbox in order until ctx ends.
func (s *Pulls) maintain(ctx context.Context, pool *pgxpool.Pool) {
	var tidied time.Time
	for ctx.Err() == nil {
		if _, err := pool.Exec(ctx, sqlRestoreJobs); err != nil && ctx.Err() == nil {
			s.log.Warn("failed to find review jobs without a River job; trying again", "error", err)
			if errors.Is(plain(err), ErrReadOnly) {
				pool.Reset()
			}
		}
		if time.Since(tidied) >= tidyPause {
			if _, err := s.Tidy(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("old deliveries are not dropped; trying again in an hour", "error", err)
			}
			tidied = time.Now()
		}
		pacing.SleepAbout(ctx, restorePause)
	}
}

// wake notifies the leader of a job, in a transaction of its own after that of the job: see Notify.
// The next poll finds the job if the notification fails or is lost.
func (s *Pulls) wake(ctx context.Context) {
	_, err := s.work.Exec(ctx, `SELECT pg_notify('`+schema+`.river_insert', '{"queue": "`+jobQueue+
		`"}')`)
	if err != nil {
		s.log.Debug("a new job waits for the next poll", "error", err)
	}
}

// looker runs the jobs of one replica.
type jobRunner struct {
	river.WorkerDefaults[jobArgs]
	store *Pulls
	do    func(context.Context, forge.Recheck) error

	mu   sync.Mutex
	busy map[string]bool // keys of running jobs
}

// Work does one job.
func (w *jobRunner) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	key := job.Args.Key
	if !w.enter(key) {
		return river.JobSnooze(jobPause)
	}
	defer w.leave(key)
	look, known, err := w.store.beginJob(ctx, key, job.ID)
	if err == nil && known {
		err = w.run(ctx, look)
	}
	return w.end(ctx, job, err)
}

func (w *jobRunner) enter(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[key] {
		return false
	}
	w.busy[key] = true
	return true
}

func (w *jobRunner) leave(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, key)
}

func (w *jobRunner) run(ctx context.Context, l forge.Recheck) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return w.do(ctx, l)
}

// errJob is all that River stores of a failure: the error may name tenants, which River's tables
// must not.
var errJob = errors.New("the review job failed; the log has the error")

// end returns the outcome of a job to River.
func (w *jobRunner) end(ctx context.Context, job *river.Job[jobArgs], err error) error {
	var busy *forge.Busy
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled): // the work stops
		return ctx.Err()
	case errors.As(err, &busy):
		pause := min(max(time.Until(busy.Until), busyAtLeast), busyAtMost)
		w.store.log.Info("the Git host is busy; postponed a review job", "job", job.Args.Key, "for",
			pause,
			"error", busy.Err)
		return river.JobSnooze(pause)
	case job.Attempt >= job.MaxAttempts:
		w.store.log.Error(
			"a review job failed for good; the next delivery or resync requests it again",
			"job", job.Args.Key, "tries", job.Attempt, "error", err)
	default:
		w.store.log.Warn("a review job failed; trying again", "job", job.Args.Key, "tries",
			job.Attempt, "error", err)
	}
	return errJob
}
