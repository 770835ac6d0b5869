package place

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// Move is a slice of an environment that begins to move, with the Applications that leave its
// engine, sorted.
type Move struct {
	Environment  fleet.EnvironmentID
	Slice        fleet.Slice // as the request names it
	Split        bool        // the second half of the slice moves
	From, To     fleet.EngineName
	Applications []fleet.ApplicationID
	Undo         bool // the slice returns to the engine that it was leaving
	Evacuates    bool // see mirror.MoveRequest
}

// move gives the slices whose move is requested their new engine. Until the last Application
// has left the engine before, both have what its Applications share.
func (p placer) move() {
	for _, id := range slices.SortedFunc(maps.Keys(p.Moves), fleet.SliceID.Compare) {
		begin := p.begin
		switch {
		case p.Moves[id].Evacuates:
			begin = p.evacuate
		case p.Moves[id].Split:
			begin = p.split
		}
		if why := begin(id, p.Moves[id]); why != "" {
			applied.Set(&p.out.Refused, id, why)
		}
	}
}

// split halves a slice and begins a move of its second half, or returns why it cannot begin.
func (p placer) split(id fleet.SliceID, m mirror.MoveRequest) string {
	pl, _ := p.Placements.Get(id)
	if why := p.immovable(id, pl, m); why != "" {
		return why
	}
	if why := p.indivisible(id); why != "" {
		return why
	}
	first, second := p.divide(id)
	if why := p.begin(second, m); why != "" {
		p.undivide(id, pl)
		return why
	}
	p.recordDivision(id, first, second)
	return ""
}

// begin begins a move of a slice, or returns why it cannot begin.
func (p placer) begin(id fleet.SliceID, m mirror.MoveRequest) string {
	pl, _ := p.Placements.Get(id)
	if why := p.immovable(id, pl, m); why != "" {
		return why
	}
	if m.Undo {
		return p.undo(id, pl)
	}
	from, to := pl.Engine, m.To
	next, reasons := p.target(id, to)
	departing, why := p.departing(id, from, p.deletions())
	reasons = append(reasons, why...)
	if len(reasons) == 0 {
		reasons = p.carry(id, to)
	}
	for _, app := range departing {
		if why := p.unadoptable(app, from, to); why != "" {
			reasons = append(reasons, why)
		}
	}
	if len(reasons) > 0 {
		return strings.Join(reasons, "; ")
	}
	next.Reason = fmt.Sprintf("moved from engine %s by a person", from)
	switch {
	case !m.Drain:
	case p.drains(from):
		next.Reason = fmt.Sprintf("moved from engine %s, which drains", from)
	case pl.Misplaced == "":
		next.Reason = fmt.Sprintf("moved from engine %s, which is fuller, within their pool", from)
	default:
		next.Reason = fmt.Sprintf("moved from engine %s, where it was misplaced: %s", from,
			pl.Misplaced)
	}
	if r := m.Rebalance; r != "" {
		next.Reason = fmt.Sprintf("moved from engine %s, whose load was high, by rebalance %s",
			from, r)
	}
	next.From, next.Revision, next.Forced, next.Alternatives = from, p.Revision, true, nil
	next.Evacuated = pl.Evacuated
	p.Placements.Set(id, next)
	p.out.Placements[id] = next
	p.out.Begun = append(p.out.Begun,
		Move{Environment: id.In(), Slice: m.Slice, Split: m.Split, From: from, To: to,
			Applications: departing})
	p.Place(id.In(), to, 1)
	p.out.Environments[id.In()] = true
	for _, engine := range []fleet.EngineName{from, to} {
		p.out.Shares[applied.Share{Tenant: id.Tenant, Engine: engine}] = true
	}
	for _, dep := range p.deploymentsIn(id) {
		p.applications[applied.ApplicationID(dep, id.In())] = true
	}
	if len(departing) == 0 {
		p.endMove(id)
	}
	return ""
}

// target returns the placement of a slice on an engine, and the reasons against it. Nothing is
// against an environment's own cluster.
func (p placer) target(id fleet.SliceID, to fleet.EngineName) (fleet.Placement, []string) {
	item := p.item(id)
	if to.OfEnvironment() {
		return onOwnCluster(id.In(), p.after.Environment(id.In()).Environment,
			item.Applications), nil
	}
	next := placement.Decide(item, slices.DeleteFunc(p.candidates(), func(e placement.Engine) bool {
		return e.Name != to
	}), p.conflicts(id.In()))
	if next.Engine == "" {
		return next, []string{fmt.Sprintf("engine %s %s", to, next.Alternatives[0].Reason)}
	}
	return next, nil
}

// undo returns a slice to the engine that it is leaving. Both engines keep what its
// Applications share until the other one has none of them. It returns why that is impossible.
func (p placer) undo(id fleet.SliceID, pl fleet.Placement) string {
	var back []fleet.ApplicationID
	for _, dep := range p.deploymentsIn(id) {
		app := applied.ApplicationID(dep, id.In())
		r, left := p.Rows.Get(applied.ApplicationKey(pl.From, app))
		_, arrives := p.Rows.Get(applied.ApplicationKey(pl.Engine, app))
		if arrives && (!left || !r.Unwanted) {
			return fmt.Sprintf("%s was added, or has moved, meanwhile; wait until the move has ended, "+
				"and move the environment back", app)
		}
		if arrives {
			back = append(back, app)
		}
		p.applications[app] = true
	}
	var removed []fleet.ApplicationID
	p.Terminating.Each(func(k fleet.ObjectKey, t applied.Terminating) {
		if k.Engine == pl.Engine && t.Application.In() == id.In() && id.Holds(t.Application) {
			removed = append(removed, t.Application)
		}
	})
	if len(removed) > 0 {
		return fmt.Sprintf("%s is being removed; restore its file, or wait until the move has ended",
			slices.MinFunc(removed, applied.CompareApplications))
	}
	if why := p.carry(id, pl.From); len(why) > 0 {
		return strings.Join(why, "; ")
	}
	slices.SortFunc(back, applied.CompareApplications)
	p.out.Begun = append(p.out.Begun, Move{Environment: id.In(), Slice: id.Slice, From: pl.Engine,
		To: pl.From, Applications: back, Undo: true})
	pl.Engine, pl.From, pl.Revision = pl.From, pl.Engine, p.Revision
	pl.Reason = fmt.Sprintf("a person has undone its move to engine %s", pl.From)
	p.Placements.Set(id, pl)
	p.out.Placements[id] = pl
	p.out.Environments[id.In()] = true
	if len(back) == 0 {
		p.endMove(id)
	}
	return ""
}

// immovable returns why a slice cannot move now, even to an engine that its constraints permit.
func (p placer) immovable(id fleet.SliceID, pl fleet.Placement, m mirror.MoveRequest) string {
	if why := p.fixed(id, pl); why != "" {
		return why
	}
	to := m.To
	switch {
	case slices.Contains(p.Evacuated, pl.Engine):
		return fmt.Sprintf("engine %s %s, which gives its environments other engines", pl.Engine,
			evacuated)
	case slices.Contains(p.Evacuated, to):
		return fmt.Sprintf("engine %s %s", to, evacuated)
	case to.OfEnvironment() && to != fleet.AgentEngine(id.In()):
		return fmt.Sprintf("engine %s is the cluster of another environment", to)
	case to.OfEnvironment() && p.after.Environment(id.In()).Environment.Agent == nil:
		return "its declaration has no agent (spec.agent)"
	case to.OfEnvironment() && id.Slice != "":
		return "it is split, and an agent of its own serves all of it: join its slices first"
	case !to.OfEnvironment() && p.after.Engine(to) == nil:
		return fmt.Sprintf("engine %s is not declared under fleet/engines/", to)
	case m.Undo && pl.From != to:
		return "its move has ended; move it back"
	case pl.From != "" && !m.Undo:
		return fmt.Sprintf("it is moving from engine %s to engine %s; wait until that has ended",
			pl.From, pl.Engine)
	case pl.Engine == to:
		return fmt.Sprintf("it is on engine %s already", to)
	case m.Drain && !p.drains(pl.Engine) && !p.leavesMisplaced(pl) && !p.spreads(pl.Engine, to):
		return p.noReason(pl)
	case m.Rebalance != "" &&
		p.after.Fleet().Placement.Rebalance.Mode == fleet.RebalanceOff:
		return "spec.placement.rebalance.mode of the Fleet is Off"
	case len(p.Unread)+len(p.SilentAgents) > 0:
		return "the mirror is being rebuilt; repeat the move when that has ended"
	}
	return ""
}

// fixed returns why a slice cannot leave its engine, to wherever.
func (p placer) fixed(id fleet.SliceID, pl fleet.Placement) string {
	env := p.after.Environment(id.In())
	switch of := p.Partition(id.In()); {
	case env == nil || p.Declared.Removing[id.In()]:
		return fmt.Sprintf("environment %s is not declared, or is being removed", id.In())
	case !slices.Contains(of, id.Slice) && len(of) == 1:
		return fmt.Sprintf("environment %s is not split: name the environment alone", id.In())
	case !slices.Contains(of, id.Slice):
		return fmt.Sprintf("environment %s is split into slices %s: name one of them, or join "+
			"them first", id.In(), strings.ReplaceAll(fleet.JoinSlices(of), ",", ", "))
	case env.Environment.OwnCluster():
		return "its own Argo CD serves it, behind an agent (spec.agent), and no other engine reaches it"
	case env.Environment.OnEngine() != "":
		return "its cluster is that of engine " + string(env.Environment.OnEngine()) +
			" (spec.cluster.engine), and no other engine serves it"
	case pl.Engine == "":
		return "it has no engine yet: " + pl.Reason
	}
	return ""
}

// drains reports whether an engine is declared Draining.
func (p placer) drains(name fleet.EngineName) bool {
	e := p.after.Engine(name)
	return e != nil && e.Engine.State == fleet.EngineDraining
}

// leavesMisplaced reports whether an environment leaves its engine because it is misplaced there.
func (p placer) leavesMisplaced(pl fleet.Placement) bool {
	return pl.Misplaced != "" && p.after.Fleet().Placement.Misplaced == fleet.MisplacedMove
}

// spreads reports whether environments may move between two engines because they are serving
// instances of one pool.
func (p placer) spreads(from, to fleet.EngineName) bool {
	serving := func(name fleet.EngineName) *fleet.PoolMember {
		e := p.after.Engine(name)
		if e == nil || e.Engine.Pool == nil || e.Engine.Pool.State != fleet.MemberServing {
			return nil
		}
		return e.Engine.Pool
	}
	a, b := serving(from), serving(to)
	return a != nil && b != nil && a.Pool == b.Pool
}

// noReason explains why an environment need not leave its engine any more.
func (p placer) noReason(pl fleet.Placement) string {
	if p.after.Fleet().Placement.Misplaced == fleet.MisplacedMove {
		return fmt.Sprintf("engine %s complies with its constraints again", pl.Engine)
	}
	return fmt.Sprintf("engine %s does not drain any more", pl.Engine)
}

// behindAgent reports whether an engine is behind an agent, or is not declared.
func (p placer) behindAgent(name fleet.EngineName) bool {
	e := p.after.Engine(name)
	return e == nil || e.Engine.Connection.Agent != nil
}

// departing lists the Applications of a slice that leave its engine, sorted, and the reasons why
// some cannot.
func (p placer) departing(id fleet.SliceID, from fleet.EngineName,
	deletions map[onEngine][]string) (
	all []fleet.ApplicationID, reasons []string) {
	wanted := map[fleet.DeploymentID]bool{}
	for _, dep := range p.deploymentsIn(id) {
		wanted[dep] = true
	}
	for _, dep := range p.Applied.Catalog.DeploymentsIn(id.In()) {
		if !id.Slice.Holds(dep.Name) {
			continue
		}
		app := applied.ApplicationID(dep, id.In())
		r, exists := p.Rows.Get(applied.ApplicationKey(from, app))
		switch {
		case !exists || r.Unwanted:
			continue
		case !wanted[dep]:
			reasons = append(reasons,
				fmt.Sprintf("%s is being deleted; repeat the move when that has ended", app))
		}
		all = append(all, app)
	}
	reasons = append(reasons, p.waiting(id, false)...)
	reasons = append(reasons, deletions[onEngine{id, ""}]...)
	// the old engine deletes the workload while the new one would create it
	reasons = append(reasons, deletions[onEngine{id, from}]...)
	slices.Sort(reasons)
	slices.SortFunc(all, applied.CompareApplications)
	return all, slices.Compact(reasons)
}

// waiting returns the changes that keep a slice where it is, sorted: those that a freeze holds,
// since another engine would render the Application with its change, and those of rollouts under
// way.
// An Application whose rollout waits for a person moves with the manifest that it has, and an
// evacuation awaits no rollout. It costs the deployments of the environment.
func (p placer) waiting(id fleet.SliceID, evacuates bool) (all []string) {
	for _, dep := range p.declaredIn(id) {
		app := applied.ApplicationID(dep, id.In())
		if f, waits := p.Frozen.Get(app); waits && (!f.Rollout || f.Lost) {
			all = append(all, fmt.Sprintf("a change of %s waits, since %s: repeat this then, or "+
				"run argosy release %s", app, f.Why, f.Revision.Short()))
		}
		r, i := p.Rolling(app)
		underWay := r.State == mirror.RolloutRunning || r.State == mirror.RolloutReturning
		if i >= 0 && underWay && !evacuates {
			all = append(all, fmt.Sprintf("the rollout of %s is under way, and may change %s: "+
				"repeat this when it is done, or pause it", dep, app))
		}
	}
	slices.Sort(all)
	return all
}

// onEngine is a slice on one engine; on any engine if there is none.
type onEngine struct {
	slice  fleet.SliceID
	engine fleet.EngineName
}

// deletions returns why the deletions of Applications, held ones and those under way, keep their
// slices on their engines.
func (p placer) deletions() map[onEngine][]string {
	out := map[onEngine][]string{}
	for _, h := range p.Held.Base() {
		at := onEngine{p.SliceOf(h.Application), ""}
		out[at] = append(out[at], fmt.Sprintf("the deletion of %s waits for an approval: run "+
			"argosy release %s, or restore its file", h.Application, h.Revision.Short()))
	}
	p.Terminating.Each(func(k fleet.ObjectKey, t applied.Terminating) {
		at := onEngine{p.SliceOf(t.Application), k.Engine}
		out[at] = append(out[at], fmt.Sprintf("%s is being deleted; repeat the move when that has "+
			"ended", t.Application))
	})
	return out
}

// unadoptable returns why an adopted Application cannot move to another engine; "" if it can. It
// does not name other tenants' Applications.
func (p placer) unadoptable(id fleet.ApplicationID, from, to fleet.EngineName) string {
	d := p.after.Deployment(id.Deployed())
	if d == nil {
		return ""
	}
	object := d.Deployment.AdoptedIn(id.Environment).Application
	if object == "" {
		return ""
	}
	if namespace, _ := fleet.SplitObject(object); namespace != "" {
		return fmt.Sprintf("%s is Application %s, outside Argo CD's own namespace, where others may "+
			"write to it during the move; release it first (deletionPolicy: Release)", id, object)
	}
	if p.behindAgent(from) {
		return fmt.Sprintf("%s is the adopted Application %s on engine %s, behind an agent, which "+
			"alone knows what a release would restore; release it first (deletionPolicy: Release)",
			id, object, from)
	}
	_, exists := p.Rows.Get(
		fleet.ObjectKey{Engine: to, Kind: fleet.ObjectApplication, Name: object})
	for _, other := range p.after.Adopters(object) {
		rival := p.after.Deployment(other)
		if rival == nil {
			continue // quarantined
		}
		for _, a := range rival.Deployment.Adopt {
			environment := fleet.EnvironmentID{Tenant: other.Tenant, Name: a.Environment}
			pl, _ := p.PlacementOf(applied.ApplicationID(other, environment))
			exists = exists || a.Application == object && pl.Engine == to &&
				environment != id.In()
		}
	}
	if exists {
		return fmt.Sprintf("%s is Application %s, and engine %s has another Application of that "+
			"name", id, object, to)
	}
	return ""
}

// endMove takes a slice off the engine that it was leaving, once no Application of it is there.
func (s *scope) endMove(id fleet.SliceID) {
	pl, _ := s.Placements.Get(id)
	if pl.From == "" || s.ApplicationsIn.Count(id, pl.From) > 0 {
		return
	}
	s.leave(id.In(), pl.From)
	pl.From = ""
	s.joinable[id.In()] = true
	s.Placements.Set(id, pl)
	s.out.Placements[id] = pl
}
