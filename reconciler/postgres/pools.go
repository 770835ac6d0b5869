package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Workers is the maximum number of connections in the workers' pool. It serves agents too.
func (s *Store) Workers() int { return int(s.work.Config().MaxConns) }

// Connections are the maximum numbers of connections of a Store's pools. A zero takes its default,
// or its share of pool_max_conns if the URL has that.
//
// The pools are separate so that none can use up the connections of another: readers of the API
// cannot keep a worker from acknowledging, and a flood of status reports cannot keep a lease from
// being renewed or an emergency stop from being read.
type Connections struct {
	Control int32 // leases, emergency stops, approvals, readiness; default 4
	Workers int32 // the loop, the workers, agents' writes, webhook deliveries; default 8
	Readers int32 // the API, the page, event streams, agents' reads; default 8
}

var defaultConnections = Connections{Control: 4, Workers: 8, Readers: 8}

// sized fills omitted sizes: each pool gets the share of pool_max_conns (0: not given) that it has
// of the defaults.
func (c Connections) sized(poolMax int32) (Connections, error) {
	sizes := []*int32{&c.Control, &c.Workers, &c.Readers}
	defaults := []int32{defaultConnections.Control, defaultConnections.Workers,
		defaultConnections.Readers}
	var given, missing, wanted int32
	for i, n := range sizes {
		if *n < 0 {
			return c, fmt.Errorf("database: a pool has 1 connection or more, not %d", *n)
		}
		if given += *n; *n == 0 {
			missing++
			wanted += defaults[i]
		}
	}
	left := poolMax - given
	if poolMax > 0 && left < missing {
		return c,
			fmt.Errorf(
				"database: pool_max_conns=%d of the URL leaves %d connections for %d pools; "+
					"raise it to %d or more, or remove it and set database.connections",
				poolMax, max(left, 0), missing, given+missing)
	}
	for i, n := range sizes {
		switch {
		case *n > 0:
		case poolMax == 0:
			*n = defaults[i]
		default:
			*n = max(1, min(left-(missing-1), left*defaults[i]/wanted))
			missing, left, wanted = missing-1, left-*n, wanted-defaults[i]
		}
	}
	return c, nil
}

// PoolStats are the statistics of one pool.
type PoolStats struct {
	Name    string // control, workers or readers
	Size    int    // maximum number of connections
	InUse   int
	Waiting int           // callers that wait for a connection
	Waited  time.Duration // total of all callers
	GaveUp  int64         // callers that waited too long
}

// Pools returns the statistics of the pools.
func (s *Store) Pools() []PoolStats {
	stats := make([]PoolStats, 0, len(PoolNames))
	for i, p := range []*pgxpool.Pool{s.control, s.work, s.read} {
		now := p.Stat()
		stats = append(stats, PoolStats{
			Name: PoolNames[i], Size: int(now.MaxConns()), InUse: int(now.AcquiredConns()),
			Waiting: int(s.waiting[i].Load()),
			Waited:  now.EmptyAcquireWaitTime(), GaveUp: now.CanceledAcquireCount(),
		})
	}
	return stats
}

// PoolNames are the names of the pools in settings and metrics.
var PoolNames = [3]string{"control", "workers", "readers"}

// pool configures the connections of one pool.
type pool struct {
	size     int32
	patience time.Duration // for one statement or batch; see patient
	acquire  time.Duration // that a caller waits for a free connection
	settings map[string]string
}

const (
	controlPatience = 2 * time.Second
	workPatience    = 10 * time.Second
	readPatience    = 6 * time.Second // the server ends a reader's statement earlier
	longPatience    = 70 * time.Second
	scanPatience    = 5 * time.Minute // for all rows of an engine, which are visited one by one

	readTimeout = "5s"
	// time without an answer to a statement after which its connection counts as silent
	silence = time.Second
	// a caller that waits longer for a lease's lock tries again later instead of occupying a
	// connection
	lockPatience     = 500 * time.Millisecond
	pingTimeout      = 2 * time.Second
	connectTimeout   = 5 * time.Second
	lostPeer         = 20 * time.Second // after which unacknowledged data ends a connection
	keepAliveIdle    = 10 * time.Second
	keepAliveEvery   = 5 * time.Second
	keepAliveProbes  = 3
	transactionLimit = "120s"
)

// pools configures control, workers and readers.
func pools(o Connections) [3]pool {
	return [3]pool{
		{size: o.Control, patience: controlPatience, acquire: 2 * controlPatience,
			settings: map[string]string{"statement_timeout": controlPatience.String(),
				"lock_timeout": lockPatience.String()}},
		{size: o.Workers, patience: workPatience, acquire: 2 * workPatience},
		{size: o.Readers, patience: readPatience, acquire: readPatience,
			settings: map[string]string{"statement_timeout": readTimeout}},
	}
}

// open opens the pool. It connects on demand.
func (p pool) open(ctx context.Context, base *pgxpool.Config, tracer pgx.QueryTracer,
	waiting *atomic.Int64) (*pgxpool.Pool, error) {
	config := base.Copy()
	config.MaxConns, config.PingTimeout, config.ShouldPing = p.size, pingTimeout, shouldPing
	maps.Copy(config.ConnConfig.RuntimeParams, p.settings)
	d := &deadlines{patience: p.patience, acquire: p.acquire, waiting: waiting}
	config.ConnConfig.Tracer = d
	if tracer != nil {
		config.ConnConfig.Tracer = multitracer.New(d, tracer)
	}
	made, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	d.pool = made
	return made, nil
}

// shouldPing checks a connection before use if it was idle long enough to be dropped on the way,
// and before every statement with a longer deadline than usual.
func shouldPing(ctx context.Context, p pgxpool.ShouldPingParams) bool {
	_, long := ctx.Value(patienceKey{}).(time.Duration)
	return long || p.IdleDuration > time.Second
}

// PoolSizes are the maximum numbers of connections: control, workers and readers.
func (s *Store) PoolSizes() [3]int32 {
	return [3]int32{s.control.Config().MaxConns, s.work.Config().MaxConns, s.read.Config().MaxConns}
}

// deadlines gives every statement and batch of a pool a deadline, which detects a silent
// connection: the server at its other end may be gone without closing it. After one such connection
// all connections of the pool are dropped, for they are likely dead too. A statement with a
// deadline below silence proves nothing: many waiting callers that run out of time must not drop
// the connections of the others, which would then wait longer for new ones.
type deadlines struct {
	patience, acquire time.Duration
	pool              *pgxpool.Pool
	waiting           *atomic.Int64 // for a connection
}

type (
	patienceKey struct{}
	endKey      struct{}
)

// patient gives the statements of the context this time instead of the pool's.
func patient(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, d)
}

func (d *deadlines) begin(ctx context.Context) context.Context {
	limit, ok := ctx.Value(patienceKey{}).(time.Duration)
	if !ok {
		limit = d.patience
	}
	return within(ctx, limit)
}

// bounded ends the time of a statement, a batch or an acquisition.
type bounded struct {
	cancel context.CancelFunc
	given  time.Duration // time that it had, by its limit and its caller's deadline
}

// within is the context with at most that much time; ended releases it.
func within(ctx context.Context, limit time.Duration) context.Context {
	given := limit
	if deadline, ok := ctx.Deadline(); ok {
		given = min(limit, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return context.WithValue(ctx, endKey{}, bounded{cancel, given})
}

func (d *deadlines) ended(ctx context.Context, err error) {
	b, ok := ctx.Value(endKey{}).(bounded)
	if !ok {
		return
	}
	b.cancel()
	if errors.Is(err, context.DeadlineExceeded) && b.given >= silence && d.pool != nil {
		d.pool.Reset()
	}
}

// TraceQueryStart begins the time of a statement.
func (d *deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceQueryStartData) context.Context {
	return d.begin(ctx)
}

// TraceQueryEnd ends it.
func (d *deadlines) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	d.ended(ctx, data.Err)
}

// TraceBatchStart begins the time of a batch.
func (d *deadlines) TraceBatchStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceBatchStartData) context.Context {
	return d.begin(ctx)
}

// TraceBatchQuery does nothing: the deadline is that of the batch.
func (*deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends the time of a batch.
func (d *deadlines) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	d.ended(ctx, data.Err)
}

// TraceAcquireStart begins the wait for a free connection.
func (d *deadlines) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool,
	_ pgxpool.TraceAcquireStartData) context.Context {
	d.waiting.Add(1)
	return within(ctx, d.acquire)
}

// TraceAcquireEnd ends it. A lack of free connections proves nothing about the existing ones.
func (d *deadlines) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool,
	_ pgxpool.TraceAcquireEndData) {
	d.waiting.Add(-1)
	if b, ok := ctx.Value(endKey{}).(bounded); ok {
		b.cancel()
	}
}

// dial opens TCP connections that end when the peer is gone, instead of after the system's long
// default.
func dial(timeout time.Duration) pgconn.DialFunc {
	d := &net.Dialer{Timeout: timeout, Control: userTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle,
			Interval: keepAliveEvery, Count: keepAliveProbes}}
	return d.DialContext
}

// serverKeepAlive makes the server detect it too: the locks of a dead client are released after
// half a minute, not after hours.
func serverKeepAlive() map[string]string {
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
	return map[string]string{
		"tcp_keepalives_idle":     seconds(keepAliveIdle),
		"tcp_keepalives_interval": seconds(keepAliveEvery),
		"tcp_keepalives_count":    strconv.Itoa(keepAliveProbes),
		"tcp_user_timeout":        strconv.FormatInt(lostPeer.Milliseconds(), 10),
	}
}

// boundTransactions limits the time of a whole transaction if the server can (PostgreSQL 17),
// including the wait for the rest of a statement, which no other timeout covers.
func boundTransactions(ctx context.Context, conn *pgx.Conn) error {
	major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 17 {
		return nil //nolint:nilerr // a version that is no number is that of a test build
	}
	_, err := conn.Exec(ctx, `SET transaction_timeout = '`+transactionLimit+`'`)
	return err
}
