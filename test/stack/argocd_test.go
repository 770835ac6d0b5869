package stack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"argosy.dev/argosy/test/stack"
)

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "applications"}
	appProjects = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "appprojects"}
)

// engine is an instance with what the driver may use of it.
type engine struct {
	*stack.ArgoCD
	objects dynamic.Interface
	core    kubernetes.Interface
}

func startEngine(t *testing.T, o stack.ArgoOptions) engine {
	t.Helper()
	a, err := stack.StartArgoCD(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return engine{a, dynamic.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)}
}

func (e engine) create(t *testing.T, kind schema.GroupVersionResource, name string,
	spec map[string]any) {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{applications: "Application",
		appProjects: "AppProject"}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kinds[kind],
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
	if _, err := e.objects.Resource(kind).Namespace(e.Namespace).Create(t.Context(), o,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e engine) secret(t *testing.T, name, kind string, data map[string]string) {
	t.Helper()
	s := &corev1.Secret{StringData: data, ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"argocd.argoproj.io/secret-type": kind},
	}}
	if _, err := e.core.CoreV1().Secrets(e.Namespace).Create(t.Context(), s,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// environment makes a cluster Secret for the tenant's namespace, and returns the
// server key that Applications name.
func (e engine) environment(t *testing.T, c *stack.Cluster, name, namespace string) string {
	t.Helper()
	token, err := c.TenantToken(t.Context(), name, namespace)
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"bearerToken": token, "tlsClientConfig": map[string]any{"caData": c.CA},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := c.Server + "?managedEnvironment=" + name
	e.secret(t, "cluster-"+name, "cluster", map[string]string{
		"name": name, "server": server, "namespaces": namespace, "config": string(config),
		"project": "acme",
	})
	return server
}

func (e engine) application(t *testing.T, name, repo, path, server, namespace string) {
	t.Helper()
	e.create(t, applications, name, map[string]any{
		"project":     "acme",
		"source":      map[string]any{"repoURL": repo, "path": path, "targetRevision": "main"},
		"destination": map[string]any{"server": server, "namespace": namespace},
		"syncPolicy":  map[string]any{"automated": map[string]any{"prune": true, "selfHeal": true}},
	})
}

// awaitHealthy waits until the Application is Synced and Healthy at the commit.
func (e engine) awaitHealthy(t *testing.T, name, commit string) {
	t.Helper()
	var app *unstructured.Unstructured
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		var err error
		app, err = e.objects.Resource(applications).Namespace(e.Namespace).Get(ctx, name,
			metav1.GetOptions{})
		if err == nil && status(app, "sync", "status") == "Synced" &&
			status(app, "sync", "revision") == commit &&
			status(app, "health", "status") == "Healthy" {
			return
		}
		select {
		case <-ctx.Done():
			text, _ := json.MarshalIndent(app, "", " ")
			log, _ := os.ReadFile(e.Controller.LogFile())
			t.Fatalf("%s %s is not Synced and Healthy at %s: %v\n%s\n%s", e.Version, name, commit,
				err, text, log[max(0, len(log)-3000):])
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func status(o *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, append([]string{"status"}, path...)...)
	return value
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example.com/web:%s"}]}
`

const hook = `apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: BeforeHookCreation}}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: example.com/web:1, command: [migrate]}]}}
`

// appRepo holds the same workload in the three ways that Argo CD renders.
func appRepo(t *testing.T, server *stack.GitServer) *stack.Repo {
	t.Helper()
	repo, err := server.CreateRepo(t.Context(), "acme/web")
	if err != nil {
		t.Fatal(err)
	}
	repo.RequireAuth("bot", "s3cret")
	if _, err := repo.Commit(t.Context(), "three ways", map[string]string{
		"plain/web.yaml":     fmt.Sprintf(deployment, "1"),
		"plain/hook.yaml":    hook,
		"kustomize/web.yaml": fmt.Sprintf(deployment, "1"),
		"kustomize/kustomization.yaml": "resources: [web.yaml]\nimages: [{name: " +
			"example.com/web, newTag: kustomized}]\n",
		"helm/Chart.yaml":         "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"helm/values.yaml":        "tag: helmed\n",
		"helm/templates/web.yaml": fmt.Sprintf(deployment, "{{ .Values.tag }}"),
	}); err != nil {
		t.Fatal(err)
	}
	return repo
}

func TestArgoCD(t *testing.T) {
	git, err := stack.StartGitTLS(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { git.Stop() })
	repo := appRepo(t, git)
	home := startCluster(t, stack.ClusterOptions{Name: "home"})
	far := startCluster(t, stack.ClusterOptions{Name: "far"})

	for _, version := range stack.ArgoVersions {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel() // side by side in one cluster, as in the field
			short := strings.ReplaceAll(version, ".", "-")
			e := startEngine(t, stack.ArgoOptions{
				Cluster: home, Version: version, Namespace: "argocd-" + short, ClusterAdmin: true,
				Refresh: 2 * time.Second, TrustedCAs: map[string][]byte{"127.0.0.1": git.CA},
			})
			if !strings.HasPrefix(e.Version, "v"+version+".") {
				t.Errorf("it is %s", e.Version)
			}
			testAccess(t, e)
			testSync(t, e, home, far, repo, short)
		})
	}
}

// testAccess shows that the driver's account has its rights and no more.
func testAccess(t *testing.T, e engine) {
	t.Helper()
	if _, err := e.core.CoreV1().ConfigMaps(e.Namespace).Get(t.Context(), "argocd-cm",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := e.core.CoreV1().Secrets("kube-system").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list secrets of kube-system: %v, want forbidden", err)
	}
	if _, err := e.objects.Resource(applications).List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list Applications of all namespaces: %v, want forbidden", err)
	}
}

func testSync(t *testing.T, e engine, home, far *stack.Cluster, repo *stack.Repo, short string) {
	near, kust, helm := "near-"+short, "kustomize-"+short, "helm-"+short
	if err := home.CreateNamespace(t.Context(), near); err != nil {
		t.Fatal(err)
	}
	servers := map[string]string{near: "https://kubernetes.default.svc",
		kust: e.environment(t, far, kust, kust), helm: e.environment(t, far, helm, helm)}
	destinations := []any{}
	for namespace, server := range servers {
		destinations = append(destinations, map[string]any{
			"server": server, "namespace": namespace})
	}
	e.create(t, appProjects, "acme", map[string]any{"sourceRepos": []any{repo.URL},
		"destinations": destinations})
	e.secret(t, "repo", "repository", map[string]string{
		"type": "git", "url": repo.URL, "username": "bot", "password": "s3cret", "project": "acme",
	})
	head, err := repo.Head(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{near: "plain", kust: "kustomize", helm: "helm"}
	for namespace, path := range paths {
		e.application(t, path, repo.URL, path, servers[namespace], namespace)
	}
	for _, path := range paths {
		e.awaitHealthy(t, path, head)
	}
	got := map[string]string{near: image(t, home, near), kust: image(t, far, kust),
		helm: image(t, far, helm)}
	want := map[string]string{near: "example.com/web:1", kust: "example.com/web:kustomized",
		helm: "example.com/web:helmed"}
	if !maps.Equal(got, want) {
		t.Errorf("the workloads are %v, want %v", got, want)
	}
	if job, err := home.Client().BatchV1().Jobs(near).Get(t.Context(), "migrate",
		metav1.GetOptions{}); err != nil || job.Status.Succeeded != 1 {
		t.Errorf("the hook: %v, %v", job.Status, err)
	}

	// After a crash it goes on where it was.
	e.Controller.Kill()
	e.Redis.Kill()
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	scale(t, far, kust)
	e.awaitHealthy(t, "kustomize", head)
	eventually(t, "a change by hand is healed", func() bool { return replicas(t, far, kust) == 2 })

	// An Application without a project of its own may do nothing.
	e.create(t, applications, "stray", map[string]any{
		"project": "default", "source": map[string]any{"repoURL": repo.URL, "path": "plain",
			"targetRevision": "main"},
		"destination": map[string]any{"server": "https://kubernetes.default.svc",
			"namespace": near},
	})
	eventually(t, "the default project refuses", func() bool {
		app, err := e.objects.Resource(applications).Namespace(e.Namespace).Get(t.Context(),
			"stray", metav1.GetOptions{})
		return err == nil && strings.Contains(fmt.Sprint(app.Object["status"]), "InvalidSpecError")
	})
}

// scale changes the workload behind Argo CD's back.
func scale(t *testing.T, c *stack.Cluster, namespace string) {
	t.Helper()
	patch := []byte(`{"spec":{"replicas":5}}`)
	if _, err := c.Client().AppsV1().Deployments(namespace).Patch(t.Context(), "web",
		types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func replicas(t *testing.T, c *stack.Cluster, namespace string) int32 {
	t.Helper()
	d, err := c.Client().AppsV1().Deployments(namespace).Get(t.Context(), "web",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *d.Spec.Replicas
}

// image is that of the workload as it lives in the cluster.
func image(t *testing.T, c *stack.Cluster, namespace string) string {
	t.Helper()
	d, err := c.Client().AppsV1().Deployments(namespace).Get(t.Context(), "web",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}
