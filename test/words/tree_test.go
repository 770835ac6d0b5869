package words

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// skipped files are not ours to change: the glossary itself, a released migration, the license.
var skipped = []string{"test/words/", "reconciler/postgres/migrations/", "LICENSE"}

func document(file string) bool {
	if strings.Contains(file, "/testdata/") {
		return false
	}
	switch path.Ext(file) {
	case ".md", ".sh", ".html", ".tpl", ".gotmpl":
		return true
	case ".yaml", ".txt":
		return strings.HasPrefix(file, "charts/")
	}
	return path.Base(file) == "Makefile" || path.Base(file) == "run"
}

// TestTheProjectSpeaksOneLanguage checks every tracked file against glossary.txt. The folders of
// unclean.txt, each without its subfolders, are left out until their words are clean.
func TestTheProjectSpeaksOneLanguage(t *testing.T) {
	t.Parallel()
	glossary := ours(t)
	exceptions, err := ParseExceptions(read(t, "allow.txt"))
	if err != nil {
		t.Fatal(err)
	}
	unclean := entries(read(t, "unclean.txt"))
	var found []Finding
	for _, file := range tracked(t) {
		excluded := func(folder string) bool { return folder == file || below(file, folder) }
		if slices.ContainsFunc(skipped, excluded) || slices.Contains(unclean, folderOf(file)) {
			continue
		}
		info, err := os.Lstat(filepath.Join(root, file))
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() { // deleted, or a link
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case path.Ext(file) == ".go":
			in, err := glossary.Source(file, content)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, in...)
		case document(file):
			found = append(found, glossary.Document(file, string(content))...)
		}
	}
	left, unused := Filter(found, exceptions)
	for _, f := range left {
		t.Error(f)
	}
	for _, e := range unused {
		if !slices.ContainsFunc(unclean, func(folder string) bool {
			return e.Path == "*" || folder == folderOf(e.Path) || below(folder, e.Path)
		}) {
			t.Errorf("allow.txt permits %q in %s on lines with %q, and there is none", e.Word,
				e.Path, e.Part)
		}
	}
	if len(left) > 0 {
		t.Logf(
			"%d findings. test/README.md names the rules; an exception belongs in "+
				"test/words/allow.txt, with its reason", len(left))
	}
}

// folderOf returns the folder of a file with a slash at its end, "./" for the root.
func folderOf(file string) string { return path.Dir(file) + "/" }

func ours(t *testing.T) *Glossary {
	t.Helper()
	glossary, err := ParseGlossary(read(t, "glossary.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return glossary
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func entries(text string) []string {
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

func tracked(t *testing.T) []string {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}
