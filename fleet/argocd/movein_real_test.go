package argocd

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/original"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// movingIn are Applications of a shared Argo CD: one by hand in Argo CD's own namespace, one of
// another project in kube-system, one of a team, and those of an ApplicationSet over two clusters.
const movingIn = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop, namespace: ARGOCD}
spec:
  sourceRepos: [REPO]
  destinations:
  - {server: "https://kubernetes.default.svc", namespace: SPACE}
  - {server: "https://kubernetes.default.svc", namespace: kube-system}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: ops, namespace: ARGOCD}
spec:
  sourceRepos: [REPO]
  destinations: [{server: "https://kubernetes.default.svc", namespace: ARGOCD}]
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: settings, namespace: ARGOCD}
spec:
  project: ops
  source: {repoURL: REPO, path: settings, targetRevision: main}
  destination: {server: "https://kubernetes.default.svc", namespace: ARGOCD}
  syncPolicy: {automated: {prune: true, selfHeal: true}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: dns, namespace: ARGOCD}
spec:
  project: shop
  source: {repoURL: REPO, path: dns, targetRevision: main}
  destination: {name: in-cluster, namespace: kube-system}
  syncPolicy: {automated: {prune: true, selfHeal: true}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: checkout, namespace: ARGOCD}
spec:
  project: shop
  source: {repoURL: REPO, path: checkout, targetRevision: main}
  destination: {server: "https://kubernetes.default.svc", namespace: SPACE}
  syncPolicy: {automated: {prune: true, selfHeal: true}}
`

// overClusters is an ApplicationSet that takes its repository, a folder and a value from the labels
// and annotations of its clusters.
const overClusters = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: web, namespace: ARGOCD}
spec:
  sourceRepos: [REPO]
  destinations: [{server: "*", namespace: WEB}]
---
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: web, namespace: ARGOCD}
spec:
  goTemplate: true
  goTemplateOptions: ["missingkey=error"]
  generators: [{clusters: {selector: {matchLabels: {tier: prod}}}}]
  template:
    metadata: {name: "web-{{.name}}"}
    spec:
      project: web
      source:
        repoURL: "{{.metadata.annotations.repository}}"
        path: web
        targetRevision: main
        helm:
          valueFiles: ["zones/{{.metadata.labels.zone}}.yaml"]
          values: |
            account: "{{index .metadata.annotations "example.com/account"}}"
            host: {{.name}}.example.com
      destination: {server: "{{.server}}", namespace: WEB}
      syncPolicy: {automated: {prune: true, selfHeal: true}}
`

const webChart = `apiVersion: v1
kind: ConfigMap
metadata: {name: web-{{ .Values.zone }}}
data: {value: "{{ .Values.zone }} {{ .Values.account }} {{ .Values.host }}"}
`

// movesIn: a shared Argo CD is imported, the printed commands are run, and its Applications are
// adopted without a sync: those of the platform's own tenant, of another one, and those of an
// ApplicationSet over clusters, first by the variables of environments and then as the live import
// writes them. The tenants stay apart.
func (w *argoLab) movesIn() {
	w.Helper()
	m := &moving{load: &load{argoLab: w, n: 5, generates: true, started: time.Now()}}
	m.create()
	m.lap("created and synced")
	live := m.imports(m.objects(), adoption.Options{PlatformTenant: "platform", Adopt: true})
	m.givesToThePlatform(live)
	inGit := m.imports(m.manifests(overClusters), adoption.Options{Annotations: map[string]string{
		"repository": w.repo.URL}})
	m.run(live.Report.Commands)
	m.lap("imported, and the commands run")
	m.releaseFromSet()
	m.lap("released from the ApplicationSet")
	before := m.state()

	imported := m.rows(live.Files)
	byVariables := ofTenant(m.rows(m.withVariables(live.Files, inGit.Files, zones)), "web")
	m.refuses(ofTenant(m.rows(m.withVariables(live.Files, inGit.Files,
		map[string][2]string{"eu": zones["eu"], "us": {"b", "333"}})), "web"))
	m.takeOver(slices.Concat(withoutTenant(imported, "web"), byVariables))
	m.adopted("the adoption by variables", before)
	m.lap("adopted by variables")
	m.staysApart()
	m.lap("kept apart")
	m.giveBack(byVariables)
	m.takeOver(ofTenant(imported, "web"))
	m.adopted("the adoption of the live import", before)
	m.lap("adopted as imported")
	m.giveBack(imported)
	m.until("all are compared where they were", func() bool {
		return !slices.ContainsFunc(m.all(), func(a loadApp) bool {
			return a.busy() || strings.Contains(a.Status.Sync.ComparedTo.Destination.Server, "?")
		})
	})
	m.unchangedSince("the release", before)
	m.lap("released")
}

// moving is an Argo CD whose Applications move in.
type moving struct{ *load }

// manifests are the objects of a text, as a repository has them.
func (m *moving) manifests(text string) []map[string]any {
	m.Helper()
	text = strings.NewReplacer("ARGOCD", m.spec.ArgoCD.Namespace, "REPO", m.repo.URL, "SPACE",
		m.spaceA, "WEB", m.spaceB).Replace(text)
	var all []map[string]any
	for _, document := range strings.Split(text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			m.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// create makes the Applications and waits until Argo CD has nothing left to do.
func (m *moving) create() {
	m.Helper()
	chart := map[string]string{"web/Chart.yaml": strings.ReplaceAll(chartOfOne, "name: one",
		"name: web"), "web/templates/cm.yaml": webChart}
	for _, zone := range []string{"a", "b"} {
		chart["web/zones/"+zone+".yaml"] = "zone: " + zone + "\n"
	}
	m.commit(chart)
	m.commit(map[string]string{
		"settings/cm.yaml": configMap("settings", "one"),
		"dns/cm.yaml":      configMap(m.dns(), "one"),
		"checkout/cm.yaml": configMap("checkout", "one"),
		"thief/cm.yaml": configMap("thief", "own") + "---\n" + strings.Replace(
			configMap("thief", "stolen"), "metadata: {", "metadata: {namespace: "+
				m.spec.ArgoCD.Namespace+", ", 1),
		"spy/cm.yaml": strings.Replace(configMap("spy", "stolen"), "metadata: {",
			"metadata: {namespace: "+m.spaceA+", ", 1)})
	if err := m.cluster.CreateNamespace(m.Context(), m.spaceA); err != nil {
		m.Fatal(err)
	}
	token, err := m.cluster.TenantToken(m.Context(), "web-"+m.spaceB, m.spaceB)
	if err != nil {
		m.Fatal(err)
	}
	m.token = token
	for name, server := range map[string]string{"eu": m.cluster.Server, "us": strings.Replace(
		m.cluster.Server, "127.0.0.1", "localhost", 1)} {
		zone, account := zones[name][0], zones[name][1]
		config := fmt.Sprintf(`{"bearerToken":%q,"tlsClientConfig":{"caData":%q}}`, token,
			base64.StdEncoding.EncodeToString(m.cluster.CA))
		if err := m.cluster.Apply(m.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: m.spec.ArgoCD.Namespace, Labels: map[string]string{
				labelSecretType: "cluster", "tier": "prod", "zone": zone},
			Annotations: map[string]string{"repository": m.repo.URL,
				"example.com/account": account}},
			StringData: map[string]string{"name": name, "server": server,
				"namespaces": m.spaceB, "config": config}}); err != nil {
			m.Fatal(err)
		}
	}
	for _, o := range append(m.manifests(movingIn), m.manifests(overClusters)...) {
		if err := m.cluster.Apply(m.Context(), &unstructured.Unstructured{Object: o}); err != nil {
			m.Fatal(err)
		}
	}
	m.until("all are synced and healthy", func() bool {
		all := m.all()
		return len(all) == m.n && !slices.ContainsFunc(all, loadApp.busy)
	})
	m.compared("all are compared after their syncs")
	for _, zone := range []string{"a 111 eu", "b 222 us"} {
		if got, _ := m.value(m.spaceB, "web-"+zone[:1]); got != zone+".example.com" {
			m.Errorf("the ApplicationSet has deployed %q", got)
		}
	}
}

// zones are the zone and the account of each cluster.
var zones = map[string][2]string{"eu": {"a", "111"}, "us": {"b", "222"}}

func (m *moving) dns() string { return "dns-" + m.spaceA }

// objects are the live objects of Argo CD.
func (m *moving) objects() []map[string]any {
	m.Helper()
	config, err := original.Kubeconfig(m.cluster.Kubeconfig, "")
	if err != nil {
		m.Fatal(err)
	}
	objects, unread, err := original.Read(m.Context(), config, m.spec.ArgoCD.Namespace, nil)
	if err != nil || len(unread) > 0 {
		m.Fatalf("%v, unread %q", err, unread)
	}
	return objects
}

// imports imports objects. The files validate, and nothing is refused.
func (m *moving) imports(objects []map[string]any, o adoption.Options) *adoption.Outcome {
	m.Helper()
	o.Engine, o.Region, o.DefaultTenant = string(testEngine), "eu", "platform"
	var in adoption.Input
	for _, object := range objects {
		in.Originals = append(in.Originals, adoption.FromObject("", object)...)
	}
	outcome, err := adoption.Import(in, o, adoption.Tools{Render: renderedFrom,
		Normalize: func(o map[string]any, charts func(string) bool) (adoption.Normal, error) {
			n, err := original.Normalize(o, charts)
			return adoption.Normal{Spec: n.Spec, Unknown: n.Unknown}, err
		}})
	if err != nil {
		m.Fatal(err)
	}
	for _, r := range outcome.Report.Objects {
		if r.Status == adoption.Refused {
			m.Errorf("refused: %+v", r)
		}
	}
	m.rows(outcome.Files)
	return outcome
}

// rows are the planned rows of a config repo that validates.
func (m *moving) rows(files []configschema.File) (rows []mirror.Row) {
	m.Helper()
	for _, p := range configschema.Check(files) {
		if p.Severity == fleet.SeverityError {
			m.Errorf("%s", p)
		}
	}
	p, err := planned(files)
	if err != nil {
		m.Fatal(err)
	}
	for _, p := range p.Problems {
		if p.Severity == fleet.SeverityError {
			m.Errorf("%s", p)
		}
	}
	for _, c := range p.Rows {
		rows = append(rows, c.Row)
	}
	return rows
}

func ofTenant(rows []mirror.Row, t fleet.TenantName) []mirror.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r mirror.Row) bool { return r.Tenant != t })
}

func withoutTenant(rows []mirror.Row, t fleet.TenantName) []mirror.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r mirror.Row) bool { return r.Tenant == t })
}

// givesToThePlatform: the Applications that own the Argo CD are the platform's, in any project, and
// the team keeps its own.
func (m *moving) givesToThePlatform(o *adoption.Outcome) {
	m.Helper()
	files := filesOf(o.Files)
	for _, want := range []string{"tenants/platform/deployments/settings.yaml",
		"tenants/platform/deployments/dns.yaml", "tenants/shop/deployments/checkout.yaml"} {
		if files[want] == nil {
			m.Errorf("the import writes no %s: %q", want, slices.Sorted(maps.Keys(files)))
		}
	}
	if text := string(files["fleet/engines/eu-1.yaml"]); !strings.Contains(text,
		"platformTenant: platform\n") {
		m.Errorf("the Engine is\n%s", text)
	}
}

func filesOf(files []configschema.File) map[string][]byte {
	all := map[string][]byte{}
	for _, f := range files {
		all[f.Path] = f.Bytes
	}
	return all
}

// withVariables is the config repo of the live import with the deployment of the manifests in Git
// in place of its own: a person has given each environment the variables that the report names,
// and the deployment its Applications.
func (m *moving) withVariables(live, inGit []configschema.File,
	zones map[string][2]string) []configschema.File {
	m.Helper()
	files := filesOf(live)
	edit := func(path string, text []byte, fields map[string]any) {
		var tree map[string]any
		if err := yaml.Unmarshal(text, &tree); err != nil || tree["spec"] == nil {
			m.Fatalf("%s: %v\n%s", path, err, text)
		}
		maps.Copy(tree["spec"].(map[string]any), fields)
		var err error
		if files[path], err = yaml.Marshal(tree); err != nil {
			m.Fatal(err)
		}
	}
	maps.DeleteFunc(files, func(path string, _ []byte) bool {
		return strings.HasPrefix(path, "tenants/web/deployments/")
	})
	const deployment = "tenants/web/deployments/web.yaml"
	adopt := []any{}
	for _, name := range []string{"eu", "us"} {
		environment := "tenants/web/environments/" + name + ".yaml"
		edit(environment, files[environment], map[string]any{
			"variables": map[string]any{"example.com/account": zones[name][1]}})
		adopt = append(adopt, map[string]any{"environment": name, "application": "web-" + name})
	}
	text := filesOf(inGit)[deployment]
	for _, want := range []string{"${environment.variables.example.com/account}",
		"${environment.labels.zone}", "${environment.name}", m.repo.URL} {
		if !strings.Contains(string(text), want) {
			m.Errorf("%q is not in\n%s", want, text)
		}
	}
	edit(deployment, text, map[string]any{"adopt": adopt, "deletionPolicy": "Release"})
	var all []configschema.File
	for _, path := range slices.Sorted(maps.Keys(files)) {
		all = append(all, configschema.File{Path: path, Bytes: files[path]})
	}
	return all
}

// run runs the printed commands but those that copy the tokens of clusters. Argosy's identity is
// that of this lab.
func (m *moving) run(commands []string) {
	m.Helper()
	kubectl, err := stack.Kubectl()
	if err != nil {
		m.Fatal(err)
	}
	for _, command := range commands {
		if strings.Contains(command, "--from-file=token") {
			continue
		}
		command = strings.ReplaceAll(command, "=argosy:argosy", "="+m.spec.ArgoCD.Namespace+
			":argosy")
		cmd := exec.CommandContext(m.Context(), "bash", "-euo", "pipefail", "-c", command)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+m.cluster.Kubeconfig,
			"PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			m.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// releaseFromSet deletes the ApplicationSet without its Applications.
func (m *moving) releaseFromSet() {
	m.Helper()
	// the project of the Application by which the collector is awaited
	if err := m.cluster.Apply(m.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": argoAPI, "kind": "AppProject", "metadata": map[string]any{"name": "legacy",
			"namespace": m.spec.ArgoCD.Namespace}, "spec": map[string]any{
			"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"server": "*",
				"namespace": m.spaceA}}}}}); err != nil {
		m.Fatal(err)
	}
	m.awaitCollector()
	orphan := metav1.DeletePropagationOrphan
	if err := m.cluster.Dynamic().Resource(applicationSets).Namespace(
		m.spec.ArgoCD.Namespace).Delete(m.Context(), "web", metav1.DeleteOptions{
		PropagationPolicy: &orphan}); err != nil {
		m.Fatal(err)
	}
	m.until("nothing owns the Applications", func() bool {
		return !slices.ContainsFunc(m.all(), func(a loadApp) bool {
			return len(a.Metadata.Owners) > 0
		})
	})
}

// state has what no adoption may change: the objects of the workloads, and the syncs.
func (m *moving) state() map[string]string {
	m.Helper()
	all := m.syncs()
	for _, name := range []string{m.spec.ArgoCD.Namespace + "/settings", "kube-system/" + m.dns(),
		m.spaceA + "/checkout", m.spaceB + "/web-a", m.spaceB + "/web-b"} {
		namespace, name := fleet.SplitObject(name)
		cm, err := m.cluster.Client().CoreV1().ConfigMaps(namespace).Get(m.Context(), name,
			metav1.GetOptions{})
		if err != nil {
			m.Fatal(err)
		}
		all["ConfigMap "+name] = string(cm.UID) + " " + cm.ResourceVersion
	}
	return all
}

func (m *moving) unchangedSince(what string, before map[string]string) {
	m.Helper()
	if got := m.state(); !maps.Equal(got, before) {
		m.Errorf("%s has changed %v to %v", what, before, got)
	}
}

// takeOver applies rows in their order until each is applied. The tokens of service accounts are
// refused until the API server's authorizer knows the new Roles.
func (m *moving) takeOver(rows []mirror.Row) {
	m.Helper()
	for _, row := range rows {
		secret := fleet.Secret{}
		if row.Key.Kind == fleet.ObjectCluster && row.Tenant == "web" {
			secret = fleet.NewSecret(map[string][]byte{"token": []byte(m.token)})
		}
		m.until(fmt.Sprintf("%s is applied", row.Key), func() bool {
			out, err := m.e.Apply(m.Context(), row, secret, m.lease)
			if err != nil && !errors.Is(err, engine.ErrCredential) {
				m.Fatalf("%s: %v", row.Key, err)
			}
			return err == nil && out.State == mirror.ApplyApplied
		})
	}
}

// refuses applies rows of which one has a wrong variable: its Application is not adopted.
func (m *moving) refuses(rows []mirror.Row) {
	m.Helper()
	i := slices.IndexFunc(rows, func(r mirror.Row) bool {
		return r.Key.Kind == fleet.ObjectApplication && r.Environment == "us"
	})
	m.takeOver(slices.DeleteFunc(slices.Clone(rows), func(r mirror.Row) bool {
		return r.Key.Kind == fleet.ObjectApplication
	}))
	if _, err := m.e.Apply(m.Context(), rows[i], fleet.Secret{}, m.lease); !errors.Is(err,
		engine.ErrAdoption) || !strings.Contains(err.Error(), "333") {
		m.Errorf("a wrong variable: %v", err)
	}
}

// adopted waits until Argo CD has compared every Application in the project of its tenant: it is
// in sync, and was not synced.
func (m *moving) adopted(what string, before map[string]string) {
	m.Helper()
	m.until("all are compared in their new projects", func() bool {
		return !slices.ContainsFunc(m.all(), func(a loadApp) bool {
			return a.busy() || !strings.Contains(a.Status.Sync.ComparedTo.Destination.Server,
				"?managedEnvironment=")
		})
	})
	m.unchangedSince(what, before)
}

// giveBack removes the rows of adopted Applications, and then what they needed.
func (m *moving) giveBack(rows []mirror.Row) {
	m.Helper()
	for _, row := range slices.Backward(rows) {
		m.remove(row)
	}
}

// staysApart: a team neither takes an Application of the platform over nor deploys to its
// namespaces, and the platform's tenant does not deploy to those of the team.
func (m *moving) staysApart() {
	m.Helper()
	m.spec.PlatformTenant = "platform"
	at := func(t fleet.TenantName, name fleet.DeploymentName, namespace string) fleet.Object {
		id := fleet.ApplicationID{Tenant: t, Deployment: name, Environment: "eu-1"}
		o := applicationObject(id, fleet.InClusterServer)
		o.Application.Sources[0] = fleet.Source{RepoURL: m.repo.URL, Path: string(name),
			TargetRevision: "main"}
		o.Application.Destination.Namespace, o.Application.Destination.Granted = namespace, true
		o.Application.Destination.OnEngine = testEngine
		o.Application.Sync = fleet.Sync{Automated: true}
		return o
	}
	if _, err := (Renderer{}).Render(m.spec, at("shop", "thief", m.spec.ArgoCD.Namespace)); err ==
		nil {
		m.Error("an Application of a team is rendered into Argo CD's own namespace")
	}
	theft := at("shop", "theft", m.spaceA)
	theft.Application.Adopt = "settings"
	if _, err := m.e.Apply(m.Context(), m.row(theft, ""), fleet.Secret{}, m.lease); !errors.Is(err,
		engine.ErrForeign) {
		m.Errorf("a team adopts an Application of the platform: %v", err)
	}
	// as if the control plane had taken the team for the platform
	spec := m.spec
	spec.PlatformTenant = "shop"
	wrong := rowFor(m.TB, spec, at("shop", "settings", m.spec.ArgoCD.Namespace), 1)
	wrong.Deletion = fleet.DeletionOrphan
	m.apply(wrong, fleet.Secret{})
	m.denied(wrong.Key, "do not match any of the allowed destinations in project")
	m.remove(wrong)
	for namespace, o := range map[string]fleet.Object{
		m.spec.ArgoCD.Namespace: at("shop", "thief", m.spaceA),
		m.spaceA:                at("platform", "spy", m.spec.ArgoCD.Namespace)} {
		row := m.row(o, fleet.DeletionOrphan)
		m.apply(row, fleet.Secret{})
		m.denied(row.Key, fmt.Sprintf("namespace %q for ConfigMap %q is not managed", namespace,
			row.Deployment))
		m.remove(row)
	}
	for namespace, name := range map[string]string{m.spec.ArgoCD.Namespace: "thief",
		m.spaceA: "spy"} {
		if got, _ := m.value(namespace, name); got != "" {
			m.Errorf("namespace %s has %q", namespace, got)
		}
	}
}
