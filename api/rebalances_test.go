package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestThePlatformDecidesAboutARebalance(t *testing.T) {
	m := content()
	m.Rebalances = []mirror.Rebalance{{ID: "r-1", State: mirror.RebalanceProposed,
		Message: "relieves <b>", Since: time.Now(), ProposedAt: time.Now(),
		Engines: []mirror.RebalanceEngine{{Engine: "eu-1", CPUBefore: 6, CPUAfter: 4.5}},
		Moves: []mirror.RebalanceMove{{From: "eu-1", To: "eu-2", Applications: 7,
			Environment: fleet.EnvironmentID{Tenant: "globex", Name: "secret"},
			State:       mirror.RebalanceMovePlanned}}}}
	s := newSite(t, m)
	decide := func(token, verb, id string) answer {
		return s.do(http.MethodPost, wire.Base+"/rebalances/"+verb, token,
			`{"id":"`+id+`","reason":"lunch"}`)
	}
	s.want(s.get("/rebalances", platformToken), http.StatusOK, `"cpuAfter":4.5`)
	s.want(s.get("/rebalances", acmeToken), http.StatusForbidden, "")
	s.want(s.get("/rebalances/r-1", platformToken), http.StatusOK, `"state":"Proposed"`)
	s.want(s.get("/rebalances/r-2", platformToken), http.StatusNotFound, "r-2")
	s.want(s.page("/", platformToken), http.StatusOK, "relieves &lt;b&gt;",
		"argosy accept-rebalance r-1", "globex/secret")
	if got := s.page("/", acmeToken).body; strings.Contains(got, "r-1") {
		t.Errorf("a tenant sees the rebalance: %s", got)
	}
	s.want(decide(acmeToken, "accept", "r-1"), http.StatusForbidden, "")
	s.want(decide(readerToken, "accept", "r-1"), http.StatusForbidden, "")
	s.want(decide(platformToken, "accept", "r-2"), http.StatusNotFound, "r-2")
	s.want(decide(platformToken, "resume", "r-1"), http.StatusConflict, "it is Proposed")
	s.want(decide(platformToken, "accept", "r-1"), http.StatusOK, `"acceptedBy":"token:ops"`)
	s.want(decide(platformToken, "accept", "r-1"), http.StatusConflict, "it is Moving")
	s.want(decide(platformToken, "pause", "r-1"), http.StatusOK, `"state":"Paused"`)
	s.want(decide(platformToken, "resume", "r-1"), http.StatusOK, `"state":"Moving"`)
	s.want(decide(platformToken, "reject", "r-1"), http.StatusOK, `"state":"Rejected"`)
	s.want(decide(platformToken, "reject", "r-1"), http.StatusConflict, "it is Rejected")
}
