package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Tenants match Filter.Tenant, by name.
func (s *Views) Tenants(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Tenant, string, error) {
	f := filter{conditions: []string{"e.kind = 'Tenant'", "e.tenant = ''"}}
	f.tenants("e.name", scope, by.Tenant)
	return list(ctx, s.database, scope, listing[view.Tenant]{
		name: "tenants", sql: `SELECT e.name, e.body FROM declarations e`, keys: []string{"e.name"},
		scan: func(row pgx.CollectableRow) (view.Tenant, error) {
			var t view.Tenant
			var d fleet.Declaration
			err := row.Scan(&t.Name, &d)
			if d.Tenant != nil {
				t.Owners, t.Quota = d.Tenant.Owners, d.Tenant.Quota
			}
			return t, err
		},
		key: func(t view.Tenant) []string { return []string{string(t.Name)} },
	}, f, page, func(ctx context.Context, tx pgx.Tx, tenants []view.Tenant) error {
		return s.completeTenants(ctx, tx, scope, tenants)
	})
}

func (s *Views) completeTenants(ctx context.Context, tx pgx.Tx, scope view.Scope,
	tenants []view.Tenant) error {
	names := column(tenants, func(t view.Tenant) pair { return pair{string(t.Name), ""} })
	var counts map[pair]stateCounts
	var err error
	if scope.Tenant == "" && len(names) > countedAlone {
		counts, _, err = s.tallies.count(ctx, tx, false)
	} else {
		counts, err = countStates(ctx, tx, "d.tenant", "''", names)
	}
	if err != nil {
		return err
	}
	declared := func(kind fleet.Kind) (map[pair]int, error) {
		return tally(ctx, tx, names, `
			SELECT tenant, '', count(*) FROM declarations
			WHERE kind = '`+string(kind)+`' AND (tenant, '') IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1`)
	}
	environments, err := declared(fleet.KindManagedEnvironment)
	if err != nil {
		return err
	}
	deployments, err := declared(fleet.KindGitOpsDeployment)
	if err != nil {
		return err
	}
	problems, err := tally(ctx, tx, names, `
		SELECT tenant, '', count(*) FROM `+sqlProblems+` p WHERE (tenant, '') IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1`)
	if err != nil {
		return err
	}
	stops, err := read(ctx, tx, scanStop,
		`SELECT scope, name, by, reason, at FROM stops WHERE scope IN ('fleet', 'tenant')`)
	if err != nil {
		return err
	}
	for i := range tenants {
		t, c := &tenants[i], counts[names[i]]
		t.Counts, t.Held, t.Problems = c.Counts, c.held, problems[names[i]]
		t.Used = fleet.Quota{Environments: environments[names[i]],
			Deployments: deployments[names[i]], Applications: c.Applications}
		for _, stop := range stops {
			t.Stopped = t.Stopped || stop.Scope == mirror.StopFleet || stop.Name == string(t.Name)
		}
	}
	return nil
}

// sqlPlacement is a complete placement of placements p. The previous version stored the
// alternatives in the body.
const sqlPlacement = `CASE WHEN p.alternatives IS NULL THEN p.body ELSE p.body || jsonb_build_object('alternatives', p.alternatives) END
	|| CASE WHEN p.body ? 'misplaced' THEN jsonb_build_object('misplacedPolicy',
		(SELECT coalesce(f.body #>> '{fleet,placement,misplaced}', 'Stay') FROM declarations f WHERE f.kind = 'Fleet' LIMIT 1)) ELSE '{}' END`

// sqlSlices is the placements of the slices of the environment of declaration e, if it is split,
// and since when one of their engines is silent.
const sqlSlices = `LEFT JOIN LATERAL (
		SELECT jsonb_agg(` + sqlPlacement + ` ORDER BY p.slice) AS placements, min(silent_since(p.engine)) AS silent
		FROM placements p WHERE p.tenant = e.tenant AND p.environment = e.name AND p.slice <> '') slices ON true`

// Environments match Filter.{Tenant, Environment, Engine}, by tenant and name. A split environment
// matches the engine of each of its slices.
func (s *Views) Environments(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Environment, string, error) {
	f := filter{conditions: []string{"e.kind = 'ManagedEnvironment'"}}
	f.tenants("e.tenant", scope, by.Tenant)
	f.equal("e.name", string(by.Environment))
	if by.Engine != "" {
		f.and("(e.tenant, e.name) IN (SELECT on_.tenant, on_.environment FROM placements on_ WHERE on_.engine = " +
			f.place(text(string(by.Engine))) + ")")
	}
	return list(ctx, s.database, scope, listing[view.Environment]{
		name: "environments", keys: []string{"e.tenant", "e.name"}, scan: scanEnvironment,
		sql: `SELECT e.body, ` + sqlPlacement + `, slices.placements, least(silent_since(p.engine), slices.silent)
			FROM declarations e LEFT JOIN placements p ON p.tenant = e.tenant AND p.environment = e.name AND p.slice = '' ` + sqlSlices,
		key: func(e view.Environment) []string {
			return []string{string(e.Tenant), string(e.Name)}
		},
	}, f, page, completeEnvironments)
}

func scanEnvironment(row pgx.CollectableRow) (view.Environment, error) {
	var d fleet.Declaration
	var p *fleet.Placement
	var seen *time.Time
	var parts []fleet.Placement
	if err := row.Scan(&d, &p, &parts, &seen); err != nil {
		return view.Environment{}, err
	}
	e := view.Environment{Tenant: d.Key.Tenant, Name: fleet.EnvironmentName(d.Key.Name),
		Labels: d.Labels, Slices: parts, LastSeenAt: seen}
	if len(parts) > 0 {
		p = &parts[0]
	}
	if spec := d.Environment; spec != nil {
		e.Namespaces, e.Region = spec.Namespaces, spec.Region
		if spec.AllNamespaces {
			e.Namespaces = []string{"*"}
		}
		if spec.Cluster != nil {
			e.Server = spec.Cluster.Address()
		}
		if spec.Agent != nil {
			e.Agent = fleet.AgentManaged
		}
		if spec.Agent.Autonomous() {
			e.Agent = fleet.AgentAutonomous
		}
	}
	if p == nil {
		p = &fleet.Placement{Environment: fleet.EnvironmentID{Tenant: e.Tenant, Name: e.Name},
			Reason: "not decided yet"}
	}
	e.Engine, e.Placement = p.Engine, *p
	return e, nil
}

func completeEnvironments(ctx context.Context, tx pgx.Tx,
	environments []view.Environment) error {
	names := column(environments, func(e view.Environment) pair {
		return pair{string(e.Tenant), string(e.Name)}
	})
	counts, err := countStates(ctx, tx, "d.tenant", "d.environment", names)
	if err != nil {
		return err
	}
	problems, err := problemsOf(ctx, tx, fleet.KindManagedEnvironment, names)
	if err != nil {
		return err
	}
	unreachable, err := unreachables(ctx, tx, names)
	if err != nil {
		return err
	}
	own, err := tally(ctx, tx, names, `
		SELECT tenant, environment, count(*) FROM own_applications
		WHERE (tenant, environment) IN (SELECT * FROM unnest($1::text[], $2::text[])) AND tenant_uid = live_tenant(tenant) GROUP BY 1, 2`)
	if err != nil {
		return err
	}
	for i := range environments {
		e := &environments[i]
		e.Counts, e.Own, e.Problems = counts[names[i]].Counts, own[names[i]], problems[names[i]]
		e.Unreachable = unreachable[names[i]]
		if u := e.Unreachable; u != nil && (e.LastSeenAt == nil || u.Since.Before(*e.LastSeenAt)) {
			e.LastSeenAt = &u.Since
		}
	}
	return nil
}

// Explain returns the stored placements of an environment; mirror.ErrNotFound if the scope has no
// such environment.
func (s *Views) Explain(ctx context.Context, scope view.Scope,
	environment fleet.EnvironmentID) (view.Explained, error) {
	f := filter{}
	f.tenants("tenant", scope, "")
	f.and("tenant = " + f.place(text(string(environment.Tenant))) + " AND environment = " +
		f.place(text(string(environment.Name))))
	var found []fleet.Placement
	err := s.within(ctx, scope, func(tx pgx.Tx) (err error) {
		found, err = read(ctx, tx, pgx.RowTo[fleet.Placement], `SELECT `+sqlPlacement+
			` FROM placements p`+f.where()+` ORDER BY p.slice`, f.args...)
		return err
	})
	if err == nil && len(found) == 0 {
		err = mirror.ErrNotFound
	}
	if err != nil {
		return view.Explained{}, wrap(err, "environment %s", environment)
	}
	e := view.Explained{Placement: found[0]}
	if e.Slice != "" {
		e.Slices = found
	}
	return e, nil
}

// Unready counts the Applications of each placed slice that are not Synced and Healthy, if there
// are any.
func (s *Views) Unready(ctx context.Context) (map[fleet.SliceID]int, error) {
	found := map[fleet.SliceID]int{}
	err := s.within(ctx, view.Scope{}, func(tx pgx.Tx) error {
		split, err := read(ctx, tx, pgx.RowToStructByPos[fleet.SliceID],
			`SELECT tenant, environment, slice FROM placements WHERE slice <> ''`)
		if err != nil {
			return err
		}
		partitions := map[fleet.EnvironmentID][]fleet.Slice{}
		for _, id := range split {
			partitions[id.In()] = append(partitions[id.In()], id.Slice)
		}
		rows, err := tx.Query(ctx, `
			WITH split AS MATERIALIZED (SELECT DISTINCT tenant, environment FROM placements WHERE slice <> '')
			SELECT d.tenant, d.environment, CASE WHEN (d.tenant, d.environment) IN (SELECT * FROM split) THEN d.deployment ELSE '' END, count(*)`+fromRows+`
			WHERE d.kind = 'Application' AND NOT d.absent AND (s.sync = 'Synced' AND s.health = 'Healthy') IS NOT TRUE
			GROUP BY 1, 2, 3`)
		if err != nil {
			return err
		}
		var id fleet.SliceID
		var deployment fleet.DeploymentName
		var n int
		into := []any{&id.Tenant, &id.Environment, &deployment, &n}
		_, err = pgx.ForEachRow(rows, into, func() error {
			id.Slice, _ = fleet.SliceOf(deployment, partitions[id.In()])
			found[id] += n
			return nil
		})
		return err
	})
	return found, wrap(err, "applications that are not ready")
}

// Deployments match Filter.{Tenant, Deployment, Environment, Labels, Text}, by tenant and name;
// Environment matches deployments that name or select it.
func (s *Views) Deployments(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Deployment, string, error) {
	f := deploymentsFilter(scope, by)
	return list(ctx, s.database, scope, listing[view.Deployment]{
		name: "deployments", keys: []string{"e.tenant", "e.name"},
		sql: `SELECT e.body FROM declarations e`, scan: scanDeployment,
		key: func(d view.Deployment) []string {
			return []string{string(d.Tenant), string(d.Name)}
		},
	}, f, page, completeDeployments)
}

func deploymentsFilter(scope view.Scope, by view.Filter) filter {
	f := filter{conditions: []string{"e.kind = 'GitOpsDeployment'"}}
	f.tenants("e.tenant", scope, by.Tenant)
	f.equal("e.name", string(by.Deployment))
	if by.Environment != "" {
		f.and(
			`EXISTS (SELECT FROM declarations t WHERE t.kind = 'ManagedEnvironment' AND t.tenant = e.tenant
			AND t.name = ` + f.place(text(string(by.Environment))) + ` AND ` + sqlTargets + `)`)
	}
	f.labels("e.body -> 'labels'", by.Labels)
	if by.Text != "" {
		f.contains("e.tenant || '/' || e.name", by.Text)
	}
	return f
}

// sqlTargets is whether the environment t is one of the deployment e: named, or selected as
// fleet.LabelSelector selects.
const sqlTargets = `(
	coalesce((e.body #> '{deployment,destination,environments}') ? t.name, false) OR
	coalesce(nullif(e.body #> '{deployment,destination,environmentSelector}', '{}') IS NOT NULL
		AND coalesce((e.body #> '{deployment,destination,environmentSelector,matchLabels}') <@ coalesce(t.body -> 'labels', '{}'), true)
		AND NOT EXISTS (
			SELECT FROM jsonb_array_elements(e.body #> '{deployment,destination,environmentSelector,matchExpressions}') x
			WHERE NOT CASE x ->> 'operator'
				WHEN 'In' THEN coalesce((x -> 'values') ? (t.body #>> ARRAY['labels', x ->> 'key']), false)
				WHEN 'NotIn' THEN NOT coalesce((x -> 'values') ? (t.body #>> ARRAY['labels', x ->> 'key']), false)
				WHEN 'Exists' THEN coalesce((t.body -> 'labels') ? (x ->> 'key'), false)
				WHEN 'DoesNotExist' THEN NOT coalesce((t.body -> 'labels') ? (x ->> 'key'), false)
				ELSE false END), false))`

func scanDeployment(row pgx.CollectableRow) (view.Deployment, error) {
	var d fleet.Declaration
	err := row.Scan(&d)
	v := view.Deployment{Tenant: d.Key.Tenant, Name: fleet.DeploymentName(d.Key.Name),
		Labels: d.Labels, Environments: []fleet.EnvironmentName{}}
	v.Set, _ = fleet.SetOf(d.Key, d.Path)
	if d.Deployment != nil {
		v.Source, v.Sources = d.Deployment.AllSources()[0], d.Deployment.Sources
		v.Namespace = d.Deployment.Destination.Namespace
	}
	return v, err
}

func completeDeployments(ctx context.Context, tx pgx.Tx, deployments []view.Deployment) error {
	names := column(deployments, func(d view.Deployment) pair {
		return pair{string(d.Tenant), string(d.Name)}
	})
	counts, err := countStates(ctx, tx, "d.tenant", "d.deployment", names)
	if err != nil {
		return err
	}
	problems, err := problemsOf(ctx, tx, fleet.KindGitOpsDeployment, names)
	if err != nil {
		return err
	}
	targets := map[pair][]fleet.EnvironmentName{}
	rows, err := tx.Query(ctx, `
		SELECT e.tenant, e.name, t.name FROM declarations e JOIN declarations t ON t.kind = 'ManagedEnvironment' AND t.tenant = e.tenant AND `+sqlTargets+`
		WHERE e.kind = 'GitOpsDeployment' AND (e.tenant, e.name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
		ORDER BY 1, 2, 3`, firsts(names), seconds(names))
	if err != nil {
		return err
	}
	var p pair
	var environment fleet.EnvironmentName
	if _, err = pgx.ForEachRow(rows, []any{&p[0], &p[1], &environment}, func() error {
		targets[p] = append(targets[p], environment)
		return nil
	}); err != nil {
		return err
	}
	var sets []pair
	for _, d := range deployments {
		if p := (pair{string(d.Tenant), d.Set}); d.Set != "" && !slices.Contains(sets, p) {
			sets = append(sets, p)
		}
	}
	listings, err := listingsOf(ctx, tx, sets)
	if err != nil {
		return err
	}
	for i := range deployments {
		d := &deployments[i]
		d.Listings = listings[pair{string(d.Tenant), d.Set}]
		d.Counts, d.Problems = counts[names[i]].Counts, problems[names[i]]
		d.Environments = append(d.Environments, targets[names[i]]...)
	}
	return nil
}

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
				(SELECT count(*) FROM reach t WHERE t.engine = e.name), (SELECT coalesce(sum(t.parked), 0) FROM reach t WHERE t.engine = e.name), silent_since(e.name), coalesce(g.work, ''), coalesce(g.work_message, ''), g.work_since, g.load, coalesce(g.next_remedy, ''), ` + sqlLastRemedy + `e.name ORDER BY r.requested_at DESC LIMIT 1),
				(SELECT jsonb_build_object('state', t.state, 'message', t.message, 'since', t.since) FROM drains t WHERE t.engine = e.name),
				(SELECT jsonb_build_object('state', t.state, 'message', t.message, 'since', t.since, 'by', t.by, 'reason', t.reason, 'at', t.at,
					'forgottenAt', t.forgotten_at, 'forgottenBy', t.forgotten_by, 'unproven', (SELECT count(*) FROM unproven u WHERE u.engine = e.name AND u.lost = 'Engine'),
					'away', (SELECT count(*) ` + sqlAway + `e.name), 'open', (SELECT count(*) FROM application_moves m WHERE m.from_engine = e.name AND m.step <> 'Done'),
					'leftovers', (SELECT count(*) FROM desired d WHERE d.engine = e.name AND d.absent)) FROM evacuations t WHERE t.engine = e.name),
				(SELECT ` + sqlFence + ` FROM fences f WHERE f.engine = e.name)` + fromEngines,
		key: func(e view.Engine) []string { return []string{string(e.Name)} },
	}, f, page, s.completeEngines)
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
	var seen, workSince *time.Time
	var work mirror.Work
	err := row.Scan(&e.Name, &d, &e.Reachable, &e.Message, &e.Since, &e.ArgoCD, &e.Holder, &e.Epoch,
		&away, &joined, &seen, &e.WentBackAt, &e.WentBack, &e.Orphans,
		&e.Unreachable, &e.Parked, &e.LastSeenAt, &work.State, &work.Message, &workSince,
		&e.Measured, &e.NextRemedy, &e.Remedy, &e.Drain, &e.Evacuation, &e.Fence)
	if work.State != "" && workSince != nil && e.Reachable && !away {
		work.Since = *workSince
		e.Work = &work
	}
	if away {
		withoutAgent(&e, joined, seen)
	}
	if d.Engine != nil && d.Engine.ArgoCD.Size != nil {
		e.Size = d.Engine.ArgoCD.Size.String()
	}
	switch measured := d.Engine != nil && d.Engine.Metrics != nil; {
	case !measured:
		e.Measured = nil
	case e.Measured == nil:
		e.Measured = &mirror.Load{Message: "not measured yet"}
	}
	if spec := d.Engine; spec != nil {
		e.BehindAgent = spec.Connection.Agent != nil
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

func (s *Views) completeEngines(ctx context.Context, tx pgx.Tx, engines []view.Engine) error {
	names := column(engines, func(e view.Engine) pair { return pair{string(e.Name), ""} })
	counts, pending, err := s.countEngines(ctx, tx, names)
	if err != nil {
		return err
	}
	placed, err := tally(ctx, tx, names, `
		SELECT engine, '', count(*) FROM placements WHERE (engine, '') IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1`)
	if err != nil {
		return err
	}
	waiting, err := waitingOn(ctx, tx, firsts(names))
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
		e.Waiting = waiting[e.Name]
		e.Load = fleet.EngineLoad{Applications: e.Counts.Applications,
			Environments: placed[names[i]]}
		for _, stop := range stops {
			e.Stopped = e.Stopped || stop.Scope == mirror.StopFleet || stop.Name == string(e.Name)
		}
	}
	return nil
}

// countEngines counts the Applications of each engine, and all rows that it has not applied.
func (s *Views) countEngines(ctx context.Context, tx pgx.Tx, names []pair) (
	counts map[pair]stateCounts, pending map[pair]int, err error) {
	const rowsPending = `SELECT d.engine, '', count(*)` + fromRows + `
		WHERE (d.engine, '') IN (SELECT * FROM unnest($1::text[], $2::text[])) AND pending(d.seq, s.seq, s.state)`
	if len(names) <= countedAlone {
		if counts, err = countStates(ctx, tx, "d.engine", "''", names); err == nil {
			pending, err = tally(ctx, tx, names, rowsPending+` GROUP BY 1`)
		}
		return counts, pending, err
	}
	if counts, pending, err = s.tallies.count(ctx, tx, true); err != nil {
		return nil, nil, err
	}
	others, err := tally(ctx, tx, names,
		rowsPending+` AND d.kind IN ('AppProject', 'Cluster', 'Repository') GROUP BY 1`)
	for name, n := range others {
		pending[name] += n
	}
	return counts, pending, err
}

// waitingOn returns the first objects of each engine, without its Applications, that are not as
// declared and whose worker has reported a reason.
func waitingOn(ctx context.Context, tx pgx.Tx, engines []string) (
	map[fleet.EngineName][]view.Waiting, error) {
	rows, err := tx.Query(ctx, `
		SELECT w.* FROM unnest($1::text[]) AS e (engine) CROSS JOIN LATERAL (
			SELECT d.engine, d.kind, d.name, s.state_message`+fromRows+`
			WHERE d.engine = e.engine AND d.kind IN ('AppProject', 'Cluster', 'Repository')
				AND s.seq = d.seq AND s.state_message <> '' AND pending(d.seq, s.seq, s.state)
			ORDER BY d.kind, d.name LIMIT $2) w`, engines, view.MaxWaiting)
	if err != nil {
		return nil, err
	}
	found := map[fleet.EngineName][]view.Waiting{}
	var engine fleet.EngineName
	var w view.Waiting
	_, err = pgx.ForEachRow(rows, []any{&engine, &w.Kind, &w.Name, &w.Message}, func() error {
		found[engine] = append(found[engine], w)
		return nil
	})
	return found, err
}

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

// sqlAgentsPage is the identity of each agent, the live or the last one, its pending work, and why
// it cannot apply one of the objects that Applications share: no list of Applications shows it. The
// rows of each agent are found by their engine, one agent after another: for a join the planner
// would read those of all engines as soon as a page is long.
const sqlAgentsPage = `
	SELECT coalesce(a.id, ''), coalesce(a.ended_at IS NULL AND r.beat_at > clock_timestamp() - ` + agentSeen + `, false), greatest(r.beat_at, a.seen_at),
		a.joined_at, a.expires_at, CASE WHEN a.ended = 'revoked' THEN a.ended_at END, coalesce(a.ended = 'cloned', false), coalesce(a.version, ''),
		coalesce(a.argocd, ''), coalesce(a.reachable, false), coalesce(a.message, ''), coalesce(a.held_deletions, 0), coalesce(a.strays, 0), coalesce(a.own, 0),
		c.pending, c.lag, c.deletions, coalesce(c.failed, ''),
		(SELECT jsonb_build_object('ring', n.ring, 'version', n.agent_version, 'state', n.state, 'message', n.message)
			FROM instances n WHERE n.engine = g.engine AND n.agent_digest <> '')
	FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS g (tenant, name, engine, n)
	LEFT JOIN LATERAL (
		SELECT i.id, i.ended_at, i.connected_to, i.seen_at, i.joined_at, i.expires_at, i.ended, i.version, i.argocd, i.reachable, i.message, i.held_deletions, i.strays, i.own
		FROM agents i WHERE i.tenant = g.tenant AND i.name = g.name AND still_of(i.tenant, i.tenant_uid) ORDER BY i.id DESC LIMIT 1) a ON true
	LEFT JOIN replicas r ON r.replica = a.connected_to
	CROSS JOIN LATERAL (
		SELECT count(*), count(DISTINCT d.revision), count(*) FILTER (WHERE d.absent),
			min(d.kind || ' ' || d.name || ': ' || s.state_message) FILTER (WHERE d.kind <> 'Application' AND s.seq = d.seq AND s.state = 'Failed')
		FROM desired d LEFT JOIN LATERAL (
			SELECT s.seq, s.state, s.state_message FROM status s WHERE s.engine = d.engine AND s.kind = d.kind AND s.name = d.name OFFSET 0) s ON true
		WHERE d.engine = g.engine AND pending(d.seq, s.seq, s.state)) AS c (pending, lag, deletions, failed)
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
		a, failed := &agents[i], ""
		if err := rows.Scan(&a.ID, &a.Connected, &a.SeenAt, &a.JoinedAt, &a.ExpiresAt, &a.RevokedAt,
			&a.Cloned, &a.Version, &a.ArgoCD, &a.Reachable, &a.Message,
			&a.HeldDeletions, &a.Orphans, &a.Own, &a.Pending, &a.Lag,
			&a.PendingDeletions, &failed, &a.Upgrade); err != nil {
			return err
		}
		if failed != "" {
			a.Message = joinWords(a.Message, failed)
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

// Pulls match Filter.{Tenant, Pull, State}, highest number first. A tenant sees pull requests whose
// plan changes it, as the tenant of that name at the last save, and nothing of other changed
// tenants.
func (s *Views) Pulls(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Pull, string, error) {
	if scope.Tenant != "" && by.Tenant != "" && by.Tenant != scope.Tenant {
		// a tenant may not learn which of its pull requests change another tenant
		return nil, "", nil
	}
	from, f := pullsWithin(scope, by)
	return list(ctx, s.database, scope, listing[view.Pull]{
		name: "pulls", keys: []string{from.number}, newest: true,
		sql: `SELECT p.body, r.base, r.hash` + from.sql,
		scan: func(row pgx.CollectableRow) (view.Pull, error) {
			var p pullRow
			err := row.Scan(&p.record, &p.base, &p.hash)
			return p.view(scope), err
		},
		key: func(p view.Pull) []string { return []string{strconv.Itoa(p.Number)} },
	}, f, page, nil)
}

// PullOf returns one pull request, and the plan of its head as shown to reviewers, as JSON; nil
// without one. The report contains the parts of all tenants: a caller that shows it to one tenant
// removes the others'. mirror.ErrNotFound when the scope has no such pull request.
func (s *Views) PullOf(ctx context.Context, scope view.Scope, number int) (view.Pull, []byte,
	error) {
	from, f := pullsWithin(scope, view.Filter{Pull: number})
	var found []pullRow
	err := s.within(ctx, scope, func(tx pgx.Tx) (err error) {
		found, err = read(ctx, tx, func(row pgx.CollectableRow) (pullRow, error) {
			var p pullRow
			err := row.Scan(&p.record, &p.base, &p.hash, &p.report)
			return p, err
		}, `SELECT p.body, r.base, r.hash, r.report`+from.sql+f.where(), f.args...)
		return err
	})
	if err == nil && (len(found) == 0 || number == 0) {
		err = mirror.ErrNotFound
	}
	if err != nil {
		return view.Pull{}, nil, wrap(err, "pull request %d", number)
	}
	return found[0].view(scope), found[0].report, nil
}

// PullPlan returns the report of PullOf; mirror.ErrNotFound when the head has no plan either.
func (s *Views) PullPlan(ctx context.Context, scope view.Scope, number int) ([]byte, error) {
	_, report, err := s.PullOf(ctx, scope, number)
	if err == nil && report == nil {
		err = wrap(mirror.ErrNotFound, "plan of pull request %d", number)
	}
	return report, err
}

// pullSource is the source of pull requests, with the columns that find and order them.
type pullSource struct{ sql, number, state string }

// Pull requests of one tenant are found in an index of that tenant. The conditions reveal nothing
// of a row before its policy has accepted it (the operators are leakproof); otherwise the policy
// would be evaluated first, for each row of all tenants.
var (
	pullsOfAll = pullSource{sql: sqlFromPulls + sqlWithPlan, number: "p.number",
		state: "p.state"}
	pullsOfTenant = pullSource{sql: sqlFromPulls + ` JOIN pull_tenants t ON t.number = p.number` +
		sqlWithPlan, number: "t.number", state: "t.state"}
)

const (
	sqlFromPulls = ` FROM pulls p`
	sqlWithPlan  = ` LEFT JOIN reviewed_plans r ON r.number = p.number AND r.head = p.head`
)

func pullsWithin(scope view.Scope, by view.Filter) (pullSource, filter) {
	from, f := pullsOfAll, filter{}
	if scope.Tenant != "" || by.Tenant != "" {
		from = pullsOfTenant
		f.tenants("t.tenant", scope, by.Tenant)
	}
	if scope.Tenant != "" {
		f.and("t.tenant_uid = live_tenant(" + f.place(text(string(scope.Tenant))) + ")")
	}
	if by.Pull != 0 {
		f.and(from.number + " = " + f.place(by.Pull))
	}
	f.equal(from.state, string(by.State))
	return from, f
}

// pullRow is a pull request with the plan of its head, if there is one.
type pullRow struct {
	record     forge.PullRecord
	base, hash *string
	report     []byte
}

func (p pullRow) view(scope view.Scope) view.Pull {
	r := p.record
	v := view.Pull{Number: r.Number, Title: r.Title, Author: r.Author.Login, State: r.State,
		Head: r.Head, Verdict: r.Verdict, Tenants: r.Tenants,
		Consented: r.Consented != "" && r.Consented == r.Head, Held: r.Held != nil,
		Following: r.State == forge.PullMerged && r.FollowedAt != nil && !r.Finished,
		URL:       r.URL, UpdatedAt: r.UpdatedAt}
	if p.base != nil && p.hash != nil {
		v.Base, v.Hash = fleet.Revision(*p.base), *p.hash
	}
	if scope.Tenant != "" && (len(r.Tenants) != 1 || r.Tenants[0] != scope.Tenant) {
		v.Verdict, v.Tenants = "", []fleet.TenantName{scope.Tenant}
	}
	return v
}

// sqlProblems are the problems of the config repo, and those of workers with an unusable
// credential.
const sqlProblems = `(
	SELECT path, kind, tenant, name, n, body, severity FROM problems
	UNION ALL SELECT * FROM ` + sqlUnusables + ` AS unusable
)`

// sqlUnusables are the unusable credentials, by the declaration that refers to them. Failures are
// few, and are found by the rows with a credential (desired_credential).
const sqlUnusables = `(
	SELECT c.path, c.kind, c.tenant, c.name, 1000 AS n, ` + sqlUnusable + ` AS body, 'error' AS severity
	FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name AND s.seq = d.seq AND s.state = 'Failed'
	JOIN declarations c ON c.kind = 'ManagedEnvironment' AND c.tenant = d.tenant AND c.name = d.environment
	WHERE d.credential_name IS NOT NULL AND d.kind = 'Cluster' AND NOT d.absent
	GROUP BY c.path, c.kind, c.tenant, c.name
	UNION ALL
	SELECT c.path, c.kind, c.tenant, c.name, 1000, ` + sqlUnusable + `, 'error'
	FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name AND s.seq = d.seq AND s.state = 'Failed'
	JOIN declarations c ON c.kind = 'RepositoryCredential' AND c.tenant = d.tenant
		AND c.body->'credential'->'credentialsRef'->>'name' = d.credential_name
	WHERE d.credential_name IS NOT NULL AND d.kind = 'Repository' AND NOT d.absent
	GROUP BY c.path, c.kind, c.tenant, c.name
)`

// sqlUnusable is a fleet.Problem of declaration c, whose object's worker failed.
const sqlUnusable = `jsonb_build_object(
		'key', jsonb_build_object('kind', c.kind, 'tenant', c.tenant, 'name', c.name), 'path', c.path, 'severity', 'error', 'code', 'unusable-credential',
		'field', CASE WHEN bool_or(` + sqlRequested + `) THEN 'spec.cluster'
			WHEN c.kind = 'ManagedEnvironment' THEN 'spec.cluster.credentialsRef.name' ELSE 'spec.credentialsRef.name' END,
		'message', CASE WHEN bool_or(` + sqlRequested + `) THEN 'the engine has not got a new token for the cluster'
			ELSE 'the engine has not got the secret ' || max(d.credential_name) END || ': ' || max(s.state_message),
		'fix', CASE WHEN bool_or(` + sqlRequested + `) THEN 'ask the platform; it is requested again by itself'
			ELSE 'correct the secret; it is read again by itself' END)`

// sqlRequested is whether the credential of row d is a token that Argosy requests: its source is
// the platform's, or the connection to the engine.
const sqlRequested = `(d.credential_tenant = '' OR d.credential_name = '')`

// sqlWaited continues "waits for Cluster x on engine y" with the reason why that Cluster is not
// written.
const sqlWaited = `coalesce((
		SELECT CASE WHEN c.credential_tenant = '' OR c.credential_name = '' THEN ', which has no token: '
			ELSE ', whose secret ' || coalesce(c.credential_name, '') || ' cannot be used: ' END || w.state_message
		FROM desired c JOIN status w ON w.engine = c.engine AND w.kind = c.kind AND w.name = c.name AND w.seq = c.seq AND w.state = 'Failed'
		WHERE c.engine = d.engine AND c.kind = 'Cluster' AND c.tenant = d.tenant
			AND c.name = substring(s.state_message FROM '^waits for Cluster ([^ ]+) on engine')), '')`

// sqlUnread is, by engine, tenant and deployment, why the credential of the deployment's repository
// is unusable. It is computed once for a list: failures are few.
const sqlUnread = `(
	SELECT d.engine, d.tenant, g.name AS deployment,
		'the secret ' || max(d.credential_name) || ' of its repository cannot be used: ' || max(s.state_message) AS why
	FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name AND s.seq = d.seq AND s.state = 'Failed'
	JOIN declarations c ON c.kind = 'RepositoryCredential' AND c.tenant = d.tenant
		AND c.body->'credential'->'credentialsRef'->>'name' = d.credential_name
	CROSS JOIN LATERAL (SELECT c.body->'credential'->>'repoURL' AS url) AS scope
	JOIN declarations g ON g.kind = 'GitOpsDeployment' AND g.tenant = d.tenant
		AND EXISTS (SELECT FROM jsonb_path_query(g.body, '$.deployment.*.repoURL') AS read
			WHERE read #>> '{}' = url OR right(url, 1) = '/' AND starts_with(read #>> '{}', url))
	WHERE d.credential_name IS NOT NULL AND d.kind = 'Repository' AND NOT d.absent
	GROUP BY 1, 2, 3
)`

// stateCounts counts Applications by state.
type stateCounts struct {
	view.Counts
	held int
}

// pair is a name of one or two parts; the second may be empty.
type pair [2]string

// countStates counts the Applications of each pair by two expressions over desired d. Those of a
// silent engine or cluster count as Unknown; each engine is asked about once.
func countStates(ctx context.Context, tx pgx.Tx, first, second string,
	pairs []pair) (map[pair]stateCounts, error) {
	rows, err := tx.Query(ctx, `
		WITH counted AS MATERIALIZED (
			SELECT `+first+` AS first, `+second+` AS second, d.engine, r.since IS NOT NULL AS unread, count(*) AS n,
				count(*) FILTER (WHERE s.sync = 'Synced') AS synced, count(*) FILTER (WHERE s.health = 'Healthy') AS healthy,
				count(*) FILTER (WHERE s.seq = d.seq AND s.state IN ('Failed', 'Conflict')) AS failed, count(*) FILTER (WHERE d.held) AS held`+fromRows+`
				LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
			WHERE d.kind = 'Application' AND NOT d.absent
				AND (`+first+`, `+second+`) IN (SELECT * FROM unnest($1::text[], $2::text[]))
			GROUP BY 1, 2, 3, 4),
		silent AS MATERIALIZED (
			SELECT e.engine, silent_since(e.engine) IS NOT NULL AS is FROM (SELECT DISTINCT engine FROM counted) e)
		SELECT c.first, c.second, sum(c.n), coalesce(sum(c.synced) FILTER (WHERE NOT (c.unread OR s.is)), 0),
			coalesce(sum(c.healthy) FILTER (WHERE NOT (c.unread OR s.is)), 0), sum(c.failed), sum(c.held),
			coalesce(sum(c.n) FILTER (WHERE c.unread OR s.is), 0)
		FROM counted c JOIN silent s ON s.engine = c.engine GROUP BY 1, 2`, firsts(pairs), seconds(pairs))
	if err != nil {
		return nil, err
	}
	found := map[pair]stateCounts{}
	var p pair
	var c stateCounts
	_, err = pgx.ForEachRow(rows, []any{&p[0], &p[1], &c.Applications, &c.Synced, &c.Healthy,
		&c.Failed, &c.held, &c.Unknown}, func() error {
		found[p] = c
		return nil
	})
	return found, err
}

// tally reads pairs with a number from a statement with the pairs as $1 and $2.
func tally(ctx context.Context, tx pgx.Tx, pairs []pair, sql string) (map[pair]int, error) {
	rows, err := tx.Query(ctx, sql, firsts(pairs), seconds(pairs))
	if err != nil {
		return nil, err
	}
	found := map[pair]int{}
	var p pair
	var n int
	_, err = pgx.ForEachRow(rows, []any{&p[0], &p[1], &n}, func() error {
		found[p] = n
		return nil
	})
	return found, err
}

// problemsOf counts the problems of declarations of one kind, by tenant and name.
func problemsOf(ctx context.Context, tx pgx.Tx, kind fleet.Kind, pairs []pair) (map[pair]int,
	error) {
	return tally(ctx, tx, pairs, `
		SELECT tenant, name, count(*) FROM `+sqlProblems+` p
		WHERE kind = '`+string(kind)+`' AND (tenant, name) IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1, 2`)
}

func firsts(pairs []pair) []string  { return column(pairs, func(p pair) string { return p[0] }) }
func seconds(pairs []pair) []string { return column(pairs, func(p pair) string { return p[1] }) }
