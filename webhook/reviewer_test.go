package webhook_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

func TestSecondReviewWritesNothing(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	before, comment := h.writes(), h.record().Sticky
	h.review()
	if got := h.writes(); got != before || before == 0 {
		t.Errorf("the second look wrote %d times after %d", got-before, before)
	}
	h.pullRequest.Push()
	h.review()
	if h.state(forge.CheckOwners) == "" || len(h.ours()) != 1 || h.record().Sticky != comment {
		t.Errorf("a new head is %q, with comments %q", h.state(forge.CheckOwners), h.ours())
	}
}

func TestApprovalIsOfThisHeadAndThisPerson(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	if got := h.record(); h.state(forge.CheckOwners) != "success" || got.Consented != got.Head {
		t.Fatalf("an owner's approval is %q", h.state(forge.CheckOwners))
	}
	h.pullRequest.Push()
	h.review()
	if h.state(forge.CheckOwners) == "success" || h.record().Consented != "" {
		t.Error("an approval of an older head counts")
	}
}

func TestApprovalOfAnotherWithTheOwnersLogin(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.now = h.now.Add(2 * time.Minute) // the cache of accounts expires
	h.server.Rename(h.alice, "alice-gone")
	h.server.User("alice")
	h.review()
	if h.state(forge.CheckOwners) == "success" || h.record().Consented != "" {
		t.Error("the account that had the owner's login counts as the owner")
	}
}

func TestCommandSurvivesEachCut(t *testing.T) {
	for cut := 1; cut <= 5; cut++ {
		h := newHarbor(t)
		h.open(h.alice, nil)
		h.review()
		h.repo.Comment(h.pullRequest.Number, h.alice, "/argosy approve "+h.pullRequest.Head)
		h.records.failing = h.records.saves + cut
		if err := h.try(); !errors.Is(err, errDown) {
			t.Fatalf("cut %d: %v", cut, err)
		}
		h.review()
		got := h.record()
		if len(got.Consents) != 1 || len(got.Replies) != 1 || len(h.ours()) != 1 ||
			got.Consented != got.Head || h.state(forge.CheckOwners) != "success" {
			t.Errorf("cut %d: %+v, %q", cut, got, h.ours())
		}
	}
}

func TestEditedCommandDoesNothing(t *testing.T) {
	h := newHarbor(t)
	h.open(h.alice, nil)
	c := h.repo.Comment(h.pullRequest.Number, h.alice, "hello")
	h.repo.Edit(c.ID, "/argosy approve "+h.pullRequest.Head)
	h.review()
	if got := h.record(); len(got.Consents)+len(got.Replies) != 0 {
		t.Errorf("it is obeyed: %+v", got)
	}
}

func TestForkIsReadOnlyUntilAllowed(t *testing.T) {
	h := newHarbor(t)
	mallory := h.server.User("mallory")
	h.open(mallory, h.server.Repository(mallory, "fleet", true))
	h.repo.Comment(h.pullRequest.Number, mallory, "/argosy ok-to-test "+h.pullRequest.Head)
	h.review()
	if h.planner.previews != 0 || h.planner.parses == 0 {
		t.Fatalf("a stranger's fork is planned %d times", h.planner.previews)
	}
	h.repo.Comment(h.pullRequest.Number, h.bob, "/argosy ok-to-test "+h.pullRequest.Head)
	h.review()
	planned := h.planner.previews
	h.pullRequest.Push()
	h.review()
	if planned == 0 || h.planner.previews != planned {
		t.Errorf("planned %d times when it was allowed, and %d with the next head", planned,
			h.planner.previews)
	}
}

// A comment from before the first review of a head is about another head, or about one that its
// author guessed.
func TestApprovalFromBeforeTheHeadWasSeenCountsForNothing(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Push()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.repo.Comment(h.pullRequest.Number, h.alice, "/argosy approve "+h.pullRequest.Head)
	for range 2 {
		h.review()
		text := h.comment()
		if h.state(forge.CheckOwners) == "success" || h.record().Consented != "" ||
			len(h.record().Consents) != 0 {
			t.Fatalf("it counts: %+v", h.record())
		}
		if !strings.Contains(text, "came before this head was first reviewed") ||
			!strings.Contains(text, "`alice` approved before this head was first reviewed") {
			t.Error(text)
		}
	}
	h.repo.Comment(h.pullRequest.Number, h.alice, "/argosy approve "+h.pullRequest.Head)
	h.review()
	if h.state(forge.CheckOwners) != "success" {
		t.Errorf("repeated it is %q", h.state(forge.CheckOwners))
	}
}

// Records of the previous version lack the first review of their heads.
func TestApprovalOfAHeadThatAnEarlierVersionSawCounts(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	record := h.record()
	record.Seen = nil
	h.records.pulls[record.Number] = record
	h.review()
	if h.state(forge.CheckOwners) != "success" || h.record().Consented == "" {
		t.Errorf("%+v", h.record())
	}
}

func TestNotConverged(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.planner.err = mirror.ErrNotReady
	var busy *forge.Busy
	if err := h.try(); !errors.As(err, &busy) || h.state(forge.CheckPlan) != "pending" {
		t.Fatalf("%v, %q", err, h.state(forge.CheckPlan))
	}
	before := h.writes()
	if err := h.try(); !errors.As(err, &busy) || h.writes() != before {
		t.Errorf("%v; it wrote %d times", err, h.writes()-before)
	}
}

func TestUnmergeableFailsEveryCheckWithTheReason(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.planner.err = fmt.Errorf("%w: no common history", mirror.ErrUnmergeable)
	h.review()
	for _, check := range []string{forge.CheckValidate, forge.CheckPlan, forge.CheckOwners} {
		if h.state(check) != "failure" {
			t.Errorf("%s: %q", check, h.state(check))
		}
	}
	if h.record().Consented != "" || !strings.Contains(h.comment(), "No common history.") {
		t.Errorf("consented %q\n%s", h.record().Consented, h.comment())
	}
}

func TestForgedStatusIsSetRightOnce(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	want := h.state(forge.CheckOwners)
	h.repo.SetStatus(h.bob, h.pullRequest.Head, forge.CheckOwners, "success")
	again := forge.Recheck{Kind: forge.RecheckHead, Head: fleet.Revision(h.pullRequest.Head)}
	if err := h.Recheck(t.Context(), again); err != nil || want == "success" ||
		h.state(forge.CheckOwners) != want {
		t.Fatalf("%v; it is %q, not %q", err, h.state(forge.CheckOwners), want)
	}
	before := h.writes()
	if err := h.Recheck(t.Context(), again); err != nil || h.writes() != before {
		t.Errorf("%v; the delivery of our own status made us write %d times", err,
			h.writes()-before)
	}
}

func TestRetargetedStaysClosed(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Base = "release"
	for range 2 {
		h.review()
		if got := h.record(); got.State != forge.PullClosed || !got.Finished {
			t.Errorf("state %q, finished %t", got.State, got.Finished)
		}
	}
}

func TestReviewedDeletions(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	merge := fleet.Revision(h.pullRequest.Merge(1)[0])
	got, err := h.deletions(merge)
	if d, ok := got[checkout]; err != nil || !ok || d.Approved || d.Pull != h.pullRequest.Number {
		t.Fatalf("%v, %v", got, err)
	}
	r := h.record()
	r.Consented = ""
	h.records.pulls[r.Number] = r
	if got, err := h.deletions(merge); err != nil || len(got) != 0 {
		t.Errorf("without consent: %v, %v", got, err)
	}
	if _, err := h.deletions(slices.Repeat([]fleet.Revision{merge}, 201)...); err == nil {
		t.Error("more commits than are looked through are no error")
	}
}
