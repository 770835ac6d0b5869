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

// Pulls match Filter.{Tenant, Pull, State}, the highest number first. A tenant sees those whose
// plan touches it, as the tenant that it was when they were saved last, and nothing of the other
// tenants that they touch.
func (s *Views) Pulls(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Pull, string, error) {
	if scope.Tenant != "" && by.Tenant != "" && by.Tenant != scope.Tenant {
		return nil, "", nil // which of its pull requests touch another tenant is not for it to know
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

// PullOf is one pull request, and the plan of its head that its reviewers see, as JSON; nil when
// there is none. The report holds the parts of all tenants: whoever shows it to one leaves out the
// others'. mirror.ErrNotFound when nothing is known of it, or nothing within the scope.
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

// PullPlan is the report of PullOf; mirror.ErrNotFound when there is no plan of the pull request's
// head either.
func (s *Views) PullPlan(ctx context.Context, scope view.Scope, number int) ([]byte, error) {
	_, report, err := s.PullOf(ctx, scope, number)
	if err == nil && report == nil {
		err = wrap(mirror.ErrNotFound, "plan of pull request %d", number)
	}
	return report, err
}

// pullSource is where pull requests are read from, and the columns that find and order them there.
type pullSource struct{ sql, number, state string }

// Those of one tenant are found in an index of that tenant's. What is asked of it holds nothing
// that could tell of a row before the wall has let it through (the operators are leakproof), or
// else the wall would come first: at each row of all tenants.
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
