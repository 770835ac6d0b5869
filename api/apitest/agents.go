package apitest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Agents implements api.Agents, as do the following.
func (s *Store) Agents(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Agent, string, error) {
	return listing(s, func(m *Mirror) []view.Agent { return m.Agents },
		func(a view.Agent) string { return string(a.Engine) },
		func(a view.Agent) bool {
			return is(sc.Tenant, a.Tenant) && is(f.Tenant, a.Tenant) &&
				is(f.Environment, a.Environment) && is(f.Engine, a.Engine)
		}, p)
}

// OwnApplications lists the Applications of autonomous clusters.
func (s *Store) OwnApplications(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Own, string, error) {
	return listing(s, func(m *Mirror) []view.Own { return m.Own },
		func(o view.Own) string {
			return string(o.Tenant) + "/" + string(o.Environment) + "/" + o.Namespace + "/" + o.Name
		},
		func(o view.Own) bool {
			return is(sc.Tenant, o.Tenant) && is(f.Tenant, o.Tenant) &&
				is(f.Environment, o.Environment) && is(f.Name, o.Name)
		}, p)
}

// ListAgentTokens lists registration tokens.
func (s *Store) ListAgentTokens(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]registry.Token, string, error) {
	return listing(s, func(m *Mirror) []registry.Token { return m.AgentTokens },
		func(t registry.Token) string {
			return newest(t.CreatedAt) + t.ID
		}, func(t registry.Token) bool {
			return is(sc.Tenant, t.Tenant) && is(f.Tenant, t.Tenant) && is(f.Engine, t.Engine)
		}, p)
}

// CreateAgentToken creates a token for an engine with an agent.
func (s *Store) CreateAgentToken(_ context.Context, t registry.Token,
	plaintext string) (registry.Token, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := slices.ContainsFunc(s.m.Agents, func(a view.Agent) bool {
		return a.Engine == t.Engine && a.Tenant == t.Tenant
	})
	if s.fail != nil || !known {
		return registry.Token{}, "", cmp.Or(s.fail, mirror.ErrNotFound)
	}
	t.ID, t.CreatedAt = fmt.Sprintf("j%d", len(s.m.AgentTokens)+1), time.Now().UTC()
	s.m.AgentTokens = append(s.m.AgentTokens, t)
	return t, cmp.Or(plaintext, "argosy_agent_"+t.ID+"_0123456789abcdef0123456789abcdef"), nil
}

// RevokeAgentToken ends a token.
func (s *Store) RevokeAgentToken(_ context.Context, sc view.Scope, id, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.AgentTokens {
		if t := &s.m.AgentTokens[i]; t.ID == id && is(sc.Tenant, t.Tenant) {
			now := time.Now().UTC()
			t.RevokedAt = &now
			return s.fail
		}
	}
	return cmp.Or(s.fail, mirror.ErrNotFound)
}

// RevokeAgent ends an identity.
func (s *Store) RevokeAgent(_ context.Context, sc view.Scope, engine fleet.EngineName,
	_ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.m.Agents {
		if a := &s.m.Agents[i]; a.Engine == engine && a.ID != "" && is(sc.Tenant, a.Tenant) {
			now := time.Now().UTC()
			a.RevokedAt, a.Connected = &now, false
			return s.fail
		}
	}
	return cmp.Or(s.fail, mirror.ErrNotFound)
}

// AskSync records an operation.
func (s *Store) AskSync(_ context.Context, sc view.Scope, q mirror.SyncRequest,
	by string) (mirror.SyncRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := slices.ContainsFunc(s.m.Own, func(o view.Own) bool {
		return is(sc.Tenant, o.Tenant) && o.Engine == q.Key.Engine && o.Namespace == q.Namespace &&
			o.Name == q.Key.Name
	})
	if s.fail != nil || !known {
		return q, cmp.Or(s.fail, mirror.ErrNotFound)
	}
	q.ID, q.State = fmt.Sprintf("01J%023d", len(s.m.Operations)+1), mirror.OperationPending
	s.m.Operations = append(s.m.Operations, mirror.Operation{ID: q.ID, Kind: mirror.OperationSync,
		State: q.State, Tenant: q.Tenant, Engine: q.Key.Engine,
		Subject: fmt.Sprintf("%s/%s@%s", q.Namespace, q.Key.Name, q.Environment), RequestedBy: by,
		Total: 1, StartedAt: time.Now().UTC()})
	return q, nil
}
