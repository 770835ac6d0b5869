package plan

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/reviews"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the golden sections of testdata/*.txtar")

// TestScenarios runs testdata/*.txtar: it applies the files below before/, overlays those below
// after/, and compares the plan with the sections plan.txt, plan.md and plan.json. Lines of the
// comment are commands: "remove PREFIX" deletes files, "relation WORD" sets the relation of the
// head to the base, "not reviewed" and "reviews are unavailable" set the evidence of reviews. Other
// lines are for the reader.
func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			scenario(t, path)
		})
	}
}

func scenario(t *testing.T, path string) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after := tree{}, tree{}
	for _, f := range a.Files {
		if name, ok := strings.CutPrefix(f.Name, "before/"); ok {
			before[name] = string(f.Data)
		}
	}
	after = after.over(before)
	for _, f := range a.Files {
		if name, ok := strings.CutPrefix(f.Name, "after/"); ok {
			after[name] = string(f.Data)
		}
	}
	h := newHouse(t)
	if len(before) > 0 {
		h.apply(before)
	}
	relation, review := mirror.Relation(""), (*reviews.Deletions)(nil)
	for line := range strings.Lines(string(a.Comment)) {
		order, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.TrimSpace(line) {
		case "not reviewed":
			review = &reviews.Deletions{}
		case "reviews are unavailable":
			review = &reviews.Deletions{Unknown: errors.New("the forge does not answer")}
		}
		switch order {
		case "remove":
			after = after.without(what)
		case "relation":
			relation = mirror.Relation(what)
		}
	}
	p := h.compute(after, func(r *Request) { r.Relation, r.DeletionReviews = relation, review })
	got := map[string]string{}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"plan.txt":  func(b *bytes.Buffer) error { return p.WriteText(b) },
		"plan.md":   func(b *bytes.Buffer) error { return p.WriteMarkdown(b) },
		"plan.json": func(b *bytes.Buffer) error { return p.WriteJSON(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		got[name] = b.String()
	}
	compareGolden(t, path, a, got)
}

func (t tree) over(below tree) tree {
	out := tree{}
	for k, v := range below {
		out[k] = v
	}
	for k, v := range t {
		out[k] = v
	}
	return out
}

func compareGolden(t *testing.T, path string, a *txtar.Archive, got map[string]string) {
	for _, name := range []string{"plan.txt", "plan.md", "plan.json"} {
		found := false
		for i := range a.Files {
			if a.Files[i].Name != name {
				continue
			}
			found = true
			if d := cmp.Diff(string(a.Files[i].Data), got[name]); d != "" && !*update {
				t.Errorf("%s (run with -update if it is meant):\n%s", name, d)
			}
			a.Files[i].Data = []byte(got[name])
		}
		if !found && *update {
			a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(got[name])})
		} else if !found {
			t.Errorf("%s is missing; run with -update", name)
		}
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
