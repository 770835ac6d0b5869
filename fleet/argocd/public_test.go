package argocd

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// noSecrets rejects requests for Secrets, like an API server without the right, and counts them.
type noSecrets struct {
	next  http.RoundTripper
	asked *atomic.Int64
}

func (n noSecrets) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/secrets") {
		n.asked.Add(1)
		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody,
			Header: http.Header{}, Request: r}, nil
	}
	return n.next.RoundTrip(r)
}

func TestAPublicEngineSendsNoRequestForSecrets(t *testing.T) {
	c := apiServer(t)
	namespace := space(t, c)
	var asked atomic.Int64
	config := rest.CopyConfig(c.REST())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noSecrets{next, &asked} })
	spec := engineSpec()
	spec.ArgoCD.Namespace = namespace
	e, err := Connect(testEngine, spec, config,
		Options{Public: true, Stopped: func(fleet.TenantName) bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	if report, err := e.Preflight(t.Context()); err != nil || len(report.Findings) > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Watch(ctx, engine.Sink{})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	waitUntil(t, e.Synced)
	lease := mirror.Lease{Epoch: 1}
	if _, err := e.Apply(t.Context(), rowOf(t, projectObject(acme), 1), fleet.Secret{},
		lease); err != nil {
		t.Errorf("a project: %v", err)
	}
	repository := rowOf(t, repositoryObject(acme), 2)
	if _, err := e.Apply(t.Context(), repository, fleet.Secret{}, lease); !errors.Is(err,
		engine.ErrRefused) {
		t.Errorf("a repository: %v", err)
	}
	if _, err := e.Delete(t.Context(), repository, lease); !errors.Is(err, engine.ErrRefused) {
		t.Errorf("its deletion: %v", err)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("Secrets were asked for %d times", n)
	}
}
