package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	moveAnnotation = "argosy.dev/move"
	skipAnnotation = "argocd.argoproj.io/skip-reconcile"
	refreshRequest = "argocd.argoproj.io/refresh"
	argoFinalizer  = ".argocd.argoproj.io" // ends the name of each one's domain
)

var (
	_ engine.Mover   = (*Fake)(nil)
	_ engine.Evacuee = (*Fake)(nil)
)

// comparedResource is a resource in the status of an Application.
type comparedResource struct {
	mirror.MovedResource
	Status          string `json:"status"`
	Hook            bool   `json:"hook,omitempty"`
	RequiresPruning bool   `json:"requiresPruning,omitempty"`
}

func (o *stored) resources() (managed []mirror.MovedResource, changed string) {
	var all []comparedResource
	_ = json.Unmarshal([]byte(o.json("status", "resources")), &all)
	for _, r := range all {
		if r.Hook {
			continue
		}
		managed = append(managed, r.MovedResource)
		if r.RequiresPruning || r.Status == "OutOfSync" {
			changed = r.String()
		}
	}
	slices.SortFunc(managed, mirror.MovedResource.Compare)
	return managed, changed
}

// equal returns the resources of the departure that a sync would not change.
func (o *stored) equal(d mirror.Departure) []mirror.MovedResource {
	var all []comparedResource
	_ = json.Unmarshal([]byte(o.json("status", "resources")), &all)
	if d.Evacuated {
		d.Resources, _ = o.resources()
	}
	return slices.DeleteFunc(slices.Clone(d.Resources), func(r mirror.MovedResource) bool {
		return !slices.ContainsFunc(all, func(c comparedResource) bool {
			return c.MovedResource == r && c.Status == "Synced"
		})
	})
}

func (o *stored) annotations() map[string]any {
	meta, _ := o.body["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	return all
}

func (o *stored) compared() bool {
	return o.json("spec", "source") == o.json("status", "sync", "comparedTo", "source") &&
		o.json("spec", "ignoreDifferences") == o.json("status", "sync", "comparedTo",
			"ignoreDifferences")
}

// served reports whether no move holds the object.
func (o *stored) served() bool {
	return o.annotation(moveAnnotation) == "" &&
		(o.annotation(skipAnnotation) == "" || o.annotation("argosy.dev/parked") != "")
}

func (o *stored) automated() bool { return o.json("spec", "syncPolicy", "automated") != "" }

func (o *stored) lastOperation() string {
	if o.json("status", "operationState") == "" {
		return ""
	}
	return o.text("status", "operationState", "startedAt") + "/" +
		o.text("status", "operationState", "finishedAt")
}

func waits(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{engine.ErrMove}, args...)...)
}

// moving returns the object of a step; nil if it does not exist. It locks the server until unlock.
func (f *Fake) moving(call string, row mirror.Row, lease mirror.Lease) (o *stored, unlock func(),
	err error) {
	if err := errors.Join(f.fail(call, row.Key), f.ready()); err != nil {
		return nil, func() {}, err
	}
	f.server.mu.Lock()
	o = f.server.objects[row.Key]
	if o == nil {
		return nil, f.server.mu.Unlock, nil
	}
	switch live := o.live(row.Key, f.name); {
	case !live.Ours || live.Tenant != row.Tenant:
		err = engine.ErrForeign
	case live.Epoch > lease.Epoch:
		err = engine.ErrFenced
	case live.Deleting:
		err = waits("it is being deleted")
	}
	return o, f.server.mu.Unlock, err
}

// changeMoving writes one change of a step.
func (f *Fake) changeMoving(row mirror.Row, o *stored, lease mirror.Lease, change func()) error {
	if f.Stopped(row.Tenant) {
		return engine.ErrStopped
	}
	change()
	o.annotations()["argosy.dev/epoch"] = strconv.FormatInt(lease.Epoch, 10)
	f.recordWrite(row.Key, o)
	f.server.write(o)
	return nil
}

// CheckDeparture implements engine.Mover.
func (f *Fake) CheckDeparture(_ context.Context, row mirror.Row) (mirror.Departure, error) {
	o, unlock, err := f.moving("checkdeparture", row, mirror.Lease{Epoch: 1 << 62})
	defer unlock()
	if err != nil {
		return mirror.Departure{}, err
	}
	if o == nil {
		return mirror.Departure{}, nil
	}
	managed, changed := o.resources()
	live := o.live(row.Key, f.name)
	switch {
	case o.annotation(moveAnnotation) != "" || o.annotation(skipAnnotation) != "":
		return mirror.Departure{}, waits("the engine ignores it")
	case live.Operating:
		return mirror.Departure{}, waits("an operation runs")
	case live.Drifted:
		return mirror.Departure{}, waits("its object differs from its declaration")
	case !o.compared():
		return mirror.Departure{}, waits("the engine has not compared it yet")
	case changed != "" || live.Sync != mirror.SyncSynced:
		return mirror.Departure{}, waits("it is not Synced: %s", changed)
	}
	return mirror.Departure{UID: o.uid, Revisions: []string{o.text("status", "sync", "revision")},
		Resources: managed, LastOperation: o.lastOperation(),
		Spec: json.RawMessage(o.json("spec"))}, nil
}

// arriving returns the specs of an Application on its new engine: those of the old one, on the new
// one's cluster.
func arriving(row mirror.Row, d mirror.Departure) (compare, adopt map[string]any, err error) {
	var declared struct {
		Spec struct{ Destination map[string]any }
	}
	if err := json.Unmarshal(row.Manifest.Body, &declared); err != nil {
		return nil, nil, fmt.Errorf("manifest: %w", err)
	}
	for _, spec := range []*map[string]any{&compare, &adopt} {
		if err := json.Unmarshal(d.Spec, spec); err != nil {
			return nil, nil, fmt.Errorf("spec: %w", err)
		}
		delete(*spec, "syncPolicy")
		source, _ := (*spec)["source"].(map[string]any)
		if len(d.Revisions) > 0 {
			source["targetRevision"] = d.Revisions[0]
		}
		if to, ok := (*spec)["destination"].(map[string]any); ok {
			for _, field := range []string{"server", "name"} {
				if delete(to, field); declared.Spec.Destination[field] != nil {
					to[field] = declared.Spec.Destination[field]
				}
			}
		}
	}
	compare["ignoreDifferences"] = []any{map[string]any{"kind": "*"}}
	return compare, adopt, nil
}

// Compare implements engine.Mover.
func (f *Fake) Compare(_ context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease) error {
	o, unlock, err := f.moving("compare", row, lease)
	defer unlock()
	if err != nil {
		return err
	}
	return f.compare(row, d, lease, o)
}

func (f *Fake) compare(row mirror.Row, d mirror.Departure, lease mirror.Lease, o *stored) error {
	spec, _, err := arriving(row, d)
	if err != nil {
		return err
	}
	switch {
	case o != nil && !o.mayCompare(d):
		return engine.ErrForeign
	case o == nil:
		o = &stored{uid: newUID()}
		if _, err := f.put(row, o, "", lease); err != nil {
			return err
		}
	case o.arrivesFrom(d) && reflect.DeepEqual(o.body["spec"], spec):
		return o.difference(d)
	}
	if err := f.changeMoving(row, o, lease, func() {
		o.applied, o.body["spec"] = "", spec
		o.annotations()[moveAnnotation] = d.UID
	}); err != nil {
		return err
	}
	return waits("engine %s has not compared it yet", f.name)
}

// arrivesFrom reports whether the object is marked for the departure.
func (o *stored) arrivesFrom(d mirror.Departure) bool {
	return strings.TrimSuffix(o.annotation(moveAnnotation), "/adopt") == d.UID
}

// mayCompare reports whether the object is of this move, or of an earlier attempt that changes
// nothing.
func (o *stored) mayCompare(d mirror.Departure) bool {
	is := o.annotation(moveAnnotation)
	arrives := is != "" && is != o.uid && !strings.HasSuffix(is, "/adopt")
	return o.arrivesFrom(d) || arrives && !o.automated()
}

// difference returns why the engine's comparison is not equal to the departure.
func (o *stored) difference(d mirror.Departure) error {
	managed, changed := o.resources()
	switch {
	case !o.compared():
		return waits("the engine has not compared it yet")
	case changed != "":
		return waits("the engine would change %s", changed)
	case !slices.Equal(managed, d.Resources):
		return waits("the engine has other resources")
	case o.text("status", "sync", "status") != "Synced":
		return waits("it is not Synced")
	}
	return nil
}

// Freeze implements engine.Mover.
func (f *Fake) Freeze(_ context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease) error {
	o, unlock, err := f.moving("freeze", row, lease)
	defer unlock()
	if err != nil {
		return err
	}
	switch {
	case o == nil:
		return engine.ErrMoveGone
	case o.uid != d.UID:
		return engine.ErrMoveStale
	}
	operating := o.live(row.Key, f.name).Operating
	begun := o.annotation(moveAnnotation) == d.UID
	frozen := o.annotation(skipAnnotation) == "true"
	withdraw := func() {
		if policy, ok := o.body["spec"].(map[string]any)["syncPolicy"].(map[string]any); ok {
			delete(policy, "automated")
		}
	}
	switch {
	case operating && !begun, !operating && o.lastOperation() != d.LastOperation:
		return engine.ErrMoveStale
	case !begun, o.automated() && !frozen:
		if err := f.changeMoving(row, o, lease, func() {
			withdraw()
			o.annotations()[moveAnnotation], o.annotations()[refreshRequest] = d.UID, "normal"
		}); err != nil {
			return err
		}
		return waits("the engine compares it a last time")
	case operating:
		return waits("an operation runs")
	case frozen && !o.automated():
		return nil
	case o.annotation(refreshRequest) != "":
		return waits("the engine compares it a last time")
	}
	return f.changeMoving(row, o, lease, func() {
		withdraw()
		o.annotations()[skipAnnotation] = "true"
		o.orphan()
	})
}

// CheckDeparted implements engine.Mover.
func (f *Fake) CheckDeparted(_ context.Context, row mirror.Row) error {
	o, unlock, err := f.moving("checkdeparted", row, mirror.Lease{Epoch: 1 << 62})
	defer unlock()
	switch {
	case err != nil:
		return err
	case o == nil, o.annotation(skipAnnotation) == "true" && !o.automated() &&
		o.json("metadata", "finalizers") == "":
		return nil
	}
	return waits("engine %s has Application %s again", f.name, row.Key.Name)
}

// Adopt implements engine.Mover.
func (f *Fake) Adopt(_ context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease) error {
	return f.mark("adopt", row, d, lease)
}

// Return implements engine.Mover.
func (f *Fake) Return(_ context.Context, row mirror.Row, d mirror.Departure,
	lease mirror.Lease) error {
	return f.mark("return", row, d, lease)
}

func (f *Fake) mark(call string, row mirror.Row, d mirror.Departure, lease mirror.Lease) error {
	o, unlock, err := f.moving(call, row, lease)
	defer unlock()
	if err != nil {
		return err
	}
	if o == nil {
		return f.compare(row, d, lease, nil)
	}
	compare, adopt, err := arriving(row, d)
	if err != nil {
		return err
	}
	request, adopting := "move/"+d.UID, d.UID+"/adopt"
	is := o.annotation(moveAnnotation)
	done := o.request("status", "operationState", "operation") == request && o.text("status",
		"operationState", "phase") == "Succeeded"
	change := func(spec map[string]any, operation any) error {
		if err := f.changeMoving(row, o, lease, func() {
			o.applied, o.body["spec"] = "", spec
			o.annotations()[moveAnnotation] = adopting
			delete(o.annotations(), skipAnnotation)
			if o.annotations()[refreshRequest] = "normal"; operation != nil {
				o.body["operation"] = operation
				delete(o.annotations(), refreshRequest)
				delete(o.body["status"].(map[string]any), "operationState")
			}
		}); err != nil {
			return err
		}
		return waits("the engine prepares the adoption")
	}
	giveUp := func(why error) error {
		if err := f.changeMoving(row, o, lease, func() {
			o.body["spec"], o.annotations()[moveAnnotation] = compare, d.UID
			o.annotations()[refreshRequest] = "normal"
		}); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s", engine.ErrMoveDiffers, why.Error())
	}
	switch {
	case call == "return" && !d.Evacuated && o.served():
		return nil
	case !o.arrivesFrom(d) && !d.Evacuated:
		return engine.ErrForeign
	case o.live(row.Key, f.name).Operating:
		return waits("an operation runs")
	case is == adopting && reflect.DeepEqual(o.body["spec"], adopt) && done && call == "return":
		return nil
	case is == adopting && reflect.DeepEqual(o.body["spec"], adopt) && done:
		err := o.difference(d)
		if err != nil && o.compared() {
			return giveUp(err)
		}
		return err
	case is != adopting || !reflect.DeepEqual(o.body["spec"], compare):
		return change(compare, nil)
	case o.annotation(refreshRequest) != "":
		return waits("the engine compares it once more")
	}
	err = o.difference(d)
	switch {
	case !o.compared():
		return err
	case call == "return":
		d.Resources = o.equal(d)
	case err != nil:
		return giveUp(err)
	}
	return change(adopt, map[string]any{"initiatedBy": map[string]any{"username": "argosy"},
		"info": []any{map[string]any{"name": "argosy.dev/sync", "value": request}},
		"sync": map[string]any{"resources": d.Resources}})
}

// orphan removes the finalizers of Argo CD.
func (o *stored) orphan() {
	meta := o.body["metadata"].(map[string]any)
	all, _ := meta["finalizers"].([]any)
	all = slices.DeleteFunc(all, func(f any) bool {
		return strings.Contains(f.(string), argoFinalizer)
	})
	if meta["finalizers"] = all; len(all) == 0 {
		delete(meta, "finalizers")
	}
}

// FreezeAway implements engine.Evacuee.
func (f *Fake) FreezeAway(_ context.Context, row mirror.Row, lease mirror.Lease) error {
	o, unlock, err := f.moving("freezeaway", row, lease)
	defer unlock()
	if o != nil && o.deleting && !errors.Is(err, engine.ErrForeign) {
		if f.Stopped(row.Tenant) {
			return engine.ErrStopped
		}
		delete(f.server.objects, row.Key) // without the finalizer that deletes its workload
		f.server.write(o)
		return nil
	}
	if err != nil || o == nil {
		return err
	}
	if o.annotation(moveAnnotation) == o.uid && o.annotation(skipAnnotation) == "true" &&
		!o.automated() && !strings.Contains(o.json("metadata", "finalizers"), argoFinalizer) &&
		o.body["operation"] == nil {
		return nil
	}
	return f.changeMoving(row, o, lease, func() {
		if policy, ok := o.body["spec"].(map[string]any)["syncPolicy"].(map[string]any); ok {
			delete(policy, "automated")
		}
		o.annotations()[moveAnnotation], o.annotations()[skipAnnotation] = o.uid, "true"
		o.orphan()
		delete(o.body, "operation")
	})
}

// Reconcile makes the engine compare every Application that it does not ignore, and carry out its
// operation: each is Synced and Healthy at its target revision, with these resources.
func (s *Server) Reconcile(resources ...mirror.MovedResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := slices.Equal(s.resources, resources)
	s.resources = slices.Clone(resources)
	for key, o := range s.objects {
		if key.Kind != fleet.ObjectApplication || o.annotation("argosy.dev/parked") != "" ||
			o.annotation(skipAnnotation) == "true" || same && o.reconciled == o.version {
			continue
		}
		status := o.body["status"].(map[string]any)
		if op := o.body["operation"]; op != nil {
			at := strconv.FormatInt(s.version, 10)
			status["operationState"] = map[string]any{"phase": "Succeeded", "startedAt": at,
				"finishedAt": at, "operation": op}
			delete(o.body, "operation")
		}
		merge(status, reconciled(o.json("spec", "source"), o.json("spec", "destination"),
			o.json("spec", "ignoreDifferences"), o.text("spec", "source", "targetRevision"),
			resources))
		delete(o.annotations(), refreshRequest)
		s.touch(o)
		o.reconciled = o.version
	}
}

// reconciled returns the status of an Application that is Synced and Healthy.
func reconciled(source, destination, ignored, revision string,
	resources []mirror.MovedResource) map[string]any {
	to := map[string]any{"source": json.RawMessage(source), "ignoreDifferences": nil}
	if destination != "" {
		to["destination"] = json.RawMessage(destination)
	}
	if ignored != "" {
		to["ignoreDifferences"] = json.RawMessage(ignored)
	}
	all := []comparedResource{{MovedResource: mirror.MovedResource{Kind: "Job", Name: "hook"},
		Hook: true, RequiresPruning: true}}
	for _, r := range resources {
		all = append(all, comparedResource{MovedResource: r, Status: "Synced"})
	}
	text, err := json.Marshal(map[string]any{"health": map[string]any{"status": "Healthy"},
		"sync":      map[string]any{"status": "Synced", "revision": revision, "comparedTo": to},
		"resources": all})
	var status map[string]any
	if err != nil || json.Unmarshal(text, &status) != nil {
		panic(text) // the sources are JSON
	}
	return status
}

func init() {
	cases["freezes an Application that leaves, and serves it again"] = freezes
	cases["compares and adopts an Application that arrives"] = arrives
	cases["freezes an Application that another engine has"] = freezesAway
	cases["ends a deletion of an Application that another engine has"] = endsDeletionAway
}

// movedResources are sorted.
var movedResources = []mirror.MovedResource{{Kind: "Service", Namespace: "web", Name: "web"},
	{Group: "apps", Kind: "Deployment", Namespace: "web", Name: "web"}}

// reconcile acts as Argo CD does with the Application, and sets more in its status.
func (r *harness) reconcile(key fleet.ObjectKey, more map[string]any) {
	r.Helper()
	field := func(path string) string { return r.External.Field(key, path) }
	status := reconciled(field("spec.source"), field("spec.destination"),
		field("spec.ignoreDifferences"), "abc", movedResources)
	patch := map[string]any{"status": status, "metadata": map[string]any{
		"annotations": map[string]any{refreshRequest: nil}}}
	if op := field("operation"); op != "" {
		patch["operation"] = nil
		status["operationState"] = map[string]any{"phase": "Succeeded",
			"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z",
			"operation": json.RawMessage(op)}
	}
	status["reconciledAt"] = "2026-01-01T00:00:02Z"
	merge(status, more)
	r.mergeJSON(key, patch)
}

func (r *harness) mergeJSON(key fleet.ObjectKey, patch map[string]any) {
	r.Helper()
	text, err := json.Marshal(patch)
	if err != nil {
		r.Fatal(err)
	}
	r.External.Merge(key, string(text))
}

func (r *harness) mover() engine.Mover {
	m, ok := r.Engine.(engine.Mover)
	if !ok {
		r.Skip("the engine moves no Applications")
	}
	return m
}

// moveWaits expects a step to wait, with a number of writes.
func (r *harness) moveWaits(what string, writes int, step func() error) {
	r.Helper()
	if n := r.writes(func() {
		if err := step(); !errors.Is(err, engine.ErrMove) {
			r.Errorf("%s: %v", what, err)
		}
	}); n != writes {
		r.Errorf("%s: %d writes", what, n)
	}
}

func freezes(t *testing.T, b *Fixture) {
	r := start(t, b)
	m, row := r.mover(), application(t, b, nil)
	check := func() (d mirror.Departure, err error) { return m.CheckDeparture(r.ctx, row) }
	refused := func(what string) {
		t.Helper()
		r.moveWaits(what, 0, func() error { _, err := check(); return err })
	}
	if d, err := check(); err != nil || d.UID != "" {
		t.Errorf("a missing Application: %+v, %v", d, err)
	}
	departed := func() error { return m.CheckDeparted(r.ctx, row) }
	if err := departed(); err != nil {
		t.Errorf("a missing Application has not departed: %v", err)
	}
	if err := m.Freeze(r.ctx, row, mirror.Departure{UID: "u1"}, r.lease); !errors.Is(err,
		engine.ErrMoveGone) {
		t.Errorf("freeze of a missing Application: %v", err)
	}
	r.mustApply(row)
	refused("before its first comparison")
	r.moveWaits("departed while it is served", 0, departed)
	r.reconcile(row.Key, map[string]any{"resources": []any{map[string]any{"kind": "Service",
		"name": "old", "requiresPruning": true}}})
	refused("a resource to prune")
	r.reconcile(row.Key, map[string]any{"sync": map[string]any{"status": "OutOfSync"}})
	refused("OutOfSync")
	r.reconcile(row.Key, nil)
	r.External.Merge(row.Key, `{"operation":{"sync":{}}}`)
	refused("an operation")
	r.External.Merge(row.Key, `{"operation":null,"metadata":{"finalizers":[`+
		`"post-delete-finalizer.argocd.argoproj.io"]}}`)
	d, err := check()
	if err != nil || d.UID != r.External.Field(row.Key, "metadata.uid") ||
		!slices.Equal(d.Revisions, []string{"abc"}) ||
		!slices.Equal(d.Resources, movedResources) || len(d.Spec) == 0 {
		t.Fatalf("%+v, %v", d, err)
	}

	freeze := func() error { return m.Freeze(r.ctx, row, d, r.lease) }
	another := d
	another.UID = "another"
	if err := m.Freeze(r.ctx, row, another, r.lease); !errors.Is(err, engine.ErrMoveStale) {
		t.Errorf("another object: %v", err)
	}
	another = d
	another.LastOperation = "an earlier one"
	if err := m.Freeze(r.ctx, row, another, r.lease); !errors.Is(err, engine.ErrMoveStale) {
		t.Errorf("synced since: %v", err)
	}
	older := r.lease
	older.Epoch--
	if err := m.Freeze(r.ctx, row, d, older); !errors.Is(err, engine.ErrFenced) {
		t.Errorf("under an earlier lease: %v", err)
	}
	b.Stop(true)
	if err := freeze(); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("during a stop: %v", err)
	}
	b.Stop(false)
	frozen := func() bool {
		return r.External.Field(row.Key, "metadata.annotations|"+skipAnnotation) != ""
	}
	automated := func() bool { return r.External.Field(row.Key, "spec.syncPolicy.automated") != "" }
	r.moveWaits("freeze begins", 1, freeze)
	if automated() || frozen() {
		t.Error("it is automated, or ignored before its last comparison")
	}
	r.moveWaits("until the last comparison", 0, freeze)
	r.moveWaits("departed while the engine reads it", 0, departed)
	r.reconcile(row.Key, nil)
	for _, writes := range []int{1, 0} {
		if n := r.writes(func() {
			if err := freeze(); err != nil {
				t.Error(err)
			}
		}); n != writes {
			t.Errorf("%d writes, want %d", n, writes)
		}
	}
	if !frozen() || automated() || strings.Contains(r.External.Field(row.Key,
		"metadata.finalizers"), "argocd") {
		t.Error("it is not frozen")
	}
	if err := departed(); err != nil {
		t.Errorf("a frozen Application has not departed: %v", err)
	}
	another.UID = "another"
	if err := m.Compare(r.ctx, row, another, r.lease); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("compare of an Application that leaves: %v", err)
	}
	r.until("it leaves, and has not drifted", func() bool {
		l, ok := b.Engine.Live(row.Key)
		return ok && !l.Drifted && l.Leaving && !l.Arriving
	})
	// it returns with a difference, of which nothing is synced
	returned := false
	for range 10 {
		err := m.Return(r.ctx, row, d, r.lease)
		if returned = err == nil; returned {
			break
		}
		if !errors.Is(err, engine.ErrMove) {
			t.Fatal(err)
		}
		r.reconcile(row.Key, map[string]any{"resources": []any{
			map[string]any{"kind": "Service", "namespace": "web", "name": "web",
				"status": "OutOfSync"},
			map[string]any{"group": "apps", "kind": "Deployment", "namespace": "web", "name": "web",
				"status": "Synced"}}})
	}
	if got := r.External.Field(
		row.Key, "status.operationState.operation.sync.resources"); !returned ||
		!strings.Contains(got, `"Deployment"`) || strings.Contains(got, `"Service"`) {
		t.Errorf("returned %t: %s", returned, got)
	}
	if automated() {
		t.Error("it is automated before it is applied")
	}
	if out := r.apply(row, fleet.Secret{}); !out.Changed || out.State != mirror.ApplyApplied {
		t.Errorf("served again: %+v", out)
	}
	if frozen() || !automated() || r.External.Field(row.Key, "metadata.annotations|"+
		moveAnnotation) != "" {
		t.Error("the move has left traces")
	}
	r.waitApplied(row)
	if n := r.writes(func() {
		r.apply(row, fleet.Secret{})
		// a replica has died before it recorded the return
		if err := m.Return(r.ctx, row, d, r.lease); err != nil {
			t.Errorf("it returns once more: %v", err)
		}
	}); n != 0 {
		t.Errorf("%d writes of an applied row", n)
	}
	r.External.Merge(row.Key, `{"metadata":{"annotations":{"`+skipAnnotation+`":"true"}}}`)
	if err := m.Return(r.ctx, row, d, r.lease); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("it returns to an engine that ignores it: %v", err)
	}
}

func arrives(t *testing.T, b *Fixture) {
	r := start(t, b)
	m, row := r.mover(), application(t, b, nil)
	var manifest struct{ Spec map[string]any }
	if err := json.Unmarshal(row.Manifest.Body, &manifest); err != nil {
		t.Fatal(err)
	}
	manifest.Spec["destination"] = map[string]any{"server": "of the old engine",
		"namespace": "earlier"}
	spec, err := json.Marshal(manifest.Spec)
	if err != nil {
		t.Fatal(err)
	}
	d := mirror.Departure{UID: "elsewhere", Revisions: []string{"abc"}, Resources: movedResources,
		Spec: spec}
	compare := func() error { return m.Compare(r.ctx, row, d, r.lease) }
	b.Stop(true)
	if err := compare(); !errors.Is(err, engine.ErrStopped) || r.External.Exists(row.Key) {
		t.Errorf("during a stop: %v", err)
	}
	b.Stop(false)
	if err := compare(); !errors.Is(err, engine.ErrMove) {
		t.Fatalf("before it is compared: %v", err)
	}
	if r.External.Field(row.Key, "spec.syncPolicy.automated") != "" ||
		r.External.Field(row.Key, "metadata.finalizers") != "" ||
		r.External.Field(row.Key, "spec.source.targetRevision") != "abc" {
		t.Error("it is automated, has finalizers, or has another revision")
	}
	if r.External.Field(row.Key, "spec.destination.namespace") != "earlier" ||
		r.External.Field(row.Key, "spec.destination.server") == "of the old engine" {
		t.Error("it is not in its workload's namespace on the new engine's cluster")
	}
	r.moveWaits("until it is compared", 0, compare)
	r.reconcile(row.Key, map[string]any{"resources": []any{map[string]any{"kind": "Service",
		"namespace": "web", "name": "web", "status": "OutOfSync"}}})
	if err := compare(); !errors.Is(err, engine.ErrMove) || !strings.Contains(err.Error(),
		"would change Service web/web") {
		t.Errorf("a difference: %v", err)
	}
	r.reconcile(row.Key, nil)
	if n := r.writes(func() {
		if err := compare(); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%d writes when it is equal", n)
	}
	r.until("it is known, and has not drifted", func() bool {
		l, ok := b.Engine.Live(row.Key)
		return ok && l.Ours && !l.Drifted
	})
	if n := r.writes(func() {
		if _, err := b.Engine.Apply(r.ctx, row, fleet.Secret{}, r.lease); !errors.Is(err,
			engine.ErrMove) {
			t.Errorf("it is served before it is adopted: %v", err)
		}
	}); n != 0 {
		t.Errorf("%d writes before it is adopted", n)
	}
	r.until("it is known to arrive", func() bool {
		l, ok := b.Engine.Live(row.Key)
		return ok && l.Arriving && !l.Leaving
	})
	another := d
	another.UID = "another"
	foreign := func(when string, step func(context.Context, mirror.Row, mirror.Departure,
		mirror.Lease) error, d mirror.Departure) {
		t.Helper()
		if n := r.writes(func() {
			if err := step(r.ctx, row, d, r.lease); !errors.Is(err, engine.ErrForeign) {
				t.Errorf("%s: %v", when, err)
			}
		}); n != 0 {
			t.Errorf("%s: %d writes", when, n)
		}
	}
	foreign("adopt of another object of the old engine", m.Adopt, another)
	r.External.Merge(row.Key, `{"spec":{"syncPolicy":{"automated":{}}}}`)
	foreign("compare for another object, while it is automated", m.Compare, another)
	r.External.Merge(row.Key, `{"spec":{"syncPolicy":null}}`)
	// another object has replaced the one that the engine compares it for, and once more
	for _, of := range []mirror.Departure{another, d} {
		step := func() error { return m.Compare(r.ctx, row, of, r.lease) }
		r.moveWaits("it is taken over", 1, step)
		if got := r.External.Field(row.Key, "metadata.annotations|"+moveAnnotation); got != of.UID {
			t.Errorf("it is taken over for %s: %s", of.UID, got)
		}
		r.reconcile(row.Key, nil)
		if err := step(); err != nil {
			t.Errorf("it is taken over and compared: %v", err)
		}
	}

	// a difference after Freeze, which Compare has not seen
	changed := map[string]any{"resources": []any{
		map[string]any{"kind": "Service", "namespace": "web", "name": "web", "status": "OutOfSync"},
		map[string]any{"group": "apps", "kind": "Deployment", "namespace": "web", "name": "web",
			"status": "Synced"}}}
	differs := func() error {
		for range 10 {
			if err := m.Adopt(r.ctx, row, d, r.lease); !errors.Is(err, engine.ErrMove) {
				return err
			}
			r.reconcile(row.Key, changed)
		}
		return errors.New("it waits")
	}
	if err := differs(); !errors.Is(err, engine.ErrMoveDiffers) || errors.Is(err, engine.ErrMove) ||
		!strings.Contains(err.Error(), "would change Service web/web") {
		t.Errorf("a difference: %v", err)
	}
	if r.External.Field(row.Key, "status.operationState") != "" {
		t.Error("it is adopted in spite of a difference")
	}
	if n := r.writes(func() {
		if _, err := b.Engine.Apply(r.ctx, row, fleet.Secret{}, r.lease); !errors.Is(err,
			engine.ErrMove) {
			t.Errorf("it is served after it was given up: %v", err)
		}
	}); n != 0 {
		t.Errorf("%d writes after it was given up", n)
	}

	adopted := false
	for range 10 {
		err := m.Adopt(r.ctx, row, d, r.lease)
		if adopted = err == nil; adopted {
			break
		}
		if !errors.Is(err, engine.ErrMove) {
			t.Fatal(err)
		}
		if op := r.External.Field(row.Key, "operation.sync.resources"); op != "" &&
			(!strings.Contains(op, `"Deployment"`) || strings.Contains(op, "hook")) {
			t.Errorf("it adopts %s", op)
		}
		r.reconcile(row.Key, nil)
	}
	if got := r.External.Field(
		row.Key, "status.operationState.operation.sync.resources"); !adopted ||
		!strings.Contains(got, `"Deployment"`) {
		t.Errorf("adopted %t: %s", adopted, got)
	}
	if n := r.writes(func() {
		if err := m.Adopt(r.ctx, row, d, r.lease); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%d writes when it is adopted", n)
	}
	foreign("compare for another object, after its adoption", m.Compare, another)
	if n := r.writes(func() { r.apply(row, fleet.Secret{}) }); n != 1 {
		t.Errorf("the move ends with %d writes", n)
	}
	if r.External.Field(row.Key, "metadata.annotations|"+moveAnnotation) != "" ||
		r.External.Field(row.Key, "spec.ignoreDifferences") != "" ||
		r.External.Field(row.Key, "spec.syncPolicy.automated") == "" {
		t.Error("the move has left traces")
	}
	r.waitApplied(row)
	if err := compare(); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("compare of an Application that is served: %v", err)
	}
}

func freezesAway(t *testing.T, b *Fixture) {
	r := start(t, b)
	target, ok := b.Engine.(engine.Evacuee)
	if !ok {
		t.Skip("the engine cannot be evacuated")
	}
	declared := application(t, b, nil)
	row := mirror.Row{Key: declared.Key, Tenant: declared.Tenant}
	freeze := func() error { return target.FreezeAway(r.ctx, row, r.lease) }
	if n := r.writes(func() {
		if err := freeze(); err != nil {
			t.Errorf("a missing Application: %v", err)
		}
	}); n != 0 {
		t.Errorf("%d writes without an Application", n)
	}
	r.mustApply(declared)
	r.External.Merge(row.Key, `{"operation":{"sync":{}},"metadata":{"finalizers":[`+
		`"resources-finalizer.argocd.argoproj.io","example.com/of-another"]}}`)
	older := r.lease
	older.Epoch--
	if err := target.FreezeAway(r.ctx, row, older); !errors.Is(err, engine.ErrFenced) {
		t.Errorf("under an earlier lease: %v", err)
	}
	foreign := row
	foreign.Tenant = "another"
	if err := target.FreezeAway(r.ctx, foreign, r.lease); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("another tenant's: %v", err)
	}
	b.Stop(true)
	if err := freeze(); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("during a stop: %v", err)
	}
	b.Stop(false)
	for _, writes := range []int{1, 0} {
		if n := r.writes(func() {
			if err := freeze(); err != nil {
				t.Error(err)
			}
		}); n != writes {
			t.Errorf("%d writes, want %d", n, writes)
		}
	}
	for field, want := range map[string]string{"spec.syncPolicy.automated": "", "operation": "",
		"metadata.annotations|" + skipAnnotation: "true"} {
		if got := r.External.Field(row.Key, field); got != want {
			t.Errorf("%s is %q", field, got)
		}
	}
	if got := r.External.Field(row.Key, "metadata.finalizers"); strings.Contains(got, "argocd") ||
		!strings.Contains(got, "example.com/of-another") {
		t.Errorf("finalizers %s", got)
	}
	r.until("it leaves", func() bool {
		l, ok := b.Engine.Live(row.Key)
		return ok && l.Leaving && !l.Drifted
	})
}

// The engine was deleting the Application with its workload when it died. Another engine has the
// workload now: the deletion ends without it, also if a later lease has requested it.
func endsDeletionAway(t *testing.T, b *Fixture) {
	r := start(t, b)
	target, ok := b.Engine.(engine.Evacuee)
	if !ok {
		t.Skip("the engine cannot be evacuated")
	}
	declared := application(t, b, func(a *fleet.Application) {
		a.DeletionPolicy = fleet.DeletionDelete
	})
	r.mustApply(cluster(t, b))
	r.mustApply(declared)
	if done, err := r.Engine.Delete(r.ctx, declared, r.lease); done || err != nil {
		t.Fatalf("the deletion begins: %v, %v", done, err)
	}
	row := mirror.Row{Key: declared.Key, Tenant: declared.Tenant}
	foreign, older := row, r.lease
	foreign.Tenant = "another"
	if err := target.FreezeAway(r.ctx, foreign, r.lease); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("another tenant's: %v", err)
	}
	b.Stop(true)
	if err := target.FreezeAway(r.ctx, row, r.lease); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("during a stop: %v", err)
	}
	b.Stop(false)
	older.Epoch--
	for _, writes := range []int{1, 0} {
		if n := r.writes(func() {
			if err := target.FreezeAway(r.ctx, row, older); err != nil {
				t.Error(err)
			}
		}); n != writes {
			t.Errorf("%d writes, want %d", n, writes)
		}
	}
	if r.External.Exists(row.Key) {
		t.Errorf("it waits for the deletion of its workload: finalizers %s",
			r.External.Field(row.Key, "metadata.finalizers"))
	}
}
