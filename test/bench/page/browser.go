package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"argosy.dev/argosy/test/bench/report"
)

// shownPage is a page that a browser loads, and the condition under which a person can read it.
type shownPage struct {
	name, path, ready string
	goal              float64 // milliseconds
}

func shownPages() []shownPage {
	const heading, link, rows = "document.querySelector('main h1, main h2')",
		"document.querySelector('main a')", "document.querySelectorAll('main tbody tr').length"
	tenant := string(tenantName(7))
	return []shownPage{
		{"first page", "/", heading, 200},
		{"Applications, 200 rows", "/applications", rows + " >= 100", 0},
		{"Applications, Degraded", "/applications?health=Degraded", heading, 0},
		{"tenant", "/tenants/" + tenant, heading, 0},
		{"search, a deployment", "/search?q=checkout", link, 200},
		{"search, three words", "/search?q=" + tenant + "/checkout-01%40prod", link, 200},
		{"search, an image", "/search?q=checkout-01%3Av1.4", link, 200},
		{"search, a commit", "/search?q=0123456789ab", link, 200},
		{"matrix of a tenant", "/services?tenant=" + tenant, rows + " >= 20", 0},
		{"matrix of the platform", "/services", rows + " >= 20", 0},
		{"tree of resources", "/tenants/" + string(treeOf.Tenant) + "/applications/" +
			string(treeOf.Deployment) + "/" + string(treeOf.Environment),
			"document.body.textContent.includes('web-199')", 1000},
	}
}

// whenReady resolves to the milliseconds since the navigation began, once the document is complete
// and the condition holds; -1 after ten seconds.
const whenReady = `new Promise((done) => {
	const check = () => {
		if (document.readyState === "complete" && (%s)) { done(performance.now()); }
		else if (performance.now() > 10000) { done(-1); }
		else { requestAnimationFrame(check); }
	};
	check();
})`

// browserFigure loads pages in a browser, interleaved with an empty page of the same server.
func (b *bench) browserFigure(ctx context.Context, runs int) (*report.Figure, error) {
	binary, err := filepath.Abs(filepath.Join(".cache", "bin", "chromium"))
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(binary),
		chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	ctx, cancel := chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Navigate(b.server+"/signin"),
		chromedp.SetValue("#token", b.token), chromedp.Submit("#token"),
		chromedp.WaitVisible("main h1, main h2")); err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	f := &report.Figure{Name: "page-browser", Title: fmt.Sprintf(
		"Pages in a browser, from the click until they can be read; %d Applications",
		b.size.applications())}
	pages := shownPages()
	took := make([]report.Sample, len(pages))
	var empty, bare report.Sample
	for run := range runs + 1 {
		for i, page := range pages {
			floor, err := b.load(ctx, shownPage{path: emptyPath, ready: "true"})
			if err != nil {
				return nil, err
			}
			ours, err := b.load(ctx, page)
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if err := b.store.Readers().Ping(ctx); err != nil {
				return nil, err
			}
			if run == 0 {
				continue // caches are cold
			}
			took[i] = append(took[i], ours)
			empty = append(empty, floor)
			bare = append(bare, time.Since(began).Seconds()*1000)
		}
	}
	f.Add(report.Line{Name: "an empty page", Unit: "ms", Ours: empty})
	f.Add(report.Line{Name: "a bare SELECT", Unit: "ms", Ours: bare})
	for i, page := range pages {
		f.Add(report.Line{Name: page.name, Unit: "ms", Ours: took[i], Goal: page.goal})
	}
	f.Note("medians of %d loads; the machine ran other work at the same time", runs)
	return f, nil
}

// load navigates to a page and returns the milliseconds until it can be read.
func (b *bench) load(ctx context.Context, page shownPage) (ms float64, err error) {
	err = chromedp.Run(ctx, chromedp.Navigate(b.server+page.path),
		chromedp.Evaluate(fmt.Sprintf(whenReady, page.ready), &ms, awaitPromise))
	if err == nil && ms < 0 {
		err = fmt.Errorf("it does not become readable: %s", page.ready)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", page.path, err)
	}
	return ms, nil
}

func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams {
	return p.WithAwaitPromise(true)
}
