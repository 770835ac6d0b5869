package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/test/stack"
)

// aPushOfAnApplication has the Git host deliver the pushes of an organization: only what deploys
// from the pushed folder and branch is compared, at once. A tenant's own secret refreshes nothing
// of another tenant.
func aPushOfAnApplication(t *testing.T, w *forged) {
	const pushed = "tenants/acme/deployments/pushed.yaml"
	const beside = "tenants/acme/deployments/beside.yaml"
	storefront, err := w.forge.Repo(t.Context(), "acme/storefront")
	check(t, err)
	push := func(text string) (commit string) {
		t.Helper()
		commit, err := storefront.Push(t.Context(), w.forge.Admin, stack.Change{Message: text,
			Write: map[string]string{"pushed/config.yaml": strings.Replace(motd(text),
				"name: storefront", "name: pushed", 1)}})
		check(t, err)
		return commit
	}
	declare := func(message string, files map[string]string, remove ...string) {
		t.Helper()
		_, err := w.config.Push(t.Context(), w.person["petra"], stack.Change{Message: message,
			Write: files, Remove: remove})
		check(t, err)
	}
	first := push("first")
	declare("two folders of a repository", map[string]string{hooksFile: w.hookSecret(t),
		pushed: strings.Replace(w.deploymentAt("pushed", "staging", "acme-staging", "main"),
			"path: deploy", "path: pushed", 1),
		beside: w.deploymentAt("beside", "staging", "acme-staging", "main")})
	w.allHealthy(t, "acme/pushed@staging", "acme/beside@staging")
	eventually(t, "synced to the first push", w.syncedTo(t, "pushed", first))

	hook, err := w.forge.CreateOrgHook(t.Context(), "acme", w.plane.URL+"/webhook/push", w.secret,
		"push")
	check(t, err)
	second, began := push("second"), time.Now()
	eventually(t, "synced to the second push", w.syncedTo(t, "pushed", second))
	t.Logf("synced %s after the push", time.Since(began).Round(100*time.Millisecond))
	check(t, w.forge.DeleteOrgHook(t.Context(), "acme", hook))

	if mark := w.markOf(t, "acme", "pushed", "staging"); !strings.HasPrefix(mark, "push-") {
		t.Errorf("the second push was not a refresh: %q", mark)
	}
	if mark := w.markOf(t, "acme", "beside", "staging"); mark != "" {
		t.Errorf("what deploys from another folder was refreshed: %s", mark)
	}

	web, file := w.forge.URL+"/globex/web", "manifests/web.yaml"
	w.delivers(t, "acme", "not the secret", web, file, http.StatusUnauthorized)
	w.delivers(t, "globex", tenantHook, web, file, http.StatusUnauthorized)
	w.delivers(t, "acme", tenantHook, web, file, http.StatusAccepted)
	w.delivers(t, "acme", tenantHook, storefront.URL, "deploy/config.yaml", http.StatusAccepted)
	eventually(t, "the tenant's delivery is handled", func() string {
		if mark := w.markOf(t, "acme", "beside", "staging"); !strings.HasPrefix(mark, "push-") {
			return mark
		}
		return ""
	})
	if mark := w.markOf(t, "globex", "web", "prod-eu"); mark != "" {
		t.Errorf("acme's delivery refreshed globex/web: %s", mark)
	}
	w.delivers(t, "", w.secret, web, file, http.StatusAccepted)
	eventually(t, "the platform's delivery refreshes it", func() string {
		if mark := w.markOf(t, "globex", "web", "prod-eu"); !strings.HasPrefix(mark, "push-") {
			return mark
		}
		return ""
	})
	declare("no longer", nil, pushed, beside, hooksFile)
	w.allHealthy(t)
}

// markOf is the last refresh of an Application on eu-1.
func (f *system) markOf(t *testing.T, tenant, deployment, environment string) string {
	t.Helper()
	return f.live(t, "eu-1", tenant, deployment, environment).GetAnnotations()[markOfRefresh]
}
