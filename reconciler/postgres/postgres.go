// Package postgres is the store: the mirror of the config repo and of the engines' status, in
// PostgreSQL 15 or later.
//
// It holds what the config repo wants (declarations, placements, desired objects), how each object
// stands (status), what happened (revisions, operations, events, the audit log) and what people
// decided (approvals, stops, tokens). Git and the engines are the truth of the first two; the
// mirror is a cache of them that may be dropped.
//
// It holds the inbox of the forge as well: deliveries that were taken, what is to be looked at
// (looks), and what is kept of pull requests (records, and the plans that their reviewers saw). The
// jobs that look are River's, in tables of its own (river_...) beside ours, migrated after ours
// under the same lock. A job holds the key of a look and nothing else, and is inserted in the
// transaction that stores the delivery; what is asked for twice before it begins is one job. They
// are worked on by the replica that holds the lease "reconciler".
//
// Rules of this package:
//   - a revision is one transaction, and whatever its size it is one round trip of a fixed number of statements;
//   - rows are numbered under one lock, so that the order of their numbers is the order of commits and a cursor never passes over a row;
//   - every write on behalf of a lease is fenced: the database refuses an epoch that is not the newest;
//   - every write may be repeated with one effect, because a connection may be lost during COMMIT;
//   - what is unchanged is not written;
//   - a read for a tenant names the tenant, and runs as a role that sees nothing of any other (row-level security);
//   - no column holds a secret: rows name credentials, tokens are kept as hashes, sealed files stay sealed;
//   - everything is read from the primary, for it is decided upon;
//   - a notification only says "look", and is sent after the transaction, never within.
//
// Everything lives in the schema "argosy" of the database that the URL names.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
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
}

type (
	// Plans are the revisions: what is recorded, what it was computed from, whether it is confirmed.
	Plans struct{ *database }
	// Decisions are what people decide: approvals, emergency stops, removals, orphanings, owners.
	Decisions struct{ *database }
	// Leases are who may write to which engine, and which replicas share the leases.
	Leases struct{ *database }
	// Work is what a worker reads and reports of one engine.
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
}

func newStore(d *database) *Store {
	return &Store{
		database: d,
		Plans:    &Plans{d}, Decisions: &Decisions{d}, Leases: &Leases{d}, Work: &Work{d},
		Agents: &Agents{d}, Pulls: &Pulls{d}, Views: &Views{d}, Tokens: &Tokens{d},
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
	s := newStore(&database{base: config, tracer: o.Tracer, log: o.Log, waiting: &[3]atomic.Int64{}})
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
		// a first start.
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
