package configschema

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/policy"
)

// over is the example repo with other files put into it.
func over(t *testing.T, files []txtar.File, folder string) []File {
	t.Helper()
	repo, added := exampleFiles(t), 0
	for _, f := range files {
		if path, ok := strings.CutPrefix(f.Name, folder+"/"); ok {
			repo = slices.DeleteFunc(repo, func(o File) bool { return o.Path == path })
			repo = append(repo, File{Path: path, Blob: path, Bytes: f.Data})
			added++
		}
	}
	if added == 0 {
		t.Fatalf("there is no file in %s/", folder)
	}
	return repo
}

// Each policy of the example repo accepts the good files and reports the bad ones at their lines.
func TestEachPolicyOfTheExampleHasAGoodAndABadCase(t *testing.T) {
	for _, f := range exampleFiles(t) {
		name, ok := strings.CutPrefix(f.Path, "fleet/policies/")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, ".yaml")
		t.Run(name, func(t *testing.T) {
			a, err := txtar.ParseFile(filepath.Join("testdata", "policies", name+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range Check(over(t, a.Files, "good")) {
				t.Errorf("good: %v", p)
			}
			var text, sarif bytes.Buffer
			problems := Check(over(t, a.Files, "bad"))
			if err := WriteText(&text, problems, false); err != nil {
				t.Fatal(err)
			}
			if want := section(a, "text"); text.String() != want {
				t.Errorf("bad: reported\n%s\nwant\n%s", &text, want)
			}
			if want := section(a, "sarif"); want != "" {
				if err := WriteSARIF(&sarif, problems, ""); err != nil {
					t.Fatal(err)
				}
				if sarif.String() != want {
					t.Errorf("bad: SARIF is\n%s\nwant\n%s", &sarif, want)
				}
			}
			for _, p := range problems {
				if !strings.HasPrefix(p.Message, name+": ") {
					t.Errorf("another policy reports too: %v", p)
				}
			}
		})
	}
}

func section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func policyFile(rule string) File {
	return File{
		Path: "fleet/policies/p.yaml",
		Bytes: []byte(
			"apiVersion: argosy.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\nspec:\n  " +
				"kinds: [GitOpsDeployment]\n  message: m\n" + rule)}
}

// The place of a mistake in a rule is its place in the file, however the rule is written.
func TestAMistakeInARuleIsFoundInItsFile(t *testing.T) {
	for name, text := range map[string]string{
		"plain":             "  rule: declaration.spec.sorce.path != \"\"\n",
		"plain over lines":  "  rule: path != \"\" &&\n    declaration.spec.sorce.path != \"\"\n",
		"single quotes":     "  rule: 'path != \"it''s\" && declaration.spec.sorce.path != \"\"'\n",
		"quotes over lines": "  rule: 'true &&\n\n    declaration.spec.sorce.path != \"\"'\n",
		"double quotes": "  rule: \"path != \\\"\\\\\\\\\\\" && " +
			"declaration.spec.sorce.path != ''\"\n",
		"double quotes, a tab": "  rule: \"path != '' &&\\tdeclaration.spec.sorce.path != ''\"\n",
		"double quotes, a break": "  rule: \"path != '' && \\\n    declaration.spec.sorce.path " +
			"!= ''\"\n",
		"literal": "  rule: |\n    path != '' &&\n      " +
			"declaration.spec.sorce.path != ''\n",
		"literal, indented more": "  rule: |-2\n\n      declaration.spec.sorce.path != ''\n",
		"folded": "  rule: >-  # why\n    path != '' &&\n\n    " +
			"declaration.spec.sorce.path != ''\n",
		"accents before it": "  rule: 'path != \"éé\" && declaration.spec.sorce.path != \"\"'\n",
		"with CRLF": "  rule: |\r\n    path != '' &&\r\n    " +
			"declaration.spec.sorce.path != ''\r\n",
	} {
		file := policyFile(text)
		before, _, _ := strings.Cut(string(file.Bytes), "sorce")
		line, column := strings.Count(before, "\n")+1,
			utf8.RuneCountInString(before[strings.LastIndex(before, "\n")+1:])+1
		reportedAt(t, name, file, line, column)
	}
	reportedAt(t, "at the end", policyFile("  rule: path != \"\" &&\n"), 7, 22)
	reportedAt(t, "behind an escape that is not followed",
		policyFile("  rule: \"path != '\\u00e9' && declaration.spec.sorce.path != ''\"\n"), 7, 9)
	reportedAt(t, "of the whole", policyFile("  rule: path\n"), 7, 9)
}

func reportedAt(t *testing.T, name string, f File, line, column int) {
	t.Helper()
	doc := Decode(f)
	if len(doc.Problems) != 1 || doc.Problems[0].Code != codeExpression ||
		doc.Problems[0].Field != "spec.rule" {
		t.Errorf("%s: %v", name, doc.Problems)
		return
	}
	if p := doc.Problems[0]; p.Line != line || p.Column != column {
		t.Errorf("%s: reported at %d:%d, it is at %d:%d", name, p.Line, p.Column, line, column)
	}
}

// The cost estimate of a rule assumes the limits that the decoder enforces.
func TestTheBoundsOfPoliciesAreThoseOfTheFields(t *testing.T) {
	var look func(v *value, name string)
	look = func(v *value, name string) {
		entries, text := policy.Bound(name)
		switch v.shape {
		case shapeText:
			if most := orDefault(v.most, maxText); v.words == nil && uint64(most) > text {
				t.Errorf("a %s has up to %d bytes; policies count with %d", name, most, text)
			}
		case shapeList:
			if most := orDefault(v.most, maxItems); uint64(most) > entries {
				t.Errorf("a list %s has up to %d entries; policies count with %d", name, most,
					entries)
			}
			look(v.item, name)
		}
		for i := range v.fields {
			look(&v.fields[i].value, v.fields[i].name)
		}
	}
	for _, k := range append(fleet.PolicedKinds(), fleet.KindTenant) {
		look(&kinds[k].document, "")
	}
}
