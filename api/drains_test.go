package api_test

import (
	"net/http"
	"testing"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestThePlatformPausesAndResumesADrain(t *testing.T) {
	m := content()
	m.Engines[0].State = fleet.EngineDraining
	m.Engines[0].Drain = &mirror.Drain{State: mirror.DrainStopped, Since: time.Now(),
		Message: "acme/prod waits in Check: <b>"}
	s := newSite(t, m)
	decide := func(token, verb, engine string) answer {
		return s.do(http.MethodPost, wire.Base+"/drains/"+verb, token,
			`{"engine":"`+engine+`","reason":"lunch"}`)
	}
	s.want(s.page("/engines/eu-1", platformToken), http.StatusOK, "Stopped",
		"waits in Check: &lt;b&gt;")
	s.want(decide(acmeToken, "pause", "eu-1"), http.StatusForbidden, "")
	s.want(decide(readerToken, "resume", "eu-1"), http.StatusForbidden, "")
	s.want(decide(platformToken, "pause", "eu-9"), http.StatusNotFound, "eu-9")
	s.want(decide(platformToken, "pause", "eu-1"), http.StatusOK, `"state":"Paused"`,
		"by token:ops: lunch")
	s.want(decide(platformToken, "resume", "eu-1"), http.StatusOK, `"state":"Moving"`)
	active := newSite(t, content())
	active.want(active.do(http.MethodPost, wire.Base+"/drains/pause", platformToken,
		`{"engine":"eu-1"}`), http.StatusConflict, "state: Draining")
}
