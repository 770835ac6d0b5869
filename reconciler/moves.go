package reconciler

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/report"
)

// takeMoves plans the applied revision again with the requested moves, each alone: what makes one
// impossible delays no other.
func (l *Loop) takeMoves(ctx context.Context, lease mirror.Lease) error {
	if l.stored.state == nil || l.stored.state.Revision() == "" || l.recovery.Pending() {
		return nil
	}
	requests, err := l.Store.MoveRequests(ctx)
	if err != nil {
		return err
	}
	for _, m := range requests {
		if err := l.takeMove(ctx, lease, m); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loop) takeMove(ctx context.Context, lease mirror.Lease, m mirror.MoveRequest) error {
	r := &plan.Request{Revision: l.stored.state.Revision(), Relation: mirror.RelationSame,
		Moves: map[fleet.EnvironmentID]mirror.MoveRequest{m.Environment: m}}
	l.lacking(r)
	if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
		return err
	}
	p, err := l.planner.computeGuarded(ctx, l.stored.state, r)
	if errors.Is(err, errUnplanned) {
		l.Log.Error("failed to plan a move", "environment", m.Environment.String(), "error", err)
		return l.Store.RefuseMove(ctx, m.Operation, err.Error())
	}
	if err != nil {
		return err
	}
	if m.DryRun {
		return l.endDryRun(ctx, m, p)
	}
	why := p.Refused[m.Environment]
	if why == "" && !m.Undo {
		reasons, err := l.Store.UnfitAgents(ctx, m)
		if err != nil {
			return err
		}
		why = strings.Join(reasons, "; ")
	}
	if why != "" {
		l.Log.Info("move refused", "environment", m.Environment.String(), "to", m.To, "reason", why)
		return l.Store.RefuseMove(ctx, m.Operation, why)
	}
	return l.recordPlan(ctx, lease, Head{Revision: r.Revision}, r, p)
}

// endDryRun records every reason against a move, or what it would do. Its plan is not recorded.
func (l *Loop) endDryRun(ctx context.Context, m mirror.MoveRequest, p *plan.Plan) error {
	var reasons []string
	if !m.Undo { // no state of its Applications delays an undo
		var err error
		if reasons, err = l.Store.MoveObstacles(ctx, m); err != nil {
			return err
		}
		unfit, err := l.Store.UnfitAgents(ctx, m)
		if err != nil {
			return err
		}
		reasons = append(unfit, reasons...)
	}
	if why := p.Refused[m.Environment]; why != "" {
		reasons = append([]string{why}, reasons...)
	}
	if len(reasons) > 0 {
		return l.Store.RefuseMove(ctx, m.Operation, strings.Join(reasons, "; "))
	}
	summary := ""
	for _, b := range p.Begun {
		summary = fmt.Sprintf("%s would move from engine %s to %s",
			report.Count(len(b.Applications), "Application"), b.From, b.To)
	}
	return l.Store.EndDryRun(ctx, m.Operation, summary)
}
