package place

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// placeWaiting gives engines to environments without one: those that the revision touches, and all
// of them if something changed that may let them in.
func (p placer) placeWaiting() error {
	pending := map[fleet.SliceID]bool{}
	for env := range p.out.Environments {
		if p.after.Environment(env) == nil {
			continue
		}
		for _, id := range p.SlicesOf(env) {
			if pl, _ := p.Placements.Get(id); pl.Engine == "" {
				pending[id] = true
			}
		}
	}
	p.out.NeedsEngines = len(p.Unread) > 0 && p.anyToChoose(pending)
	if p.retry || p.Applied.Restored || p.Applied.Blocked && len(p.Unread) == 0 {
		p.Unplaced.Each(func(id fleet.SliceID, _ struct{}) {
			if p.after.Environment(id.In()) != nil {
				pending[id] = true
			}
		})
	}
	p.out.Blocked = len(p.Unread) > 0 && (p.Applied.Blocked || p.anyToChoose(pending))
	if len(pending) == 0 {
		return nil
	}
	engines := placement.NewFleet(p.candidates())
	queue := slices.SortedFunc(maps.Keys(pending), fleet.SliceID.Compare)
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		pl := p.decide(id, engines)
		if pl.TooLarge != nil && p.mayDivide() {
			why := p.indivisible(id)
			if why == "" {
				first, second := p.divide(id)
				p.recordDivision(id, first, second)
				queue = append([]fleet.SliceID{first, second}, queue...)
				continue
			}
			pl.Reason += "; it cannot be split: " + why
		}
		pl.Revision = p.Revision
		if err := p.record(id, pl); err != nil {
			return err
		}
		load, _ := p.Loads.Get(pl.Engine)
		engines.Carry(pl.Engine, load)
	}
	return nil
}

// anyToChoose reports whether one of the environments needs a choice of engine.
func (p placer) anyToChoose(pending map[fleet.SliceID]bool) bool {
	for id := range pending {
		if !Agent(&p.after.View, id.In()) {
			return true
		}
	}
	return false
}

// mayDivide reports whether environments that are too large for every engine are placed in slices.
func (p placer) mayDivide() bool {
	return p.after.Fleet().Placement.Slices == fleet.SlicesAllowed
}

func (p placer) decide(id fleet.SliceID, engines *placement.Fleet) fleet.Placement {
	item := p.item(id)
	if Agent(&p.after.View, id.In()) {
		return onOwnCluster(id.In(), p.after.Environment(id.In()).Environment, item.Applications)
	}
	if len(p.Unread) == 0 {
		if pl, waits := p.forPools(item); waits {
			return pl
		}
		if pl, decided := p.byReports(item); decided {
			return pl
		}
		return engines.Decide(item, p.conflicts(id.In()))
	}
	names := make([]string, 0, len(p.Unread))
	for _, e := range p.Unread {
		names = append(names, string(e))
	}
	slices.Sort(names)
	return fleet.Placement{
		Environment: id.In(), Slice: id.Slice, Applications: item.Applications,
		Reason: "not placed yet: it may exist on an engine that was not read since the rebuild: " +
			strings.Join(names, ", "),
	}
}

// forPools returns the placement of an environment that an instance of an unread pool may have.
// Otherwise it returns false.
func (p placer) forPools(item placement.Item) (fleet.Placement, bool) {
	pl := fleet.Placement{Environment: item.Environment, Slice: item.Slice,
		Applications: item.Applications}
	undecided := slices.Contains(p.Undecided, item.Environment)
	for _, name := range p.UnreadPools {
		d := p.after.Declaration(fleet.PoolKey(name))
		if d != nil && !undecided && placement.Verify(item, emptyInstance(d)) != "" {
			continue
		}
		pl.Reason = fmt.Sprintf("not placed yet: it may exist on an instance of pool %s, whose "+
			"clusters were not all read since the rebuild", name)
		p.out.Blocked = true
		return pl, true
	}
	return pl, false
}

// byReports returns the placement that the agents' reports decide after a rebuild: the engine that
// has the environment already, or none until an agent reports. Otherwise it returns false.
func (p placer) byReports(item placement.Item) (fleet.Placement, bool) {
	pl := fleet.Placement{Environment: item.Environment, Slice: item.Slice,
		Applications: item.Applications}
	reported := p.eligible(item, p.Reported[item.Environment])
	silent := slices.DeleteFunc(p.eligible(item, p.SilentAgents), func(e fleet.EngineName) bool {
		return slices.Contains(reported, e)
	})
	switch {
	case len(reported) > 1:
		pl.Reason = fmt.Sprintf(
			"not placed yet: the agents of engines %s and %s both report its objects;"+
				" remove them from one", reported[0], reported[1])
	case len(silent) > 0:
		pl.Reason = fmt.Sprintf("not placed yet: it may exist on engine %s,"+
			" whose agent has not reported its objects since the rebuild", silent[0])
	case len(reported) == 1:
		pl.Engine = reported[0]
		pl.Reason = fmt.Sprintf(
			"its objects exist on %s, as its agent reported when the mirror was rebuilt",
			reported[0])
		return pl, true
	default:
		return pl, false
	}
	p.out.Blocked = true
	return pl, true
}

// eligible returns the engines that may have been given the environment, whatever their state now,
// sorted by name.
func (p placer) eligible(item placement.Item, names []fleet.EngineName) []fleet.EngineName {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	return slices.DeleteFunc(sorted, func(name fleet.EngineName) bool {
		e := p.after.Engine(name)
		if e == nil {
			return true
		}
		spec := *e.Engine
		spec.State = fleet.EngineActive
		engine := placement.Engine{Name: name, Labels: e.Labels, Spec: spec}
		return placement.Verify(item, engine) != ""
	})
}

// record keeps a decision, and counts the environment's Applications on the engine.
func (p placer) record(id fleet.SliceID, pl fleet.Placement) error {
	old, known := p.Placements.Get(id)
	kept := pl
	kept.Alternatives = nil
	p.Placements.Set(id, kept)
	if pl.Engine == "" {
		p.Unplaced.Set(id, struct{}{})
		if !known || old.Reason != pl.Reason {
			p.out.Placements[id] = pl
		}
		return nil
	}
	p.out.Placements[id] = pl
	p.Unplaced.Delete(id)
	p.Place(id.In(), pl.Engine, 1)
	p.out.Shares[applied.Share{Tenant: id.Tenant, Engine: pl.Engine}] = true
	p.out.Environments[id.In()] = true
	p.joinable[id.In()] = true
	for _, dep := range p.deploymentsIn(id) {
		if err := p.application(applied.ApplicationID(dep, id.In()), true); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns every engine with its present load.
func (p placer) candidates() []placement.Engine {
	names := p.after.Engines()
	out := make([]placement.Engine, 0, len(names))
	for _, name := range names {
		e := p.after.Engine(name)
		load, _ := p.Loads.Get(name)
		out = append(
			out, placement.Engine{Name: name, Labels: e.Labels, Spec: *e.Engine, Load: load})
	}
	return out
}

func (p placer) item(id fleet.SliceID) placement.Item {
	i := placement.Item{
		Environment: id.In(), Slice: id.Slice,
		Region:       p.after.Environment(id.In()).Environment.Region,
		Applications: len(p.deploymentsIn(id)),
	}
	if t := p.after.Tenant(id.Tenant); t != nil {
		i.Constraints = t.Tenant.Placement
	}
	return i
}

// cannotReach explains why an engine can never serve an environment: it is on another engine's own
// cluster, or on a Cluster whose tokens the control plane requests and an agent's site cannot: the
// credential of a Cluster does not leave the control plane. It returns "" if the engine can.
func (p placer) cannotReach(id fleet.EnvironmentID, engine fleet.EngineName) string {
	env := p.after.Environment(id).Environment
	if on := env.OnEngine(); on != "" && on != engine {
		return "does not run on the environment's cluster (spec.cluster.engine)"
	}
	cluster, e := p.after.PlatformCluster(env), p.after.Engine(engine)
	if cluster != nil && cluster.CredentialsRef != nil && e != nil &&
		e.Engine.Connection.Agent != nil {
		return "is behind an agent, which gets no credential of a Cluster"
	}
	return ""
}

// conflicts explains why an engine cannot take the environment because of its other environments or
// its own future. Argo CD finds repository credentials and its caches by URL: two tenants who read
// one repository share no engine if one of them has a credential of its own. The reason does not
// name the other tenant, because this one reads it.
func (p placer) conflicts(id fleet.EnvironmentID) func(fleet.EngineName) string {
	reads := slices.DeleteFunc(p.after.Repositories(id), func(r catalog.Repository) bool {
		return p.shared.Covers(r.Key)
	})
	return func(engine fleet.EngineName) string {
		if why := p.cannotReach(id, engine); why != "" {
			return why
		}
		if slices.Contains(p.Evacuated, engine) {
			return evacuated
		}
		k := fleet.Key{Kind: fleet.KindEngine, Name: string(engine)}
		if _, deferred := p.Declared.Deferred[k]; deferred {
			return "will be removed or replaced and takes nothing new"
		}
		for _, r := range reads {
			reader := applied.Reader{
				Repo: applied.Repo{Engine: engine, Key: r.Key}, Tenant: id.Tenant}
			if p.Separated(reader, r.Credential.Name != "") {
				return placement.CredentialConflict(r.Key)
			}
			if p.Readers.Count(reader.Repo, id.Tenant) == 0 && p.LeftByAnother(reader) {
				return placement.CloneConflict(r.Key)
			}
		}
		return ""
	}
}
