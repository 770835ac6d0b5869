package githubtest

import (
	"net/http"
	"strings"
)

// Repository is a repository. Its methods are the users' actions on its pages.
type Repository struct {
	ID     int64
	Name   string // owner/name
	Public bool

	s        *Server
	owner    *Account
	grants   map[int64]string
	pulls    []*Pull
	comments []*Comment
	statuses []*Status
	runs     []*Run
	deployed []*Deployment
	hooks    []*Hook
	number   int

	branches map[string]*branch
	merges   map[string]bool // the settings for merges
	rulesets []*Ruleset      // of the branch main
	classic  map[string]any  // its branch protection; nil for none
}

// Repository creates a repository. Its owner has every permission.
func (s *Server) Repository(owner *Account, name string, public bool) *Repository {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Repository{ID: s.id(), Name: owner.Login + "/" + name, Public: public, s: s, owner: owner,
		grants:   map[int64]string{owner.ID: "admin"},
		branches: map[string]*branch{"main": {head: s.commit(), files: map[string]string{}}},
		merges: map[string]bool{"allow_merge_commit": true, "allow_squash_merge": true,
			"allow_rebase_merge": true, "allow_auto_merge": false}}
	s.repos[r.ID] = r
	s.names[strings.ToLower(r.Name)] = r.ID
	return r
}

// Grant gives an account a role: read, triage, write, maintain or admin.
func (r *Repository) Grant(a *Account, role string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.grants[a.ID] = role
}

// Rename gives the repository another name. The old name redirects here until another repository
// takes it.
func (r *Repository) Rename(name string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.Name = name
	r.s.names[strings.ToLower(name)] = r.ID
}

// Delete deletes the repository.
func (r *Repository) Delete() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	delete(r.s.repos, r.ID)
}

// level returns the account's permission for the repository.
func (r *Repository) level(a *Account) string {
	if role := r.grants[a.ID]; role != "" {
		return role
	}
	if r.Public {
		return "read"
	}
	return "none"
}

func (s *Server) repositoryObject(r *Repository) any {
	if r == nil || s.repos[r.ID] == nil {
		return nil
	}
	_, name, _ := strings.Cut(r.Name, "/")
	return object{"id": r.ID, "name": name, "full_name": r.Name, "private": !r.Public,
		"owner": s.accountObject(r.owner), "default_branch": "main"}
}

func getRepository(s *Server, r *request) answer {
	body := s.repositoryObject(r.repo).(object)
	if _, ok := r.may("contents", "write", "write"); ok {
		for name, on := range r.repo.merges {
			body[name] = on
		}
	}
	return answer{status: http.StatusOK, body: body}
}
