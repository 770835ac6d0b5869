package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Engines match Filter.Engine, by name. They belong to the platform: a tenant's scope has none. An
// engine behind an agent is reachable while the agent is connected and reaches it; otherwise
// Message has the reason.
func (s *Views) Engines(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Engine, string, error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	f := filter{conditions: []string{"e.kind = 'Engine'", "e.tenant = ''"}}
	f.equal("e.name", string(by.Engine))
	return list(ctx, s.database, scope, listing[view.Engine]{
		name: "engines", keys: []string{"e.name"}, scan: scanEngine,
		sql: `SELECT e.name, e.body, coalesce(g.reachable, false), coalesce(g.message, ''), g.since, coalesce(g.argocd, ''),
				coalesce(CASE WHEN l.expires_at > now() THEN l.holder END, ''), coalesce(l.epoch, 0),
				` + engineAway + `, a.id IS NOT NULL, greatest(r.beat_at, a.seen_at), g.went_back_at, coalesce(g.went_back, ''),
				(SELECT count(*) FROM strays t WHERE t.engine = e.name),
				(SELECT count(*) FROM reach t WHERE t.engine = e.name), (SELECT coalesce(sum(t.parked), 0) FROM reach t WHERE t.engine = e.name)` + fromEngines,
		key: func(e view.Engine) []string { return []string{string(e.Name)} },
	}, f, page, completeEngines)
}

// fromEngines joins the declared Engines, e, with their reports, g, their lease, l, and for an
// engine behind an agent the agent, a, and the replica that it is connected to, r.
const fromEngines = `
	FROM declarations e LEFT JOIN engines g ON g.engine = e.name LEFT JOIN leases l ON l.name = 'engine/' || e.name
		LEFT JOIN agents a ON a.engine = e.name AND a.ended_at IS NULL LEFT JOIN replicas r ON r.replica = a.connected_to`

// engineAway is whether the engine's agent is not connected. The engine's row holds the agent's
// last report, which is out of date then.
const engineAway = `(e.body #> '{engine,connection,agent}' IS NOT NULL AND coalesce(r.beat_at <= clock_timestamp() - ` + agentSeen + `, true))`

func scanEngine(row pgx.CollectableRow) (view.Engine, error) {
	var e view.Engine
	var d fleet.Declaration
	var away, joined bool
	var seen *time.Time
	err := row.Scan(&e.Name, &d, &e.Reachable, &e.Message, &e.Since, &e.ArgoCD, &e.Holder, &e.Epoch,
		&away, &joined, &seen, &e.WentBackAt, &e.WentBack, &e.Orphans,
		&e.Unreachable, &e.Parked)
	if away {
		withoutAgent(&e, joined, seen)
	}
	if spec := d.Engine; spec != nil {
		e.Region, e.State, e.Ring, e.Capacity, e.InstanceID = spec.Region, spec.State, spec.Ring,
			spec.Capacity, spec.ArgoCD.InstallationID
	}
	if e.State == "" {
		e.State = fleet.EngineActive
	}
	if e.Ring == "" {
		e.Ring = "stable"
	}
	return e, err
}

// withoutAgent explains why an engine without its agent is unreachable: since the agent was last
// seen, unless its Argo CD was unreachable before.
func withoutAgent(e *view.Engine, joined bool, seen *time.Time) {
	if e.Reachable {
		e.Since = seen
	}
	e.Reachable = false
	switch {
	case !joined:
		e.Message = "no agent has joined"
	case seen == nil:
		e.Message = "its agent has joined, and has not connected yet"
	default:
		e.Message = "its agent was last seen at " + seen.UTC().Format(time.RFC3339)
	}
}

func completeEngines(ctx context.Context, tx pgx.Tx, engines []view.Engine) error {
	names := column(engines, func(e view.Engine) pair { return pair{string(e.Name), ""} })
	counts, err := standings(ctx, tx, "d.engine", "''", names)
	if err != nil {
		return err
	}
	placed, err := tally(ctx, tx, names, `
		SELECT engine, '', count(*) FROM placements WHERE (engine, '') IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1`)
	if err != nil {
		return err
	}
	pending, err := tally(ctx, tx, names, `
		SELECT d.engine, '', count(*)`+fromRows+`
		WHERE (d.engine, '') IN (SELECT * FROM unnest($1::text[], $2::text[])) AND pending(d.seq, s.seq, s.state) GROUP BY 1`)
	if err != nil {
		return err
	}
	stops, err := read(ctx, tx, scanStop,
		`SELECT scope, name, by, reason, at FROM stops WHERE scope IN ('fleet', 'engine')`)
	if err != nil {
		return err
	}
	for i := range engines {
		e := &engines[i]
		e.Counts, e.Pending = counts[names[i]].Counts, pending[names[i]]
		e.Load = fleet.EngineLoad{Applications: e.Counts.Applications,
			Environments: placed[names[i]]}
		for _, stop := range stops {
			e.Stopped = e.Stopped || stop.Scope == mirror.StopFleet || stop.Name == string(e.Name)
		}
	}
	return nil
}
