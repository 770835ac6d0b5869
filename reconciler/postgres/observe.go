package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Observe records the latest state of an engine's Applications, in one round trip. A report without
// news writes nothing: another comparison by Argo CD (ReconciledAt, ResourceVersion) is no news.
// Reports on objects without a row are dropped. mirror.ErrFenced when the lease has passed on.
func (s *Work) Observe(ctx context.Context, lease mirror.Lease, seen []mirror.Observation) error {
	if len(seen) == 0 {
		return nil
	}
	engine, err := leasedEngine(lease, seen, func(o mirror.Observation) fleet.ObjectKey {
		return o.Key
	})
	if err != nil {
		return err
	}
	args := observationColumns(newest(seen, func(o mirror.Observation) fleet.ObjectKey {
		return o.Key
	}))
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(sqlBeginStatus, args[:3]...)
		b.Queue(sqlObserve, args...)
	})
	return wrap(err, "observe %d applications of engine %s", len(seen), engine)
}

// UPDATE … FROM rather than an upsert: it does not touch the index. The engine comes with each row,
// so that the planner uses the key's index for each row and never reads a whole engine.
const sqlObserve = `
	WITH changed AS (
		UPDATE status s SET uid = o.uid, sync = o.sync, health = o.health, synced_revision = o.synced_revision,
			operation_phase = o.operation_phase, operation_id = o.operation_id, operation_error = o.operation_error, message = o.message,
			resources = o.resources, reconciled_at = o.reconciled_at, resource_version = o.resource_version, gone = o.gone, observed_at = now()
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::int[],
				$13::timestamptz[], $14::text[], $15::bool[])
			AS o (engine, kind, name, uid, sync, health, synced_revision, operation_phase, operation_id, operation_error, message, resources,
				reconciled_at, resource_version, gone)
		WHERE s.engine = o.engine AND s.kind = o.kind AND s.name = o.name AND
			(s.observed_at IS NULL OR
			(s.uid, s.sync, s.health, s.synced_revision, s.operation_phase, s.operation_id, s.operation_error, s.message, s.resources, s.gone) <>
			(o.uid, o.sync, o.health, o.synced_revision, o.operation_phase, o.operation_id, o.operation_error, o.message, o.resources, o.gone))
		RETURNING s.engine, s.kind, s.name, s.tenant, s.sync, s.health)` + sqlTellOf + `min(sync) || ', ' || min(health)` + sqlTellEnd

// sqlBeginStatus inserts a first status row for objects that are observed before their
// acknowledgement.
const sqlBeginStatus = `
	INSERT INTO status (engine, kind, name, tenant)
	SELECT d.engine, d.kind, d.name, d.tenant
	FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS o (engine, kind, name)
		WHERE NOT EXISTS (SELECT FROM status s WHERE s.engine = o.engine AND s.kind = o.kind AND s.name = o.name)) o
	JOIN desired d ON d.engine = o.engine AND d.kind = o.kind AND d.name = o.name
	ON CONFLICT DO NOTHING`

func observationColumns(seen []mirror.Observation) []any {
	of := func(value func(mirror.Observation) string) []string {
		return column(seen, func(o mirror.Observation) string { return message(value(o)) })
	}
	return append(objectColumns(column(seen, func(o mirror.Observation) fleet.ObjectKey {
		return o.Key
	})),
		of(func(o mirror.Observation) string { return o.UID }),
		of(syncWord), of(healthWord),
		of(func(o mirror.Observation) string { return o.SyncedRevision }),
		of(func(o mirror.Observation) string { return o.OperationPhase }),
		of(func(o mirror.Observation) string { return o.OperationID }),
		of(func(o mirror.Observation) string { return o.OperationError }),
		of(func(o mirror.Observation) string { return o.Message }),
		column(seen, func(o mirror.Observation) int32 { return int32(o.Resources) }),
		column(seen, func(o mirror.Observation) *time.Time { return moment(o.ReconciledAt) }),
		of(func(o mirror.Observation) string { return o.ResourceVersion }),
		column(seen, func(o mirror.Observation) bool { return o.Deleted }))
}

// A deleted object is neither in sync nor healthy, whatever its last report.
func syncWord(o mirror.Observation) string {
	if o.Deleted || o.Sync == "" {
		return string(mirror.SyncUnknown)
	}
	return string(o.Sync)
}

func healthWord(o mirror.Observation) string {
	switch {
	case o.Deleted:
		return string(mirror.HealthMissing)
	case o.Health == "":
		return string(mirror.HealthUnknown)
	}
	return string(o.Health)
}
