package github

import (
	"context"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/forgetest"
	"argosy.dev/argosy/webhook/github/githubtest"
)

var _ forgetest.Forge = (*Forge)(nil)

func TestForge(t *testing.T) {
	t.Run("as an App", func(t *testing.T) {
		forgetest.Run(t, func(t *testing.T) forgetest.Stage { return newStage(t, true) })
	})
	t.Run("with a token", func(t *testing.T) {
		forgetest.Run(t, func(t *testing.T) forgetest.Stage { return newStage(t, false) })
	})
}

// stage is the conformance suite's on githubtest.
type stage struct {
	t      testing.TB
	server *githubtest.Server
	repo   *githubtest.Repository
	app    *githubtest.App // nil: with a token
	token  string
	self   *githubtest.Account
	people map[int64]*githubtest.Account
	cast   forgetest.Cast
}

func newStage(t testing.TB, asApp bool) *stage {
	s := &stage{t: t, server: githubtest.Start(t), people: map[int64]*githubtest.Account{}}
	acme := s.server.Organization("acme")
	admin, writer, reader, stranger := s.person("alice"), s.person("bob"), s.person("carol"),
		s.person("mallory")
	s.repo = s.server.Repository(acme, "fleet", true)
	s.repo.Grant(s.people[admin.ID], "admin")
	s.repo.Grant(s.people[writer.ID], "write")
	s.server.Team("acme", "leads", "", s.people[admin.ID])
	s.server.Team("acme", "seconds", "leads", s.people[writer.ID])
	if asApp {
		s.app = s.server.App("argosy")
		permissions := githubtest.Everything()
		permissions["contents"] = "write" // to propose changes
		s.app.Install(permissions, s.repo)
		s.self = s.app.Bot()
	} else {
		s.self = s.server.User("argosy")
		s.token = s.server.Token(s.self, "ghp_0123456789abcdef")
		s.repo.Grant(s.self, "admin")
		s.server.Team("acme", "bots", "", s.self)
		s.repo.Hook("https://argosy.example/webhook/github")
	}
	s.cast = forgetest.Cast{
		Base: "main", Self: forge.Person{ID: s.self.ID, Login: s.self.Login}, Admin: admin,
		Writer: writer, Reader: reader, Stranger: stranger, Team: "acme/leads",
		TeamID: s.server.TeamID("acme", "leads"),
	}
	return s
}

func (s *stage) person(login string) forge.Person {
	a := s.server.User(login)
	s.people[a.ID] = a
	return forge.Person{ID: a.ID, Login: login}
}

// config is that of the stage's repository; a test may change it.
func (s *stage) config() Config {
	c := Config{BaseURL: s.server.URL, Repository: s.repo.Name, RepositoryID: s.repo.ID,
		AllowHTTP: true, HookURL: "https://argosy.example/webhook/github", Proposals: true}
	if s.app == nil {
		c.Auth.Token = func(context.Context) (string, error) { return s.token, nil }
	} else {
		c.Auth.App = &App{ID: s.app.ID, Key: func(context.Context) ([]byte, error) {
			return s.app.Key, nil
		}}
	}
	return c
}

func (s *stage) forge() *Forge { return s.with(s.config()) }

func (s *stage) with(c Config) *Forge {
	s.t.Helper()
	f, err := New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

func (s *stage) Forge() forgetest.Forge { return s.forge() }
func (s *stage) Cast() forgetest.Cast   { return s.cast }

func (s *stage) Open(by forge.Person, title string) (int, fleet.Revision) {
	var from *githubtest.Repository
	if by == s.cast.Stranger || by == s.cast.Reader {
		from = s.server.Repository(s.people[by.ID], "fleet", true)
	}
	p := s.repo.Open(s.people[by.ID], title, from)
	return p.Number, fleet.Revision(p.Head)
}

func (s *stage) Write(path, text string) fleet.Revision {
	return fleet.Revision(s.repo.Write(path, text))
}

func (s *stage) File(branch, path string) (string, bool) { return s.repo.File(branch, path) }

func (s *stage) Push(number int) fleet.Revision {
	return fleet.Revision(s.repo.Pull(number).Push())
}

func (s *stage) Merge(number int) fleet.Revision {
	return fleet.Revision(s.repo.Pull(number).Merge(1)[0])
}

func (s *stage) Close(number int) { s.repo.Pull(number).Close() }

func (s *stage) Comment(number int, by forge.Person, body string) int64 {
	return s.repo.Comment(number, s.people[by.ID], body).ID
}

func (s *stage) Edit(_ int, comment int64, _ forge.Person, body string) {
	s.repo.Edit(comment, body)
}
func (s *stage) DeleteComment(_ int, comment int64) {
	s.repo.DeleteComment(comment)
}

func (s *stage) Review(number int, by forge.Person, state forge.ReviewState) {
	word := map[forge.ReviewState]string{
		forge.ReviewApproved: "APPROVED", forge.ReviewChanges: "CHANGES_REQUESTED",
		forge.ReviewCommented: "COMMENTED",
	}[state]
	s.repo.Pull(number).Review(s.people[by.ID], word)
}

func (s *stage) Dismiss(number int, of forge.Person) { s.repo.Pull(number).Dismiss(of.ID) }
func (s *stage) Comments(number int) []string        { return s.repo.Comments(number) }

func (s *stage) Shown(head fleet.Revision) map[string]forgetest.Shown {
	shown := map[string]forgetest.Shown{}
	if s.app == nil {
		for name, v := range s.repo.Statuses(string(head)) {
			shown[name] = forgetest.Shown{State: forge.CheckState(v.State), Title: v.Description,
				URL: v.Target}
		}
		return shown
	}
	for name, v := range s.repo.Runs(s.app, string(head)) {
		state := forge.CheckState(v.Conclusion)
		if v.Status != "completed" {
			state = forge.CheckPending
		}
		shown[name] = forgetest.Shown{State: state, Title: v.Title, URL: v.Target}
	}
	return shown
}

// Protect makes a ruleset, as GitHub proposes it: the older branch protection has tests of its own.
func (s *stage) Protect(r forgetest.Rules) {
	var rules, exempt []map[string]any
	if len(r.Checks) > 0 {
		var checks []any
		for _, name := range r.Checks {
			checks = append(checks, map[string]any{"context": name})
		}
		rules = append(rules, map[string]any{"type": "required_status_checks",
			"parameters": map[string]any{
				"required_status_checks": checks, "strict_required_status_checks_policy": false,
			}})
	}
	if r.PullRequests {
		methods := []any{"merge", "squash", "rebase"}
		if r.NoRebase {
			methods = methods[:2]
		}
		rules = append(rules, map[string]any{"type": "pull_request", "parameters": map[string]any{
			"allowed_merge_methods": methods, "dismiss_stale_reviews_on_push": r.Stale,
			"require_code_owner_review":  false,
			"require_last_push_approval": false, "required_approving_review_count": 0,
			"required_review_thread_resolution": false,
		}})
	}
	rules = append(rules, map[string]any{"type": "non_fast_forward"}, map[string]any{
		"type": "deletion"})
	if r.Pusher.ID != 0 {
		exempt = append(exempt, map[string]any{"actor_id": r.Pusher.ID, "actor_type": "User",
			"bypass_mode": "always"})
	}
	if _, slug, ok := strings.Cut(r.PushingTeam, "/"); ok {
		exempt = append(exempt, map[string]any{"actor_id": s.server.TeamID("acme", slug),
			"actor_type": "Team", "bypass_mode": "always"})
	}
	if !r.Everybody {
		exempt = append(exempt, map[string]any{"actor_id": 5, "actor_type": "RepositoryRole",
			"bypass_mode": "pull_request"})
	}
	s.repo.Ruleset(exempt, rules...)
	s.repo.Merges("allow_rebase_merge", !r.NoRebase)
}

func (s *stage) Replace() {
	name := s.repo.Name
	s.repo.Rename("acme/moved")
	acme := s.server.Organization("acme")
	other := s.server.Repository(acme, strings.TrimPrefix(name, "acme/"), true)
	other.Open(s.people[s.cast.Stranger.ID], "After", nil)
}
