package reconciler_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
)

// BenchmarkPreview is the plan of a pull request that changes one file, beside what git takes to
// fetch, compare and read it and the decoder to compile that one file: A B B A.
func BenchmarkPreview(b *testing.B) {
	for _, tenants := range []int{4, 100} {
		b.Run(fmt.Sprint(250*tenants), func(b *testing.B) { benchmarkPreview(b, tenants) })
	}
}

func benchmarkPreview(b *testing.B, tenants int) {
	h := newHouse(b, crowd(tenants))
	loop := h.alone()
	from := h.head()
	floor := newFloor(b, h.repo.URL)
	var ours, theirs []time.Duration
	n := 0
	for b.Loop() {
		n++
		request := h.propose(n, from, oneOf(n*7919%(250*tenants), fmt.Sprintf("v%d", n)))
		git := func() { theirs = append(theirs, timed(func() { floor.compile(request) })) }
		argosy := func() {
			ours = append(ours, timed(func() {
				p, err := loop.Preview(b.Context(), request)
				if err != nil || p.Plan.Counts.Changed != 1 {
					b.Fatal(p, err)
				}
				if _, err := p.Plan.Report(); err != nil {
					b.Fatal(err)
				}
			}))
		}
		if n%2 == 0 {
			git, argosy = argosy, git
		}
		git()
		argosy()
	}
	b.ReportMetric(0, "ns/op") // it has the making of the pull request in it
	b.ReportMetric(middle(ours), "preview-ms")
	b.ReportMetric(middle(theirs), "git+compile-ms")
	b.ReportMetric(middle(ours)/middle(theirs), "ratio")
}

// crowd is tenants with 250 deployments each.
func crowd(tenants int) map[string]string {
	files := platform()
	files["fleet/engines/eu-1.yaml"] = strings.Replace(files["fleet/engines/eu-1.yaml"],
		"applications: 500, environments: 50", "applications: 100000, environments: 1000", 1)
	for n := range tenants {
		maps.Copy(files, tenant(fmt.Sprintf("t%03d", n), "prod"))
	}
	for n := range 250 * tenants {
		maps.Copy(files, oneOf(n, "v0"))
	}
	return files
}

func oneOf(n int, revision string) map[string]string {
	return deployment(fmt.Sprintf("t%03d", n/250), fmt.Sprintf("d%d", n), revision, "Delete",
		"prod")
}

// alone runs a loop without workers until the head is applied.
func (h *house) alone() *reconciler.Loop {
	h.t.Helper()
	m, err := gitrepo.Open(context.Background(), filepath.Join(h.t.TempDir(), "config.git"),
		gitrepo.Source{URL: h.repo.URL, Branch: "refs/heads/main"}, gitrepo.AllowPlainHTTP())
	if err != nil {
		h.t.Fatal(err)
	}
	source := &gitSource{Mirror: m}
	loop := reconciler.NewLoop(reconciler.Config{Source: source, Pulls: source, Decoder: decoder{},
		Renderer: argocd.Renderer{}, Store: h.store.Plans, Leases: h.store.Leases,
		Stops:   h.store.Decisions,
		Engines: nowhere{}, Holder: "bench", Branch: "main", Poll: time.Hour,
		Metrics: reconciler.NewMetrics(prometheus.NewRegistry()), Log: quiet()})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { loop.Run(ctx) })
	h.t.Cleanup(func() { cancel(); all.Wait(); m.Close() })
	for begun := time.Now(); time.Since(begun) < 10*limit; time.Sleep(10 * time.Millisecond) {
		if at, _, err := loop.Base(); err == nil && at != "" {
			return loop
		}
	}
	h.t.Fatal("the branch is not applied")
	return nil
}

// nowhere finds engines that hold nothing.
type nowhere struct{}

func (nowhere) Find(context.Context, fleet.EngineName, fleet.EngineSpec) ([]engine.Live,
	[]mirror.Stop, error) {
	return nil, nil, nil
}

// floor is a bare clone that the git command keeps.
type floor struct {
	b   *testing.B
	dir string
}

func newFloor(b *testing.B, url string) *floor {
	f := &floor{b: b, dir: filepath.Join(b.TempDir(), "floor.git")}
	if out, err := exec.Command("git", "clone", "-q", "--bare", "--single-branch", "-b", "main",
		url, f.dir).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return f
}

func (f *floor) git(stdin string, args ...string) []byte {
	cmd := exec.Command("git", append([]string{"-C", f.dir}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		f.b.Fatalf("git %v: %v", args, err)
	}
	return out
}

// compile fetches a pull request, lists what it changes, reads that and decodes it.
func (f *floor) compile(r reconciler.PreviewRequest) {
	f.git("", "fetch", "-q", "origin", "+"+r.Ref+":"+r.Ref)
	base := strings.TrimSpace(string(f.git("", "merge-base", "main", r.Ref)))
	fields := strings.Split(string(f.git("", "diff-tree", "-r", "--raw", "-z", base, r.Ref)),
		"\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		blob := strings.Fields(fields[i])[3]
		_, text, _ := bytes.Cut(f.git(blob+"\n", "cat-file", "--batch"), []byte("\n"))
		if in, ours := (decoder{}).Decode(reconciler.File{Path: fields[i+1], Blob: blob,
			Bytes: bytes.TrimSuffix(text, []byte("\n"))}); !ours || in.Declaration == nil {
			f.b.Fatalf("%+v", in)
		}
	}
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// middle is the median in milliseconds.
func middle(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2]) / 1e6
}
