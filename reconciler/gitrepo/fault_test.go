package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fails fetches and checks the kind of failure, that the head stays, and that nothing is left behind.
func fails(t *testing.T, m *Mirror, kind error) error {
	t.Helper()
	before, _ := m.Head()
	_, err := m.Fetch(t.Context())
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	if after, _ := m.Head(); after.Commit != before.Commit {
		t.Fatalf("the head moved from %s to %s", before.Commit, after.Commit)
	}
	if n := leftovers(t, m); n != 0 {
		t.Fatalf("%d files left behind", n)
	}
	return err
}

func TestFaultsOfTheServer(t *testing.T) {
	type handler = func(w http.ResponseWriter, r *http.Request, next http.Handler)
	answer := func(status int, contentType, body string) handler {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	// cut lets through so many bytes of the pack.
	cut := func(keep int) handler {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if !bytes.Contains(body, []byte("command=fetch")) {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			w.Write(rec.Body.Bytes()[:min(keep, rec.Body.Len())])
		}
	}
	cases := []struct {
		name  string
		fault handler
		kind  error
	}{
		{"200 with HTML", answer(200, "text/html; charset=utf-8", "<html>sign in</html>"), ErrUnavailable},
		{"200 with HTML that claims to be Git's", answer(200, "application/x-git-upload-pack-result", "<html>sign in</html>"), ErrUnavailable},
		{"200 with nothing", answer(200, "application/x-git-upload-pack-result", ""), ErrUnavailable},
		{"502", answer(502, "text/plain", "bad gateway"), ErrUnavailable},
		{"503", answer(503, "text/plain", ""), ErrUnavailable},
		{"404", answer(404, "text/plain", ""), ErrUnavailable},
		{"401", answer(401, "text/plain", ""), ErrUnauthorized},
		{"403", answer(403, "text/plain", ""), ErrUnauthorized},
		{"204", answer(204, "text/plain", ""), ErrUnavailable},
		{"the server explains", answer(200, "application/x-git-upload-pack-result", "0014ERR under repair"), ErrUnavailable},
		{"compressed although not asked", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			w.Header().Set("Content-Encoding", "gzip")
			next.ServeHTTP(w, r)
		}, ErrUnavailable},
		{"connection reset", func(w http.ResponseWriter, r *http.Request, next http.Handler) { panic(http.ErrAbortHandler) }, ErrUnavailable},
		{"no pack", cut(0), ErrUnavailable},
		{"truncated packet", cut(7), ErrUnavailable},
		{"truncated pack header", cut(30), ErrUnavailable},
		{"truncated pack", cut(200), ErrUnavailable},
	}
	o := newOrigin(t)
	first := o.set("tenants/acme/deployments/a.yaml", "one")
	s := newGitServer(t, o)
	m := open(t, t.TempDir(), s.url())
	fetch(t, m)
	second := o.set("tenants/acme/deployments/a.yaml", strings.Repeat("two", 100))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.fault(c.fault)
			fails(t, m, c.kind)
			fails(t, open(t, t.TempDir(), s.url()), c.kind) // a first fetch as well
			if got := files(t, m, first)["tenants/acme/deployments/a.yaml"]; got != "one" {
				t.Fatalf("last good state: %q", got)
			}
			s.fault(nil)
		})
	}
	if h := fetch(t, m); h.Commit != second {
		t.Fatalf("after the faults: %+v", h)
	}
}

func TestFaultsOfTheNetwork(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	defer stranger.Close()
	stranger.Config.ErrorLog = nil
	for name, url := range map[string]string{
		"NXDOMAIN":                      "https://git.example.invalid/config.git",
		"connection refused":            "http://" + closed.Addr().String() + "/config.git",
		"no TLS where it must be":       strings.Replace(plain.URL, "http:", "https:", 1) + "/config.git",
		"certificate of nobody we know": stranger.URL + "/config.git",
	} {
		t.Run(name, func(t *testing.T) { fails(t, open(t, t.TempDir(), url), ErrUnavailable) })
	}
}

// tarpit answers each connection with one byte and then nothing, or with one byte a tick.
type tarpit struct {
	net.Listener
	open atomic.Int64
}

func newTarpit(t *testing.T, greeting string, drip time.Duration) *tarpit {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tarpit{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.open.Add(1)
			go p.serve(c, greeting, drip)
		}
	}()
	return p
}

func (p *tarpit) serve(c net.Conn, greeting string, drip time.Duration) {
	defer p.open.Add(-1)
	defer c.Close()
	if !strings.HasPrefix(greeting, "SSH") { // an ssh server speaks first, others when they were asked
		c.Read(make([]byte, 1))
	}
	io.WriteString(c, greeting)
	gone := make(chan struct{})
	go func() { io.Copy(io.Discard, c); close(gone) }() // ends when the client closes its end
	if drip == 0 {
		<-gone
		return
	}
	tick := time.NewTicker(drip)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
			if _, err := c.Write([]byte("x")); err != nil {
				return
			}
		}
	}
}

func TestServerThatHangs(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n"
	key, knownHosts := sshKeyPair(t), ""
	cases := []struct {
		name, scheme, greeting string
		drip                   time.Duration
		budget                 Budget
	}{
		{"says nothing", "http", "", 0, Budget{Idle: 100 * time.Millisecond}},
		{"sends one byte, then hangs", "http", "H", 0, Budget{Idle: 100 * time.Millisecond}},
		{"hangs in the headers", "http", head, 0, Budget{Idle: 100 * time.Millisecond}},
		{"hangs in the body", "http", head + "Content-Length: 1000\r\n\r\n001", 0, Budget{Idle: 100 * time.Millisecond}},
		{"hangs in the TLS handshake", "https", "\x16", 0, Budget{Idle: 100 * time.Millisecond}},
		{"drips headers", "http", head + "X: ", 5 * time.Millisecond, Budget{Time: 200 * time.Millisecond}},
		{"drips a body", "http", head + "Content-Length: 100000\r\n\r\nfff0", 5 * time.Millisecond, Budget{Time: 200 * time.Millisecond}},
		{"ssh says nothing", "ssh", "", 0, Budget{Idle: 100 * time.Millisecond}},
		{"ssh hangs in the handshake", "ssh", "SSH-2.0-x\r\n", 0, Budget{Idle: 100 * time.Millisecond}},
		{"ssh drips its greeting", "ssh", "SSH-2.0-", 5 * time.Millisecond, Budget{Time: 200 * time.Millisecond}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newTarpit(t, c.greeting, c.drip)
			url := c.scheme + "://" + p.Addr().String() + "/config.git"
			knownHosts = knownHostsLine(p.Addr().String(), key)
			before := runtime.NumGoroutine()
			m, err := Open(t.Context(), t.TempDir(), Source{URL: url, Auth: authFor(t, c.scheme, key, knownHosts)},
				AllowPlainHTTP(), WithBudget(c.budget))
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			fails(t, m, ErrTimedOut)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
			m.Close()
			until(t, "the server sees the connection closed", func() bool { return p.open.Load() == 0 })
			until(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

func TestServerThatHangsInThePack(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	s := newGitServer(t, o)
	for name, after := range map[string]int{"before it": 0, "after one byte": 1, "inside": 60} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if !bytes.Contains(body, []byte("command=fetch")) {
					next.ServeHTTP(w, r)
					return
				}
				rec := httptest.NewRecorder()
				next.ServeHTTP(rec, r)
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				w.Write(rec.Body.Bytes()[:after])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				close(gone)
			})
			fails(t, open(t, t.TempDir(), s.url(), WithBudget(Budget{Idle: 150 * time.Millisecond})), ErrTimedOut)
			select {
			case <-gone:
			case <-time.After(10 * time.Second):
				t.Fatal("the connection stays open")
			}
		})
	}
}

func TestCallerEndsAFetch(t *testing.T) {
	p := newTarpit(t, "", 0)
	m := open(t, t.TempDir(), "http://"+p.Addr().String()+"/config.git")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := m.Fetch(ctx); done <- err }()
	until(t, "the fetch is connected", func() bool { return p.open.Load() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestRedirects(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	s := newGitServer(t, o)
	var stolen atomic.Pointer[string]
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := fmt.Sprint(r.Header)
		stolen.Store(&header)
	}))
	defer thief.Close()
	to := func(status int, target func(r *http.Request) string) func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			http.Redirect(w, r, target(r), status)
		}
	}
	refused := map[string]string{
		"another host":                     thief.URL + "/config.git/info/refs?service=git-upload-pack&token=canary-query",
		"another host, with user info":     "http://canary-user:canary-pass@" + strings.TrimPrefix(thief.URL, "http://") + "/config.git/info/refs",
		"another name for the same host":   strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + "/config.git/info/refs?service=git-upload-pack",
		"another scheme":                   strings.Replace(s.URL, "http:", "https:", 1) + "/config.git/info/refs?service=git-upload-pack",
		"a local file":                     "file:///etc/passwd",
		"another repository of the server": s.URL + "/other.git/info/refs?service=git-upload-pack",
	}
	for name, target := range refused {
		for _, status := range []int{301, 302, 307, 308} {
			t.Run(fmt.Sprintf("%s, %d", name, status), func(t *testing.T) {
				s.fault(to(status, func(*http.Request) string { return target }))
				m := openWith(t, s.url(), Token("canary-token"))
				err := fails(t, m, ErrUnavailable)
				noCanary(t, err.Error())
				if !strings.Contains(err.Error(), "redirected to") {
					t.Error(err)
				}
				if got := stolen.Load(); got != nil {
					t.Fatalf("the other host was asked: %s", *got)
				}
			})
		}
	}
	t.Run("a pack is never asked for elsewhere", func(t *testing.T) {
		s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPost {
				http.Redirect(w, r, thief.URL, 307)
				return
			}
			next.ServeHTTP(w, r)
		})
		fails(t, openWith(t, s.url(), Token("canary-token")), ErrUnavailable)
		if stolen.Load() != nil {
			t.Fatal("the other host was asked")
		}
	})
	t.Run("the same repository spelled with .git is followed", func(t *testing.T) {
		s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !strings.Contains(r.URL.Path, ".git/") {
				http.Redirect(w, r, strings.Replace(r.URL.String(), "/config/", "/config.git/", 1), 301)
				return
			}
			next.ServeHTTP(w, r)
		})
		m := openWith(t, strings.TrimSuffix(s.url(), ".git"), Token("canary-token"))
		for range 3 { // the second time the server is asked without an advertisement
			if h := fetch(t, m); h.Commit != first {
				t.Fatal(h)
			}
		}
	})
}

func TestServerThatIsReplacedByAnOlderOne(t *testing.T) {
	o := newOrigin(t)
	s := newGitServer(t, o)
	m := open(t, t.TempDir(), s.url())
	for i, version0 := range []bool{false, true, false, true} {
		s.version0.Store(version0)
		want := o.set("fleet/fleet.yaml", fmt.Sprint(i))
		if h := fetch(t, m); h.Commit != want {
			t.Fatal(h)
		}
	}
}
