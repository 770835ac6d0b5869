package webhook_test

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

var cart = fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "acme-cart-prod"}

// applied is a harbor whose pull request changes two Applications and is merged and applied.
func applied(t *testing.T) *harbor {
	h := newHarbor(t)
	h.planner.answer.Effects = []mirror.Effect{
		{Key: checkout, Tenant: "acme", Environment: "prod", Deployment: "checkout", Hash: "m1"},
		{Key: cart, Tenant: "acme", Environment: "prod", Deployment: "cart", Hash: "m2"},
	}
	h.records.outcomes = map[fleet.ObjectKey]forge.Outcome{}
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Merge(1)
	h.planner.includes = true
	return h
}

func (h *harbor) comes(k fleet.ObjectKey, hash string, health mirror.HealthState, message string) {
	h.records.outcomes[k] = forge.Outcome{Present: true, Hash: hash, Apply: mirror.ApplyApplied,
		Sync: mirror.SyncSynced, Health: health, Message: message}
}

func (h *harbor) expectText(words ...string) {
	h.Helper()
	for _, w := range words {
		if text := h.comment(); !strings.Contains(text, w) {
			h.Errorf("it does not contain %q: %s", w, text)
		}
	}
}

// Between the approval of a held file and its effect, the objects are as they were before.
func TestAResultIsNotFinalBeforeAnApprovalTakesEffect(t *testing.T) {
	h := applied(t)
	const path = "tenants/acme/deployments/cart.yaml"
	for head, reviewed := range h.records.reviewed {
		reviewed.Touches = []string{path}
		h.records.reviewed[head] = reviewed
	}
	h.records.approved = []mirror.Hold{{Revision: "9", Reason: mirror.HoldUnreviewed,
		Tenant: "acme", Paths: []string{path}}}
	h.comes(checkout, "m0", mirror.HealthHealthy, "")
	h.comes(cart, "m0", mirror.HealthHealthy, "")
	h.review()
	h.expectText("its file is unreviewed")
	if text := h.comment(); h.record().Finished || strings.Contains(text, "superseded") {
		t.Errorf("finished %t: %s", h.record().Finished, text)
	}
	h.records.approved = nil
	h.comes(checkout, "m1", mirror.HealthHealthy, "")
	h.comes(cart, "m2", mirror.HealthHealthy, "")
	h.review()
	h.expectText("✅ Merged: 2 Applications Synced and Healthy")
}

func TestAResultIsFinalOnceAllIsWell(t *testing.T) {
	h := applied(t)
	h.review()
	h.expectText("⏳ Merged: 0 of 2 Applications done", "not there yet")
	h.comes(checkout, "m1", mirror.HealthHealthy, "")
	h.comes(cart, "m2", mirror.HealthDegraded, "the pod crashes: @all <b>")
	h.review()
	h.expectText("❌ Merged: 1 of 2 Applications is not well",
		"Synced, Degraded: `the pod crashes: @all <b>`", "Synced, Healthy")
	if h.record().Finished {
		t.Fatal("what is degraded is settled")
	}
	h.comes(cart, "m2", mirror.HealthHealthy, "")
	h.review()
	h.expectText("✅ Merged: 2 Applications Synced and Healthy")
	if text := h.comment(); !h.record().Finished || strings.Contains(text, "crashes") {
		t.Errorf("finished %t: %s", h.record().Finished, text)
	}
	before, text := h.writes(), h.comment()
	h.comes(cart, "m2", mirror.HealthDegraded, "later")
	h.review()
	if h.writes() != before || h.comment() != text {
		t.Error("a closed case is reported again")
	}
}

func TestResultOfWhatIsNeverSeen(t *testing.T) {
	h := applied(t)
	h.review()
	h.now = h.now.Add(24*time.Hour - time.Second)
	h.review()
	if h.record().Finished {
		t.Fatal("it is given up before its day is over")
	}
	h.now = h.now.Add(2 * time.Second)
	h.review()
	h.expectText("Merged: 0 of 2 Applications done", "not there yet")
	if !h.record().Finished {
		t.Error("it is followed for ever")
	}
}

func TestResultHoldsTheStepAgainstTheReview(t *testing.T) {
	h := applied(t)
	merge := fleet.Revision(h.pullRequest.Merged)
	h.records.changes = append(h.records.changes,
		change{tenants: []fleet.TenantName{"acme"}, base: h.planner.answer.Base,
			head: merge, effects: []mirror.Effect{
				{Key: checkout, Tenant: "acme", Environment: "prod", Deployment: "checkout",
					Hash: "m1"},
				{Key: cart, Tenant: "acme", Environment: "prod", Deployment: "cart", Deletes: true},
			}})
	h.comes(checkout, "m1", mirror.HealthHealthy, "")
	h.review()
	h.expectText("What came is not what was reviewed", "it will be deleted")
}

func TestClosedWithoutAMerge(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Close()
	h.review()
	h.expectText("Closed without a merge: nothing of it takes effect.")
	if got := h.record(); got.State != forge.PullClosed || !got.Finished ||
		strings.Contains(h.comment(), "approve") {
		t.Errorf("%+v, %s", got, h.comment())
	}
	before := h.writes()
	h.review()
	if h.writes() != before {
		t.Error("it is reported again")
	}
	h.open(h.bob, nil)
	h.planner.answer.Files, h.planner.answer.Shown = nil, nil
	h.review()
	h.pullRequest.Close()
	h.review()
	if got := h.record(); !got.Finished || len(h.ours()) != 0 {
		t.Errorf("nothing of ours was in it: %+v, %q", got, h.ours())
	}
}
