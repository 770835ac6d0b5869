package argocd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

func codes(r engine.Report) []string {
	var all []string
	for _, f := range r.Findings {
		text := f.Code
		if f.Blocks {
			text += " blocks"
		}
		if f.Blind {
			text += " blinds"
		}
		if f.Message == "" || f.Fix == "" {
			text += " has too little text"
		}
		all = append(all, text)
	}
	return all
}

func TestPreflightChecksTheSettings(t *testing.T) {
	cases := map[string]struct {
		data map[string]any
		want []string
	}{
		"as declared": {
			map[string]any{"application.resourceTrackingMethod": "annotation",
				"installationID": "eu-1"}, nil},
		"tracking by label": {
			map[string]any{"application.resourceTrackingMethod": "label", "installationID": "eu-1"},
			[]string{"tracking blocks"}},
		"tracking by annotation and label": {
			map[string]any{"application.resourceTrackingMethod": "annotation+label",
				"installationID": "eu-1"}, nil},
		"the installationID of another": {
			map[string]any{"application.resourceTrackingMethod": "annotation",
				"installationID": "us-1"}, []string{"installation-id blocks"}},
		"no installationID": {
			map[string]any{"application.resourceTrackingMethod": "annotation"},
			[]string{"installation-id blocks"}},
		"nothing set, on 3.x: only the id": {map[string]any{}, []string{"installation-id blocks"}},
		"an installationID that ends alike": {
			map[string]any{"application.resourceTrackingMethod": "annotation",
				"installationID": "eu-1 "}, []string{"installation-id blocks"}},
	}
	c := apiServer(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := openFixture(t)
			namespace := b.Spec.ArgoCD.Namespace
			settings(t, c, namespace, apart(tc.data))
			report, err := b.Engine.Preflight(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := codes(report); !slices.Equal(got, tc.want) {
				t.Fatalf("findings are %v, want %v", got, tc.want)
			}
			_, err = b.Engine.Apply(t.Context(), rowOf(t, projectObject(acme), 1), fleet.Secret{},
				mirror.Lease{})
			if blocked := errors.Is(err, engine.ErrUnfit); blocked != (tc.want != nil) {
				t.Errorf("a write gives %v", err)
			}
			settings(t, c, namespace, apart(cases["as declared"].data))
			if report, err = b.Engine.Preflight(t.Context()); err != nil ||
				len(report.Findings) > 0 {
				t.Fatalf("fixed: %v, %v", codes(report), err)
			}
			if _, err := b.Engine.Apply(t.Context(), rowOf(t, projectObject(acme), 1),
				fleet.Secret{}, mirror.Lease{}); errors.Is(err, engine.ErrUnfit) {
				t.Errorf("fixed, and a write gives %v", err)
			}
		})
	}
}

// apart adds the settings that isolate tenants in the repo-server.
func apart(data map[string]any) map[string]any {
	all := map[string]any{"jsonnet.enable": "false", "helm.valuesFileSchemes": ""}
	maps.Copy(all, data)
	return all
}

func TestPreflightRejectsARepoServerThatDoesNotIsolateTenants(t *testing.T) {
	declared := map[string]any{"application.resourceTrackingMethod": "annotation",
		"installationID": "eu-1"}
	with := func(more ...string) map[string]any {
		all := apart(declared)
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	off := map[string]any{submodulesKey: "false"}
	cases := map[string]struct {
		settings, params map[string]any
		dedicated        []fleet.TenantName
		advise, noParams bool
		want             []string
	}{
		"all set": {settings: with(), params: off},
		"as Argo CD comes": {settings: declared, params: map[string]any{},
			want: []string{"jsonnet blocks", "values-schemes blocks", "submodules"}},
		"as it comes, for one tenant": {settings: declared, params: map[string]any{},
			dedicated: []fleet.TenantName{"acme"}},
		"as it comes, for two tenants": {settings: declared, params: off,
			dedicated: []fleet.TenantName{"acme", "globex"}, want: []string{
				"jsonnet blocks", "values-schemes blocks"}},
		"as it comes, seen by an agent": {settings: declared, params: off, advise: true,
			want: []string{"jsonnet", "values-schemes"}},
		"by default, for an agent that knows who shares it": {
			settings: declared, params: map[string]any{}, noParams: true,
			want: []string{"jsonnet blocks", "values-schemes blocks"}},
		"jsonnet is switched on": {settings: with("jsonnet.enable", "true"), params: off,
			want: []string{"jsonnet blocks"}},
		"jsonnet's switch is empty": {settings: with("jsonnet.enable", ""), params: off,
			want: []string{"jsonnet blocks"}},
		"one scheme": {settings: with("helm.valuesFileSchemes", "https"),
			params: off, want: []string{"values-schemes blocks"}},
		"commas alone": {settings: with("helm.valuesFileSchemes", " , "),
			params: off},
		"submodules are switched on": {settings: with(), params: map[string]any{
			submodulesKey: "true"}, want: []string{"submodules"}},
		"kustomize runs helm": {settings: with("kustomize.buildOptions", "--enable-helm"),
			params: off, want: []string{"kustomize-options blocks"}},
		"one version reads everything": {
			settings: with("kustomize.buildOptions.v5.4.3",
				"--load-restrictor LoadRestrictionsNone"), params: off, want: []string{
				"kustomize-options blocks"}},
		"a harmless option": {
			settings: with("kustomize.buildOptions", "--as-current-user"), params: off},
	}
	c := apiServer(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := engineSpec()
			spec.ArgoCD.Namespace, spec.DedicatedTo = space(t, c), tc.dedicated
			settings(t, c, spec.ArgoCD.Namespace, tc.settings)
			params(t, c, spec.ArgoCD.Namespace, tc.params)
			e, err := Connect(testEngine, spec, c.REST(),
				Options{Advise: tc.advise, NoParams: tc.noParams,
					Stopped: func(fleet.TenantName) bool { return false }})
			if err != nil {
				t.Fatal(err)
			}
			report, err := e.Preflight(t.Context())
			if got := codes(report); err != nil || !slices.Equal(got, tc.want) {
				t.Fatalf("findings are %v, %v; want %v", got, err, tc.want)
			}
			_, err = e.Apply(t.Context(), rowOf(t, projectObject(acme), 1), fleet.Secret{},
				mirror.Lease{})
			blocks := slices.ContainsFunc(tc.want, func(code string) bool {
				return strings.HasSuffix(code, "blocks")
			})
			if errors.Is(err, engine.ErrUnfit) != blocks {
				t.Errorf("a write gives %v", err)
			}
		})
	}
}

func TestPreflightReadsTheRepoServersGitSettings(t *testing.T) {
	c := apiServer(t)
	ns := space(t, c)
	labels := map[string]string{"app.kubernetes.io/part-of": "argocd",
		"app.kubernetes.io/component": "repo-server"}
	deployment := func(env ...corev1.EnvVar) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "argocd-repo-server",
			Namespace: ns, Labels: labels}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{
						{Name: "argocd-repo-server", Image: "quay.io/argoproj/argocd:v3.5.7",
							Env: env}}}}}}
	}
	for _, tc := range []struct {
		env  []corev1.EnvVar
		want []string
	}{{nil, []string{"git-config"}},
		{[]corev1.EnvVar{{Name: "GIT_CONFIG_GLOBAL", Value: "/app/config/argosy-git/gitconfig"}},
			nil}} {
		if err := c.Apply(t.Context(), deployment(tc.env...)); err != nil {
			t.Fatal(err)
		}
		if report, err := fixtureOn(t, c.REST(), ns).Engine.Preflight(t.Context()); err != nil ||
			!slices.Equal(codes(report), tc.want) {
			t.Errorf("%v gives %v, %v", tc.env, codes(report), err)
		}
	}
}

// A thorough preflight knows what people's Applications on the instance need: a locked project, a
// preparation that was interrupted, and a change of the tracking that would untrack resources; in
// further namespaces too.
func TestAThoroughPreflightKnowsTheApplicationsOnTheInstance(t *testing.T) {
	c := apiServer(t)
	ns := space(t, c)
	settings(t, c, ns, apart(map[string]any{"application.resourceTrackingMethod": "label",
		"installationID": "eu-1"}))
	further := ns + "-apps"
	params(t, c, ns, map[string]any{"reposerver.enable.git.submodule": "false",
		"application.namespaces": further})
	if err := c.CreateNamespace(t.Context(), further); err != nil {
		t.Fatal(err)
	}
	app := func(object, project string, annotations, policy map[string]any) {
		t.Helper()
		namespace, name := fleet.SplitObject(object)
		source := map[string]any{"repoURL": "https://git.example.com/a/b", "path": "."}
		destination := map[string]any{"server": exampleServer, "namespace": "a"}
		if err := c.Apply(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": argoAPI, "kind": "Application",
			"metadata": map[string]any{"name": name, "namespace": cmp.Or(namespace, ns),
				"annotations": annotations},
			"spec": map[string]any{"project": project, "syncPolicy": policy, "source": source,
				"destination": destination}}}); err != nil {
			t.Fatal(err)
		}
	}
	app("shop", "default", nil, map[string]any{"automated": map[string]any{"prune": true}})
	app("cart", "people", map[string]any{annotationPaused: "{}"}, map[string]any{})
	app(further+"/blog", "default", nil, map[string]any{"automated": map[string]any{}})
	run := func(o Options) engine.Report {
		t.Helper()
		o.Stopped = func(fleet.TenantName) bool { return true }
		spec := engineSpec()
		spec.ArgoCD.Namespace = ns
		spec.ApplicationNamespaces = []fleet.ApplicationNamespace{{Namespace: further,
			Tenant: acme}}
		e, err := Connect(testEngine, spec, c.REST(), o)
		if err != nil {
			t.Fatal(err)
		}
		report, err := e.Preflight(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	if got := codes(run(Options{})); !slices.Equal(got, []string{"tracking blocks"}) {
		t.Errorf("a worker's findings are %v", got)
	}
	report := run(Options{Thorough: true})
	if got := codes(report); !slices.Equal(got, []string{"tracking blocks", "default-in-use",
		"prepare-interrupted", "tracking-in-use"}) {
		t.Fatalf("findings are %v", report.Findings)
	}
	for i, name := range []string{"argosy prepare eu-1", "shop, " + further + "/blog", "cart",
		"shop, " + further + "/blog"} {
		if f := report.Findings[i]; !strings.Contains(f.Message+f.Fix, name) ||
			!strings.Contains(f.Message+f.Fix, "argosy prepare") {
			t.Errorf("%s lacks %q: %s; %s", f.Code, name, f.Message, f.Fix)
		}
	}
}

func TestPreflightReportsMissingRights(t *testing.T) {
	c := apiServer(t)
	look := func(t *testing.T, namespace string, config *rest.Config) engine.Report {
		t.Helper()
		report, err := fixtureOn(t, config, namespace).Engine.Preflight(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	t.Run("a namespace without Argo CD", func(t *testing.T) {
		if got := codes(look(t, "kube-public", c.REST())); !slices.Contains(got,
			"settings blocks") {
			t.Errorf("findings are %v", got)
		}
	})
	t.Run("a default project that allows everything", func(t *testing.T) {
		ns := space(t, c)
		err := c.Apply(t.Context(), &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": argoAPI, "kind": "AppProject",
				"metadata": map[string]any{"name": "default", "namespace": ns},
				"spec": map[string]any{"sourceRepos": []any{"*"}, "destinations": []any{
					map[string]any{"server": "*", "namespace": "*"}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(look(t, ns, c.REST())); !slices.Equal(got, []string{"default-project"}) {
			t.Errorf("findings are %v", got)
		}
	})
	t.Run("rights", func(t *testing.T) {
		ns := space(t, c)
		token, err := c.TenantToken(t.Context(), "reader-"+ns)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Apply(t.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "some", Namespace: ns}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"argoproj.io"}, Resources: []string{
					"applications", "appprojects"},
					Verbs: []string{"get", "list", "watch", "create", "delete"}},
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}},
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{
					"get"}}}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "some", Namespace: ns},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "some"},
				Subjects: []rbacv1.Subject{
					{Kind: rbacv1.ServiceAccountKind, Namespace: "stack-tenants",
						Name: "reader-" + ns}}})
		if err != nil {
			t.Fatal(err)
		}
		config := &rest.Config{Host: c.Server, BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}}
		report := look(t, ns, config)
		if got := codes(report); !slices.Equal(got, []string{"rights blocks", "stop-marker"}) {
			t.Fatalf("findings are %v", report.Findings)
		}
		if text := report.Findings[0].Message; !strings.Contains(text, "patch applications") ||
			!strings.Contains(text, "patch appprojects") || strings.Contains(text, "secrets") {
			t.Errorf("got %q", text)
		}
	})
	t.Run("rights of a ring", func(t *testing.T) {
		ns := space(t, c)
		token, err := c.TenantToken(t.Context(), "installer-"+ns)
		if err != nil {
			t.Fatal(err)
		}
		grant := func(rules ...rbacv1.PolicyRule) {
			t.Helper()
			err := c.Apply(t.Context(), &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "installer-" + ns}, Rules: rules},
				&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "installer-" + ns},
					RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
						Name: "installer-" + ns},
					Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind,
						Namespace: "stack-tenants", Name: "installer-" + ns}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		all := []rbacv1.PolicyRule{
			{APIGroups: []string{"", "apps", "argoproj.io", "apiextensions.k8s.io",
				"rbac.authorization.k8s.io", "networking.k8s.io"}, Resources: []string{
				"applications", "appprojects", "secrets", "configmaps", "serviceaccounts",
				"services", "deployments", "statefulsets", "networkpolicies", "roles",
				"rolebindings", "customresourcedefinitions"}, Verbs: []string{"*"}}}
		grant(all...)
		spec := engineSpec()
		spec.ArgoCD.Namespace, spec.ArgoCD.Managed = ns, true
		config := &rest.Config{Host: c.Server, BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}}
		findings := func(o Options) []engine.Finding {
			t.Helper()
			o.Stopped = func(fleet.TenantName) bool { return false }
			e, err := Connect(testEngine, spec, config, o)
			if err != nil {
				t.Fatal(err)
			}
			report, err := e.Preflight(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return report.Findings
		}
		found := findings(Options{Shadows: true})
		if len(found) != 1 || found[0].Code != "shadow-rights" || found[0].Blocks ||
			!strings.Contains(found[0].Message, "list pods, create pods/portforward") {
			t.Fatalf("findings are %+v", found)
		}
		if found := findings(Options{}); len(found) > 0 {
			t.Errorf("without shadows, the findings are %+v", found)
		}
		grant(append(all, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"},
			Verbs: []string{"list"}}, rbacv1.PolicyRule{APIGroups: []string{""},
			Resources: []string{"pods/portforward"}, Verbs: []string{"create"}})...)
		waitUntil(t, func() bool { return len(findings(Options{Shadows: true})) == 0 })
	})
	t.Run("the kinds", func(t *testing.T) {
		b := newFaultRig(t, Options{})
		b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
			is := r.URL.Path == "/apis/argoproj.io/v1alpha1"
			if is {
				http.Error(w, "404 page not found", 404)
			}
			return is
		})
		report, err := b.e.Preflight(t.Context())
		if got := codes(report); err != nil || !slices.Equal(got, []string{"kinds blocks"}) {
			t.Errorf("findings are %v, %v", got, err)
		}
	})
}

func TestAFailedPreflightKeepsTheLastResult(t *testing.T) {
	b := newFaultRig(t, Options{Timeout: 5e9})
	b.synced()
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		is := strings.HasSuffix(r.URL.Path, "/argocd-cm")
		if is {
			http.Error(w, "bad gateway", 502)
		}
		return is
	})
	if _, err := b.e.Preflight(t.Context()); err == nil {
		t.Error("no error")
	}
	b.applied(b.app("v1"))
}

func TestPreflightReadsTheVersion(t *testing.T) {
	for image, want := range map[string]string{
		"quay.io/argoproj/argocd:v3.5.7":           "v3.5.7",
		"registry:5000/argocd:v2.14.21@sha256:abc": "v2.14.21", "argocd:2.14.1": "2.14.1",
		"argocd": "", "argocd:latest": "", "registry:5000/argocd": "", "argocd:v": "", "": "",
	} {
		if got := imageVersion(image); got != want {
			t.Errorf("%q gives %q, want %q", image, got, want)
		}
	}
	c := apiServer(t)
	ns := space(t, c)
	if report, err := fixtureOn(t, c.REST(), ns).Engine.Preflight(t.Context()); err != nil ||
		report.Version != "3.x" {
		t.Errorf("from the CRD alone: %q, %v", report.Version, err)
	}
	labels := map[string]string{"app.kubernetes.io/part-of": "argocd",
		"app.kubernetes.io/component": "application-controller"}
	for _, given := range []struct{ image, label, want string }{
		{"quay.io/argoproj/argocd@sha256:abc", "", "3.x"},
		{"quay.io/argoproj/argocd@sha256:abc", "later", "3.x"},
		{"quay.io/argoproj/argocd@sha256:abc", "v3.5.7", "v3.5.7"},
		{"quay.io/argoproj/argocd:v2.14.21", "v3.5.7", "v2.14.21"},
	} {
		set := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "argocd-application-controller", Namespace: ns,
				Labels: maps.Clone(labels)}, Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						Containers: []corev1.Container{{Name: "c", Image: given.image}}}}}}
		if given.label != "" {
			set.Labels[versionLabel] = given.label
		}
		if err := c.Apply(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		if report, err := fixtureOn(t, c.REST(), ns).Engine.Preflight(t.Context()); err != nil ||
			report.Version != given.want {
			t.Errorf("%+v gives %q, %v", given, report.Version, err)
		}
	}
}

// Argo CD before 3.1 takes an OCI artifact for a Git repository.
func TestAnArtifactIsWrittenToAnArgoCDThatKnowsIt(t *testing.T) {
	spec := engineSpec()
	spec.DedicatedTo = []fleet.TenantName{acme}
	o := applicationObject(checkoutID, exampleServer)
	git, err := prepare(rowFor(t, spec, o, 1), fleet.Secret{}, mirror.Lease{})
	if err != nil {
		t.Fatal(err)
	}
	o.Application.Sources = append(o.Application.Sources, fleet.Source{Path: ".",
		RepoURL: "oci://registry.example.com/acme/checkout", TargetRevision: "v1"})
	w, err := prepare(rowFor(t, spec, o, 1), fleet.Secret{}, mirror.Lease{})
	if err != nil {
		t.Fatal(err)
	}
	const unknown = "the version of this one is not known; let the control plane list"
	for version, refusal := range map[string]string{
		"v2.14.21": "Argo CD v2.14.21 deploys no OCI artifacts",
		"2.x":      "Argo CD 2.x deploys no OCI artifacts", "3.0.3": "Argo CD 3.0.3 deploys no OCI",
		"v3.1.0": "", "3.5.7": "", "v3.10.0-rc1": "", "4.0.0": "", "3.x": unknown, "": unknown} {
		e := &Engine{}
		e.argoCD.Store(&version)
		err := e.checkArtifacts(w)
		if errors.Is(err, engine.ErrRefused) != (refusal != "") ||
			err != nil && !strings.Contains(err.Error(), refusal) {
			t.Errorf("Argo CD %q: %v", version, err)
		}
		if err := e.checkArtifacts(git); err != nil {
			t.Errorf("Argo CD %q takes nothing from Git: %v", version, err)
		}
	}
	if err := (&Engine{}).checkArtifacts(w); !errors.Is(err, engine.ErrRefused) {
		t.Errorf("before the first preflight: %v", err)
	}
}

// A read that fails proves nothing about the version: the last one that was read stays in force.
func TestAFailedReadOfTheVersionKeepsTheLastOne(t *testing.T) {
	b := newFaultRig(t, Options{Timeout: 5e9})
	read := "v3.5.7"
	b.e.argoCD.Store(&read)
	reads := map[string]string{"StatefulSets": "/statefulsets", "Deployments": "/deployments",
		"the definition": "/customresourcedefinitions/applications.argoproj.io"}
	fail := func(path, query string, code int) {
		b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
			is := strings.HasSuffix(r.URL.Path, path) &&
				strings.Contains(r.URL.Query().Get("labelSelector"), query)
			if is {
				answer(w, code, http.StatusText(code), "by the test")
			}
			return is
		})
	}
	for name, path := range reads {
		for _, code := range []int{http.StatusTooManyRequests, http.StatusBadGateway} {
			fail(path, "", code)
			_, err := b.e.Preflight(t.Context())
			if codeOf(err) != code || !strings.Contains(err.Error(), "could not be read") {
				t.Errorf("%s, %d: %v", name, code, err)
			}
			if got := *b.e.argoCD.Load(); got != read {
				t.Errorf("%s, %d: the version is %q", name, code, got)
			}
		}
	}
	fail("/deployments", "component=repo-server", http.StatusBadGateway)
	if _, err := b.e.Preflight(t.Context()); codeOf(err) != http.StatusBadGateway {
		t.Errorf("the repo-server's Deployments: %v", err)
	}
	for name, path := range reads {
		b.e.argoCD.Store(&read)
		fail(path, "", http.StatusForbidden)
		report, err := b.e.Preflight(t.Context())
		want := "3.x" // from the definition
		if name == "the definition" {
			want = ""
		}
		if got := *b.e.argoCD.Load(); err != nil || report.Version != want || got != want {
			t.Errorf("without rights on %s: %q, kept is %q, %v", name, report.Version, got, err)
		}
	}
}

func TestArgoCDsWithoutARequestTimeoutAreReported(t *testing.T) {
	for version, want := range map[string]int{
		"v2.14.21": 0, "v3.5.7": 0, "3.5.7": 0, "v3.6.0-rc2": 1, "v3.6.1": 1, "3.10.0": 1,
		"3.x": 0, "v4.6.0": 0, "": 0, "3.": 0,
	} {
		if got := timeoutFindings(version); len(got) != want || want > 0 && got[0].Blocks {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// The control plane's Roles in the charts do not allow reading CustomResourceDefinitions.
func TestPreflightDoesNotAskForADefinitionThatItMayNotRead(t *testing.T) {
	b := newFaultRig(t, Options{})
	var asked atomic.Int32
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/customresourcedefinitions/") {
			asked.Add(1)
		}
		review := strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews")
		if review {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"status": {"allowed": %t}}`, err == nil &&
				!bytes.Contains(body, []byte("customresourcedefinitions")))
		}
		return review
	})
	if report, err := b.e.Preflight(t.Context()); err != nil || report.Version != "" ||
		len(report.Findings) > 0 || asked.Load() > 0 {
		t.Errorf("%+v, %v; asked %d times", report, err, asked.Load())
	}
}

func TestConnectRejectsInvalidSettings(t *testing.T) {
	good := &rest.Config{Host: "https://127.0.0.1:1"}
	free := Options{Stopped: func(fleet.TenantName) bool { return false }}
	cases := map[string]func() error{
		"plain http": func() error {
			_, err := Connect("e", engineSpec(), &rest.Config{
				Host: "http://127.0.0.1:1"}, free)
			return err
		},
		"no way to ask for a stop": func() error {
			_, err := Connect("e", engineSpec(), good, Options{})
			return err
		},
		"an instance without its id": func() error {
			_, err := Connect("e", fleet.EngineSpec{
				ArgoCD: fleet.ArgoCDInstance{Namespace: "x"}}, good, free)
			return err
		},
		"an own cluster without a place": func() error {
			_, err := Connect(ownEngine, fleet.EngineSpec{}, good, free)
			return err
		},
		"an instance without a place": func() error {
			_, err := Connect("e", fleet.EngineSpec{
				ArgoCD: fleet.ArgoCDInstance{InstallationID: "x"}}, good, free)
			return err
		},
	}
	for name, connect := range cases {
		if err := connect(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	e, err := Connect("e", engineSpec(), good, free)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Preflight(t.Context()); !errors.Is(err, engine.ErrUnreachable) ||
		!strings.Contains(fmt.Sprint(err), "127.0.0.1") {
		t.Errorf("without a server: %v", err)
	}
}
