// Package chaos runs two real replicas of `argosy serve` over a real PostgreSQL with a streaming
// standby, a real API server with two engines, and a real Git server or, in every second history, a
// real Git host. It breaks them: processes are killed and frozen, single requests are held,
// delayed, refused and lost, connections vanish, the database goes back in time, Git serves wrong
// data, strangers push. A history is the list of these steps, which a seed gives. A model checks
// every write, and the end.
//
//	go test ./test/chaos                          the histories that `make test` runs
//	make chaos MINUTES=30 SEED=7                  one history after another, from seed 7 on
//	go test ./test/chaos -chaos.seed=7 -chaos.keep=0,3,4   only these steps of history 7
//
// A history that breaks a rule is shortened, step by step, as long as it still breaks one; the
// remaining steps are printed. It then becomes a case of TestHistoriesThatOnceFailed.
package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/test/stack"
)

var (
	minutes = flag.Int("chaos.minutes", 0,
		"run new histories for so many minutes; 0: the fixed ones once")
	seedFlag = flag.Uint64("chaos.seed", 0,
		"the first history; 0: the fixed ones, or one by the clock")
	keepFlag = flag.String("chaos.keep", "", "only these steps of the history, as 0,3,4")
	steps    = flag.Int("chaos.steps", 16, "steps of a history")
	every    = flag.Uint64("chaos.every", 1,
		"run every so manyth history; 2 from an even seed on: those with a Git host")
	shrink = flag.Bool("chaos.shrink", true, "make a history that breaks a rule shorter")
)

var (
	binary  string
	cluster *stack.Cluster
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "argosy-chaos-")
	if err == nil {
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "argosy")
		build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary,
			"./cmd/argosy")
		build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
		err = build.Run()
	}
	if err == nil {
		cluster, err = stack.StartCluster(ctx, stack.ClusterOptions{Name: "chaos"})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	defer func() {
		if err := errors.Join(cluster.Stop(), stopGitea()); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
		}
	}()
	return m.Run()
}

// TestAnyHistoryOfFaultsBreaksNoRule runs fixed histories, one by the seed given, or, for
// -chaos.minutes, one after another.
func TestAnyHistoryOfFaultsBreaksNoRule(t *testing.T) {
	switch {
	case *minutes > 0:
		soak(t, time.Duration(*minutes)*time.Minute)
	case *seedFlag != 0:
		replay(t, history{seed: *seedFlag, keep: kept(t, *keepFlag)})
	default:
		for _, seed := range []uint64{1, 24} {
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				replay(t, history{seed: seed})
			})
		}
	}
}

// TestHistoriesThatOnceFailed is every history that broke a rule, made as short as it went.
func TestHistoriesThatOnceFailed(t *testing.T) {
	if *minutes > 0 || *seedFlag != 0 {
		t.Skip("one history or new ones are asked for")
	}
	for name, h := range map[string]history{
		// The second head that waited as a whole was listed nowhere, so that it could not be
		// approved.
		"commits after a fail-over to a standby without the mirror": {
			seed: 208, kinds: map[int]string{
				0: "fail-over to a standby that lags behind",
				1: "commit: add",
			}},
		// Workers acted on the rows of a standby that lacked the newest commits, and no replica
		// recorded these again.
		"a fail-over that loses commits, and no commit after it": {seed: 3, kinds: map[int]string{
			0: "commit: add",
			1: "commit: edit",
			2: "commit: drop",
			3: "fail-over to a standby that lags behind",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			replay(t, h)
		})
	}
}

// soak runs histories until the time is over, and prints what they did.
func soak(t *testing.T, d time.Duration) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	started, all := time.Now(), report{faults: map[string]int{}}
	for n := uint64(0); time.Since(started) < d && !t.Failed(); n += *every {
		all.add(replay(t, history{seed: seed + n}))
	}
	fmt.Printf(
		"\n%.0f minutes, %d histories from seed %d, %d writes, %d commits; longest time to "+
			"converge %s; rules broken: %d\n",
		time.Since(started).Minutes(), all.histories, seed, all.writes, all.commits,
		all.converge.Round(100*time.Millisecond), all.broken)
	for _, kind := range slices.Sorted(maps.Keys(all.faults)) {
		fmt.Printf("%8d  %s\n", all.faults[kind], kind)
	}
}

// replay runs one history; one that breaks a rule is made shorter and fails the test.
func replay(t *testing.T, h history) report {
	t.Helper()
	r := h.run(t)
	if len(r.violations) == 0 {
		return r
	}
	if *shrink && h.keep == nil && h.kinds == nil {
		h = shorten(t, h)
	}
	t.Errorf(
		"history %d breaks a rule:\n  %s\nrun it again: go test ./test/chaos -run AnyHistory "+
			"-chaos.seed=%d -chaos.steps=%d -chaos.keep=%s\n%s",
		h.seed, strings.Join(r.violations, "\n  "), h.seed, *steps, h.numbers(), h)
	return r
}

// shorten leaves out parts of a history, large ones first, as long as the remaining steps break a
// rule.
func shorten(t *testing.T, h history) history {
	t.Helper()
	keep := h.indices()
	for size := len(keep) / 2; size >= 1; size /= 2 {
		for from := 0; from < len(keep); {
			less := slices.Delete(slices.Clone(keep), from, min(from+size, len(keep)))
			shorter := history{seed: h.seed, keep: less}
			if len(less) > 0 && len(shorter.run(t).violations) > 0 {
				keep = less
			} else {
				from += size
			}
		}
	}
	return history{seed: h.seed, keep: keep}
}

func kept(t *testing.T, list string) []int {
	t.Helper()
	if list == "" {
		return nil
	}
	var keep []int
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("-chaos.keep: %v", err)
		}
		keep = append(keep, n)
	}
	return keep
}

// report is what histories did.
type report struct {
	violations                         []string
	faults                             map[string]int
	histories, writes, commits, broken int
	converge                           time.Duration
}

func (r *report) add(o report) {
	r.histories++
	r.writes += o.writes
	r.commits += o.commits
	r.broken += len(o.violations)
	r.converge = max(r.converge, o.converge)
	for kind, n := range o.faults {
		r.faults[kind] += n
	}
}
