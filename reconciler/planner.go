package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/reconciler/plan"
)

// Results of a reconcile, as the metrics count them.
const (
	resultRecorded  = "recorded"
	resultUnchanged = "unchanged"
	resultHeld      = "held"
	resultFailed    = "failed"
)

func resultOf(p *plan.Plan, err error) string {
	switch {
	case err != nil:
		return resultFailed
	case p.RevisionHold != nil || p.Counts.Held > 0 || len(p.Holds) > 0:
		return resultHeld
	case p.Empty():
		return resultUnchanged
	default:
		return resultRecorded
	}
}

// planner plans with the store's record of recent changes.
type planner struct {
	renderer engine.Renderer
	store    Store
}

var errUnplanned = errors.New("cannot be planned")

// computeGuarded computes the plan. If the plan deletes or holds anything, it loads the recent
// creations, which the guards need, and computes the plan again: to count them costs as much as
// there are.
func (p planner) computeGuarded(ctx context.Context, state *plan.AppliedState,
	r *plan.Request) (*plan.Plan, error) {
	out, err := state.Compute(*r, p.renderer)
	if err == nil && r.Created == nil &&
		(out.RevisionHold != nil || out.Counts.Deleted+out.Counts.Held > 0) {
		if r.Created, err = p.store.RecentCreations(ctx, window(state)); err != nil {
			return nil, err
		}
		out, err = state.Compute(*r, p.renderer)
	}
	if err != nil {
		return nil, fmt.Errorf("revision %s %w: %w", r.Revision.Short(), errUnplanned, err)
	}
	return out, nil
}

// readHistory adds the recent deletions to a request, which the guards count.
func (p planner) readHistory(ctx context.Context, state *plan.AppliedState,
	r *plan.Request) error {
	recent, err := p.store.Recent(ctx, window(state))
	r.Now, r.Recent, r.ArgoCD = recent.Now, recent.Deleted, recent.ArgoCD
	return err
}

func window(state *plan.AppliedState) time.Duration {
	return time.Duration(state.Catalog().Fleet().Guards.Window)
}

// branch is how far the branch was fetched and planned.
type branch struct {
	fetched   fleet.Revision
	fetchedAt time.Time      // when fetched was first seen
	checkedAt time.Time      // when the files of fetched were read; zero: not yet
	planned   fleet.Revision // "": not since the mirror was loaded
	approvals approvals      // of the last plan of the head
	meanwhile approvals      // of the last plan of the applied revision without Git
}

// see notes the head of the branch, and when it is a new one.
func (b *branch) see(head fleet.Revision) {
	if b.fetched != head {
		b.fetched, b.fetchedAt, b.checkedAt = head, time.Now(), time.Time{}
	}
}

// current reports whether the last plan was made from this request: the same head, and no
// approval, completed deletion, upgrade or end of a freeze since.
func (b *branch) current(r *plan.Request) bool {
	return r.Revision == b.planned && approvalsOf(r) == b.approvals && len(r.Deleted) == 0 &&
		!r.Upgraded && !r.Thaws
}

// approvals identifies the result of a read: an approval that is given again is the latest.
type approvals struct {
	count  int
	latest time.Time
}

func approvalsOf(r *plan.Request) approvals {
	of := approvals{count: len(r.Approvals)}
	for _, a := range r.Approvals {
		if a.At.After(of.latest) {
			of.latest = a.At
		}
	}
	return of
}
