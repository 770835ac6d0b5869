package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

var sweep = forge.Recheck{Kind: forge.RecheckAll}

func TestSweepAsksForWhatChanged(t *testing.T) {
	h := newHarbor(t)
	var pulls []*githubtest.Pull
	for range 3 {
		h.open(h.bob, nil)
		h.review()
		pulls = append(pulls, h.pullRequest)
	}
	h.reviewAll()
	pulls[1].Push()
	pulls[2].Close()
	h.open(h.bob, nil)
	if err := h.Recheck(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, l := range h.records.asked {
		got = append(got, l.Number)
	}
	slices.Sort(got)
	if want := []int{pulls[1].Number, pulls[2].Number, h.pullRequest.Number}; !slices.Equal(got,
		want) {
		t.Errorf("it asks for %v, not %v", got, want)
	}
}

func TestAGitHostThatRefusesFinishesNothing(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	before := h.record()
	h.server.Revoke(secret)
	if err := h.try(); err == nil {
		t.Error("a recheck without access is no error")
	}
	err := h.Recheck(t.Context(), sweep)
	if err == nil || strings.Contains(err.Error(), secret) || len(h.records.asked) != 0 {
		t.Errorf("a sweep without access: %v, it asks for %v", err, h.records.asked)
	}
	if got := h.record(); got.State != before.State || got.Finished {
		t.Errorf("state %q, finished %t", got.State, got.Finished)
	}
	if _, err := h.deletions(before.Head); err == nil {
		t.Error("what was reviewed is known without access")
	}
}

func TestMergeQueue(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	head := strings.Repeat("c", 40)
	group := forge.Recheck{Kind: forge.RecheckGroup, Head: fleet.Revision(head),
		Ref: "refs/heads/gh-readonly-queue/main/pr-1-" + head}
	planned := h.planner.previews
	if err := h.Recheck(t.Context(), group); err != nil || len(h.repo.Statuses(head)) != 0 ||
		h.planner.previews != planned {
		t.Fatalf("no owner has agreed: %v, %v", err, h.repo.Statuses(head))
	}
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	if err := h.Recheck(t.Context(), group); err != nil || len(h.repo.Statuses(head)) != 3 {
		t.Errorf("%v, %v", err, h.repo.Statuses(head))
	}
}

// A commit of the queue holds what the approved pull requests before it show, and not a byte more.
func TestMergeQueueCommitWithUnapprovedContentFails(t *testing.T) {
	const file, other = "tenants/acme/deployments/checkout.yaml", "fleet/tenants/acme.yaml"
	head := strings.Repeat("c", 40)
	group := forge.Recheck{Kind: forge.RecheckGroup, Head: fleet.Revision(head),
		Ref: "refs/heads/gh-readonly-queue/main/pr-1-" + head}
	for name, c := range map[string]struct {
		shown  map[string]string
		change func(h *harbor)
		want   string
	}{
		"what was approved":         {map[string]string{file: "b1"}, nil, "success"},
		"another file":              {map[string]string{file: "b1", other: "x"}, nil, "failure"},
		"other content":             {map[string]string{file: "b2"}, nil, "failure"},
		"a removal that none shows": {map[string]string{file: ""}, nil, "failure"},
		"nothing of it":             {map[string]string{}, nil, "success"},
		// the plan is pending
		"the branch is not applied": {map[string]string{other: "x"}, func(h *harbor) {
			h.planner.answer.Behind = true
		}, "success"},
		"another approved one has it": {map[string]string{file: "b1", other: "x"}, func(h *harbor) {
			h.also(2, forge.PullOpen, other)
		}, "success"},
		"one that is merged has it": {map[string]string{file: "b1", other: "x"}, func(h *harbor) {
			h.also(2, forge.PullMerged, other)
		}, "success"},
		"one that was closed had it": {map[string]string{file: "b1", other: "x"}, func(h *harbor) {
			h.also(2, forge.PullClosed, other)
		}, "failure"},
		"one with a newer head had it": {map[string]string{file: "b1", other: "x"},
			func(h *harbor) {
				h.also(2, forge.PullOpen, other)
				r := h.records.pulls[2]
				r.Head = "new"
				h.records.pulls[2] = r
			}, "failure"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarbor(t)
			h.open(h.bob, nil)
			h.review()
			h.pullRequest.Review(h.alice, "APPROVED")
			h.review()
			if got := h.record(); got.Shown[file] != "b1" || len(got.Shown) != 1 {
				t.Fatalf("shown: %v", got.Shown)
			}
			h.planner.answer.Shown = c.shown
			if c.change != nil {
				c.change(h)
			}
			if err := h.Recheck(t.Context(), group); err != nil {
				t.Fatal(err)
			}
			if got := h.repo.Statuses(head)[forge.CheckOwners]; got.State != c.want ||
				c.want == "failure" && !strings.Contains(got.Description, "no owner approved") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// also is another pull request with an approved head that shows the file.
func (h *harbor) also(number int, state forge.PullState, path string) {
	h.records.pulls[number] = forge.PullRecord{
		Pull: forge.Pull{Number: number, State: state, Head: "h2"}, Consented: "h2",
		Shown: map[string]string{path: "x"}}
}

// The head has a file of globex as main has it by now. Once globex takes it back, a merge brings it
// again: so globex is asked, and waked.
func TestContentThatTheBranchHasTooStaysBoundToItsTenant(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.planner.answer.Shown["tenants/globex/deployments/web.yaml"] = "v1"
	h.review()
	if got := h.record().Tenants; !slices.Equal(got, []fleet.TenantName{"acme", "globex"}) {
		t.Fatalf("bound to %v", got)
	}
	if text := h.comment(); !strings.Contains(text, "for tenant `globex`") ||
		!strings.Contains(text, "tenants/globex/deployments/web.yaml") ||
		!strings.Contains(text, "rebase onto `main`") {
		t.Error(text)
	}
	h.records.asked = nil
	h.changed("globex")
	if got := numbers(h.records.asked); !slices.Equal(got, []int{1}) {
		t.Errorf("globex changes, and it asks for %v", got)
	}
}

func TestMergedIsFollowedForADay(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Merge(1)
	h.review()
	if got := h.record(); got.Finished || got.FollowedAt == nil || got.State != forge.PullMerged {
		t.Fatalf("just merged: %+v", got)
	}
	h.now = h.now.Add(24*time.Hour + time.Second)
	h.review()
	if got := h.record(); !got.Finished || len(h.ours()) != 1 {
		t.Errorf("a day later: %+v, %q", got, h.ours())
	}
	before := h.writes()
	h.review()
	if h.writes() != before || !h.record().Finished {
		t.Error("a closed case is reported again")
	}
}

func TestClearedDeletionsAreThoseOfTheHead(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	merge := fleet.Revision(h.pullRequest.Merge(1)[0])
	r := h.record()
	for name, c := range map[string]struct {
		head fleet.Revision
		keys []fleet.ObjectKey
		want bool
	}{
		"at the head":     {r.Head, []fleet.ObjectKey{checkout}, true},
		"at another head": {merge, []fleet.ObjectKey{checkout}, false},
		"of something else": {
			r.Head, []fleet.ObjectKey{
				{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "other"}}, false},
		"of nothing by name": {r.Head, nil, false},
	} {
		r.Cleared = &forge.Clearance{By: forge.Person{ID: h.alice.ID, Login: "alice"}, Head: c.head,
			Deletions: c.keys}
		h.records.pulls[r.Number] = r
		got, err := h.deletions(merge)
		if d, ok := got[checkout]; err != nil || !ok || d.Approved != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// GitHub never delivers again by itself: a resync requests lost deliveries until they arrive.
func TestSweepAsksForLostDeliveries(t *testing.T) {
	for _, asApp := range []bool{false, true} {
		t.Run(fmt.Sprintf("as an App %t", asApp), func(t *testing.T) {
			h := harborOf(t, asApp)
			h.now = h.server.Clock()
			h.hook.Try("arrived", http.StatusAccepted, h.repo.ID)
			h.hook.Try("lost", http.StatusServiceUnavailable, h.repo.ID)
			h.hook.Try("another's", http.StatusServiceUnavailable, h.repo.ID+1)
			var again []string
			status := http.StatusServiceUnavailable
			h.hook.Deliver = func(guid string) int { again = append(again, guid); return status }
			for _, want := range [][]string{{"lost"}, {"lost", "lost"}, {"lost", "lost"}} {
				h.now = h.server.Clock().Add(time.Second)
				if err := h.Recheck(t.Context(), sweep); err != nil || !slices.Equal(again, want) {
					t.Fatalf("%v; it has asked for %q, not %q", err, again, want)
				}
				status = http.StatusAccepted
			}
		})
	}
}

// A resync works without a list of deliveries.
func TestSweepWithoutAListOfDeliveries(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.server.Break("GET /repos/acme/fleet/hooks", githubtest.Reply(http.StatusForbidden,
		"Resource not accessible"))
	if err := h.Recheck(t.Context(), sweep); err != nil || len(h.records.asked) != 1 {
		t.Errorf("%v; it asks for %v", err, h.records.asked)
	}
}

func TestSweepOfASuspendedApp(t *testing.T) {
	h := harborOf(t, true)
	h.open(h.bob, nil)
	h.review()
	before := h.record()
	h.app.Suspend()
	for what, err := range map[string]error{"a sweep": h.Recheck(t.Context(), sweep),
		"a look": h.try(), "a re-run": h.again()} {
		if err == nil || !strings.Contains(err.Error(), "suspended") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := h.record(); len(h.records.asked) != 0 || got.Finished ||
		got.State != forge.PullOpen ||
		got.Marked != before.Marked {
		t.Errorf("it asks for %v, and keeps %+v", h.records.asked, got)
	}
}

// A pull request that was merged as several commits counts only once its last commit is in the
// span.
func TestMergeOutsideTheSpan(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	merged := h.pullRequest.Merge(2)
	first, last := fleet.Revision(merged[0]), fleet.Revision(merged[1])
	if got, err := h.deletions(first); err != nil || len(got) != 0 {
		t.Errorf("of the first alone: %v, %v", got, err)
	}
	if got, err := h.deletions(first, last); err != nil || len(got) != 1 {
		t.Errorf("of both: %v, %v", got, err)
	}
	h.pullRequest.Base = "release"
	if got, err := h.deletions(first, last); err != nil || len(got) != 0 {
		t.Errorf("of one that was merged elsewhere: %v, %v", got, err)
	}
}
