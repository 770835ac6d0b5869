package apitest

import (
	"context"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Actions lists actions, newest first.
func (s *Store) Actions(_ context.Context, scope view.Scope, f view.Filter, p view.Page) (
	[]mirror.Action, string, error) {
	return listing(s, func(m *Mirror) []mirror.Action { return m.Actions },
		func(a mirror.Action) string { return newest(a.RequestedAt) + a.ID },
		func(a mirror.Action) bool {
			return is(scope.Tenant, a.Tenant) && is(f.Tenant, a.Tenant) &&
				is(f.Deployment, a.Deployment) && is(f.Environment, a.Environment) &&
				is(f.Name, a.ID)
		}, p)
}

// RequestAction implements api.Decider. Its actions stay pending.
func (s *Store) RequestAction(_ context.Context, scope view.Scope, a mirror.Action) (mirror.Action,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return a, s.fail
	}
	for _, known := range s.m.Actions {
		if known.Application() == a.Application() && known.Request == a.Request {
			return known, nil
		}
	}
	for _, app := range s.m.Applications {
		if app.ID() != a.Application() || !is(scope.Tenant, app.Tenant) {
			continue
		}
		a.ID, a.State = fmt.Sprintf("action-%d", len(s.m.Operations)), mirror.OperationPending
		a.Key.Engine, a.Key.Name = app.Engine, app.Name
		a.RequestedAt = time.Now().UTC()
		s.m.Actions = append(s.m.Actions, a)
		s.m.Operations = append(s.m.Operations, mirror.Operation{ID: a.ID, Kind: a.Kind.Operation(),
			State: a.State, Tenant: a.Tenant, Engine: app.Engine, Subject: app.ID().String(),
			RequestedBy: a.By, Message: a.Note, Total: 1, StartedAt: a.RequestedAt})
		return a, nil
	}
	return a, mirror.ErrNotFound
}
