package github

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// gitea answers like Gitea where it differs from GitHub: a real Gitea tests the rest. It cuts lists
// by page and limit, three items at most, and returns the total, sometimes without a link to the
// next page.
type gitea struct {
	lists map[string][]map[string]any // by path
	once  map[string]any
	first map[string]any // answered once, instead of once
	total map[string]int // where it is not the length of the list
	seen  []string
}

func (g *gitea) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.seen = append(g.seen, r.URL.RequestURI())
	path := strings.TrimPrefix(r.URL.Path, "/api/v1")
	w.Header().Set("Content-Type", "application/json")
	if v, ok := g.first[path]; ok {
		delete(g.first, path)
		_ = json.NewEncoder(w).Encode(v)
		return
	}
	if v, ok := g.once[path]; ok {
		_ = json.NewEncoder(w).Encode(v)
		return
	}
	list, ok := g.lists[path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"not found"}`)
		return
	}
	total := len(list)
	if n, ok := g.total[path]; ok {
		total = n
	}
	if total >= 0 {
		w.Header().Set("X-Total-Count", strconv.Itoa(total))
	}
	if q := r.URL.Query(); q.Has("limit") {
		limit, _ := strconv.Atoi(q.Get("limit"))
		page, _ := strconv.Atoi(q.Get("page"))
		limit, from := min(limit, 3), max(page-1, 0)*min(limit, 3)
		list = list[min(from, len(list)):min(from+limit, len(list))]
	}
	list = slices.DeleteFunc(slices.Clone(list), func(v map[string]any) bool {
		return v["state"] == "PENDING"
	})
	_ = json.NewEncoder(w).Encode(list)
}

var sha = strings.Repeat("a", 40)

func user(id int, login string) map[string]any { return map[string]any{"id": id, "login": login} }

func newGitea(t *testing.T) (*gitea, *Forge) {
	repo := map[string]any{"id": 5, "full_name": "acme/fleet"}
	side := func(label string) map[string]any {
		return map[string]any{"ref": "refs/pull/1/head", "label": label, "sha": sha, "repo": repo}
	}
	base := map[string]any{"ref": "main", "label": "main", "sha": sha, "repo": repo}
	g := &gitea{
		once: map[string]any{
			"/repos/acme/fleet": repo, "/user": user(9, "argosy"), "/settings/api": map[string]any{
				"max_response_items": 3},
			"/repos/acme/fleet/pulls/1": map[string]any{"number": 1, "state": "open",
				"head": side("change"), "base": base},
			"/repos/acme/fleet/pulls/2": map[string]any{"number": 2, "state": "open",
				"head": side(""), "base": base},
		},
		lists: map[string][]map[string]any{"/repos/acme/fleet/issues/1/comments": {},
			"/repos/acme/fleet/pulls/1/reviews": {}, "/repos/acme/fleet/pulls": {}},
		total: map[string]int{},
	}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	f, err := New(Config{BaseURL: server.URL + "/api/v1", AllowHTTP: true, Repository: "acme/fleet",
		RepositoryID: 5, Auth: Auth{Token: token}})
	if err != nil {
		t.Fatal(err)
	}
	return g, f
}

func TestGiteaListsAreCounted(t *testing.T) {
	g, f := newGitea(t)
	var comments []map[string]any
	for i := 1; i <= 8; i++ {
		review := map[string]any{"id": i, "user": user(1, "alice"), "state": "COMMENT",
			"commit_id": sha, "submitted_at": fmt.Sprintf("2026-03-01T10:00:%02dZ", i)}
		if i%3 != 1 { // a page can be left with few of what it had
			review["state"] = "PENDING"
		}
		g.lists["/repos/acme/fleet/pulls/1/reviews"] = append(
			g.lists["/repos/acme/fleet/pulls/1/reviews"], review)
		at := fmt.Sprintf("2026-03-01T10:00:%02dZ", i)
		comments = append(comments, map[string]any{"id": i, "user": user(1, "alice"), "body": "x",
			"created_at": at, "updated_at": at})
	}
	g.lists["/repos/acme/fleet/issues/1/comments"] = comments
	got, reviews, err := f.Conversation(t.Context(), 1)
	if len(got) != 8 || len(reviews) != 3 || err != nil {
		t.Errorf("%d comments and %d reviews are returned (%v)", len(got), len(reviews), err)
	}
	g.total["/repos/acme/fleet/issues/1/comments"] = 9
	if _, _, err := f.Conversation(t.Context(), 1); err == nil || !strings.Contains(err.Error(),
		"8 of 9") {
		t.Errorf("a list of which one is missing gives %v", err)
	}
	g.total["/repos/acme/fleet/issues/1/comments"] = -1
	if _, _, err := f.Conversation(t.Context(), 1); err == nil {
		t.Error("a list without a length is taken for complete")
	}
	g.total["/repos/acme/fleet/pulls"] = -1
	if _, err := f.OpenPulls(t.Context(), "main"); err == nil {
		t.Error("a list without a length is taken for complete")
	}
}

func TestGiteaReviews(t *testing.T) {
	g, f := newGitea(t)
	for i, r := range []map[string]any{
		{"state": "APPROVED", "official": true}, {"state": "APPROVED", "official": false,
			"stale": true}, {"state": "REQUEST_CHANGES"}, {"state": "COMMENT"},
		{"state": "APPROVED", "dismissed": true}, {"state": "REQUEST_REVIEW"},
	} {
		r["id"], r["user"], r["commit_id"], r["submitted_at"] = i+1, user(1, "alice"), sha,
			fmt.Sprintf("2026-03-01T10:00:%02dZ", i)
		g.lists["/repos/acme/fleet/pulls/1/reviews"] = append(
			g.lists["/repos/acme/fleet/pulls/1/reviews"], r)
	}
	_, reviews, err := f.Conversation(t.Context(), 1)
	var got []forge.ReviewState
	for _, r := range reviews {
		got = append(got, r.State)
	}
	want := []forge.ReviewState{forge.ReviewApproved, forge.ReviewApproved, forge.ReviewChanges,
		forge.ReviewCommented, forge.ReviewDismissed}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the reviews are %v (%v)", got, err)
	}
}

// Every reader of a repository on Gitea may push a pull request without a branch, which claims to
// be the repository's own.
func TestGiteaPullWithoutABranchIsAStrangers(t *testing.T) {
	_, f := newGitea(t)
	for number, fork := range map[int]bool{1: false, 2: true} {
		if p, err := f.Pull(t.Context(), number); err != nil || p.Fork != fork {
			t.Errorf("pull request %d is of a fork: %t (%v)", number, p.Fork, err)
		}
	}
}

func TestGiteaTeams(t *testing.T) {
	g, f := newGitea(t)
	for i, name := range []string{"Owners", "lead", "leads-2", "Leads", "x"} {
		g.lists["/orgs/acme/teams"] = append(g.lists["/orgs/acme/teams"], map[string]any{
			"id": i + 1, "name": name})
	}
	g.lists["/teams/4/members"] = []map[string]any{user(1, "alice"), user(2, "bob"),
		user(3, "carol"), user(4, "dave")}
	owner, err := f.Owner(t.Context(), "acme/leads")
	if owner.ID != 4 || len(owner.People) != 4 || err != nil {
		t.Errorf("the team is %+v (%v)", owner, err)
	}
	if _, err := f.Owner(t.Context(), "acme/lea"); !errors.Is(err, forge.ErrNoSuchOwner) {
		t.Errorf("a team that is none gives %v", err)
	}
	for _, name := range []string{"acme/x", "nowhere/leads"} {
		if _, err := f.Owner(t.Context(), name); err == nil ||
			errors.Is(err, forge.ErrNoSuchOwner) || !strings.Contains(err.Error(), "may not read") {
			t.Errorf("%s, which we may not see, gives %v", name, err)
		}
	}
}

func TestGiteaPermission(t *testing.T) {
	g, f := newGitea(t)
	g.once["/users/search"] = map[string]any{"ok": true, "data": []any{user(1, "alice-2")}}
	g.once["/repos/acme/fleet/collaborators/alice-2/permission"] = map[string]any{
		"permission": "owner", "user": user(1, "alice-2")}
	if got, err := f.Permission(t.Context(), forge.Person{
		ID: 1, Login: "alice"}); got != forge.PermissionAdmin || err != nil {
		t.Errorf("it is %q (%v)", got, err)
	}
	if last := g.seen[len(g.seen)-2]; last != "/api/v1/users/search?uid=1" {
		t.Errorf("the account is looked up by %s", last)
	}
	if got, err := f.Permission(t.Context(), forge.Person{ID: 2, Login: "alice"}); err == nil {
		t.Errorf("of another account it is %q", got)
	}
	if login, err := f.loginOf(t.Context(), 2); err == nil {
		t.Errorf("the login of another account is %s", login)
	}
	g.once["/users/search"] = map[string]any{"ok": false, "data": []any{}}
	if got, err := f.Permission(t.Context(), forge.Person{ID: 1}); err == nil ||
		errors.Is(err, forge.ErrNoSuchOwner) {
		t.Errorf("of a search that failed it is %q (%v)", got, err)
	}
}

func TestGiteaPermissionByATeam(t *testing.T) {
	g, f := newGitea(t)
	may := func(id int) forge.Permission {
		t.Helper()
		login := "user-" + strconv.Itoa(id)
		g.once["/users/search"] = map[string]any{"ok": true, "data": []any{user(id, login)}}
		g.once["/repos/acme/fleet/collaborators/"+login+"/permission"] = map[string]any{
			"permission": "read", "user": user(id, login)}
		got, err := f.Permission(t.Context(), forge.Person{ID: int64(id)})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	g.once["/repos/acme/fleet/teams"] = []any{
		map[string]any{"id": 4, "name": "readers", "units_map": map[string]any{"repo.code": "read",
			"repo.issues": "write"}},
		map[string]any{"id": 5, "name": "hidden", "units_map": map[string]any{
			"repo.code": "write"}},
		map[string]any{"id": 6, "name": "leads", "units_map": map[string]any{"repo.code": "write"}},
	}
	g.lists["/teams/4/members"] = []map[string]any{user(1, "user-1"), user(2, "user-2")}
	g.lists["/teams/6/members"] = []map[string]any{user(3, "user-3"), user(4, "user-4"),
		user(5, "user-5"), user(2, "user-2")}
	for id, want := range map[int]forge.Permission{1: forge.PermissionRead,
		2: forge.PermissionWrite, 9: forge.PermissionRead} {
		if got := may(id); got != want {
			t.Errorf("account %d may %q, not %q", id, got, want)
		}
	}
	delete(g.once, "/repos/acme/fleet/teams")
	if got, err := f.Permission(t.Context(), forge.Person{ID: 2}); err == nil {
		t.Errorf("without the list of teams it is %q", got)
	}
}

func TestGiteaHasNoListOfDeliveries(t *testing.T) {
	g, f := newGitea(t)
	f.hookURL = "https://argosy.example/webhook/github"
	if _, err := f.Missed(t.Context(), time.Time{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("missed gives %v", err)
	}
	if err := f.Redeliver(t.Context(), 1); !errors.Is(err, errors.ErrUnsupported) ||
		len(g.seen) != 0 {
		t.Errorf("redelivering gives %v, and asks %q", err, g.seen)
	}
}

func TestGiteaPullsOf(t *testing.T) {
	g, f := newGitea(t)
	if of, err := f.PullsOf(t.Context(), fleet.Revision(sha)); len(of) != 0 || err != nil {
		t.Errorf("a commit of none is of %v (%v)", of, err)
	}
	p := g.once["/repos/acme/fleet/pulls/1"].(map[string]any)
	p["state"], p["merged"], p["merge_commit_sha"] = "closed", true, sha
	g.once["/repos/acme/fleet/commits/"+sha+"/pull"] = p
	if of, err := f.PullsOf(t.Context(), fleet.Revision(sha)); !slices.Equal(of, []int{1}) ||
		err != nil {
		t.Errorf("it is of %v (%v)", of, err)
	}
	delete(g.once, "/repos/acme/fleet/commits/"+sha+"/pull")
	delete(g.lists, "/repos/acme/fleet/pulls")
	if of, err := f.PullsOf(t.Context(), fleet.Revision(sha)); err == nil {
		t.Errorf("where pull requests may not be read it is of %v", of)
	}
}

// Gitea answers a request during a merge with a pull request that is closed and not merged.
func TestGiteaPullIsReadAgainBeforeItCountsAsClosed(t *testing.T) {
	g, f := newGitea(t)
	const path = "/repos/acme/fleet/pulls/1"
	half, whole := map[string]any{}, map[string]any{}
	for name, v := range g.once[path].(map[string]any) {
		half[name], whole[name] = v, v
	}
	half["state"], half["merged"] = "closed", false
	whole["state"], whole["merged"], whole["merge_commit_sha"] = "closed", true, sha
	g.first, g.once[path] = map[string]any{path: half}, whole
	if p, err := f.Pull(t.Context(), 1); err != nil || p.State != forge.PullMerged {
		t.Errorf("in the middle of a merge: %+v, %v", p, err)
	}
	g.once[path] = half
	if p, err := f.Pull(t.Context(), 1); err != nil || p.State != forge.PullClosed {
		t.Errorf("closed: %+v, %v", p, err)
	}
}

func TestGiteaStatusesHaveTheirOwnWord(t *testing.T) {
	g, f := newGitea(t)
	g.lists["/repos/acme/fleet/commits/"+sha+"/statuses"] = []map[string]any{
		{"id": 1, "status": "success", "context": forge.CheckPlan, "description": "fine",
			"target_url": "", "creator": user(9, "argosy")},
	}
	if err := f.ReportChecks(t.Context(), fleet.Revision(sha), []forge.Check{
		{Name: forge.CheckPlan, State: forge.CheckSuccess, Title: "fine"}}); err != nil {
		t.Errorf("an unchanged status is set again: %v", err)
	}
}
