package stack_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"argosy.dev/argosy/test/stack"
)

// git runs the real client in dir.
func git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	t.Setenv("GIT_SSL_CAINFO", "") // it would win over -c http.sslCAInfo
	os.Unsetenv("GIT_SSL_CAINFO")
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(t, dir, args...)
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

func TestGit(t *testing.T) {
	server, err := stack.StartGit(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	newRepo := func(t *testing.T, name string) *stack.Repo {
		t.Helper()
		repo, err := server.CreateRepo(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return repo
	}

	t.Run("a clone holds what was committed, and not what was removed", func(t *testing.T) {
		repo := newRepo(t, "acme/checkout")
		odd := "b/\"odd\\ name"
		files := map[string]string{"a.txt": "one\n", "b/c.txt": "no newline", odd: "",
			"d/e.txt": "x"}
		if _, err := repo.Commit(t.Context(), "first", files); err != nil {
			t.Fatal(err)
		}
		head, err := repo.Remove(t.Context(), "second\n\nwith a body", "d")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		mustGit(t, dir, "clone", "--quiet", repo.URL, "w")
		work := filepath.Join(dir, "w")
		if got := mustGit(t, work, "rev-parse", "HEAD"); got != head {
			t.Errorf("HEAD is %s, want %s", got, head)
		}
		if got := mustGit(t, work, "log", "--format=%s", "main"); got != "second\nfirst" {
			t.Errorf("history is %q", got)
		}
		delete(files, "d/e.txt")
		got, err := stack.Files(os.DirFS(work))
		maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasPrefix(name, ".git/") })
		if err != nil || !maps.Equal(got, files) {
			t.Errorf("files are %q, %v; want %q", got, err, files)
		}
	})

	t.Run("a push of more than the client's buffer arrives", func(t *testing.T) {
		repo := newRepo(t, "pushed")
		dir := t.TempDir()
		mustGit(t, dir, "clone", "--quiet", repo.URL, ".")
		if err := os.WriteFile(filepath.Join(dir, "big"), noise(3<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		mustGit(t, dir, "checkout", "--quiet", "-b", "main")
		mustGit(t, dir, "add", "big")
		mustGit(t, dir, "commit", "--quiet", "-m", "big")
		mustGit(t, dir, "push", "--quiet", "origin", "main")
		head, err := repo.Head(t.Context(), "main")
		if want := mustGit(t, dir, "rev-parse", "HEAD"); err != nil || head != want {
			t.Errorf("the server has %s, %v; want %s", head, err, want)
		}
	})

	t.Run("a repository with a password refuses those who lack it, and its neighbour does not",
		func(t *testing.T) {
			closed, open := newRepo(t, "closed"), newRepo(t, "closed-not")
			closed.RequireAuth("bot", "s3cret")
			for url, admitted := range map[string]bool{
				closed.URL: false,
				open.URL:   true,
				strings.Replace(closed.URL, "://", "://bot:wrong@", 1):  false,
				strings.Replace(closed.URL, "://", "://bot:s3cret@", 1): true,
			} {
				if out, err := git(t, t.TempDir(), "ls-remote", url); (err == nil) != admitted {
					t.Errorf("ls-remote %s: %v, want admitted %v\n%s", url, err, admitted, out)
				}
			}
		})

	t.Run("a name that leaves the folder or is unknown is refused", func(t *testing.T) {
		if _, err := server.CreateRepo(t.Context(), "../outside"); err == nil {
			t.Error("../outside was made")
		}
		if out, err := git(t, t.TempDir(), "ls-remote", server.URL+"/nobody"); err == nil {
			t.Errorf("an unknown repository answered: %s", out)
		}
	})

	t.Run("ten thousand files are one commit", func(t *testing.T) {
		tree := fstest.MapFS{}
		for i := range 10_000 {
			tree["f/"+strconv.Itoa(i%100)+"/"+strconv.Itoa(i)] = &fstest.MapFile{
				Data: []byte(strconv.Itoa(i))}
		}
		files, err := stack.Files(tree)
		if err != nil {
			t.Fatal(err)
		}
		repo := newRepo(t, "many")
		if _, err := repo.Commit(t.Context(), "many", files); err != nil {
			t.Fatal(err)
		}
		out, err := repo.Git(t.Context(), "ls-tree", "-r", "--name-only", "main")
		if n := len(strings.Fields(out)); err != nil || n != 10_000 {
			t.Errorf("%d files, %v", n, err)
		}
	})
}

func TestGitTLS(t *testing.T) {
	server, err := stack.StartGitTLS(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	repo, err := server.CreateRepo(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, server.CA, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := git(t, t.TempDir(), "ls-remote", repo.URL); err == nil {
		t.Errorf("a client without the CA was served: %s", out)
	}
	mustGit(t, t.TempDir(), "-c", "http.sslCAInfo="+ca, "ls-remote", repo.URL)
}

// noise is what compression cannot shrink.
func noise(n int) []byte {
	b, x := make([]byte, n), uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func TestStartRemovesWhatKilledRunsLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	running, err := stack.StartGit(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer running.Stop()
	repo, err := running.CreateRepo(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	inUse, left, foreign := filepath.Dir(repo.Dir), filepath.Join(tmp, "argosy-stack-pg-1"),
		filepath.Join(tmp, "other")
	for _, dir := range []string{left, foreign} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{inUse, left, foreign} {
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	next, err := stack.StartGit(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Stop()
	for dir, stays := range map[string]bool{inUse: true, left: false, foreign: true} {
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s: %v, want it to stay: %v", dir, err, stays)
		}
	}
}
