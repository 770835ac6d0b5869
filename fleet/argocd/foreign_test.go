package argocd

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestAForeignOperationIsRemovedBeforeItStarts(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	left := []struct{ name, patch string }{
		{
			"Argo CD's own",
			`{"operation":{"initiatedBy":{"automated":true},"sync":{"revision":"x"}}}`},
		{
			"one that runs",
			`{"operation":{"initiatedBy":{"username":"mallory"},"sync":{"revision":"x"}},"status":{"operationState":{"phase":"Running","startedAt":"2026-01-01T00:00:00Z","operation":{}}}}`},
		{
			"one of Argosy's",
			`{"operation":{"initiatedBy":{"username":"argosy"},"info":[{"name":"argosy.dev/sync","value":"s"}],"sync":{"revision":"x"}}}`},
		{"one that has ended",
			`{"operation":null,"status":{"operationState":{"phase":"Failed","startedAt":"2026-01-01T00:00:00Z","operation":{"initiatedBy":{"username":"mallory"}}}}}`},
	}
	known := func() *entry { return b.e.cache.get(row.Key) }
	const none = `{"operation":null,"status":{"operationState":null}}`
	for _, by := range left {
		b.out.Merge(row.Key, none)
		b.out.Merge(row.Key, by.patch)
		version := b.out.Field(row.Key, "metadata.resourceVersion")
		b.until("the watch has shown "+by.name, func() bool {
			return known().ResourceVersion == version
		})
		if out, err := b.apply(row); err != nil || out.Changed {
			t.Errorf("%s: %+v, %v", by.name, out, err)
		}
	}
	b.out.Merge(row.Key, none) // a merge would keep the fields of the previous one
	b.out.Merge(row.Key,
		`{"operation":{"initiatedBy":{"username":"mallory"},"sync":{"revision":"evil","manifests":["{}"]}}}`)
	b.until("it is noticed", func() bool { return known().Drifted })
	b.applied(row)
	if got := b.out.Field(row.Key, "operation"); got != "" {
		t.Errorf("it remains: %s", got)
	}
}

func TestSkipReconcileDoesNotBlockADeletion(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	o := applicationObject(checkoutID, exampleServer)
	row := b.row(o)
	b.applied(row)
	if _, err := b.e.Apply(t.Context(), b.row(clusterObject(prodEU, exampleServer)),
		values("token", "x"), b.lease); err != nil {
		t.Fatal(err)
	}
	b.out.Merge(row.Key,
		`{"metadata":{"annotations":{"argocd.argoproj.io/skip-reconcile":"true"},"finalizers":["post-delete-finalizer.argocd.argoproj.io"]}}`)
	if done, err := b.e.Delete(t.Context(), row, b.lease); done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	if got := b.out.Field(row.Key, "metadata.finalizers"); !strings.Contains(got, "post-delete") ||
		!strings.Contains(got, cascadeFinalizer) {
		t.Errorf("finalizers are %s", got)
	}
	if got := b.out.Field(row.Key, "metadata.annotations|"+annotationSkipReconcile); got != "" {
		t.Error("skip-reconcile is still set")
	}
	b.out.Merge(row.Key,
		`{"metadata":{"annotations":{"argocd.argoproj.io/skip-reconcile":"true"}}}`)
	if done, err := b.e.Delete(t.Context(), row, b.lease); done || err != nil {
		t.Fatalf("while it is being deleted: %v, %v", done, err)
	}
	if got := b.out.Field(row.Key, "metadata.annotations|"+annotationSkipReconcile); got != "" {
		t.Error("skip-reconcile is set during the deletion")
	}
	b.out.Remove(row.Key)
}

func TestAnUnseenDeletionIsNotUndone(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	b.out.Merge(row.Key, `{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`)
	b.until("the finalizer is seen", func() bool {
		live, _ := b.e.Live(row.Key)
		return live.Drifted
	})
	stale := *b.e.cache.get(row.Key)
	if err := b.e.remove(t.Context(), row,
		newEntry(b.e.name, b.e.places, applications, mustRead(b, row.Key))); err != nil {
		t.Fatal(err)
	}
	w, err := prepare(row, fleet.Secret{}, b.lease)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := b.e.applyOnce(t.Context(), w, &stale); err != nil ||
		out.State != mirror.ApplyPending || out.Changed {
		t.Errorf("%+v, %v", out, err)
	}
	if got := b.out.Field(row.Key, "metadata.finalizers"); !strings.Contains(got,
		cascadeFinalizer) {
		t.Errorf("the workload was orphaned: finalizers %q", got)
	}
	b.out.Remove(row.Key)
}

func TestADeletionByAnotherClientIsOrphanedToo(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.app("v1")
	b.applied(row)
	b.out.Merge(row.Key,
		`{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io","example.com/other"]}}`)
	if err := b.e.remove(t.Context(), row,
		newEntry(b.e.name, b.e.places, applications, mustRead(b, row.Key))); err != nil {
		t.Fatal(err)
	}
	if done, err := b.e.Delete(t.Context(), row, b.lease); done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	if got := b.out.Field(row.Key, "metadata.finalizers"); got != `["example.com/other"]` {
		t.Errorf("finalizers are %s", got)
	}
	b.out.Remove(row.Key)
}

func mustRead(b *faultRig, key fleet.ObjectKey) *liveObject {
	o, err := b.e.read(b.Context(), key)
	if err != nil || o == nil {
		b.Fatalf("%v, %v", o, err)
	}
	return o
}

func TestAnUndecodableObjectDoesNotHideTheOthers(t *testing.T) {
	o, err := decodeLive(
		[]byte(
			`{"metadata":{"name":"x","resourceVersion":"5","labels":{"app.kubernetes.io/managed-by":"argosy"}},"status":{"sync":"not an object"},"operation":[]}`))
	if err != nil || o.Metadata.Name != "x" {
		t.Errorf("%v, %v", o, err)
	}
	for _, bad := range []string{`[]`, `{}`, `{"metadata":{"name":"x"}}`, `{"metadata":[]}`, ``} {
		if o, err := decodeLive([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, o)
		}
	}
}

func FuzzLiveObject(f *testing.F) {
	f.Add(
		[]byte(
			`{"metadata":{"name":"x","resourceVersion":"5"},"spec":{"syncPolicy":{"syncOptions":["a"]}},"status":{"resources":[{}],"operationState":{"phase":"Running"}}}`))
	f.Add(
		[]byte(
			`{"metadata":{"name":"x","resourceVersion":"5","finalizers":[""]},"spec":null,"data":{"a":1}}`))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		o, err := decodeLive(raw)
		if err != nil {
			return
		}
		e := &Engine{name: testEngine}
		for _, r := range resources {
			newEntry(e.name, e.places, r, o)
		}
		if tree, err := decodeTree(raw); err == nil {
			foreignFields(map[string]any{}, tree)
		}
	})
}
