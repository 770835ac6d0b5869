// Command bench measures the core: the cost of bringing commits of a config repo to API servers.
// Each figure is shown next to, or as a ratio to, a floor measured in the same run in interleaved
// blocks. Nothing fails for being slow: a run fails when its results are void, because an engine
// does not hold what the repo declares. `make bench-core` runs it.
//
//	bench                          everything, full size
//	bench -n 2000 -sizes 100,300,1000 -memory 1000 -flat 1000 -compile 2000 -blocks 3
//	bench -only compile,fanout     some of: fanout, change, flat, compile, placement, slow
//
// Placement and fleets are no part of everything: they need no engines and have a floor of their
// own, Argo CD's sharding. `make bench-placement` and `make bench-fleet` run them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"argosy.dev/argosy/test/bench/report"
)

// argosyBinary is the control plane as it is shipped, built by scripts/bench.sh for this run alone.
const argosyBinary = ".cache/bin/bench-argosy"

// options are the sizes.
type options struct {
	n, memory, flat, compile, place int
	sizes                           []int
	blocks, commits                 int
	only                            []string
	out                             string
}

func main() {
	var o options
	var sizes, only string
	flag.IntVar(&o.n, "n", 10_000, "Applications of the cold fan-out")
	flag.StringVar(&sizes, "sizes", "100,1000,10000,100000",
		"numbers of files that one of is changed, in folders of 250")
	flag.IntVar(&o.memory, "memory", 25_000, "files at which memory is read; one more size")
	flag.IntVar(&o.flat, "flat", 25_000, "files in one folder that one of is changed")
	flag.IntVar(&o.compile, "compile", 25_000, "files that are decoded")
	flag.IntVar(&o.place, "place", 25_000, "environments that are placed")
	flag.IntVar(&o.blocks, "blocks", 5, "blocks of each arm")
	flag.IntVar(&o.commits, "commits", 5, "commits in a block")
	flag.StringVar(&only, "only", "fanout,change,flat,compile", "what to measure")
	flag.StringVar(&o.out, "out", filepath.Join(".cache", "bench"), "folder for JSON")
	flag.Parse()
	o.only = strings.Split(only, ",")
	for s := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "bench: -sizes: %q is no number of files\n", s)
			os.Exit(2)
		}
		o.sizes = append(o.sizes, n)
	}
	if o.memory > 0 {
		o.sizes = append(o.sizes, o.memory)
	}
	slices.Sort(o.sizes)
	o.sizes = slices.Compact(o.sizes)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures one figure after the other. A failed one does not keep the others from running.
func run(ctx context.Context, o options) error {
	one := func(f *report.Figure, err error) ([]*report.Figure, error) {
		return []*report.Figure{f},
			err
	}
	all := map[string]func() ([]*report.Figure, error){
		"compile": func() ([]*report.Figure, error) { return one(compile(ctx, o)) },
		"fanout":  func() ([]*report.Figure, error) { return one(fanout(ctx, o)) },
		"change": func() ([]*report.Figure, error) {
			return change(ctx, o, "change", false, o.sizes)
		},
		"flat": func() ([]*report.Figure, error) {
			return change(ctx, o, "flat", true, []int{o.flat})
		},
		"deliveries": func() ([]*report.Figure, error) { return one(deliveries(ctx, o)) },
		"placement":  func() ([]*report.Figure, error) { return one(placed(ctx, o)) },
		"slow":       func() ([]*report.Figure, error) { return one(slow(ctx, o)) },
		"fleets":     func() ([]*report.Figure, error) { return fleets(ctx, o) },
		"rollout":    func() ([]*report.Figure, error) { return one(rolls(ctx, o)) },
	}
	var errs []error
	for _, name := range o.only {
		if all[name] == nil {
			return fmt.Errorf(
				"-only: %q is not measured; fanout, change, flat, compile, placement, fleets, "+
					"slow, deliveries and rollout are", name)
		}
		begun := time.Now()
		figures, err := all[name]()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		for _, f := range figures {
			f.Print(os.Stdout)
			errs = append(errs, f.Write(o.out))
		}
		progress("%s took %s", name, time.Since(begun).Round(time.Second))
	}
	return errors.Join(errs...)
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }

func stopGround(g *ground) {
	if err := g.stop(); err != nil {
		progress("not everything was removed: %v", err)
	}
}
