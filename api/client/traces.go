package client

import (
	"context"
	"net/http"

	"argosy.dev/argosy/fleet/view"
)

// Trace returns the way of a commit, whose id may be its first seven digits or more.
func (l lists) Trace(ctx context.Context, revision string, f view.Filter) (view.Trace, error) {
	var t view.Trace
	err := l.conn.do(ctx, http.MethodGet, path("traces", revision), values(f), nil, &t)
	return t, err
}
