package gitrepo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

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

func TestDamageIsDetectedAndClonedAgain(t *testing.T) {
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
		"pack header": func(t *testing.T, dir string) {
			damage(t, packFiles(t, dir, ".pack")[0], 0)
		},
		"pack's checksum": func(t *testing.T, dir string) {
			p := packFiles(t, dir, ".pack")[0]
			damage(t, p, size(p)-1)
		},
		"index": func(t *testing.T, dir string) {
			p := packFiles(t, dir, ".idx")[0]
			damage(t, p, size(p)/2)
		},
		"index header": func(t *testing.T, dir string) {
			damage(t, packFiles(t, dir, ".idx")[0], 1)
		},
		"index fan-out": func(t *testing.T, dir string) {
			damage(t, packFiles(t, dir, ".idx")[0], 8)
		},
		"index's checksum": func(t *testing.T, dir string) {
			p := packFiles(t, dir, ".idx")[0]
			damage(t, p, size(p)-1)
		},
		"pack cut off": func(t *testing.T, dir string) {
			os.Truncate(packFiles(t, dir, ".pack")[0], 100)
		},
		"pack empty": func(t *testing.T, dir string) {
			os.Truncate(packFiles(t, dir, ".pack")[0], 0)
		},
		"index cut off": func(t *testing.T, dir string) {
			os.Truncate(packFiles(t, dir, ".idx")[0], 100)
		},
		"index gone": func(t *testing.T, dir string) {
			os.Remove(packFiles(t, dir, ".idx")[0])
		},
		"pack gone": func(t *testing.T, dir string) {
			os.Remove(packFiles(t, dir, ".pack")[0])
		},
		"record garbled": func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, recordFile), []byte("{"), 0o600)
		},
		"ref garbled": func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "refs/heads/main"), []byte("\x00\x00"), 0o600)
		},
		"ref to nowhere": func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "refs/heads/main"), []byte(strings.Repeat("1", 40)),
				0o600)
		},
		"objects gone": func(t *testing.T, dir string) {
			os.RemoveAll(filepath.Join(dir, "objects"))
		},
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
	for at := int64(packHeader); at < int64(len(pristine))-packTrailer; at += int64(
		len(pristine)) / 60 {
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
		// every read before the damage was found returned the committed content
		for path, text := range seen {
			var i int
			fmt.Sscanf(path, "tenants/acme/deployments/d%d.yaml", &i)
			if text != "" && text != declaration(i, 0) {
				t.Fatalf("byte %d: %s reads %q", at, path, text)
			}
		}
		h := fetch(t, m)
		if err == nil {
			continue // reading this commit does not touch that byte
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if h.Recloned == "" || !h.Moved || len(files(t, m, h.Commit)) != 40 {
			t.Fatalf("byte %d: %+v after %v", at, h, err)
		}
		if h = fetch(t, m); h.Recloned != "" {
			t.Fatal("cloned again twice")
		}
	}
}

func TestIndexThatPointsElsewhere(t *testing.T) {
	var p fakePack
	_, one := p.object(plumbing.BlobObject, []byte("one"))
	_, two := p.object(plumbing.BlobObject, []byte("two"))
	_, root := p.object(plumbing.TreeObject, treeOf(one, "100644 fleet", "100644 tenants"))
	m := open(t, t.TempDir(), newFakeServer(t, p.commitOn(root), p.bytes()).url())
	fetch(t, m)
	x := m.store.packs[0].index // its checksum was correct when it was loaded
	a, b := x.Offset32[x.FanoutMapping[one[0]]], x.Offset32[x.FanoutMapping[two[0]]]
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
	if data, err := m.Blob(t.Context(), publicHash(one)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%q %v", data, err)
	}
	if h := fetch(t, m); h.Recloned == "" {
		t.Fatal("the damage is not remembered")
	}
	if data, err := m.Blob(t.Context(), publicHash(one)); string(data) != "one" {
		t.Fatal(err)
	}
}

// The fetch that clones the mirror again reports why it was discarded; failed fetches before it do
// not lose the reason.
func TestReasonOfACloneOutlastsAnOutage(t *testing.T) {
	s := newFakeServer(t, plumbing.ZeroHash, nil)
	m := open(t, t.TempDir(), s.url())
	s.serve(treeOf(blobX, "100644 fleet.yaml"), "fleet")
	fetch(t, m)
	m.damaged(m.store.resets.Load(), "a bit has tipped over")
	pack := s.pack
	s.pack = func(io.Writer) {} // a truncated answer
	for range 2 {
		if h, err := m.Fetch(t.Context()); err == nil {
			t.Fatalf("fetched %+v from a server that sends nothing", h)
		}
	}
	s.pack = pack
	if h := fetch(t, m); h.Recloned != "a bit has tipped over" || !h.Moved {
		t.Errorf("%+v", h)
	}
	if h := fetch(t, m); h.Recloned != "" {
		t.Errorf("reported twice: %s", h.Recloned)
	}
}

func TestServerThatOmitsAnObject(t *testing.T) {
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
