package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

var _ engine.Restarter = (*Engine)(nil)

// annotationRestarted is where `kubectl rollout restart` records its time too.
const annotationRestarted = "kubectl.kubernetes.io/restartedAt"

// labelRevision is the revision of the template of a StatefulSet's Pod.
const labelRevision = "controller-revision-hash"

// workload is the StatefulSet or the Deployment of a component, as far as Restart and the steps of
// a fence read it.
type workload struct {
	plural   string
	Metadata struct {
		Name, UID, ResourceVersion string
		Generation                 int64
		Labels, Annotations        map[string]string
		OwnerReferences            []owner
		ManagedFields              []fieldsManager
	}
	Spec struct {
		Replicas       *int
		Selector       struct{ MatchLabels map[string]string }
		UpdateStrategy struct{ Type string }
		Template       struct {
			Metadata struct{ Annotations map[string]string }
		}
	}
	Status struct {
		ObservedGeneration        int64
		UpdateRevision            string
		Replicas, UpdatedReplicas int
	}
}

func (w workload) wanted() int {
	if w.Spec.Replicas == nil {
		return 1
	}
	return *w.Spec.Replicas
}

type owner struct {
	UID        string
	Controller bool
}

// livePod is a Pod, as far as Restart and ProveFence read it.
type livePod struct {
	Metadata struct {
		Name, UID         string
		Labels            map[string]string
		DeletionTimestamp *time.Time
		OwnerReferences   []owner
	}
	Spec struct {
		NodeName   string
		Containers []struct{ Command, Args []string }
	}
	Status struct {
		Phase      string
		Conditions []struct{ Type, Status string }
	}
}

func (p livePod) ready() bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c struct{ Type, Status string }) bool {
		return c.Type == "Ready" && c.Status == "True"
	})
}

// workloadNames are the names that Argo CD's manifests give to the workloads. A Role may name them.
var workloadNames = map[fleet.Component]struct{ plural, name string }{
	fleet.ApplicationController: {"statefulsets", "argocd-application-controller"},
	fleet.RepoServer:            {"deployments", "argocd-repo-server"},
}

// restartRights are the rights that Restart needs.
func restartRights(c fleet.Component) []right {
	w := workloadNames[c]
	return []right{{"", "apps", w.plural, "", "list"}, {"", "apps", w.plural, w.name, "patch"},
		{"", "", "pods", "", "list"}, {"", "", "pods", "", "delete"}}
}

// restartFindings names the missing rights of the restarts that the platform allows.
func (e preflight) restartFindings(ctx context.Context) (found []engine.Finding, err error) {
	for _, c := range e.options.Restarts {
		missing, err := e.missingRights(ctx, restartRights(c))
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			found = append(found, engine.Finding{Code: "restart-rights",
				Message: fmt.Sprintf("%s may not %s in namespace %s, and cannot restart the %s, "+
					"which spec.remedies allows", e.actor(), strings.Join(missing, ", "),
					e.namespace, c.Label()),
				Fix: "set access.restarts: true of the chart argosy-engine, or rbac.engineRestarts: " +
					"true of the chart argosy (docs/health.md)"})
		}
	}
	return found, nil
}

// CheckRestart checks the rights and reads the workload. A Role may name the workload, so that the
// review does.
func (e *Engine) CheckRestart(ctx context.Context, c fleet.Component) error {
	w, err := e.component(ctx, c)
	if err != nil {
		return err
	}
	var missing []string
	for _, r := range []right{{e.namespace, "apps", w.plural, w.Metadata.Name, "patch"},
		{e.namespace, "", "pods", "", "list"}, {e.namespace, "", "pods", "", "delete"}} {
		allowed, err := e.client.allowed(ctx, r)
		if err != nil {
			return e.restartError(c, err)
		}
		if !allowed {
			missing = append(missing, r.verb+" "+r.resource)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: it may not %s in namespace %s (docs/health.md)", engine.ErrRefused,
			strings.Join(missing, ", "), e.namespace)
	}
	if w.wanted() == 0 {
		if w.Metadata.Annotations[annotationFence] != "" {
			return fmt.Errorf("%w: a fence has scaled the %s to zero; `argosy evacuate engine %s "+
				"--end` lifts it (docs/evacuating.md)", engine.ErrRefused, c.Label(), e.name)
		}
		return fmt.Errorf("%w: the %s is scaled to zero", engine.ErrRefused, c.Label())
	}
	return nil
}

// Restart annotates the Pods' template with the time of the request, once, as `kubectl rollout
// restart` does. Kubernetes then replaces the Pods: a Deployment in its own way, a StatefulSet from
// the last to the first. A StatefulSet waits for a Pod that is not ready, for ever if need be, so
// Restart deletes such a Pod of the earlier template, with its UID as precondition.
func (e *Engine) Restart(ctx context.Context, c fleet.Component, requested time.Time) (string,
	error) {
	if err := e.ready(); err != nil {
		return "", err
	}
	w, err := e.component(ctx, c)
	if err != nil {
		return "", err
	}
	if at := requested.UTC().Format(time.RFC3339Nano); w.restartedAt() != at {
		return "Kubernetes replaces its Pods", e.restartError(c, e.annotateRestart(ctx, w, at))
	}
	if w.Status.ObservedGeneration < w.Metadata.Generation {
		return "Kubernetes has not seen the restart yet", nil
	}
	if w.plural == "deployments" {
		if s := w.Status; s.UpdatedReplicas < w.wanted() || s.Replicas > s.UpdatedReplicas {
			return fmt.Sprintf("%d of %d Pods are replaced", s.UpdatedReplicas, w.wanted()), nil
		}
		return "", nil
	}
	left, err := e.replacePods(ctx, w)
	return left, e.restartError(c, err)
}

func (w workload) restartedAt() string {
	return w.Spec.Template.Metadata.Annotations[annotationRestarted]
}

func (e *Engine) restartError(c fleet.Component, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("restart of the %s of engine %s: %w", c.Label(), e.name, err)
}

// component returns the one workload of a component.
func (e *Engine) component(ctx context.Context, c fleet.Component) (w workload, err error) {
	all, err := e.componentWorkloads(ctx, c.Label())
	switch {
	case codeOf(err) == http.StatusForbidden:
		return w, fmt.Errorf("%w: %w (docs/health.md)", engine.ErrRefused, err)
	case err != nil:
		return w, e.restartError(c, err)
	case len(all) != 1:
		return w, fmt.Errorf("%w: namespace %s has %d workloads with the labels "+
			"app.kubernetes.io/part-of: argocd and app.kubernetes.io/component: %s",
			engine.ErrRefused, e.namespace, len(all), c.Label())
	}
	return all[0], nil
}

// componentWorkloads returns the StatefulSets and Deployments with the label of one of these
// components.
func (e *Engine) componentWorkloads(ctx context.Context, labels ...string) (all []workload,
	err error) {
	for _, plural := range []string{"statefulsets", "deployments"} {
		var list struct{ Items []workload }
		err := e.client.do(ctx, request{method: http.MethodGet, path: e.workloadPath(plural, ""),
			query: url.Values{"labelSelector": {"app.kubernetes.io/part-of=argocd," +
				"app.kubernetes.io/component in (" + strings.Join(labels, ",") + ")"}}}, &list)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", plural, err)
		}
		for _, w := range list.Items {
			w.plural = plural
			all = append(all, w)
		}
	}
	return all, nil
}

func (e *Engine) workloadPath(plural, name string) string {
	path := "/apis/apps/v1/namespaces/" + url.PathEscape(e.namespace) + "/" + plural
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

func (e *Engine) podPath(name string) string {
	path := "/api/v1/namespaces/" + url.PathEscape(e.namespace) + "/pods"
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

func (e *Engine) annotateRestart(ctx context.Context, w workload, at string) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": w.Metadata.ResourceVersion,
			"uid": w.Metadata.UID},
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{annotationRestarted: at}}}}})
	if err != nil {
		return fmt.Errorf("annotation: %w", err)
	}
	err = e.mutate(ctx, "", request{method: http.MethodPatch,
		path: e.workloadPath(w.plural, w.Metadata.Name), contentType: mergePatch, body: body,
		accept: metadataOnly, query: url.Values{"fieldManager": {fieldManager}}}, nil)
	if codeOf(err) == http.StatusConflict {
		return nil // it has changed; the next step reads it again
	}
	return err
}

// replacePods deletes the Pods of a StatefulSet that Kubernetes would wait for, and returns the
// reason why a Pod is not replaced yet.
func (e *Engine) replacePods(ctx context.Context, w workload) (string, error) {
	pods, err := e.podsOf(ctx, w)
	if err != nil {
		return "", err
	}
	replaced := 0
	var earlier []string
	for _, p := range pods {
		if p.Metadata.Labels[labelRevision] == w.Status.UpdateRevision {
			replaced++
			continue
		}
		switch {
		case p.Metadata.DeletionTimestamp != nil:
			earlier = append(earlier, p.Metadata.Name+" is terminating")
			continue
		case p.ready() && w.Spec.UpdateStrategy.Type != "OnDelete":
			earlier = append(earlier, p.Metadata.Name+" is not replaced yet")
			continue
		}
		earlier = append(earlier, p.Metadata.Name+" is deleted")
		if err := e.deletePod(ctx, p); err != nil {
			return "", err
		}
	}
	switch {
	case len(earlier) > 0:
		return "Pod " + strings.Join(earlier, ", Pod "), nil
	case replaced < w.wanted():
		return fmt.Sprintf("%d of %d Pods are replaced", replaced, w.wanted()), nil
	}
	return "", nil
}

func (e *Engine) deletePod(ctx context.Context, p livePod) error {
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]any{"uid": p.Metadata.UID}})
	if err != nil {
		return fmt.Errorf("deletion of Pod %s: %w", p.Metadata.Name, err)
	}
	err = e.mutate(ctx, "", request{method: http.MethodDelete, path: e.podPath(p.Metadata.Name),
		contentType: plainJSON, body: body}, nil)
	if code := codeOf(err); code == http.StatusNotFound || code == http.StatusConflict {
		return nil // it is replaced; the next step reads the Pods again
	}
	return err
}

// podsOf lists the Pods of a StatefulSet, those that are terminating too, without a cache.
func (e *Engine) podsOf(ctx context.Context, w workload) (own []livePod, err error) {
	all, err := e.selectedPods(ctx, w)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		for _, o := range p.Metadata.OwnerReferences {
			if o.Controller && o.UID == w.Metadata.UID {
				own = append(own, p)
			}
		}
	}
	return own, nil
}

// selectedPods lists the Pods that the selector of a workload selects.
func (e *Engine) selectedPods(ctx context.Context, w workload) ([]livePod, error) {
	var labels []string
	for k, v := range w.Spec.Selector.MatchLabels {
		labels = append(labels, k+"="+v)
	}
	slices.Sort(labels)
	if len(labels) == 0 {
		return nil, fmt.Errorf("%w: %s has no labels in its selector", engine.ErrRefused,
			w.Metadata.Name)
	}
	var list struct{ Items []livePod }
	err := e.client.do(ctx, request{method: http.MethodGet, path: e.podPath(""),
		query: url.Values{"labelSelector": {strings.Join(labels, ",")}}}, &list)
	return list.Items, err
}
