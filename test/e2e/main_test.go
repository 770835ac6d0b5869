// Package e2e runs the whole system on real parts, as its users would: commits go to a real Git
// server, `argosy serve` runs as a process, two real Argo CD instances deploy to real Kubernetes
// APIs, and everything is asked through the command line.
//
// All tests share one fleet (test/example). Each leaves it with the example's Applications Healthy
// and with nothing held or stopped.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

// looserGuards lets the tests delete what they made, one after another, and still holds guarded
// deletions at once.
func looserGuards(path, content string) string {
	if path != "fleet/fleet.yaml" {
		return content
	}
	return strings.NewReplacer("maxDeletes: 20 ", "maxDeletes: 15 ", "maxDeletePercent: 20",
		"maxDeletePercent: 100", "alwaysAllowed: 5", "alwaysAllowed: 15", "window: 1h",
		"window: 1m").Replace(content)
}

// guarded is more deletions than looserGuards let through.
const guarded = 17

var (
	world    *example.Fleet
	plane    *example.Plane
	binary   string
	database string // of every replica, as `database:` in argosy.yaml
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp("", "argosy-e2e-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		return fail(err)
	}
	binary = filepath.Join(dir, "argosy")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, "./cmd/argosy")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return fail(err)
	}
	progress := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "  "+format+"\n", args...)
	}
	world, err = example.Start(ctx, example.Options{Root: root, Dir: dir, Refresh: 3 * time.Second,
		Audit: true, Edge: true, Progress: progress, Edit: looserGuards})
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err := world.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
	}()
	postgres, err := stack.StartPostgres(ctx, "")
	if err != nil {
		return fail(err)
	}
	defer postgres.Stop()
	url, err := postgres.NewDatabase(ctx, "argosy")
	if err != nil {
		return fail(err)
	}
	database = fmt.Sprintf("{url: %q}", url)
	quiet := func(string, ...any) {}
	if plane, err = world.StartPlane(ctx, example.PlaneOptions{Binary: binary, Database: database,
		Progress: quiet}); err != nil {
		return fail(err)
	}
	defer func() { plane.Stop() }()
	code := m.Run()
	if code != 0 {
		if log, err := os.ReadFile(filepath.Join(dir, "argosy.log")); err == nil {
			fmt.Fprintf(os.Stderr, "== the control plane's log ends with\n%s\n",
				log[max(0, len(log)-8000):])
		}
	}
	return code
}
