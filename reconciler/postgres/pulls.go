package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// PullRecord returns the stored state of the pull request; false if there is none.
func (s *Pulls) PullRecord(ctx context.Context, number int) (forge.PullRecord, bool, error) {
	found, err := collect(ctx, s.database, pgx.RowTo[forge.PullRecord],
		`SELECT body FROM pulls WHERE number = $1`, number)
	if err != nil || len(found) == 0 {
		return forge.PullRecord{}, false, wrap(err, "pull request %d", number)
	}
	return found[0], true, nil
}

// SavePull stores the state of a pull request. It writes nothing without news.
func (s *Pulls) SavePull(ctx context.Context, r forge.PullRecord) error {
	switch r.State {
	case forge.PullOpen, forge.PullMerged, forge.PullClosed:
	default:
		return fmt.Errorf("pull request %d: %q is no state of a pull request", r.Number, r.State)
	}
	bodies, err := encoded([]forge.PullRecord{r})
	if err != nil {
		return fmt.Errorf("pull request %d: %w", r.Number, err)
	}
	tenants := column(r.Tenants, func(t fleet.TenantName) string { return text(string(t)) })
	err = s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, sqlSavePull, r.Number, string(r.State), text(string(r.Head)),
			r.Settled, tenants, bodies[0])
		return err
	})
	return wrap(err, "pull request %d", r.Number)
}

// A tenant that the pull request itself creates has no uid yet: it sees the pull request from the
// first save after the merge.
const sqlSavePull = `
	INSERT INTO pulls AS p (number, state, head, settled, tenants, tenant_uids, body)
	VALUES ($1, $2, $3, $4, $5, ARRAY(SELECT t.uid FROM tenants t WHERE t.tenant = ANY ($5::text[]) AND t.removed_at IS NULL ORDER BY t.uid), $6)
	ON CONFLICT (number) DO UPDATE SET state = excluded.state, head = excluded.head, settled = excluded.settled, tenants = excluded.tenants,
		tenant_uids = excluded.tenant_uids, body = excluded.body, changed_at = now()
	WHERE (p.tenant_uids, p.body) IS DISTINCT FROM (excluded.tenant_uids, excluded.body)`

// UnsettledPulls returns pull requests with work left, in order: the open ones, and merged or
// closed ones that are not settled. It omits PullRecord.Shown, which may be long: all of these are
// read on every change of the branch.
func (s *Pulls) UnsettledPulls(ctx context.Context) ([]forge.PullRecord, error) {
	all, err := collect(ctx, s.database, pgx.RowTo[forge.PullRecord],
		`SELECT body - 'shown' FROM pulls WHERE state = 'open' OR NOT settled ORDER BY number`)
	return all, wrap(err, "unsettled pull requests")
}

// SaveReviewed stores a plan as shown to reviewers, and the files that the pull request changes, in
// one round trip. It replaces the plan of the same head.
func (s *Pulls) SaveReviewed(ctx context.Context, p forge.ReviewedPlan) error {
	effects, err := json.Marshal(p.Effects)
	if err != nil {
		return fmt.Errorf("reviewed plan of pull request %d: %w", p.Number, err)
	}
	if p.Report == nil {
		p.Report = []byte{}
	}
	touches := touchColumn(p.Touches)
	err = s.atomically(ctx, func(b *pgx.Batch) {
		// its files follow
		b.Queue(
			`SELECT pg_advisory_xact_lock(hashtextextended('argosy plan of ' || $1::integer, 0))`,
			p.Number)
		b.Queue(sqlSaveReviewed, p.Number, text(string(p.Head)), text(string(p.Base)), text(p.Hash),
			moment(p.At), string(withoutNUL(effects)),
			column(p.Touches, text), p.Report)
		b.Queue(`DELETE FROM pull_touches WHERE number = $1 AND touch <> ALL ($2::text[])`,
			p.Number, touches)
		b.Queue(
			`INSERT INTO pull_touches (number, touch) SELECT DISTINCT $1::integer, t FROM unnest($2::text[]) AS t ORDER BY t ON CONFLICT DO NOTHING`,
			p.Number, touches)
	})
	return wrap(err, "reviewed plan of pull request %d", p.Number)
}

const sqlSaveReviewed = `
	INSERT INTO reviewed_plans (number, head, base, hash, at, saved_at, effects, touches, report)
	VALUES ($1, $2, $3, $4, coalesce($5, now()), clock_timestamp(), $6, $7, $8)
	ON CONFLICT (number, head) DO UPDATE SET base = excluded.base, hash = excluded.hash, at = excluded.at, saved_at = excluded.saved_at,
		effects = excluded.effects, touches = excluded.touches, report = excluded.report`

// Reviewed returns the newest plan of that head that was shown to reviewers; false if there is
// none.
func (s *Pulls) Reviewed(ctx context.Context, number int, head fleet.Revision) (forge.ReviewedPlan,
	bool, error) {
	found, err := collect(ctx, s.database, scanReviewed, `
		SELECT number, base, head, hash, report, effects, touches, at FROM reviewed_plans WHERE number = $1 AND head = $2`, number, text(string(head)))
	if err != nil || len(found) == 0 {
		return forge.ReviewedPlan{}, false, wrap(err, "reviewed plan of pull request %d", number)
	}
	return found[0], true, nil
}

func scanReviewed(row pgx.CollectableRow) (forge.ReviewedPlan, error) {
	var p forge.ReviewedPlan
	err := row.Scan(&p.Number, &p.Base, &p.Head, &p.Hash, &p.Report, &p.Effects, &p.Touches, &p.At)
	return p, err
}

// Colliding returns the other open pull requests whose newest plans change files among touches, in
// order.
func (s *Pulls) Colliding(ctx context.Context, number int, touches []string) ([]forge.Collision,
	error) {
	all, err := collect(ctx, s.database, pgx.RowToStructByPos[forge.Collision], `
		SELECT t.number, array_agg(t.touch ORDER BY t.touch) FROM pull_touches t JOIN pulls p ON p.number = t.number AND p.state = 'open'
		WHERE t.touch = ANY ($2::text[]) AND t.number <> $1 GROUP BY t.number ORDER BY t.number`, number, touchColumn(touches))
	return all, wrap(err, "pull requests that collide with %d", number)
}

// maxTouch is the longest path in bytes that an index accepts.
const maxTouch = 1024

// touchColumn converts paths to their column's type. The path of a declaration is far shorter than
// the limit; other paths may be anything, and two different paths stay different when they are cut.
func touchColumn(touches []string) []string {
	return column(touches, func(path string) string {
		if path = text(path); len(path) > maxTouch {
			sum := sha256.Sum256([]byte(path))
			path = cut(path, maxTouch) + hex.EncodeToString(sum[:])
		}
		return path
	})
}

// staleTime is how long a report about an Application from before its last change counts as old.
// Argo CD reports on the change within seconds, and a report without news is not stored: see
// Observe.
const staleTime = time.Minute

// Outcomes returns the states of the objects, one for each key in the order of the keys, in one
// round trip. An Application that was changed less than a minute ago, without a new report since,
// is Stale.
func (s *Views) Outcomes(ctx context.Context, keys []fleet.ObjectKey) ([]forge.Outcome, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	all, err := collect(ctx, s.database, scanOutcome, sqlOutcomes, append(objectColumns(keys), staleTime)...)
	for i := range all {
		all[i].Key = keys[i]
	}
	return all, wrap(err, "outcomes of %d objects", len(keys))
}

const sqlOutcomes = `
	SELECT d.engine IS NOT NULL, coalesce(d.absent, false), coalesce(d.held, false), coalesce(d.revision, ''), coalesce(d.hash, ''),
		CASE WHEN d.engine IS NULL THEN '' ELSE ` + sqlApply + ` END,
		CASE WHEN s.seq = d.seq THEN s.state_message ELSE '' END,
		CASE WHEN d.kind = 'Application' THEN coalesce(s.sync, 'Unknown') ELSE '' END,
		CASE WHEN d.kind = 'Application' THEN coalesce(s.health, 'Unknown') ELSE '' END,
		CASE WHEN d.kind <> 'Application' THEN '' WHEN s.message <> '' THEN s.message ELSE coalesce(s.operation_error, '') END,
		CASE WHEN d.kind = 'Application' THEN coalesce(s.synced_revision, '') ELSE '' END,
		coalesce(d.kind = 'Application' AND (s.observed_at IS NULL OR s.acked_at IS NULL OR s.seq < d.seq
			OR s.observed_at <= s.acked_at AND s.acked_at > now() - $4::interval), false)
	FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (engine, kind, name, n)
	LEFT JOIN desired d ON d.engine = k.engine AND d.kind = k.kind AND d.name = k.name
	LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
	ORDER BY k.n`

func scanOutcome(row pgx.CollectableRow) (forge.Outcome, error) {
	var o forge.Outcome
	err := row.Scan(&o.Present, &o.Unwanted, &o.Held, &o.Revision, &o.Hash, &o.Apply, &o.ApplyMessage,
		&o.Sync, &o.Health, &o.Message,
		&o.SyncedRevision, &o.Stale)
	return o, err
}
