package review

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/report"
)

func stateOf(t *testing.T, f Facts, check string) forge.CheckState {
	t.Helper()
	return find(t, Decide(f), check).State
}

func TestWhatAPlanFailsOn(t *testing.T) {
	for name, c := range map[string]struct {
		make func(f *Facts)
		want forge.CheckState
	}{
		"nothing": {func(*Facts) {}, forge.CheckSuccess},
		"a conflict": {
			func(f *Facts) { f.Conflicts = []string{"tenants/acme/x.yaml"} }, forge.CheckFailure},
		"the whole revision waits": {
			func(f *Facts) {
				f.Plan.RevisionHold = &mirror.Hold{Message: "it is empty"}
			}, forge.CheckFailure},
		"a hold": {
			func(f *Facts) {
				f.Record.Held = &forge.Clearance{By: bob, Head: older}
			}, forge.CheckFailure},
		"the branch waits": {func(f *Facts) { f.Behind = true }, forge.CheckPending},
		"no plan":          {func(f *Facts) { f.Plan = nil }, forge.CheckPending},
		"a fork": {func(f *Facts) { f.Record.Fork, f.Plan = true, nil },
			forge.CheckNeutral},
		"a fork cleared before": {func(f *Facts) {
			f.Record.Fork, f.Record.Tested = true,
				&forge.Clearance{By: bob, Head: older}
		}, forge.CheckNeutral},
		"a fork that is cleared": {func(f *Facts) {
			f.Record.Fork, f.Record.Tested = true,
				&forge.Clearance{By: bob, Head: head}
		}, forge.CheckSuccess},
		"a problem in another file": {
			func(f *Facts) {
				f.Problems = []fleet.Problem{{Path: "other", Severity: fleet.SeverityError}}
			}, forge.CheckSuccess},
		"beyond the base's quota": {
			func(f *Facts) {
				grow(f, 3, 4)
				f.Owned[1].Quota = &fleet.Quota{Applications: 3}
			}, forge.CheckFailure},
		"beyond it before, no worse": {
			func(f *Facts) {
				grow(f, 4, 4)
				f.Owned[1].Quota = &fleet.Quota{Applications: 3}
			}, forge.CheckSuccess},
		"within it": {
			func(f *Facts) {
				grow(f, 3, 4)
				f.Owned[1].Quota = &fleet.Quota{Applications: 4}
			}, forge.CheckSuccess},
		"a new tenant's own quota": {func(f *Facts) { grow(f, 0, 4); f.Owned[1].Quota = nil },
			forge.CheckSuccess},
	} {
		f, _ := bump(t)
		c.make(&f)
		if got := stateOf(t, f, forge.CheckPlan); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func grow(f *Facts, before, after int) {
	f.Plan.Tenants[0].Quota = report.QuotaUse{Tenant: "acme", Quota: fleet.Quota{Applications: 100},
		Before: fleet.Quota{Applications: before}, After: fleet.Quota{Applications: after}}
}

func TestOnlyErrorsInItsOwnFilesMakeAPullRequestInvalid(t *testing.T) {
	f, _ := bump(t)
	own := f.Files[0]
	f.Problems = []fleet.Problem{{Path: own, Severity: fleet.SeverityWarning, Message: "old"},
		{Path: own, Severity: fleet.SeverityNote, Message: "note"}, {Path: "tenants/globex/x.yaml",
			Severity: fleet.SeverityError, Message: "theirs"}}
	check := find(t, Decide(f), forge.CheckValidate)
	if check.State != forge.CheckSuccess || len(check.Annotations) != 2 ||
		!strings.Contains(check.Summary, "theirs") {
		t.Errorf("%+v", check)
	}
	f.Problems = append(f.Problems, fleet.Problem{Path: own, Line: 7, Severity: fleet.SeverityError,
		Message: "wrong"})
	check = find(t, Decide(f), forge.CheckValidate)
	if check.State != forge.CheckFailure || check.Title != "checkout.yaml:7: wrong" ||
		check.Annotations[0].Message != "wrong" {
		t.Errorf("%+v", check)
	}
	for range 2 * mostAnnotations {
		f.Problems = append(f.Problems, f.Problems[0])
	}
	if n := len(find(t, Decide(f), forge.CheckValidate).Annotations); n != mostAnnotations {
		t.Errorf("%d annotations", n)
	}
}

// TestAnApprovalOfDeletionsReleasesWhatWasListed has the plan of the same head list one deletion
// more, since the base has moved on.
// A pull request that changes the directory of a ring alone is one of ours, and fails with the
// problem of the ring.
func TestAChangedDirectoryOfARingIsChecked(t *testing.T) {
	f := Facts{Beside: []string{"argocd/3.5.7"}, Problems: []fleet.Problem{{
		Path: "fleet/fleet.yaml", Line: 8, Severity: fleet.SeverityError,
		Code: "ring-manifests", Message: "it is missing"}}}
	check := find(t, Decide(f), forge.CheckValidate)
	if !f.Ours() || check.State != forge.CheckFailure ||
		!strings.Contains(check.Title, "fleet.yaml:8: it is missing") {
		t.Errorf("%v %+v", f.Ours(), check)
	}
	if f.Beside = nil; find(t, Decide(f), forge.CheckValidate).State != forge.CheckSuccess {
		t.Error("a problem in another file fails it")
	}
}

func TestAnApprovalOfDeletionsReleasesWhatWasListed(t *testing.T) {
	f, _ := purge(t)
	if v := Decide(f); len(v.Held) != 1 || len(v.Held[0].Items) != 12 || len(v.Cleared) != 0 ||
		stateOf(t, f, forge.CheckPlan) != forge.CheckFailure {
		t.Fatalf("%+v", v)
	}
	f.Record, _ = judged(f, bob, "/argosy approve-deletions "+string(head))
	if v := Decide(f); len(v.Held) != 0 || len(v.Cleared) != 12 ||
		stateOf(t, f, forge.CheckPlan) != forge.CheckSuccess {
		t.Fatalf("%+v", v)
	}
	listed := f.Plan.Holds[0]
	listed.Items = append(slices.Clone(listed.Items), fleet.ObjectKey{
		Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "one-more"})
	f.Plan.Holds = []mirror.Hold{listed}
	v := Decide(f)
	if len(v.Held) != 1 || len(v.Held[0].Items) != 1 || v.Held[0].Items[0].Name != "one-more" ||
		len(v.Cleared) != 12 {
		t.Errorf("%+v", v.Held)
	}
}

func TestWhoMayApproveDeletionsIsAskedEachTime(t *testing.T) {
	f, _ := purge(t)
	f.Record, _ = judged(f, bob, "/argosy approve-deletions "+string(head))
	for name, change := range map[string]func(f *Facts){
		"no longer an owner": func(f *Facts) {
			f.Owned[1].Owners = []Owner{{Name: "github:alice", People: []forge.Person{alice}}}
		},
		"held for the fleet instead": func(f *Facts) {
			f.Plan.Holds = []mirror.Hold{
				{Revision: head, Reason: mirror.HoldDeletions, Items: f.Plan.Holds[0].Items}}
		},
		"another head": func(f *Facts) { f.Record.Head = older },
	} {
		g := f
		report := *f.Plan
		g.Plan, g.Owned = &report, slices.Clone(f.Owned)
		change(&g)
		if v := Decide(g); len(v.Cleared) != 0 || len(v.Held) != 1 {
			t.Errorf("%s: %d are let go", name, len(v.Cleared))
		}
	}
}

func TestATenantsOwnerDoesNotLetAnothersDeletionsGo(t *testing.T) {
	f, _ := purge(t)
	f.Plan.Holds = append(f.Plan.Holds, mirror.Hold{Revision: head, Reason: mirror.HoldDeletions,
		Tenant: "globex", Items: []fleet.ObjectKey{{Name: "theirs"}}})
	after, reply := judged(f, bob, "/argosy approve-deletions "+string(head))
	if after.Cleared != nil || !strings.Contains(reply,
		"An owner of the platform or of tenant `globex` may.") {
		t.Error(reply)
	}
	if after, reply := judged(f, carol, "/argosy approve-deletions "+
		string(head)); after.Cleared == nil || len(after.Cleared.Deletions) != 13 {
		t.Error(reply)
	}
	f.Plan = nil
	if after, reply := judged(f, carol, "/argosy approve-deletions "+
		string(head)); after.Cleared != nil || !strings.Contains(reply, "too early") {
		t.Error(reply)
	}
}

func TestACommitOfTheQueueIsJudgedByItsPullRequests(t *testing.T) {
	f, _ := purge(t)
	cleared, _ := judged(f, bob, "/argosy approve-deletions "+string(head))
	f.Record = forge.PullRecord{Pull: forge.Pull{Base: "main", Head: merge}}
	f.Plan.Head = merge
	f.Plan.Holds[0].Revision = merge
	f.Queue = []forge.PullRecord{{Pull: forge.Pull{Number: 6, Head: older}}}
	if v := Decide(f); v.State != forge.CheckFailure ||
		find(t, v, forge.CheckOwners).State != forge.CheckSuccess || len(v.Ownership) != 0 {
		t.Errorf("%+v", v.Obstacles)
	}
	f.Queue = append(f.Queue, cleared)
	v := Decide(f)
	if v.State != forge.CheckSuccess || len(v.Cleared) != 12 {
		t.Errorf("%+v", v.Obstacles)
	}
	f.Queue[0].Held = &forge.Clearance{By: bob}
	if v := Decide(f); v.State != forge.CheckFailure {
		t.Error("one of them is held")
	}
}

func TestAChangeOfNothingPassesAtOnce(t *testing.T) {
	f, _ := planned(t, appliedFleet(), appliedFleet())
	v := Decide(f)
	if v.State != forge.CheckSuccess || len(v.Checks) != 3 || !v.Consented() ||
		v.Line != "Nothing that Argosy manages changes" {
		t.Errorf("%+v", v)
	}
	f.Record.Fork, f.Plan = true, nil
	if v := Decide(f); v.State != forge.CheckSuccess {
		t.Errorf("a fork's change of nothing: %+v", v.Obstacles)
	}
}

func TestALinkThatCouldActIsLeftOut(t *testing.T) {
	f, _ := bump(t)
	for link, shown := range map[string]bool{
		"https://argosy.example.com/pulls/7": true, "http://localhost:8080/pulls/7": true,
		"": false, "javascript:alert(1)": false,
		"https://a.example/) [x](https://evil.example": false, "https://a.example/<b>": false,
		"https://a.example/a b": false, "//a.example": false,
	} {
		f.Link = link
		if got := strings.Contains(Comment(f, Decide(f), MostComment),
			"[the whole plan]"); got != shown {
			t.Errorf("%q: %v", link, got)
		}
	}
}

func TestTheCommentShowsTheMovesOfADrain(t *testing.T) {
	f, _ := bump(t)
	prod := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	f.Plan.Drains = []report.Drain{{Engine: "eu-1", Churn: fleet.Churn{AtOnce: 2, PerHour: 30},
		Moves: []placement.Move{{Environment: prod, To: "eu-2", Applications: 3, Unready: 1}},
		Left: []placement.Left{{Environment: fleet.EnvironmentID{Tenant: "acme", Name: "edge"},
			Reason: "no engine may serve it"}}}}
	text := Comment(f, Decide(f), MostComment)
	for _, want := range []string{"**Drain of engine `eu-1`**: after the merge 1 environment " +
		"leaves it, at most 2 at once and 30 in an hour", "1. acme/prod to engine eu-2 (3 " +
		"Applications, 1 of them not Synced and Healthy)",
		"acme/edge stays: no engine may serve it"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
