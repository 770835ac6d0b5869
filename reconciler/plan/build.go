package plan

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/guard"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/report"
)

// plan returns the Plan of converged phases. A hold of the whole revision is all of its plan.
func (o *outcome) plan() (*Plan, error) {
	s, r := o.base.state, o.request
	o.files = s.FilesAfter(o.admission.Files)
	waiting := guard.WholeRevision(s, o.files, o.placed.Unwanted, r.guards())
	p := &Plan{
		Base: s.Revision, Head: r.Revision, RevisionHold: waiting,
		NeedsEngines: o.placed.NeedsEngines,
		outcome:      o,
	}
	o.revisionHold = waiting
	if r.Revision == s.Revision && !r.AtHead {
		// another head still waits while the applied revision is planned again
		o.revisionHold = s.RevisionHold
	}
	if was := s.RevisionHold; was != nil &&
		(o.revisionHold == nil || was.ID() != o.revisionHold.ID()) {
		p.Ended = append(p.Ended, was.ID())
	}
	if waiting != nil {
		return p, o.waitingInto(p)
	}
	o.declarationsInto(p)
	if err := o.rowsInto(p); err != nil {
		return nil, err
	}
	o.placementsInto(p)
	o.holdsInto(p)
	p.Begun, p.Refused = o.placed.Begun, o.placed.Refused
	o.syncsInto(p)
	o.rolloutsInto(p)
	o.quotasInto(p)
	o.outgrownInto(p)
	o.count(p)
	if err := o.drainsInto(p); err != nil {
		return nil, err
	}
	m := o.placed.Layers.Remember(o.declared.Deferred, o.admission.Held)
	m.RevisionHold, m.Blocked = o.revisionHold, o.placed.Blocked
	return p, o.finish(p, m)
}

// drainsInto simulates the moves off engines that begin with the plan, for its report: off those
// that begin to drain, and those of environments that are misplaced from now on.
func (o *outcome) drainsInto(p *Plan) error {
	if !o.request.Explain || o.placed.Blocked {
		return nil
	}
	for _, c := range p.Declarations {
		if c.Key.Kind != fleet.KindEngine || drains(c.Before) || !drains(c.After) {
			continue
		}
		if err := o.drainInto(fleet.EngineName(c.Key.Name), false); err != nil {
			return err
		}
	}
	for _, engine := range o.newlyMisplaced(p) {
		if err := o.drainInto(engine, true); err != nil {
			return err
		}
	}
	return nil
}

func (o *outcome) drainInto(engine fleet.EngineName, misplaced bool) error {
	out, err := place.SimulateAfter(o.base.state, o.declared, o.placed.Layers,
		placement.Change{Kind: placement.Drain, Engine: engine, Misplaced: misplaced},
		place.Status{Unready: o.request.Unready})
	if err != nil {
		return err
	}
	o.drains = append(o.drains, report.Drain{Engine: out.Engine, Misplaced: misplaced,
		Moves: out.Moves, Left: out.Left,
		Churn: o.declared.After.Fleet().Placement.Churn.OrDefaults()})
	return nil
}

// outgrownInto warns of environments that have more Applications than their engine has capacity
// from now on. Only the reader of a pull request gets the warning: the placement has the sizes.
func (o *outcome) outgrownInto(p *Plan) {
	if !o.request.Explain {
		return
	}
	for i := range p.Placements {
		pl := &p.Placements[i]
		if why := pl.Outgrown(); why != "" && o.before(*pl).Outgrown() == "" {
			problem := o.outgrower(p, pl)
			problem.Severity, problem.Code = fleet.SeverityWarning, codeOutgrown
			problem.Message = fmt.Sprintf("environment %s stays where it is, but %s, so a drain or "+
				"an evacuation may find no engine for it", pl.ID(), why)
			problem.Fix = pl.SizeFix()
			p.Problems = append(p.Problems, problem)
		}
	}
	sortProblems(p.Problems)
}

// outgrower returns the place of the change that lets an environment outgrow its engine: a
// deployment with a new Application there, the engine's lower capacity, or else the environment.
func (o *outcome) outgrower(p *Plan, pl *fleet.Placement) fleet.Problem {
	after := o.declared.After
	for _, c := range p.Rows {
		if c.Action != report.Create || c.Row.Key.Kind != fleet.ObjectApplication ||
			c.Row.Key.Engine != pl.Engine || c.Row.Application().In() != pl.Environment ||
			!pl.ID().Holds(c.Row.Application()) {
			continue
		}
		if d := after.Deployment(c.Row.Application().Deployed()); d != nil {
			return fleet.Problem{Key: d.Key, Path: d.Path, Field: "spec.destination"}
		}
	}
	for _, c := range p.Declarations {
		if c.Key.Kind == fleet.KindEngine && c.Key.Name == string(pl.Engine) && c.After != nil {
			return fleet.Problem{Key: c.Key, Path: c.After.Path,
				Field: "spec.capacity.applications"}
		}
	}
	env := after.Environment(pl.Environment)
	return fleet.Problem{Key: env.Key, Path: env.Path, Field: "metadata.name"}
}

// newlyMisplaced lists the engines that misplaced environments leave from now on, sorted: because
// of the plan's placements, or because the Fleet has them moved.
func (o *outcome) newlyMisplaced(p *Plan) []fleet.EngineName {
	after, engines := o.declared.After, map[fleet.EngineName]bool{}
	if after.Fleet().Placement.Misplaced != fleet.MisplacedMove {
		return nil
	}
	for _, pl := range p.Placements {
		engines[pl.Engine] = engines[pl.Engine] || pl.Misplaced != ""
	}
	if o.base.state.Catalog.Fleet().Placement.Misplaced != fleet.MisplacedMove {
		o.placed.Layers.Placements.Each(func(_ fleet.SliceID, pl fleet.Placement) {
			engines[pl.Engine] = engines[pl.Engine] || pl.Misplaced != ""
		})
	}
	maps.DeleteFunc(engines, func(name fleet.EngineName, misplaced bool) bool {
		e := after.Engine(name)
		return !misplaced || e == nil || drains(e)
	})
	return slices.Sorted(maps.Keys(engines))
}

func drains(d *fleet.Declaration) bool {
	return d != nil && d.Engine.State == fleet.EngineDraining
}

// finish adds the hash and the memory after the plan.
func (o *outcome) finish(p *Plan, m applied.Memory) (err error) {
	p.Hash = p.hash()
	o.memory, o.timeless, err = o.base.state.MemoryChange(m)
	return err
}

// waitingInto makes the plan of a revision that waits as a whole.
func (o *outcome) waitingInto(p *Plan) error {
	s := o.base.state
	if s.RevisionHold == nil || !reflect.DeepEqual(*s.RevisionHold, *p.RevisionHold) {
		p.Holds = []mirror.Hold{*p.RevisionHold}
	}
	for _, k := range p.RevisionHold.Items {
		r, _ := o.placed.Layers.Rows.Get(k)
		o.heldEffects = append(o.heldEffects, effect(diff.Row(k, r), true))
	}
	m := s.Remember()
	m.RevisionHold = p.RevisionHold
	return o.finish(p, m)
}

// declarationsInto copies the catalog's results. Checked keys whose quarantine did not change keep
// their problems.
func (o *outcome) declarationsInto(p *Plan) {
	after := o.declared.After
	p.Declarations, p.Checked = o.declared.Changes, after.Checked()
	p.Quarantined, p.Cleared, p.Problems = after.Quarantined(), after.Cleared(), after.Problems()
	changed := map[fleet.Key]bool{}
	for _, q := range p.Quarantined {
		changed[q.Key] = true
	}
	for _, k := range p.Checked {
		if q, ok := after.Quarantine(k); ok && !changed[k] {
			p.Problems = append(p.Problems, q.Problems...)
		}
	}
	p.Problems = append(p.Problems, o.diff.Problems...)
	p.Problems = append(p.Problems, o.declared.Waiting(o.placed.Layers)...)
	for _, k := range p.Checked {
		if k.Kind != fleet.KindManagedEnvironment {
			continue
		}
		env := after.Declaration(k)
		id, unplaced := o.unplaced(applied.EnvironmentID(k))
		if env != nil && unplaced {
			pl, _ := o.placed.Layers.Placements.Get(id)
			problem := fleet.Problem{
				Key: k, Path: env.Path, Severity: fleet.SeverityWarning, Code: "unplaced",
				Message: pl.Reason,
			}
			if id.Slice != "" {
				problem.Message = fmt.Sprintf("slice %s: %s", id.Slice, pl.Reason)
			}
			if pl.TooLarge != nil {
				problem.Code, problem.Fix = codeTooLarge, pl.SizeFix()
			}
			if o.keptApart(id) {
				problem.Code, problem.Field = catalog.CodeSharedClone, "metadata.name"
				problem.Fix = "ask the platform for another engine, or, if every tenant with a " +
					"grant may read all of the repository, to list it in sharedRepositories of " +
					"fleet/fleet.yaml"
			}
			p.Problems = append(p.Problems, problem)
		}
	}
	sortProblems(p.Problems)
}

func sortProblems(all []fleet.Problem) {
	slices.SortFunc(all, func(a, b fleet.Problem) int {
		return cmp.Or(
			applied.CompareDeclarations(a.Key, b.Key), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Message, b.Message),
		)
	})
}

const (
	codeTooLarge = "environment-too-large"
	codeOutgrown = "environment-outgrown"
)

// unplaced returns the first slice of an environment without an engine.
func (o *outcome) unplaced(id fleet.EnvironmentID) (fleet.SliceID, bool) {
	for _, of := range o.placed.Layers.SlicesOf(id) {
		if pl, _ := o.placed.Layers.Placements.Get(of); pl.Engine == "" {
			return of, true
		}
	}
	return fleet.SliceID{}, false
}

// keptApart reports whether an engine would serve a slice but for another reader of one of
// its repositories.
func (o *outcome) keptApart(id fleet.SliceID) bool {
	return slices.ContainsFunc(o.placed.Placements[id].Alternatives,
		func(a fleet.Alternative) bool { return placement.KeepsReadersApart(a.Reason) })
}

func (o *outcome) rowsInto(p *Plan) (err error) {
	in := diff.Input{
		Applied: o.base.state, Declared: o.declared, Placed: o.placed, Renderer: o.render,
	}
	p.Rows, err = o.diff.Changes(in, o.request.Explain)
	p.Freed = slices.SortedFunc(maps.Keys(o.diff.Freed), applied.CompareKeys)
	p.Approved = slices.SortedFunc(maps.Keys(o.diff.Approved), applied.CompareKeys)
	return err
}

func (o *outcome) placementsInto(p *Plan) {
	decided, removed := o.placed.Placements, o.placed.Removed
	for _, id := range slices.SortedFunc(maps.Keys(decided), fleet.SliceID.Compare) {
		if !removed[id.In()] {
			p.Placements = append(p.Placements, decided[id])
		}
	}
	o.moves = o.movesOf(p.Placements)
	p.Unplaced = slices.SortedFunc(maps.Keys(removed), applied.CompareEnvironments)
	p.Relabelled = slices.SortedFunc(maps.Keys(o.placed.Relabelled), fleet.SliceID.Compare)
}

// movesOf returns the placements that had another engine before.
func (o *outcome) movesOf(placements []fleet.Placement) map[fleet.SliceID]report.Move {
	out := map[fleet.SliceID]report.Move{}
	for _, pl := range placements {
		if from := o.before(pl).Engine; from != "" && pl.Engine != "" && from != pl.Engine {
			out[pl.ID()] = report.Move{
				Environment: pl.Environment.Name, Slice: pl.Slice, From: from, To: pl.Engine,
				Applications: pl.Applications,
			}
		}
	}
	return out
}

// before returns the placement of a slice before the plan: its own, that of the slice that was
// split, or that of a half of it.
func (o *outcome) before(pl fleet.Placement) fleet.Placement {
	state := o.base.state
	for s := pl.Slice; ; s = s.Parent() {
		if was, known := state.Placements.Get(pl.Environment.Slice(s)); known || s == "" {
			if known {
				return was
			}
			break
		}
	}
	for _, was := range state.PlacementsOf(pl.Environment) {
		if strings.HasPrefix(string(was.Slice), string(pl.Slice)) {
			return was
		}
	}
	return fleet.Placement{}
}

// holdsInto compares the holds before and after. It costs what is held, and only when that changes.
func (o *outcome) holdsInto(p *Plan) {
	s, held, frozen := o.base.state, &o.placed.Layers.Held, &o.placed.Layers.Frozen
	if len(held.Changed())+len(frozen.Changed()) == 0 && !o.admission.Changed {
		return
	}
	now := map[fleet.ApplicationID]applied.Held{}
	held.Each(func(id fleet.ApplicationID, h applied.Held) { now[id] = h })
	waiting := map[fleet.ApplicationID]applied.Frozen{}
	frozen.Each(func(id fleet.ApplicationID, f applied.Frozen) { waiting[id] = f })
	before := guard.Holds(s.Held.Base(), s.Frozen.Base(), s.Unreviewed)
	after := guard.Holds(now, waiting, o.admission.Held)
	for id, h := range after {
		if was, ok := before[id]; !ok || !reflect.DeepEqual(was, h) {
			p.Holds = append(p.Holds, h)
		}
	}
	for id := range before {
		if _, still := after[id]; !still {
			p.Ended = append(p.Ended, id)
		}
	}
	slices.SortFunc(p.Holds, func(a, b mirror.Hold) int {
		return applied.CompareHolds(a.ID(), b.ID())
	})
	slices.SortFunc(p.Ended, applied.CompareHolds)
}

func (o *outcome) syncsInto(p *Plan) {
	p.Syncs = o.diff.Syncs
	for _, action := range o.request.Rollbacks {
		p.Rollbacks = append(p.Rollbacks, action.ID)
	}
	slices.Sort(p.Rollbacks)
	holds := &o.placed.Layers.SyncHolds
	ids := holds.Changed()
	slices.SortFunc(ids, applied.CompareApplications)
	for _, id := range ids {
		h, ok := holds.Get(id)
		switch {
		case !ok:
			p.EndedSyncHolds = append(p.EndedSyncHolds, id)
		case h != holds.Base()[id]:
			p.SyncHolds = append(p.SyncHolds, h)
		}
	}
}

// rolloutsInto adds the rollouts that the plan begins, advances or ends, sorted.
func (o *outcome) rolloutsInto(p *Plan) {
	l := o.placed.Layers
	p.LastGood = o.diff.LastGood
	p.Rollouts = slices.Clone(l.EndedRollouts.Values())
	for _, id := range l.Rollouts.Changed() {
		if r, open := l.Rollouts.Get(id); open {
			p.Rollouts = append(p.Rollouts, r)
		}
	}
	slices.SortFunc(p.Rollouts, func(a, b mirror.Rollout) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Deployment, b.Deployment),
			cmp.Compare(a.ID, b.ID))
	})
}

// quotasInto adds the quotas of the tenants that the plan touches.
func (o *outcome) quotasInto(p *Plan) {
	after := o.declared.After
	for _, t := range p.tenants() {
		u := report.QuotaUse{Tenant: t, Before: o.base.state.Catalog.Used(t), After: after.Used(t)}
		if decl := after.Tenant(t); decl != nil {
			u.Quota = decl.Tenant.Quota
		}
		o.quotas = append(o.quotas, u)
	}
}

func (o *outcome) count(p *Plan) {
	for _, c := range p.Rows {
		p.Counts.Add(c.Action, c.Row.Key.Kind)
	}
	for _, pl := range p.Placements {
		if pl.Engine != "" && o.before(pl).Engine == "" {
			p.Counts.Placed++
		}
	}
}
