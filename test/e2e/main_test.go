// Package e2e runs the whole system on real parts, as its users would: commits go to a real Git
// server, `argosy serve` runs as a process, real Argo CD instances deploy to real Kubernetes APIs,
// and every question is asked through the command line.
//
// Three fleets of test/example serve the tests: one for the control plane's tests, one with a
// cluster behind a firewall for the agents' tests, and one with a Git host for pull requests. A
// test holds its fleet alone until it ends, and leaves it with the example's Applications Healthy
// and with nothing held or stopped. Tests of different fleets run at the same time.
package e2e

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

const guardsFile = "fleet/fleet.yaml"

// looserGuards lets the tests delete what they made, one after another, and still holds guarded
// deletions at once.
func looserGuards(path, content string) string {
	if path != guardsFile {
		return content
	}
	return strings.NewReplacer("maxDeletes: 20 ", "maxDeletes: 15 ", "maxDeletePercent: 20",
		"maxDeletePercent: 100", "alwaysAllowed: 5", "alwaysAllowed: 15", "window: 1h",
		"window: 1m").Replace(content)
}

// guarded is more deletions than looserGuards let through.
const guarded = 17

// system is a fleet on real parts with the control plane that serves it.
type system struct {
	*example.Fleet
	plane    *example.Plane
	database string // of every replica, as `database:` in argosy.yaml
	postgres *stack.Postgres
}

// shared is a fleet that several tests use, one after another. The first one starts it, and the
// last one of those that wait for it stops it.
type shared struct {
	edge    bool // with a cluster behind a firewall
	waiting atomic.Int64
	mu      sync.Mutex
	running *system
}

var (
	platform = &shared{}
	edges    = &shared{edge: true}
)

// binary is the path of argosy, which TestMain builds.
var binary string

// slots bounds the fleets that run at the same time.
var semaphore = make(chan struct{}, fleetsAtOnce())

// fleetMemory is what one fleet takes at most, in bytes: three clusters of 450 MB with an Argo CD
// of 350 MB each.
const fleetMemory = 5 << 29

// fleetsAtOnce returns how many fleets fit into the memory that is available now: one to three.
func fleetsAtOnce() int {
	info, err := os.Open("/proc/meminfo")
	if err != nil {
		return 1
	}
	defer info.Close()
	for lines := bufio.NewScanner(info); lines.Scan(); {
		var kilobytes int
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kilobytes); n == 1 {
			return min(3, max(1, kilobytes<<10/fleetMemory))
		}
	}
	return 1
}

func TestMain(m *testing.M) {
	// Tests that wait for their fleet are no load: the fleets bound what runs at the same time.
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "argosy-e2e-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "argosy")
	build := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w", "-o",
		binary,
		"./cmd/argosy")
	build.Dir, build.Stderr = "../..", os.Stderr
	if err := errors.Join(os.Chmod(dir, 0o711), build.Run()); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// use starts the fleet unless it runs, and gives it to the test alone.
func (s *shared) use(t *testing.T) *system {
	t.Helper()
	t.Parallel()
	s.waiting.Add(1)
	s.mu.Lock()
	t.Cleanup(s.mu.Unlock)
	t.Cleanup(func() {
		if s.waiting.Add(-1) == 0 {
			s.stop(t)
		}
	})
	if s.running == nil {
		semaphore <- struct{}{}
		s.running = &system{}
		s.start(t, s.running)
	}
	f := s.running
	t.Cleanup(func() { f.showLog(t) })
	return f
}

func (s *shared) start(t *testing.T, f *system) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f.startFleet(ctx, t, example.Options{Audit: true, Edge: s.edge})
	var err error
	f.postgres, err = stack.StartPostgres(ctx, "")
	check(t, err)
	url, err := f.postgres.NewDatabase(ctx, "argosy")
	check(t, err)
	f.database = fmt.Sprintf("{url: %q}", url)
	f.plane, err = f.StartPlane(ctx, example.PlaneOptions{Binary: binary, Database: f.database,
		Progress: func(string, ...any) {}})
	check(t, err)
}

// startFleet starts the fleet without a control plane, in a folder that outlives the test.
func (f *system) startFleet(ctx context.Context, t *testing.T, o example.Options) {
	t.Helper()
	dir, err := os.MkdirTemp("", "argosy-e2e-")
	check(t, err)
	check(t, os.Chmod(dir, 0o711)) // run by root, PostgreSQL is another user and passes through
	root, err := filepath.Abs("../..")
	check(t, err)
	o.Root, o.Dir, o.Refresh, o.Edit = root, dir, 3*time.Second, looserGuards
	o.Progress = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "  "+format+"\n", args...)
	}
	f.Fleet, err = example.Start(ctx, o)
	check(t, err)
}

func (s *shared) stop(t *testing.T) {
	f := s.running
	s.running = nil
	if f == nil {
		return
	}
	if f.plane != nil {
		f.plane.Stop()
	}
	if f.postgres != nil {
		if err := f.postgres.Stop(); err != nil {
			t.Error(err)
		}
	}
	if f.Fleet != nil {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(f.Dir)
	}
	<-semaphore
}

// showLog prints the end of the control plane's log if the test failed.
func (f *system) showLog(t *testing.T) {
	if !t.Failed() || f.plane == nil {
		return
	}
	if log, err := os.ReadFile(f.plane.Process.LogFile()); err == nil {
		t.Logf("the control plane's log ends with\n%s", log[max(0, len(log)-8000):])
	}
}
