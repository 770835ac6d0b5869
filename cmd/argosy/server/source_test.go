package server

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
)

// localRepo is a config repo of one commit on this machine.
func localRepo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"config", "user.name", "Ann"},
		{"config", "user.email", "ann@example.com"}, {"config", "commit.gpgsign", "false"},
		{"add", "."}, {"commit", "-q", "-m", "begin"},
	} {
		if args[0] == "add" {
			for path, text := range map[string]string{"fleet/fleet.yaml": "kind: Fleet\n",
				"tenants/acme/deployments/web.yaml": strings.Repeat("# web\n", 200)} {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return filepath.Join(dir, ".git")
}

func TestAMirrorThatWasClonedAgainIsReportedOnce(t *testing.T) {
	s := settings.Settings{DataDir: t.TempDir(), Source: settings.Source{
		URL: localRepo(t), Branch: "main"}}
	open := func() *gitrepo.Mirror {
		m, err := openSource(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	var log bytes.Buffer
	fetch := func(m *gitrepo.Mirror) fleet.Revision {
		head, err := source{m, slog.New(slog.NewTextHandler(&log, nil))}.Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return head.Revision
	}
	m := open()
	fetch(m)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = open() // a new mirror has no cache
	defer m.Close()
	head := fetch(m)
	spoil(t, filepath.Join(s.DataDir, "config.git", "objects", "pack"))
	read := func() error {
		return source{mirror: m}.Changed(t.Context(), "", head, nil, func(reconciler.File) error {
			return nil
		})
	}
	if read() == nil {
		t.Fatal("the damage does not show")
	}
	if log.Len() > 0 {
		t.Errorf("reported before: %s", log.String())
	}
	fetch(m)
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") ||
		!strings.Contains(got, "cloned again") || !strings.Contains(got, "nothing is lost") ||
		!strings.Contains(got, "reason=") {
		t.Errorf("told: %s", got)
	}
	log.Reset()
	if fetch(m); log.Len() > 0 {
		t.Errorf("reported again: %s", log.String())
	}
	if err := read(); err != nil {
		t.Error(err)
	}
}

// spoil flips a bit in every byte of the objects.
func spoil(t *testing.T, folder string) {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(folder, "*.pack"))
	if err != nil || len(packs) == 0 {
		t.Fatalf("no packs: %v", err)
	}
	for _, pack := range packs {
		b, err := os.ReadFile(pack)
		if err != nil {
			t.Fatal(err)
		}
		for i := 12; i < len(b)-20; i++ {
			b[i] ^= 0x40
		}
		if err := os.Chmod(pack, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(pack, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
