package plan

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

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
	o.quotasInto(p)
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
		o.placed.Layers.Placements.Each(func(_ fleet.EnvironmentID, pl fleet.Placement) {
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
	for _, k := range p.Checked {
		if k.Kind != fleet.KindManagedEnvironment {
			continue
		}
		env := after.Declaration(k)
		pl, _ := o.placed.Layers.Placements.Get(applied.EnvironmentID(k))
		if env != nil && pl.Engine == "" {
			problem := fleet.Problem{
				Key: k, Path: env.Path, Severity: fleet.SeverityWarning, Code: "unplaced",
				Message: pl.Reason,
			}
			if large := pl.TooLarge; large != nil {
				problem.Code, problem.Fix = codeTooLarge, large.Fix()
			}
			if o.keptApart(applied.EnvironmentID(k)) {
				problem.Code, problem.Field = catalog.CodeSharedClone, "metadata.name"
				problem.Fix = "ask the platform for another engine, or, if every tenant with a " +
					"grant may read all of the repository, to list it in sharedRepositories of " +
					"fleet/fleet.yaml"
			}
			p.Problems = append(p.Problems, problem)
		}
	}
	slices.SortFunc(p.Problems, func(a, b fleet.Problem) int {
		return cmp.Or(
			applied.CompareDeclarations(a.Key, b.Key), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Message, b.Message),
		)
	})
}

const codeTooLarge = "environment-too-large"

// keptApart reports whether an engine would serve an environment but for another reader of one of
// its repositories.
func (o *outcome) keptApart(id fleet.EnvironmentID) bool {
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
	for _, id := range slices.SortedFunc(maps.Keys(decided), applied.CompareEnvironments) {
		if !removed[id] {
			p.Placements = append(p.Placements, decided[id])
		}
	}
	o.moves = o.movesOf(p.Placements)
	p.Unplaced = slices.SortedFunc(maps.Keys(removed), applied.CompareEnvironments)
}

// movesOf returns the placements that had another engine before.
func (o *outcome) movesOf(placements []fleet.Placement) map[fleet.EnvironmentID]report.Move {
	out := map[fleet.EnvironmentID]report.Move{}
	for _, pl := range placements {
		was, _ := o.base.state.Placements.Get(pl.Environment)
		if from := was.Engine; from != "" && pl.Engine != "" && from != pl.Engine {
			out[pl.Environment] = report.Move{
				Environment: pl.Environment.Name, From: from, To: pl.Engine,
				Applications: pl.Applications,
			}
		}
	}
	return out
}

// holdsInto compares the holds before and after. It costs what is held, and only when that changes.
func (o *outcome) holdsInto(p *Plan) {
	s, held := o.base.state, &o.placed.Layers.Held
	if len(held.Changed()) == 0 && !o.admission.Changed {
		return
	}
	now := map[fleet.ApplicationID]applied.Held{}
	held.Each(func(id fleet.ApplicationID, h applied.Held) { now[id] = h })
	before := guard.Holds(s.Held.Base(), s.Unreviewed)
	after := guard.Holds(now, o.admission.Held)
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
		was, _ := o.base.state.Placements.Get(pl.Environment)
		if pl.Engine != "" && was.Engine == "" {
			p.Counts.Placed++
		}
	}
}
