package api

import (
	"context"
	"net/http"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// noAgents is the Agents of a control plane without agents: none exist, and none can join.
type noAgents struct{}

func switchedOff() error {
	return problem(http.StatusServiceUnavailable, "agents", "agents are switched off",
		"set agents.enabled in argosy.yaml of the control plane")
}

// Agents implements api.Agents, as do the following.
func (noAgents) Agents(context.Context, view.Scope, view.Filter, view.Page) ([]view.Agent,
	string, error) {
	return nil, "", nil
}

// OwnApplications returns none.
func (noAgents) OwnApplications(context.Context, view.Scope, view.Filter,
	view.Page) ([]view.Own, string, error) {
	return nil, "", nil
}

// ListAgentTokens returns none.
func (noAgents) ListAgentTokens(context.Context, view.Scope, view.Filter,
	view.Page) ([]registry.Token, string, error) {
	return nil, "", nil
}

// CreateAgentToken fails.
func (noAgents) CreateAgentToken(context.Context, registry.Token, string) (registry.Token,
	string, error) {
	return registry.Token{}, "", switchedOff()
}

// RevokeAgentToken fails.
func (noAgents) RevokeAgentToken(context.Context, view.Scope, string, string) error {
	return switchedOff()
}

// RevokeAgent fails.
func (noAgents) RevokeAgent(context.Context, view.Scope, fleet.EngineName, string) error {
	return switchedOff()
}

// AskSync fails.
func (noAgents) AskSync(context.Context, view.Scope, mirror.SyncRequest, string) (mirror.SyncRequest,
	error) {
	return mirror.SyncRequest{}, switchedOff()
}
