package api_test

import (
	"net/http"
	"testing"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
)

func TestThePlatformEvacuatesAnEngineThatIsGone(t *testing.T) {
	m := content()
	m.Engines[0].Reachable = false
	s := newSite(t, m)
	ask := func(token, body string) answer {
		return s.do(http.MethodPost, wire.Base+"/evacuations", token, body)
	}
	gone := `{"engine":"eu-1","confirmGone":"eu-1","reason":"<b>fire"}`
	s.want(ask(acmeToken, gone), http.StatusForbidden, "")
	s.want(ask(readerToken, gone), http.StatusForbidden, "")
	s.want(ask(platformToken, `{"engine":"eu-9","confirmGone":"eu-9"}`), http.StatusNotFound,
		"eu-9")
	for _, body := range []string{`{"engine":"eu-1"}`, `{"engine":"eu-1","confirmGone":"eu-2"}`} {
		s.want(ask(platformToken, body), http.StatusUnprocessableEntity, "--confirm-gone eu-1")
	}
	s.want(ask(platformToken, `{"engine":"eu-1","end":true}`), http.StatusConflict,
		"it is not evacuated")
	s.want(ask(platformToken, gone), http.StatusOK, `"state":"Moving"`, `"by":"token:ops"`)
	s.want(ask(platformToken, gone), http.StatusConflict, "evacuated already")
	s.want(s.page("/engines/eu-1", platformToken), http.StatusOK, "Evacuated (Moving) by token:ops",
		"&lt;b&gt;fire")
	s.want(ask(platformToken, `{"engine":"eu-1","end":true}`), http.StatusOK, "eu-1")

	m = content()
	m.Engines[0].Reachable = true
	s = newSite(t, m)
	s.want(ask(platformToken, gone), http.StatusConflict, "its API server answers")
	m = content()
	m.Engines[0].Reachable, m.Engines[0].BehindAgent = false, true
	s = newSite(t, m)
	s.want(ask(platformToken, gone), http.StatusUnprocessableEntity, "behind an agent")
	m = content()
	m.Engines[0].Evacuation = &mirror.Evacuation{State: mirror.EvacuationMoved, Away: 2,
		Since: time.Now(), At: time.Now()}
	s = newSite(t, m)
	s.want(ask(platformToken, `{"engine":"eu-1","end":true}`), http.StatusConflict,
		"the engine may still have them")
}

func TestAFenceIsRequestedOfAnEngineThatAnswers(t *testing.T) {
	m := content()
	m.Engines[0].Reachable = true
	s := newSite(t, m)
	ask := func(token, body string) answer {
		return s.do(http.MethodPost, wire.Base+"/evacuations", token, body)
	}
	fence := `{"engine":"eu-1","fence":true,"reason":"<b>stuck"}`
	s.want(ask(acmeToken, fence), http.StatusForbidden, "")
	s.want(ask(readerToken, fence), http.StatusForbidden, "")
	for body, want := range map[string]string{
		`{"engine":"eu-1","fence":true,"confirmGone":"eu-1"}`:        "use one of",
		`{"engine":"eu-1","fence":true,"end":true}`:                  "use one of",
		`{"engine":"eu-1","confirmGone":"eu-1","dryRun":true}`:       "only a fence has a dry run",
		`{"engine":"eu-1","confirmGone":"eu-1","reason":"it burns"}`: "eu-1 --fence",
	} {
		if got := ask(platformToken, body); got.status < 400 {
			t.Errorf("%s: %d", body, got.status)
		} else {
			s.want(got, got.status, want)
		}
	}
	s.want(ask(platformToken, fence), http.StatusOK, `"state":"Scaling"`, `"by":"token:ops"`)
	s.want(ask(platformToken, fence), http.StatusConflict, "it has a fence already")
	s.want(s.page("/engines/eu-1", platformToken), http.StatusOK, "Fence by token:ops",
		"&lt;b&gt;stuck", "Scaling for")
	s.want(ask(platformToken, `{"engine":"eu-1","end":true}`), http.StatusOK, "eu-1")

	m = content()
	m.Engines[0].Reachable = false
	s = newSite(t, m)
	s.want(ask(platformToken, fence), http.StatusConflict, "--confirm-gone eu-1")
	m = content()
	m.Engines[0].Reachable, m.Engines[0].BehindAgent = true, true
	s = newSite(t, m)
	s.want(ask(platformToken, fence), http.StatusUnprocessableEntity, "rollout restart")
}
