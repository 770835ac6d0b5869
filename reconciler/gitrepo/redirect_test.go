package gitrepo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestRedirects(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	o.in("", "clone", "-q", "--bare", o.dir, filepath.Join(filepath.Dir(o.dir), "other.git"))
	s := newGitServer(t, o)
	var stolen atomic.Pointer[string]
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := fmt.Sprint(r.Header)
		stolen.Store(&header)
	}))
	defer thief.Close()
	to := func(status int, target func(r *http.Request) string) func(w http.ResponseWriter,
		r *http.Request, next http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !strings.HasPrefix(r.URL.Path, "/config.git/") {
				next.ServeHTTP(w, r)
				return
			}
			http.Redirect(w, r, target(r), status)
		}
	}
	refused := map[string]string{
		"another host": thief.URL +
			"/config.git/info/refs?service=git-upload-pack&token=canary-query",
		"another host, with user info": "http://canary-user:canary-pass@" + strings.TrimPrefix(
			thief.URL, "http://") + "/config.git/info/refs",
		"another name for the same host": strings.Replace(s.URL, "127.0.0.1", "localhost", 1) +
			"/config.git/info/refs?service=git-upload-pack",
		"another scheme": strings.Replace(s.URL, "http:", "https:", 1) +
			"/config.git/info/refs?service=git-upload-pack",
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
	t.Run("a pack is never requested elsewhere", func(t *testing.T) {
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
				http.Redirect(w, r, strings.Replace(r.URL.String(), "/config/", "/config.git/", 1),
					301)
				return
			}
			next.ServeHTTP(w, r)
		})
		m := openWith(t, strings.TrimSuffix(s.url(), ".git"), Token("canary-token"))
		for range 3 { // the second fetch skips the advertisement
			if h := fetch(t, m); h.Commit != first {
				t.Fatal(h)
			}
		}
	})
}
