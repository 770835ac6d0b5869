package applied

import (
	"slices"

	"argosy.dev/argosy/fleet"
)

// whole is the partition of an environment that is not split.
var whole = []fleet.Slice{""}

// Partition returns the slices of an environment, sorted. Callers only read it.
func (l *Layers) Partition(id fleet.EnvironmentID) []fleet.Slice {
	if of, split := l.Slices.Get(id); split {
		return of
	}
	return whole
}

// SlicesOf returns the slices of an environment, sorted: one, unless it is split.
func (l *Layers) SlicesOf(id fleet.EnvironmentID) []fleet.SliceID {
	of := l.Partition(id)
	out := make([]fleet.SliceID, 0, len(of))
	for _, s := range of {
		out = append(out, id.Slice(s))
	}
	return out
}

// SliceOf returns the slice that holds an Application.
func (l *Layers) SliceOf(app fleet.ApplicationID) fleet.SliceID {
	s, _ := fleet.SliceOf(app.Deployment, l.Partition(app.In()))
	return app.In().Slice(s)
}

// PlacementOf returns the placement of the slice that holds an Application; false without one.
func (l *Layers) PlacementOf(app fleet.ApplicationID) (fleet.Placement, bool) {
	return l.Placements.Get(l.SliceOf(app))
}

// PlacementsOf returns the placements of an environment's slices, sorted by slice.
func (l *Layers) PlacementsOf(id fleet.EnvironmentID) []fleet.Placement {
	var out []fleet.Placement
	for _, s := range l.SlicesOf(id) {
		if pl, ok := l.Placements.Get(s); ok {
			out = append(out, pl)
		}
	}
	return out
}

// EnginesWith returns the engines that serve or lose a slice of an environment, sorted.
func (l *Layers) EnginesWith(id fleet.EnvironmentID) []fleet.EngineName {
	var out []fleet.EngineName
	for _, pl := range l.PlacementsOf(id) {
		for _, e := range []fleet.EngineName{pl.Engine, pl.From} {
			if e != "" {
				out = append(out, e)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ApplicationsOn counts the existing Applications of an environment on an engine.
func (l *Layers) ApplicationsOn(id fleet.EnvironmentID, engine fleet.EngineName) (n int) {
	for _, s := range l.SlicesOf(id) {
		n += l.ApplicationsIn.Count(s, engine)
	}
	return n
}

// Divide replaces a slice by its halves in the partition of its environment. The counts of the
// slice's existing Applications, which the caller lists by their rows, go to the halves; the
// caller places them. It costs these Applications.
func (l *Layers) Divide(id fleet.SliceID, rows []fleet.ObjectKey) (first, second fleet.SliceID) {
	a, b := id.Slice.Halves()
	first, second = id.Of(a), id.Of(b)
	of := slices.DeleteFunc(slices.Clone(l.Partition(id.In())), func(s fleet.Slice) bool {
		return s == id.Slice
	})
	of = append(of, a, b)
	slices.Sort(of)
	l.Slices.Set(id.In(), of)
	for _, k := range rows {
		r, _ := l.Rows.Get(k)
		half := first
		if !first.Holds(r.Application()) {
			half = second
		}
		l.ApplicationsIn.Add(id, k.Engine, -1)
		l.ApplicationsIn.Add(half, k.Engine, 1)
	}
	return first, second
}

// Join replaces the halves of a slice by the slice, with their counts. The caller places it.
func (l *Layers) Join(id fleet.SliceID) {
	a, b := id.Slice.Halves()
	of := slices.DeleteFunc(slices.Clone(l.Partition(id.In())), func(s fleet.Slice) bool {
		return s == a || s == b
	})
	of = append(of, id.Slice)
	slices.Sort(of)
	if len(of) == 1 {
		l.Slices.Delete(id.In())
	} else {
		l.Slices.Set(id.In(), of)
	}
	for _, half := range []fleet.SliceID{id.Of(a), id.Of(b)} {
		for _, engine := range l.ApplicationsIn.Keys(half) {
			n := l.ApplicationsIn.Count(half, engine)
			l.ApplicationsIn.Add(half, engine, -n)
			l.ApplicationsIn.Add(id, engine, n)
		}
	}
}
