package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestAListIsReadPageByPageWholeAndInOrder(t *testing.T) {
	m := content()
	m.Applications = nil
	for i := range 25 {
		m.Applications = append(m.Applications, view.Application{
			Tenant: "acme", Environment: "prod",
			Deployment: fleet.DeploymentName(fmt.Sprintf("web-%02d", i)),
			Health:     mirror.HealthHealthy, Sync: mirror.SyncSynced})
	}
	s := newSite(t, m)
	var names []string
	pages := 0
	for next := ""; ; pages++ {
		a := s.get("/applications?limit=7&health=Healthy&after="+url.QueryEscape(next),
			platformToken)
		s.want(a, http.StatusOK)
		page := decode[wire.List[view.Application]](t, a)
		for _, item := range page.Items {
			names = append(names, string(item.Deployment))
		}
		if next = page.Next; next == "" {
			break
		}
	}
	if pages != 3 || len(names) != 25 || names[0] != "web-00" || names[24] != "web-24" {
		t.Errorf("%d pages more, %v", pages, names)
	}
}

func TestUnknownParametersOfAListAreRejected(t *testing.T) {
	s := newSite(t, content())
	for query, detail := range map[string]string{
		"limit=0": "query.limit", "limit=1001": "query.limit", "limit=many": "query.limit",
		"sync=synced": "query.sync", "tenant=A'--": "query.tenant",
		"tenant=%00": "query.tenant", "colour=red": "query.colour",
		"revision=HEAD": "query.revision", "after=%0a": "query.after",
		"after=" + strings.Repeat("x", 9000): "query.after",
	} {
		s.want(s.get("/applications?"+query, platformToken), http.StatusUnprocessableEntity, detail,
			"/openapi.json")
	}
	s.want(s.get("/applications?after=bm9uc2Vuc2U", platformToken), http.StatusBadRequest, "cursor")
	s.want(s.get("/tenants?engine=eu-1", platformToken), http.StatusUnprocessableEntity,
		"query.engine")
	s.want(s.get("/nothing", platformToken), http.StatusNotFound, "no such route")
	s.want(s.do(http.MethodPut, wire.Base+"/tenants", platformToken, "{}"), http.StatusNotFound,
		"no such route")
}

func TestAnEmptyListIsAListAndNotNull(t *testing.T) {
	s := newSite(t, apitest.Mirror{Tokens: content().Tokens})
	for _, list := range []string{"tenants", "environments", "deployments", "sets", "applications",
		"engines", "operations", "revisions", "problems", "holds", "stops"} {
		s.want(s.get("/"+list, platformToken), http.StatusOK, `"items":[]`)
	}
}

func TestAnAnswerIsSafeInABrowser(t *testing.T) {
	s := newSite(t, content())
	a := s.get("/tenants", platformToken)
	for header, want := range map[string]string{"X-Content-Type-Options": "nosniff",
		"Cache-Control": "no-store", "X-Frame-Options": "DENY",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
		"Referrer-Policy":         "no-referrer"} {
		if got := a.header.Get(header); got != want {
			t.Errorf("%s: %q", header, got)
		}
	}
}

func TestABodyIsCapped(t *testing.T) {
	s := newSite(t, content())
	a := s.do(http.MethodPost, wire.Base+"/stop", platformToken, `{"scope":"fleet","reason":"`+
		strings.Repeat("x", 70<<10)+`"}`)
	s.want(a, http.StatusRequestEntityTooLarge)
	a = s.post("/signin", url.Values{"token": {strings.Repeat("x", 70<<10)}}, nil)
	if a.status < 400 || a.header.Get("Set-Cookie") != "" {
		t.Errorf("%d", a.status)
	}
}

// broken is a reader that fails with a secret in its error.
type broken struct{ *apitest.Store }

func (broken) Source(context.Context) (view.Source, error) { panic("the password is hunter2") }

func TestAPanicEndsOneRequestAndRevealsNothing(t *testing.T) {
	store := apitest.New(content())
	s := api.New(configOf(broken{store}))
	for range 2 {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, wire.Base+"/source", nil)
		r.Header.Set("Authorization", "Bearer "+platformToken)
		s.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(),
			"hunter2") || !strings.Contains(w.Body.String(), "urn:argosy:internal") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// FuzzQuery: no query causes an internal error, and no answer contains another tenant's item.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "limit=1", "after=YzE", "tenant=globex",
		"tenant=acme&tenant=globex", "after=%ff%fe", "sync=%00", "limit=1e3", "a[b]=c", "%zz",
		"engine=eu-1;tenant=globex"} {
		f.Add("applications", seed)
		f.Add("environments", seed)
		f.Add("operations", seed)
	}
	store := apitest.New(content())
	s := api.New(configOf(store))
	f.Fuzz(func(t *testing.T, list, query string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, wire.Base+"/x", nil)
		r.URL.Path, r.URL.RawQuery = wire.Base+"/"+list, query
		r.Header.Set("Authorization", "Bearer "+acmeToken)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%s?%s: %d %s", list, query, w.Code, w.Body)
		}
		if w.Code == http.StatusOK && strings.Contains(w.Body.String(), "globex") {
			t.Fatalf("%s?%s: %s", list, query, w.Body)
		}
	})
}
