package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

const (
	maxJobs   = 1000 // of one delivery, or in one statement
	maxJobKey = 200  // bytes; the longest names a commit
)

// Accept stores a delivery with its push and its review jobs and sends its notice, all in one
// transaction and one round trip. A delivery stored before does nothing, and fresh is false, also
// if only the answer to an earlier try of this call was lost. A requested job is not requested
// again: a thousand deliveries about one subject leave one job. The cost does not depend on the
// size of the database.
//
// The notice is sent within the transaction, unlike in Notify: a stored push is a notified one. The
// lock that sending takes lasts as long as this short transaction.
func (s *Pulls) Accept(ctx context.Context, d forge.Delivery, jobs []forge.Recheck) (fresh bool,
	err error) {
	if err := d.Validate(); err != nil {
		return false, err
	}
	fresh, err = s.ask(ctx, d, jobs)
	return fresh, wrap(err, "delivery %s", d.ID)
}

// Ask requests review jobs without a delivery: of a timer, or of a new leader. See Accept.
func (s *Pulls) Ask(ctx context.Context, jobs []forge.Recheck) error {
	for part := range slices.Chunk(jobs, maxJobs) {
		if _, err := s.ask(ctx, forge.Delivery{}, part); err != nil {
			return fmt.Errorf("request %d review jobs: %w", len(jobs), err)
		}
	}
	return nil
}

func (s *Pulls) ask(ctx context.Context, d forge.Delivery, jobs []forge.Recheck) (fresh bool,
	err error) {
	args, err := jobColumns(jobs)
	if err != nil {
		return false, err
	}
	var inserted, notices int
	err = s.again(ctx, func() error {
		return s.work.QueryRow(ctx, sqlAsk, slices.Concat([]any{d.ID, d.Event}, args,
			pushColumns(d.Push), []any{channel, d.Notice})...).Scan(&fresh, &inserted, &notices)
	})
	if err == nil && inserted > 0 {
		s.wake(ctx)
	}
	return fresh, err
}

// sqlAsk stores a delivery (none: an empty id) and sets its jobs to wanted. It inserts a River job
// for those that were not wanted before.
//
// It only reads a wanted job and never locks it: sqlBegin, which clears it, starts after this
// statement and reads everything after that. It takes the others in the order of their keys, so
// that two deliveries never deadlock.
//
// The job is the one that River's own InsertTx inserts, in the same statement: InsertTx takes three
// more round trips.
const sqlAsk = `
	WITH taken AS (
		INSERT INTO deliveries (id, event) SELECT $1, $2 WHERE $1 <> '' ON CONFLICT (id) DO NOTHING RETURNING id),
	pushed AS (
		INSERT INTO pushes (after_commit, before_commit, account, login)
		SELECT $6, $7, $8::bigint, $9 WHERE $6 <> '' AND EXISTS (SELECT FROM taken) ON CONFLICT DO NOTHING),
	asked AS (
		SELECT a.* FROM unnest($3::text[], $4::smallint[], $5::text[]) AS a (key, priority, body)
		WHERE ($1 = '' OR EXISTS (SELECT FROM taken)) AND NOT coalesce((SELECT l.wanted FROM looks l WHERE l.key = a.key), false)),
	turned AS (
		INSERT INTO looks AS l (key, wanted, priority, body) SELECT key, true, priority, body::jsonb FROM asked ORDER BY key
		ON CONFLICT (key) DO UPDATE SET wanted = true, priority = excluded.priority, body = excluded.body, at = now() WHERE NOT l.wanted
		RETURNING key, priority),
	jobs AS (` + sqlInsertJobs + ` FROM turned RETURNING id)
	SELECT EXISTS (SELECT FROM taken), (SELECT count(*) FROM jobs),
		(SELECT count(pg_notify($10, $11)) FROM taken WHERE $11 <> '')`

// pushColumns are the push of a delivery, with an empty commit for none.
func pushColumns(p *forge.Push) []any {
	if p == nil {
		return []any{"", "", int64(0), ""}
	}
	return []any{string(p.After), string(p.Before), p.By.ID, text(p.By.Login)}
}

// Pushes are the pushes to the branch that ended at one of these commits, the oldest first.
func (s *Pulls) Pushes(ctx context.Context, ends []fleet.Revision) ([]forge.Push, error) {
	scan := func(row pgx.CollectableRow) (p forge.Push, err error) {
		err = row.Scan(&p.Before, &p.After, &p.By.ID, &p.By.Login, &p.At)
		return p, err
	}
	pushes, err := collect(ctx, s.database, scan, `
		SELECT before_commit, after_commit, account, login, at FROM pushes WHERE after_commit = ANY ($1) ORDER BY at, after_commit`,
		column(ends, func(r fleet.Revision) string { return string(r) }))
	return pushes, wrap(err, "pushes")
}

// jobColumns are key, priority and body of each job, the last of each key.
func jobColumns(jobs []forge.Recheck) ([]any, error) {
	if len(jobs) > maxJobs {
		return nil, fmt.Errorf("%d review jobs at once; at most %d are accepted", len(jobs),
			maxJobs)
	}
	byKey := map[string]forge.Recheck{}
	for _, l := range jobs {
		key := l.Key()
		if key == "" || len(key) > maxJobKey || key != text(key) {
			return nil, fmt.Errorf("the key of review job %q must have 1 to %d bytes",
				cut(text(key), maxJobKey), maxJobKey)
		}
		byKey[key] = l
	}
	unique := make([]forge.Recheck, 0, len(byKey))
	for _, l := range byKey {
		unique = append(unique, l)
	}
	slices.SortFunc(unique, func(a, b forge.Recheck) int { return cmp.Compare(a.Key(), b.Key()) })
	bodies, err := encoded(unique)
	return []any{column(unique, forge.Recheck.Key), column(unique, jobPriority), bodies}, err
}

// jobPriority orders jobs, 1 first: the merge queue before pull requests, and resyncs last. A job
// for the branch comes from a replica of the previous version alone.
func jobPriority(l forge.Recheck) int16 {
	switch l.Kind {
	case forge.RecheckBranch:
		return 1
	case forge.RecheckGroup: // the merge queue waits for it
		return 2
	case forge.RecheckAll:
		return 4
	}
	return 3
}

// sqlBegin is the first act of a job, before it reads the Git host: a request from now on gets
// another job. It deletes older jobs of the same key that wait for another try, since this job
// replaces them: however long the Git host fails, a key has one job.
const sqlBegin = `
	WITH begun AS (
		UPDATE looks SET wanted = false WHERE key = $1 AND wanted),
	replaced AS (
		DELETE FROM river_job WHERE kind = '` + jobKind + `' AND state IN ('retryable', 'scheduled')
			AND args @> jsonb_build_object('key', $1::text) AND id <> $2)
	SELECT body FROM looks WHERE key = $1`

// beginJob sets the job to no longer wanted and returns it; false if the store does not know it.
func (s *Pulls) beginJob(ctx context.Context, key string, job int64) (forge.Recheck, bool, error) {
	var raw []byte
	err := s.again(ctx, func() error { return s.work.QueryRow(ctx, sqlBegin, key, job).Scan(&raw) })
	if errors.Is(err, pgx.ErrNoRows) {
		return forge.Recheck{}, false, nil
	}
	var l forge.Recheck
	if err == nil {
		err = json.Unmarshal(raw, &l)
	}
	return l, err == nil, wrap(err, "begin review job %s", key)
}

// sqlRestoreJobs inserts River jobs for wanted jobs without one: a River job that was deleted
// before it began, by hand or because the database failed each of its tries, would block its key
// forever.
const sqlRestoreJobs = `
	WITH turned AS (
		SELECT key, priority FROM looks WHERE wanted AND key NOT IN (
			SELECT args->>'key' FROM river_job
			WHERE kind = '` + jobKind + `' AND args ? 'key' AND state IN ('available', 'running', 'retryable', 'scheduled', 'pending'))
		ORDER BY key LIMIT 10000)` + sqlInsertJobs + ` FROM turned`

// The retention of the inbox and of pull requests. Each statement deletes a bounded number of rows.
var sqlTidy = []string{
	`DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE at < now() - interval '30 days' ORDER BY at LIMIT $1)`,
	`DELETE FROM looks WHERE NOT wanted AND key IN (SELECT key FROM looks WHERE NOT wanted AND at < now() - interval '30 days' LIMIT $1)`,
	`DELETE FROM recorded_changes WHERE n IN (
		SELECT n FROM recorded_changes WHERE at < now() - interval '2 days' ORDER BY at LIMIT $1)`,
	`DELETE FROM pushes WHERE (after_commit, before_commit) IN (
		SELECT after_commit, before_commit FROM pushes WHERE at < now() - interval '90 days' ORDER BY at LIMIT $1)`,
	// Of each pull request the newest plan stays.
	`DELETE FROM reviewed_plans WHERE (number, head) IN (
		SELECT r.number, r.head FROM reviewed_plans r WHERE r.saved_at < now() - interval '90 days' AND EXISTS (
			SELECT FROM reviewed_plans n WHERE n.number = r.number AND n.saved_at > r.saved_at)
		ORDER BY r.saved_at LIMIT $1)`,
	`DELETE FROM pull_touches WHERE number IN (
		SELECT p.number FROM pulls p WHERE p.state <> 'open' AND p.changed_at < now() - interval '90 days'
			AND EXISTS (SELECT FROM pull_touches t WHERE t.number = p.number) LIMIT $1)`,
}

// Tidy deletes what no job needs any more: deliveries and jobs older than 30 days, recorded changes
// older than two days, and plans older than 90 days with a successor for the same pull request. It
// runs until nothing is left, and returns the number of deleted rows.
func (s *Pulls) Tidy(ctx context.Context) (int64, error) {
	var all int64
	for _, sql := range sqlTidy {
		n, err := s.prune(ctx, pruning{sql: sql})
		if all += n; err != nil {
			return all, fmt.Errorf("tidy the inbox: %w", err)
		}
	}
	return all, nil
}
