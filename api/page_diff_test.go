package api

import (
	"strings"
	"testing"
)

const someDiff = `--- live
+++ desired
@@ -1,3 +1,3 @@
 spec:
-  image: web:1.2
+  image: web:1.3
   replicas: 2
@@ -20,2 +20,3 @@
 status:
+  added: <b>
 end
`

func TestAUnifiedDiffIsShownSideBySideWithTheChangedWordsMarked(t *testing.T) {
	rows, cut := sideBySide(someDiff)
	if cut {
		t.Error("it is cut")
	}
	var got []string
	for _, r := range rows {
		got = append(got, r.Kind+" "+spanText(r.Left)+" | "+spanText(r.Right))
	}
	want := []string{"same spec: | spec:", "changed   image: web:1.[2] |   image: web:1.[3]",
		"same   replicas: 2 |   replicas: 2", "gap  | ", "same status: | status:",
		"added  | " + "  added: <b>", "same end | end"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if gap := rows[3]; gap.Skipped != 16 {
		t.Errorf("the gap has %d lines", gap.Skipped)
	}
	if last := rows[6]; last.Old != 21 || last.New != 22 {
		t.Errorf("the last line has the numbers %d and %d", last.Old, last.New)
	}
}

func spanText(spans []diffSpan) string {
	var out strings.Builder
	for _, s := range spans {
		if s.Mark {
			out.WriteString("[" + s.Text + "]")
		} else {
			out.WriteString(s.Text)
		}
	}
	return out.String()
}

func TestALongDiffIsCut(t *testing.T) {
	rows, cut := sideBySide("@@ -1 +1 @@\n" + strings.Repeat(" x\n", 2*maxDiffRows))
	if !cut || len(rows) > maxDiffRows {
		t.Errorf("%d rows, cut %v", len(rows), cut)
	}
}

// No diff fails, and the sides have the text of its lines, whatever the marks.
func FuzzSideBySide(f *testing.F) {
	f.Add(someDiff)
	f.Add("@@ -9999999999999999999,1 +1 @@\n-a\n+b\n")
	f.Add("-a\n@@ -1 +1 @@\n\n\\ No newline\n+\xff\n-\xfe\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, _ := sideBySide(text)
		for _, r := range rows {
			for _, side := range [][]diffSpan{r.Left, r.Right} {
				for _, s := range side {
					if !strings.Contains(text, s.Text) {
						t.Errorf("%q is not in %q", s.Text, text)
					}
				}
			}
		}
	})
}
