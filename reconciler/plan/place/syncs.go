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
func (s *scope) beginSyncs() {
	for _, c := range s.Declared.Changes {
		if c.Key.Kind != fleet.KindSyncRun {
			continue
		}
		name := fleet.SyncRunName(c.Key.Name)
		switch {
		case c.After == nil:
			s.SyncHolds.Each(func(id fleet.ApplicationID, h mirror.SyncHold) {
				if id.Tenant == c.Key.Tenant && h.SyncRun == name {
					s.SyncHolds.Delete(id)
					s.touchSyncHold(id)
				}
			})
		case c.Before == nil:
			s.beginSync(name, c.After)
		}
	}
}

// rollBack pauses the automation of the Applications that return to an earlier revision, or ends
// that. A hold of a SyncRun gives way; one that was ended or replaced meanwhile stays ended.
func (s *scope) rollBack() {
	for id, action := range s.Input.Rollbacks {
		if action.Options.End {
			if h, held := s.SyncHolds.Get(id); held && mirror.RollbackOf(h.SyncRun) != "" {
				s.SyncHolds.Delete(id)
				s.touchSyncHold(id)
			}
			continue
		}
		s.SyncHolds.Set(id, mirror.SyncHold{SyncRun: mirror.RollbackHold(action.ID),
			Application: id})
		s.touchSyncHold(id)
		if s.out.Rollbacks == nil {
			s.out.Rollbacks = map[fleet.ApplicationID]mirror.Action{}
		}
		s.out.Rollbacks[id] = action
	}
}

func (s *scope) beginSync(name fleet.SyncRunName, run *fleet.Declaration) {
	added := SyncRun{Declaration: run}
	for _, id := range s.targets(run) {
		unknown := s.unknownHistory(id)
		switch {
		case unknown:
			added.Unknown = append(added.Unknown, id)
		case !s.ranBefore(id):
			added.Targets = append(added.Targets, id)
		default:
			continue
		}
		if run.SyncRun.Hold {
			s.SyncHolds.Set(id, mirror.SyncHold{SyncRun: name, Application: id})
			s.touchSyncHold(id)
		}
	}
	s.out.SyncRuns = append(s.out.SyncRuns, added)
}

// touchSyncHold touches an Application whose sync hold changed.
func (s *scope) touchSyncHold(id fleet.ApplicationID) {
	if _, known := s.applications[id]; known {
		return
	}
	s.applications[id] = false
	_, waits := s.Frozen.Get(id)
	s.synced[id] = !waits
	for _, env := range s.after.Targets(id.Deployed()) {
		if env == id.In() && !s.Declared.Removing[env] {
			s.applications[id] = true
		}
	}
}

// targets returns the Applications of a SyncRun: in those of its environments that its deployment
// still has.
func (s *scope) targets(run *fleet.Declaration) []fleet.ApplicationID {
	dep := fleet.DeploymentID{Tenant: run.Key.Tenant, Name: run.SyncRun.Deployment}
	named := map[fleet.EnvironmentName]bool{}
	for _, e := range run.SyncRun.Environments {
		named[e] = true
	}
	var ids []fleet.ApplicationID
	for _, env := range s.after.Targets(dep) {
		if len(named) == 0 || named[env.Name] {
			ids = append(ids, applied.ApplicationID(dep, env))
		}
	}
	return ids
}

// ranBefore reports whether a SyncRun may have synced an Application before a rebuild: then all
// SyncRuns are new again, and none may run twice. Engines reported where the environment is.
func (s *scope) ranBefore(id fleet.ApplicationID) bool {
	pl, _ := s.Applied.PlacementOf(id)
	return !s.Applied.Started() && pl.Engine != ""
}

// unknownHistory reports whether the syncs and holds of an Application are unknown after a rebuild,
// because agents do not report them. Then nothing is synced, and a possible hold is kept until its
// file is removed or Git asks for another revision.
func (s *scope) unknownHistory(id fleet.ApplicationID) bool {
	pl, _ := s.Applied.PlacementOf(id)
	return !s.Applied.Started() && pl.Engine == "" &&
		(Agent(&s.after.View, id.In()) || len(s.Reported[id.In()]) > 0)
}
