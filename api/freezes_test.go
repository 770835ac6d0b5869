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

const (
	aliceToken  = "argosy_alice_0a1b2c3d"
	bobToken    = "argosy_bob_0a1b2c3d"
	globexOwner = "argosy_grace_0a1b2c3d"
)

// frozen is content with a revision of which freezes of acme, of globex and of the Fleet hold
// Applications, and a guard deletions of acme.
func frozen() apitest.Mirror {
	m := content()
	m.Holds = append(m.Holds[:0:0], mirror.Hold{Revision: rev1, Reason: mirror.HoldDeletions,
		Tenant: "acme", Message: "too many", Since: time.Now()})
	for _, t := range []fleet.TenantName{"acme", "globex", ""} {
		m.Holds = append(m.Holds, mirror.Hold{Revision: rev1, Reason: mirror.HoldFrozen, Tenant: t,
			Message: "freeze of <" + string(t) + ">", Since: time.Now(), Items: []fleet.ObjectKey{
				{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "frozen-by-" + string(t)}}})
	}
	for plaintext, of := range map[string]view.Token{
		aliceToken:  {Tenant: "acme", Owner: "group:acme"},
		bobToken:    {Tenant: "acme", Owner: "github:bob"},
		globexOwner: {Tenant: "globex", Owner: "group:globex"},
	} {
		of.ID, of.Name, of.Role = plaintext, "person", view.RoleWrite
		m.Tokens = append(m.Tokens, apitest.Token{Plaintext: plaintext, Token: of})
	}
	return m
}

// An owner releases what freezes of the own tenant hold, and nothing else of the revision.
func TestOwnersPassTheFreezesOfTheirTenant(t *testing.T) {
	s := newSite(t, frozen())
	release := func(token string) answer {
		return s.do(http.MethodPost, wire.Base+"/approve", token, `{"revision":"`+string(rev1)+
			`","note":"the checkout is down"}`)
	}
	s.want(release(acmeToken), http.StatusForbidden, "of no owner")
	s.want(release(acmeToken), http.StatusForbidden, "--owner group:acme")
	s.want(release(bobToken), http.StatusForbidden, "github:bob is no owner")
	if holds := decode[wire.List[mirror.Hold]](t, s.get("/holds", platformToken)).Items; len(
		holds) != 4 {
		t.Fatalf("a refused release changes the holds: %+v", holds)
	}
	a := release(aliceToken)
	s.want(a, http.StatusOK)
	done := decode[wire.Approved](t, a)
	if len(done.Holds) != 1 || done.Holds[0].Reason != mirror.HoldFrozen ||
		done.Approval.By != "group:acme (token:acme/person)" || done.Approval.Tenant != "acme" ||
		done.Approval.Note != "the checkout is down" {
		t.Errorf("%+v", done)
	}
	left := s.get("/holds", platformToken).body
	for name, want := range map[string]bool{`"reason":"deletions"`: true, `frozen-by-acme"`: false,
		`frozen-by-globex"`: true, `frozen-by-"`: true} {
		if strings.Contains(left, name) != want {
			t.Errorf("%s is held: %v, want %v", name, !want, want)
		}
	}
	s.want(release(aliceToken), http.StatusForbidden, "wait for another reason (deletions)",
		"the platform alone releases")
	s.want(release(globexOwner), http.StatusOK, "group:globex (token:globex/person)")
	// no tenant learns that the freeze of the Fleet holds a change of this revision
	refused := release(globexOwner)
	s.want(refused, http.StatusNotFound, "no freeze of tenant globex holds a change",
		"the platform alone releases")
	if strings.Contains(refused.body, "frozen-by") {
		t.Errorf("it shows another's hold: %s", refused.body)
	}
	s.want(release(platformToken), http.StatusOK, "frozen-by-")
}
