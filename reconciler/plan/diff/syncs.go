package diff

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// syncHold returns the SyncRun that keeps an Application's automation off, or "". A hold ends when
// Git asks for another target revision than when the hold began. A hold that has just begun, or was
// recovered from the engine after a rebuild, takes the present target revision as that.
func (p *phase) syncHold(id fleet.ApplicationID, targetRevision string) fleet.SyncRunName {
	h, ok := p.SyncHolds.Get(id)
	switch {
	case !ok:
		return ""
	case h.TargetRevision == "":
		h.TargetRevision = targetRevision
		p.SyncHolds.Set(id, h)
	case h.TargetRevision != targetRevision:
		p.endSyncHold(id)
		return ""
	}
	return h.SyncRun
}

func (p *phase) endSyncHold(id fleet.ApplicationID) {
	if _, ok := p.SyncHolds.Get(id); ok {
		p.SyncHolds.Delete(id)
	}
}

// requestSyncs asks for the syncs of new SyncRuns, and of changes that a person has released.
func (p *phase) requestSyncs() {
	p.syncReleased()
	p.rollBack()
	for _, run := range p.Placed.SyncRuns {
		var missing, unknown []string
		for _, id := range run.Unknown {
			unknown = append(unknown, string(id.Environment))
		}
		for _, id := range run.Targets {
			pl, _ := p.PlacementOf(id)
			key := applied.ApplicationKey(pl.Engine, id)
			r, ok := p.Rows.Get(key)
			if pl.Engine == "" || !ok || r.Unwanted {
				missing = append(missing, string(id.Environment))
				continue
			}
			p.out.Syncs = append(p.out.Syncs, p.syncRequest(run.Declaration, id, key))
		}
		if len(unknown) > 0 {
			p.warn(run.Declaration, "not run in "+strings.Join(unknown, ", ")+
				": the mirror is new, and behind an agent it may have run before; a hold is kept",
				"add a SyncRun of another name if it has not; remove the file to end a hold")
		}
		if len(missing) > 0 {
			p.warn(run.Declaration, "not run in "+strings.Join(missing, ", ")+
				": no engine serves the environment",
				"add a SyncRun of another name when it is placed")
		}
	}
}

// rollBack asks for the sync of each Application that returns to an earlier revision. The hold of
// its automation is in its row, which the engine gets first.
func (p *phase) rollBack() {
	ids := slices.SortedFunc(maps.Keys(p.Placed.Rollbacks), applied.CompareApplications)
	for _, id := range ids {
		action := p.Placed.Rollbacks[id]
		pl, _ := p.PlacementOf(id)
		key := applied.ApplicationKey(pl.Engine, id)
		dep, env := p.after.Deployment(id.Deployed()), p.after.Environment(id.In())
		if dep == nil || env == nil {
			continue // it is being removed
		}
		target, _ := dep.TargetIn(env, p.after.Defaults(id.Tenant))
		p.out.Syncs = append(p.out.Syncs, mirror.SyncRequest{
			ID: string(mirror.RollbackHold(action.ID)), Operation: action.ID, Key: key,
			Tenant: id.Tenant, Environment: id.Environment, Deployment: id.Deployment,
			SyncRun: mirror.RollbackHold(action.ID), Revision: action.Options.Revision,
			Prune: target.Sync.Prune, State: mirror.OperationPending})
	}
}

// syncReleased asks for the sync of each Application that a person has released from a freeze which
// keeps Argo CD from syncing it by itself. A range of versions is synced at the end of the freeze.
func (p *phase) syncReleased() {
	for _, a := range p.Placed.Wanted {
		c, changes := p.out.Rows[a.Key]
		env := p.after.Environment(a.ID.In())
		if !a.Passes || !changes || env == nil || p.Freezes == nil {
			continue
		}
		target, _ := a.Deployment.TargetIn(env, p.after.Defaults(a.ID.Tenant))
		_, held := p.Freezes.Holds(fleet.FreezeSyncs, a.ID.Tenant, env.Labels)
		ranges := slices.ContainsFunc(target.Sources, func(s fleet.Source) bool {
			return fleet.IsVersionRange(s.TargetRevision)
		})
		if !held || ranges || !target.Sync.Automated {
			continue
		}
		was := p.Frozen.Base()[a.ID]
		name := fleet.SyncRunName("release-" + was.Revision.Short())
		p.out.Syncs = append(p.out.Syncs, mirror.SyncRequest{
			ID: fmt.Sprintf("%s/%s/%s@%s:%.8s", a.ID.Tenant, name, a.ID.Deployment,
				a.ID.Environment, c.Row.Manifest.Hash),
			Key: a.Key, Tenant: a.ID.Tenant, Environment: a.ID.Environment,
			Deployment: a.ID.Deployment, SyncRun: name, Prune: target.Sync.Prune,
			Revision: fleet.TargetRevisions(target.Sources), State: mirror.OperationPending,
		})
	}
}

func (p *phase) syncRequest(
	run *fleet.Declaration, id fleet.ApplicationID, key fleet.ObjectKey,
) mirror.SyncRequest {
	name, revision := fleet.SyncRunName(run.Key.Name), run.SyncRun.AllRevisions()
	dep, env := p.after.Deployment(id.Deployed()), p.after.Environment(id.In())
	target, _ := dep.TargetIn(env, p.after.Defaults(id.Tenant))
	return mirror.SyncRequest{
		ID: fmt.Sprintf("%s/%s/%s@%s:%s", id.Tenant, name, id.Deployment, id.Environment,
			shortOf(run.SyncRun)),
		Key: key, Tenant: id.Tenant, Environment: id.Environment, Deployment: id.Deployment,
		SyncRun: name, Revision: revision, Prune: target.Sync.Prune, State: mirror.OperationPending,
	}
}

// shortOf returns the revision of a SyncRun, or a hash of several: an engine reports at most 253
// characters of a request's ID.
func shortOf(s *fleet.SyncRunSpec) string {
	if len(s.Revisions) < 2 {
		return s.AllRevisions()
	}
	sum := sha256.Sum256([]byte(s.AllRevisions()))
	return hex.EncodeToString(sum[:8])
}

func (p *phase) warn(run *fleet.Declaration, message, fix string) {
	p.out.Problems = append(p.out.Problems, fleet.Problem{
		Key: run.Key, Path: run.Path, Severity: fleet.SeverityWarning, Code: "sync-not-run",
		Message: message, Fix: fix,
	})
}
