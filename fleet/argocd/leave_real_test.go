package argocd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"argosy.dev/argosy/adoption"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// After Leave, the objects are people's: nothing of ours is left on them, Argo CD has synced
// nothing, the exported manifests apply without a difference or a conflict, and Argo CD continues.
// On 3.5, the adopted Application is in a further namespace.
func TestLeavingGivesEveryObjectBack(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			suffix := "leave-" + strings.ReplaceAll(version, ".", "-")
			o := stack.ArgoOptions{Version: version}
			if version != "2.14" {
				further := "apps-" + suffix
				if err := apiServer(t).CreateNamespace(t.Context(), further); err != nil {
					t.Fatal(err)
				}
				o.ClusterAdmin, o.ApplicationNamespaces = true, []string{further}
			}
			newArgoLabWith(t, suffix, o).leaves()
		})
	}
}

func (w *argoLab) leaves() {
	w.Helper()
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA, w.spaceB)
	if err != nil {
		w.Fatal(err)
	}
	w.commit(map[string]string{"shop/cm.yaml": configMap("shop", "one"),
		"cart/cm.yaml": configMap("cart", "one"), "blog/cm.yaml": configMap("blog", "one")})
	w.byHand(token)
	rows := w.foundation(prodEU, w.spaceA, w.spaceB)
	for _, row := range rows {
		w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	}
	app := func(name string, policy fleet.DeletionPolicy,
		change func(*fleet.Application)) mirror.Row {
		w.Helper()
		row := w.app(fleet.ApplicationID{Tenant: acme, Deployment: fleet.DeploymentName(name),
			Environment: prodEU.Name}, name, w.spaceA, policy, change)
		w.apply(row, fleet.Secret{})
		w.observed(name+" is synced", row.Key, synced)
		w.settles(w.liveName(row))
		rows = append(rows, row)
		return row
	}
	app("shop", fleet.DeletionRelease, func(a *fleet.Application) { a.Adopt = w.byHandObject() })
	app("cart", fleet.DeletionDelete, func(a *fleet.Application) {
		a.Wave = 2
		a.Links = []fleet.Link{{Title: "dashboard", URL: "https://grafana.example.com/d/a"}}
	})
	blog := app("blog", fleet.DeletionOrphan, nil)
	w.mergeOwn(blog, `{"metadata":{"annotations":{"argosy.dev/parked":"2026-01-01T00:00:00Z",`+
		`"argocd.argoproj.io/skip-reconcile":"true"}}}`)
	policies := func(kind fleet.ObjectKind, name string) fleet.DeletionPolicy {
		for _, r := range rows {
			if r.Key.Kind == kind && w.liveName(r) == name {
				return r.Deletion
			}
		}
		return ""
	}

	w.mergeOwn(rows[1], `{"metadata":{"annotations":{"argosy.dev/token-expires":"tomorrow"}}}`)
	before := w.liveObjects(rows)
	o := LeaveOptions{Policy: policies, DryRun: true}
	if all, err := w.e.Leave(w.Context(), o); err != nil || len(all) != len(rows) {
		w.Fatalf("a dry run: %v, %v", all, err)
	}
	o.DryRun = false
	if _, err := w.e.Leave(w.Context(), o); !errors.Is(err, ErrNotStopped) {
		w.Fatalf("leaves while the control plane may write: %v", err)
	}
	if err := w.e.SetStop(w.Context(), mirror.Stop{Scope: mirror.StopEngine,
		Name: string(testEngine), By: "test"}); err != nil {
		w.Fatal(err)
	}
	if all, err := w.e.Leave(w.Context(), o); !errors.Is(err, ErrExpiringTokens) || len(all) > 0 {
		w.Fatalf("leaves a token that expires: %v, %v", all, err)
	}
	w.areAsBefore(before, w.liveObjects(rows))
	o.ExpiringTokens = true
	all, err := w.e.Leave(w.Context(), o)
	if err != nil || len(all) != len(rows) {
		w.Fatalf("%v, %v", all, err)
	}
	after := w.liveObjects(rows)
	for key, o := range after {
		w.isPeoples(key, before[key], o)
	}
	for _, row := range rows {
		w.appliesWithoutDifference(row)
	}
	if again, err := w.e.Leave(w.Context(), LeaveOptions{
		Policy: policies, Uninstalled: true}); err != nil || len(again) > 0 {
		w.Errorf("a second run: %v, %v", again, err)
	}

	second := w.commit(map[string]string{"cart/cm.yaml": configMap("cart", "two"),
		"blog/cm.yaml": configMap("blog", "two"), "shop/cm.yaml": configMap("shop", "two")})
	for _, row := range rows {
		if row.Key.Kind == fleet.ObjectApplication {
			w.refresh(w.liveName(row))
		}
	}
	w.until("Argo CD syncs the next commit", func() bool {
		for _, row := range rows {
			if row.Key.Kind != fleet.ObjectApplication {
				continue
			}
			revision, _, _ := unstructured.NestedString(w.of(row).Object, "status",
				"operationState", "syncResult", "revision")
			if value, _ := w.value(w.spaceA, string(row.Deployment)); revision != second ||
				value != "two" {
				return false
			}
		}
		return true
	})
}

func (w *argoLab) mergeOwn(row mirror.Row, patch string) {
	w.Helper()
	_, name := fleet.SplitObject(w.liveName(row))
	if _, err := w.people(row).Patch(w.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *argoLab) people(row mirror.Row) dynamic.ResourceInterface {
	r := resourceOf(row.Key.Kind)
	gv, err := schema.ParseGroupVersion(r.apiVersion)
	if err != nil {
		w.Fatal(err)
	}
	namespace, _ := fleet.SplitObject(w.liveName(row))
	return w.cluster.Dynamic().Resource(gv.WithResource(r.plural)).Namespace(
		cmp.Or(namespace, w.spec.ArgoCD.Namespace))
}

func (w *argoLab) of(row mirror.Row) *unstructured.Unstructured {
	w.Helper()
	_, name := fleet.SplitObject(w.liveName(row))
	u, err := w.people(row).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return u
}

// liveName is the name of the object, after the engine no longer knows it too, with its namespace
// if that is not Argo CD's own.
func (w *argoLab) liveName(row mirror.Row) string {
	w.Helper()
	var o struct {
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(row.Manifest.Body, &o); err != nil {
		w.Fatal(err)
	}
	return fleet.JoinObject(o.Metadata.Namespace, o.Metadata.Name)
}

func (w *argoLab) liveObjects(rows []mirror.Row) map[string]*unstructured.Unstructured {
	w.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, row := range rows {
		all[fmt.Sprint(row.Key.Kind, " ", w.liveName(row))] = w.of(row)
	}
	return all
}

// areAsBefore: Argo CD alone has written. It may compare an Application at any moment, which
// changes the status, and with it the resourceVersion, the generation (an Application has no
// subresource for its status) and its own entries of managedFields.
func (w *argoLab) areAsBefore(before, after map[string]*unstructured.Unstructured) {
	w.Helper()
	for key, o := range before {
		if was, is := withoutArgoCD(o), withoutArgoCD(after[key]); !reflect.DeepEqual(was, is) {
			w.Errorf("%s has changed from\n%v\nto\n%v", key, was, is)
		}
	}
}

func withoutArgoCD(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(o.Object, "metadata", "generation")
	byArgoCD := func(f metav1.ManagedFieldsEntry) bool {
		return strings.HasPrefix(f.Manager, "argocd")
	}
	o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), byArgoCD))
	return o.Object
}

// isPeoples: nothing of ours is left, and nothing else has changed.
func (w *argoLab) isPeoples(key string, before, after *unstructured.Unstructured) {
	w.Helper()
	for name, v := range after.GetLabels() {
		if strings.HasPrefix(name, "argosy.dev/") || name == labelManagedBy && v == managedBy {
			w.Errorf("%s keeps label %s", key, name)
		}
	}
	for name := range after.GetAnnotations() {
		if strings.HasPrefix(name, "argosy.dev/") || name == annotationSkipReconcile {
			w.Errorf("%s keeps annotation %s", key, name)
		}
	}
	for _, f := range after.GetManagedFields() {
		if f.Manager == fieldManager && f.Operation == metav1.ManagedFieldsOperationApply {
			w.Errorf("%s keeps applied fields", key)
		}
	}
	for _, field := range []string{"spec", "data"} {
		if !reflect.DeepEqual(before.Object[field], after.Object[field]) {
			w.Errorf("%s: %s has changed", key, field)
		}
	}
	started := func(o *unstructured.Unstructured) string {
		s, _, _ := unstructured.NestedString(o.Object, "status", "operationState", "startedAt")
		return s
	}
	if before.GetUID() != after.GetUID() || started(before) != started(after) {
		w.Errorf("%s: UID %s, then %s; sync %s, then %s", key, before.GetUID(), after.GetUID(),
			started(before), started(after))
	}
}

// appliesWithoutDifference applies the exported manifest on the API server's side, as people would.
func (w *argoLab) appliesWithoutDifference(row mirror.Row) {
	w.Helper()
	dec, err := decodeTree(row.Manifest.Body)
	if err != nil {
		w.Fatal(err)
	}
	text, err := json.Marshal(adoption.Plain(dec, w.spec.ArgoCD.Namespace, row.Deletion))
	if err != nil {
		w.Fatal(err)
	}
	before := w.of(row)
	after, err := w.people(row).Patch(w.Context(), before.GetName(), types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: "kubectl"})
	if err != nil {
		w.Errorf("%s %s: %v", row.Key.Kind, before.GetName(), err)
		return
	}
	for _, o := range []*unstructured.Unstructured{before, after} {
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		o.SetGeneration(0)
		delete(o.Object, "status")
	}
	if !reflect.DeepEqual(before.Object, after.Object) {
		w.Errorf("%s %s: the exported manifest changes\n%v to\n%v", row.Key.Kind, before.GetName(),
			before.Object, after.Object)
	}
}
