package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
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
	s.want(decide(acmeToken, "approve", "acme", "checkout"), http.StatusConflict, "it is Running")
	s.want(decide(acmeToken, "pause", "acme", "checkout"), http.StatusOK, `"deployment":"checkout"`)
	s.want(decide(platformToken, "abort", "globex", "secret"), http.StatusOK, "")
}
