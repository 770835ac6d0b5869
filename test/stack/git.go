package stack

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// GitServer serves bare repositories over HTTP on loopback, for reading and
// for pushing, by git's own http-backend.
type GitServer struct {
	// URL is the server's, e.g. "http://127.0.0.1:41231".
	URL string
	// CA is the PEM certificate that clients must trust; empty without TLS.
	CA []byte

	folder folder
	git    string
	http   *httptest.Server

	mu    sync.Mutex
	repos map[string]*Repo
}

// StartGit serves the repositories in dir, a temporary folder when empty, over
// plain HTTP. Repositories that are already there are served again by their
// CreateRepo.
func StartGit(ctx context.Context, dir string) (*GitServer, error) {
	return startGit(ctx, dir, (*httptest.Server).Start)
}

// StartGitTLS is StartGit over HTTPS, with a certificate for 127.0.0.1 and
// example.com that CA vouches for.
func StartGitTLS(ctx context.Context, dir string) (*GitServer, error) {
	s, err := startGit(ctx, dir, (*httptest.Server).StartTLS)
	if err == nil {
		s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	}
	return s, err
}

func startGit(ctx context.Context, dir string, start func(*httptest.Server)) (*GitServer, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("git server: %w: install git", err)
	}
	f, err := openFolder(dir, "git")
	if err != nil {
		return nil, fmt.Errorf("git server: %w", err)
	}
	s := &GitServer{folder: f, git: git, repos: map[string]*Repo{}}
	if _, err := s.run(ctx, "", nil, "--version"); err != nil {
		return nil, err
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	start(s.http)
	s.URL = s.http.URL
	return s, nil
}

// Stop closes the server and removes its folder if StartGit made it.
func (s *GitServer) Stop() error {
	s.http.CloseClientConnections()
	s.http.Close()
	return s.folder.remove()
}

// CreateRepo makes an empty repository with the default branch main, or serves
// one that the folder already holds. A name may have folders: "acme/checkout".
func (s *GitServer) CreateRepo(ctx context.Context, name string) (*Repo, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("git repository %q: the name must be a relative path", name)
	}
	r := &Repo{URL: s.URL + "/" + name, Dir: filepath.Join(s.folder.path, name), server: s}
	if _, err := os.Stat(filepath.Join(r.Dir, "HEAD")); err != nil {
		if _, err := s.run(ctx, "", nil, "init", "--quiet", "--bare", "--initial-branch=main",
			r.Dir); err != nil {
			return nil, err
		}
	}
	// Forges let a client push when it may and fetch a commit by its id.
	for _, c := range [][2]string{{"http.receivepack", "true"}, {"uploadpack.allowAnySHA1InWant",
		"true"}, {"gc.auto", "0"}} {
		if _, err := r.Git(ctx, "config", c[0], c[1]); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repos[name] = r
	return r, nil
}

// serve finds the repository by the longest known name that begins the path,
// asks for its password and hands over to git.
func (s *GitServer) serve(w http.ResponseWriter, req *http.Request) {
	r := s.lookup(strings.TrimPrefix(req.URL.Path, "/"))
	if r == nil {
		http.Error(w, "repository not found", http.StatusNotFound)
		return
	}
	if !r.admits(req) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "authentication required", http.StatusUnauthorized)
		return
	}
	// A large push comes in chunks, and CGI wants a length.
	if req.ContentLength < 0 {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		req.Body, req.ContentLength, req.TransferEncoding = io.NopCloser(bytes.NewReader(body)),
			int64(len(body)), nil
	}
	backend := cgi.Handler{
		Path: s.git,
		Args: []string{"http-backend"},
		Dir:  s.folder.path,
		Env: append(gitEnv(),
			"GIT_PROJECT_ROOT="+s.folder.path, "GIT_HTTP_EXPORT_ALL=1",
			"GIT_PROTOCOL="+req.Header.Get("Git-Protocol")),
		Stderr: os.Stderr,
	}
	backend.ServeHTTP(w, req)
}

func (s *GitServer) lookup(path string) *Repo {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := path; name != "." && name != "/"; name = filepath.Dir(name) {
		if r := s.repos[name]; r != nil {
			return r
		}
	}
	return nil
}

func (r *Repo) admits(req *http.Request) bool {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if r.user == "" {
		return true
	}
	user, password, _ := req.BasicAuth()
	return subtle.ConstantTimeCompare([]byte(user+"\x00"+password),
		[]byte(r.user+"\x00"+r.password)) == 1
}
