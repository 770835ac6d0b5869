package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// ErrNotStopped means that a control plane could still write to the engine.
var ErrNotStopped = errors.New("no emergency stop of the engine or the fleet is in force")

// Left is an object that was given back.
type Left struct {
	Kind fleet.ObjectKind
	Name string
	Note string // what differs from its declaration, or happens at its deletion
}

// Leave gives every object of ours on the engine back to people: it removes our labels, annotations
// and applied fields, the annotation that parks an Application, and restores the finalizers that an
// adopted Application had before. An Application with deletionPolicy Delete gets the cascade
// finalizer, as its exported manifest has. Specs, data and workloads stay. It requires a stop,
// unless the control plane is uninstalled. A dry run returns the same and writes nothing.
func (e *Engine) Leave(
	ctx context.Context,
	policy func(fleet.ObjectKind, string) fleet.DeletionPolicy,
	uninstalled, dryRun bool,
) (all []Left, err error) {
	if !uninstalled {
		stops, err := e.ReadStops(ctx)
		if err != nil {
			return nil, err
		}
		stopped := false
		for _, s := range stops {
			stopped = stopped || s.Scope == mirror.StopFleet ||
				s.Scope == mirror.StopEngine && s.Name == string(e.name)
		}
		if !stopped {
			return nil, ErrNotStopped
		}
	}
	// An interrupted run continues: an object without our labels is done.
	for _, r := range resources {
		found, err := e.leaveAll(ctx, r, policy, dryRun)
		all = append(all, found...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// leaveAll lists all objects of ours before the first write: a partial list changes nothing.
func (e *Engine) leaveAll(ctx context.Context, r *resource,
	policy func(fleet.ObjectKind, string) fleet.DeletionPolicy, dryRun bool) (all []Left,
	err error) {
	query := url.Values{"labelSelector": {labelManagedBy + "=" + managedBy + "," + labelTenant},
		"limit": {strconv.Itoa(pageSize)}}
	var live []givenBack
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []givenBack
		}
		if err := e.client.do(ctx, request{method: http.MethodGet,
			path: r.collection(e.namespace), query: query, accept: metadataListOnly},
			&page); err != nil {
			return nil, fmt.Errorf("failed to list %s: %w", r.plural, err)
		}
		live = append(live, page.Items...)
		if page.Metadata.Continue == "" {
			break
		}
		query.Set("continue", page.Metadata.Continue)
	}
	for _, o := range live {
		kind := r.kindOf(o.Metadata.Labels)
		if o.Metadata.DeletionTimestamp != nil {
			all = append(all, Left{kind, o.Metadata.Name, "is being deleted, and stays as it is"})
			continue
		}
		body, note, err := o.patch(kind, policy(kind, o.Metadata.Name))
		if err != nil {
			return all, err
		}
		if !dryRun {
			if err := e.client.do(ctx, request{method: http.MethodPatch,
				path: r.object(e.namespace, o.Metadata.Name), contentType: mergePatch,
				accept: metadataOnly, query: url.Values{"fieldManager": {"argosy-leave"}},
				body: body}, nil); err != nil {
				return all, fmt.Errorf("%s %s: %w; run the command again", r.kind,
					o.Metadata.Name, err)
			}
		}
		all = append(all, Left{kind, o.Metadata.Name, note})
	}
	return all, nil
}

// givenBack is an object of ours as far as its return needs it.
type givenBack struct {
	Metadata struct {
		Name, UID, ResourceVersion string
		DeletionTimestamp          *string
		Labels, Annotations        map[string]string
		Finalizers                 []string
		ManagedFields              []map[string]any
	}
}

func (o givenBack) patch(kind fleet.ObjectKind, policy fleet.DeletionPolicy) (body []byte,
	note string, err error) {
	m := o.Metadata
	meta := map[string]any{"uid": m.UID, "resourceVersion": m.ResourceVersion,
		"managedFields": othersFields(m.ManagedFields)}
	labels, annotations := map[string]any{}, map[string]any{}
	for _, field := range []struct {
		of  map[string]string
		out map[string]any
	}{{m.Labels, labels}, {m.Annotations, annotations}} {
		for k := range field.of {
			if domain, _, _ := strings.Cut(k, "/"); domain == "argosy.dev" {
				field.out[k] = nil
			}
		}
	}
	labels[labelManagedBy] = nil
	if _, parked := m.Annotations[annotationParked]; parked {
		annotations[annotationSkipReconcile] = nil
		note = "its cluster was unreachable; Argo CD compares it again"
	}
	if m.Annotations[annotationHold] != "" {
		note = "a SyncRun holds it: its automation stays off until a manifest is applied"
	}
	var was before
	if text := m.Annotations[annotationBefore]; text != "" {
		if err := json.Unmarshal([]byte(text), &was); err != nil {
			return nil, "", fmt.Errorf("annotation %s of %s %s cannot be read: %w; remove it",
				annotationBefore, kind, m.Name, err)
		}
		for k, v := range was.Labels {
			labels[k] = v
		}
	}
	finalizers := was.Finalizers
	if kind == fleet.ObjectApplication && policy == fleet.DeletionDelete {
		finalizers = []string{cascadeFinalizer}
	}
	if len(finalizers) > 0 {
		meta["finalizers"] = append(m.Finalizers, finalizers...)
		note = strings.TrimPrefix(note+"; its deletion deletes its workload", "; ")
	}
	meta["labels"], meta["annotations"] = labels, annotations
	body, err = json.Marshal(map[string]any{"metadata": meta})
	return body, note, err
}
