package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"argosy.dev/argosy/fleet/engine"
)

// probeProject does not exist. The application-controller answers a refresh of an Application
// without a project from its own queue: it asks neither the repo-server nor a cluster, and needs no
// repository (refreshAppConditions in 2.14 and 3.5). It never syncs one.
const probeProject = engine.ProbeName

var _ engine.Prober = (*Engine)(nil)

// probe is the probe of one application-controller.
type probe struct {
	name   string // of the Application, and of the Secret of its cluster
	server string // of its destination
	shard  int
}

// probes returns the probes of all application-controllers. Argo CD gives an Application to a
// controller by its destination: with several controllers, each has a cluster of its own for that,
// which names its shard (SecretToCluster in 2.14 and 3.5). No controller connects to it while the
// Application has no project, except once when it begins.
func (e *Engine) probes() []probe {
	n := e.size.ShardCount()
	if n == 1 {
		return []probe{{name: engine.ProbeName, server: ownServer}}
	}
	var all []probe
	for shard := range n {
		name := engine.ProbeName
		if shard > 0 {
			name += "-" + strconv.Itoa(shard)
		}
		all = append(all, probe{name, "https://" + name + ".invalid", shard})
	}
	return all
}

// RequestProbe asks the application-controllers to refresh their probes, and creates what is
// missing, with server-side applies. A repeated request reaches a controller that has failed to
// write its answer to an earlier one. An Application of that name that others created stays
// unchanged: the apply conflicts with the owner of its project.
func (e *Engine) RequestProbe(ctx context.Context) error {
	if err := e.ready(); err != nil {
		return err
	}
	all := e.probes()
	if !e.probesKnown.Load() {
		if err := e.removeProbes(ctx, all); err != nil {
			return e.probeError(err)
		}
		e.probesKnown.Store(true)
	}
	for _, p := range all {
		if err := e.requestProbe(ctx, p, len(all) > 1); err != nil {
			return e.probeError(err)
		}
	}
	return nil
}

func (e *Engine) requestProbe(ctx context.Context, p probe, cluster bool) error {
	if cluster {
		if err := e.applyProbe(ctx, e.probeSecretPath(p.name), map[string]any{"apiVersion": "v1",
			"kind": "Secret", "metadata": map[string]any{"name": p.name, "labels": map[string]any{
				labelProbe: "true", labelSecretType: "cluster"}},
			"data": map[string][]byte{"name": []byte(p.name), "server": []byte(p.server),
				"project": []byte(probeProject), "shard": []byte(strconv.Itoa(p.shard)),
				"config": []byte("{}")}}); err != nil {
			return err
		}
	}
	return e.applyProbe(ctx, e.probePath(p.name), map[string]any{
		"apiVersion": applications.apiVersion, "kind": applications.kind,
		"metadata": map[string]any{"name": p.name,
			"annotations": map[string]any{annotationRefresh: "normal",
				annotationProbed: time.Now().UTC().Format(time.RFC3339Nano)},
			"labels": map[string]any{labelProbe: "true"}},
		"spec": map[string]any{"project": probeProject,
			"destination": map[string]any{"server": p.server, "namespace": engine.ProbeName},
			"source": map[string]any{"repoURL": "https://" + engine.ProbeName + ".invalid",
				"path": "."}}})
}

func (e *Engine) applyProbe(ctx context.Context, path string, object map[string]any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return e.mutate(ctx, "", request{method: http.MethodPatch, path: path,
		contentType: applyPatch, accept: metadataOnly, body: body,
		query: url.Values{"fieldManager": {fieldManager}}}, nil)
}

// annotationProbed makes each request a change: Argo CD queues an Application that changes, and
// would not notice a request that is repeated.
const annotationProbed = "argosy.dev/probed"

// labelProbe marks the probe, which has no label of our objects and no tenant.
const labelProbe = "argosy.dev/probe"

// ownServer is how Argo CD calls the cluster that it runs on.
const ownServer = "https://kubernetes.default.svc"

func (e *Engine) probePath(name string) string { return e.places.path(applications, name) }

func (e *Engine) probeSecretPath(name string) string {
	path := "/api/v1/namespaces/" + url.PathEscape(e.namespace) + "/secrets"
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

func (e *Engine) probeError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("probe of engine %s: %w", e.name, err)
}

// Probed returns a probe whose application-controller has not removed the annotation that asks for
// a refresh; "" without one. ErrNoProbe if somebody has deleted a probe.
func (e *Engine) Probed(ctx context.Context) (left string, err error) {
	all := e.probes()
	for _, p := range all {
		var live struct{ Metadata liveMetadata }
		err := e.client.do(ctx, request{method: http.MethodGet, path: e.probePath(p.name),
			accept: metadataOnly}, &live)
		if provesAbsence(err, applications) {
			return "", engine.ErrNoProbe
		}
		if err != nil {
			return "", e.probeError(err)
		}
		if live.Metadata.Annotations[annotationRefresh] != "" {
			left = "Application " + p.name
			if len(all) > 1 {
				left += fmt.Sprintf(" of shard %d", p.shard)
			}
			return left, nil
		}
	}
	return "", nil
}

// RemoveProbe deletes the probes, which have no finalizer and no resources, and their clusters.
func (e *Engine) RemoveProbe(ctx context.Context) error {
	e.probesKnown.Store(false)
	return e.probeError(e.removeProbes(ctx, nil))
}

// removeProbes deletes the probes but those that are kept: a larger instance had more.
func (e *Engine) removeProbes(ctx context.Context, keep []probe) error {
	kept := map[string]bool{}
	clusters := len(keep) > 1
	for _, p := range keep {
		kept[p.name] = true
	}
	err := e.removeLabelled(ctx, e.places.path(applications, ""), e.probePath,
		func(name string) bool { return kept[name] })
	if err != nil || !e.managed {
		return err
	}
	return e.removeLabelled(ctx, e.probeSecretPath(""), e.probeSecretPath,
		func(name string) bool { return clusters && kept[name] })
}

// removeLabelled deletes the objects of a list with the label of a probe.
func (e *Engine) removeLabelled(ctx context.Context, list string, path func(string) string,
	keep func(string) bool) error {
	var live struct {
		Items []struct{ Metadata liveMetadata }
	}
	err := e.client.do(ctx, request{method: http.MethodGet, path: list, accept: metadataListOnly,
		query: url.Values{"labelSelector": {labelProbe + "=true"}}}, &live)
	if err != nil {
		return err
	}
	for _, o := range live.Items {
		if keep(o.Metadata.Name) {
			continue
		}
		body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions",
			"preconditions": map[string]any{"uid": o.Metadata.UID}})
		if err != nil {
			return err
		}
		err = e.client.do(ctx, request{method: http.MethodDelete, path: path(o.Metadata.Name),
			contentType: plainJSON, body: body}, nil)
		if err != nil && codeOf(err) != http.StatusNotFound {
			return err
		}
	}
	return nil
}
