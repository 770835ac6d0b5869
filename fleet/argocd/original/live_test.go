package original_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/original"
	"argosy.dev/argosy/test/stack"
)

const child = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: NAME, namespace: argocd-import}
spec:
  project: shop
  source: {repoURL: "https://git.example.com/acme/NAME", path: deploy, targetRevision: main}
  destination: {server: "https://kubernetes.default.svc", namespace: NAME}
`

const project = `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop, namespace: argocd-import}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// A real Argo CD syncs an app of apps. The import reads it over a kubeconfig, replaces the parent,
// and proves the children. A second account may not list Secrets: the rest is imported.
func TestALiveArgoCDIsImported(t *testing.T) {
	t.Parallel()
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) { liveImport(t, version) })
	}
}

func liveImport(t *testing.T, version string) {
	t.Helper()
	ctx := t.Context()
	cluster, err := stack.StartCluster(ctx, stack.ClusterOptions{Name: "import"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	argo, err := stack.StartArgoCD(
		ctx, stack.ArgoOptions{
			Cluster: cluster, Version: version,
			Namespace: "argocd-import", Refresh: 3 * time.Second, Open: true, ClusterAdmin: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = argo.Stop() })
	git, err := stack.StartGit(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Stop() })
	repo, err := git.CreateRepo(ctx, "acme/apps")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(ctx, "first", map[string]string{
		"children/checkout.yaml": strings.ReplaceAll(child, "NAME", "checkout"),
		"children/cart.yaml":     strings.ReplaceAll(child, "NAME", "cart")}); err != nil {
		t.Fatal(err)
	}
	parent := strings.NewReplacer("https://git.example.com/acme/NAME", repo.URL, "path: deploy",
		"path: children", "namespace: NAME}", "namespace: argocd-import}\n"+
			"  syncPolicy: {automated: {}}", "NAME", "root").Replace(child)
	if err := cluster.Apply(ctx, object(t, project), object(t, parent)); err != nil {
		t.Fatal(err)
	}
	await(t, cluster, func(objects []map[string]any) bool {
		outcome := imported(t, objects)
		return status(outcome, "root") == adoption.Changed &&
			status(outcome, "checkout") == adoption.Exact &&
			status(outcome, "cart") == adoption.Exact
	})

	config, err := original.Kubeconfig(argo.Kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	objects, unread, err := original.Read(ctx, config, "", nil)
	if err == nil || len(objects) != 0 || !strings.Contains(err.Error(), "list applications:") ||
		!strings.Contains(err.Error(), "--namespace") {
		t.Errorf("an account of one namespace read all: %d objects, %q, %v", len(objects), unread,
			err)
	}
	last := map[string]int{}
	objects, unread, err = original.Read(ctx, config, "argocd-import",
		func(kind string, objects int) { last[kind] = objects })
	if err != nil || len(objects) < 4 || len(unread) != 1 ||
		!strings.Contains(unread[0], "applicationsets") {
		t.Errorf("%d objects, unread %q, %v", len(objects), unread, err)
	}
	if last["Application"] != 3 || last["AppProject"] < 1 {
		t.Errorf("the progress ends with %v", last)
	}
}

func await(t *testing.T, cluster *stack.Cluster, is func([]map[string]any) bool) {
	t.Helper()
	config, err := original.Kubeconfig(cluster.Kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(8 * time.Minute); ; <-tick.C {
		objects, unread, err := original.Read(t.Context(), config, "", nil)
		if err != nil || len(unread) > 0 {
			t.Fatalf("%v, unread %q", err, unread)
		}
		if is(objects) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not after eight minutes: %+v", imported(t, objects).Report)
		}
	}
}

func imported(t *testing.T, objects []map[string]any) *adoption.Outcome {
	t.Helper()
	var in adoption.Input
	for _, o := range objects {
		in.Originals = append(in.Originals, adoption.FromObject("", o)...)
	}
	outcome, err := adoption.Import(in, options, tools)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range configschema.Check(outcome.Files) {
		if p.Severity == fleet.SeverityError {
			t.Errorf("%s", p)
		}
	}
	return outcome
}

func status(o *adoption.Outcome, name string) adoption.Status {
	for _, r := range o.Report.Objects {
		if r.Name == name && r.Kind == adoption.KindApplication {
			return r.Status
		}
	}
	return ""
}
