package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
)

// Engines match Filter.Engine, by name. They belong to the platform: with a tenant in scope there are none.
func (s *Store) Engines(ctx context.Context, scope fleet.Scope, by fleet.Filter, page fleet.Page) ([]fleet.EngineView, string, error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	f := filter{conditions: []string{"e.kind = 'Engine'", "e.tenant = ''"}}
	f.equal("e.name", string(by.Engine))
	return list(ctx, s, scope, listing[fleet.EngineView]{
		name: "engines", keys: []string{"e.name"}, scan: scanEngine,
		sql: `SELECT e.name, e.body, coalesce(g.reachable, false), coalesce(g.message, ''), g.since, coalesce(g.argocd, ''),
				coalesce(CASE WHEN l.expires_at > now() THEN l.holder END, ''), coalesce(l.epoch, 0)
			FROM declarations e LEFT JOIN engines g ON g.engine = e.name LEFT JOIN leases l ON l.name = 'engine/' || e.name`,
		key: func(e fleet.EngineView) []string { return []string{string(e.Name)} },
	}, f, page, completeEngines)
}

func scanEngine(row pgx.CollectableRow) (fleet.EngineView, error) {
	var e fleet.EngineView
	var d fleet.Declaration
	err := row.Scan(&e.Name, &d, &e.Reachable, &e.Message, &e.Since, &e.ArgoCD, &e.Holder, &e.Epoch)
	if spec := d.Engine; spec != nil {
		e.Region, e.State, e.Ring, e.Capacity, e.InstanceID = spec.Region, spec.State, spec.Ring, spec.Capacity, spec.ArgoCD.InstallationID
	}
	if e.State == "" {
		e.State = fleet.EngineActive
	}
	if e.Ring == "" {
		e.Ring = "stable"
	}
	return e, err
}

func completeEngines(ctx context.Context, tx pgx.Tx, engines []fleet.EngineView) error {
	names := column(engines, func(e fleet.EngineView) pair { return pair{string(e.Name), ""} })
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
	stops, err := read(ctx, tx, scanStop, `SELECT scope, name, by, reason, at FROM stops WHERE scope IN ('fleet', 'engine')`)
	if err != nil {
		return err
	}
	for i := range engines {
		e := &engines[i]
		e.Counts, e.Pending = counts[names[i]].Counts, pending[names[i]]
		e.Load = fleet.EngineLoad{Applications: e.Counts.Applications, Environments: placed[names[i]]}
		for _, stop := range stops {
			e.Stopped = e.Stopped || stop.Scope == fleet.StopFleet || stop.Name == string(e.Name)
		}
	}
	return nil
}
