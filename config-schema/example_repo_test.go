package configschema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exampleFiles reads examples/config-repo.
func exampleFiles(t testing.TB) []File {
	t.Helper()
	return repoFiles(t, "../examples/config-repo")
}

// repoFiles reads the files below a folder.
func repoFiles(t testing.TB, root string) []File {
	t.Helper()
	var files []File
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, File{Path: filepath.ToSlash(rel), Blob: "blob-of-" + rel, Bytes: b})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestTheExampleRepoDecodes(t *testing.T) {
	declarations := 0
	for _, f := range exampleFiles(t) {
		doc := Decode(f)
		for _, p := range doc.Problems {
			t.Error(p)
		}
		ours := strings.HasPrefix(f.Path, "fleet/") || strings.HasPrefix(f.Path, "tenants/")
		if ours != (doc.Declaration != nil) {
			t.Errorf("%s: declaration %v", f.Path, doc.Declaration)
		}
		if ours {
			declarations++
		}
	}
	if declarations < 15 {
		t.Fatalf("only %d declarations were found", declarations)
	}
}

func TestTheExampleRepoHasNoProblem(t *testing.T) {
	for _, p := range Check(exampleFiles(t)) {
		t.Error(p)
	}
}
