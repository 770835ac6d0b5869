package argocd

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// shout is a plugin that writes a ConfigMap with what it is given. Without discovery it renders
// only the sources that name it.
const shout = `apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata: {name: shout}
spec:
  version: v1.0
  generate:
    command: [sh, -c]
    args:
      - >-
        printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shout}\ndata: {value: "%s %s"}\n'
        "$ARGOCD_ENV_STAGE" "$PARAM_TONE"
`

// toolFiles are a folder for each tool.
func toolFiles() map[string]string {
	chart := strings.ReplaceAll(chartOfOne, "name: one", "name: chart")
	return map[string]string{
		"kust/kustomization.yaml": "resources: [cm.yaml, web.yaml]\n",
		"kust/cm.yaml":            configMap("cm", "base"),
		"kust/web.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n" +
			"  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n" +
			"    spec: {containers: [{name: web, image: web}]}\n",
		"kust/patches/kind.yaml": "- {op: add, path: /data/file, value: patched}\n",
		"parts/extra/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\n" +
			"kind: Component\nresources: [cm.yaml]\n",
		"parts/extra/cm.yaml":      configMap("extra", "component"),
		"dir/a.yaml":               configMap("dir-a", "read"),
		"dir/b.yml":                configMap("dir-b", "not included"),
		"dir/below/c.yaml":         configMap("dir-c", "read"),
		"dir/below/skip.yaml":      configMap("dir-skip", "excluded"),
		"chart/Chart.yaml":         chart,
		"chart/values.yaml":        "value: of the chart\n",
		"chart/crds/none.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: crd}\n",
		"chart/files/text.txt":     "of a file",
		"chart/values.schema.json": `{"properties": {"value": {"type": "integer"}}}`,
		"chart/templates/tests/t.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: t\n" +
			"  annotations: {helm.sh/hook: test}\n",
		"chart/templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: chart}\ndata:\n" +
			"  value: {{ .Values.value | quote }}\n  text: {{ .Values.text | quote }}\n" +
			"  version: {{ .Capabilities.KubeVersion.Version | quote }}\n" +
			"  has: {{ .Capabilities.APIVersions.Has \"example.com/v9/Thing\" | quote }}\n" +
			"  namespace: {{ .Release.Namespace | quote }}\n",
		"watched/cm.yaml":      configMap("watched", "one"),
		"plugin/empty.txt":     "",
		"vendor/lib.libsonnet": "{name: 'jsonnet'}\n",
		"jsonnet/cm.jsonnet": "local lib = import 'lib.libsonnet';\nfunction(stage) {apiVersion: " +
			"'v1', kind: 'ConfigMap', metadata: {name: lib.name}, data: {value: stage + ' ' + " +
			"std.extVar('count')}}\n",
	}
}

// Argo CD acts on every field of kustomize, helm, directory and plugin.
func TestRealArgoCDRendersWithEveryTool(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			o := stack.ArgoOptions{Version: version}
			var delivered <-chan delivery
			if version != "2.14" { // the tenant's own engine, with jsonnet and a plugin
				o.Plugin, o.Open = shout, true
				o.Notifications, delivered = startHook(t)
			}
			w := newArgoLabWith(t, "tools-"+strings.ReplaceAll(version, ".", "-"), o)
			token, err := w.cluster.TenantToken(t.Context(), "acme-"+w.spaceA, w.spaceA)
			if err != nil {
				t.Fatal(err)
			}
			w.commit(toolFiles())
			for _, row := range w.foundation(prodEU, w.spaceA) {
				w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
			}
			w.kustomizes()
			w.readsDirectories()
			w.rendersCharts()
			w.comparesOnTheServer(delivered)
			if o.Open {
				w.runsPlugins()
				w.evaluatesJsonnet()
			}
		})
	}
}

func (w *argoLab) deployed(name, folder string, change func(*fleet.Source), ready func() bool) {
	w.Helper()
	id := fleet.ApplicationID{Tenant: acme, Deployment: fleet.DeploymentName(name),
		Environment: prodEU.Name}
	row := w.app(id, folder, w.spaceA, fleet.DeletionDelete, func(a *fleet.Application) {
		change(&a.Sources[0])
	})
	w.apply(row, fleet.Secret{})
	w.until(name+" is deployed", ready)
	// the cache may lag behind while the sync goes on
	w.until(name+" has no drift", func() bool { return !w.apply(row, fleet.Secret{}).Changed })
}

func (w *argoLab) kustomizes() {
	w.Helper()
	w.deployed("kustomize", "kust", func(s *fleet.Source) {
		s.Kustomize = &fleet.KustomizeSource{Images: []string{"web=registry.example.com/web:v2"},
			NamePrefix: "eu-", NameSuffix: "-1", Namespace: w.spaceA,
			CommonLabels:         map[string]string{"team": "payments"},
			CommonAnnotations:    map[string]string{"example.com/owner": "payments"},
			LabelWithoutSelector: true, ForceCommonLabels: true, ForceCommonAnnotations: true,
			Replicas: []fleet.KustomizeReplica{{Name: "web", Count: 3}},
			Patches: []fleet.KustomizePatch{{Path: "patches/kind.yaml",
				Target: &fleet.KustomizeTarget{Kind: "ConfigMap", Name: "cm"}},
				{Patch: "- {op: replace, path: /data/value, value: inline}",
					Target: &fleet.KustomizeTarget{Kind: "ConfigMap", Name: "cm"}}},
			Components: []string{"../parts/extra"}}
	}, func() bool {
		value, _ := w.value(w.spaceA, "eu-cm-1")
		web := w.deployment("eu-web-1")
		return value != "" && web != nil
	})
	cm, web := w.configMap(w.spaceA, "eu-cm-1"), w.deployment("eu-web-1")
	if cm.Data["value"] != "inline" || cm.Data["file"] != "patched" ||
		cm.Annotations["example.com/owner"] != "payments" || cm.Labels["team"] != "payments" {
		w.Errorf("the ConfigMap has %v, %v, %v", cm.Data, cm.Labels, cm.Annotations)
	}
	if *web.Spec.Replicas != 3 || web.Labels["team"] != "payments" ||
		!maps.Equal(web.Spec.Selector.MatchLabels, map[string]string{"app": "web"}) ||
		web.Spec.Template.Spec.Containers[0].Image != "registry.example.com/web:v2" {
		w.Errorf("the Deployment has %v, %+v", web.Labels, web.Spec)
	}
	w.until("the component is deployed", func() bool {
		value, _ := w.value(w.spaceA, "eu-extra-1")
		return value == "component"
	})
}

func (w *argoLab) deployment(name string) *appsv1.Deployment {
	w.Helper()
	all, err := w.cluster.Client().AppsV1().Deployments(w.spaceA).List(w.Context(),
		metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i := range all.Items {
		if all.Items[i].Name == name {
			return &all.Items[i]
		}
	}
	return nil
}

func (w *argoLab) readsDirectories() {
	w.Helper()
	w.deployed("directory", "dir", func(s *fleet.Source) {
		s.Directory = &fleet.DirectorySource{Recurse: true, Include: "{*.yaml,below/*}",
			Exclude: "below/skip*"}
	}, func() bool {
		a, _ := w.value(w.spaceA, "dir-a")
		c, _ := w.value(w.spaceA, "dir-c")
		return a == "read" && c == "read"
	})
	w.none("dir-b", "dir-skip")
}

// delivery is what the service "hook" is sent about an Application.
type delivery struct{ Application, Revision string }

// startHook returns the settings of argocd-notifications for a webhook, and what it is sent.
func startHook(t testing.TB) (map[string]string, <-chan delivery) {
	delivered := make(chan delivery, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var d delivery
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			t.Errorf("a notification that is no JSON: %v", err)
		}
		delivered <- d
	}))
	t.Cleanup(hook.Close)
	return map[string]string{
		"service.webhook.hook": "url: " + hook.URL + "\n",
		"trigger.on-deployed": "- when: app.status.operationState.phase in ['Succeeded'] and " +
			"app.status.sync.status == 'Synced'\n  oncePer: app.status.sync.revision\n" +
			"  send: [deployed]\n",
		"template.deployed": "webhook:\n  hook:\n    method: POST\n    body: '" +
			`{"application": "{{.app.metadata.name}}", "revision": "{{.app.status.sync.revision}}"}'` +
			"\n",
	}, delivered
}

// notified waits for the notification about a revision, and until argocd-notifications has recorded
// it in the Application, which is no drift.
func (w *argoLab) notified(row mirror.Row, delivered <-chan delivery, revision string) {
	w.Helper()
	want := delivery{row.Key.Name, revision}
	w.until("notified of "+revision, func() bool {
		select {
		case got := <-delivered:
			return got == want
		default:
			return false
		}
	})
	w.until("recorded by argocd-notifications", func() bool {
		annotations, _, err := unstructured.NestedStringMap(w.live(row.Key), "metadata",
			"annotations")
		return err == nil && strings.Contains(annotations["notified.notifications.argoproj.io"],
			revision)
	})
}

// comparesOnTheServer: with the annotations of comparisons, paths and notifications the Application
// is Synced, a change below a watched path is deployed, and the annotations go with the fields.
// With argocd-notifications, delivered is what it sends.
func (w *argoLab) comparesOnTheServer(delivered <-chan delivery) {
	w.Helper()
	id := fleet.ApplicationID{Tenant: acme, Deployment: "annotated", Environment: prodEU.Name}
	with := func(change func(*fleet.Application)) mirror.Row {
		return w.app(id, "watched", w.spaceA, fleet.DeletionDelete, change)
	}
	row := with(func(a *fleet.Application) {
		a.Sync.Diff, a.Sync.ServerSideApply = fleet.DiffServerWithWebhooks, true
		a.WatchPaths = []string{".", "/vendor"}
		a.Notifications = []fleet.Notification{{Trigger: "on-deployed", Service: "hook"}}
	})
	w.apply(row, fleet.Secret{})
	w.observed("compared on the API server", row.Key, synced)
	next := w.commit(map[string]string{"watched/cm.yaml": configMap("watched", "two")})
	w.refresh(row.Key.Name)
	w.observed("Synced at the next commit", row.Key, atRevision(next))
	if value, _ := w.value(w.spaceA, "watched"); value != "two" {
		w.Errorf("the watched file has %q", value)
	}
	if delivered != nil {
		w.notified(row, delivered, next)
	}
	if out := w.apply(row, fleet.Secret{}); out.Changed {
		w.Error("Argo CD's own work is taken for a drift")
	}
	w.apply(with(nil), fleet.Secret{})
	annotations, _, err := unstructured.NestedMap(w.live(row.Key), "metadata", "annotations")
	if left := actingAnnotations(annotations); err != nil || len(left) > 0 {
		w.Errorf("annotations %q are not removed, %v", left, err)
	}
}

// none reports ConfigMaps that must not exist after a sync has ended.
func (w *argoLab) none(names ...string) {
	w.Helper()
	for _, name := range names {
		if value, _ := w.value(w.spaceA, name); value != "" {
			w.Errorf("ConfigMap %s is deployed", name)
		}
	}
}

func (w *argoLab) rendersCharts() {
	w.Helper()
	w.deployed("helm", "chart", func(s *fleet.Source) {
		s.Helm = &fleet.HelmSource{ReleaseName: "shop", Values: "value: not an integer\n",
			KubeVersion: "1.19.5", APIVersions: []string{"example.com/v9/Thing"},
			FileParameters: []fleet.HelmFileParameter{{Name: "text", Path: "files/text.txt"}},
			ValueFiles:     []string{"none.yaml"}, IgnoreMissingValueFiles: true, SkipCrds: true,
			SkipTests: true, SkipSchemaValidation: true, Namespace: "elsewhere", Version: "v3"}
	}, func() bool {
		value, _ := w.value(w.spaceA, "chart")
		return value != ""
	})
	data := w.configMap(w.spaceA, "chart").Data
	if !maps.Equal(data, map[string]string{"value": "not an integer", "text": "of a file",
		"version": "v1.19.5", "has": "true", "namespace": "elsewhere"}) {
		w.Errorf("the chart renders %v", data)
	}
	all, err := w.cluster.Client().CoreV1().ConfigMaps(w.spaceA).List(w.Context(),
		metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, cm := range all.Items {
		if slices.Contains([]string{"t", "crd"}, cm.Name) {
			w.Errorf("ConfigMap %s is deployed", cm.Name)
		}
	}
}

func (w *argoLab) runsPlugins() {
	w.Helper()
	w.deployed("plugin", "plugin", func(s *fleet.Source) {
		s.Plugin = &fleet.PluginSource{Name: "shout-v1.0",
			Env:        []fleet.PluginEnv{{Name: "STAGE", Value: "prod"}},
			Parameters: []fleet.PluginParameter{{Name: "tone", String: "loud"}}}
	}, func() bool {
		value, _ := w.value(w.spaceA, "shout")
		return value == "prod loud"
	})
}

func (w *argoLab) evaluatesJsonnet() {
	w.Helper()
	w.deployed("jsonnet", "jsonnet", func(s *fleet.Source) {
		s.Directory = &fleet.DirectorySource{Jsonnet: &fleet.JsonnetSource{
			Libs:    []string{"vendor"},
			TLAs:    []fleet.JsonnetVar{{Name: "stage", Value: "prod"}},
			ExtVars: []fleet.JsonnetVar{{Name: "count", Value: "1 + 1", Code: true}}}}
	}, func() bool {
		value, _ := w.value(w.spaceA, "jsonnet")
		return value == "prod 2"
	})
}
