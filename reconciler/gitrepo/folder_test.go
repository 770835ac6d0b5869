package gitrepo

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFilesOfAFolderAreReadAtACommit(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	o.write("argocd/3.5.7/namespace-install.yaml", "one")
	o.write("argocd/3.5.7/crds/application-crd.yaml", "two")
	o.write("argocd/3.5.8/other.yaml", "three")
	o.write("fleet/fleet.yaml", "four")
	first := o.commit("manifests")
	if err := os.Symlink("/etc/passwd", filepath.Join(o.work, "argocd/3.5.7/link")); err != nil {
		t.Fatal(err)
	}
	linked := o.commit("a link")
	o.push()
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	got, err := m.Folder(t.Context(), first, "argocd/3.5.7", 2)
	if err != nil || len(got) != 2 || string(got["namespace-install.yaml"]) != "one" ||
		string(got["crds/application-crd.yaml"]) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	unknown := Hash(strings.Repeat("1", 40))
	for what, c := range map[string]struct {
		commit Hash
		folder string
		files  int
		want   error
	}{
		"a link":           {linked, "argocd/3.5.7", 9, ErrMalformed},
		"too many files":   {first, "argocd/3.5.7", 1, ErrOverBudget},
		"no such folder":   {first, "argocd/3.5.9", 9, ErrNotFound},
		"a file":           {first, "argocd/3.5.8/other.yaml", 9, ErrNotFound},
		"no such commit":   {unknown, "argocd", 9, ErrNotFound},
		"out of the tree":  {first, "../argocd", 9, ErrNotFound},
		"an absolute path": {first, "/argocd", 9, ErrNotFound},
	} {
		if _, err := m.Folder(t.Context(), c.commit, c.folder, c.files); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}
