package placement

import (
	"math/rand/v2"
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
)

// smallFleet has 3 engines and up to 7 environments with up to 12 Applications each. Many have
// hardly any room left.
func smallFleet(r *rand.Rand) Snapshot {
	es := make([]Engine, 3)
	for i := range es {
		es[i] = engine(string(rune('a'+i)), 15+r.IntN(30), 3+r.IntN(6))
	}
	var placed []Served
	f := NewFleet(es)
	for n := range 2 + r.IntN(6) {
		e := Served{Item: item("acme", string(rune('p'+n)), 1+r.IntN(12))}
		p := f.Decide(e.Item, nil)
		if e.Engine = p.Engine; e.Engine == "" {
			continue
		}
		i := f.index(e.Engine)
		f.carry(i, with(f.engines[i].Load, e.Item))
		placed = append(placed, e)
	}
	return snapshot(es, placed)
}

// assignments calls each with every way to give the environments engines.
func assignments(s Snapshot, each func(engines []int)) {
	of := make([]int, len(s.Environments))
	var next func(int)
	next = func(n int) {
		if n == len(of) {
			each(of)
			return
		}
		for i := range s.Engines {
			of[n] = i
			next(n + 1)
		}
	}
	next(0)
}

// result is the moves of an assignment, and the loads that it leads to.
type result struct {
	moves int
	loads [3]fleet.EngineLoad
}

// fullest returns how full the fullest engine is, of all but one; -1: of all.
func (r result) fullest(s Snapshot, but int) (most float64) {
	for i, e := range s.Engines {
		if i != but {
			most = max(most, fill(r.loads[i], e.Spec.Capacity))
		}
	}
	return most
}

func (r result) fits(s Snapshot, but int) bool {
	for i, e := range s.Engines {
		if i != but && (r.loads[i].Applications > e.Spec.Capacity.Applications ||
			r.loads[i].Environments > e.Spec.Capacity.Environments) {
			return false
		}
	}
	return true
}

func resultOf(s Snapshot, engines []int) (r result) {
	for n, i := range engines {
		e := &s.Environments[n]
		if s.Engines[i].Name != e.Engine {
			r.moves++
		}
		r.loads[i] = with(r.loads[i], e.Item)
	}
	return r
}

func outcomeOf(s Snapshot, o Outcome) []int {
	out := make([]int, len(s.Environments))
	for n, e := range s.Environments {
		on := e.Engine
		for _, m := range o.Moves {
			if m.Environment == e.Environment {
				on = m.To
			}
		}
		out[n] = slices.IndexFunc(s.Engines, func(e Engine) bool { return e.Name == on })
	}
	return out
}

// TestADrainIsNearTheOptimum compares a drain with the best of all assignments that move nothing
// but the environments of the engine: as few as possible stay, and the fullest other engine is as
// empty as possible.
func TestADrainIsNearTheOptimum(t *testing.T) {
	cases, stayed, must, ours, best := 0, 0, 0, 0.0, 0.0
	for seed := range uint64(300) {
		s := smallFleet(rand.New(rand.NewPCG(seed, 21)))
		o := simulate(t, s, Change{Kind: Drain, Engine: "a"})
		if len(o.Moves)+len(o.Left) == 0 {
			continue
		}
		cases++
		least, lowest := len(s.Environments)+1, 0.0
		assignments(s, func(engines []int) {
			for n, i := range engines {
				if on := s.Environments[n].Engine; on != "a" && on != s.Engines[i].Name {
					return
				}
			}
			r := resultOf(s, engines)
			if !r.fits(s, 0) {
				return
			}
			left := r.loads[0].Environments
			if high := r.fullest(s, 0); left < least || left == least && high < lowest {
				least, lowest = left, high
			}
		})
		stayed, must = stayed+len(o.Left), must+least
		if len(o.Left) == least {
			r := resultOf(s, outcomeOf(s, o))
			ours, best = ours+r.fullest(s, 0), best+lowest
		}
	}
	t.Logf("%d drains: %d environments stay, %d must; the fullest engine is %.2f times as full as in "+
		"the optimum", cases, stayed, must, ours/best)
	if cases < 150 || must == 0 || stayed > must+must/2 || ours > 1.25*best {
		t.Errorf("%d drains: %d stay, %d must; %.2f", cases, stayed, must, ours/best)
	}
}

// TestAJoinMakesHardlyMoreMovesThanTheOptimum compares a join with all assignments after which the
// new engine is at least as full as after the join and the fullest is no fuller.
func TestAJoinMakesHardlyMoreMovesThanTheOptimum(t *testing.T) {
	cases, ours, fewest := 0, 0, 0
	for seed := range uint64(300) {
		s := smallFleet(rand.New(rand.NewPCG(seed, 22)))
		for i := range s.Environments { // the third engine joins
			if e := &s.Environments[i]; e.Engine == "c" {
				e.Engine = s.Engines[i%2].Name
			}
		}
		s.Engines[2].Load = fleet.EngineLoad{}
		s = snapshot(clean(s.Engines), s.Environments)
		o := simulate(t, s, Change{Kind: Join, Engine: "c"})
		if len(o.Moves) == 0 {
			continue
		}
		cases++
		after := resultOf(s, outcomeOf(s, o))
		least := len(s.Environments)
		assignments(s, func(engines []int) {
			r := resultOf(s, engines)
			capacity := s.Engines[2].Spec.Capacity
			if r.moves < least && r.fits(s, -1) &&
				fill(r.loads[2], capacity) >= fill(after.loads[2], capacity) &&
				r.fullest(s, -1) <= after.fullest(s, -1) {
				least = r.moves
			}
		})
		ours, fewest = ours+len(o.Moves), fewest+least
	}
	t.Logf("%d joins: %d moves, at least %d", cases, ours, fewest)
	if cases < 150 || float64(ours) > 1.1*float64(fewest) {
		t.Errorf("%d joins: %d moves, at least %d", cases, ours, fewest)
	}
}

func clean(engines []Engine) []Engine {
	for i := range engines {
		engines[i].Load = fleet.EngineLoad{}
	}
	return engines
}
