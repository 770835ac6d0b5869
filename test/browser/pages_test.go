package browser_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// everyPage has one page of each kind.
var everyPage = map[string]string{
	"overview": "/", "applications": "/applications", "tenants": "/tenants",
	"tenant":       "/tenants/acme",
	"environments": "/environments", "environment": "/tenants/acme/environments/prod",
	"deployments": "/deployments", "deployment": "/tenants/acme/deployments/checkout",
	"engines": "/engines", "engine": "/engines/us-1", "agents": "/agents", "pulls": "/pulls",
	"pull": "/pulls/214", "rollouts": "/rollouts", "holds": "/holds", "problems": "/problems",
	"freezes": "/freezes", "revisions": "/revisions", "revision": "/revisions/" + string(head),
	"operations": "/operations", "operation": "/operations/op-acme", "moves": "/moves",
	"rings": "/rings", "pools": "/pools", "strays": "/strays", "unproven": "/unproven",
	"tree":    "/tenants/acme/applications/checkout/prod/tree",
	"diff":    "/tenants/acme/applications/checkout/prod/diff",
	"events":  "/tenants/acme/applications/checkout/prod/events",
	"logs":    "/tenants/acme/applications/checkout/prod/logs",
	"history": "/tenants/acme/applications/checkout/prod/history",
	"facts":   "/tenants/acme/applications/checkout/prod/facts",
	"resource": "/tenants/acme/applications/checkout/prod/resource?kind=Pod&namespace=shop&name=" +
		"checkout-7d9f8b6c5-00001",
	"failure": "/nothing", "audit": "/audit",
	"services": "/services", "search": "/search?q=checkout",
}

// seriousFindings returns axe-core's findings that keep people out.
func (b *tab) seriousFindings(rules string) []string {
	b.t.Helper()
	if b.eval("typeof axe") == "undefined" {
		source, err := os.ReadFile("../../.cache/axe-core/axe.min.js")
		if err != nil {
			b.t.Fatalf("no axe-core; run scripts/parts.sh chromium: %v", err)
		}
		b.run(chromedp.Evaluate(string(source)+";0", nil))
	}
	var found string
	b.run(chromedp.Evaluate(
		`axe.run(document, {resultTypes: ["violations"]`+rules+`}).then((r) => JSON.stringify(r.violations
			.filter((v) => ["serious", "critical"].includes(v.impact))
			.map((v) => v.id + ": " + v.help + " at " + v.nodes.slice(0, 3).map((n) => n.target + " " + (n.any[0]?.message ?? "")).join(", "))))`,
		&found, awaitPromise))
	var findings []string
	if err := json.Unmarshal([]byte(found), &findings); err != nil {
		b.t.Fatal(err)
	}
	return findings
}

func TestEveryPageIsAccessibleInBothThemes(t *testing.T) {
	s := serve(t, seeded())
	for _, width := range []int64{wide, narrow} {
		b := s.open(t, opsToken, width)
		b.forgive("404") // of the page that does not exist
		for _, name := range slices.Sorted(maps.Keys(everyPage)) {
			b.visit(everyPage[name])
			if name == "tree" {
				b.see(".picture svg")
			}
			if over := b.eval("document.documentElement.scrollWidth - innerWidth"); over != "0" &&
				!strings.HasPrefix(over, "-") {
				t.Errorf("%s at %d px is %s px too wide", name, width, over)
			}
			for theme, rules := range map[string]string{"light": "",
				"dark": `, runOnly: ["color-contrast", "link-in-text-block"]`} {
				b.theme(theme)
				for _, finding := range b.seriousFindings(rules) {
					t.Errorf("%s at %d px, %s: %s", name, width, theme, finding)
				}
				b.picture(fmt.Sprint(name, "-", width, "-", theme))
			}
		}
	}
}
