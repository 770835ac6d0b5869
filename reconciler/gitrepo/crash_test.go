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
	"sync/atomic"
	"syscall"
	"testing"
)

// fullDisk fails after some bytes, like a full disk.
type fullDisk struct {
	scratch
	capacity int
}

func (f *fullDisk) Write(p []byte) (int, error) {
	if len(p) > f.capacity {
		n, _ := f.scratch.Write(p[:f.capacity])
		f.capacity = 0
		return n, syscall.ENOSPC
	}
	f.capacity -= len(p)
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

// TestMain lets a test run the mirror in its own process, to kill it.
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
	// The server sends a pack in pieces, and the test kills the process at one of them, later each
	// time.
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
		want := o.set(fmt.Sprintf("tenants/acme/deployments/d%d.yaml", round%30),
			declaration(round, 1))
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
				t.Errorf("the process printed: %s", lines.Text())
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

// inPieces forwards a response in pieces of at most 50 bytes.
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

// TestStatesBetweenTwoInstructions creates the states that a process killed between the steps of
// installing a pack leaves behind.
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
	name := func(state, suffix string) string {
		return filepath.Base(packFiles(t, state, suffix)[0])
	}
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
		"pack without its index": func(t *testing.T, d string) { put(t, after, d, pack) },
		"both, the absorbed still there": func(t *testing.T, d string) {
			put(t, after, d, pack)
			put(t, after, d, idx)
		},
		"the absorbed pack without its index": func(t *testing.T, d string) {
			put(t, after, d, pack)
			put(t, after, d, idx)
			os.Remove(filepath.Join(d, "objects/pack", name(before, ".idx")))
		},
		"incoming files": func(t *testing.T, d string) {
			os.WriteFile(filepath.Join(d, "incoming/pack-1"), []byte("PACK"), 0o600)
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := copyTree(t, before)
			harm(t, d)
			m := open(t, d, s.url())
			if h := fetch(t, m); h.Commit != second || h.Recloned != "" ||
				files(t, m, second)["fleet/fleet.yaml"] != "2" || leftovers(t, m) != 0 {
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
