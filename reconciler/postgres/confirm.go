package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
)

// Mirror is where the mirror stands now.
func (s *database) Mirror(ctx context.Context) (mirror.State, error) {
	var m mirror.State
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx,
			`SELECT incarnation(), applied, plan, seq, wanted, confirmed FROM mirror`).
			Scan(&m.Life, &m.Applied, &m.Plan, &m.Seq, &m.Wanted, &m.Confirmed)
	})
	return m, wrap(err, "state of the mirror")
}

// WantConfirmed asks that the mirror be confirmed, and returns the number that
// MirrorState.Confirmed reaches when it is.
func (s *database) WantConfirmed(ctx context.Context) (int64, error) {
	m, err := s.Mirror(ctx)
	if err != nil || m.Wanted > m.Confirmed {
		return m.Wanted, err
	}
	var wanted int64
	err = s.again(ctx, func() error {
		return s.work.QueryRow(ctx,
			`UPDATE mirror SET wanted = greatest(wanted, confirmed + 1) RETURNING wanted`).Scan(
			&wanted)
	})
	return wanted, wrap(err, "ask for a confirmation of the mirror")
}

// BeginLife makes the database another incarnation, if it still is the one of that name: it was
// seen to go back in time by the numbers of its rows alone, as after its disk was put back.
func (s *Agents) BeginLife(ctx context.Context, was string) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx,
			`UPDATE mirror SET life = gen_random_uuid() WHERE incarnation() = $1`, was)
		return err
	})
	return wrap(err, "begin another incarnation of the mirror")
}

// Confirm records that what the mirror holds, as at says, follows from the head of the config repo.
// It is false when the mirror stands elsewhere by now. mirror.ErrFenced when the lease has passed
// on.
func (s *Plans) Confirm(ctx context.Context, lease mirror.Lease, at mirror.State) (bool,
	error) {
	confirmed := false
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		b.Queue(`
			WITH moved AS (
				UPDATE mirror SET confirmed = greatest(confirmed, $4)
				WHERE applied = $1 AND plan = $2 AND incarnation() = $3 RETURNING 1)
			SELECT EXISTS (SELECT FROM moved)`, string(at.Applied), at.Plan, at.Life, at.Wanted).
			QueryRow(func(row pgx.Row) error { return row.Scan(&confirmed) })
	})
	return confirmed, wrap(err, "confirm the mirror")
}
