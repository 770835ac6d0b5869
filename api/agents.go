package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
)

const (
	defaultAgentTTL = time.Hour
	maxAgentTTL     = 30 * 24 * time.Hour
	leastAgentToken = 22 // characters of a token that a person brings: 128 bits at 6 bits each
	mostAgentToken  = 512
)

type (
	agentsIn struct {
		Paging
		ByTenant
		ByEnvironment
		ByEngine
	}
	ownIn struct {
		Paging
		ByTenant
		ByEnvironment
		ByName
	}
	ownOneIn struct {
		TenantIn
		Environment fleet.EnvironmentName `path:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`

		Namespace string `path:"namespace" maxLength:"63" pattern:"^[a-z0-9-]+$" doc:"Of the Application, on the cluster"`
		Name      string `path:"name" maxLength:"253" pattern:"^[a-z0-9.-]+$"`
		Body      wire.OwnSyncRequest
	}
)

func (in *agentsIn) query() (fleet.Filter, fleet.Page) {
	return fleet.Filter{Tenant: in.Tenant, Environment: in.Environment, Engine: in.Engine}, in.page()
}
func (in *ownIn) query() (fleet.Filter, fleet.Page) {
	return fleet.Filter{Tenant: in.Tenant, Environment: in.Environment, Name: in.Name}, in.page()
}

func (s *Server) registerAgents() {
	list[agentsIn](s, "agents", "Agents of clusters that dial out, joined or only declared", s.agents.Agents)
	list[ownIn](s, "own-applications", "Applications that the people of autonomous clusters made; the mirror shows them and writes nothing", s.agents.OwnApplications)
	one[engineIn](s, "agent", "/agents/{engine}", "One agent, by the engine that it serves", s.agents.Agents)
	writers := []func(huma.Context, func(huma.Context)){s.writersOnly}
	huma.Register(s.api, operation(http.MethodDelete, "/agents/{engine}", "revoke-agent",
		"End an agent's identity and its streams; its cluster keeps what it has", "agents", writers), s.revokeAgent)
	sync := operation(http.MethodPost, "/tenants/{tenant}/environments/{environment}/own-applications/{namespace}/{name}/sync", "sync-own-application",
		"Ask an autonomous cluster to sync one of its own Applications", "own-applications", writers)
	sync.DefaultStatus = http.StatusAccepted
	huma.Register(s.api, sync, s.syncOwn)
	s.registerAgentTokens(writers)
}

func (s *Server) registerAgentTokens(writers []func(huma.Context, func(huma.Context))) {
	huma.Register(s.api, operation(http.MethodGet, "/agent-tokens", "list-agent-tokens", "One-time registration tokens without their plaintext, the newest first", "agents", nil),
		func(ctx context.Context, in *struct{ Paging }) (*body[wire.List[fleet.AgentToken]], error) {
			tokens, next, err := s.agents.ListAgentTokens(ctx, callerOf(ctx).Scope(), in.page())
			if err != nil {
				return nil, s.answer(ctx, "agent tokens", err)
			}
			if tokens == nil {
				tokens = []fleet.AgentToken{}
			}
			return &body[wire.List[fleet.AgentToken]]{wire.List[fleet.AgentToken]{Items: tokens, Next: next}}, nil
		})
	create := operation(http.MethodPost, "/agent-tokens", "create-agent-token",
		"Make a one-time token that one cluster joins with; its plaintext is in the answer and nowhere else", "agents", writers)
	create.DefaultStatus = http.StatusCreated
	huma.Register(s.api, create, s.createAgentToken)
	huma.Register(s.api, operation(http.MethodDelete, "/agent-tokens/{id}", "revoke-agent-token", "End a registration token that nobody has used", "agents", writers),
		func(ctx context.Context, in *tokenIn) (*struct{}, error) {
			caller := callerOf(ctx)
			return nil, s.answer(ctx, "agent token "+in.ID, s.agents.RevokeAgentToken(ctx, caller.Scope(), in.ID, caller.Subject()))
		})
}

func (s *Server) createAgentToken(ctx context.Context, in *asked[wire.AgentTokenRequest]) (*body[wire.CreatedAgentToken], error) {
	caller, ask := callerOf(ctx), in.Body
	subject, refusal := mayJoin(caller, ask)
	if refusal != nil {
		return nil, refusal
	}
	ttl, refusal := agentTTL(ask.TTL)
	if refusal != nil {
		return nil, refusal
	}
	if n := len(ask.Token); n > 0 && (n < leastAgentToken || n > mostAgentToken) {
		return nil, problem(http.StatusUnprocessableEntity, "token", "a token that you bring has 22 to 512 characters, all of them random",
			"leave it out, and one is made for you")
	}
	token := fleet.AgentToken{Engine: ask.Engine, Tenant: ask.Tenant, Environment: ask.Environment, CreatedBy: caller.Subject(),
		ExpiresAt: s.now().UTC().Add(ttl), Legacy: ask.Legacy}
	if ask.Engine == "" {
		token.Engine = fleet.AgentEngine(fleet.EnvironmentID{Tenant: ask.Tenant, Name: ask.Environment})
	}
	made, plaintext, err := s.agents.CreateAgentToken(ctx, token, ask.Token)
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[wire.CreatedAgentToken]{wire.CreatedAgentToken{Token: made, Plaintext: plaintext}}, nil
}

// mayJoin says for what the token is, and whether the caller may let a cluster join there: a tenant into its own environments, the platform
// anywhere.
func mayJoin(caller fleet.Token, ask wire.AgentTokenRequest) (string, *wire.Refusal) {
	if (ask.Engine != "") == (ask.Tenant != "" || ask.Environment != "") || (ask.Tenant == "") != (ask.Environment == "") {
		return "", problem(http.StatusUnprocessableEntity, "", "a token is for one environment (tenant and environment) or for one engine", "name the one or the other")
	}
	if ask.Engine != "" {
		subject := subjectf("engine %s", ask.Engine)
		if caller.Tenant != "" {
			return subject, problem(http.StatusForbidden, subject, "engines belong to the platform", "ask with a token of the platform")
		}
		return subject, nil
	}
	subject := subjectf("environment %s/%s", ask.Tenant, ask.Environment)
	if caller.Tenant != "" && caller.Tenant != ask.Tenant {
		return subject, notFound(subject)
	}
	return subject, nil
}

func agentTTL(text string) (time.Duration, *wire.Refusal) {
	if text == "" {
		return defaultAgentTTL, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < minTTL || ttl > maxAgentTTL {
		return 0, problem(http.StatusUnprocessableEntity, "ttl", "a registration token is valid for 1m to 720h", "leave ttl out for one hour")
	}
	return ttl, nil
}

// revokeAgent ends the identity of an agent that the caller may see and owns: what it does not see is not found, whoever's it is.
func (s *Server) revokeAgent(ctx context.Context, in *engineIn) (*struct{}, error) {
	caller := callerOf(ctx)
	filter, _ := in.identity()
	subject := subjectf("agent %s", in.Engine)
	found, err := single(ctx, s.agents.Agents, caller.Scope(), filter)
	if err == nil && caller.Tenant != "" && found.Tenant != caller.Tenant {
		err = fleet.ErrNotFound
	}
	if err == nil {
		err = s.agents.RevokeAgent(ctx, found.Engine, caller.Subject())
	}
	return nil, s.answer(ctx, subject, err)
}

// syncOwn records the wish; the agent carries it out and reports how it ends.
func (s *Server) syncOwn(ctx context.Context, in *ownOneIn) (*body[wire.Asked], error) {
	caller := callerOf(ctx)
	id := fleet.EnvironmentID{Tenant: in.Tenant, Name: in.Environment}
	subject := subjectf("application %s/%s of environment %s", in.Namespace, in.Name, id)
	if caller.Tenant != "" && caller.Tenant != in.Tenant {
		return nil, notFound(subject)
	}
	asked, err := s.agents.AskSync(ctx, fleet.SyncRequest{
		Key:    fleet.ObjectKey{Engine: fleet.AgentEngine(id), Kind: fleet.ObjectApplication, Name: in.Name},
		Tenant: in.Tenant, Environment: in.Environment, Namespace: in.Namespace, Revision: in.Body.Revision, Prune: in.Body.Prune,
	}, caller.Subject())
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[wire.Asked]{wire.Asked{Operation: asked}}, nil
}
