package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func sized(name string, applications int) string {
	return strings.Replace(engineFile(name, "eu", ""), "applications: 1000",
		fmt.Sprintf("applications: %d", applications), 1)
}

// oversized is two engines for 4 Applications each, and environment prod with 6.
func oversized() tree {
	files := small().without("tenants/acme/deployments", "tenants/acme/environments/staging.yaml").
		with("fleet/engines/eu-1.yaml", sized("eu-1", 4)).
		with("fleet/engines/eu-2.yaml", sized("eu-2", 4))
	for i := range 6 {
		files = files.with(fmt.Sprintf("tenants/acme/deployments/app-%d.yaml", i),
			deploymentFile(fmt.Sprintf("app-%d", i), "acme/checkout", "environments: [prod]", ""))
	}
	return files
}

func TestAnEnvironmentThatIsTooLargeIsPlacedOnceAnEngineIsLargeEnough(t *testing.T) {
	h := newHouse(t)
	p := h.apply(oversized())
	want := fleet.TooLarge{Applications: 6, Engines: 2, LargestCapacity: 4}
	if len(p.Placements) != 1 || p.Placements[0].Engine != "" ||
		p.Placements[0].TooLarge == nil || *p.Placements[0].TooLarge != want {
		t.Fatalf("%+v", p.Placements)
	}
	if i := slices.IndexFunc(p.Problems, func(p fleet.Problem) bool {
		return p.Code == codeTooLarge
	}); i < 0 || !strings.Contains(p.Problems[i].Fix, "6 applications or more") {
		t.Errorf("%+v", p.Problems)
	}
	h.restart()
	p = h.apply(h.files.with("fleet/engines/eu-2.yaml", sized("eu-2", 6)))
	if h.engineOf("acme", "prod") != "eu-2" || p.Placements[0].TooLarge != nil {
		t.Errorf("%+v", p.Placements)
	}
}

// The cluster of a split environment is served by two engines, each with the tenant's AppProject,
// its credential and a Secret of the cluster.
func TestAnEnvironmentThatIsTooLargeIsDividedOverTwoEngines(t *testing.T) {
	h := newHouse(t)
	h.apply(oversized())
	whole := h.files["tenants/acme/environments/prod.yaml"]
	files := h.files.without("tenants/acme/environments/prod.yaml")
	for _, part := range []string{"prod-a", "prod-b"} {
		files = files.with("tenants/acme/environments/"+part+".yaml",
			strings.Replace(whole, "metadata: {name: prod,", "metadata: {name: "+part+",", 1))
	}
	for i := range 6 {
		part := []string{"prod-a", "prod-b"}[i%2]
		files = files.edit(fmt.Sprintf("tenants/acme/deployments/app-%d.yaml", i), "[prod]",
			"["+part+"]")
	}
	p := h.apply(files)
	if len(p.Problems) > 0 || p.Counts.Created != 6 {
		t.Errorf("%+v, %+v", p.Counts, p.Problems)
	}
	for _, engine := range []fleet.EngineName{"eu-1", "eu-2"} {
		kinds := h.kindsOn(engine)
		if kinds[fleet.ObjectApplication] != 3 || kinds[fleet.ObjectProject] != 1 ||
			kinds[fleet.ObjectCluster] != 1 || kinds[fleet.ObjectRepository] != 1 {
			t.Errorf("%s has %v", engine, kinds)
		}
	}
}

func TestAnEnvironmentThatIsTooLargeStaysOnItsEvacuatedEngine(t *testing.T) {
	h := newHouse(t)
	h.apply(small().without("tenants/acme/environments/staging.yaml").
		edit("tenants/acme/deployments/checkout.yaml", "[prod, staging]", "[prod]"))
	on, other := h.others()
	h.apply(h.files.with("fleet/engines/"+string(other)+".yaml", sized(string(other), 1)))
	p := h.again(func(r *Request) {
		r.Evacuated = []fleet.EngineName{on}
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeProd: {Evacuates: true}}
	})
	const want = "it is too large for every engine that may take it: one is too small for 2 " +
		"applications, with a capacity of at most 1; one is evacuated"
	if got := p.Refused[wholeProd]; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if h.engineOf("acme", "prod") != on {
		t.Error("it has left")
	}
}

// A dead engine proves no deletion, so its Applications count as readers of their repositories. A
// Secret that stays wanted for them would keep a person from forgetting the engine.
func TestNothingIsWantedOnAnEvacuatedEngine(t *testing.T) {
	h := newHouse(t)
	h.apply(small().without("tenants/acme/environments/staging.yaml").
		edit("tenants/acme/deployments/checkout.yaml", "[prod, staging]", "[prod]"))
	on, other := h.others()
	h.again(func(r *Request) {
		r.Evacuated = []fleet.EngineName{on}
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{wholeProd: {Evacuates: true}}
	})
	if h.engineOf("acme", "prod") != other {
		t.Fatal("it has not left")
	}
	secrets := 0
	for k, r := range h.rows {
		if k.Engine == on && !r.Unwanted {
			t.Errorf("%s %s is wanted on the dead engine", k.Kind, k.Name)
		}
		if k.Engine == other && k.Kind == fleet.ObjectRepository {
			secrets++
		}
	}
	if secrets != 1 {
		t.Errorf("the new engine has %d Secrets for repositories", secrets)
	}
}

func outgrown(p *Plan) (found []fleet.Problem) {
	for _, problem := range p.Problems {
		if problem.Code == codeOutgrown {
			found = append(found, problem)
		}
	}
	return found
}

// fitting is one engine for 6 Applications, and environment prod with as many.
func fitting() tree {
	return oversized().without("fleet/engines/eu-2.yaml").
		with("fleet/engines/eu-1.yaml", sized("eu-1", 6))
}

func TestAnEnvironmentThatOutgrowsItsEngineStaysAndIsExplained(t *testing.T) {
	h := newHouse(t)
	if p := h.apply(fitting()); len(outgrown(p)) > 0 || h.engineOf("acme", "prod") != "eu-1" {
		t.Fatalf("%+v", p.Problems)
	}
	const path = "tenants/acme/deployments/more.yaml"
	p := h.apply(h.files.with(path, deploymentFile("more", "acme/checkout",
		"environments: [prod]", "")))
	found, want := outgrown(p), fleet.TooLarge{Applications: 7, Engines: 1, LargestCapacity: 6}
	if len(found) != 1 || found[0].Path != path || found[0].Field != "spec.destination" ||
		!strings.Contains(found[0].Message, "7 Applications, and the engine a capacity of 6") {
		t.Errorf("%+v", found)
	}
	if len(p.Placements) != 1 || p.Placements[0].TooLarge == nil ||
		*p.Placements[0].TooLarge != want || len(p.Placements[0].Alternatives) != 1 ||
		p.Counts.Created != 1 {
		t.Errorf("%+v, %+v", p.Placements, p.Counts)
	}
	h.restart()
	// a later change of it costs no placement, and no warning
	p = h.apply(h.files.edit(path, "v1", "v2"))
	if len(outgrown(p)) > 0 || len(p.Placements) > 0 {
		t.Errorf("%+v, %+v", outgrown(p), p.Placements)
	}
	h.apply(h.files.without(path))
	h.work()
	pl, _ := h.w.state.Placements.Get(wholeProd)
	if pl.TooLarge != nil || pl.Engine != "eu-1" {
		t.Errorf("it fits again: %+v", pl)
	}
}

func TestALowerCapacityLetsAnEnvironmentOutgrowItsEngine(t *testing.T) {
	h := newHouse(t)
	h.apply(fitting())
	const path = "fleet/engines/eu-1.yaml"
	p := h.apply(h.files.with(path, sized("eu-1", 5)))
	if found := outgrown(p); len(found) != 1 || found[0].Path != path ||
		found[0].Field != "spec.capacity.applications" {
		t.Errorf("%+v", found)
	}
	p = h.apply(h.files.with(path, sized("eu-1", 6)))
	if len(outgrown(p)) > 0 || len(p.Placements) != 1 || p.Placements[0].TooLarge != nil {
		t.Errorf("%+v, %+v", p.Problems, p.Placements)
	}
}
