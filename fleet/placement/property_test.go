package placement

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// TestEveryDecisionIsThatOfTheStraightforwardRules places random items on random fleets, changing
// loads in between, and requires exactly the reference's placements: engine, reason, every
// alternative, its score and its text. It counts the cases that the fleets produce, so that every
// compared case is known to occur.
func TestEveryDecisionIsThatOfTheStraightforwardRules(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(400) {
		w := generator{rand.New(rand.NewPCG(seed, 1))}
		es := w.engines()
		f := NewFleet(es)
		for n := range 40 {
			it, conflicts := w.item(n), w.conflicts()
			want := plainDecide(it, es, conflicts)
			if got := f.Decide(it, conflicts); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, item %d, of a Fleet:\n%+v\nwant\n%+v", seed, n, got, want)
			}
			if got := Decide(it, es, conflicts); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, item %d:\n%+v\nwant\n%+v", seed, n, got, want)
			}
			countPhrases(counts, want)
			if i := slices.IndexFunc(es, func(e Engine) bool {
				return e.Name == want.Engine
			}); i >= 0 {
				es[i].Load.Applications += it.Applications
				es[i].Load.Environments++
				f.Carry(want.Engine, es[i].Load)
			}
			if len(es) > 0 && w.IntN(10) == 0 {
				i := w.IntN(len(es))
				es[i].Load = w.load(es[i].Spec.Capacity)
				f.Carry(es[i].Name, es[i].Load)
			}
		}
	}
	for _, s := range occurrences {
		if counts[s] < 20 {
			t.Errorf("%q occurs %d times: %v", s, counts[s], counts)
		}
	}
}

// TestAssignMakesTheSameChoices compares whole fleets, and their final loads.
func TestAssignMakesTheSameChoices(t *testing.T) {
	for seed := range uint64(400) {
		w := generator{rand.New(rand.NewPCG(seed, 2))}
		es := w.engines()
		in := make([]Item, 200)
		for i := range in {
			in[i] = w.item(i)
		}
		same := slices.Clone(es)
		if got, want := Assign(in, es), plainAssign(in, same); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
		if !reflect.DeepEqual(es, same) {
			t.Fatalf("seed %d: the loads are %+v, want %+v", seed, es, same)
		}
	}
}

// occurrences lists the cases that random fleets must produce: phrases of a placement, and equal
// printed scores.
var occurrences = []string{
	"no engine is declared", "no engine may serve it", "other reasons", "the only engine",
	"the least loaded of", "above it)", "the best score of",
	"is in region", "may only be served", "dedicated to other tenants", "is shared",
	"engineSelector", "the taint", "is cordoned", "is draining", "declares no capacity",
	"has no room for another environment", "has no room for 60 applications", "a conflict",
	"is too small for 60 applications: its capacity is", "it is too large for every engine",
	"is too small for 60 applications, with a capacity of at most",
	", above 1.25 times the average", "a tie",
}

// Tenants read the reason; only the platform sees the alternatives.
func TestReasonContainsNoLoadAndNoOtherEngine(t *testing.T) {
	load := regexp.MustCompile(`\d+ of \d+|e-\d+|average`)
	for seed := range uint64(400) {
		w := generator{rand.New(rand.NewPCG(seed, 3))}
		es := w.engines()
		for i := range 5 {
			p := Decide(w.item(i), es, nil)
			if figure := load.FindString(p.Reason); figure != "" {
				t.Fatalf("seed %d: the reason %q contains %q", seed, p.Reason, figure)
			}
			if len(p.Alternatives) != len(es) {
				t.Fatalf("seed %d: the platform gets %d of %d engines", seed,
					len(p.Alternatives), len(es))
			}
		}
	}
}

// countPhrases counts the phrases of a placement.
func countPhrases(counts map[string]int, p fleet.Placement) {
	whole := p.Reason
	for i, a := range p.Alternatives {
		whole += "\n" + a.Reason
		if i < 2 || !a.Eligible {
			continue
		}
		if a.Score == p.Alternatives[i-1].Score {
			whole += "\na tie"
		}
	}
	for _, s := range occurrences {
		if strings.Contains(whole, s) {
			counts[s]++
		}
	}
}

// generator generates engines and items with few regions, tenants, labels and taints, so that they
// match.
type generator struct{ *rand.Rand }

func (w generator) engines() []Engine {
	es := make([]Engine, []int{0, 1, 2, 3, 8, 20, 60, 60}[w.IntN(8)])
	plain, alike, empty, size := w.IntN(3) == 0, w.IntN(2) == 0, w.IntN(2) == 0, w.capacity()
	for i := range es {
		e := &es[i]
		e.Name = fleet.EngineName(fmt.Sprintf("e-%d", i))
		e.Spec.Region, e.Spec.Capacity = "eu", size
		if !alike {
			e.Spec.Capacity = w.capacity()
		}
		if !plain {
			w.restrict(e)
		}
		if !empty {
			e.Load = w.load(e.Spec.Capacity)
		}
	}
	w.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
	return es
}

// capacity is anything from none to more than needed.
func (w generator) capacity() fleet.Capacity {
	n := []int{0, 2, 2, 5, 30, 1_000, 1_000_000, 1 << 55}[w.IntN(8)]
	return fleet.Capacity{Applications: n, Environments: []int{n, 20, 10_000}[w.IntN(3)]}
}

// load is mostly within the capacity, as placement makes it, and sometimes beyond, as a person can
// make it.
func (w generator) load(c fleet.Capacity) fleet.EngineLoad {
	switch w.IntN(3) {
	case 0:
		return fleet.EngineLoad{}
	case 1:
		return fleet.EngineLoad{Applications: w.IntN(40), Environments: w.IntN(12)}
	}
	return fleet.EngineLoad{Applications: c.Applications / 4 * w.IntN(6),
		Environments: c.Environments / 4 * w.IntN(6)}
}

func (w generator) restrict(e *Engine) {
	e.Spec.Region = []string{"eu", "eu", "eu", "us"}[w.IntN(4)]
	e.Labels = map[string]string{"tier": []string{"gold", "silver"}[w.IntN(2)]}
	switch w.IntN(8) {
	case 0:
		e.Spec.Taints = []fleet.Taint{{Key: "gpu", Value: "a100"}}
	case 1:
		e.Spec.DedicatedTo = []fleet.TenantName{w.tenant()}
	case 2:
		e.Spec.State = []fleet.EngineState{fleet.EngineCordoned, fleet.EngineDraining,
			fleet.EngineActive}[w.IntN(3)]
	}
}

func (w generator) tenant() fleet.TenantName {
	return fleet.TenantName(fmt.Sprintf("t%d", w.IntN(4)))
}

// item belongs to one of four tenants. A tenant's constraints may change from item to item, as they
// do between two plans.
func (w generator) item(n int) Item {
	it := item(string(w.tenant()), fmt.Sprintf("env-%d", n), []int{0, 1, 1, 1, 4, 60}[w.IntN(6)])
	if w.IntN(10) == 0 {
		it.Region = "us"
	}
	c := &it.Constraints
	switch w.IntN(10) {
	case 0:
		c.Regions = []string{"us", "asia"}[w.IntN(2):]
	case 1:
		c.Dedicated = true
	case 2:
		c.EngineSelector = &fleet.LabelSelector{
			MatchLabels: map[string]string{"tier": []string{"gold", "silver"}[w.IntN(2)]}}
	case 3:
		c.EngineSelector = &fleet.LabelSelector{}
	case 4, 5:
		c.Tolerations = []fleet.Taint{{Key: "gpu", Value: "a100"}}
	}
	return it
}

// conflicts rejects some engines, or is nil.
func (w generator) conflicts() func(fleet.EngineName) string {
	if w.IntN(3) > 0 {
		return nil
	}
	of := uint64(1 + w.IntN(6))
	return func(e fleet.EngineName) string {
		if hash64(string(e))%of == 0 {
			return "a conflict"
		}
		return ""
	}
}
