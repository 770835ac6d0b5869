package argocd

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

var _ engine.MetricsReader = (*Engine)(nil)

// ReadMetrics reads /metrics of a Service or a Pod in Argo CD's namespace through the API server's
// proxy. It takes no place of other requests, and follows no redirect.
func (e *Engine) ReadMetrics(ctx context.Context, from fleet.MetricsEndpoint) (io.ReadCloser,
	error) {
	path, ok := from.ProxyPath(e.namespace)
	if !ok {
		return nil, fmt.Errorf("metrics of engine %s: the endpoint names no Service or Pod", e.name)
	}
	resp, err := e.client.send(ctx, request{method: http.MethodGet, accept: "text/plain",
		path: path})
	if err != nil {
		return nil, fmt.Errorf("metrics of engine %s: %w", e.name, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	err = refusal(resp)
	if codeOf(err) == http.StatusForbidden {
		err = fmt.Errorf("%w; grant get on services/proxy or pods/proxy (docs/load.md)", err)
	}
	return nil, fmt.Errorf("metrics of engine %s: %w", e.name, err)
}
