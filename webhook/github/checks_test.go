package github

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

func problems(n int) []fleet.Problem {
	var all []fleet.Problem
	for i := range n {
		all = append(all, fleet.Problem{Path: fmt.Sprintf("tenants/acme/%d.yaml", i), Line: i,
			Column: 3, Severity: fleet.SeverityError, Code: "unknown-field", Message: "wrong",
			Fix: "right"})
	}
	return all
}

func TestRunsCarryAnnotations(t *testing.T) {
	s := newStage(t, true)
	s.opened()
	head := fleet.Revision(s.repo.Pull(1).Head)
	f := s.forge()
	check := forge.Check{Name: forge.CheckValidate, State: forge.CheckFailure, Title: "120 errors",
		Summary: strings.Repeat("é", 70000), Annotations: problems(120)}
	check.Annotations[1].Severity, check.Annotations[2].Severity = fleet.SeverityWarning,
		fleet.SeverityNote
	check.Annotations = append(check.Annotations, fleet.Problem{Message: "of no file"})
	s.marked(f, head, check)
	got := s.repo.Runs(s.app, string(head))[check.Name]
	if got.Conclusion != "failure" || len(got.Annotations) != 120 ||
		utf8.RuneCountInString(got.Summary) != 65535 {
		t.Fatalf("it is %s with %d annotations and a summary of %d", got.Conclusion,
			len(got.Annotations), utf8.RuneCountInString(got.Summary))
	}
	for i, level := range []string{"failure", "warning", "notice", "failure"} {
		want := githubtest.Annotation{Path: fmt.Sprintf("tenants/acme/%d.yaml", i), Line: max(i, 1),
			Column: 3, Level: level, Title: "unknown-field", Message: "wrong\nfix: right"}
		if i == 0 {
			want.Column = 0 // of a file as a whole
		}
		if got.Annotations[i] != want {
			t.Errorf("annotation %d is %+v", i, got.Annotations[i])
		}
	}
	if posts, updates := s.server.Count("POST /repos/acme/fleet/check-runs"), s.server.Count(
		"PATCH "); posts != 1 || updates != 2 {
		t.Errorf("there were %d runs and %d updates", posts, updates)
	}
	s.marked(f, head, check)
	if posts, updates := s.server.Count("POST /repos/acme/fleet/check-runs"), s.server.Count(
		"PATCH "); posts != 1 || updates != 2 {
		t.Errorf("marked again there were %d runs and %d updates", posts, updates)
	}
	check.Annotations = problems(1)
	s.marked(f, head, check)
	if got := s.repo.Runs(s.app, string(head))[check.Name]; len(got.Annotations) != 1 {
		t.Errorf("of the one error there are %d annotations", len(got.Annotations))
	}
}

func (s *stage) marked(f *Forge, head fleet.Revision, checks ...forge.Check) {
	s.t.Helper()
	if err := f.ReportChecks(s.t.Context(), head, checks); err != nil {
		s.t.Fatal(err)
	}
}

// A partly written run does not count as complete.
func TestAnInterruptedRunIsRecreated(t *testing.T) {
	s := newStage(t, true)
	s.opened()
	head := fleet.Revision(s.repo.Pull(1).Head)
	check := forge.Check{Name: forge.CheckValidate, State: forge.CheckFailure, Title: "many",
		Annotations: problems(60)}
	restore := s.server.Break("PATCH /repos/*", githubtest.HTML(http.StatusBadGateway))
	if err := s.forge().ReportChecks(t.Context(), head, []forge.Check{check}); err == nil {
		t.Fatal("it goes well")
	}
	if got := s.repo.Runs(s.app, string(head))[check.Name]; got.Status != "in_progress" {
		t.Errorf("the partly written run is %s", got.Status)
	}
	restore()
	s.marked(s.forge(), head, check)
	if got := s.repo.Runs(s.app, string(head))[check.Name]; got.Conclusion != "failure" ||
		len(got.Annotations) != 60 {
		t.Errorf("it is %s with %d annotations", got.Conclusion, len(got.Annotations))
	}
}

// Only runs of our App count, whatever others call theirs.
func TestRunOfAnotherAppIsNotOurs(t *testing.T) {
	s := newStage(t, true)
	s.opened()
	head := fleet.Revision(s.repo.Pull(1).Head)
	other := s.server.App("argosy-too")
	s.repo.SetRun(other, string(head), forge.CheckPlan, "success")
	check := forge.Check{Name: forge.CheckPlan, State: forge.CheckFailure, Title: "no"}
	s.marked(s.forge(), head, check)
	if got := s.repo.Runs(s.app, string(head))[check.Name]; got.Conclusion != "failure" {
		t.Errorf("ours is %+v", got)
	}
	if got := s.repo.Runs(other, string(head))[check.Name]; got.Conclusion != "success" {
		t.Errorf("the other's is %+v", got)
	}
	// Not even if the Git host lists it as requested.
	s.server.Break("GET /repos/acme/fleet/commits/*", githubtest.JSON(fmt.Sprintf(
		`{"total_count":1,"check_runs":[{"id":1,"name":"argosy/plan","head_sha":%q,"app":{"id":%d},"status":"completed","conclusion":"success"}]}`, head, other.ID)))
	s.marked(s.forge(), head, check)
	if n := s.server.Count("PATCH "); n != 0 {
		t.Errorf("%d of the other's runs were written to", n)
	}
}

func TestRunIsAnsweredAgainAfterRerun(t *testing.T) {
	s := newStage(t, true)
	s.opened()
	head := fleet.Revision(s.repo.Pull(1).Head)
	f := s.forge()
	check := forge.Check{Name: forge.CheckPlan, State: forge.CheckNeutral, Title: "a fork"}
	s.marked(f, head, check)
	s.repo.Rerun(s.app, string(head))
	s.marked(f, head, check)
	if got := s.repo.Runs(s.app, string(head))[check.Name]; got.Status != "completed" ||
		got.Conclusion != "neutral" {
		t.Errorf("it is %+v", got)
	}
}

func TestRunListThatIsCutIsAnError(t *testing.T) {
	s := newStage(t, true)
	head := fleet.Revision(strings.Repeat("a", 40))
	s.server.Break("GET /repos/acme/fleet/commits/*",
		githubtest.JSON(`{"total_count":3,"check_runs":[]}`))
	if err := s.forge().ReportChecks(t.Context(), head, nil); err == nil ||
		!strings.Contains(err.Error(),
			"0 of 3") {
		t.Errorf("a list of which three are missing gives %v", err)
	}
}

func TestStatuses(t *testing.T) {
	s := newStage(t, false)
	s.opened()
	head := fleet.Revision(s.repo.Pull(1).Head)
	f := s.forge()
	check := forge.Check{Name: forge.CheckPlan, State: forge.CheckFailure,
		Title: strings.Repeat("é", 200), URL: "javascript:alert(1)"}
	s.marked(f, head, check)
	s.marked(f, head, check)
	got := s.repo.Statuses(string(head))[check.Name]
	if got.State != "failure" || got.Description != strings.Repeat("é", 139)+"…" ||
		got.Target != "" {
		t.Errorf("the status is %+v", got)
	}
	if n := s.server.Count("POST /repos/acme/fleet/statuses/"); n != 1 {
		t.Errorf("it was set %d times", n)
	}
	s.repo.SetStatus(s.people[s.cast.Writer.ID], string(head), forge.CheckPlan, "success")
	s.repo.SetStatus(s.people[s.cast.Writer.ID], string(head), "other/check", "success")
	s.marked(f, head, check)
	if got := s.repo.Statuses(string(head))[check.Name]; got.State != "failure" {
		t.Errorf("a stranger's status counts: %+v", got)
	}
	if n := s.server.Count("POST /repos/acme/fleet/statuses/"); n != 2 {
		t.Errorf("it was set %d times", n)
	}
	s.repo.SetStatus(s.people[s.cast.Writer.ID], string(head), forge.CheckOwners, "success")
	s.marked(f, head, forge.Check{Name: forge.CheckOwners, State: forge.CheckSuccess})
	if n := s.server.Count("POST /repos/acme/fleet/statuses/"); n != 3 {
		t.Errorf("a stranger's status is taken for ours: set were %d", n)
	}
	if err := f.ReportChecks(t.Context(), head, []forge.Check{
		{Name: "argosy/plan", State: "maybe"}}); err == nil {
		t.Error("a state that is none is reported")
	}
	if err := f.ReportChecks(t.Context(), "main", nil); err == nil {
		t.Error("a branch is marked")
	}
}

func TestStatusesAreReadFromEveryPage(t *testing.T) {
	s := newStage(t, false)
	s.opened()
	head := fleet.Revision(s.repo.Pull(1).Head)
	check := forge.Check{Name: forge.CheckPlan, State: forge.CheckSuccess, Title: "fine"}
	s.marked(s.forge(), head, check)
	for i := range 250 {
		s.repo.SetStatus(s.people[s.cast.Writer.ID], string(head), fmt.Sprintf("ci/%d", i),
			"success")
	}
	s.marked(s.forge(), head, check)
	if n := s.server.Count("POST /repos/acme/fleet/statuses/"); n != 1 {
		t.Errorf("it was set %d times", n)
	}
	if got := s.server.Asked(); !slices.ContainsFunc(got, func(r string) bool {
		return strings.HasSuffix(r, "page=3&per_page=100")
	}) {
		t.Errorf("page 3 was not read: %q", got)
	}
}
