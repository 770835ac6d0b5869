package webhook_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/webhook/github/githubtest"
)

var sweep = fleet.Look{Kind: fleet.LookSweep}

func TestSweepAsksForWhatChanged(t *testing.T) {
	h := newHarbor(t)
	var pulls []*githubtest.Pull
	for range 3 {
		h.open(h.bob, nil)
		h.look()
		pulls = append(pulls, h.pullRequest)
	}
	pulls[1].Push()
	pulls[2].Close()
	h.open(h.bob, nil)
	if err := h.Look(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, l := range h.records.asked {
		got = append(got, l.Number)
	}
	slices.Sort(got)
	if want := []int{pulls[1].Number, pulls[2].Number, h.pullRequest.Number}; !slices.Equal(got, want) {
		t.Errorf("it asks for %v, not %v", got, want)
	}
}

func TestForgeThatRefusesSettlesNothing(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.look()
	before := h.record()
	h.server.Revoke(secret)
	if err := h.try(); err == nil {
		t.Error("a look without access is no error")
	}
	err := h.Look(t.Context(), sweep)
	if err == nil || strings.Contains(err.Error(), secret) || len(h.records.asked) != 0 {
		t.Errorf("a sweep without access: %v, it asks for %v", err, h.records.asked)
	}
	if got := h.record(); got.State != before.State || got.Settled {
		t.Errorf("state %q, settled %t", got.State, got.Settled)
	}
	if _, err := h.Reviewed(t.Context(), []fleet.Revision{before.Head}); err == nil {
		t.Error("what was reviewed is known without access")
	}
}

func TestMergeQueue(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.look()
	head := strings.Repeat("c", 40)
	group := fleet.Look{Kind: fleet.LookGroup, Head: fleet.Revision(head), Ref: "refs/heads/gh-readonly-queue/main/pr-1-" + head}
	planned := h.planner.previews
	if err := h.Look(t.Context(), group); err != nil || len(h.repo.Statuses(head)) != 0 || h.planner.previews != planned {
		t.Fatalf("nobody has agreed: %v, %v", err, h.repo.Statuses(head))
	}
	h.pullRequest.Review(h.alice, "APPROVED")
	h.look()
	if err := h.Look(t.Context(), group); err != nil || len(h.repo.Statuses(head)) != 3 {
		t.Errorf("%v, %v", err, h.repo.Statuses(head))
	}
}

func TestMergedIsFollowedForADay(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.look()
	h.pullRequest.Merge(1)
	h.look()
	if got := h.record(); got.Settled || got.FollowedAt == nil || got.State != fleet.PullMerged {
		t.Fatalf("just merged: %+v", got)
	}
	h.now = h.now.Add(24*time.Hour + time.Second)
	h.look()
	if got := h.record(); !got.Settled || len(h.ours()) != 1 {
		t.Errorf("a day later: %+v, %q", got, h.ours())
	}
	before := h.writes()
	h.look()
	if h.writes() != before || !h.record().Settled {
		t.Error("what is settled is told of again")
	}
}

func TestClearedDeletionsAreThoseOfTheHead(t *testing.T) {
	h := newHarbor(t)
	h.open(h.bob, nil)
	h.pullRequest.Review(h.alice, "APPROVED")
	h.look()
	merge := fleet.Revision(h.pullRequest.Merge(1)[0])
	r := h.record()
	for name, c := range map[string]struct {
		head fleet.Revision
		keys []fleet.ObjectKey
		want bool
	}{
		"at the head":        {r.Head, []fleet.ObjectKey{checkout}, true},
		"at another head":    {merge, []fleet.ObjectKey{checkout}, false},
		"of something else":  {r.Head, []fleet.ObjectKey{{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "other"}}, false},
		"of nothing by name": {r.Head, nil, false},
	} {
		r.Cleared = &fleet.Clearance{By: fleet.Person{ID: h.alice.ID, Login: "alice"}, Head: c.head, Deletions: c.keys}
		h.records.pulls[r.Number] = r
		got, err := h.Reviewed(t.Context(), []fleet.Revision{merge})
		if d, ok := got[checkout]; err != nil || !ok || d.Approved != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
