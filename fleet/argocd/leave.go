package argocd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// ErrNotStopped means that a control plane could still write to the engine.
var ErrNotStopped = errors.New("no emergency stop of the engine or the fleet is in force")

// ErrExpiringTokens means that Argo CD would lose clusters whose tokens only we renew.
var ErrExpiringTokens = errors.New("only Argosy renews the tokens of clusters")

// Left is an object that was given back.
type Left struct {
	Kind fleet.ObjectKind
	Name string // with its namespace and "/" before it if that is not Argo CD's own
	Note string // what differs from its declaration, or happens later
}

// LeaveOptions configure Leave.
type LeaveOptions struct {
	// Policy returns the deletion policy of a live object.
	Policy func(fleet.ObjectKind, string) fleet.DeletionPolicy
	// Uninstalled means that no control plane runs, so that no stop is required.
	Uninstalled bool
	// ExpiringTokens accepts that tokens expire which only we renew.
	ExpiringTokens bool
	DryRun         bool // return the same and write nothing
}

// Leave gives every object of ours on the engine back to people: it removes our labels,
// annotations and applied fields, the annotation that parks an Application, and restores the
// finalizers that an adopted Application had before. An Application with deletionPolicy Delete gets
// the cascade finalizer, as its exported manifest has. Specs, data and workloads stay. It requires
// a stop, unless the control plane is uninstalled; a dry run requires none.
func (e *Engine) Leave(ctx context.Context, o LeaveOptions) (all []Left, err error) {
	if err := e.mayLeave(ctx, o); err != nil {
		return nil, err
	}
	resources := slices.Concat(resources, e.cache.further)
	live := make([][]givenBack, len(resources))
	var expiring []string
	for i, r := range resources {
		if live[i], err = e.oursOf(ctx, r); err != nil {
			return nil, err
		}
		for _, one := range live[i] {
			if at := one.Metadata.Annotations[annotationExpires]; at != "" {
				expiring = append(expiring, clip(one.Metadata.Name, 253)+" at "+clip(at, 40))
			}
		}
	}
	if len(expiring) > 0 && !o.ExpiringTokens && !o.DryRun {
		return nil, fmt.Errorf("%w: these expire: %s", ErrExpiringTokens, named(expiring))
	}
	// An interrupted run continues: an object without our labels is done.
	for i, r := range resources {
		for _, one := range live[i] {
			left, err := e.giveBack(ctx, r, one, o)
			if err != nil {
				return all, err
			}
			all = append(all, left)
		}
	}
	if o.DryRun {
		return all, nil
	}
	return all, e.RemoveProbe(ctx)
}

// mayLeave returns ErrNotStopped while a control plane could write.
func (e *Engine) mayLeave(ctx context.Context, o LeaveOptions) error {
	if o.Uninstalled || o.DryRun {
		return nil
	}
	stops, err := e.ReadStops(ctx)
	if err != nil {
		return err
	}
	for _, s := range stops {
		if s.Scope == mirror.StopFleet || s.Scope == mirror.StopEngine && s.Name == string(e.name) {
			return nil
		}
	}
	return ErrNotStopped
}

// oursOf lists all objects of ours: a partial list is an error.
func (e *Engine) oursOf(ctx context.Context, r *resource) (live []givenBack, err error) {
	query := url.Values{"labelSelector": {labelManagedBy + "=" + managedBy + "," + labelTenant},
		"limit": {strconv.Itoa(pageSize)}}
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []givenBack
		}
		if err := e.client.do(ctx, request{method: http.MethodGet,
			path: e.places.collection(r), query: query, accept: metadataListOnly},
			&page); err != nil {
			return nil, fmt.Errorf("failed to list %s in namespace %s: %w", r.plural,
				cmp.Or(r.namespace, e.namespace), err)
		}
		live = append(live, page.Items...)
		if page.Metadata.Continue == "" {
			return live, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

func (e *Engine) giveBack(ctx context.Context, r *resource, one givenBack,
	o LeaveOptions) (Left, error) {
	left := Left{Kind: r.kindOf(one.Metadata.Labels), Name: one.Metadata.Name}
	if r.namespace != "" {
		left.Name = r.namespace + "/" + left.Name
	}
	if one.Metadata.DeletionTimestamp != nil {
		left.Note = "is being deleted, and stays as it is"
		return left, nil
	}
	body, note, err := one.patch(left.Kind, o.Policy(left.Kind, left.Name))
	left.Note = note
	if err != nil || o.DryRun {
		return left, err
	}
	if err := e.client.do(ctx, request{method: http.MethodPatch,
		path: e.places.path(r, left.Name), contentType: mergePatch, accept: metadataOnly,
		query: url.Values{"fieldManager": {"argosy-leave"}}, body: body}, nil); err != nil {
		return left, fmt.Errorf("%s %s: %w; run the command again", r.kind, left.Name, err)
	}
	return left, nil
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
	if at := m.Annotations[annotationExpires]; at != "" {
		note = "its token expires at " + clip(at, 40) + ", and nothing renews it"
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
