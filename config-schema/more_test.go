package configschema

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// Every list ends with the number of problems that it omits.
func TestTheCountOfProblemsNotShownComesLast(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("apiVersion: argosy.dev/v1alpha1\nkind: SyncRun\nmetadata: {name: a}\nspec:\n")
	for i := range maxProblems + 949 {
		fmt.Fprintf(&text, "  wrong%d: x\n", i)
	}
	file := File{Path: "tenants/acme/syncs/a.yaml", Blob: "b", Bytes: []byte(text.String())}
	for name, problems := range map[string][]fleet.Problem{
		"a file": Decode(file).Problems, "a config repo": Check([]File{file})} {
		if len(problems) != maxProblems+1 {
			t.Fatalf("%s: %d problems", name, len(problems))
		}
		for i, p := range problems {
			if last := i == maxProblems; (p.Code == fleet.CodeMoreProblems) != last ||
				(p.Line > 0) == last {
				t.Errorf("%s, problem %d: %v", name, i+1, p)
			}
		}
	}
}
