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

func TestATenantApprovesExactlyItsOwnDifferences(t *testing.T) {
	one, two := strings.Repeat("a", 64), strings.Repeat("b", 64)
	difference := func(tenant, application, hash string) mirror.Difference {
		return mirror.Difference{Ring: "canary", Engine: "eu-1", Tenant: fleet.TenantName(tenant),
			Application: application, Deployment: "web", Environment: "prod", Version: "3.5.7",
			Hash: hash, FoundAt: time.Now(), Resources: []mirror.ResourceDifference{{
				Kind: "ConfigMap", Name: "c", Change: mirror.ResourceChanged,
				Fields: []mirror.FieldDifference{{Path: "data.x", Before: "<b>", After: "new"}}}}}
	}
	m := content()
	m.Differences = []mirror.Difference{difference("acme", "acme-a", one),
		difference("acme", "acme-b", two), difference("globex", "globex-secret", one)}
	const alice = "argosy_alice_0a1b2c3d"
	m.Tokens = append(m.Tokens, apitest.Token{Plaintext: alice, Token: view.Token{ID: "alice",
		Name: "person", Tenant: "acme", Role: view.RoleWrite, Owner: "group:acme"}})
	s := newSite(t, m)
	approve := func(token, tenant string, of ...string) answer {
		var all []string
		for i := 0; i < len(of); i += 2 {
			all = append(all, `{"tenant":"`+tenant+`","application":"`+of[i]+
				`","id":"`+of[i+1]+`"}`)
		}
		return s.do(http.MethodPost, wire.Base+"/differences/approve", token,
			`{"ring":"canary","reason":"expected","differences":[`+strings.Join(all, ",")+`]}`)
	}
	if got := s.get("/differences", acmeToken).body; strings.Contains(got, "globex") {
		t.Errorf("a tenant sees another's difference: %s", got)
	}
	got := s.page("/rings/canary/differences", acmeToken).body
	if strings.Contains(got, "globex") || strings.Contains(got, "<b>") ||
		!strings.Contains(got, "data.x") {
		t.Errorf("page: %s", got)
	}
	s.want(s.page("/rings/canary/differences", platformToken), http.StatusOK, "globex-secret")
	s.want(s.page("/rings/other/differences", platformToken), http.StatusOK, "No difference")
	s.want(s.get("/differences?name=canary&tenant=globex", platformToken), http.StatusOK,
		"globex-secret")
	s.want(approve(readerToken, "acme", "acme-a", one), http.StatusForbidden, "")
	s.want(approve(acmeToken, "acme", "acme-a", one), http.StatusForbidden, "of no owner")
	s.want(approve(alice, "globex", "globex-secret", one), http.StatusConflict, "none is approved")
	s.want(approve(alice, "acme", "acme-a", one, "acme-b", one), http.StatusConflict,
		"argosy rings differences canary")
	if got := s.get("/differences", acmeToken).body; strings.Contains(got, "approvedBy") {
		t.Errorf("some of the differences are approved: %s", got)
	}
	s.want(approve(alice, "acme", "acme-a", one, "acme-b", two), http.StatusOK, `"approved":2`)
	s.want(s.get("/differences", acmeToken), http.StatusOK, `"reason":"expected"`)
	s.want(approve(platformToken, "globex", "globex-secret", one), http.StatusOK, `"approved":1`)
}
