package api

import (
	"context"
	"net/http"

	"argosy.dev/argosy/fleet"
)

// noAgents stands for agents that are switched off: there are none, and none can join.
type noAgents struct{}

func switchedOff() error {
	return problem(http.StatusServiceUnavailable, "agents", "agents are switched off",
		"set agents.enabled in argosy.yaml of the control plane")
}

// Agents implements the interface of that name, as do the following.
func (noAgents) Agents(context.Context, fleet.Scope, fleet.Filter, fleet.Page) ([]fleet.AgentView,
	string, error) {
	return nil, "", nil
}

// OwnApplications are none.
func (noAgents) OwnApplications(context.Context, fleet.Scope, fleet.Filter,
	fleet.Page) ([]fleet.OwnView, string, error) {
	return nil, "", nil
}

// ListAgentTokens are none.
func (noAgents) ListAgentTokens(context.Context, fleet.Scope, fleet.Filter,
	fleet.Page) ([]fleet.AgentToken, string, error) {
	return nil, "", nil
}

// CreateAgentToken is refused.
func (noAgents) CreateAgentToken(context.Context, fleet.AgentToken, string) (fleet.AgentToken,
	string, error) {
	return fleet.AgentToken{}, "", switchedOff()
}

// RevokeAgentToken is refused.
func (noAgents) RevokeAgentToken(context.Context, fleet.Scope, string, string) error {
	return switchedOff()
}

// RevokeAgent is refused.
func (noAgents) RevokeAgent(context.Context, fleet.Scope, fleet.EngineName, string) error {
	return switchedOff()
}

// AskSync is refused.
func (noAgents) AskSync(context.Context, fleet.Scope, fleet.SyncRequest, string) (fleet.SyncRequest,
	error) {
	return fleet.SyncRequest{}, switchedOff()
}
