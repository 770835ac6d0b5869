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
// freezes, and nothing of the first revision does, unless the mirror has lost it.
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
	if admitted || p.synced[a.ID] || p.moving[a.ID] {
		return false
	}
	if a.Lost = p.lost(a.Key, a.ID); !a.Lost && !p.Applied.Started() {
		return false
	}
	a.Rollout = spec
	return true
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
