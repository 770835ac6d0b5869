package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
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
			r.Finished, tenants, bodies[0])
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

// UnfinishedPulls returns pull requests with work left, in order: the open ones, and merged or
// closed ones that are not settled. It omits PullRecord.Shown, which may be long: all of these are
// read on every change of the branch.
func (s *Pulls) UnfinishedPulls(ctx context.Context) ([]forge.PullRecord, error) {
	all, err := collect(ctx, s.database, pgx.RowTo[forge.PullRecord],
		`SELECT body - 'shown' FROM pulls WHERE state = 'open' OR NOT settled ORDER BY number`)
	return all, wrap(err, "unfinished pull requests")
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
	all, err := collect(ctx, s.database, scanOutcome, sqlOutcomes,
		append(objectColumns(keys), staleTime)...)
	for i := range all {
		all[i].Key = keys[i]
	}
	return all, wrap(err, "outcomes of %d objects", len(keys))
}

// sqlOutcomes is the state of objects. An object that a freeze holds has the state of its present
// row: a pull request whose content is there is done, although a later change waits.
const sqlOutcomes = `
	SELECT d.engine IS NOT NULL, coalesce(d.absent, false), coalesce(d.held, false), coalesce(d.revision, ''), coalesce(d.hash, ''),
		CASE WHEN d.engine IS NULL THEN '' ELSE ` + sqlApply + ` END,
		CASE WHEN s.seq = d.seq THEN s.state_message ELSE '' END,
		CASE WHEN d.kind = 'Application' THEN coalesce(s.sync, 'Unknown') ELSE '' END,
		CASE WHEN d.kind = 'Application' THEN coalesce(s.health, 'Unknown') ELSE '' END,
		CASE WHEN d.kind <> 'Application' THEN '' WHEN s.message <> '' THEN s.message ELSE coalesce(s.operation_error, '') END,
		CASE WHEN d.kind = 'Application' THEN coalesce(s.synced_revision, '') ELSE '' END,
		coalesce(d.kind = 'Application' AND (s.observed_at IS NULL OR s.acked_at IS NULL OR s.seq < d.seq
			OR s.observed_at <= s.acked_at AND s.acked_at > now() - $4::interval), false),
		CASE WHEN d.kind = 'Application' THEN ` + sqlSilent + ` END,
		coalesce(o.hash, ''), coalesce(o.state, ''), coalesce(o.message, ''), coalesce(o.wave, 0), o.waves
	FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (engine, kind, name, n)
	LEFT JOIN LATERAL (
		SELECT q.engine, q.kind, q.name, q.tenant, q.environment, q.deployment, q.revision, q.hash, q.absent, q.seq, q.held AND NOT EXISTS (
			SELECT FROM holds h WHERE h.reason = 'frozen' AND h.items @> jsonb_build_array(jsonb_build_object('engine', q.engine, 'kind', q.kind, 'name', q.name))) AS held
		FROM desired q WHERE q.engine = k.engine AND q.kind = k.kind AND q.name = k.name OFFSET 0) d ON true
	LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
	LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
	LEFT JOIN LATERAL (
		SELECT m ->> 'manifest' AS hash, o.state, o.body ->> 'message' AS message, (m ->> 'wave')::int AS wave, o.body -> 'waves' AS waves
		FROM rollouts o, jsonb_array_elements(o.body -> 'members') m
		WHERE o.ended_at IS NULL AND d.kind = 'Application' AND o.tenant = d.tenant AND o.deployment = d.deployment AND m -> 'key' ->> 'name' = d.name
		LIMIT 1) o ON true
	ORDER BY k.n`

func scanOutcome(row pgx.CollectableRow) (forge.Outcome, error) {
	var o forge.Outcome
	err := row.Scan(&o.Present, &o.Unwanted, &o.Held, &o.Revision, &o.Hash, &o.Apply,
		&o.ApplyMessage,
		&o.Sync, &o.Health, &o.Message,
		&o.SyncedRevision, &o.Stale, &o.LastSeenAt, &o.Rollout.Hash, &o.Rollout.State,
		&o.Rollout.Message, &o.Rollout.Wave, &o.Rollout.Waves)
	if o.LastSeenAt != nil {
		o.Sync, o.Health = mirror.SyncUnknown, mirror.HealthUnknown
	}
	return o, err
}

const sqlOwners = `SELECT host, name, id, pinned_at, now_id, changed_at FROM owners`

func scanOwner(row pgx.CollectableRow) (view.Owner, error) {
	var v view.Owner
	err := row.Scan(&v.Host, &v.Name, &v.ID, &v.PinnedAt, &v.NowID, &v.ChangedAt)
	return v, err
}

// PinOwner records that the Git host has the account or team id under the name, and returns the pin
// of the name: the first id that was ever reported. It writes nothing without news.
func (s *Pulls) PinOwner(ctx context.Context, host, name string, id int64) (view.Owner,
	error) {
	subject := fmt.Sprintf("owner %s", name)
	if id <= 0 || name == "" {
		return view.Owner{}, fmt.Errorf("%s: an account has no number %d", subject, id)
	}
	host, name = text(host), text(strings.ToLower(name))
	found, err := collect(ctx, s.database, scanOwner, sqlOwners+` WHERE host = $1 AND name = $2`,
		host, name)
	if err != nil {
		return view.Owner{}, wrap(err, "%s", subject)
	}
	if len(found) == 1 && (found[0].NowID == id || found[0].ID == id && !found[0].Changed()) {
		return found[0], nil
	}
	var owner view.Owner
	err = s.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx,
			`INSERT INTO owners (host, name, id, pinned_at) VALUES ($1, $2, $3, now()) ON CONFLICT DO NOTHING`, host, name, id); err != nil {
			return err
		}
		changed, err := read(ctx, tx, scanOwner, `
			UPDATE owners SET now_id = CASE id WHEN $3 THEN 0 ELSE $3 END, changed_at = CASE id WHEN $3 THEN NULL ELSE now() END
			WHERE host = $1 AND name = $2 AND now_id <> CASE id WHEN $3 THEN 0 ELSE $3 END RETURNING host, name, id, pinned_at, now_id, changed_at`, host, name, id)
		if err != nil {
			return err
		}
		if len(changed) == 0 {
			all, err := read(ctx, tx, scanOwner, sqlOwners+` WHERE host = $1 AND name = $2`, host,
				name)
			if err == nil {
				owner = all[0]
			}
			return err
		}
		owner = changed[0]
		what := fmt.Sprintf("%s is the account or team %d again", name, owner.ID)
		if owner.Changed() {
			what = fmt.Sprintf("%s is now the account or team %d, which does not count; it was %d",
				name, owner.NowID, owner.ID)
		}
		return recordDecision(
			ctx, tx, decision{action: "owner-changed", subject: subject, by: "argosy",
				note: what, event: view.Event{Kind: "owner", Name: name, Text: what}})
	})
	return owner, wrap(err, "%s", subject)
}

// Owners lists the pinned names, by host and name. They belong to the platform: a tenant's scope
// has none.
func (s *Views) Owners(ctx context.Context, scope view.Scope, _ view.Filter,
	page view.Page) ([]view.Owner, string, error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	return list(ctx, s.database, scope, listing[view.Owner]{
		name: "owners", keys: []string{"host", "name"}, scan: scanOwner, sql: sqlOwners,
		key: func(v view.Owner) []string { return []string{v.Host, v.Name} },
	}, filter{}, page, nil)
}

// ChangedOwners are the names that belong to another account or team now.
func (s *Pulls) ChangedOwners(ctx context.Context) ([]view.Owner, error) {
	all, err := collect(ctx, s.database, scanOwner,
		sqlOwners+` WHERE now_id <> 0 ORDER BY host, name`)
	return all, wrap(err, "owners")
}

// ReleaseOwner pins the name to the account or team that has it now. mirror.ErrNotFound if the
// account or team of that number does not have it, or is pinned already.
func (s *Decisions) ReleaseOwner(ctx context.Context, r mirror.OwnerRelease) (view.Owner, error) {
	subject := fmt.Sprintf("owner %s", r.Name)
	var owner view.Owner
	err := s.transact(ctx, func(tx pgx.Tx) error {
		all, err := read(ctx, tx, scanOwner,
			`UPDATE owners SET id = now_id, pinned_at = now(), now_id = 0, changed_at = NULL
			WHERE name = $1 AND now_id = $2 RETURNING host, name, id, pinned_at, now_id, changed_at`, text(strings.ToLower(r.Name)), r.ID)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return mirror.ErrNotFound
		}
		owner = all[0]
		return recordDecision(
			ctx, tx, decision{kind: mirror.OperationReleaseOwner, action: "pin-owner",
				subject: fmt.Sprintf("%s, number %d", subject, r.ID), by: r.By, note: r.Note,
				event: view.Event{Kind: "owner", Name: owner.Name,
					Text: fmt.Sprintf("%s counts as the account or team %d from now on", owner.Name,
						owner.ID)}})
	})
	return owner, wrap(err, "release %s", subject)
}

// sqlChangedOwners are the problems of declarations whose owner's name belongs to another account
// or team now; the platform's.
const sqlChangedOwners = `(
	SELECT c.path, c.kind, c.tenant, c.name, 2000, jsonb_build_object(
		'key', jsonb_build_object('kind', c.kind, 'tenant', c.tenant, 'name', c.name), 'path', c.path, 'severity', 'error', 'code', 'owner-changed',
		'field', 'spec.owners', 'message', string_agg(o.name || ' is now the account or team ' || o.now_id || ', which does not count; it was ' || o.id, '; ' ORDER BY o.name),
		'fix', 'if it is the same owner, argosy pin-owner NAME --id NUMBER; else name another owner'), 'error'
	FROM owners o JOIN declarations c ON c.kind IN ('Tenant', 'Fleet')
		AND EXISTS (SELECT FROM jsonb_array_elements_text(coalesce(c.body->'tenant'->'owners', c.body->'fleet'->'owners', '[]')) AS e (entry)
			WHERE lower(e.entry) = 'github:' || o.name)
	WHERE o.now_id <> 0
	GROUP BY c.path, c.kind, c.tenant, c.name
)`
