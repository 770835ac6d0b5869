package argocd

import (
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
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// A move (ADR 0045) uses three properties of Argo CD 2.14 and 3.5:
//
//   - An Application without automation and finalizers changes nothing, neither while it exists nor
//     by its deletion. So two instances may have it.
//   - ignoreDifferences are part of status.sync.comparedTo, and group and kind are patterns. With
//     entries for the two annotations by which Argo CD marks resources, an Application is Synced
//     exactly if its sync would change nothing else (util/argo/normalizers/diff_normalizer.go).
//   - An operation with a list of resources runs no hook (controller/sync.go, skipHooks) and adds
//     nothing to the history.
//
// Argo CD adds the finalizers of pre- and post-delete hooks while it compares, and runs these hooks
// only if a deletion finds the finalizers. Without them, and with skip-reconcile, a deletion runs
// nothing.

const (
	// annotationMove of an Application that moves is the UID of its object on the engine that it
	// leaves. moveAdopts follows it once the new engine may adopt the resources.
	annotationMove = "argosy.dev/move"
	moveAdopts     = "/adopt"
	// annotationRequestedAt is when the adoption was requested last.
	annotationRequestedAt = "argosy.dev/requested-at"

	annotationTracking     = "argocd.argoproj.io/tracking-id"
	annotationInstallation = "argocd.argoproj.io/installation-id"
)

// moveRequest returns the ID of the operation that adopts the resources. No SyncRun has such a
// name.
func moveRequest(d mirror.Departure) string { return "move/" + d.UID }

// movingObject is an Application as the steps of a move need it.
type movingObject struct {
	*entry
	live      *liveObject
	spec      map[string]any
	resources []comparedResource
	compares  bool   // the last comparison was with the present spec
	refreshes bool   // a comparison is requested
	lastRun   string // of the last operation; empty: none
	result    string // its message
	// when the adoption was requested last; zero: it was not
	requestedAt time.Time
}

// noticedWithin is how long Argo CD may take to begin a requested operation. It writes the result
// of a comparison into its own cache, and so may overwrite a request that has arrived meanwhile
// (3.5): only another change of the Application, or the periodic comparison, shows it again.
const noticedWithin = 15 * time.Second

// unnoticed reports whether Argo CD has not begun the requested adoption for too long.
func (m *movingObject) unnoticed(d mirror.Departure, now time.Time) bool {
	return m.Operating && m.lastRun == "" && m.request == moveRequest(d) &&
		!m.requestedAt.IsZero() && now.Sub(m.requestedAt) >= noticedWithin
}

// comparedResource is a resource in the status of an Application.
type comparedResource struct {
	mirror.MovedResource
	Status          string
	Health          struct{ Status string }
	Hook            bool
	RequiresPruning bool
	SyncWave        int64
}

func (r comparedResource) String() string { return r.MovedResource.String() }

// readMoving reads the row's Application, bypassing the cache; nil if it does not exist.
func (e *Engine) readMoving(ctx context.Context, row mirror.Row) (*movingObject, error) {
	if err := e.ready(); err != nil {
		return nil, err
	}
	name := e.objectOf(row)
	var raw json.RawMessage
	err := e.client.do(ctx, request{method: http.MethodGet,
		path: e.places.path(applications, name)}, &raw)
	if provesAbsence(err, applications) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := decodeMoving(e.name, e.places, raw)
	if err != nil {
		return nil, err
	}
	if !m.Ours || m.Key != row.Key || m.Tenant != row.Tenant {
		return nil, fmt.Errorf("%w: Application %s on engine %s", engine.ErrForeign, name, e.name)
	}
	e.cache.learn(applications, m.entry)
	return m, nil
}

func decodeMoving(name fleet.EngineName, in places, raw []byte) (*movingObject, error) {
	o, err := decodeLive(raw)
	if err != nil {
		return nil, err
	}
	var more struct {
		Status struct {
			Resources []comparedResource
			Sync      struct {
				ComparedTo struct{ IgnoreDifferences json.RawMessage }
			}
			OperationState *struct{ StartedAt, FinishedAt, Message string }
		}
	}
	if err := json.Unmarshal(raw, &more); err != nil {
		return nil, fmt.Errorf("%w: the status of the Application cannot be read: %w",
			engine.ErrUnreachable, err)
	}
	spec, err := decodeTree(o.Spec)
	if err != nil {
		return nil, fmt.Errorf("%w: the spec of the Application cannot be read: %w",
			engine.ErrUnreachable, err)
	}
	ignored, err := json.Marshal(spec["ignoreDifferences"])
	if err != nil {
		return nil, fmt.Errorf("ignoreDifferences: %w", err)
	}
	m := &movingObject{entry: newEntry(name, in, applications, o), live: o, spec: spec,
		resources: more.Status.Resources}
	m.compares = o.compared() && sameJSON(ignored, more.Status.Sync.ComparedTo.IgnoreDifferences)
	_, m.refreshes = o.Metadata.Annotations[annotationRefresh]
	// without a time, no adoption was requested
	m.requestedAt, _ = time.Parse(time.RFC3339, o.Metadata.Annotations[annotationRequestedAt])
	if s := more.Status.OperationState; s != nil {
		m.lastRun, m.result = s.StartedAt+"/"+s.FinishedAt, operationMessage(&o.Status)
	}
	return m, nil
}

// mayWrite returns why the lease may not write to the object.
func (m *movingObject) mayWrite(lease mirror.Lease) error {
	switch {
	case m.fenced(lease.Epoch):
		return fmt.Errorf("%w: its epoch is %d, this lease's is %d", engine.ErrFenced, m.Epoch,
			lease.Epoch)
	case m.Deleting:
		return waits("it is being deleted on engine %s", m.Key.Engine)
	}
	return nil
}

func waits(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{engine.ErrMove}, args...)...)
}

func stale(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{engine.ErrMoveStale}, args...)...)
}

func (m *movingObject) automated() bool {
	return child(m.spec, "syncPolicy")["automated"] != nil
}

// finalized reports whether a finalizer of Argo CD is set.
func (m *movingObject) finalized() bool {
	return slices.ContainsFunc(m.finalizers, isArgoFinalizer)
}

// problem returns the first error among the conditions, or "".
func (m *movingObject) problem() string {
	for _, c := range m.live.Status.Conditions {
		if !strings.HasSuffix(c.Type, "Error") {
			continue
		}
		if cause, unread := clusterError(c.Message); unread {
			return "cannot read its cluster: " + clip(cause, maxText)
		}
		return "reports " + clip(c.Type, 64) + ": " + clip(c.Message, maxText)
	}
	return ""
}

// managed returns the resources of the Application without hooks, sorted.
func (m *movingObject) managed() []mirror.MovedResource {
	var all []mirror.MovedResource
	for _, r := range m.resources {
		if !r.Hook {
			all = append(all, r.MovedResource)
		}
	}
	slices.SortFunc(all, mirror.MovedResource.Compare)
	return all
}

// CheckDeparture implements engine.Mover.
func (e *Engine) CheckDeparture(ctx context.Context, row mirror.Row) (mirror.Departure, error) {
	m, err := e.readMoving(ctx, row)
	switch {
	case err != nil:
		return mirror.Departure{}, e.explain(row.Key, err)
	case m == nil && e.objectOf(row) == row.Key.Name:
		return mirror.Departure{}, nil
	case m == nil:
		return mirror.Departure{}, e.explain(row.Key, waits("engine %s does not have it; correct "+
			"adopt", e.name))
	}
	if why := m.unfit(); why != "" {
		return mirror.Departure{}, e.explain(row.Key, waits("on engine %s, %s", e.name, why))
	}
	s := &m.live.Status.Sync
	d := mirror.Departure{UID: m.UID, Revisions: s.Revisions, Resources: m.managed(),
		LastOperation: m.lastRun, Spec: m.live.Spec}
	if len(sourcesOf(m.spec)) == 1 && len(s.Revisions) == 0 {
		d.Revisions = []string{s.Revision}
	}
	if d.Annotations, err = m.beforeElsewhere(); err != nil {
		return mirror.Departure{}, e.explain(row.Key, err)
	}
	// prove that the next step can use them
	if _, err := pinned(m.spec, d.Revisions); err != nil {
		return mirror.Departure{}, e.explain(row.Key, waits("on engine %s, %w", e.name, err))
	}
	return d, nil
}

// beforeElsewhere returns what the new engine must know of the adoption, for a release. The project
// and the destination of before are names of this engine: another one may have them for another
// cluster. So a release after the move keeps those that the Application has then.
func (m *movingObject) beforeElsewhere() (map[string]string, error) {
	if m.before == "" {
		return nil, nil
	}
	var was before
	if err := json.Unmarshal([]byte(m.before), &was); err != nil {
		return nil, waits("annotation %s cannot be read: %w; remove it", annotationBefore, err)
	}
	was.Project, was.Destination = "", nil
	text, err := json.Marshal(was)
	return map[string]string{annotationBefore: string(text)}, err
}

// unfit returns why the Application cannot leave its engine now; "" if it can. Argo CD waits for
// the health of a sync wave before it continues with the next one, so the adoption of several waves
// needs healthy resources.
func (m *movingObject) unfit() string {
	switch {
	case m.Deleting:
		return "it is being deleted"
	case m.Parked:
		return "it is parked, because its cluster does not respond"
	case m.move != "":
		return "annotation " + annotationMove + " of an earlier move holds it; undo this move, or " +
			"remove the annotation if no other engine has the Application"
	case m.skipReconcile:
		return "annotation " + annotationSkipReconcile + " makes Argo CD ignore it; remove it"
	case m.Operating:
		return "an operation runs"
	case m.problem() != "":
		return "Argo CD " + m.problem()
	case m.Drifted:
		return "its object differs from its declaration"
	case !m.compares:
		return "Argo CD has not compared it with its present source yet"
	}
	waves := map[int64]bool{}
	for _, r := range m.resources {
		if !r.Hook {
			waves[r.SyncWave] = true
		}
	}
	for _, r := range m.resources {
		switch {
		case r.Hook:
		case r.RequiresPruning:
			return r.String() + " must be pruned; sync it with prune, or remove the resource"
		case r.Status == "OutOfSync":
			return r.String() + " is OutOfSync; sync it first"
		case len(waves) > 1 && r.Health.Status != "" && r.Health.Status != "Healthy":
			return r.String() + " is " + clip(r.Health.Status, 32) +
				", and Argo CD adopts several sync waves only while they are Healthy"
		}
	}
	if m.Sync != mirror.SyncSynced {
		return "it is " + string(m.Sync) + "; sync it first"
	}
	return ""
}

func sourcesOf(spec map[string]any) []any {
	if several, ok := spec["sources"].([]any); ok && len(several) > 0 {
		return several
	}
	if one, ok := spec["source"].(map[string]any); ok {
		return []any{one}
	}
	return nil
}

// pinned returns the spec without automation and with each source at its revision: the commit of a
// Git source, with or without a ref, the version of a chart, the digest of an OCI artifact.
func pinned(spec map[string]any, revisions []string) (map[string]any, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	out, err := decodeTree(text) // a copy
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	sources := sourcesOf(out)
	if len(sources) == 0 || len(sources) != len(revisions) {
		return nil, fmt.Errorf("its status has %d revisions for %d sources", len(revisions),
			len(sources))
	}
	for i, s := range sources {
		source, _ := s.(map[string]any)
		if source == nil || revisions[i] == "" {
			return nil, fmt.Errorf("the status has no revision of source %d", i+1)
		}
		source["targetRevision"] = revisions[i]
	}
	if policy := child(out, "syncPolicy"); policy != nil {
		if delete(policy, "automated"); len(policy) == 0 {
			delete(out, "syncPolicy")
		}
	}
	return out, nil
}

// marksIgnored returns the ignoreDifferences that leave out the marks of an instance. A resource
// whose own sync options make Argo CD replace it keeps the difference: its adoption would not only
// mark it.
func marksIgnored() []any {
	entry := func(field string, path string) any {
		return map[string]any{"group": "*", "kind": "*", field: []any{path}}
	}
	return []any{
		entry("jsonPointers", "/metadata/annotations/"+
			strings.ReplaceAll(annotationTracking, "/", "~1")),
		entry("jqPathExpressions", `.metadata.annotations | select((."`+annotationSyncOptions+
			`" // "") | test("(^|,)\\s*(Replace|Force)=true\\s*(,|$)") | not) | ."`+
			annotationInstallation+`"`),
	}
}

const annotationSyncOptions = "argocd.argoproj.io/sync-options"

// arrival returns the two specs of the Application on the new engine: the one that it compares, and
// the one that adopts the resources. Both are the old engine's, because a later declaration takes
// effect only when the move ends. The project and the name of the cluster are the new engine's; the
// namespace stays the one that the workload is in.
func arrival(row map[string]any, d mirror.Departure) (compare, adopt map[string]any, err error) {
	spec, err := decodeTree(d.Spec)
	if err != nil {
		return nil, nil, fmt.Errorf("the recorded spec: %w", err)
	}
	spec["project"] = child(row, "spec")["project"]
	destination := map[string]any{}
	maps.Copy(destination, child(child(row, "spec"), "destination"))
	delete(destination, "namespace")
	if namespace, ok := child(spec, "destination")["namespace"]; ok {
		destination["namespace"] = namespace
	}
	spec["destination"] = destination
	revisions := d.Revisions
	if d.Evacuated && len(revisions) == 0 {
		revisions = declaredRevisions(spec)
	}
	if adopt, err = pinned(spec, revisions); err != nil {
		return nil, nil, err
	}
	compare = map[string]any{}
	for k, v := range adopt {
		compare[k] = v
	}
	ignored, _ := adopt["ignoreDifferences"].([]any)
	compare["ignoreDifferences"] = append(slices.Clone(ignored), marksIgnored()...)
	return compare, adopt, nil
}

// declaredRevisions are the revisions of an Application of which nothing else is known.
func declaredRevisions(spec map[string]any) []string {
	var all []string
	for _, s := range sourcesOf(spec) {
		source, _ := s.(map[string]any)
		text, _ := source["targetRevision"].(string)
		all = append(all, firstOf(text, "HEAD"))
	}
	return all
}

// sameSpec reports whether two specs mean the same to Argo CD.
func sameSpec(a, b map[string]any) bool {
	return reflect.DeepEqual(withoutZeros(a), withoutZeros(b))
}

// marking returns the operation that marks exactly the recorded resources; nil if there are none:
// an operation without a list is a full sync. It applies only, and keeps the values of the
// Application's own ignoreDifferences. Resources that are otherwise replaced may be too large for
// an apply on the client's side.
func marking(spec map[string]any, d mirror.Departure) map[string]any {
	if len(d.Resources) == 0 {
		return nil
	}
	var options []string
	add := func(o string) {
		if !slices.Contains(options, o) {
			options = append(options, o)
		}
	}
	declared, _ := child(spec, "syncPolicy")["syncOptions"].([]any)
	for _, o := range declared {
		switch text, _ := o.(string); text {
		case "ServerSideApply=true", "Validate=false", "SkipDryRunOnMissingResource=true",
			"ClientSideApplyMigration=false", "RespectIgnoreDifferences=true":
			add(text)
		case "Replace=true":
			add("ServerSideApply=true")
		}
	}
	if own, _ := spec["ignoreDifferences"].([]any); len(own) > 0 {
		add("RespectIgnoreDifferences=true")
	}
	sync := map[string]any{"resources": d.Resources}
	if len(options) > 0 {
		sync["syncOptions"] = options
	}
	return operationOf(moveRequest(d), sync)
}

// difference returns why the new engine's comparison is not equal to the departure; "" if it is.
func (m *movingObject) difference(d mirror.Departure) string {
	name := m.Key.Engine
	if p := m.problem(); p != "" {
		return fmt.Sprintf("engine %s %s", name, p)
	}
	if !m.compares {
		return fmt.Sprintf("engine %s has not compared it yet", name)
	}
	have, want := map[mirror.MovedResource]bool{}, map[mirror.MovedResource]bool{}
	var changes []string
	for _, r := range d.Resources {
		want[r] = true
	}
	for _, r := range m.resources {
		switch have[r.MovedResource] = true; {
		case r.Hook:
		case !want[r.MovedResource]:
			changes = append(changes, "also has "+r.String())
		case r.Status == "OutOfSync" && r.Health.Status == "Missing":
			changes = append(changes, "would create "+r.String())
		case r.Status == "OutOfSync":
			changes = append(changes, "would change "+r.String())
		case r.Status != "Synced" && r.Status != "":
			changes = append(changes, "may not manage "+r.String())
		}
	}
	for _, r := range d.Resources {
		if !have[r] {
			changes = append(changes, "does not have "+r.String())
		}
	}
	switch {
	case len(changes) > 0:
		return fmt.Sprintf("engine %s %s", name, listed(changes))
	case m.Sync != mirror.SyncSynced:
		return fmt.Sprintf("on engine %s it is %s", name, m.Sync)
	}
	return ""
}

// Compare implements engine.Mover.
func (e *Engine) Compare(ctx context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease) error {
	return e.repeat(row.Key, func() error {
		m, err := e.readMoving(ctx, row)
		if err != nil {
			return err
		}
		return e.compare(ctx, row, d, lease, m)
	})
}

// repeat carries out a step until no other writer is faster. A step without an error has proven its
// end.
func (e *Engine) repeat(key fleet.ObjectKey, step func() error) error {
	for range attempts {
		err := step()
		if codeOf(err) != http.StatusConflict {
			return e.explain(key, err)
		}
	}
	return e.explain(key, waits("it changes too quickly on engine %s", e.name))
}

func (e *Engine) compare(ctx context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease, m *movingObject) error {
	tree, err := decodeTree(row.Manifest.Body)
	if err != nil {
		return err
	}
	spec, _, err := arrival(tree, d)
	if err != nil {
		return err
	}
	if m != nil {
		if err := m.mayCompare(d, lease); err != nil {
			return err
		}
	}
	if m == nil || !m.arrivesFrom(d) || !sameSpec(m.spec, spec) {
		if err := e.arrive(ctx, row, tree, spec, nil, d.UID, lease, m); err != nil {
			return err
		}
		return waits("engine %s has not compared it yet", e.name)
	}
	why := m.difference(d)
	if why == "" {
		return nil
	}
	if m.resultIn() { // Argo CD sees no change of resources that others have marked
		if err := e.arrive(ctx, row, tree, spec, nil, m.move, lease, m); err != nil {
			return err
		}
	}
	return waits("%s", why)
}

// served reports whether no move holds the object.
func (m *movingObject) served() bool { return m.move == "" && (!m.skipReconcile || m.Parked) }

// arrivesFrom reports whether the object is marked for the departure.
func (m *movingObject) arrivesFrom(d mirror.Departure) bool {
	uid, _, _ := strings.Cut(m.move, "/")
	return uid == d.UID
}

// mayCompare returns why an existing object may not be compared for this move. An Application that
// an earlier attempt has left changes nothing. It may be marked for an object of the old engine
// that another object has replaced.
func (m *movingObject) mayCompare(d mirror.Departure, lease mirror.Lease) error {
	if m.Arriving && !strings.HasSuffix(m.move, moveAdopts) && !m.automated() {
		return m.mayWrite(lease)
	}
	return m.mayArrive(d, lease)
}

// mayArrive returns why an existing object is not the one of this move. An evacuation takes over
// the Application that an earlier move has left on the new engine.
func (m *movingObject) mayArrive(d mirror.Departure, lease mirror.Lease) error {
	if !m.arrivesFrom(d) && !d.Evacuated {
		return fmt.Errorf("%w: Application %s on engine %s does not belong to this move",
			engine.ErrForeign, m.object, m.Key.Engine)
	}
	return m.mayWrite(lease)
}

// arrive applies the Application on the new engine, or creates it, and requests a comparison. The
// apply owns all that it writes, so that the apply of the row removes it. It has no hash: the
// object is not taken for an applied row. It subscribes to no notification, because two instances
// have it.
func (e *Engine) arrive(ctx context.Context, row mirror.Row, tree, spec, operation map[string]any,
	move string, lease mirror.Lease, m *movingObject) error {
	meta := child(tree, "metadata")
	annotations := map[string]any{annotationMove: move,
		annotationEpoch: strconv.FormatInt(lease.Epoch, 10)}
	for k, v := range child(meta, "annotations") {
		if !strings.HasPrefix(k, subscriptionPrefix) {
			annotations[k] = v
		}
	}
	body := map[string]any{"apiVersion": tree["apiVersion"], "kind": tree["kind"], "spec": spec}
	object := map[string]any{"name": meta["name"], "labels": meta["labels"],
		"annotations": annotations, "resourceVersion": "1"} // see desired.patch
	if m != nil {
		object["uid"], object["resourceVersion"] = m.UID, m.ResourceVersion
	}
	if operation != nil {
		body["operation"] = operation
		annotations[annotationRequestedAt] = e.options.Now().UTC().Format(time.RFC3339)
	} else if m != nil {
		annotations[annotationRefresh] = "normal"
	}
	body["metadata"] = object
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	defer e.cache.expect(row.Key, stamp{lease.Epoch, ""})()
	return e.mutate(ctx, row.Tenant, request{
		method: http.MethodPatch, path: e.places.path(applications, e.objectOf(row)),
		contentType: applyPatch, accept: metadataOnly, body: text,
		query: url.Values{"fieldManager": {fieldManager}, "force": {"true"},
			"fieldValidation": {"Ignore"}},
	}, nil)
}

// Freeze implements engine.Mover. Without automation, one more comparison ends every comparison
// that could still request a sync: Argo CD compares an Application in one thread at a time. The
// departure is stale if an operation has run since it was recorded; a commit alone changes nothing
// that the new engine has compared.
func (e *Engine) Freeze(ctx context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease) error {
	return e.repeat(row.Key, func() error {
		for range attempts {
			m, err := e.readMoving(ctx, row)
			if err != nil {
				return err
			}
			if err := m.mayFreeze(d, lease); err != nil {
				return err
			}
			patch, why := m.freezes(d)
			if patch == nil {
				return why
			}
			setAnnotation(patch, annotationEpoch, strconv.FormatInt(lease.Epoch, 10))
			if err := e.mergeMoving(ctx, row, patch, lease, m); err != nil {
				return err
			}
		}
		return waits("another writer changes it on engine %s after each write", e.name)
	})
}

// mayFreeze returns why the object is not the recorded one.
func (m *movingObject) mayFreeze(d mirror.Departure, lease mirror.Lease) error {
	switch {
	case m == nil:
		return engine.ErrMoveGone
	case m.UID != d.UID:
		return stale("engine %s has another object of its name", m.Key.Engine)
	}
	return m.mayWrite(lease)
}

// freezes returns the next patch, or why there is none; neither if the object is frozen. It is
// pure.
func (m *movingObject) freezes(d mirror.Departure) (map[string]any, error) {
	begun := m.move == d.UID
	patch := map[string]any{}
	if m.automated() {
		patch["spec"] = map[string]any{"syncPolicy": map[string]any{"automated": nil}}
	}
	switch {
	case m.Operating && !begun, m.lastRun != d.LastOperation && !m.Operating:
		return nil, stale("engine %s has synced it since", m.Key.Engine)
	case m.Parked:
		return nil, waits("on engine %s, it is parked, because its cluster does not respond",
			m.Key.Engine)
	case m.skipReconcile && !begun:
		return nil, waits("annotation %s makes engine %s ignore it; remove it",
			annotationSkipReconcile, m.Key.Engine)
	case !begun, m.automated() && !m.skipReconcile:
		setAnnotation(patch, annotationMove, d.UID)
		setAnnotation(patch, annotationRefresh, "normal")
		return patch, nil
	case m.Operating:
		return nil, waits("an operation runs on engine %s", m.Key.Engine)
	case m.refreshes && !m.skipReconcile:
		return nil, waits("engine %s compares it a last time", m.Key.Engine)
	case m.frozen():
		return nil, nil
	}
	for k, v := range orphaning(m.entry) {
		patch[k] = v
	}
	return patch, nil
}

// CheckDeparted implements engine.Mover. An Application of that name that is not ours counts too.
func (e *Engine) CheckDeparted(ctx context.Context, row mirror.Row) error {
	m, err := e.readMoving(ctx, row)
	switch {
	case errors.Is(err, engine.ErrForeign):
		return e.explain(row.Key, waits("%w; remove it", err))
	case err != nil:
		return e.explain(row.Key, err)
	case m == nil, m.frozen():
		return nil
	}
	return e.explain(row.Key, waits("engine %s has Application %s again, which was created after "+
		"the move deleted it, and would be a second owner; remove its finalizers and delete it there",
		e.name, m.object))
}

// frozen reports whether the engine ignores the Application, and a deletion takes nothing along.
func (m *movingObject) frozen() bool {
	return m.skipReconcile && !m.finalized() && !m.automated()
}

// mergeMoving sends a merge patch that wakes no worker.
func (e *Engine) mergeMoving(ctx context.Context, row mirror.Row, patch map[string]any,
	lease mirror.Lease, m *movingObject) error {
	defer e.cache.expect(row.Key, stamp{lease.Epoch, m.applied})()
	_, err := e.merge(ctx, row, patch, m.entry)
	return err
}

// Adopt implements engine.Mover.
func (e *Engine) Adopt(ctx context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease) error {
	return e.markOwn(ctx, row, d, lease, false)
}

// Return implements engine.Mover.
func (e *Engine) Return(ctx context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease) error {
	return e.markOwn(ctx, row, d, lease, true)
}

// markOwn makes the engine mark the resources of the departure as its own: all of them, or, if the
// Application returns, the equal ones.
func (e *Engine) markOwn(ctx context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease, returns bool) error {
	return e.repeat(row.Key, func() error {
		m, err := e.readMoving(ctx, row)
		if err != nil {
			return err
		}
		if m == nil {
			return e.compare(ctx, row, d, lease, nil)
		}
		if returns && !d.Evacuated && m.served() {
			return nil
		}
		if err := m.mayArrive(d, lease); err != nil {
			return err
		}
		return e.markMoving(ctx, row, d, lease, m, returns)
	})
}

func (e *Engine) markMoving(ctx context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease, m *movingObject, returns bool) error {
	tree, err := decodeTree(row.Manifest.Body)
	if err != nil {
		return err
	}
	compare, adopt, err := arrival(tree, d)
	if err != nil {
		return err
	}
	adopting := d.UID + moveAdopts
	request := func(spec, operation map[string]any) error {
		return e.arrive(ctx, row, tree, spec, operation, adopting, lease, m)
	}
	// without moveAdopts, nothing applies it while the old engine syncs it again
	giveUp := func(why string) error {
		if err := e.arrive(ctx, row, tree, compare, nil, d.UID, lease, m); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s", engine.ErrMoveDiffers, why)
	}
	switch patch := m.beforeAdoption(d); {
	case m.Operating && m.request != moveRequest(d):
		return waits("another operation runs on engine %s", e.name)
	case m.unnoticed(d, e.options.Now()):
		if err := request(adopt, marking(adopt, d)); err != nil {
			return err
		}
		return waits("engine %s has not noticed that it is to adopt its resources; requested again",
			e.name)
	case m.Operating:
		return waits("engine %s adopts its resources: %s", e.name, m.result)
	case len(patch) > 0:
		if err := e.mergeMoving(ctx, row, patch, lease, m); err != nil {
			return err
		}
		return waits("engine %s prepares the adoption", e.name)
	case m.move == adopting && sameSpec(m.spec, adopt) && returns:
		return nil // even after a failed operation: the next sync marks the rest
	case m.move == adopting && sameSpec(m.spec, adopt):
		return e.adopted(d, m, request, giveUp)
	case m.move != adopting || !sameSpec(m.spec, compare):
		// its last comparison may be old: it does not follow resources that others have marked
		if err := request(compare, nil); err != nil {
			return err
		}
		return waits("engine %s compares it once more", e.name)
	case m.refreshes:
		return waits("engine %s compares it once more", e.name)
	}
	why := m.difference(d)
	switch {
	case !m.compares || m.problem() != "":
		if m.resultIn() {
			if err := request(compare, nil); err != nil {
				return err
			}
		}
		return waits("%s", why)
	case returns:
		d.Resources = m.equal(d)
	case why != "":
		return giveUp(why)
	}
	if m.lastRun != "" { // see Sync: Argo CD merges an operation with the state of an older one
		if err := e.mergeMoving(ctx, row, map[string]any{"status": map[string]any{
			"operationState": nil}}, lease, m); err != nil {
			return err
		}
		return waits("engine %s prepares the adoption", e.name)
	}
	if err := request(adopt, marking(adopt, d)); err != nil {
		return err
	}
	return waits("engine %s adopts its resources", e.name)
}

// beforeAdoption returns what a person's adoption or an undone move needs first.
func (m *movingObject) beforeAdoption(d mirror.Departure) map[string]any {
	patch := map[string]any{}
	if text := d.Annotations[annotationBefore]; text != "" && m.before == "" {
		setAnnotation(patch, annotationBefore, text)
	}
	if m.skipReconcile && !m.Parked {
		setAnnotation(patch, annotationSkipReconcile, nil)
	}
	return patch
}

// adopted returns nil if the adoption has marked everything. Otherwise it requests what is next.
func (e *Engine) adopted(d mirror.Departure, m *movingObject,
	request func(spec, operation map[string]any) error, giveUp func(why string) error) error {
	if len(d.Resources) > 0 && (m.request != moveRequest(d) ||
		m.observation.OperationPhase != "Succeeded") {
		return giveUp(fmt.Sprintf("the adoption on engine %s has failed: %s", e.name,
			firstOf(m.result, "it has no result")))
	}
	why := m.difference(d)
	age := m.sinceResult()
	switch {
	case m.refreshes, age < 0:
		why = fmt.Sprintf("engine %s compares it after the adoption", e.name)
	case why == "":
		return nil
	case m.compares && m.problem() == "" && age >= adoptionSettles:
		return giveUp(why)
	}
	if m.resultIn() {
		if err := request(m.spec, nil); err != nil {
			return err
		}
	}
	return waits("%s", why)
}

// equal returns the resources of the departure that a sync would not change. Those of an evacuated
// engine are not known: all of the Application's count.
func (m *movingObject) equal(d mirror.Departure) []mirror.MovedResource {
	var all []mirror.MovedResource
	for _, r := range m.resources {
		if !r.Hook && r.Status == "Synced" &&
			(d.Evacuated || slices.Contains(d.Resources, r.MovedResource)) {
			all = append(all, r.MovedResource)
		}
	}
	slices.SortFunc(all, mirror.MovedResource.Compare)
	return all
}

// resultIn reports whether the last requested comparison has a result, so that another one makes
// sense.
func (m *movingObject) resultIn() bool {
	return !m.refreshes && (m.compares || m.problem() != "")
}

// adoptionSettles bounds the time until Argo CD's cache of the cluster has the marks that its own
// sync has just written. Until then, a comparison may still have the resources as they were before.
const adoptionSettles = 30 * time.Second

// sinceResult returns the time from the end of the last operation to the last comparison, both by
// the clock of Argo CD.
func (m *movingObject) sinceResult() time.Duration {
	_, end, _ := strings.Cut(m.lastRun, "/")
	ended, err := time.Parse(time.RFC3339, end)
	if err != nil { // no operation has run, because there is no resource to mark
		return adoptionSettles
	}
	compared, err := time.Parse(time.RFC3339, m.live.Status.ReconciledAt)
	if err != nil {
		return -1
	}
	return compared.Sub(ended)
}

// endMove removes what a move has set on the engine that the Application was about to leave, and
// returns the entry after that. The apply itself removes the fields of a move on the new engine.
func (e *Engine) endMove(ctx context.Context, w *desired, known *entry) (*entry, error) {
	fresh := *known
	if fresh.move = ""; known.applied == "" {
		return &fresh, nil
	}
	patch := map[string]any{}
	setAnnotation(patch, annotationMove, nil)
	if known.skipReconcile && !known.Parked {
		setAnnotation(patch, annotationSkipReconcile, nil)
		fresh.skipReconcile = false
	}
	m, err := e.merge(ctx, w.row, patch, known)
	if err != nil {
		return nil, err
	}
	fresh.ResourceVersion = m.ResourceVersion
	return &fresh, nil
}
