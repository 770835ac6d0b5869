package api_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// follow opens an event stream and sends its lines.
func (s *site) follow(ctx context.Context, token, after string) (<-chan string, *http.Response) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+wire.Base+"/events", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	return lines, resp
}

// until reads lines up to the first that contains part, and returns all of them.
func until(t *testing.T, lines <-chan string, part string) string {
	t.Helper()
	var seen strings.Builder
	deadline := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("the stream ended before %q:\n%s", part, seen.String())
			}
			seen.WriteString(line + "\n")
			if strings.Contains(line, part) {
				return seen.String()
			}
		case <-deadline:
			t.Fatalf("no %q:\n%s", part, seen.String())
		}
	}
}

func happened(tenant fleet.TenantName, name string) view.Event {
	return view.Event{Kind: "application", Tenant: tenant, Name: name, At: time.Unix(0, 0).UTC()}
}

func nothing(*apitest.Mirror) {}

func TestEventsReachTheirTenantAndThePlatformOnly(t *testing.T) {
	s := newSite(t, content())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ours, resp := s.follow(ctx, acmeToken, "")
	all, _ := s.follow(ctx, platformToken, "")
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	until(t, ours, "event: open")
	until(t, all, "event: open")
	s.store.Change(nothing, happened("globex", "theirs"), happened("acme", "first"))
	until(t, all, "theirs")
	if seen := until(t, ours, "first"); strings.Contains(seen, "theirs") ||
		!strings.Contains(seen, "event: application") || !strings.Contains(seen, "id: 2") {
		t.Errorf("%s", seen)
	}
}

func TestAStreamResumesWhereItBroke(t *testing.T) {
	s := newSite(t, content())
	s.store.Change(nothing, happened("acme", "one"), happened("acme", "two"),
		happened("globex", "theirs"), happened("acme", "three"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, _ := s.follow(ctx, acmeToken, "1")
	if seen := until(t, lines, "three"); strings.Contains(seen, `"one"`) ||
		!strings.Contains(seen, `"two"`) || strings.Contains(seen, "theirs") {
		t.Errorf("%s", seen)
	}
	fresh, _ := s.follow(ctx, acmeToken, "")
	s.store.Change(nothing, happened("acme", "four"))
	if seen := until(t, fresh, "four"); strings.Contains(seen, "three") {
		t.Errorf("a new stream begins in the past: %s", seen)
	}
	other, _ := s.follow(ctx, acmeToken, "999999")
	if seen := until(t, other, "event: open"); !strings.Contains(seen, "id: 5") {
		t.Errorf("a number of another life of the mirror: %s", seen)
	}
	bad := s.get("/events", acmeToken+"x")
	s.want(bad, http.StatusUnauthorized)
}

func TestStreamsOfOneTokenAreBounded(t *testing.T) {
	s := newSite(t, content())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 32 {
		lines, _ := s.follow(ctx, acmeToken, "")
		until(t, lines, "event: open")
	}
	_, resp := s.follow(ctx, acmeToken, "")
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%d", resp.StatusCode)
	}
	lines, _ := s.follow(ctx, platformToken, "")
	until(t, lines, "event: open") // others are not affected
}

// slowWriter is a response that a test can read while it is written.
type slowWriter struct {
	mu sync.Mutex
	*httptest.ResponseRecorder
}

func (w *slowWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseRecorder.Write(b)
}

func (w *slowWriter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Body.String()
}

// A stream whose token was revoked ends within 5 s.
func TestARevokedTokenEndsItsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := apitest.New(content())
		server := api.New(configOf(store))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go server.Run(ctx)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, wire.Base+"/events", nil)
		r.Header.Set("Authorization", "Bearer "+acmeToken)
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			server.ServeHTTP(w, r)
		}()
		time.Sleep(12 * time.Second) // of the bubble's clock
		synctest.Wait()
		if strings.Count(w.text(), ": alive") != 2 {
			t.Fatalf("%s", w.text())
		}
		if err := store.RevokeToken(ctx, "acme", "test"); err != nil {
			t.Fatal(err)
		}
		revoked := time.Now()
		<-ended
		if took := time.Since(revoked); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// A notification may be lost: the feed polls every 2 s anyway. Without an open stream it does not
// query the store.
func TestEventsArriveWithoutAWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: apitest.New(content())}
		server := api.New(configOf(store))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go server.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := store.asked(); n != 0 {
			t.Errorf("%d queries without a stream", n)
		}
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, wire.Base+"/events", nil)
		r.Header.Set("Authorization", "Bearer "+acmeToken)
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder()}
		go server.ServeHTTP(w, r)
		time.Sleep(10 * time.Second)
		store.Change(nothing, happened("acme", "late"))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !strings.Contains(w.text(), "late") {
			t.Errorf("%s", w.text())
		}
	})
}

// counting counts queries of events.
type counting struct {
	*apitest.Store
	mu sync.Mutex
	n  int
}

func (c *counting) Events(ctx context.Context, scope view.Scope, after int64,
	limit int) ([]view.Event, int64, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Store.Events(ctx, scope, after, limit)
}

func (c *counting) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
