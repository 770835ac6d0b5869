package helm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
)

const (
	gitUser     = "argosy"
	gitPassword = "a password of the test"
)

// The declarations below: one deployment, on the engine and behind the agent, and another on the
// engine that registers itself.
const (
	declared   = "tenants/acme/deployments/web.yaml"
	credential = "tenants/acme/credentials/web.yaml"
	tenant     = "fleet/tenants/acme.yaml"
	prod       = "tenants/acme/environments/prod.yaml"
	factory    = "tenants/acme/environments/factory.yaml"
	onEngine   = "acme/web@prod"
	onEdge     = "acme/web@factory"

	plantEngine = "fleet/engines/plant.yaml"
	plant       = "tenants/acme/environments/plant.yaml"
	pressed     = "tenants/acme/deployments/press.yaml"
	onPlant     = "acme/press@plant"
)

// push makes the repositories: a private one with the workload, and the config repo.
func (w *setup) push() {
	w.t.Helper()
	ctx := w.t.Context()
	w.app = must(w.git.CreateRepo(ctx, "acme/web"))(w.t)
	must(w.app.Commit(ctx, "one workload", map[string]string{"deploy/web.yaml": workload}))(w.t)
	w.app.RequireAuth(gitUser, gitPassword)
	w.config = must(w.git.CreateRepo(ctx, "platform/config"))(w.t)
	must(w.config.Commit(ctx, "the fleet", w.files()))(w.t)
}

const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example.com/web:1"}]}
`

func (w *setup) files() map[string]string {
	files := map[string]string{
		"fleet/fleet.yaml": fmt.Sprintf(
			"kind: Fleet\nmetadata: {name: fleet}\nspec:\n  guards: {maxDeletes: 20, "+
				"maxDeletePercent: 100, alwaysAllowed: 5, window: 1h}\n"+
				"  gitHosts: [%q]\n  clusterHosts: [127.0.0.1]\n  defaults: {sync: {mode: "+
				"automated, prune: true, selfHeal: true}}\n",
			strings.TrimPrefix(w.git.URL, "https://")),
		"fleet/engines/eu-1.yaml": "kind: Engine\nmetadata: {name: eu-1}\nspec:\n  argocd: " +
			"{namespace: " + argoSpace +
			", installationID: eu-1}\n  connection: {inCluster: true}\n" +
			"  region: eu\n  capacity: {applications: 100, environments: 10}\n",
		tenant: fmt.Sprintf(
			"kind: Tenant\nmetadata: {name: acme}\nspec:\n  owners: [\"github:acme/leads\"]\n  "+
				"quota: {environments: 5, deployments: 10, applications: 20}\n"+
				"  repositories: [%q]\n  clusters: [%q, %q]\n  namespaces: [%s]\n  placement: "+
				"{regions: [eu, plant]}\n",
			w.git.URL+"/acme/", w.hub.cluster.Server, w.edge.cluster.Server, workSpace),
		"fleet/tenants/globex.yaml": fmt.Sprintf(
			"kind: Tenant\nmetadata: {name: globex}\nspec:\n  owners: "+
				"[\"github:globex/leads\"]\n  quota: {environments: 5, deployments: 10, "+
				"applications: 20}\n"+
				"  repositories: [\"https://git.example.com/globex/\"]\n  clusters: [%q]\n  "+
				"namespaces: [globex]\n  placement: {regions: [eu]}\n", w.hub.cluster.Server),
		// A repository without anything below tenants/ would be held.
		"tenants/globex/environments/idle.yaml": fmt.Sprintf(
			"kind: ManagedEnvironment\nmetadata: {name: idle}\nspec:\n  cluster: {server: %q, "+
				"caData: %s, credentialsRef: {name: idle}}\n"+
				"  namespaces: [globex]\n  region: eu\n", w.hub.cluster.Server,
			base64.StdEncoding.EncodeToString(w.hub.cluster.CA)),
		prod: fmt.Sprintf(
			"kind: ManagedEnvironment\nmetadata: {name: prod}\nspec:\n  cluster: {server: %q, "+
				"caData: %s, credentialsRef: {name: prod}}\n"+
				"  namespaces: [%s]\n  region: eu\n", w.hub.cluster.Server,
			base64.StdEncoding.EncodeToString(w.hub.cluster.CA), workSpace),
		factory: "kind: ManagedEnvironment\nmetadata: {name: factory}\nspec:\n  agent: " +
			"{argocdNamespace: " + edgeArgo + "}\n  namespaces: [" + workSpace +
			"]\n  region: eu\n",
		credential: fmt.Sprintf(
			"kind: RepositoryCredential\nmetadata: {name: web}\nspec: {repoURL: %q, "+
				"credentialsRef: {name: web-git}}\n", w.app.URL),
		declared: fmt.Sprintf(
			"kind: GitOpsDeployment\nmetadata: {name: web}\nspec:\n  source: {repoURL: %q, "+
				"path: deploy, targetRevision: main}\n"+
				"  destination: {environments: [prod, factory], namespace: %s}\n", w.app.URL,
			workSpace),
	}
	for path, content := range files {
		files[path] = "apiVersion: argosy.dev/v1alpha1\n" + content
	}
	return files
}

// plane is how somebody with a token asks the control plane.
type plane struct {
	*setup
	token string
}

// argosy runs a command of a platform engineer.
func (p plane) argosy(args ...string) (string, error) {
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(p.image, "usr/local/bin/argosy"),
		args...)
	cmd.Env = append(os.Environ(), "ARGOSY_SERVER="+p.hubURL(), "ARGOSY_TOKEN="+p.token,
		"SSL_CERT_FILE="+filepath.Join(p.dir, "ca.pem"))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return errs.String(), err
	}
	return string(out), nil
}

// file is a file with some text.
func (w *setup) file(name, text string) string {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	check(w.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (p plane) must(args ...string) string {
	p.t.Helper()
	out, err := p.argosy(args...)
	if err != nil {
		p.t.Fatalf("argosy %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// sound returns the config repo's problems.
func (p plane) sound() string {
	out, err := p.argosy("get", "problems", "-o", "json")
	var answer struct{ Items []json.RawMessage }
	if err != nil || json.Unmarshal([]byte(out), &answer) != nil || len(answer.Items) > 0 {
		return out
	}
	return ""
}

// healthy returns which Applications are not yet applied, Synced and Healthy.
func (p plane) healthy(want ...string) func() string {
	return func() string {
		out, err := p.argosy("get", "applications", "-o", "json")
		var answer struct{ Items []view.Application }
		if err != nil || json.Unmarshal([]byte(out), &answer) != nil {
			return out
		}
		left := map[string]string{}
		for _, id := range want {
			left[id] = "not there"
		}
		for _, a := range answer.Items {
			id := fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
				Environment: a.Environment}.String()
			left[id] = fmt.Sprintf("%s %s %s %s%s", a.Apply, a.Sync, a.Health, a.ApplyMessage,
				a.Message)
			if example.Healthy(a) && slices.Contains(want, id) {
				delete(left, id)
			}
		}
		if len(left) == 0 {
			return ""
		}
		return fmt.Sprint(left)
	}
}

// followed returns the open points until both agents are connected, have reported since then and
// have done all.
func (p plane) followed(since time.Time) func() string {
	return func() string {
		out, err := p.argosy("get", "agents", "-o", "json")
		var answer struct{ Items []view.Agent }
		if err != nil || json.Unmarshal([]byte(out), &answer) != nil || len(answer.Items) != 2 {
			return out
		}
		for _, a := range answer.Items {
			if !a.Connected || a.Pending != 0 || a.Lag != 0 || a.SeenAt == nil ||
				a.SeenAt.Before(since) {
				return fmt.Sprintf("%+v", a)
			}
		}
		return ""
	}
}

var kinds = []schema.GroupVersionResource{
	{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"},
	{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
	{Version: "v1", Resource: "secrets"},
}

// versions are the versions of the objects that Argosy has made for the Argo CDs, and of the
// workloads and their Pods.
func (w *setup) versions() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, at := range w.instances() {
		note := func(o metav1.Object, kind string) {
			all[at.name+" "+at.namespace+": "+kind+" "+o.GetName()] = fmt.Sprintf("%s at %s, %v",
				o.GetUID(), o.GetResourceVersion(), o.GetDeletionTimestamp())
		}
		for _, kind := range kinds {
			for _, o := range must(at.cluster.Dynamic().Resource(kind).Namespace(at.namespace).List(
				w.t.Context(), metav1.ListOptions{
					LabelSelector: "app.kubernetes.io/managed-by=argosy"}))(w.t).Items {
				note(&o, o.GetKind())
			}
		}
		for _, o := range must(at.cluster.Client().AppsV1().Deployments(at.work).List(w.t.Context(),
			metav1.ListOptions{}))(w.t).Items {
			note(&o, "Deployment")
		}
		for _, o := range must(at.cluster.Client().CoreV1().Pods(at.work).List(w.t.Context(),
			metav1.ListOptions{}))(w.t).Items {
			note(&o, "Pod")
		}
	}
	return all
}

// settled is versions once Argo CD writes no more of it.
func (w *setup) restingVersions() map[string]string {
	w.t.Helper()
	last, unchanged := w.versions(), 0
	eventually(w.t, "Argo CD settles", func() string {
		now := w.versions()
		if unchanged++; !maps.Equal(now, last) {
			unchanged = 0
		}
		last = now
		return map[bool]string{true: "it still writes"}[unchanged < 15]
	})
	if len(last) < 15 { // of each: Application, AppProject, a Secret, the workload, its Pod
		w.t.Errorf("only %v exists", last)
	}
	return last
}

// same compares the objects with those of before.
func (w *setup) same(when string, before, now map[string]string) {
	w.t.Helper()
	if !maps.Equal(before, now) {
		w.t.Errorf("%s: the objects were\n%v\nand are\n%v", when, before, now)
	}
}

// left are the remaining objects of some kinds, of the tenant that leaves.
func (w *setup) left(kinds ...string) func() string {
	return func() string {
		left := ""
		for what := range w.versions() {
			_, object, _ := strings.Cut(what, ": ")
			if kind, name, _ := strings.Cut(object, " "); slices.Contains(kinds, kind) &&
				!strings.HasPrefix(name, "globex-") {
				left += what + "; "
			}
		}
		return left
	}
}
