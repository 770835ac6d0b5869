package postgres

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
)

// Pulls match Filter.{Tenant, Pull, State}, the highest number first. A tenant sees those whose plan touches it, as the tenant that it was
// when they were saved last, and nothing of the other tenants that they touch.
func (s *Store) Pulls(ctx context.Context, scope fleet.Scope, by fleet.Filter, page fleet.Page) ([]fleet.PullView, string, error) {
	if scope.Tenant != "" && by.Tenant != "" && by.Tenant != scope.Tenant {
		return nil, "", nil // which of its pull requests touch another tenant is not for it to know
	}
	f := pullFilter(scope, by)
	return list(ctx, s, scope, listing[fleet.PullView]{
		name: "pulls", keys: []string{"p.number"}, newest: true, sql: `SELECT p.body, r.base, r.hash` + sqlFromPulls,
		scan: func(row pgx.CollectableRow) (fleet.PullView, error) {
			var p pullRow
			err := row.Scan(&p.record, &p.base, &p.hash)
			return p.view(scope), err
		},
		key: func(p fleet.PullView) []string { return []string{strconv.Itoa(p.Number)} },
	}, f, page, nil)
}

// PullOf is one pull request, and the plan of its head that its reviewers see, as JSON; nil when there is none. The report holds the parts
// of all tenants: whoever shows it to one leaves out the others'. fleet.ErrNotFound when nothing is known of it, or nothing within the scope.
func (s *Store) PullOf(ctx context.Context, scope fleet.Scope, number int) (fleet.PullView, []byte, error) {
	f := pullFilter(scope, fleet.Filter{Pull: number})
	var found []pullRow
	err := s.within(ctx, scope, func(tx pgx.Tx) (err error) {
		found, err = read(ctx, tx, func(row pgx.CollectableRow) (pullRow, error) {
			var p pullRow
			err := row.Scan(&p.record, &p.base, &p.hash, &p.report)
			return p, err
		}, `SELECT p.body, r.base, r.hash, r.report`+sqlFromPulls+f.where(), f.args...)
		return err
	})
	if err == nil && (len(found) == 0 || number == 0) {
		err = fleet.ErrNotFound
	}
	if err != nil {
		return fleet.PullView{}, nil, wrap(err, "pull request %d", number)
	}
	return found[0].view(scope), found[0].report, nil
}

// PullPlan is the report of PullOf; fleet.ErrNotFound when there is no plan of the pull request's head either.
func (s *Store) PullPlan(ctx context.Context, scope fleet.Scope, number int) ([]byte, error) {
	_, report, err := s.PullOf(ctx, scope, number)
	if err == nil && report == nil {
		err = wrap(fleet.ErrNotFound, "plan of pull request %d", number)
	}
	return report, err
}

const sqlFromPulls = ` FROM pulls p LEFT JOIN reviewed_plans r ON r.number = p.number AND r.head = p.head`

func pullFilter(scope fleet.Scope, by fleet.Filter) filter {
	f := filter{}
	for _, tenant := range []fleet.TenantName{scope.Tenant, by.Tenant} {
		if tenant != "" {
			f.and(f.place(text(string(tenant))) + " = ANY (p.tenants)")
		}
	}
	if scope.Tenant != "" {
		f.and("live_tenant(" + f.place(text(string(scope.Tenant))) + ") = ANY (p.tenant_uids)")
	}
	if by.Pull != 0 {
		f.and("p.number = " + f.place(by.Pull))
	}
	f.equal("p.state", string(by.State))
	return f
}

// pullRow is a pull request with the plan of its head, if there is one.
type pullRow struct {
	record     fleet.PullRecord
	base, hash *string
	report     []byte
}

func (p pullRow) view(scope fleet.Scope) fleet.PullView {
	r := p.record
	v := fleet.PullView{Number: r.Number, Title: r.Title, Author: r.Author.Login, State: r.State, Head: r.Head, Verdict: r.Verdict, Tenants: r.Tenants,
		Consented: r.Consented != "" && r.Consented == r.Head, Held: r.Held != nil, Following: r.State == fleet.PullMerged && r.FollowedAt != nil && !r.Settled,
		URL: r.URL, UpdatedAt: r.UpdatedAt}
	if p.base != nil && p.hash != nil {
		v.Base, v.Hash = fleet.Revision(*p.base), *p.hash
	}
	if scope.Tenant != "" && (len(r.Tenants) != 1 || r.Tenants[0] != scope.Tenant) {
		v.Verdict, v.Tenants = "", []fleet.TenantName{scope.Tenant}
	}
	return v
}
