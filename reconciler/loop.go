package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/recovery"
)

// Loop turns commits into rows while it holds the lease "reconciler".
type Loop struct {
	Config
	*Previewer
	wake     pacing.Signal
	released pacing.Signal // the lease may be free
	drains   pacing.Signal // a drain may go on
	pushes   *throttle
	terms    *terms
	planner  planner
	repo     *repo
	stored   *stored
	branch   branch
	listed   *follower
	recovery *recovery.Recovery
	gates    *gates
	// read at the start of each reconcile
	evacuated evacuations
	pools     pools
	asker     *asker       // of reviews; nil without Reviews
	reported  sourceStatus // the last recorded one
	term      mirror.Lease // while this replica leads
}

// NewLoop returns a loop that can be woken before it runs.
func NewLoop(c Config) *Loop {
	l := &Loop{Config: c, wake: pacing.NewSignal(), released: pacing.NewSignal(),
		drains:  pacing.NewSignal(),
		planner: planner{c.Renderer, c.Store}, repo: &repo{Source: c.Source, Decoder: c.Decoder},
		stored:    &stored{},
		evacuated: evacuations{tried: map[fleet.EngineName]trial{}}}
	l.listed = newFollower(c, l.Wake)
	l.repo.listed = l.listed
	l.Previewer = newPreviewer(c.Pulls, l.repo, l.planner, c.Unready, c.RingProblem)
	l.recovery = recovery.New(recovery.Config{Engines: c.Engines, Agents: c.Agents, Stops: c.Stops,
		Wake: l.Wake, Log: c.Log})
	if c.Reviews != nil {
		l.asker = newAsker(c.Reviews, c.Poll, c.Log, l.Wake)
	}
	l.pools = pools{finder: newFinder(c.Instances, l.Wake), blocked: map[string]obstacle{}}
	l.terms = newTerms()
	l.pushes = &throttle{burst: pushBurst, period: pushPeriod, pass: func() {
		l.AskReviews()
		l.Wake()
	}}
	return l
}

// Wake starts a reconcile: the branch, an approval or the store may have changed.
func (l *Loop) Wake() { l.wake.Set() }

// reconcile brings the store to the head of the branch, and then to approvals and reviews of
// earlier commits, and to the listings of sets. A failed step changes nothing.
func (l *Loop) reconcile(ctx context.Context, lease mirror.Lease) (string, error) {
	if err := l.readEvacuations(ctx); err != nil {
		l.Log.Warn("failed to read the evacuations; those known go on", "error", err)
	}
	result, err := l.reconcileHead(ctx, lease)
	if err == nil {
		err = l.confirm(ctx, lease)
	}
	if err == nil {
		err = l.takeReviews(ctx, lease)
	}
	if err == nil {
		err = l.takeListings(ctx, lease)
	}
	// a head that cannot be read or planned keeps no environment from its engine
	if !errors.Is(err, mirror.ErrFenced) && !errors.Is(err, mirror.ErrStale) {
		err = errors.Join(err, l.takeMoves(ctx, lease), l.takeEvacuations(ctx, lease),
			l.takeRollbacks(ctx, lease), l.takeRollouts(ctx, lease), l.takePools(ctx, lease))
	}
	return result, err
}

// reconcileHead fetches, plans and records the head. If nothing is new, it reads the head and
// pending approvals only, and writes nothing.
func (l *Loop) reconcileHead(ctx context.Context, lease mirror.Lease) (string, error) {
	if err := l.refresh(ctx); err != nil {
		return resultFailed, err
	}
	head, err := l.fetch(ctx, lease)
	if err != nil {
		return resultFailed, err
	}
	l.branch.see(head.Revision)
	if l.branch.fetched != l.branch.planned {
		l.publish() // no previews until the head is planned
	}
	request := &plan.Request{Revision: head.Revision, Relation: mirror.RelationSame, AtHead: true}
	if err := l.stored.readPending(ctx, l.Store, request); err != nil {
		return resultFailed, err
	}
	if !l.recovery.Required() && l.branch.current(request) {
		l.report(ctx, view.Source{Head: head.Revision}, nil)
		return l.stored.idle(), nil
	}
	if err := l.repo.read(ctx, l.stored.state, request); err != nil {
		l.report(ctx, view.Source{Head: head.Revision}, err)
		return resultFailed, err
	}
	if l.branch.checkedAt.IsZero() {
		l.branch.checkedAt = time.Now()
	}
	if err := l.planner.readHistory(ctx, l.stored.state, request); err != nil {
		return resultFailed, err
	}
	if err := l.recover(ctx, request); err != nil {
		l.report(ctx, view.Source{Head: head.Revision}, err)
		return resultFailed, err
	}
	l.review(ctx, request)
	p, err := l.planAndRecord(ctx, lease, head, request)
	var unplanned error // shown to people as the reason why a commit has no effect
	if errors.Is(err, errUnplanned) {
		unplanned = err
	}
	l.report(ctx, view.Source{Head: head.Revision}, unplanned)
	if err == nil && p.RevisionHold != nil && l.stored.state.Revision() != "" {
		// Approvals and completed deletions of earlier commits do not wait with the head.
		applied := *request
		applied.Revision, applied.Relation, applied.AtHead, applied.Files, applied.Created =
			l.stored.state.Revision(), mirror.RelationSame, false, nil, nil
		applied.DeletionReviews, applied.FileReviews = nil, nil
		_, err = l.planAndRecord(ctx, lease, Head{Revision: applied.Revision}, &applied)
	}
	if err == nil {
		if p.RevisionHold == nil {
			l.repo.folders.learn(request.Files)
		}
		l.stored.confirmable = p.RevisionHold == nil || request.Relation == mirror.RelationOlder
		if !l.stored.state.Blocked() {
			l.recovery.Finish()
		}
		l.branch.planned, l.branch.approvals = head.Revision, approvalsOf(request)
	}
	return resultOf(p, err), err
}

// planAndRecord plans a request and records a plan that changes something.
func (l *Loop) planAndRecord(ctx context.Context, lease mirror.Lease, head Head,
	r *plan.Request) (*plan.Plan, error) {
	p, err := l.planner.computeGuarded(ctx, l.stored.state, r)
	if err != nil {
		return nil, err
	}
	err = l.recordPlan(ctx, lease, head, r, p)
	if err == nil && p.RevisionHold == nil {
		l.stored.argoCD = r.ArgoCD
	}
	return p, err
}

// recordPlan records a plan that changes something. Completed deletions alone change the applied
// state only: the store has them already.
func (l *Loop) recordPlan(ctx context.Context, lease mirror.Lease, head Head, r *plan.Request,
	p *plan.Plan) error {
	if p.Empty() && r.Revision == l.stored.state.Revision() {
		l.stored.state.Commit(p)
		l.stored.trackDeletions(p, r.Deleted)
		return nil
	}
	if err := l.record(ctx, lease, head, r, p); err != nil {
		return fmt.Errorf("record revision %s: %w", r.Revision.Short(), err)
	}
	return nil
}

// record stores the plan, makes it the applied state, and notifies the workers.
func (l *Loop) record(ctx context.Context, lease mirror.Lease, head Head, r *plan.Request,
	p *plan.Plan) error {
	if l.stored.recordedAsHeld(p) {
		return nil // only an approval or another commit changes it
	}
	sealed, err := l.repo.sealed(ctx, p)
	if err != nil {
		return err
	}
	l.repo.locate(ctx, p)
	record := p.Record()
	if record.PlannedAt = time.Now(); record.Revision == l.branch.fetched {
		record.FetchedAt, record.CheckedAt = l.branch.fetchedAt, l.branch.checkedAt
	}
	if l.Pulls != nil && p.RevisionHold == nil {
		record.Impact = impact(p)
	}
	for i, m := range record.Moves {
		asked, found := r.Moves[m.ID()]
		if !found { // of a half of an evacuated slice
			asked = m.MoveRequest
			asked.By = "argosy"
		}
		asked.To = m.To // of an evacuation, the plan has chosen it
		record.Moves[i].MoveRequest = asked
	}
	record.Author, record.Subject, record.CommittedAt, record.Sealed = head.Author, head.Subject,
		head.At, sealed
	if _, err := l.Store.Record(ctx, lease, record); err != nil {
		return err
	}
	l.stored.commit(p, r, record.PlanHash)
	l.followReviews()
	l.followSets(p, r)
	l.Log.Info("revision recorded", "revision", p.Head.Short(), "created", p.Counts.Created,
		"changed", p.Counts.Changed, "deleted", p.Counts.Deleted,
		"held", p.Counts.Held, "rows", p.Counts.Rows, "problems", len(p.Problems))
	if err := l.Store.Notify(ctx, mirror.NoticeRecorded(l.Holder, concerned(&record))); err != nil {
		l.Log.Debug("no notification; workers poll", "error", err)
	}
	return nil
}

// publish gives previews the applied state.
func (l *Loop) publish() {
	if l.stored.state == nil {
		l.withdraw()
		return
	}
	at := &basis{state: l.stored.state, revision: l.stored.state.Revision(),
		plan: l.stored.at.Plan, lease: l.term}
	at.behind = l.branch.fetched != at.revision
	at.ready = !l.recovery.Pending() && at.revision != "" && l.branch.planned != "" &&
		l.branch.planned == l.branch.fetched
	l.lacking(&at.request)
	l.Previewer.at.Store(at)
}
