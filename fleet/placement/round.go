package placement

import (
	"math"
	"slices"

	"argosy.dev/argosy/fleet"
)

// round evaluates one item against all engines.
type round struct {
	*Fleet
	item  Item
	key   uint64
	class *class
	// engines that satisfy all constraints, full ones included: those that count for the average
	free      []int
	conflicts []string // conflicts, by engine; nil when there are none
	load      fleet.EngineLoad
	capacity  fleet.Capacity
}

func (f *Fleet) hold(item Item, conflicts func(fleet.EngineName) string) round {
	r := round{Fleet: f, item: item, key: itemHash(item.ID()), class: f.class(&item)}
	r.free = r.class.free
	if conflicts != nil {
		r.addConflicts(conflicts)
	}
	for _, i := range r.free {
		e := &f.engines[i]
		r.load.Applications += e.Load.Applications
		r.load.Environments += e.Load.Environments
		r.capacity.Applications += e.Spec.Capacity.Applications
		r.capacity.Environments += e.Spec.Capacity.Environments
	}
	return r
}

// addConflicts excludes the engines with a conflict.
func (r *round) addConflicts(conflicts func(fleet.EngineName) string) {
	for _, i := range r.class.free {
		why := conflicts(r.engines[i].Name)
		if why == "" {
			continue
		}
		if r.conflicts == nil {
			r.conflicts = make([]string, len(r.engines))
		}
		r.conflicts[i] = why
	}
	if r.conflicts != nil {
		r.free = slices.DeleteFunc(slices.Clone(r.free), func(i int) bool {
			return r.conflicts[i] != ""
		})
	}
}

// ineligibility returns why engine i is ineligible for the item.
func (r *round) ineligibility(i int) ineligibility {
	if b := r.class.ineligible[i]; b != free {
		return b
	}
	if r.conflicts != nil && r.conflicts[i] != "" {
		return conflict
	}
	return full(&r.item, &r.engines[i])
}

// choose returns the index of the eligible engine with the highest score below the bound; if all
// are above it, because of a large item, the least loaded one with the item; -1 if none is
// eligible. It tests cheap conditions first: most engines lose by their hash.
func (r *round) choose() int {
	best := -1
	var its uint64
	for _, i := range r.free {
		h := hash(r.key, r.seeds[i])
		if best >= 0 && !r.better(i, h, best, its) {
			continue
		}
		if full(&r.item, &r.engines[i]) == free && r.belowBound(i) {
			best, its = i, h
		}
	}
	if best < 0 {
		return r.least()
	}
	return best
}

func (r *round) least() int {
	least := -1
	var its float64
	for _, i := range r.free {
		if full(&r.item, &r.engines[i]) != free {
			continue
		}
		fill := r.fill(i)
		if least < 0 || fill < its || fill == its && r.better(i, hash(r.key, r.seeds[i]), least,
			hash(r.key, r.seeds[least])) {
			least, its = i, fill
		}
	}
	return least
}

// better compares engines by score, then by name. Of engines of one weight the higher hash scores
// higher, unless the two are so close that their logarithms may be rounded to one.
func (r *round) better(i int, hi uint64, j int, hj uint64) bool {
	wi, wj := r.engines[i].Spec.Capacity.Applications, r.engines[j].Spec.Capacity.Applications
	if wi == wj && max(hi, hj)-min(hi, hj) > closest {
		return hi > hj
	}
	if si, sj := score(hi, wi), score(hj, wj); si != sj {
		return si > sj
	}
	return r.engines[i].Name < r.engines[j].Name
}

// belowBound compares the engine's present load with 1.25 times the average including the item. It
// ignores the applications if the item has none.
func (r *round) belowBound(i int) bool {
	load, capacity := &r.engines[i].Load, &r.engines[i].Spec.Capacity
	apps := r.item.Applications == 0 || float64(load.Applications) < bound(capacity.Applications,
		r.load.Applications+r.item.Applications, r.capacity.Applications)
	return apps && float64(load.Environments) < bound(capacity.Environments, r.load.Environments+1,
		r.capacity.Environments)
}

func bound(capacity, load, total int) float64 {
	return LoadFactor * float64(capacity) * float64(load) / float64(total)
}

// fill returns how full the engine would be, by the tighter of the two capacities.
func (r *round) fill(i int) float64 {
	e := &r.engines[i]
	f := float64(e.Load.Environments+1) / float64(e.Spec.Capacity.Environments)
	if r.item.Applications > 0 {
		f = max(f, float64(e.Load.Applications+r.item.Applications)/float64(
			e.Spec.Capacity.Applications))
	}
	return f
}

// ranked is an eligible engine.
type ranked struct {
	engine int
	at     int     // its rank by name
	score  float64 // as displayed, in thousandths
}

// alternatives returns every engine, best first: the chosen one, the other eligible ones by score,
// then the rest by name. above is the number of eligible engines at or above the bound.
func (r *round) alternatives(chosen int) (out []fleet.Alternative, above int) {
	r.rank()
	out = make([]fleet.Alternative, len(r.engines))
	next := 0
	if chosen >= 0 {
		next = 1
	}
	for _, e := range r.ranked {
		text, below := r.eligibleText(e.engine)
		if !below {
			above++
		}
		a := &out[0]
		if e.engine != chosen {
			a = &out[next]
			next++
		}
		a.Engine, a.Eligible, a.Reason, a.Score = r.engines[e.engine].Name, true, text, e.score
	}
	for _, i := range r.ineligible {
		out[next].Engine, out[next].Reason = r.engines[i].Name,
			r.ineligibleText(i, r.ineligibility(i))
		next++
	}
	return out, above
}

func (r *round) rank() {
	r.ranked, r.ineligible = r.ranked[:0], r.ineligible[:0]
	for at, i := range r.byName {
		if r.ineligibility(i) != free {
			r.ineligible = append(r.ineligible, i)
			continue
		}
		s := score(hash(r.key, r.seeds[i]), r.engines[i].Spec.Capacity.Applications)
		r.ranked = append(r.ranked, ranked{engine: i, at: at, score: math.Round(s*1000) / 1000})
	}
	slices.SortFunc(r.ranked, func(a, b ranked) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return a.at - b.at
	})
}
