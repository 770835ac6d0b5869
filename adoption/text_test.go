package adoption

import (
	"slices"
	"strings"
	"testing"
)

func changedReport() Report {
	r := Report{Commands: []string{"kubectl -n argosy-tenant-shop create secret generic git " +
		strings.Repeat("--from-file=password=x ", 6)}, Notes: []string{strings.Repeat("word ", 40)},
		Unread: []string{"failed to list secrets: forbidden"}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		r.Objects = append(r.Objects, Result{Kind: KindApplication, Name: name, Status: Changed,
			Differences: []Difference{
				{Path: "spec.info[0]", From: "1", Reason: "lost"},
				{Path: "spec.info[1]", From: "2", Reason: "lost"}}})
	}
	r.Objects = append(r.Objects,
		Result{Kind: KindApplication, Name: "g", Namespace: "argocd", Source: "g.yaml",
			Status: Refused, Reason: "it is a template: " + strings.Repeat("render it ", 12)},
		Result{Kind: KindProject, Name: "shop", Status: Changed, Differences: []Difference{{
			Path: "spec.roles", From: []any{"x"}, Reason: "people have no access"}}},
		Result{Kind: KindProject, Name: "exact", Status: Exact, Differences: []Difference{}})
	return r
}

func TestTheTextOfAReportFitsATerminal(t *testing.T) {
	t.Parallel()
	r := changedReport()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len([]rune(line)) > textWidth+1 && !strings.Contains(line, "kubectl") {
			t.Errorf("wider than %d: %q", textWidth, line)
		}
	}
	for _, want := range []string{
		"\nNot read:\n  failed to list secrets: forbidden\n",
		"\nRefused:\n  Application argocd/g (g.yaml)\n      it is a template: render it",
		"\nChanged:\n  AppProject spec.roles\n      [\"x\"] -> (none)\n      people have no access\n" +
			"      1 object: shop\n",
		"  Application spec.info[]\n      lost\n      6 objects: a, b, c, d and 2 more\n",
		"\nRun these commands:\n  kubectl", "\nNotes:\n  word word",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, b.String())
		}
	}
}

func TestEveryDifferenceIsAmongTheChanges(t *testing.T) {
	t.Parallel()
	r := changedReport()
	for _, o := range r.Objects {
		for _, d := range o.Differences {
			if o.Status == Changed && !slices.ContainsFunc(r.Changes(), func(c Change) bool {
				return c.Kind == o.Kind && c.Path == general(d.Path) && c.Reason == d.Reason &&
					slices.Contains(c.Objects, o.Name)
			}) {
				t.Errorf("%s %s: %s is not shown", o.Kind, o.Name, d.Path)
			}
		}
	}
}
