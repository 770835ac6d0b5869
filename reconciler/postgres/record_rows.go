package postgres

import (
	"iter"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

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
		FROM asked`, []any{
		column(r.Syncs, func(q mirror.SyncRequest) string { return q.ID }),
		column(r.Syncs, func(mirror.SyncRequest) string { return newID() }),
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
