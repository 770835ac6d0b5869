package client

import (
	"context"
	"net/http"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Rebalances lists rebalances, newest first.
func (l lists) Rebalances(ctx context.Context, f view.Filter, limit int) ([]mirror.Rebalance,
	error) {
	return all[mirror.Rebalance](ctx, l.conn, "rebalances", f, limit)
}

// Rebalance returns one rebalance.
func (l lists) Rebalance(ctx context.Context, id string) (mirror.Rebalance, error) {
	return one[mirror.Rebalance](ctx, l.conn, "rebalances", id)
}

// DecideRebalance decides about a rebalance: accept, reject, pause or resume.
func (d decisions) DecideRebalance(ctx context.Context, verb string,
	r mirror.RebalanceDecision) (out mirror.Rebalance, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("rebalances", verb), nil, r, &out)
	return out, err
}
