package argocd

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// movingFrom decodes an Application that is fit to move, after a change of it.
func movingFrom(t *testing.T, change func(o map[string]any)) *movingObject {
	t.Helper()
	row := rowOf(t, applicationObject(checkoutID, exampleServer), 1)
	w, err := prepare(row, fleet.Secret{}, mirror.Lease{Epoch: 3})
	if err != nil {
		t.Fatal(err)
	}
	body, err := w.patch(nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := decodeTree(body)
	if err != nil {
		t.Fatal(err)
	}
	child(o, "metadata")["uid"] = "u1"
	spec := child(o, "spec")
	resource := func(group, kind, name string) map[string]any {
		return map[string]any{"group": group, "kind": kind, "namespace": "web", "name": name,
			"status": "Synced"}
	}
	hook := resource("batch", "Job", "migrate")
	hook["hook"], hook["requiresPruning"], hook["status"] = true, true, ""
	o["status"] = map[string]any{
		"sync": map[string]any{"status": "Synced", "revision": "abc", "comparedTo": map[string]any{
			"source": spec["source"], "destination": spec["destination"]}},
		"health": map[string]any{"status": "Healthy"},
		"resources": []any{resource("apps", "Deployment", "web"), resource("", "Service", "web"),
			hook},
		"operationState": map[string]any{"phase": "Succeeded", "startedAt": "1",
			"finishedAt": "2"},
	}
	if change != nil {
		change(o)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeMoving(testEngine, places{}, raw)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// set returns a change that sets the value at a path.
func set(value any, path ...string) func(map[string]any) {
	return func(o map[string]any) {
		for _, p := range path[:len(path)-1] {
			if child(o, p) == nil {
				o[p] = map[string]any{}
			}
			o = child(o, p)
		}
		o[path[len(path)-1]] = value
	}
}

// ofResource returns a change of one resource in the status.
func ofResource(i int, change ...any) func(map[string]any) {
	return func(o map[string]any) {
		r := child(o, "status")["resources"].([]any)[i].(map[string]any)
		for i := 0; i < len(change); i += 2 {
			r[change[i].(string)] = change[i+1]
		}
	}
}

func TestAnApplicationIsFitToLeave(t *testing.T) {
	if why := movingFrom(t, nil).unfit(); why != "" {
		t.Fatalf("a good one: %s", why)
	}
	wave := func(health string) func(map[string]any) {
		return func(o map[string]any) {
			ofResource(1, "syncWave", 1)(o)
			ofResource(0, "health", map[string]any{"status": health})(o)
		}
	}
	if why := movingFrom(t, wave("Healthy")).unfit(); why != "" {
		t.Errorf("healthy waves: %s", why)
	}
	if why := movingFrom(t, ofResource(0, "health", map[string]any{
		"status": "Degraded"})).unfit(); why != "" {
		t.Errorf("one wave, degraded: %s", why)
	}
	for name, c := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"deleted": {set("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
			"being deleted"},
		"moving": {set("u1", "metadata", "annotations", annotationMove),
			"of an earlier move holds it"},
		"ignored":   {set("true", "metadata", "annotations", annotationSkipReconcile), "ignore it"},
		"requested": {set(map[string]any{"sync": map[string]any{}}, "operation"), "operation runs"},
		"running":   {set("Running", "status", "operationState", "phase"), "operation runs"},
		"failing": {set([]any{map[string]any{"type": "ComparisonError", "message": "no access"}},
			"status", "conditions"), "reports ComparisonError: no access"},
		"unreachable": {set([]any{map[string]any{"type": "ComparisonError",
			"message": "Failed to load live state: failed to get cluster info for \"x\": timeout"}},
			"status", "conditions"), "cannot read its cluster: timeout"},
		"changed": {set("other", "spec", "project"), "differs from its declaration"},
		"not compared": {
			set(map[string]any{"repoURL": "x"}, "status", "sync", "comparedTo", "source"),
			"not compared"},
		"OutOfSync": {set("OutOfSync", "status", "sync", "status"), "it is OutOfSync"},
		"one resource OutOfSync": {ofResource(1, "status", "OutOfSync"),
			"Service web/web is OutOfSync"},
		"prune": {
			ofResource(1, "requiresPruning", true), "Service web/web must be pruned"},
		"unhealthy waves": {wave("Degraded"), "Deployment web/web is Degraded"},
	} {
		if why := movingFrom(t, c.change).unfit(); !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, want %q", name, why, c.want)
		}
	}
}

// A project and a server have another meaning on another engine.
func TestAMoveForgetsTheProjectAndDestinationBeforeAnAdoption(t *testing.T) {
	m := movingFrom(t, set(`{"project":"default","destination":{"name":"in-cluster"},`+
		`"finalizers":["resources-finalizer.argocd.argoproj.io"],"labels":{"a":"b"}}`, "metadata",
		"annotations", annotationBefore))
	got, err := m.beforeElsewhere()
	want := `{"finalizers":["resources-finalizer.argocd.argoproj.io"],"labels":{"a":"b"}}`
	if err != nil || got[annotationBefore] != want {
		t.Errorf("%v, %v", got, err)
	}
	d := mirror.Departure{Annotations: got}
	if patch := m.beforeAdoption(d); len(patch) > 0 {
		t.Errorf("the engine that it leaves forgets them too: %v", patch)
	}
	if patch := movingFrom(t, nil).beforeAdoption(d); len(patch) == 0 {
		t.Error("the new engine does not get the rest")
	}
	m = movingFrom(t, set("no JSON", "metadata", "annotations", annotationBefore))
	if _, err := m.beforeElsewhere(); !errors.Is(err, engine.ErrMove) {
		t.Errorf("an unreadable one: %v", err)
	}
}

func departureOf(t *testing.T, m *movingObject) mirror.Departure {
	t.Helper()
	return mirror.Departure{UID: m.UID, Revisions: []string{"abc"}, Resources: m.managed(),
		LastOperation: m.lastRun, Spec: m.live.Spec}
}

func TestAFreezeWaitsForTheLastComparison(t *testing.T) {
	d := departureOf(t, movingFrom(t, nil))
	begun := func(more ...func(map[string]any)) func(map[string]any) {
		return func(o map[string]any) {
			set("u1", "metadata", "annotations", annotationMove)(o)
			delete(child(child(o, "spec"), "syncPolicy"), "automated")
			for _, f := range more {
				f(o)
			}
		}
	}
	finalizers := set([]any{"post-delete-finalizer.argocd.argoproj.io/cleanup", "example.com/keep"},
		"metadata", "finalizers")
	skipped := set("true", "metadata", "annotations", annotationSkipReconcile)
	automated := map[string]any{"syncPolicy": map[string]any{"automated": nil}}
	first := map[string]any{"spec": automated, "metadata": map[string]any{
		"annotations": map[string]any{annotationMove: "u1", annotationRefresh: "normal"}}}
	for name, c := range map[string]struct {
		change func(map[string]any)
		patch  map[string]any
		err    error
	}{
		"at first": {nil, first, nil},
		"at first, OutOfSync with a later commit": {set("OutOfSync", "status", "sync", "status"),
			first, nil},
		"while it compares": {begun(set("normal", "metadata", "annotations", annotationRefresh)),
			nil, engine.ErrMove},
		"while an operation runs": {begun(set("Running", "status", "operationState", "phase")), nil,
			engine.ErrMove},
		"after it": {begun(finalizers), map[string]any{"metadata": map[string]any{
			"finalizers":  []string{"example.com/keep"},
			"annotations": map[string]any{annotationSkipReconcile: "true"}}}, nil},
		"frozen": {begun(skipped), nil, nil},
		"frozen and automated again": {func(o map[string]any) {
			begun(skipped)(o)
			set(map[string]any{}, "spec", "syncPolicy", "automated")(o)
		}, map[string]any{"spec": automated}, nil},
		"begun and automated again": {set("u1", "metadata", "annotations", annotationMove), first,
			nil},
		"synced since": {set("3", "status", "operationState", "startedAt"), nil,
			engine.ErrMoveStale},
		"synced since it begun": {begun(set("3", "status", "operationState", "startedAt")), nil,
			engine.ErrMoveStale},
		"an operation is requested": {set(map[string]any{}, "operation"), nil,
			engine.ErrMoveStale},
		"ignored by others": {skipped, nil, engine.ErrMove},
	} {
		patch, err := movingFrom(t, c.change).freezes(d)
		if !reflect.DeepEqual(patch, c.patch) || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v; want %v, %v", name, patch, err, c.patch, c.err)
		}
	}
	_, err := movingFrom(t, func(o map[string]any) {
		skipped(o)
		set("2026-01-01T00:00:00Z", "metadata", "annotations", annotationParked)(o)
	}).freezes(d)
	if !errors.Is(err, engine.ErrMove) || !strings.Contains(err.Error(), "it is parked") {
		t.Errorf("parked: %v", err)
	}
}

func TestAFreezeGivesUpWhenItsChangesAreReverted(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		answer := httptest.NewRecorder()
		b.f.Forward(answer, r)
		b.out.Merge(row.Key, `{"spec":{"syncPolicy":{"automated":{"prune":true}}}}`)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return true
	})
	before := b.f.Count("PATCH")
	err := b.e.Freeze(t.Context(), row, mirror.Departure{
		UID: b.out.Field(row.Key, "metadata.uid")}, b.lease)
	if !errors.Is(err, engine.ErrMove) || !strings.Contains(err.Error(), "another writer") {
		t.Errorf("error is %v", err)
	}
	if n := b.f.Count("PATCH") - before; n != attempts {
		t.Errorf("%d writes, want %d", n, attempts)
	}
}

// Argo CD may compare once with the resources as they were before its own sync has marked them.
func TestAnAdoptionIsGivenUpOnlyForADifferenceThatLasts(t *testing.T) {
	d := departureOf(t, movingFrom(t, nil))
	operation := operationOf(moveRequest(d), map[string]any{})
	for compared, want := range map[string]string{"09:59:59": "again", "10:00:00": "again",
		"10:00:29": "again", "10:00:30": "given up"} {
		m := movingFrom(t, func(o map[string]any) {
			ofResource(1, "status", "OutOfSync")(o)
			set("2026-01-01T"+compared+"Z", "status", "reconciledAt")(o)
			set(map[string]any{"phase": "Succeeded", "startedAt": "2026-01-01T09:59:58Z",
				"finishedAt": "2026-01-01T10:00:00Z", "operation": operation}, "status",
				"operationState")(o)
		})
		got := ""
		err := (&Engine{name: testEngine}).adopted(d, m, func(_, operation map[string]any) error {
			if got = "again"; operation != nil {
				t.Errorf("%s: it syncs once more", compared)
			}
			return nil
		}, func(string) error {
			got = "given up"
			return engine.ErrMoveDiffers
		})
		if got != want || err == nil {
			t.Errorf("compared at %s: %q, %v", compared, got, err)
		}
	}
}

// Argo CD may overwrite in its cache the request that it has not read yet.
func TestAnAdoptionThatArgoCDDoesNotBeginIsRequestedAgain(t *testing.T) {
	d := departureOf(t, movingFrom(t, nil))
	requested := func(id string, edits ...func(map[string]any)) *movingObject {
		return movingFrom(t, func(o map[string]any) {
			set("2026-01-01T10:00:00Z", "metadata", "annotations", annotationRequestedAt)(o)
			set(operationOf(id, map[string]any{}), "operation")(o)
			set(nil, "status", "operationState")(o)
			for _, edit := range edits {
				edit(o)
			}
		})
	}
	at := func(seconds int) time.Time {
		return time.Date(2026, 1, 1, 10, 0, seconds, 0, time.UTC)
	}
	own := moveRequest(d)
	for name, c := range map[string]struct {
		m    *movingObject
		now  time.Time
		want bool
	}{
		"long ago":     {requested(own), at(15), true},
		"a moment ago": {requested(own), at(14), false},
		"begun": {requested(own, set(map[string]any{"phase": "Running",
			"startedAt": "2026-01-01T10:00:01Z"}, "status", "operationState")), at(50), false},
		"another operation": {requested("other"), at(50), false},
		"no time": {requested(own, set("", "metadata", "annotations",
			annotationRequestedAt)), at(50), false},
		"no operation": {requested(own, set(nil, "operation")), at(50), false},
	} {
		if got := c.m.unnoticed(d, c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAnArrivalIsTheDepartureAtItsRevisions(t *testing.T) {
	ref := map[string]any{"repoURL": "r", "ref": "values", "targetRevision": "main"}
	chart := map[string]any{"repoURL": "c", "chart": "app", "targetRevision": "^1"}
	own := map[string]any{"kind": "ConfigMap", "jsonPointers": []any{"/data"}}
	spec, err := json.Marshal(map[string]any{"project": "of-a", "destination": map[string]any{
		"server": "of-a", "namespace": "web"}, "sources": []any{ref, chart},
		"ignoreDifferences": []any{own},
		"syncPolicy": map[string]any{"automated": map[string]any{}, "syncOptions": []any{
			"Replace=true", "ServerSideApply=true", "CreateNamespace=true", "Validate=false"}}})
	if err != nil {
		t.Fatal(err)
	}
	d := mirror.Departure{UID: "u1", Revisions: []string{"abc", "1.2.3"}, Spec: spec,
		Resources: []mirror.MovedResource{{Kind: "Service", Name: "web"}}}
	row := map[string]any{"spec": map[string]any{"project": "of-b", "destination": map[string]any{
		"server": "of-b", "namespace": "a later one"}, "source": "a later declaration"}}
	compare, adopt, err := arrival(row, d)
	if err != nil {
		t.Fatal(err)
	}
	if len(compare["ignoreDifferences"].([]any)) != 3 {
		t.Errorf("it compares with %v", compare["ignoreDifferences"])
	}
	ref["targetRevision"], chart["targetRevision"] = "abc", "1.2.3"
	want := map[string]any{"project": "of-b",
		"destination": map[string]any{"server": "of-b", "namespace": "web"},
		"sources":     []any{ref, chart}, "ignoreDifferences": []any{own},
		"syncPolicy": map[string]any{"syncOptions": []any{"Replace=true", "ServerSideApply=true",
			"CreateNamespace=true", "Validate=false"}}}
	if !reflect.DeepEqual(adopt, want) {
		t.Errorf("it adopts with %v, want %v", adopt, want)
	}
	options := child(marking(adopt, d), "sync")["syncOptions"].([]string)
	if !slices.Equal(options, []string{"ServerSideApply=true", "Validate=false",
		"RespectIgnoreDifferences=true"}) {
		t.Errorf("the adoption has %v", options)
	}
	d.Resources = nil
	if op := marking(adopt, d); op != nil {
		t.Errorf("without resources, it would sync everything: %v", op)
	}
	for _, revisions := range [][]string{{"abc"}, {"abc", ""}, nil} {
		d.Revisions = revisions
		if _, _, err := arrival(row, d); err == nil {
			t.Errorf("revisions %q are accepted for two sources", revisions)
		}
	}
}

func TestADifferenceNamesWhatWouldChange(t *testing.T) {
	d := departureOf(t, movingFrom(t, nil))
	if why := movingFrom(t, nil).difference(d); why != "" {
		t.Fatalf("an equal one: %s", why)
	}
	for name, c := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"not compared": {set(map[string]any{}, "status"), "engine eu-1 has not compared it yet"},
		"a change": {ofResource(0, "status", "OutOfSync"),
			"engine eu-1 would change Deployment web/web"},
		"a creation": {ofResource(0, "status", "OutOfSync", "health",
			map[string]any{"status": "Missing"}), "engine eu-1 would create Deployment web/web"},
		"no right": {ofResource(0, "status", "Unknown"),
			"engine eu-1 may not manage Deployment web/web"},
		"another resource": {ofResource(1, "name", "other"), "engine eu-1 also has Service " +
			"web/other; does not have Service web/web"},
		"unknown": {set("Unknown", "status", "sync", "status"), "on engine eu-1 it is Unknown"},
		"ignoring other fields": {set([]any{map[string]any{"kind": "*"}}, "spec",
			"ignoreDifferences"), "engine eu-1 has not compared it yet"},
	} {
		if why := movingFrom(t, c.change).difference(d); why != c.want {
			t.Errorf("%s: %q, want %q", name, why, c.want)
		}
	}
}

// An object of a move is neither a drift nor an applied row.
func TestAnApplicationThatMovesIsAppliedAndHasNotDrifted(t *testing.T) {
	w, err := prepare(rowOf(t, applicationObject(checkoutID, exampleServer), 1), fleet.Secret{},
		mirror.Lease{Epoch: 3})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.decide(movingFrom(t, nil).entry); got != doNothing {
		t.Errorf("the applied row: %v", got)
	}
	for name, change := range map[string]func(map[string]any){
		"frozen":   func(map[string]any) {},
		"compared": set("abc", "spec", "source", "targetRevision"),
		"has no hash": func(o map[string]any) {
			delete(child(child(o, "metadata"), "annotations"), annotationHash)
		},
	} {
		m := movingFrom(t, func(o map[string]any) {
			set("u1", "metadata", "annotations", annotationMove)(o)
			change(o)
		})
		if got := w.decide(m.entry); m.Drifted || got != doUpdate {
			t.Errorf("%s: drifted %t, decided %v", name, m.Drifted, got)
		}
	}
}
