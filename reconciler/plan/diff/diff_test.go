package diff_test

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/plantest"
	"argosy.dev/argosy/reconciler/plan/report"
)

// rows returns the rows that change when files come to the state.
func rows(t *testing.T, s *applied.State, in effective.Input) (map[fleet.ObjectKey]report.Action,
	func()) {
	t.Helper()
	in.Applied = s
	declared := effective.Compute(in, effective.NewLimits())
	placed, err := place.Compute(place.Input{Applied: s, Declared: declared, Revision: "1"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := diff.Compute(diff.Input{
		Applied: s, Declared: declared, Placed: placed, Revision: "1",
		Renderer: plantest.Renderer{},
	})
	if err != nil {
		t.Fatal(err)
	}
	actions := map[fleet.ObjectKey]report.Action{}
	for k, c := range out.Rows {
		actions[k] = c.Action
	}
	return actions, func() {
		declared.After.Commit()
		placed.Layers.Commit()
		s.Revision = "1"
	}
}

func TestOnlyRowsThatDifferChange(t *testing.T) {
	s := applied.New()
	first, commit := rows(t, s, effective.Input{Files: plantest.Files("cart", "web")})
	if len(first) != 4 { // two Applications, the Cluster, the AppProject
		t.Fatalf("first revision: %v", first)
	}
	for k, action := range first {
		if action != report.Create {
			t.Errorf("%s of %s", action, k.Name)
		}
	}
	commit()

	changed := plantest.Deployment("cart")
	changed.Blob, changed.Declaration.Blob = "blob-2", "blob-2"
	changed.Declaration.Deployment.Source.TargetRevision = "v2"
	in := effective.Input{}
	in.Files = append(in.Files, changed)
	second, _ := rows(t, s, in)
	if key := applied.ApplicationKey("eu-1", plantest.Cart); len(second) != 1 ||
		second[key] != report.Update {
		t.Errorf("second revision: %v", second)
	}
}
