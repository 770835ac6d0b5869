package gitrepo

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// declaration is a file of about 700 bytes, as deployments are.
func declaration(n, version int) string {
	return fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata:
  name: app-%d
  labels: {team: payments, version: "%d"}
spec:
  source:
    repoURL: https://git.example.com/acme/app-%d
    path: deploy
    targetRevision: v1.4.%d
    kustomize: {images: ["app=registry.example.com/app-%d:v1.4.%d"]}
  destination:
    environments: [staging, prod-eu]
    namespace: app-%d
  sync: {mode: automated, prune: true, selfHeal: true, createNamespace: true}
  deletionPolicy: Delete
  overrides:
    - {environment: staging, source: {targetRevision: main}}
# %s
`, n, version, n, version, n, version, n, strings.Repeat(fmt.Sprintf("%08x", n*2654435761), 12))
}

// pathOf spreads files over folders of 250, or puts all into one.
func pathOf(n int, flat bool) string {
	if flat {
		return fmt.Sprintf("tenants/acme/deployments/app-%d.yaml", n)
	}
	return fmt.Sprintf("tenants/t%d/deployments/app-%d.yaml", n/250, n)
}

// fill imports files in one commit.
func (o *origin) fill(n int, flat bool) {
	var b bytes.Buffer
	fmt.Fprintf(&b,
		"commit refs/heads/main\ncommitter Bob <bob@example.com> %d +0000\ndata 4\nfill\n", o.clock)
	for i := range n {
		text := declaration(i, 0)
		fmt.Fprintf(&b, "M 100644 inline %s\ndata %d\n%s\n", pathOf(i, flat), len(text), text)
	}
	o.feed(o.dir, b.String(), "fast-import", "--quiet")
	o.in(o.dir, "repack", "-adq")
}

// change imports a commit that changes one file.
func (o *origin) change(file, version int, flat bool) Hash {
	text := declaration(file, version)
	o.clock++
	o.feed(o.dir,
		fmt.Sprintf(
			"commit refs/heads/main\ncommitter Bob <bob@example.com> %d +0000\ndata "+
				"6\nchange\nfrom refs/heads/main^0\nM 100644 inline %s\ndata %d\n%s\n",
			o.clock, pathOf(file, flat), len(text), text), "fast-import", "--quiet")
	return Hash(o.in(o.dir, "rev-parse", "refs/heads/main"))
}

// gitMirror is the minimum: the git command, process starts included.
type gitMirror struct {
	b    *testing.B
	dir  string
	head Hash
}

func newGitMirror(b *testing.B, url string) *gitMirror {
	g := &gitMirror{b: b, dir: filepath.Join(b.TempDir(), "floor.git")}
	g.run("", "clone", "-q", "--bare", "--single-branch", "-b", "main", url, g.dir)
	g.head = Hash(strings.TrimSpace(string(g.run("", "rev-parse", "refs/heads/main"))))
	return g
}

func (g *gitMirror) run(stdin string, args ...string) []byte {
	cmd := exec.Command("git", args...)
	if _, err := os.Stat(g.dir); err == nil {
		cmd.Dir = g.dir
	}
	cmd.Env, cmd.Stdin = append(gitEnv(), "GIT_TERMINAL_PROMPT=0"), strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		g.b.Fatalf("git %v: %v", args, err)
	}
	return out
}

// update fetches, lists the changes and reads them.
func (g *gitMirror) update() (bytes int) {
	g.run("", "fetch", "-q", "origin", "+refs/heads/main:refs/heads/main")
	head := Hash(strings.TrimSpace(string(g.run("", "rev-parse", "refs/heads/main"))))
	var ids strings.Builder
	for field := range strings.SplitSeq(
		string(g.run("", "diff-tree", "-r", "--raw", "-z", string(g.head), string(head))), "\x00") {
		if meta := strings.Fields(field); len(meta) == 5 {
			ids.WriteString(meta[3] + "\n")
		}
	}
	g.head = head
	return len(g.run(ids.String(), "cat-file", "--batch"))
}

// update does the same by the mirror.
func update(b *testing.B, m *Mirror, base Hash) (bytes int) {
	h, err := m.Fetch(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	changes, err := m.Diff(b.Context(), base, h.Commit)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range changes {
		data, err := m.Blob(b.Context(), c.New.Blob)
		if err != nil {
			b.Fatal(err)
		}
		bytes += len(data)
	}
	return bytes
}

// BenchmarkUpdate measures fetch, diff and read of one changed file, next to the git command, A B B
// A.
func BenchmarkUpdate(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
		flat bool
	}{{"100", 100, false}, {"1000", 1000, false}, {"10000", 10_000, false},
		{"100000", 100_000, false}, {"flat-25000", 25_000, true}} {
		b.Run(size.name, func(b *testing.B) {
			o := newOrigin(b)
			o.fill(size.n, size.flat)
			s := newGitServer(b, o)
			floor := newGitMirror(b, s.url())
			m := open(b, b.TempDir(), s.url())
			head := fetch(b, m)
			var ours, theirs, own []time.Duration
			version := 0
			for b.Loop() {
				version++
				base := head.Commit
				o.change(version*7919%size.n, version, size.flat)
				a := func() { theirs = append(theirs, timed(func() { floor.update() })) }
				c := func() {
					s.busy.Store(0)
					ours = append(ours, timed(func() { update(b, m, base) }))
					own = append(own, ours[len(ours)-1]-time.Duration(s.busy.Load()))
				}
				if version%2 == 0 {
					a, c = c, a
				}
				a()
				c()
				head, _ = m.Head()
			}
			report(b, "ours", ours, "git", theirs)
			b.ReportMetric(median(own), "ours-without-server-ms")
		})
	}
}

// proposal imports a pull request that changes one file of a commit.
func (o *origin) proposal(number, file int, flat bool, from Hash) Hash {
	text := declaration(file, number)
	o.clock++
	o.feed(o.dir,
		fmt.Sprintf(
			"commit refs/pull/%[1]d/head\ncommitter Bob <bob@example.com> %[3]d +0000\ndata "+
				"4\npull\nfrom %[2]s\nM 100644 inline %[4]s\ndata %[5]d\n%[6]s\n",
			number, from, o.clock, pathOf(file, flat), len(text), text), "fast-import", "--quiet")
	return Hash(o.in(o.dir, "rev-parse", fmt.Sprintf("refs/pull/%d/head", number)))
}

// pull fetches a pull request, lists its changes since the merge base, and reads them.
func (g *gitMirror) pull(number int) (bytes int) {
	ref := fmt.Sprintf("refs/pull/%d/head", number)
	g.run("", "fetch", "-q", "origin", "+"+ref+":"+ref)
	base := strings.TrimSpace(string(g.run("", "merge-base", string(g.head), ref)))
	var ids strings.Builder
	for field := range strings.SplitSeq(string(g.run("", "diff-tree", "-r", "--raw", "-z", base,
		ref)), "\x00") {
		if meta := strings.Fields(field); len(meta) == 5 {
			ids.WriteString(meta[3] + "\n")
		}
	}
	return len(g.run(ids.String(), "cat-file", "--batch"))
}

// pull does the same by the mirror, including the merge.
func pull(b *testing.B, m *Mirror, number int, into, head Hash) (bytes int) {
	if _, err := m.FetchRef(b.Context(), pullRef(number), head); err != nil {
		b.Fatal(err)
	}
	out, err := m.Merge(b.Context(), into, head)
	if err != nil || len(out.Changes) != 1 || len(out.Conflicts) != 0 {
		b.Fatal(out, err)
	}
	data, err := m.Blob(b.Context(), out.Changes[0].New.Blob)
	if err != nil {
		b.Fatal(err)
	}
	return len(data)
}

// BenchmarkPull measures fetch, merge and read of a pull request of one file that is ten commits
// behind the branch, next to the git command, A B B A.
func BenchmarkPull(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
		flat bool
	}{{"100", 100, false}, {"25000", 25_000, false}, {"100000", 100_000, false},
		{"flat-25000", 25_000, true}} {
		b.Run(size.name, func(b *testing.B) {
			o := newOrigin(b)
			o.fill(size.n, size.flat)
			from := Hash(o.in(o.dir, "rev-parse", "refs/heads/main"))
			for i := range 10 {
				o.change(i, i+1, size.flat)
			}
			s := newGitServer(b, o)
			floor := newGitMirror(b, s.url())
			m := open(b, b.TempDir(), s.url())
			head := fetch(b, m).Commit
			var ours, theirs, own []time.Duration
			number := 0
			for b.Loop() {
				number++
				at := o.proposal(number, 20+number*7919%(size.n-20), size.flat, from)
				a := func() { theirs = append(theirs, timed(func() { floor.pull(number) })) }
				c := func() {
					s.busy.Store(0)
					ours = append(ours, timed(func() { pull(b, m, number, head, at) }))
					own = append(own, ours[len(ours)-1]-time.Duration(s.busy.Load()))
				}
				if number%2 == 0 {
					a, c = c, a
				}
				a()
				c()
			}
			report(b, "ours", ours, "git", theirs)
			b.ReportMetric(median(own), "ours-without-server-ms")
		})
	}
}

// BenchmarkThousandFetches compares the last hundred of a thousand one-file fetches with the first
// hundred.
func BenchmarkThousandFetches(b *testing.B) {
	o := newOrigin(b)
	o.fill(10_000, false)
	s := newGitServer(b, o)
	for b.Loop() {
		m := open(b, b.TempDir(), s.url())
		head := fetch(b, m)
		var all, own []time.Duration
		for i := range 1000 {
			o.change(i*7919%10_000, i+1+b.N*1000, false)
			base := head.Commit
			s.busy.Store(0)
			all = append(all, timed(func() { update(b, m, base) }))
			own = append(own, all[i]-time.Duration(s.busy.Load()))
			head, _ = m.Head()
		}
		report(b, "last-100", all[900:], "first-100", all[:100])
		b.ReportMetric(median(own[900:])/median(own[:100]), "ratio-without-server")
		b.ReportMetric(float64(len(m.store.packs)), "packs")
	}
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// report prints the medians of two alternating measurements, the quartiles of the first, and their
// ratio.
func report(b *testing.B, nameA string, a []time.Duration, nameB string, theirs []time.Duration) {
	b.ReportMetric(0, "ns/op") // ns/op includes the creation of the commit
	b.ReportMetric(median(a), nameA+"-ms")
	b.ReportMetric(median(theirs), nameB+"-ms")
	b.ReportMetric(median(a)/median(theirs), "ratio")
	b.ReportMetric(float64(a[len(a)/4])/1e6, nameA+"-q1-ms")
	b.ReportMetric(float64(a[len(a)*3/4])/1e6, nameA+"-q3-ms")
}

// median sorts d and returns its median in milliseconds.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2]) / 1e6
}

// BenchmarkDiff measures the walk alone.
func BenchmarkDiff(b *testing.B) {
	for _, flat := range []bool{false, true} {
		n := map[bool]int{false: 100_000, true: 25_000}[flat]
		b.Run(fmt.Sprintf("flat=%v/%d", flat, n), func(b *testing.B) {
			o := newOrigin(b)
			o.fill(n, flat)
			s := newGitServer(b, o)
			m := open(b, b.TempDir(), s.url())
			base := fetch(b, m).Commit
			o.change(n/2, 1, flat)
			head := fetch(b, m).Commit
			b.ResetTimer()
			for b.Loop() {
				if changes, err := m.diff(b.Context(), base, head); err != nil ||
					len(changes) != 1 {
					b.Fatal(changes, err)
				}
			}
		})
	}
}

// BenchmarkClone measures the cold start: fetch into an empty mirror, walk and read everything,
// next to git clone.
func BenchmarkClone(b *testing.B) {
	o := newOrigin(b)
	o.fill(100_000, false)
	s := newGitServer(b, o)
	var ours, walk, theirs []time.Duration
	for b.Loop() {
		theirs = append(theirs, timed(func() { newGitMirror(b, s.url()) }))
		m := open(b, b.TempDir(), s.url())
		var head Head
		ours = append(ours, timed(func() { head = fetch(b, m) }))
		walk = append(walk, timed(func() {
			err := m.Walk(b.Context(), head.Commit, func(e Entry) error {
				_, err := m.Blob(b.Context(), e.Blob)
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}))
	}
	report(b, "ours", ours, "git", theirs)
	b.ReportMetric(median(walk), "walk-ms")
}
