package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const vendored = "page/static/vendor"

// scripts/vendor-page.sh --check compares the same files with npm's packages.
func TestThePagesLibrariesAreThoseOfTheLock(t *testing.T) {
	lock, err := os.ReadFile(filepath.Join(vendored, "vendor.lock"))
	if err != nil {
		t.Fatal(err)
	}
	locked := map[string]bool{"vendor.lock": true}
	for line := range strings.Lines(string(lock)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 5 {
			t.Fatalf("not package, version, path, file and hash: %q", line)
		}
		content, err := os.ReadFile(filepath.Join(vendored, fields[3]))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != fields[4] {
			t.Errorf("%s is not the file of %s %s", fields[3], fields[0], fields[1])
		}
		locked[fields[3]] = true
	}
	files, err := os.ReadDir(vendored)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !locked[f.Name()] {
			t.Errorf("%s is not in vendor.lock", f.Name())
		}
	}
}

func TestABrowserKeepsThePagesFilesByTheirHash(t *testing.T) {
	s := newSite(t, content())
	page := s.page("/", platformToken).body
	links := regexp.MustCompile(`(?:src|href)="(/static/[^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(links) < 5 {
		t.Fatalf("the page refers to %d files", len(links))
	}
	for _, link := range links {
		a := s.page(link[1], "")
		s.want(a, http.StatusOK)
		if got := a.header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s: Cache-Control %q", link[1], got)
		}
	}
	for _, path := range []string{"/static/style.css", "/", "/static/style.00000000.css"} {
		if got := s.page(path, platformToken).header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q", path, got)
		}
	}
	s.want(s.page("/static/style.00000000.css", ""), http.StatusNotFound)
}

func TestThePageIsCompressedForClientsThatAcceptIt(t *testing.T) {
	s := newSite(t, content())
	for _, path := range []string{"/", "/static/style.css"} {
		for accepted, want := range map[string]string{"gzip": "gzip", "br, gzip;q=1.0": "gzip",
			"identity": "", "gzip; q=0": ""} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", accepted)
			req.AddCookie(&http.Cookie{Name: "argosy-session", Value: platformToken})
			if got := s.send(req).header.Get("Content-Encoding"); got != want {
				t.Errorf("%s for %q: encoding %q", path, accepted, got)
			}
		}
	}
}

func TestAPageSendsOnlyThePartsThatHaveChanged(t *testing.T) {
	s := newSite(t, content())
	parts := func(known string) answer {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			s.url+"/tenants/acme", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Argosy-Parts", known)
		req.AddCookie(&http.Cookie{Name: "argosy-session", Value: platformToken})
		return s.send(req)
	}
	whole := s.page("/tenants/acme", platformToken)
	found := regexp.MustCompile(`data-part="([^"]+)" data-kinds="[^"]*" data-hash="([^"]+)"`).
		FindStringSubmatch(whole.body)
	if found == nil {
		t.Fatal("the page has no part")
	}
	known := found[1] + "=" + found[2]
	s.want(parts(known), http.StatusNoContent)
	s.want(parts("unheard-of=1 ../frame=2"), http.StatusNoContent)
	changed := parts(found[1] + "=0000000000000000")
	s.want(changed, http.StatusOK, "group:acme", found[2])
	if strings.Contains(changed.body, "<html") {
		t.Error("the answer is a whole page")
	}
}
