package client

import (
	"context"
	"net/http"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Rollouts lists rollouts, newest first.
func (l lists) Rollouts(ctx context.Context, f view.Filter, limit int) ([]mirror.Rollout, error) {
	return all[mirror.Rollout](ctx, l.conn, "rollouts", f, limit)
}

// DecideRollout decides about the rollout of a deployment.
func (d decisions) DecideRollout(ctx context.Context, r mirror.RolloutDecision) (out mirror.Rollout,
	err error) {
	err = d.conn.do(ctx, http.MethodPost, path("rollouts", string(r.Verb)), nil, r, &out)
	return out, err
}
