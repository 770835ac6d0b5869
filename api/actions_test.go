package api_test

import (
	"net/http"
	"strings"
	"testing"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const actedOn = "/tenants/acme/applications/web/prod"

// actionSite has one Application of acme with a Deployment of two Pods.
func actionSite(t *testing.T, with func(*apitest.Mirror)) *site {
	m := content()
	m.Applications = []view.Application{
		{Tenant: "acme", Deployment: "web", Environment: "prod", Name: "acme-web-prod",
			Engine: "eu-1", TargetRevision: "v2", SyncedRevision: "4f1c",
			OperationPhase: "Running"},
		{Tenant: "globex", Deployment: "web", Environment: "prod", Name: "globex-web-prod",
			Engine: "eu-1"}}
	m.Stops = nil
	if with != nil {
		with(&m)
	}
	ref := func(kind, name string) mirror.ResourceRef {
		return mirror.ResourceRef{Group: "apps", Kind: kind, Namespace: "web", Name: name, UID: "u"}
	}
	pod := mirror.ResourceRef{Kind: "Pod", Namespace: "web", Name: "web-1", UID: "p"}
	of := apitest.Resources{
		Tree: mirror.Tree{Nodes: []mirror.TreeNode{
			{ResourceRef: ref("Deployment", "web"), Parent: -1, Managed: true},
			{ResourceRef: ref("ReplicaSet", "web-1"), Parent: 0, Depth: 1},
			{ResourceRef: pod, Parent: 1, Depth: 2}, {ResourceRef: pod, Parent: 1, Depth: 2},
			{ResourceRef: ref("StatefulSet", "of-an-operator"), Parent: -1}}},
		Diff: mirror.ApplicationDiff{Resources: []mirror.ResourceDiff{
			{ResourceRef: ref("Deployment", "web"), Change: mirror.ResourceUpdated},
			{ResourceRef: mirror.ResourceRef{Kind: "Service", Name: "old"},
				Change: mirror.ResourcePruned}}},
	}
	return newSiteOver(t, apitest.New(m), func(c *api.Config) {
		c.Inspector = apitest.NewInspector(map[fleet.ApplicationID]apitest.Resources{
			{Tenant: "acme", Deployment: "web", Environment: "prod"}: of})
	})
}

func TestAnActionIsRequestedOnceByWriters(t *testing.T) {
	s := actionSite(t, nil)
	ask := func(token, path, body string) answer {
		return s.do(http.MethodPost, wire.Base+path, token, body)
	}
	const body = `{"request":"request-1","note":"at night"}`
	for _, kind := range mirror.ActionKinds {
		path := actedOn + "/" + string(kind)
		s.want(ask(readerToken, path, body), http.StatusForbidden, "may only read")
		s.want(ask(acmeToken, strings.Replace(path, "acme", "globex", 1), body),
			http.StatusNotFound, "no such object")
		s.want(ask(acmeToken, path, `{"request":"short"}`), http.StatusUnprocessableEntity, "")
	}
	first := ask(acmeToken, actedOn+"/sync", `{"request":"request-2","dryRun":true,"revision":"v3"}`)
	s.want(first, http.StatusAccepted, `"state":"Pending"`)
	again := ask(acmeToken, actedOn+"/sync", `{"request":"request-2","dryRun":true,"revision":"v3"}`)
	if first.body != again.body {
		t.Errorf("asked again: %s, then %s", first.body, again.body)
	}
	s.want(ask(acmeToken, actedOn+"/refresh", `{"request":"request-2"}`), http.StatusConflict,
		"this request was a sync")
	s.want(ask(acmeToken, actedOn+"/refresh", `{"request":"request-3","prune":true}`),
		http.StatusUnprocessableEntity, "belong to a sync")
	s.want(s.get(actedOn+"/actions", acmeToken), http.StatusOK, `"revision":"v3"`)
	if got := s.get("/operations", acmeToken).body; strings.Count(got, `"id":"action-`) != 1 {
		t.Errorf("operations: %s", got)
	}
}

func TestNoActionIsRequestedDuringAStop(t *testing.T) {
	s := actionSite(t, func(m *apitest.Mirror) {
		m.Stops = []mirror.Stop{{Scope: mirror.StopEngine, Name: "eu-1", By: "token:ops"}}
	})
	s.want(s.do(http.MethodPost, wire.Base+actedOn+"/refresh", acmeToken,
		`{"request":"request-1"}`), http.StatusConflict, "an emergency stop is in force")
	s.want(s.get(actedOn+"/preview/refresh", acmeToken), http.StatusOK,
		"an emergency stop is in force")
}

func TestOnlyARunningOperationIsTerminated(t *testing.T) {
	s := actionSite(t, func(m *apitest.Mirror) { m.Applications[0].OperationPhase = "Failed" })
	s.want(s.do(http.MethodPost, wire.Base+actedOn+"/terminate", acmeToken,
		`{"request":"request-1"}`), http.StatusConflict, "no operation of it is running")
}

func TestAPreviewShowsWhatAnActionWouldDo(t *testing.T) {
	s := actionSite(t, nil)
	see := func(kind, query string) wire.ActionPreview {
		t.Helper()
		a := s.get(actedOn+"/preview/"+kind+query, acmeToken)
		s.want(a, http.StatusOK, `"action":"`+kind+`"`)
		return decode[wire.ActionPreview](t, a)
	}
	sync := see("sync", "")
	if len(sync.Resources) != 1 || sync.Resources[0].Change != "Update" || sync.Kept != 1 ||
		sync.Synced != "4f1c" || sync.Target != "v2" || sync.Refused != "" {
		t.Errorf("sync: %+v", sync)
	}
	if with := see("sync", "?prune=true&revision=v9"); len(with.Resources) != 2 || with.Kept != 0 ||
		!strings.Contains(with.Note, "not with v9") {
		t.Errorf("with prune: %+v", with)
	}
	restart := see("restart", "")
	if len(restart.Resources) != 1 || restart.Resources[0].UID != "u" ||
		restart.Resources[0].Change != "Restart 2 Pods" || restart.Refused != "" {
		t.Errorf("restart: %+v", restart)
	}
	s.want(s.get(actedOn+"/preview/terminate", readerToken), http.StatusOK, "may only read")
	s.want(s.get(strings.Replace(actedOn, "acme", "globex", 1)+"/preview/sync", acmeToken),
		http.StatusNotFound, "")
}

func TestARollbackLeadsToARevisionThatWasHealthy(t *testing.T) {
	app := fleet.ApplicationID{Tenant: "acme", Deployment: "web", Environment: "prod"}
	s := actionSite(t, func(m *apitest.Mirror) {
		m.Healthy = []apitest.HealthyRevisions{{Application: app,
			Revisions: []mirror.HealthyRevision{{Revision: "4f1c", Runs: true},
				{Revision: "3e0b"}}}}
	})
	see := func(query string) wire.ActionPreview {
		t.Helper()
		a := s.get(actedOn+"/preview/rollback"+query, acmeToken)
		s.want(a, http.StatusOK, `"action":"rollback"`)
		return decode[wire.ActionPreview](t, a)
	}
	if p := see(""); len(p.Healthy) != 2 || !strings.Contains(p.Refused, "one of the listed") {
		t.Errorf("without a revision: %+v", p)
	}
	if p := see("?revision=3e0b"); p.Refused != "" ||
		!strings.Contains(p.Does, "another revision than v2") {
		t.Errorf("to a healthy revision: %+v", p)
	}
	if p := see("?revision=dead"); p.Refused != mirror.ErrNeverHealthy.Error() {
		t.Errorf("to another one: %+v", p)
	}
	if p := see("?end=true"); p.Refused != mirror.ErrNotRolledBack.Error() {
		t.Errorf("nothing to end: %+v", p)
	}
	ask := func(body string) answer {
		return s.do(http.MethodPost, wire.Base+actedOn+"/rollback", acmeToken, body)
	}
	s.want(ask(`{"request":"request-1","revision":"3e0b"}`), http.StatusAccepted, "Pending")
	s.want(ask(`{"request":"request-2","revision":"dead"}`), http.StatusConflict,
		"argosy rollback acme/web@prod --list")
	s.want(ask(`{"request":"request-3","end":true}`), http.StatusConflict, "no rollback of it")
	for _, body := range []string{`{"request":"request-4"}`,
		`{"request":"request-5","revision":"3e0b","end":true}`} {
		s.want(ask(body), http.StatusUnprocessableEntity, "names a revision, or ends")
	}
	s.want(s.do(http.MethodPost, wire.Base+actedOn+"/sync", acmeToken,
		`{"request":"request-6","end":true}`), http.StatusUnprocessableEntity,
		"end belongs to a rollback")
}
