package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"argosy.dev/argosy/fleet/placement"
)

// Simulate returns what a change of an engine would move. Nothing moves.
func (l lists) Simulate(ctx context.Context, change placement.Change) (out placement.Outcome,
	err error) {
	q := url.Values{"change": {string(change.Kind)}}
	if change.Engine != "" {
		q.Set("engine", string(change.Engine))
	}
	if change.Like != "" {
		q.Set("like", string(change.Like))
	}
	if n := change.Capacity.Applications; n > 0 {
		q.Set("applications", strconv.Itoa(n))
	}
	if n := change.Capacity.Environments; n > 0 {
		q.Set("environments", strconv.Itoa(n))
	}
	err = l.conn.do(ctx, http.MethodGet, path("simulate"), q, nil, &out)
	return out, err
}
