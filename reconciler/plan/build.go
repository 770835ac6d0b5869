package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"argosy.dev/argosy/fleet"
)

// plan reads the finished draft off. With a hold of the whole revision, that is all there is to do.
func (d *draft) plan(waiting *fleet.Hold) (*Plan, error) {
	p := &Plan{Base: d.w.revision, Head: d.r.Revision, Waiting: waiting,
		NeedsEngines: d.needsEngines, draft: d}
	d.waitingNow = waiting
	if d.r.Revision == d.w.revision && !d.r.AtHead {
		// planning the applied revision anew does not end what another head waits for
		d.waitingNow = d.w.waiting
	}
	d.endedWait(p)
	if waiting != nil {
		if d.w.waiting == nil || !reflect.DeepEqual(*d.w.waiting, *waiting) {
			p.Holds = []fleet.Hold{*waiting}
		}
		for _, k := range waiting.Items {
			r, _ := d.rows.get(k)
			p.awaited = append(p.awaited, effect(rowOf(k, r), true))
		}
		m := d.w.remembered()
		m.Waiting = waiting
		return p, p.finish(m)
	}
	d.declarations(p)
	if err := d.rowsInto(p); err != nil {
		return nil, err
	}
	d.placementsInto(p)
	d.holdsInto(p)
	d.syncsInto(p)
	d.quotasInto(p)
	p.count()
	return p, p.finish(d.remembered())
}

func (p *Plan) finish(m memory) error {
	p.Hash = p.hash()
	if len(p.draft.w.memory) == 0 && m.empty() {
		return nil
	}
	b, err := m.encode()
	if err != nil || bytes.Equal(b, p.draft.w.memory) {
		return err
	}
	p.memory = b
	p.timeless, err = m.timeless().encode()
	return err
}

func (d *draft) endedWait(p *Plan) {
	if was := d.w.waiting; was != nil && (d.waitingNow == nil || was.ID() != d.waitingNow.ID()) {
		p.Ended = append(p.Ended, was.ID())
	}
}

// declarations takes over what the catalog says. Checked keys whose quarantine did not change keep
// their problems.
func (d *draft) declarations(p *Plan) {
	p.Declarations, p.Quarantined, p.Cleared, p.Checked = d.changes, d.changeset.Quarantined(),
		d.changeset.Cleared(), d.changeset.Checked()
	p.Problems = d.changeset.Problems()
	told := map[fleet.Key]bool{}
	for _, q := range p.Quarantined {
		told[q.Key] = true
	}
	for _, k := range p.Checked {
		if q, ok := d.changeset.Quarantine(k); ok && !told[k] {
			p.Problems = append(p.Problems, q.Problems...)
		}
	}
	p.Problems = append(p.Problems, d.problems...)
	for _, k := range p.Checked {
		if k.Kind != fleet.KindManagedEnvironment {
			continue
		}
		env := d.changeset.Declaration(k)
		if pl, _ := d.placements.get(environmentID(k)); env != nil && pl.Engine == "" {
			p.Problems = append(p.Problems, fleet.Problem{Key: k, Path: env.Path,
				Severity: fleet.SeverityWarning, Code: "unplaced", Message: pl.Reason})
		}
	}
	slices.SortFunc(p.Problems, func(a, b fleet.Problem) int {
		return cmp.Or(compareDeclarations(a.Key, b.Key), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
}

func (d *draft) rowsInto(p *Plan) error {
	for _, k := range slices.SortedFunc(maps.Keys(d.rowChanges), compareKeys) {
		c := d.rowChanges[k]
		if d.r.Explain && c.BeforeHash != "" {
			before, err := d.w.before(k, d.render)
			if err != nil {
				return err
			}
			c.Before = before.Body
		}
		c.Subject, c.note = d.subject(c.Row), d.note(c)
		p.Rows = append(p.Rows, *c)
	}
	p.Freed = slices.SortedFunc(maps.Keys(d.freed), compareKeys)
	p.Approved = slices.SortedFunc(maps.Keys(d.approved), compareKeys)
	return nil
}

func (d *draft) placementsInto(p *Plan) {
	for _, id := range slices.SortedFunc(maps.Keys(d.decided), compareEnvironments) {
		if !d.unplaced[id] {
			p.Placements = append(p.Placements, d.decided[id])
		}
	}
	p.moves = d.moves(p.Placements)
	p.Unplaced = slices.SortedFunc(maps.Keys(d.unplaced), compareEnvironments)
}

// holdsInto costs what is held, and only when that changes.
func (d *draft) holdsInto(p *Plan) {
	if len(d.held.changed) == 0 && !d.enforcement.changed {
		return
	}
	now := map[fleet.ApplicationID]held{}
	d.held.each(func(id fleet.ApplicationID, h held) { now[id] = h })
	before, after := holds(d.w.held.base, d.w.unreviewed), holds(now, d.enforcement.held)
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
	slices.SortFunc(p.Holds, func(a, b fleet.Hold) int { return compareHolds(a.ID(), b.ID()) })
	slices.SortFunc(p.Ended, compareHolds)
}

func compareHolds(a, b fleet.HoldID) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.Revision, b.Revision))
}

func (d *draft) syncsInto(p *Plan) {
	p.Syncs = d.syncs
	for _, id := range slices.SortedFunc(maps.Keys(d.syncHolds.changed), compareApplications) {
		h, ok := d.syncHolds.get(id)
		switch {
		case !ok:
			p.EndedSyncHolds = append(p.EndedSyncHolds, id)
		case h != d.w.syncHolds.base[id]:
			p.SyncHolds = append(p.SyncHolds, h)
		}
	}
}

func (p *Plan) count() {
	for _, c := range p.Rows {
		p.Counts.add(c.Action, c.Row.Key.Kind)
	}
	for _, pl := range p.Placements {
		if was, ok := p.draft.w.placements.base[pl.Environment]; pl.Engine != "" &&
			(!ok || was.Engine == "") {
			p.Counts.Placed++
		}
	}
}

// subject is what people call an object. A credential's name is in no row: it is looked for among
// the tenant's.
func (d *draft) subject(r fleet.Row) string {
	switch r.Key.Kind {
	case fleet.ObjectApplication:
		return string(r.Deployment) + "@" + string(r.Environment)
	case fleet.ObjectCluster:
		return string(r.Environment)
	case fleet.ObjectRepository:
		for _, id := range slices.Concat(d.changeset.CredentialsOf(r.Tenant),
			d.w.catalog.CredentialsOf(r.Tenant)) {
			if fleet.RepositoryName(id) == r.Key.Name {
				return string(id.Name)
			}
		}
		return r.Key.Name
	}
	return string(r.Tenant)
}

// before renders an object as it was made the last time: from the declarations in force, or for a
// held Application from its last one.
func (w *AppliedState) before(k fleet.ObjectKey, render Renderer) (fleet.Manifest, error) {
	r := w.rows.base[k]
	o := fleet.Object{Key: k}
	switch k.Kind {
	case fleet.ObjectApplication:
		id := r.application()
		dep := w.catalog.Deployment(id.Deployed())
		if h, ok := w.held.base[id]; ok {
			dep = h.Deployment
		}
		o.Application = application(w.catalog.Fleet().Defaults.Sync, dep,
			w.catalog.Environment(id.In()), w.syncHolds.base[id].SyncRun)
	case fleet.ObjectCluster:
		o.Cluster = cluster(w.catalog, w.catalog.Environment(fleet.EnvironmentID{
			Tenant: r.tenant, Name: r.environment}))
	case fleet.ObjectRepository:
		for _, id := range w.catalog.CredentialsOf(r.tenant) {
			if fleet.RepositoryName(id) == k.Name {
				o.Repository = repository(w.catalog, w.catalog.Credential(id))
			}
		}
	default:
		s := share{r.tenant, k.Engine}
		o.Project = project(w.catalog, r.tenant, w.environments.keys(s), w.repos.keys(s))
	}
	engine := w.engineFor(w.catalog, k.Engine, r.tenant)
	if engine == nil {
		return fleet.Manifest{},
			fmt.Errorf(
				"%s %s stands on engine %s, which is not declared; this is a fault of the planner",
				k.Kind, k.Name, k.Engine)
	}
	return render.Render(*engine, o)
}
