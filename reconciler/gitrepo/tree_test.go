package gitrepo

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"
)

func TestAMalformedTreeAffectsOnlyItsFolder(t *testing.T) {
	file := func(names ...string) []byte {
		var b []byte
		for _, n := range names {
			b = append(b, treeOf(blobX, "100644 "+n)...)
		}
		return b
	}
	cases := map[string][]byte{
		".git":                             file(".git"),
		".GIT":                             file(".GiT"),
		".git as a directory":              treeOf(emptyTree, "40000 .git"),
		".git with a dot after it":         file(".git."),
		".git with spaces after it":        file(".git  "),
		".git with a stream":               file(".git::$INDEX_ALLOCATION"),
		".git with what HFS+ does not see": file(".g\u200cit"),
		"git~1":                            file("git~1"),
		"GIT~1":                            file("GIT~1"),
		"dot":                              file("."),
		"two dots":                         file(".."),
		"two dots as a directory":          treeOf(emptyTree, "40000 .."),
		"empty name":                       file(""),
		"a slash":                          file("../../etc/passwd"),
		"twice the same file":              file("a", "a"),
		"file and directory of one name":   append(file("a"), treeOf(emptyTree, "40000 a")...),
		"the same with others in between": append(file("a", "a-b", "a.b"),
			treeOf(emptyTree, "40000 a")...),
		"out of order": file("b", "a"),
		"directory where a file would sort": append(
			append(file("a"), treeOf(emptyTree, "40000 b")...), file("b.c")...),
		"no mode":                []byte(" a\x00" + strings.Repeat("x", 20)),
		"mode that is no number": []byte("10x644 a\x00" + strings.Repeat("x", 20)),
		"mode too long":          []byte("00000100644 a\x00" + strings.Repeat("x", 20)),
		"no end of the name":     []byte("100644 aaaa"),
		"id cut off":             []byte("100644 a\x00" + strings.Repeat("x", 19)),
	}
	torn := map[string]bool{"no mode": true, "mode that is no number": true, "mode too long": true,
		"no end of the name": true, "id cut off": true}
	s := newFakeServer(t, plumbing.ZeroHash, nil)
	m := open(t, t.TempDir(), s.url())
	first := s.serve(file("fleet.yaml"), "fleet")
	fetch(t, m)
	for name, tree := range cases {
		t.Run(name+" in fleet", func(t *testing.T) {
			bad := s.serve(tree, "fleet")
			fetch(t, m)
			changes, err := m.Diff(t.Context(), first, bad)
			if err != nil || len(changes) != 1 || changes[0].Path != "fleet/" ||
				changes[0].New.Kind != Unreadable || !strings.Contains(changes[0].New.Why,
				`"/fleet"`) {
				t.Fatal(changes, err)
			}
			good := s.serve(file("another.yaml"), "fleet")
			fetch(t, m)
			changes, err = m.Diff(t.Context(), bad, good)
			if err != nil || len(changes) != 2 || changes[0].Old.Kind != Unreadable ||
				changes[0].New.Kind != Directory || changes[1].Path != "fleet/another.yaml" {
				t.Fatal("healed:", changes, err)
			}
		})
		t.Run(name+" in the root", func(t *testing.T) {
			s.serve(file("fleet.yaml"), "fleet")
			before := fetch(t, m).Commit
			bad := s.serve(tree, "")
			if !torn[name] { // other names in the root do not matter
				fetch(t, m)
				return
			}
			err := fails(t, m, ErrMalformed)
			if !strings.Contains(err.Error(), string(bad)) {
				t.Errorf("the error does not name the commit: %v", err)
			}
			fails(t, m, ErrMalformed) // and again, from the objects in the mirror
			if got := files(t, m, before); !maps.Equal(got, map[string]string{
				"fleet/fleet.yaml": "x"}) {
				t.Errorf("last good state: %v", got)
			}
			if _, err := m.Diff(t.Context(), before, bad); !errors.Is(err, ErrMalformed) {
				t.Errorf("diff: %v", err)
			}
		})
	}
	t.Run("outside the two folders it is ignored", func(t *testing.T) {
		planted := s.serve(file(".."), "docs")
		if h := fetch(t, m); h.Commit != planted {
			t.Fatal(h)
		}
	})
}

func TestEntryThatIsAnotherKindOfObject(t *testing.T) {
	s := newFakeServer(t, plumbing.ZeroHash, nil)
	m := open(t, t.TempDir(), s.url())
	first := s.serve(treeOf(blobX, "100644 fleet.yaml"), "fleet")
	fetch(t, m)
	t.Run("a directory that is a file", func(t *testing.T) {
		bad := s.serve(treeOf(blobX, "40000 tenants"), "fleet")
		fetch(t, m)
		changes, err := m.Diff(t.Context(), first, bad)
		if err != nil || len(changes) != 1 || changes[0].New.Kind != Unreadable {
			t.Fatal(changes, err)
		}
	})
	t.Run("a file that is a directory", func(t *testing.T) {
		second := s.serve(treeOf(emptyTree, "100644 fleet.yaml"), "fleet")
		fetch(t, m)
		changes, err := m.Diff(t.Context(), first, second)
		if err != nil || len(changes) != 1 {
			t.Fatal(changes, err)
		}
		if _, err := m.Blob(t.Context(), changes[0].New.Blob); !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
	})
	t.Run("a commit that is a file", func(t *testing.T) {
		if _, err := m.Commit(t.Context(), publicHash(blobX)); !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
		s.tip = blobX
		fails(t, m, ErrMalformed)
	})
}

func TestSymlinksAndSubmodulesAreReportedNeverFollowed(t *testing.T) {
	o := newOrigin(t)
	o.write("tenants/t2/deployments/secret.yaml", "of t2")
	o.write("tenants/t1/deployments/run.yaml", "executable")
	o.commit("files")
	o.git("update-index", "--chmod=+x", "tenants/t1/deployments/run.yaml")
	link := func(path, target string) {
		id := o.feed(o.work, target, "hash-object", "-w", "--stdin")
		o.git("update-index", "--add", "--cacheinfo", "120000,"+id+","+path)
	}
	link("tenants/t1/deployments/other.yaml", "../../t2/deployments/secret.yaml")
	link("tenants/t1/deployments/environ.yaml", "/proc/self/environ")
	link("tenants/t1/deployments/cycle.yaml", "cycle.yaml")
	link("tenants/t3", "t2")
	gitmodules :=
		"[submodule \"../../.git\"]\n\tpath = tenants/t1/sub\n\turl = file:///etc\n\tupdate = " +
			"!touch /tmp/owned\n[submodule \"-x\"]\n\turl = --upload-pack=touch /tmp/owned\n"
	o.git("update-index", "--add", "--cacheinfo", "100644,"+o.feed(o.work, gitmodules,
		"hash-object", "-w", "--stdin")+",.gitmodules")
	o.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("12", 20)+
		",tenants/t1/sub")
	o.git("commit", "-q", "-m", "links")
	head := o.push()
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	got := files(t, m, fetch(t, m).Commit)
	want := map[string]string{
		"tenants/t1/deployments/cycle.yaml":   "(symlink)",
		"tenants/t1/deployments/environ.yaml": "(symlink)",
		"tenants/t1/deployments/other.yaml":   "(symlink)",
		"tenants/t1/deployments/run.yaml":     "executable",
		"tenants/t1/sub":                      "(submodule)",
		"tenants/t2/deployments/secret.yaml":  "of t2",
		"tenants/t3":                          "(symlink)",
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%v at %s", got, head)
	}
	planted := newFakeServer(t, plumbing.ZeroHash, nil)
	m = open(t, t.TempDir(), planted.url())
	t.Run("the two folders themselves may be of any kind", func(t *testing.T) {
		planted.serve(treeOf(blobX, "120000 fleet", "100644 tenants"), "")
		if got := files(t, m, fetch(t, m).Commit); !maps.Equal(got, map[string]string{
			"fleet": "(symlink)", "tenants": "x"}) {
			t.Fatal(got)
		}
	})
	t.Run("historical modes", func(t *testing.T) {
		planted.serve(append(treeOf(blobX, "100600 a", "100664 b", "140000 d", "0100644 e",
			"100755 f"), treeOf(emptyTree, "40755 g")...), "fleet")
		got := files(t, m, fetch(t, m).Commit)
		want := map[string]string{"fleet/a": "(other)", "fleet/b": "(other)", "fleet/d": "(other)",
			"fleet/e": "x", "fleet/f": "x"}
		if !maps.Equal(got, want) {
			t.Fatal(got)
		}
	})
}

func TestBytesAreBlobBytes(t *testing.T) {
	o := newOrigin(t)
	contents := map[string]string{
		"tenants/acme/deployments/lfs.yaml": "version https://git-lfs.github.com/spec/v1\noid " +
			"sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n",
		"tenants/acme/deployments/crlf.yaml":  "a: b\r\nc: d\r\n",
		"tenants/acme/deployments/ident.yaml": "# $Id$ $Format:%H$\n",
		"tenants/acme/deployments/utf16.yaml": "\xff\xfea\x00",
		"tenants/acme/deployments/empty.yaml": "",
		"tenants/.gitattributes": "* text=auto eol=lf ident export-subst " +
			"filter=lfs working-tree-encoding=UTF-16\n",
	}
	for path, text := range contents {
		id := o.feed(o.work, text, "hash-object", "-w", "--no-filters", "--stdin")
		o.git("update-index", "--add", "--cacheinfo", "100644,"+id+","+path)
	}
	o.git("commit", "-q", "-m", "attributes")
	o.push()
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	if got := files(t, m, fetch(t, m).Commit); !maps.Equal(got, contents) {
		t.Fatalf("%q", got)
	}
}

func TestDirectoriesTooDeepAreReportedNotOpened(t *testing.T) {
	o := newOrigin(t)
	deep := "fleet" + strings.Repeat("/d", 15)
	o.write(deep+"/file", "reached")
	o.write(deep+"/e/file", "not reached")
	o.commit("deep")
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	first := fetch(t, m).Commit
	if got := files(t, m, first); !maps.Equal(got, map[string]string{deep + "/file": "reached",
		deep + "/e/": "(directory)"}) {
		t.Fatal(got)
	}
	second := o.set(deep+"/e/file", "changed")
	fetch(t, m)
	if changes, err := m.Diff(t.Context(), first, second); err != nil || len(changes) != 1 ||
		changes[0].Path != deep+"/e/" {
		t.Fatal(changes, err)
	}
}

func FuzzTree(f *testing.F) {
	id := plumbing.NewHash(strings.Repeat("ab", 20))
	f.Add(treeOf(id, "100644 a", "100644 a-b", "40000 a.d", "120000 z"))
	f.Add(treeOf(id, "100644 a", "40000 a"))
	f.Add(treeOf(id, "100644 .git"))
	f.Add(treeOf(id, "40000 tenants", "160000 vendor"))
	f.Add([]byte("100644 a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := readTree(data)
		files, directories := map[string]bool{}, map[string]bool{}
		total := 0
		for {
			e, ok, err := r.next()
			if err != nil {
				return
			}
			if !ok {
				break
			}
			name := string(e.name)
			if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") ||
				strings.EqualFold(name, ".git") {
				t.Fatalf("accepted %q", name)
			}
			if files[name] || directories[name] {
				t.Fatalf("accepted %q twice", name)
			}
			if e.isDirectory() {
				directories[name] = true
			} else {
				files[name] = true
			}
			total++
		}
		if total != len(files)+len(directories) {
			t.Fatal("lost count")
		}
	})
}

// TestDiffIsTheDifferenceOfTwoWalks holds for any two commits, including all modes and paths that
// change their kind.
func TestDiffIsTheDifferenceOfTwoWalks(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	s := newFakeServer(t, plumbing.ZeroHash, nil)
	m := open(t, t.TempDir(), s.url())
	modes := []string{"100644", "100644", "100755", "120000", "160000", "100600"}
	var p *fakePack
	var grow func(depth int) plumbing.Hash
	grow = func(depth int) plumbing.Hash {
		var entries []treeEntry
		for _, name := range []string{"a", "a-b", "a.b", "b", "c"} {
			switch n := random.IntN(10); {
			case n < 3:
			case n < 6 && depth < 18 && (depth < 3 || name == "a" || name == "b"):
				entries = append(entries,
					treeEntry{[]byte(name), modeDirectory | uint32(random.IntN(2)),
						grow(depth + 1)})
			default:
				mode, _ := strconv.ParseUint(modes[random.IntN(len(modes))], 8, 32)
				id := blobX
				if random.IntN(2) == 0 || mode == modeSubmodule {
					_, id = p.object(plumbing.BlobObject, []byte{byte(random.IntN(4))})
				}
				entries = append(entries, treeEntry{[]byte(name), uint32(mode), id})
			}
		}
		slices.SortFunc(entries, func(a, b treeEntry) int { return compareEntries(&a, &b) })
		var tree []byte
		for _, e := range entries {
			tree = append(tree, treeOf(e.id, strconv.FormatUint(uint64(e.mode), 8)+" "+
				string(e.name))...)
		}
		_, id := p.object(plumbing.TreeObject, tree)
		return id
	}
	var commits []Hash
	for range 25 {
		p = new(fakePack)
		p.object(plumbing.BlobObject, []byte("x"))
		_, root := p.object(plumbing.TreeObject, append(treeOf(grow(0), "40000 fleet"),
			treeOf(grow(0), "40000 tenants")...))
		s.tip = p.commitOn(root)
		pack := packets(p.bytes())
		s.pack = func(w io.Writer) { w.Write(pack) }
		commits = append(commits, fetch(t, m).Commit)
	}
	walk := func(c Hash) map[string]Entry {
		entries := map[string]Entry{}
		if err := m.Walk(t.Context(), c, func(e Entry) error {
			entries[e.Path] = e
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return entries
	}
	for _, base := range commits {
		for _, head := range commits {
			got, want := walk(base), walk(head)
			changes, err := m.Diff(t.Context(), base, head)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, c := range changes {
				if seen[c.Path] || c.Old == c.New || got[c.Path] != c.Old {
					t.Fatalf("%+v comes twice, changes nothing or was %+v", c, got[c.Path])
				}
				seen[c.Path] = true
				if c.New.Kind == "" {
					delete(got, c.Path)
				} else {
					got[c.Path] = c.New
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatal(d)
			}
		}
	}
}
