package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// ForgeRepo is a repository of a Forge.
type ForgeRepo struct {
	ID   int64
	Name string // "acme/config"
	URL  string // to clone, fetch and push, with the credentials of a user

	forge *Forge
	mu    sync.Mutex
	local *Repo // a bare copy, where commits are made before they are pushed
}

// CreateRepo makes an empty repository of a user or an organization, with the
// default branch main.
func (f *Forge) CreateRepo(ctx context.Context, owner, name string, private bool) (*ForgeRepo,
	error) {
	err := f.Call(ctx, f.Admin, http.MethodPost, "admin/users/"+url.PathEscape(owner)+"/repos",
		map[string]any{"name": name, "private": private, "default_branch": "main"}, nil)
	if err != nil {
		return nil, err
	}
	return f.Repo(ctx, owner+"/"+name)
}

// Repo is a repository that is there already.
func (f *Forge) Repo(ctx context.Context, name string) (*ForgeRepo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.repos[name]; r != nil {
		return r, nil
	}
	r := &ForgeRepo{Name: name, URL: f.URL + "/" + name + ".git", forge: f}
	if err := f.Call(ctx, f.Admin, http.MethodGet, "repos/"+name, nil, r); err != nil {
		return nil, err
	}
	r.Name, r.URL = name, f.URL+"/"+name+".git"
	dir := filepath.Join(f.folder.path, "copies", strconv.FormatInt(r.ID, 10))
	r.local = &Repo{URL: r.URL, Dir: dir, server: f.git}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := f.git.run(ctx, "", nil, "init", "--quiet", "--bare", "--initial-branch=main",
		dir); err != nil {
		return nil, err
	}
	f.repos[name] = r
	return r, nil
}

// path is below the repository's in the API.
func (r *ForgeRepo) path(format string, args ...any) string {
	return "repos/" + r.Name + "/" + fmt.Sprintf(format, args...)
}

// Allow gives the account a permission: read, write or admin. An empty one takes
// it away.
func (r *ForgeRepo) Allow(ctx context.Context, a Account, permission string) error {
	path := r.path("collaborators/%s", url.PathEscape(a.Login))
	if permission == "" {
		return r.forge.Call(ctx, r.forge.Admin, http.MethodDelete, path, nil, nil)
	}
	return r.forge.Call(ctx, r.forge.Admin, http.MethodPut, path, map[string]any{
		"permission": permission}, nil)
}

// BranchRule is a branch protection.
type BranchRule struct {
	Contexts []string // patterns of the statuses that are required
	NoPush   bool     // no account may push
	// these alone push, with PushTeams; both empty: every account with write permission
	PushUsers    []string
	PushTeams    []string
	ForcePush    bool
	DismissStale bool
	BindAdmins   bool   // administrators merge nothing past a required status
	Unprotected  string // patterns of files that every account with write permission may push
}

// Protect makes or replaces the branch's protection.
func (r *ForgeRepo) Protect(ctx context.Context, branch string, b BranchRule) error {
	err := r.forge.Call(ctx, r.forge.Admin, http.MethodDelete, r.path("branch_protections/%s",
		url.PathEscape(branch)), nil, nil)
	var no *ForgeError
	if err != nil && (!errors.As(err, &no) || no.Status != http.StatusNotFound) {
		return err
	}
	return r.forge.Call(ctx, r.forge.Admin, http.MethodPost, r.path("branch_protections"),
		map[string]any{
			"rule_name": branch, "enable_push": !b.NoPush,
			"enable_push_whitelist": len(b.PushUsers)+
				len(b.PushTeams) > 0,
			"push_whitelist_usernames": b.PushUsers, "push_whitelist_teams": b.PushTeams,
			"enable_force_push":   b.ForcePush,
			"enable_status_check": len(b.Contexts) > 0, "status_check_contexts": b.Contexts,
			"dismiss_stale_approvals":    b.DismissStale,
			"block_admin_merge_override": b.BindAdmins, "unprotected_file_patterns": b.Unprotected,
		}, nil)
}

// AllowRebase sets whether pull requests may be merged by a style that rebases, or by hand.
func (r *ForgeRepo) AllowRebase(ctx context.Context, on bool) error {
	return r.forge.Call(ctx, r.forge.Admin, http.MethodPatch, "repos/"+r.Name, map[string]any{
		"has_pull_requests": true, "allow_merge_commits": true, "allow_squash_merge": true,
		"allow_rebase": on, "allow_rebase_explicit": on,
		"allow_manual_merge": on, "autodetect_manual_merge": on,
	}, nil)
}

// CreateHook has events delivered to a URL on loopback, signed with the secret.
// Events are in Gitea's words: push, pull_request (with comments on it and pushes
// to it), pull_request_review, issue_comment, status; see Forge for what the
// deliveries call themselves.
func (r *ForgeRepo) CreateHook(ctx context.Context, to, secret string, events ...string) error {
	return r.forge.Call(ctx, r.forge.Admin, http.MethodPost, r.path("hooks"), map[string]any{
		"type": "gitea", "active": true, "events": events,
		"config": map[string]any{"url": to, "content_type": "json", "secret": secret},
	}, nil)
}

// Fork makes the account's own copy, which has the same name.
func (r *ForgeRepo) Fork(ctx context.Context, as Account) (*ForgeRepo, error) {
	if err := r.forge.Call(ctx, as, http.MethodPost, r.path("forks"), map[string]any{},
		nil); err != nil {
		return nil, err
	}
	_, name, _ := strings.Cut(r.Name, "/")
	return r.forge.Repo(ctx, as.Login+"/"+name)
}

// Rename gives the repository another name with the same owner. The forge leads
// from the old one to it until a repository of that name is made.
func (r *ForgeRepo) Rename(ctx context.Context, name string) error {
	if err := r.forge.Call(ctx, r.forge.Admin, http.MethodPatch, "repos/"+r.Name, map[string]any{
		"name": name}, nil); err != nil {
		return err
	}
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	delete(r.forge.repos, r.Name)
	owner, _, _ := strings.Cut(r.Name, "/")
	r.Name = owner + "/" + name
	r.URL = r.forge.URL + "/" + r.Name + ".git"
	r.forge.repos[r.Name] = r
	return nil
}

// Delete removes the repository.
func (r *ForgeRepo) Delete(ctx context.Context) error {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	delete(r.forge.repos, r.Name)
	return r.forge.Call(ctx, r.forge.Admin, http.MethodDelete, "repos/"+r.Name, nil, nil)
}

// CloneURL is the repository's URL with the account's credentials.
func (r *ForgeRepo) CloneURL(as Account) string {
	u, err := url.Parse(r.URL)
	if err != nil {
		panic(err) // we wrote it
	}
	u.User = url.UserPassword(as.Login, as.Token)
	return u.String()
}

// Push commits to the current head of a branch on the forge and pushes that, as the account. A
// branch that does not exist begins at main. It returns the commit's id. The forge updates a pull
// request's head a moment later.
func (r *ForgeRepo) Push(ctx context.Context, as Account, c Change) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fetch(ctx, as); err != nil {
		return "", err
	}
	if c.Branch == "" {
		c.Branch = "main"
	}
	if _, err := r.local.Head(ctx, c.Branch); err != nil {
		if base, err := r.local.Head(ctx, "main"); err == nil {
			if _, err := r.local.Git(ctx, "update-ref", "refs/heads/"+c.Branch, base); err != nil {
				return "", err
			}
		}
	}
	commit, err := r.local.Apply(ctx, c)
	if err != nil {
		return "", err
	}
	return commit, r.push(ctx, as, commit, c.Branch)
}

// SetBranch makes the branch point to a commit that the forge has, by a forced
// push as the account. An empty commit deletes the branch.
func (r *ForgeRepo) SetBranch(ctx context.Context, as Account, branch, commit string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fetch(ctx, as); err != nil {
		return err
	}
	return r.push(ctx, as, commit, branch)
}

func (r *ForgeRepo) push(ctx context.Context, as Account, commit, branch string) error {
	if _, err := r.local.Git(ctx, "push", "--quiet", "--force", r.CloneURL(as),
		commit+":refs/heads/"+branch); err != nil {
		return fmt.Errorf("forge: %s as %s: %w", r.Name, as.Login, err)
	}
	return nil
}

// fetch makes the copy's branches those of the forge.
func (r *ForgeRepo) fetch(ctx context.Context, as Account) error {
	if _, err := r.local.Git(ctx, "fetch", "--quiet", "--prune", r.CloneURL(as),
		"+refs/heads/*:refs/heads/*", "+refs/pull/*:refs/pull/*"); err != nil {
		return fmt.Errorf("forge: %s as %s: %w", r.Name, as.Login, err)
	}
	return nil
}

// Git fetches as the account and runs git in the copy, which has the forge's
// branches and refs/pull.
func (r *ForgeRepo) Git(ctx context.Context, as Account, args ...string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fetch(ctx, as); err != nil {
		return "", err
	}
	return r.local.Git(ctx, args...)
}
