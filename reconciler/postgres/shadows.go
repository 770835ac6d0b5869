package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlActive are the states in which a worker keeps a shadow w.
const sqlActive = `w.state IN ('Rendering', 'Compared', 'Failed')`

// sqlShadow is a shadow w as JSON. Differences with another version do not count.
const sqlShadow = `jsonb_build_object('engine', w.engine, 'state', w.state, 'version', w.version, 'digest', w.digest, 'message', w.message,
	'since', w.since, 'comparedAt', w.compared_at, 'applications', w.applications, 'unrendered', w.unrendered) ||
	(SELECT jsonb_build_object('differences', count(*), 'pending', count(*) FILTER (WHERE x.approved_hash <> x.hash),
		'tenants', coalesce(jsonb_agg(DISTINCT x.tenant) FILTER (WHERE x.approved_hash <> x.hash), '[]'))
		FROM shadow_differences x WHERE x.engine = w.engine AND x.hash <> '' AND x.digest = w.digest)`

// shadowSteps begin the wanted shadows of a ring's step and end the others.
func shadowSteps(b *pgx.Batch, step mirror.RingStep) {
	for _, e := range step.Shadows {
		b.Queue(`
			INSERT INTO shadows AS w (engine, ring, state, version, digest) VALUES ($1, $2, 'Rendering', $3, $4)
			ON CONFLICT (engine) DO UPDATE SET ring = $2, state = 'Rendering', version = $3, digest = $4, message = '', since = now(),
				compared_at = NULL, applications = 0, unrendered = 0
			WHERE NOT `+sqlActive+` OR w.digest <> $4 OR w.ring <> $2`,
			string(e), step.Name, step.Version, step.Digest)
	}
	if len(step.EndShadows) > 0 {
		b.Queue(`UPDATE shadows w SET state = 'Ending', since = now() WHERE engine = ANY($1) AND `+
			sqlActive, step.EndShadows)
	}
}

// keepShadows ends the shadows of rings and engines that are not declared any more.
func keepShadows(b *pgx.Batch, rings []string, released, removed []fleet.EngineName) {
	b.Queue(`UPDATE shadows w SET state = 'Ending', since = now() WHERE (NOT ring = ANY($1) OR engine = ANY($2)) AND `+sqlActive,
		append([]string{}, rings...), append([]fleet.EngineName{}, released...))
	b.Queue(`DELETE FROM shadows WHERE engine = ANY($1)`, removed)
	b.Queue(`DELETE FROM shadow_differences WHERE engine = ANY($1)`, removed)
}

// WantedShadow returns the shadow of the lease's engine; false if it has none. mirror.ErrFenced
// when the lease has passed on.
func (s *Work) WantedShadow(ctx context.Context, lease mirror.Lease) (w mirror.Shadow, ok bool,
	err error) {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return w, false, err
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		f := fence(lease)
		if _, err := tx.Exec(ctx, f.sql, f.args...); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT `+sqlShadow+` FROM shadows w WHERE w.engine = $1 AND w.state <> 'Ended'`,
			string(engine)).Scan(&w)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return w, false, nil
	}
	return w, err == nil, wrap(err, "shadow of engine %s", engine)
}

// ShadowTasks returns the next Applications of the lease's engine, by name, whose last comparison
// with the digest had other inputs, or that a version did not render. basis identifies the inputs
// that all of them share.
func (s *Work) ShadowTasks(ctx context.Context, lease mirror.Lease, digest, basis, after string,
	limit int) ([]mirror.ShadowTask, error) {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return nil, err
	}
	tasks, err := collect(ctx, s.database, scanShadowTask, sqlShadowTasks, string(engine), digest,
		basis, after, limit)
	return tasks, wrap(err, "Applications of engine %s", engine)
}

const sqlShadowTasks = `
	SELECT t.name, t.tenant, t.environment, t.deployment, t.inputs FROM (
		SELECT d.name, d.tenant, d.environment, d.deployment, md5(d.hash || ' ' || coalesce(s.synced_revision, '') || ' ' || $3) AS inputs
		` + fromRows + `WHERE d.engine = $1 AND d.kind = 'Application' AND NOT d.absent AND d.name > $4) t
	LEFT JOIN shadow_differences x ON x.engine = $1 AND x.application = t.name
	WHERE x.engine IS NULL OR x.digest <> $2 OR x.inputs <> t.inputs OR x.unrendered <> '' OR x.error <> ''
	ORDER BY t.name LIMIT $5`

func scanShadowTask(row pgx.CollectableRow) (t mirror.ShadowTask, err error) {
	err = row.Scan(&t.Name, &t.Tenant, &t.Environment, &t.Deployment, &t.Inputs)
	return t, err
}

// RecordShadow records comparisons of Applications of the lease's engine. Of a result, the name
// alone identifies the Application: everything else of it is that of its row, and a result without
// a row is not recorded. A shadow that has ended, or that has another digest by now, records none.
// mirror.ErrFenced when the lease has passed on.
func (s *Work) RecordShadow(ctx context.Context, lease mirror.Lease, digest string,
	results []mirror.ShadowResult) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		for _, r := range results {
			resources, err := json.Marshal(r.Resources)
			if err != nil || r.Resources == nil {
				resources = []byte("[]") // plain structs: no error
			}
			// jsonb has no NUL
			resources = bytes.ReplaceAll(resources, []byte(`\u0000`), []byte(`\ufffd`))
			b.Queue(`
				INSERT INTO shadow_differences AS x (engine, application, ring, version, digest, tenant, tenant_uid, environment, deployment, inputs,
					revision, unrendered, error, hash, resources, more_resources)
				SELECT $1, d.name, w.ring, w.version, $2, d.tenant, live_tenant(d.tenant), d.environment, d.deployment, $4, $5, $6, $7, $8, $9::jsonb, $10
				FROM shadows w JOIN desired d ON d.engine = w.engine AND d.kind = 'Application' AND d.name = $3 AND NOT d.absent
				WHERE w.engine = $1 AND w.digest = $2 AND `+sqlActive+`
				ON CONFLICT (engine, application) DO UPDATE SET ring = excluded.ring, version = excluded.version, digest = excluded.digest,
					tenant = excluded.tenant, tenant_uid = excluded.tenant_uid, environment = excluded.environment, deployment = excluded.deployment,
					inputs = excluded.inputs, revision = excluded.revision, unrendered = excluded.unrendered, error = excluded.error,
					hash = excluded.hash, resources = excluded.resources, more_resources = excluded.more_resources,
					found_at = CASE WHEN x.hash = excluded.hash THEN x.found_at ELSE now() END,
					approved_hash = CASE WHEN x.tenant_uid IS NOT DISTINCT FROM excluded.tenant_uid THEN x.approved_hash ELSE '' END`,
				string(engine), digest, text(r.Name), r.Inputs, text(r.Revision),
				message(r.Unrendered), message(r.Error), r.Hash, string(resources),
				r.MoreResources)
		}
	})
	return wrap(err, "shadow of engine %s", engine)
}

// sqlUncompared counts the wanted Applications of engine $1 without a comparison with digest $2.
const sqlUncompared = `SELECT count(*) AS n FROM desired d WHERE d.engine = $1 AND d.kind = 'Application' AND NOT d.absent
	AND NOT EXISTS (SELECT FROM shadow_differences x WHERE x.engine = $1 AND x.application = d.name AND x.digest = $2)`

// ReportShadow records how far the shadow with a digest has come. Compared means that no task is
// left: it forgets Applications that the engine does not have any more. While an Application has no
// comparison, a shadow is not Compared, even if the worker reports so. mirror.ErrFenced when the
// lease has passed on.
func (s *Work) ReportShadow(ctx context.Context, lease mirror.Lease, digest string,
	state mirror.ShadowState, why string) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		if state == mirror.ShadowCompared {
			b.Queue(`DELETE FROM shadow_differences x WHERE x.engine = $1 AND NOT EXISTS (SELECT FROM desired d
				WHERE d.engine = $1 AND d.kind = 'Application' AND d.name = x.application AND NOT d.absent)`, string(engine))
			b.Queue(`UPDATE shadows w SET compared_at = now(), (applications, unrendered) =
				(SELECT count(*), count(*) FILTER (WHERE x.unrendered <> '') FROM shadow_differences x WHERE x.engine = $1 AND x.digest = $2)
				WHERE w.engine = $1 AND w.digest = $2 AND (`+sqlUncompared+`) = 0 AND `+sqlActive, string(engine), digest)
		}
		allowed := sqlActive
		if state == mirror.ShadowEnded {
			allowed = `w.state = 'Ending'`
		}
		b.Queue(`
			WITH report AS (
				SELECT CASE WHEN n = 0 THEN $3 ELSE 'Rendering' END AS state,
					CASE WHEN n = 0 THEN $4 ELSE n || ' Applications are not compared yet' END AS message
				FROM (SELECT CASE WHEN $3 = 'Compared' THEN (`+sqlUncompared+`) ELSE 0 END AS n) uncompared),
			changed AS (
				UPDATE shadows w SET state = r.state, message = r.message, since = CASE WHEN w.state = r.state THEN w.since ELSE now() END
				FROM shadows was, report r WHERE was.engine = w.engine AND w.engine = $1 AND w.digest = $2 AND `+allowed+`
					AND (w.state, w.message) <> (r.state, r.message)
				RETURNING w.engine, w.version, w.state, w.message, was.state <> r.state AS news)
			SELECT new_event('engine', '', engine, 'Rendering with Argo CD ' || version || ': ' || state || coalesce(nullif(': ' || message, ': '), ''))
			FROM changed WHERE news`, string(engine), digest, string(state), message(why))
	})
	return wrap(err, "shadow of engine %s", engine)
}

const sqlDifference = `jsonb_build_object('ring', x.ring, 'engine', x.engine, 'application', x.application, 'tenant', x.tenant,
	'environment', x.environment, 'deployment', x.deployment, 'version', x.version, 'revision', x.revision, 'id', x.hash, 'error', x.error,
	'resources', x.resources, 'moreResources', x.more_resources, 'foundAt', x.found_at) ||
	CASE WHEN x.approved_hash = x.hash THEN jsonb_build_object('approvedAt', x.approved_at, 'approvedBy', x.approved_by,
		'reason', x.approval_reason) ELSE '{}' END`

// Differences match Filter.{Tenant, Environment, Deployment, Engine} and Filter.Name (the ring), by
// tenant and Application. A tenant sees its own.
func (s *Views) Differences(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]mirror.Difference, string, error) {
	f := filter{}
	f.and("x.hash <> ''")
	f.tenants("x.tenant", scope, by.Tenant)
	f.equal("x.ring", by.Name)
	f.equal("x.engine", string(by.Engine))
	f.equal("x.environment", string(by.Environment))
	f.equal("x.deployment", string(by.Deployment))
	return list(ctx, s.database, scope, listing[mirror.Difference]{
		name: "differences", keys: []string{"x.tenant", "x.application", "x.engine"},
		sql:  `SELECT ` + sqlDifference + ` FROM shadow_differences x`,
		scan: pgx.RowTo[mirror.Difference],
		key: func(d mirror.Difference) []string {
			return []string{string(d.Tenant), d.Application, string(d.Engine)}
		},
	}, f, page, nil)
}

// Rendered returns what the comparisons with the digests have found so far, by ring. Fewer
// comparisons than the engines have Applications are not all of them.
func (s *Views) Rendered(ctx context.Context, digests []string) (all []mirror.Rendered, err error) {
	scan := func(row pgx.CollectableRow) (r mirror.Rendered, err error) {
		err = row.Scan(&r.Ring, &r.Digest, &r.Applications, &r.Differences, &r.Pending)
		return r, err
	}
	err = s.within(ctx, view.Scope{}, func(tx pgx.Tx) error {
		all, err = read(ctx, tx, scan, `
			SELECT x.ring, x.digest, count(*), count(*) FILTER (WHERE x.hash <> ''),
				count(*) FILTER (WHERE x.hash <> '' AND x.approved_hash <> x.hash)
			FROM shadow_differences x WHERE x.digest = ANY($1) GROUP BY x.ring, x.digest ORDER BY x.ring, x.digest`, digests)
		return err
	})
	return all, wrap(err, "comparisons of rings")
}

// ApproveDifferences approves exactly the named differences, or none: mirror.ErrNoDifference if one
// is not there any more.
func (s *Decisions) ApproveDifferences(ctx context.Context, d mirror.DifferenceApproval) error {
	err := s.decide(ctx, func(tx pgx.Tx) error {
		count := map[fleet.TenantName]int{}
		for _, c := range d.Differences {
			tag, err := tx.Exec(ctx, `
				UPDATE shadow_differences SET approved_hash = hash, approved_at = now(), approved_by = $5, approval_reason = $6
				WHERE ring = $1 AND tenant = $2 AND application = $3 AND hash = $4 AND hash <> ''`, text(d.Ring),
				text(string(c.Tenant)), text(c.Application), text(c.Hash), text(d.By),
				message(d.Reason))
			if err == nil && tag.RowsAffected() == 0 {
				err = fmt.Errorf("%w: of Application %s", mirror.ErrNoDifference, c.Application)
			}
			if err != nil {
				return err
			}
			count[c.Tenant]++
		}
		for tenant, n := range count {
			news := fmt.Sprintf("%d differences under the next Argo CD approved by %s", n,
				text(d.By))
			if err := recordDecision(ctx, tx, decision{action: "approve differences",
				subject: "ring " + d.Ring, tenant: tenant, by: d.By, note: d.Reason,
				event: view.Event{Kind: "ring", Tenant: tenant, Name: d.Ring,
					Text: news}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "approve differences of ring %s", d.Ring)
}
