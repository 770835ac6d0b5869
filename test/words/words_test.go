package words

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const small = `
mend mends -> fix [text name]
book -> ledger [decl]
is_to_be -> must be [text]
`

func parse(t *testing.T, text string) *Glossary {
	t.Helper()
	glossary, err := ParseGlossary(text)
	if err != nil {
		t.Fatal(err)
	}
	return glossary
}

// brief lists findings as "line word".
func brief(found []Finding) []string {
	var all []string
	for _, f := range found {
		all = append(all, fmt.Sprintf("%d %s", f.Line, f.Word))
	}
	slices.Sort(all)
	return all
}

func TestASourceFileIsCheckedForNamesCommentsAndMessages(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x ", 60)
	for name, test := range map[string]struct {
		body string
		want []string
	}{
		"a clean file":      {"// fix repairs the row.\nfunc fix() {}", nil},
		"a function's name": {"func mendRow() {}", []string{"2 mend"}},
		"a method's name": {
			"type a int\nfunc (a) Mend() {}", []string{"3 mend"}},
		"a field's name":        {"type a struct{ bookOf int }", []string{"2 book"}},
		"an interface's method": {"type a interface{ Book() }", []string{"2 book"}},
		"a parameter's name":    {"func a(mends int) {}", []string{"2 mends"}},
		"a local name": {
			"func a() { mend := 1; _ = mend }", []string{"2 mend"}},
		"a variable of a loop": {"func a() { for mend := range 1 { _ = mend } }",
			[]string{"2 mend"}},
		"a local name that only decl bans": {"func a() { book := 1; _ = book }", nil},
		"a package's variable":             {"var book int", []string{"2 book"}},
		"a part of a word":                 {"func amendment() {}", nil},
		"a comment":                        {"// It mends.\nvar a int", []string{"2 mends"}},
		"the second line of a comment":     {"// It\n// mends.\nvar a int", []string{"3 mends"}},
		"a phrase over two lines": {
			"// It is to\n// be.\nvar a int", []string{"2 is to be"}},
		"code in a comment": {"// It sets `mend`.\nvar a int", nil},
		"a message":         {`var a = "cannot mend it"`, []string{"2 mend"}},
		"a raw message":     {"var a = `cannot\nmend it`", []string{"3 mend"}},
		"a key":             {`var a = "mend"`, nil},
		"SQL":               {`var a = "SELECT mend FROM rows"`, nil},
		"a column's tag":    {"type a struct{ B int `json:\"mend it\"` }", nil},
		"a comment that opens like a riddle": {
			"// What is kept is kept.\nvar a int", []string{"2 What"}},
		"its second sentence": {
			"// It is.\n// Who asks gets it.\nvar a int", []string{"3 Who"}},
		"a question": {"// What is kept?\nvar a int", nil},
		"a test with a number": {
			"func TestCase12(t int) {}", []string{"2 TestCase12"}},
		"a comment with a number": {
			"// Case 79: a lease ends.\nvar a int", []string{"2 Case 79"}},
		"a long comment": {"// " + long + "\nvar a int", []string{"2 columns"}},
		"a long line of code": {
			"var a = " + strings.Repeat("1 + ", 30) + "1", []string{"2 columns"}},
		"a long literal":              {`var a = "` + long + `"`, nil},
		"a long line of a raw string": {"var a = `\n" + long + "`", nil},
		"a long address": {
			"// https://example.com/" + strings.Repeat("x", 100) + "\nvar a int", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := parse(t, small).Source("a.go", []byte("package a\n"+test.body+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			if got := brief(found); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func TestADocumentIsCheckedOutsideOfHeadingsTablesAndCode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file, text string
		want       []string
	}{
		"a word":               {"a.md", "One.\n\nIt mends.", []string{"3 mends"}},
		"code":                 {"a.md", "Set `mend`.", nil},
		"a paragraph":          {"a.md", "One.\n\nHow it is\ndone is this.", []string{"3 How"}},
		"an item of a list":    {"a.md", "- one\n- That is it.", []string{"2 That"}},
		"a question":           {"a.md", "How is it\ndone? So.", nil},
		"a heading":            {"a.md", "## What to do\n\nThis.", nil},
		"a table":              {"a.md", "| What | Why |\n|---|---|", nil},
		"a script's comment":   {"a.sh", "#!/bin/bash\n# Who runs it pays.\n", []string{"2 Who"}},
		"a script's message":   {"a.sh", "echo 'cannot mend it'\n", []string{"1 mend"}},
		"the name of a file":   {"book.sh", "", []string{"1 book"}},
		"a target of make":     {"Makefile", "mend: ## fix it\n", []string{"1 mend"}},
		"a value of a chart":   {"values.yaml", "# -- What is kept\nkept: 1\n", []string{"1 What"}},
		"a page of the server": {"page.html", "<p>cannot mend it</p>", []string{"1 mend"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := brief(parse(t, small).Document(test.file, test.text)); !slices.Equal(
				got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func TestAFindingNamesItsPlaceAndTheReplacement(t *testing.T) {
	t.Parallel()
	found := parse(t, small).Document("docs/a.md", "One.\nIt mends.")
	if len(found) != 1 {
		t.Fatal(found)
	}
	if got, want :=
		found[0].String(), "docs/a.md:2: \"mends\": write fix\n\tIt mends."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnExceptionPermitsItsWordOnItsLinesOnly(t *testing.T) {
	t.Parallel()
	exceptions, err := ParseExceptions("# why\nfleet/ | mend | wire | field of the wire\n")
	if err != nil {
		t.Fatal(err)
	}
	here := Finding{Path: "fleet/a.go", Line: 1, Word: "Mend", Context: "of the wire"}
	otherPath, otherWord, otherLine := here, here, here
	otherPath.Path, otherWord.Word, otherLine.Context = "api/a.go", "book", "of a row"
	all := []Finding{here, otherPath, otherWord, otherLine}
	if left, unused := Filter(all, exceptions); len(left) != 3 || len(unused) != 0 {
		t.Errorf("left %v, unused %v", left, unused)
	}
	if _, unused := Filter(all[1:], exceptions); len(unused) != 1 {
		t.Error("an exception without a line is not reported")
	}
	if _, err := ParseExceptions("fleet/ | mend | wire"); err == nil {
		t.Error("an exception without a reason is accepted")
	}
}

func TestNamesAreSplitAtTheirCapitals(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"mendRow": "mend row", "HTTPMend": "http mend", "MendHTTP": "mend http",
		"mend_row2x": "mend row x",
		"amend":      "amend", "ID": "id", "StopsASync": "stops a sync",
	} {
		if got := strings.Join(camelWords(name), " "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestAGlossaryWithoutAReplacementOrAPlaceIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"mend", "mend -> fix", "mend -> fix [code]"} {
		if _, err := ParseGlossary(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
