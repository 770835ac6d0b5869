package adoption

import (
	"slices"
	"strings"
	"testing"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// converged assembles the config repo of some Applications without rendering it.
func converged(t *testing.T, apps ...string) (*importer, map[string]string) {
	t.Helper()
	im := &importer{Options: Options{Engine: "main", Region: "main", DefaultTenant: "platform"},
		tenants: map[fleet.TenantName]*tenant{}, filesAt: map[string]bool{},
		owned: map[string][]Original{}, patternNames: map[fleet.Key]bool{}}
	im.tools.Normalize = func(o map[string]any, _ func(string) bool) (Normal, error) {
		return Normal{Spec: object(o, "spec")}, nil
	}
	found, refused := Read("apps.yaml", []byte(strings.Join(apps, "---\n")))
	im.Originals, im.Refused = beforeAdoption(found), refused
	im.findNamespace()
	im.readSecrets()
	im.readProjects()
	im.readApplications()
	im.propose()
	im.join()
	w, err := im.converge()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range w.files {
		files[f.Path] = string(f.Bytes)
	}
	for _, p := range configschema.Check(w.files) {
		if p.Severity == fleet.SeverityError {
			t.Errorf("%s", p)
		}
	}
	return im, files
}

func in(name, project, namespace string) string {
	return strings.NewReplacer("project: default", "project: "+project, "namespace: app",
		"namespace: "+namespace).Replace(named(name))
}

// The cluster that Argo CD runs on is the engine's own. An engine of one tenant alone serves the
// reserved namespaces to it.
func TestTheClusterOfArgoCDIsTheEngines(t *testing.T) {
	t.Parallel()
	im, files := converged(t, in("web", "default", "web"), in("dns", "default", "kube-system"),
		in("cd", "default", "argocd"))
	for _, a := range im.apps {
		if a.refused() {
			t.Errorf("%s: %s", a.Name, a.result.Reason)
		}
	}
	if env := files["tenants/platform/environments/main.yaml"]; !strings.Contains(env,
		"engine: main\n") || strings.Contains(env, "credentialsRef") {
		t.Errorf("%s", env)
	}
	im.noteAccounts()
	if !slices.ContainsFunc(im.notes, func(note string) bool {
		return strings.Contains(note, "service account argosy-tenant-platform/main ")
	}) {
		t.Errorf("no note names the service account: %q", im.notes)
	}
}

// Two tenants share the cluster of the engine: neither gets a namespace that owns it, and the
// reason names the way out.
func TestNoTenantGetsAnEngineThatOthersUse(t *testing.T) {
	t.Parallel()
	im, _ := converged(t, in("web", "shop", "web"), in("dns", "default", "kube-system"))
	for _, a := range im.apps {
		if a.refused() != (a.Name == "dns") {
			t.Errorf("%s: %s", a.Name, a.result.Reason)
		}
		if a.refused() && !strings.Contains(a.result.Reason, "--tenant-by") {
			t.Errorf("%s: %s", a.Name, a.result.Reason)
		}
	}
}

func TestANamespaceOfTwoTenantsGoesToTheOneWithMoreInIt(t *testing.T) {
	t.Parallel()
	im, files := converged(t, in("a", "shop", "web"), in("b", "default", "web"),
		in("c", "default", "web"))
	for _, a := range im.apps {
		if a.refused() != (a.tenant == "shop") {
			t.Errorf("%s: %s", a.Name, a.result.Reason)
		}
	}
	if files["tenants/platform/deployments/b.yaml"] == "" {
		t.Error("the deployment of the other tenant is missing")
	}
}
