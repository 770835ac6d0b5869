package postgres

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

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
		Following: r.State == forge.PullMerged && r.FollowedAt != nil && !r.Settled,
		URL:       r.URL, UpdatedAt: r.UpdatedAt}
	if p.base != nil && p.hash != nil {
		v.Base, v.Hash = fleet.Revision(*p.base), *p.hash
	}
	if scope.Tenant != "" && (len(r.Tenants) != 1 || r.Tenants[0] != scope.Tenant) {
		v.Verdict, v.Tenants = "", []fleet.TenantName{scope.Tenant}
	}
	return v
}
