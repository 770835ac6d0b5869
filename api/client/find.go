package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// Search finds objects by name, commit, image, pull request or operation, at most limit.
func (l lists) Search(ctx context.Context, text string, limit int) (found view.SearchResult,
	err error) {
	err = l.conn.do(ctx, http.MethodGet, path("search"), url.Values{"q": {text},
		"limit": {strconv.Itoa(limit)}}, nil, &found)
	return found, err
}

// Matrix returns what runs where, of at most limit deployments; limit 0 means all. The columns are
// those of all pages.
func (l lists) Matrix(ctx context.Context, f view.Filter, limit int) (view.Matrix, error) {
	var deployments []view.Deployment
	var applications []view.Application
	q := values(f)
	for {
		size := 200
		if limit > 0 {
			size = min(size, limit-len(deployments))
		}
		q.Set("limit", strconv.Itoa(size))
		var page view.Matrix
		if err := l.conn.do(ctx, http.MethodGet, path("matrix"), q, nil, &page); err != nil {
			return page, err
		}
		if len(deployments) == 0 && page.Next == "" {
			return page, nil
		}
		for _, row := range page.Rows {
			deployments = append(deployments, view.Deployment{Tenant: row.Tenant,
				Name: row.Deployment})
			applications = append(applications, row.Applications()...)
		}
		if page.Next == "" || limit > 0 && len(deployments) >= limit {
			m := view.MatrixOf(deployments, applications)
			m.Next = page.Next
			return m, nil
		}
		q.Set("after", page.Next)
	}
}

// ApplicationCounts counts the Applications of a filter by each of their states.
func (l lists) ApplicationCounts(ctx context.Context, f view.Filter) (counts view.Facets,
	err error) {
	err = l.conn.do(ctx, http.MethodGet, path("application-counts"), values(f), nil, &counts)
	return counts, err
}

// Changes lists the objects that a revision of the config repo has written.
func (l lists) Changes(ctx context.Context, revision fleet.Revision, limit int) ([]view.Change,
	error) {
	return all[view.Change](ctx, l.conn, "changes", view.Filter{Revision: revision}, limit)
}
