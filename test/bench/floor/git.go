package floor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Mirror is a bare mirror that is kept by the git command (F3).
type Mirror struct {
	dir  string
	head string
}

// Clone makes the mirror.
func Clone(ctx context.Context, url, dir string) (*Mirror, error) {
	m := &Mirror{dir: dir}
	if _, err := m.git(ctx, "", "clone", "--quiet", "--bare", url, dir); err != nil {
		return nil, err
	}
	var err error
	m.head, err = m.rev(ctx)
	return m, err
}

func (m *Mirror) rev(ctx context.Context) (string, error) {
	out, err := m.git(ctx, "", "rev-parse", "refs/heads/main")
	return strings.TrimSpace(out), err
}

// Changed fetches, compares the trees and reads the files that differ: the content of each.
func (m *Mirror) Changed(ctx context.Context) ([]string, error) {
	if _, err := m.git(ctx, "", "-C", m.dir, "fetch", "--quiet", "origin",
		"+refs/heads/main:refs/heads/main"); err != nil {
		return nil, err
	}
	diff, err := m.git(ctx, "", "-C", m.dir, "diff-tree", "-r", "--raw", "-z", m.head,
		"refs/heads/main")
	if err != nil {
		return nil, err
	}
	var ask strings.Builder
	for field := range strings.SplitSeq(diff, "\x00") {
		if words := strings.Fields(field); strings.HasPrefix(field, ":") && len(words) == 5 {
			ask.WriteString(words[3] + "\n")
		}
	}
	answer, err := m.git(ctx, ask.String()+"refs/heads/main\n", "-C", m.dir, "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	return m.take(answer)
}

// take splits what cat-file --batch prints: a line with id, type and size, then the bytes. The
// commit comes last.
func (m *Mirror) take(answer string) ([]string, error) {
	var contents []string
	for answer != "" {
		header, rest, _ := strings.Cut(answer, "\n")
		var id, kind string
		var size int
		if _, err := fmt.Sscanf(header, "%s %s %d", &id, &kind, &size); err != nil ||
			len(rest) < size {
			return nil, fmt.Errorf("git cat-file answered %q", header)
		}
		if kind == "commit" {
			m.head = id
		} else {
			contents = append(contents, rest[:size])
		}
		answer = strings.TrimPrefix(rest[size:], "\n")
	}
	return contents, nil
}

func (m *Mirror) git(ctx context.Context, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	if args[0] == "rev-parse" {
		cmd.Dir = m.dir
	}
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=gc.auto", "GIT_CONFIG_VALUE_0=0", "GIT_CONFIG_KEY_1=maintenance.auto",
		"GIT_CONFIG_VALUE_1=false")
	cmd.Stdin = strings.NewReader(in)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(problem.String()))
	}
	return out.String(), nil
}
