package charts

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// versions are the versions of Argo CD whose manifests scripts/parts.sh has added to the chart.
var versions = []string{"v2.14.21", "v3.5.7"}

// published returns the objects of a manifest of Argo CD.
func published(t *testing.T, version, file string) []object {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("argosy-engine", "files", "argocd", version, file))
	if err != nil {
		t.Fatalf("run scripts/parts.sh argocd-manifests: %v", err)
	}
	var all []object
	for d := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

func engine(t *testing.T, values, version string, args ...string) []object {
	t.Helper()
	return objects(t, "argosy-engine", "argocd-eu-1",
		append(append(ci("argosy-engine", values), "--set", "argocd.version="+version), args...)...)
}

// argoCDs reports whether an object belongs to Argo CD's own manifests, by its name; the names of
// the others contain the instance's namespace.
func argoCDs(name string) bool {
	return strings.HasPrefix(name, "argocd-") && !strings.HasPrefix(name, "argocd-eu-1") &&
		!strings.HasPrefix(name, "argocd-edge-1")
}

func TestTheEngineIsFitForArgosy(t *testing.T) {
	for _, version := range versions {
		for _, values := range []string{"min", "full", "controller"} {
			all := engine(t, values, version)
			cm := object{"data": find(t, all, "ConfigMap", "argocd-cm").get("data")}
			if cm.at("data", "application.resourceTrackingMethod") != "annotation" ||
				cm.at("data", "installationID") == "" || cm.at("data", "admin.enabled") != "false" {
				t.Errorf("%s %s: argocd-cm is %v", version, values, cm)
			}
			if got := text(t, find(t, all, "AppProject", "default").get(
				"spec")); got != `{"destinations":[],"sourceRepos":[]}` {
				t.Errorf("%s %s: the project default is %s", version, values, got)
			}
			for _, o := range all {
				if argoCDs(o.at("metadata", "name")) &&
					o.at("metadata", "namespace") != "argocd-eu-1" {
					t.Errorf("%s %s: %s is in namespace %q", version, values, o,
						o.at("metadata", "namespace"))
				}
				for _, s := range o.list("subjects") {
					if argoCDs(s.at("name")) && s.at("namespace") != "argocd-eu-1" {
						t.Errorf("%s %s: %s binds %v", version, values, o, s)
					}
				}
			}
		}
	}
}

// workloads returns the names of the objects with Pods, without the agent.
func workloads(all []object) []string {
	var names []string
	for _, o := range all {
		if o.pod() != nil && o.at("metadata", "name") != "argosy-agent" {
			names = append(names, o.at("metadata", "name"))
		}
	}
	slices.Sort(names)
	return names
}

func TestThePatternSelectsTheComponents(t *testing.T) {
	for _, version := range versions {
		if got := workloads(engine(t, "min", version)); !slices.Equal(got,
			[]string{"argocd-application-controller", "argocd-redis", "argocd-repo-server"}) {
			t.Errorf("%s, full: %v", version, got)
		}
		all := engine(t, "controller", version)
		if got := workloads(all); !slices.Equal(got, []string{"argocd-application-controller"}) {
			t.Errorf("%s, controller: %v", version, got)
		}
		params := object{"data": find(t, all, "ConfigMap", "argocd-cmd-params-cm").get("data")}
		if params.at("data", "repo.server") != "repo.hub.example.com:8081" ||
			params.at("data", "redis.server") != "redis.hub.example.com:6379" ||
			params.at("data", "controller.repo.server.strict.tls") != "true" {
			t.Errorf("%s, controller: %v", version, params)
		}
	}
}

// Argo CD's containers run as published: the chart changes only the image's registry, the
// resources, and the repo-server's Git settings.
func TestNothingElseOfArgoCDIsChanged(t *testing.T) {
	for _, version := range versions {
		all := engine(t, "full", version, "--set", "repoServer.gitSettings=false")
		seen := 0
		for _, want := range published(t, version, "namespace-install.yaml") {
			if !slices.Contains(workloads(all), want.at("metadata", "name")) {
				continue
			}
			switch kind := want.at("kind"); kind {
			case "Role", "NetworkPolicy", "Service":
				got := find(t, all, kind, want.at("metadata", "name"))
				for _, field := range []string{"rules", "spec"} {
					if text(t, got.get(field)) != text(t, want.get(field)) {
						t.Errorf("%s: %s has other %s", version, got, field)
					}
				}
			case "Deployment", "StatefulSet":
				seen++
				got := find(t, all, kind, want.at("metadata", "name"))
				if text(t, got.pod().get("volumes")) != text(t, want.pod().get("volumes")) ||
					text(t, got.get("spec", "selector")) != text(t, want.get("spec", "selector")) {
					t.Errorf("%s: %s has other volumes or another selector", version, got)
				}
				for _, list := range []string{"initContainers", "containers"} {
					sameContainers(t, version, got.pod().list(list), want.pod().list(list))
				}
			}
		}
		if seen != 3 {
			t.Errorf("%s: %d workloads compared", version, seen)
		}
	}
}

func sameContainers(t *testing.T, version string, got, want []object) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d containers for %d", version, len(got), len(want))
	}
	for i := range want {
		bounded(t, version, got[i])
		image := got[i].at("image")
		for _, o := range []object{got[i], want[i]} {
			unbounded(o)
			delete(o, "image")
			delete(o, "resources")
		}
		if text(t, got[i]) != text(t, want[i]) {
			t.Errorf("%s: container %v runs otherwise", version, want[i].get("name"))
		}
		name := "argoproj/argocd@sha256:" + strings.Repeat("0", 63) + "1"
		if want[i].at("name") == "redis" {
			name = "library/redis@sha256:" + strings.Repeat("0", 63) + "2"
		}
		if !strings.HasPrefix(image, "mirror.example.com/") || !strings.HasSuffix(image, name) {
			t.Errorf("%s: container %v has the image %s", version, want[i].get("name"), image)
		}
	}
}

func TestImagesWithoutARegistryAreDockerHubs(t *testing.T) {
	redis := find(t, engine(t, "min", "v2.14.21"), "Deployment", "argocd-redis").pod().list(
		"containers")[0].at("image")
	if !strings.HasPrefix(redis, "docker.io/library/redis:7") {
		t.Errorf("Redis is %s", redis)
	}
}

// The label gives Argosy the version of an image without a tag.
func TestTheControllerHasAVersionLabel(t *testing.T) {
	for _, version := range versions {
		set := find(t, engine(t, "full", version), "StatefulSet", "argocd-application-controller")
		if got := set.at("metadata", "labels", "app.kubernetes.io/version"); got != version {
			t.Errorf("%s: it has %s", version, got)
		}
	}
}

func TestCRDsStayAsPublishedAndOutliveTheRelease(t *testing.T) {
	for _, version := range versions {
		all := engine(t, "min", version)
		for _, name := range []string{"application", "appproject"} {
			want := published(t, version, "crds/"+name+"-crd.yaml")[0]
			got := find(t, all, "CustomResourceDefinition", name+"s.argoproj.io")
			if text(t, got.get("spec")) != text(t, want.get("spec")) {
				t.Errorf("%s: %s is another", version, got)
			}
			if got.at("metadata", "annotations", "helm.sh/resource-policy") != "keep" {
				t.Errorf("%s: %s goes with the release, and every Application with it", version,
					got)
			}
		}
		for _, o := range engine(t, "full", version) {
			if o.at("kind") == "CustomResourceDefinition" {
				t.Errorf("%s: %s, though crds.install is off", version, o)
			}
		}
	}
}

func TestBothChartsGrantTheControlPlaneTheSameRights(t *testing.T) {
	here := find(t, engine(t, "full", "v3.5.7"), "Role", "argosy")
	there := find(t, objects(t, "argosy", "hub", append(ci("argosy", "min"), "--set",
		"rbac.engineNamespaces={argocd}")...), "Role", "release-argosy-engine")
	if essence(t, here) != essence(t, there) {
		t.Errorf("%s\n%s", essence(t, here), essence(t, there))
	}
}

func TestTheChartGrantsRightsOnApplicationsAloneInFurtherNamespaces(t *testing.T) {
	all := objects(t, "argosy", "hub", append(ci("argosy", "min"), "--set",
		"rbac.applicationNamespaces={shop-apps}")...)
	for _, kind := range []string{"Role", "RoleBinding"} {
		if o := find(t, all, kind, "release-argosy-applications"); o.at("metadata",
			"namespace") != "shop-apps" {
			t.Errorf("%s is in %s", o, o.at("metadata", "namespace"))
		}
	}
	rules := text(t, find(t, all, "Role", "release-argosy-applications").get("rules"))
	if want := `[{"apiGroups":["argoproj.io"],"resources":["applications"],` +
		`"verbs":["get","list","watch","patch","delete"]}]`; rules != want {
		t.Errorf("%s, want %s", rules, want)
	}
}

func TestTheEngineChartInstallsAnAgent(t *testing.T) {
	all := engine(t, "controller", "v3.5.7")
	agent := find(t, all, "Deployment", "argosy-agent")
	args := text(t, agent.pod().list("containers")[0].get("args"))
	if agent.at("metadata", "namespace") != "argocd-edge-1-agent" ||
		!strings.Contains(args,
			`"--namespace","argocd-edge-1-agent","--argocd-namespace","argocd-eu-1"`) {
		t.Errorf("it is in %s and runs %s", agent.at("metadata", "namespace"), args)
	}
	find(t, all, "Namespace", "argocd-edge-1-agent")
}

func TestManifestsThatDoNotMatchTheLockAreRejected(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"argocd.sh", "argocd.lock"} {
		content, err := os.ReadFile(filepath.Join("argosy-engine", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mirror := filepath.Join(dir, "mirror")
	if err := os.CopyFS(mirror,
		os.DirFS(filepath.Join("argosy-engine", "files", "argocd", "v3.5.7"))); err != nil {
		t.Fatal(err)
	}
	bring := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "argocd.sh"), "v3.5.7",
			mirror).CombinedOutput()
		return string(out), err
	}
	if out, err := bring(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.OpenFile(filepath.Join(mirror, "crds", "appproject-crd.yaml"),
		os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("# more\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := bring(); err == nil || !strings.Contains(out, "crds/appproject-crd.yaml") {
		t.Errorf("got %v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "files", "argocd", "v3.5.7",
		"namespace-install.yaml")); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
}
