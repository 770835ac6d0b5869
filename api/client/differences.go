package client

import (
	"context"
	"net/http"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Differences lists what the next version of a ring, Filter.Name, renders differently.
func (l lists) Differences(ctx context.Context, f view.Filter, limit int) ([]mirror.Difference,
	error) {
	return all[mirror.Difference](ctx, l.conn, "differences", f, limit)
}

// ApproveDifferences approves exactly the named differences, or none.
func (d decisions) ApproveDifferences(ctx context.Context, a mirror.DifferenceApproval) (
	out wire.ApprovedDifferences, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("differences", "approve"), nil, a, &out)
	return out, err
}
