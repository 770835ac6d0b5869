package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/pacing"
)

const (
	channel = "argosy"

	listenBeat  = 10 * time.Second // between proofs that a silent connection is alive
	listenProof = 5 * time.Second  // timeout of such a proof
	listenPause = 5 * time.Second  // maximum, between attempts to connect
)

// Notify notifies every replica with a payload of at most 8000 bytes. It is a transaction of its
// own, after the one that it reports: sending takes a lock of the whole server until its
// transaction ends. Frequent callers should wait a little and call it once.
func (s *database) Notify(ctx context.Context, by string) error {
	err := s.again(ctx, func() error {
		_, err := s.control.Exec(ctx, `SELECT pg_notify($1, $2)`, channel, text(by))
		return err
	})
	return wrap(err, "notify")
}

// decided notifies the replicas after a decision of a person. The decision is valid even if the
// notification is lost.
func (s *database) decided(ctx context.Context, notice string) {
	if err := s.Notify(ctx, notice); err != nil {
		s.log.Debug("no notification; replicas poll", "error", err)
	}
}

// Listen calls look with the payload of each notification of any replica, until ctx ends. After a
// lost connection it reconnects and calls look with "", because notifications in between were
// missed. A notification is a hint: the caller also polls.
func (s *Store) Listen(ctx context.Context, look func(by string)) {
	for failed := 0; ctx.Err() == nil; failed++ {
		err := s.listen(ctx, func(by string) { failed = 0; look(by) })
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("database notifications are interrupted; polling goes on", "error", err)
		pause := min(100*time.Millisecond<<min(failed, 10), listenPause)
		pacing.Sleep(ctx, pause/2+rand.N(pause/2))
	}
}

func (s *Store) listen(ctx context.Context, look func(by string)) error {
	conn, err := pgx.ConnectConfig(ctx, s.base.ConnConfig.Copy())
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenProof)
		defer cancel()
		_ = conn.Close(end) // the connection is dead, or about to be
	}()
	prove := func(sql string) error {
		proof, cancel := context.WithTimeout(ctx, listenProof)
		defer cancel()
		_, err := conn.Exec(proof, sql)
		return err
	}
	if err := prove(`LISTEN ` + channel); err != nil {
		return err
	}
	look("")
	for {
		beat, cancel := context.WithTimeout(ctx, listenBeat)
		told, err := conn.WaitForNotification(beat)
		cancel()
		switch {
		case err == nil:
			look(told.Payload)
		case beat.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
			if err := prove(`SELECT`); err != nil {
				return err
			}
		default:
			return err
		}
	}
}
