package edge

import (
	"context"
	"maps"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// actions are what people ask of single Applications (ADR 0096).
type actions struct {
	open   []agent.Action                   // of the present stream
	states map[string]mirror.OperationState // reported since, by ID
}

func (f *Follower) setActions(open []agent.Action) {
	ids := map[string]bool{}
	for _, a := range open {
		ids[a.ID] = true
	}
	f.mu.Lock()
	f.actions.open = open
	maps.DeleteFunc(f.actions.states, func(id string, _ mirror.OperationState) bool {
		return !ids[id]
	})
	f.mu.Unlock()
	f.Outbox.keepReported(listActions, ids)
	call(f.Wake)
}

// closeActions forgets the open actions with their stream. A begun one goes on when the hub sends
// it again. Another would begin when no person expects it any more.
func (f *Follower) closeActions() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.actions.open = nil
}

// OpenActions returns the actions that the hub has sent and that have not ended here. Their results
// and Outcome are the stored ones: the engine discards its own after that.
func (f *Follower) OpenActions(_ context.Context, name fleet.EngineName) (open []mirror.Action,
	err error) {
	err = f.read(name, func(m *rowCache) error {
		for _, a := range f.actions.open {
			state, reported := f.actions.states[a.ID]
			if !reported {
				state = a.State
			}
			if state.Ended() {
				continue // the hub does not know it yet
			}
			q := mirror.Action{ID: a.ID, Kind: a.Kind, Key: fleet.ObjectKey{Engine: name,
				Kind: fleet.ObjectApplication, Name: a.Name}, Options: a.Options, State: state,
				Message: a.Message, Late: a.Late, Outcome: a.Outcome,
				RequestedAt: a.RequestedAt}
			if row := m.rows[q.Key].row; row.Key == q.Key {
				q.Tenant, q.Environment, q.Deployment = row.Tenant, row.Environment, row.Deployment
			}
			open = append(open, q)
		}
		return nil
	})
	return open, err
}

// UpdateAction queues how far an action is.
func (f *Follower) UpdateAction(_ context.Context, lease mirror.Lease,
	u mirror.ActionUpdate) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	f.mu.Lock()
	f.actions.states[u.ID] = u.State
	f.mu.Unlock()
	f.Outbox.updateAction(agent.ActionStatus{ID: u.ID, State: u.State, Message: u.Message,
		Results: u.Results, Outcome: u.Outcome})
	return nil
}
