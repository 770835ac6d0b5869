package placement

import (
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// Fleet places items on engines, one after the other. Its decisions equal those of Decide with the
// engines and their present loads. It is not safe for concurrent use.
type Fleet struct {
	engines    []Engine
	seeds      []uint64 // hashes of the engines' names
	byName     []int
	words      []words
	classes    map[classKey]*class
	ranked     []ranked // of the current decision: the eligible engines, best first,
	ineligible []int    // and the ineligible ones, by name
}

// NewFleet copies the engines; later changes of the slice do not affect it.
func NewFleet(engines []Engine) *Fleet { return newFleet(slices.Clone(engines)) }

// newFleet updates the loads in engines.
func newFleet(engines []Engine) *Fleet {
	f := &Fleet{engines: engines, seeds: make([]uint64, len(engines)),
		byName: make([]int, len(engines)), classes: map[classKey]*class{}}
	for i := range engines {
		f.byName[i], f.seeds[i] = i, mix(fnv(fnvOffset, string(engines[i].Name)))
	}
	slices.SortFunc(f.byName, func(i, j int) int {
		return strings.Compare(string(engines[i].Name), string(engines[j].Name))
	})
	return f
}

// Carry sets an engine's load; it ignores an engine that the fleet does not have.
func (f *Fleet) Carry(name fleet.EngineName, load fleet.EngineLoad) {
	if i := f.index(name); i >= 0 {
		f.carry(i, load)
	}
}

// index returns the index of an engine, or -1.
func (f *Fleet) index(name fleet.EngineName) int {
	at, found := slices.BinarySearchFunc(f.byName, name, func(i int, name fleet.EngineName) int {
		return strings.Compare(string(f.engines[i].Name), string(name))
	})
	if !found {
		return -1
	}
	return f.byName[at]
}

func (f *Fleet) carry(i int, load fleet.EngineLoad) {
	f.engines[i].Load = load
	if f.words != nil {
		f.words[i] = words{}
	}
}

// Decide places one environment like the function of that name. It does not change the loads: the
// caller calls Carry once the environment is placed.
func (f *Fleet) Decide(item Item, conflicts func(fleet.EngineName) string) fleet.Placement {
	r := f.hold(item, conflicts)
	p := fleet.Placement{Environment: item.Environment, Slice: item.Slice,
		Applications: item.Applications}
	best := r.choose()
	var above int
	p.Alternatives, above = r.alternatives(best)
	if best < 0 {
		p.TooLarge = r.tooLarge()
		p.Reason = r.hopeless(p.TooLarge)
		return p
	}
	p.Engine, p.Reason = f.engines[best].Name, reason(len(f.ranked), above)
	return p
}

// class groups items with the same constraints: the same engines are ineligible for them, for the
// same reasons.
type class struct {
	constraints fleet.TenantPlacement
	ineligible  []ineligibility
	texts       []string // of the constraints; created at first use
	free        []int    // engines that satisfy all constraints
}

type classKey struct {
	tenant fleet.TenantName
	region string
}

// class returns the item's class. The map's key is only part of it: constraints are no map key, and
// are compared.
func (f *Fleet) class(item *Item) *class {
	key := classKey{item.Environment.Tenant, item.Region}
	c := f.classes[key]
	if c == nil || !alike(&c.constraints, &item.Constraints) {
		c = f.classify(item)
		f.classes[key] = c
	}
	return c
}

func (f *Fleet) classify(item *Item) *class {
	c := &class{constraints: item.Constraints, ineligible: make([]ineligibility, len(f.engines)),
		free: make([]int, 0, len(f.engines))}
	for i := range f.engines {
		if c.ineligible[i] = constraint(*item, &f.engines[i]); c.ineligible[i] == free {
			c.free = append(c.free, i)
		}
	}
	return c
}

// alike compares every field; another order of a list's entries makes another class, and the same
// decisions.
func alike(a, b *fleet.TenantPlacement) bool {
	if a.Dedicated != b.Dedicated || a.Alone != b.Alone ||
		!slices.Equal(a.Regions, b.Regions) || !slices.Equal(a.Tolerations, b.Tolerations) {
		return false
	}
	return a.EngineSelector.Equal(b.EngineSelector)
}
