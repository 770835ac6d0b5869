package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"github.com/go-git/go-git/v5/plumbing"
)

// propose commits files on a branch of their own that starts at a commit, and pushes it as a pull
// request.
func (o *origin) propose(number int, from Hash, files map[string]string) Hash {
	o.t.Helper()
	o.clock++
	o.git("checkout", "-q", "--detach", string(from))
	defer o.git("checkout", "-q", "main")
	for path, text := range files {
		if text == "" {
			o.git("rm", "-q", path)
		} else {
			o.write(path, text)
		}
	}
	o.git("add", "-A")
	o.git("commit", "-q", "-m", fmt.Sprint("pull ", number))
	o.git("push", "-q", "-f", "origin", fmt.Sprintf("HEAD:refs/pull/%d/head", number))
	return Hash(o.git("rev-parse", "HEAD"))
}

func pullRef(number int) string { return fmt.Sprintf("refs/pull/%d/head", number) }

func fetchPull(t testing.TB, m *Mirror, number int, want Hash) {
	t.Helper()
	if got, err := m.FetchRef(t.Context(), pullRef(number), want); err != nil || got != want {
		t.Fatalf("pull request %d: %q %v, want %s", number, got, err, want)
	}
}

func merge(t testing.TB, m *Mirror, into, head Hash) Merged {
	t.Helper()
	out, err := m.Merge(t.Context(), into, head)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// summary is a short form of a merge: the result of each path.
func summary(t testing.TB, m *Mirror, out Merged) string {
	t.Helper()
	var lines []string
	for _, c := range out.Changes {
		text := "removed"
		if c.New.Kind == File {
			b, err := m.Blob(t.Context(), c.New.Blob)
			if err != nil {
				t.Fatal(err)
			}
			text = "= " + string(b)
		}
		lines = append(lines, c.Path+" "+text)
	}
	for _, path := range out.Conflicts {
		lines = append(lines, path+" conflicts")
	}
	return strings.Join(lines, "\n")
}

func TestFetchRefFetchesAPullRequestAndMovesNoHead(t *testing.T) {
	for _, version := range []string{"version 2", "version 0"} {
		t.Run(version, func(t *testing.T) {
			o := newOrigin(t)
			o.write("fleet/fleet.yaml", "one")
			base := o.set("tenants/acme/deployments/web.yaml", "v1")
			pull := o.propose(7, base, map[string]string{"tenants/acme/deployments/web.yaml": "v2",
				"tenants/acme/deployments/new.yaml": "new"})
			head := o.set("fleet/fleet.yaml", "two")
			s := newGitServer(t, o)
			s.version0.Store(version == "version 0")
			dir := t.TempDir()
			m := open(t, dir, s.url())
			before := fetch(t, m)
			fetchPull(t, m, 7, pull)
			out := merge(t, m, head, pull)
			if want :=
				"tenants/acme/deployments/new.yaml = new\ntenants/acme/deployments/web.yaml = v2"; summary(t, m, out) != want || out.Base != base {
				t.Errorf("base %s, %s", out.Base, summary(t, m, out))
			}
			if h, _ := m.Head(); h != before {
				t.Errorf("the head is %+v, was %+v", h, before)
			}
			if h := fetch(t, m); h.Moved {
				t.Errorf("%+v", h)
			}
			m.Close()
			m = open(t, dir, s.url())
			if _, err := m.Merge(t.Context(), head, pull); !errors.Is(err, ErrNotFound) {
				t.Errorf("what an earlier process fetched is still there: %v", err)
			}
			fetchPull(t, m, 7, pull)
			if len(merge(t, m, head, pull).Changes) != 2 {
				t.Error("fetched again, it differs")
			}
		})
	}
}

func TestFetchRefOfAMovedRef(t *testing.T) {
	o := newOrigin(t)
	base := o.set("fleet/fleet.yaml", "one")
	first := o.propose(7, base, map[string]string{"fleet/fleet.yaml": "two"})
	second := o.propose(7, base, map[string]string{"fleet/fleet.yaml": "three"})
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	if _, err := m.FetchRef(t.Context(), pullRef(7), first); !errors.Is(err, mirror.ErrMoved) {
		t.Errorf("an older head: %v", err)
	}
	if got, err := m.FetchRef(t.Context(), pullRef(7), ""); err != nil || got != second {
		t.Errorf("without a wish: %s %v", got, err)
	}
	if _, err := m.FetchRef(t.Context(), pullRef(8), ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("a ref that is not there: %v", err)
	}
	for _, ref := range []string{"", "main", "HEAD", "pull/7/head", "refs/", "refs/../config",
		"refs/pull/7/../8/head", "refs/pull//head", "refs/pull/7/head\nwant 1", "refs/pull/*/head",
		"refs/pull/7/head.lock", "-refs/x", "refs/-x", "refs/" + strings.Repeat("x", 300)} {
		if _, err := m.FetchRef(t.Context(), ref, ""); !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	for _, want := range []Hash{"main", second[:12], Hash(strings.ToUpper(string(second)))} {
		if _, err := m.FetchRef(t.Context(), pullRef(7), want); !errors.Is(err, ErrNotFound) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	local, err := OpenLocal(o.dir, Budget{})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	if _, err := local.FetchRef(t.Context(), pullRef(7), second); !errors.Is(err, ErrRefused) {
		t.Errorf("a local repository: %v", err)
	}
	if got := merge(t, local, base, second); len(got.Changes) != 1 {
		t.Errorf("a local repository merges %+v", got)
	}
}

// Objects of a pull request are no part of the branch: when it is merged by moving the branch to
// it, everything is fetched once more.
func TestPullRequestsProveNothingAboutTheBranch(t *testing.T) {
	o := newOrigin(t)
	base := o.set("fleet/fleet.yaml", "one")
	pull := o.propose(7, base, map[string]string{"fleet/fleet.yaml": "two",
		"tenants/acme/deployments/new.yaml": "new"})
	s := newGitServer(t, o)
	m := open(t, t.TempDir(), s.url())
	fetch(t, m)
	fetchPull(t, m, 7, pull)
	o.in(o.dir, "update-ref", "refs/heads/main", string(pull))
	if h := fetch(t, m); h.Commit != pull {
		t.Fatal(h)
	}
	m.pulls.drop()
	if got := files(t, m, pull); len(got) != 2 || got["fleet/fleet.yaml"] != "two" {
		t.Errorf("%v", got)
	}

	for _, what := range []string{"the file", "the directory", "the root", "the commit"} {
		t.Run("a server that omits "+what+" of the branch is found out", func(t *testing.T) {
			f := newFakeServer(t, plumbing.ZeroHash, nil)
			m := open(t, t.TempDir(), f.url())
			f.serve(treeOf(blobX, "100644 other.yaml"), "docs")
			fetch(t, m)
			var whole, part []byte
			whole, f.tip = pullPack("")
			f.pack = func(w io.Writer) { w.Write(packets(whole)) }
			fetchPull(t, m, 7, publicHash(f.tip))
			part, f.tip = pullPack(what)
			f.pack = func(w io.Writer) { w.Write(packets(part)) }
			if h, err := m.Fetch(t.Context()); err == nil {
				t.Errorf("accepted: %+v", h)
			}
		})
	}
}

// pullPack is a commit with one file, minus the omitted object.
func pullPack(without string) ([]byte, plumbing.Hash) {
	var p fakePack
	add := func(name string, kind plumbing.ObjectType, data []byte) plumbing.Hash {
		if name != without {
			p.object(kind, data)
		}
		return plumbing.ComputeHash(kind, data)
	}
	file := add("the file", plumbing.BlobObject, []byte("y"))
	directory := add("the directory", plumbing.TreeObject, treeOf(file, "100644 fleet.yaml"))
	root := add("the root", plumbing.TreeObject, treeOf(directory, "40000 fleet"))
	tip := add("the commit", plumbing.CommitObject,
		fmt.Appendf(nil, "tree %s\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nm\n", root))
	return p.bytes(), tip
}

func TestAnIncompletePullRequestDoesNotAffectTheBranch(t *testing.T) {
	f := newFakeServer(t, plumbing.ZeroHash, nil)
	m := open(t, t.TempDir(), f.url())
	base := f.serve(treeOf(blobX, "100644 fleet.yaml"), "fleet")
	baseTip, basePack := f.tip, f.pack
	fetch(t, m)
	tree := treeOf(blobX, "100644 another.yaml")
	root := treeOf(plumbing.ComputeHash(plumbing.TreeObject, tree), "40000 fleet")
	commit := func(p *fakePack) plumbing.Hash {
		_, id := p.object(plumbing.CommitObject,
			fmt.Appendf(nil,
				"tree %s\nparent %s\nauthor A <a@x> 2 +0000\ncommitter A <a@x> 2 +0000\n\nm\n",
				plumbing.ComputeHash(plumbing.TreeObject, root), base))
		return id
	}
	var p fakePack
	f.tip = commit(&p)
	p.object(plumbing.TreeObject, root)
	pull := publicHash(f.tip)
	f.pack = func(w io.Writer) { w.Write(packets(p.bytes())) }
	fetchPull(t, m, 7, pull)
	if out, err := m.Merge(t.Context(), base, pull); !errors.Is(err, ErrNotFound) {
		t.Fatalf("%+v %v", out, err)
	}
	whole := p
	whole.object(plumbing.TreeObject, tree)
	f.pack = func(w io.Writer) { w.Write(packets(whole.bytes())) }
	fetchPull(t, m, 7, pull)
	if got := summary(t, m,
		merge(t, m, base, pull)); got != "fleet/another.yaml = x\nfleet/fleet.yaml removed" {
		t.Error(got)
	}
	f.tip, f.pack = baseTip, basePack
	if h := fetch(t, m); h.Recloned != "" || h.Commit != base {
		t.Errorf("the branch's mirror is blamed: %+v", h)
	}
}

// usage returns the bytes of all files below a directory.
func usage(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// noise returns incompressible text.
func noise(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%c", rune(33+r.IntN(90)))
	}
	return b.String()
}

func TestPullRequestsDoNotGrowTheMirrorWithoutBound(t *testing.T) {
	const limit = 40_000
	o, r := newOrigin(t), rand.New(rand.NewPCG(1, 2))
	base := o.set("fleet/fleet.yaml", "one")
	s := newGitServer(t, o)
	dir := t.TempDir()
	m := open(t, dir, s.url(), WithBudget(Budget{PullBytes: limit}))
	fetch(t, m)
	branch := usage(t, dir)
	pulls := map[int]Hash{}
	for n := range 30 {
		pulls[n] = o.propose(n, base, map[string]string{"fleet/fleet.yaml": noise(r, 8000)})
		fetchPull(t, m, n, pulls[n])
		if len(merge(t, m, base, pulls[n]).Changes) != 1 {
			t.Fatal("what was just fetched is gone")
		}
		if used := usage(t, dir) - branch; used > 4*limit {
			t.Fatalf("after %d pull requests they take %d bytes", n+1, used)
		}
	}
	if _, err := m.Merge(t.Context(), base, pulls[0]); !errors.Is(err, ErrNotFound) {
		t.Errorf("the first is still there: %v", err)
	}
	fetchPull(t, m, 0, pulls[0])
	if len(merge(t, m, base, pulls[0]).Changes) != 1 {
		t.Error("fetched again, it is another")
	}
	t.Run("the same head is not sent twice", func(t *testing.T) {
		s.requests.Store(0)
		fetchPull(t, m, 0, pulls[0])
		if n := s.requests.Load(); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("a larger pull request is rejected, and the branch can be fetched",
		func(t *testing.T) {
			o.propose(99, base, map[string]string{"fleet/fleet.yaml": noise(r, 2*limit)})
			var over *Error
			if _, err := m.FetchRef(t.Context(), pullRef(99), ""); !errors.As(err, &over) ||
				over.Budget != "bytes" {
				t.Errorf("%v", err)
			}
			o.set("fleet/fleet.yaml", noise(r, 2*limit))
			fetch(t, m)
		})
}

func TestPullRequestsAfterTheMirrorWasClonedAgain(t *testing.T) {
	o := newOrigin(t)
	base := o.set("fleet/fleet.yaml", "one")
	pull := o.propose(7, base, map[string]string{"tenants/acme/deployments/new.yaml": "new"})
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	fetchPull(t, m, 7, pull)
	m.damaged(m.store.resets.Load(), "as a test")
	if h := fetch(t, m); h.Recloned == "" {
		t.Fatal(h)
	}
	fetchPull(t, m, 7, pull)
	if got := summary(t, m,
		merge(t, m, base, pull)); got != "tenants/acme/deployments/new.yaml = new" {
		t.Error(got)
	}
	t.Run("a new fetch includes objects that the branch had before", func(t *testing.T) {
		o.git("checkout", "-q", "--orphan", "anew")
		o.set("fleet/fleet.yaml", "another history")
		m.damaged(m.store.resets.Load(), "as a test")
		fetch(t, m)
		fetchPull(t, m, 7, pull)
		if got := summary(t, m,
			merge(t, m, base, pull)); got != "tenants/acme/deployments/new.yaml = new" {
			t.Error(got)
		}
	})
	t.Run("a damaged pack is fetched again, and the branch's mirror stays",
		func(t *testing.T) {
			paths, err := filepath.Glob(filepath.Join(m.pulls.dir, "*/objects/pack/*.pack"))
			if err != nil || len(paths) != 1 {
				t.Fatal(paths, err)
			}
			info, _ := os.Stat(paths[0])
			for at := int64(packHeader); at < info.Size()-packTrailer; at++ {
				damage(t, paths[0], at)
			}
			if _, err := m.Merge(t.Context(), base, pull); !errors.Is(err, ErrNotFound) {
				t.Errorf("%v", err)
			}
			fetchPull(t, m, 7, pull)
			if len(merge(t, m, base, pull).Changes) != 1 {
				t.Error("it is not whole again")
			}
			if h := fetch(t, m); h.Recloned != "" {
				t.Errorf("the branch's mirror is thrown away: %s", h.Recloned)
			}
		})
}

func TestASlowPullRequestDoesNotDelayTheBranch(t *testing.T) {
	o := newOrigin(t)
	base := o.set("fleet/fleet.yaml", "one")
	pull := o.propose(7, base, map[string]string{"fleet/fleet.yaml": "two"})
	s := newGitServer(t, o)
	m := open(t, t.TempDir(), s.url())
	fetch(t, m)
	entered, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if first.CompareAndSwap(false, true) {
			close(entered)
			<-release
		}
		next.ServeHTTP(w, r)
	})
	done := make(chan error, 1)
	go func() { _, err := m.FetchRef(t.Context(), pullRef(7), pull); done <- err }()
	<-entered
	head := o.set("fleet/fleet.yaml", "three")
	if h := fetch(t, m); h.Commit != head {
		t.Error(h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.FetchRef(ctx, pullRef(7), pull); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits for its turn for good: %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPullRequestsAndTheBranchAtOnce(t *testing.T) {
	o := newOrigin(t)
	base := o.set("fleet/fleet.yaml", "one")
	r := rand.New(rand.NewPCG(5, 6))
	var pulls []Hash
	for n := range 4 {
		pulls = append(pulls,
			o.propose(n, base, map[string]string{
				fmt.Sprintf("fleet/engines/e%d.yaml", n): noise(r, 3000)}))
	}
	m := open(t, t.TempDir(), newGitServer(t, o).url(), WithBudget(Budget{PullBytes: 5000}))
	fetch(t, m)
	var wg sync.WaitGroup
	for n, pull := range pulls {
		wg.Go(func() {
			for range 5 {
				if _, err := m.FetchRef(t.Context(), pullRef(n), pull); err != nil {
					t.Error(err)
					return
				}
				// Others may evict it at once: then it is missing, and nothing else fails.
				if out, err := m.Merge(t.Context(), base, pull); err != nil &&
					!errors.Is(err, ErrNotFound) || err == nil && len(out.Changes) != 1 {
					t.Errorf("%+v %v", out, err)
				}
			}
		})
	}
	for i := range 5 {
		o.set("fleet/fleet.yaml", fmt.Sprint(i))
		if h := fetch(t, m); h.Recloned != "" {
			t.Error(h.Recloned)
		}
	}
	wg.Wait()
}
