package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"argosy.dev/argosy/fleet/engine"
)

// probeProject does not exist. The application-controller answers a refresh of an Application
// without a project from its own queue: it asks neither the repo-server nor a cluster, and needs no
// repository (refreshAppConditions in 2.14 and 3.5). It never syncs one.
const probeProject = engine.ProbeName

var _ engine.Prober = (*Engine)(nil)

// RequestProbe asks the application-controller to refresh the probe, and creates the probe if it is
// missing, with one server-side apply. A repeated request reaches a controller that has failed to
// write its answer to an earlier one. An Application of that name that others created stays
// unchanged: the apply conflicts with the owner of its project.
func (e *Engine) RequestProbe(ctx context.Context) error {
	if err := e.ready(); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"apiVersion": applications.apiVersion,
		"kind": applications.kind, "metadata": map[string]any{"name": engine.ProbeName,
			"annotations": map[string]any{annotationRefresh: "normal",
				annotationProbed: time.Now().UTC().Format(time.RFC3339Nano)},
			"labels": map[string]any{labelProbe: "true"}},
		"spec": map[string]any{"project": probeProject,
			"destination": map[string]any{"server": ownServer, "namespace": engine.ProbeName},
			"source": map[string]any{"repoURL": "https://" + engine.ProbeName + ".invalid",
				"path": "."}}})
	if err != nil {
		return fmt.Errorf("probe of engine %s: %w", e.name, err)
	}
	err = e.mutate(ctx, "", request{method: http.MethodPatch, path: e.probePath(),
		contentType: applyPatch, accept: metadataOnly, body: body,
		query: url.Values{"fieldManager": {fieldManager}}}, nil)
	return e.probeError(err)
}

// annotationProbed makes each request a change: Argo CD queues an Application that changes, and
// would not notice a request that is repeated.
const annotationProbed = "argosy.dev/probed"

// labelProbe marks the probe, which has no label of our objects and no tenant.
const labelProbe = "argosy.dev/probe"

// ownServer is how Argo CD calls the cluster that it runs on.
const ownServer = "https://kubernetes.default.svc"

func (e *Engine) probePath() string { return e.places.path(applications, engine.ProbeName) }

func (e *Engine) probeError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("probe of engine %s: %w", e.name, err)
}

// Probed reports whether the application-controller has removed the annotation that asks for a
// refresh. ErrNoProbe if somebody has deleted the probe.
func (e *Engine) Probed(ctx context.Context) (bool, error) {
	var probe struct{ Metadata liveMetadata }
	err := e.client.do(ctx, request{method: http.MethodGet, path: e.probePath(),
		accept: metadataOnly}, &probe)
	if provesAbsence(err, applications) {
		return false, engine.ErrNoProbe
	}
	if err != nil {
		return false, e.probeError(err)
	}
	return probe.Metadata.Annotations[annotationRefresh] == "", nil
}

// RemoveProbe deletes the probe, which has no finalizer and no resources.
func (e *Engine) RemoveProbe(ctx context.Context) error {
	var probe struct{ Metadata liveMetadata }
	err := e.client.do(ctx, request{method: http.MethodGet, path: e.probePath(),
		accept: metadataOnly}, &probe)
	if err == nil && probe.Metadata.Labels[labelProbe] != "true" {
		return nil // of others
	}
	if err == nil {
		var body []byte
		body, err = json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions",
			"preconditions": map[string]any{"uid": probe.Metadata.UID}})
		if err == nil {
			err = e.client.do(ctx, request{method: http.MethodDelete, path: e.probePath(),
				contentType: plainJSON, body: body}, nil)
		}
	}
	if codeOf(err) == http.StatusNotFound {
		return nil
	}
	return e.probeError(err)
}
