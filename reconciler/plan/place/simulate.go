package place

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/effective"
)

// Status is what the applied state does not have: the status of Applications and engines.
type Status struct {
	// Unready counts the Applications of each slice that are not Synced and Healthy
	Unready  map[fleet.SliceID]int
	Measured mirror.Measured // of a rebalance
}

// Simulate returns what a change of an engine would move, from the applied state. It costs the
// whole fleet.
func Simulate(s *applied.State, c placement.Change, status Status) (placement.Outcome, error) {
	declared, err := present(s)
	if err != nil {
		return placement.Outcome{}, err
	}
	return SimulateAfter(s, declared, s.Draft(), c, status)
}

// Continue returns those moves of an earlier rebalance that are still right in the applied state:
// see placement.Continue. It costs the whole fleet.
func Continue(s *applied.State, moves []placement.Move, status Status) (placement.Outcome, error) {
	declared, err := present(s)
	if err != nil {
		return placement.Outcome{}, err
	}
	return placement.Continue(newSimulator(s, declared, s.Draft()).snapshot(status), moves)
}

// emptyInstance is an instance of a pool that takes environments and has none.
func emptyInstance(pool *fleet.Declaration) placement.Engine {
	t := pool.Pool.Template
	return placement.Engine{Name: fleet.InstanceName(pool.Key.Name, fleet.MaxPoolInstances),
		Labels: t.Labels, Spec: fleet.EngineSpec{Region: t.Region, Capacity: t.Capacity,
			DedicatedTo: t.DedicatedTo, Taints: t.Taints}}
}

// WaitingFor counts the environments without an engine that an instance of a pool would serve
// without load, and their Applications.
func WaitingFor(s *applied.State, pool *fleet.Declaration) (load fleet.EngineLoad) {
	e := emptyInstance(pool)
	declared, err := present(s)
	if err != nil {
		return load
	}
	p := newSimulator(s, declared, s.Draft())
	p.Unplaced.Each(func(id fleet.SliceID, _ struct{}) {
		if p.after.Environment(id.In()) == nil || Agent(&p.after.View, id.In()) ||
			p.cannotReach(id.In(), e.Name) != "" {
			return
		}
		if item := p.item(id); placement.Verify(item, e) == "" &&
			item.Applications <= e.Spec.Capacity.Applications {
			load.Environments++
			load.Applications += item.Applications
		}
	})
	return load
}

// present returns the declarations that are in effect.
func present(s *applied.State) (*effective.Declarations, error) {
	if !s.Started() || s.Blocked {
		return nil, &placement.ImpossibleError{
			Why: "the mirror is being built: not every environment has its engine yet",
			Fix: "wait until `argosy get environments` shows the engines"}
	}
	declared := &effective.Declarations{After: s.Catalog.Prepare(nil), Deferred: s.Deferred,
		Removing: map[fleet.EnvironmentID]bool{}}
	for k, x := range s.Deferred {
		if x.Removing {
			declared.Removing[applied.EnvironmentID(k)] = true
		}
	}
	return declared, nil
}

// SimulateAfter is Simulate after a plan with these declarations and layers.
func SimulateAfter(s *applied.State, declared *effective.Declarations, layers *applied.Layers,
	c placement.Change, status Status) (placement.Outcome, error) {
	p := newSimulator(s, declared, layers)
	if c.Like != "" && p.after.Engine(c.Like) != nil && p.behindAgent(c.Like) {
		return placement.Outcome{}, &placement.ImpossibleError{
			Why: fmt.Sprintf("engine %s %s", c.Like, onlyByName),
			Fix: "name an engine with inCluster or kubeconfigRef"}
	}
	now := p.snapshot(status)
	if c.Pool != "" {
		p.discount(now.Engines)
	}
	return placement.Simulate(now, c)
}

// discount takes slices that are leaving off the load of their former engines. Each is load on both
// engines until its objects are gone: more environments would leave than are too many.
func (p placer) discount(engines []placement.Engine) {
	leaving := map[fleet.EngineName]fleet.EngineLoad{}
	p.Placements.Each(func(id fleet.SliceID, pl fleet.Placement) {
		if pl.From != "" {
			load := leaving[pl.From]
			load.Environments++
			load.Applications += p.ApplicationsIn.Count(id, pl.From)
			leaving[pl.From] = load
		}
	})
	for i := range engines {
		of := leaving[engines[i].Name]
		engines[i].Load.Environments -= of.Environments
		engines[i].Load.Applications -= of.Applications
	}
}

// newSimulator is a placer that knows the evacuated engines from the placements.
func newSimulator(s *applied.State, declared *effective.Declarations,
	layers *applied.Layers) placer {
	p := placer{&scope{Input: Input{Applied: s, Declared: declared}, Layers: layers,
		after: declared.After, shared: applied.SharedRepositories(declared.After.Fleet())}}
	p.Placements.Each(func(_ fleet.SliceID, pl fleet.Placement) {
		p.Evacuated = append(p.Evacuated, pl.Evacuated...)
	})
	slices.Sort(p.Evacuated)
	p.Evacuated = slices.Compact(p.Evacuated)
	return p
}

// snapshot returns the fleet without the environments that are their own engine.
func (p placer) snapshot(status Status) placement.Snapshot {
	out := placement.Snapshot{Engines: p.candidates(), Conflicts: p.moveConflict,
		Measured: status.Measured.Cores}
	deletions := p.deletions()
	p.Placements.Each(func(id fleet.SliceID, pl fleet.Placement) {
		if pl.Engine.OfEnvironment() || Agent(&p.after.View, id.In()) {
			return
		}
		e := placement.Served{Engine: pl.Engine, Unready: status.Unready[id],
			Misplaced: pl.Misplaced != "",
			Fixed:     cmp.Or(p.stays(id, pl, deletions), status.Measured.Fixed[id])}
		if p.after.Environment(id.In()) == nil { // its removal waits
			e.Item = placement.Item{Environment: id.In(), Slice: id.Slice,
				Applications: p.ApplicationsIn.Count(id, pl.Engine)}
		} else {
			e.Item = p.item(id)
			e.Reads, e.ReadsOpen = p.reads(id.In())
			e.Adopts = slices.Collect(maps.Values(p.adopted(id)))
			if p.unreached(id.In(), pl.Engine) != "" {
				e.Own = fleet.AgentEngine(id.In())
			}
		}
		out.Environments = append(out.Environments, e)
	})
	if p.mayDivide() {
		out.Halves = p.halves
	}
	return out
}

// halves returns the halves of a slice, or false if it cannot be split.
func (p placer) halves(e placement.Served) (first, second placement.Served, ok bool) {
	id := e.ID()
	if p.after.Environment(id.In()) == nil || p.indivisible(id) != "" {
		return first, second, false
	}
	a, b := id.Slice.Halves()
	half := func(s fleet.Slice) placement.Served {
		of := e
		of.Item = p.item(id.Of(s))
		of.Adopts = slices.Collect(maps.Values(p.adopted(id.Of(s))))
		of.Unready = min(e.Unready, of.Applications)
		return of
	}
	return half(a), half(b), true
}

// reads returns the repositories that an environment reads with a credential of its tenant, and
// those that it reads without one.
func (p placer) reads(id fleet.EnvironmentID) (private, open []string) {
	for _, r := range p.after.Repositories(id) {
		switch {
		case p.shared.Covers(r.Key):
		case r.Credential.Name != "":
			private = append(private, r.Key)
		default:
			open = append(open, r.Key)
		}
	}
	return private, open
}

// stays returns why a slice cannot begin to leave its engine now.
func (p placer) stays(id fleet.SliceID, pl fleet.Placement,
	deletions map[onEngine][]string) string {
	if why := p.fixed(id, pl); why != "" {
		return why
	}
	if pl.From != "" {
		return fmt.Sprintf("it is moving from engine %s to engine %s", pl.From, pl.Engine)
	}
	departing, reasons := p.departing(id, pl.Engine, deletions)
	objects := p.adopted(id)
	for _, app := range departing {
		namespace, _ := fleet.SplitObject(objects[app])
		if namespace != "" || objects[app] != "" && p.behindAgent(pl.Engine) {
			reasons = append(reasons, p.unadoptable(app, pl.Engine, ""))
		}
	}
	return strings.Join(reasons, "; ")
}

// adopted returns the objects of a slice's adopted Applications.
func (p placer) adopted(id fleet.SliceID) map[fleet.ApplicationID]string {
	var objects map[fleet.ApplicationID]string
	for _, dep := range p.deploymentsIn(id) {
		a := p.after.Deployment(dep).Deployment.AdoptedIn(id.Environment)
		if a.Application != "" {
			applied.Set(&objects, applied.ApplicationID(dep, id.In()), a.Application)
		}
	}
	return objects
}

// onlyByName: a cluster that an engine reaches is seldom reached from behind a firewall too, and
// the move would wait in Compare.
const onlyByName = "is behind an agent, and only argosy move environment moves environments there"

// moveConflict explains why an engine cannot take a slice: as conflicts does, and for a placed one,
// which would move, because of the move.
func (p placer) moveConflict(id fleet.SliceID, from, to fleet.EngineName) string {
	if from != "" && p.unreached(id.In(), from) != "" {
		return "is not the environment's own cluster, where its declaration wants it (spec.agent)"
	}
	if from != "" && p.after.Engine(to) != nil {
		if p.behindAgent(to) {
			return onlyByName
		}
		objects := p.adopted(id)
		for _, app := range slices.SortedFunc(maps.Keys(objects), applied.CompareApplications) {
			if p.unadoptable(app, from, to) != "" {
				return placement.NameConflict(objects[app])
			}
		}
	}
	return p.conflicts(id.In())(to)
}
