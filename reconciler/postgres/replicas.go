package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
)

// worksFor is how long after its last beat a replica's workers count as running. It is less than a
// lease's duration: when the leases of a killed replica expire, it no longer counts.
const worksFor = `interval '6 s'`

// BeatWorkers is the heartbeat of a replica's running workers. It returns the other replicas and
// the holders of the requested leases. The caller sends it every two seconds.
func (s *Leases) BeatWorkers(ctx context.Context, beat mirror.ReplicaBeat) (mirror.Replicas,
	error) {
	var view mirror.Replicas
	err := s.again(ctx, func() error {
		view = mirror.Replicas{Preparing: map[string]int{}, Holders: map[string]string{}}
		b := &pgx.Batch{}
		b.Queue(`
			INSERT INTO replicas (replica, beat_at, worked_at, preparing)
			VALUES ($1, clock_timestamp(), clock_timestamp(), $2)
			ON CONFLICT (replica) DO UPDATE SET worked_at = excluded.worked_at, preparing = excluded.preparing`,
			text(beat.Replica), beat.Preparing)
		b.Queue(`SELECT replica, preparing FROM replicas WHERE worked_at > clock_timestamp() - ` +
			worksFor).
			Query(func(rows pgx.Rows) error { return readInto(rows, view.Preparing) })
		b.Queue(
			`SELECT name, holder FROM leases WHERE name = ANY ($1) AND expires_at > clock_timestamp()`,
			beat.Leases).Query(func(rows pgx.Rows) error { return readInto(rows, view.Holders) })
		return s.control.SendBatch(ctx, b).Close()
	})
	return view, wrap(err, "beat of replica %s", beat.Replica)
}

// readInto reads rows of a key and a value.
func readInto[V any](rows pgx.Rows, into map[string]V) error {
	var key string
	var value V
	_, err := pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		into[key] = value
		return nil
	})
	return err
}

// LeaveWorkers records that the workers of the replica are about to end.
func (s *Leases) LeaveWorkers(ctx context.Context, replica string) error {
	err := s.again(ctx, func() error {
		_, err := s.control.Exec(ctx,
			`UPDATE replicas SET worked_at = NULL, preparing = 0 WHERE replica = $1`, text(replica))
		return err
	})
	return wrap(err, "end of replica %s", replica)
}
