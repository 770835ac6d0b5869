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

func TestAFileIsReadAtACommit(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	o.write("tenants/acme/deployments/shop.yaml", "one")
	o.write("top.yaml", "two")
	first := o.commit("files")
	o.write("tenants/acme/deployments/shop.yaml", "another")
	second := o.commit("a change")
	o.push()
	m := open(t, t.TempDir(), newGitServer(t, o).url())
	fetch(t, m)
	const path = "tenants/acme/deployments/shop.yaml"
	blob, text, err := m.File(t.Context(), first, path)
	if err != nil || string(text) != "one" || blob == "" {
		t.Errorf("%s %q, %v", blob, text, err)
	}
	now, text, err := m.File(t.Context(), second, path)
	if err != nil || string(text) != "another" || now == blob {
		t.Errorf("%s %q, %v", now, text, err)
	}
	if _, text, err := m.File(t.Context(), first, "top.yaml"); err != nil || string(text) != "two" {
		t.Errorf("%q, %v", text, err)
	}
	for _, missing := range []string{"tenants/acme/deployments/none.yaml", "tenants/acme",
		"none/none.yaml", "../top.yaml", ""} {
		if _, text, err := m.File(t.Context(), first, missing); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %q, %v", missing, text, err)
		}
	}
	if _, _, err := m.File(t.Context(), Hash(strings.Repeat("1", 40)), path); !errors.Is(err,
		ErrNotFound) {
		t.Errorf("of no commit: %v", err)
	}
}
