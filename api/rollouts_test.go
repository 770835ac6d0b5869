package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
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

// waved is a rollout of acme whose first wave is done, and whose second one fails.
func waved() mirror.Rollout {
	now := time.Now()
	return mirror.Rollout{ID: "r-1", Tenant: "acme", Deployment: "checkout",
		State: mirror.RolloutReturned, Message: "prod is <b>Degraded", Since: now, BegunAt: now,
		Revision: rev1, OnFailure: "Return", Waves: []mirror.RolloutWave{
			{Name: "canary", State: mirror.WaveDone, Since: now},
			{Name: "prod", State: mirror.WaveFailed, Approval: true, ApprovedBy: "token:acme/ann",
				Since: now, Metrics: []mirror.RolloutMetric{{Name: "error-rate"}}}},
		Members: []mirror.RolloutMember{
			{Environment: "staging", Wave: 0, State: mirror.MemberHealthy, Since: now},
			{Environment: "prod", Wave: 1, State: mirror.MemberFailed, Since: now,
				Message: "a Pod does not start"},
			{Environment: "lost", Wave: 7}}} // of another version
}

func TestThePageShowsRolloutsAsStripsOfWaves(t *testing.T) {
	m := content()
	other := waved()
	other.ID, other.Tenant, other.Deployment = "r-2", "globex", "secret"
	m.Rollouts = []mirror.Rollout{waved(), other}
	s := newSite(t, m)
	s.want(s.page("/rollouts", acmeToken), http.StatusOK, `class="strip"`, "1 canary",
		"1/1 healthy", "2 prod", "0/1 healthy", `href="/tenants/acme/rollouts/checkout"`,
		"&lt;b&gt;Degraded")
	s.want(s.page("/rollouts?tenant=globex", platformToken), http.StatusOK, "globex/secret")
	s.want(s.page("/tenants/acme/rollouts/checkout", acmeToken), http.StatusOK,
		"argosy rollouts resume acme/checkout", "a Pod does not start", "error-rate",
		"approved by token:acme/ann", `href="/tenants/acme/applications/checkout/prod"`)
	for _, path := range []string{"/rollouts", "/rollouts?tenant=globex",
		"/tenants/globex/rollouts/secret"} {
		if a := s.page(path, acmeToken); strings.Contains(a.body, "secret\"") {
			t.Errorf("%s shows a rollout of another tenant", path)
		}
	}
	s.want(s.page("/tenants/globex/rollouts/secret", acmeToken), http.StatusNotFound, "")
	none := newSite(t, content())
	none.want(none.page("/rollouts", acmeToken), http.StatusOK, "spec.rollout")
}

func TestThePageShowsFreezesAndWhatTheyHold(t *testing.T) {
	m := content()
	m.Holds = nil
	m.Freezes = []view.Freeze{{Name: "weekend", Schedule: "* * * * *", TimeZone: "UTC",
		Duration: fleet.Duration(time.Hour), Kinds: fleet.FreezeKinds, Reason: "no <b>releases"},
		{Name: "inner", Tenant: "globex", Schedule: "0 18 * * 5", TimeZone: "UTC",
			Duration: fleet.Duration(time.Hour)}}
	s := newSite(t, m)
	s.want(s.page("/freezes", platformToken), http.StatusOK, "the fleet/weekend", "until ",
		"no &lt;b&gt;releases", "globex/inner", "No change waits for a release")
	if a := s.page("/freezes", acmeToken); strings.Contains(a.body, "globex") {
		t.Error("a tenant sees a freeze of another tenant")
	}
	none := newSite(t, content())
	none.want(none.page("/freezes", acmeToken), http.StatusOK, "No freeze is declared")
}
