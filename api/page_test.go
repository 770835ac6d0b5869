package api_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// page requests a page like a browser with that token's session.
func (s *site) page(path, token string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.AddCookie(&http.Cookie{Name: "argosy-session", Value: token})
	}
	return s.send(req)
}

// timeless removes the times, whose texts depend on the present one.
func timeless(page string) string {
	return regexp.MustCompile(`<time[^>]*>[^<]*</time>`).ReplaceAllString(page, "")
}

func (s *site) post(path string, form url.Values, header http.Header) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path,
		strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	return s.send(req)
}

func TestSigningIn(t *testing.T) {
	s := newSite(t, content())
	t.Run("without a session every page leads to the form", func(t *testing.T) {
		s := s.in(t)
		for _, path := range []string{"/", "/tenants/acme", "/engines/eu-1", "/nothing/here"} {
			a := s.page(path, "")
			if a.status != http.StatusSeeOther || !strings.HasPrefix(a.header.Get("Location"),
				"/signin?to=") {
				t.Errorf("%s: %d to %s", path, a.status, a.header.Get("Location"))
			}
		}
		s.want(s.page("/signin", ""), http.StatusOK, `name="token"`)
	})
	t.Run("a valid token becomes a cookie that scripts and other sites cannot use",
		func(t *testing.T) {
			s := s.in(t)
			a := s.post("/signin", url.Values{"token": {platformToken}, "to": {"/tenants/acme"}},
				nil)
			if a.status != http.StatusSeeOther || a.header.Get("Location") != "/tenants/acme" {
				t.Fatalf("%d to %q", a.status, a.header.Get("Location"))
			}
			cookie := a.header.Get("Set-Cookie")
			for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
				if !strings.Contains(cookie, part) {
					t.Errorf("no %s in %s", part, strings.ReplaceAll(cookie, platformToken, "…"))
				}
			}
		})
	t.Run("behind TLS the cookie is for this host over https only", func(t *testing.T) {
		s := s.in(t)
		a := s.post("/signin", url.Values{"token": {platformToken}}, http.Header{
			"X-Forwarded-Proto": {"https"}, "Host": {"argosy.example.com"}})
		cookie := a.header.Get("Set-Cookie")
		if !strings.HasPrefix(cookie, "__Host-argosy=") || !strings.Contains(cookie, "Secure") {
			t.Errorf("%d %s", a.status, strings.ReplaceAll(cookie, platformToken, "…"))
		}
	})
	t.Run("over plain http from elsewhere it is refused", func(t *testing.T) {
		s := s.in(t)
		a := s.post("/signin", url.Values{"token": {platformToken}}, http.Header{
			"Host": {"argosy.example.com"}})
		s.want(a, http.StatusForbidden, "needs https")
		if a.header.Get("Set-Cookie") != "" {
			t.Error("a cookie was set")
		}
	})
	t.Run("a wrong token is refused", func(t *testing.T) {
		s := s.in(t)
		s.want(s.post("/signin", url.Values{"token": {"argosy_wrong"}}, nil),
			http.StatusUnauthorized, "invalid or expired")
	})
	t.Run("another site cannot sign anyone in or out", func(t *testing.T) {
		s := s.in(t)
		for _, path := range []string{"/signin", "/signout"} {
			a := s.post(path, url.Values{"token": {platformToken}}, http.Header{
				"Sec-Fetch-Site": {"cross-site"}})
			if a.status != http.StatusForbidden || a.header.Get("Set-Cookie") != "" {
				t.Errorf("%s: %d", path, a.status)
			}
		}
	})
	t.Run("it redirects to no other site", func(t *testing.T) {
		s := s.in(t)
		for _, to := range []string{"https://evil.example", "//evil.example", `/\evil.example`,
			"/%5cevil\n", "javascript:alert(1)"} {
			a := s.post("/signin", url.Values{"token": {platformToken}, "to": {to}}, nil)
			if got := a.header.Get("Location"); got != "/" {
				t.Errorf("%q leads to %q", to, got)
			}
		}
	})
	t.Run("a revoked token ends the session", func(t *testing.T) {
		s := s.in(t)
		if err := s.store.RevokeToken(t.Context(), "look", "test"); err != nil {
			t.Fatal(err)
		}
		if a := s.page("/", readerToken); a.status != http.StatusSeeOther {
			t.Errorf("%d", a.status)
		}
	})
	t.Run("the API ignores the cookie", func(t *testing.T) {
		s := s.in(t)
		s.want(s.page("/api/v1/tenants", platformToken), http.StatusUnauthorized)
	})
}

func TestPagesShowTheStatus(t *testing.T) {
	m := content()
	m.Stops = []mirror.Stop{{Scope: mirror.StopTenant, Name: "acme", By: "token:ops",
		Reason: "audit"}}
	s := newSite(t, m)
	s.want(s.page("/", platformToken), http.StatusOK, "argosy release "+string(rev1),
		"argosy resume --tenant acme",
		"tenants/acme/deployments/bad.yaml:3:1", "a secret plan", `href="/engines/eu-1"`)
	s.want(s.page("/tenants/acme", platformToken), http.StatusOK, "group:acme",
		"https://git.example.com/acme/web")
	s.want(s.page("/engines/eu-1", platformToken), http.StatusOK, "acme/prod", "globex/prod")
	s.want(s.page("/tenants/acme/environments/prod", platformToken), http.StatusOK, "least loaded",
		"is dedicated to globex")
	s.want(s.page("/tenants/acme/applications/web/prod", platformToken), http.StatusOK, "Healthy")
	s.want(s.page("/tenants/acme/applications/web/prod/facts", platformToken), http.StatusOK,
		"<code>acme-apps/shop</code>")
	s.want(s.page("/applications?health=Healthy&tenant=acme", platformToken), http.StatusOK,
		"acme/web", "in Argo CD <code>acme-apps/shop</code>")
	s.want(s.page("/applications?after=nonsense", platformToken), http.StatusBadRequest)
	for _, file := range []string{"style.css", "live.js", "icon.svg"} {
		s.want(s.page("/static/"+file, ""), http.StatusOK)
	}
	s.want(s.page("/static/", platformToken), http.StatusNotFound)
}

func TestPagesShowNoSilentApplicationAsGreen(t *testing.T) {
	m, at := content(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	m.Engines[0].Reachable, m.Engines[0].LastSeenAt = true, &at
	for i := range m.Applications {
		a := &m.Applications[i]
		a.Sync, a.Health, a.LastSeenAt = mirror.SyncUnknown, mirror.HealthUnknown, &at
		m.Tenants[i].Counts.Unknown, m.Environments[i].LastSeenAt = 1, &at
	}
	s := newSite(t, m)
	for path, want := range map[string]string{
		"/":                                   "<b>2</b><span>unknown: engine or cluster silent",
		"/engines/eu-1":                       "Silent: last seen",
		"/applications":                       "last seen 2026-11-20 12:00 UTC",
		"/tenants/acme":                       "1 unknown",
		"/tenants/acme/environments/prod":     "Unknown: its engine is silent",
		"/tenants/acme/applications/web/prod": "Unknown: the engine is silent. It was last seen",
	} {
		s.want(s.page(path, platformToken), http.StatusOK, want)
	}
}

func TestThePageOfAnEnvironmentThatIsTooLargeNamesTheSizes(t *testing.T) {
	m := content()
	p := &m.Environments[0].Placement
	p.Engine, p.Reason = "", "it is too large"
	p.TooLarge = &fleet.TooLarge{Applications: 1200, Engines: 2, LargestCapacity: 500}
	s := newSite(t, m)
	for _, token := range []string{platformToken, acmeToken} {
		s.want(s.page("/tenants/acme/environments/prod", token), http.StatusOK, "not placed",
			"it has 1200 Applications, and the largest capacity of an engine that may serve it "+
				"is 500", "a capacity of 1200 applications or more")
	}
	p.Engine, p.Reason = "eu-1", "the only engine that may serve it"
	p.TooLarge.Engines = 1
	m.Environments[0].Engine = "eu-1"
	s = newSite(t, m)
	s.want(s.page("/tenants/acme/environments/prod", acmeToken), http.StatusOK,
		"it has 1200 Applications, and its engine has a capacity of 500. It stays there",
		"raise the capacity of engine eu-1, split the environment (argosy split environment")
	for _, path := range []string{"/tenants/acme", "/engines/eu-1"} {
		s.want(s.page(path, platformToken), http.StatusOK, "it has outgrown engine eu-1: it has "+
			"1200 Applications, and the engine a capacity of 500")
	}
}

// Texts of an engine or a tenant are escaped wherever they are displayed.
func TestTenantsTextsAreEscaped(t *testing.T) {
	const bomb = `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	m := content()
	for i := range m.Applications {
		m.Applications[i].Message, m.Applications[i].Health = bomb, mirror.HealthDegraded
		m.Applications[i].ApplyMessage, m.Applications[i].RepoURL = bomb, "javascript:"+bomb
		m.Applications[i].TargetRevision = bomb
	}
	for i := range m.Problems {
		m.Problems[i].Message, m.Problems[i].Fix, m.Problems[i].Path = bomb, bomb, bomb
	}
	m.Tenants[0].Owners = []string{bomb}
	m.Environments[0].Server = bomb
	m.Environments[0].Placement.Reason, m.Environments[0].Placement.Misplaced = bomb, bomb
	m.Holds[0].Message, m.Revisions[0].Subject, m.Operations[0].Message = bomb, bomb, bomb
	m.Engines[0].Message, m.Engines[0].Reachable, m.Source.Error = bomb, false, bomb
	m.Stops = []mirror.Stop{{Scope: mirror.StopFleet, Reason: bomb, By: bomb}}
	s := newSite(t, m)
	for _, path := range []string{"/", "/tenants/acme", "/engines/eu-1",
		"/tenants/acme/environments/prod", "/tenants/acme/applications/web/prod",
		"/tenants/acme/applications/web/prod/facts", "/services", "/operations", "/problems",
		"/search?q=" + url.QueryEscape(bomb), "/applications",
		"/applications?tenant=" + url.QueryEscape(bomb)} {
		a := s.page(path, platformToken)
		s.want(a, http.StatusOK)
		if strings.Contains(a.body, "<script>") || strings.Contains(a.body, "<img src=x") ||
			strings.Contains(a.body, `href="javascript`) {
			t.Errorf("%s lets it through: %s", path, a.body)
		}
		if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp,
			"script-src 'self'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
}

func TestAPageReportsAnUnreadableMirror(t *testing.T) {
	s := newSite(t, content())
	s.store.Fail(errSecretCause)
	a := s.page("/", platformToken)
	s.want(a, http.StatusServiceUnavailable, "cannot be read now")
	if strings.Contains(a.body, "hunter2") {
		t.Error("the page contains the cause")
	}
}

func TestEachKindHasAListWhoseObjectsLeadFurther(t *testing.T) {
	m := content()
	m.Source.URL = "https://github.com/acme/config"
	m.Moves = []view.Move{{Tenant: "acme", Environment: "prod", From: "eu-1", To: "eu-2",
		Operation: "op-acme", State: mirror.OperationRunning}}
	s := newSite(t, m)
	for path, want := range map[string]string{
		"/tenants":                    `href="/tenants/acme"`,
		"/environments":               `href="/tenants/acme/environments/prod"`,
		"/environments?tenant=globex": `href="/tenants/globex/environments/prod"`,
		"/deployments":                `href="/tenants/acme/deployments/web"`,
		"/engines":                    `href="/engines/eu-1"`,
		"/revisions":                  `href="/revisions/` + string(rev1) + `"`,
		"/revisions/" + string(rev1):  "https://github.com/acme/config/commit/" + string(rev1),
		"/moves":                      `href="/operations/op-acme"`,
		"/problems":                   string(rev1) + "/tenants/acme/deployments/bad.yaml#L3",
		"/holds":                      `href="/revisions/` + string(rev1) + `"`,
		"/operations":                 `href="/tenants/acme/applications/web/prod"`,
		"/operations/op-acme":         "acme/web@prod",
		"/tenants/acme/deployments/web": "/blob/" + string(rev1) +
			"/tenants/acme/deployments/web.yaml",
		"/applications?apply=Applied": `href="/applications"`,
	} {
		s.want(s.page(path, platformToken), http.StatusOK, want)
	}
	for _, path := range []string{"/engines", "/revisions", "/revisions/" + string(rev1),
		"/operations/op-globex", "/operations/none", "/tenants/globex/deployments/web"} {
		s.want(s.page(path, acmeToken), http.StatusNotFound)
	}
	for _, path := range []string{"/tenants", "/environments", "/deployments", "/moves",
		"/problems", "/operations", "/environments?tenant=globex"} {
		a := s.page(path, acmeToken)
		s.want(a, http.StatusOK)
		if strings.Contains(a.body, "globex") {
			t.Errorf("%s shows globex: %s", path, a.body)
		}
	}
	empty := newSite(t, apitest.Mirror{Tokens: m.Tokens})
	for path, want := range map[string]string{"/tenants": "fleet/tenants/",
		"/engines": "fleet/engines/", "/problems": "is in effect", "/holds": "waits for a release",
		"/moves": "argosy move environment", "/operations": "No operation yet"} {
		empty.want(empty.page(path, platformToken), http.StatusOK, want)
	}
}

func TestThePageOfTheAuditLogIsScopedFilteredAndExported(t *testing.T) {
	m := content()
	m.Tokens = append(m.Tokens, apitest.Token{Token: view.Token{ID: "v", Name: "v",
		Tenant: "acme", Role: view.RoleRead}, Plaintext: "argosy_viewer_1"})
	s := newSite(t, m)
	s.want(s.page("/audit", platformToken), http.StatusOK, "tenant acme", "tenant globex")
	s.want(s.page("/audit?actor=token:globex/*", platformToken), http.StatusOK, "of globex",
		`href="/audit/export?actor=token%3Aglobex`)
	s.want(s.page("/audit?action=none", platformToken), http.StatusOK, "No entry matches")
	s.want(s.page("/audit?since=2026-11-21", platformToken), http.StatusOK, "No entry matches")
	s.want(s.page("/audit?since=yesterday", platformToken), http.StatusBadRequest, "Next:")
	s.want(s.page("/audit?pull=x", platformToken), http.StatusBadRequest, "Next:")
	file := s.page("/audit/export?actor=token:acme/*", platformToken)
	s.want(file, http.StatusOK, `"subject":"tenant acme"`)
	if got := file.header.Get("Content-Disposition"); !strings.Contains(got, "audit.jsonl") ||
		strings.Count(file.body, "\n") != 1 {
		t.Errorf("%q %s", got, file.body)
	}
	for _, path := range []string{"/audit", "/audit?tenant=globex", "/audit/export",
		"/audit/export?tenant=globex"} {
		a := s.page(path, acmeToken)
		s.want(a, http.StatusOK, "tenant acme")
		if strings.Contains(a.body, "tenant globex") {
			t.Errorf("%s shows globex to acme", path)
		}
		s.want(s.page(path, "argosy_viewer_1"), http.StatusForbidden, "Next:")
	}
	for _, path := range []string{"/audit", "/audit/export"} {
		s.want(s.get(path, "argosy_viewer_1"), http.StatusForbidden)
	}
}

// A followed log renews itself: a renewal of its page must not put the placeholder in its place.
func TestARenewalLeavesAFollowedLogAlone(t *testing.T) {
	s := newSite(t, content())
	for tab, panels := range map[string]int{"logs": 0, "facts": 1} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			s.url+"/tenants/acme/applications/web/prod/"+tab, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.AddCookie(&http.Cookie{Name: "argosy-session", Value: platformToken})
		req.Header.Set("Argosy-Parts", "header=x panel=y")
		a := s.send(req)
		s.want(a, http.StatusOK, `data-part="header"`)
		if n := strings.Count(a.body, `data-part="panel"`); n != panels {
			t.Errorf("%s: %d panels", tab, n)
		}
	}
}

// People share the parts that are rendered for them, and never get those of another scope.
func TestARenewalShowsWhatItsCallerMaySee(t *testing.T) {
	s := newSite(t, content())
	for range 3 {
		all, own := s.renew("/applications", platformToken), s.renew("/applications", acmeToken)
		s.want(all, http.StatusOK, `data-part="content"`, "acme/web", "globex/")
		if strings.Count(all.body, "data-part=") != 1 || strings.Contains(all.body, "<html") {
			t.Errorf("more than the content: %.300s", all.body)
		}
		s.want(own, http.StatusOK, "acme/web")
		if strings.Contains(own.body, "globex") {
			t.Error("the page of acme has something of globex")
		}
		s.want(s.renew("/engines", acmeToken), http.StatusNotFound)
		s.want(s.renew("/engines", platformToken), http.StatusOK, "eu-1")
		s.want(s.renew("/tenants/globex", acmeToken), http.StatusNotFound)
	}
}
