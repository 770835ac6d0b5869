package argocd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/test/stack"
)

// archive returns a chart as a Helm repository serves it.
func archive(t testing.TB, name string, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for path, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name + "/" + path, Mode: 0o644,
			Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// startCharts serves charts by name, all with version 1.0.0.
func startCharts(t testing.TB, charts map[string]map[string]string) string {
	t.Helper()
	index := "apiVersion: v1\nentries:\n"
	served := map[string][]byte{}
	for name, files := range charts {
		index += fmt.Sprintf(
			"  %[1]s: [{apiVersion: v2, name: %[1]s, version: 1.0.0, urls: [%[1]s-1.0.0.tgz]}]\n",
			name)
		served["/charts/"+name+"-1.0.0.tgz"] = archive(t, name, files)
	}
	served["/charts/index.yaml"] = []byte(index)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := served[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/charts"
}

// Argo CD also merges .argocd-source.yaml of a chart's archive, out of reach of the Git settings.
// It changes only the rendering of the chart, which the chart controls anyway. It selects no other
// tool, and the settings of a shared engine apply to it as well.
func TestAnOverrideInAChartArchiveReachesNothingBeyondTheChart(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s open %t", version, open), func(t *testing.T) {
				suffix := fmt.Sprintf("charts-%s-%t", strings.ReplaceAll(version, ".", "-"), open)
				newArgoLabWith(t, suffix, stack.ArgoOptions{Version: version, Open: open}).
					chartOverrides(startCanary(t), open)
			})
		}
	}
}

func (w *argoLab) chartOverrides(c *canaryServer, open bool) {
	named := ".argocd-source-" + fleet.ApplicationName(fleet.ApplicationID{
		Tenant: acme, Deployment: "named", Environment: prodEU.Name}) + ".yaml"
	charts := map[string]map[string]string{
		"own": {
			".argocd-source.yaml": "helm: {parameters: [{name: value, value: overridden}]}\n"},
		"named":  {named: "helm: {parameters: [{name: value, value: overridden}]}\n"},
		"remote": {".argocd-source.yaml": "helm: {valueFiles: ['" + c.url + "/values.yaml']}\n"},
		"jsonnet": {
			".argocd-source.yaml": "helm: null\ndirectory: {include: '{plain.yaml,env.jsonnet}'}\n",
			"plain.yaml":          configMap("plain", "plain"),
			"env.jsonnet":         "{apiVersion:'v1',kind:'ConfigMap',metadata:{name:'stolen'},data:{value:std.base64(importstr '/proc/self/environ')}}"},
	}
	for name, files := range charts {
		files["Chart.yaml"] = strings.ReplaceAll(chartOfOne, "name: one", "name: "+name)
		files["values.yaml"] = "value: declared\n"
		files["templates/cm.yaml"] = strings.ReplaceAll(helmConfigMap, "{name: helm}",
			"{name: "+name+"}")
	}
	repo := startCharts(w.TB, charts)
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA)
	if err != nil {
		w.Fatal(err)
	}
	project := projectObject(acme)
	project.Project.SourceRepos, project.Project.ClusterResources = []string{repo}, nil
	project.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(w.cluster.Server, prodEU), Namespace: w.spaceA}}
	w.apply(w.row(project, ""), fleet.Secret{})
	w.apply(w.foundation(prodEU, w.spaceA)[1],
		fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	keys := map[string]fleet.ObjectKey{}
	for name := range charts {
		id := fleet.ApplicationID{Tenant: acme, Deployment: fleet.DeploymentName(name),
			Environment: prodEU.Name}
		app := w.app(id, "", w.spaceA, fleet.DeletionOrphan, func(a *fleet.Application) {
			a.Sources[0] = fleet.Source{RepoURL: repo, Chart: name, TargetRevision: "1.0.0"}
		})
		w.apply(app, fleet.Secret{})
		keys[name] = app.Key
	}
	value := func(name string) string { got, _ := w.value(w.spaceA, name); return got }
	w.until("a chart's own override counts for its own rendering", func() bool {
		return value("own") == "overridden" && value("named") == "overridden"
	})
	// A chart is rendered with spec.source.helm set. The override can neither remove it nor add
	// another tool.
	w.until("a chart chooses no other tool", func() bool {
		return strings.Contains(w.condition(keys["jsonnet"]),
			"multiple application sources defined")
	})
	if got := value("plain") + value("stolen"); got != "" {
		w.Errorf("another tool has rendered %q", got)
	}
	if open {
		w.until("its value files are fetched", func() bool {
			return value("remote") == "from the canary" && c.dialled("values.yaml")
		})
		return
	}
	w.until("value files by URL are refused", func() bool {
		return strings.Contains(w.condition(keys["remote"]), "not allowed")
	})
	if got := value("remote"); got == "from the canary" || c.dialled("values.yaml") {
		w.Errorf("ConfigMap remote has %q; dialled: %t", got, c.dialled("values.yaml"))
	}
}
