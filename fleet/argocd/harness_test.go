package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/test/stack"
)

// All tests of the package share one real API server; each test has its own namespace.
var shared struct {
	sync.Mutex
	cluster *stack.Cluster
	audit   string // its audit log
	spaces  atomic.Int64
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if shared.audit != "" {
		_ = os.RemoveAll(filepath.Dir(shared.audit))
	}
	os.Exit(code)
}

func apiServer(t testing.TB) *stack.Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		dir, err := os.MkdirTemp("", "argosy-audit-")
		if err != nil {
			t.Fatal(err)
		}
		shared.audit = filepath.Join(dir, "audit.log")
		c, err := stack.StartCluster(context.Background(), stack.ClusterOptions{
			Name: "argocd-unit", AuditLog: shared.audit})
		if err != nil {
			t.Fatal(err)
		}
		shared.cluster = c
		if err := c.InstallArgoCRDs(context.Background(), "3.5"); err != nil {
			t.Fatal(err)
		}
	}
	return shared.cluster
}

// space creates a namespace with the settings of an Argo CD that does not run.
func space(t testing.TB, c *stack.Cluster) string {
	t.Helper()
	name := fmt.Sprintf("argo-%d", shared.spaces.Add(1))
	if err := c.CreateNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	settings(t, c, name, map[string]any{"application.resourceTrackingMethod": "annotation",
		"installationID": "eu-1",
		"jsonnet.enable": "false", "helm.valuesFileSchemes": ""})
	params(t, c, name, map[string]any{"reposerver.enable.git.submodule": "false"})
	err := c.Apply(t.Context(), &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": argoAPI, "kind": "AppProject",
			"metadata": map[string]any{"name": "default", "namespace": name},
			"spec": map[string]any{
				"sourceRepos": []any{}, "destinations": []any{}}}})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func settings(t testing.TB, c *stack.Cluster, namespace string, data map[string]any) {
	t.Helper()
	putConfigMap(t, c, namespace, "argocd-cm", data)
}

func params(t testing.TB, c *stack.Cluster, namespace string, data map[string]any) {
	t.Helper()
	putConfigMap(t, c, namespace, paramsName, data)
}

func putConfigMap(t testing.TB, c *stack.Cluster, namespace, name string, data map[string]any) {
	t.Helper()
	err := c.Apply(t.Context(), &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "namespace": namespace}, "data": data}})
	if err != nil {
		t.Fatal(err)
	}
}

// requests counts an engine's reads, and the writes that the API server did not refuse: a write
// that a stale watch provokes conflicts, and changes nothing.
type requests struct {
	next   http.RoundTripper
	writes *atomic.Int64
	reads  *atomic.Int64
}

func (r requests) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := r.next.RoundTrip(req)
	switch {
	case req.Method == http.MethodGet:
		r.reads.Add(1)
	case strings.Contains(req.URL.Path, "selfsubjectaccessreviews"):
	case err != nil || res.StatusCode != http.StatusConflict:
		r.writes.Add(1)
	}
	return res, err
}

// outside writes to one namespace like another client.
type outside struct {
	t             testing.TB
	namespace     string
	client        *dynamic.DynamicClient
	writes, reads atomic.Int64
}

func (o *outside) of(key fleet.ObjectKey) dynamic.ResourceInterface {
	r := resourceOf(key.Kind)
	gv, err := schema.ParseGroupVersion(r.apiVersion)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.client.Resource(gv.WithResource(r.plural)).Namespace(o.namespace)
}

func (o *outside) get(key fleet.ObjectKey) *unstructured.Unstructured {
	o.t.Helper()
	u, err := o.of(key).Get(context.Background(), key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return u
}

func (o *outside) Exists(key fleet.ObjectKey) bool { return o.get(key) != nil }

func (o *outside) Field(key fleet.ObjectKey, path string) string {
	o.t.Helper()
	u := o.get(key)
	if u == nil {
		return ""
	}
	path, last, _ := strings.Cut(path, "|")
	var at any = u.Object
	for _, p := range append(strings.Split(path, "."), last) {
		if p == "" {
			break
		}
		m, _ := at.(map[string]any)
		at = m[p]
	}
	switch v := at.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	b, err := json.Marshal(at)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(b)
}

func (o *outside) Merge(key fleet.ObjectKey, patch string) {
	o.t.Helper()
	_, err := o.of(key).Patch(context.Background(), key.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "meddler"})
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *outside) Remove(key fleet.ObjectKey) {
	o.t.Helper()
	o.Merge(key, `{"metadata":{"finalizers":null}}`)
	if err := o.of(key).Delete(context.Background(), key.Name,
		metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		o.t.Fatal(err)
	}
}

func (o *outside) CreateForeign(key fleet.ObjectKey) {
	o.t.Helper()
	r := resourceOf(key.Kind)
	u := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": r.apiVersion, "kind": r.kind,
			"metadata": map[string]any{"name": key.Name}}}
	switch r {
	case applications:
		u.Object["spec"] = map[string]any{"project": "default", "destination": map[string]any{},
			"source": map[string]any{"repoURL": "https://x.example.com/y"}}
	case projects:
		u.Object["spec"] = map[string]any{}
	}
	if _, err := o.of(key).Create(context.Background(), u, metav1.CreateOptions{
		FieldManager: "meddler"}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outside) Writes() int { return int(o.writes.Load()) }

// openFixture returns an engine on a new namespace of the shared API server.
func openFixture(t *testing.T) *enginetest.Fixture {
	c := apiServer(t)
	return fixtureOn(t, c.REST(), space(t, c))
}

func fixtureOn(t testing.TB, config *rest.Config, namespace string) *enginetest.Fixture {
	t.Helper()
	spec := engineSpec()
	spec.ArgoCD.Namespace = namespace
	quiet := rest.CopyConfig(config)
	// the API server warns about Argo CD's finalizers
	quiet.WarningHandler = rest.NoWarnings{}
	out := &outside{t: t, namespace: namespace, client: dynamic.NewForConfigOrDie(quiet)}
	var stopped atomic.Bool
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return requests{next, &out.writes, &out.reads}
	})
	e, err := Connect(testEngine, spec, counted, Options{
		Window: 20 * time.Millisecond, Conflict: 500 * time.Millisecond,
		Retry:   20 * time.Millisecond,
		Stopped: func(fleet.TenantName) bool { return stopped.Load() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &enginetest.Fixture{Name: testEngine, Spec: spec, Engine: e, Render: Renderer{},
		External: out, Stop: stopped.Store,
		Reopen: func(t *testing.T) *enginetest.Fixture { return fixtureOn(t, config, namespace) }}
}

func TestEnginePassesTheConformanceSuite(t *testing.T) {
	enginetest.Run(t, openFixture)
}

var _ engine.Engine = (*Engine)(nil)
