package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/lease"
)

// Actions is a store that knows what people ask of Applications (ADR 0088).
type Actions interface {
	// OpenActions returns the engine's actions that have not ended, oldest first.
	OpenActions(ctx context.Context, name fleet.EngineName) ([]mirror.Action, error)
	// UpdateAction records how far an action is. Its write carries the lease.
	UpdateAction(ctx context.Context, lease mirror.Lease, u mirror.ActionUpdate) error
}

const (
	actionsAtATime = 8
	// actionRetry is when the next step of an action is due though its Application has not changed.
	actionRetry = 5 * time.Second
)

// actionStep is the last step of an open action.
type actionStep struct {
	version string // of the Application after it
	at      time.Time
}

// actions carries out what people ask of single Applications. It is level-triggered: each step
// reads the open actions again, and the engine knows which of them have begun.
type actions struct {
	*connection
	parking *parking
	store   Actions
	actor   engine.Actor

	mu    sync.Mutex
	steps map[string]actionStep    // by ID
	open  map[fleet.ObjectKey]bool // Applications with an open action
	ends  map[string]syncEnd       // by ID: ended syncs that were observed
}

// newActions returns nil if the store or the engine has no actions.
func newActions(c *connection, p *parking) *actions {
	store, knows := c.Reports.(Actions)
	actor, acts := engine.As[engine.Actor](c.target)
	if !knows || !acts {
		return nil
	}
	return &actions{connection: c, parking: p, store: store, actor: actor,
		steps: map[string]actionStep{}, open: map[fleet.ObjectKey]bool{},
		ends: map[string]syncEnd{}}
}

// run takes the next step of open actions whenever the worker was woken, and while there are any.
func (a *actions) run(ctx context.Context, woken <-chan struct{}) error {
	retry := time.NewTicker(actionRetry)
	defer retry.Stop()
	for {
		if err := a.runSteps(ctx, a.advance); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-woken:
		case <-retry.C:
			if a.idle() {
				continue
			}
		}
	}
}

func (a *actions) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open) == 0
}

// observe wakes the worker if the Application has an open action.
func (a *actions) observe(o mirror.Observation) {
	if a == nil {
		return
	}
	a.mu.Lock()
	open := a.open[o.Key]
	if end := endOf(o); open && o.OperationID != "" && end.state != mirror.OperationRunning {
		a.ends[o.OperationID] = end
	}
	a.mu.Unlock()
	if open {
		a.Wake()
	}
}

func (a *actions) advance(ctx context.Context) error {
	if !a.confirmed.Load() {
		return nil // they may have been done before the database went back in time
	}
	pending, err := a.store.OpenActions(ctx, a.Engine)
	if err != nil {
		return fmt.Errorf("read actions of engine %s: %w", a.Engine, err)
	}
	return parallel(a.due(pending), actionsAtATime, func(q mirror.Action) error {
		if err := a.step(ctx, q); err != nil {
			return fmt.Errorf("action %s: %w", q.ID, err)
		}
		return nil
	})
}

// due returns the actions whose next step may find something new: the oldest of each Application
// and kind, because the engine remembers one action of a kind.
func (a *actions) due(pending []mirror.Action) (due []mirror.Action) {
	type first struct {
		key  fleet.ObjectKey
		kind mirror.ActionKind
	}
	taken, open := map[first]bool{}, map[fleet.ObjectKey]bool{}
	known := map[string]bool{}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range pending {
		open[q.Key], known[q.ID] = true, true
		f := first{q.Key, q.Kind}
		if taken[f] {
			continue
		}
		taken[f] = true
		live, _ := a.target.Live(q.Key)
		last, stepped := a.steps[q.ID]
		if !stepped || q.Late || last.version != live.ResourceVersion ||
			now.Sub(last.at) >= actionRetry {
			due = append(due, q)
		}
	}
	for id := range a.steps {
		if !known[id] {
			delete(a.steps, id)
			delete(a.ends, id)
		}
	}
	a.open = open
	return due
}

// step takes one step of an action. An error of the engine delays the action, until it is late.
func (a *actions) step(ctx context.Context, q mirror.Action) error {
	defer a.stepped(q)
	why, err := a.blocked(ctx, q)
	if err != nil {
		return err
	}
	switch {
	case q.Late && q.State == mirror.OperationPending:
		return a.update(ctx, q, mirror.OperationFailed, withReason(
			"it has not begun in time, and is given up", q.Message))
	case q.Late:
		return a.update(ctx, q, mirror.OperationFailed, withReason(
			"Argo CD has not answered in time", q.Message))
	case why != "":
		return a.update(ctx, q, mirror.OperationPending, why)
	}
	out, err := a.ask(ctx, q)
	switch {
	case lease.Lost(err) || errors.Is(err, engine.ErrFenced):
		return err
	case errors.Is(err, engine.ErrRefused) && a.ended(q).state != "":
		end := a.ended(q) // another operation has replaced the state of the sync since
		return a.update(ctx, q, end.state, end.message)
	case errors.Is(err, engine.ErrRefused) || errors.Is(err, engine.ErrForeign):
		return a.update(ctx, q, mirror.OperationFailed, err.Error())
	case err != nil:
		return a.update(ctx, q, q.State, err.Error())
	}
	return a.store.UpdateAction(ctx, a.lease.Lease(), mirror.ActionUpdate{ID: q.ID,
		State: out.State, Message: short(out.Message), Results: out.Results, Outcome: out.Outcome})
}

// ended returns the observed end of a begun sync.
func (a *actions) ended(q mirror.Action) syncEnd {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.State != mirror.OperationRunning {
		return syncEnd{}
	}
	return a.ends[q.ID]
}

func withReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// blocked returns why an action does not begin yet. A begun one goes on.
func (a *actions) blocked(ctx context.Context, q mirror.Action) (string, error) {
	if q.State != mirror.OperationPending {
		return "", nil
	}
	row, ok, err := a.Rows.Row(ctx, q.Key)
	switch {
	case err != nil:
		return "", err
	case !ok || row.Unwanted && !row.Moving:
		return "the Application is removed, or is on another engine now", nil
	case row.Moving:
		return "the Application moves to another engine; it begins when the move has ended", nil
	}
	live, there := a.target.Live(q.Key)
	switch {
	case live.Parked:
		a.parking.ask(fleet.EnvironmentID{Tenant: live.Tenant, Name: live.Environment})
		return "the environment's cluster does not respond", nil
	case a.Stops.Stopped(a.Engine)(q.Tenant):
		return "an emergency stop is in force", nil
	case !there || live.Hash != row.Manifest.Hash:
		return "the declared Application is not applied yet", nil
	}
	return "", nil
}

func (a *actions) update(ctx context.Context, q mirror.Action, state mirror.OperationState,
	message string) error {
	if state == q.State && short(message) == q.Message {
		return nil
	}
	return a.store.UpdateAction(ctx, a.lease.Lease(), mirror.ActionUpdate{ID: q.ID, State: state,
		Message: short(message)})
}

func (a *actions) ask(ctx context.Context, q mirror.Action) (engine.ActionProgress, error) {
	if !a.lease.Valid() {
		return engine.ActionProgress{}, lease.ErrLost
	}
	ctx, end := a.lease.Writing(ctx)
	defer end()
	out, err := a.actor.Act(ctx, engine.ActionRequest{ID: q.ID, Kind: q.Kind, Key: q.Key,
		Tenant: q.Tenant, Options: q.Options, RequestedAt: q.RequestedAt, Outcome: q.Outcome},
		a.lease.Lease())
	return out, a.refusal(err)
}

// stepped remembers the version of the Application that the step has led to.
func (a *actions) stepped(q mirror.Action) {
	live, _ := a.target.Live(q.Key)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.steps[q.ID] = actionStep{live.ResourceVersion, time.Now()}
}
