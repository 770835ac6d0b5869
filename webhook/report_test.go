package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/reconciler/plan/report"
)

// located are problems in the file that the pull request changes, line by line.
func located(n int) (out []fleet.Problem) {
	for i := range n {
		out = append(out, fleet.Problem{Path: "tenants/acme/deployments/checkout.yaml", Line: i + 1,
			Column: 3, Code: "unknown-field", Message: fmt.Sprintf("field no. %d is not known", i),
			Fix: "leave it out", Severity: fleet.SeverityError})
	}
	return out
}

// shown is everything of Argosy that readers of the Git host see.
func (h *harbor) shown() string {
	var b strings.Builder
	for _, c := range checks {
		if h.app == nil {
			s := h.repo.Statuses(h.pullRequest.Head)[c]
			fmt.Fprintln(&b, c, s.State, s.Description, s.Target)
			continue
		}
		r := h.repo.Runs(h.app, h.pullRequest.Head)[c]
		fmt.Fprintln(&b, c, r.Status, r.Conclusion, r.Title, r.Summary, r.Annotations)
	}
	for _, text := range h.ours() {
		fmt.Fprintln(&b, "comment:", text)
	}
	return b.String()
}

// A review that loses any one request or response ends, after the next review, like an undisturbed
// one.
func TestReviewSurvivesEachLostRequest(t *testing.T) {
	for name, prepare := range map[string]func(h *harbor){
		"of a new pull request": func(h *harbor) {
			h.repo.Comment(h.pullRequest.Number, h.alice, "/argosy approve "+h.pullRequest.Head)
		},
		"of a new head": func(h *harbor) {
			h.review()
			h.pullRequest.Push()
		},
		"of a merged one": func(h *harbor) {
			h.review()
			h.pullRequest.Merge(1)
		},
		"of a closed one": func(h *harbor) {
			h.review()
			h.pullRequest.Close()
		},
	} {
		for _, asApp := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, as an App %t", name, asApp), func(t *testing.T) {
				stage := func() *harbor {
					h := harborOf(t, asApp)
					h.open(h.alice, nil)
					h.planner.answer.Problems = located(70)
					prepare(h)
					return h
				}
				whole := stage()
				before := whole.gate.writes
				whole.review()
				writes := whole.gate.writes - before
				if writes == 0 {
					t.Fatal("it writes nothing")
				}
				for cut := range writes {
					for _, done := range []bool{false, true} {
						h := stage()
						h.gate.lose(cut+1, done)
						if err := h.try(); err == nil || !h.gate.lost() {
							t.Fatalf("write %d: %v", cut+1, err)
						}
						h.review()
						if got, want := h.shown(), whole.shown(); got != want ||
							len(h.ours()) != 1 {
							t.Errorf("write %d (done %t) leads to\n%s\nnot\n%s", cut+1, done, got,
								want)
						}
						converged := h.writes()
						h.review()
						if h.writes() != converged {
							t.Errorf("write %d (done %t): the recheck after wrote %d times", cut+1,
								done, h.writes()-converged)
						}
					}
				}
			})
		}
	}
}

func TestAppReportsTheLines(t *testing.T) {
	h := harborOf(t, true)
	h.open(h.bob, nil)
	h.planner.answer.Problems = located(120)
	h.review()
	run := h.repo.Runs(h.app, h.pullRequest.Head)[forge.CheckValidate]
	if run.Conclusion != "failure" || len(run.Annotations) != 120 ||
		len(h.repo.Statuses(h.pullRequest.Head)) != 0 {
		t.Fatalf("%s with %d annotations and statuses %v", run.Conclusion, len(run.Annotations),
			h.repo.Statuses(h.pullRequest.Head))
	}
	last := run.Annotations[119]
	if last.Path != "tenants/acme/deployments/checkout.yaml" || last.Line != 120 ||
		last.Level != "failure" || !strings.Contains(last.Message,
		"no. 119 is not known\nfix: leave it out") {
		t.Errorf("%+v", last)
	}
	if got := h.state(forge.CheckOwners); got != "in_progress" {
		t.Errorf("an approval that is missing is %q", got)
	}
	h.planner.answer.Problems = nil
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	run = h.repo.Runs(h.app, h.pullRequest.Head)[forge.CheckValidate]
	if h.states() != "argosy/validate=success argosy/plan=success argosy/owners=success " ||
		len(run.Annotations) != 0 || len(h.ours()) != 1 {
		t.Errorf("%s, still with %d annotations", h.states(), len(run.Annotations))
	}
}

func TestCommentIsOfTheNewHead(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	first := h.pullRequest.Head
	if text := h.comment(); !strings.Contains(text, "head `"+first[:8]+"`") ||
		!strings.Contains(text, "Approved for tenant `acme` by `alice`") {
		t.Fatal(text)
	}
	second := h.pullRequest.Push()
	h.review()
	text := h.comment()
	for _, want := range []string{"head `" + second[:8] + "`", "`/argosy approve " + second + "`",
		"`alice` approved an earlier head", "Needs an approval for tenant `acme`"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if strings.Contains(text, first[:8]) || strings.Contains(text, "Approved for") {
		t.Errorf("it speaks of the head before: %s", text)
	}
}

// Another planned head in which all is well leaves nothing of the problems of the one before.
func TestNewHeadTakesProblemsBack(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.planner.answer.Problems = located(1)
	h.review()
	if text := h.comment(); h.state(forge.CheckValidate) != "failure" ||
		!strings.Contains(text, "checkout.yaml:1:3") ||
		!strings.Contains(text, "field no. 0 is not known") {
		t.Fatal(text)
	}
	h.planner.answer.Problems = nil
	h.pullRequest.Push()
	h.review()
	if text := h.comment(); h.state(forge.CheckValidate) != "success" ||
		strings.Contains(text, "not known") {
		t.Error(text)
	}
}

// The comment of a change of a ring has what comparisons with the version have found.
func TestTheCommentOfARingCountsItsDifferences(t *testing.T) {
	h := harborOf(t, false)
	h.open(h.alice, nil)
	h.planner.answer.Report.Rings = []report.Ring{{Name: "stable", Version: "3.5.7",
		Digest: "sha256:new", Engines: []report.RingEngine{{Name: "eu-1", From: "2.14.21"}}}}
	h.review()
	if out := h.shown(); !strings.Contains(out, "eu-1 goes from 2.14.21 to 3.5.7") ||
		!strings.Contains(out, "40 Applications of ring `canary` so far: 3 differ") {
		t.Errorf("the comment is\n%s", out)
	}
}
