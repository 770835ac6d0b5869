package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler"
)

func TestAPullRequestIsMergedForTheLoop(t *testing.T) {
	work := filepath.Dir(localRepo(t))
	git := func(args ...string) fleet.Revision {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git",
			append([]string{"-C", work}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return fleet.Revision(strings.TrimSpace(string(out)))
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(work, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		git("add", "-A")
	}
	m, err := openSource(t.Context(), settings.Settings{DataDir: t.TempDir(),
		Source: settings.Source{URL: filepath.Join(work, ".git"), Branch: "main"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := source{m, slog.New(slog.DiscardHandler)}
	git("checkout", "-q", "-b", "proposal")
	write("tenants/acme/deployments/new.yaml", "kind: GitOpsDeployment\n")
	write("tenants/acme/deployments/large.yaml", strings.Repeat("#", 2<<20))
	write("tenants/acme/deployments/web.yaml", "theirs\n")
	write("README.md", "none of ours\n")
	if err := os.Remove(filepath.Join(work, "fleet/fleet.yaml")); err != nil {
		t.Fatal(err)
	}
	git("commit", "-q", "-a", "-m", "proposal")
	pull := git("rev-parse", "HEAD")
	git("update-ref", "refs/pull/7/head", string(pull))
	git("checkout", "-q", "main")
	write("tenants/acme/deployments/web.yaml", "ours\n")
	git("commit", "-q", "-m", "meanwhile")
	head, err := s.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	seen := map[string]string{}
	merged, err := s.Merge(t.Context(), "refs/pull/7/head", head.Revision, pull,
		func(f reconciler.File) error {
			seen[f.Path] = string(f.Bytes)
			if f.Size > 0 {
				seen[f.Path] = fmt.Sprintf("%d bytes", f.Size)
			}
			if f.Removed {
				seen[f.Path] = "removed"
			}
			return nil
		})
	if err != nil || len(merged.Conflicts) != 1 ||
		merged.Conflicts[0] != "tenants/acme/deployments/web.yaml" {
		t.Errorf("%v %v", merged.Conflicts, err)
	}
	if blob, removed := merged.Shown["fleet/fleet.yaml"]; len(merged.Shown) != 4 || blob != "" ||
		!removed ||
		merged.Shown["tenants/acme/deployments/web.yaml"] != string(
			git("rev-parse", string(pull)+":tenants/acme/deployments/web.yaml")) {
		t.Errorf("shown: %v", merged.Shown)
	}
	if len(seen) != 3 || seen["fleet/fleet.yaml"] != "removed" ||
		seen["tenants/acme/deployments/new.yaml"] != "kind: GitOpsDeployment\n" ||
		seen["tenants/acme/deployments/large.yaml"] != "2097152 bytes" {
		t.Errorf("%.200v", seen)
	}
	nothing := func(f reconciler.File) error { t.Errorf("visited %s", f.Path); return nil }
	if _, err := s.Merge(t.Context(), "refs/pull/7/head", head.Revision, head.Revision,
		nothing); !errors.Is(err, mirror.ErrMoved) {
		t.Errorf("a head that is not there any more: %v", err)
	}
	orphan := git("commit-tree", "HEAD^{tree}", "-m", "another root")
	git("update-ref", "refs/pull/8/head", string(orphan))
	if _, err := s.Merge(t.Context(), "refs/pull/8/head", head.Revision, orphan,
		nothing); !errors.Is(err, mirror.ErrUnmergeable) || !strings.Contains(err.Error(),
		"no commit in common") {
		t.Errorf("another history: %v", err)
	}
	if _, err := s.Merge(t.Context(), "refs/pull/../../config", head.Revision, pull,
		nothing); !errors.Is(err, mirror.ErrUnmergeable) {
		t.Errorf("a ref that leaves its folder: %v", err)
	}
}
