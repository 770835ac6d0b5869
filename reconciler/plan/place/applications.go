package place

import (
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// classify sorts the touched Applications into wanted and unwanted ones.
func (p placer) classify() error {
	for _, m := range p.out.Begun {
		for _, id := range m.Applications {
			p.moving[id] = true
		}
	}
	touched := slices.SortedFunc(maps.Keys(p.applications), applied.CompareApplications)
	p.out.Wanted = make([]Application, 0, len(touched)) // nearly all touched ones are wanted
	for _, id := range touched {
		if err := p.application(id, p.applications[id]); err != nil {
			return err
		}
	}
	return nil
}

func (p placer) application(id fleet.ApplicationID, wanted bool) error {
	pl, ok := p.PlacementOf(id)
	if !ok || pl.Engine == "" {
		p.out.Environments[id.In()] = true // once it is placed, its Applications come again
		return nil
	}
	if !pl.Engine.OfEnvironment() && p.after.Engine(pl.Engine) == nil {
		return nil // recovered after a rebuild, and misplaced until its engine is declared
	}
	key := applied.ApplicationKey(pl.Engine, id)
	if f, _ := p.Frozen.Get(id); !wanted || f.Key != key {
		p.forgetLost(id)
	}
	h, held := p.Held.Get(id)
	if wanted {
		dep := p.after.Deployment(id.Deployed())
		a := Application{ID: id, Key: key, Deployment: dep, Freed: held}
		if p.rollsOut(&a) || p.freezes(&a) {
			if a.Lost {
				if err := p.countLost(&a); err != nil {
					return err
				}
			}
			if a.Carried != nil {
				p.countCarried(&a)
			}
			p.out.Frozen = append(p.out.Frozen, a)
			return nil
		}
		return p.want(a)
	}
	p.Frozen.Delete(id) // what waited is not wanted any more
	p.leaveRollout(id)
	r, exists := p.Rows.Get(key)
	switch {
	case !exists || r.Unwanted:
		p.out.Ended = append(p.out.Ended, id)
	case !held:
		p.out.Unwanted = append(p.out.Unwanted, Unwanted{ID: id, Key: key})
	case p.Freed[id] == Approved:
		p.out.Released = append(p.out.Released, Unwanted{ID: id, Key: key, Was: &h})
	case p.Freed[id] == Reviewed:
		p.out.Unwanted = append(p.out.Unwanted, Unwanted{ID: id, Key: key, Was: &h})
	case p.after.Environment(id.In()) != nil:
		return p.want(Application{ID: id, Key: key, Deployment: h.Deployment})
	}
	return nil // a held Application whose environment is removed: the removal will be deferred
}

// freezes reports whether a freeze holds the Application as it is, and sets which. No freeze holds
// an Application that moves: it has the same manifest on its new engine. Nor does one hold what a
// SyncRun does to the automation: a person asked for that sync.
func (p placer) freezes(a *Application) (held bool) {
	env := p.after.Environment(a.ID.In())
	// a release does not cover what a later commit makes of the Application
	released := p.Thawing[a.ID] && p.Applied.Catalog.Deployment(a.ID.Deployed()) == a.Deployment
	a.Passes = released
	calendar := p.Freezes
	if p.Resumes {
		calendar = applied.FreezesOf(&p.after.View, p.Now)
	}
	if released || p.synced[a.ID] || p.moving[a.ID] || calendar == nil || env == nil {
		return false
	}
	a.Freeze, held = calendar.Holds(fleet.FreezeChanges, a.ID.Tenant, env.Labels)
	a.Lost = held && p.lost(a.Key, a.ID)
	return held
}

// want counts an Application in, which the next phase writes.
func (p placer) want(a Application) error {
	err := p.countIn(&a)
	p.out.Wanted = append(p.out.Wanted, a)
	return err
}

// countIn counts an Application and its uses in, and its earlier uses out.
func (p placer) countIn(a *Application) error {
	if a.Deployment == nil || p.after.Environment(a.ID.In()) == nil {
		return fmt.Errorf("application %s is wanted without its deployment and environment;"+
			" this is a defect of Argosy", a.ID)
	}
	urls := a.Deployment.Deployment.RepoURLs()
	old, exists := p.Rows.Get(a.Key)
	if f, _ := p.Frozen.Get(a.ID); f.Lost && !exists {
		old, exists = applied.Row{RepoURLs: f.RepoURLs, Use: f.Use}, true
	}
	target, unresolved := a.Deployment.TargetIn(
		p.after.Environment(a.ID.In()), p.after.Defaults(a.ID.Tenant))
	a.Use = p.UseOf(a.Key, target)
	if len(unresolved) > 0 && exists {
		a.Use = old.Use // its row stays as it is
	}
	p.SetUse(a.Key, a.Use)
	if !exists || old.Use != a.Use {
		p.countUse(a.Key.Engine, a.ID, a.Use, 1)
		p.countUse(a.Key.Engine, a.ID, old.Use, -1)
	}
	if exists && old.RepoURLs == urls {
		return nil
	}
	p.count(a.Key.Engine, a.ID, urls, 1)
	if exists {
		p.count(a.Key.Engine, a.ID, old.RepoURLs, -1)
		return nil
	}
	p.CountApplication(a.Key.Engine, a.ID, 1)
	return nil
}
