package configschema

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"argosy.dev/argosy/fleet"
)

var update = flag.Bool("update", false, "update the golden parts")

// wanted is the name of the golden part of a case.
const wanted = "problems"

// caseFiles reads the files of a case. A name may carry what it is: "path (symlink)", "path
// (submodule)", "path (quoted)" for content written as a Go string, "path (path quoted)" for a path
// that is.
func caseFiles(t *testing.T, a *txtar.Archive) (files []File, want []byte) {
	t.Helper()
	for _, part := range a.Files {
		if part.Name == wanted {
			want = part.Data
			continue
		}
		f := File{Path: part.Name, Blob: "blob", Bytes: part.Data}
		if path, mark, ok := strings.Cut(part.Name, " ("); ok {
			f.Path = path
			switch mark {
			case "symlink)", "submodule)":
				f.Irregular = strings.TrimSuffix(mark, ")")
			case "quoted)":
				f.Bytes = []byte(unquote(t, string(bytes.TrimSpace(part.Data))))
			case "path quoted)":
				f.Path = unquote(t, `"`+path+`"`)
			default:
				t.Fatalf("unknown mark (%s", mark)
			}
		}
		files = append(files, f)
	}
	return files, want
}

func unquote(t *testing.T, s string) string {
	t.Helper()
	u, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return u
}

// golden compares a result with the golden part of an archive, or updates that part.
func golden(t *testing.T, name string, a *txtar.Archive, got, want []byte) {
	t.Helper()
	if *update {
		kept := a.Files[:0]
		for _, f := range a.Files {
			if f.Name != wanted {
				kept = append(kept, f)
			}
		}
		a.Files = append(kept, txtar.File{Name: wanted, Data: got})
		if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func eachCase(t *testing.T, dir string, run func(t *testing.T, name string, a *txtar.Archive)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases in testdata/%s: %v", dir, err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			run(t, name, a)
		})
	}
}

func TestEachProblemOfABadFileHasAFix(t *testing.T) {
	seen := map[string]bool{}
	eachCase(t, "bad", func(t *testing.T, name string, a *txtar.Archive) {
		files, want := caseFiles(t, a)
		doc := Decode(files[0])
		if doc.Declaration != nil {
			t.Error("a declaration came out of a bad file")
		}
		if len(doc.Problems) == 0 {
			t.Error("a bad file has no problem")
		}
		for _, p := range doc.Problems {
			seen[p.Code] = true
			checkProblem(t, p)
			if strings.Contains(p.Message+p.Fix+p.Field, "hunter22") ||
				strings.Contains(p.Message+p.Fix, "s3cr3tvalue") ||
				strings.Contains(p.Message+p.Fix, "ghp_") {
				t.Errorf("a secret is repeated: %s", p)
			}
		}
		var got bytes.Buffer
		if err := WriteText(&got, doc.Problems, false); err != nil {
			t.Fatal(err)
		}
		golden(t, name, a, got.Bytes(), want)
	})
	// These cannot be written as a file of testdata; tests of their own cover them.
	for _, code := range []string{codeFileTooLarge, codeInternal, CodeNotExpanded,
		codeNothingListed, codePathCase, codeTooManyProblems, codeUnreadable} {
		seen[code] = true
	}
	for code := range Codes() {
		if !seen[code] {
			t.Errorf("code %s has no case", code)
		}
	}
}

func TestAFolderThatCannotBeReadIsItsTenants(t *testing.T) {
	for path, tenant := range map[string]fleet.TenantName{
		"tenants/acme/": "acme", "fleet/": "", "tenants/": "", `tenants/".."/`: ""} {
		doc := Decode(File{Path: path, Blob: "1234", Unreadable: "two entries have the same name"})
		if doc.Declaration != nil || len(doc.Problems) != 1 ||
			doc.Key != (fleet.Key{Kind: fleet.KindFile, Tenant: tenant, Name: path}) {
			t.Fatal(doc)
		}
		checkProblem(t, doc.Problems[0])
	}
}

func TestAFileThatIsTooLargeIsReportedWithItsSize(t *testing.T) {
	doc := Decode(File{Path: "tenants/acme/deployments/web.yaml", Size: 41943040})
	if len(doc.Problems) != 1 ||
		doc.Problems[0].Message != "the file has 41943040 bytes; at most 262144 are read" {
		t.Fatal(doc.Problems)
	}
}

// checkProblem checks that a problem has everything that a person needs to fix it.
func checkProblem(t *testing.T, p fleet.Problem) {
	t.Helper()
	if Codes()[p.Code] == "" {
		t.Errorf("code %q is not documented", p.Code)
	}
	if p.Message == "" || p.Fix == "" || p.Path == "" || p.Severity != fleet.SeverityError {
		t.Errorf("problem is not whole: %+v", p)
	}
	if p.Field != "" && (p.Line == 0 || p.Column == 0) {
		t.Errorf("problem has a field and no place: %+v", p)
	}
}
