package webhook_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/reconciler/plan/reviews"
	"argosy.dev/argosy/webhook"
	"argosy.dev/argosy/webhook/github/githubtest"
)

type contents = map[string]string

func commit(id fleet.Revision, changed contents) reviews.Commit {
	return reviews.Commit{ID: id, Changed: changed}
}

func (h *harbor) paths(commits ...reviews.Commit) contents {
	h.Helper()
	seen, err := h.Reviewed(h.Context(), "base", commits)
	if err != nil {
		h.Fatal(err)
	}
	return seen.Paths
}

const file, victim = "tenants/acme/deployments/checkout.yaml", "fleet/tenants/evil.yaml"

func TestOnlyFilesThatTheMergedHeadShowedAreReviewed(t *testing.T) {
	h := newHarbor(t)
	h.planner.answer.Shown = contents{file: "2"}
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	merge := fleet.Revision(h.pullRequest.Merge(1)[0])
	brought := commit(merge, contents{file: "2", victim: "bad"})
	if d := cmp.Diff(contents{file: "2"}, h.paths(brought)); d != "" {
		t.Error(d)
	}
	if got := h.paths(commit(merge, contents{file: "3"})); len(got) != 0 {
		t.Errorf("other content than the head showed: %v", got)
	}
	r := h.record()
	r.Consented, r.Shown = fleet.Revision(fmt.Sprintf("%040x", 7)), contents{file: "2"}
	r.ShownAt = r.Consented
	h.records.pulls[r.Number] = r
	if got := h.paths(brought); len(got) != 0 {
		t.Errorf("consent at another head: %v", got)
	}
}

func TestAMergeWithoutConsentShowsNothing(t *testing.T) {
	h := newHarbor(t)
	h.planner.answer.Shown = contents{file: "2"}
	h.open(h.bob, nil)
	h.review()
	merge := fleet.Revision(h.pullRequest.Merge(1)[0])
	if got := h.paths(commit(merge, contents{file: "2"})); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestDirectPushesCountForListedAccountsOnly(t *testing.T) {
	const base, first, second = fleet.Revision("base"),
		fleet.Revision("1111111111111111111111111111111111111111"),
		fleet.Revision("2222222222222222222222222222222222222222")
	line := []reviews.Commit{commit(first, contents{file: "1"}),
		commit(second, contents{victim: "2"})}
	for name, c := range map[string]struct {
		push func(h *harbor) forge.Push
		want contents
	}{
		"a listed account": {
			func(h *harbor) forge.Push {
				return forge.Push{Before: base, After: second, By: h.person(h.alice)}
			}, contents{file: "1", victim: "2"}},
		"a part of it": {
			func(h *harbor) forge.Push {
				return forge.Push{Before: first, After: second, By: h.person(h.alice)}
			}, contents{victim: "2"}},
		"a pinned account": {
			func(h *harbor) forge.Push {
				return forge.Push{Before: base, After: second, By: forge.Person{ID: 4711}}
			}, contents{file: "1", victim: "2"}},
		"another account": {
			func(h *harbor) forge.Push {
				return forge.Push{Before: base, After: second, By: h.person(h.bob)}
			}, contents{}},
		"another account that bears the login": {func(h *harbor) forge.Push {
			return forge.Push{Before: base, After: second, By: forge.Person{ID: h.alice.ID + 1000,
				Login: "alice"}}
		}, contents{}},
		"from elsewhere": {
			func(h *harbor) forge.Push {
				return forge.Push{Before: "else", After: second, By: h.person(h.alice)}
			}, contents{}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarbor(t)
			h.DirectPush = []string{"github:alice", "github:carol#4711"}
			push := c.push(h)
			push.At = h.now.Add(-time.Minute)
			h.records.pushes = []forge.Push{push}
			if d := cmp.Diff(c.want, h.paths(line...)); d != "" {
				t.Error(d)
			}
			h.DirectPush = nil
			if got := h.paths(line...); len(got) != 0 {
				t.Errorf("though no account is listed: %v", got)
			}
		})
	}
}

// A click on "merge" pushes the merge commit, and reviews none of its files.
func TestAMergeByAListedAccountIsNoDirectPush(t *testing.T) {
	h := newHarbor(t)
	h.DirectPush = []string{"github:alice"}
	h.open(h.bob, nil)
	h.review()
	merged := h.pullRequest.Merge(2)
	first, last := fleet.Revision(merged[0]), fleet.Revision(merged[1])
	h.records.pushes = []forge.Push{{Before: "base", After: last, By: h.person(h.alice),
		At: h.now.Add(-time.Minute)}}
	if got := h.paths(commit(first, contents{victim: "bad"}),
		commit(last, contents{file: "2"})); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestAYoungPushIsNotKnownToBeADirectOne(t *testing.T) {
	h := newHarbor(t)
	h.DirectPush = []string{"github:alice"}
	const pushed = fleet.Revision("1111111111111111111111111111111111111111")
	h.records.pushes = []forge.Push{{Before: "base", After: pushed, By: h.person(h.alice),
		At: h.now}}
	seen, err := h.Reviewed(t.Context(), "base", []reviews.Commit{
		commit(pushed, contents{file: "1"})})
	if err == nil || len(seen.Paths) != 0 {
		t.Errorf("%v, %v", seen.Paths, err)
	}
}

// Known reviews count although others are unknown.
func TestWhatIsKnownOfASpanCountsWhileTheRestIsNot(t *testing.T) {
	h := newHarbor(t)
	h.planner.answer.Shown = contents{file: "2"}
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	merge := fleet.Revision(h.pullRequest.Merge(1)[0])
	const other = fleet.Revision("1111111111111111111111111111111111111111")
	h.server.Break("GET /repos/acme/fleet/commits/"+string(other)+"/pulls",
		githubtest.Reply(http.StatusBadGateway, "away"))
	seen, err := h.Reviewed(t.Context(), "base", []reviews.Commit{
		commit(other, contents{victim: "1"}), commit(merge, contents{file: "2"})})
	if d := cmp.Diff(contents{file: "2"}, seen.Paths); d != "" || err == nil {
		t.Errorf("%v %s", err, d)
	}
}

func TestPushIsBelievedOnlyFromThisRepositoryAndOneAccount(t *testing.T) {
	const a, b = "1111111111111111111111111111111111111111",
		"2222222222222222222222222222222222222222"
	payload := func(ref, after string, repository int, sender, pusher string) []byte {
		return fmt.Appendf(nil,
			`{"ref":%q,"before":%q,"after":%q,"repository":{"id":%d},"sender":%s,"pusher":%s}`, ref,
			a, after, repository, sender, pusher)
	}
	const alice = `{"id":7,"login":"alice"}`
	want := &forge.Push{Before: a, After: b, By: forge.Person{ID: 7, Login: "alice"}}
	for name, c := range map[string]struct {
		event string
		body  []byte
		repo  int64
		want  *forge.Push
	}{
		"GitHub's": {
			"push", payload("refs/heads/main", b, 5, alice, `{"name":"alice","email":"x"}`), 5,
			want},
		"Gitea's":               {"push", payload("refs/heads/main", b, 5, alice, alice), 5, want},
		"another branch":        {"push", payload("refs/heads/other", b, 5, alice, alice), 5, nil},
		"another repository":    {"push", payload("refs/heads/main", b, 6, alice, alice), 5, nil},
		"an unknown repository": {"push", payload("refs/heads/main", b, 5, alice, alice), 0, nil},
		"another event": {"create", payload("refs/heads/main", b, 5, alice, alice), 5,
			nil},
		"no commit": {"push", payload("refs/heads/main", "2222", 5, alice, alice), 5,
			nil},
		"a deploy key": {
			"push", payload("refs/heads/main", b, 5, alice, `{"name":"acme"}`), 5, nil},
		"no sender": {"push", payload("refs/heads/main", b, 5, "null", alice), 5, nil},
		"a sender without an id": {"push", payload("refs/heads/main", b, 5, `{"login":"alice"}`,
			alice), 5, nil},
		"no pusher":   {"push", payload("refs/heads/main", b, 5, alice, "null"), 5, nil},
		"other types": {"push", []byte(`{"ref":7}`), 5, nil},
	} {
		asks, err := webhook.Parse(c.event, c.body, "main", c.repo)
		if d := cmp.Diff(c.want, asks.Push); d != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
}

func (h *harbor) person(a *githubtest.Account) forge.Person {
	return forge.Person{ID: a.ID, Login: a.Login}
}

// A pull request of two tenants that is merged with the approval of one: the files of that one were
// agreed to, and no others.
func TestAnApprovalOfOneTenantIsForItsFilesAlone(t *testing.T) {
	const theirs = "tenants/globex/deployments/web.yaml"
	h := newHarbor(t)
	h.server.User("gus")
	h.planner.answer.Files = []string{victim, file, theirs}
	h.planner.answer.Shown = contents{file: "2", theirs: "2", victim: "2"}
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	if got := h.record(); got.Consented != "" || h.state(forge.CheckOwners) == "success" {
		t.Errorf("one of three owners is enough: %+v", got)
	}
	merge := fleet.Revision(h.pullRequest.Merge(1)[0])
	brought := commit(merge, contents{file: "2", theirs: "2", victim: "2"})
	if d := cmp.Diff(contents{file: "2"}, h.paths(brought)); d != "" {
		t.Error(d)
	}
	if seen, err := h.deletions(merge); err != nil || len(seen) > 0 {
		t.Errorf("deletions count as reviewed: %v (%v)", seen, err)
	}
}

// Between the push of a merge and the Git host's word that it is one, a review finds nothing left
// to merge. It keeps what the owners agreed to.
func TestAPushedMergeKeepsWhatWasAgreed(t *testing.T) {
	h := newHarbor(t)
	h.planner.answer.Shown = contents{file: "2"}
	h.open(h.bob, nil)
	h.review()
	h.pullRequest.Review(h.alice, "APPROVED")
	h.review()
	before := h.record()

	planned := h.planner.answer
	h.planner.answer.Files, h.planner.answer.Shown, h.planner.answer.Effects = nil, nil, nil
	h.review()
	if d := cmp.Diff(before, h.record()); d != "" {
		t.Error(d)
	}
	merge := fleet.Revision(h.pullRequest.Merge(1)[0])
	if d := cmp.Diff(contents{file: "2"}, h.paths(commit(merge, contents{file: "2"}))); d != "" {
		t.Error(d)
	}
	if seen, err := h.deletions(merge); err != nil || len(seen) != len(planned.Effects) {
		t.Errorf("the deletions that count as reviewed are %v (%v)", seen, err)
	}
}

// The version before kept what was agreed to without naming the head.
func TestFilesThatTheVersionBeforeKeptCountAtTheConsentedHead(t *testing.T) {
	r := forge.PullRecord{Pull: forge.Pull{Head: "h2"}, Consented: "h1", Shown: contents{file: "2"}}
	if r.Agreed("h1")[file] != "2" || r.Agreed("h2") != nil ||
		(forge.PullRecord{Shown: r.Shown}).Agreed("") != nil {
		t.Errorf("agreed to are %v and %v", r.Agreed("h1"), r.Agreed("h2"))
	}
}

// A merge queue makes the commits of a group itself, each the merge of one pull request on those
// before it. Each commit is compared with its own pull request: changes that the queue or another
// account added to it are unreviewed.
func TestCommitsOfAMergeQueueAreHeldAgainstTheirPullRequests(t *testing.T) {
	h := newHarbor(t)
	second := "tenants/acme/deployments/cart.yaml"
	merge := func(shown contents, approve bool) fleet.Revision {
		h.planner.answer.Shown = shown
		h.open(h.bob, nil)
		h.review()
		if approve {
			h.pullRequest.Review(h.alice, "APPROVED")
			h.review()
		}
		// as the queue merges: the pull request names the commit of its group
		return fleet.Revision(h.pullRequest.Merge(1)[0])
	}
	first := merge(contents{file: "2"}, true)
	next := merge(contents{second: "2"}, true)
	last := merge(contents{second: "3"}, false) // "head only" lets it through among others
	if d := cmp.Diff(contents{file: "2", second: "2"}, h.paths(commit(first, contents{file: "2"}),
		commit(next, contents{second: "2"}))); d != "" {
		t.Errorf("two of one group: %s", d)
	}
	got := h.paths(commit(first, contents{file: "2"}),
		commit(next, contents{second: "2", victim: "bad"}), commit(last, contents{second: "3"}))
	if d := cmp.Diff(contents{file: "2"}, got); d != "" {
		t.Errorf("unapproved content is let in: %s", d)
	}
}
