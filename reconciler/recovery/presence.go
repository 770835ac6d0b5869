package recovery

import (
	"cmp"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// presence lists the engines that have objects of one environment. During a move of it, or of a
// slice, there are two, and the mirror that knew the steps is lost (ADR 0045).
type presence struct {
	objects  []holder
	serving  []holder // that have Applications of it, no step of a move on them
	leaving  []holder // that have Applications with the first steps of a move
	arriving []holder // that have Applications which another engine may still sync
	// that were evacuated while they served it, as the engine that got it shows (ADR 0058)
	evacuated []holder
	slices    []fleet.Slice // that its Clusters name: it is split (ADR 0066)
}

// holder is an engine with the smallest slices of the environment that it has.
type holder struct {
	engine fleet.EngineName
	leaves uint64 // see fleet.Slice.Leaves
}

func (p *presence) add(name fleet.EngineName, o engine.Live) {
	at := holder{engine: name, leaves: fleet.Slice("").Leaves()}
	of := []*[]holder{&p.objects}
	if o.Key.Kind == fleet.ObjectApplication {
		at.leaves = fleet.LeafOf(o.Deployment)
		switch {
		case o.Arriving:
			of = append(of, &p.arriving)
		case o.Leaving:
			of = append(of, &p.leaving)
		default:
			of = append(of, &p.serving)
		}
	} else if len(o.Slices) > 0 {
		at.leaves = 0
		for _, s := range o.Slices {
			at.leaves |= s.Leaves()
		}
		p.slices = append(p.slices, o.Slices...)
	}
	for _, list := range of {
		insert(list, at)
	}
	for _, e := range o.Evacuated {
		insert(&p.evacuated, holder{engine: e, leaves: at.leaves})
	}
}

func insert(list *[]holder, at holder) {
	i, found := slices.BinarySearchFunc(*list, at, func(a, b holder) int {
		return cmp.Compare(a.engine, b.engine)
	})
	if found {
		(*list)[i].leaves |= at.leaves
	} else {
		*list = slices.Insert(*list, i, at)
	}
}

// partition returns the slices of the environment. While a division or a move is applied, the
// Clusters name slices that overlap: two halves that turn out to be on one engine are joined.
func (p presence) partition() []fleet.Slice { return fleet.Refine(p.slices) }

// of returns the engines with a slice.
func (p presence) of(s fleet.Slice) enginesOf {
	engines := func(all []holder) (names []fleet.EngineName) {
		for _, h := range all {
			if h.leaves&s.Leaves() != 0 {
				names = append(names, h.engine)
			}
		}
		return names
	}
	return enginesOf{objects: engines(p.objects), serving: engines(p.serving),
		leaving: engines(p.leaving), arriving: engines(p.arriving),
		evacuated: engines(p.evacuated)}
}

// enginesOf are the engines that have objects of one slice: see presence.
type enginesOf struct{ objects, serving, leaving, arriving, evacuated []fleet.EngineName }

// withoutEvacuated leaves out the engines that lost the slice by an evacuation. They may have come
// back with all their objects.
func (p enginesOf) withoutEvacuated() enginesOf {
	if len(p.evacuated) == 0 {
		return p
	}
	kept := func(all []fleet.EngineName) []fleet.EngineName {
		return slices.DeleteFunc(slices.Clone(all), func(e fleet.EngineName) bool {
			return slices.Contains(p.evacuated, e)
		})
	}
	return enginesOf{objects: kept(p.objects), serving: kept(p.serving), leaving: kept(p.leaving),
		arriving: kept(p.arriving), evacuated: p.evacuated}
}

// engine returns the engine that serves the slice from now on; empty while another engine may
// decide. A lost move is undone, unless an Application is on its new engine alone: then the new
// engine serves the slice, and takes no Application that the old one may still sync (see
// engine.Live, Arriving).
func (p enginesOf) engine(allRead bool) fleet.EngineName {
	p = p.withoutEvacuated()
	if len(p.objects) == 0 {
		return ""
	}
	if !allRead && (len(p.serving) != 1 || len(p.leaving)+len(p.arriving) > 0) {
		return ""
	}
	for _, name := range p.serving {
		if len(p.serving) > 1 && slices.Contains(p.arriving, name) {
			return name
		}
	}
	return slices.Concat(p.serving, p.leaving, p.arriving, p.objects)[0]
}
