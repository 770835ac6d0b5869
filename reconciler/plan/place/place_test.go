package place_test

import (
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/plantest"
)

func TestANewEnvironmentGetsAnEngineAndItsApplicationsAreWantedThere(t *testing.T) {
	s := applied.New()
	in := effective.Input{Applied: s, Files: plantest.Files("cart", "web")}
	declared := effective.Compute(in, effective.NewLimits())
	out, err := place.Compute(place.Input{Applied: s, Declared: declared, Revision: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if out.Placements[plantest.Prod.Whole()].Engine != "eu-1" || len(out.Wanted) != 2 {
		t.Errorf("placements %+v, wanted %+v", out.Placements, out.Wanted)
	}
	if load, _ := out.Layers.Loads.Get("eu-1"); load.Environments != 1 || load.Applications != 2 {
		t.Errorf("load %+v", load)
	}
	if len(s.Placements.Base()) != 0 {
		t.Error("the applied state changed")
	}
}

func TestAnApplicationWithoutItsDeploymentIsUnwanted(t *testing.T) {
	s := applied.New()
	s.Catalog.Prepare(plantest.Files("cart")).Commit()
	s.Revision = "1"
	key := applied.ApplicationKey("eu-1", plantest.Cart)
	draft := s.Draft()
	draft.Placements.Set(plantest.Prod.Whole(),
		fleet.Placement{Environment: plantest.Prod, Engine: "eu-1"})
	draft.Place(plantest.Prod, "eu-1", 1)
	draft.SetRow(key, applied.Row{Tenant: "acme", Environment: "prod", Deployment: "cart"})
	draft.Commit()
	in := effective.Input{Applied: s}
	in.Files = append(in.Files, plantest.Removed(applied.DeploymentKey(plantest.Cart)))
	declared := effective.Compute(in, effective.NewLimits())
	request := place.Input{Applied: s, Declared: declared, Revision: "2"}
	out, err := place.Compute(request)
	if err != nil || len(out.Unwanted) != 1 || out.Unwanted[0].Key != key {
		t.Fatalf("%v: %+v", err, out)
	}

	draft = s.Draft()
	draft.Held.Set(plantest.Cart, applied.Held{Application: plantest.Cart, Key: key})
	draft.Commit()
	request.Freed = place.Freed{plantest.Cart: place.Approved}
	out, err = place.Compute(request)
	if err != nil || len(out.Unwanted) != 0 || len(out.Released) != 1 {
		t.Fatalf("%v: an approved deletion is not released: %+v", err, out)
	}
}
