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
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// cascadeFinalizer makes Argo CD delete an Application's workload, in the foreground, before the
// Application (application_defaults.go). The suffixes "/background" and "/foreground" do the same.
const cascadeFinalizer = "resources-finalizer.argocd.argoproj.io"

// Delete takes one step towards the object's deletion and reports whether an uncached read has
// proven its absence. Every write has the UID and resourceVersion of this read as preconditions.
// With DeletionDelete, Argo CD deletes the workload first; with DeletionOrphan, the workload stays
// and no hook runs; with DeletionRelease, the object stays too, and the deletion is done when the
// object is not ours. A Cluster or AppProject stays, with ErrInUse, until no Application needs it:
// without the cluster Secret, Argo CD strips the finalizers and silently orphans the workloads
// (appcontroller.go, finalizeApplicationDeletion). A deletion with the workload does not begin
// while Argo CD may overlook the workload (checkSight); where there is none, it is like
// DeletionOrphan. A row with a UID addresses only that object: if the UID differs, its object was
// deleted.
func (e *Engine) Delete(ctx context.Context, row mirror.Row, lease mirror.Lease) (done bool,
	err error) {
	if err := errors.Join(e.ready(), e.checkPublic(row.Key)); err != nil {
		return false, err
	}
	for range attempts {
		done, err = e.deleteStep(ctx, row, lease)
		if codeOf(err) != http.StatusConflict {
			return done, e.explain(row.Key, err)
		}
	}
	return false, nil // conflicts; the next call continues
}

func (e *Engine) deleteStep(ctx context.Context, row mirror.Row, lease mirror.Lease) (bool, error) {
	r, object := resourceOf(row.Key.Kind), e.objectOf(row)
	if err := e.reachable(row, object); err != nil {
		return false, err
	}
	known := e.cache.get(row.Key)
	o, err := e.readNamed(ctx, r, object)
	if err != nil {
		return false, err
	}
	if o == nil {
		e.cache.absent(r, known)
	}
	if o == nil || row.UID != "" && o.Metadata.UID != row.UID {
		e.conflicts.forget(row.Key)
		return true, nil
	}
	live := newEntry(e.name, e.places, r, o)
	known = e.cache.get(row.Key)
	switch {
	case !live.Ours && row.Deletion == fleet.DeletionRelease,
		r == applications && live.Key != row.Key: // released, or never adopted
		e.conflicts.forget(row.Key)
		e.cache.learn(r, live)
		return true, nil
	case !live.Ours || live.Key.Kind != row.Key.Kind || live.Tenant != row.Tenant:
		return false,
			fmt.Errorf("%w: it lacks our labels or carries another tenant's, and is left alone",
				engine.ErrForeign)
	case live.fenced(lease.Epoch):
		return false, fmt.Errorf("%w: its epoch is %d, this lease's is %d", engine.ErrFenced,
			live.Epoch, lease.Epoch)
	case known != nil && known.UID != live.UID:
		e.cache.learn(r, live)
		return false,
			fmt.Errorf(
				"%w: another object of this name has replaced the one to be "+
					"deleted; it is checked again", engine.ErrForeign)
	}
	e.cache.learn(r, live)
	switch {
	case r == applications && row.Deletion == fleet.DeletionRelease:
		return false, e.release(ctx, row, live)
	case r == applications:
		return false, e.deleteApplication(ctx, row, lease, live)
	}
	if live.Deleting {
		return false, nil
	}
	if err := e.checkUnused(ctx, row, o); err != nil {
		return false, err
	}
	return false, e.remove(ctx, row, live)
}

func (e *Engine) deleteApplication(ctx context.Context, row mirror.Row, lease mirror.Lease,
	live *entry) error {
	var patch map[string]any
	if row.Deletion == fleet.DeletionOrphan {
		patch = orphaning(live)
	} else { // Argo CD knows its own cluster without a Secret: see checkOwnCluster
		cluster := fleet.ObjectKey{Engine: e.name, Kind: fleet.ObjectCluster,
			Name: fleet.ClusterName(fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment})}
		if c := e.cache.get(cluster); !e.name.OfEnvironment() && !live.Deleting &&
			(c == nil || !c.Ours || c.Deleting) {
			return fmt.Errorf(
				"%w: cluster Secret %s is missing, and without it Argo CD would silently orphan the "+
					"workload; restore it, or set deletionPolicy: Orphan",
				engine.ErrDestination, cluster.Name)
		}
		without, err := e.checkSight(live, cluster)
		if err != nil {
			return err
		}
		if patch = cascading(live); without { // nor a hook
			patch = orphaning(live)
		}
	}
	if len(patch) > 0 {
		if !live.Deleting {
			setAnnotation(patch, annotationEpoch, strconv.FormatInt(lease.Epoch, 10))
		}
		m, err := e.merge(ctx, row, patch, live)
		if err != nil {
			return err
		}
		after := *live
		after.ResourceVersion, after.finalizers = m.ResourceVersion, m.Finalizers
		live = &after
	}
	if live.Deleting {
		return nil // Argo CD deletes the workload
	}
	return e.remove(ctx, row, live)
}

// cascading returns the patch that makes the next deletion delete the workload too. A finalizer
// cannot be added after the deletion has started.
func cascading(live *entry) map[string]any {
	patch := map[string]any{}
	if !live.cascades() && !live.Deleting {
		patch["metadata"] = map[string]any{
			"finalizers": append(append([]string{}, live.finalizers...), cascadeFinalizer)}
	}
	if live.skipReconcile && !live.Parked {
		// with the annotation, the deletion would never finish
		setAnnotation(patch, annotationSkipReconcile, nil)
	}
	return patch
}

// orphaning returns the patch that removes all finalizers of Argo CD, including those of pre- and
// post-delete hooks. skip-reconcile keeps Argo CD from adding one before the deletion.
func orphaning(live *entry) map[string]any {
	patch := map[string]any{}
	kept := []string{}
	for _, f := range live.finalizers {
		if !isArgoFinalizer(f) {
			kept = append(kept, f)
		}
	}
	if len(kept) < len(live.finalizers) {
		patch["metadata"] = map[string]any{"finalizers": kept}
	}
	if !live.skipReconcile && !live.Deleting {
		setAnnotation(patch, annotationSkipReconcile, "true")
	}
	return patch
}

func isArgoFinalizer(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return strings.HasSuffix(domain, ".argocd.argoproj.io")
}

func setAnnotation(patch map[string]any, name string, value any) {
	meta := child(patch, "metadata")
	if meta == nil {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	annotations := child(meta, "annotations")
	if annotations == nil {
		annotations = map[string]any{}
		meta["annotations"] = annotations
	}
	annotations[name] = value
}

// remove deletes exactly the object that was read.
func (e *Engine) remove(ctx context.Context, row mirror.Row, live *entry) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]any{"uid": live.UID, "resourceVersion": live.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("delete options: %w", err)
	}
	r := resourceOf(row.Key.Kind)
	err = e.mutate(ctx, row.Tenant, request{method: http.MethodDelete,
		path: e.places.path(r, live.object), contentType: plainJSON, accept: metadataOnly,
		body: body}, nil)
	if provesAbsence(err, r) {
		return nil
	}
	return err
}

// checkUnused verifies that no Application needs a Cluster, Repository or AppProject any more: with
// the cache, which has foreign Applications too, and with an uncached list of ours. Access to a
// repository may be withdrawn while Applications use it, because a revocation must take effect.
// Only terminating Applications keep it: their delete hooks are read from it.
func (e *Engine) checkUnused(ctx context.Context, row mirror.Row, o *liveObject) error {
	var uses func(*entry) bool
	labels := []string{labelManagedBy + "=" + managedBy, labelTenant + "=" + string(row.Tenant)}
	switch row.Key.Kind {
	case fleet.ObjectProject:
		uses = func(a *entry) bool { return a.project == row.Key.Name }
	case fleet.ObjectCluster:
		server, _ := dataValue(o.Data, "server")
		uses = func(a *entry) bool {
			return len(server) > 0 && a.server == string(server) || a.Tenant == row.Tenant &&
				a.Environment == row.Environment
		}
		labels = append(labels, labelEnvironment+"="+string(row.Environment))
	default:
		uses = func(a *entry) bool { return a.Tenant == row.Tenant && a.Deleting }
	}
	if users := e.users(row.Tenant, uses); len(users) > 0 {
		return fmt.Errorf("%w by Applications: %s", engine.ErrInUse, someOf(users))
	}
	return e.provenUnused(ctx, row, labels)
}

const maxUsers = 5

func someOf(users []string) string {
	if more := len(users) - maxUsers; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(users[:maxUsers], ", "), more)
	}
	return strings.Join(users, ", ")
}

// users returns the Applications that use an object of a tenant, sorted. Other tenants' namespaces
// do not count: their writers could keep the object.
func (e *Engine) users(t fleet.TenantName, uses func(*entry) bool) []string {
	return e.cache.users(func(a *entry) bool {
		namespace, _ := fleet.SplitObject(a.object)
		return uses(a) && (namespace == "" || e.places.further[namespace] == t)
	})
}

func (e *Engine) provenUnused(ctx context.Context, row mirror.Row, labels []string) error {
	for _, r := range append([]*resource{applications}, e.cache.further...) {
		if r.namespace != "" && e.places.further[r.namespace] != row.Tenant {
			continue // it holds no Application of the tenant that is ours
		}
		if err := e.provenUnusedIn(ctx, r, labels,
			row.Key.Kind == fleet.ObjectRepository); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) provenUnusedIn(ctx context.Context, r *resource, labels []string,
	deletingOnly bool) error {
	query := url.Values{"labelSelector": {strings.Join(labels, ",")},
		"limit": {strconv.Itoa(pageSize)}}
	for {
		var page struct {
			Metadata struct{ ResourceVersion, Continue string }
			Items    []struct{ Metadata liveMetadata }
		}
		err := e.client.do(ctx, request{method: http.MethodGet,
			path: e.places.collection(r), query: query,
			accept: metadataListOnly}, &page)
		if err != nil {
			return err
		}
		if page.Metadata.ResourceVersion == "" {
			return fmt.Errorf("%w: the response is not a list of applications",
				engine.ErrUnreachable)
		}
		for _, item := range page.Items {
			if !deletingOnly || item.Metadata.DeletionTimestamp != nil {
				return fmt.Errorf("%w by Applications: %s", engine.ErrInUse,
					e.places.object(&item.Metadata))
			}
		}
		if page.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}
