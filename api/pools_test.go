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
)

// withPools returns a mirror with two pools, one of which has an instance.
func withPools() apitest.Mirror {
	m := content()
	m.Pools = []mirror.Pool{
		{Name: "eu", State: mirror.PoolFull, Message: "the pool may have 1 instances", Waiting: 2,
			Load: 95, Since: time.Now(), Instances: []fleet.PoolMember{{Pool: "eu", Number: 1,
				Cluster: "home", State: fleet.MemberServing, Sizing: fleet.Sizing{Size: "large",
					SizedWhy: "<b>1.84 of 2 CPU"}}},
			Sizing: map[int]mirror.SizeMemory{1: {Refused: "larger"}}},
		{Name: "us", State: mirror.PoolSteady, Since: time.Now()},
	}
	return m
}

func TestThePlatformDecidesAboutPools(t *testing.T) {
	s := newSite(t, withPools())
	ask := func(verb, token, pool string) answer {
		return s.do(http.MethodPost, wire.Base+"/pools/"+verb, token,
			`{"pool":"`+pool+`","reason":"incident 42"}`)
	}
	for _, verb := range []string{"pause", "resume"} {
		s.want(ask(verb, acmeToken, "eu"), http.StatusForbidden, "")
		s.want(ask(verb, readerToken, "eu"), http.StatusForbidden, "")
		s.want(ask(verb, "", "eu"), http.StatusUnauthorized, "")
		s.want(ask(verb, platformToken, "eu-1"), http.StatusNotFound, "pool eu-1")
		s.want(ask(verb, platformToken, ""), http.StatusUnprocessableEntity, "pool")
	}
	s.want(ask("pause", platformToken, "us"), http.StatusOK, `"name":"us"`,
		`"pausedBy":"token:ops"`, `"pauseReason":"incident 42"`)
	if a := ask("resume", platformToken, "us"); a.status != http.StatusOK ||
		strings.Contains(a.body, "pausedBy") {
		t.Errorf("it is paused still: %d %s", a.status, a.body)
	}
}

func TestPoolsAreReadByThePlatformAlone(t *testing.T) {
	s := newSite(t, withPools())
	list := func(token, query string) answer {
		return s.do(http.MethodGet, wire.Base+"/pools"+query, token, "")
	}
	s.want(list(readerToken, ""), http.StatusOK, `"state":"Full"`, `"waiting":2`,
		`"cluster":"home"`, `"name":"us"`)
	if a := list(readerToken, "?name=us"); a.status != http.StatusOK ||
		strings.Contains(a.body, `"name":"eu"`) {
		t.Errorf("%d, with another pool: %s", a.status, a.body)
	}
	if a := list(acmeToken, ""); a.status != http.StatusForbidden ||
		strings.Contains(a.body, "home") {
		t.Errorf("a tenant reads pools: %d %s", a.status, a.body)
	}
	s.want(list("", ""), http.StatusUnauthorized, "")

	s.want(s.page("/pools", readerToken), http.StatusOK, `id="pool-eu"`, `href="/engines/eu-1"`,
		"wait for an engine: 2.", "large", "its Pods did not get larger", "&lt;b&gt;1.84 of 2 CPU")
	if a := s.page("/pools", acmeToken); a.status != http.StatusNotFound ||
		strings.Contains(a.body, "home") {
		t.Errorf("the page shows a tenant the pools: %d", a.status)
	}
	none := newSite(t, content())
	none.want(none.page("/pools", platformToken), http.StatusOK, "No pool is declared",
		"EnginePool")
}
