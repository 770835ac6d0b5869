package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestATenantDecidesAboutItsOwnRollouts(t *testing.T) {
	m := content()
	m.Rollouts = []mirror.Rollout{
		{ID: "r-1", Tenant: "acme", Deployment: "checkout", State: mirror.RolloutRunning,
			BegunAt: time.Now()},
		{ID: "r-2", Tenant: "globex", Deployment: "secret", State: mirror.RolloutRunning,
			BegunAt: time.Now()}}
	s := newSite(t, m)
	decide := func(token, verb, tenant, deployment string) answer {
		return s.do(http.MethodPost, wire.Base+"/rollouts/"+verb, token,
			`{"tenant":"`+tenant+`","deployment":"`+deployment+`","reason":"lunch"}`)
	}
	s.want(s.get("/rollouts?deployment=secret", platformToken), http.StatusOK, `"id":"r-2"`)
	s.want(s.get("/rollouts", acmeToken), http.StatusOK, `"id":"r-1"`)
	if got := s.get("/rollouts", acmeToken).body; strings.Contains(got, "globex") {
		t.Errorf("a tenant sees another's rollout: %s", got)
	}
	s.want(decide(readerToken, "pause", "acme", "checkout"), http.StatusForbidden, "")
	s.want(decide(acmeToken, "pause", "globex", "secret"), http.StatusNotFound, "globex/secret")
	s.want(decide(platformToken, "approve", "acme", "checkout"), http.StatusConflict,
		"it is Running")
	s.want(decide(acmeToken, "pause", "acme", "checkout"), http.StatusOK, `"deployment":"checkout"`)
	s.want(decide(platformToken, "abort", "globex", "secret"), http.StatusOK, "")
}

// A wave is approved by an owner of the tenant, as the Tenant names them now, or by the platform.
func TestOwnersApproveWaves(t *testing.T) {
	const alice, bob = "argosy_alice_0a1b2c3d", "argosy_bob_0a1b2c3d"
	m := content()
	m.Rollouts = []mirror.Rollout{{ID: "r-1", Tenant: "acme", Deployment: "checkout",
		State: mirror.RolloutAwaits, BegunAt: time.Now(), Waves: []mirror.RolloutWave{
			{Name: "prod", Approval: true, State: mirror.WaveAwaits}}}}
	for plaintext, owner := range map[string]string{alice: "group:acme", bob: "github:bob"} {
		m.Tokens = append(m.Tokens, apitest.Token{Plaintext: plaintext, Token: view.Token{
			ID: owner, Name: "person", Tenant: "acme", Role: view.RoleWrite, Owner: owner}})
	}
	s := newSite(t, m)
	approve := func(token string) answer {
		return s.do(http.MethodPost, wire.Base+"/rollouts/approve", token,
			`{"tenant":"acme","deployment":"checkout"}`)
	}
	s.want(approve(acmeToken), http.StatusForbidden, "of no owner")
	s.want(approve(acmeToken), http.StatusForbidden, "--owner group:acme")
	s.want(approve(bob), http.StatusForbidden, "github:bob is no owner of the tenant any more")
	s.want(approve(alice), http.StatusOK, `"deployment":"checkout"`)
	s.want(s.get("/rollouts", acmeToken), http.StatusOK,
		"approve by group:acme (token:acme/person)")
	s.want(approve(platformToken), http.StatusOK, "")
	s.want(s.do(http.MethodPost, wire.Base+"/tokens", platformToken,
		`{"name":"x","role":"write","owner":"group:acme"}`), http.StatusUnprocessableEntity,
		"name a tenant")
	s.want(s.do(http.MethodPost, wire.Base+"/tokens", platformToken,
		`{"name":"x","tenant":"acme","role":"write","owner":"group:acme"}`), http.StatusCreated,
		`"owner":"group:acme"`)
}
