package argocd

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// canaryServer is an address that no repository may make the repo-server dial.
type canaryServer struct {
	url  string
	mu   sync.Mutex
	seen map[string]int // requests by first path segment
}

func startCanary(t *testing.T) *canaryServer {
	t.Helper()
	c := &canaryServer{seen: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		segment, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		c.mu.Lock()
		c.seen[segment]++
		c.mu.Unlock()
		switch segment {
		case "values.yaml":
			fmt.Fprint(w, "value: from the canary\n")
		case "resource.yaml":
			fmt.Fprint(w, configMap("remote", "from the canary"))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *canaryServer) dialled(segment string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[segment] > 0
}

const chartOfOne = "apiVersion: v2\nname: one\nversion: 1.0.0\n"

const helmConfigMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: helm}\ndata: {value: {{ .Values.value | quote }}}\n"

// hostile is a repository and its Application.
type hostile struct {
	name  string
	files map[string]string
}

func hostileRepos(c *canaryServer, sourceFile string) []hostile {
	chart := map[string]string{"app/Chart.yaml": chartOfOne, "app/values.yaml": "value: declared\n",
		"app/templates/cm.yaml": helmConfigMap}
	overridden := map[string]string{"app/.argocd-source.yaml": "helm: {valueFiles: ['" + c.url +
		"/values.yaml']}\n"}
	named := map[string]string{
		"app/" + sourceFile: "helm: {parameters: [{name: value, value: overridden}]}\n"}
	for path, content := range chart {
		overridden[path], named[path] = content, strings.ReplaceAll(content, "{name: helm}",
			"{name: named}")
	}
	return []hostile{
		{"jsonnet", map[string]string{"app/cm.yaml": configMap("plain", "plain"),
			"app/env.jsonnet": "{apiVersion:'v1',kind:'ConfigMap',metadata:{name:'stolen'},data:{value:std.base64(importstr '/proc/self/environ')}}"}},
		{"override", overridden},
		{"named", named},
		{"remote-values", map[string]string{"app/Chart.yaml": chartOfOne,
			"app/values.yaml": "value: declared\n",
			"app/templates/cm.yaml": strings.ReplaceAll(helmConfigMap, "{name: helm}",
				"{name: values}")}},
		{"submodule", map[string]string{"app/cm.yaml": configMap("module", "own"),
			".gitmodules": "[submodule \"sub\"]\n\tpath = sub\n\turl = " + c.url + "/submodule\n"}},
		{"base", map[string]string{"app/kustomization.yaml": "resources: ['git::" + c.url +
			"/base.git?ref=main']\n"}},
		{"resource", map[string]string{"app/kustomization.yaml": "resources: ['" + c.url +
			"/resource.yaml']\n"}},
	}
}

// condition returns Argo CD's error conditions of an Application.
func (w *argoLab) condition(key fleet.ObjectKey) string {
	w.Helper()
	app, err := w.applications().Get(w.Context(), key.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(app.Object, "status", "conditions")
	return fmt.Sprint(conditions)
}

// A repository reaches only itself through the repo-server. Against a default Argo CD, the same
// repositories reach everything: the difference is the engine chart and the settings that preflight
// requires.
func TestRepositoriesReachNothingThroughTheSharedRepoServer(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s open %t", version, open), func(t *testing.T) {
				suffix := fmt.Sprintf("apart-%s-%t", strings.ReplaceAll(version, ".", "-"), open)
				w := newArgoLabWith(t, suffix, stack.ArgoOptions{Version: version, Open: open})
				w.repositoriesReach(startCanary(t), open, version == "2.14")
			})
		}
	}
}

// repositoriesReach: with files, jsonnet reads files outside of the repository, as up to 3.2.
func (w *argoLab) repositoriesReach(c *canaryServer, open, files bool) {
	w.Helper()
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA)
	if err != nil {
		w.Fatal(err)
	}
	named := fleet.ApplicationName(fleet.ApplicationID{Tenant: acme, Deployment: "named",
		Environment: prodEU.Name})
	hostiles := hostileRepos(c, ".argocd-source-"+named+".yaml")
	repos := map[string]*stack.Repo{}
	project := projectObject(acme)
	project.Project.SourceRepos, project.Project.ClusterResources = nil, nil
	for _, h := range hostiles {
		repo, err := w.git.CreateRepo(w.Context(), "evil/"+h.name)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := repo.Commit(w.Context(), "hostile", h.files); err != nil {
			w.Fatal(err)
		}
		repos[h.name] = repo
		project.Project.SourceRepos = append(project.Project.SourceRepos, repo.URL)
	}
	w.gitlink(repos["submodule"])
	foundation := w.foundation(prodEU, w.spaceA)
	project.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(w.cluster.Server, prodEU), Namespace: w.spaceA}}
	w.apply(w.row(project, ""), fleet.Secret{})
	w.apply(foundation[1], fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	keys := map[string]fleet.ObjectKey{}
	for _, h := range hostiles {
		id := fleet.ApplicationID{Tenant: acme, Deployment: fleet.DeploymentName(h.name),
			Environment: prodEU.Name}
		app := w.app(id, "app", w.spaceA, fleet.DeletionOrphan, func(a *fleet.Application) {
			a.Sources[0].RepoURL = repos[h.name].URL
		})
		w.apply(app, fleet.Secret{})
		keys[h.name] = app.Key
	}
	// No declaration can contain this: value files by URL.
	patch := []byte(`{"spec":{"source":{"helm":{"valueFiles":["` + c.url + `/values.yaml"]}}}}`)
	if _, err := w.applications().Patch(w.Context(), keys["remote-values"].Name,
		types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "meddler"}); err != nil {
		w.Fatal(err)
	}

	value := func(name string) string { got, _ := w.value(w.spaceA, name); return got }
	w.until("the plain manifests are there", func() bool {
		return (value("plain") != "" || open && !files) &&
			(open || value("module") == "own")
	})
	w.until("only the network closes a remote resource", func() bool {
		return c.dialled("resource.yaml") && value("remote") == "from the canary"
	})
	if open {
		w.until("jsonnet has read the environment", func() bool {
			if !files {
				return strings.Contains(w.condition(keys["jsonnet"]), "outside repository root")
			}
			environment, err := base64.StdEncoding.DecodeString(value("stolen"))
			return err == nil && strings.Contains(string(environment), "REDIS_PASSWORD=")
		})
		w.until("the source files count", func() bool {
			return value("helm") == "from the canary" &&
				value("named") == "overridden"
		})
		w.until("all are dialled", func() bool {
			return c.dialled("submodule") && c.dialled("base.git") &&
				value("values") == "from the canary"
		})
		return
	}
	for name, text := range map[string]string{
		"override":      "Argosy refuses a revision with app/.argocd-source.yaml",
		"named":         "Argosy refuses a revision with app/.argocd-source-" + named + ".yaml",
		"remote-values": "not allowed", "base": "transport 'http' not allowed",
	} {
		w.until(name+" is refused and the reason is shown", func() bool {
			return strings.Contains(w.condition(keys[name]), text)
		})
	}
	for _, name := range []string{"stolen", "helm", "named"} {
		if got := value(name); got != "" {
			w.Errorf("ConfigMap %s has %q", name, got)
		}
	}
	if got := value("values"); got == "from the canary" {
		w.Errorf("ConfigMap values has %q", got)
	}
	for _, segment := range []string{"values.yaml", "submodule", "base.git"} {
		if c.dialled(segment) {
			w.Errorf("the repo-server has dialled %s", segment)
		}
	}
	w.sharesClones(token)
}

// sharesClones follows repositoriesReach: Argo CD itself gives a tenant without a credential the
// content of a private repository that another tenant reads. The repo-server keeps one clone and
// one list of references for each URL, and never asks with the credential of the second tenant. So
// the planner keeps such tenants on different engines.
func (w *argoLab) sharesClones(token string) {
	w.Helper()
	rev := w.commit(map[string]string{"clone/cm.yaml": configMap("clone", "private"),
		"branch/cm.yaml": configMap("branch", "private"),
		"commit/cm.yaml": configMap("commit", "private"),
		"later/cm.yaml":  configMap("later", "private"),
		"last/cm.yaml":   configMap("last", "private")})
	w.repo.RequireAuth("reader", "kept-in-a-secret")
	alone, err := w.git.CreateRepo(w.Context(), "acme/alone")
	if err != nil {
		w.Fatal(err)
	}
	if _, err := alone.Commit(w.Context(), "alone", map[string]string{
		"branch/cm.yaml": configMap("alone", "private")}); err != nil {
		w.Fatal(err)
	}
	alone.RequireAuth("reader", "kept-in-a-secret")

	foundation := w.foundation(prodEU, w.spaceA)
	for _, row := range foundation {
		w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	}
	refused := []string{"authentication required", "could not read Username"}
	reader := w.row(repositoryOf("git", w.repo.URL), "")
	w.apply(reader, fleet.NewSecret(map[string][]byte{
		"username": []byte("reader"), "password": []byte("kept-in-a-secret")}))
	app := w.app(fleet.ApplicationID{Tenant: acme, Deployment: "clone", Environment: prodEU.Name},
		"clone", w.spaceA, fleet.DeletionOrphan, nil)
	w.apply(app, fleet.Secret{})
	w.observed("the private repository is deployed with its credential", app.Key, synced)

	other := fleet.EnvironmentID{Tenant: "globex", Name: "prod-eu"}
	own, err := w.cluster.TenantToken(w.Context(), "globex-"+w.spaceB, w.spaceB)
	if err != nil {
		w.Fatal(err)
	}
	project := projectObject(other.Tenant)
	project.Project.SourceRepos = []string{w.repo.URL, alone.URL}
	project.Project.ClusterResources = nil
	project.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(w.cluster.Server, other), Namespace: w.spaceB}}
	w.apply(w.row(project, ""), fleet.Secret{})
	w.apply(w.foundation(other, w.spaceB)[1],
		fleet.NewSecret(map[string][]byte{"token": []byte(own)}))
	deploy := func(name string, source fleet.Source) fleet.ObjectKey {
		id := fleet.ApplicationID{Tenant: other.Tenant, Deployment: fleet.DeploymentName(name),
			Environment: other.Name}
		row := w.app(id, source.Path, w.spaceB, fleet.DeletionOrphan, func(a *fleet.Application) {
			a.Sources[0] = source
		})
		w.apply(row, fleet.Secret{})
		return row.Key
	}
	bySHA := func(name string) fleet.ObjectKey {
		return deploy(name, fleet.Source{RepoURL: w.repo.URL, Path: name, TargetRevision: rev})
	}
	has := func(name string) {
		w.until("a tenant without a credential has "+name+" of another one's clone", func() bool {
			got, _ := w.value(w.spaceB, name)
			return got == "private"
		})
	}
	w.denied(deploy("alone", fleet.Source{RepoURL: alone.URL, Path: "branch",
		TargetRevision: "main"}), refused...)
	bySHA("commit")
	deploy("branch", fleet.Source{RepoURL: w.repo.URL, Path: "branch", TargetRevision: "main"})
	has("commit")
	has("branch")

	// The clone outlives its reader and the container, but not the Pod and its volume.
	for _, row := range []mirror.Row{app, reader} {
		err := w.people(row).Delete(w.Context(), w.of(row).GetName(), metav1.DeleteOptions{})
		if err != nil {
			w.Fatal(err)
		}
	}
	w.restartRepoServer(false)
	bySHA("later")
	has("later")
	w.restartRepoServer(true)
	w.denied(bySHA("last"), refused...)
}

// restartRepoServer restarts its container, or replaces its Pod.
func (w *argoLab) restartRepoServer(replace bool) {
	w.Helper()
	w.argo.RepoServer.Stop()
	if replace {
		clones := filepath.Join(w.argo.Dir, "tmp", "_argocd-repo")
		if err := os.Chmod(clones, 0o700); err != nil {
			w.Fatal(err)
		}
		if err := os.RemoveAll(clones); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.argo.Start(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// gitlink records a submodule, like `git submodule add`.
func (w *argoLab) gitlink(repo *stack.Repo) {
	w.Helper()
	git := func(args ...string) string {
		out, err := repo.Git(w.Context(), args...)
		if err != nil {
			w.Fatal(err)
		}
		return out
	}
	head := git("rev-parse", "main")
	git("read-tree", "main")
	git("update-index", "--add", "--cacheinfo", "160000,"+head+",sub")
	identity := []string{"-c", "user.name=Evil", "-c", "user.email=evil@example.com"}
	git("update-ref", "refs/heads/main",
		git(append(identity, "commit-tree", git("write-tree"), "-p", head, "-m", "submodule")...))
}

func (w *argoLab) applications() dynamic.ResourceInterface {
	kind := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: "applications"}
	return w.cluster.Dynamic().Resource(kind).Namespace(w.spec.ArgoCD.Namespace)
}
