package guard_test

import (
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/guard"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/plantest"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// existing is a state with n Applications of acme, and the same as unwanted.
func existing(n int) (*applied.State, []place.Unwanted) {
	s := applied.New()
	s.Catalog.Prepare(plantest.Files()).Commit()
	s.Revision = "1"
	draft := s.Draft()
	draft.ApplicationsOf.Set("acme", n)
	draft.Commit()
	var unwanted []place.Unwanted
	for i := range n {
		id := plantest.Cart
		id.Deployment = fleet.DeploymentName(fmt.Sprintf("d-%d", i))
		unwanted = append(unwanted, place.Unwanted{ID: id, Key: applied.ApplicationKey("eu-1", id)})
	}
	return s, unwanted
}

func TestDeletionsBeyondTheGuardsAreHeldForTheirTenant(t *testing.T) {
	s, unwanted := existing(10)
	r := guard.Request{Revision: "2", Now: now}
	for _, v := range guard.Judge(s, unwanted, nil, r) {
		if v.Hold == nil || v.Hold.Scope != "acme" || v.Hold.Revision != "2" || v.Hold.Base != "1" {
			t.Errorf("%+v", v)
		}
	}
	for _, v := range guard.Judge(s, unwanted[:5], nil, r) { // 5 are always allowed
		if v.Hold != nil || v.Approved {
			t.Errorf("%+v", v)
		}
	}
}

func TestADeletionWithoutAReviewIsHeldAndDoesNotCount(t *testing.T) {
	s, unwanted := existing(10)
	seen := map[fleet.ObjectKey]mirror.ReviewedDeletion{}
	for _, u := range unwanted[:5] {
		seen[u.Key] = mirror.ReviewedDeletion{}
	}
	r := guard.Request{Revision: "2", Now: now, Reviews: &reviews.Deletions{Reviewed: seen}}
	deleted, held := 0, 0
	for _, v := range guard.Judge(s, unwanted, nil, r) {
		switch {
		case v.Hold == nil:
			deleted++
		case v.Hold.Reason == mirror.HoldUnreviewed && v.Hold.Why == reviews.Missing:
			held++
		}
	}
	if deleted != 5 || held != 5 {
		t.Errorf("%d deleted, %d held", deleted, held)
	}
}

func TestOnlyALaterApprovalReleasesAHold(t *testing.T) {
	s, unwanted := existing(1)
	u := unwanted[0]
	draft := s.Draft()
	draft.Held.Set(u.ID, applied.Held{Application: u.ID, Key: u.Key, Revision: "1", Since: now})
	draft.Commit()
	for at, want := range map[time.Time]place.Freeing{now.Add(-1): 0, now: place.Approved} {
		r := guard.Request{Revision: "2", Now: now}
		r.Approvals = []mirror.Approval{{Revision: "1", At: at}}
		if freed, _ := guard.Release(s, r); freed[u.ID] != want {
			t.Errorf("approved at %s: %v", at, freed)
		}
	}
}
