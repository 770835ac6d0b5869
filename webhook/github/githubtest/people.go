package githubtest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Account is a user, an organization or the bot of an App.
type Account struct {
	ID    int64
	Login string
	Type  string // User, Organization or Bot
}

type team struct {
	id       int64
	slug     string
	members  []int64
	children []string
	secret   bool
}

// User makes an account.
func (s *Server) User(login string) *Account { return s.account(login, "User") }

// Organization makes an organization.
func (s *Server) Organization(login string) *Account { return s.account(login, "Organization") }

func (s *Server) account(login, kind string) *Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.join(login, kind)
}

func (s *Server) join(login, kind string) *Account {
	a := &Account{ID: s.id(), Login: login, Type: kind}
	s.accounts[a.ID] = a
	return a
}

// Rename gives an account another login, and its old one up.
func (s *Server) Rename(a *Account, login string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Login = login
}

// Leave deletes an account. Its texts stay without an author.
func (s *Server) Leave(a *Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accounts, a.ID)
}

// Team makes a team of an organization; parent is the slug of the team that it is a child of, if
// any.
func (s *Server) Team(org, slug, parent string, members ...*Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &team{id: s.id(), slug: slug}
	for _, m := range members {
		t.members = append(t.members, m.ID)
	}
	s.teams[org+"/"+slug] = t
	if parent != "" {
		p := s.teams[org+"/"+parent]
		p.children = append(p.children, slug)
	}
}

// TeamID is the number of a team.
func (s *Server) TeamID(org, slug string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.teams[org+"/"+slug].id
}

// Hide makes a team invisible.
func (s *Server) Hide(org, slug string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.teams[org+"/"+slug].secret = true
}

// Token makes a personal access token.
func (s *Server) Token(a *Account, secret string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credentials[secret] = &caller{user: a}
	return secret
}

// Revoke ends a token, an installation's included.
func (s *Server) Revoke(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.credentials, secret)
}

func (s *Server) named(login string) *Account {
	for _, a := range s.accounts {
		if strings.EqualFold(a.Login, login) {
			return a
		}
	}
	return nil
}

// accountObject returns an account within another object; nil for a deleted one.
func (s *Server) accountObject(a *Account) any {
	if a == nil || s.accounts[a.ID] == nil {
		return nil
	}
	return object{"id": a.ID, "login": a.Login, "type": a.Type}
}

// profile is an account on its own. The description has two kinds, which differ by user_view_type.
func profile(a *Account) answer {
	return answer{status: http.StatusOK, body: object{"id": a.ID, "login": a.Login, "type": a.Type,
		"user_view_type": "public"}}
}

func getSelf(_ *Server, r *request) answer {
	if r.user == nil {
		return problem(http.StatusForbidden, "Resource not accessible by integration")
	}
	return profile(r.user)
}

func getAccount(s *Server, r *request) answer {
	a := s.accounts[r.number("account_id")]
	if a == nil {
		return notFound
	}
	return profile(a)
}

func getUser(s *Server, r *request) answer {
	a := s.named(r.inPath["username"])
	if a == nil {
		return notFound
	}
	return profile(a)
}

// mayReadTeams: an installation needs the permission, a user must be in the organization, and
// others get "not found".
func (s *Server) mayReadTeams(r *request) (answer, bool) {
	org := r.inPath["org"]
	if r.install != nil {
		if levels[r.permissions["members"]] < levels["read"] {
			return lacks("members", "read"), false
		}
		if !strings.HasPrefix(strings.ToLower(r.install.repos[0].Name), strings.ToLower(org)+"/") {
			return notFound, false
		}
		return answer{}, true
	}
	for name, t := range s.teams {
		if strings.HasPrefix(name, org+"/") && slices.Contains(t.members, r.user.ID) {
			return answer{}, true
		}
	}
	return notFound, false
}

func listTeams(s *Server, r *request) answer {
	if a, ok := s.mayReadTeams(r); !ok {
		return a
	}
	list := []object{}
	for name, t := range s.teams {
		if strings.HasPrefix(name, r.inPath["org"]+"/") && !t.secret {
			list = append(list, object{"id": t.id, "name": strings.ToUpper(t.slug[:1]) + t.slug[1:],
				"slug": t.slug})
		}
	}
	slices.SortFunc(list, func(a, b object) int { return int(a["id"].(int64) - b["id"].(int64)) })
	return answer{status: http.StatusOK, list: list}
}

func getTeam(s *Server, r *request) answer {
	if a, ok := s.mayReadTeams(r); !ok {
		return a
	}
	t := s.teams[r.inPath["org"]+"/"+r.inPath["team_slug"]]
	if t == nil || t.secret {
		return notFound
	}
	return answer{status: http.StatusOK, body: object{
		"id": t.id, "name": strings.ToUpper(t.slug[:1]) + t.slug[1:], "slug": t.slug}}
}

func listMembers(s *Server, r *request) answer {
	if a, ok := s.mayReadTeams(r); !ok {
		return a
	}
	ids := s.members(r.inPath["org"], r.inPath["team_slug"])
	if ids == nil {
		return notFound
	}
	list := []object{}
	for _, id := range ids {
		if a, ok := s.accountObject(s.accounts[id]).(object); ok {
			list = append(list, a)
		}
	}
	return answer{status: http.StatusOK, list: list}
}

// members returns the members of a team and of its child teams; nil if there is no such team.
func (s *Server) members(org, slug string) []int64 {
	t := s.teams[org+"/"+slug]
	if t == nil || t.secret {
		return nil
	}
	all := append([]int64{}, t.members...)
	for _, child := range t.children {
		all = append(all, s.members(org, child)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func getPermission(s *Server, r *request) answer {
	if a, ok := r.may("metadata", "read", "write"); !ok {
		return a
	}
	a := s.named(r.inPath["username"])
	if a == nil || a.Type == "Organization" {
		return problem(http.StatusNotFound, strconv.Quote(r.inPath["username"])+" is not a user")
	}
	role := r.repo.level(a)
	legacy := map[string]string{"maintain": "write", "triage": "read"}[role]
	if legacy == "" {
		legacy = role
	}
	return answer{status: http.StatusOK, body: object{"permission": legacy, "role_name": role,
		"user": s.accountObject(a)}}
}
