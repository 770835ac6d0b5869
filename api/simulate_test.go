package api_test

import (
	"net/http"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
)

func TestASimulationIsForThePlatform(t *testing.T) {
	s := newSite(t, content())
	const path = "/simulate?change=drain&engine=eu-1"
	s.want(s.get(path, acmeToken), http.StatusForbidden)
	a := s.get(path, readerToken)
	s.want(a, http.StatusOK)
	out := decode[placement.Outcome](t, a)
	if out.Kind != placement.Drain || out.Engine != "eu-1" || len(out.Engines) == 0 ||
		len(out.Moves)+len(out.Left) == 0 || out.Engines[0].State != fleet.EngineDraining {
		t.Errorf("%s", a.body)
	}
}

func TestAnImpossibleSimulationIsExplained(t *testing.T) {
	s := newSite(t, content())
	for path, why := range map[string]string{
		"/simulate?change=drain&engine=nothing":              "engine nothing is not declared",
		"/simulate?change=join&engine=eu-9":                  "name a declared engine",
		"/simulate?change=burn&engine=eu-1":                  "change",
		"/simulate?change=scale&engine=eu-1&environments=-1": "environments",
		"/simulate?change=drain":                             "engine",
	} {
		s.want(s.get(path, platformToken), http.StatusUnprocessableEntity, why)
	}
}
