package recovery

import (
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// presence lists the engines that have objects of one environment. During a move there are two, and
// the mirror that knew the steps is lost (ADR 0045).
type presence struct {
	objects  []fleet.EngineName
	serving  []fleet.EngineName // that have Applications of it, no step of a move on them
	leaving  []fleet.EngineName // that have Applications with the first steps of a move
	arriving []fleet.EngineName // that have Applications which another engine may still sync
	// that were evacuated while they served it, as the engine that got it shows (ADR 0058)
	evacuated []fleet.EngineName
}

func (p *presence) add(name fleet.EngineName, o engine.Live) {
	of := []*[]fleet.EngineName{&p.objects}
	switch {
	case o.Key.Kind != fleet.ObjectApplication:
	case o.Arriving:
		of = append(of, &p.arriving)
	case o.Leaving:
		of = append(of, &p.leaving)
	default:
		of = append(of, &p.serving)
	}
	for _, list := range of {
		insert(list, name)
	}
	for _, e := range o.Evacuated {
		insert(&p.evacuated, e)
	}
}

func insert(list *[]fleet.EngineName, name fleet.EngineName) {
	if i, found := slices.BinarySearch(*list, name); !found {
		*list = slices.Insert(*list, i, name)
	}
}

// withoutEvacuated leaves out the engines that lost the environment by an evacuation. They may
// have come back with all their objects.
func (p presence) withoutEvacuated() presence {
	if len(p.evacuated) == 0 {
		return p
	}
	kept := func(all []fleet.EngineName) []fleet.EngineName {
		return slices.DeleteFunc(slices.Clone(all), func(e fleet.EngineName) bool {
			return slices.Contains(p.evacuated, e)
		})
	}
	return presence{objects: kept(p.objects), serving: kept(p.serving), leaving: kept(p.leaving),
		arriving: kept(p.arriving), evacuated: p.evacuated}
}

// engine returns the engine that serves the environment from now on; empty while another engine may
// decide. A lost move is undone, unless an Application is on its new engine alone: then the new
// engine serves the environment, and takes no Application that the old one may still sync (see
// engine.Live, Arriving).
func (p presence) engine(allRead bool) fleet.EngineName {
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
