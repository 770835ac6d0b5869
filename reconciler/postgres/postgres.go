// Package postgres is the store: the mirror of the config repo and of the engines' status, in
// PostgreSQL 15 or later. A Store has one type for each aggregate over one set of pools: plans,
// decisions, leases, work, agents, pulls, views and tokens.
//
// It holds the desired state (declarations, placements, objects), the status of each object, the
// history (revisions, operations, events, the audit log) and people's decisions (approvals, stops,
// tokens). Git and the engines are the truth of the first two; the mirror is a cache of them that
// may be dropped.
//
// It also holds the inbox of the Git host: accepted deliveries, requested review jobs (table
// `looks`), and the records of pull requests with the plans that their reviewers saw. River runs
// the jobs, with tables of its own (river_...), migrated after ours under the same lock. A job
// holds only the key of its subject, and is inserted in the transaction that stores the delivery;
// two requests before it starts are one job. The replica that holds the lease "reconciler" runs
// them.
//
// Rules of this package:
//   - a revision is one transaction, and at any size one round trip of a fixed number of
//     statements;
//   - rows are numbered under one lock, so that the order of their numbers is the order of commits
//     and a cursor never skips a row;
//   - every write under a lease is fenced: the database refuses an epoch that is not the newest;
//   - every write is idempotent, because a connection may be lost during COMMIT;
//   - unchanged data is not written;
//   - a read for a tenant names the tenant, and runs as a role without access to any other
//     (row-level security);
//   - no column holds a secret: rows name credentials, tokens are stored as hashes, SOPS-encrypted
//     files stay encrypted;
//   - every read is from the primary, because decisions depend on it;
//   - a notification carries no data, and is sent after the transaction, never within.
//
// Everything is in the schema "argosy" of the URL's database.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// Options of a Store. The zero value is for production.
type Options struct {
	Connections Connections     // of each pool
	Log         *slog.Logger    // default: discarded
	Application string          // as pg_stat_activity shows it; default "argosy"
	Tracer      pgx.QueryTracer // sees every statement; nil: none
}

// Store is the mirror by aggregate. Its methods may be called at the same time, and by several
// replicas on one database.
type Store struct {
	*database

	Plans     *Plans
	Decisions *Decisions
	Leases    *Leases
	Work      *Work
	Agents    *Agents
	Pulls     *Pulls
	Views     *Views
	Tokens    *Tokens
	Audit     *Audit
	Traces    *Traces
	Sessions  *Sessions
	// Notifications are what is sent about the fleet
	Notifications *Notifications
	SourcePushes  *SourcePushes
}

type (
	// Plans are the revisions: what is recorded, what it was computed from, whether it is
	// confirmed.
	Plans struct{ *database }
	// Decisions are people's decisions: approvals, emergency stops, removals, orphanings, owners.
	Decisions struct{ *database }
	// Leases decide which process may write to which engine, and how replicas share the leases.
	Leases struct{ *database }
	// Work is the rows that a worker reads of one engine, and its reports.
	Work struct{ *database }
	// Agents are identities, registration tokens, sessions, rows and reports of agents.
	Agents struct{ *database }
	// Pulls are the pull requests, the owners of the Git host and the inbox of review jobs.
	Pulls struct{ *database }
	// Views are what the API, the page and the metrics read.
	Views struct{ *database }
	// Tokens are the API's bearer tokens.
	Tokens struct{ *database }
)

// database is the pools that every aggregate reads from and writes to.
type database struct {
	control *pgxpool.Pool // leases, emergency stops, approvals, readiness
	work    *pgxpool.Pool
	read    *pgxpool.Pool    // reads on behalf of others
	waiting *[3]atomic.Int64 // for a connection of each
	base    *pgxpool.Config
	tracer  pgx.QueryTracer
	log     *slog.Logger
	uses    *uses
	tallies *tallies
}

func newStore(d *database) *Store {
	return &Store{
		database: d,
		Plans:    &Plans{d}, Decisions: &Decisions{d}, Leases: &Leases{d}, Work: &Work{d},
		Agents: &Agents{d}, Pulls: &Pulls{d}, Views: &Views{d}, Tokens: &Tokens{d},
		Audit:         &Audit{d},
		Traces:        &Traces{d},
		Sessions:      &Sessions{d},
		Notifications: &Notifications{d}, SourcePushes: &SourcePushes{d},
	}
}

const (
	schema = "argosy"

	// The server ends a transaction whose client is silent, which releases the locks that block
	// others.
	idleInTransaction = "10s"
	lockTimeout       = "5s"
	statementTimeout  = "60s" // a first revision of 100,000 objects takes a few seconds
)

// Open connects to the database of url (postgres://…, several hosts allowed) and checks its schema:
// it is at least as new as this version's, because migrations only add. ErrSchema if `argosy
// migrate` has to run first.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	config, connections, err := poolConfig(url, o)
	if err != nil {
		return nil, err
	}
	s := newStore(
		&database{base: config, tracer: o.Tracer, log: o.Log, waiting: &[3]atomic.Int64{},
			uses: &uses{}, tallies: newTallies()})
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	kinds := pools(connections)
	for i, made := range []**pgxpool.Pool{&s.control, &s.work, &s.read} {
		if *made, err = kinds[i].open(ctx, config, o.Tracer, &s.waiting[i]); err != nil {
			s.Close()
			return nil, err
		}
	}
	if err := s.checkVersion(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close waits for statements in progress and closes every connection.
func (s *Store) Close() {
	for _, p := range []*pgxpool.Pool{s.control, s.work, s.read} {
		if p != nil {
			p.Close()
		}
	}
}

// Readers is the same store for reads on behalf of others: it uses the readers' connections alone,
// whose statements the server ends after five seconds. It is closed with its store.
func (s *Store) Readers() *Store {
	readers := *s.database
	readers.control, readers.work = s.read, s.read
	return newStore(&readers)
}

// ErrReadOnly means that the database refuses writes: a standby, or a demoted primary.
var ErrReadOnly = errors.New(
	"the database is read-only; is it a standby, or was the primary demoted?")

// Ping reports whether the database is reachable and writable, over the connections of leases and
// emergency stops. It is the readiness of the store.
func (s *Store) Ping(ctx context.Context) error {
	var readOnly bool
	err := s.control.QueryRow(ctx,
		`SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean`).Scan(
		&readOnly)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if readOnly {
		s.reset()
		return fmt.Errorf("database: %w", ErrReadOnly)
	}
	return nil
}

// reset drops every connection, so that the next ones find the server that accepts writes now.
func (s *database) reset() {
	for _, p := range []*pgxpool.Pool{s.control, s.work, s.read} {
		p.Reset()
	}
}

func poolConfig(url string, o Options) (*pgxpool.Config, Connections, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The parser's own error may repeat the URL, and with it the password.
		return nil, Connections{},
			errors.New(
				"database: the URL cannot be read; write " +
					"postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	var poolMax int32
	if asked, err := pgx.ParseConfig(url); err == nil &&
		asked.RuntimeParams["pool_max_conns"] != "" {
		poolMax = config.MaxConns
	}
	connections, err := o.Connections.sized(poolMax)
	if err != nil {
		return nil, Connections{}, err
	}
	prepareConn(config.ConnConfig, o.Application)
	config.AfterConnect = boundTransactions
	return config, connections, nil
}

// prepareConn sets our schema and time limits on a connection, and requires a writable server.
func prepareConn(c *pgx.ConnConfig, application string) {
	if application == "" {
		application = "argosy"
	}
	maps.Copy(c.RuntimeParams, serverKeepAlive())
	for name, value := range map[string]string{
		"application_name": application, "search_path": schema, "timezone": "UTC",
		"idle_in_transaction_session_timeout": idleInTransaction, "lock_timeout": lockTimeout,
		"statement_timeout": statementTimeout,
		// Plan for the tables' current size: a plan from when a table was empty is quadratic after
		// a first start. See sqlKeepPlans for the exception.
		"plan_cache_mode": "force_custom_plan", "jit": "off",
		// the data is in memory or on flash: looking up a few keys is faster than reading a table
		"random_page_cost": "1.1",
	} {
		c.RuntimeParams[name] = value
	}
	if c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if c.ConnectTimeout == 0 || c.ConnectTimeout > connectTimeout {
		c.ConnectTimeout = connectTimeout
	}
	c.DialFunc = dial(c.ConnectTimeout)
}

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
		return &databaseError{mirror.ErrFenced, e.Message}
	case codeStale:
		return &databaseError{mirror.ErrStale, e.Message}
	case codeReplayed:
		return &databaseError{registry.ErrReplayed, e.Message}
	case codeReadOnly:
		return &databaseError{ErrReadOnly, e.Message}
	}
	return err
}

// databaseError is a domain error with the message of the database.
type databaseError struct {
	kind error
	text string
}

func (t *databaseError) Error() string { return t.kind.Error() + ": " + t.text }
func (t *databaseError) Unwrap() error { return t.kind }

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
		notification, err := conn.WaitForNotification(beat)
		cancel()
		switch {
		case err == nil:
			look(notification.Payload)
		case beat.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
			if err := prove(`SELECT`); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// Awaited reports whether an error means that the database is not available yet: it is down,
// starting, stopping, or a standby that may be promoted. why is the class of the reason, without an
// address. Waiting does not help against a refused password, a missing database or a failed TLS
// handshake.
func Awaited(err error) (why string, ok bool) {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return awaitedCode(pgErr.Code)
	}
	var dns *net.DNSError
	var network *net.OpError
	errors.As(err, &network)
	switch {
	case errors.Is(err, ErrReadOnly):
		return "it is read-only", true
	case errors.As(err, &dns):
		return "its name is not found", true
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT) && network != nil:
		return "connection refused", true
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to it", true
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return "connection lost", true
	case errors.Is(err, context.DeadlineExceeded), network != nil && network.Timeout():
		return "no answer", true
	}
	return "", false
}

func awaitedCode(code string) (string, bool) {
	switch code {
	case "57P01", "57P02", "57P03":
		return "it starts or stops", true
	case "53300":
		return "it has no connection left", true
	case codeReadOnly:
		return "it is read-only", true
	}
	if len(code) == 5 && code[:2] == "08" {
		return "connection lost", true
	}
	return "", false
}

// Host is the host:port of a database URL; "" if the URL cannot be parsed.
func Host(url string) string {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return ""
	}
	network, address := pgconn.NetworkAddress(config.ConnConfig.Host, config.ConnConfig.Port)
	if network == "unix" {
		return "unix:" + address
	}
	return address
}
