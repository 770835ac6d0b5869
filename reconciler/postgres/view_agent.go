package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// agentSeen is the maximum age of a replica's last beat for its agents to count as connected.
const agentSeen = `interval '30 seconds'`

// sqlAgents are the environments and Engines that are declared as served by an agent, and those of
// which only the agent is left.
const sqlAgents = `
	SELECT e.tenant, e.name, e.mode FROM (
		SELECT d.tenant, d.name, coalesce(d.body #>> '{environment,agent,mode}', 'managed') AS mode
		FROM declarations d WHERE d.kind = 'ManagedEnvironment' AND d.body #> '{environment,agent}' IS NOT NULL
		UNION ALL
		SELECT d.tenant, d.name, 'managed'
		FROM declarations d WHERE d.kind = 'Engine' AND d.tenant = '' AND d.body #> '{engine,connection,agent}' IS NOT NULL
		UNION ALL
		SELECT a.tenant, a.name, a.mode FROM agents a WHERE NOT a.declared AND a.ended_at IS NULL AND still_of(a.tenant, a.tenant_uid)) e`

// Agents match Filter.{Tenant, Environment, Engine}, by tenant and name; agents of the platform's
// Engines come first. A declared one that has not joined has an empty ID. The cost of a page
// depends on its own agents alone.
func (s *Views) Agents(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Agent, string, error) {
	f := filter{}
	f.tenants("e.tenant", scope, by.Tenant)
	if by.Environment != "" {
		f.equal("e.name", string(by.Environment))
		f.and("e.tenant <> ''")
	}
	if by.Engine != "" {
		// The engine of an environment whose names are too long for it is known after the join: see
		// fleet.AgentEngine.
		place := f.place(text(string(by.Engine)))
		f.and("(e.tenant || CASE e.tenant WHEN '' THEN '' ELSE '.' END || e.name = " + place +
			" OR EXISTS (SELECT FROM agents a WHERE a.engine = " + place +
			" AND a.tenant = e.tenant AND a.name = e.name))")
	}
	return list(ctx, s.database, scope, listing[view.Agent]{
		name: "agents", keys: []string{"e.tenant", "e.name"}, sql: sqlAgents, scan: scanAgentView,
		key: func(a view.Agent) []string { return []string{string(a.Tenant), viewName(a)} },
	}, f, page, completeAgents)
}

func scanAgentView(row pgx.CollectableRow) (view.Agent, error) {
	var a view.Agent
	var name string
	err := row.Scan(&a.Tenant, &name, &a.Mode)
	if a.Tenant == "" {
		a.Engine = fleet.EngineName(name)
	} else {
		a.Environment = fleet.EnvironmentName(name)
		a.Engine = fleet.AgentEngine(fleet.EnvironmentID{Tenant: a.Tenant, Name: a.Environment})
	}
	return a, err
}

// viewName is the name of the declaration behind an agent.
func viewName(a view.Agent) string {
	return agentName(registry.Agent{Tenant: a.Tenant, Environment: a.Environment, Engine: a.Engine})
}

// sqlAgentsPage is the identity of each agent, the live or the last one, and its pending work. The
// rows of each agent are found by their engine, one agent after another: for a join the planner
// would read those of all engines as soon as a page is long.
const sqlAgentsPage = `
	SELECT coalesce(a.id, ''), coalesce(a.ended_at IS NULL AND r.beat_at > clock_timestamp() - ` + agentSeen + `, false), greatest(r.beat_at, a.seen_at),
		a.joined_at, a.expires_at, CASE WHEN a.ended = 'revoked' THEN a.ended_at END, coalesce(a.ended = 'cloned', false), coalesce(a.version, ''),
		coalesce(a.argocd, ''), coalesce(a.reachable, false), coalesce(a.message, ''), coalesce(a.held_deletions, 0), coalesce(a.strays, 0), coalesce(a.own, 0),
		c.pending, c.lag, c.deletions
	FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS g (tenant, name, engine, n)
	LEFT JOIN LATERAL (
		SELECT i.id, i.ended_at, i.connected_to, i.seen_at, i.joined_at, i.expires_at, i.ended, i.version, i.argocd, i.reachable, i.message, i.held_deletions, i.strays, i.own
		FROM agents i WHERE i.tenant = g.tenant AND i.name = g.name AND still_of(i.tenant, i.tenant_uid) ORDER BY i.id DESC LIMIT 1) a ON true
	LEFT JOIN replicas r ON r.replica = a.connected_to
	CROSS JOIN LATERAL (
		SELECT count(*), count(DISTINCT d.revision), count(*) FILTER (WHERE d.absent)
		FROM desired d LEFT JOIN LATERAL (
			SELECT s.seq, s.state FROM status s WHERE s.engine = d.engine AND s.kind = d.kind AND s.name = d.name OFFSET 0) s ON true
		WHERE d.engine = g.engine AND pending(d.seq, s.seq, s.state)) AS c (pending, lag, deletions)
	ORDER BY g.n`

func completeAgents(ctx context.Context, tx pgx.Tx, agents []view.Agent) error {
	rows, err := tx.Query(ctx, sqlAgentsPage, column(agents, func(a view.Agent) string {
		return string(a.Tenant)
	}), column(agents, viewName),
		column(agents, func(a view.Agent) string { return string(a.Engine) }))
	if err != nil {
		return err
	}
	defer rows.Close()
	for i := 0; rows.Next(); i++ {
		a := &agents[i]
		if err := rows.Scan(&a.ID, &a.Connected, &a.SeenAt, &a.JoinedAt, &a.ExpiresAt, &a.RevokedAt,
			&a.Cloned, &a.Version, &a.ArgoCD, &a.Reachable, &a.Message,
			&a.HeldDeletions, &a.Orphans, &a.Own, &a.Pending, &a.Lag,
			&a.PendingDeletions); err != nil {
			return err
		}
		if a.Own > mirror.MaxOwn {
			a.Message = joinWords(a.Message,
				fmt.Sprintf("%d own Applications, of which %d are shown", a.Own, mirror.MaxOwn))
		}
	}
	return rows.Err()
}

func joinWords(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
