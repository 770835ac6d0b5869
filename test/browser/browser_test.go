package browser_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "folder that each page's picture is written into")

const (
	wide   = 1280
	narrow = 400
	// a step that takes longer has failed: the machine may be busy
	patience = 40 * time.Second
)

// chromium is the one browser of all tests.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := filepath.Abs("../../.cache/bin/chromium")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("no Chromium; run scripts/parts.sh chromium: %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.Flag("headless", "new"), chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.NoFirstRun,
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.WSURLReadTimeout(patience))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator)
	stopBrowser = func() { end(); stop() }
	return ctx, chromedp.Run(ctx)
})

var stopBrowser = func() {}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	stopBrowser()
	os.Exit(code)
}

// site is a control plane over a mirror in memory.
type site struct {
	url       string
	store     *apitest.Store
	inspector *apitest.Inspector
}

func serve(t *testing.T, m apitest.Mirror) *site {
	t.Helper()
	s := &site{store: apitest.New(m), inspector: seededResources(2000)}
	server := api.New(api.Config{Reader: api.Reader{
		Inventory:   s.store,
		History:     s.store,
		State:       s.store,
		PullReader:  s.store,
		Simulator:   s.store,
		Finder:      s.store,
		AuditReader: s.store}, Decider: s.store,
		Tokens: s.store, Agents: s.store, Inspector: s.inspector, Version: "test",
		Log: slog.New(slog.DiscardHandler)})
	s.store.OnChange(server.Wake)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { server.Run(ctx) })
	web := httptest.NewServer(server)
	s.url = web.URL
	t.Cleanup(func() {
		cancel()
		running.Wait()
		web.CloseClientConnections()
		web.Close()
	})
	return s
}

// tab is one tab of the browser. Tests do not run in parallel: tabs share cookies.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	faults   []string // of the console, of scripts and of the policy
	requests []string
}

// open opens a tab of a width; token "" opens it without a sign-in. The test fails if the console
// has an error or the content security policy is violated.
func (s *site) open(t *testing.T, token string, width int64) *tab {
	t.Helper()
	browser, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	b := &tab{t: t, ctx: ctx, url: s.url}
	chromedp.ListenTarget(ctx, b.receive)
	if err := chromedp.Run(ctx); err != nil { // the tab lives as long as this context
		t.Fatal(err)
	}
	height := int64(900)
	b.run(page.BringToFront(), log.Enable(), network.Enable(), runtime.Enable(),
		network.ClearBrowserCookies(),
		emulation.SetDeviceMetricsOverride(width, height, 1, width == narrow))
	if token != "" {
		b.run(network.SetCookie("argosy-session", token).WithURL(s.url).WithHTTPOnly(true))
	}
	t.Cleanup(func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, fault := range b.faults {
			t.Errorf("the browser reports: %s", fault)
		}
	})
	return b
}

func (b *tab) receive(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			b.faults = append(b.faults, fmt.Sprint(e.Entry.Source, " ", e.Entry.Text, " ",
				e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			b.faults = append(b.faults, fmt.Sprintf("console: %s", e.Args[0].Value))
		}
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Error())
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.Method+" "+strings.TrimPrefix(e.Request.URL,
			b.url))
	}
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) visit(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url+path), chromedp.WaitReady("main"))
}

// see waits until an element is visible.
func (b *tab) see(selector string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.WaitVisible(selector, chromedp.ByQuery)); err != nil {
		b.t.Fatalf("%s does not appear: %v: %.3000s", selector, err, b.text("body"))
	}
}

// until waits until a script's expression is true, whatever page is loaded meanwhile.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var done bool
		err := chromedp.Run(ctx, chromedp.Evaluate("Boolean("+expression+")", &done))
		if err == nil && done {
			return
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("%s is not true: %v: %.3000s", expression, err, b.text("body"))
		case <-tick.C:
		}
	}
}

func (b *tab) text(selector string) string {
	b.t.Helper()
	return b.eval("document.querySelector(" + fmt.Sprintf("%q", selector) + ")?.innerText ?? ''")
}

// eval returns a script's value as text.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	var out string
	b.run(chromedp.Evaluate("String("+expression+")", &out))
	return out
}

func (b *tab) press(keys string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(keys))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.run(chromedp.Click(selector, chromedp.ByQuery, chromedp.NodeVisible))
}

// theme makes the browser prefer light or dark.
func (b *tab) theme(name string) {
	b.t.Helper()
	b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{
		Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion",
		Value: "reduce"}}))
}

// picture writes what the tab shows into the folder of the flag, if it is set.
func (b *tab) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	var png []byte
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().Do(ctx)
		return err
	}))
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// awaitPromise makes an evaluation wait for the promise that it returns.
func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams {
	return p.WithAwaitPromise(true)
}

// forgive removes the faults that have the text: the test expects them.
func (b *tab) forgive(text string) {
	b.t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = slices.DeleteFunc(b.faults, func(fault string) bool {
			return strings.Contains(fault, text)
		})
	})
}
