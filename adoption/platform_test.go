package adoption

import (
	"slices"
	"strings"
	"testing"
)

func namedProject(name string, namespaces ...string) string {
	text := "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: " + name +
		", namespace: argocd}\nspec:\n  sourceRepos: ['*']\n  destinations:\n"
	for _, ns := range namespaces {
		text += "  - {server: 'https://kubernetes.default.svc', namespace: " + ns + "}\n"
	}
	return text
}

// No tenant may own the Argo CD beside others. The Applications in such namespaces go to the
// platform's tenant, which the Engine names, and the other tenants keep the rest.
func TestThePlatformsNamespacesGoToItsTenant(t *testing.T) {
	t.Parallel()
	apps := []string{in("web", "shop", "web"), in("dns", "shop", "kube-system"),
		in("cd", "blog", "argocd"), in("blog", "blog", "blog"),
		namedProject("shop", "web", "kube-system")}
	first, files := convergedWith(t, decision{}, "ops", apps...)
	if strings.Contains(files["fleet/engines/main.yaml"], "platformTenant") {
		t.Error("an Engine names a platform tenant that has no namespace")
	}
	sites := first.platformSites()
	if len(sites) != 2 || !sites[site{inCluster, "kube-system"}] ||
		!sites[site{inCluster, "argocd"}] {
		t.Fatalf("%v", sites)
	}
	im, files := convergedWith(t, decision{platform: sites}, "ops", apps...)
	want := map[string]string{"web": "shop", "dns": "ops", "cd": "ops", "blog": "blog"}
	for _, a := range im.apps {
		if a.refused() || string(a.tenant) != want[a.Name] || a.moved != (a.tenant == "ops") {
			t.Errorf("%s: tenant %s, moved %t: %s", a.Name, a.tenant, a.moved, a.result.Reason)
		}
		if reported := slices.ContainsFunc(a.lost, func(d Difference) bool {
			return d.Path == "spec.project" && d.From == a.project && d.To == "ops" && !d.hard
		}); reported != a.moved {
			t.Errorf("%s: %v", a.Name, a.lost)
		}
	}
	if !strings.Contains(files["fleet/engines/main.yaml"], "platformTenant: ops\n") {
		t.Error(files["fleet/engines/main.yaml"])
	}
	if text := files["fleet/tenants/shop.yaml"] + files["tenants/shop/environments/main.yaml"] +
		files["fleet/tenants/blog.yaml"]; strings.Contains(text, "kube-system") ||
		strings.Contains(text, "- argocd") {
		t.Errorf("another tenant is granted a namespace of the platform:\n%s", text)
	}
	shop := im.tenants["shop"].projects[0]
	im.judge(shop, im.tenants["shop"])
	if !slices.ContainsFunc(shop.result.Differences, func(d Difference) bool {
		return d.Path == "spec.destinations" && strings.Contains(d.Reason,
			"Applications dns go to tenant ops")
	}) {
		t.Errorf("the project: %+v", shop.result.Differences)
	}
	im.notePlatform()
	if notes := strings.Join(im.notes, "\n"); !strings.Contains(notes,
		"argocd of cluster in-cluster, kube-system of cluster in-cluster") ||
		!strings.Contains(notes, "its owners are group:ops") {
		t.Error(notes)
	}
	if im.platformSites() != nil {
		t.Error("the attempts do not end")
	}
}

// The tenant of the project default is the platform's if it has the name.
func TestTheTenantOfTheDefaultProjectOwnsTheArgoCD(t *testing.T) {
	t.Parallel()
	im, files := convergedWith(t, decision{}, "platform", in("web", "shop", "web"),
		in("dns", "default", "kube-system"))
	for _, a := range im.apps {
		if a.refused() || a.moved {
			t.Errorf("%s: moved %t: %s", a.Name, a.moved, a.result.Reason)
		}
	}
	if !strings.Contains(files["fleet/engines/main.yaml"], "platformTenant: platform\n") {
		t.Error(files["fleet/engines/main.yaml"])
	}
}

func TestANamespaceOfSeveralProjectsIsThePlatforms(t *testing.T) {
	t.Parallel()
	both := []string{in("a", "shop", "tools"), in("b", "blog", "tools"), in("c", "blog", "blog")}
	for name, c := range map[string]struct {
		more []string
		by   TenantBy
		want bool
	}{
		"no project names it": {nil, TenantBy{}, true},
		"one project names it": {[]string{namedProject("shop", "tools"),
			namedProject("blog", "blog")}, TenantBy{}, false},
		"both projects name it": {[]string{namedProject("shop", "tools"),
			namedProject("blog", "blog", "tools")}, TenantBy{}, true},
		"a person chose the tenants": {nil, TenantBy{Label: "team"}, false},
	} {
		im, _ := convergedWith(t, decision{}, "ops", append(slices.Clone(both), c.more...)...)
		im.TenantBy = c.by
		if got := im.platformSites()[site{inCluster, "tools"}]; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	im, _ := convergedWith(t, decision{}, "", both...)
	if im.platformSites() != nil {
		t.Error("Applications go to a tenant that is not named")
	}
}
