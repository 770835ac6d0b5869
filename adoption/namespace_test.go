package adoption

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// elsewhere is an Application of a project in another namespace than Argo CD's.
func elsewhere(name, project, namespace string) string {
	return strings.Replace(in(name, project, name), "namespace: argocd", "namespace: "+namespace,
		1)
}

func TestApplicationsAreAdoptedInTheNamespacesOfTheirTenants(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		apps    []string
		refused map[string]string // by name, words of the reason
		engine  string
		agent   string
	}{
		"two namespaces of one tenant": {
			apps: []string{in("web", "shop", "web"), in("api", "shop", "api"),
				elsewhere("cart", "shop", "shop-apps"), elsewhere("pay", "shop", "pay-apps")},
			engine: "  applicationNamespaces:\n    - namespace: pay-apps\n      tenant: shop\n" +
				"    - namespace: shop-apps\n      tenant: shop\n"},
		"a namespace of two tenants": {
			apps: []string{in("web", "shop", "web"), in("api", "shop", "api"),
				in("more", "blog", "more"), elsewhere("cart", "shop", "apps"),
				elsewhere("blog", "blog", "apps"), elsewhere("pay", "shop", "pay-apps")},
			refused: map[string]string{"cart": "Applications of tenants blog and shop",
				"blog": "Applications of tenants blog and shop"},
			engine: "  applicationNamespaces:\n    - namespace: pay-apps\n      tenant: shop\n"},
		"a namespace to which another tenant deploys": {
			apps: []string{in("web", "shop", "web"), in("more", "blog", "pay-apps"),
				elsewhere("pay", "shop", "pay-apps")},
			refused: map[string]string{"more": "deploys as that tenant"},
			engine:  "  applicationNamespaces:\n    - namespace: pay-apps\n      tenant: shop\n"},
		"a namespace to which its own tenant deploys": {
			apps: []string{in("web", "shop", "web"), in("api", "shop", "pay-apps"),
				in("more", "blog", "more"), elsewhere("pay", "shop", "pay-apps")},
			engine: "  applicationNamespaces:\n    - namespace: pay-apps\n      tenant: shop\n"},
		"a reserved one": {
			apps: []string{in("web", "shop", "web"), in("api", "shop", "api"),
				elsewhere("cart", "shop", "kube-system")},
			refused: map[string]string{"cart": "reserved by Kubernetes"}},
		"a cluster with an agent": {
			apps: []string{in("web", "shop", "web"), in("api", "shop", "api"),
				strings.Replace(elsewhere("cart", "shop", "shop-apps"),
					"server: \"https://kubernetes.default.svc\"", "name: far", 1),
				elsewhere("pay", "shop", "pay-apps")},
			agent: "  agent:\n    argocdNamespace: argocd\n    applicationNamespaces:\n" +
				"      - shop-apps\n",
			engine: "  applicationNamespaces:\n    - namespace: pay-apps\n      tenant: shop\n"},
	} {
		im, files := convergedBy(t, func(o *Options) { o.Adopt = true }, decision{}, c.apps...)
		got := map[string]string{}
		for _, a := range im.apps {
			if !a.refused() && len(a.lost) > 0 {
				t.Errorf("%s: %s loses %v", name, a.Name, a.lost)
			}
			if a.refused() {
				got[a.Name] = a.result.Reason
			}
		}
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(c.refused))) {
			t.Errorf("%s: refused %v", name, got)
		}
		for app, words := range c.refused {
			if !strings.Contains(got[app], words) {
				t.Errorf("%s: %s is refused for %q, want %q", name, app, got[app], words)
			}
		}
		engine := files["fleet/engines/main.yaml"]
		if c.engine == "" && strings.Contains(engine, "applicationNamespaces") ||
			!strings.Contains(engine, c.engine) {
			t.Errorf("%s: the engine is\n%s", name, engine)
		}
		if !strings.Contains(files["tenants/shop/environments/far.yaml"], c.agent) ||
			c.agent != "" && strings.Contains(engine, "shop-apps") {
			t.Errorf("%s: the environment with an agent is\n%s\n%s", name,
				files["tenants/shop/environments/far.yaml"], engine)
		}
		for app, object := range map[string]string{"web": "web", "cart": "shop-apps/cart",
			"pay": "pay-apps/pay"} {
			file, written := files["tenants/shop/deployments/"+app+".yaml"]
			if written && !strings.Contains(file, "application: "+object+"\n") {
				t.Errorf("%s: %s is\n%s", name, app, file)
			}
		}
	}
}

// The tenant of the platform may deploy where another tenant has Applications.
func TestThePlatformDeploysToANamespaceOfApplications(t *testing.T) {
	t.Parallel()
	adopting := func(o *Options) { o.Adopt, o.PlatformTenant = true, "ops" }
	apps := []string{in("web", "shop", "web"), in("rights", "blog", "shop-apps"),
		in("blog", "blog", "blog"), elsewhere("cart", "shop", "shop-apps"),
		namedProject("other", "shop-apps")}
	first, _ := convergedBy(t, adopting, decision{}, apps...)
	sites := first.platformSites()
	if !sites[site{inCluster, "shop-apps"}] {
		t.Fatalf("%v", sites)
	}
	im, files := convergedBy(t, adopting, decision{platform: sites}, apps...)
	for _, a := range im.apps {
		if a.refused() || a.moved != (a.Name == "rights") {
			t.Errorf("%s: tenant %s, moved %t: %s", a.Name, a.tenant, a.moved, a.result.Reason)
		}
	}
	if engine := files["fleet/engines/main.yaml"]; !strings.Contains(engine,
		"platformTenant: ops\n") || !strings.Contains(engine, "namespace: shop-apps\n") {
		t.Error(engine)
	}
	if text := files["tenants/blog/environments/main.yaml"]; strings.Contains(text, "shop-apps") {
		t.Error(text)
	}
}

func TestAnOutcomeNamesObjectsAsDeclarationsDo(t *testing.T) {
	t.Parallel()
	o := &Outcome{Namespace: "argocd"}
	for namespace, want := range map[string]string{"": "web", "argocd": "web",
		"apps": "apps/web"} {
		if got := o.Object(namespace, "web"); got != want {
			t.Errorf("in %q it is %q, want %q", namespace, got, want)
		}
	}
}
