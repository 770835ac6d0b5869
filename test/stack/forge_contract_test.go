package stack_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/test/stack"
	"argosy.dev/argosy/webhook/forgetest"
	"argosy.dev/argosy/webhook/github"
)

// TestArgosySpeaksToTheForge runs the contract of forgetest.Forge on the real thing.
func TestArgosySpeaksToTheForge(t *testing.T) {
	pg := must(stack.SharedPostgres(t.Context()))(t)
	host := must(stack.StartForge(t.Context(), stack.ForgeOptions{
		Database: must(pg.NewDatabase(t.Context(), "forge_contract"))(t)}))(t)
	t.Cleanup(func() { ok(t, host.Stop()) })
	people := map[string]stack.Account{}
	for _, login := range []string{"argosy", "alice", "bob", "carol", "mallory"} {
		people[login] = must(host.CreateUser(t.Context(), login))(t)
	}
	forgetest.Run(t, func(t *testing.T) forgetest.Stage { return newStage(t, host, people) })
	t.Run("commits of an Application have their status once", func(t *testing.T) {
		reportsCommits(newStage(t, host, people))
	})
	t.Run("a pattern requires one check, not every one", func(t *testing.T) {
		onePatternOneCheck(newStage(t, host, people))
	})
}

// reportsCommits writes as a tenant's token does on the repository of an Application.
func reportsCommits(s *stage) {
	ctx := s.t.Context()
	writer := s.people[s.cast.Writer.ID]
	_, head := s.Open(s.cast.Writer, "a commit")
	commits, err := github.NewCommits(github.Config{BaseURL: s.forge.API(), Repository: s.name,
		AllowHTTP: true, Auth: github.Auth{Token: func(context.Context) (string, error) {
			return writer.Token, nil
		}}}, http.DefaultTransport)
	ok(s.t, err)
	for _, state := range []string{"pending", "failure", "success", "success", "error"} {
		answer := must(commits.Report(ctx, github.CommitReport{Commit: string(head),
			Context: "argosy/acme/checkout@prod", State: state, Description: "it is " + state,
			Target: "https://argosy.example.com/"}))(s.t)
		s.t.Log(answer)
	}
	var all []struct{ Status, Context, Description string }
	ok(s.t, s.forge.Call(ctx, writer, http.MethodGet, "repos/"+s.name+"/commits/"+string(head)+
		"/statuses?sort=oldest", nil, &all))
	if len(all) != 4 || all[0].Status != "pending" || all[3].Status != "error" ||
		all[3].Description != "it is error" {
		s.t.Errorf("statuses: %+v", all)
	}
	reader := s.people[s.cast.Reader.ID]
	foreign, err := github.NewCommits(github.Config{BaseURL: s.forge.API(), Repository: s.name,
		AllowHTTP: true, Auth: github.Auth{Token: func(context.Context) (string, error) {
			return reader.Token, nil
		}}}, http.DefaultTransport)
	ok(s.t, err)
	if _, err := foreign.Report(ctx, github.CommitReport{Commit: string(head), Context: "x",
		State: "success"}); err == nil || !github.IsRefusal(err) {
		s.t.Errorf("a token that may only read is answered %v", err)
	}
}

// onePatternOneCheck shows why a pattern such as argosy/* counts as none of the required checks:
// the forge merges as soon as one status that fits is a success.
func onePatternOneCheck(s *stage) {
	ctx := s.t.Context()
	ok(s.t, s.repo.Protect(ctx, s.cast.Base, stack.BranchRule{Contexts: []string{"argosy/*"},
		BindAdmins: true, NoPush: true}))
	p := must(s.Forge().Protection(ctx, s.cast.Base))(s.t)
	if len(p.Checks) > 0 || len(p.Overriders) > 0 || p.Unread.Rules != "" {
		s.t.Errorf("the pattern is read as %+v", p)
	}
	number, head := s.Open(s.cast.Writer, "One of three")
	ok(s.t, s.repo.SetStatus(ctx, s.people[s.cast.Self.ID], string(head), stack.ForgeStatus{
		Context: forge.CheckValidate, State: "success"}))
	s.Merge(number)
}

// stage is a repository of an organization of its own, with the people that all stages share.
type stage struct {
	t      *testing.T
	forge  *stack.Forge
	repo   *stack.ForgeRepo
	fork   *stack.ForgeRepo // the stranger's; nil until it is needed
	id     int64            // that the repository has had from the start
	name   string
	people map[int64]stack.Account
	cast   forgetest.Cast
	pulls  map[int]branch
}

// branch is where a pull request comes from.
type branch struct {
	repo *stack.ForgeRepo
	name string
	by   stack.Account
}

var stages atomic.Int64

func newStage(t *testing.T, host *stack.Forge, people map[string]stack.Account) *stage {
	t.Helper()
	org := fmt.Sprintf("acme-%d", stages.Add(1))
	s := &stage{t: t, forge: host, people: map[int64]stack.Account{}, pulls: map[int]branch{}}
	person := func(login string) forge.Person {
		a := people[login]
		s.people[a.ID] = a
		return forge.Person{ID: a.ID, Login: login}
	}
	s.cast = forgetest.Cast{
		Base: "main", Self: person("argosy"), Admin: person("alice"), Writer: person("bob"),
		Reader: person("carol"), Stranger: person("mallory"),
		Team: org + "/leads", TeamAs: strings.ToUpper(org) + "/Leads",
	}
	ok(t, host.CreateOrg(t.Context(), org))
	s.cast.TeamID = must(host.CreateTeam(t.Context(), org, "leads", "read", people["alice"],
		people["bob"]))(t)
	ok(t, host.JoinOwners(t.Context(), org, people["argosy"]))
	s.name = org + "/fleet-of-" + org
	_, name, _ := strings.Cut(s.name, "/")
	s.repo = s.create(org, name)
	s.id = s.repo.ID
	return s
}

func (s *stage) create(org, name string) *stack.ForgeRepo {
	s.t.Helper()
	r := must(s.forge.CreateRepo(s.t.Context(), org, name, false))(s.t)
	ok(s.t, r.Allow(s.t.Context(), s.people[s.cast.Admin.ID], "admin"))
	ok(s.t, r.Allow(s.t.Context(), s.people[s.cast.Writer.ID], "write"))
	must(r.Push(s.t.Context(), s.forge.Admin, stack.Change{
		Message: "first", Write: map[string]string{"README.md": "hello\n"}}))(s.t)
	// its API fails for branches until then
	eventually(s.t, "the forge has seen the first push", func() bool {
		var empty struct{ Empty bool }
		ok(s.t, s.forge.Call(s.t.Context(), s.forge.Admin, http.MethodGet, "repos/"+r.Name, nil,
			&empty))
		return !empty.Empty
	})
	return r
}

func (s *stage) Forge() forgetest.Forge {
	token := s.people[s.cast.Self.ID].Token
	f, err := github.New(github.Config{
		BaseURL: s.forge.API(), Repository: s.name, RepositoryID: s.id, AllowHTTP: true,
		Auth: github.Auth{Token: func(context.Context) (string, error) { return token, nil }},
	})
	ok(s.t, err)
	return f
}

func (s *stage) Cast() forgetest.Cast { return s.cast }

func (s *stage) Open(by forge.Person, title string) (int, fleet.Revision) {
	s.t.Helper()
	b := branch{repo: s.repo, name: fmt.Sprintf("change-%d", stages.Add(1)), by: s.people[by.ID]}
	head := b.name
	if by == s.cast.Stranger {
		if s.fork == nil {
			s.fork = must(s.repo.Fork(s.t.Context(), b.by))(s.t)
		}
		b.repo, head = s.fork, by.Login+":"+b.name
	}
	commit := must(b.repo.Push(s.t.Context(), b.by, stack.Change{Branch: b.name, Message: title,
		Write: map[string]string{b.name: title}}))(s.t)
	number := must(s.repo.OpenPull(s.t.Context(), b.by, title, head, s.cast.Base))(s.t)
	s.pulls[number] = b
	return number, fleet.Revision(commit)
}

func (s *stage) Write(path, text string) fleet.Revision {
	s.t.Helper()
	return fleet.Revision(must(s.repo.Push(s.t.Context(), s.forge.Admin, stack.Change{
		Message: "a file", Write: map[string]string{path: text}}))(s.t))
}

func (s *stage) File(branch, path string) (string, bool) {
	s.t.Helper()
	var got struct{ Content []byte }
	err := s.forge.Call(s.t.Context(), s.forge.Admin, http.MethodGet,
		"repos/"+s.repo.Name+"/contents/"+path+"?ref="+branch, nil, &got)
	return string(got.Content), err == nil
}

func (s *stage) Push(number int) fleet.Revision {
	s.t.Helper()
	b := s.pulls[number]
	commit := must(b.repo.Push(s.t.Context(), b.by, stack.Change{Branch: b.name, Message: "more",
		Write: map[string]string{fmt.Sprint(stages.Add(1)): ""}}))(s.t)
	eventually(s.t, "the pull request has its new head", func() bool {
		return must(s.repo.Pull(s.t.Context(), number))(s.t).Head.SHA == commit
	})
	return fleet.Revision(commit)
}

func (s *stage) Merge(number int) fleet.Revision {
	s.t.Helper()
	return fleet.Revision(must(s.repo.Merge(s.t.Context(), s.people[s.cast.Admin.ID], number,
		"squash"))(s.t))
}

func (s *stage) Close(number int) {
	s.t.Helper()
	ok(s.t, s.repo.ClosePull(s.t.Context(), s.people[s.cast.Admin.ID], number))
}

func (s *stage) Comment(number int, by forge.Person, body string) int64 {
	s.t.Helper()
	return must(s.repo.Comment(s.t.Context(), s.people[by.ID], number, body))(s.t)
}

// Edit edits until the forge's clock has gone on to another second, for an edit in the second of
// the posting does not show.
func (s *stage) Edit(number int, comment int64, by forge.Person, body string) {
	s.t.Helper()
	n := 0
	eventually(s.t, "the edit shows", func() bool {
		n++
		ok(s.t, s.repo.EditComment(s.t.Context(), s.people[by.ID], comment, fmt.Sprint(body, n)))
		for _, c := range must(s.repo.Comments(s.t.Context(), number))(s.t) {
			if c.ID == comment {
				return c.Updated.After(c.Created)
			}
		}
		return false
	})
	ok(s.t, s.repo.EditComment(s.t.Context(), s.people[by.ID], comment, body))
}

func (s *stage) DeleteComment(_ int, comment int64) {
	s.t.Helper()
	ok(s.t, s.repo.DeleteComment(s.t.Context(), s.forge.Admin, comment))
}

func (s *stage) Review(number int, by forge.Person, state forge.ReviewState) {
	s.t.Helper()
	verdicts := map[forge.ReviewState]string{
		forge.ReviewApproved: stack.Approve, forge.ReviewChanges: stack.RequestChanges,
		forge.ReviewCommented: stack.OnlyComment,
	}[state]
	must(s.repo.Review(s.t.Context(), s.people[by.ID], number, verdicts, "", "as I see it"))(s.t)
}

func (s *stage) Dismiss(number int, of forge.Person) {
	s.t.Helper()
	var newest int64
	for _, r := range must(s.repo.Reviews(s.t.Context(), number))(s.t) {
		if r.User.ID == of.ID {
			newest = r.ID
		}
	}
	ok(s.t, s.repo.DismissReview(s.t.Context(), s.forge.Admin, number, newest))
}

func (s *stage) Comments(number int) (all []string) {
	s.t.Helper()
	for _, c := range must(s.repo.Comments(s.t.Context(), number))(s.t) {
		all = append(all, c.Body)
	}
	return all
}

func (s *stage) Shown(head fleet.Revision) map[string]forgetest.Shown {
	s.t.Helper()
	shown := map[string]forgetest.Shown{}
	for _, v := range must(s.repo.Statuses(s.t.Context(), string(head)))(s.t) {
		if _, newer := shown[v.Context]; !newer {
			shown[v.Context] = forgetest.Shown{State: forge.CheckState(v.State),
				Title: v.Description, URL: v.URL}
		}
	}
	return shown
}

func (s *stage) Protect(r forgetest.Rules) {
	s.t.Helper()
	rule := stack.BranchRule{
		Contexts: r.Checks, NoPush: r.PullRequests && r.Pusher.ID == 0 && r.PushingTeam == "",
		DismissStale: r.Stale, BindAdmins: r.Everybody,
	}
	if r.Pusher.ID != 0 {
		rule.PushUsers = []string{r.Pusher.Login}
	}
	if _, team, ok := strings.Cut(r.PushingTeam, "/"); ok {
		rule.PushTeams = []string{team}
	}
	ok(s.t, s.repo.Protect(s.t.Context(), s.cast.Base, rule))
	ok(s.t, s.repo.AllowRebase(s.t.Context(), !r.NoRebase))
}

func (s *stage) Replace() {
	s.t.Helper()
	org, name, _ := strings.Cut(s.name, "/")
	ok(s.t, s.repo.Rename(s.t.Context(), "moved"))
	s.fork = nil
	s.repo = s.create(org, name)
	if number, _ := s.Open(s.cast.Writer, "After"); number != 1 {
		s.t.Fatalf("the pull request of the new repository is %d", number)
	}
}
