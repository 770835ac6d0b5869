package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

const (
	attempts       = 6
	silentAttempts = 3 // of them, after statements without an answer in time
	firstPause     = 20 * time.Millisecond
	lastPause      = time.Second
)

// atomically sends the statements of a batch as one transaction, and again after a retryable error
// or a lost connection. Every batch has one effect however often it is sent. fill is called for
// each attempt.
func (s *database) atomically(ctx context.Context, fill func(*pgx.Batch)) error {
	return s.again(ctx, func() error {
		batch := &pgx.Batch{}
		fill(batch)
		// A batch outside of a transaction is one: the server commits at its end or not at all.
		return s.work.SendBatch(ctx, batch).Close()
	})
}

// transact runs f in a transaction, with the same guarantee and requirement as atomically.
func (s *database) transact(ctx context.Context, f func(pgx.Tx) error) error {
	return s.again(ctx, func() error { return pgx.BeginFunc(ctx, s.work, f) })
}

// again calls f until it succeeds, fails permanently, or has been called often enough. The pauses
// double and jitter, so that conflicting writers do not meet again.
func (s *database) again(ctx context.Context, f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if errors.Is(plain(err), ErrReadOnly) {
			s.reset()
		}
		// The statement exceeded its own deadline, not the caller's: the connection may be dead,
		// and the next one is another.
		silent := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && n < silentAttempts
		if err == nil || n == attempts || !silent && !passing(err) {
			return plain(err)
		}
		pause := min(firstPause<<(n-1), lastPause)
		if !pacing.SleepAbout(ctx, pause) {
			return plain(err)
		}
	}
}

// Codes of the database that this package distinguishes. AY… are our own: see
// migrations/00002_rules.sql.
const (
	codeFenced   = "AY001"
	codeRecorded = "AY002"
	codeStale    = "AY003"
	codeReplayed = "AY004"

	codeReadOnly      = "25006"
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codeStalePlan     = "0A000" // a migration changed what a prepared statement returns
	codeIdleTimeout   = "25P03"
)

// passing reports whether a retry may help.
func passing(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case codeSerialization, codeDeadlock, codeLockTimeout, codeStalePlan, codeReadOnly,
			codeIdleTimeout:
			return true
		}
		class := e.Code[:2]
		// lost connections, a server that stops or starts; not a cancelled query
		return class == "08" || class == "57" && e.Code != "57014"
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var network net.Error
	return pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) || errors.As(err, &network) || errors.Is(err, net.ErrClosed)
}

// plain maps an error of the database to the domain's error, if there is one.
func plain(err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case codeFenced:
		return &told{mirror.ErrFenced, e.Message}
	case codeStale:
		return &told{mirror.ErrStale, e.Message}
	case codeReplayed:
		return &told{registry.ErrReplayed, e.Message}
	case codeReadOnly:
		return &told{ErrReadOnly, e.Message}
	}
	return err
}

// told is a domain error with the message of the database.
type told struct {
	kind error
	text string
}

func (t *told) Error() string { return t.kind.Error() + ": " + t.text }
func (t *told) Unwrap() error { return t.kind }
