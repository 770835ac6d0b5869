package browser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const checkoutPage = "/tenants/acme/applications/checkout/prod"

func TestAPersonSignsInAndOut(t *testing.T) {
	s := serve(t, seeded())
	for _, width := range []int64{wide, narrow} {
		b := s.open(t, "", width)
		b.visit("/tenants/acme")
		b.see("#token")
		b.picture(fmt.Sprint("signin-", width))
		b.run(chromedp.SendKeys("#token", acmeToken, chromedp.ByQuery))
		b.press(kb.Enter)
		b.see(".crumbs")
		if got := b.text("h1"); !strings.Contains(got, "acme") {
			t.Errorf("the page after signing in is %q", got)
		}
		b.click("details.menu summary")
		b.click("details.menu form button")
		b.see("#token")
	}
}

func TestASlashSearchesAndTheKeysChooseAResult(t *testing.T) {
	s := serve(t, seeded())
	for _, width := range []int64{wide, narrow} {
		b := s.open(t, opsToken, width)
		b.visit("/tenants")
		b.press("/")
		b.until(`document.activeElement.id === "q"`)
		b.press("checkout")
		b.see(".suggest .hits a")
		b.until(`document.querySelector(".suggest").innerText.includes("acme/checkout@prod")`)
		b.picture(fmt.Sprint("search-", width))
		b.press(kb.ArrowDown + kb.ArrowDown + kb.ArrowUp)
		first := b.eval(`document.activeElement.getAttribute("href")`)
		b.press(kb.Enter)
		b.until(fmt.Sprintf("location.pathname === %q", first))
	}
}

func TestTheMatrixShowsWhichVersionDiffers(t *testing.T) {
	s := serve(t, seeded())
	b := s.open(t, acmeToken, wide)
	b.visit("/services")
	b.see("table.matrix")
	if got := b.text("table.matrix thead"); !strings.Contains(got, "dev") ||
		!strings.Contains(got, "prod") {
		t.Errorf("the columns are %q", got)
	}
	b.picture("services")
	b.click(`table.matrix a.differs`)
	b.see(".tabs")
}

func TestTheTreeFoldsByMouseAndKeys(t *testing.T) {
	s := serve(t, seeded())
	for _, width := range []int64{wide, narrow} {
		b := s.open(t, acmeToken, width)
		b.visit(checkoutPage)
		b.see(".picture svg")
		nodes := `document.querySelectorAll(".picture g.node").length`
		if got := b.eval(nodes); got != "9" {
			t.Fatalf("the tree has %s nodes", got)
		}
		if got := b.eval(`[...document.querySelectorAll(".picture g.node text.sub")]
			.map((t) => t.textContent).join()`); !strings.Contains(got, "Pod · 1/1 ready") ||
			!strings.Contains(got, "CrashLoopBackOff") || strings.Contains(got, "Running") {
			t.Errorf("the nodes show %s", got)
		}
		if got := b.eval(`[...document.querySelectorAll("ul.tree .state.bad")]
			.map((s) => s.textContent).join()`); got != "Degraded,Degraded,CrashLoopBackOff" {
			t.Errorf("the list marks as bad: %s", got)
		}
		b.run(chromedp.Evaluate(`document.querySelector(".picture g.node").focus()`, nil))
		b.press(kb.ArrowLeft)
		b.until(nodes + " === 1")
		b.press(kb.ArrowRight)
		b.until(nodes + " === 9")
		b.press(kb.ArrowRight)
		b.until(`document.activeElement.getAttribute("aria-level") === "2"`)
		b.run(chromedp.Evaluate(`document.querySelector("[data-tree=list]").click()`, nil))
		b.see("ul.tree a")
		b.run(chromedp.Evaluate(`document.querySelector("[data-tree=list]").click()`, nil))
		b.see(".picture svg")
		b.run(chromedp.Evaluate(`document.querySelector(".picture g.node.bad[data-key*=Pod]")
			.dispatchEvent(new MouseEvent("click", {bubbles: true}))`, nil))
		b.see(".manifest")
	}
}

// The figure that people wait for: from the request of the page to the drawn tree.
func TestATreeOfManyResourcesIsDrawnInASecond(t *testing.T) {
	s := serve(t, seeded())
	b := s.open(t, acmeToken, wide)
	b.visit("/tenants/acme/applications/web/prod")
	b.see(".picture svg")
	took := b.eval(`performance.getEntriesByName("tree")[0].duration`)
	t.Logf("2,000 resources are drawn %s ms after they have arrived", took)
	whole := b.eval("performance.getEntriesByName('tree')[0].startTime + " +
		"performance.getEntriesByName('tree')[0].duration")
	t.Logf("%s ms after the navigation began", whole)
	if got := b.eval(`document.querySelectorAll("ul.tree li").length`); got != "2000" {
		t.Errorf("the list has %s resources", got)
	}
	if strings.Contains(took, ".") {
		took = took[:strings.IndexByte(took, '.')]
	}
	if len(took) > 4 { // ten seconds: the machine may be busy, a quadratic walk takes minutes
		t.Errorf("it takes %s ms", took)
	}
	b.click("[data-tree=open]")
	b.until(`document.querySelectorAll(".picture g.node").length > 100`)
}

func TestALogIsFollowedPausedAndSearched(t *testing.T) {
	s := serve(t, seeded())
	b := s.open(t, acmeToken, wide)
	b.visit(checkoutPage + "/logs")
	b.until(`document.querySelectorAll(".lines div").length === 61`)
	b.click("[data-log=pause]")
	b.until(`document.querySelector("[data-log=pause]").textContent === "Continue"`)
	b.click("[data-log=pause]")
	b.run(chromedp.SendKeys("[data-log=find]", "order 4042", chromedp.ByQuery))
	b.until(`document.querySelectorAll(".lines .hit").length === 1`)
	b.until(`document.querySelector("[data-log=state]").textContent === "following"`)
}

// A change reaches an open page by the event stream: only the part that has changed is asked for,
// and folds and focus stay.
func TestAChangeIsShownWithoutLoadingThePage(t *testing.T) {
	s := serve(t, seeded())
	b := s.open(t, acmeToken, wide)
	b.visit("/holds")
	b.until(`document.getElementById("live").dataset.state === "on"`)
	b.run(chromedp.Evaluate(`window.same = true; document.querySelector("main details").open = true;
		document.querySelector("main summary").focus()`, nil))
	s.store.Change(func(m *apitest.Mirror) {
		m.Holds[0].Message = "9 Applications would be deleted"
	}, view.Event{Kind: "hold", Tenant: "acme", At: time.Now(), Name: string(head)})
	b.until(`document.querySelector("main").innerText.includes("9 Applications would be deleted")`)
	if got := b.eval(`window.same && document.querySelector("main details").open &&
		document.activeElement.tagName === "SUMMARY"`); got != "true" {
		t.Errorf("the page was loaded again, or lost its fold or focus: %s", got)
	}
}

// Two thousand events within a moment are a few requests: the page waits between them.
func TestAStormOfEventsIsAFewRequests(t *testing.T) {
	s := serve(t, seeded())
	b := s.open(t, opsToken, wide)
	b.visit("/applications")
	b.until(`document.getElementById("live").dataset.state === "on"`)
	b.mu.Lock()
	b.requests = nil
	b.mu.Unlock()
	for i := range 2000 {
		s.store.Change(func(m *apitest.Mirror) {
			m.Applications[0].Message = fmt.Sprint("change ", i)
		}, view.Event{Kind: "application", Tenant: "acme", At: time.Now()})
	}
	b.until(`document.querySelector("main").innerText.includes("change 1999")`)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.requests) > 20 {
		t.Errorf("2,000 events are %d requests", len(b.requests))
	}
}

func TestWhatAWorkloadWritesStaysText(t *testing.T) {
	m := seeded()
	for i := range m.Applications {
		m.Applications[i].Message, m.Applications[i].ApplyMessage = hostile, hostile
		m.Applications[i].SyncedRevision, m.Applications[i].TargetRevision = hostile, hostile
	}
	for i := range m.Operations {
		m.Operations[i].Message = hostile
	}
	for i := range m.Problems {
		m.Problems[i].Message, m.Problems[i].Path = hostile, hostile
	}
	s := serve(t, m)
	b := s.open(t, opsToken, wide)
	for _, path := range []string{"/", "/applications", "/problems", "/operations", "/services",
		"/search?q=" + "%3Cimg", checkoutPage + "/tree", checkoutPage + "/diff",
		checkoutPage + "/events", checkoutPage + "/logs", checkoutPage + "/history",
		everyPage["resource"]} {
		b.visit(path)
		if strings.HasSuffix(path, "/tree") {
			b.see(".picture svg")
		}
		if strings.HasSuffix(path, "/logs") {
			b.until(`document.querySelector(".lines").textContent.includes("onerror")`)
		}
		if got := b.eval(`window.hit === undefined && !document.querySelector("img[src=x]") &&
			!/[\u202e\u001b]/.test(document.body.textContent)`); got != "true" {
			t.Errorf("%s does not show it as text", path)
		}
	}
}

func TestTheThemeAndTheNavigationAreKept(t *testing.T) {
	s := serve(t, seeded())
	b := s.open(t, opsToken, wide)
	b.theme("light")
	b.visit("/")
	b.click("[data-do=theme]")
	b.click("[data-do=nav]")
	b.visit("/tenants")
	if got := b.eval(`document.documentElement.dataset.theme + " " +
		document.documentElement.dataset.nav`); got != "dark narrow" {
		t.Errorf("the next page is %s", got)
	}
}

func TestTheMenuOpensOnANarrowScreen(t *testing.T) {
	s := serve(t, seeded())
	b := s.open(t, opsToken, narrow)
	b.visit("/")
	b.click(".bottom .open")
	b.see(`.side a[href="/engines"]`)
	b.picture("menu-400")
	b.click(`.side a[href="/engines"]`)
	b.until(`location.pathname === "/engines"`)
}

func TestAnEngineThatDoesNotAnswerLeavesThePageUsable(t *testing.T) {
	s := serve(t, seeded())
	s.inspector.Fail(fmt.Errorf("application acme/checkout@prod: %w",
		mirror.ErrInspectUnreachable))
	b := s.open(t, acmeToken, wide)
	b.visit(checkoutPage)
	b.until(`document.querySelector("[data-part=panel]").innerText.includes("Try again")`)
	if got := b.text("h1"); !strings.Contains(got, "checkout") {
		t.Errorf("the header is %q", got)
	}
}
