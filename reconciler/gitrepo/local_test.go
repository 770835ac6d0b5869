package gitrepo

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
)

func openLocal(t *testing.T, path string) *Mirror {
	t.Helper()
	m, err := OpenLocal(path, Budget{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestLocalRepositories(t *testing.T) {
	o := newOrigin(t)
	first := o.set("tenants/acme/deployments/a.yaml", "one")
	second := o.set("tenants/acme/deployments/a.yaml", "two")
	o.write("tenants/acme/deployments/a.yaml", "not committed")
	linked := filepath.Join(t.TempDir(), "linked")
	o.git("worktree", "add", "-q", linked, "-b", "side")
	packed := filepath.Join(t.TempDir(), "packed.git")
	o.in("", "clone", "-q", "--bare", "--no-local", o.dir, packed)
	o.in(packed, "gc", "-q")
	borrowed := filepath.Join(t.TempDir(), "borrowed")
	o.in("", "clone", "-q", "--shared", o.dir, borrowed)
	relative := filepath.Join(t.TempDir(), "relative")
	o.in("", "clone", "-q", "--separate-git-dir", filepath.Join(t.TempDir(), "elsewhere"), o.dir,
		relative)
	for name, path := range map[string]string{"work tree": o.work, "bare": o.dir,
		"linked work tree": linked, "packed": packed,
		"with borrowed objects": borrowed, "with its directory elsewhere": relative} {
		t.Run(name, func(t *testing.T) {
			m := openLocal(t, path)
			base, err := m.Resolve(t.Context(), "HEAD~1")
			if err != nil || base != first {
				t.Fatal(base, err)
			}
			head, err := m.Resolve(t.Context(), "HEAD")
			if err != nil || head != second {
				t.Fatal(head, err)
			}
			if got := files(t, m, head); !maps.Equal(got, map[string]string{
				"tenants/acme/deployments/a.yaml": "two"}) {
				t.Fatal(got)
			}
			if changes, err := m.Diff(t.Context(), base, head); err != nil || len(changes) != 1 {
				t.Fatal(changes, err)
			}
			relation(t, m, base, head, mirror.RelationDescendant)
			if _, err := m.Fetch(t.Context()); !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
		})
	}
	t.Run("is not modified", func(t *testing.T) {
		if got := o.git("status", "--porcelain"); got != "M tenants/acme/deployments/a.yaml" {
			t.Fatal(got)
		}
	})
	t.Run("shallow", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shallow")
		o.in("", "clone", "-q", "--depth", "1", "file://"+o.dir, path)
		m := openLocal(t, path)
		head, err := m.Resolve(t.Context(), "HEAD")
		if err != nil || head != second {
			t.Fatal(head, err)
		}
		if _, err := m.Resolve(t.Context(), "HEAD^"); !errors.Is(err, ErrNotFound) ||
			!strings.Contains(err.Error(), "fetch-depth: 0") {
			t.Fatal(err)
		}
		if _, err := m.Resolve(t.Context(), string(first)); !errors.Is(err, ErrNotFound) ||
			!strings.Contains(err.Error(), "fetch-depth: 0") {
			t.Fatal(err)
		}
		if log, err := m.Log(t.Context(), head, 10); err != nil || len(log) != 1 {
			t.Fatal(log, err)
		}
		relation(t, m, first, head, mirror.RelationUnknown)
		if got := files(t, m, head); len(got) != 1 {
			t.Fatal(got)
		}
	})
	t.Run("blob larger than the budget", func(t *testing.T) {
		m, err := OpenLocal(o.dir, Budget{FileBytes: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		_, err = m.Blob(t.Context(),
			Hash(o.git("rev-parse", "HEAD:tenants/acme/deployments/a.yaml")))
		wantBudget(t, err, "file bytes")
	})
}

func TestLocalRepositoriesThatAreRefused(t *testing.T) {
	o := newOrigin(t)
	dir := func(make func(path string)) string {
		path := filepath.Join(t.TempDir(), "x")
		make(path)
		return path
	}
	for name, path := range map[string]string{
		"nothing there": filepath.Join(t.TempDir(), "missing"),
		"not one":       t.TempDir(),
		"inside one": dir(func(p string) {
			o.in("", "init", "-q", filepath.Dir(p))
			os.Mkdir(p, 0o700)
		}),
		"sha256": dir(func(p string) {
			o.in("", "init", "-q", "--object-format=sha256", p)
		}),
		"garbled .git": dir(func(p string) {
			os.Mkdir(p, 0o700)
			os.WriteFile(filepath.Join(p, ".git"), []byte("what"), 0o600)
		}),
		".git to nowhere": dir(func(p string) {
			os.Mkdir(p, 0o700)
			os.WriteFile(filepath.Join(p, ".git"), []byte("gitdir: ../y"), 0o600)
		}),
		"reftable": dir(func(p string) {
			o.in("", "init", "-q", p)
			o.in(p, "config", "extensions.refStorage", "reftable")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := OpenLocal(path, Budget{}); !errors.Is(err, ErrNotFound) {
				t.Fatal(m, err)
			}
		})
	}
	t.Run("damaged object", func(t *testing.T) {
		head := o.set("fleet/fleet.yaml", "fine")
		id := o.git("rev-parse", "HEAD:fleet/fleet.yaml")
		path := filepath.Join(o.work, ".git/objects", id[:2], id[2:])
		os.Chmod(path, 0o600)
		other := o.feed(o.work, "another", "hash-object", "-w", "--stdin")
		data, _ := os.ReadFile(filepath.Join(o.work, ".git/objects", other[:2], other[2:]))
		os.WriteFile(path, data, 0o600)
		m := openLocal(t, o.work)
		if _, err := m.Blob(t.Context(), Hash(id)); !errors.Is(err, ErrCorrupt) {
			t.Fatal(head, err)
		}
	})
}

func TestResolve(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	second := o.set("fleet/fleet.yaml", "2")
	third := o.set("fleet/fleet.yaml", "3")
	o.git("branch", "both", string(first))
	o.git("tag", "both", string(second))
	o.git("branch", "agree", string(first))
	o.git("tag", "agree", string(first))
	o.git("tag", "-a", "-m", "x", "annotated", string(second))
	o.git("tag", "-a", "-m", "x", "nested", "annotated")
	o.git("tag", "tree", string(third)+"^{tree}")
	o.git("branch", string(first), string(third)) // a branch named like another commit's id
	o.git("branch", string(first[:8]), string(third))
	o.git("branch", "feature/x", string(second))
	o.git("update-ref", "refs/remotes/upstream/main", string(first))
	o.git("symbolic-ref", "refs/remotes/upstream/HEAD", "refs/remotes/upstream/main")
	o.git("pack-refs", "--all")
	m := openLocal(t, o.work)
	for rev, want := range map[string]Hash{
		"HEAD": third, "main": third, "refs/heads/main": third, "HEAD^": second, "HEAD^^": first,
		"HEAD~2": first, "main~1^": first, "HEAD~": second,
		"refs/heads/both": first, "refs/tags/both": second, "agree": first, "annotated": second,
		"nested": second, "nested^": first,
		"feature/x": second, "upstream/main": first, "refs/remotes/upstream/main": first,
		"refs/remotes/upstream/HEAD": first,
		string(first):                first, strings.ToUpper(string(second)): second,
		string(second[:7]): second,
		string(second[:5]): second,
		string(third[:39]): third, string(third[:8]) + "~2": first,
	} {
		if got, err := m.Resolve(t.Context(), rev); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", rev, got, err, want)
		}
	}
	for rev, want := range map[string]error{
		"both": ErrAmbiguous, string(first[:8]): ErrAmbiguous, "nothing": ErrNotFound,
		"": ErrNotFound, "refs/heads/../../config": ErrNotFound, "../config": ErrNotFound,
		"refs/heads/nothing": ErrNotFound, strings.Repeat("0", 40): ErrNotFound,
		string(first[:3]): ErrNotFound, "HEAD~3": ErrNotFound, "HEAD^2": ErrNotFound,
		"HEAD~x": ErrNotFound, "HEAD~99999999999999999999": ErrNotFound, "HEAD^{tree}": ErrNotFound,
		"HEAD@{1}": ErrNotFound, "main:fleet": ErrNotFound, "-x": ErrNotFound,
		"config": ErrNotFound, "tree": ErrMalformed, "a\x1b[31m": ErrNotFound,
	} {
		got, err := m.Resolve(t.Context(), rev)
		if !errors.Is(err, want) || strings.ContainsRune(fmt.Sprint(err), 0x1b) {
			t.Errorf("%q: %s %v, want %v", rev, got, err, want)
		}
	}
	t.Run("in a mirror", func(t *testing.T) {
		m := open(t, t.TempDir(), o.dir)
		if _, err := m.Resolve(t.Context(), "HEAD"); !errors.Is(err, ErrNotFound) {
			t.Error("before the first fetch:", err)
		}
		fetch(t, m)
		for rev, want := range map[string]Hash{"HEAD": third, "main": third,
			"refs/heads/main~1": second, string(first): first, string(second[:9]): second} {
			if got, err := m.Resolve(t.Context(), rev); err != nil || got != want {
				t.Errorf("%s: %s %v", rev, got, err)
			}
		}
		if got, err := m.Resolve(t.Context(), "both"); !errors.Is(err, ErrNotFound) {
			t.Error(got, err)
		}
	})
}
