package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestSearchAnswersWithTheHitsOfTheScope(t *testing.T) {
	s := newSite(t, content())
	all := decode[view.SearchResult](t, s.get("/search?q=web", platformToken))
	own := decode[view.SearchResult](t, s.get("/search?q=web", acmeToken))
	if len(all.Hits) != 2*len(own.Hits) || len(own.Hits) != 2 || own.Query != "web" || own.More {
		t.Errorf("of all %+v, of acme %+v", all, own)
	}
	one := decode[view.SearchResult](t, s.get("/search?q=web&limit=1", acmeToken))
	if len(one.Hits) != 1 || !one.More {
		t.Errorf("limited: %+v", one)
	}
	for _, q := range []string{"globex", "eu-1", string(rev1)[:8], "secret"} {
		if a := s.get("/search?q="+q, acmeToken); strings.Contains(a.body, `"kind"`) {
			t.Errorf("acme finds %s: %s", q, a.body)
		}
	}
	s.want(s.get("/search", acmeToken), http.StatusUnprocessableEntity)
	s.want(s.get("/search?q=x&limit=51", acmeToken), http.StatusUnprocessableEntity)
	s.want(s.get("/search?q="+strings.Repeat("x", 201), acmeToken),
		http.StatusUnprocessableEntity)
}

func TestMatrixAnswersWithTheDeploymentsOfTheScope(t *testing.T) {
	m := content()
	for i := range m.Deployments {
		m.Deployments[i].Labels = map[string]string{"team": string(m.Deployments[i].Tenant)}
	}
	s := newSite(t, m)
	if got := decode[view.Matrix](t, s.get("/matrix", platformToken)); len(got.Rows) != 2 {
		t.Errorf("%+v", got)
	}
	got := decode[view.Matrix](t, s.get("/matrix", acmeToken))
	if len(got.Rows) != 1 || got.Rows[0].Tenant != "acme" ||
		!slices.Equal(got.Environments, []fleet.EnvironmentName{"prod"}) {
		t.Errorf("%+v", got)
	}
	for query, want := range map[string]int{"?labels=team%3Dglobex": 1, "?labels=team": 2,
		"?labels=!team": 0, "?limit=1": 1, "?text=lobex": 1, "?tenant=acme": 1} {
		got := decode[view.Matrix](t, s.get("/matrix"+query, platformToken))
		if len(got.Rows) != want || (got.Next != "") != (query == "?limit=1") {
			t.Errorf("%s: %+v", query, got)
		}
	}
	s.want(s.get("/matrix?labels=a%20b", platformToken), http.StatusUnprocessableEntity,
		"label selector")
}

func TestCountsOfAFieldIgnoreTheFilterOfThatField(t *testing.T) {
	m := content()
	m.Applications[0].Health = mirror.HealthDegraded // of acme
	s := newSite(t, m)
	got := decode[view.Facets](t, s.get("/application-counts?health=Degraded", platformToken))
	if got.Total != 1 || !slices.Equal(got.Health, []view.Facet{{Value: "Degraded", Count: 1},
		{Value: "Healthy", Count: 1}}) ||
		!slices.Equal(got.Tenants, []view.Facet{{Value: "acme", Count: 1}}) {
		t.Errorf("%+v", got)
	}
	got = decode[view.Facets](t, s.get("/application-counts?tenant=globex", acmeToken))
	if got.Total != 0 || !slices.Equal(got.Tenants, []view.Facet{{Value: "acme", Count: 1}}) {
		t.Errorf("of globex for acme: %+v", got)
	}
	got = decode[view.Facets](t, s.get("/application-counts?text=globex", platformToken))
	if got.Total != 1 {
		t.Errorf("by text: %+v", got)
	}
}

func TestApplicationsAreFilteredByLabelsTextAndImage(t *testing.T) {
	m := content()
	m.Applications[0].Images = []string{"ghcr.io/acme/web:v1", "envoy:v2"}
	m.Environments[0].Labels = map[string]string{"tier": "prod"}
	s := newSite(t, m)
	for query, want := range map[string]int{"?image=ghcr.io/acme/web": 1, "?image=envoy:v2": 1,
		"?image=envoy:v3": 0, "?text=EB%40PROD": 2, "?labels=tier%3Dprod": 1,
		"?labels=tier%21%3Dprod": 1} {
		got := decode[wire.List[view.Application]](t, s.get("/applications"+query,
			platformToken))
		if len(got.Items) != want {
			t.Errorf("%s: %d, want %d", query, len(got.Items), want)
		}
	}
	s.want(s.get("/applications?image=a%20b", platformToken), http.StatusUnprocessableEntity)
}

func TestChangesListWhatARevisionWrote(t *testing.T) {
	s := newSite(t, content())
	all := decode[wire.List[view.Change]](t, s.get("/changes?revision="+string(rev1),
		platformToken))
	own := decode[wire.List[view.Change]](t, s.get("/changes?revision="+string(rev1), acmeToken))
	if len(all.Items) != 2 || len(own.Items) != 1 || own.Items[0].Tenant != "acme" {
		t.Errorf("all %+v, of acme %+v", all, own)
	}
	s.want(s.get("/changes", platformToken), http.StatusUnprocessableEntity)
}

func TestOperationsAreFilteredByKindAndState(t *testing.T) {
	s := newSite(t, content())
	for query, want := range map[string]int{"?kind=Sync": 2, "?kind=Stop": 0,
		"?state=Running": 2, "?state=Failed": 0} {
		got := decode[wire.List[mirror.Operation]](t, s.get("/operations"+query, platformToken))
		if len(got.Items) != want {
			t.Errorf("%s: %d, want %d", query, len(got.Items), want)
		}
	}
	s.want(s.get("/operations?state=Broken", platformToken), http.StatusUnprocessableEntity)
}
