package argocd

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

const (
	chartUser     = "reader"
	chartPassword = "kept-in-a-secret"
)

// chartHost is a Helm repository at the root of a host and a registry of OCI charts below
// /v2/<folder>, both for one user.
type chartHost struct {
	charts   map[string][]byte // archives by name, all with version 1.0.0
	ca       []byte
	helm     string // URL of the Helm repository
	registry string // host of the registry

	mu     sync.Mutex
	pushed map[string][]byte // by path of the registry's API
}

func startChartHost(t testing.TB, charts map[string]map[string]string) *chartHost {
	t.Helper()
	h := &chartHost{charts: map[string][]byte{}, pushed: map[string][]byte{}}
	for name, files := range charts {
		files["Chart.yaml"] = strings.ReplaceAll(chartOfOne, "name: one", "name: "+name)
		h.charts[name] = archive(t, name, files)
		h.push("acme/charts/"+name, "1.0.0", "application/vnd.cncf.helm.config.v1+json",
			"application/vnd.cncf.helm.chart.content.v1.tar+gzip",
			[]byte(`{"apiVersion":"v2","name":"`+name+`","version":"1.0.0"}`), h.charts[name])
	}
	cert, key := certificate(t, "localhost")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	h.helm, h.registry, h.ca = "https://localhost:"+port, "localhost:"+port, cert
	return h
}

func (h *chartHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); user != chartUser || password != chartPassword {
		w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	path := r.URL.Path
	if path == "/index.yaml" {
		fmt.Fprint(w, "apiVersion: v1\nentries:\n")
		for name := range h.charts {
			fmt.Fprintf(w, "  %[1]s: [{apiVersion: v2, name: %[1]s, version: 1.0.0, "+
				"urls: [%[1]s-1.0.0.tgz]}]\n", name)
		}
		return
	}
	for name, content := range h.charts {
		if path == "/"+name+"-1.0.0.tgz" {
			_, _ = w.Write(content)
			return
		}
	}
	if path == "/v2/" {
		return
	}
	h.serveRegistry(w, r)
}

// push stores a manifest with one layer under a tag of the registry, and returns its digest.
func (h *chartHost) push(name, tag, configType, layerType string, config, content []byte) string {
	manifest, _ := json.Marshal(map[string]any{"schemaVersion": 2,
		"mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": map[string]any{"mediaType": configType, "digest": digest(config),
			"size": len(config)},
		"layers": []any{map[string]any{"mediaType": layerType, "digest": digest(content),
			"size": len(content)}}})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pushed[name+"/tags/list"] = []byte(`{"name":"` + name + `","tags":["` + tag + `"]}`)
	h.pushed[name+"/manifests/"+tag] = manifest
	h.pushed[name+"/manifests/"+digest(manifest)] = manifest
	h.pushed[name+"/blobs/"+digest(config)] = config
	h.pushed[name+"/blobs/"+digest(content)] = content
	return digest(manifest)
}

// pushArtifact pushes files as an artifact.
func (h *chartHost) pushArtifact(t testing.TB, name, tag string, files map[string]string) string {
	return h.push(name, tag, "application/vnd.oci.empty.v1+json",
		"application/vnd.oci.image.layer.v1.tar+gzip", []byte("{}"), archive(t, "deploy", files))
}

// serveRegistry is the part of the distribution specification by which clients pull.
func (h *chartHost) serveRegistry(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	h.mu.Lock()
	body, found := h.pushed[path]
	h.mu.Unlock()
	switch {
	case !found:
		http.NotFound(w, r)
		return
	case strings.HasSuffix(path, "/tags/list"):
		w.Header().Set("Content-Type", "application/json")
	case strings.Contains(path, "/manifests/"):
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	}
	w.Header().Set("Docker-Content-Digest", digest(body))
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Argo CD joins the sources of an Application, reads value files of a ref, and reads private charts
// of a Helm repository at the root of a host and of a registry with the tenant's credentials.
func TestRealArgoCDReadsSeveralSourcesAndPrivateCharts(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			template := func(name string) map[string]string {
				return map[string]string{"values.yaml": "value: of the chart\n",
					"templates/cm.yaml": strings.ReplaceAll(helmConfigMap, "{name: helm}",
						"{name: "+name+"}")}
			}
			host := startChartHost(t, map[string]map[string]string{
				"app": template("app"), "packed": template("packed")})
			w := newArgoLabWith(t, "sources-"+strings.ReplaceAll(version, ".", "-"),
				stack.ArgoOptions{
					Version: version, TrustedCAs: map[string][]byte{"localhost": host.ca}})
			w.readsSources(host)
			if version != "2.14" {
				w.deploysArtifacts(host, version)
				w.sharesTrustedArtifacts(host)
			}
		})
	}
}

func (w *argoLab) readsSources(host *chartHost) {
	w.Helper()
	registry := host.registry + "/acme/charts"
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA)
	if err != nil {
		w.Fatal(err)
	}
	values, err := w.git.CreateRepo(w.Context(), "acme/values")
	if err != nil {
		w.Fatal(err)
	}
	first, err := values.Commit(w.Context(), "values", map[string]string{
		"prod/app.yaml": "value: first\n"})
	if err != nil {
		w.Fatal(err)
	}
	w.commit(map[string]string{"more/cm.yaml": configMap("more", "plain")})
	foundation := w.foundation(prodEU, w.spaceA)
	project := projectObject(acme)
	project.Project.ClusterResources = nil
	artifact := "oci://" + host.registry + "/acme/artifacts/app"
	project.Project.SourceRepos = []string{w.repo.URL, values.URL, host.helm, registry, artifact}
	project.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(w.cluster.Server, prodEU), Namespace: w.spaceA}}
	w.apply(w.row(project, ""), fleet.Secret{})
	w.apply(foundation[1], fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	access := fleet.NewSecret(map[string][]byte{"username": []byte(chartUser),
		"password": []byte(chartPassword)})
	for name, url := range map[string]string{"helm": host.helm, "oci": registry,
		"oci-artifact": artifact} {
		kind, _, _ := strings.Cut(name, "-")
		o := repositoryOf(fleet.RepositoryType(kind), url)
		o.Repository.ID.Name = fleet.CredentialName(name)
		if key, _ := fleet.NormalizeRepoURL(url); name == "oci" { // of a credential for the folder
			o.Repository.Part = fleet.RepositoryPart(key)
		}
		o.Key.Name = fleet.RepositoryName(o.Repository.ID, o.Repository.Part)
		o.Repository.Name = o.Key.Name
		w.apply(w.row(o, ""), access)
	}

	id := fleet.ApplicationID{Tenant: acme, Deployment: "several", Environment: prodEU.Name}
	one := w.app(id, "more", w.spaceA, fleet.DeletionDelete, nil)
	w.apply(one, fleet.Secret{})
	w.observed("one source", one.Key, synced)
	several := func(change func(*fleet.Application)) mirror.Row {
		return w.app(id, "more", w.spaceA, fleet.DeletionDelete, func(a *fleet.Application) {
			a.Sources = []fleet.Source{
				{Ref: "values", RepoURL: values.URL, TargetRevision: "main"},
				{RepoURL: host.helm, Chart: "app", TargetRevision: "^1",
					Helm: &fleet.HelmSource{ValueFiles: []string{"$values/prod/app.yaml"}}},
				{RepoURL: registry, Chart: "packed", TargetRevision: "1.0.0",
					Helm: &fleet.HelmSource{ValueFiles: []string{"$values/prod/app.yaml"}}},
				a.Sources[0]}
			if change != nil {
				change(a)
			}
		})
	}
	w.apply(several(nil), fleet.Secret{})
	value := func(name string) string { got, _ := w.value(w.spaceA, name); return got }
	w.until("all sources are deployed", func() bool {
		return value("more") == "plain" && value("app") == "first" && value("packed") == "first"
	})
	second, err := values.Commit(w.Context(), "values", map[string]string{
		"prod/app.yaml": "value: second\n"})
	if err != nil {
		w.Fatal(err)
	}
	w.refresh(one.Key.Name)
	w.observed("synced at each source's revision", one.Key, func(o mirror.Observation) bool {
		return synced(o) && strings.HasPrefix(o.SyncedRevision, second+",1.0.0,1.0.0,")
	})
	if value("app") != "second" {
		w.Errorf("the chart has %q", value("app"))
	}

	held := several(func(a *fleet.Application) { a.Hold = "rollback" })
	w.apply(held, fleet.Secret{})
	head, err := w.repo.Commit(w.Context(), "more", map[string]string{
		"more/cm.yaml": configMap("more", "changed")})
	if err != nil {
		w.Fatal(err)
	}
	w.sync(held, "rollback-1", fleet.JoinRevisions([]string{first, "1.0.0", "1.0.0", head}),
		"Succeeded")
	if value("app") != "first" || value("more") != "changed" {
		w.Errorf("after the SyncRun the workload has %q and %q", value("app"), value("more"))
	}
	w.apply(one, fleet.Secret{})
	w.until("one source again prunes the others' resources", func() bool {
		return value("app") == "" && value("packed") == "" && value("more") == "changed"
	})
}

// showVersion creates the workload of the application-controller, whose image has the version. The
// lab runs the controller as a process.
func (w *argoLab) showVersion(version string) {
	w.Helper()
	labels := map[string]string{"app.kubernetes.io/part-of": "argocd",
		"app.kubernetes.io/component": "application-controller"}
	if err := w.cluster.Apply(w.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "argocd-application-controller",
			Namespace: w.spec.ArgoCD.Namespace, Labels: labels},
		Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller",
					Image: "quay.io/argoproj/argocd:v" + version + ".0"}}}}}}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.e.Preflight(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// deploysArtifacts follows readsSources, whose project and credentials it uses. The engine is now
// rendered for as one of acme's own.
func (w *argoLab) deploysArtifacts(host *chartHost, version string) {
	w.Helper()
	push := func(tag, value string) string {
		return host.pushArtifact(w, "acme/artifacts/app", tag, map[string]string{
			"kustomization.yaml": "resources: [cm.yaml]\n",
			"cm.yaml":            configMap("artifact", value)})
	}
	w.spec.DedicatedTo = []fleet.TenantName{acme}
	id := fleet.ApplicationID{Tenant: acme, Deployment: "artifact", Environment: prodEU.Name}
	at := func(revision string, hold fleet.SyncRunName) mirror.Row {
		return w.app(id, "deploy", w.spaceA, fleet.DeletionDelete, func(a *fleet.Application) {
			a.Sources[0].RepoURL = "oci://" + host.registry + "/acme/artifacts/app"
			a.Sources[0].TargetRevision, a.Hold = revision, hold
		})
	}
	deployed := func(what, digest, value string) {
		w.observed(what, at("stable", "").Key, func(o mirror.Observation) bool {
			return synced(o) && o.Health == "Healthy" && o.SyncedRevision == digest
		})
		if got, _ := w.value(w.spaceA, "artifact"); got != value {
			w.Errorf("%s: the ConfigMap has %q, want %q", what, got, value)
		}
	}
	first := push("stable", "first")
	if _, err := w.e.Apply(w.Context(), at("stable", ""), fleet.Secret{}, w.lease); !errors.Is(
		err, engine.ErrRefused) || !strings.Contains(err.Error(), "is not known") {
		w.Fatalf("an artifact is written to an Argo CD of an unknown version: %v", err)
	}
	w.showVersion(version)
	w.apply(at("stable", ""), fleet.Secret{})
	deployed("the tag is deployed", first, "first")
	second := push("stable", "second")
	w.refresh(at("stable", "").Key.Name)
	deployed("the moved tag is deployed", second, "second")
	w.apply(at("stable", "rollback"), fleet.Secret{})
	w.sync(at("stable", "rollback"), "rollback-1", first, "Succeeded")
	if got, _ := w.value(w.spaceA, "artifact"); got != "first" {
		w.Errorf("after the SyncRun the ConfigMap has %q", got)
	}
	w.apply(at(second, ""), fleet.Secret{})
	w.until("the digest is deployed", func() bool {
		got, _ := w.value(w.spaceA, "artifact")
		return got == "second"
	})
}

// sharesTrustedArtifacts follows deploysArtifacts. The engine serves two tenants again: it renders
// an artifact that the platform trusts, and Argo CD gives no tenant another one's artifact, neither
// without a grant nor by the credential of the tenant that has one.
func (w *argoLab) sharesTrustedArtifacts(host *chartHost) {
	w.Helper()
	w.spec.DedicatedTo = nil
	url := "oci://" + host.registry + "/acme/artifacts/app"
	object := func(env fleet.EnvironmentID, name fleet.DeploymentName, space string,
		trusted bool) fleet.Object {
		o := applicationObject(fleet.ApplicationID{Tenant: env.Tenant, Deployment: name,
			Environment: env.Name}, w.cluster.Server)
		o.Application.Sources = []fleet.Source{{RepoURL: url, Path: "deploy",
			TargetRevision: "shared"}}
		o.Application.Destination.Namespace = space
		o.Application.Sync = fleet.Sync{Automated: true}
		o.Application.TrustedArtifacts = trusted
		return o
	}
	untrusted := object(prodEU, "shared", w.spaceA, false)
	if _, err := (Renderer{}).Render(w.spec, untrusted); err == nil {
		w.Error("an artifact that the platform does not trust is rendered for a shared engine")
	}
	want := host.pushArtifact(w, "acme/artifacts/app", "shared", map[string]string{
		"cm.yaml": configMap("shared", "trusted")})
	app := w.row(object(prodEU, "shared", w.spaceA, true), fleet.DeletionDelete)
	w.apply(app, fleet.Secret{})
	w.observed("the trusted artifact is deployed", app.Key, func(o mirror.Observation) bool {
		return synced(o) && o.SyncedRevision == want
	})

	other := fleet.EnvironmentID{Tenant: "globex", Name: "prod-eu"}
	token, err := w.cluster.TenantToken(w.Context(), "globex-"+w.spaceB, w.spaceB)
	if err != nil {
		w.Fatal(err)
	}
	// the project of globex permits no repository but the one in Git
	foundation := w.foundation(other, w.spaceB)
	for _, row := range foundation {
		w.apply(row, fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	}
	theirs := w.row(object(other, "shared", w.spaceB, true), fleet.DeletionDelete)
	w.apply(theirs, fleet.Secret{})
	w.denied(theirs.Key, "is not permitted in project")
	project := projectObject(other.Tenant)
	project.Project.SourceRepos, project.Project.ClusterResources = []string{url}, nil
	project.Project.Destinations = []fleet.Destination{
		{Server: fleet.ServerKey(w.cluster.Server, other), Namespace: w.spaceB}}
	w.apply(w.row(project, ""), fleet.Secret{})
	w.refresh(theirs.Key.Name)
	w.denied(theirs.Key, "unauthorized", "basic credential not found")
	if got, _ := w.value(w.spaceB, "shared"); got != "" {
		w.Errorf("globex has %q of acme's private artifact", got)
	}
}
