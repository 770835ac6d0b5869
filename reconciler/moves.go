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
	reasons, waits, err := l.reasonsAgainst(ctx, m, p)
	switch {
	case err != nil:
		return err
	case len(reasons) > 0:
		why := strings.Join(reasons, "; ")
		if !m.DryRun {
			l.Log.Info("move refused", "environment", m.Environment.String(), "to", m.To, "reason",
				why)
		}
		return l.Store.RefuseMove(ctx, m.Operation, why)
	case m.DryRun:
		return l.endDryRun(ctx, m, p, waits)
	}
	return l.recordPlan(ctx, lease, Head{Revision: r.Revision}, r, p)
}

// reasonsAgainst returns every reason to refuse a move, and what its first step will wait for. No
// state of the Applications is a reason against an undo. A drain's move waits for them instead: a
// drain stops by itself if too many of its moves wait.
func (l *Loop) reasonsAgainst(ctx context.Context, m mirror.MoveRequest, p *plan.Plan) (reasons,
	waits []string, err error) {
	if why := p.Refused[m.Environment]; why != "" {
		reasons = append(reasons, why)
	}
	if m.Undo {
		return reasons, nil, nil
	}
	unfit, err := l.Store.UnfitAgents(ctx, m)
	if err != nil || m.Drain {
		return append(reasons, unfit...), nil, err
	}
	reasons = append(reasons, unfit...)
	obstacles, err := l.Store.MoveObstacles(ctx, m)
	for _, o := range obstacles {
		if o.Passes {
			waits = append(waits, o.Text)
		} else {
			reasons = append(reasons, o.Text)
		}
	}
	return reasons, waits, err
}

// endDryRun records what a move would do. Its plan is not recorded.
func (l *Loop) endDryRun(ctx context.Context, m mirror.MoveRequest, p *plan.Plan,
	waits []string) error {
	var summary []string
	for _, b := range p.Begun {
		summary = append(summary, fmt.Sprintf("%s would move from engine %s to %s",
			report.Count(len(b.Applications), "Application"), b.From, b.To))
	}
	for _, w := range waits {
		summary = append(summary, "it would wait, since "+w)
	}
	return l.Store.EndDryRun(ctx, m.Operation, strings.Join(summary, "; "))
}
