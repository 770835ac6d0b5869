package effective_test

import (
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/plantest"
)

// state has the small fleet in effect, with prod placed on eu-1.
func state(t *testing.T) *applied.State {
	t.Helper()
	s := applied.New()
	s.Catalog.Prepare(plantest.Files("cart")).Commit()
	s.Revision = "1"
	draft := s.Draft()
	draft.Placements.Set(plantest.Prod.Whole(),
		fleet.Placement{Environment: plantest.Prod, Engine: "eu-1"})
	draft.Place(plantest.Prod, "eu-1", 1)
	draft.Commit()
	return s
}

func TestARemovedEnvironmentIsDeferredWhileAnApplicationTerminates(t *testing.T) {
	s := state(t)
	env := applied.EnvironmentKey(plantest.Prod)
	in := effective.Input{Applied: s}
	in.Files = append(in.Files, plantest.Removed(applied.DeploymentKey(plantest.Cart)))
	in.Files = append(in.Files, plantest.Removed(env))
	limits := effective.NewLimits()
	first := effective.Compute(in, limits)
	if first.After.Environment(plantest.Prod) != nil || len(first.Removing) != 0 {
		t.Fatal("the first round keeps the environment")
	}
	after := s.Draft()
	key := applied.ApplicationKey("eu-1", plantest.Cart)
	after.Terminating.Set(key, applied.Terminating{Application: plantest.Cart, Key: key})
	limits.Defer(first, after)
	if limits.Size() != 1 {
		t.Fatalf("%d limits", limits.Size())
	}
	second := effective.Compute(in, limits)
	if second.After.Environment(plantest.Prod) == nil || !second.Removing[plantest.Prod] {
		t.Error("the second round removes the environment")
	}
	limits.Defer(second, after)
	if limits.Size() != 1 {
		t.Error("the second round finds more to defer")
	}
}

func TestAnEngineThatServesEnvironmentsKeepsItsDeclaration(t *testing.T) {
	s := state(t)
	engine := fleet.Key{Kind: fleet.KindEngine, Name: "eu-1"}
	in := effective.Input{Applied: s}
	in.Files = append(in.Files, plantest.Removed(engine))
	d := effective.Compute(in, effective.NewLimits())
	q, quarantined := d.After.Quarantine(engine)
	if d.After.Engine("eu-1") == nil || !quarantined || q.Problems[0].Code != "engine-in-use" {
		t.Errorf("quarantine %+v", q)
	}
	if _, deferred := d.Deferred[engine]; !deferred {
		t.Error("the removal is not tried again")
	}
}

func TestARenderFailureBlamesTheChangedDeployment(t *testing.T) {
	s := state(t)
	in := effective.Input{Applied: s}
	in.Files = append(in.Files, plantest.Deployment("web"))
	web := fleet.ApplicationID{Tenant: "acme", Deployment: "web", Environment: "prod"}
	failure := func(id fleet.ApplicationID) []effective.RenderFailure {
		return []effective.RenderFailure{{
			Object: fleet.Object{Application: &fleet.Application{ID: id}},
			Err:    errors.New("no path"),
		}}
	}
	limits := effective.NewLimits()
	d := effective.Compute(in, limits)
	if err := limits.Refuse(d, failure(web)); err != nil {
		t.Fatal(err)
	}
	again := effective.Compute(in, limits)
	q, _ := again.After.Quarantine(applied.DeploymentKey(web))
	if len(q.Problems) != 1 || q.Problems[0].Code != effective.CodeUnrendered {
		t.Errorf("quarantine %+v", q)
	}
	if err := limits.Refuse(d, failure(plantest.Cart)); err == nil {
		t.Error("an unchanged deployment is refused")
	}
	if err := limits.Refuse(d, failure(web)); err == nil ||
		!strings.Contains(err.Error(), "converge") {
		t.Errorf("a second refusal of one change: %v", err)
	}
}
