package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// appsIn selects the folders below apps/, and their files of one name.
func appsIn(contents bool) Selection {
	return Selection{
		Enters: func(dir string) bool {
			return dir == "apps" || strings.Count(dir, "/") == 1 && strings.HasPrefix(dir, "apps/")
		},
		Wants: func(path string, kind Kind) bool {
			if !contents {
				return kind == Directory && filepath.Dir(path) == "apps"
			}
			return kind == File && filepath.Base(path) == "app.yaml"
		},
		Contents: contents, Most: 2,
	}
}

func newReader(t testing.TB, budget Budget) *Reader {
	t.Helper()
	r, err := NewReader(filepath.Join(t.TempDir(), "reads"), AllowPlainHTTP(), WithBudget(budget))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func paths(tree *Tree) []string {
	var out []string
	for _, e := range tree.Entries {
		out = append(out, e.Path)
	}
	return out
}

// appsOrigin is a repository with two folders below apps/ and a large history and file beside them.
func appsOrigin(t testing.TB) *origin {
	o := newOrigin(t)
	for i := range 5 {
		o.set("big.bin", strings.Repeat(fmt.Sprint(i), 1<<16))
	}
	o.write("apps/cart/app.yaml", "team: payments\n")
	o.write("apps/cart/deep/er/x", "x")
	o.write("apps/search/app.yaml", "team: discovery\n")
	o.write("apps/README.md", "no folder")
	o.write("other/cart/app.yaml", "not wanted")
	o.commit("apps")
	o.push()
	return o
}

func TestReaderReadsTheSelectionOfEachKindOfServer(t *testing.T) {
	for name, setup := range map[string]func(*origin, *gitServer){
		"that leaves blobs out": func(o *origin, _ *gitServer) {
			o.in(o.dir, "config", "uploadpack.allowFilter", "true")
		},
		"that sends everything": func(*origin, *gitServer) {},
		"that speaks version 0": func(_ *origin, s *gitServer) { s.version0.Store(true) },
		"of version 0 with filters": func(o *origin, s *gitServer) {
			o.in(o.dir, "config", "uploadpack.allowFilter", "true")
			s.version0.Store(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := appsOrigin(t)
			s := newGitServer(t, o)
			setup(o, s)
			r := newReader(t, Budget{})
			from := Remote{URL: s.url(), Revision: "main"}
			folders, err := r.Read(t.Context(), from, "", appsIn(false))
			if err != nil {
				t.Fatal(err)
			}
			if got := paths(folders); !slices.Equal(got, []string{"apps/cart", "apps/search"}) {
				t.Errorf("folders %q", got)
			}
			if want := Hash(o.git("rev-parse", "main")); folders.Commit != want {
				t.Errorf("commit %s, want %s", folders.Commit, want)
			}
			files, err := r.Read(t.Context(), from, "", appsIn(true))
			if err != nil {
				t.Fatal(err)
			}
			if got := paths(files); !slices.Equal(got,
				[]string{"apps/cart/app.yaml", "apps/search/app.yaml"}) {
				t.Errorf("files %q", got)
			}
			if got := string(files.Contents[files.Entries[0].Blob]); got != "team: payments\n" {
				t.Errorf("content %q", got)
			}
			if left, _ := os.ReadDir(r.dir); len(left) > 0 {
				t.Errorf("the reader left %v", left)
			}
		})
	}
}

func TestReaderResolvesRevisions(t *testing.T) {
	o := appsOrigin(t)
	first := Hash(o.git("rev-parse", "main"))
	o.git("tag", "-a", "-m", "a release", "v1")
	o.git("tag", "both")
	o.git("push", "-q", "origin", "v1", "both")
	o.set("apps/new/app.yaml", "x: y")
	second := o.push()
	o.git("push", "-q", "origin", "main:refs/heads/both", "main:refs/heads/release/1.2")
	s := newGitServer(t, o)
	r := newReader(t, Budget{})
	for revision, want := range map[string]Hash{
		"HEAD": second, "main": second, "v1": first, "both": second, "release/1.2": second,
		"refs/tags/both": first, string(first): first,
	} {
		for _, version0 := range []bool{false, true} {
			s.version0.Store(version0)
			if version0 && revision == string(first) {
				continue // such a server sends tips only
			}
			folders := appsIn(false)
			folders.Most = 3
			tree, err := r.Read(t.Context(), Remote{URL: s.url(), Revision: revision}, "", folders)
			if err != nil {
				t.Errorf("%s, version 0 %v: %v", revision, version0, err)
			} else if tree.Commit != want {
				t.Errorf("%s is %s, want %s", revision, tree.Commit, want)
			}
		}
	}
	for _, revision := range []string{"--upload-pack=x", "a..b", "", "refs/heads/../x", "a b"} {
		_, err := r.Read(t.Context(), Remote{URL: s.url(), Revision: revision}, "", appsIn(false))
		if !errors.Is(err, ErrRefused) {
			t.Errorf("revision %q: %v", revision, err)
		}
	}
}

func TestReaderFetchesNothingOfAKnownCommit(t *testing.T) {
	o := appsOrigin(t)
	s := newGitServer(t, o)
	r := newReader(t, Budget{})
	known := Hash(o.git("rev-parse", "main"))
	before := s.requests.Load()
	tree, err := r.Read(t.Context(), Remote{URL: s.url(), Revision: "main"}, known, appsIn(false))
	if tree != nil || err != nil {
		t.Errorf("%v %v", tree, err)
	}
	if n := s.requests.Load() - before; n != 2 {
		t.Errorf("%d requests: the list of refs takes 2", n)
	}
}

func TestReaderFailsWithoutAnyTree(t *testing.T) {
	o := appsOrigin(t)
	s := newGitServer(t, o)
	read := func(budget Budget, from Remote) error {
		tree, err := newReader(t, budget).Read(t.Context(), from, "", appsIn(true))
		if tree != nil && err != nil {
			t.Errorf("a tree with the error %v", err)
		}
		return err
	}
	token := func(context.Context) (Auth, error) { return Token("canary"), nil }
	main := Remote{URL: s.url(), Revision: "main", Auth: token}
	if err := read(Budget{}, Remote{URL: s.url(), Revision: "gone"}); !errors.Is(err,
		ErrBranchGone) || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("a missing branch: %v", err)
	}
	tree, err := newReader(t, Budget{FileBytes: 4}).Read(t.Context(), main, "", appsIn(true))
	if err != nil || len(tree.Entries) != 2 || tree.Contents[tree.Entries[0].Blob] != nil {
		t.Errorf("a large file: %v, %v", tree, err)
	}
	one := appsIn(false)
	one.Most = 1
	if _, err := newReader(t, Budget{}).Read(t.Context(), main, "", one); !errors.Is(err,
		ErrOverBudget) || !strings.Contains(err.Error(), "narrow the patterns") {
		t.Errorf("more entries: %v", err)
	}
	if err := read(Budget{}, Remote{URL: s.URL + "/other.git", Revision: "main"}); !errors.Is(err,
		ErrUnavailable) {
		t.Errorf("a missing repository: %v", err)
	}
	for name, budget := range map[string]Budget{
		"bytes": {Bytes: 400}, "objects": {Objects: 3}, "files": {Files: 3},
	} {
		err := read(budget, main)
		if !errors.Is(err, ErrOverBudget) || strings.Contains(err.Error(), "source.") ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("more %s: %v", name, err)
		}
	}
	s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		next.ServeHTTP(w, r)
	})
	if err := read(Budget{Idle: 50 * time.Millisecond}, main); !errors.Is(err, ErrTimedOut) {
		t.Errorf("a silent server: %v", err)
	}
	s.fault(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "canary", http.StatusUnauthorized)
	})
	err = read(Budget{}, main)
	if !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a refused credential: %v", err)
	}
	noCanary(t, err.Error())
}

func TestReaderAcceptsAnEmptySelectionAndNoEmptyRepository(t *testing.T) {
	o := newOrigin(t)
	s := newGitServer(t, o)
	r := newReader(t, Budget{})
	if _, err := r.Read(t.Context(), Remote{URL: s.url(), Revision: "HEAD"}, "",
		appsIn(false)); !errors.Is(err, ErrBranchGone) {
		t.Errorf("an empty repository: %v", err)
	}
	o.set("README.md", "nothing else")
	o.push()
	tree, err := r.Read(t.Context(), Remote{URL: s.url(), Revision: "HEAD"}, "", appsIn(false))
	if err != nil || len(tree.Entries) > 0 {
		t.Errorf("%v %v", tree, err)
	}
}

// A listing without a deep folder would delete the deployment of that folder.
func TestReaderReadsEveryDepthOrFails(t *testing.T) {
	o := newOrigin(t)
	s, deep := newGitServer(t, o), strings.Repeat("a/", 40)+"app.yaml"
	o.write(deep, "a: b\n")
	o.commit("deep")
	o.push()
	read := func() (*Tree, error) {
		return newReader(t, Budget{}).Read(t.Context(), Remote{URL: s.url(), Revision: "main"}, "",
			Selection{Enters: func(string) bool { return true }, Most: 1000,
				Wants: func(path string, _ Kind) bool { return filepath.Base(path) == "app.yaml" }})
	}
	tree, err := read()
	if err != nil || !slices.Equal(paths(tree), []string{deep}) {
		t.Fatal(tree, err)
	}
	o.in(o.work, "update-index", "--add", "--cacheinfo", "100644,"+o.git("rev-parse", "main:"+deep)+
		","+strings.Repeat(strings.Repeat("a", 99)+"/", 42)+"app.yaml")
	o.in(o.work, "commit", "-m", "deeper")
	o.push()
	if tree, err := read(); !errors.Is(err, ErrOverBudget) {
		t.Error(tree, err)
	}
}
