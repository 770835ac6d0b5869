package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func TestARegistrationTokenIsForOneClusterAndShownOnce(t *testing.T) {
	s := newSite(t, content())
	made := decode[wire.CreatedAgentToken](t, s.do(http.MethodPost, wire.Base+"/agent-tokens",
		acmeToken, `{"tenant":"acme","environment":"edge","ttl":"10m"}`))
	if made.Token.Engine != "acme.edge" || made.Token.CreatedBy != "token:acme/ci" ||
		time.Until(made.Token.ExpiresAt) > 10*time.Minute || made.Plaintext == "" ||
		made.Hub != "https://argosy.example.com" {
		t.Errorf("made %+v at %q", made.Token, made.Hub)
	}
	for _, a := range []answer{s.get("/agent-tokens", acmeToken),
		s.get("/agent-tokens", platformToken)} {
		s.want(a, http.StatusOK, made.Token.ID)
		if strings.Contains(a.body, made.Plaintext) {
			t.Error("it is shown again")
		}
	}
	brought := "0123456789abcdef0123456789abcdef"
	s.want(s.do(http.MethodPost, wire.Base+"/agent-tokens", platformToken,
		`{"tenant":"acme","environment":"edge","token":"`+brought+`"}`), http.StatusCreated)
	if log := s.log.String(); strings.Contains(log, brought) ||
		strings.Contains(log, made.Plaintext) {
		t.Error("a token is in the log")
	}
}

func TestARegistrationTokenIsRefused(t *testing.T) {
	s := newSite(t, content())
	for name, c := range map[string]struct {
		token, body string
		status      int
		wants       string
	}{
		"to a reader": {readerToken, `{"tenant":"acme","environment":"edge"}`,
			http.StatusForbidden, "only read"},
		"to a tenant, for an engine": {acmeToken, `{"engine":"eu-2"}`, http.StatusForbidden,
			"platform"},
		"for nothing": {platformToken, `{}`, http.StatusUnprocessableEntity,
			"one environment"},
		"for both": {
			platformToken, `{"tenant":"acme","environment":"edge","engine":"eu-2"}`,
			http.StatusUnprocessableEntity, "one environment"},
		"for a tenant alone": {platformToken, `{"tenant":"acme"}`,
			http.StatusUnprocessableEntity, "one environment"},
		"for what no agent serves": {platformToken, `{"tenant":"acme","environment":"prod"}`,
			http.StatusNotFound, "environment acme/prod"},
		"for ever": {
			platformToken, `{"tenant":"acme","environment":"edge","ttl":"8760h"}`,
			http.StatusUnprocessableEntity, "720h"},
		"of one letter": {
			platformToken, `{"tenant":"acme","environment":"edge","token":"` + strings.Repeat("a",
				40) + `"}`, http.StatusUnprocessableEntity, "random"},
		"that can be guessed": {
			platformToken, `{"tenant":"acme","environment":"edge","token":"hunter2"}`,
			http.StatusUnprocessableEntity, "random"},
		"for an engine that has a path": {platformToken, `{"engine":"../acme"}`,
			http.StatusUnprocessableEntity, "engine"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			a := s.do(http.MethodPost, wire.Base+"/agent-tokens", c.token, c.body)
			s.want(a, c.status, c.wants)
			if strings.Contains(a.body, "hunter2") {
				t.Error("the answer repeats a token")
			}
		})
	}
}

func TestAnOwnApplicationIsAskedToSync(t *testing.T) {
	s := newSite(t, content())
	const path = wire.Base + "/tenants/acme/environments/edge/own-applications/argocd/shop/sync"
	a := s.do(http.MethodPost, path, acmeToken, `{"revision":"v2","prune":true}`)
	s.want(a, http.StatusAccepted)
	id := decode[wire.Asked](t, a).ID
	s.want(s.get("/operations/"+id, acmeToken), http.StatusOK, "argocd/shop@edge", "token:acme/ci")
	s.want(s.do(http.MethodPost, path, readerToken, `{}`), http.StatusForbidden)
	s.want(s.do(http.MethodPost, strings.Replace(path, "shop", "nothing", 1), acmeToken, `{}`),
		http.StatusNotFound)
}

func TestWithoutAgentsTheirListsAreEmptyAndNothingJoins(t *testing.T) {
	store := apitest.New(content())
	s := newSiteOver(t, struct {
		api.Inventory
		api.History
		api.State
		api.PullReader
		api.AuditReader
		api.Finder
		api.Simulator
		api.Decider
		api.Tokens
	}{store, store, store, store, store, store, store, store, store})
	for _, list := range []string{"/agents", "/agent-tokens", "/own-applications"} {
		s.want(s.get(list, platformToken), http.StatusOK, `"items":[]`)
	}
	s.want(s.do(http.MethodPost, wire.Base+"/agent-tokens", platformToken,
		`{"tenant":"acme","environment":"edge"}`), http.StatusServiceUnavailable, "agents.enabled")
	s.want(s.do(http.MethodDelete, wire.Base+"/agents/acme.edge", platformToken, ""),
		http.StatusServiceUnavailable)
}

// The document includes the agents' protocol, though another package serves it.
func TestTheDocumentHoldsTheAgentsProtocol(t *testing.T) {
	s := newSite(t, content())
	document := s.do(http.MethodGet, "/openapi.json", "", "")
	for _, part := range []string{`"/api/v1/agents/join"`, `"/api/v1/agents/token"`,
		`"/api/v1/agents/keys"`, `"/api/v1/cluster/self/applications"`,
		`"/api/v1/cluster/self/applications/stream"`, `"/api/v1/cluster/self/status"`,
		`"/api/v1/cluster/probe"`, `"ProtocolSnapshot"`, `"ProtocolReport"`} {
		s.want(document, http.StatusOK, part)
	}
}

func TestThePageShowsAgentsAndTheirOwnApplications(t *testing.T) {
	m := content()
	seen := time.Now().Add(-14 * time.Minute)
	m.Agents[0].SeenAt, m.Agents[0].Message, m.Agents[0].HeldDeletions = &seen,
		"<script>alert(1)</script>", 3
	m.Environments = append(m.Environments, view.Environment{Tenant: "acme", Name: "edge",
		Agent: fleet.AgentAutonomous, Engine: "acme.edge", Own: 1})
	s := newSite(t, m)
	a := s.page("/agents", platformToken)
	s.want(a, http.StatusOK, "acme/edge", "away", "last seen 14m ago", "3 held", "globex/edge")
	b := s.page("/tenants/acme/environments/edge", acmeToken)
	s.want(b, http.StatusOK, "by its agent (autonomous)", "last seen 14m ago", "argocd/shop",
		"https://git.example.com/acme")
	if strings.Contains(a.body+b.body, "<script>alert") || strings.Contains(b.body, "globex") {
		t.Error("a cluster's text is markup, or another tenant's is shown")
	}
}

var _ api.Agents = (*apitest.Store)(nil)
