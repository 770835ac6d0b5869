package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestThePlatformMovesAnEnvironment(t *testing.T) {
	m := content()
	m.Engines = append(m.Engines, view.Engine{Name: "eu-2"})
	s := newSite(t, m)
	move := func(token, environment, to string) answer {
		return s.do(http.MethodPost, wire.Base+"/moves", token,
			`{"tenant":"acme","environment":"`+environment+`","to":"`+to+`","note":"emptier"}`)
	}
	s.want(move(acmeToken, "prod", "eu-1"), http.StatusForbidden, "")
	s.want(move(readerToken, "prod", "eu-1"), http.StatusForbidden, "")
	s.want(move(platformToken, "prdo", "eu-1"), http.StatusNotFound, "acme/prdo")
	s.want(move(platformToken, "prod", "eu-9"), http.StatusNotFound, "eu-9")
	s.want(move(platformToken, "prod", "eu-2"), http.StatusOK, `"operation":"`)
	s.want(s.do(http.MethodGet, wire.Base+"/operations?tenant=acme", platformToken, ""),
		http.StatusOK, `"kind":"Move"`, "acme/prod to engine eu-2", "token:ops")
	s.want(move(platformToken, "prod", "eu-2"), http.StatusConflict,
		"argosy describe move acme/prod")
}

func TestAMoveUnderWayIsShown(t *testing.T) {
	m := content()
	m.Moves = []view.Move{{Tenant: "acme", Environment: "prod", From: "eu-1", To: "eu-2",
		Operation: "move-7", State: mirror.OperationRunning, RequestedBy: "token:ops", Done: 1,
		Total: 2, StartedAt: time.Now(), Applications: []view.MovedApplication{{Deployment: "web",
			Step: mirror.MoveCompare, Message: "engine eu-2 would change Service <web>",
			Since: time.Now(), Took: []mirror.EndedStep{{Step: mirror.MoveCheck, Seconds: 1.5,
				Calls: 3}}}}},
		{Tenant: "globex", Environment: "prod", Operation: "move-8", StartedAt: time.Now(),
			Applications: []view.MovedApplication{}}}
	s := newSite(t, m)
	const one = "/tenants/acme/environments/prod"
	for _, token := range []string{platformToken, acmeToken} {
		s.want(s.page(one, token), http.StatusOK, "1 of 2 Applications", "Compare",
			"would change Service &lt;web&gt;")
		s.want(s.get("/moves", token), http.StatusOK, `"calls":3`)
		s.want(s.get(one+"/move", token), http.StatusOK, `"to":"eu-2"`)
	}
	const others = "/tenants/globex/environments/prod/move"
	s.want(s.get(others, platformToken), http.StatusOK, "move-8")
	s.want(s.get(others, acmeToken), http.StatusNotFound, "move of environment globex/prod")
	if got := s.get("/moves", acmeToken).body; strings.Contains(got, "move-8") {
		t.Errorf("a tenant reads another one's move: %s", got)
	}
	now := time.Now()
	m.Moves[0].EndedAt = &now
	if got := newSite(t, m).page(one, platformToken).body; strings.Contains(got, "Move</h2>") {
		t.Errorf("a move that has ended: %s", got)
	}
}

func TestAMoveOfASplitEnvironmentNamesASlice(t *testing.T) {
	m := content()
	m.Engines = append(m.Engines, view.Engine{Name: "eu-2"})
	i := slices.IndexFunc(m.Environments, func(e view.Environment) bool {
		return e.Tenant == "acme" && e.Name == "prod"
	})
	for slice, engine := range map[fleet.Slice]fleet.EngineName{"0": "eu-1", "1": "eu-2"} {
		m.Environments[i].Slices = append(m.Environments[i].Slices, fleet.Placement{Slice: slice,
			Engine: engine, Reason: "chosen for slice " + string(slice)})
	}
	s := newSite(t, m)
	ask := func(path, rest string) answer {
		return s.do(http.MethodPost, wire.Base+path, platformToken,
			`{"tenant":"acme","environment":"prod","to":"eu-2"`+rest+`}`)
	}
	s.want(ask("/moves", ""), http.StatusConflict, "split into slices",
		"argosy join environment acme/prod")
	s.want(ask("/moves", `,"slice":"00"`), http.StatusNotFound, "it has no slice 00")
	s.want(ask("/moves", `,"slice":"2"`), http.StatusUnprocessableEntity, "slice")
	s.want(ask("/joins", ""), http.StatusOK, `"operations":["move-`)
	s.want(s.do(http.MethodGet, wire.Base+"/operations?tenant=acme", platformToken, ""),
		http.StatusOK, "acme/prod slice 0 to engine eu-2")
	s.want(ask("/moves", `,"slice":"0","split":true`), http.StatusConflict, "acme/prod slice 0",
		"argosy describe move acme/prod")
	s.want(s.page("/tenants/acme/environments/prod", platformToken), http.StatusOK,
		"is split: each slice", "chosen for slice 1")
	whole := newSite(t, content())
	whole.want(whole.do(http.MethodPost, wire.Base+"/moves", platformToken,
		`{"tenant":"acme","environment":"prod","to":"eu-1","slice":"1"}`), http.StatusConflict,
		"it is not split")
	whole.want(whole.do(http.MethodPost, wire.Base+"/joins", platformToken,
		`{"tenant":"acme","environment":"prod","to":"eu-1"}`), http.StatusConflict,
		"argosy move environment acme/prod --to eu-1")
}
