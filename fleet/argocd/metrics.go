package argocd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

var _ engine.MetricsReader = (*Engine)(nil)

// ReadMetrics reads /metrics of a Service or a Pod in Argo CD's namespace through the API server's
// proxy. It takes no place of other requests, and follows no redirect. Its errors are short: they
// do not repeat the engine and the endpoint.
func (e *Engine) ReadMetrics(ctx context.Context, from fleet.MetricsEndpoint) (io.ReadCloser,
	error) {
	path, ok := from.ProxyPath(e.namespace)
	if !ok {
		return nil, errors.New("the endpoint names no Service or Pod")
	}
	resp, err := e.client.send(ctx, request{method: http.MethodGet, accept: "text/plain",
		path: path})
	var failed *url.Error
	if errors.As(err, &failed) { // its text begins with the address
		return nil, fmt.Errorf("%w: %w", engine.ErrUnreachable, failed.Err)
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	err = refusal(resp)
	if codeOf(err) == http.StatusForbidden {
		err = fmt.Errorf("403 Forbidden: grant get on services/proxy or pods/proxy of it "+
			"(docs/load.md); %w", err)
	}
	return nil, err
}
