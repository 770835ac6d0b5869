package diff

import (
	"cmp"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/reconciler/rollout"
)

// rolling is what the plan touches of a deployment that goes in waves.
type rolling struct {
	spec    fleet.Rollout
	touched map[fleet.EnvironmentName]bool
	changes []rollout.Change
}

// roll notes a touched Application that goes in waves.
func (p *phase) roll(a place.Application, old applied.Row, exists bool, hash string,
	changes bool) {
	of := a.ID.Deployed()
	r := p.rolling[of]
	if r == nil {
		r = &rolling{spec: *a.Rollout, touched: map[fleet.EnvironmentName]bool{}}
		applied.Set(&p.rolling, of, r)
	}
	r.touched[a.ID.Environment] = true
	if !changes {
		return
	}
	c := rollout.Change{Environment: a.ID.Environment, Key: a.Key, Hash: hash, Lost: a.Lost}
	if exists {
		c.Before = &mirror.RolloutBefore{Hash: old.Hash, Deletion: old.Deletion,
			RepoURLs: old.RepoURLs, Namespaces: old.Namespaces, Creates: old.Creates}
	}
	r.changes = append(r.changes, c)
}

// rollouts begins a rollout for each deployment with a change that its present one does not have.
// An Application whose change is withdrawn leaves its rollout.
func (p *phase) rollouts() {
	ids := slices.SortedFunc(maps.Keys(p.rolling), func(a, b fleet.DeploymentID) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	for _, of := range ids {
		p.rollout(of, p.rolling[of])
	}
}

func (p *phase) rollout(of fleet.DeploymentID, r *rolling) {
	changing := map[fleet.EnvironmentName]rollout.Change{}
	for _, c := range r.changes {
		changing[c.Environment] = c
	}
	was, open := p.Rollouts.Get(of)
	if open {
		now := rollout.Drop(was, func(m mirror.RolloutMember) bool {
			_, changes := changing[m.Environment]
			return r.touched[m.Environment] && !changes && !m.State.Changed()
		}, p.Now)
		if len(now.Members) < len(was.Members) {
			p.SetRollout(now)
		}
		if was = now; was.State.Ended() {
			open = false
		}
	}
	known := func(c rollout.Change) bool {
		i := was.Member(c.Environment)
		return i >= 0 && was.Members[i].Hash == c.Hash && was.Members[i].Key == c.Key &&
			!was.Members[i].State.Changed()
	}
	if !slices.ContainsFunc(r.changes, func(c rollout.Change) bool { return !open || !known(c) }) {
		return
	}
	b := rollout.Beginning{Deployment: of, Spec: r.spec, Changes: r.changes, Revision: p.Revision,
		Now: p.Now, Environment: func(env fleet.EnvironmentName) *fleet.Declaration {
			return p.after.Environment(fleet.EnvironmentID{Tenant: of.Tenant, Name: env})
		}}
	if open {
		b.Replaces = &was
	}
	next := rollout.Begin(b)
	if open {
		p.SetRollout(rollout.End(was, "rollout "+next.ID+" of revision "+p.Revision.Short()+
			" replaces it", p.Now))
	}
	p.SetRollout(next)
	for _, m := range next.Members {
		id := applied.ApplicationID(of, fleet.EnvironmentID{Tenant: of.Tenant, Name: m.Environment})
		if f, waits := p.Frozen.Get(id); waits {
			f.Why = rollout.Note(next, m)
			p.Frozen.Set(id, f)
		}
	}
}

// returned writes the Applications that get their last good state back. Their change waits.
func (p *phase) returned() {
	for _, a := range p.Placed.Returned {
		old, _ := p.Rows.Get(a.Key)
		before := a.Member.Before
		next := applied.Row{Hash: before.Hash, Tenant: a.ID.Tenant, Environment: a.ID.Environment,
			Deployment: a.ID.Deployment, Deletion: before.Deletion, RepoURLs: before.RepoURLs,
			Use: applied.Use{Namespaces: before.Namespaces, Creates: before.Creates}}
		p.SetRow(a.Key, next)
		c := &RowChange{Action: report.Update, Row: Row(a.Key, next), BeforeHash: old.Hash}
		c.Row.Manifest, c.Row.Revision = a.Manifest, p.Revision
		p.out.Rows[a.Key] = c
		p.Frozen.Set(a.ID, applied.Frozen{Application: a.ID, Key: a.Key, Hash: a.Member.Hash,
			Revision: a.Rollout.Revision, Since: p.Now, Scope: a.ID.Tenant,
			Why: rollout.Note(a.Rollout, a.Member), Rollout: true, RepoURLs: next.RepoURLs,
			Use: next.Use})
	}
}

// carried writes the Applications that move while their change waits, as they are.
func (p *phase) carried() {
	for _, a := range p.Placed.Frozen {
		if a.Carried == nil {
			continue
		}
		f, _ := p.Frozen.Get(a.ID)
		was := p.Rows.Base()[f.Key] // that of the engine before departs
		next := applied.Row{Hash: a.Carried.Hash, Tenant: a.ID.Tenant,
			Environment: a.ID.Environment, Deployment: a.ID.Deployment, Deletion: was.Deletion,
			RepoURLs: was.RepoURLs, Use: a.Use}
		p.Terminating.Delete(a.Key) // it moves back
		p.SetRow(a.Key, next)
		c := &RowChange{Action: report.Create, Row: Row(a.Key, next)}
		c.Row.Manifest, c.Row.Revision = *a.Carried, p.Revision
		p.out.Rows[a.Key] = c
	}
}

// follow keeps the member of a rollout up to date with its row, which a move or a SyncRun may
// change.
func (p *phase) follow(key fleet.ObjectKey, id fleet.ApplicationID) {
	r, i := p.Rolling(id)
	row, _ := p.Rows.Get(key)
	if i < 0 || r.Members[i].Key == key &&
		(!r.Members[i].State.Changed() || r.Members[i].Hash == row.Hash) {
		return
	}
	p.movedOn(id, key, row.Hash)
}

// movedOn updates the member of a rollout on another engine, or with another manifest of the
// change. Its last good state goes along, as that engine gets it; an engine that must not get it
// has none.
func (p *phase) movedOn(id fleet.ApplicationID, key fleet.ObjectKey, hash string) {
	r, i := p.Rolling(id)
	if i < 0 {
		return
	}
	r = r.Copy()
	m := &r.Members[i]
	if m.Key != key && m.Before != nil {
		if last, known := p.Placed.LastGood[id]; known {
			before := *m.Before
			before.Hash = last.Hash
			m.Before = &before
			p.out.LastGood = append(p.out.LastGood, mirror.RolloutManifest{Rollout: r.Of(),
				Environment: m.Environment, Manifest: last})
		} else {
			m.Before = nil
		}
	}
	m.Key, m.Hash = key, hash
	p.SetRollout(r)
}
