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

// Workers is how many connections the workers' pool opens at most. Agents are served by it too.
func (s *Store) Workers() int { return int(s.work.Config().MaxConns) }

// Connections is how many connections each pool of a Store opens at most. A size that is zero takes
// its default, or its share of pool_max_conns when the URL has that.
//
// The pools are apart so that none can take the connections of another: readers of the API cannot
// keep a worker from acknowledging, and a flood of status cannot keep a lease from being renewed or
// an emergency stop from being read.
type Connections struct {
	Control int32 // leases, emergency stops, approvals, readiness; default 4
	Workers int32 // the loop, the workers, the hub's writes, webhook deliveries; default 8
	Readers int32 // the API, the page, event streams, the hub's reads; default 8
}

var defaultConnections = Connections{Control: 4, Workers: 8, Readers: 8}

// sized fills the sizes that are left out: of pool_max_conns (0: not given) each pool gets the
// share that it has of the defaults.
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

// PoolFigures are how one pool stands.
type PoolFigures struct {
	Name    string // control, workers or readers
	Size    int    // connections that it opens at most
	InUse   int
	Waiting int           // callers that wait for a connection
	Waited  time.Duration // for a connection, all callers so far together
	GaveUp  int64         // callers that have waited too long so far
}

// Pools are how the pools stand.
func (s *Store) Pools() []PoolFigures {
	figures := make([]PoolFigures, 0, len(PoolNames))
	for i, p := range []*pgxpool.Pool{s.control, s.work, s.read} {
		now := p.Stat()
		figures = append(figures, PoolFigures{
			Name: PoolNames[i], Size: int(now.MaxConns()), InUse: int(now.AcquiredConns()),
			Waiting: int(s.waiting[i].Load()),
			Waited:  now.EmptyAcquireWaitTime(), GaveUp: now.CanceledAcquireCount(),
		})
	}
	return figures
}

// PoolNames are the pools' in settings and metrics.
var PoolNames = [3]string{"control", "workers", "readers"}

// pool is what one pool's connections are opened with.
type pool struct {
	size     int32
	patience time.Duration // for one statement or batch; see patient
	acquire  time.Duration // that a caller waits for a free connection
	settings map[string]string
}

const (
	controlPatience = 2 * time.Second
	workPatience    = 10 * time.Second
	readPatience    = 6 * time.Second // the server ends a statement of a reader before
	longPatience    = 70 * time.Second
	tourPatience    = 5 * time.Minute // for all rows of an engine, which are visited one by one

	readTimeout = "5s"
	// without an answer to a statement, from which on its connection counts as silent
	silence = time.Second
	// whoever waits longer for a lease's lock asks again later, rather than occupy a connection
	lockPatience     = 500 * time.Millisecond
	pingTimeout      = 2 * time.Second
	connectTimeout   = 5 * time.Second
	lostPeer         = 20 * time.Second // after which data that nobody confirmed ends a connection
	keepAliveIdle    = 10 * time.Second
	keepAliveEvery   = 5 * time.Second
	keepAliveProbes  = 3
	transactionLimit = "120s"
)

// pools are a Store's: control, workers and readers.
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

// open makes the pool. Its connections are opened when they are needed.
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

// shouldPing has a connection proven before use when it was idle for long enough to have been
// forgotten on the way, and whenever its answer would be waited for longer than usual.
func shouldPing(ctx context.Context, p pgxpool.ShouldPingParams) bool {
	_, long := ctx.Value(patienceKey{}).(time.Duration)
	return long || p.IdleDuration > time.Second
}

// PoolSizes are how many connections each pool opens at most: control, workers and readers.
func (s *Store) PoolSizes() [3]int32 {
	return [3]int32{s.control.Config().MaxConns, s.work.Config().MaxConns, s.read.Config().MaxConns}
}

// deadlines gives every statement and batch of a pool a deadline, so that a connection that has
// fallen silent is found out by whoever uses it: the server at its other end may be gone without a
// word. One that was found out drops all connections of its pool, for they are likely as dead. A
// statement that a caller gave less than silence proves nothing: callers whose time runs out while
// many of them wait must not take the connections of the others, which would wait the longer for
// new ones.
type deadlines struct {
	patience, acquire time.Duration
	pool              *pgxpool.Pool
	waiting           *atomic.Int64 // for a connection
}

type (
	patienceKey struct{}
	endKey      struct{}
)

// patient gives the statements that are sent with the context that long instead of what their pool
// gives.
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

// bounded is what ends the time of a statement, a batch or an acquisition.
type bounded struct {
	cancel context.CancelFunc
	given  time.Duration // what it had, by its limit and its caller's deadline
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

// TraceBatchQuery is nothing: the time is that of the batch.
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

// TraceAcquireEnd ends it. That no connection was free says nothing of those that there are.
func (d *deadlines) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool,
	_ pgxpool.TraceAcquireEndData) {
	d.waiting.Add(-1)
	if b, ok := ctx.Value(endKey{}).(bounded); ok {
		b.cancel()
	}
}

// dial opens TCP connections that end when the other side is gone, rather than wait for it as long
// as the system does by default.
func dial(timeout time.Duration) pgconn.DialFunc {
	d := &net.Dialer{Timeout: timeout, Control: userTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle,
			Interval: keepAliveEvery, Count: keepAliveProbes}}
	return d.DialContext
}

// serverKeepAlive has the server find out as well: what a dead client holds locked is free again
// after half a minute, not after hours.
func serverKeepAlive() map[string]string {
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
	return map[string]string{
		"tcp_keepalives_idle":     seconds(keepAliveIdle),
		"tcp_keepalives_interval": seconds(keepAliveEvery),
		"tcp_keepalives_count":    strconv.Itoa(keepAliveProbes),
		"tcp_user_timeout":        strconv.FormatInt(lostPeer.Milliseconds(), 10),
	}
}

// boundTransactions bounds the time of a whole transaction where the server can (PostgreSQL 17):
// also while it waits for the rest of a statement, which no other of its timeouts counts.
func boundTransactions(ctx context.Context, conn *pgx.Conn) error {
	major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 17 {
		return nil //nolint:nilerr // a version that is no number is that of a test build
	}
	_, err := conn.Exec(ctx, `SET transaction_timeout = '`+transactionLimit+`'`)
	return err
}
