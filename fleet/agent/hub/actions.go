package hub

import (
	"context"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// sendActions sends all open actions if they differ from those sent last.
func (s *stream) sendActions() error {
	if s.protocol < agent.ProtocolActions {
		return nil // no request for its engine is accepted
	}
	var open []mirror.Action
	err := s.read(func(ctx context.Context) (err error) {
		open, err = s.hub.store.AgentActions(ctx, s.engine())
		return err
	})
	if err != nil {
		return err
	}
	s.hub.feed.note(&s.acting, len(open) > 0)
	all := make([]agent.Action, 0, len(open))
	for _, a := range open {
		all = append(all, agent.Action{ID: a.ID, Kind: a.Kind, Name: a.Key.Name,
			Options: a.Options, State: a.State, Message: a.Message, Late: a.Late,
			Outcome: a.Outcome, RequestedAt: a.RequestedAt})
	}
	return s.sendList(agent.EventActions, all, &s.actions)
}

// actionStatusOf converts the state of an action. An unknown state ends no action.
func actionStatusOf(s agent.ActionStatus) (mirror.ActionUpdate, bool) {
	if !validID(s.ID) {
		return mirror.ActionUpdate{}, false
	}
	u := mirror.ActionUpdate{ID: s.ID, State: s.State, Message: message(s.Message)}
	if !s.State.OfEngine() {
		u.Message = withUnknown(s.Message, string(s.State), "")
		u.State = mirror.OperationRunning
		return u, true
	}
	if s.Outcome.Ended() {
		u.Outcome = s.Outcome
	}
	if s.Results == nil {
		return u, true
	}
	u.Results = []mirror.ResourceResult{}
	for _, r := range s.Results[:min(len(s.Results), mirror.MaxActionResources)] {
		if !validName(r.Name) || !validName(r.Kind) || len(r.Kind) > 63 {
			continue
		}
		u.Results = append(u.Results, mirror.ResourceResult{
			ActionResource: mirror.ActionResource{Group: plain(r.Group, maxName), Kind: r.Kind,
				Namespace: plain(r.Namespace, 63), Name: r.Name, UID: shortText(r.UID)},
			Status: plain(r.Status, 63), Hook: plain(r.Hook, 63), Message: message(r.Message)})
	}
	return u, true
}
