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

// withRings returns a mirror with two rings: one whose gate has failed, and one that waits for it.
func withRings() apitest.Mirror {
	m := content()
	now := time.Now()
	m.Rings = []mirror.Ring{
		{Name: "canary", State: mirror.RingHalted, Version: "3.5.7", Digest: "sha256:new",
			Message: "engine eu-1 has <b>3 Degraded Applications", Since: now,
			Engines: []mirror.Instance{
				{Engine: "eu-1", Ring: "canary", State: mirror.InstanceRunning, Version: "3.5.7",
					GoodVersion: "2.14.21", Since: now}}},
		{Name: "stable", State: mirror.RingWaiting, Version: "3.5.7", Digest: "sha256:new",
			Message: "ring canary is not Done", Since: now},
	}
	return m
}

func TestThePlatformDecidesAboutRings(t *testing.T) {
	s := newSite(t, withRings())
	ask := func(verb, token, ring string) answer {
		return s.do(http.MethodPost, wire.Base+"/rings/"+verb, token,
			`{"ring":"`+ring+`","reason":"incident 42"}`)
	}
	for _, verb := range []string{"pause", "resume", "return"} {
		s.want(ask(verb, acmeToken, "canary"), http.StatusForbidden, "")
		s.want(ask(verb, readerToken, "canary"), http.StatusForbidden, "")
		s.want(ask(verb, "", "canary"), http.StatusUnauthorized, "")
		s.want(ask(verb, platformToken, "canarry"), http.StatusNotFound, "ring canarry")
		s.want(ask(verb, platformToken, ""), http.StatusUnprocessableEntity, "ring")
	}
	s.want(ask("pause", platformToken, "stable"), http.StatusOK, `"pausedBy":"token:ops"`,
		`"pauseReason":"incident 42"`)
	s.want(ask("resume", platformToken, "stable"), http.StatusOK, `"name":"stable"`)
	s.want(ask("return", platformToken, "canary"), http.StatusOK, `"halted":"sha256:new"`)

	m := withRings()
	m.Rings[0].State = mirror.RingDone
	s = newSite(t, m)
	s.want(ask("return", platformToken, "canary"), http.StatusConflict,
		"its engines have passed the gates of 3.5.7", "declare the earlier version")
}

func TestRingsAreReadByThePlatformAlone(t *testing.T) {
	s := newSite(t, withRings())
	list := func(token, query string) answer {
		return s.do(http.MethodGet, wire.Base+"/rings"+query, token, "")
	}
	s.want(list(readerToken, ""), http.StatusOK, `"name":"canary"`, `"goodVersion":"2.14.21"`)
	if a := list(readerToken, "?name=stable"); a.status != http.StatusOK ||
		strings.Contains(a.body, `"name":"canary"`) {
		t.Errorf("%d, with another ring: %s", a.status, a.body)
	}
	if a := list(acmeToken, ""); a.status != http.StatusForbidden ||
		strings.Contains(a.body, "canary") {
		t.Errorf("a tenant reads rings: %d %s", a.status, a.body)
	}

	s.want(s.page("/rings", readerToken), http.StatusOK, `id="ring-canary"`, "&lt;b&gt;3 Degraded",
		"argosy rings resume canary", `href="/engines/eu-1"`, "2.14.21",
		"No managed engine follows this ring")
	s.want(s.page("/", platformToken), http.StatusOK, `href="/rings#ring-canary"`)
	for _, path := range []string{"/rings", "/"} {
		if a := s.page(path, acmeToken); strings.Contains(a.body, "canary") ||
			path == "/rings" && a.status != http.StatusNotFound {
			t.Errorf("%s shows a tenant the rings: %d", path, a.status)
		}
	}
	none := newSite(t, content())
	none.want(none.page("/rings", platformToken), http.StatusOK, "declares no ring", "spec.rings")
}

// A tenant does not learn which engines lack a security release.
func TestBulletinsNameEnginesToThePlatformAlone(t *testing.T) {
	m := content()
	m.Bulletins = []view.Bulletin{{Bulletin: fleet.Bulletin{Name: "CVE-2026-1", Severity: "High",
		FixedIn: []string{"3.5.8"}, URL: "javascript:alert(1)"},
		Lacking: []view.EngineVersion{{Engine: "eu-1", Version: "v3.5.7"}},
		Unknown: []fleet.EngineName{"us-1"}}}
	s := newSite(t, m)
	list := func(token string) answer {
		return s.do(http.MethodGet, wire.Base+"/bulletins", token, "")
	}
	s.want(list(readerToken), http.StatusOK, `"lacking":[{"engine":"eu-1","version":"v3.5.7"}]`)
	if a := list(acmeToken); a.status != http.StatusForbidden || strings.Contains(a.body, "eu-1") {
		t.Errorf("a tenant reads bulletins: %d %s", a.status, a.body)
	}
	a := s.page("/rings", platformToken)
	s.want(a, http.StatusOK, "CVE-2026-1", "v3.5.7", `href="/engines/us-1"`)
	if strings.Contains(a.body, "javascript:") {
		t.Error("the page links to a script")
	}
}
