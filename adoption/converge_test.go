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
	return convergedWith(t, decision{}, "", apps...)
}

// convergedWith is converged as a further attempt, with a tenant of the platform.
func convergedWith(t *testing.T, d decision, platform string, apps ...string) (*importer,
	map[string]string) {
	t.Helper()
	return convergedBy(t, func(o *Options) { o.PlatformTenant = platform }, d, apps...)
}

// convergedBy is converged with other options.
func convergedBy(t *testing.T, change func(*Options), d decision, apps ...string) (*importer,
	map[string]string) {
	t.Helper()
	im := &importer{Input: Input{Whole: true}, Options: Options{Engine: "main", Region: "main",
		DefaultTenant: "platform"}, decision: d, ownerless: map[site]bool{},
		tenants: map[fleet.TenantName]*tenant{}, filesAt: map[string]bool{},
		owned: map[string][]Original{}, patternNames: map[fleet.Key]bool{}}
	change(&im.Options)
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
// An OCI artifact is rendered for a tenant alone, which the only one of an Argo CD is; or the
// platform trusts it.
func TestAnArtifactIsImportedForTheOnlyTenant(t *testing.T) {
	t.Parallel()
	artifact := func(name, project string) string {
		return strings.NewReplacer("https://git.example.com/acme/app",
			"oci://registry.example.com/acme/app", "project: default", "project: "+project,
		).Replace(named(name))
	}
	im, files := converged(t, artifact("web", "default"))
	if a := im.apps[0]; a.refused() {
		t.Errorf("%s: %s", a.Name, a.result.Reason)
	}
	if got := files["tenants/platform/deployments/web.yaml"]; !strings.Contains(got,
		"repoURL: oci://registry.example.com/acme/app\n") {
		t.Errorf("the deployment is\n%s", got)
	}
	tenant := files["fleet/tenants/platform.yaml"]
	if !strings.Contains(tenant, "alone: true") ||
		!strings.Contains(tenant, "oci://registry.example.com/acme/app") {
		t.Errorf("the grant is\n%s", tenant)
	}
	if strings.Contains(tenant, "artifacts") {
		t.Errorf("a tenant alone is granted\n%s", tenant)
	}
	im, files = converged(t, artifact("web", "one"), in("cart", "two", "cart"))
	for _, a := range im.apps {
		if a.refused() {
			t.Errorf("with another tenant, %s is refused: %s", a.Name, a.result.Reason)
		}
	}
	if tenant = files["fleet/tenants/one.yaml"]; strings.Contains(tenant, "alone") ||
		!strings.Contains(tenant, "artifacts:\n      - oci://registry.example.com/acme/app\n") {
		t.Errorf("with another tenant, the grant is\n%s", tenant)
	}
	im.noteGrants()
	notes := strings.Join(im.notes, "\n")
	for _, want := range []string{
		"tenant one is granted artifacts (oci://registry.example.com/acme/app); cluster-scoped " +
			"kinds (Namespace, PersistentVolume, ",
		"; review it in fleet/tenants/one.yaml; an artifact may choose the tool that renders it"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes are %q, want %q", notes, want)
		}
	}
}

func TestANoteHasEachGrantOfATenant(t *testing.T) {
	t.Parallel()
	d := newDraft(fleet.Key{Kind: fleet.KindTenant, Name: "shop"})
	d.document["spec"] = map[string]any{
		"allow": map[string]any{"notifications": services([]string{"slack shop", "webhook "})},
		"environments": []any{map[string]any{"name": "eu", "allNamespaces": true},
			map[string]any{"name": "us", "namespaces": []any{"kube-system"}}},
		"clusterResources": []any{map[string]any{"group": "", "kind": "Namespace"}}}
	im := &importer{tenants: map[fleet.TenantName]*tenant{"shop": {name: "shop", draft: d}}}
	im.noteGrants()
	want := "tenant shop is granted notifications (slack: shop, webhook: any recipient); all " +
		"namespaces of environment eu; reserved namespaces of environment us (kube-system); " +
		"cluster-scoped kinds (Namespace); review it in fleet/tenants/shop.yaml"
	if len(im.notes) != 1 || im.notes[0] != want {
		t.Errorf("%q", im.notes)
	}
}

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

func openProject(name, namespace string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: " + name +
		", namespace: argocd}\nspec:\n  sourceRepos: ['*']\n  destinations: [{server: '*', " +
		"namespace: '" + namespace + "'}]\n"
}

// Projects that permit every namespace of the cluster do not keep their Applications apart.
func TestOpenProjectsThatMeetInANamespaceAreOneTenant(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		apps []string
		want string
	}{
		"both open": {[]string{openProject("a", "*"), openProject("b", "*"),
			in("web", "a", "web"), in("cart", "b", "web")}, "a b"},
		"default is open": {[]string{openProject("a", "*"), in("web", "a", "web"),
			in("cart", "default", "web")}, "a default"},
		"default is closed": {[]string{openProject("a", "*"), openProject("default", "web"),
			in("web", "a", "web"), in("cart", "default", "web")}, "a"},
		"one is not at hand": {[]string{openProject("a", "*"), in("web", "a", "web"),
			in("cart", "b", "web")}, "a"},
		"they do not meet": {[]string{openProject("a", "*"), openProject("b", "*"),
			in("web", "a", "web"), in("cart", "b", "cart")}, ""},
	} {
		im, _ := converged(t, c.apps...)
		if got := strings.Join(keys(im.openProjects()), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		im.TenantBy.Label = "team"
		if len(im.openProjects()) > 0 {
			t.Errorf("%s: a person's choice is overruled", name)
		}
	}
}

// A project that permits every namespace of a cluster that no other tenant uses has all of it.
func TestAnOpenProjectHasAClusterOfItsOwn(t *testing.T) {
	t.Parallel()
	remote := func(app string) string {
		return strings.Replace(app, "https://kubernetes.default.svc", "https://eu.example.com", 1)
	}
	for name, c := range map[string]struct {
		apps []string
		want bool
	}{
		"alone": {[]string{openProject("shop", "*"), remote(in("web", "shop", "web"))}, true},
		"named": {[]string{openProject("shop", "web"), remote(in("web", "shop", "web"))}, false},
		"with another": {[]string{openProject("shop", "*"), remote(in("web", "shop", "web")),
			remote(in("cart", "other", "cart"))}, false},
		"on the Argo CD's": {[]string{openProject("shop", "*"), in("web", "shop", "web")}, false},
	} {
		apps := append(c.apps, in("own", "shop", "own"))
		apps[0] += "  clusterResourceWhitelist: [{group: '', kind: Namespace}]\n"
		im, files := converged(t, apps...)
		for _, a := range im.apps {
			if a.refused() {
				t.Errorf("%s: %s: %s", name, a.Name, a.result.Reason)
			}
		}
		whole := false
		for path, text := range files {
			if strings.HasPrefix(path, "tenants/shop/environments/") {
				whole = whole || strings.Contains(text, "allNamespaces: true")
			}
		}
		if whole != c.want {
			t.Errorf("%s: allNamespaces %t: %v", name, whole, files)
		}
	}
}

func TestAnExportedProjectKeepsItsTenant(t *testing.T) {
	t.Parallel()
	im := &importer{Options: Options{DefaultTenant: "platform"}}
	for project, want := range map[string]fleet.TenantName{
		fleet.ProjectName("shop"): "shop", fleet.ProjectName("a-b"): "a-b", "shop-x": "shop-x",
		"default": "platform",
	} {
		if got := im.tenantOfProject(project); got != want {
			t.Errorf("%s: %s, want %s", project, got, want)
		}
	}
}

func TestAnApplicationOfTwoApplicationSetsIsRefused(t *testing.T) {
	t.Parallel()
	owned := strings.Replace(in("web", "shop", "web"), "metadata: {",
		"metadata: {ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, "+
			"name: b}, {apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, name: a}], ", 1)
	im, _ := converged(t, owned, in("cart", "shop", "web"))
	for _, a := range im.apps {
		if a.refused() != (a.Name == "web") || a.refused() &&
			!strings.Contains(a.result.Reason, "/a and argocd/b own it") {
			t.Errorf("%s: %q", a.Name, a.result.Reason)
		}
	}
}
