package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fails fetches and checks the kind of failure, that the head does not move, and that no leftovers
// remain.
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
	// cut truncates the pack after keep bytes.
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
	// retype returns Git's answer with another content type.
	retype := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		w.Header().Set("Content-Type", "text/plain")
		w.Write(rec.Body.Bytes())
	}
	cases := []struct {
		name  string
		fault handler
		kind  error
	}{
		{"200 with HTML", answer(200, "text/html; charset=utf-8", "<html>sign in</html>"),
			ErrUnavailable},
		{"200 with HTML that claims to be Git's",
			answer(200, "application/x-git-upload-pack-result", "<html>sign in</html>"),
			ErrUnavailable},
		{"200 with Git's words as a text", retype, ErrUnavailable},
		{"200 with nothing", answer(200, "application/x-git-upload-pack-result", ""),
			ErrUnavailable},
		{"502", answer(502, "text/plain", "bad gateway"), ErrUnavailable},
		{"503", answer(503, "text/plain", ""), ErrUnavailable},
		{"404", answer(404, "text/plain", ""), ErrUnavailable},
		{"401", answer(401, "text/plain", ""), ErrUnauthorized},
		{"403", answer(403, "text/plain", ""), ErrUnauthorized},
		{"204", answer(204, "text/plain", ""), ErrUnavailable},
		{"the server explains", answer(200, "application/x-git-upload-pack-result",
			"0014ERR under repair"), ErrUnavailable},
		{"compressed although not asked", func(w http.ResponseWriter, r *http.Request,
			next http.Handler) {
			w.Header().Set("Content-Encoding", "gzip")
			next.ServeHTTP(w, r)
		}, ErrUnavailable},
		{"connection reset", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			panic(http.ErrAbortHandler)
		}, ErrUnavailable},
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
		"NXDOMAIN":           "https://git.example.invalid/config.git",
		"connection refused": "http://" + closed.Addr().String() + "/config.git",
		"no TLS where it must be": strings.Replace(plain.URL, "http:", "https:", 1) +
			"/config.git",
		"certificate of an unknown authority": stranger.URL + "/config.git",
	} {
		t.Run(name, func(t *testing.T) { fails(t, open(t, t.TempDir(), url), ErrUnavailable) })
	}
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
