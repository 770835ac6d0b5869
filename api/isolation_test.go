package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// all objects of globex with a path of their own.
var globexPaths = []string{
	"/tenants/globex", "/tenants/globex/environments/prod",
	"/tenants/globex/environments/prod/placement",
	"/tenants/globex/deployments/web", "/tenants/globex/applications/web/prod",
	"/operations/op-globex", "/pulls/9", "/agents/globex.edge", "/tenants/globex/sets/services",
	"/traces/9999999",
}

// The answers for another tenant's object and for a missing one are equal byte for byte.
func TestAnotherTenantsObjectIsAnsweredLikeAMissingOne(t *testing.T) {
	there := newSite(t, content())
	m := content()
	removeGlobex(&m)
	gone := newSite(t, m)
	for _, path := range globexPaths {
		t.Run(path, func(t *testing.T) {
			there, gone := there.in(t), gone.in(t)
			there.want(there.get(path, platformToken), http.StatusOK)
			with, without := there.get(path, acmeToken), gone.get(path, acmeToken)
			there.want(with, http.StatusNotFound)
			if with.whole() != without.whole() {
				t.Errorf("they differ:\n%s\n---\n%s", with.whole(), without.whole())
			}
		})
	}
	for _, decision := range []struct{ path, body string }{
		{"/stop", `{"scope":"tenant","name":"globex"}`},
		{"/resume", `{"scope":"tenant","name":"globex"}`},
		{"/agent-tokens", `{"tenant":"globex","environment":"edge"}`},
		{"/tenants/globex/environments/edge/own-applications/argocd/shop/sync", `{}`},
		{"/tenants/globex/applications/web/prod/sync", `{"request":"request-1"}`},
		{"/tenants/globex/applications/web/prod/refresh", `{"request":"request-2"}`},
	} {
		with := there.do(http.MethodPost, wire.Base+decision.path, acmeToken, decision.body)
		without := gone.do(http.MethodPost, wire.Base+decision.path, acmeToken, decision.body)
		if with.status != http.StatusNotFound || with.whole() != without.whole() {
			t.Errorf("%s: %s\n---\n%s", decision.path, with.whole(), without.whole())
		}
	}
}

// A tenant's writer can revoke its own agents, and no other.
func TestOnlyTheOwningTenantRevokesAnAgent(t *testing.T) {
	s := newSite(t, content())
	for path, status := range map[string]int{"/agents/globex.edge": http.StatusNotFound,
		"/agent-tokens/join-globex": http.StatusNotFound,
		"/agents/acme.edge":         http.StatusNoContent,
		"/agent-tokens/join-acme":   http.StatusNoContent} {
		s.want(s.do(http.MethodDelete, wire.Base+path, readerToken, ""), http.StatusForbidden)
		s.want(s.do(http.MethodDelete, wire.Base+path, acmeToken, ""), status)
	}
	if left := s.get("/agents/globex.edge", platformToken); strings.Contains(left.body,
		"revokedAt") {
		t.Errorf("it is revoked: %s", left.body)
	}
}

func removeGlobex(m *apitest.Mirror) {
	m.Tenants = slices.DeleteFunc(m.Tenants, func(v view.Tenant) bool {
		return v.Name == "globex"
	})
	m.Environments = slices.DeleteFunc(m.Environments, func(v view.Environment) bool {
		return v.Tenant == "globex"
	})
	m.Deployments = slices.DeleteFunc(m.Deployments, func(v view.Deployment) bool {
		return v.Tenant == "globex"
	})
	m.Sets = slices.DeleteFunc(m.Sets, func(v view.Set) bool { return v.Tenant == "globex" })
	m.Applications = slices.DeleteFunc(m.Applications, func(v view.Application) bool {
		return v.Tenant == "globex"
	})
	m.Operations = slices.DeleteFunc(m.Operations, func(v mirror.Operation) bool {
		return v.Tenant == "globex"
	})
	m.Problems = slices.DeleteFunc(m.Problems, func(v fleet.Problem) bool {
		return v.Key.Tenant == "globex"
	})
	m.Traces = slices.DeleteFunc(m.Traces, func(v view.Trace) bool {
		return v.Applications[0].Tenant == "globex"
	})
	m.Holds = slices.DeleteFunc(m.Holds, func(v mirror.Hold) bool { return v.Tenant == "globex" })
	m.Agents = slices.DeleteFunc(m.Agents, func(v view.Agent) bool {
		return v.Tenant == "globex"
	})
	m.AgentTokens = slices.DeleteFunc(m.AgentTokens, func(v registry.Token) bool {
		return v.Tenant == "globex"
	})
	m.Own = slices.DeleteFunc(m.Own, func(v view.Own) bool { return v.Tenant == "globex" })
	m.Pulls = slices.DeleteFunc(m.Pulls, func(v apitest.Pull) bool { return v.Number == 9 })
}

// A tenant's token sees no byte that another tenant chose, in any list, with any filter.
func TestNoListHoldsAnotherTenantsItems(t *testing.T) {
	s := newSite(t, content())
	for _, list := range []string{"tenants", "environments", "deployments", "sets", "applications",
		"operations", "problems", "holds", "pulls", "pulls/8", "pulls/8/plan", "agents",
		"agent-tokens", "own-applications", "stops", "source", "whoami", "audit",
		"audit/export"} {
		t.Run(list, func(t *testing.T) {
			s := s.in(t)
			a := s.get("/"+list, acmeToken)
			s.want(a, http.StatusOK)
			if strings.Contains(a.body, "globex") {
				t.Errorf("globex is in it: %s", a.body)
			}
			if list != "source" && list != "stops" && !strings.Contains(a.body, "acme") {
				t.Errorf("its own is not in it: %s", a.body)
			}
		})
	}
	for _, list := range []string{"environments", "deployments", "sets", "applications",
		"operations", "problems", "holds", "agents", "agent-tokens", "own-applications", "audit"} {
		a := s.get("/"+list+"?tenant=globex", acmeToken)
		s.want(a, http.StatusOK)
		if got := decode[wire.List[any]](t, a); len(got.Items) != 0 || got.Next != "" {
			t.Errorf("%s of globex: %s", list, a.body)
		}
	}
}

func TestPlatformObjectsAreRefusedToTenants(t *testing.T) {
	s := newSite(t, content())
	for _, path := range []string{"/engines", "/engines/eu-1", "/revisions",
		"/revisions/" + string(rev1), "/tokens", "/audit/state"} {
		s.want(s.get(path, platformToken), http.StatusOK)
		a := s.get(path, acmeToken)
		s.want(a, http.StatusForbidden, `"next"`)
		if strings.Contains(a.body, "secret plan") {
			t.Errorf("%s contains it", path)
		}
	}
	a := s.do(http.MethodPost, wire.Base+"/tokens", acmeToken, `{"name":"x","role":"read"}`)
	s.want(a, http.StatusForbidden)
	s.want(s.do(http.MethodDelete, wire.Base+"/tokens/ops", acmeToken, ""), http.StatusForbidden)
}

func TestAPlacementRevealsNoOtherEngineToATenant(t *testing.T) {
	m := content()
	for i, e := range m.Environments {
		half := e.Placement
		half.Slice = "0"
		m.Environments[i].Slices = []fleet.Placement{half}
	}
	s := newSite(t, m)
	s.want(s.get("/tenants/acme/environments/prod/placement", platformToken), http.StatusOK, "eu-9")
	for _, path := range []string{"/tenants/acme/environments/prod/placement",
		"/tenants/acme/environments/prod", "/environments"} {
		a := s.get(path, acmeToken)
		s.want(a, http.StatusOK, "least loaded")
		if strings.Contains(a.body, "eu-9") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	page := s.page("/tenants/acme/environments/prod", acmeToken)
	s.want(page, http.StatusOK, "least loaded")
	if strings.Contains(page.body, "eu-9") {
		t.Error("the page contains it")
	}
}

// The same for the page: its answers for another tenant's object and for a missing one are equal.
func TestThePageOfAnotherTenantIsLikeAMissingOne(t *testing.T) {
	there := newSite(t, content())
	m := content()
	removeGlobex(&m)
	gone := newSite(t, m)
	for _, path := range []string{"/tenants/globex", "/tenants/globex/environments/prod",
		"/tenants/globex/applications/web/prod", "/engines/eu-1", "/pulls/9"} {
		there.want(there.page(path, platformToken), http.StatusOK)
		with, without := there.page(path, acmeToken), gone.page(path, acmeToken)
		there.want(with, http.StatusNotFound)
		if timeless(with.whole()) != timeless(without.whole()) {
			t.Errorf("%s differs:\n%s\n---\n%s", path, with.whole(), without.whole())
		}
	}
	for _, path := range []string{"/", "/applications", "/applications?tenant=globex", "/agents",
		"/pulls", "/pulls/8"} {
		a := there.page(path, acmeToken)
		there.want(a, http.StatusOK)
		if strings.Contains(strings.ReplaceAll(a.body, `value="globex"`, ""), "globex") {
			t.Errorf("%s shows globex: %s", path, a.body)
		}
	}
}
