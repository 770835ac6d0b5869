package plan

import (
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
)

// beginSyncs starts the holds of new SyncRuns and ends those whose file is gone.
func (d *draft) beginSyncs() {
	for _, c := range d.changes {
		if c.Key.Kind != fleet.KindSyncRun {
			continue
		}
		name := fleet.SyncRunName(c.Key.Name)
		if c.After == nil {
			d.syncHolds.each(func(id fleet.ApplicationID, h fleet.SyncHold) {
				if id.Tenant == c.Key.Tenant && h.SyncRun == name {
					d.syncHolds.drop(id)
					d.revisit(id)
				}
			})
			continue
		}
		if c.Before != nil || !c.After.SyncRun.Hold {
			continue
		}
		for _, id := range d.targets(c.After) {
			if d.history(id) && !d.untold(id) {
				continue
			}
			d.syncHolds.set(id, fleet.SyncHold{SyncRun: name, Application: id})
			d.revisit(id)
		}
	}
}

// revisit marks an Application whose hold has changed; what else is known of it stays.
func (d *draft) revisit(id fleet.ApplicationID) {
	if _, known := d.touchedApps[id]; known {
		return
	}
	d.touchedApps[id] = false
	for _, env := range d.changeset.Targets(id.Deployed()) {
		if env == id.In() && !d.going[env] {
			d.touchedApps[id] = true
		}
	}
}

// targets is the Applications that a SyncRun means: those of its environments that its deployment
// still has.
func (d *draft) targets(run *fleet.Declaration) []fleet.ApplicationID {
	dep := fleet.DeploymentID{Tenant: run.Key.Tenant, Name: run.SyncRun.Deployment}
	named := map[fleet.EnvironmentName]bool{}
	for _, e := range run.SyncRun.Environments {
		named[e] = true
	}
	var ids []fleet.ApplicationID
	for _, env := range d.changeset.Targets(dep) {
		if len(named) == 0 || named[env.Name] {
			ids = append(ids, applicationID(dep, env))
		}
	}
	return ids
}

// syncHold is the SyncRun that keeps an Application's automation off, or "". A hold ends when Git
// asks for another target revision than the one at its acceptance; one that has just begun, or was
// found on the engine after a rebuild, takes the present one for that.
func (d *draft) syncHold(id fleet.ApplicationID, targetRevision string) fleet.SyncRunName {
	h, ok := d.syncHolds.get(id)
	switch {
	case !ok:
		return ""
	case h.TargetRevision == "":
		h.TargetRevision = targetRevision
		d.syncHolds.set(id, h)
	case h.TargetRevision != targetRevision:
		d.endSync(id)
		return ""
	}
	return h.SyncRun
}

func (d *draft) endSync(id fleet.ApplicationID) {
	if _, ok := d.syncHolds.get(id); ok {
		d.syncHolds.drop(id)
	}
}

// history reports whether a SyncRun for the Application may have run before: after a rebuild all of
// them are new again, and none may run twice. Engines told then where the environment is.
func (d *draft) history(id fleet.ApplicationID) bool {
	return !d.started && d.w.placements.base[id.In()].Engine != "" || d.untold(id)
}

// untold reports whether nobody tells after a rebuild what ran and what is held: no agent is asked
// for that. Then nothing is run, and what may be held is, until its file goes or Git asks for
// another revision.
func (d *draft) untold(id fleet.ApplicationID) bool {
	return !d.started && d.w.placements.base[id.In()].Engine == "" &&
		(behindAgent(d.changeset, id.In()) || len(d.r.Stands[id.In()]) > 0)
}

// requestSyncs asks for the syncs of new SyncRuns.
func (d *draft) requestSyncs() {
	for _, c := range d.changes {
		if c.Key.Kind != fleet.KindSyncRun || c.Before != nil {
			continue
		}
		var missing, unknown []string
		for _, id := range d.targets(c.After) {
			if d.history(id) {
				if d.untold(id) {
					unknown = append(unknown, string(id.Environment))
				}
				continue
			}
			p, _ := d.placements.get(id.In())
			key := applicationKey(p.Engine, id)
			r, ok := d.rows.get(key)
			if p.Engine == "" || !ok || r.absent {
				missing = append(missing, string(id.Environment))
				continue
			}
			d.syncs = append(d.syncs, d.syncRequest(c.After, id, key))
		}
		if len(unknown) > 0 {
			d.warn(c.After, "sync-not-run", "not run in "+strings.Join(unknown, ", ")+
				": the mirror is new, and behind an agent it may have run before; a hold is kept",
				"add a SyncRun of another name if it has not; remove the file to end a hold")
		}
		if len(missing) > 0 {
			d.warn(c.After, "sync-not-run", "not run in "+strings.Join(missing, ", ")+
				": no engine serves the environment",
				"add a SyncRun of another name when it is placed")
		}
	}
}

func (d *draft) syncRequest(run *fleet.Declaration, id fleet.ApplicationID,
	key fleet.ObjectKey) fleet.SyncRequest {
	name := fleet.SyncRunName(run.Key.Name)
	app := application(d.after.Defaults.Sync, d.changeset.Deployment(id.Deployed()),
		d.changeset.Environment(id.In()), "")
	return fleet.SyncRequest{
		ID: fmt.Sprintf("%s/%s/%s@%s:%s", id.Tenant, name, id.Deployment, id.Environment,
			run.SyncRun.Revision),
		Key: key, Tenant: id.Tenant, Environment: id.Environment, Deployment: id.Deployment,
		SyncRun: name, Revision: run.SyncRun.Revision, Prune: app.Sync.Prune,
		State: fleet.OperationPending,
	}
}

func (d *draft) warn(decl *fleet.Declaration, code, message, fix string) {
	d.problems = append(d.problems, fleet.Problem{Key: decl.Key, Path: decl.Path,
		Severity: fleet.SeverityWarning, Code: code, Message: message, Fix: fix})
}
