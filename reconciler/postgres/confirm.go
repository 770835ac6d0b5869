package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
)

// Mirror returns the current state of the mirror.
func (s *database) Mirror(ctx context.Context) (mirror.State, error) {
	var m mirror.State
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx,
			`SELECT incarnation(), applied, plan, seq, wanted, confirmed FROM mirror`).
			Scan(&m.Life, &m.Applied, &m.Plan, &m.Seq, &m.Wanted, &m.Confirmed)
	})
	return m, wrap(err, "state of the mirror")
}

// WantConfirmed requests a confirmation of the mirror, and returns the number that State.Confirmed
// then reaches.
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

// BeginLife makes the database another incarnation, if its incarnation is still was. The numbers of
// its rows have shown that it went back in time, as after a restore of its disk.
func (s *Agents) BeginLife(ctx context.Context, was string) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx,
			`UPDATE mirror SET life = gen_random_uuid() WHERE incarnation() = $1`, was)
		return err
	})
	return wrap(err, "begin another incarnation of the mirror")
}

// Confirm records that the mirror, in the state at, follows from the head of the config repo. It
// returns false if the mirror has changed since. mirror.ErrFenced when the lease has passed on.
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
