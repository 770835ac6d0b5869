package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

const token = "argosy_ops_4d3c2b1a"

func connect(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, token, "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve serves a mirror by the real API; wrap may wrap its handler.
func serve(t *testing.T, m apitest.Mirror, wrap func(http.Handler) http.Handler) (*apitest.Store,
	*client.Client) {
	t.Helper()
	m.Tokens = []apitest.Token{{Token: view.Token{ID: "ops", Name: "ops", Role: view.RoleWrite},
		Plaintext: token}}
	store := apitest.New(m)
	server := api.New(api.Config{Decider: store, Tokens: store,
		Reader: api.Reader{Inventory: store, History: store, State: store, PullReader: store,
			AuditReader: store, Finder: store, Simulator: store}})
	store.OnChange(server.Wake)
	ctx, cancel := context.WithCancel(context.Background())
	go server.Run(ctx)
	var handler http.Handler = server
	if wrap != nil {
		handler = wrap(server)
	}
	web := httptest.NewServer(handler)
	t.Cleanup(func() {
		cancel()
		web.CloseClientConnections()
		web.Close()
	})
	return store, connect(t, web.URL)
}

func TestAListIsReadToItsEnd(t *testing.T) {
	var m apitest.Mirror
	for i := range 2345 {
		m.Applications = append(m.Applications, view.Application{
			Tenant: "acme", Environment: "prod",
			Deployment: fleet.DeploymentName(fmt.Sprintf("web-%04d", i))})
	}
	requests := atomic.Int64{}
	_, c := serve(t, m, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			next.ServeHTTP(w, r)
		})
	})
	all, err := c.Applications(t.Context(), view.Filter{Tenant: "acme"}, 0)
	if err != nil || len(all) != 2345 || all[2344].Deployment != "web-2344" ||
		requests.Load() != 3 {
		t.Errorf("%d items in %d requests, %v", len(all), requests.Load(), err)
	}
	some, err := c.Applications(t.Context(), view.Filter{}, 1500)
	if err != nil || len(some) != 1500 {
		t.Errorf("%d items, %v", len(some), err)
	}
}

func TestARefusalIsReported(t *testing.T) {
	_, c := serve(t, apitest.Mirror{}, nil)
	_, err := c.Tenant(t.Context(), "missing")
	var refused *wire.Refusal
	if !errors.As(err, &refused) || refused.Status != http.StatusNotFound ||
		refused.Subject != "tenant missing" || refused.NotAllowed() {
		t.Errorf("%v", err)
	}
	_, err = c.Tenant(t.Context(), "../engines")
	if !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity {
		t.Errorf("a name reaches another route: %v", err)
	}
}

// The client does not follow a redirect, and sends its target no token.
func TestARedirectGetsNoToken(t *testing.T) {
	var seen atomic.Value
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization"))
	}))
	defer thief.Close()
	web := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer web.Close()
	_, err := connect(t, web.URL).WhoAmI(t.Context())
	if err == nil || !strings.Contains(err.Error(), "307") || strings.Contains(err.Error(), token) {
		t.Errorf("%v", err)
	}
	if seen.Load() != nil {
		t.Error("the redirect was followed")
	}
}

func TestATokenIsSentOnlyToASafeURL(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://argosy.example.com": true, "https://example.com/argosy/": true,
		"http://localhost:8080": true, "http://127.0.0.1:1": true, "http://[::1]:1": true,
		"http://argosy.example.com": false, "http://localhost.example.com": false,
		"http://10.0.0.1": false, "argosy.example.com": false, "ftp://x": false,
		"https://user@x": false, "https://x?a=b": false, "https://": false, "": false,
		"file:///etc": false,
	} {
		if _, err := client.CheckServer(url); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := client.New("https://x", "a\r\nHost: y", "test"); err == nil ||
		strings.Contains(err.Error(), "Host") {
		t.Errorf("%v", err)
	}
}

func TestAnAnswerOfAnotherProgramIsReported(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"a login page": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>sign in</html>")
		},
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"items":[`)
		},
		"a proxy's error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "bad gateway", http.StatusBadGateway)
		},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(handler)
			defer web.Close()
			items, err := connect(t, web.URL).Tenants(t.Context(), view.Filter{}, 0)
			if err == nil || items != nil || strings.Contains(err.Error(), token) {
				t.Errorf("%v %v", items, err)
			}
		})
	}
}

// A broken stream resumes at its position: no event is missed and none comes twice.
func TestEventsResumeABrokenStream(t *testing.T) {
	var cut atomic.Pointer[context.CancelFunc]
	streams := atomic.Int64{}
	store, c := serve(t, apitest.Mirror{}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			streams.Add(1)
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			cut.Store(&cancel)
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	happen := func(name string) {
		store.Change(func(*apitest.Mirror) {}, view.Event{Kind: "application", Name: name})
	}
	var seen []string
	broken := 0
	enough := errors.New("enough")
	err := c.Events(ctx, func(e view.Event) error {
		if e.Kind == "open" {
			if streams.Load() == 1 {
				happen("one")
			}
			return nil
		}
		seen = append(seen, e.Name)
		switch e.Name {
		case "one":
			happen("two")
			(*cut.Load())()
		case "two":
			happen("three")
		case "three":
			return enough
		}
		return nil
	}, func(error) { broken++ })
	if !errors.Is(err, enough) || broken == 0 {
		t.Errorf("%v, %d breaks", err, broken)
	}
	if got := strings.Join(seen, " "); got != "one two three" {
		t.Errorf("seen %s", got)
	}
}

func TestAnEventStreamThatIsRefusedEnds(t *testing.T) {
	store, c := serve(t, apitest.Mirror{}, nil)
	if err := store.RevokeToken(t.Context(), "ops", "test"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var refused *wire.Refusal
	if err := c.Events(ctx, func(view.Event) error { return nil }, nil); !errors.As(err,
		&refused) || !refused.NotAllowed() {
		t.Errorf("%v", err)
	}
}
