package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Record stores one revision of the config repo under the lease of the reconciler: all of it or
// nothing, in one round trip at any size. It returns the number of the newest row. A repeated
// Record, as after a connection that was lost during COMMIT, has no further effect. A revision
// without changes writes only the applied revision.
//
// mirror.ErrFenced when the lease has passed on, mirror.ErrStale when the applied revision is not
// the record's base.
func (s *Plans) Record(ctx context.Context, lease mirror.Lease, r mirror.Record) (int64, error) {
	// revisions that this one may complete: its own, and those whose rows it replaces
	var touched []string
	fill, err := recording(lease, &r, &touched)
	if err != nil {
		return 0, fmt.Errorf("record revision %s: %w", r.Revision.Short(), err)
	}
	var seq int64
	err = s.atomically(patient(ctx, longPatience), func(b *pgx.Batch) {
		touched = nil
		fill(b)
		b.Queue(`SELECT seq FROM mirror`).QueryRow(func(row pgx.Row) error {
			return row.Scan(&seq)
		})
	})
	if hasCode(err, codeRecorded) {
		err = s.again(ctx, func() error {
			return s.work.QueryRow(ctx, `SELECT seq FROM mirror`).Scan(&seq)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("record revision %s: %w", r.Revision.Short(), err)
	}
	if !r.RevisionHeld && !r.Empty() {
		s.complete(ctx, append(touched, string(r.Revision)))
	}
	return seq, nil
}

// recording prepares everything here that can fail, and returns a function that fills a batch,
// equally on each call. The batch adds the open revisions whose rows it replaces to replaced.
func recording(lease mirror.Lease, r *mirror.Record, replaced *[]string) (func(*pgx.Batch), error) {
	if r.Revision == "" {
		return nil, errors.New("a record names its revision")
	}
	var steps []step
	begin := step{`SELECT move_mirror_with_slices($1, $2, $3, $4, $5)`,
		[]any{string(r.Base), string(r.Revision), r.PlanHash, len(r.Rows), r.RevisionHeld}}
	steps = append(steps, fence(lease))
	if lease.Life != "" {
		steps = append(steps, step{`SELECT fence_life($1)`, []any{lease.Life}})
	}
	steps = append(steps, begin)
	var keys [][]any
	for part := range chunks(r.Rows) {
		keys = append(keys,
			objectColumns(column(part, func(row mirror.Row) fleet.ObjectKey { return row.Key })))
	}
	first := len(steps)
	if !r.Empty() {
		parts := []func(*mirror.Record) ([]step, error){memorySteps, tenantSteps,
			declarationSteps, agentSteps, problemSteps, placementSteps, rolloutSteps, rowSteps,
			moveSteps, sealedSteps, syncSteps, holdSteps, historySteps, impactSteps}
		if r.RevisionHeld {
			parts = []func(*mirror.Record) ([]step, error){
				memorySteps, holdSteps, heldRevisionSteps}
		}
		for _, part := range parts {
			more, err := part(r)
			if err != nil {
				return nil, err
			}
			steps = append(steps, more...)
		}
	} else if r.Revision != r.Base && !r.RevisionHeld {
		steps = append(steps, unchangedStep(r))
	}
	return func(b *pgx.Batch) {
		for i, s := range steps {
			if i == first && !r.RevisionHeld {
				for _, part := range keys {
					b.Queue(sqlOpenRevisions, part...).QueryRow(func(row pgx.Row) error {
						var open []string
						err := row.Scan(&open)
						*replaced = append(*replaced, open...)
						return err
					})
				}
			}
			b.Queue(s.sql, s.args...)
		}
	}, nil
}

// memorySteps stores the planner's state.
func memorySteps(r *mirror.Record) ([]step, error) {
	if r.Memory == nil {
		return nil, nil
	}
	return []step{{`UPDATE memory SET body = $1`, []any{r.Memory}}}, nil
}

// step is one statement of a batch.
type step struct {
	sql  string
	args []any
}

// fence refuses the rest of the batch unless the lease is the newest of its name.
func fence(l mirror.Lease) step {
	return step{`SELECT fence($1, $2, $3)`, []any{l.Name, l.Holder, l.Epoch}}
}

// fenceEngine is fence for an engine's status, which one transaction at a time writes. It also
// refuses a part of an agent's report, as registry.ErrReplayed, if the report or a later one was
// accepted meanwhile.
func fenceEngine(b *pgx.Batch, l mirror.Lease) {
	b.Queue(`SELECT fence_engine($1, $2, $3)`, l.Name, l.Holder, l.Epoch)
	if l.Report > 0 {
		b.Queue(`SELECT fence_report($1, $2)`, text(holdingAgent(l)), l.Report)
	}
}

// column returns one value of each item, for unnest.
func column[T, V any](items []T, value func(T) V) []V {
	values := make([]V, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	return values
}

// keyColumns returns kind, tenant and name of each key.
func keyColumns(keys []fleet.Key) []any {
	return []any{
		column(keys, func(k fleet.Key) string { return string(k.Kind) }),
		column(keys, func(k fleet.Key) string { return string(k.Tenant) }),
		column(keys, func(k fleet.Key) string { return text(k.Name) }),
	}
}

// objectColumns returns engine, kind and name of each object.
func objectColumns(keys []fleet.ObjectKey) []any {
	return []any{
		column(keys, func(k fleet.ObjectKey) string { return string(k.Engine) }),
		column(keys, func(k fleet.ObjectKey) string { return string(k.Kind) }),
		column(keys, func(k fleet.ObjectKey) string { return text(k.Name) }),
	}
}

func hasCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}

// chunkRows is the number of items per statement: a protocol message is at most 1 GB, and the
// server needs memory too.
const chunkRows = 10_000

// chunks splits the items into statements. All of them travel in the same round trip.
func chunks[T any](items []T) iter.Seq[[]T] { return slices.Chunk(items, chunkRows) }

// rowSteps writes the changed objects, each with a new number. An unchanged object keeps its
// number.
func rowSteps(r *mirror.Record) ([]step, error) {
	var present, absent []mirror.Row
	for _, row := range r.Rows {
		if row.Unwanted {
			absent = append(absent, row)
		} else {
			present = append(present, row)
		}
	}
	var steps []step
	numbered, total := 0, len(r.Rows)
	for part := range chunks(present) {
		steps = append(steps, upsertRows(r, part, total-numbered), adoptOrphans(part))
		numbered += len(part)
	}
	for part := range chunks(absent) {
		steps = append(steps, markAbsent(r, part, total-numbered))
		numbered += len(part)
	}
	if len(r.Released) > 0 {
		steps = append(steps, setHeld(r.Released, false))
	}
	if len(r.Held) > 0 {
		steps = append(steps, setHeld(r.Held, true))
	}
	return steps, nil
}

// upsertRows numbers its rows upwards from the newest number less back. MERGE rather than an
// upsert: no other transaction adds rows while this one has the mirror's lock, and speculative
// insertion would cost a third of an insert.
func upsertRows(r *mirror.Record, rows []mirror.Row, back int) step {
	credential := func(value func(*fleet.CredentialSource) string) []*string {
		return column(rows, func(row mirror.Row) *string {
			if row.Credential == nil {
				return nil
			}
			v := value(row.Credential)
			return &v
		})
	}
	args := append(
		objectColumns(column(rows, func(row mirror.Row) fleet.ObjectKey { return row.Key })),
		column(rows, func(row mirror.Row) string { return string(row.Tenant) }),
		column(rows, func(row mirror.Row) string { return string(row.Environment) }),
		column(rows, func(row mirror.Row) string { return string(row.Deployment) }),
		column(rows, func(row mirror.Row) string { return string(row.Deletion) }),
		credential(func(c *fleet.CredentialSource) string { return string(c.Tenant) }),
		credential(func(c *fleet.CredentialSource) string { return c.Name }),
		credential(func(c *fleet.CredentialSource) string { return c.Sealed }),
		column(rows, func(row mirror.Row) string { return row.Manifest.Hash }),
		column(rows, func(row mirror.Row) []byte { return row.Manifest.Body }),
		string(r.Revision), int64(back))
	return step{`
		MERGE INTO desired d
		USING (SELECT r.*, m.seq - $14::bigint + r.n AS seq
			FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[])
				WITH ORDINALITY AS r (engine, kind, name, tenant, environment, deployment, deletion,
					credential_tenant, credential_name, credential_sealed, hash, body, n), mirror m) r
		ON d.engine = r.engine AND d.kind = r.kind AND d.name = r.name
		WHEN NOT MATCHED THEN
			INSERT (engine, kind, name, tenant, environment, deployment, deletion, credential_tenant, credential_name, credential_sealed,
				hash, body, revision, seq, absent, created_at, changed_at)
			VALUES (r.engine, r.kind, r.name, r.tenant, r.environment, r.deployment, r.deletion, r.credential_tenant, r.credential_name, r.credential_sealed,
				r.hash, r.body, $13, r.seq, false, now(), now())
		WHEN MATCHED AND (d.absent OR d.hash <> r.hash
			OR (d.tenant, d.environment, d.deployment, d.deletion, d.credential_tenant, d.credential_name, d.credential_sealed) IS DISTINCT FROM
				(r.tenant, r.environment, r.deployment, r.deletion, r.credential_tenant, r.credential_name, r.credential_sealed)) THEN
			UPDATE SET tenant = r.tenant, environment = r.environment, deployment = r.deployment, deletion = r.deletion,
				credential_tenant = r.credential_tenant, credential_name = r.credential_name, credential_sealed = r.credential_sealed,
				hash = r.hash, body = r.body, uid = '', revision = $13, seq = r.seq, absent = false, changed_at = now(),
				created_at = CASE WHEN d.absent THEN now() ELSE d.created_at END`,
		args}
}

// adoptOrphans deletes from the list of orphans the objects that are declared again.
func adoptOrphans(rows []mirror.Row) step {
	return step{`
		DELETE FROM strays s USING unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
		WHERE s.engine = k.engine AND s.kind = k.kind AND s.name = k.name`,
		objectColumns(column(rows, func(row mirror.Row) fleet.ObjectKey { return row.Key }))}
}

// markAbsent marks rows for deletion. The row keeps its manifest, for the comparison before the
// deletion.
func markAbsent(r *mirror.Record, rows []mirror.Row, back int) step {
	return step{`
		UPDATE desired d SET absent = true, held = false, deletion = r.deletion, revision = $5, seq = m.seq - $6::bigint + r.n, changed_at = now()
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS r (engine, kind, name, deletion, n), mirror m
		WHERE d.engine = r.engine AND d.kind = r.kind AND d.name = r.name AND NOT d.absent`,
		append(objectColumns(column(rows, func(row mirror.Row) fleet.ObjectKey { return row.Key })),
			column(rows, func(row mirror.Row) string { return string(row.Deletion) }),
			string(r.Revision), int64(back))}
}

// setHeld marks whether the deletion of rows waits for an approval. Their number stays: the engine
// has no work.
func setHeld(keys []fleet.ObjectKey, held bool) step {
	return step{`
		UPDATE desired d SET held = $4 FROM unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
		WHERE d.engine = k.engine AND d.kind = k.kind AND d.name = k.name AND d.held <> $4`, append(objectColumns(keys), held)}
}

// syncSteps stores the requested syncs, each with its operation, and the holds of automation.
func syncSteps(r *mirror.Record) ([]step, error) {
	var steps []step
	if len(r.Syncs) > 0 {
		steps = append(steps, newSyncs(r))
	}
	steps = append(steps, rollbackSteps(r)...)
	application := func(ids []fleet.ApplicationID) []any {
		return []any{
			column(ids, func(id fleet.ApplicationID) string { return string(id.Tenant) }),
			column(ids, func(id fleet.ApplicationID) string { return string(id.Deployment) }),
			column(ids, func(id fleet.ApplicationID) string { return string(id.Environment) }),
		}
	}
	if len(r.EndedSyncHolds) > 0 {
		steps = append(steps, step{`
			DELETE FROM sync_holds h USING unnest($1::text[], $2::text[], $3::text[]) AS a (tenant, deployment, environment)
			WHERE h.tenant = a.tenant AND h.deployment = a.deployment AND h.environment = a.environment`, application(r.EndedSyncHolds)})
	}
	if len(r.SyncHolds) > 0 {
		steps = append(steps, step{`
			INSERT INTO sync_holds (tenant, deployment, environment, sync_run, target_revision)
			SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
			ON CONFLICT (tenant, deployment, environment) DO UPDATE SET sync_run = excluded.sync_run, target_revision = excluded.target_revision`,
			append(application(column(r.SyncHolds, func(h mirror.SyncHold) fleet.ApplicationID {
				return h.Application
			})),
				column(r.SyncHolds, func(h mirror.SyncHold) string { return string(h.SyncRun) }),
				column(r.SyncHolds, func(h mirror.SyncHold) string { return h.TargetRevision }))})
	}
	return steps, nil
}

func newSyncs(r *mirror.Record) step {
	return step{`
		WITH asked AS (
			INSERT INTO syncs (id, operation, engine, name, tenant, tenant_uid, environment, deployment, sync_run, revision, prune, state)
			SELECT id, operation, engine, name, tenant, live_tenant(tenant), environment, deployment, sync_run, revision, prune, 'Pending'
			FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bool[])
				AS r (id, operation, engine, name, tenant, environment, deployment, sync_run, revision, prune)
			ON CONFLICT (id) DO NOTHING
			RETURNING *)
		INSERT INTO operations (id, kind, state, tenant, tenant_uid, engine, subject, revision, requested_by, message, done, total, started_at)
		SELECT operation, 'Sync', 'Pending', tenant, tenant_uid, engine, tenant || '/' || deployment || '@' || environment, $11, $12,
			sync_run || ' at ' || revision, 0, 1, now()
		FROM asked ON CONFLICT (id) DO NOTHING`, []any{
		column(r.Syncs, func(q mirror.SyncRequest) string { return q.ID }),
		column(r.Syncs, func(q mirror.SyncRequest) string { return cmp.Or(q.Operation, newID()) }),
		column(r.Syncs, func(q mirror.SyncRequest) string { return string(q.Key.Engine) }),
		column(r.Syncs, func(q mirror.SyncRequest) string { return q.Key.Name }),
		column(r.Syncs, func(q mirror.SyncRequest) string { return string(q.Tenant) }),
		column(r.Syncs, func(q mirror.SyncRequest) string { return string(q.Environment) }),
		column(r.Syncs, func(q mirror.SyncRequest) string { return string(q.Deployment) }),
		column(r.Syncs, func(q mirror.SyncRequest) string { return string(q.SyncRun) }),
		column(r.Syncs, func(q mirror.SyncRequest) string { return q.Revision }),
		column(r.Syncs, func(q mirror.SyncRequest) bool { return q.Prune }),
		string(r.Revision), requester(r)}}
}

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
				RETURNING revision, tenant, message, reason, items, xmax = 0 AS fresh),
			entries AS (
				INSERT INTO audit (actor, action, subject, tenant, tenant_uid, revision, held, detail)
				SELECT 'argosy', 'hold', 'revision ' || left(revision, 8), tenant, live_tenant(tenant), revision, jsonb_array_length(items), message
				FROM held WHERE fresh)
			SELECT new_event('hold', tenant, revision, message) FROM held`, []any{
			column(r.Holds, func(h mirror.Hold) string { return string(h.Revision) }),
			column(r.Holds, func(h mirror.Hold) string { return string(h.Reason) }),
			column(r.Holds, func(h mirror.Hold) string { return string(h.Tenant) }), items,
			column(r.Holds, func(h mirror.Hold) string { return message(h.Message) }),
			column(r.Holds, func(h mirror.Hold) *time.Time { return moment(h.Since) }), paths}})
	}
	return steps, nil
}

// heldRevisionSteps reports once that a revision as a whole is held.
func heldRevisionSteps(r *mirror.Record) ([]step, error) {
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
		INSERT INTO revisions AS v (revision, author, subject, committed_at, recorded_at, created, changed, deleted, held, problems,
			fetched_at, checked_at, planned_at, first_recorded_at)
		VALUES ($1, $2, $3, $4, now(), $5, $6, $7, $8, $9, $10, $11, $12, now())
		ON CONFLICT (revision) DO UPDATE SET recorded_at = now(), created = v.created + excluded.created, changed = v.changed + excluded.changed,
			deleted = v.deleted + excluded.deleted, held = excluded.held, problems = excluded.problems, witness = 0, applied_at = NULL`,
			[]any{string(r.Revision), message(r.Author), message(r.Subject), r.CommittedAt,
				r.Created, r.Changed, r.Deleted, r.HeldBack, len(r.Problems),
				moment(r.FetchedAt), moment(r.CheckedAt), moment(r.PlannedAt)}},
		{`
		WITH open AS (
			UPDATE operations SET state = 'Running', message = $4, total = total + $5
			WHERE revision = $2 AND kind = 'Reconcile' AND ended_at IS NULL RETURNING id)
		INSERT INTO operations (id, kind, state, tenant, engine, subject, revision, requested_by, message, done, total, started_at)
		SELECT $1, 'Reconcile', 'Running', '', '', 'revision ' || left($2, 8), $2, $3, $4, 0, $5::int, now() WHERE NOT EXISTS (SELECT FROM open)`,
			[]any{newID(), string(r.Revision), requester(r), counts, len(r.Rows)}},
		auditRecorded(r, counts),
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

// tenantCounts are what a revision plans for one tenant.
type tenantCounts struct{ written, deleted, held, problems int }

// auditRecorded adds the entries of a revision: one of the platform with all counts, and one of
// each tenant that it changes, which that tenant may read. They name the operation that shows the
// progress, and the pull request, if the Git host has reported its merge already.
func auditRecorded(r *mirror.Record, counts string) step {
	tenants := map[fleet.TenantName]tenantCounts{}
	count := func(t fleet.TenantName, add func(*tenantCounts)) {
		if t != "" {
			c := tenants[t]
			add(&c)
			tenants[t] = c
		}
	}
	for i := range r.Rows {
		count(r.Rows[i].Tenant, func(c *tenantCounts) {
			if r.Rows[i].Unwanted {
				c.deleted++
			} else {
				c.written++
			}
		})
	}
	for _, h := range r.Holds {
		count(h.Tenant, func(c *tenantCounts) { c.held += len(h.Items) })
	}
	for i := range r.Quarantined {
		count(r.Quarantined[i].Key.Tenant, func(c *tenantCounts) { c.problems++ })
	}
	names := append([]fleet.TenantName{""}, sortedKeys(tenants)...)
	of := func(value func(tenantCounts) int, all int) []int {
		return column(names, func(t fleet.TenantName) int {
			if t == "" {
				return all
			}
			return value(tenants[t])
		})
	}
	return step{`
		INSERT INTO audit (actor, action, subject, tenant, tenant_uid, revision, pull, operation, detail, created, changed, deleted, held, problems)
		SELECT $1, 'record', $2, t.name, live_tenant(t.name), $3, coalesce((SELECT max(p.number) FROM pulls p WHERE p.body->>'mergeCommit' = $3
				AND p.body->>'mergeCommit' <> ''), 0),
			coalesce((SELECT max(o.id) FROM operations o WHERE o.revision = $3 AND o.kind = 'Reconcile' AND o.ended_at IS NULL), ''),
			CASE t.name WHEN '' THEN $4 ELSE concat_ws(', ', nullif(t.changed, 0) || ' written', nullif(t.deleted, 0) || ' deleted',
				nullif(t.held, 0) || ' held', nullif(t.problems, 0) || ' quarantined') END,
			t.created, t.changed, t.deleted, t.held, t.problems
		FROM unnest($5::text[], $6::int[], $7::int[], $8::int[], $9::int[], $10::int[])
			AS t (name, created, changed, deleted, held, problems)`, []any{requester(r),
		"revision " + r.Revision.Short(), string(r.Revision), counts,
		column(names, func(t fleet.TenantName) string { return string(t) }),
		of(func(tenantCounts) int { return 0 }, r.Created),
		of(func(c tenantCounts) int { return c.written }, r.Changed),
		of(func(c tenantCounts) int { return c.deleted }, r.Deleted),
		of(func(c tenantCounts) int { return c.held }, r.HeldBack),
		of(func(c tenantCounts) int { return c.problems }, len(r.Quarantined))}}
}

// unchangedStep stores a revision that changes nothing of the fleet, for the list of revisions. It
// is applied at once.
func unchangedStep(r *mirror.Record) step {
	return step{`
		INSERT INTO revisions (revision, author, subject, committed_at, recorded_at, created, changed, deleted, held, problems, applied_at,
			fetched_at, checked_at, planned_at, first_recorded_at)
		VALUES ($1, $2, $3, $4, now(), 0, 0, 0, 0, 0, now(), $5, $6, $7, now()) ON CONFLICT (revision) DO NOTHING`,
		[]any{string(r.Revision), message(r.Author), message(r.Subject), r.CommittedAt,
			moment(r.FetchedAt), moment(r.CheckedAt), moment(r.PlannedAt)}}
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
