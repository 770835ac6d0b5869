// Command agents measures pull mode: the agents' load on an idle hub, how long a change takes to
// reach one of them, how fast one of them applies many, the cost of a return after an absence, and
// a return of all at once. `make bench-agents` runs it.
//
//	bench-agents                   everything, full size: some eight minutes
//	bench-agents -small            everything, a hundredth of it: two minutes
//	bench-agents -only idle,change some of: idle, change, storm, missed, herd
//
// The hub is a process of its own (this program, called with "hub"): the handlers, the store, the
// board of stops and the HTTP server that `argosy serve` puts together, and nothing else of it, so
// that every statement that the database receives from it is for agents. It ends TLS itself. The
// agents are the agent's own client and follower, thousands of them in this process, each with a
// key, a connection and a stream of its own; where changes are applied it is the whole agent, on a
// real API server. PostgreSQL writes through to the disk.
//
// Nothing fails for being slow. A run fails when its results are void, because an agent's content
// differs from the database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/report"
)

// options are the sizes.
type options struct {
	idle    int           // agents that are connected and have nothing to do
	window  time.Duration // for which statements are counted
	changes int           // sent to one of them
	storm   int           // objects that one agent applies
	rows    int           // of one agent that comes back
	herd    int           // agents that come back at once
	rate    int           // sessions that a hub opens in a second
	blocks  int
	out     string
}

var (
	full = options{idle: 1000, window: time.Minute, changes: 300, storm: 2000, rows: 10_000,
		herd: 10_000, rate: 100, blocks: 5}
	small = options{idle: 100, window: 10 * time.Second, changes: 60, storm: 100, rows: 1000,
		herd: 300, rate: 20, blocks: 3}
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "hub" {
		exit(runHub(os.Args[2]))
	}
	var only string
	var quick bool
	out := flag.String("out", filepath.Join(".cache", "bench"), "folder for JSON")
	flag.BoolVar(&quick, "small", false, "a quick look instead of full size")
	flag.StringVar(&only, "only", "idle,change,storm,missed,herd", "what to measure")
	flag.Parse()
	o := full
	if quick {
		o = small
	}
	o.out = *out
	exit(measure(o, strings.Split(only, ",")))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-agents:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func measure(o options, only []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := raiseFiles(); err != nil {
		return err
	}
	g, err := startGround(ctx)
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, g, o, only), g.stop())
}

// run measures one figure after the other. A failed one does not keep the others from running.
func run(ctx context.Context, g *ground, o options, only []string) error {
	all := map[string]func(context.Context, *ground, options) (*report.Figure, error){
		"idle": idle, "change": change, "storm": storm, "missed": missed, "herd": herd,
	}
	var errs []error
	for _, name := range only {
		if all[name] == nil {
			return fmt.Errorf("-only: %q is not measured; idle, change, storm, missed and herd are",
				name)
		}
		begun := time.Now()
		figure, err := all[name](ctx, g, o)
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		if err != nil {
			progress("%s: %v", name, err)
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		figure.Print(os.Stdout)
		errs = append(errs, figure.Write(o.out))
		progress("%s took %s", name, time.Since(begun).Round(time.Second))
	}
	return errors.Join(errs...)
}

// enoughFiles is the limit of open files for ten thousand connections at either end, with room for
// reconnects.
const enoughFiles = 24_000

// raiseFiles lets this process and its children open so many files.
func raiseFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	want := syscall.Rlimit{Cur: max(limit.Cur, enoughFiles), Max: max(limit.Max, enoughFiles)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want); err == nil {
		return nil
	}
	limit.Cur = limit.Max // above that only a superuser may
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }

// alternate runs two arms in the order A B, B A, A B, ...
func alternate(block int, a, b func() error) error {
	if block%2 == 1 {
		a, b = b, a
	}
	return errors.Join(a(), b())
}

// patience is the longest wait for anything that does not depend on a size.
const patience = time.Minute

// until calls so until it returns nil, and fails with its last error.
func until(ctx context.Context, limit time.Duration, so func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := so()
		if err == nil {
			return nil
		}
		if !pacing.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
	}
}
