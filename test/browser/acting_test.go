package browser_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/postgres/embedded"
	"argosy.dev/argosy/signin"
	"argosy.dev/argosy/test/stack"
)

// serveWithSignIn serves the seeded fleet to people who sign in at a real Dex, with their sessions
// in PostgreSQL: ana owns acme.
func serveWithSignIn(t *testing.T) *site {
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
	lease, ok, err := store.Leases.Acquire(ctx, "reconciler", "test", time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := store.Plans.Record(ctx, lease, mirror.Record{Revision: head, PlanHash: "plan",
		Summary: mirror.Summary{Author: "Ana", Subject: "first", CommittedAt: now},
		Declarations: []fleet.Declaration{{Key: fleet.Key{Kind: fleet.KindTenant, Name: "acme"},
			Path:   "fleet/tenants/acme.yaml",
			Tenant: &fleet.TenantSpec{Owners: []string{"group:acme"}}}}}); err != nil {
		t.Fatal(err)
	}
	s := &site{store: apitest.New(seeded()), inspector: seededResources(20)}
	var server *api.Server
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		server.ServeHTTP(w, r)
	}))
	s.url = "http://" + web.Listener.Addr().String()
	dex, err := stack.StartDex(ctx, stack.DexOptions{
		Clients: []stack.DexClient{{ID: "argosy", Secret: "s3cret",
			Redirects: []string{s.url + "/signin/corp/callback"}}},
		People: []stack.DexPerson{{ID: "1", Name: "ana", Email: "ana@example.com",
			Password: "a", Groups: []string{"acme"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dex.Stop() })
	server = api.New(api.Config{Reader: api.Reader{Inventory: s.store, History: s.store,
		State: s.store, PullReader: s.store, Simulator: s.store, Finder: s.store,
		AuditReader: s.store}, Decider: s.store, Tokens: s.store, Agents: s.store,
		Inspector: s.inspector, Version: "test", Log: slog.New(slog.DiscardHandler),
		Sessions: store.Sessions, Hub: s.url, Limits: api.SessionLimits{Idle: time.Hour,
			Absolute: 8 * time.Hour, Refresh: time.Hour},
		SignIn: signin.New([]signin.Config{{Kind: signin.OIDC, Name: "corp", Title: "Corp",
			URL: dex.URL, ClientID: "argosy", Username: "preferred_username", Groups: "groups",
			Secret: func() (string, error) { return "s3cret", nil },
			Scopes: []string{"openid", "profile", "groups"}}})})
	s.store.OnChange(server.Wake)
	run, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { server.Run(run) })
	web.Start()
	t.Cleanup(func() {
		cancel()
		running.Wait()
		web.CloseClientConnections()
		web.Close()
	})
	return s
}

// noSerious fails the test on a serious finding of axe, or if the page is too wide.
func (b *tab) noSerious(name string) {
	b.t.Helper()
	for _, finding := range b.seriousFindings("") {
		b.t.Errorf("%s: %s", name, finding)
	}
	if over := b.eval("document.documentElement.scrollWidth - innerWidth"); over != "0" &&
		!strings.HasPrefix(over, "-") {
		b.t.Errorf("%s is %s px too wide", name, over)
	}
}

// A person signs in at Dex, syncs, stops and resumes the tenant, and releases a change, on a wide
// and on a narrow screen.
func TestAPersonActsFromThePage(t *testing.T) {
	s := serveWithSignIn(t)
	for _, width := range []int64{wide, narrow} {
		s.store.Change(func(m *apitest.Mirror) {
			m.Holds = append(m.Holds, mirror.Hold{Revision: head, Reason: mirror.HoldFrozen,
				Tenant: "acme", Message: "frozen over the weekend", Since: now,
				Items: []fleet.ObjectKey{{Engine: "eu-1", Kind: fleet.ObjectApplication,
					Name: "acme-cart-prod"}}})
		})
		b := s.open(t, "", width)
		b.theme("light")
		b.visit("/signin?to=" + checkoutPage)
		b.click(".providers a")
		b.see("#login")
		b.run(chromedp.SendKeys("#login", "ana@example.com", chromedp.ByQuery),
			chromedp.SendKeys("#password", "a", chromedp.ByQuery))
		b.press(kb.Enter)
		b.see(`.actions a[href^="/do/sync"]`)
		b.picture(fmt.Sprint("application-actions-", width))

		b.click(`.actions a[href^="/do/sync"]`)
		b.see("form.confirm button")
		if got := b.text("form.confirm"); !strings.Contains(got, "Deployment/checkout") {
			t.Errorf("the confirmation lists %q", got)
		}
		b.noSerious("confirmation")
		b.picture(fmt.Sprint("confirm-sync-", width))
		b.click(`input[name=dryRun]`)
		b.click(`form.filters button`)
		b.until(`location.search.includes("dryRun=true")`)
		b.see("form.confirm button")
		b.click("form.confirm button")
		b.until(`location.pathname.startsWith("/operations/")`)
		b.until(`document.getElementById("live").dataset.state === "on"`)
		b.eval("window.same = true")
		s.store.Change(func(m *apitest.Mirror) {
			o := &m.Operations[len(m.Operations)-1]
			o.State, o.Message = mirror.OperationSucceeded, "1 would change"
		})
		b.until(`document.querySelector("main").innerText.includes("1 would change")`)
		if b.eval("window.same") != "true" {
			t.Error("the operation's page was loaded again")
		}

		b.rollsBack(s, width)
		b.approves(s, width)

		b.visit("/tenants/acme")
		b.click(`a[href^="/do/stop"]`)
		b.see("form.confirm button")
		b.picture(fmt.Sprint("confirm-stop-", width))
		b.run(chromedp.SendKeys("input[name=reason]", "an incident", chromedp.ByQuery))
		b.click("form.confirm button")
		b.see(`a[href^="/do/resume"]`)
		if got := b.text("main"); !strings.Contains(got, "an incident") {
			t.Errorf("the tenant's page does not show the stop: %s", got)
		}
		b.click(`a[href^="/do/resume"]`)
		b.see("form.confirm button")
		b.click("form.confirm button")
		b.see(`a[href^="/do/stop"]`)

		b.visit("/holds")
		b.click(`a[href^="/do/release"]`)
		b.see("form.confirm button")
		if got := b.text("form.confirm"); !strings.Contains(got, "acme-cart-prod") ||
			strings.Contains(got, "oldcart") {
			t.Errorf("the release lists %q", got)
		}
		b.click("form.confirm button")
		b.until(`location.pathname === "/holds" &&
			!document.querySelector("main").innerText.includes("frozen over the weekend")`)

		b.click("details.menu summary")
		b.see(`.menu a[href="/sessions"]`)
		b.click(`.menu a[href="/sessions"]`)
		b.until(`document.querySelector("main").innerText.includes("this one")`)
		b.noSerious("sessions")
		b.click("details.menu summary")
		b.click(`details.menu form[action="/signout"] button`)
		b.see(".providers a")
	}
}

// rollsBack chooses a revision that was Healthy, and sees what pauses automation afterwards.
func (b *tab) rollsBack(s *site, width int64) {
	b.t.Helper()
	b.visit(checkoutPage)
	b.click(`.actions a[href^="/do/rollback"]`)
	b.see(`form.confirm a[href*="revision="]`)
	if got := b.text("main"); !strings.Contains(got, "its automation is paused until") ||
		!strings.Contains(got, "runs now") {
		b.t.Errorf("the last revision before the one that runs: %s", got)
	}
	b.noSerious("revisions")
	b.click(`form.confirm a[href*="` + commit(5) + `"]`)
	b.see("form.confirm button")
	if got := b.text("main"); !strings.Contains(got, "its automation is paused until") {
		b.t.Errorf("the confirmation: %s", got)
	}
	b.picture(fmt.Sprint("confirm-rollback-", width))
	b.click("form.confirm button")
	b.until(`location.pathname.startsWith("/operations/")`)
	s.store.Change(func(m *apitest.Mirror) {
		for i := range m.Applications {
			if a := &m.Applications[i]; a.Tenant == "acme" && a.Deployment == "checkout" &&
				a.Environment == "prod" {
				a.Hold = mirror.RollbackHold("06h2")
				a.RollbackPull = &view.RollbackPull{State: forge.LastingOpen, Number: 42,
					URL: "https://git.example.com/platform/config/pulls/42"}
			}
		}
	}, view.Event{Kind: "application", Tenant: "acme", At: time.Now()})
	b.visit(checkoutPage)
	b.see(`a[href="https://git.example.com/platform/config/pulls/42"]`)
	if got := b.text("main"); !strings.Contains(got, "Automation is paused by rollback 06h2") ||
		!strings.Contains(got, "Merge pull request #42") {
		b.t.Errorf("the Application's page: %s", got)
	}
	b.noSerious("rolled back")
	b.picture(fmt.Sprint("rolled-back-", width))
	s.store.Change(func(m *apitest.Mirror) {
		for i := range m.Applications {
			m.Applications[i].Hold, m.Applications[i].RollbackPull = "", nil
		}
	})
}

// approves approves the next wave of a rollout.
func (b *tab) approves(s *site, width int64) {
	b.t.Helper()
	s.store.Change(func(m *apitest.Mirror) {
		m.Rollouts = []mirror.Rollout{{ID: "r-1", Tenant: "acme", Deployment: "checkout",
			State: mirror.RolloutAwaits, BegunAt: now, Since: now, Revision: head,
			Waves: []mirror.RolloutWave{{Name: "staging", State: mirror.WaveDone, Since: now},
				{Name: "production", Approval: true, State: mirror.WaveAwaits, Since: now}},
			Members: []mirror.RolloutMember{
				{Environment: "staging", State: mirror.MemberHealthy, Since: now},
				{Environment: "prod", Wave: 1, State: mirror.MemberWaiting, Since: now}}}}
	})
	b.visit("/tenants/acme/rollouts/checkout")
	b.click(`a[href^="/do/approve-rollout"]`)
	b.see("form.confirm button")
	if got := b.text("form.confirm"); !strings.Contains(got, "acme/checkout@prod") ||
		strings.Contains(got, "@staging") {
		b.t.Errorf("the approval lists %q", got)
	}
	b.noSerious("approval")
	b.picture(fmt.Sprint("confirm-approval-", width))
	b.click("form.confirm button")
	b.until(`location.pathname === "/tenants/acme/rollouts/checkout" &&
		document.querySelector("main").innerText.includes("approve by ")`)
}
