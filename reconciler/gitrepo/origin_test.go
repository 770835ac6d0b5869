package gitrepo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// origin is a real Git repository, written with git itself.
type origin struct {
	t     testing.TB
	dir   string // bare
	work  string // its work tree
	clock int
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	o := &origin{t: t, dir: filepath.Join(t.TempDir(), "config.git"),
		work: filepath.Join(t.TempDir(), "work"), clock: 1_700_000_000}
	o.in("", "init", "-q", "--bare", "-b", "main", o.dir)
	o.in("", "init", "-q", "-b", "main", o.work)
	o.git("remote", "add", "origin", o.dir)
	return o
}

// git runs git in the work tree and returns its output.
func (o *origin) git(args ...string) string { o.t.Helper(); return o.in(o.work, args...) }

func (o *origin) in(dir string, args ...string) string {
	o.t.Helper()
	return o.feed(dir, "", args...)
}

func (o *origin) feed(dir, stdin string, args ...string) string {
	o.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = append(gitEnv(), fmt.Sprintf("GIT_AUTHOR_DATE=%d +0000", o.clock),
		fmt.Sprintf("GIT_COMMITTER_DATE=%d +0000", o.clock))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// gitEnv isolates the tests from the user's Git settings.
func gitEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"LC_ALL=C",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Bob",
		"GIT_COMMITTER_EMAIL=bob@example.com",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
		"GIT_CONFIG_KEY_1=uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_1=false"}
}

// write puts a file into the work tree.
func (o *origin) write(path, content string) {
	o.t.Helper()
	full := filepath.Join(o.work, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		o.t.Fatal(err)
	}
}

// commit commits everything in the work tree and pushes it.
func (o *origin) commit(message string) Hash {
	o.t.Helper()
	o.clock++
	o.git("add", "-A")
	o.git("commit", "-q", "--allow-empty", "-m", message)
	return o.push()
}

func (o *origin) push() Hash {
	o.t.Helper()
	o.git("push", "-q", "-f", "origin", "HEAD:refs/heads/main")
	return Hash(o.git("rev-parse", "HEAD"))
}

// set writes and commits one file.
func (o *origin) set(path, content string) Hash {
	o.t.Helper()
	o.write(path, content)
	return o.commit("set " + path)
}

// gitServer serves repositories by git http-backend, like a Git host.
type gitServer struct {
	*httptest.Server
	// an injected fault
	wrap        atomic.Pointer[func(http.ResponseWriter, *http.Request, http.Handler)]
	requests    atomic.Int64
	connections atomic.Int64
	version0    atomic.Bool  // hide the client's request for version 2
	busy        atomic.Int64 // nanoseconds spent in answers
}

func newGitServer(t testing.TB, o *origin) *gitServer {
	t.Helper()
	s := &gitServer{}
	backend := backendFor(t, o)
	s.Server = httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.requests.Add(1)
			start := time.Now()
			defer func() { s.busy.Add(int64(time.Since(start))) }()
			if s.version0.Load() {
				r.Header.Del("Git-Protocol")
			}
			if wrap := s.wrap.Load(); wrap != nil {
				(*wrap)(w, r, backend)
				return
			}
			backend.ServeHTTP(w, r)
		}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func backendFor(t testing.TB, o *origin) http.Handler {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(o.dir)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		env := append(gitEnv(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1")
		if v := r.Header.Get("Git-Protocol"); v != "" {
			env = append(env, "GIT_PROTOCOL="+v)
		}
		(&cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
			Env: env, Stderr: new(bytes.Buffer)}).ServeHTTP(w, r)
	})
}

func (s *gitServer) url() string { return s.URL + "/config.git" }

func (s *gitServer) fault(f func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	if f == nil {
		s.wrap.Store(nil)
		return
	}
	s.wrap.Store(&f)
}

func open(t testing.TB, dir, url string, options ...Option) *Mirror {
	t.Helper()
	m, err := Open(t.Context(), dir, Source{URL: url},
		append([]Option{AllowPlainHTTP(), AllowLocalPath()}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func fetch(t testing.TB, m *Mirror) Head {
	t.Helper()
	h, err := m.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// files lists a commit as path to content, or to kind for an entry that is no file.
func files(t testing.TB, m *Mirror, commit Hash) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := m.Walk(t.Context(), commit, func(e Entry) error {
		got[e.Path] = "(" + string(e.Kind) + ")"
		if e.Kind != File {
			return nil
		}
		data, err := m.Blob(t.Context(), e.Blob)
		got[e.Path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// until polls a condition that another goroutine or process fulfils.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		case <-tick.C:
		}
	}
}

// countingObjects counts reads.
type countingObjects struct {
	objects
	reads int
}

func (c *countingObjects) read(id plumbing.Hash, want plumbing.ObjectType, limit int64) ([]byte,
	error) {
	c.reads++
	return c.objects.read(id, want, limit)
}
