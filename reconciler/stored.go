package reconciler

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/recovery"
)

// stored is what the leader knows of the store.
type stored struct {
	state *plan.AppliedState // nil: to be loaded
	at    mirror.State       // the version that state was loaded or recorded as
	// confirmable: the head of the last plan is the applied revision, or follows it.
	confirmable bool
	// held is the head and hash of the plan that was recorded as held as a whole; or "".
	held        string
	awaits      bool // a change waits for an approval
	terminating map[fleet.ObjectKey]bool
	argoCD      map[fleet.EngineName]string // versions that the last plan took into account
}

// restore makes a loaded snapshot the state.
func (s *stored) restore(at mirror.State, snapshot mirror.Snapshot, judge catalog.Judge) error {
	state, err := plan.RestoreAppliedState(snapshot)
	if err != nil {
		return fmt.Errorf("%w; run `argosy rebuild`", err)
	}
	state.Judging(judge)
	*s = stored{state: state, at: at, awaits: state.AwaitsApproval(),
		terminating: map[fleet.ObjectKey]bool{}}
	for _, key := range state.Terminating() {
		s.terminating[key] = true
	}
	return nil
}

// readPending adds to a request what comes without a commit, if anything waits for it: approvals,
// completed deletions, upgrades of Argo CD and ends of freezes.
func (s *stored) readPending(ctx context.Context, store Store, r *plan.Request) (err error) {
	if s.awaits {
		if r.Approvals, err = store.Approvals(ctx); err != nil {
			return err
		}
	}
	if len(s.terminating) > 0 {
		r.Deleted, err = store.Vanished(ctx, s.at.Life,
			slices.Collect(maps.Keys(s.terminating)))
		if err != nil {
			return err
		}
	}
	rejected := len(s.state.Catalog().RejectedArtifacts()) > 0
	if !rejected && !s.state.Freezes() {
		return nil
	}
	recent, err := store.Recent(ctx, 0)
	if err != nil {
		return err
	}
	r.Upgraded = rejected && !maps.Equal(recent.ArgoCD, s.argoCD)
	r.Thaws = s.state.Thaws(recent.Now)
	return nil
}

// planID identifies a plan that is held as a whole. Such plans of two heads do the same, namely
// nothing, but people approve one of them.
func planID(p *plan.Plan) string { return string(p.Head) + " " + p.Hash }

func (s *stored) recordedAsHeld(p *plan.Plan) bool {
	return p.RevisionHold != nil && s.held == planID(p)
}

// commit makes a recorded plan the state.
func (s *stored) commit(p *plan.Plan, r *plan.Request, hash string) {
	s.state.Commit(p)
	s.awaits = s.state.AwaitsApproval()
	if p.RevisionHold != nil {
		s.held = planID(p)
		return
	}
	if p.Head != p.Base || r.AtHead { // a plan of the applied revision ends no hold of another head
		s.held = ""
	}
	s.at.Applied, s.at.Plan = p.Head, hash
	s.trackDeletions(p, r.Deleted)
}

// trackDeletions keeps the list of deleted rows whose objects may still exist.
func (s *stored) trackDeletions(p *plan.Plan, gone []fleet.ObjectKey) {
	for _, key := range gone {
		delete(s.terminating, key)
	}
	for _, c := range p.Rows {
		if c.Row.Unwanted {
			s.terminating[c.Row.Key] = true
		} else {
			delete(s.terminating, c.Row.Key)
		}
	}
}

// idle is the result of a reconcile that finds nothing new.
func (s *stored) idle() string {
	if s.held != "" {
		return resultHeld
	}
	return resultUnchanged
}

// refresh loads the mirror, and loads it again if it is not what this replica recorded: the
// database was restored, failed over or was rebuilt.
func (l *Loop) refresh(ctx context.Context) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	now, err := l.Store.Mirror(ctx)
	if err != nil {
		return err
	}
	known := &l.stored.at
	if now.Life != known.Life || now.Applied != known.Applied || now.Plan != known.Plan {
		l.Log.Warn("the mirror is not what was recorded last; loading it again", "applied",
			now.Applied.Short(), "expected", known.Applied.Short())
		l.stored.state, l.reported = nil, sourceStatus{}
		l.recovery.Stop()
		l.pools.stop()
		if err := l.load(ctx); err != nil {
			return err
		}
	}
	l.stored.at.Wanted, l.stored.at.Confirmed = now.Wanted, now.Confirmed
	return nil
}

// load restores the state from the store, once.
func (l *Loop) load(ctx context.Context) error {
	if l.stored.state != nil {
		return nil
	}
	at, err := l.Store.Mirror(ctx) // before the snapshot: a record in between shows in the next one
	if err != nil {
		return err
	}
	snapshot, err := l.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the mirror: %w", err)
	}
	l.recovery.Complete(&snapshot)
	if err := l.stored.restore(at, snapshot, l.Judge); err != nil {
		return err
	}
	l.recovery.Require(snapshot.Applied == "" || l.stored.state.Blocked())
	if l.asker != nil {
		l.asker.forget()
	}
	l.followReviews()
	l.branch.planned = ""
	if err := l.restoreListings(ctx); err != nil {
		l.stored.state = nil
		return err
	}
	l.repo.folders = unreadable(&l.stored.state.Catalog().View)
	l.publish()
	return nil
}

// recover continues a recovery of what the mirror cannot know. It costs nothing otherwise.
func (l *Loop) recover(ctx context.Context, r *plan.Request) error {
	if !l.recovery.Required() {
		r.Reported = l.recovery.Orphaned() // until they are recorded
		r.Recovered = l.recovery.Shown()
		r.Evacuated = l.evacuated.engines()
		return nil
	}
	if err := l.findInstances(ctx, r); err != nil {
		return err
	}
	for _, in := range r.Instances {
		l.recovery.Found(fleet.EngineName(in.Key.Name))
	}
	engines := recovery.Engines(&l.stored.state.Catalog().View,
		slices.Concat(r.Files, r.Instances))
	reload, err := l.recovery.Continue(ctx, engines, r.Now)
	if err != nil {
		return err
	}
	l.lacking(r)
	if !reload {
		return nil
	}
	l.stored.state = nil
	return l.load(ctx)
}

// lacking adds to a request what a recovery has not found yet, and the evacuated engines.
func (l *Loop) lacking(r *plan.Request) {
	of := l.recovery
	r.Unread, r.SilentAgents, r.Reported = of.Unread(), of.SilentAgents(), of.Orphaned()
	r.Recovered, r.Evacuated = of.Shown(), l.evacuated.engines()
	r.UnreadPools, r.Undecided = of.UnreadPools(), of.Undecided()
}

// confirm notifies the workers that wait for it that the recorded rows follow from the head that
// was just fetched.
func (l *Loop) confirm(ctx context.Context, lease mirror.Lease) error {
	at := &l.stored.at
	if !l.stored.confirmable || at.Wanted <= at.Confirmed {
		return nil
	}
	confirmed, err := l.Store.Confirm(ctx, lease, *at)
	if err != nil {
		return err
	}
	if !confirmed {
		l.stored.state = nil
		return nil
	}
	at.Confirmed = at.Wanted
	if err := l.Store.Notify(ctx, l.Holder); err != nil {
		l.Log.Debug("no notification; workers poll", "error", err)
	}
	return nil
}

// concerned lists the engines that a record changes; nil if declarations of engines have changed.
func concerned(r *mirror.Record) []fleet.EngineName {
	for i := range r.Declarations {
		if r.Declarations[i].Key.Kind == fleet.KindEngine {
			return nil
		}
	}
	for _, k := range r.Removed {
		if k.Kind == fleet.KindEngine {
			return nil
		}
	}
	found := map[fleet.EngineName]bool{}
	for i := range r.Rows {
		found[r.Rows[i].Key.Engine] = true
	}
	for i := range r.Syncs {
		found[r.Syncs[i].Key.Engine] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// impact is what the reports on pull requests need of a plan. Its effects are compared with the
// reviewed effects, unless the branch did not move, or files of its head are held and follow later.
func impact(p *plan.Plan) mirror.Impact {
	out := mirror.Impact{Tenants: p.Tenants()}
	held := func(h mirror.Hold) bool { return h.Revision == p.Head && len(h.Paths) > 0 }
	if p.Base != "" && p.Head != p.Base && !slices.ContainsFunc(p.Holds, held) {
		out.Effects = p.Effects()
	}
	return out
}
