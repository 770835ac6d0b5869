package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
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
	writers := []guard{s.may(access.Join, access.Agent)}
	huma.Register(s.api, operation(http.MethodDelete, "/agents/{engine}", "revoke-agent",
		"End an agent's identity and its streams; its cluster keeps what it has", "agents",
		writers), s.revokeAgent)
	sync := operation(http.MethodPost,
		"/tenants/{tenant}/environments/{environment}/own-applications/{namespace}/{name}/sync",
		"sync-own-application",
		"Ask an autonomous cluster to sync one of its own Applications", "own-applications",
		[]guard{s.may(access.Sync, access.Application)})
	sync.DefaultStatus = http.StatusAccepted
	huma.Register(s.api, sync, s.syncOwn)
	s.registerAgentTokens(writers)
}

func (s *Server) registerAgentTokens(writers []guard) {
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
func (noAgents) AskSync(context.Context, view.Scope, mirror.SyncRequest,
	string) (mirror.SyncRequest,
	error) {
	return mirror.SyncRequest{}, switchedOff()
}

type agentsView struct {
	frame
	Agents []view.Agent
	Next   string
}

func (s *website) agentsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	v := agentsView{frame: s.framed(r, token, "Agents")}
	var err error
	v.Agents, v.Next, err = s.agents.Agents(r.Context(), token.Scope(), view.Filter{}, view.Page{
		Limit: manyItems, After: cursor(r.URL.Query().Get("after"))})
	if v.Next != "" {
		v.Next = "?" + url.Values{"after": {v.Next}}.Encode()
	}
	s.show(w, r, token, "agents", "agents", v, err)
}

// agentStatus is the displayed status of one agent.
type agentStatus struct{ Word, Tone, Detail, Message string }

func agentState(now time.Time, a view.Agent) agentStatus {
	s := agentStatus{Word: "away", Tone: "bad", Message: a.Message}
	if a.SeenAt != nil {
		s.Detail = "last seen " + fleet.Age(now.Sub(*a.SeenAt)) + " ago"
	}
	switch {
	case a.ID == "":
		s.Word, s.Tone, s.Detail = "not joined", "none", ""
	case a.Cloned:
		s.Word, s.Detail = "cloned",
			"two processes use one identity, and both are refused; join again on the cluster "+
				"that you keep"
	case a.RevokedAt != nil:
		s.Word = "revoked"
	case a.ExpiresAt != nil && a.ExpiresAt.Before(now):
		s.Word = "expired"
	case a.Connected:
		s.Word, s.Tone, s.Detail = "connected", "good", ""
	}
	if a.Orphans > 0 && a.ID != "" {
		s.Message = fmt.Sprintf(
			"%s %d orphans on the cluster; Argosy does not touch them", s.Message,
			a.Orphans)
	}
	return s
}

// describeProtocol adds the agents' requests to the document. The hub serves them on the same
// address, not this package: its credentials, limits and deadlines differ.
func describeProtocol(api huma.API) {
	for _, op := range protocol() {
		describe(api, op)
	}
}

// protocolRequest is one request of the agents' protocol.
type protocolRequest struct {
	method, path, id, summary string
	open                      bool // needs no access token
	in, out                   reflect.Type
	inType, outType           string // of the content, if not JSON
	status                    int
}

func protocol() []protocolRequest {
	joined := reflect.TypeFor[agent.Joined]()
	return []protocolRequest{
		{method: http.MethodPost, path: agent.PathJoin, id: "agent-join", open: true,
			in: reflect.TypeFor[agent.Join](), out: joined, status: http.StatusOK,
			summary: "Exchange a one-time token and public keys for an identity that is bound to " +
				"the keys; the header DPoP has their proof"},
		{method: http.MethodPost, path: agent.PathToken, id: "agent-token", open: true,
			in: reflect.TypeFor[assertion](), inType: "application/x-www-form-urlencoded",
			out: reflect.TypeFor[agent.Access](), status: http.StatusOK,
			summary: "Exchange a client assertion (RFC 7523) for an access token that is valid " +
				"with the key only"},
		{method: http.MethodPost, path: agent.PathKeys, id: "agent-keys",
			in: reflect.TypeFor[agent.Rotate](), out: joined, status: http.StatusOK,
			summary: "Replace the agent's keys, which prolongs its identity"},
		{method: http.MethodGet, path: agent.PathSnapshot, id: "agent-snapshot",
			out: reflect.TypeFor[agent.Snapshot](), status: http.StatusOK,
			summary: "Every row of the agent's engine at one moment. The engine is determined by " +
				"the credential alone"},
		{method: http.MethodGet, path: agent.PathStream, id: "agent-stream",
			outType: "text/event-stream", status: http.StatusOK,
			summary: "Changes after the cursor in Last-Event-ID, as they happen: hello, " +
				"rows, again, syncs, stops, moves, instance, shadow, bye"},
		{method: http.MethodPost, path: agent.PathStatus, id: "agent-status",
			in: reflect.TypeFor[agent.Report](), status: http.StatusNoContent,
			summary: "Applied rows and the cluster's status, numbered; at most " +
				strconv.Itoa(agent.MaxReport>>20) + " MiB and " + strconv.Itoa(agent.MaxItems) +
				" items of each kind"},
		{method: http.MethodPost, path: agent.PathManifests, id: "agent-manifests",
			in:  reflect.TypeFor[agent.ManifestsRequest](),
			out: reflect.TypeFor[agent.Manifests](), status: http.StatusOK,
			summary: "The manifests of the version of Argo CD that the agent's engine is to " +
				"have: JSON of content by path, compressed by gzip"},
		{method: http.MethodPost, path: agent.PathComparisons, id: "agent-comparisons",
			in:  reflect.TypeFor[agent.ComparisonsRequest](),
			out: reflect.TypeFor[agent.ComparisonTasks](), status: http.StatusOK,
			summary: "The next Applications of the agent's engine to compare under the next " +
				"version of its Argo CD, at most " + strconv.Itoa(agent.MaxTasks)},
		{method: http.MethodPost, path: agent.PathInspections, id: "agent-inspections",
			in: reflect.TypeFor[agent.InspectionPart](), status: http.StatusNoContent,
			summary: "One part of the answer to a read of the agent's stream; 410 if no reader " +
				"waits for it, 429 while the reader has not taken the earlier parts"},
		{method: http.MethodGet, path: agent.PathProbe, id: "agent-probe", open: true,
			outType: "text/event-stream", status: http.StatusOK,
			summary: "A stream of " + agent.ProbeGap.String() +
				" without authentication: the arrival of its two comments shows buffering " +
				"proxies on " +
				"the way before an agent joins"},
	}
}

// assertion is the form of PathToken.
type assertion struct {
	GrantType     string `json:"grant_type" enum:"client_credentials"`
	AssertionType string `json:"client_assertion_type" enum:"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"`
	Assertion     string `json:"client_assertion" doc:"JWT, EdDSA, iss and sub the agent's ID, aud the control plane's public URL, at most 60 s old"`
}

func describe(api huma.API, sp protocolRequest) {
	document := api.OpenAPI()
	schema := func(t reflect.Type) *huma.Schema {
		return document.Components.Schemas.Schema(t, true, "")
	}
	op := &huma.Operation{Method: sp.method, Path: sp.path, OperationID: sp.id, Summary: sp.summary,
		Tags: []string{"agent protocol"}, Responses: map[string]*huma.Response{}}
	if !sp.open {
		op.Security = []map[string][]string{{"agent": {}}}
	}
	if sp.in != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			firstWord(sp.inType, "application/json"): {Schema: schema(sp.in)}}}
	}
	answer := &huma.Response{Description: http.StatusText(sp.status)}
	switch {
	case sp.out != nil:
		answer.Content = map[string]*huma.MediaType{"application/json": {Schema: schema(sp.out)}}
	case sp.outType != "":
		answer.Content = map[string]*huma.MediaType{
			sp.outType: {Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	op.Responses[strconv.Itoa(sp.status)] = answer
	op.Responses["default"] = &huma.Response{Description: "Error, with a code of the protocol",
		Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: schema(reflect.TypeFor[wire.Refusal]())}}}
	document.AddOperation(op)
}

func firstWord(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
