package configschema

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// People look up the word in brackets after "error".
func TestEveryCodeIsDocumented(t *testing.T) {
	reported, known := reportedCodes(t, ".."), AllCodes()
	for code, where := range reported {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(k string) bool {
			return k == code || strings.HasSuffix(code, "-") && strings.HasPrefix(k, code)
		}) {
			t.Errorf("%s: code %q is in no list of codes", where, code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(known)) {
		head, _, _ := strings.Cut(code, "-")
		if reported[code] == "" && reported[head+"-"] == "" {
			t.Errorf("code %q is documented, and nothing reports it", code)
		}
		if !isCode.MatchString(code) || !strings.HasSuffix(known[code], ".") {
			t.Errorf("code %q: %q", code, known[code])
		}
	}
	for _, code := range []string{"path-twin", "unknown-tenant", "cannot-render",
		"already-adopted", "engine-in-use",
		"environment-in-use", "sync-not-run", "plan-"} {
		if reported[code] == "" {
			t.Errorf("this test does not see %q in the program", code)
		}
	}
}

var isCode = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)

// reportedCodes finds every code that the sources below root give to a problem: a constant called
// code…, of a plan also Code…, the Code of a fleet.Problem, an argument for a parameter called
// code. Of a concatenated code it returns the part up to its last dash.
func reportedCodes(t *testing.T, root string) map[string]string {
	t.Helper()
	files, passed := programFiles(t, root), map[string]int{}
	for path, f := range files {
		for _, d := range f.Decls {
			if at := codeParameter(d); at >= 0 {
				passed[filepath.Dir(path)+"."+d.(*ast.FuncDecl).Name.Name] = at
			}
		}
	}
	reported := map[string]string{}
	for path, f := range files {
		take := func(e ast.Expr) {
			if b, ok := e.(*ast.BinaryExpr); ok {
				e = b.X
			}
			if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if code, err := strconv.Unquote(l.Value); err == nil &&
					isCode.MatchString(strings.TrimSuffix(code, "-")) {
					reported[code] = path
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, v := range n.Values {
					name := n.Names[i].Name
					if strings.HasPrefix(name, "code") || strings.HasPrefix(name, "Code") &&
						strings.Contains(filepath.ToSlash(path), "/reconciler/plan/") {
						take(v)
					}
				}
			case *ast.CallExpr:
				if at, ok := passed[filepath.Dir(path)+"."+called(n)]; ok && at < len(n.Args) {
					take(n.Args[at])
				}
			case *ast.CompositeLit:
				if isProblem(n.Type) {
					takeCode(n, take)
				}
				if list, ok := n.Type.(*ast.ArrayType); ok && isProblem(list.Elt) {
					for _, e := range n.Elts {
						if item, ok := e.(*ast.CompositeLit); ok {
							takeCode(item, take)
						}
					}
				}
			}
			return true
		})
	}
	return reported
}

func takeCode(problem *ast.CompositeLit, take func(ast.Expr)) {
	for _, e := range problem.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if name, ok := kv.Key.(*ast.Ident); ok && name.Name == "Code" {
				take(kv.Value)
			}
		}
	}
}

func isProblem(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "Problem"
	case *ast.SelectorExpr:
		return e.Sel.Name == "Problem"
	}
	return false
}

func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// codeParameter is the place of a function's parameter called code; -1 without one.
func codeParameter(d ast.Decl) int {
	f, ok := d.(*ast.FuncDecl)
	if !ok {
		return -1
	}
	at := 0
	for _, p := range f.Type.Params.List {
		for _, name := range p.Names {
			if name.Name == "code" {
				return at
			}
			at++
		}
	}
	return -1
}

func programFiles(t *testing.T, root string) map[string]*ast.File {
	t.Helper()
	files, set := map[string]*ast.File{}, token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "test" ||
			e.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files[path], err = parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	return files
}
