package place

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// SyncRun is a new SyncRun with its Applications.
type SyncRun struct {
	Declaration *fleet.Declaration
	Targets     []fleet.ApplicationID // to be synced
	Unknown     []fleet.ApplicationID // that the SyncRun may have synced before a rebuild
}

// beginSyncs starts the holds of new SyncRuns and ends those whose file is removed.
func (p *phase) beginSyncs() {
	for _, c := range p.Declared.Changes {
		if c.Key.Kind != fleet.KindSyncRun {
			continue
		}
		name := fleet.SyncRunName(c.Key.Name)
		switch {
		case c.After == nil:
			p.SyncHolds.Each(func(id fleet.ApplicationID, h mirror.SyncHold) {
				if id.Tenant == c.Key.Tenant && h.SyncRun == name {
					p.SyncHolds.Delete(id)
					p.touchSyncHold(id)
				}
			})
		case c.Before == nil:
			p.beginSync(name, c.After)
		}
	}
}

func (p *phase) beginSync(name fleet.SyncRunName, run *fleet.Declaration) {
	s := SyncRun{Declaration: run}
	for _, id := range p.targets(run) {
		unknown := p.unknownHistory(id)
		switch {
		case unknown:
			s.Unknown = append(s.Unknown, id)
		case !p.ranBefore(id):
			s.Targets = append(s.Targets, id)
		default:
			continue
		}
		if run.SyncRun.Hold {
			p.SyncHolds.Set(id, mirror.SyncHold{SyncRun: name, Application: id})
			p.touchSyncHold(id)
		}
	}
	p.out.SyncRuns = append(p.out.SyncRuns, s)
}

// touchSyncHold touches an Application whose sync hold changed.
func (p *phase) touchSyncHold(id fleet.ApplicationID) {
	if _, known := p.applications[id]; known {
		return
	}
	p.applications[id] = false
	for _, env := range p.after.Targets(id.Deployed()) {
		if env == id.In() && !p.Declared.Removing[env] {
			p.applications[id] = true
		}
	}
}

// targets returns the Applications of a SyncRun: in those of its environments that its deployment
// still has.
func (p *phase) targets(run *fleet.Declaration) []fleet.ApplicationID {
	dep := fleet.DeploymentID{Tenant: run.Key.Tenant, Name: run.SyncRun.Deployment}
	named := map[fleet.EnvironmentName]bool{}
	for _, e := range run.SyncRun.Environments {
		named[e] = true
	}
	var ids []fleet.ApplicationID
	for _, env := range p.after.Targets(dep) {
		if len(named) == 0 || named[env.Name] {
			ids = append(ids, applied.ApplicationID(dep, env))
		}
	}
	return ids
}

// ranBefore reports whether a SyncRun may have synced an Application before a rebuild: then all
// SyncRuns are new again, and none may run twice. Engines reported where the environment is.
func (p *phase) ranBefore(id fleet.ApplicationID) bool {
	pl, _ := p.Applied.Placements.Get(id.In())
	return !p.Applied.Started() && pl.Engine != ""
}

// unknownHistory reports whether the syncs and holds of an Application are unknown after a rebuild,
// because agents do not report them. Then nothing is synced, and a possible hold is kept until its
// file is removed or Git asks for another revision.
func (p *phase) unknownHistory(id fleet.ApplicationID) bool {
	pl, _ := p.Applied.Placements.Get(id.In())
	return !p.Applied.Started() && pl.Engine == "" &&
		(Agent(&p.after.View, id.In()) || len(p.Reported[id.In()]) > 0)
}
