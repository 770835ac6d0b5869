package prepare

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/test/stack"
)

var api *stack.Cluster // shared by the tests of the package

func TestMain(m *testing.M) {
	code := m.Run()
	if api != nil {
		if err := api.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// lab is a real Argo CD with Applications that people made.
type lab struct {
	testing.TB
	cluster *stack.Cluster
	argo    *stack.ArgoCD
	repo    *stack.Repo
	space   string // namespace of workloads, and of the Argo CD with a suffix
}

func newLab(t *testing.T, version, name string, settings map[string]string) *lab {
	t.Helper()
	if api == nil {
		c, err := stack.StartCluster(context.Background(), stack.ClusterOptions{Name: "prepare"})
		if err != nil {
			t.Fatal(err)
		}
		api = c
	}
	l := &lab{TB: t, cluster: api, space: "w-" + name}
	l.must(api.CreateNamespace(t.Context(), l.space))
	var err error
	l.argo, err = stack.StartArgoCD(t.Context(), stack.ArgoOptions{Cluster: api, Version: version,
		Namespace: "argocd-" + name, Refresh: 3 * time.Second, ClusterAdmin: true,
		Settings: settings})
	l.must(err)
	t.Cleanup(func() { l.must(l.argo.Stop()) })
	git, err := stack.StartGit(t.Context(), t.TempDir())
	l.must(err)
	t.Cleanup(func() { _ = git.Stop() })
	l.repo, err = git.CreateRepo(t.Context(), "acme/apps")
	l.must(err)
	l.apply(fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: %s}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`, l.argo.Namespace))
	return l
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) apply(text string) {
	l.Helper()
	u := &unstructured.Unstructured{}
	l.must(yaml.Unmarshal([]byte(text), &u.Object))
	l.must(l.cluster.Apply(l.Context(), u))
}

func (l *lab) commit(files map[string]string) {
	l.Helper()
	_, err := l.repo.Commit(l.Context(), "change", files)
	l.must(err)
}

const homeDestination = "https://kubernetes.default.svc"

// app creates an Application of a folder; options are lines of its syncPolicy.
func (l *lab) app(name, folder, server, namespace, project string, policy ...string) {
	l.Helper()
	text := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %s, namespace: %s}
spec:
  project: %s
  source: {repoURL: %q, path: %s, targetRevision: main}
  destination: {server: %q, namespace: %s}
`, name, l.argo.Namespace, project, l.repo.URL, folder, server, namespace)
	if len(policy) > 0 {
		text += "  syncPolicy:\n    " + strings.Join(policy, "\n    ") + "\n"
	}
	l.apply(text)
}

func (l *lab) get(name string) *unstructured.Unstructured {
	l.Helper()
	u, err := l.cluster.Dynamic().Resource(applications).Namespace(l.argo.Namespace).Get(
		l.Context(), name, metav1.GetOptions{})
	l.must(err)
	return u
}

func (l *lab) until(what string, ok func() bool) {
	l.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(8 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			for _, name := range l.names() {
				l.Logf("%s: %v", name, l.get(name).Object["status"])
			}
			l.Fatalf("not within eight minutes: %s", what)
		}
	}
}

func (l *lab) names() (names []string) {
	all, err := l.cluster.Dynamic().Resource(applications).Namespace(l.argo.Namespace).List(
		l.Context(), metav1.ListOptions{})
	l.must(err)
	for _, u := range all.Items {
		names = append(names, u.GetName())
	}
	return names
}

func (l *lab) status(name string) string {
	s, _, _ := unstructured.NestedString(l.get(name).Object, "status", "sync", "status")
	return s
}

func (l *lab) history(name string) string {
	h, _, _ := unstructured.NestedSlice(l.get(name).Object, "status", "history")
	at, _, _ := unstructured.NestedString(l.get(name).Object, "status", "operationState",
		"startedAt")
	return fmt.Sprintf("%d@%s", len(h), at)
}

// sync syncs an Application once, and waits for its end.
func (l *lab) sync(name string) {
	l.Helper()
	before := l.history(name)
	_, err := l.cluster.Dynamic().Resource(applications).Namespace(l.argo.Namespace).Patch(
		l.Context(), name, types.MergePatchType,
		[]byte(`{"operation":{"initiatedBy":{"username":"people"},"sync":{}}}`),
		metav1.PatchOptions{})
	l.must(err)
	l.until("sync of "+name, func() bool {
		u := l.get(name)
		phase, _, _ := unstructured.NestedString(u.Object, "status", "operationState", "phase")
		return l.history(name) != before && phase == "Succeeded" && u.Object["operation"] == nil
	})
}

// refresh makes Argo CD compare the Applications, and waits until it has.
func (l *lab) refresh(names ...string) {
	l.Helper()
	for _, name := range names {
		_, err := l.cluster.Dynamic().Resource(applications).Namespace(l.argo.Namespace).Patch(
			l.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"hard"}}}`),
			metav1.PatchOptions{})
		l.must(err)
	}
	for _, name := range names {
		l.until("comparison of "+name, func() bool {
			return l.get(name).GetAnnotations()[refresh] == ""
		})
	}
}

func (l *lab) cm(name string) *corev1.ConfigMap {
	cm, err := l.cluster.Client().CoreV1().ConfigMaps(l.space).Get(l.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return cm
}

func configMap(name, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s%s}\ndata: {a: b}\n",
		name, more)
}

func (l *lab) remote() {
	l.Helper()
	token, err := l.cluster.TenantToken(l.Context(), "remote-"+l.space, l.space)
	l.must(err)
	l.must(l.cluster.Apply(l.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "remote", Namespace: l.argo.Namespace,
			Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
		StringData: map[string]string{"name": "remote", "server": l.cluster.Server,
			"namespaces": l.space, "config": fmt.Sprintf(
				`{"bearerToken":%q,"tlsClientConfig":{"caData":%q}}`, token,
				base64.StdEncoding.EncodeToString(l.cluster.CA))}}))
}
