package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// watching runs `argosy get … --watch` and sends its lines of stdout and stderr.
func watching(t *testing.T, url string, args ...string) (<-chan string, func() int) {
	t.Helper()
	reader, writer := io.Pipe()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(reader); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	env := map[string]string{"ARGOSY_SERVER": url, "ARGOSY_TOKEN": "argosy_ops_secret"}
	ctx, cancel := context.WithCancel(t.Context())
	a := &app{in: strings.NewReader(""), out: writer, err: writer,
		getenv: func(name string) string { return env[name] }}
	code := make(chan int, 1)
	go func() {
		code <- a.run(ctx, args)
		writer.Close()
	}()
	return lines, func() int {
		cancel()
		for range lines { // let it write its last words
		}
		return <-code
	}
}

func expect(t *testing.T, lines <-chan string, part string) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	var seen []string
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("it ended before %q: %q", part, seen)
			}
			seen = append(seen, line)
			if strings.Contains(line, part) {
				return
			}
		case <-deadline:
			t.Fatalf("no %q in %q", part, seen)
		}
	}
}

func TestWatchPrintsOnlyChanges(t *testing.T) {
	text, err := os.ReadFile("testdata/mirror.yaml")
	if err != nil {
		t.Fatal(err)
	}
	content, err := apitest.Load(string(text), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	store := apitest.New(content)
	url := serve(store, t.Cleanup)
	table, endTable := watching(t, url, "get", "applications", "--tenant", "acme", "--watch")
	names, endNames := watching(t, url, "get", "applications", "-w", "-o", "name")
	expect(t, table, "TENANT")
	expect(t, table, "Progressing")
	expect(t, table, "staging")
	expect(t, names, "globex/web@prod-us")
	store.Change(func(m *apitest.Mirror) {
		for i := range m.Applications {
			if m.Applications[i].Deployment == "cart" {
				m.Applications[i].Health = mirror.HealthHealthy
			}
		}
	}, view.Event{Kind: "application", Tenant: "acme", Name: "cart"})
	if head := <-table; !strings.HasPrefix(head, "TENANT") {
		t.Errorf("%q", head)
	}
	if row := <-table; !strings.Contains(row, "cart") || !strings.Contains(row, "Healthy") {
		t.Errorf("%q", row)
	}
	if name := <-names; name != "acme/cart@prod-eu" {
		t.Errorf("%q", name)
	}
	store.Change(func(m *apitest.Mirror) { m.Applications = m.Applications[:1] }, view.Event{
		Kind: "application", Name: "many"})
	expect(t, table, "is no longer listed")
	if code := endTable(); code != exitFine {
		t.Errorf("Ctrl-C exits with %d", code)
	}
	if code := endNames(); code != exitFine {
		t.Errorf("Ctrl-C exits with %d", code)
	}
}

func TestWatchEndsWhenTheTokenIsRefused(t *testing.T) {
	url := serve(apitest.New(apitest.Mirror{}), t.Cleanup)
	lines, end := watching(t, url, "get", "tenants", "--watch")
	expect(t, lines, "this token is invalid")
	if code := end(); code != exitNotAllowed {
		t.Errorf("it exits with %d", code)
	}
}
