package postgres

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// holdSteps stores changes that wait for an approval, and ends the other holds.
func holdSteps(r *mirror.Record) ([]step, error) {
	var steps []step
	if len(r.EndedHold) > 0 {
		revisions := column(r.EndedHold, func(h mirror.HoldID) string { return string(h.Revision) })
		steps = append(steps, step{`
			DELETE FROM holds h USING unnest($1::text[], $2::text[], $3::text[]) AS e (revision, reason, tenant)
			WHERE h.revision = e.revision AND h.reason = e.reason AND h.tenant = e.tenant`, []any{revisions,
			column(r.EndedHold, func(h mirror.HoldID) string { return string(h.Reason) }),
			column(r.EndedHold, func(h mirror.HoldID) string { return string(h.Tenant) })}},
			step{`
			UPDATE operations SET state = 'Failed', message = 'no longer wanted: the branch has moved on', ended_at = now()
			WHERE revision = ANY($1::text[]) AND revision <> $2 AND state = 'Held' AND ended_at IS NULL`, []any{revisions, string(r.Revision)}})
	}
	if len(r.Holds) > 0 {
		items, err := encoded(column(r.Holds, func(h mirror.Hold) []fleet.ObjectKey {
			return append([]fleet.ObjectKey{}, h.Items...)
		}))
		if err != nil {
			return nil, err
		}
		paths, err := encoded(column(r.Holds, func(h mirror.Hold) []string {
			return append([]string{}, h.Paths...)
		}))
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{`
			WITH held AS (
				INSERT INTO holds AS h (revision, reason, tenant, items, paths, message, since)
				SELECT revision, reason, tenant, items::jsonb, paths::jsonb, message, coalesce(since, now())
				FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[])
					AS n (revision, reason, tenant, items, message, since, paths)
				ON CONFLICT (revision, reason, tenant) DO UPDATE
					SET items = excluded.items, paths = excluded.paths, message = excluded.message, since = excluded.since
				WHERE (h.items, h.paths, h.message) IS DISTINCT FROM (excluded.items, excluded.paths, excluded.message)
				RETURNING revision, tenant, message)
			SELECT new_event('hold', tenant, revision, message) FROM held`, []any{
			column(r.Holds, func(h mirror.Hold) string { return string(h.Revision) }),
			column(r.Holds, func(h mirror.Hold) string { return string(h.Reason) }),
			column(r.Holds, func(h mirror.Hold) string { return string(h.Tenant) }), items,
			column(r.Holds, func(h mirror.Hold) string { return message(h.Message) }),
			column(r.Holds, func(h mirror.Hold) *time.Time { return moment(h.Since) }), paths}})
	}
	return steps, nil
}

// withheldSteps reports once that a revision as a whole is held.
func withheldSteps(r *mirror.Record) ([]step, error) {
	return []step{{`
		INSERT INTO operations (id, kind, state, tenant, engine, subject, revision, requested_by, message, done, total, started_at)
		SELECT $1, 'Reconcile', 'Held', '', '', 'revision ' || left($2, 8), $2, $3, 'the revision waits for an approval', 0, 0, now()
		WHERE NOT EXISTS (SELECT FROM operations WHERE revision = $2 AND kind = 'Reconcile' AND ended_at IS NULL)`,
		[]any{newID(), string(r.Revision), requester(r)}}}, nil
}

// historySteps stores the revision's history: for people, for the guards' window, and for event
// streams.
func historySteps(r *mirror.Record) ([]step, error) {
	counts := countText(r)
	steps := []step{
		{`
		INSERT INTO revisions AS v (revision, author, subject, committed_at, recorded_at, created, changed, deleted, held, problems)
		VALUES ($1, $2, $3, $4, now(), $5, $6, $7, $8, $9)
		ON CONFLICT (revision) DO UPDATE SET recorded_at = now(), created = v.created + excluded.created, changed = v.changed + excluded.changed,
			deleted = v.deleted + excluded.deleted, held = excluded.held, problems = excluded.problems, witness = 0, applied_at = NULL`,
			[]any{string(r.Revision), message(r.Author), message(r.Subject), r.CommittedAt,
				r.Created, r.Changed, r.Deleted, r.HeldBack, len(r.Problems)}},
		{`
		WITH open AS (
			UPDATE operations SET state = 'Running', message = $4, total = total + $5
			WHERE revision = $2 AND kind = 'Reconcile' AND ended_at IS NULL RETURNING id)
		INSERT INTO operations (id, kind, state, tenant, engine, subject, revision, requested_by, message, done, total, started_at)
		SELECT $1, 'Reconcile', 'Running', '', '', 'revision ' || left($2, 8), $2, $3, $4, 0, $5::int, now() WHERE NOT EXISTS (SELECT FROM open)`,
			[]any{newID(), string(r.Revision), requester(r), counts, len(r.Rows)}},
		{
			`INSERT INTO audit (actor, action, subject, tenant, revision, detail) VALUES ($1, 'record', $2, '', $3, $4)`,
			[]any{requester(r), "revision " + r.Revision.Short(), string(r.Revision), counts}},
		eventStep(recordEvents(r, counts)),
	}
	if len(r.Deletions) > 0 {
		steps = append(steps, step{`
			INSERT INTO deletions (at, revision, engine, name, tenant, environment, deployment, approved)
			SELECT now(), $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::boolean[])`, []any{string(r.Revision),
			column(r.Deletions, func(d mirror.Deletion) string { return string(d.Key.Engine) }),
			column(r.Deletions, func(d mirror.Deletion) string { return d.Key.Name }),
			column(r.Deletions, func(d mirror.Deletion) string { return string(d.Tenant) }),
			column(r.Deletions, func(d mirror.Deletion) string { return string(d.Environment) }),
			column(r.Deletions, func(d mirror.Deletion) string { return string(d.Deployment) }),
			column(r.Deletions, func(d mirror.Deletion) bool { return d.Approved })}})
	}
	return steps, nil
}

// recordEvents are few whatever the size of the revision: one for the revision, and one of each
// kind for each changed tenant.
func recordEvents(r *mirror.Record, counts string) []view.Event {
	events := []view.Event{{Kind: "revision", Name: string(r.Revision), Text: counts}}
	applications, problems := map[fleet.TenantName]int{}, map[fleet.TenantName]bool{}
	for i := range r.Rows {
		if r.Rows[i].Key.Kind == fleet.ObjectApplication {
			applications[r.Rows[i].Tenant]++
		}
	}
	for i := range r.Quarantined {
		problems[r.Quarantined[i].Key.Tenant] = true
	}
	for _, k := range r.Cleared {
		problems[k.Tenant] = true
	}
	for _, t := range sortedKeys(applications) {
		events = append(events, view.Event{Kind: "application", Tenant: t,
			Text: fmt.Sprintf("%d changed by revision %s", applications[t], r.Revision.Short())})
	}
	for _, t := range sortedKeys(problems) {
		events = append(events, view.Event{Kind: "problem", Tenant: t,
			Text: "problems changed by revision " + r.Revision.Short()})
	}
	return events
}

func eventStep(events []view.Event) step {
	return step{
		`SELECT new_event(kind, tenant, name, txt) FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS e (kind, tenant, name, txt)`, []any{
			column(events, func(e view.Event) string { return e.Kind }),
			column(events, func(e view.Event) string { return string(e.Tenant) }),
			column(events, func(e view.Event) string { return e.Name }),
			column(events, func(e view.Event) string { return e.Text })}}
}

func countText(r *mirror.Record) string {
	var parts []string
	for _, c := range []struct {
		n    int
		word string
	}{{r.Created, "created"}, {r.Changed, "changed"}, {r.Deleted, "deleted"}, {r.HeldBack, "held"},
		{len(r.Quarantined), "quarantined"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.word))
		}
	}
	if len(parts) == 0 {
		return "no object changed"
	}
	return strings.Join(parts, ", ")
}

// requester is the commit's author.
func requester(r *mirror.Record) string {
	if r.Author == "" {
		return "argosy"
	}
	return "git:" + message(r.Author)
}

// moment converts t for the database; the zero time is NULL.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newID is a new name: milliseconds first, so that names sort by time, and 80 random bits.
func newID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	if _, err := rand.Read(b[6:]); err != nil {
		panic(err) // it never fails: see crypto/rand
	}
	return idText.EncodeToString(b[:])
}

func sortedKeys[V any](m map[fleet.TenantName]V) []fleet.TenantName {
	keys := make([]fleet.TenantName, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
