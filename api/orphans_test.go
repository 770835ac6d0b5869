package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func TestThePageShowsOrphansToThePlatformAlone(t *testing.T) {
	with := content()
	none := newSite(t, with)
	if a := none.page("/", platformToken); strings.Contains(a.body,
		"Engines have orphans") {
		t.Error("a fleet without orphans shows some")
	}
	with.Orphans = []view.Orphan{
		{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "acme-old-prod", Tenant: "acme",
			UID: "uid-one", FoundAt: time.Now()},
		{Engine: "acme.edge", Kind: fleet.ObjectProject, Name: "acme", Tenant: "acme",
			UID: "uid-two", FoundAt: time.Now()},
	}
	with.Engines[0].Orphans = 1
	s := newSite(t, with)
	s.want(s.page("/", platformToken), http.StatusOK, `href="/strays"`, "Engines have orphans")
	s.want(s.page("/strays", platformToken), http.StatusOK, "eu-1/Application/acme-old-prod",
		"acme.edge/AppProject/acme", "uid-one", "argosy remove-orphan")
	s.want(s.page("/engines/eu-1", platformToken), http.StatusOK, "eu-1/Application/acme-old-prod",
		`href="/strays?engine=eu-1"`, "uid-one")
	for path, hidden := range map[string]string{"/strays?engine=eu-1": "uid-two",
		"/strays?engine=acme.edge": "uid-one", "/engines/eu-1": "uid-two"} {
		if a := s.page(path, platformToken); a.status != http.StatusOK || strings.Contains(a.body,
			hidden) {
			t.Errorf("%s: %d, with another engine's orphan", path, a.status)
		}
	}
	if a := s.page("/strays", acmeToken); a.status != http.StatusNotFound ||
		strings.Contains(a.body, "uid-") {
		t.Errorf("a tenant sees orphans: %d", a.status)
	}
	if a := s.page("/", acmeToken); strings.Contains(a.body, "/strays") {
		t.Error("a tenant's overview shows orphans")
	}
}
