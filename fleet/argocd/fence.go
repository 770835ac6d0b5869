package argocd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var _ engine.Fencer = (*Engine)(nil)

// Annotations of a workload that a fence has scaled to zero.
const (
	annotationFence    = instance.AnnotationFence
	annotationReplicas = "argosy.dev/fence-replicas" // before it
)

// The components that write to workloads, or to the Applications that a fence is to keep as they
// are, by their labels (app.kubernetes.io/component).
const (
	controllerLabel     = "application-controller"
	applicationSetLabel = "applicationset-controller"
)

// fenceRights are the rights that a fence needs.
func fenceRights() []right {
	return []right{{"", "apps", "statefulsets", "", "list"},
		{"", "apps", "deployments", "", "list"},
		{"", "apps", "replicasets", "", "list"}, {"", "", "pods", "", "list"},
		{"", "apps", "statefulsets", "argocd-" + controllerLabel, "patch"},
		{"", "apps", "deployments", "argocd-" + applicationSetLabel, "patch"}}
}

const fenceRightsFix = "set access.fences: true of the chart argosy-engine, or rbac.engineFences: " +
	"true of the chart argosy (docs/evacuating.md)"

// fenceFindings names the missing rights of a fence that the platform allows.
func (e preflight) fenceFindings(ctx context.Context) ([]engine.Finding, error) {
	if !e.options.Fences {
		return nil, nil
	}
	missing, err := e.missingRights(ctx, fenceRights())
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	return []engine.Finding{{Code: "fence-rights",
		Message: fmt.Sprintf("%s may not %s in namespace %s, and cannot fence the engine, which "+
			"spec.remedies.fence allows", e.actor(), strings.Join(missing, ", "), e.namespace),
		Fix: fenceRightsFix}}, nil
}

// CheckFence implements engine.Fencer.
func (e *Engine) CheckFence(ctx context.Context) (found []mirror.FencedWorkload, err error) {
	all, err := e.fencedWorkloads(ctx)
	if err != nil {
		return nil, err
	}
	rights := []right{{e.namespace, "", "pods", "", "list"},
		{e.namespace, "apps", "replicasets", "", "list"}}
	controllers := 0
	for _, w := range all {
		if w.label() == controllerLabel {
			controllers++
		}
		rights = append(rights, right{e.namespace, "apps", w.plural, w.Metadata.Name, "patch"})
		replicas, err := w.remembered()
		if err != nil {
			return nil, err
		}
		found = append(found, mirror.FencedWorkload{Kind: w.kind(), Name: w.Metadata.Name,
			Replicas: replicas})
	}
	if controllers == 0 {
		return nil, fmt.Errorf("%w: namespace %s has no StatefulSet and no Deployment with the "+
			"labels app.kubernetes.io/part-of: argocd and app.kubernetes.io/component: %s; add them "+
			"to the workloads that run the application-controller", engine.ErrRefused, e.namespace,
			controllerLabel)
	}
	missing, err := preflight{e}.missingRights(ctx, rights)
	if err != nil {
		return nil, e.fenceError(err)
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("%w: it may not %s in namespace %s: %s", engine.ErrRefused,
			strings.Join(slices.Compact(missing), ", "), e.namespace, fenceRightsFix)
	}
	return found, nil
}

// ScaleToZero implements engine.Fencer. One write scales a workload and remembers its replicas, so
// that neither is without the other.
func (e *Engine) ScaleToZero(ctx context.Context, request string) (waits string, err error) {
	if err := e.ready(); err != nil {
		return "", err
	}
	all, err := e.fencedWorkloads(ctx)
	if err != nil {
		return "", err
	}
	for _, w := range all {
		if w.Metadata.Annotations[annotationFence] == request {
			continue // if somebody has scaled it back since, ProveFence names them
		}
		replicas, err := w.remembered()
		if err != nil {
			return "", err
		}
		changed, err := e.scale(ctx, w, 0, map[string]any{annotationFence: request,
			annotationReplicas: strconv.Itoa(replicas)})
		switch {
		case err != nil:
			return "", e.fenceError(err)
		case changed:
			waits = w.title() + " has changed meanwhile"
		}
	}
	return waits, nil
}

// ProveFence implements engine.Fencer. It reads the workloads before their Pods: a controller of
// Kubernetes that has not seen the zero yet may create a Pod after an empty list of Pods.
func (e *Engine) ProveFence(ctx context.Context) (left string, back bool, err error) {
	all, err := e.fencedWorkloads(ctx)
	if err != nil {
		return "", false, err
	}
	deployments := false
	for _, w := range all {
		switch {
		case w.wanted() != 0:
			return fmt.Sprintf("%s has %d replicas%s", w.title(), w.wanted(), w.scaledBy()), true,
				nil
		case w.Status.ObservedGeneration < w.Metadata.Generation:
			return "Kubernetes has not seen yet that " + w.title() + " has no replicas", false, nil
		}
		deployments = deployments || w.plural == "deployments"
	}
	if deployments {
		left, err := e.replicaSetsLeft(ctx, all)
		if err != nil || left != "" {
			return left, false, e.fenceError(err)
		}
	}
	var pods struct{ Items []livePod }
	if err := e.client.do(ctx, request{method: http.MethodGet, path: e.podPath("")},
		&pods); err != nil {
		return "", false, e.fenceError(fmt.Errorf("list pods: %w", err))
	}
	var writers []string
	for _, p := range pods.Items {
		if p.writes(all) {
			writers = append(writers, p.state())
		}
	}
	slices.Sort(writers)
	const named = 3
	left = strings.Join(writers[:min(len(writers), named)], "; ")
	if more := len(writers) - named; more > 0 {
		left += fmt.Sprintf("; and %d more", more)
	}
	return left, false, nil
}

// LiftFence implements engine.Fencer. A workload that somebody has scaled back keeps its replicas.
func (e *Engine) LiftFence(ctx context.Context, before []mirror.FencedWorkload) (waits string,
	err error) {
	if err := e.ready(); err != nil {
		return "", err
	}
	all, err := e.fencedWorkloads(ctx)
	if err != nil {
		return "", err
	}
	for _, w := range all {
		replicas, err := w.remembered()
		if err != nil {
			return "", err
		}
		marked := w.Metadata.Annotations[annotationFence] != "" ||
			w.Metadata.Annotations[annotationReplicas] != ""
		if !marked { // somebody has removed the annotations; the store has the replicas too
			i := slices.IndexFunc(before, func(b mirror.FencedWorkload) bool {
				return b.Kind == w.kind() && b.Name == w.Metadata.Name
			})
			if i < 0 || w.wanted() > 0 || before[i].Replicas == 0 {
				continue
			}
			replicas = before[i].Replicas
		}
		if w.wanted() > 0 {
			replicas = w.wanted()
		}
		changed, err := e.scale(ctx, w, replicas, map[string]any{annotationFence: nil,
			annotationReplicas: nil})
		switch {
		case err != nil:
			return "", e.fenceError(err)
		case changed:
			waits = w.title() + " has changed meanwhile"
		}
	}
	return waits, nil
}

func (e *Engine) fenceError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("fence of engine %s: %w", e.name, err)
}

// fencedWorkloads returns the workloads of the controllers, sorted by kind and name.
func (e *Engine) fencedWorkloads(ctx context.Context) ([]workload, error) {
	all, err := e.componentWorkloads(ctx, controllerLabel, applicationSetLabel)
	if codeOf(err) == http.StatusForbidden {
		return nil, fmt.Errorf("%w: %w: %s", engine.ErrRefused, err, fenceRightsFix)
	}
	slices.SortFunc(all, func(a, b workload) int {
		return cmp.Compare(a.title(), b.title())
	})
	return all, e.fenceError(err)
}

// scale sets the replicas and annotations of a workload with one write. changed reports that the
// workload is another one now.
func (e *Engine) scale(ctx context.Context, w workload, replicas int,
	annotations map[string]any) (changed bool, err error) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": w.Metadata.ResourceVersion,
			"uid": w.Metadata.UID, "annotations": annotations},
		"spec": map[string]any{"replicas": replicas}})
	if err != nil {
		return false, fmt.Errorf("scale %s: %w", w.title(), err)
	}
	err = e.mutate(ctx, "", request{method: http.MethodPatch,
		path: e.workloadPath(w.plural, w.Metadata.Name), contentType: mergePatch, body: body,
		accept: metadataOnly, query: url.Values{"fieldManager": {fieldManager}}}, nil)
	switch codeOf(err) {
	case http.StatusConflict, http.StatusNotFound:
		return true, nil
	case http.StatusForbidden:
		return false, fmt.Errorf("%w: scale %s: %w: %s", engine.ErrRefused, w.title(), err,
			fenceRightsFix)
	}
	return false, err
}

// replicaSetsLeft returns which ReplicaSet of the Deployments may still create a Pod: a Deployment
// that has seen the zero proves nothing about the controller of its ReplicaSets.
func (e *Engine) replicaSetsLeft(ctx context.Context, all []workload) (string, error) {
	var list struct{ Items []workload }
	if err := e.client.do(ctx, request{method: http.MethodGet,
		path: e.workloadPath("replicasets", "")}, &list); err != nil {
		return "", fmt.Errorf("list replicasets: %w", err)
	}
	for _, r := range list.Items {
		owned := slices.ContainsFunc(all, func(w workload) bool {
			return slices.ContainsFunc(r.Metadata.OwnerReferences, func(o owner) bool {
				return o.Controller && o.UID == w.Metadata.UID
			})
		})
		if owned && (r.wanted() != 0 || r.Status.ObservedGeneration < r.Metadata.Generation) {
			return "Kubernetes has not seen yet that ReplicaSet " + r.Metadata.Name +
				" has no replicas", nil
		}
	}
	return "", nil
}

func (w workload) label() string { return w.Metadata.Labels["app.kubernetes.io/component"] }

func (w workload) kind() string {
	if w.plural == "deployments" {
		return "Deployment"
	}
	return "StatefulSet"
}

func (w workload) title() string { return w.kind() + " " + clip(w.Metadata.Name, 63) }

// remembered returns the replicas that the workload has without a fence.
func (w workload) remembered() (int, error) {
	text, ok := w.Metadata.Annotations[annotationReplicas]
	if !ok {
		return w.wanted(), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: annotation %s of %s is %q and no number; set it to the replicas "+
			"that it had before the fence", engine.ErrRefused, annotationReplicas, w.title(),
			clip(text, 32))
	}
	return n, nil
}

// scaledBy names the last writer of the replicas, as the API server recorded it.
func (w workload) scaledBy() string {
	var last *fieldsManager
	for i, m := range w.Metadata.ManagedFields {
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(m.FieldsV1, &fields) != nil || fields.Spec["f:replicas"] == nil {
			continue
		}
		if last == nil || m.Time.After(last.Time) {
			last = &w.Metadata.ManagedFields[i]
		}
	}
	if last == nil {
		return ""
	}
	through := ""
	if last.Subresource == "scale" {
		through = " through its scale, as kubectl scale and an autoscaler do,"
	}
	return fmt.Sprintf(", set by %s%s at %s", clip(last.Manager, 64), through,
		last.Time.UTC().Format("15:04:05 UTC"))
}

// fieldsManager is an entry of metadata.managedFields.
type fieldsManager struct {
	Manager, Subresource string
	Time                 time.Time
	FieldsV1             json.RawMessage
}

// writes reports whether a Pod may run a controller of these workloads: it has the labels that one
// of them selects, or those of Argo CD's manifests, or its command. Which phase it is in proves
// nothing: only the node knows, and a node that is NotReady does not report.
func (p livePod) writes(all []workload) bool {
	for _, label := range []string{controllerLabel, applicationSetLabel} {
		if p.Metadata.Labels["app.kubernetes.io/name"] == "argocd-"+label ||
			p.Metadata.Labels["app.kubernetes.io/component"] == label {
			return true
		}
		for _, c := range p.Spec.Containers {
			runs := func(s string) bool { return strings.Contains(s, "argocd-"+label) }
			if slices.ContainsFunc(c.Command, runs) || slices.ContainsFunc(c.Args, runs) {
				return true
			}
		}
	}
	return slices.ContainsFunc(all, func(w workload) bool {
		if slices.ContainsFunc(p.Metadata.OwnerReferences, func(o owner) bool {
			return o.UID == w.Metadata.UID
		}) {
			return true
		}
		for k, v := range w.Spec.Selector.MatchLabels {
			if p.Metadata.Labels[k] != v {
				return false
			}
		}
		return len(w.Spec.Selector.MatchLabels) > 0
	})
}

// state describes a Pod that is left, and what a person can do about it.
func (p livePod) state() string {
	text := "Pod " + clip(p.Metadata.Name, 253)
	on := ""
	if p.Spec.NodeName != "" {
		on = " on node " + clip(p.Spec.NodeName, 253)
	}
	switch {
	case p.Metadata.DeletionTimestamp != nil:
		return text + " is terminating" + on
	case p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed":
		return text + " is " + p.Status.Phase + on + ": delete it once it has ended there"
	}
	return text + " is there" + on
}
