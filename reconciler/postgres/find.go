package postgres

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/view"
)

// Matrix matches Filter.{Tenant, Deployment, Environment, Labels, Text}: a page of deployments, and
// what their Applications run.
func (s *Views) Matrix(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) (view.Matrix, error) {
	var applications []view.Application
	f := deploymentsFilter(scope, by)
	deployments, next, err := list(ctx, s.database, scope, listing[view.Deployment]{
		name: "matrix", keys: []string{"e.tenant", "e.name"},
		sql: `SELECT e.body FROM declarations e`, scan: scanDeployment,
		key: func(d view.Deployment) []string {
			return []string{string(d.Tenant), string(d.Name)}
		},
	}, f, page, func(ctx context.Context, tx pgx.Tx, deployments []view.Deployment) (err error) {
		names := column(deployments, func(d view.Deployment) pair {
			return pair{string(d.Tenant), string(d.Name)}
		})
		of := filter{conditions: []string{"d.kind = 'Application'", "NOT d.absent"}}
		of.and("(d.tenant, d.deployment) IN (SELECT * FROM unnest(" + of.place(firsts(names)) +
			"::text[], " + of.place(seconds(names)) + "::text[]))")
		of.equal("d.environment", string(by.Environment))
		applications, err = read(ctx, tx, scanApplication, sqlApplications+of.where()+
			` ORDER BY d.tenant, d.deployment, d.environment LIMIT `+
			strconv.Itoa(maxPage*view.MaxColumns), of.args...)
		if err != nil {
			return err
		}
		return completeApplications(ctx, tx, applications)
	})
	if err != nil {
		return view.Matrix{}, err
	}
	m := view.MatrixOf(deployments, applications)
	m.Next = next
	return m, nil
}

// StateCounts count the Applications that match Filter.{Tenant, Deployment, Revision, Labels, Text,
// Image}.
func (s *Views) StateCounts(ctx context.Context, scope view.Scope, by view.Filter) (
	counts []view.StateCount, err error) {
	f := applicationsFilter(scope, view.Filter{Tenant: by.Tenant, Deployment: by.Deployment,
		Revision: by.Revision, Labels: by.Labels, Text: by.Text, Image: by.Image})
	err = s.within(ctx, scope, func(tx pgx.Tx) (err error) {
		counts, err = read(ctx, tx, pgx.RowToStructByPos[view.StateCount], `
			WITH silent AS MATERIALIZED (SELECT silent_engines() AS engine)
			SELECT d.tenant, d.environment, d.engine,
				CASE WHEN r.since IS NOT NULL OR q.engine IS NOT NULL THEN 'Unknown' ELSE coalesce(s.sync, 'Unknown') END,
				CASE WHEN r.since IS NOT NULL OR q.engine IS NOT NULL THEN 'Unknown' ELSE coalesce(s.health, 'Unknown') END,
				`+sqlApply+`, count(*)`+fromRows+`
				LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
				LEFT JOIN silent q ON q.engine = d.engine`+f.where()+` GROUP BY 1, 2, 3, 4, 5, 6`,
			f.args...)
		return err
	})
	return counts, wrap(err, "states of applications")
}

// Changes match Filter.{Revision, Tenant}, in the order in which they were written.
func (s *Views) Changes(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Change, string, error) {
	f := filter{}
	f.tenants("d.tenant", scope, by.Tenant)
	f.equal("d.revision", string(by.Revision))
	if by.Revision == "" {
		return nil, "", nil
	}
	return items(list(ctx, s.database, scope, listing[numbered[view.Change]]{
		name: "changes", keys: []string{"d.seq"},
		sql: `SELECT d.seq::text, d.revision, d.engine, d.kind, d.name, d.tenant, d.environment, d.deployment,
				CASE WHEN d.absent THEN 'delete' WHEN d.created_at = d.changed_at THEN 'create' ELSE 'update' END, ` + sqlApply + `,
				CASE WHEN s.seq = d.seq THEN s.state_message ELSE '' END` + fromRows,
		scan: func(row pgx.CollectableRow) (numbered[view.Change], error) {
			var c numbered[view.Change]
			v := &c.item
			err := row.Scan(&c.n, &v.Revision, &v.Engine, &v.Kind, &v.Name, &v.Tenant,
				&v.Environment, &v.Deployment, &v.Action, &v.Apply, &v.Message)
			return c, err
		},
		key: func(c numbered[view.Change]) []string { return []string{c.n} },
	}, f, page, nil))
}
