package api_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	syncPath = "/do/sync?deployment=web&environment=prod&tenant=acme"
	stopPath = "/do/stop?name=acme&scope=tenant"
)

// submit sends the form of a confirmation as a browser does.
func (p *portal) submit(c *http.Client, path, token, site string) answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+path,
		strings.NewReader(url.Values{"confirmation": {token}, "reason": {"tests"}}.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", site)
	return p.by(c, req)
}

// confirmationIn returns the token of a confirmation's form.
func confirmationIn(page string) string {
	found := regexp.MustCompile(`name="confirmation" value="([^"]*)"`).FindStringSubmatch(page)
	if found == nil {
		return ""
	}
	return html.UnescapeString(found[1])
}

func (p *portal) signedIn(name string) *http.Client {
	p.t.Helper()
	c := p.browser()
	p.want(p.visit(c, p.begin(c, name+"@example.com", name[:1], "/")), http.StatusOK)
	return c
}

func TestAPersonChangesFromThePageWhatItHasShown(t *testing.T) {
	p := newPortal(t)
	alice, bob := p.signedIn("alice"), p.signedIn("bob")
	const app = "/tenants/acme/applications/web/prod"

	t.Run("buttons are for who may", func(t *testing.T) {
		p.want(p.visit(alice, p.url+app), http.StatusOK, `href="/do/sync?`, `href="/do/refresh?`)
		for path, token := range map[string]string{app: platformToken, "/": platformToken,
			"/holds": platformToken} {
			if a := p.page(path, token); strings.Contains(a.body, `href="/do/`) {
				t.Errorf("%s offers a change to a token", path)
			}
		}
		if a := p.visit(alice, p.url+"/holds"); strings.Contains(a.body, "/do/release") {
			t.Error("a member may release")
		}
	})
	t.Run("an action is done once, as it was shown", func(t *testing.T) {
		shown := p.visit(alice, p.url+syncPath+"&prune=true")
		p.want(shown, http.StatusOK, "Sync acme/web@prod", "Argo CD applies the manifests")
		token := confirmationIn(shown.body)
		p.want(p.submit(alice, syncPath, token, "same-origin"), http.StatusConflict,
			"Something has changed since you looked") // the same without prune
		done := p.submit(alice, syncPath+"&prune=true", token, "same-origin")
		p.want(done, http.StatusSeeOther)
		to := done.header.Get("Location")
		p.want(p.visit(alice, p.url+to), http.StatusOK, "acme/web@prod", "user:corp/alice")
		p.want(p.submit(alice, syncPath+"&prune=true", token, "same-origin"), http.StatusConflict,
			"it was used already", "confirm again")
		acts, _, err := p.fleet.Actions(t.Context(), view.Scope{}, view.Filter{},
			view.Page{Limit: 9})
		if err != nil || len(acts) != 1 || !acts[0].Options.Prune || acts[0].Note != "tests" {
			t.Errorf("%v %+v", err, acts)
		}
	})
	t.Run("a rollback leads to the last revision before, and can end", func(t *testing.T) {
		p.fleet.Change(func(m *apitest.Mirror) {
			m.Healthy = []apitest.HealthyRevisions{{Application: acmeWeb,
				Revisions: []mirror.HealthyRevision{{Revision: "c0ffee", Runs: true,
					FirstAt: time.Now()}, {Revision: "ba5e", FirstAt: time.Now().Add(-time.Hour)}}}}
		})
		const rollback = "/do/rollback?deployment=web&environment=prod&tenant=acme"
		for query, text := range map[string]string{"": "Argo CD syncs it to ba5e",
			"&revision=ba5e&end=true": "automation goes on"} {
			a := p.visit(alice, p.url+rollback+query)
			p.want(a, http.StatusSeeOther)
			to := a.header.Get("Location")
			if strings.Contains(to, "revision=ba5e") != (query == "") {
				t.Errorf("%q leads to %s", query, to)
			}
			p.want(p.visit(alice, p.url+to), http.StatusOK, text)
		}
	})
	t.Run("a restart is of the listed workloads", func(t *testing.T) {
		workload := func(uid string) {
			p.seen.Set(acmeWeb, apitest.Resources{Tree: view.Tree{Nodes: []view.TreeNode{{
				ResourceRef: view.ResourceRef{Group: "apps", Kind: "Deployment", Namespace: "web",
					Name: "web", UID: uid}, Parent: -1, Managed: true}}}})
		}
		workload("u-1")
		restart := "/do/restart?deployment=web&environment=prod&tenant=acme"
		shown := p.visit(alice, p.url+restart)
		p.want(shown, http.StatusOK, "Deployment/web", "Restart 0 Pods")
		workload("u-2") // another of the same name
		again := p.submit(alice, restart, confirmationIn(shown.body), "same-origin")
		p.want(again, http.StatusConflict, "Something has changed since you looked")
		p.want(p.submit(alice, restart, confirmationIn(again.body), "same-origin"),
			http.StatusSeeOther)
		acts, _, err := p.fleet.Actions(t.Context(), view.Scope{}, view.Filter{},
			view.Page{Limit: 9})
		if err != nil || !slices.ContainsFunc(acts, func(a mirror.Action) bool {
			return a.Kind == mirror.ActionRestart && len(a.Options.Resources) == 1 &&
				a.Options.Resources[0].UID == "u-2"
		}) {
			t.Errorf("%v %+v", err, acts)
		}
	})
	t.Run("a forged token, and one of another session or site, are refused",
		func(t *testing.T) {
			token := confirmationIn(p.visit(alice, p.url+stopPath).body)
			other := p.signedIn("alice")
			p.want(p.submit(other, stopPath, token, "same-origin"), http.StatusForbidden,
				"not one that this session has got", "Next:")
			for _, forged := range []string{"", "a.b.c", token[:len(token)-2] + "xx", "x" + token} {
				p.want(p.submit(alice, stopPath, forged, "same-origin"), http.StatusForbidden,
					"not one that this session has got")
			}
			p.want(p.submit(alice, stopPath, token, "cross-site"), http.StatusForbidden,
				"another site has sent it", "Next:")
			stops, err := p.fleet.Stops(t.Context(), view.Scope{})
			if err != nil || len(stops) != 0 {
				t.Errorf("%v %+v", err, stops)
			}
		})
	t.Run("an old token shows the change again", func(t *testing.T) {
		token := confirmationIn(p.visit(alice, p.url+stopPath).body)
		p.now = func() time.Time { return time.Now().Add(6 * time.Minute) }
		again := p.submit(alice, stopPath, token, "same-origin")
		p.now = nil
		p.want(again, http.StatusConflict, "older than five minutes", `name="confirmation"`)
	})
	t.Run("a stop lists what it covers, and is ended in the same way", func(t *testing.T) {
		shown := p.visit(alice, p.url+stopPath)
		p.want(shown, http.StatusOK, "acme/prod", "on eu-1")
		p.want(p.submit(alice, stopPath, confirmationIn(shown.body), "same-origin"),
			http.StatusSeeOther)
		p.want(p.visit(alice, p.url+"/tenants/acme"), http.StatusOK, "tests",
			"/do/resume?name=acme&amp;scope=tenant")
		p.want(p.visit(alice, p.url+syncPath), http.StatusOK, "an emergency stop is in force")
		resume := "/do/resume?name=acme&scope=tenant"
		shown = p.visit(alice, p.url+resume)
		p.want(shown, http.StatusOK, "Stop that ends", "user:corp/alice", "tests")
		p.fleet.Change(func(m *apitest.Mirror) { m.Stops[0].Reason = "another" })
		p.want(p.submit(alice, resume, confirmationIn(shown.body), "same-origin"),
			http.StatusConflict, "Something has changed since you looked", "another")
		shown = p.visit(alice, p.url+resume)
		p.want(p.submit(alice, resume, confirmationIn(shown.body), "same-origin"),
			http.StatusSeeOther)
		p.want(p.submit(alice, resume, confirmationIn(shown.body), "same-origin"),
			http.StatusConflict, "it is not stopped")
	})
	t.Run("nothing of another tenant, and nothing beyond the role", func(t *testing.T) {
		for _, path := range []string{"/do/stop?name=globex&scope=tenant",
			"/do/sync?deployment=web&environment=prod&tenant=globex", "/do/nothing",
			"/do/resume?name=globex&scope=tenant"} {
			a := p.visit(alice, p.url+path)
			p.want(a, http.StatusNotFound)
			if strings.Contains(a.body, "eu-1") {
				t.Errorf("%s shows something", path)
			}
		}
		for _, path := range []string{"/do/stop?scope=fleet", "/do/stop?name=eu-1&scope=engine",
			"/do/release?revision=" + string(rev1), "/do/release?tenant=acme&revision=" +
				string(rev1), "/do/approve-rollout?tenant=acme&deployment=web"} {
			p.want(p.visit(alice, p.url+path), http.StatusForbidden, "Next:")
		}
	})
	t.Run("the cookie of a pasted token changes nothing", func(t *testing.T) {
		p.want(p.page(stopPath, platformToken), http.StatusForbidden, "sign in as a person")
	})
	t.Run("an owner releases what the tenant's freeze holds", func(t *testing.T) {
		p.fleet.Change(func(m *apitest.Mirror) {
			m.Holds = append(m.Holds, mirror.Hold{Revision: rev1, Reason: mirror.HoldFrozen,
				Tenant: "globex", Message: "weekend", Items: []fleet.ObjectKey{{Engine: "eu-1",
					Kind: fleet.ObjectApplication, Name: "globex-web-prod"}}})
		})
		release := "/do/release?revision=" + string(rev1) + "&tenant=globex"
		shown := p.visit(bob, p.url+release)
		p.want(shown, http.StatusOK, "weekend", "globex-web-prod")
		if strings.Contains(shown.body, "too many of") {
			t.Error("it lists what an owner may not release")
		}
		p.want(p.submit(bob, release, confirmationIn(shown.body), "same-origin"),
			http.StatusSeeOther)
		p.want(p.visit(bob, p.url+release), http.StatusForbidden, "wait for another reason")
	})
	t.Run("the menu shows the role, and switches the tenant", func(t *testing.T) {
		p.want(p.visit(alice, p.url+"/"), http.StatusOK, "Tenant acme, member",
			`href="/sessions"`)
		for tenant, role := range map[string]string{"globex": "owner", "acme": "member"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				p.url+"/tenant", strings.NewReader("to=/&tenant="+tenant))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			p.want(p.by(bob, req), http.StatusSeeOther)
			a := p.visit(bob, p.url+"/")
			p.want(a, http.StatusOK, "Tenant "+tenant+", "+role, `<option value="`+tenant+
				`" selected>`)
		}
	})
}
