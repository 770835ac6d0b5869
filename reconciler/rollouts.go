package reconciler

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/rollout"
)

// rolloutPoll is between checks of the Applications of rollouts.
const rolloutPoll = time.Second

// rolls returns the pause before the next check of the rollouts; 0: there is none whose state may
// change without a decision of a person, which wakes the loop.
func (l *Loop) rolls() time.Duration {
	if l.stored.state == nil || !slices.ContainsFunc(l.stored.state.Rollouts(),
		func(r mirror.Rollout) bool { return r.State.Moving() }) {
		return 0
	}
	return cmp.Or(l.RolloutPoll, rolloutPoll)
}

// takeRollouts takes the next step of each rollout, in one plan of the applied revision. It reads
// no more than the Applications of open rollouts, and needs no Git.
func (l *Loop) takeRollouts(ctx context.Context, lease mirror.Lease) error {
	state := l.stored.state
	if state == nil || state.Revision() == "" || l.recovery.Pending() {
		return nil
	}
	open := state.Rollouts()
	if len(open) == 0 {
		return nil
	}
	facts, err := l.Store.RolloutFacts(ctx, open)
	if err != nil {
		return err
	}
	steps := map[fleet.DeploymentID]mirror.RolloutStep{}
	facts.Metrics = l.gates.known(open)
	for _, r := range open {
		l.gates.measure(ctx, r, state, facts.Now)
		for key, why := range state.FrozenIn(r, facts.Now) {
			at := facts.Status[key]
			at.Frozen = why
			facts.Status[key] = at
		}
		next, changes := rollout.Next(r, facts)
		if !changes {
			continue
		}
		step := mirror.RolloutStep{Rollout: next}
		if rollout.Returns(r, next) {
			if step.Before, err = l.Store.RolloutManifests(ctx, next); err != nil {
				return err
			}
		}
		if next.State != r.State {
			l.Log.Info("rollout", "deployment", r.Of().String(), "id", r.ID, "state", next.State,
				"message", next.Message)
		}
		steps[r.Of()] = step
	}
	if len(steps) == 0 {
		return nil
	}
	return l.takeSteps(ctx, lease, steps)
}

// takeSteps plans steps together, and each alone if that fails: no deployment delays another one.
func (l *Loop) takeSteps(ctx context.Context, lease mirror.Lease,
	steps map[fleet.DeploymentID]mirror.RolloutStep) error {
	r := &plan.Request{Revision: l.stored.state.Revision(), Relation: mirror.RelationSame,
		Rollouts: steps}
	l.lacking(r)
	if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
		return err
	}
	p, err := l.planner.computeGuarded(ctx, l.stored.state, r)
	if err == nil {
		return l.recordPlan(ctx, lease, Head{Revision: r.Revision}, r, p)
	}
	if len(steps) == 1 || !errors.Is(err, errUnplanned) {
		return err
	}
	err = nil
	for of, step := range steps {
		one := l.takeSteps(ctx, lease, map[fleet.DeploymentID]mirror.RolloutStep{of: step})
		if !errors.Is(one, errUnplanned) && one != nil {
			return one
		}
		err = errors.Join(err, one)
	}
	return err
}
