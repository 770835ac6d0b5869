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
	maxLooks   = 1000 // of one delivery, or in one statement
	maxLookKey = 200  // bytes; the longest names a commit
)

// Accept takes a delivery of the forge and asks for what it asks to look at: both or neither, in
// one round trip. A delivery that was taken before does nothing, and fresh is false; so it is when
// only the answer to an earlier try of this very call was lost. What is wanted already is not asked
// for again: a thousand deliveries about one thing leave one job. It costs the same however much
// the database holds.
func (s *Pulls) Accept(ctx context.Context, d forge.Delivery, looks []forge.Recheck) (fresh bool,
	err error) {
	if err := d.Validate(); err != nil {
		return false, err
	}
	fresh, err = s.ask(ctx, d, looks)
	return fresh, wrap(err, "delivery %s", d.ID)
}

// Ask asks for looks that no delivery asked for: of a timer, or of a replica that begins to work.
// See Accept.
func (s *Pulls) Ask(ctx context.Context, looks []forge.Recheck) error {
	for part := range slices.Chunk(looks, maxLooks) {
		if _, err := s.ask(ctx, forge.Delivery{}, part); err != nil {
			return fmt.Errorf("ask for %d looks: %w", len(looks), err)
		}
	}
	return nil
}

func (s *Pulls) ask(ctx context.Context, d forge.Delivery, looks []forge.Recheck) (fresh bool,
	err error) {
	args, err := lookColumns(looks)
	if err != nil {
		return false, err
	}
	var jobs, notices int
	err = s.again(ctx, func() error {
		return s.work.QueryRow(ctx, sqlAsk, slices.Concat([]any{d.ID, d.Event}, args,
			pushColumns(d.Push), []any{channel, d.Notice})...).Scan(&fresh, &jobs, &notices)
	})
	if err == nil && jobs > 0 {
		s.wake(ctx)
	}
	return fresh, err
}

// sqlAsk takes a delivery (none: an empty id) and sets what it asks for to wanted. Where that was
// not wanted yet, a job is inserted.
//
// A look that is wanted already is only read, never locked: whoever clears it (sqlBegin) does so
// after this statement began, and reads the truth after that. The others are taken in the order of
// their keys, so that two deliveries never wait for each other in a circle.
//
// The job is what River's own InsertTx would insert, in the same statement: that one takes three
// more round trips, and notifies within the transaction.
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

// pushColumns are the push that a delivery tells of, with an empty commit for none.
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

// lookColumns are key, priority and body of each look, the last of each key.
func lookColumns(looks []forge.Recheck) ([]any, error) {
	if len(looks) > maxLooks {
		return nil, fmt.Errorf("%d looks at once; at most %d are taken", len(looks), maxLooks)
	}
	byKey := map[string]forge.Recheck{}
	for _, l := range looks {
		key := l.Key()
		if key == "" || len(key) > maxLookKey || key != text(key) {
			return nil, fmt.Errorf("a look at %q cannot be kept: its key has 1 to %d bytes",
				cut(text(key), maxLookKey), maxLookKey)
		}
		byKey[key] = l
	}
	unique := make([]forge.Recheck, 0, len(byKey))
	for _, l := range byKey {
		unique = append(unique, l)
	}
	slices.SortFunc(unique, func(a, b forge.Recheck) int { return cmp.Compare(a.Key(), b.Key()) })
	bodies, err := encoded(unique)
	return []any{column(unique, forge.Recheck.Key), column(unique, lookPriority), bodies}, err
}

// lookPriority orders jobs, 1 first: what is merged is applied before pull requests are looked at,
// and sweeps take what room is left.
func lookPriority(l forge.Recheck) int16 {
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

// sqlBegin is the first act of a job, before anything is read of the forge: whoever asks from now
// on gets another job. Older jobs of the same look that wait for another try are dropped, for this
// one looks in their place: however long the forge fails, a look has one.
const sqlBegin = `
	WITH begun AS (
		UPDATE looks SET wanted = false WHERE key = $1 AND wanted),
	replaced AS (
		DELETE FROM river_job WHERE kind = '` + lookKind + `' AND state IN ('retryable', 'scheduled')
			AND args @> jsonb_build_object('key', $1::text) AND id <> $2)
	SELECT body FROM looks WHERE key = $1`

// beginLook says that the look is no longer wanted, but done; false when nothing is known of it.
func (s *Pulls) beginLook(ctx context.Context, key string, job int64) (forge.Recheck, bool, error) {
	var raw []byte
	err := s.again(ctx, func() error { return s.work.QueryRow(ctx, sqlBegin, key, job).Scan(&raw) })
	if errors.Is(err, pgx.ErrNoRows) {
		return forge.Recheck{}, false, nil
	}
	var l forge.Recheck
	if err == nil {
		err = json.Unmarshal(raw, &l)
	}
	return l, err == nil, wrap(err, "begin the look at %s", key)
}

// sqlMend inserts jobs for what is wanted and has none: a job that was thrown away before it began,
// by hand or because the database failed each of its tries, would keep its look from ever being
// done again.
const sqlMend = `
	WITH turned AS (
		SELECT key, priority FROM looks WHERE wanted AND key NOT IN (
			SELECT args->>'key' FROM river_job
			WHERE kind = '` + lookKind + `' AND args ? 'key' AND state IN ('available', 'running', 'retryable', 'scheduled', 'pending'))
		ORDER BY key LIMIT 10000)` + sqlInsertJobs + ` FROM turned`

// What is kept of the inbox and of pull requests, and for how long. Each statement deletes a
// bounded number of rows.
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

// Tidy drops what nobody asks for any more: deliveries and looks of more than 30 days ago, and
// plans of more than 90 days ago that were followed by another of the same pull request. It goes on
// until nothing is left, and reports how many rows it has dropped.
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
