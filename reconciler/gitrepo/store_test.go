package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"argosy.dev/argosy/fleet/mirror"
)

// leftovers counts files that a fetch should have removed.
func leftovers(t testing.TB, m *Mirror) int {
	t.Helper()
	names, err := os.ReadDir(m.store.incomingDir())
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// sound runs git fsck on the mirror's directory.
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
		// sometimes an earlier content, which the server sends again
		contents[file] = declaration(file, i%3)
		parent = s.commitFiles(contents, parent, contents[file])
		sent += s.size
		if h := fetch(t, m); h.Commit != publicHash(parent) {
			t.Fatal(h)
		}
		if changes, err := m.Diff(t.Context(), publicHash(base), publicHash(parent)); err != nil ||
			len(changes) > 1 {
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
	relation(t, m, first, publicHash(parent), mirror.RelationDescendant)
	newOrigin(t).sound(dir, publicHash(parent))
	m.Close()
	again := open(t, dir, s.url())
	if h, _ := again.Head(); h.Commit != publicHash(parent) ||
		len(files(t, again, h.Commit)) != len(contents) {
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
				if r, err := m.Relation(t.Context(), first, h.Commit); err != nil ||
					(r != mirror.RelationDescendant && r != mirror.RelationSame) {
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
	t.Run("with other content is not touched", func(t *testing.T) {
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
	t.Run("opened by another process is rejected", func(t *testing.T) {
		dir := t.TempDir()
		open(t, dir, o.dir)
		_, err := Open(t.Context(), dir, Source{URL: o.dir}, AllowLocalPath())
		if !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "another process") {
			t.Fatal(err)
		}
	})
	t.Run("that cannot be created", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		os.WriteFile(file, nil, 0o600)
		if _, err := Open(t.Context(), filepath.Join(file, "mirror"), Source{URL: o.dir},
			AllowLocalPath()); !errors.Is(err, ErrStorage) {
			t.Fatal(err)
		}
	})
	t.Run("contains no credential", func(t *testing.T) {
		dir := t.TempDir()
		s := newGitServer(t, o)
		m, err := Open(t.Context(), dir,
			Source{URL: s.url(), Auth: func(context.Context) (Auth, error) {
				return Token("canary"),
					nil
			}}, AllowPlainHTTP())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		fetch(t, m)
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if data, _ := os.ReadFile(path); err != nil || strings.Contains(string(data),
				"canary") {
				t.Errorf("%s: %v", path, err)
			}
			return nil
		})
	})
	t.Run("of a closed mirror", func(t *testing.T) {
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
