package reconciler

import (
	"context"
	"errors"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
)

// takeRollbacks plans the applied revision again with the requested rollbacks (ADR 0089), each
// alone: what makes one impossible delays no other.
func (l *Loop) takeRollbacks(ctx context.Context, lease mirror.Lease) error {
	if l.stored.state == nil || l.stored.state.Revision() == "" || l.recovery.Pending() {
		return nil
	}
	requests, err := l.Store.PendingRollbacks(ctx)
	if err != nil {
		return err
	}
	for _, a := range requests {
		if err := l.takeRollback(ctx, lease, a); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loop) takeRollback(ctx context.Context, lease mirror.Lease, a mirror.Action) error {
	why := l.stored.state.RollbackRefusal(a)
	if a.Late {
		why = "it was not planned in time"
	}
	if why != "" {
		return l.Store.RefuseRollback(ctx, a.ID, why)
	}
	r := &plan.Request{Revision: l.stored.state.Revision(), Relation: mirror.RelationSame,
		Rollbacks: map[fleet.ApplicationID]mirror.Action{a.Application(): a}}
	l.lacking(r)
	if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
		return err
	}
	p, err := l.planner.computeGuarded(ctx, l.stored.state, r)
	if errors.Is(err, errUnplanned) {
		l.Log.Error("failed to plan a rollback", "application", a.Application().String(), "error",
			err)
		return l.Store.RefuseRollback(ctx, a.ID, err.Error())
	}
	if err != nil {
		return err
	}
	l.Log.Info("rollback", "application", a.Application().String(), "revision",
		a.Options.Revision, "end", a.Options.End, "by", a.By)
	return l.recordPlan(ctx, lease, Head{Revision: r.Revision}, r, p)
}
