package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// forAgent runs reads of one snapshot for the agent of an engine, as argosy_agent with the engine
// set for this transaction alone: the database returns rows of that engine only, whatever f
// selects. See agent_scope in migrations/00005_agents.sql. declared: the engine is declared as
// served by an agent; otherwise the agent gets only the rows that are to be deleted. seq is the
// number of the newest row in that snapshot. mirror.ErrNotFound when the engine has neither a live
// identity nor a token of the older route, or is no longer served by agents.
func (s *Agents) forAgent(ctx context.Context, engine fleet.EngineName,
	f func(tx pgx.Tx, declared bool, seq int64) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, s.read, options, func(tx pgx.Tx) error {
		var seq int64
		word := ""
		batch := &pgx.Batch{}
		batch.Queue(`SELECT m.seq, coalesce((SELECT agent_stand(n.tenant, n.name) FROM (
				SELECT tenant, tenant_uid, name FROM agents WHERE engine = $1 AND ended_at IS NULL AND expires_at > clock_timestamp()
				UNION ALL
				SELECT tenant, tenant_uid, name FROM agent_tokens WHERE engine = $1 AND legacy AND revoked_at IS NULL AND expires_at > clock_timestamp()) n
			WHERE still_of(n.tenant, n.tenant_uid) LIMIT 1), '') FROM mirror m`, text(string(engine))).
			QueryRow(func(row pgx.Row) error { return row.Scan(&seq, &word) })
		batch.Queue(`SELECT set_config('argosy.engine', $1, true)`, text(string(engine)))
		batch.Queue(`SET LOCAL ROLE argosy_agent`)
		batch.Queue(`SET LOCAL statement_timeout = '` + statementTimeout + `'`)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if word == "" {
			return mirror.ErrNotFound
		}
		return f(tx, word == standDeclared, seq)
	})
}

// AgentRows visits every row of the engine in one snapshot, by number, and returns the cursor for
// AgentChanged. It holds a database connection meanwhile: visit only collects and must not block.
// Once the declaration is deleted or no longer names an agent, only rows that are to be deleted are
// left. mirror.ErrNotFound when no agent serves the engine.
func (s *Agents) AgentRows(ctx context.Context, engine fleet.EngineName,
	visit func(mirror.Row) error) (int64, error) {
	var cursor int64
	err := s.forAgent(patient(ctx, longPatience), engine,
		func(tx pgx.Tx, declared bool, seq int64) error {
			cursor = seq
			rows, err := tx.Query(ctx, `SELECT `+rowColumns+fromRows+sqlOfAgent+` ORDER BY d.seq`,
				string(engine), declared)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				row, err := scanRow(rows)
				if err == nil {
					err = visit(row)
				}
				if err != nil {
					return err
				}
			}
			return rows.Err()
		})
	if err != nil {
		return 0, fmt.Errorf("rows for the agent of engine %s: %w", engine, plain(err))
	}
	return cursor, nil
}

const sqlOfAgent = `WHERE d.engine = $1 AND ($2 OR d.absent)`

// AgentChanged returns at most limit rows of the engine above after, by number; otherwise as
// AgentRows.
func (s *Agents) AgentChanged(ctx context.Context, engine fleet.EngineName, after int64,
	limit int) ([]mirror.Row, error) {
	rows, err := agentRead(ctx, s, engine, scanRow, func(declared bool) (string, []any) {
		return `SELECT ` + rowColumns + fromRows + sqlOfAgent +
			` AND d.seq > $3 ORDER BY d.seq LIMIT $4`, []any{string(engine), declared, after, limit}
	})
	return rows, wrap(err, "changed rows for the agent of engine %s", engine)
}

// AgentCredentialRows returns the engine's rows that need the tenant's secret; otherwise as
// AgentRows.
func (s *Agents) AgentCredentialRows(ctx context.Context, engine fleet.EngineName,
	tenant fleet.TenantName, secret string) ([]mirror.Row, error) {
	rows, err := agentRead(ctx, s, engine, scanRow, func(declared bool) (string, []any) {
		return `SELECT ` + rowColumns + fromRows + sqlOfAgent +
				` AND d.credential_tenant = $3 AND d.credential_name = $4 ORDER BY d.seq`,
			[]any{string(engine), declared, string(tenant), secret}
	})
	return rows, wrap(err, "rows for the agent of engine %s with credential %s/%s", engine, tenant,
		secret)
}

// AgentSyncs returns the engine's pending syncs, oldest first; none once the engine is no longer
// declared. Otherwise as AgentRows.
func (s *Agents) AgentSyncs(ctx context.Context, engine fleet.EngineName) ([]mirror.SyncRequest,
	error) {
	all, err := agentRead(ctx, s, engine, scanSync, func(declared bool) (string, []any) {
		return sqlOpenSyncs + ` AND $2 ORDER BY operation`, []any{string(engine), declared}
	})
	return all, wrap(err, "syncs for the agent of engine %s", engine)
}

// agentRead returns all results of a statement for the agent of an engine. The statement may depend
// on whether the engine is declared.
func agentRead[T any](ctx context.Context, s *Agents, engine fleet.EngineName, scan pgx.RowToFunc[T],
	ask func(declared bool) (string, []any)) ([]T, error) {
	var all []T
	err := s.again(ctx, func() error {
		return s.forAgent(ctx, engine, func(tx pgx.Tx, declared bool, _ int64) (err error) {
			sql, args := ask(declared)
			all, err = read(ctx, tx, scan, sql, args...)
			return err
		})
	})
	return all, err
}

// AgentNews returns the changes for agents above the row number after and since the time since,
// which are Seq and Now of the previous result. It is one statement whatever the number of agents,
// and its cost depends on the changes alone. A negative after starts now, and the zero time starts
// two minutes ago. The times overlap by two minutes, because a transaction becomes visible when it
// commits but has the time of its writes: an ended identity or a changed declaration may be
// reported twice.
func (s *Agents) AgentNews(ctx context.Context, after int64, since time.Time) (registry.News,
	error) {
	var n registry.News
	err := s.again(ctx, func() error {
		var changed []string
		var generations []int64
		err := s.read.QueryRow(ctx, sqlAgentNews, after, moment(since)).Scan(&n.Seq, &n.Now,
			&n.Rows, &n.Syncs, &n.Ended, &changed, &generations,
			&n.Life, &n.Confirmed)
		n.Changed = make([]registry.Change, len(changed))
		for i, id := range changed {
			n.Changed[i] = registry.Change{Agent: id, Generation: generations[i]}
		}
		return err
	})
	return n, wrap(err, "news for agents")
}

// Rows of environments' own engines, of which there may be many, are found by number. Rows of
// declared Engines behind agents, which are few, are found by a lookup of each engine.
const (
	sqlAgentNews = `
	SELECT m.seq, clock_timestamp(),
		ARRAY(SELECT c.engine FROM (
			SELECT DISTINCT d.engine FROM desired d WHERE $1::bigint >= 0 AND d.seq > $1 AND d.seq <= m.seq AND strpos(d.engine, '.') > 0) c WHERE ` + sqlServed + `
			UNION ALL
			SELECT a.engine FROM agents a WHERE a.tenant = '' AND a.ended_at IS NULL AND (
				SELECT true FROM desired d WHERE $1::bigint >= 0 AND d.engine = a.engine AND d.seq > $1 AND d.seq <= m.seq ORDER BY d.seq LIMIT 1)),
		ARRAY(SELECT c.engine FROM (SELECT DISTINCT q.engine FROM syncs q WHERE q.state IN ('Pending', 'Running')) c WHERE ` + sqlServed + `),
		ARRAY(SELECT a.id FROM agents a WHERE a.ended_at IS NOT NULL AND a.ended_at > coalesce($2::timestamptz, now()) - interval '2 minutes'),
		coalesce(g.ids, '{}'), coalesce(g.generations, '{}'), incarnation(), m.confirmed
	FROM mirror m, (
		SELECT array_agg(a.id ORDER BY a.id) AS ids, array_agg(a.generation ORDER BY a.id) AS generations FROM agents a
		WHERE a.ended_at IS NULL AND a.generation > 0 AND a.changed_at > coalesce($2::timestamptz, now()) - interval '2 minutes') g`
	sqlServed = `EXISTS (SELECT FROM agents a WHERE a.engine = c.engine AND a.ended_at IS NULL)`
)

// CredentialEngines are the agents' engines with rows that need the tenant's secret.
func (s *Agents) CredentialEngines(ctx context.Context, tenant fleet.TenantName,
	secret string) ([]fleet.EngineName, error) {
	all, err := collect(ctx, s.database, pgx.RowTo[fleet.EngineName], `
		SELECT a.engine FROM agents a WHERE a.ended_at IS NULL AND a.tenant IN ('', $1) AND EXISTS (
			SELECT FROM desired d WHERE d.engine = a.engine AND d.credential_tenant = $1 AND d.credential_name = $2) ORDER BY a.engine`,
		text(string(tenant)), text(secret))
	return all, wrap(err, "agents that need the credential %s/%s", tenant, secret)
}
