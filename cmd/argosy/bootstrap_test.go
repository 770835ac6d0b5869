package main

import (
	"bytes"
	"context"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/webhook/github/githubtest"
)

// terminal collects the output of a command while it runs.
type terminal struct {
	mu    sync.Mutex
	b     bytes.Buffer
	pages chan string // the address of the page, once
}

var pageAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Write(b)
	if at := pageAddress.FindString(t.b.String()); at != "" {
		select {
		case t.pages <- at:
		default:
		}
	}
	return len(b), nil
}

func browse(t *testing.T, address string) (int, string) {
	t.Helper()
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestRegisteringAGitHubApp(t *testing.T) {
	forge := githubtest.Start(t)
	dir := t.TempDir()
	screen, out := &terminal{pages: make(chan string, 1)}, &bytes.Buffer{}
	command := func() int {
		a := &app{in: strings.NewReader(""), out: out, err: screen, getenv: func(string) string {
			return ""
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return a.run(ctx, []string{"bootstrap", "github", "--url", "https://argosy.example.com/",
			"--org", "acme", "--api", forge.URL, "--out", dir})
	}
	ended := make(chan int, 1)
	go func() { ended <- command() }()
	var here string
	select {
	case here = <-screen.pages:
	case exit := <-ended:
		t.Fatalf("exit %d: %s", exit, &screen.b)
	}

	_, page := browse(t, here+"/")
	page = html.UnescapeString(page)
	for _, part := range []string{
		`"checks":"write"`, `"contents":"read"`, `https://argosy.example.com/webhook/github`,
		"/organizations/acme/settings/apps/new", here + "/registered"} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %s:\n%s", part, page)
		}
	}
	state := regexp.MustCompile(`state=([A-Z2-7]+)`).FindStringSubmatch(page)
	if state == nil {
		t.Fatalf("no state in %s", page)
	}
	code := forge.Propose("argosy-of-acme")
	if status, _ := browse(t, here+"/registered?"+url.Values{
		"state": {"a stranger's"}, "code": {code}}.Encode()); status != http.StatusBadRequest {
		t.Errorf("a code without our state is answered %d", status)
	}
	if status, text := browse(t, here+"/registered?"+url.Values{
		"state": {state[1]}, "code": {code}}.Encode()); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	if exit := <-ended; exit != exitFine {
		t.Fatalf("exit %d: %s", exit, &screen.b)
	}
	for name, begins := range map[string]string{keyFile: "-----BEGIN", secretFile: ""} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 || len(content) < leastOfASecret ||
			!strings.HasPrefix(string(content), begins) {
			t.Errorf("%s: %v, %d bytes, %v", name, info.Mode(), len(content), err)
		}
		if strings.Contains(out.String()+screen.b.String(), string(content)) {
			t.Errorf("%s is shown", name)
		}
	}
	for _, line := range []string{
		"forge:", "  repository: OWNER/NAME", "  webhookSecretFiles: [\"github-webhook-secret\"]",
		"  publicURL: https://argosy.example.com\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the settings lack %q:\n%s", line, out)
		}
	}
	if exit := command(); exit != exitError ||
		!strings.Contains(screen.b.String(), "already exists") {
		t.Errorf("a second registration: exit %d: %s", exit, &screen.b)
	}
}

// leastOfASecret is shorter than any that GitHub gives.
const leastOfASecret = 8
