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
		beside: w.deploymentAt("beside", "staging", "acme-staging", "v2.0.1")})
	w.allHealthy(t, "acme/pushed@staging", "acme/beside@staging")
	eventually(t, "synced to the first push", w.syncedTo(t, "pushed", first))

	hook, err := w.forge.CreateOrgHook(t.Context(), "acme", w.plane.URL+"/webhook/push", w.secret,
		"push")
	check(t, err)
	second, began := push("second"), time.Now()
	eventually(t, "synced to the second push", w.syncedTo(t, "pushed", second))
	t.Logf("synced %s after the push", time.Since(began).Round(100*time.Millisecond))
	check(t, w.forge.DeleteOrgHook(t.Context(), "acme", hook))

	w.delivers(t, "acme", "not the secret", w.forge.URL+"/globex/web", http.StatusUnauthorized)
	w.delivers(t, "globex", tenantHook, w.forge.URL+"/globex/web", http.StatusUnauthorized)
	w.delivers(t, "acme", tenantHook, w.forge.URL+"/globex/web", http.StatusAccepted)
	before := w.markOf(t, "acme", "pushed", "staging")
	w.delivers(t, "acme", tenantHook, storefront.URL, http.StatusAccepted) // another folder
	third := push("third")
	w.delivers(t, "", w.secret, "https://nobody.example.com/x", http.StatusAccepted)
	eventually(t, "synced to the third push, by Argo CD's own polling or a refresh", func() string {
		w.must(t, "refresh", "acme/pushed@staging", "--yes", "--wait")
		return w.syncedTo(t, "pushed", third)()
	})
	if !strings.HasPrefix(before, "push-") {
		t.Errorf("the second push was not a refresh: %q", before)
	}
	for _, other := range [][3]string{{"acme", "beside", "staging"}, {"globex", "web", "prod-eu"}} {
		if mark := w.markOf(t, other[0], other[1], other[2]); mark != "" {
			t.Errorf("%s/%s was refreshed: %s", other[0], other[1], mark)
		}
	}
	declare("no longer", nil, pushed, beside, hooksFile)
	w.allHealthy(t)
}

// markOf is the last refresh of an Application on eu-1.
func (f *system) markOf(t *testing.T, tenant, deployment, environment string) string {
	t.Helper()
	return f.live(t, "eu-1", tenant, deployment, environment).GetAnnotations()[markOfRefresh]
}
