package plan

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
)

func (h *house) simulate(c placement.Change,
	unready map[fleet.SliceID]int) placement.Outcome {
	h.t.Helper()
	o, err := h.w.Simulate(c, unready)
	if err != nil {
		h.t.Fatal(err)
	}
	return o
}

// crowded is eu-1 with all environments, and two engines that joined afterwards.
func crowded(t *testing.T) *house {
	t.Helper()
	h := newHouse(t)
	files := small().without("fleet/engines/eu-2.yaml")
	files["tenants/acme/environments/third.yaml"] = environmentFile("third", "eu", "tier: prod",
		"app")
	files["tenants/acme/deployments/charts.yaml"] = deploymentFile("charts", "shared/charts",
		"environments: [prod]", "")
	files["tenants/acme/credentials/charts.yaml"] = credentialFile("charts", "shared/charts")
	h.apply(files)
	h.apply(h.files.with("fleet/engines/eu-2.yaml", engineFile("eu-2", "eu", "")).
		with("fleet/engines/eu-3.yaml", engineFile("eu-3", "eu", "")))
	return h
}

// The plan accepts each simulated move, and after each one the simulation is the rest of the first.
func TestASimulatedDrainIsWhatItsMovesDo(t *testing.T) {
	h := crowded(t)
	drain := placement.Change{Kind: placement.Drain, Engine: "eu-1"}
	unready := map[fleet.SliceID]int{{Tenant: "acme", Environment: "staging"}: 1}
	shown := h.simulate(drain, unready)
	if len(shown.Moves) != 3 || len(shown.Left) != 0 ||
		shown.Moves[2].Environment.Name != "staging" {
		t.Fatalf("%+v", shown)
	}
	draining := h.files.with("fleet/engines/eu-1.yaml",
		engineFile("eu-1", "eu", "  state: Draining\n"))
	p := h.compute(draining, func(r *Request) { r.Unready = unready })
	if drains := reported(t, p).Drains; len(drains) != 1 ||
		!slices.Equal(drains[0].Moves, shown.Moves) || len(drains[0].Left) != 0 {
		t.Errorf("the plan shows %+v", drains)
	}
	h.apply(draining)
	again := h.files.with("fleet/engines/eu-1.yaml",
		engineFile("eu-1", "eu", "  labels: {a: b}\n  state: Draining\n"))
	if drains := reported(t, h.compute(again)).Drains; len(drains) != 0 {
		t.Errorf("the plan of an engine that drains already shows %+v", drains)
	}
	for n, m := range shown.Moves {
		if rest := h.simulate(drain, unready); !slices.Equal(rest.Moves, shown.Moves[n:]) {
			t.Fatalf("after %d moves: %+v, shown %+v", n, rest.Moves, shown.Moves[n:])
		}
		p := h.again(func(r *Request) {
			r.Moves = map[fleet.SliceID]mirror.MoveRequest{m.ID(): {To: m.To}}
		})
		if len(p.Begun) != 1 {
			t.Fatalf("%+v: %v", m, p.Refused)
		}
		h.work()
	}
	done := h.simulate(drain, unready)
	if len(done.Moves)+len(done.Left) != 0 {
		t.Errorf("%+v", done)
	}
	for i, e := range done.Engines {
		if e.After != shown.Engines[i].After || e.Before != e.After {
			t.Errorf("%+v, shown %+v", e, shown.Engines[i])
		}
	}
}

// Misplaced environments alone leave, and only if the Fleet has them moved.
func TestMisplacedEnvironmentsMoveIfTheFleetDeclaresIt(t *testing.T) {
	h := crowded(t)
	h.apply(h.files.with("fleet/engines/eu-1.yaml", engineFile("eu-1", "us", "")).
		with("tenants/acme/environments/third.yaml", environmentFile("third", "us", "tier: prod",
			"app")))
	prod := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	request := func(id fleet.EnvironmentID) *Plan {
		return h.again(func(r *Request) {
			r.Moves = map[fleet.SliceID]mirror.MoveRequest{id.Whole(): {Environment: id, To: "eu-2",
				Drain: true}}
		})
	}
	if p := request(prod); len(p.Begun) != 0 || h.w.Misplaced() != nil {
		t.Fatalf("without the setting: %+v, %v", p.Begun, h.w.Misplaced())
	}
	moves := h.files.with("fleet/fleet.yaml", strings.TrimSuffix(h.files["fleet/fleet.yaml"], "\n")+
		"\n  placement: {misplaced: Move}\n")
	p := h.compute(moves)
	shown := reported(t, p).Drains
	if len(shown) != 1 || !shown[0].Misplaced || shown[0].Engine != "eu-1" ||
		len(shown[0].Moves) != 2 {
		t.Fatalf("the plan shows %+v", shown)
	}
	h.apply(moves)
	if got := h.w.Misplaced(); len(got) != 1 || got["eu-1"] != 2 {
		t.Errorf("%v", got)
	}
	if p := request(fleet.EnvironmentID{Tenant: "acme", Name: "third"}); len(p.Begun) != 0 {
		t.Errorf("an environment that is not misplaced moves: %+v", p.Begun)
	}
	if p := request(prod); len(p.Begun) != 1 {
		t.Errorf("%v", p.Refused)
	}
	if got := h.w.Misplaced(); got["eu-1"] != 1 {
		t.Errorf("after one has begun to move: %v", got)
	}
}

func TestASimulationIsTheSameAfterARestart(t *testing.T) {
	h := crowded(t)
	c := placement.Change{Kind: placement.Join, Engine: "eu-4", Like: "eu-1"}
	before := h.simulate(c, nil)
	if len(before.Moves) == 0 {
		t.Fatalf("%+v", before)
	}
	h.restart()
	if after := h.simulate(c, nil); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v, then %+v", before, after)
	}
}

func TestASimulationNamesWhatCannotMove(t *testing.T) {
	onAgent := strings.Replace(engineFile("eu-2", "eu", ""), "{kubeconfigRef: {name: eu-2}}",
		"{agent: {}}", 1)
	for _, c := range []struct {
		name string
		edit func(*house)
		want string
	}{
		{"a move under way", func(h *house) { h.again(moving("eu-2")) },
			"is moving from engine eu-1 to engine eu-2"},
		{"engines behind agents", func(h *house) {
			h.apply(h.files.without("fleet/engines/eu-3.yaml").with("fleet/engines/eu-2.yaml",
				onAgent))
		}, "behind an agent, and only argosy move environment moves environments there"},
		{"engines of another region", func(h *house) {
			h.apply(h.files.without("fleet/engines/eu-3.yaml").with("fleet/engines/eu-2.yaml",
				engineFile("eu-2", "us", "")))
		}, "is in region us, the environment in eu"},
		{"a repository that another tenant reads there", func(h *house) {
			h.apply(h.files.without("fleet/engines/eu-3.yaml").
				with("fleet/tenants/globex.yaml", tenantFile("globex", "")).
				with("tenants/globex/environments/edge.yaml",
					environmentFile("edge", "eu", "", "app")).
				with("tenants/globex/credentials/c.yaml", credentialFile("c", "shared/charts")).
				with("tenants/globex/deployments/c.yaml",
					deploymentFile("c", "shared/charts", "environments: [edge]", "")))
			if on := h.engineOf("globex", "edge"); on != "eu-2" {
				h.t.Fatalf("on %q: %+v", on, h.w.state.Catalog.Quarantines())
			}
		}, "another tenant that reads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := crowded(t)
			c.edit(h)
			on := fleet.EngineName("eu-1")
			if c.name == "a move under way" {
				on = "eu-2"
			}
			o := h.simulate(placement.Change{Kind: placement.Drain, Engine: on}, nil)
			if !slices.ContainsFunc(o.Left, func(l placement.Left) bool {
				return strings.Contains(l.Reason, c.want)
			}) {
				t.Errorf("%+v, want %q", o, c.want)
			}
		})
	}
}

func TestNothingIsSimulatedBeforeTheFirstRevision(t *testing.T) {
	var impossible *placement.ImpossibleError
	if _, err := NewAppliedState().Simulate(placement.Change{}, nil); !errors.As(err, &impossible) {
		t.Error(err)
	}
}
