package gitrepo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// leftovers counts files that a fetch should have cleaned up.
func leftovers(t testing.TB, m *Mirror) int {
	t.Helper()
	names, err := os.ReadDir(m.store.incomingDir())
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// sound has git check the mirror's directory.
func (o *origin) sound(dir string, head Hash) {
	o.t.Helper()
	o.in(dir, "fsck", "--strict", "--full")
	if got := o.in(dir, "rev-parse", "HEAD"); got != string(head) {
		o.t.Fatalf("git sees the head at %s, not %s", got, head)
	}
}

func TestHundredsOfFetches(t *testing.T) {
	s := newFakeServer(t, plumbing.ZeroHash, nil)
	dir := t.TempDir()
	m := open(t, dir, s.url())
	var written int64
	m.store.create = func(d string) (scratch, error) {
		f, err := createScratch(d)
		return &countingScratch{scratch: f, n: &written}, err
	}
	contents := make([]string, 400)
	for i := range contents {
		contents[i] = declaration(i, 0)
	}
	parent := s.commitFiles(contents, plumbing.ZeroHash, contents...)
	first := fetch(t, m).Commit
	start, most, sent := written, 0, 0
	for i := range 300 {
		base := parent
		file := i % len(contents)
		contents[file] = declaration(file, i%3) // now and then what it once was, which the server sends again
		parent = s.commitFiles(contents, parent, contents[file])
		sent += s.size
		if h := fetch(t, m); h.Commit != publicHash(parent) {
			t.Fatal(h)
		}
		if changes, err := m.Diff(t.Context(), publicHash(base), publicHash(parent)); err != nil || len(changes) > 1 {
			t.Fatal(changes, err)
		}
		most = max(most, len(m.store.packs))
	}
	if most > 12 {
		t.Errorf("%d packs at a time", most)
	}
	if n := written - start; n > 24*int64(sent) {
		t.Errorf("%d bytes written for %d that were sent", n, sent)
	}
	relation(t, m, first, publicHash(parent), Descendant)
	newOrigin(t).sound(dir, publicHash(parent))
	m.Close()
	again := open(t, dir, s.url())
	if h, _ := again.Head(); h.Commit != publicHash(parent) || len(files(t, again, h.Commit)) != len(contents) {
		t.Fatal("the mirror does not open again as it was")
	}
}

type countingScratch struct {
	scratch
	n *int64
}

func (c *countingScratch) Write(p []byte) (int, error) {
	*c.n += int64(len(p))
	return c.scratch.Write(p)
}

// damage changes one byte of a file.
func damage(t *testing.T, path string, at int64) {
	t.Helper()
	os.Chmod(path, 0o600)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func packFiles(t *testing.T, dir, suffix string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "objects/pack/*"+suffix))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	return paths
}

func TestDamageIsFoundAndClonedAnew(t *testing.T) {
	o := newOrigin(t)
	for i := range 40 {
		o.write(fmt.Sprintf("tenants/acme/deployments/d%d.yaml", i), declaration(i, 0))
	}
	head := o.commit("files")
	s := newGitServer(t, o)
	size := func(path string) int64 { info, _ := os.Stat(path); return info.Size() }
	cases := map[string]func(t *testing.T, dir string){
		"every part of the pack": func(t *testing.T, dir string) {
			p := packFiles(t, dir, ".pack")[0]
			damage(t, p, size(p)/2)
		},
		"pack header":      func(t *testing.T, dir string) { damage(t, packFiles(t, dir, ".pack")[0], 0) },
		"pack's checksum":  func(t *testing.T, dir string) { p := packFiles(t, dir, ".pack")[0]; damage(t, p, size(p)-1) },
		"index":            func(t *testing.T, dir string) { p := packFiles(t, dir, ".idx")[0]; damage(t, p, size(p)/2) },
		"index header":     func(t *testing.T, dir string) { damage(t, packFiles(t, dir, ".idx")[0], 1) },
		"index fan-out":    func(t *testing.T, dir string) { damage(t, packFiles(t, dir, ".idx")[0], 8) },
		"index's checksum": func(t *testing.T, dir string) { p := packFiles(t, dir, ".idx")[0]; damage(t, p, size(p)-1) },
		"pack cut off":     func(t *testing.T, dir string) { os.Truncate(packFiles(t, dir, ".pack")[0], 100) },
		"pack empty":       func(t *testing.T, dir string) { os.Truncate(packFiles(t, dir, ".pack")[0], 0) },
		"index cut off":    func(t *testing.T, dir string) { os.Truncate(packFiles(t, dir, ".idx")[0], 100) },
		"index gone":       func(t *testing.T, dir string) { os.Remove(packFiles(t, dir, ".idx")[0]) },
		"pack gone":        func(t *testing.T, dir string) { os.Remove(packFiles(t, dir, ".pack")[0]) },
		"record garbled":   func(t *testing.T, dir string) { os.WriteFile(filepath.Join(dir, recordFile), []byte("{"), 0o600) },
		"ref garbled": func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "refs/heads/main"), []byte("\x00\x00"), 0o600)
		},
		"ref to nowhere": func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "refs/heads/main"), []byte(strings.Repeat("1", 40)), 0o600)
		},
		"objects gone": func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, "objects")) },
	}
	for name, harm := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := open(t, dir, s.url())
			fetch(t, m)
			m.Close()
			harm(t, dir)
			m = open(t, dir, s.url())
			if h, ok := m.Head(); ok {
				t.Errorf("a head was believed: %+v", h)
			}
			if h := fetch(t, m); h.Commit != head || len(files(t, m, h.Commit)) != 40 {
				t.Fatal(h)
			}
			o.sound(dir, head)
		})
	}
}

func TestDamageWhileTheMirrorIsOpen(t *testing.T) {
	o := newOrigin(t)
	for i := range 40 {
		o.write(fmt.Sprintf("tenants/acme/deployments/d%d.yaml", i), declaration(i, 0))
	}
	head := o.commit("files")
	s := newGitServer(t, o)
	dir := t.TempDir()
	m := open(t, dir, s.url())
	fetch(t, m)
	pristine, err := os.ReadFile(packFiles(t, dir, ".pack")[0])
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(packHeader); at < int64(len(pristine))-packTrailer; at += int64(len(pristine)) / 60 {
		m.Close()
		m = open(t, dir, s.url())
		fetch(t, m)
		path := packFiles(t, dir, ".pack")[0]
		damage(t, path, at)
		seen := map[string]string{}
		err := m.Walk(t.Context(), head, func(e Entry) error {
			data, err := m.Blob(t.Context(), e.Blob)
			seen[e.Path] = string(data)
			return err
		})
		for path, text := range seen { // whatever was read before the damage was met is what was committed
			var i int
			fmt.Sscanf(path, "tenants/acme/deployments/d%d.yaml", &i)
			if text != "" && text != declaration(i, 0) {
				t.Fatalf("byte %d: %s reads %q", at, path, text)
			}
		}
		h := fetch(t, m)
		if err == nil {
			continue // a byte that no reader of this commit needs
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if h.Recloned == "" || !h.Moved || len(files(t, m, h.Commit)) != 40 {
			t.Fatalf("byte %d: %+v after %v", at, h, err)
		}
		if h = fetch(t, m); h.Recloned != "" {
			t.Fatal("cloned anew twice")
		}
	}
}

func TestServerThatLeavesSomethingOut(t *testing.T) {
	tree := treeOf(plumbing.NewHash(strings.Repeat("12", 20)), "100644 missing.yaml")
	dirTree := treeOf(plumbing.NewHash(strings.Repeat("34", 20)), "40000 missing")
	for name, planted := range map[string][]byte{"a file": tree, "a directory": dirTree} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer(t, plumbing.ZeroHash, nil)
			m := open(t, t.TempDir(), s.url())
			first := s.serve(treeOf(blobX, "100644 fleet.yaml"), "fleet")
			fetch(t, m)
			s.serve(planted, "fleet")
			_, err := m.Fetch(t.Context())
			if err == nil {
				t.Fatal("accepted")
			}
			s.serve(treeOf(blobX, "100644 fleet.yaml"), "fleet")
			if h := fetch(t, m); h.Commit != first {
				t.Fatal(h)
			}
		})
	}
	t.Run("the commit itself", func(t *testing.T) {
		s := newFakeServer(t, plumbing.ZeroHash, nil)
		m := open(t, t.TempDir(), s.url())
		s.serve(treeOf(blobX, "100644 fleet.yaml"), "fleet")
		s.tip = plumbing.NewHash(strings.Repeat("56", 20))
		if _, err := m.Fetch(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
	})
}

// fullDisk fails after some bytes, as a full disk does.
type fullDisk struct {
	scratch
	room int
}

func (f *fullDisk) Write(p []byte) (int, error) {
	if len(p) > f.room {
		n, _ := f.scratch.Write(p[:f.room])
		f.room = 0
		return n, syscall.ENOSPC
	}
	f.room -= len(p)
	return f.scratch.Write(p)
}

func TestDiskFull(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	s := newGitServer(t, o)
	dir := t.TempDir()
	m := open(t, dir, s.url())
	fetch(t, m)
	second := o.set("fleet/fleet.yaml", strings.Repeat("2", 10))
	for room := 0; room < 2000; room += 37 {
		m.store.create = func(d string) (scratch, error) {
			f, err := createScratch(d)
			return &fullDisk{f, room}, err
		}
		_, err := m.Fetch(t.Context())
		if err == nil {
			break // it fits
		}
		if !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "no space left") {
			t.Fatalf("room for %d bytes: %v", room, err)
		}
		if n := leftovers(t, m); n != 0 {
			t.Fatalf("room for %d bytes: %d files left behind", room, n)
		}
		if got := files(t, m, first)["fleet/fleet.yaml"]; got != "1" {
			t.Fatalf("room for %d bytes: last good state %q", room, got)
		}
	}
	m.store.create = createScratch
	if h := fetch(t, m); h.Commit != second {
		t.Fatal(h)
	}
	o.sound(dir, second)
}

// TestMain lets a test run the mirror in a process of its own, to kill it.
func TestMain(m *testing.M) {
	if dir := os.Getenv("GITREPO_TEST_DIR"); dir != "" {
		fetchForEver(dir, os.Getenv("GITREPO_TEST_URL"))
		return
	}
	os.Exit(m.Run())
}

func fetchForEver(dir, url string) {
	m, err := Open(context.Background(), dir, Source{URL: url}, AllowPlainHTTP())
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	for {
		if _, err := m.Fetch(context.Background()); err != nil {
			fmt.Println("fetch:", err)
			os.Exit(1)
		}
		fmt.Println("fetched")
	}
}

func TestKillNineInTheMiddle(t *testing.T) {
	o := newOrigin(t)
	for i := range 30 {
		o.write(fmt.Sprintf("tenants/acme/deployments/d%d.yaml", i), declaration(i, 0))
	}
	o.commit("files")
	s := newGitServer(t, o)
	// The server answers with a pack in pieces, and the process is killed at one of them, later each time.
	var pieces, killAt atomic.Int64
	var process atomic.Pointer[os.Process]
	s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(&inPieces{ResponseWriter: w, each: func() {
			if pieces.Add(1) == killAt.Load() {
				process.Load().Kill()
			}
		}}, r)
	})
	dir := t.TempDir()
	for round := range 40 {
		want := o.set(fmt.Sprintf("tenants/acme/deployments/d%d.yaml", round%30), declaration(round, 1))
		pieces.Store(0)
		killAt.Store(int64(round%20)*3 + 1)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GITREPO_TEST_DIR="+dir, "GITREPO_TEST_URL="+s.url())
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		process.Store(cmd.Process)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), "fetched") {
				t.Errorf("the process says: %s", lines.Text())
			}
		}
		cmd.Wait()
		killAt.Store(-1)
		m := open(t, dir, s.url())
		if h, ok := m.Head(); ok && len(files(t, m, h.Commit)) != 30 {
			t.Fatalf("round %d: a partial tree was parsed", round)
		}
		if h := fetch(t, m); h.Commit != want || h.Recloned != "" || len(files(t, m, want)) != 30 {
			t.Fatalf("round %d: %+v", round, h)
		}
		m.Close()
		o.sound(dir, want)
	}
}

// inPieces passes an answer on in pieces of at most 50 bytes.
type inPieces struct {
	http.ResponseWriter
	each func()
}

func (w *inPieces) Write(p []byte) (int, error) {
	for piece := range slices.Chunk(p, 50) {
		if _, err := w.ResponseWriter.Write(piece); err != nil {
			return 0, err
		}
		w.ResponseWriter.(http.Flusher).Flush()
		w.each()
	}
	return len(p), nil
}

// TestStatesBetweenTwoInstructions builds what a process leaves when it is killed between the steps of installing a pack.
func TestStatesBetweenTwoInstructions(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	s := newGitServer(t, o)
	dir := t.TempDir()
	m := open(t, dir, s.url())
	fetch(t, m)
	before := copyTree(t, dir)
	second := o.set("fleet/fleet.yaml", "2")
	fetch(t, m)
	m.Close()
	after := copyTree(t, dir)
	name := func(state, suffix string) string { return filepath.Base(packFiles(t, state, suffix)[0]) }
	put := func(t *testing.T, from, to, file string) {
		data, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pack, idx := "objects/pack/"+name(after, ".pack"), "objects/pack/"+name(after, ".idx")
	for what, harm := range map[string]func(t *testing.T, d string){
		"pack without its index":         func(t *testing.T, d string) { put(t, after, d, pack) },
		"both, the absorbed still there": func(t *testing.T, d string) { put(t, after, d, pack); put(t, after, d, idx) },
		"the absorbed pack without its index": func(t *testing.T, d string) {
			put(t, after, d, pack)
			put(t, after, d, idx)
			os.Remove(filepath.Join(d, "objects/pack", name(before, ".idx")))
		},
		"incoming files": func(t *testing.T, d string) { os.WriteFile(filepath.Join(d, "incoming/pack-1"), []byte("PACK"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			d := copyTree(t, before)
			harm(t, d)
			m := open(t, d, s.url())
			if h := fetch(t, m); h.Commit != second || h.Recloned != "" || files(t, m, second)["fleet/fleet.yaml"] != "2" || leftovers(t, m) != 0 {
				t.Fatalf("%+v", h)
			}
			o.sound(d, second)
		})
	}
}

func copyTree(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestReadersWhileFetchesJoinPacks(t *testing.T) {
	o := newOrigin(t)
	first := o.set("tenants/acme/deployments/a.yaml", "0")
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				h, _ := m.Head()
				if n := len(files(t, m, h.Commit)); n != 1 {
					t.Errorf("%d files", n)
				}
				if r, err := m.Relation(t.Context(), first, h.Commit); err != nil || (r != Descendant && r != Same) {
					t.Error(r, err)
				}
			}
		})
	}
	for i := range 12 {
		o.set("tenants/acme/deployments/a.yaml", fmt.Sprint(i+1))
		fetch(t, m)
	}
	close(done)
	readers.Wait()
}

func TestDirectoryOfAMirror(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	t.Run("that holds something else is left alone", func(t *testing.T) {
		dir := t.TempDir()
		precious := filepath.Join(dir, "thesis.txt")
		os.WriteFile(precious, []byte("years of work"), 0o600)
		_, err := Open(t.Context(), dir, Source{URL: o.dir}, AllowLocalPath())
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "thesis.txt") {
			t.Fatal(err)
		}
		if _, err := os.Stat(precious); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("that another process has open is refused", func(t *testing.T) {
		dir := t.TempDir()
		open(t, dir, o.dir)
		_, err := Open(t.Context(), dir, Source{URL: o.dir}, AllowLocalPath())
		if !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "another process") {
			t.Fatal(err)
		}
	})
	t.Run("that cannot be made", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		os.WriteFile(file, nil, 0o600)
		if _, err := Open(t.Context(), filepath.Join(file, "mirror"), Source{URL: o.dir}, AllowLocalPath()); !errors.Is(err, ErrStorage) {
			t.Fatal(err)
		}
	})
	t.Run("holds no credential", func(t *testing.T) {
		dir := t.TempDir()
		s := newGitServer(t, o)
		m, err := Open(t.Context(), dir, Source{URL: s.url(), Auth: func(context.Context) (Auth, error) { return Token("canary"), nil }}, AllowPlainHTTP())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		fetch(t, m)
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if data, _ := os.ReadFile(path); err != nil || strings.Contains(string(data), "canary") {
				t.Errorf("%s: %v", path, err)
			}
			return nil
		})
	})
	t.Run("of a mirror that was closed", func(t *testing.T) {
		m := open(t, t.TempDir(), o.dir)
		h := fetch(t, m)
		m.Close()
		if _, err := m.Relation(t.Context(), h.Commit, h.Commit); !errors.Is(err, ErrStorage) {
			t.Fatal(err)
		}
		if _, err := m.Fetch(t.Context()); !errors.Is(err, ErrStorage) {
			t.Fatal(err)
		}
	})
}
