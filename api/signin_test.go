package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/postgres/embedded"
	"argosy.dev/argosy/signin"
	"argosy.dev/argosy/test/stack"
)

// portal is a served API whose people sign in at a real Dex, with their sessions in PostgreSQL.
type portal struct {
	*site
	dex   *stack.Dex
	store *postgres.Store
	fleet *apitest.Store // what the sessions are used on
	seen  *apitest.Inspector
	now   func() time.Time
}

// newPortal starts a portal with alice, a member of acme, and bob, of acme and globex.
func newPortal(t *testing.T) *portal {
	t.Helper()
	ctx := t.Context()
	dir, err := os.MkdirTemp("", "argosy-") // PostgreSQL's user passes through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	database, err := embedded.Start(ctx, filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.Stop() })
	if _, err := postgres.Migrate(ctx, database.URL); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(ctx, database.URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	p := &portal{store: store, site: &site{t: t, log: &safeBuffer{}}}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		p.server.ServeHTTP(w, r)
	}))
	p.url = "http://" + web.Listener.Addr().String()
	p.dex, err = stack.StartDex(ctx, stack.DexOptions{
		Clients: []stack.DexClient{{ID: "argosy", Secret: "s3cret",
			Redirects: []string{p.url + "/signin/corp/callback"}}},
		People: []stack.DexPerson{
			{ID: "1", Name: "alice", Email: "alice@example.com", Password: "a",
				Groups: []string{"acme"}},
			{ID: "2", Name: "bob", Email: "bob@example.com", Password: "b",
				Groups: []string{"acme", "globex"}},
			{ID: "3", Name: "eve", Email: "eve@example.com", Password: "e",
				Groups: []string{"admin", "owner", "operator"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.dex.Stop() })
	p.fleet = apitest.New(content())
	config := configOf(p.fleet)
	config.Now = func() time.Time {
		if p.now != nil {
			return p.now()
		}
		return time.Now()
	}
	p.seen = apitest.NewInspector(map[fleet.ApplicationID]apitest.Resources{acmeWeb: resources()})
	config.Inspector = p.seen
	config.Sessions, config.Hub = store.Sessions, p.url
	config.Limits = api.SessionLimits{Idle: time.Hour, Absolute: 8 * time.Hour, Refresh: time.Hour}
	config.SignIn = signin.New([]signin.Config{{Kind: signin.OIDC, Name: "corp", Title: "Corp",
		URL: p.dex.URL, ClientID: "argosy", Username: "preferred_username", Groups: "groups",
		Secret: func() (string, error) { return "s3cret", nil },
		Scopes: []string{"openid", "profile", "groups"}}})
	p.server = api.New(config)
	web.Start()
	t.Cleanup(web.Close)
	p.grant(ctx)
	return p
}

// grant declares the two tenants.
func (p *portal) grant(ctx context.Context) {
	p.t.Helper()
	record := mirror.Record{Revision: rev1, PlanHash: "plan", Summary: mirror.Summary{
		Author: "Ana", Subject: "first", CommittedAt: time.Now()}}
	for _, name := range []string{"acme", "globex"} {
		record.Declarations = append(record.Declarations, fleet.Declaration{
			Key:    fleet.Key{Kind: fleet.KindTenant, Name: name},
			Path:   "fleet/tenants/" + name + ".yaml",
			Tenant: &fleet.TenantSpec{Members: []string{"group:" + name}}})
	}
	record.Declarations[1].Tenant.Owners = []string{"group:globex"}
	lease, ok, err := p.store.Leases.Acquire(ctx, "reconciler", "test", time.Hour)
	if err != nil || !ok {
		p.t.Fatal(ok, err)
	}
	if _, err := p.store.Plans.Record(ctx, lease, record); err != nil {
		p.t.Fatal(err)
	}
}

// browser is a person's browser: cookies, and no redirects by itself.
func (p *portal) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func (p *portal) visit(c *http.Client, at string) answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, at, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.by(c, req)
}

func (p *portal) by(c *http.Client, req *http.Request) answer {
	p.t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// begin goes from the sign-in page to Dex and returns the callback's address.
func (p *portal) begin(c *http.Client, email, password, to string) string {
	p.t.Helper()
	a := p.visit(c, p.url+"/signin/corp?to="+url.QueryEscape(to))
	p.want(a, http.StatusSeeOther)
	back, err := p.dex.SignIn(p.t.Context(), a.header.Get("Location"), email, password)
	if err != nil {
		p.t.Fatal(err)
	}
	return back
}

func (p *portal) session(c *http.Client) string {
	u, err := url.Parse(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, cookie := range c.Jar.Cookies(u) {
		if cookie.Name == "argosy-session" {
			return cookie.Value
		}
	}
	return ""
}

func TestPeopleSignInOnThePage(t *testing.T) {
	p := newPortal(t)
	alice := p.browser()
	p.want(p.visit(alice, p.url+"/signin"), http.StatusOK, "Sign in with Corp", "Use a token")
	back := p.begin(alice, "alice@example.com", "a", "/applications")
	a := p.visit(alice, back)
	p.want(a, http.StatusOK, `content="0;url=/applications"`)
	strict := false
	for _, cookie := range a.header.Values("Set-Cookie") {
		strict = strict || strings.HasPrefix(cookie, "argosy-session=argosy_session_") &&
			strings.Contains(cookie, "SameSite=Strict") && strings.Contains(cookie, "HttpOnly")
	}
	if !strict {
		t.Errorf("%q", a.header.Values("Set-Cookie"))
	}
	a = p.visit(alice, p.url+"/applications")
	p.want(a, http.StatusOK, "user:corp/alice")
	if strings.Contains(a.body, "globex") {
		t.Error("alice sees globex")
	}
	secret := p.session(alice)
	p.want(p.get("/whoami", secret), http.StatusOK, `"subject":"user:corp/alice"`,
		`"tenant":"acme"`, `"subject":"group:acme"`)

	t.Run("a callback is used once", func(t *testing.T) {
		p.want(p.visit(alice, back), http.StatusForbidden, "has not begun this sign-in")
	})
	t.Run("by the browser that began it", func(t *testing.T) {
		foreign := p.begin(p.browser(), "alice@example.com", "a", "/")
		p.want(p.visit(p.browser(), foreign), http.StatusForbidden, "has not begun this sign-in")
		mine := p.browser()
		p.begin(mine, "bob@example.com", "b", "/")
		p.want(p.visit(mine, foreign), http.StatusForbidden, "has not begun this sign-in")
	})
	t.Run("a refusal of the provider is shown as text", func(t *testing.T) {
		b := p.browser()
		begun := p.visit(b, p.url+"/signin/corp")
		u, err := url.Parse(begun.header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		p.want(p.visit(b, p.url+"/signin/corp/callback?error=denied&error_description="+
			url.QueryEscape("<script>x</script>\u202e")+"&state="+u.Query().Get("state")),
			http.StatusForbidden, "&lt;script&gt;")
	})
	t.Run("no other site is shown afterwards", func(t *testing.T) {
		for _, to := range []string{"https://evil.example.com/", "//evil.example.com",
			"/\\evil.example.com", "javascript:alert(1)"} {
			b := p.browser()
			p.want(p.visit(b, p.begin(b, "alice@example.com", "a", to)), http.StatusOK,
				`content="0;url=/"`)
		}
	})
	t.Run("a link of another site begins nothing", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			p.url+"/signin/corp", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", "cross-site")
		p.want(p.by(p.browser(), req), http.StatusOK, "Sign in with Corp")
	})
	t.Run("a session grants nothing beyond its role", func(t *testing.T) {
		p.want(p.get("/engines", secret), http.StatusForbidden, "role viewer of the platform")
		p.want(p.get("/tenants/globex", secret), http.StatusNotFound)
		p.want(p.do(http.MethodPost, wire.Base+"/tokens", secret, `{"name":"x","role":"read"}`),
			http.StatusForbidden, "role admin of the platform")
		p.want(p.get("/sessions?all=true", secret), http.StatusForbidden)
		p.want(p.get("/can?verb=sync&thing=application/acme/web", secret), http.StatusOK,
			`"allowed":true`, "fleet/tenants/acme.yaml")
		p.want(p.get("/can?verb=approve&thing=tenant/acme", secret), http.StatusOK,
			`"allowed":false`)
		p.want(p.get("/can?person=group:acme&verb=sync&thing=tenant/acme", secret),
			http.StatusForbidden)
	})
	t.Run("its stop is the tenant's", func(t *testing.T) {
		stop := `{"scope":"tenant","name":"acme"}`
		p.want(p.do(http.MethodPost, wire.Base+"/stop", secret, stop), http.StatusOK,
			"tenant:acme (user:corp/alice)")
		p.want(p.do(http.MethodPost, wire.Base+"/resume", secret, stop), http.StatusOK,
			`"ended":true`)
	})
	t.Run("signing out ends the session", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/signout", nil)
		if err != nil {
			t.Fatal(err)
		}
		p.want(p.by(alice, req), http.StatusSeeOther)
		p.want(p.get("/whoami", secret), http.StatusUnauthorized, "this session has ended")
	})
}

func TestAPersonOfSeveralTenantsChoosesOne(t *testing.T) {
	p := newPortal(t)
	bob := p.browser()
	p.want(p.visit(bob, p.begin(bob, "bob@example.com", "b", "/")), http.StatusOK)
	secret := p.session(bob)
	p.want(p.get("/applications", secret), http.StatusConflict, "acme, globex", wire.TenantHeader)
	p.want(p.get("/whoami", secret), http.StatusOK, "unscoped")
	p.want(p.get("/applications?tenant=globex", secret), http.StatusOK, "globex-web-prod")
	p.want(p.get("/tenants/globex", secret), http.StatusOK)
	p.want(p.visit(bob, p.url+"/"), http.StatusConflict, "Choose a tenant")
	for tenant, status := range map[string]int{"acme": http.StatusOK, "globex": http.StatusOK,
		"initech": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			p.url+wire.Base+"/applications", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		req.Header.Set(wire.TenantHeader, tenant)
		p.want(p.send(req), status)
	}
	// a group named like a role is a group
	eve := p.browser()
	p.want(p.visit(eve, p.begin(eve, "eve@example.com", "e", "/")), http.StatusOK)
	p.want(p.get("/applications", p.session(eve)), http.StatusForbidden, "have no role")

	// while the issuer is down, sessions go on, and the page names the next step
	late := p.browser()
	back := p.begin(late, "alice@example.com", "a", "/")
	p.dex.End()
	p.want(p.get("/tenants/globex", secret), http.StatusOK)
	p.want(p.visit(late, back), http.StatusServiceUnavailable, "does not answer", "use a token")
}

// Every route that changes something refuses a person without a role.
func TestNoRouteIsOpenToAPersonWithoutARole(t *testing.T) {
	p := newPortal(t)
	eve := p.browser()
	p.want(p.visit(eve, p.begin(eve, "eve@example.com", "e", "/")), http.StatusOK)
	secret := p.session(eve)
	var doc struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string `json:"security"`
		} `json:"paths"`
	}
	a := p.do(http.MethodGet, "/openapi.json", "", "")
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if !strings.HasPrefix(path, wire.Base) || len(op.Security) == 0 ||
				op.Security[0]["token"] == nil || strings.HasSuffix(path, "/whoami") ||
				strings.HasSuffix(path, "/can") || strings.Contains(path, "/sessions") {
				continue
			}
			at := strings.NewReplacer("{", "", "}", "").Replace(path)
			if got := p.do(strings.ToUpper(method), at, secret, "{}"); got.status !=
				http.StatusForbidden {
				t.Errorf("%s %s: %d %.200s", method, path, got.status, got.body)
			}
		}
	}
}

func TestACommandLineSignsIn(t *testing.T) {
	p := newPortal(t)
	p.want(p.do(http.MethodGet, wire.Base+"/sign-in", "", ""), http.StatusOK, `"title":"Corp"`)
	begun := p.do(http.MethodPost, wire.Base+"/sign-in/device", "", `{"provider":"corp"}`)
	p.want(begun, http.StatusOK)
	code := decode[view.DeviceCode](t, begun)
	poll := func() answer {
		return p.do(http.MethodPost, wire.Base+"/sign-in/device/session", "",
			`{"provider":"corp","code":"`+code.Code+`"}`)
	}
	p.want(poll(), http.StatusAccepted)
	if _, err := p.dex.SignIn(t.Context(), code.Complete, "alice@example.com", "a"); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Duration(code.Interval) * time.Second)
	defer tick.Stop()
	a := poll()
	for a.status == http.StatusAccepted {
		<-tick.C
		a = poll()
	}
	p.want(a, http.StatusOK)
	p.want(poll(), http.StatusForbidden, "used already")
	made := decode[wire.SignedIn](t, a)
	p.want(p.get("/sessions", made.Plaintext), http.StatusOK, `"kind":"cli"`, made.Session.ID)
	p.want(p.do(http.MethodDelete, wire.Base+"/sessions/"+made.Session.ID, made.Plaintext, ""),
		http.StatusNoContent)
	p.want(p.get("/whoami", made.Plaintext), http.StatusUnauthorized)
	p.want(p.do(http.MethodPost, wire.Base+"/sign-in/device", "", `{"provider":"nobody"}`),
		http.StatusNotFound)
}
