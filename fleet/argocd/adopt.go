package argocd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/original"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// before holds what an adoption changes of an Application, so that a release can restore it.
type before struct {
	Project     string            `json:"project,omitempty"`
	Destination map[string]any    `json:"destination,omitempty"`
	Finalizers  []string          `json:"finalizers,omitempty"` // the cascade finalizers
	Labels      map[string]string `json:"labels,omitempty"`     // values of ours
}

// adopt takes over an existing Application, with its name, UID, history and workload. It writes
// only if the declaration changes nothing that Argo CD acts on except the project and the name of
// the cluster, nothing else owns the object, and a dry run gives the declared spec. Otherwise it
// returns engine.ErrAdoption with the reason. Argo CD then compares the Application again and syncs
// only what differed before. With orCreate, it creates an Application that an uncached read proves
// absent. Both wait while the tenant's adoptions are paused.
func (e *Engine) adopt(ctx context.Context, w *desired) (engine.Outcome, error) {
	unpaused := func() error { return e.adoptionPaused(w.row.Tenant) }
	tree, found, err := e.readWhole(ctx, w)
	switch {
	case err != nil:
		return engine.Outcome{}, err
	case found == nil && child(child(w.tree, "metadata"), "annotations")[annotationOrCreate] != nil:
		return e.writeUnless(ctx, w, nil, unpaused)
	case found == nil:
		namespace, name := fleet.SplitObject(w.object)
		return engine.Outcome{}, blocked("there is no Application %s in namespace %s; correct "+
			"adopt, or remove it to create a new Application", name,
			cmp.Or(namespace, e.namespace))
	case found.Ours && found.Key == w.row.Key:
		e.cache.learn(w.r, found) // the cache is behind
		return e.applyOnce(ctx, w, found)
	case e.stripped(w, tree, found):
		return e.mark(ctx, w, found)
	case labelled(tree) && !w.identifies(found):
		return engine.Outcome{}, fmt.Errorf("%w: Application %s belongs to another declaration",
			engine.ErrForeign, w.object)
	case found.Deleting:
		return engine.Outcome{}, blocked("Application %s is being deleted", w.object)
	case found.Operating:
		return engine.Outcome{State: mirror.ApplyPending, RetryAfter: busyWait,
			Message: "the Application to adopt is syncing; it is adopted when that has ended"}, nil
	case child(child(tree, "metadata"), "annotations")[annotationRefresh] != nil:
		// With its result Argo CD patches the annotations that it read before: if that was the only
		// one, it removes all, those of an adoption meanwhile too (persistAppStatus).
		return engine.Outcome{State: mirror.ApplyPending, RetryAfter: busyWait,
			Message: "Argo CD compares the Application to adopt; it is adopted when that has " +
				"ended"}, nil
	}
	if err := unpaused(); err != nil {
		return engine.Outcome{}, err
	}
	was, patch := beforeOf(tree, found.finalizers), map[string]any{}
	if labelled(tree) {
		was.Labels = nil // they are ours, or copies of ours: a release restores none
	}
	name, err := e.resolve(ctx, child(child(tree, "spec"), "destination"), w.object)
	if err != nil {
		return engine.Outcome{}, err
	}
	if name != "" {
		// Argo CD accepts no destination with both.
		patch["spec"] = map[string]any{"destination": map[string]any{"name": nil,
			"server": child(child(tree, "spec"), "destination")["server"]}}
	} else if was, err = e.interrupted(ctx, tree, found.before, was); err != nil {
		return engine.Outcome{}, err
	}
	if err := e.adoptable(w, tree); err != nil {
		return engine.Outcome{}, err
	}
	known := *found
	known.Key, known.observation.Key, known.contact.Key = w.row.Key, w.row.Key, w.row.Key
	if err := e.dryRun(ctx, w, &known, name); err != nil {
		return engine.Outcome{}, err
	}
	text, err := json.Marshal(was)
	if err != nil {
		return engine.Outcome{}, fmt.Errorf("failed to encode the state before the "+
			"adoption: %w", err)
	}
	setAnnotation(patch, annotationBefore, string(text))
	m, err := e.mergeUnless(ctx, w.row, patch, &known, unpaused) // the reads took their time
	if err != nil {
		return engine.Outcome{}, err
	}
	known.ResourceVersion = m.ResourceVersion
	return e.write(ctx, w, &known)
}

// annotationRefresh requests a comparison; Argo CD removes it with the result.
const annotationRefresh = "argocd.argoproj.io/refresh"

// stripped reports whether a live Application is the adopted one without its annotations: Argo CD
// removes them all if it has read the Application before they were set, with a refresh alone. In a
// namespace of a tenant, whose people may copy the labels, only the cache proves the adoption.
func (e *Engine) stripped(w *desired, tree map[string]any, found *entry) bool {
	return labelled(tree) && w.identifies(found) &&
		(!found.further() || e.beforeStripped(w, found) != "")
}

func labelled(tree map[string]any) bool {
	return child(child(tree, "metadata"), "labels")[labelManagedBy] == managedBy
}

// identifies reports whether the labels of an Application without our annotations are the row's.
func (w *desired) identifies(found *entry) bool {
	return found.Key.Name == w.object && found.id == identity{tenant: w.row.Tenant,
		environment: w.row.Environment, deployment: w.row.Deployment}
}

// beforeStripped returns the state before the adoption of an Application that has lost its
// annotations, which the cache remembers; "" if it knows none.
func (e *Engine) beforeStripped(w *desired, found *entry) string {
	last := e.cache.get(fleet.ObjectKey{Engine: e.name, Kind: fleet.ObjectApplication,
		Name: w.object})
	if last == nil || last.UID != found.UID {
		return ""
	}
	return last.before
}

// mark sets the annotations of an adopted Application again. The cache remembers the state before
// the adoption; after a restart it is lost, and a release keeps the project and destination.
func (e *Engine) mark(ctx context.Context, w *desired, found *entry) (engine.Outcome, error) {
	known := *found
	known.Key, known.observation.Key, known.contact.Key = w.row.Key, w.row.Key, w.row.Key
	if was := e.beforeStripped(w, found); was != "" {
		patch := map[string]any{}
		setAnnotation(patch, annotationBefore, was)
		m, err := e.merge(ctx, w.row, patch, &known)
		if err != nil {
			return engine.Outcome{}, err
		}
		known.ResourceVersion = m.ResourceVersion
	}
	return e.write(ctx, w, &known)
}

// notePause remembers the pause of an AppProject's row before it is written: it begins at once,
// also if the write fails and is tried again. It ends when a row without it is written.
func (e *Engine) notePause(w *desired) {
	annotations := child(child(w.tree, "metadata"), "annotations")
	if by, _ := annotations[annotationAdoptionPaused].(string); by != "" {
		e.pauses.Store(w.row.Tenant, by)
	} else {
		e.pauses.Delete(w.row.Tenant)
	}
}

// adoptionPaused returns the pause of a tenant's adoptions on the engine: the tenant's AppProject
// carries it, which is applied before its Applications.
func (e *Engine) adoptionPaused(tenant fleet.TenantName) error {
	project := e.cache.get(fleet.ObjectKey{Engine: e.name, Kind: fleet.ObjectProject,
		Name: fleet.ProjectName(tenant)})
	by := ""
	if noted, ok := e.pauses.Load(tenant); ok {
		by, _ = noted.(string)
	} else if project != nil && project.Ours {
		by = project.paused
	}
	switch {
	case by == string(fleet.PausedByTenant):
		return blocked("adoptions of tenant %s are paused (pauseAdoption in "+
			"fleet/tenants/%s.yaml)", tenant, tenant)
	case by != "":
		return blocked("adoptions on engine %s are paused (pauseAdoption in "+
			"fleet/engines/%s.yaml)", e.name, e.name)
	}
	return nil
}

func blocked(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{engine.ErrAdoption}, args...)...)
}

func beforeOf(tree map[string]any, finalizers []string) before {
	spec, labels := child(tree, "spec"), child(child(tree, "metadata"), "labels")
	b := before{Destination: maps.Clone(child(spec, "destination"))}
	b.Project, _ = spec["project"].(string)
	for _, f := range finalizers {
		if strings.HasPrefix(f, cascadeFinalizer) {
			b.Finalizers = append(b.Finalizers, f)
		}
	}
	for _, key := range ownLabels {
		if v, ok := labels[key].(string); ok {
			if b.Labels == nil {
				b.Labels = map[string]string{}
			}
			b.Labels[key] = v
		}
	}
	return b
}

// resolve replaces the name of the cluster in a live destination by its server, as Argo CD resolves
// it: by the cluster Secrets. It returns the name, or "" if the destination has none.
func (e *Engine) resolve(ctx context.Context, destination map[string]any, object string) (string,
	error) {
	name, _ := destination["name"].(string)
	if server, _ := destination["server"].(string); name == "" || server != "" {
		return "", nil
	}
	if e.options.Public {
		return "", blocked("Application %s names cluster %q, and this agent reads no Secrets; write "+
			"spec.destination.server into the Application instead", object, clip(name, 253))
	}
	servers, err := e.serversOf(ctx, name)
	switch {
	case err != nil:
		return "", err
	case len(servers) == 0 && name == inClusterName:
		servers = []string{fleet.InClusterServer}
	case len(servers) > 0 && name == inClusterName && servers[0] != fleet.InClusterServer:
		servers = append(servers, fleet.InClusterServer) // Argo CD's versions differ
	}
	if len(servers) != 1 {
		return "", blocked("Application %s names cluster %q, and %d cluster Secrets of this Argo CD "+
			"have that name; write spec.destination.server into the Application instead", object,
			clip(name, 253), len(servers))
	}
	delete(destination, "name")
	destination["server"] = servers[0]
	return name, nil
}

// inClusterName is Argo CD's name of the cluster that it runs on, which needs no Secret.
const inClusterName = "in-cluster"

// serversOf returns the servers of the cluster Secrets with a name, sorted. It keeps nothing else
// of them.
func (e *Engine) serversOf(ctx context.Context, name string) ([]string, error) {
	query := url.Values{"labelSelector": {labelSecretType + "=cluster"},
		"limit": {strconv.Itoa(pageSize)}}
	var servers []string
	for {
		var page struct {
			Kind     string
			Metadata struct{ Continue string }
			Items    []struct {
				Data struct{ Name, Server []byte }
			}
		}
		if err := e.client.do(ctx, request{method: http.MethodGet,
			path: secrets.collection(e.namespace), query: query}, &page); err != nil {
			return nil, err
		}
		if page.Kind != "SecretList" {
			return nil, fmt.Errorf("%w: the response is not a list of Secrets",
				engine.ErrUnreachable)
		}
		for _, s := range page.Items {
			if string(s.Data.Name) == name {
				servers = append(servers, strings.TrimRight(string(s.Data.Server), "/"))
			}
		}
		if page.Metadata.Continue == "" {
			slices.Sort(servers)
			return servers, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// interrupted returns the state before an adoption whose first write an earlier attempt made: it
// replaced the name of the cluster by the server, and the name must come back with a release.
func (e *Engine) interrupted(ctx context.Context, tree map[string]any, text string, now before) (
	before, error) {
	var earlier before
	if text == "" || json.Unmarshal([]byte(text), &earlier) != nil {
		return now, nil
	}
	meant := maps.Clone(earlier.Destination)
	name, err := e.resolve(ctx, meant, "")
	if errors.Is(err, engine.ErrAdoption) || name == "" {
		return now, nil
	}
	if reflect.DeepEqual(meant, child(child(tree, "spec"), "destination")) {
		now.Destination = earlier.Destination
	}
	return now, err
}

// adoptable returns why a live Application cannot be adopted; nil if it can. It is pure except for
// the names of other Applications.
func (e *Engine) adoptable(w *desired, tree map[string]any) error {
	meta := child(tree, "metadata")
	owners, _ := meta["ownerReferences"].([]any)
	for _, o := range owners {
		owner, _ := o.(map[string]any)
		return blocked("%s %s owns Application %s; release it first: docs/adopting.md",
			clip(fmt.Sprint(owner["kind"]), 64), clip(fmt.Sprint(owner["name"]), 253), w.object)
	}
	if parent := e.parentOf(meta, w.object); parent != "" {
		return blocked("Application %s is a resource of Application %s; release it first: "+
			"docs/adopting.md", w.object, parent)
	}
	if key := anotherWriter(child(meta, "annotations")); key != "" {
		return blocked("annotation %s lets another controller change Application %s, and Argosy "+
			"would undo each change; remove it first", key, w.object)
	}
	different := specDifferences(child(w.tree, "spec"), child(tree, "spec"), w.object)
	declared, present := child(child(w.tree, "metadata"), "annotations"), child(meta, "annotations")
	for _, key := range actingAnnotations(declared, present) {
		differences("annotation "+key, declared[key], present[key], &different)
	}
	if len(different) > 0 {
		return blocked("the declaration would change Application %s: %s", w.object,
			listed(different))
	}
	return nil
}

// anotherWriter returns the annotation by which another controller changes the spec of an
// Application: Kargo, or Argo CD Image Updater unless it writes to Git.
func anotherWriter(annotations map[string]any) string {
	switch {
	case annotations[fleet.KargoAnnotation] != nil:
		return fleet.KargoAnnotation
	case fleet.ImageUpdatesOf(annotations) == fleet.ImagesInApplication:
		return fleet.ImageUpdaterAnnotation
	}
	return ""
}

// actingAnnotations returns the keys of the annotations of two Applications by which Argo CD acts
// or shows links, sorted.
func actingAnnotations(objects ...map[string]any) []string {
	keys := map[string]bool{}
	for _, annotations := range objects {
		for k := range annotations {
			if isStableAnnotation(k) && !strings.HasPrefix(k, "argosy.dev/") {
				keys[k] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// parentOf returns the Application that has this one among its resources, as an app of apps.
func (e *Engine) parentOf(meta map[string]any, object string) string {
	tracking, _ := child(meta, "annotations")["argocd.argoproj.io/tracking-id"].(string)
	if parent, _, ok := strings.Cut(tracking, ":"); ok {
		return clip(parent, 253)
	}
	if !e.name.OfEnvironment() {
		return "" // preflight requires tracking by annotation
	}
	label, _ := child(meta, "labels")["app.kubernetes.io/instance"].(string)
	if users := e.cache.users(func(a *entry) bool {
		return a.object == label && label != object
	}); len(users) > 0 {
		return clip(label, 253)
	}
	return ""
}

// dryRun applies the row on the API server without persisting it, and compares the result but for
// the name of the cluster, which the adoption removes.
func (e *Engine) dryRun(ctx context.Context, w *desired, known *entry, name string) error {
	body, err := w.patch(known)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := e.mutate(ctx, w.row.Tenant, request{
		method: http.MethodPatch, path: e.places.path(w.r, w.object),
		contentType: applyPatch, body: body,
		query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}, "fieldValidation": {
			"Ignore"}, "dryRun": {"All"}},
	}, &raw); err != nil {
		return err
	}
	tree, err := decodeTree(raw)
	if err != nil {
		return fmt.Errorf("%w: the dry run's result is not an object: %w", engine.ErrUnreachable,
			err)
	}
	want, got := child(w.tree, "spec"), child(tree, "spec")
	if d := child(got, "destination"); name != "" && d["name"] == name {
		delete(d, "name")
	}
	different := specDifferences(want, got, w.object)
	for _, mapped := range []string{"project", "destination"} {
		if !reflect.DeepEqual(withoutZeros(want[mapped]), withoutZeros(got[mapped])) {
			different = append(different, "spec."+mapped)
		}
	}
	if len(different) > 0 {
		return blocked("the dry run on the API server gives another spec: %s", listed(different))
	}
	return nil
}

const maxDifferences = 5

func listed(different []string) string {
	if more := len(different) - maxDifferences; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(different[:maxDifferences], "; "), more)
	}
	return strings.Join(different, "; ")
}

// specDifferences lists the fields in which a declared spec differs from a live one to Argo CD,
// without the project and the query of the server key.
func specDifferences(want, live map[string]any, object string) []string {
	a, err := comparableSpec(want, object)
	if err != nil {
		return []string{"the declared " + err.Error()}
	}
	b, err := comparableSpec(live, object)
	if err != nil {
		return []string{"the live " + err.Error()}
	}
	var out []string
	differences("spec", a, b, &out)
	slices.Sort(out)
	return out
}

// comparableSpec returns a spec in the form in which equal specs mean the same to Argo CD: the one
// with which an import proves that a declaration is exact. A field that Argo CD's types lack is
// part of it, by its path.
func comparableSpec(spec map[string]any, object string) (map[string]any, error) {
	_, name := fleet.SplitObject(object) // Argo CD's default for the release, without a namespace
	normal, err := original.Normalize(map[string]any{"spec": spec,
		"metadata": map[string]any{"name": name}}, nil)
	if err != nil {
		return nil, err
	}
	tree := normal.Spec
	delete(tree, "project")
	if d := child(tree, "destination"); d != nil {
		server, _ := d["server"].(string)
		server, _, _ = strings.Cut(server, "?managedEnvironment=")
		d["server"] = strings.TrimSuffix(server, "/")
	}
	for path, v := range normal.Unknown {
		tree[strings.TrimPrefix(path, "spec.")] = v
	}
	return tree, nil
}

func differences(at string, want, live any, out *[]string) {
	a, isMap := want.(map[string]any)
	b, both := live.(map[string]any)
	if isMap && both {
		keys := map[string]bool{}
		for k := range a {
			keys[k] = true
		}
		for k := range b {
			keys[k] = true
		}
		for k := range maps.Keys(keys) {
			differences(at+"."+clip(k, 64), a[k], b[k], out)
		}
		return
	}
	if !reflect.DeepEqual(want, live) {
		*out = append(*out, fmt.Sprintf("%s is %s, declared %s", at, shown(live), shown(want)))
	}
}

func shown(v any) string {
	if v == nil {
		return "not set"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return clip(string(text), 80)
}

// release gives an Application back: it keeps its object and its workload, gets the project, the
// destination and the finalizers that it had before its adoption, and loses our labels and
// annotations. Argo CD syncs nothing.
func (e *Engine) release(ctx context.Context, row mirror.Row, live *entry) error {
	if live.Deleting {
		return nil // others have deleted it
	}
	var object struct {
		Metadata struct {
			Annotations   map[string]any
			ManagedFields []map[string]any
		}
	}
	if err := e.client.do(ctx, request{method: http.MethodGet,
		path: e.places.path(applications, live.object)}, &object); err != nil {
		return err
	}
	var was before
	if live.before != "" {
		if err := json.Unmarshal([]byte(live.before), &was); err != nil {
			return fmt.Errorf("%w: its annotation %s cannot be read: %w; remove it to keep the "+
				"project and destination", engine.ErrRefused, annotationBefore, err)
		}
	}
	patch := map[string]any{}
	for name := range object.Metadata.Annotations {
		if strings.HasPrefix(name, "argosy.dev/") {
			setAnnotation(patch, name, nil)
		}
	}
	if live.Parked {
		setAnnotation(patch, annotationSkipReconcile, nil)
	}
	labels := map[string]any{}
	for _, key := range ownLabels {
		labels[key] = nil
	}
	for key, v := range was.Labels {
		labels[key] = v
	}
	meta := child(patch, "metadata")
	meta["labels"] = labels
	meta["managedFields"] = othersFields(object.Metadata.ManagedFields)
	if len(was.Finalizers) > 0 {
		meta["finalizers"] = append(slices.Clone(live.finalizers), was.Finalizers...)
	}
	if was.Destination != nil {
		destination := map[string]any{"server": nil, "name": nil, "namespace": nil}
		maps.Copy(destination, was.Destination)
		patch["spec"] = map[string]any{"project": was.Project, "destination": destination}
	}
	_, err := e.merge(ctx, row, patch, live)
	return err
}

// othersFields returns the managed fields without those that we have applied: otherwise later
// appliers would conflict with us.
func othersFields(all []map[string]any) []map[string]any {
	kept := slices.DeleteFunc(all, func(f map[string]any) bool {
		return f["manager"] == fieldManager && f["operation"] == "Apply"
	})
	if len(kept) == 0 {
		kept = append(kept, map[string]any{}) // the server ignores an empty list
	}
	return kept
}
