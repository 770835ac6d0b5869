package api_test

import (
	"net/http"
	"strings"
	"testing"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/view"
)

func TestPullRequestsAreListedTheNewestFirst(t *testing.T) {
	s := newSite(t, content())
	a := s.get("/pulls?limit=2", platformToken)
	s.want(a, http.StatusOK)
	first := decode[wire.List[view.Pull]](t, a)
	if len(first.Items) != 2 || first.Items[0].Number != 9 || first.Items[1].Number != 8 ||
		first.Next == "" {
		t.Fatalf("%s", a.body)
	}
	second := decode[wire.List[view.Pull]](t, s.get("/pulls?limit=2&after="+first.Next,
		platformToken))
	if len(second.Items) != 1 || second.Items[0].Number != 7 || second.Next != "" {
		t.Errorf("%+v", second)
	}
	if open := decode[wire.List[view.Pull]](t,
		s.get("/pulls?state=merged", platformToken)); len(open.Items) != 0 {
		t.Errorf("%+v", open)
	}
	s.want(s.get("/pulls?state=strange", platformToken), http.StatusUnprocessableEntity)
	s.want(s.get("/pulls/0", platformToken), http.StatusUnprocessableEntity)
}

func TestThePlanOfAPullRequest(t *testing.T) {
	s := newSite(t, content())
	s.want(s.get("/pulls/8/plan", platformToken), http.StatusOK, `"globex"`, "c0ffee")
	s.want(s.get("/pulls/9", platformToken), http.StatusOK, "needs an approval")
	s.want(s.get("/pulls/9/plan", platformToken), http.StatusNotFound, "plan of pull request 9")
	s.want(s.get("/pulls/9/plan", acmeToken), http.StatusNotFound)
	// and nothing of globex: see TestNoListHoldsAnotherTenantsItems
	s.want(s.get("/pulls/8/plan", acmeToken), http.StatusOK, "spec.source.path")
}

func TestThePageOfAPullRequest(t *testing.T) {
	s := newSite(t, content())
	s.want(s.page("/pulls", platformToken), http.StatusOK, "change &lt;things&gt;",
		`href="/pulls/9"`)
	a := s.page("/pulls/8", platformToken)
	s.want(a, http.StatusOK, "web@prod", "spec.source.path", "&lt;b&gt;new", "new Tenant globex",
		`href="https://git.example.com/platform/config/pulls/1"`)
	if strings.Contains(a.body, "<b>new") {
		t.Error("what a stranger wrote acts on the page")
	}
	s.want(s.page("/pulls/9", platformToken), http.StatusOK, "This head has no plan")
	s.want(s.page("/pulls/x", platformToken), http.StatusNotFound)
	s.store.Change(func(m *apitest.Mirror) { m.Pulls[0].URL = "javascript:alert(1)" })
	if a := s.page("/pulls/7", platformToken); strings.Contains(a.body, "javascript:") {
		t.Error("a link leads to a script")
	}
}

func TestThePageOfAPullRequestShowsHowToReleaseItsDeletions(t *testing.T) {
	s := newSite(t, content())
	plan := `{"summary":"1 held","holds":[{"revision":"` + string(rev1) +
		`","reason":"deletions","tenant":"acme","message":"too many","items":[{"engine":"eu-1","kind":"Application","name":"acme-web-prod"}]}],` +
		`"tenants":[{"name":"acme","engines":[{"name":"eu-1","changes":[{"action":"hold","kind":"Application","subject":"web@prod","note":"its deletion waits for argosy release ` + rev1.Short() + `"}]}]}]}`
	for _, c := range []struct {
		state forge.PullState
		head  fleet.Revision
		wants string
	}{
		{forge.PullOpen, rev1, "/argosy approve-deletions " + string(rev1)},
		{forge.PullMerged, rev1, "argosy get holds"},
		// held before, because of the branch
		{forge.PullOpen, "another", "argosy release " + string(rev1)},
	} {
		s.store.Change(func(m *apitest.Mirror) {
			m.Pulls[1].State, m.Pulls[1].Head, m.Pulls[1].Plan = c.state, c.head, []byte(plan)
		})
		a := s.page("/pulls/8", platformToken)
		s.want(a, http.StatusOK, c.wants, "its deletion is held")
		if c.head == rev1 && strings.Contains(a.body, "argosy release "+rev1.Short()) {
			t.Errorf(
				"the head of a pull request holds nothing, and the page asks for an approval:\n%s",
				a.body)
		}
	}
}
