package api_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/view"
)

// gated is a store whose lists wait until the gate opens, like a slow database.
type gated struct {
	*apitest.Store
	gate  chan struct{}
	began atomic.Int64
}

func newGated() *gated { return &gated{Store: apitest.New(content()), gate: make(chan struct{})} }

func (g *gated) wait(ctx context.Context) error {
	g.began.Add(1)
	select {
	case <-g.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gated) Applications(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Application, string, error) {
	if err := g.wait(ctx); err != nil {
		return nil, "", err
	}
	return g.Store.Applications(ctx, scope, by, page)
}

func (g *gated) Tenants(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Tenant, string, error) {
	if err := g.wait(ctx); err != nil {
		return nil, "", err
	}
	return g.Store.Tenants(ctx, scope, by, page)
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(2 * time.Minute); !done(); <-poll.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A token has at most four concurrent reads and the next ones wait; further ones are rejected.
// Other tokens can read, and the token's own decisions pass.
func TestOneTokenReadsFourAtATime(t *testing.T) {
	t.Parallel()
	g := newGated()
	s := newSiteOver(t, g)
	var all sync.WaitGroup
	var refused atomic.Int64
	var retry sync.Map
	for range 64 {
		all.Go(func() {
			if a := s.get("/applications?health=Suspended",
				platformToken); a.status == http.StatusTooManyRequests {
				retry.Store(a.header.Get("Retry-After")+" "+a.body, true)
				refused.Add(1)
			}
		})
	}
	eventually(t, "the reads beyond the limit", func() bool { return refused.Load() == 64-36 })
	if n := g.began.Load(); n != 4 {
		t.Errorf("%d reads of one token are under way", n)
	}
	retry.Range(func(text, _ any) bool {
		if !strings.HasPrefix(text.(string), "1 {") || !strings.Contains(text.(string),
			"4 reads in progress") {
			t.Errorf("refused with %s", text)
		}
		return true
	})
	s.want(s.do(http.MethodPost, wire.Base+"/stop", platformToken,
		`{"scope":"fleet","reason":"all of it"}`), http.StatusOK)
	s.want(s.get("/stops", readerToken), http.StatusOK, "all of it")
	all.Go(func() { s.get("/applications", acmeToken) })
	eventually(t, "another token's read", func() bool { return g.began.Load() == 5 })
	close(g.gate)
	all.Wait()
	if n := g.began.Load(); n != 37 {
		t.Errorf("%d reads in all", n)
	}
}

// The fleet is read once at a time for all open pages; a tenant's page is read for that tenant.
func TestTheOverviewIsReadOnceForAllViewers(t *testing.T) {
	t.Parallel()
	g := newGated()
	s := newSiteOver(t, g)
	var all sync.WaitGroup
	var pages sync.Map
	for range 4 {
		for _, token := range []string{platformToken, readerToken, acmeToken} {
			all.Go(func() { pages.Store(token, s.page("/", token).body) })
		}
	}
	// the list of tenants and the first of failing Applications, beside each other
	eventually(t, "the readings", func() bool { return g.began.Load() == 4 })
	close(g.gate)
	all.Wait()
	// The list of tenants, and four of failing Applications, each once for the platform and once
	// for acme.
	if n := g.began.Load(); n != 10 {
		t.Errorf("%d lists were read", n)
	}
	for token, globex := range map[string]bool{platformToken: true, readerToken: true,
		acmeToken: false} {
		page, _ := pages.Load(token)
		if body := page.(string); !strings.Contains(body, "acme") ||
			strings.Contains(body, "globex") != globex {
			t.Errorf("the page of %s: %s", token, body)
		}
	}
}
