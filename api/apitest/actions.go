package apitest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
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

// HealthyRevisions are the revisions with which one Application was Healthy.
type HealthyRevisions struct {
	Application fleet.ApplicationID
	Revisions   []mirror.HealthyRevision
}

// HealthyRevisions lists them as they are in the mirror.
func (s *Store) HealthyRevisions(_ context.Context, scope view.Scope, id fleet.ApplicationID) (
	[]mirror.HealthyRevision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	for _, h := range s.m.Healthy {
		if h.Application == id && is(scope.Tenant, id.Tenant) {
			return h.Revisions, nil
		}
	}
	return nil, nil
}

// rollbackRefusal returns why the store refuses a rollback. s.mu is held.
func (s *Store) rollbackRefusal(app view.Application, a mirror.Action) error {
	switch {
	case a.Kind != mirror.ActionRollback:
		return nil
	case a.Options.End && mirror.RollbackOf(app.Hold) == "":
		return mirror.ErrNotRolledBack
	case a.Options.End:
		return nil
	}
	for _, h := range s.m.Healthy {
		if h.Application == app.ID() && slices.ContainsFunc(h.Revisions,
			func(r mirror.HealthyRevision) bool { return r.Revision == a.Options.Revision }) {
			return nil
		}
	}
	return mirror.ErrNeverHealthy
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
		if err := s.rollbackRefusal(app, a); err != nil {
			return a, err
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
