package charts

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/test/stack"
)

// lab is a real cluster with helm.
type lab struct {
	*stack.Cluster
	t *testing.T
}

func openLab(t *testing.T) lab {
	t.Helper()
	c, err := stack.StartCluster(t.Context(), stack.ClusterOptions{Name: "charts"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return lab{c, t}
}

func (l lab) helm(args ...string) {
	l.t.Helper()
	if out, errs, err := run(l.t, nil, "helm",
		append(args, "--kubeconfig", l.Kubeconfig)...); err != nil {
		l.t.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
}

// unbound returns copies of the charts without the constraint on the version of Kubernetes: the
// lab's API server is built without the flags that set its version.
func unbound(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, chart := range []string{"argosy", "argosy-agent", "argosy-engine"} {
		if err := os.CopyFS(filepath.Join(dir, chart), os.DirFS(chart)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, chart, "Chart.yaml")
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.Split(string(content), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "kubeVersion:")
		})
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// as returns a connection with the token of a ServiceAccount, like a Pod of the chart.
func (l lab) as(namespace, account string) *rest.Config {
	l.t.Helper()
	token, err := l.Client().CoreV1().ServiceAccounts(namespace).CreateToken(l.t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return &rest.Config{Host: l.Server, BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: l.CA}}
}

// fit runs the control plane's own preflight with the rights of an account.
func (l lab) fit(what string, config *rest.Config, o argocd.Options) {
	l.t.Helper()
	o.Stopped = func(fleet.TenantName) bool { return true }
	spec := fleet.EngineSpec{ArgoCD: fleet.ArgoCDInstance{Namespace: "argocd-eu-1",
		InstallationID: "eu-1"}}
	engine, err := argocd.Connect("eu-1", spec, config, o)
	if err != nil {
		l.t.Fatal(err)
	}
	report, err := engine.Preflight(l.t.Context())
	if err != nil || len(report.Findings) > 0 || report.Version != "v3.5.7" {
		l.t.Errorf("%s: Argo CD %s: %v, %v", what, report.Version, report.Findings, err)
	}
}

// may reports whether an account has a right on Secrets of a namespace.
func may(t *testing.T, config *rest.Config, verb, namespace string) bool {
	t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "secrets",
				Namespace: namespace}}}
	answer, err := kubernetes.NewForConfigOrDie(
		config).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
	Resource: "applications"}

// application creates an Application of the fleet and returns its UID.
func (l lab) application() string {
	l.t.Helper()
	made, err := l.Dynamic().Resource(applications).Namespace("argocd-eu-1").Create(l.t.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{
				"name": "checkout"},
			"spec": map[string]any{"project": "acme", "source": map[string]any{
				"repoURL": "https://git.example.com/x", "path": "."},
				"destination": map[string]any{"server": "https://kubernetes.default.svc",
					"namespace": "x"}},
		}}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return string(made.GetUID())
}

func (l lab) untouched(what, uid string) {
	l.t.Helper()
	have, err := l.Dynamic().Resource(applications).Namespace("argocd-eu-1").Get(l.t.Context(),
		"checkout", metav1.GetOptions{})
	if err != nil || string(have.GetUID()) != uid || have.GetDeletionTimestamp() != nil ||
		have.GetGeneration() != 1 {
		l.t.Errorf("%s: the Application is %v, %v", what, have, err)
	}
}

func (l lab) secretKey(ctx context.Context) string {
	l.t.Helper()
	s, err := l.Client().CoreV1().Secrets("argocd-eu-1").Get(ctx, "argocd-secret",
		metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return string(s.Data["server.secretkey"])
}

func TestInstallUpgradeUninstallAndInstallAgain(t *testing.T) {
	l, charts := openLab(t), unbound(t)
	if err := l.CreateNamespace(t.Context(), "argosy-tenant-acme"); err != nil {
		t.Fatal(err)
	}
	values := filepath.Join(t.TempDir(), "engine.yaml")
	if err := os.WriteFile(values, []byte(`
installationID: eu-1
access: {token: {create: true}, serviceAccounts: [{name: argosy, namespace: hub}]}
registration: {enabled: true}
agent: {namespaceOverride: argocd-eu-1-agent, hub: {url: "https://argosy.example.com"}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	installEngine := func() {
		t.Helper()
		l.helm("install", "eu-1", filepath.Join(charts, "argosy-engine"), "--namespace",
			"argocd-eu-1", "--create-namespace", "--values", values)
	}
	installHub := func() {
		t.Helper()
		l.helm(append([]string{"install", "argosy", filepath.Join(charts, "argosy"), "--namespace",
			"hub", "--create-namespace", "--set", "secrets.kubernetes.tenants={acme}"},
			ci("argosy", "min")...)...)
	}
	installEngine()
	installHub()
	l.fit("the account that is carried elsewhere", l.as("argocd-eu-1", "argosy"), argocd.Options{})
	l.fit("the control plane's own account", l.as("hub", "argosy"), argocd.Options{})
	l.fit("the agent", l.as("argocd-eu-1-agent", "argosy-agent"), argocd.Options{NoParams: true})
	hub := l.as("hub", "argosy")
	for namespace, want := range map[string]bool{"hub": true, "argosy-tenant-acme": true,
		"kube-system": false, "argocd-eu-1-agent": false} {
		if may(t, hub, "watch", namespace) != want {
			t.Errorf("the control plane may watch Secrets in %s: %v", namespace, !want)
		}
		if may(t, hub, "create", namespace) {
			t.Errorf("the control plane may make Secrets in %s", namespace)
		}
	}

	uid, key := l.application(), l.secretKey(t.Context())
	l.helm("upgrade", "eu-1", filepath.Join(charts, "argosy-engine"), "--namespace", "argocd-eu-1",
		"--values", values, "--set", "repoServer.replicas=2")
	if key == "" || l.secretKey(t.Context()) != key {
		t.Error("an upgrade changes the instance's key")
	}
	l.untouched("after an upgrade", uid)

	l.helm("uninstall", "argosy", "--namespace", "hub")
	l.helm("uninstall", "eu-1", "--namespace", "argocd-eu-1")
	l.untouched("after the charts are gone", uid)
	if _, err := l.Client().CoreV1().Namespaces().Get(t.Context(), "argocd-eu-1-agent",
		metav1.GetOptions{}); err != nil {
		t.Errorf("the agent's namespace, with its keys: %v", err)
	}
	installEngine()
	installHub()
	l.untouched("installed again", uid)
	l.fit("installed again", l.as("hub", "argosy"), argocd.Options{})
}
