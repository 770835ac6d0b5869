package plan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/drain"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/diff"
)

func request(m mirror.MoveRequest) func(*Request) {
	return func(r *Request) {
		m.Environment = acmeProd
		r.Moves = map[fleet.SliceID]mirror.MoveRequest{m.ID(): m}
	}
}

// withDeployments is prod with deployments app-0 to app-(n-1) and engines of a capacity.
func withDeployments(n, capacity int) tree {
	files := small().without("tenants/acme/deployments", "tenants/acme/environments/staging.yaml").
		with("fleet/fleet.yaml", fleetFile(loose))
	for _, e := range []string{"eu-1", "eu-2", "eu-3"} {
		files = files.with("fleet/engines/"+e+".yaml", sized(e, capacity))
	}
	for i := range n {
		files = files.with(appFile(i))
	}
	return files
}

func appFile(i int) (path, text string) {
	name := fmt.Sprintf("app-%d", i)
	return "tenants/acme/deployments/" + name + ".yaml",
		deploymentFile(name, "acme/checkout", "environments: [prod]", "")
}

// checkOwners checks that the slices of prod are a partition, and that each Application has a
// wanted row on the engine of the slice that holds it, and on no other one.
func (h *house) checkOwners() {
	h.t.Helper()
	s := h.w.state
	var all []fleet.Slice
	for id := range s.Placements.Base() {
		if id.In() == acmeProd {
			all = append(all, id.Slice)
		}
	}
	if !fleet.Partition(all) {
		h.t.Fatalf("the placed slices are no partition: %q", all)
	}
	for _, dep := range s.Catalog.DeploymentsIn(acmeProd) {
		app := applied.ApplicationID(dep, acmeProd)
		owner, _ := s.PlacementOf(app)
		for _, e := range s.Catalog.Engines() {
			r, exists := h.rows[applied.ApplicationKey(e, app)]
			if wanted := exists && !r.Unwanted; wanted != (e == owner.Engine) {
				h.t.Fatalf("%s is on engine %q, and has a wanted row on %s: %v", app,
					owner.Engine, e, wanted)
			}
		}
	}
}

func TestASplitMovesTheSecondHalfAndAJoinMakesTheEnvironmentWhole(t *testing.T) {
	h := newHouse(t)
	h.apply(withDeployments(12, 100))
	on, other := h.others()
	before := h.desired()
	p := h.again(request(mirror.MoveRequest{Split: true, To: other}))
	if len(p.Refused) > 0 || len(p.Begun) != 1 || !p.Begun[0].Split || p.Begun[0].From != on {
		t.Fatalf("%+v %v", p.Begun, p.Refused)
	}
	moving := len(p.Begun[0].Applications)
	if moving == 0 || moving == 12 {
		t.Fatalf("%d of 12 Applications move", moving)
	}
	for _, app := range p.Begun[0].Applications {
		if !fleet.Slice("1").Holds(app.Deployment) {
			t.Errorf("%s moves, and slice 1 does not hold it", app)
		}
	}
	h.checkOwners()
	checkState(t, h)
	h.restart()
	if p := h.again(request(mirror.MoveRequest{To: other})); !strings.Contains(
		p.Refused[wholeProd], "is split into slices 0, 1") {
		t.Errorf("%v", p.Refused)
	}
	h.work()
	checkState(t, h)
	compareWithScratch(t, h)
	for _, c := range []struct {
		engine fleet.EngineName
		slice  fleet.Slice
	}{{on, "0"}, {other, "1"}} {
		cluster := h.rows[applied.ClusterKey(c.engine, acmeProd)]
		if body := string(cluster.Manifest.Body); !strings.Contains(body,
			fmt.Sprintf(`"Slices":["%s"]`, c.slice)) {
			t.Errorf("the Cluster on %s: %s", c.engine, body)
		}
	}
	if p := h.again(); !p.Empty() {
		t.Errorf("again: %s", actions(p))
	}
	p = h.again(request(mirror.MoveRequest{Slice: "1", To: on}))
	if len(p.Refused) > 0 {
		t.Fatal(p.Refused)
	}
	h.work()
	h.checkOwners()
	checkState(t, h)
	if pl, _ := h.w.state.Placements.Get(wholeProd); pl.Engine != on {
		t.Errorf("it is not joined: %+v", h.w.state.Placements.Base())
	}
	for k, hash := range before {
		if h.desired()[k] != hash {
			t.Errorf("%v differs from before the split", k)
		}
	}
	if len(h.desired()) != len(before) {
		t.Errorf("%d rows, %d before", len(h.desired()), len(before))
	}
}

func TestARefusedSplitLeavesTheEnvironmentAsItWas(t *testing.T) {
	for _, c := range []struct {
		name, want string
		edit       func(tree) tree
		request    mirror.MoveRequest
	}{
		{"too small an engine", "is too small", func(f tree) tree {
			return f.with("fleet/engines/eu-3.yaml", sized("eu-3", 1))
		}, mirror.MoveRequest{To: "eu-3"}},
		{"a wave", "is in wave 2 (tenants/acme/deployments/app-1.yaml)", func(f tree) tree {
			path, text := appFile(1)
			return f.with(path, text+"  wave: 2\n")
		}, mirror.MoveRequest{To: "eu-3"}},
		{"an empty half", "would have no Application", func(f tree) tree {
			return f.without("tenants/acme/deployments").with(appFile(1))
		}, mirror.MoveRequest{To: "eu-3"}},
		{"a slice that is none", "is not split", func(f tree) tree { return f },
			mirror.MoveRequest{Slice: "01", To: "eu-3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			// the environment goes to eu-1 or eu-2: eu-3 is cordoned at first
			files := c.edit(withDeployments(12, 100))
			h.apply(files.without("fleet/engines/eu-3.yaml"))
			h.apply(files)
			c.request.Split = true
			p := h.again(request(c.request))
			var why string
			for _, why = range p.Refused {
			}
			if !strings.Contains(why, c.want) || !p.Empty() {
				t.Errorf("refused: %q\n%s %v", why, actions(p), p.Placements)
			}
			checkState(t, h)
		})
	}
}

func TestALargeEnvironmentIsPlacedInSlicesIfTheFleetAllowsIt(t *testing.T) {
	h := newHouse(t)
	files := withDeployments(12, 8)
	if p := h.apply(files); p.Placements[0].Engine != "" {
		t.Fatalf("%+v", p.Placements)
	}
	h.restart()
	files = files.with("fleet/fleet.yaml", fleetFile(loose+"  placement: {slices: Allowed}\n"))
	p := h.apply(files)
	engines := map[fleet.EngineName]bool{}
	for _, pl := range h.w.state.Placements.Base() {
		engines[pl.Engine] = true
	}
	if len(engines) < 2 || engines[""] {
		t.Fatalf("%+v", p.Placements)
	}
	h.checkOwners()
	checkState(t, h)
	compareWithScratch(t, h)
	if p := h.again(); !p.Empty() {
		t.Errorf("again: %s", actions(p))
	}
}

// TestEachApplicationHasOneOwner splits, joins, moves and undoes moves at random while deployments
// come and go, engines drain and replicas end.
func TestEachApplicationHasOneOwner(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 13))
			h := newHouse(t)
			files, next, begun := withDeployments(12, 100), 12, 0
			h.apply(files)
			for range 60 {
				engine := fleet.EngineName(fmt.Sprintf("eu-%d", 1+r.IntN(3)))
				ids := h.w.state.SlicesOf(acmeProd)
				id := ids[r.IntN(len(ids))]
				pl, _ := h.w.state.Placements.Get(id)
				switch r.IntN(8) {
				case 0, 1:
					begun += len(h.again(request(mirror.MoveRequest{Slice: id.Slice, Split: true,
						To: engine})).Begun)
				case 2, 3:
					begun += len(h.again(request(mirror.MoveRequest{Slice: id.Slice,
						To: engine})).Begun)
				case 4:
					if pl.From != "" {
						begun += len(h.again(request(mirror.MoveRequest{Slice: id.Slice, Undo: true,
							To: pl.From})).Begun)
					}
				case 5:
					files = files.with(appFile(next))
					next++
					h.apply(files)
				case 6:
					files = files.without(fmt.Sprintf("tenants/acme/deployments/app-%d.yaml",
						r.IntN(next)))
					h.apply(files)
				case 7:
					h.restart()
				}
				if r.IntN(3) > 0 {
					h.work()
				}
				h.checkOwners()
				checkState(t, h)
			}
			h.work()
			h.checkOwners()
			compareWithScratch(t, h)
			if begun == 0 {
				t.Error("no move began")
			}
		})
	}
}

func TestADividedEnvironmentTakesNoWave(t *testing.T) {
	h := newHouse(t)
	h.apply(withDeployments(12, 100))
	_, other := h.others()
	h.again(request(mirror.MoveRequest{Split: true, To: other}))
	h.work()
	path, text := appFile(3)
	p := h.apply(h.files.with(path, text+"  wave: 1\n"))
	if len(p.Problems) != 1 || p.Problems[0].Code != diff.CodeWave || p.Problems[0].Path != path ||
		!strings.Contains(p.Problems[0].Fix, "argosy join environment acme/prod") {
		t.Errorf("%+v", p.Problems)
	}
	path, text = appFile(20)
	selected := strings.Replace(text, "environments: [prod]",
		"environmentSelector: {matchLabels: {tier: waves}}", 1)
	h.apply(h.files.with(path, selected+"  wave: 1\n"))
	p = h.apply(h.files.edit("tenants/acme/environments/prod.yaml", "tier: prod", "tier: waves"))
	if len(p.Problems) != 1 || p.Problems[0].Code != diff.CodeWave || p.Problems[0].Path !=
		"tenants/acme/environments/prod.yaml" {
		t.Errorf("%+v", p.Problems)
	}
	h.checkOwners()
}

const allowed = loose + "  placement: {slices: Allowed}\n"

func TestADrainSplitsWhatFitsOnNoOtherEngine(t *testing.T) {
	h := newHouse(t)
	files := withDeployments(12, 100).without("fleet/engines").
		with("fleet/engines/eu-1.yaml", sized("eu-1", 100))
	h.apply(files)
	files = files.with("fleet/fleet.yaml", fleetFile(allowed)).
		with("fleet/engines/eu-1.yaml", sized("eu-1", 100)+"  state: Draining\n")
	for _, e := range []string{"eu-2", "eu-3"} {
		files = files.with("fleet/engines/"+e+".yaml", sized(e, 8))
	}
	h.apply(files)
	change := placement.Change{Kind: placement.Drain, Engine: "eu-1"}
	for range 5 {
		out, err := h.w.Simulate(change, nil)
		if err != nil {
			t.Fatal(err)
		}
		next := drain.Next(out, mirror.DrainFacts{}, 1)
		if len(next) == 0 {
			break
		}
		if p := h.again(request(next[0])); len(p.Refused) > 0 {
			t.Fatalf("%+v: %v", next[0], p.Refused)
		}
		h.work()
		h.checkOwners()
		checkState(t, h)
	}
	if on := h.w.SlicesOn("eu-1"); len(on) > 0 {
		t.Errorf("eu-1 still serves %v", on)
	}
}

func TestAnEvacuationSplitsWhatFitsOnNoOtherEngine(t *testing.T) {
	for _, c := range []struct {
		name, guards string
		on, slices   int // placements that stay, and all
	}{{"Allowed", allowed, 0, 2}, {"Forbidden", loose, 1, 1}} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			files := withDeployments(12, 100).without("fleet/engines").
				with("fleet/engines/eu-1.yaml", sized("eu-1", 100)).
				with("fleet/fleet.yaml", fleetFile(c.guards))
			h.apply(files)
			for _, e := range []string{"eu-2", "eu-3"} {
				files = files.with("fleet/engines/"+e+".yaml", sized(e, 8))
			}
			h.apply(files)
			p := h.again(func(r *Request) {
				r.Evacuated = []fleet.EngineName{"eu-1"}
				r.Moves = map[fleet.SliceID]mirror.MoveRequest{
					wholeProd: {Environment: acmeProd, Evacuates: true}}
			})
			if on := h.w.SlicesOn("eu-1"); len(on) != c.on ||
				len(h.w.state.SlicesOf(acmeProd)) != c.slices {
				t.Errorf("%v stay on eu-1 of %v; refused %v", on,
					h.w.state.SlicesOf(acmeProd), p.Refused)
			}
			moved := 0
			for _, m := range p.Begun {
				moved += len(m.Applications)
			}
			if c.slices > 1 && moved != 12 {
				t.Errorf("%d of 12 Applications are taken over: %+v", moved, p.Begun)
			}
			h.checkOwners()
			for engine, load := range h.w.state.Loads.Base() {
				if engine != "eu-1" && load.Applications > 8 {
					t.Errorf("engine %s for 8 Applications has %d", engine, load.Applications)
				}
			}
		})
	}
}
