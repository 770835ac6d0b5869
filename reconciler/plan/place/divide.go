package place

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// divide replaces a placed slice, or one that waits for an engine, by its halves on the same
// engine. No object changes: each half has the Applications that it holds (ADR 0066).
func (s *scope) divide(id fleet.SliceID) (first, second fleet.SliceID) {
	pl, known := s.Placements.Get(id)
	if !known {
		pl.Environment = id.In()
	}
	first, second = s.Divide(id, s.existing(id))
	s.Placements.Delete(id)
	s.Unplaced.Delete(id)
	for _, half := range []fleet.SliceID{first, second} {
		placed := pl
		placed.Slice, placed.Applications = half.Slice, len(s.deploymentsIn(half))
		placed.TooLarge = nil
		s.Placements.Set(half, placed)
		if pl.Engine == "" {
			s.Unplaced.Set(half, struct{}{})
		}
	}
	if pl.Engine != "" {
		s.Place(id.In(), pl.Engine, 1)
	}
	return first, second
}

// undivide replaces the halves of a slice, which are on one engine, by the slice with a placement.
func (s *scope) undivide(id fleet.SliceID, pl fleet.Placement) {
	s.Join(id)
	first, second := id.Slice.Halves()
	s.Placements.Delete(id.Of(first))
	s.Placements.Delete(id.Of(second))
	s.Placements.Set(id, pl)
	s.Place(id.In(), pl.Engine, -1)
}

// recordDivision adds a division of a slice to the result.
func (s *scope) recordDivision(id, first, second fleet.SliceID) {
	delete(s.out.Placements, id)
	applied.Set(&s.out.Relabelled, id, true)
	for _, half := range []fleet.SliceID{first, second} {
		delete(s.out.Relabelled, half)
		pl, placed := s.Placements.Get(half)
		if _, decided := s.out.Placements[half]; placed && !decided {
			s.out.Placements[half] = pl
		}
	}
	s.out.Environments[id.In()] = true
}

// join joins the halves of slices that are on one engine and do not move, in the environments that
// the plan touches. As a division, it changes no object but the note of the slices on the
// environment's Cluster.
func (s *scope) join() {
	for _, env := range slices.SortedFunc(maps.Keys(s.joinable), applied.CompareEnvironments) {
		for s.joinOne(env) {
		}
	}
	clear(s.joinable)
}

// joinOne joins two slices of an environment, and reports whether there were two.
func (s *scope) joinOne(env fleet.EnvironmentID) bool {
	for _, id := range s.SlicesOf(env) {
		if id.Slice == "" || id.Slice > id.Slice.Sibling() {
			continue
		}
		a, known := s.Placements.Get(id)
		b, both := s.Placements.Get(id.Of(id.Slice.Sibling()))
		if !known || !both || a.Engine == "" || a.Engine != b.Engine || a.From+b.From != "" {
			continue
		}
		parent := id.Of(id.Slice.Parent())
		pl := a
		pl.Slice, pl.Applications = parent.Slice, len(s.deploymentsIn(parent))
		pl.Forced, pl.Revision, pl.TooLarge = a.Forced || b.Forced, s.Revision, nil
		pl.Evacuated = slices.Concat(a.Evacuated, b.Evacuated)
		slices.Sort(pl.Evacuated)
		if pl.Evacuated = slices.Compact(pl.Evacuated); len(pl.Evacuated) == 0 {
			pl.Evacuated = nil
		}
		if pl.Misplaced == "" {
			pl.Misplaced = b.Misplaced
		}
		pl.Reason = fmt.Sprintf("its halves, slices %s and %s, were both on engine %s", a.Slice,
			b.Slice, pl.Engine)
		s.undivide(parent, pl)
		for _, half := range []fleet.SliceID{a.ID(), b.ID()} {
			delete(s.out.Placements, half)
			applied.Set(&s.out.Relabelled, half, true)
		}
		delete(s.out.Relabelled, parent)
		s.out.Placements[parent] = pl
		s.out.Environments[env] = true
		return true
	}
	return false
}

// existing lists the rows of the existing Applications of a slice. It costs the environment.
func (s *scope) existing(id fleet.SliceID) []fleet.ObjectKey {
	found := map[fleet.ObjectKey]bool{}
	engines := s.ApplicationsIn.Keys(id)
	add := func(app fleet.ApplicationID) {
		for _, engine := range engines {
			k := applied.ApplicationKey(engine, app)
			if _, exists := s.Rows.Get(k); exists {
				found[k] = true
			}
		}
	}
	for _, dep := range s.Applied.Catalog.DeploymentsIn(id.In()) {
		if id.Slice.Holds(dep.Name) {
			add(applied.ApplicationID(dep, id.In()))
		}
	}
	s.Held.Each(func(app fleet.ApplicationID, _ applied.Held) {
		if app.In() == id.In() && id.Holds(app) {
			add(app)
		}
	})
	s.Terminating.Each(func(k fleet.ObjectKey, t applied.Terminating) {
		if t.Application.In() == id.In() && id.Holds(t.Application) {
			found[k] = true
		}
	})
	return slices.SortedFunc(maps.Keys(found), applied.CompareKeys)
}

// deploymentsIn returns the deployments of a slice that are in effect. It costs the environment.
func (s *scope) deploymentsIn(id fleet.SliceID) []fleet.DeploymentID {
	all := s.after.DeploymentsIn(id.In())
	if id.Slice == "" {
		return all
	}
	var out []fleet.DeploymentID
	for _, dep := range all {
		if id.Slice.Holds(dep.Name) {
			out = append(out, dep)
		}
	}
	return out
}

// declaredIn returns the deployments in a slice before or after the changes of the plan, sorted.
func (s *scope) declaredIn(id fleet.SliceID) []fleet.DeploymentID {
	all := s.deploymentsIn(id)
	for _, dep := range s.Applied.Catalog.DeploymentsIn(id.In()) {
		if id.Slice.Holds(dep.Name) {
			all = append(all, dep)
		}
	}
	slices.SortFunc(all, func(a, b fleet.DeploymentID) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(all)
}

// indivisible returns why a slice cannot be split, or "".
func (s *scope) indivisible(id fleet.SliceID) string {
	if !id.Slice.Divisible() {
		return fmt.Sprintf("%s is one of at most %d slices and cannot be split further", id,
			1<<fleet.MaxSliceBits)
	}
	first, second := id.Slice.Halves()
	for _, half := range []fleet.Slice{first, second} {
		if len(s.deploymentsIn(id.Of(half))) == 0 {
			return fmt.Sprintf("slice %s would have no Application: names decide, and the "+
				"environment has few deployments", half)
		}
	}
	for _, dep := range s.after.DeploymentsIn(id.In()) {
		if d := s.after.Deployment(dep); d.Deployment.Wave != 0 {
			return fmt.Sprintf("deployment %s is in wave %d (%s), and the worker of one engine runs "+
				"the waves of an environment: remove spec.wave from its deployments first",
				dep.Name, d.Deployment.Wave, d.Path)
		}
	}
	return ""
}
