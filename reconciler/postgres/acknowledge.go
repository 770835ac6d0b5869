package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Acknowledge records the results of an engine's worker, in one round trip. An Ack for another
// version of a row changes nothing. An Ack that proves the object deleted deletes the row too, if
// the row is unwanted. An Ack without news writes nothing. mirror.ErrFenced when the lease has
// passed on.
func (s *Work) Acknowledge(ctx context.Context, lease mirror.Lease, acks []mirror.Ack) error {
	if len(acks) == 0 {
		return nil
	}
	engine, err := leasedEngine(lease, acks, func(a mirror.Ack) fleet.ObjectKey { return a.Key })
	if err != nil {
		return err
	}
	var done, gone []mirror.Ack
	for _, a := range newest(acks, func(a mirror.Ack) fleet.ObjectKey { return a.Key }) {
		if a.Removed {
			gone = append(gone, a)
		} else {
			done = append(done, a)
		}
	}
	var touched []string
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		if lease.Life != "" {
			b.Queue(`SELECT fence_life($1)`, lease.Life)
		}
		b.Queue(sqlOpenRevisions,
			objectColumns(column(acks, func(a mirror.Ack) fleet.ObjectKey { return a.Key }))...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&touched) })
		if len(done) > 0 {
			b.Queue(sqlAcknowledge, append(ackColumns(done, lease),
				column(done, func(a mirror.Ack) string { return string(a.State) }),
				column(done, func(a mirror.Ack) string { return message(a.Message) }))...)
		}
		if len(gone) > 0 {
			b.Queue(sqlRemove, append(ackColumns(gone, lease), lease.Epoch)...)
		}
	})
	if err == nil {
		s.settle(ctx, touched)
	}
	return wrap(err, "acknowledge %d rows of engine %s", len(acks), engine)
}

const sqlAcknowledge = `
	WITH changed AS (
		INSERT INTO status AS s (engine, kind, name, tenant, seq, state, state_message, acked_at)
		SELECT d.engine, d.kind, d.name, d.tenant, d.seq, a.state, a.message, now()
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $7::text[], $8::text[])
			AS a (engine, kind, name, seq, hash, state, message)
		JOIN desired d ON d.engine = a.engine AND d.kind = a.kind AND d.name = a.name AND d.seq = a.seq
		WHERE ` + sqlSameContent + `
		ON CONFLICT (engine, kind, name) DO UPDATE SET
			tenant = excluded.tenant, seq = excluded.seq, state = excluded.state, state_message = excluded.state_message, acked_at = excluded.acked_at
		WHERE (s.seq, s.state, s.state_message) IS DISTINCT FROM (excluded.seq, excluded.state, excluded.state_message)
		RETURNING engine, kind, name, tenant, state)` + sqlTellOf + `'apply ' || min(state)` + sqlTellEnd

const sqlRemove = `
	WITH changed AS (
		DELETE FROM desired d USING unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) AS a (engine, kind, name, seq, hash)
		WHERE d.engine = a.engine AND d.kind = a.kind AND d.name = a.name AND d.absent AND d.seq = a.seq AND ` + sqlSameContent + `
		RETURNING d.engine, d.kind, d.name, d.tenant, d.seq, d.deletion, d.uid),
	swept AS (DELETE FROM status s USING changed c WHERE s.engine = c.engine AND s.kind = c.kind AND s.name = c.name
		RETURNING s.engine, s.kind, s.name, s.uid),
	unlisted AS (DELETE FROM strays s USING changed c
		WHERE s.engine = c.engine AND s.kind = c.kind AND s.name = c.name AND s.uid = c.uid),
	buried AS (
		INSERT INTO tombstones (engine, kind, name, tenant, uid, epoch, seq, deletion, at)
		SELECT c.engine, c.kind, c.name, c.tenant, coalesce(s.uid, ''), $7, c.seq, c.deletion, now()
		FROM changed c LEFT JOIN swept s ON s.engine = c.engine AND s.kind = c.kind AND s.name = c.name
		WHERE c.uid = ''
		ON CONFLICT (engine, kind, name) DO UPDATE SET tenant = excluded.tenant, uid = excluded.uid,
			epoch = excluded.epoch, seq = excluded.seq, deletion = excluded.deletion, at = excluded.at)` + sqlTellOf + `'removed'` + sqlTellEnd

// One event for each tenant with Applications among the changes. It names the Application if there
// is only one.
const sqlTellOf = `
	SELECT new_event('application', c.tenant,
		CASE WHEN count(*) = 1 THEN coalesce((SELECT d.tenant || '/' || d.deployment || '@' || d.environment FROM desired d
			WHERE d.engine = min(c.engine) AND d.kind = 'Application' AND d.name = min(c.name)), '') ELSE '' END,
		CASE WHEN count(*) = 1 THEN `
const sqlTellEnd = ` ELSE count(*) || ' applications of engine ' || min(c.engine) END)
	FROM changed c WHERE c.kind = 'Application' GROUP BY c.tenant`

func ackColumns(acks []mirror.Ack, lease mirror.Lease) []any {
	return append(objectColumns(column(acks, func(a mirror.Ack) fleet.ObjectKey { return a.Key })),
		column(acks, func(a mirror.Ack) int64 { return a.Seq }),
		column(acks, func(a mirror.Ack) string { return a.Hash }), lease.Name)
}

// After the database went back in time it gives a sequence number twice: an Ack is for the row with
// the same content hash. An Ack without a hash is for a row that the agent got in this incarnation.
const sqlSameContent = `(a.hash = d.hash OR a.hash = '' AND (SELECT same_life($6)))`

// leasedEngine is the engine of the lease, if every item belongs to it.
func leasedEngine[T any](lease mirror.Lease, items []T,
	key func(T) fleet.ObjectKey) (fleet.EngineName, error) {
	name, ok := strings.CutPrefix(lease.Name, "engine/")
	if !ok || name == "" {
		return "", fmt.Errorf("lease %q is not that of an engine", lease.Name)
	}
	for _, item := range items {
		if k := key(item); string(k.Engine) != name {
			return "", fmt.Errorf("lease %s gives no right to %s of engine %s", lease.Name, k.Name,
				k.Engine)
		}
	}
	return fleet.EngineName(name), nil
}

// newest keeps the last item of each object, ordered by the first occurrence of each object.
func newest[T any](items []T, key func(T) fleet.ObjectKey) []T {
	place := make(map[fleet.ObjectKey]int, len(items))
	kept := make([]T, 0, len(items))
	for _, item := range items {
		if i, ok := place[key(item)]; ok {
			kept[i] = item
			continue
		}
		place[key(item)] = len(kept)
		kept = append(kept, item)
	}
	return kept
}
