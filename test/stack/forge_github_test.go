package stack_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/test/stack"
)

// status sends the request and returns the status of the forge's answer.
func (w town) status(t *testing.T, as stack.Account, method, path string) int {
	t.Helper()
	err := w.Call(t.Context(), as, method, path, nil, nil)
	if answer := (*stack.ForgeError)(nil); errors.As(err, &answer) {
		return answer.Status
	}
	ok(t, err)
	return http.StatusOK
}

// read asks and decodes what comes as it is.
func read[T any](t *testing.T, w town, as stack.Account, path string) (out T) {
	t.Helper()
	ok(t, w.Call(t.Context(), as, http.MethodGet, path, nil, &out))
	return out
}

type object = map[string]any

// TestForgeAndGitHub checks the differences that the doc comment of Forge lists, so that code for
// both can rely on them.
func TestForgeAndGitHub(t *testing.T) {
	w := newTown(t)
	team := must(w.CreateTeam(t.Context(), "acme", "leads", "write", w.alice))(t)

	t.Run("what is not there", func(t *testing.T) {
		_, head := w.open(t, w.alice, "absent")
		for path, want := range map[string]int{
			"repos/acme/config/commits/" + head + "/check-runs":   404,
			"repos/acme/config/commits/" + head + "/check-suites": 404,
			"repos/acme/config/hooks/1/deliveries":                404,
			"repos/acme/config/commits/" + head + "/pulls":        404,
			"repos/acme/config/commits/" + head + "/pull":         404, // is not merged
			"orgs/acme/teams/leads":                               404,
			"orgs/acme/teams/leads/members":                       404,
			"user/1":                                              404,
			"rate_limit":                                          404,
			"app":                                                 404,
			fmt.Sprintf("teams/%d/members", team):                 200,
			"orgs/acme/teams":                                     200,
			"repositories/" + fmt.Sprint(w.repo.ID):               200,
			"orgs/acme/teams/search?q=leads":                      200,
			"users/alice":                                         200,
			"users/acme":                                          200, // an organization
		} {
			if got := w.status(t, w.Admin, http.MethodGet, path); got != want {
				t.Errorf("GET %s: %d, want %d", path, got, want)
			}
		}
	})
	t.Run("who may read the members of a team", func(t *testing.T) {
		other := must(w.CreateTeam(t.Context(), "acme", "others", "read", w.bob))(t)
		for a, want := range map[*stack.Account]int{&w.alice: 200, &w.bob: 403, &w.eve: 404,
			&w.Admin: 200} {
			if got := w.status(t, *a, http.MethodGet, fmt.Sprintf("teams/%d/members",
				team)); got != want {
				t.Errorf("%s: %d, want %d", a.Login, got, want)
			}
		}
		ok(t, w.LeaveTeam(t.Context(), other, w.bob))
	})
	t.Run("which pull request a commit came by", func(t *testing.T) { w.testCommitPull(t) })
	t.Run("commit statuses", func(t *testing.T) { w.testStatusWords(t) })
	t.Run("reviews", func(t *testing.T) { w.testReviewWords(t) })
	t.Run("permissions", func(t *testing.T) { w.testPermissionWords(t) })
	t.Run("refs of pull requests", func(t *testing.T) { w.testPullRefs(t) })
	t.Run("deliveries", func(t *testing.T) { w.testDeliveryWords(t) })
	t.Run("pages of lists", func(t *testing.T) { w.testPages(t) })
	t.Run("edits of comments", func(t *testing.T) { w.testEdits(t) })
}

func (w town) testCommitPull(t *testing.T) {
	number, first := w.open(t, w.alice, "by-rebase")
	other, head := w.open(t, w.alice, "by-merge")
	merged := must(w.repo.Merge(t.Context(), w.bob, other, "merge"))(t)
	rebased := must(w.repo.Merge(t.Context(), w.bob, number, "rebase"))(t)
	for commit, want := range map[string]int{merged: other, rebased: number, head: 0, first: 0} {
		path := "repos/acme/config/commits/" + commit + "/pull"
		if want == 0 {
			if got := w.status(t, w.bob, http.MethodGet, path); got != http.StatusNotFound {
				t.Errorf("a commit that a pull request brought along: %d", got)
			}
		} else if got := read[object](t, w, w.bob, path); got["number"] != float64(want) {
			t.Errorf("%s came by %v, want %d", commit, got["number"], want)
		}
	}
}

func (w town) testStatusWords(t *testing.T) {
	_, head := w.open(t, w.alice, "words")
	for _, step := range []struct{ context, state, combined string }{
		{"a", "pending", "pending"}, {"a", "success", "success"}, {"b", "warning", "failure"},
		{"c", "odd", "failure"},
	} {
		ok(t, w.repo.SetStatus(t.Context(), w.bob, head, stack.ForgeStatus{Context: step.context,
			State: step.state, Description: strings.Repeat("x", 1000)}))
		got := read[object](t, w, w.bob, "repos/acme/config/commits/"+head+"/status")
		if got["state"] != step.combined {
			t.Errorf("with %s %s all of them are %v, want %s", step.context, step.state,
				got["state"], step.combined)
		}
		newest := got["statuses"].([]any)[0].(object)
		for _, s := range got["statuses"].([]any) {
			if s.(object)["context"] == step.context {
				newest = s.(object)
			}
		}
		if newest["status"] != step.state || newest["state"] != nil ||
			len(newest["description"].(string)) != 1000 {
			t.Errorf("the newest of %s is %v", step.context, newest)
		}
	}
}

func (w town) testReviewWords(t *testing.T) {
	number, head := w.open(t, w.alice, "reviewed")
	review := func(as stack.Account, verdict, commit string) int64 {
		t.Helper()
		return must(w.repo.Review(t.Context(), as, number, verdict, commit, "text"))(t)
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if got := w.reviews(t, number); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	_, err := w.repo.Review(t.Context(), w.alice, number, stack.Approve, head, "mine")
	refused(t, err, http.StatusUnprocessableEntity)
	ok(t, w.repo.Allow(t.Context(), w.eve, "read"))
	defer func() { ok(t, w.repo.Allow(t.Context(), w.eve, "")) }()
	no := review(w.bob, stack.RequestChanges, head)
	ok(t, w.repo.DismissReview(t.Context(), w.Admin, number, no))
	// A dismissal leaves the review official; a later one by the same person does not.
	expect("dismissed by an admin", "bob REQUEST_CHANGES official dismissed head")
	review(w.bob, stack.Approve, "")
	review(w.bob, stack.OnlyComment, "")
	expect("what decides is official when its author may write",
		"bob REQUEST_CHANGES dismissed head", "bob APPROVED official head", "bob COMMENT head")
	review(w.bob, stack.RequestChanges, head)
	review(w.eve, stack.Approve, "")
	expect("a later word of the same person dismisses the earlier",
		"bob REQUEST_CHANGES dismissed head", "bob APPROVED dismissed head", "bob COMMENT head",
		"bob REQUEST_CHANGES official head", "eve APPROVED head")
	now := must(w.repo.Push(t.Context(), w.alice, stack.Change{Branch: "reviewed", Message: "more",
		Write: map[string]string{"more": ""}}))(t)
	eventually(t, "the head has moved and made the reviews stale", func() bool {
		return must(w.repo.Pull(t.Context(), number))(t).Head.SHA == now &&
			slices.Contains(w.reviews(t, number), "eve APPROVED stale")
	})
	review(w.eve, stack.Approve, "")
	review(w.eve, stack.Approve, head)
	if got := w.reviews(t, number); !slices.Equal(got[4:], []string{"eve APPROVED stale dismissed",
		"eve APPROVED dismissed head", "eve APPROVED stale"}) {
		t.Errorf("an approval of the old head after one of the new: %q", got)
	}
}

// reviews are one line each, oldest first.
func (w town) reviews(t *testing.T, number int) (lines []string) {
	t.Helper()
	head := must(w.repo.Pull(t.Context(), number))(t).Head.SHA
	for _, r := range must(w.repo.Reviews(t.Context(), number))(t) {
		line := r.User.Login + " " + r.State
		for _, flag := range []struct {
			name string
			set  bool
		}{{" stale", r.Stale}, {" official", r.Official}, {" dismissed", r.Dismissed},
			{" head", r.Commit == head}} {
			if flag.set {
				line += flag.name
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (w town) testPermissionWords(t *testing.T) {
	for a, want := range map[*stack.Account]string{&w.Admin: "owner", &w.alice: "write",
		&w.eve: "none"} {
		got := read[object](t, w, w.Admin, "repos/acme/config/collaborators/"+a.Login+"/permission")
		if got["permission"] != want || got["user"].(object)["id"] != float64(a.ID) {
			t.Errorf("%s: %v, want %s", a.Login, got, want)
		}
	}
	if got := w.status(t, w.alice, http.MethodGet,
		"repos/acme/config/collaborators/bob/permission"); got != http.StatusForbidden {
		t.Errorf("a writer asks for another's: %d", got)
	}
	if got := w.status(t, w.Admin, http.MethodGet,
		"repos/acme/config/collaborators/nobody/permission"); got != http.StatusNotFound {
		t.Errorf("of an unknown account: %d", got)
	}
}

func (w town) testPullRefs(t *testing.T) {
	number, head := w.open(t, w.alice, "refs")
	out := mustGit(t, t.TempDir(), "ls-remote", w.repo.CloneURL(w.bob),
		fmt.Sprintf("refs/pull/%d/*", number))
	if out != fmt.Sprintf("%s\trefs/pull/%d/head", head, number) {
		t.Error(out)
	}
	dir := t.TempDir()
	mustGit(t, dir, "init", "--quiet")
	mustGit(t, dir, "fetch", "--quiet", "--depth=1", w.repo.CloneURL(w.bob),
		fmt.Sprintf("refs/pull/%d/head", number))
	if got := mustGit(t, dir, "rev-parse", "FETCH_HEAD"); got != head {
		t.Errorf("fetched %s, want %s", got, head)
	}
}

// content is the content of a delivery.
type content struct {
	Event, Action string
	Pull, Issue   int  // numbers, of pull_request and issue
	OfPull        bool // the issue is marked as a pull request
	Context, SHA  string
}

func contentOf(t *testing.T, d delivery) content {
	t.Helper()
	var body struct {
		Action, SHA, Context string
		PullRequest          struct{ Number int } `json:"pull_request"`
		Issue                struct {
			Number      int
			PullRequest *json.RawMessage `json:"pull_request"`
		}
	}
	ok(t, json.Unmarshal(d.Body, &body))
	return content{d.Event, body.Action, body.PullRequest.Number, body.Issue.Number,
		body.Issue.PullRequest != nil, body.Context, body.SHA}
}

func (w town) testDeliveryWords(t *testing.T) {
	number, head := w.open(t, w.alice, "told")
	url, next := receiver(t)
	ok(t, w.repo.CreateHook(t.Context(), url, "s", "push", "pull_request", "pull_request_review",
		"status", "issue_comment"))
	review := func(verdict string) func() error {
		return func() error {
			_, err := w.repo.Review(t.Context(), w.bob, number, verdict, head,
				"text")
			return err
		}
	}
	var comment, no int64
	for _, step := range []struct {
		what string
		do   func() error
		// in this order; a test without a delivery comes before a test with one
		want []content
	}{
		{"approval", review(stack.Approve),
			[]content{{Event: "pull_request_approved", Action: "reviewed", Pull: number}}},
		{"rejection", func() (err error) {
			no, err = w.repo.Review(t.Context(), w.bob, number, stack.RequestChanges, head, "text")
			return err
		}, []content{{Event: "pull_request_rejected", Action: "reviewed", Pull: number}}},
		{"dismissal", func() error {
			return w.repo.DismissReview(t.Context(), w.Admin, number,
				no)
		}, nil},
		{"review without a decision", review(stack.OnlyComment),
			[]content{{Event: "pull_request_comment", Action: "reviewed", Pull: number}}},
		{"comment", func() (err error) {
			comment, err = w.repo.Comment(t.Context(), w.bob, number,
				"hello")
			return err
		},
			[]content{{Event: "issue_comment", Action: "created", Pull: number, Issue: number,
				OfPull: true}}},
		{"comment edited", func() error {
			return w.repo.EditComment(t.Context(), w.bob, comment,
				"hello again")
		},
			[]content{{Event: "issue_comment", Action: "edited", Pull: number, Issue: number,
				OfPull: true}}},
		{"status", func() error {
			return w.repo.SetStatus(t.Context(), w.bob, head, stack.ForgeStatus{
				Context: "argosy/plan", State: "success"})
		},
			[]content{{Event: "status", Context: "argosy/plan", SHA: head}}},
		{"draft", func() error {
			err := w.repo.EditTitle(t.Context(), w.alice, number, "WIP: told")
			if p := must(w.repo.Pull(t.Context(), number))(t); !p.Draft {
				t.Errorf("with WIP: in its title it is no draft: %+v", p)
			}
			return err
		}, []content{{Event: "pull_request", Action: "edited", Pull: number}}},
		{"no draft", func() error { return w.repo.EditTitle(t.Context(), w.alice, number, "told") },
			[]content{{Event: "pull_request", Action: "edited", Pull: number}}},
		{"closed", func() error { return w.repo.ClosePull(t.Context(), w.alice, number) },
			[]content{{Event: "pull_request", Action: "closed", Pull: number}}},
		{"opened again", func() error { return w.repo.ReopenPull(t.Context(), w.alice, number) },
			[]content{{Event: "pull_request", Action: "reopened", Pull: number}}},
		{"push", func() error {
			_, err := w.repo.Push(t.Context(), w.alice, stack.Change{
				Branch: "told", Message: "more", Write: map[string]string{"more": ""}})
			return err
		},
			[]content{
				{Event: "push"}, {Event: "pull_request", Action: "synchronized", Pull: number}}},
		{"merge", func() error {
			_, err := w.repo.Merge(t.Context(), w.bob, number, "squash")
			return err
		},
			[]content{{Event: "push"}, {Event: "pull_request", Action: "closed", Pull: number}}},
	} {
		ok(t, step.do())
		left := slices.Clone(step.want)
		for range step.want {
			got := contentOf(t, next(t, ""))
			i := slices.Index(left, got)
			if i < 0 {
				t.Fatalf("%s: delivered %+v, want %+v", step.what, got, left)
			}
			left = slices.Delete(left, i, i+1)
		}
	}
}

func (w town) testPages(t *testing.T) {
	number, head := w.open(t, w.alice, "long")
	for i := range 60 {
		if i%2 == 0 {
			must(w.repo.Comment(t.Context(), w.bob, number, fmt.Sprint(i)))(t)
		}
		ok(t, w.repo.SetStatus(t.Context(), w.bob, head, stack.ForgeStatus{Context: fmt.Sprint(i),
			State: "success"}))
	}
	comments, statuses := fmt.Sprintf("repos/acme/config/issues/%d/comments", number),
		"repos/acme/config/commits/"+head+"/statuses"
	for _, page := range []struct {
		path    string
		entries int
		more    bool // the Link header has a next
	}{
		{comments + "?limit=20", 30, false}, {comments + "?limit=20&page=2", 30, false},
		{statuses + "?per_page=100", 30, true}, {statuses + "?per_page=100&page=2", 30, false},
		{statuses + "?limit=100", 50, true}, {statuses + "?limit=100&page=2", 10, false},
	} {
		var all []object
		header := must(w.get(t, page.path, &all))(t)
		if len(all) != page.entries || strings.Contains(header.Get("Link"),
			`rel="next"`) != page.more {
			t.Errorf("%s: %d entries, %v", page.path, len(all), header)
		}
	}
	if got := must(w.repo.Statuses(t.Context(), head))(t); len(got) != 60 ||
		got[0].Context != "59" {
		t.Errorf("Statuses gives %d, the first %+v", len(got), got[0])
	}
}

// get is Call with the answer's header.
func (w town) get(t *testing.T, path string, out any) (http.Header, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.API()+path, nil)
	ok(t, err)
	r.Header.Set("Authorization", "token "+w.bob.Token)
	resp, err := http.DefaultClient.Do(r)
	ok(t, err)
	defer resp.Body.Close()
	return resp.Header, json.NewDecoder(resp.Body).Decode(out)
}

// A comment that was edited differs from one that was not by its times only, and these are whole
// seconds.
func (w town) testEdits(t *testing.T) {
	number, _ := w.open(t, w.alice, "edited")
	id := must(w.repo.Comment(t.Context(), w.bob, number, "/argosy plan"))(t)
	whole := func(c stack.ForgeComment) bool {
		return c.Created.Nanosecond() == 0 &&
			c.Updated.Nanosecond() == 0
	}
	if c := must(w.repo.Comments(t.Context(), number))(t)[0]; !c.Updated.Equal(c.Created) ||
		!whole(c) {
		t.Errorf("new: %+v", c)
	}
	n := 0
	eventually(t, "an edit of a later second shows", func() bool {
		n++
		ok(t, w.repo.EditComment(t.Context(), w.alice, id, fmt.Sprint("another's words ", n)))
		c := must(w.repo.Comments(t.Context(), number))(t)[0]
		return c.Updated.After(c.Created) && whole(c) && c.User.ID == w.bob.ID
	})
}
