package diff

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/report"
)

// frozen keeps the Applications that a freeze holds as they are, with their repositories and their
// use of the environment. An Application that would not change is not held.
func (p *phase) frozen() error {
	for _, a := range p.Placed.Frozen {
		if err := p.freeze(a); err != nil {
			return err
		}
	}
	return nil
}

func (p *phase) freeze(a place.Application) error {
	was, before := p.Frozen.Get(a.ID)
	sync, synced := p.SyncHolds.Get(a.ID)
	p.keep(a)
	target, _ := a.Deployment.TargetIn(p.after.Environment(a.ID.In()),
		p.after.Defaults(a.ID.Tenant))
	o, next, err := p.object(a.Key, a.ID, a.Deployment, p.UseOf(a.Key, target))
	if o.Application == nil || err != nil {
		return err
	}
	engine, err := p.mustEngine(a.Key, a.ID.Tenant)
	if err != nil {
		return err
	}
	m, changes := p.render(*engine, o, &next)
	old, exists := p.Rows.Get(a.Key)
	if exists && old.Unwanted { // its deletion goes on; it is created again afterwards
		old, exists = applied.Row{}, false
	}
	if a.Lost && p.Recovered.Has(a.Key, m.Hash) {
		changes = false
		if err := p.write(o, next); err != nil {
			return err
		}
	}
	if a.Moves {
		p.movedOn(a.ID, a.Key, m.Hash)
	}
	if a.Rollout != nil {
		p.roll(a, old, exists, m.Hash, changes)
	}
	if !changes {
		return nil
	}
	f := applied.Frozen{Application: a.ID, Key: a.Key, Hash: m.Hash, Revision: p.Revision,
		Since: p.Now, Scope: a.Freeze.Scope, Why: a.Freeze.String(), RepoURLs: old.RepoURLs,
		Use: old.Use}
	if a.Rollout != nil {
		f.Rollout, f.Scope, f.Why = true, a.ID.Tenant, was.Why
	}
	if f.Lost = a.Lost; a.Lost {
		f.RepoURLs, f.Use = next.RepoURLs, next.Use
	}
	if was.Lost {
		f.RepoURLs, f.Use = was.RepoURLs, was.Use
	}
	// an approval of the revision that brought it releases it
	if before && (was.Hash == m.Hash || a.Moves) {
		f.Revision = was.Revision
		if was.Scope == f.Scope { // otherwise no one has seen who may let it pass
			f.Since = was.Since
		}
	}
	p.Frozen.Set(a.ID, f)
	if synced {
		p.SyncHolds.Set(a.ID, sync) // the change that ends it waits
	}
	if a.Moves || before && was.Hash == m.Hash && was.Why == f.Why && was.Rollout == f.Rollout {
		return nil
	}
	c := &RowChange{Action: report.Freeze, Row: Row(a.Key, next)}
	if a.Rollout != nil {
		c.Action = report.Wave
	}
	c.Row.Manifest, c.Row.Revision = m, p.Revision
	if exists && !before {
		c.BeforeHash = old.Hash
	}
	p.out.Rows[a.Key] = c
	return nil
}

// thaw frees the rows that a freeze held until now, and holds no row free that one holds from now
// on.
func (p *phase) thaw() {
	for _, id := range p.Frozen.Changed() {
		was, before := p.Frozen.Base()[id]
		now, still := p.Frozen.Get(id)
		_, deletion := p.Held.Get(id)
		switch {
		case was.Lost: // no row was held
		case still && now.Rollout && before && !was.Rollout && was.RepoURLs != "" && !deletion:
			applied.Set(&p.out.Freed, was.Key, true)
		case still:
			delete(p.out.Freed, now.Key)
		case before && !was.Rollout && was.RepoURLs != "" && !deletion:
			applied.Set(&p.out.Freed, was.Key, true)
		}
	}
}

// frozenNote explains a change that waits.
func (p *phase) frozenNote(id fleet.ApplicationID) string {
	f, _ := p.Frozen.Get(id)
	return f.Why
}
