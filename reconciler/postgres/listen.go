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
	listenProof = 5 * time.Second  // that such a proof may take
	listenPause = 5 * time.Second  // at most, between attempts to connect
)

// Notify says "look" to every replica, and who says so: at most 8000 bytes, or nothing. It is a
// transaction of its own, after the one that it tells of: sending takes a lock of the whole server
// until its transaction has ended. Whoever calls it often should wait a little and call it once.
func (s *database) Notify(ctx context.Context, by string) error {
	err := s.again(ctx, func() error {
		_, err := s.control.Exec(ctx, `SELECT pg_notify($1, $2)`, channel, text(by))
		return err
	})
	return wrap(err, "notify")
}

// decided says "look" after a person has decided something. The decision stands whether anybody
// hears of it or not.
func (s *database) decided(ctx context.Context, notice string) {
	if err := s.Notify(ctx, notice); err != nil {
		s.log.Debug("no notification; replicas poll", "error", err)
	}
}

// Listen calls look with what Notify was given, whenever any replica calls that, until ctx ends. It
// connects again when the connection is lost, and then calls look as well, with "": whatever was
// said in between was missed. It is a hint and nothing more; whoever listens also polls.
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
		_ = conn.Close(end) // it is dead, or about to be
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
