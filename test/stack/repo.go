package stack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Repo is one repository of a GitServer.
type Repo struct {
	URL string // to clone, fetch and push
	Dir string // the bare repository on disk

	server         *GitServer
	user, password string // guarded by server.mu
}

// RequireAuth makes the repository ask for this name and password from now on,
// for reading too. Empty ones open it again.
func (r *Repo) RequireAuth(user, password string) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	r.user, r.password = user, password
}

// Change is one commit to be.
type Change struct {
	Message string
	Branch  string            // "main" when empty; made if it does not exist
	Write   map[string]string // path to content; the other files stay
	Remove  []string          // files or folders
	Time    time.Time         // now when zero
}

// Commit writes files on the branch main and returns the commit's id.
func (r *Repo) Commit(ctx context.Context, message string, files map[string]string) (string,
	error) {
	return r.Apply(ctx, Change{Message: message, Write: files})
}

// Remove removes files or folders on the branch main.
func (r *Repo) Remove(ctx context.Context, message string, paths ...string) (string, error) {
	return r.Apply(ctx, Change{Message: message, Remove: paths})
}

// Apply makes the commit in the bare repository itself, by fast-import: no
// clone and no work tree, so that 100,000 files take a second. Readers see what
// they would see after a push.
func (r *Repo) Apply(ctx context.Context, c Change) (string, error) {
	branch := c.Branch
	if branch == "" {
		branch = "main"
	}
	ref := "refs/heads/" + branch
	var in bytes.Buffer
	when := c.Time
	if when.IsZero() {
		when = time.Now()
	}
	fmt.Fprintf(&in, "commit %s\ncommitter Argosy Lab <lab@example.com> %d +0000\n", ref,
		when.Unix())
	writeData(&in, c.Message)
	if parent, err := r.Head(ctx, branch); err == nil {
		fmt.Fprintf(&in, "from %s\n", parent)
	}
	for _, path := range c.Remove {
		fmt.Fprintf(&in, "D %s\n", quotePath(path))
	}
	for _, path := range slices.Sorted(maps.Keys(c.Write)) {
		fmt.Fprintf(&in, "M 100644 inline %s\n", quotePath(path))
		writeData(&in, c.Write[path])
	}
	in.WriteString("done\n")
	if _, err := r.server.run(ctx, r.Dir, &in, "fast-import", "--quiet", "--done"); err != nil {
		return "", fmt.Errorf("commit to %s: %w", r.URL, err)
	}
	return r.Head(ctx, branch)
}

func writeData(w *bytes.Buffer, s string) { fmt.Fprintf(w, "data %d\n%s\n", len(s), s) }

// quotePath quotes for fast-import, which would otherwise trip over a name that
// begins with a quote or holds a newline.
func quotePath(p string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(p) + `"`
}

// Head is the commit that the branch points to.
func (r *Repo) Head(ctx context.Context, branch string) (string, error) {
	return r.Git(ctx, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch)
}

// Git runs git in the bare repository and returns its output, trimmed.
func (r *Repo) Git(ctx context.Context, args ...string) (string, error) {
	return r.server.run(ctx, r.Dir, nil, args...)
}

func (s *GitServer) run(ctx context.Context, dir string, in io.Reader, args ...string) (string,
	error) {
	cmd := exec.CommandContext(ctx, s.git, args...)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, in, append(os.Environ(), gitEnv()...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// gitEnv keeps the machine's and the user's settings out, so that a stack
// behaves the same everywhere.
func gitEnv() []string {
	return []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull}
}

// Files reads a folder of files as Commit wants them.
func Files(fsys fs.FS) (map[string]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(fsys, path)
		files[filepath.ToSlash(path)] = string(content)
		return err
	})
	return files, err
}
