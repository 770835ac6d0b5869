package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		Moves: map[fleet.SliceID]mirror.MoveRequest{m.ID(): m}}
	l.lacking(r)
	if err := l.readCarried(ctx, r); err != nil {
		return err
	}
	if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
		return err
	}
	p, err := l.planner.computeGuarded(ctx, l.stored.state, r)
	if errors.Is(err, errUnplanned) {
		l.Log.Error("failed to plan a move", "environment", m.ID().String(), "error", err)
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
			l.Log.Info("move refused", "environment", m.Moving().String(), "to", m.To, "reason",
				why)
		}
		return l.Store.RefuseMove(ctx, m.Operation, why)
	case m.DryRun:
		return l.endDryRun(ctx, m, p, waits)
	}
	return l.recordPlan(ctx, lease, Head{Revision: r.Revision}, r, p)
}

// readCarried reads the manifests that move along while a change of them waits for its wave.
func (l *Loop) readCarried(ctx context.Context, r *plan.Request) error {
	rows, of := l.stored.state.Carried(r.Moves)
	if len(rows)+len(of) == 0 {
		return nil
	}
	manifests, err := l.Store.RowManifests(ctx, rows)
	if err != nil {
		return err
	}
	for _, o := range of {
		lastGood, err := l.Store.RolloutManifests(ctx, o)
		if err != nil {
			return err
		}
		for _, m := range lastGood {
			manifests[m.Hash] = m
		}
	}
	r.Manifests = manifests
	return nil
}

// reasonsAgainst returns every reason to refuse a move, and what its first step will wait for. No
// state of the Applications is a reason against an undo. A move of a drain or a rebalance waits for
// them instead: both stop by themselves if too many of their moves wait.
func (l *Loop) reasonsAgainst(ctx context.Context, m mirror.MoveRequest, p *plan.Plan) (reasons,
	waits []string, err error) {
	if why := p.Refused[m.ID()]; why != "" {
		reasons = append(reasons, why)
	}
	if m.Undo {
		return reasons, nil, nil
	}
	unfit, err := l.Store.UnfitAgents(ctx, m)
	if err != nil || m.Drain || m.Rebalance != "" {
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

// staying returns the number of Applications in the first half of a slice that is divided.
func staying(p *plan.Plan, m mirror.MoveRequest) int {
	first, _ := m.Slice.Halves()
	i := slices.IndexFunc(p.Placements, func(pl fleet.Placement) bool {
		return pl.ID() == m.Environment.Slice(first)
	})
	if i < 0 {
		return 0
	}
	return p.Placements[i].Applications
}

// endDryRun records what a move would do. Its plan is not recorded.
func (l *Loop) endDryRun(ctx context.Context, m mirror.MoveRequest, p *plan.Plan,
	waits []string) error {
	var summary []string
	for _, b := range p.Begun {
		text := fmt.Sprintf("%s would move from engine %s to %s",
			report.Count(len(b.Applications), "Application"), b.From, b.To)
		if b.Split {
			text = fmt.Sprintf("%s would be split: %s, and %s would stay", m.ID(), text,
				report.Count(staying(p, m), "Application"))
		}
		summary = append(summary, text)
	}
	for _, w := range waits {
		summary = append(summary, "it would wait, since "+w)
	}
	return l.Store.EndDryRun(ctx, m.Operation, strings.Join(summary, "; "))
}
