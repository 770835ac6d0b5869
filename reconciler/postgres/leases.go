package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
)

// Acquire takes the lease of that name for ttl if it is free, has expired, or is the holder's
// already; false if another holds it. The epoch increases by one unless the holder renews its own
// lease. Time is the database's. An expired lease is not free while a write under it is in
// progress: the caller tries again later instead of occupying a connection that renewals need.
func (s *Leases) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (mirror.Lease,
	bool, error) {
	var l mirror.Lease
	var ok bool
	err := s.again(ctx, func() (err error) {
		l, ok, err = s.acquire(ctx, name, holder, ttl)
		if hasCode(err, codeLockTimeout) {
			l, ok, err = mirror.Lease{}, false, nil
		}
		return err
	})
	if err != nil {
		return mirror.Lease{}, false, fmt.Errorf("acquire lease %s: %w", name, err)
	}
	return l, ok, nil
}

func (s *Leases) acquire(ctx context.Context, name, holder string, ttl time.Duration) (mirror.Lease,
	bool, error) {
	var found mirror.Lease
	var left float64 // seconds until it expires
	err := s.control.QueryRow(ctx, `
		SELECT holder, epoch, greatest(0, extract(epoch FROM greatest(
			CASE WHEN isfinite(expires_at) THEN expires_at END,
			CASE WHEN offered_to <> $2 THEN offered_until END) - clock_timestamp()))::float8
		FROM leases WHERE name = $1`, name, holder).Scan(&found.Holder, &found.Epoch, &left)
	found.Name, found.Expires = name, time.Now().Add(time.Duration(left*float64(time.Second)))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return lease(s.control.QueryRow(ctx, `
			INSERT INTO leases (name, holder, epoch, expires_at) VALUES ($1, $2, 1, clock_timestamp() + $3::interval)
			ON CONFLICT (name) DO NOTHING RETURNING name, holder, epoch, expires_at, incarnation()`, name, holder, ttl))
	case err != nil:
		return mirror.Lease{}, false, err
	case left == 0:
		return s.takeOver(ctx, found, holder, ttl)
	case found.Holder == holder:
		return s.prolong(ctx, found, ttl)
	default:
		return found, false, nil
	}
}

// takeOver takes an expired lease, unless another did: then its epoch is another. It waits for a
// write in progress under the lease, but not for one whose client is silent.
func (s *Leases) takeOver(ctx context.Context, l mirror.Lease, holder string,
	ttl time.Duration) (mirror.Lease, bool, error) {
	conn, err := s.control.Acquire(ctx)
	if err != nil {
		return mirror.Lease{}, false, err
	}
	defer conn.Release()
	// the statement has a deadline of its own
	pid, ctx := conn.Conn().PgConn().PID(), context.WithoutCancel(ctx)
	var ending sync.WaitGroup
	defer ending.Wait()
	answered := make(chan struct{})
	defer close(answered)
	ending.Go(func() {
		select {
		case <-answered:
		case <-time.After(lockPatience / 2):
			s.endSilent(ctx, l.Name, pid)
		}
	})
	return lease(conn.QueryRow(ctx, `
		UPDATE leases SET holder = $2, epoch = epoch + 1, expires_at = clock_timestamp() + $3::interval
		WHERE name = $1 AND epoch = $4 AND expires_at <= clock_timestamp()
			AND ((offered_to = $2) IS NOT FALSE OR offered_until <= clock_timestamp())
		RETURNING name, holder, epoch, expires_at, incarnation()`, l.Name, holder, ttl, l.Epoch))
}

// silentFor is how long a write may wait for its own rest once its lease has expired. None of the
// server's timeouts ends it: its statement is complete, and its connection stays open if a proxy or
// a NAT keeps it for a dead client.
const silentFor = `interval '2 s'`

// endSilent terminates the sessions that block one of ours from the lease while they wait for their
// clients. Their transactions are rolled back.
func (s *Leases) endSilent(ctx context.Context, name string, waiting uint32) {
	var ended int
	err := s.work.QueryRow(ctx, `
		SELECT count(pg_terminate_backend(a.pid)) FROM unnest(pg_blocking_pids($1)) AS b (pid) JOIN pg_stat_activity a USING (pid)
		WHERE a.wait_event = 'ClientRead' AND a.state_change < clock_timestamp() - `+silentFor+` AND a.usename = current_user`,
		waiting).Scan(&ended)
	switch {
	case err != nil:
		s.log.Warn("failed to end a silent write that keeps a lease from being taken over", "lease",
			name, "error", err)
	case ended > 0:
		s.log.Warn("a write under a lease that has run out was waiting for its client and is ended",
			"lease", name, "sessions", ended)
	}
}

// Renew extends a lease; false if it has passed on, or another incarnation of the database granted
// it. It also extends an expired lease that has no new holder.
func (s *Leases) Renew(ctx context.Context, l mirror.Lease, ttl time.Duration) (bool, error) {
	var ok bool
	err := s.again(ctx, func() (err error) {
		_, ok, err = s.prolong(ctx, l, ttl)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("renew lease %s: %w", l.Name, err)
	}
	return ok, nil
}

func (s *Leases) prolong(ctx context.Context, l mirror.Lease, ttl time.Duration) (mirror.Lease,
	bool,
	error) {
	return lease(s.control.QueryRow(ctx, `
		UPDATE leases SET expires_at = clock_timestamp() + $4::interval WHERE name = $1 AND holder = $2 AND epoch = $3 AND holder <> ''
			AND ($5::text = '' OR $5 = incarnation())
		RETURNING name, holder, epoch, expires_at, incarnation()`, l.Name, l.Holder, l.Epoch, ttl, l.Life))
}

// Released is the prefix of the notification of a released lease. The lease's name follows.
const Released = "released "

// offerTime is how long a lease that was released for one replica is reserved for it.
const offerTime = 3 * time.Second

// Release releases a lease and notifies every replica, so that the next holder need not wait. With
// to, only that replica can acquire it for the next three seconds. A lease that has passed on is
// unchanged.
func (s *Leases) Release(ctx context.Context, l mirror.Lease, to string) error {
	err := s.again(ctx, func() error {
		_, err := s.control.Exec(ctx, `
			UPDATE leases SET holder = '', expires_at = '-infinity',
				offered_to = nullif($4, ''), offered_until = clock_timestamp() + $5::interval
			WHERE name = $1 AND holder = $2 AND epoch = $3`, l.Name, l.Holder, l.Epoch, text(to), offerTime)
		return err
	})
	if err != nil {
		return fmt.Errorf("release lease %s: %w", l.Name, err)
	}
	if err := s.Notify(ctx, Released+l.Name); err != nil {
		s.log.Debug("no notification; replicas that wait for the lease poll", "lease", l.Name,
			"error", err)
	}
	return nil
}

// RaiseEpoch raises the epoch of a held lease above floor, the highest epoch on its engine: after
// the loss of the database, epochs start again, and the objects still carry the earlier ones. It
// returns the new lease; mirror.ErrFenced when it has passed on.
func (s *Leases) RaiseEpoch(ctx context.Context, l mirror.Lease, floor int64) (mirror.Lease,
	error) {
	if l.Epoch > floor {
		return l, nil
	}
	var raised mirror.Lease
	var ok bool
	err := s.again(ctx, func() (err error) {
		raised, ok, err = lease(s.control.QueryRow(ctx, `
			UPDATE leases SET epoch = $4 WHERE name = $1 AND holder = $2 AND epoch IN ($3, $4)
			RETURNING name, holder, epoch, expires_at, incarnation()`, l.Name, l.Holder, l.Epoch, floor+1))
		return err
	})
	switch {
	case err != nil:
		return l, fmt.Errorf("raise epoch of lease %s: %w", l.Name, err)
	case !ok:
		return l, fmt.Errorf("raise epoch of lease %s: %w", l.Name, mirror.ErrFenced)
	}
	return raised, nil
}

// lease scans a returned lease; false if the statement changed none.
func lease(row pgx.Row) (mirror.Lease, bool, error) {
	var l mirror.Lease
	err := row.Scan(&l.Name, &l.Holder, &l.Epoch, &l.Expires, &l.Life)
	if errors.Is(err, pgx.ErrNoRows) {
		return mirror.Lease{}, false, nil
	}
	return l, err == nil, err
}

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
