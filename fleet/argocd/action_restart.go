package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	// restartManager is the field manager of restarts: argocd must not own the annotation, because
	// its next sync would remove it, which is another restart.
	restartManager = "argosy-restart"
	// restartTime bounds one step of a restart, so that a cluster that hangs delays the actions of
	// other tenants no longer. The next step goes on where it ended.
	restartTime = 10 * time.Second
)

// workloadPlurals are the kinds that a restart knows, in the group apps.
var workloadPlurals = map[string]string{"Deployment": "deployments",
	"StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}

// actRestart takes one step of a restart. The first one marks the Application, as with the other
// actions; the mark carries the epoch and meets the emergency stop. The next ones patch the
// workloads. The time of the request is the annotation's value, so that a repeated patch changes
// nothing.
func (e *Engine) actRestart(ctx context.Context, q engine.ActionRequest, a *acted,
	lease mirror.Lease, begun bool) (out engine.ActionProgress, err error) {
	if a.Deleting {
		return actRefused("it is being deleted")
	}
	if e.options.NoRestarts != "" {
		return actRefused("%s", e.options.NoRestarts)
	}
	ctx, cancel := context.WithTimeout(ctx, restartTime)
	defer cancel()
	err = e.inspecting(ctx, a.inspected(e), func(ctx context.Context, s *subject) error {
		tree, err := e.treeOf(ctx, s)
		if err != nil {
			return err
		}
		chosen, err := chooseWorkloads(mirror.Restartable(tree), q.Options.Resources)
		if err != nil {
			return err
		}
		if !begun {
			out = running(fmt.Sprintf("restarts %d workloads", len(chosen)))
			return e.writeAction(ctx, q, a, lease, map[string]any{})
		}
		out, err = e.restartWorkloads(ctx, s, q, chosen)
		return err
	})
	switch {
	case errors.Is(err, mirror.ErrNoTree) || errors.Is(err, mirror.ErrInspectBusy):
		state := mirror.OperationPending
		if begun {
			state = mirror.OperationRunning
		}
		return engine.ActionProgress{State: state, Message: clip(err.Error(), maxText)}, nil
	case errors.Is(err, mirror.ErrInspectRefused) || errors.Is(err, mirror.ErrNotInTree):
		return actRefused("%w", err)
	case errors.Is(err, mirror.ErrInspectUnreachable):
		return engine.ActionProgress{}, fmt.Errorf("%w: %w", engine.ErrUnreachable, err)
	}
	return out, err
}

// inspected returns the Application for reads of its resources: exactly the object that the action
// has found.
func (a *acted) inspected(e *Engine) mirror.InspectedApplication {
	return mirror.InspectedApplication{Engine: e.name, Name: a.Key.Name,
		Object: e.objectName(a.Key), UID: a.UID, ID: fleet.ApplicationID{Tenant: a.Tenant,
			Deployment: a.Deployment, Environment: a.Environment}}
}

// chooseWorkloads returns the workloads that a person has named, or all without names. A name
// without a namespace means the only workload of the name.
func chooseWorkloads(all []mirror.RestartedWorkload, named []mirror.ActionResource) (
	chosen []mirror.RestartedWorkload, err error) {
	if len(named) == 0 {
		chosen = all
	}
	for _, want := range named {
		found := 0
		for _, w := range all {
			if w.Group != want.Group || w.Kind != want.Kind || w.Name != want.Name ||
				want.Namespace != "" && w.Namespace != want.Namespace {
				continue
			}
			if want.UID != "" && w.UID != want.UID {
				return nil, refusedRead("%s was replaced by another object of its name; look at "+
					"the preview again", want)
			}
			chosen = append(chosen, w)
			found++
		}
		switch {
		case found == 0:
			return nil, refusedRead("%s is no Deployment, StatefulSet or DaemonSet of its sources",
				want)
		case found > 1:
			return nil, refusedRead("%s is in %d namespaces: name one", want, found)
		}
	}
	switch {
	case len(chosen) == 0:
		return nil, refusedRead("it has no Deployment, StatefulSet or DaemonSet of its own")
	case len(chosen) > mirror.MaxActionResources:
		return nil, refusedRead("it has %d workloads: name at most %d of them", len(chosen),
			mirror.MaxActionResources)
	}
	return chosen, nil
}

// restartWorkloads restarts each workload that this request has not restarted yet. A workload that
// cannot be restarted is a failed result and stops no other one.
func (e *Engine) restartWorkloads(ctx context.Context, s *subject, q engine.ActionRequest,
	chosen []mirror.RestartedWorkload) (engine.ActionProgress, error) {
	c, err := e.clusterOf(ctx, s)
	if err != nil {
		return engine.ActionProgress{}, err
	}
	defer c.close()
	done := engine.ActionProgress{State: mirror.OperationSucceeded,
		Results: []mirror.ResourceResult{}}
	failed, first := 0, ""
	for _, w := range chosen {
		result := mirror.ResourceResult{Status: "Restarted", ActionResource: mirror.ActionResource{
			Group: w.Group, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, UID: w.UID}}
		note, err := c.restart(ctx, s.of.ID.In(), w.ResourceRef, q.RequestedAt,
			e.unlessStopped(q.Tenant))
		switch {
		case err == nil:
			result.Message = note
		case errors.Is(err, mirror.ErrInspectRefused) || errors.Is(err, mirror.ErrNotInTree):
			result.Status, result.Message = "RestartFailed", clip(err.Error(), maxText)
			if failed++; failed == 1 {
				first = result.Message
			}
		default:
			return engine.ActionProgress{}, err
		}
		done.Results = append(done.Results, result)
	}
	done.Message = fmt.Sprintf("%d of %d workloads restarted", len(chosen)-failed, len(chosen))
	if failed > 0 {
		done.State = mirror.OperationFailed
		done.Message = clip(done.Message+": "+first, maxText)
	}
	return done, nil
}

// restart makes a workload replace its Pods by its own strategy, unless it was restarted at that
// time or later. It returns what a person should know about the way.
func (c cluster) restart(ctx context.Context, id fleet.EnvironmentID, w mirror.ResourceRef,
	at time.Time, unlessStopped func() error) (note string, err error) {
	path := (&resource{prefix: "/apis/apps/v1", plural: workloadPlurals[w.Kind]}).object(
		w.Namespace, w.Name)
	for range attempts {
		manifest, err := c.objectAt(ctx, id, mirror.TreeNode{ResourceRef: w}, path)
		if err != nil {
			return "", err
		}
		if child(manifest, "spec")["paused"] == true {
			return "", refusedRead("it is paused: its rollout must be resumed first")
		}
		note = restartNote(manifest)
		template := child(child(manifest, "spec"), "template")
		before, _ := child(child(template, "metadata"), "annotations")[annotationRestarted].(string)
		if last, err := time.Parse(time.RFC3339, before); err == nil && !last.Before(at) {
			return note, nil
		}
		version, _ := child(manifest, "metadata")["resourceVersion"].(string)
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": w.UID, "resourceVersion": version},
			"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
				"annotations": map[string]any{
					annotationRestarted: at.UTC().Format(time.RFC3339Nano)}}}}})
		if err != nil {
			return "", err
		}
		err = c.do(ctx, request{method: http.MethodPatch, path: path, contentType: mergePatch,
			accept: metadataOnly, body: body, precheck: unlessStopped,
			query: url.Values{"fieldManager": {restartManager}}}, nil)
		if codeOf(err) != http.StatusConflict {
			return note, restartRefusal(id, w, err)
		}
	}
	return "", fmt.Errorf("%w: %s changes too quickly", engine.ErrUnreachable, w)
}

// restartNote returns why a restart does not replace the Pods by itself.
func restartNote(manifest map[string]any) string {
	if child(child(manifest, "spec"), "updateStrategy")["type"] == "OnDelete" {
		return "its strategy is OnDelete: each Pod is replaced when somebody deletes it"
	}
	return ""
}

func restartRefusal(id fleet.EnvironmentID, w mirror.ResourceRef, err error) error {
	switch code := codeOf(err); {
	case err == nil || errors.Is(err, engine.ErrStopped):
		return err
	case code == http.StatusForbidden:
		return refusedRead("the credential of environment %s may not restart it; grant patch on "+
			"%s in namespace %s", id, workloadPlurals[w.Kind], w.Namespace)
	case code == http.StatusUnprocessableEntity || code == http.StatusBadRequest:
		var s *statusError
		errors.As(err, &s)
		return refusedRead("its cluster refuses it: %s", clip(s.Message, maxText))
	}
	return clusterRefusal(id, strings.ToLower(w.Kind)+" "+w.Name, "", err)
}
