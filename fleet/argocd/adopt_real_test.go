package argocd

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

const adoptedName = "guestbook.by-hand"

// An Application that people made keeps its object, history and workload through adoption, a
// change and release, and Argo CD syncs only the change.
func TestAnApplicationIsAdoptedAndReleasedInPlace(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			w := newArgoLabWith(t, "adopt-"+strings.ReplaceAll(version, ".", "-"),
				stack.ArgoOptions{Version: version})
			w.adopts()
		})
	}
}

// Argo CD compares and records a list of one source otherwise than a source alone.
func TestAnApplicationWithAListOfOneSourceIsAdoptedAndReleasedInPlace(t *testing.T) {
	w := newArgoLabWith(t, "adopt-list",
		stack.ArgoOptions{Version: stack.ArgoVersions[len(stack.ArgoVersions)-1]})
	w.listed = true
	w.adopts()
}

// An Application in a namespace that the engine gives to the tenant is adopted there, and the
// Applications beside it stay as they are.
func TestAnApplicationOfAnotherNamespaceIsAdoptedAndReleasedInPlace(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			suffix := "anyns-" + strings.ReplaceAll(version, ".", "-")
			further := "apps-" + suffix
			if err := apiServer(t).CreateNamespace(t.Context(), further); err != nil {
				t.Fatal(err)
			}
			w := newArgoLabWith(t, suffix, stack.ArgoOptions{Version: version, ClusterAdmin: true,
				ApplicationNamespaces: []string{further}})
			w.adopts()
			w.deletesWithItsWorkload()
		})
	}
}

// deletesWithItsWorkload adopts the released Application once more, undoes what people write to it
// there, and deletes it with its ConfigMap.
func (w *argoLab) deletesWithItsWorkload() {
	w.Helper()
	id := fleet.ApplicationID{Tenant: acme, Deployment: "shop", Environment: prodEU.Name}
	row := w.app(id, "shop", w.spaceA, fleet.DeletionDelete, func(a *fleet.Application) {
		a.Adopt = w.byHandObject()
	})
	w.until("it is adopted again", func() bool {
		out, err := w.e.Apply(w.Context(), row, fleet.Secret{}, w.lease)
		return err == nil && out.State == mirror.ApplyApplied
	})
	w.until("compared in its new project", func() bool {
		to, _, _ := unstructured.NestedString(w.byHandLive().Object, "status", "sync", "comparedTo",
			"destination", "server")
		return strings.Contains(to, "?managedEnvironment=")
	})
	w.merge(`{"spec":{"source":{"targetRevision":"elsewhere"}}}`)
	w.until("the drift is overwritten", func() bool {
		w.apply(row, fleet.Secret{})
		revision, _, _ := unstructured.NestedString(w.byHandLive().Object, "spec", "source",
			"targetRevision")
		return revision == "main"
	})
	w.remove(row)
	_, err := w.peoples().Get(w.Context(), adoptedName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		w.Errorf("the deleted Application: %v", err)
	}
	if value, _ := w.value(w.spaceA, "shop"); value != "" {
		w.Errorf("the workload of the deleted Application has %q", value)
	}
}

// byHandObject is the Application made by hand, as a declaration adopts it.
func (w *argoLab) byHandObject() string {
	if w.further == "" {
		return adoptedName
	}
	return w.further + "/" + adoptedName
}

// peoples are the Applications beside the one made by hand.
func (w *argoLab) peoples() dynamic.ResourceInterface { return w.applicationsIn(w.further) }

// applicationsIn are the Applications of a namespace; empty: of Argo CD's own.
func (w *argoLab) applicationsIn(namespace string) dynamic.ResourceInterface {
	return w.cluster.Dynamic().Resource(applicationsGVR).Namespace(cmp.Or(namespace,
		w.spec.ArgoCD.Namespace))
}

// byHand creates an Application with its own project, which names its cluster.
func (w *argoLab) byHand(token string) {
	w.Helper()
	meta := func(name string) map[string]any {
		return map[string]any{"name": name, "namespace": w.spec.ArgoCD.Namespace}
	}
	app, project := meta(adoptedName), map[string]any{"sourceRepos": []any{w.repo.URL}}
	if w.further != "" {
		app["namespace"], project["sourceNamespaces"] = w.further, []any{w.further}
	}
	app["labels"] = map[string]any{"team": "shop", labelManagedBy: "hand"}
	app["finalizers"] = []any{cascadeFinalizer}
	project["destinations"] = []any{map[string]any{"server": w.cluster.Server,
		"namespace": w.spaceA}}
	field, source := "source", any(map[string]any{"repoURL": w.repo.URL, "path": "shop/",
		"targetRevision": "main", "directory": map[string]any{"recurse": false}})
	if w.listed {
		field, source = "sources", []any{source}
	}
	config := fmt.Sprintf(`{"bearerToken":%q,"tlsClientConfig":{"caData":%q}}`, token,
		base64.StdEncoding.EncodeToString(w.cluster.CA))
	if err := w.cluster.Apply(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand", Namespace: w.spec.ArgoCD.Namespace,
			Labels: map[string]string{labelSecretType: "cluster"}},
		StringData: map[string]string{"name": "by-hand", "server": w.cluster.Server,
			"namespaces": w.spaceA,
			"config":     config},
	}, &unstructured.Unstructured{Object: map[string]any{"apiVersion": argoAPI,
		"kind": "AppProject", "metadata": meta("by-hand"), "spec": project},
	}, &unstructured.Unstructured{Object: map[string]any{"apiVersion": argoAPI,
		"kind": "Application", "metadata": app, "spec": map[string]any{
			"project": "by-hand", "destination": map[string]any{"name": "by-hand",
				"namespace": w.spaceA},
			field: source,
			"syncPolicy": map[string]any{"automated": map[string]any{"prune": true,
				"selfHeal": true}, "syncOptions": []any{"CreateNamespace=false"}},
		}},
	}); err != nil {
		w.Fatal(err)
	}
	w.until("the Application made by hand is synced", func() bool {
		o := w.byHandLive().Object
		status, _, _ := unstructured.NestedString(o, "status", "sync", "status")
		phase, _, _ := unstructured.NestedString(o, "status", "operationState", "phase")
		return status == "Synced" && phase == "Succeeded" && o["operation"] == nil
	})
	w.settles(w.byHandObject())
}

func (w *argoLab) byHandLive() *unstructured.Unstructured {
	w.Helper()
	o, err := w.peoples().Get(w.Context(), adoptedName, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// trace has what an adoption must not change.
type trace struct {
	uid, operation, workload string
	history                  int
}

func (w *argoLab) trace() trace {
	w.Helper()
	o := w.byHandLive()
	history, _, _ := unstructured.NestedSlice(o.Object, "status", "history")
	operation, _, _ := unstructured.NestedString(o.Object, "status", "operationState", "startedAt")
	cm, err := w.cluster.Client().CoreV1().ConfigMaps(w.spaceA).Get(w.Context(), "shop",
		metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return trace{string(o.GetUID()), operation, string(cm.UID) + "@" + cm.ResourceVersion,
		len(history)}
}

func (w *argoLab) merge(patch string) {
	w.Helper()
	if _, err := w.peoples().Patch(w.Context(), adoptedName, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{FieldManager: "people"}); err != nil {
		w.Fatal(err)
	}
}

func (w *argoLab) adopts() {
	w.Helper()
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA)
	if err != nil {
		w.Fatal(err)
	}
	w.commit(map[string]string{"shop/cm.yaml": configMap("shop", "one")})
	w.byHand(token)
	before := w.trace()
	for _, row := range w.foundation(prodEU, w.spaceA) {
		w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	}
	id := fleet.ApplicationID{Tenant: acme, Deployment: "shop", Environment: prodEU.Name}
	adopting := func(change func(*fleet.Application)) mirror.Row {
		return w.app(id, "shop", w.spaceA, fleet.DeletionRelease, func(a *fleet.Application) {
			a.Adopt, a.Wave, a.SourceList = w.byHandObject(), 2, w.listed
			if change != nil {
				change(a)
			}
		})
	}
	w.refusesToAdopt(adopting)
	if got := w.trace(); got != before || w.byHandLive().GetLabels()[labelTenant] != "" {
		w.Fatalf("a refused adoption has changed %+v to %+v", before, got)
	}

	row := adopting(nil)
	if out := w.apply(row, fleet.Secret{}); !out.Changed || out.State != mirror.ApplyApplied {
		w.Fatalf("adopted: %+v", out)
	}
	w.observed("compared in its new project", row.Key, func(o mirror.Observation) bool {
		to, _, _ := unstructured.NestedString(w.byHandLive().Object, "status", "sync", "comparedTo",
			"destination", "server")
		return synced(o) && strings.Contains(to, "?managedEnvironment=")
	})
	w.until("the row needs no write", func() bool { return !w.apply(row, fleet.Secret{}).Changed })
	o := w.byHandLive()
	if got := w.trace(); got != before || len(o.GetFinalizers()) > 0 ||
		o.GetLabels()["team"] != "shop" || o.GetLabels()[labelTenant] != string(acme) {
		w.Errorf("the adoption has changed %+v to %+v; metadata %v %v", before, got, o.GetLabels(),
			o.GetFinalizers())
	}
	foreign := fleet.ApplicationID{Tenant: "globex", Deployment: "shop", Environment: "prod-eu"}
	other := w.app(foreign, "shop", w.spaceA, "", func(a *fleet.Application) {
		a.Adopt, a.Project = w.byHandObject(), fleet.ProjectName("globex")
	})
	refusal := engine.ErrForeign
	if w.further != "" {
		refusal = engine.ErrRefused // the namespace is not that tenant's
	}
	if _, err := w.e.Apply(w.Context(), other, fleet.Secret{}, w.lease); !errors.Is(err,
		refusal) {
		w.Errorf("another tenant adopts it: %v", err)
	}
	if _, err := w.e.Apply(w.Context(), w.app(id, "shop", w.spaceA, "", nil), fleet.Secret{},
		w.lease); !errors.Is(err, engine.ErrRefused) {
		w.Errorf("a row without adopt: %v", err)
	}
	second := w.commit(map[string]string{"shop/cm.yaml": configMap("shop", "two")})
	w.refresh(w.byHandObject())
	w.observed("synced at the next commit", row.Key, func(o mirror.Observation) bool {
		return synced(o) && o.SyncedRevision == second
	})
	w.sync(row, "run-1", second, "Succeeded")
	w.releases(row, before)
}

// refusesToAdopt changes nothing: the declaration differs, or something else owns the Application.
func (w *argoLab) refusesToAdopt(adopting func(func(*fleet.Application)) mirror.Row) {
	w.Helper()
	refused := func(row mirror.Row, words string) {
		w.Helper()
		if _, err := w.e.Apply(w.Context(), row, fleet.Secret{}, w.lease); !errors.Is(err,
			engine.ErrAdoption) || !strings.Contains(err.Error(), words) {
			w.Errorf("want %q: %v", words, err)
		}
	}
	refused(adopting(func(a *fleet.Application) {
		a.Adopt = strings.Replace(w.byHandObject(), adoptedName, "absent", 1)
	}), "no Application absent")
	if done, err := w.e.Delete(w.Context(), adopting(nil), w.lease); !done || err != nil {
		w.Errorf("the deletion of what was never adopted: %t, %v", done, err)
	}
	refused(adopting(func(a *fleet.Application) { a.Sync.Prune = false }),
		`spec.syncPolicy.automated.prune is true, declared not set`)
	text := `spec.source.targetRevision is "main", declared "v1.0.0"`
	if w.listed {
		text = "spec.sources is [" // a list is shown as a whole
	}
	refused(adopting(func(a *fleet.Application) { a.Sources[0].TargetRevision = "v1.0.0" }), text)
	refused(adopting(func(a *fleet.Application) { a.SourceList = !w.listed }), "spec.source")
	w.merge(`{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"root:argoproj.io/Application:a/b"}}}`)
	refused(adopting(nil), "a resource of Application root")
	w.merge(`{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":null}}}`)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner",
		Namespace: cmp.Or(w.further, w.spec.ArgoCD.Namespace)}}
	if err := w.cluster.Apply(w.Context(), owner); err != nil {
		w.Fatal(err)
	}
	stored, err := w.cluster.Get(w.Context(), owner)
	if err != nil {
		w.Fatal(err)
	}
	w.merge(fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`,
		stored.GetUID()))
	refused(adopting(nil), "ConfigMap owner owns")
	w.merge(`{"metadata":{"ownerReferences":null}}`)
}

// releases: the Application is as before its adoption, except for what was declared since.
func (w *argoLab) releases(row mirror.Row, before trace) {
	w.Helper()
	w.settles(w.byHandObject())
	last := w.trace()
	w.remove(row)
	o := w.byHandLive()
	cluster, _, _ := unstructured.NestedString(o.Object, "spec", "destination", "name")
	server, _, _ := unstructured.NestedString(o.Object, "spec", "destination", "server")
	project, _, _ := unstructured.NestedString(o.Object, "spec", "project")
	var left []string
	for key := range o.GetAnnotations() {
		if strings.HasPrefix(key, "argosy.dev/") {
			left = append(left, key)
		}
	}
	for _, f := range o.GetManagedFields() {
		if f.Manager == fieldManager && f.Operation == metav1.ManagedFieldsOperationApply {
			left = append(left, "fields")
		}
	}
	if cluster != "by-hand" || server != "" || project != "by-hand" || len(left) > 0 ||
		string(o.GetUID()) != before.uid || !slices.Equal(o.GetFinalizers(),
		[]string{cascadeFinalizer}) || o.GetLabels()[labelManagedBy] != "hand" ||
		o.GetLabels()[labelTenant] != "" || o.GetLabels()["team"] != "shop" {
		w.Errorf("released: project %s, cluster %s%s, left %v, %v %v", project, cluster, server,
			left, o.GetLabels(), o.GetFinalizers())
	}
	w.until("it is synced where it was", func() bool {
		to, _, _ := unstructured.NestedString(w.byHandLive().Object, "status", "sync", "comparedTo",
			"destination", "name")
		status, _, _ := unstructured.NestedString(w.byHandLive().Object, "status", "sync", "status")
		return status == "Synced" && to == "by-hand"
	})
	if got := w.trace(); got != last {
		w.Errorf("the release has changed %+v to %+v", last, got)
	}
	if _, known := w.e.Live(row.Key); known {
		w.Error("it is still ours")
	}
}
