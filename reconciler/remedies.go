package reconciler

import (
	"context"
	"errors"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/remedy"
)

const remedyPoll = 10 * time.Second // at most, between checks of engines that do not work

// remedy runs while this replica leads. It keeps nothing that another replica needs, and no commit
// waits for it.
func (l *Loop) remedy(ctx context.Context) {
	for {
		if at := l.at.Load(); at != nil {
			if err := l.checkRemedies(ctx, at); err != nil && ctx.Err() == nil {
				l.Log.Warn("failed to check the remedies of engines; trying again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(l.Poll, remedyPoll)):
		}
	}
}

// checkRemedies records the next step of each engine that does not work.
func (l *Loop) checkRemedies(ctx context.Context, at *basis) error {
	all, err := l.Store.RemedyFacts(ctx)
	if err != nil {
		return err
	}
	open := 0
	for _, f := range all {
		if f.Last != nil && !f.Last.State.Ended() {
			open++
		}
	}
	var failed []error
	catalog := at.state.Catalog()
	declared := catalog.Fleet().Remedies
	for _, f := range all {
		d := catalog.Engine(f.Engine)
		if d == nil {
			continue // of an environment's own cluster, or removed
		}
		step, ok := remedy.Next(f, remedy.Policy{
			Remedies: declared.Of(d.Engine.Remedies), AtOnce: declared.Engines(), Open: open,
			Agent: d.Engine.Connection.Agent != nil})
		if !ok {
			continue
		}
		err := l.Store.TakeRemedyStep(ctx, at.lease, step)
		switch failed = append(failed, err); {
		case err != nil:
		case step.Request != nil:
			open++
			l.Log.Warn("remedy requested", "engine", f.Engine, "restarts", step.Request.Restarts,
				"fault", step.Request.Fault)
		case step.End == mirror.RemedyHelped || step.End == mirror.RemedyUnneeded:
			l.Log.Info("remedy ended", "engine", f.Engine, "state", step.End, "reason",
				step.Message)
		case step.End != "":
			l.Log.Error("remedy ended", "engine", f.Engine, "state", step.End, "reason",
				step.Message)
		}
	}
	return errors.Join(failed...)
}
