package api_test

import (
	"net/http"
	"strings"
	"testing"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
)

// Rings belong to the platform: a tenant sees none and decides about none.
func TestThePlatformAloneDecidesAboutRings(t *testing.T) {
	m := content()
	m.Rings = []mirror.Ring{{Name: "canary", State: mirror.RingMoving, Version: "3.5.7",
		Engines: []mirror.Instance{{Engine: "eu-1", Ring: "canary", Version: "3.5.7",
			State: mirror.InstanceInstalling}}},
		{Name: "stable", State: mirror.RingWaiting, Version: "3.5.7"}}
	s := newSite(t, m)
	decide := func(token, verb, ring string) answer {
		return s.do(http.MethodPost, wire.Base+"/rings/"+verb, token,
			`{"ring":"`+ring+`","reason":"incident 42"}`)
	}
	s.want(s.get("/rings", platformToken), http.StatusOK, `"name":"stable"`)
	one := s.get("/rings?name=canary", platformToken)
	s.want(one, http.StatusOK, `"engine":"eu-1"`)
	if strings.Contains(one.body, "stable") {
		t.Errorf("another ring is listed: %s", one.body)
	}
	if got := s.get("/rings", acmeToken); strings.Contains(got.body, "canary") {
		t.Errorf("a tenant sees a ring: %s", got.body)
	}
	for _, verb := range []string{"pause", "resume", "return"} {
		s.want(decide(acmeToken, verb, "canary"), http.StatusForbidden, "")
		s.want(decide(readerToken, verb, "canary"), http.StatusForbidden, "")
		s.want(decide("", verb, "canary"), http.StatusUnauthorized, "")
		s.want(decide(platformToken, verb, "canery"), http.StatusNotFound, "ring canery")
		s.want(decide(platformToken, verb, "canary"), http.StatusOK, `"name":"canary"`)
	}
}
