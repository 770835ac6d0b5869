package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	defaultAgentTTL = time.Hour
	maxAgentTTL     = 30 * 24 * time.Hour
	// of a token for the older route of applications
	maxLegacyTTL = 366 * 24 * time.Hour

	// For a token that a person supplies: 128 bits if each character carries four, and no
	// repetitive text.
	leastBrought, mostBrought, leastDifferent = 32, 128, 10
)

type (
	agentsIn struct {
		Paging
		ByTenant
		ByEnvironment
		ByEngine
	}
	agentTokensIn struct {
		Paging
		ByTenant
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

func (in *agentsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment, Engine: in.Engine},
		in.page()
}
func (in *agentTokensIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Engine: in.Engine}, in.page()
}
func (in *ownIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment, Name: in.Name}, in.page()
}

func (s *Server) registerAgents() {
	list[agentsIn](s, "agents", "Agents of clusters that dial out, joined or only declared",
		s.agents.Agents)
	list[ownIn](s, "own-applications",
		"Applications that the people of autonomous clusters made; the mirror shows them and "+
			"writes nothing", s.agents.OwnApplications)
	one[engineIn](s, "agent", "/agents/{engine}", "One agent, by the engine that it serves",
		s.agents.Agents)
	writers := []func(huma.Context, func(huma.Context)){s.writersOnly}
	huma.Register(s.api, operation(http.MethodDelete, "/agents/{engine}", "revoke-agent",
		"End an agent's identity and its streams; its cluster keeps what it has", "agents",
		writers), s.revokeAgent)
	sync := operation(http.MethodPost,
		"/tenants/{tenant}/environments/{environment}/own-applications/{namespace}/{name}/sync",
		"sync-own-application",
		"Ask an autonomous cluster to sync one of its own Applications", "own-applications",
		writers)
	sync.DefaultStatus = http.StatusAccepted
	huma.Register(s.api, sync, s.syncOwn)
	s.registerAgentTokens(writers)
}

func (s *Server) registerAgentTokens(writers []func(huma.Context, func(huma.Context))) {
	list[agentTokensIn](s, "agent-tokens",
		"One-time registration tokens without their plaintext, newest first",
		s.agents.ListAgentTokens)
	create := operation(http.MethodPost, "/agent-tokens", "create-agent-token",
		"Create a one-time token for one cluster to join; its plaintext is in this answer and "+
			"nowhere else", "agents", writers)
	create.DefaultStatus = http.StatusCreated
	huma.Register(s.api, create, s.createAgentToken)
	huma.Register(s.api, operation(http.MethodDelete, "/agent-tokens/{id}", "revoke-agent-token",
		"Revoke an unused registration token", "agents", writers),
		func(ctx context.Context, in *tokenIn) (*struct{}, error) {
			caller := callerOf(ctx)
			return nil, s.answer(ctx, "agent token "+in.ID,
				s.agents.RevokeAgentToken(ctx, caller.Scope(), in.ID, caller.Subject()))
		})
}

func (s *Server) createAgentToken(ctx context.Context,
	in *asked[wire.AgentTokenRequest]) (*body[wire.CreatedAgentToken], error) {
	caller, ask := callerOf(ctx), in.Body
	subject, refusal := mayJoin(caller, ask)
	if refusal != nil {
		return nil, refusal
	}
	ttl, refusal := agentTTL(ask.TTL, ask.Legacy)
	if refusal != nil {
		return nil, refusal
	}
	if !randomText(ask.Token) {
		return nil, problem(http.StatusUnprocessableEntity, "token",
			"a supplied token is random text of 32 to 128 characters, and does not begin "+
				"with argosy_",
			"make one with `openssl rand -hex 32`, or leave it out and one is made for you")
	}
	token := registry.Token{Engine: ask.Engine, Tenant: ask.Tenant, Environment: ask.Environment,
		CreatedBy: caller.Subject(),
		ExpiresAt: s.now().UTC().Add(ttl), Legacy: ask.Legacy}
	if ask.Engine == "" {
		token.Engine = fleet.AgentEngine(fleet.EnvironmentID{
			Tenant: ask.Tenant, Name: ask.Environment})
	}
	made, plaintext, err := s.agents.CreateAgentToken(ctx, token, ask.Token)
	switch {
	case errors.Is(err, registry.ErrUsed):
		return nil, problem(http.StatusConflict, subject,
			"this token was supplied before",
			"make another one with `openssl rand -hex 32`")
	case err != nil:
		return nil, s.answer(ctx, subject, err)
	}
	return &body[wire.CreatedAgentToken]{wire.CreatedAgentToken{Token: made, Plaintext: plaintext,
		Hub: s.hub}}, nil
}

// mayJoin returns the token's subject, and whether the caller may let a cluster join there: a
// tenant into its own environments, the platform anywhere.
func mayJoin(caller view.Token, ask wire.AgentTokenRequest) (string, *wire.Refusal) {
	if (ask.Engine != "") == (ask.Tenant != "" || ask.Environment != "") ||
		(ask.Tenant == "") != (ask.Environment == "") {
		return "", problem(http.StatusUnprocessableEntity, "",
			"a token is for one environment (tenant and environment) or for one engine",
			"name one of them")
	}
	if ask.Engine != "" {
		subject := subjectf("engine %s", ask.Engine)
		if caller.Tenant != "" {
			return subject, problem(http.StatusForbidden, subject, "engines belong to the platform",
				"ask with a token of the platform")
		}
		return subject, nil
	}
	subject := subjectf("environment %s/%s", ask.Tenant, ask.Environment)
	if caller.Tenant != "" && caller.Tenant != ask.Tenant {
		return subject, notFound(subject)
	}
	return subject, nil
}

// randomText reports whether a supplied token could be random; an empty one is valid.
func randomText(token string) bool {
	if token == "" {
		return true
	}
	different := map[rune]bool{}
	for _, r := range token {
		different[r] = true
	}
	return len(token) >= leastBrought && len(token) <= mostBrought &&
		len(different) >= leastDifferent && !strings.HasPrefix(token, "argosy_")
}

func agentTTL(text string, legacy bool) (time.Duration, *wire.Refusal) {
	if text == "" {
		return defaultAgentTTL, nil
	}
	most := maxAgentTTL
	if legacy {
		most = maxLegacyTTL
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < minTTL || ttl > most {
		return 0, problem(http.StatusUnprocessableEntity, "ttl",
			subjectf("this token is valid for 1m to %dh", int(most.Hours())),
			"leave ttl out for one hour")
	}
	return ttl, nil
}

func (s *Server) revokeAgent(ctx context.Context, in *engineIn) (*struct{}, error) {
	caller := callerOf(ctx)
	return nil, s.answer(ctx, subjectf("agent %s", in.Engine),
		s.agents.RevokeAgent(ctx, caller.Scope(), in.Engine, caller.Subject()))
}

// syncOwn records the request; the agent executes it and reports the result.
func (s *Server) syncOwn(ctx context.Context, in *ownOneIn) (*body[wire.Asked], error) {
	caller := callerOf(ctx)
	id := fleet.EnvironmentID{Tenant: in.Tenant, Name: in.Environment}
	asked, err := s.agents.AskSync(ctx, caller.Scope(), mirror.SyncRequest{
		Key: fleet.ObjectKey{Engine: fleet.AgentEngine(id), Kind: fleet.ObjectApplication,
			Name: in.Name},
		Tenant: in.Tenant, Environment: in.Environment, Namespace: in.Namespace,
		Revision: in.Body.Revision, Prune: in.Body.Prune,
	}, caller.Subject())
	if err != nil {
		return nil, s.answer(ctx, subjectf("application %s/%s of environment %s", in.Namespace,
			in.Name, id), err)
	}
	return &body[wire.Asked]{wire.Asked{ID: asked.ID, State: asked.State}}, nil
}
