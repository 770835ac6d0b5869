package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func engine(name string, applications, environments int) Engine {
	return Engine{Name: fleet.EngineName(name), Spec: fleet.EngineSpec{
		Region: "eu", Capacity: fleet.Capacity{Applications: applications,
			Environments: environments}}}
}

func engines(n int) []Engine {
	var out []Engine
	for i := range n {
		out = append(out, engine(fmt.Sprintf("eu-%d", i), 1_000_000, 1_000_000))
	}
	return out
}

func item(tenant, name string, applications int) Item {
	return Item{Environment: fleet.EnvironmentID{Tenant: fleet.TenantName(tenant),
		Name: fleet.EnvironmentName(name)}, Region: "eu", Applications: applications}
}

func items(n int) []Item {
	out := make([]Item, n)
	for i := range out {
		out[i] = item(fmt.Sprintf("t%d", i/20), fmt.Sprintf("env-%d", i%20), 1)
	}
	return out
}

func TestConstraintsMakeAnEngineIneligible(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Item, *Engine)
		why  string
		kept bool // placed items are passed to it too
	}{
		"another region": {func(_ *Item, e *Engine) { e.Spec.Region = "us" },
			"in region us, the environment in eu", true},
		"a region not allowed": {
			func(i *Item, _ *Engine) {
				i.Constraints.Regions = []string{"us", "asia"}
			}, "only be served in us, asia", true},
		"another's engine": {
			func(_ *Item, e *Engine) {
				e.Spec.DedicatedTo = []fleet.TenantName{"globex"}
			}, "dedicated to other tenants", true},
		"a shared engine, alone": {func(i *Item, _ *Engine) { i.Constraints.Alone = true },
			"is shared", true},
		"an engine for two, alone": {func(i *Item, e *Engine) {
			i.Constraints.Alone, e.Spec.DedicatedTo = true, []fleet.TenantName{"acme", "globex"}
		}, "dedicated to other tenants too", true},
		"a shared engine": {func(i *Item, _ *Engine) { i.Constraints.Dedicated = true },
			"is shared", true},
		"other labels": {func(i *Item, e *Engine) {
			e.Labels = map[string]string{"tier": "shared"}
			i.Constraints.EngineSelector = &fleet.LabelSelector{
				MatchLabels: map[string]string{"tier": "gold"}}
		}, "tier=gold", true},
		"an empty selector": {
			func(i *Item, _ *Engine) {
				i.Constraints.EngineSelector = &fleet.LabelSelector{}
			}, "engineSelector", true},
		"a taint": {
			func(_ *Item, e *Engine) {
				e.Spec.Taints = []fleet.Taint{{Key: "gpu", Value: "a100"}}
			}, "gpu=a100", true},
		"a taint of another value": {func(i *Item, e *Engine) {
			e.Spec.Taints, i.Constraints.Tolerations = []fleet.Taint{{Key: "gpu", Value: "a100"}},
				[]fleet.Taint{{Key: "gpu"}}
		}, "gpu=a100", true},
		"cordoned": {func(_ *Item, e *Engine) { e.Spec.State = fleet.EngineCordoned },
			"cordoned", false},
		"draining": {func(_ *Item, e *Engine) { e.Spec.State = fleet.EngineDraining },
			"draining", true},
		"no capacity": {func(_ *Item, e *Engine) { e.Spec.Capacity = fleet.Capacity{} },
			"declares no capacity", false},
		"too small": {func(_ *Item, e *Engine) { e.Spec.Capacity.Applications = 2 },
			"is too small for 3 applications", false},
		"full of applications": {func(_ *Item, e *Engine) { e.Load.Applications = 98 },
			"no room for 3 applications: 98 of 100", false},
		"full of environments": {func(_ *Item, e *Engine) { e.Load.Environments = 10 },
			"no room for another environment: 10 of 10", false},
	} {
		t.Run(name, func(t *testing.T) {
			i, e := item("acme", "prod", 3), engine("eu-1", 100, 10)
			c.edit(&i, &e)
			p := Decide(i, []Engine{e}, nil)
			if p.Engine != "" || strings.Contains(p.Reason, "eu-1") || !strings.Contains(c.why,
				"no room") && !strings.Contains(p.Reason, c.why) ||
				!strings.Contains(p.Alternatives[0].Reason, c.why) || p.Alternatives[0].Eligible ||
				p.Alternatives[0].Score != 0 {
				t.Errorf("%+v", p)
			}
			if got := Verify(i, e); (got != "") != c.kept || c.kept &&
				!strings.Contains(got, c.why) {
				t.Errorf("of what is placed: %q", got)
			}
		})
	}
}

func TestWhatIsAllowedIsTaken(t *testing.T) {
	for name, edit := range map[string]func(*Item, *Engine){
		"a region among those allowed": func(i *Item, _ *Engine) {
			i.Constraints.Regions = []string{
				"us", "eu"}
		},
		"the tenant's own engine": func(i *Item, e *Engine) {
			i.Constraints.Dedicated, e.Spec.DedicatedTo = true, []fleet.TenantName{"globex", "acme"}
		},
		"an engine that is the tenant's alone": func(i *Item, e *Engine) {
			i.Constraints.Alone, e.Spec.DedicatedTo = true, []fleet.TenantName{"acme"}
		},
		"a taint that is tolerated": func(i *Item, e *Engine) {
			e.Spec.Taints, i.Constraints.Tolerations = []fleet.Taint{{Key: "gpu"}}, []fleet.Taint{
				{Key: "gpu"}}
		},
		"labels that match": func(i *Item, e *Engine) {
			e.Labels, i.Constraints.EngineSelector = map[string]string{"tier": "gold", "x": "y"},
				&fleet.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
		},
		"the last place": func(_ *Item, e *Engine) {
			e.Load = fleet.EngineLoad{Applications: 97, Environments: 9}
		},
		"active by name": func(_ *Item, e *Engine) { e.Spec.State = fleet.EngineActive },
		"no applications": func(i *Item, e *Engine) {
			i.Applications, e.Load.Applications = 0,
				100
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, e := item("acme", "prod", 3), engine("eu-1", 100, 10)
			edit(&i, &e)
			if p := Decide(i, []Engine{e}, nil); p.Engine != "eu-1" || Verify(i, e) != "" {
				t.Errorf("%+v, %q", p, Verify(i, e))
			}
		})
	}
}

func TestAConflictMakesAnEngineIneligibleAndIsRecorded(t *testing.T) {
	p := Decide(item("acme", "prod", 1), engines(2), func(e fleet.EngineName) string {
		if e == "eu-0" {
			return "reads the same repository"
		}
		return ""
	})
	if p.Engine != "eu-1" || p.Alternatives[1].Reason != "reads the same repository" {
		t.Errorf("%+v", p)
	}
}

func TestADecisionListsEveryEngineBestFirst(t *testing.T) {
	es := append(engines(4), engine("full", 10, 10), engine("far", 10, 10))
	es[4].Load.Environments, es[5].Spec.Region = 10, "us"
	p := Decide(item("acme", "prod", 1), es, nil)
	if p.Alternatives[0].Engine != p.Engine || len(p.Alternatives) != 6 ||
		p.Alternatives[4].Engine != "far" || p.Alternatives[5].Engine != "full" {
		t.Errorf("%+v", p.Alternatives)
	}
	for i := 1; i < 3; i++ {
		if p.Alternatives[i].Score < p.Alternatives[i+1].Score {
			t.Errorf("not by score: %+v", p.Alternatives)
		}
	}
	for range 20 {
		rand.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
		if again := Decide(item("acme", "prod", 1), es, nil); !reflect.DeepEqual(again, p) {
			t.Fatalf("the order of the engines matters: %+v", again)
		}
	}
}

func TestNoEngineIsGivenMoreAboveTheBoundNorAboveItsCapacity(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 20 {
		var es []Engine
		for i := range 2 + r.IntN(8) {
			es = append(es, engine(fmt.Sprintf("e%d", i), 100+r.IntN(2000), 50+r.IntN(400)))
		}
		for i := range 300 {
			it := item(fmt.Sprintf("t%d", r.IntN(30)), fmt.Sprintf("e%d", i), r.IntN(6))
			p := Decide(it, es, nil)
			below := belowTheBound(it, es)
			if len(below) > 0 && !below[p.Engine] {
				t.Fatalf("%s is chosen, though %v are below the bound: %+v", p.Engine, below,
					p.Alternatives)
			}
			for j := range es {
				if es[j].Name != p.Engine {
					continue
				}
				es[j].Load.Applications += it.Applications
				es[j].Load.Environments++
				if c := es[j].Spec.Capacity; es[j].Load.Applications > c.Applications ||
					es[j].Load.Environments > c.Environments {
					t.Fatalf("%s is filled above its capacity: %+v of %+v", p.Engine, es[j].Load, c)
				}
			}
		}
	}
}

// belowTheBound returns the engines with capacity for the item and below 1.25 times the average
// fill, by both measures.
func belowTheBound(it Item, es []Engine) map[fleet.EngineName]bool {
	applications, environments, capacityA, capacityE := it.Applications, 1, 0, 0
	for _, e := range es {
		applications += e.Load.Applications
		environments += e.Load.Environments
		capacityA += e.Spec.Capacity.Applications
		capacityE += e.Spec.Capacity.Environments
	}
	out := map[fleet.EngineName]bool{}
	for _, e := range es {
		c := e.Spec.Capacity
		fits := e.Load.Applications+it.Applications <= c.Applications &&
			e.Load.Environments < c.Environments
		fillA, fillE := float64(e.Load.Applications)/float64(c.Applications),
			float64(e.Load.Environments)/float64(c.Environments)
		if fits && (it.Applications == 0 || fillA < 1.25*float64(applications)/float64(
			capacityA)-1e-9) && fillE < 1.25*float64(environments)/float64(capacityE)-1e-9 {
			out[e.Name] = true
		}
	}
	return out
}

func TestEqualItemsStayWithinTheBound(t *testing.T) {
	es := engines(7)
	// half as large as the others
	es[0].Spec.Capacity = fleet.Capacity{Applications: 500_000, Environments: 500_000}
	in := items(6_500)
	Assign(in, es)
	for _, e := range es {
		share := float64(e.Spec.Capacity.Applications) / 6_500_000
		if most := math.Ceil(LoadFactor * share * 6_500); float64(e.Load.Applications) > most {
			t.Errorf("%s carries %d, the bound is %.0f", e.Name, e.Load.Applications, most)
		}
	}
}

func TestALargeItemGoesToTheLeastLoadedWhenAllAreAboveTheBound(t *testing.T) {
	es := engines(2)
	es[0].Load = fleet.EngineLoad{Applications: 10, Environments: 90}
	es[1].Load = fleet.EngineLoad{Applications: 90, Environments: 10}
	p := Decide(item("acme", "prod", 0), es, nil)
	if p.Engine != "eu-1" || !strings.Contains(p.Reason, "above it") {
		t.Errorf("%+v", p)
	}
	p = Decide(item("acme", "prod", 1), es, nil)
	if p.Engine == "" || !strings.Contains(p.Reason, "least loaded of 2") {
		t.Errorf("%+v", p)
	}
}

func TestNamesAreKeptApart(t *testing.T) {
	if itemHash(fleet.SliceID{Tenant: "a", Environment: "b-c"}) == itemHash(fleet.SliceID{
		Tenant: "a-b", Environment: "c"}) {
		t.Error("two identities share a hash")
	}
}

// moved returns the share of items whose engine differs.
func moved(a, b []fleet.EngineName) float64 {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return float64(n) / float64(len(a))
}

// TestAResizeMovesLittle compares how many environments change their engine when one is added to
// ten and everything is placed from scratch: here, with a hash modulo the number of engines, and on
// a ring with the same load bound. A running fleet moves none, because placements are sticky.
func TestAResizeMovesLittle(t *testing.T) {
	in := items(10_000)
	here := moved(Assign(in, engines(10)), Assign(in, engines(11)))
	modulo := moved(byModulo(in, 10), byModulo(in, 11))
	ring := moved(byRing(in, 10), byRing(in, 11))
	t.Logf("10 to 11 engines: %.1f %% here, %.1f %% modulo, %.1f %% bounded ring; ideal %.1f %%",
		100*here, 100*modulo, 100*ring, 100.0/11)
	if here > modulo/5 || here > ring || here > 1.6/11 {
		t.Errorf("a resize moves %.3f", here)
	}
}

func hash64(s string) uint64 { return mix(fnv(fnvOffset, s)) }

func byModulo(in []Item, n int) []fleet.EngineName {
	out := make([]fleet.EngineName, len(in))
	for i, it := range in {
		out[i] = fleet.EngineName(fmt.Sprint(hash64(it.Environment.String()) % uint64(n)))
	}
	return out
}

// byRing is consistent hashing with bounded loads on a ring of a thousand points per engine.
func byRing(in []Item, n int) []fleet.EngineName {
	type point struct {
		at uint64
		e  int
	}
	var ring []point
	for e := range n {
		for v := range 1000 {
			ring = append(ring, point{hash64(fmt.Sprintf("eu-%d#%d", e, v)), e})
		}
	}
	sort.Slice(ring, func(i, j int) bool { return ring[i].at < ring[j].at })
	loads := make([]int, n)
	out := make([]fleet.EngineName, len(in))
	for i, it := range in {
		h := hash64(it.Environment.String())
		at := sort.Search(len(ring), func(i int) bool { return ring[i].at >= h })
		for ; ; at++ {
			e := ring[at%len(ring)].e
			if float64(loads[e]+1) <= math.Ceil(LoadFactor*float64(i+1)/float64(n)) {
				loads[e]++
				out[i] = fleet.EngineName(fmt.Sprintf("eu-%d", e))
				break
			}
		}
	}
	return out
}

func TestARemovedEngineMovesOnlyItsOwn(t *testing.T) {
	in := items(5_000)
	all, without := engines(6), engines(6)
	before := Assign(in, all)
	after := Assign(in, slices.Delete(without, 2, 3))
	strangers := 0
	for i := range in {
		if before[i] != "eu-2" && before[i] != after[i] {
			strangers++
		}
	}
	if share := float64(strangers) / float64(len(in)); share > 0.05 {
		t.Errorf("%.1f %% move though their engine stays", 100*share)
	}
}

func TestAnEnvironmentThatIsTooLargeForEveryEngineIsExplained(t *testing.T) {
	elsewhere := func(e Engine) Engine {
		e.Spec.Region = "us"
		return e
	}
	in := func(e Engine, state fleet.EngineState) Engine {
		e.Spec.State = state
		return e
	}
	busy := engine("busy", 100, 10)
	busy.Load = fleet.EngineLoad{Applications: 90, Environments: 9}
	crowded := engine("crowded", 100, 10)
	crowded.Load.Environments = 10
	sizes := func(engines, largest int) *fleet.TooLarge {
		return &fleet.TooLarge{Applications: 60, Engines: engines, LargestCapacity: largest}
	}
	for name, c := range map[string]struct {
		engines []Engine
		want    *fleet.TooLarge
		reason  string
	}{
		"for two engines, with a larger one elsewhere": {
			[]Engine{engine("a", 30, 10), engine("b", 59, 10), elsewhere(engine("c", 100, 10))},
			sizes(2, 59), "it is too large for every engine that may take it: each of 2 is too " +
				"small for 60 applications, with a capacity of at most 59; one is in region us, " +
				"the environment in eu"},
		"while the large one drains": {
			[]Engine{engine("a", 30, 10), in(engine("b", 100, 10), fleet.EngineDraining)},
			sizes(1, 30), "it is too large for every engine that may take it: one is too small " +
				"for 60 applications, with a capacity of at most 30; one is draining and takes " +
				"nothing new"},
		"before the many other reasons": {
			[]Engine{elsewhere(engine("a", 9, 9)), elsewhere(engine("b", 9, 9)), engine("c", 9, 9)},
			sizes(1, 9), "it is too large for every engine that may take it: one is too small " +
				"for 60 applications, with a capacity of at most 9; each of 2 is in region us, the " +
				"environment in eu"},
		"not if a cordoned engine is large enough": {
			[]Engine{engine("a", 30, 10), in(engine("b", 60, 10), fleet.EngineCordoned)}, nil,
			"no engine may serve it: one is cordoned and takes nothing new; one is too small for " +
				"60 applications, with a capacity of at most 30"},
		"not if the large one has no room": {[]Engine{engine("a", 30, 10), busy}, nil,
			"no engine may serve it: one has no room for 60 applications; one is too small for 60 " +
				"applications, with a capacity of at most 30"},
		"not if the large one has too many environments": {
			[]Engine{engine("a", 9, 9), crowded}, nil,
			"no engine may serve it: one has no room for another environment; one is too small " +
				"for 60 applications, with a capacity of at most 9"},
		"not if no engine may serve it": {[]Engine{elsewhere(engine("a", 9, 9))}, nil,
			"no engine may serve it: one is in region us, the environment in eu"},
		"not if one takes it": {[]Engine{engine("a", 9, 9), engine("b", 60, 9)}, nil,
			"the only engine that may serve it"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(item("acme", "prod", 60), c.engines, nil)
			if !reflect.DeepEqual(p.TooLarge, c.want) || p.Reason != c.reason {
				t.Errorf("%+v: %s\nwant %+v: %s", p.TooLarge, p.Reason, c.want, c.reason)
			}
		})
	}
}

// A tenant with more Applications than any engine has capacity gets as many engines as it needs, of
// those that its constraints permit, and none is filled above its capacity.
func TestATenantThatIsTooLargeForOneEngineIsServedBySeveral(t *testing.T) {
	es := []Engine{engine("eu-1", 400, 50), engine("eu-2", 400, 50), engine("eu-3", 400, 50),
		engine("globex-1", 400, 50), engine("us-1", 4000, 500)}
	es[3].Spec.DedicatedTo, es[4].Spec.Region = []fleet.TenantName{"globex"}, "us"
	var in []Item
	for i := range 25 {
		in = append(in, item("acme", fmt.Sprintf("env-%d", i), 40))
	}
	for i, name := range Assign(in, es) {
		if !slices.Contains([]fleet.EngineName{"eu-1", "eu-2", "eu-3"}, name) {
			t.Errorf("%s is on %q", in[i].Environment, name)
		}
	}
	for _, e := range es[:3] {
		if e.Load.Applications > 400 || e.Load.Applications < 200 {
			t.Errorf("%s has %d of 1000 Applications", e.Name, e.Load.Applications)
		}
	}
}
