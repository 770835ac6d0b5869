package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// named creates an Application that names its cluster, and returns the row that adopts it.
func (b *faultRig) named(cluster string) mirror.Row {
	b.Helper()
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Adopt, o.Application.DeletionPolicy = "by-name", fleet.DeletionRelease
	row := b.row(o)
	tree, err := decodeTree(row.Manifest.Body)
	if err != nil {
		b.Fatal(err)
	}
	tree["metadata"] = map[string]any{"name": "by-name", "namespace": b.e.namespace}
	spec := child(tree, "spec")
	spec["project"] = "default"
	spec["destination"] = map[string]any{"name": cluster, "namespace": "checkout"}
	object := &unstructured.Unstructured{Object: tree}
	if err := apiServer(b).Apply(b.Context(), object); err != nil {
		b.Fatal(err)
	}
	return row
}

func (b *faultRig) cluster(secret, name, server string) {
	b.Helper()
	if err := apiServer(b).Apply(b.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: secret, Namespace: b.e.namespace, Labels: map[string]string{
			labelSecretType: "cluster"}},
		StringData: map[string]string{"name": name, "server": server}}); err != nil {
		b.Fatal(err)
	}
}

func (b *faultRig) annotate(annotations string) {
	b.Helper()
	if err := b.e.client.do(b.Context(), request{method: http.MethodPatch,
		path: applications.object(b.e.namespace, "by-name"), contentType: mergePatch,
		body: []byte(`{"metadata":{"annotations":` + annotations + `}}`)}, nil); err != nil {
		b.Fatal(err)
	}
}

func (b *faultRig) destination() string {
	b.Helper()
	var o struct {
		Spec struct{ Destination map[string]string }
	}
	if err := b.e.client.do(b.Context(), request{method: http.MethodGet,
		path: applications.object(b.e.namespace, "by-name")}, &o); err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(o.Spec.Destination)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// An Application that names its cluster is adopted if Argo CD resolves the name to the declared
// server, and gets the name back when it is released.
func TestAClusterNameIsResolvedAsArgoCDDoes(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	row := b.named("prod")
	const original = `{"name":"prod","namespace":"checkout"}`
	refused := func(words string) {
		t.Helper()
		_, err := b.apply(row)
		if !errors.Is(err, engine.ErrAdoption) || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q: %v", words, err)
		}
		if got := b.destination(); got != original {
			t.Errorf("a blocked adoption wrote %s", got)
		}
	}
	refused(`names cluster "prod", and 0 cluster Secrets`)
	b.cluster("one", "prod", "https://elsewhere.example.com")
	b.cluster("two", "other", exampleServer)
	refused(`spec.destination.server is "https://elsewhere.example.com", declared "` +
		exampleServer + `"`)
	b.cluster("two", "prod", exampleServer)
	refused("2 cluster Secrets")
	b.cluster("one", "other", "https://elsewhere.example.com")
	b.cluster("two", "prod", exampleServer+"/")
	project := projectObject(acme)
	for by, words := range map[fleet.PausedBy]string{
		fleet.PausedByTenant: "paused (pauseAdoption in fleet/tenants/acme.yaml)",
		fleet.PausedByEngine: "paused (pauseAdoption in fleet/engines/eu-1.yaml)"} {
		project.Project.AdoptionPaused = by
		b.applied(b.row(project))
		refused(words)
	}
	project.Project.AdoptionPaused = ""
	b.applied(b.row(project))

	// a pause that begins during the dry run, and whose write fails
	project.Project.AdoptionPaused = fleet.PausedByTenant
	pause := b.row(project)
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") != "":
			if _, err := b.apply(pause); err == nil {
				t.Error("the write of the pause has not failed")
			}
		case r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/appprojects/"):
			answer(w, http.StatusInternalServerError, "InternalError", "lost")
			return true
		}
		return false
	})
	refused("adoptions of tenant acme are paused")
	b.f.Order(nil)
	refused("adoptions of tenant acme are paused")
	project.Project.AdoptionPaused = ""
	if _, err := b.apply(b.row(project)); err != nil {
		t.Fatal(err)
	}

	b.annotate(`{"argocd.argoproj.io/refresh":"normal"}`)
	if out, err := b.apply(row); err != nil || out.State != mirror.ApplyPending {
		t.Errorf("during a refresh: %+v, %v", out, err)
	}
	b.annotate(`null`)

	// the first write arrives, and the second does not
	var lost atomic.Int32
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch && r.Header.Get("Content-Type") == applyPatch &&
			r.URL.Query().Get("dryRun") == "" && lost.Add(1) == 1 {
			answer(w, http.StatusInternalServerError, "InternalError", "lost")
			return true
		}
		return false
	})
	if _, err := b.apply(row); err == nil || lost.Load() != 1 {
		t.Fatalf("the second write is not lost: %v", err)
	}
	if got := b.destination(); got != `{"namespace":"checkout","server":"`+exampleServer+`"}` {
		t.Errorf("after an interrupted adoption: %s", got)
	}
	b.applied(row)
	if got := b.destination(); !strings.Contains(got, "?managedEnvironment=") ||
		strings.Contains(got, `"name"`) {
		t.Errorf("adopted: %s", got)
	}
	b.until("the watch has shown it", func() bool {
		known := b.e.cache.get(row.Key)
		return known != nil && known.Ours
	})
	b.annotate(`null`) // as Argo CD does that has read the Application before
	b.until("the loss is noticed", func() bool { return b.e.cache.get(row.Key) == nil })
	b.annotate(`{"other":"1"}`)
	b.applied(row)
	b.until("it is ours again", func() bool {
		known := b.e.cache.get(row.Key)
		return known != nil && known.Ours && known.before != ""
	})
	b.until("it is released", func() bool {
		done, err := b.e.Delete(b.Context(), row, b.lease)
		return done && err == nil
	})
	if got := b.destination(); got != original {
		t.Errorf("released: %s, before: %s", got, original)
	}
}

// A row with orCreate creates the Application under the declared name if it proves that there is
// none, and adopts one that exists.
func TestAMissingApplicationIsCreatedOnlyIfDeclaredSo(t *testing.T) {
	b := newFaultRig(t, Options{})
	b.synced()
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Adopt, o.Application.DeletionPolicy = "by-name", fleet.DeletionRelease
	if _, err := b.apply(b.row(o)); !errors.Is(err, engine.ErrAdoption) ||
		!strings.Contains(err.Error(), "there is no Application by-name") {
		t.Errorf("without orCreate: %v", err)
	}
	o.Application.AdoptOrCreate = true
	row := b.row(o)
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/by-name") {
			answer(w, http.StatusNotFound, "", "page not found") // of a proxy: proves nothing
			return true
		}
		return false
	})
	if out, err := b.apply(row); err == nil {
		t.Errorf("created without a proof of absence: %+v", out)
	}
	b.f.Order(nil)
	project := projectObject(acme)
	project.Project.AdoptionPaused = fleet.PausedByEngine
	b.applied(b.row(project))
	if _, err := b.apply(row); !errors.Is(err, engine.ErrAdoption) ||
		!strings.Contains(err.Error(), "paused (pauseAdoption in fleet/engines/eu-1.yaml)") {
		t.Errorf("created while adoptions are paused: %v", err)
	}
	project.Project.AdoptionPaused = ""
	b.applied(b.row(project))
	b.named("prod")
	if _, err := b.apply(row); !errors.Is(err, engine.ErrAdoption) {
		t.Errorf("one that differs is overwritten: %v", err)
	}
	if err := b.e.client.do(t.Context(), request{method: http.MethodDelete,
		path: applications.object(b.e.namespace, "by-name")}, nil); err != nil {
		t.Fatal(err)
	}
	b.applied(row)
	if got := b.destination(); !strings.Contains(got, "?managedEnvironment=") {
		t.Errorf("created: %s", got)
	}
	b.until("the watch has shown it", func() bool {
		known := b.e.cache.get(row.Key)
		return known != nil && known.Ours && known.object == "by-name"
	})
	if out, err := b.apply(row); err != nil || out.Changed || out.State != mirror.ApplyApplied {
		t.Errorf("again: %+v, %v", out, err)
	}
	created := b.destination()
	b.until("it is released", func() bool {
		done, err := b.e.Delete(b.Context(), row, b.lease)
		return done && err == nil
	})
	if got := b.destination(); got != created {
		t.Errorf("released: %s, before: %s", got, created)
	}
	o.Application.Adopt = fleet.ApplicationName(fleet.ApplicationID{Tenant: "globex",
		Deployment: "shop", Environment: "prod"})
	if _, err := (Renderer{}).Render(engineSpec(), o); err == nil {
		t.Error("the name of another tenant's Application is rendered")
	}
}

// People write to a namespace of Applications. Labels that they copy onto an Application prove no
// adoption of it, so that it is compared and paused as any other.
func TestCopiedLabelsProveNoAdoption(t *testing.T) {
	namespace := space(t, apiServer(t))
	b := newFaultRig(t, Options{}, func(spec *fleet.EngineSpec) {
		spec.ApplicationNamespaces = []fleet.ApplicationNamespace{{Namespace: namespace,
			Tenant: acme}}
	})
	b.synced()
	b.until("the namespace is read", func() bool { return b.e.cache.knows(namespace) })
	o := applicationObject(checkoutID, exampleServer)
	object := namespace + "/by-name"
	o.Application.Adopt, o.Application.DeletionPolicy = object, fleet.DeletionRelease
	row := b.row(o)
	copied := func(revision string) {
		t.Helper()
		tree, err := decodeTree(row.Manifest.Body)
		if err != nil {
			t.Fatal(err)
		}
		tree["metadata"] = map[string]any{"name": "by-name", "namespace": namespace,
			"labels": child(child(tree, "metadata"), "labels")}
		spec := child(tree, "spec")
		spec["project"] = "default"
		child(spec, "source")["targetRevision"] = revision
		if err := apiServer(t).Apply(t.Context(), &unstructured.Unstructured{
			Object: tree}); err != nil {
			t.Fatal(err)
		}
	}
	live := func() (o struct {
		Metadata struct{ Labels, Annotations map[string]string }
		Spec     struct{ Project string }
	}) {
		t.Helper()
		if err := b.e.client.do(t.Context(), request{method: http.MethodGet,
			path: b.e.places.path(applications, object)}, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	refused := func(words string) {
		t.Helper()
		if _, err := b.apply(row); !errors.Is(err, engine.ErrAdoption) ||
			!strings.Contains(err.Error(), words) {
			t.Errorf("want %q: %v", words, err)
		}
		if got := live().Spec.Project; got != "default" {
			t.Errorf("a blocked adoption wrote project %q", got)
		}
	}
	copied("main")
	refused(`spec.source.targetRevision is "main", declared "v1.4.0"`)
	copied("v1.4.0")
	project := projectObject(acme)
	project.Project.SourceNamespaces = []string{namespace}
	project.Project.AdoptionPaused = fleet.PausedByTenant
	b.applied(b.row(project))
	refused("paused (pauseAdoption in fleet/tenants/acme.yaml)")
	project.Project.AdoptionPaused = ""
	b.applied(b.row(project))
	b.applied(row)
	b.until("the watch has shown it", func() bool {
		known := b.e.cache.get(row.Key)
		return known != nil && known.Ours && known.before != ""
	})
	// Of an Application that it has adopted, the cache remembers the state before.
	if err := b.e.client.do(t.Context(), request{method: http.MethodPatch,
		path: b.e.places.path(applications, object), contentType: mergePatch,
		body: []byte(`{"metadata":{"annotations":null}}`)}, nil); err != nil {
		t.Fatal(err)
	}
	b.until("the loss is noticed", func() bool { return b.e.cache.get(row.Key) == nil })
	b.applied(row)
	b.until("it is released", func() bool {
		done, err := b.e.Delete(t.Context(), row, b.lease)
		return done && err == nil
	})
	if o := live(); o.Spec.Project != "default" || o.Metadata.Labels[labelTenant] != "" {
		t.Errorf("released: project %q, labels %v", o.Spec.Project, o.Metadata.Labels)
	}
}

func TestInClusterNeedsNoSecret(t *testing.T) {
	b := newFaultRig(t, Options{})
	for _, c := range []struct{ secret, want, blocked string }{
		{"", fleet.InClusterServer, ""},
		{fleet.InClusterServer, fleet.InClusterServer, ""},
		{exampleServer, "", "2 cluster Secrets"},
	} {
		if c.secret != "" {
			b.cluster("local", "in-cluster", c.secret)
		}
		destination := map[string]any{"name": "in-cluster"}
		_, err := b.e.resolve(context.Background(), destination, "x")
		got, _ := destination["server"].(string)
		if got != c.want || (err != nil) != (c.blocked != "") ||
			err != nil && !strings.Contains(err.Error(), c.blocked) {
			t.Errorf("a Secret of %q: %q, %v", c.secret, got, err)
		}
	}
	b.e.options.Public = true
	if _, err := b.e.resolve(context.Background(), map[string]any{"name": "prod"},
		"x"); !errors.Is(err, engine.ErrAdoption) || !strings.Contains(err.Error(),
		"reads no Secrets") {
		t.Errorf("an agent without access to Secrets: %v", err)
	}
}
