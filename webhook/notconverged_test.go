package webhook_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

// putOff returns how long a job is postponed.
func (h *harbor) putOff(err error) time.Duration {
	h.Helper()
	var busy *forge.Busy
	if !errors.As(err, &busy) {
		h.Fatalf("it is not put off: %v", err)
	}
	return busy.Until.Sub(h.now)
}

var checks = []string{forge.CheckValidate, forge.CheckPlan, forge.CheckOwners}

func (h *harbor) states() (all string) {
	for _, c := range checks {
		all += c + "=" + h.state(c) + " "
	}
	return all
}

func TestAVerdictStaysWhileTheBranchIsApplied(t *testing.T) {
	for _, asApp := range []bool{false, true} {
		t.Run(fmt.Sprintf("as an App %t", asApp), func(t *testing.T) {
			h := harborOf(t, asApp)
			h.open(h.bob, nil)
			h.planner.answer.Problems = located(1)
			h.review()
			want, text := h.states(), h.comment()
			h.planner.err = mirror.ErrNotReady
			if asApp {
				h.repo.Rerun(h.app, h.pullRequest.Head)
			} else {
				h.repo.SetStatus(h.bob, h.pullRequest.Head, forge.CheckValidate, "success")
			}
			h.putOff(h.again())
			if got := h.states(); got != want || strings.Contains(want, "argosy/plan=pending") ||
				h.comment() != text {
				t.Fatalf("%s, not %s\n%s", got, want, h.comment())
			}
			before := h.writes()
			h.putOff(h.try())
			if h.writes() != before {
				t.Errorf("the next recheck wrote %d times", h.writes()-before)
			}
			h.pullRequest.Review(h.alice, "APPROVED")
			h.putOff(h.try())
			if h.state(forge.CheckOwners) != "success" || h.record().Consented == "" {
				t.Errorf("an approval waits for the branch: %s", h.states())
			}
		})
	}
}

// A plan made while the branch's own commits were held does not turn into a success.
func TestWhatWasBehindStaysBehind(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.planner.answer.Behind = true
	h.review()
	h.planner.err = mirror.ErrNotReady
	h.repo.SetStatus(h.bob, h.pullRequest.Head, forge.CheckPlan, "success")
	h.putOff(h.again())
	if got := h.state(forge.CheckPlan); got != "pending" {
		t.Errorf("it is %q", got)
	}
}

// The report of a plan against another base stays, and is not repeated.
func TestPlanOfAnotherBaseIsNotRepeated(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	want := h.states()
	h.planner.answer.Base, h.planner.err = fleet.Revision(strings.Repeat("d", 40)),
		mirror.ErrNotReady
	before := h.writes()
	h.putOff(h.try())
	if h.writes() != before || h.states() != want {
		t.Errorf("it wrote %d times: %s", h.writes()-before, h.states())
	}
	h.putOff(h.again())
	if got := h.state(forge.CheckPlan); got != "pending" {
		t.Errorf("asked to judge again, it is %q", got)
	}
	h.planner.err = nil
	h.review()
	if h.states() != want {
		t.Errorf("once it can be planned: %s", h.states())
	}
}

func TestCommentNamesWhatItWaitsFor(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.planner.err = mirror.ErrNotReady
	h.putOff(h.try())
	if text := h.comment(); !strings.Contains(text, "Waits until what `main` has is applied") ||
		strings.Contains(text, "soon") {
		t.Error(text)
	}
	status := h.repo.Statuses(h.pullRequest.Head)[forge.CheckPlan]
	if status.Description != "Waits until what main has is applied" {
		t.Errorf("the status is %q", status.Description)
	}
	h.planner.err = nil
	h.review()
	if text := h.comment(); strings.Contains(text, "Waits until") {
		t.Error(text)
	}
}

// A cut while there is no plan yet is made good before there is one.
func TestAMissingPlanIsReportedAfterACut(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.planner.err = mirror.ErrNotReady
	h.gate.lose(4, false) // after the three statuses
	if err := h.try(); err == nil || !h.gate.lost() || len(h.ours()) != 0 {
		t.Fatalf("%v, %q", err, h.ours())
	}
	h.putOff(h.try())
	if text := h.comment(); !strings.Contains(text, "Waits until") {
		t.Error(text)
	}
}

func TestAHeadThatCannotBeMergedIsReportedMeanwhile(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.planner.err, h.planner.parseErr = mirror.ErrNotReady, fmt.Errorf("%w: no common history",
		mirror.ErrUnmergeable)
	h.review()
	if h.state(forge.CheckPlan) != "failure" {
		t.Error(h.states())
	}
}

// However long it takes, it is no failure, and asked for less and less often.
func TestNotNowIsNoFailure(t *testing.T) {
	for name, reason := range map[string]error{"being applied": mirror.ErrNotReady,
		"moved": mirror.ErrMoved, "not leading": mirror.ErrNotLeader} {
		t.Run(name, func(t *testing.T) {
			h := newHarbor(t)
			h.open(h.bob, nil)
			h.planner.err = fmt.Errorf("in the middle: %w", reason)
			began, tries := h.now, 0
			for h.now.Sub(began) < time.Hour {
				pause := h.putOff(h.try())
				if tries++; pause < time.Second || pause > 30*time.Second || tries == 1 &&
					pause != time.Second {
					t.Fatalf("try %d is put off for %s", tries, pause)
				}
				h.now = h.now.Add(pause)
			}
			if tries > 160 {
				t.Errorf("%d rechecks in an hour", tries)
			}
			h.planner.err = nil
			h.review()
			h.planner.err = reason
			h.pullRequest.Push()
			if pause := h.putOff(h.try()); pause != time.Second {
				t.Errorf("the next time it begins with %s", pause)
			}
		})
	}
}

func TestQueueLetsGoOfACommit(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	head := strings.Repeat("c", 40)
	group := forge.Recheck{Kind: forge.RecheckGroup, Head: fleet.Revision(head),
		Ref: "refs/heads/gh-readonly-queue/main/pr-1-" + head}
	h.planner.err = mirror.ErrMoved
	h.putOff(h.Recheck(t.Context(), group))
	h.now = h.now.Add(9 * time.Minute)
	h.putOff(h.Recheck(t.Context(), group))
	h.now = h.now.Add(2 * time.Minute)
	if err := h.Recheck(t.Context(), group); err != nil || len(h.repo.Statuses(head)) != 0 {
		t.Errorf("%v, %v", err, h.repo.Statuses(head))
	}
	h.planner.err = mirror.ErrNotReady
	h.putOff(h.Recheck(t.Context(), group))
	if got := h.repo.Statuses(head)[forge.CheckPlan].State; got != "pending" {
		t.Errorf("a commit of the queue is %q while the branch is applied", got)
	}
}

// A delivery for the pull request and one for its head may come at once.
func TestTwoReviewsOfOnePullRequestRunOneAfterTheOther(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	var beside error
	h.server.Watch("GET /repos/acme/fleet/pulls/1/reviews", func() {
		if beside == nil {
			beside = h.again()
		}
	})
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	h.putOff(beside)
	if err := h.again(); err != nil || h.state(forge.CheckOwners) != "success" ||
		len(h.ours()) != 1 {
		t.Errorf("%v, %s", err, h.states())
	}
}
