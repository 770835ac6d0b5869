package place

import (
	"fmt"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/rollout"
)

// stepRollout takes the step of a rollout: Applications that change from now on are touched, and
// those that return get their former uses back.
func (s *scope) stepRollout(step mirror.RolloutStep) {
	next := step.Rollout
	was, open := s.Rollouts.Get(next.Of())
	if !open || was.ID != next.ID {
		return
	}
	next = next.Copy()
	for i := range next.Members {
		m := &next.Members[i]
		id := applied.ApplicationID(next.Of(), fleet.EnvironmentID{Tenant: next.Tenant,
			Name: m.Environment})
		j := was.Member(m.Environment)
		if j < 0 || was.Members[j].State == m.State {
			continue
		}
		switch m.State {
		case mirror.MemberChanging:
			if !was.Members[j].State.Changed() {
				s.admitted[id] = true
				s.touchFrozen(id)
			}
		case mirror.MemberReturning:
			s.giveBack(next, *m, id, step.Before[m.Environment])
		}
	}
	s.SetRollout(next)
}

// giveBack returns an Application to its last good state.
func (s *scope) giveBack(r mirror.Rollout, m mirror.RolloutMember, id fleet.ApplicationID,
	before fleet.Manifest) {
	old, exists := s.Rows.Get(m.Key)
	if !exists || old.Unwanted || before.Hash != m.Before.Hash {
		return // the next step is another one
	}
	use := applied.Use{Namespaces: m.Before.Namespaces, Creates: m.Before.Creates}
	s.countUse(m.Key.Engine, id, use, 1)
	s.countUse(m.Key.Engine, id, old.Use, -1)
	s.count(m.Key.Engine, id, m.Before.RepoURLs, 1)
	s.count(m.Key.Engine, id, old.RepoURLs, -1)
	s.out.Returned = append(s.out.Returned, Returned{ID: id, Key: m.Key, Rollout: r, Member: m,
		Manifest: before})
}

// rollsOut reports whether the Application goes in waves, and sets their declaration. Its rollout
// then decides when it changes, and asks the freezes. No move and no SyncRun goes in waves, as with
// freezes, and nothing of the first revision does, unless the mirror has lost it. An Application
// that moves while its change waits goes on to wait.
func (p placer) rollsOut(a *Application) bool {
	spec := a.Deployment.Deployment.RolloutIn(p.after.Defaults(a.ID.Tenant))
	if spec == nil {
		if r, open := p.Rollouts.Get(a.ID.Deployed()); open {
			p.SetRollout(rollout.End(r, fmt.Sprintf("deployment %s no longer goes in waves",
				a.ID.Deployed()), p.Now))
		}
		return false
	}
	admitted := p.admitted[a.ID] &&
		p.Applied.Catalog.Deployment(a.ID.Deployed()) == a.Deployment
	a.Carried, a.Moves = p.carried[a.ID]
	if admitted || p.synced[a.ID] || p.moving[a.ID] && !a.Moves {
		return false
	}
	if a.Lost = p.lost(a.Key, a.ID); !a.Lost && !p.Applied.Started() {
		return false
	}
	a.Rollout = spec
	return true
}

// carry brings the manifests of the Applications of a slice whose change waits to another engine,
// and those that their rollouts may return to. It returns why one cannot be brought there.
func (p placer) carry(id fleet.SliceID, to fleet.EngineName) (reasons []string) {
	for _, dep := range p.deploymentsIn(id) {
		app := applied.ApplicationID(dep, id.In())
		if why := p.carryOne(app, applied.ApplicationKey(to, app)); why != "" {
			reasons = append(reasons, fmt.Sprintf("a change of %s waits for its wave, and its "+
				"present state cannot go along: %s", app, why))
		}
	}
	return reasons
}

func (p placer) carryOne(app fleet.ApplicationID, to fleet.ObjectKey) (why string) {
	if f, waits := p.Frozen.Get(app); waits && f.Rollout {
		row, exists := p.Rows.Get(f.Key)
		switch {
		case f.Key == to || !exists || row.Unwanted:
			p.carried[app] = nil
		case f.Key.Engine.OfEnvironment() || to.Engine.OfEnvironment():
			return "its API server has another name on an environment's own cluster"
		case row.RepoURLs != p.after.Deployment(app.Deployed()).Deployment.RepoURLs():
			return "it reads other repositories than the change"
		default:
			m, err := p.Carry(row.Hash, to, app.Tenant)
			if err != nil {
				return err.Error()
			}
			p.carried[app] = &m
		}
	}
	r, i := p.Rolling(app)
	if i < 0 || r.Members[i].Before == nil || r.Members[i].Key == to {
		return ""
	}
	m, err := p.Carry(r.Members[i].Before.Hash, to, app.Tenant)
	if err != nil {
		return err.Error()
	}
	applied.Set(&p.out.LastGood, app, m)
	return ""
}

// countCarried counts an Application in that moves with the manifest that it has.
func (p placer) countCarried(a *Application) {
	f, _ := p.Frozen.Get(a.ID)
	row, _ := p.Rows.Get(f.Key)
	a.Use = row.Use
	p.SetUse(a.Key, a.Use)
	there, exists := p.Rows.Get(a.Key) // it moves back
	p.countUse(a.Key.Engine, a.ID, a.Use, 1)
	p.count(a.Key.Engine, a.ID, row.RepoURLs, 1)
	if exists {
		p.countUse(a.Key.Engine, a.ID, there.Use, -1)
		p.count(a.Key.Engine, a.ID, there.RepoURLs, -1)
		return
	}
	p.CountApplication(a.Key.Engine, a.ID, 1)
}

// lost reports whether an Application may exist without a row, since the mirror was lost.
func (p placer) lost(key fleet.ObjectKey, id fleet.ApplicationID) bool {
	if _, exists := p.Rows.Get(key); exists {
		return false
	}
	f, _ := p.Frozen.Get(id)
	return f.Lost || p.Recovered.Lost(key, id.Deployed())
}

// countLost counts an Application in that may exist without a row, once, so that AppProjects and
// Secrets have what it needs.
func (p placer) countLost(a *Application) error {
	if f, _ := p.Frozen.Get(a.ID); f.Lost {
		a.Use = f.Use
		return nil
	}
	return p.countIn(a)
}

// forgetLost counts an Application out that has no row, and that is not wanted there any more.
func (p placer) forgetLost(id fleet.ApplicationID) {
	f, _ := p.Frozen.Get(id)
	if !f.Lost {
		return
	}
	p.count(f.Key.Engine, id, f.RepoURLs, -1)
	p.countUse(f.Key.Engine, id, f.Use, -1)
	p.CountApplication(f.Key.Engine, id, -1)
	p.shrunk = append(p.shrunk, id.In())
	p.Frozen.Delete(id)
}

// leaveRollout removes an Application that is no longer wanted from its rollout.
func (p placer) leaveRollout(id fleet.ApplicationID) {
	r, i := p.Rolling(id)
	if i >= 0 {
		p.SetRollout(rollout.Drop(r, func(m mirror.RolloutMember) bool {
			return m.Environment == id.Environment
		}, p.Now))
	}
}
