package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet/forge"
)

// people resolves accounts, teams and permissions.
type people struct{ *connection }

// Owner implements webhook.People. Gitea's teams are named by their names, which know no upper and
// lower case.
func (f people) Owner(ctx context.Context, name string) (forge.Account, error) {
	org, group, isTeam := strings.Cut(name, "/")
	if !segment.MatchString(org) || isTeam && !segment.MatchString(group) {
		return forge.Account{},
			fmt.Errorf("owner %q: it is neither user nor organization/team: %w", name,
				forge.ErrNoSuchOwner)
	}
	// an answer without the repository proves nothing about an owner
	if _, err := f.here(ctx); err != nil {
		return forge.Account{}, fmt.Errorf("owner %s: %w", name, err)
	}
	var owner forge.Account
	var err error
	switch {
	case !isTeam:
		owner, err = f.user(ctx, org)
	case f.gitea:
		owner, err = f.giteaTeam(ctx, org, group)
	default:
		owner, err = f.team(ctx, org, group)
	}
	if err != nil {
		return forge.Account{}, fmt.Errorf("owner %s: %w", name, err)
	}
	return owner, nil
}

func (f people) user(ctx context.Context, login string) (forge.Account, error) {
	a, err := f.get(ctx, path("users", login), nil)
	if isGone(err) {
		return forge.Account{}, forge.ErrNoSuchOwner
	}
	if err != nil {
		return forge.Account{}, err
	}
	u, err := read[account](a)
	switch {
	case err != nil:
		return forge.Account{}, err
	case !strings.EqualFold(u.Login, login):
		return forge.Account{}, errors.New("the Git host answers with another account")
	case u.Type == "Organization":
		return forge.Account{}, fmt.Errorf("it is an organization, name one of its teams: %w",
			forge.ErrNoSuchOwner)
	}
	return forge.Account{ID: u.ID, People: []forge.Person{u.person()}}, nil
}

// team is GitHub's team with the slug, the members of its child teams included.
func (f people) team(ctx context.Context, org, slug string) (forge.Account, error) {
	a, err := f.get(ctx, path("orgs", org, "teams", slug), nil)
	var is team
	if err == nil {
		is, err = read[team](a)
	}
	if err == nil && !strings.EqualFold(is.Slug, slug) {
		err = errors.New("the Git host answers with another team")
	}
	var members []forge.Person
	if err == nil {
		members, err = f.accounts(ctx, path("orgs", org, "teams", slug, "members"))
	}
	if isGone(err) {
		return forge.Account{}, f.noTeam(ctx, org, slug, err)
	}
	if err != nil {
		return forge.Account{}, mayNotRead(org, err)
	}
	return forge.Account{ID: is.ID, People: members}, nil
}

// noTeam proves that there is no such team: GitHub also answers "not found" for hidden teams.
func (f people) noTeam(ctx context.Context, org, slug string, gone error) error {
	teams, err := f.teams(ctx, org)
	switch {
	case isGone(err):
		if _, err := f.get(ctx, path("users", org), nil); isGone(err) { // organizations are public
			return forge.ErrNoSuchOwner
		}
		return mayNotRead(org, gone)
	case err != nil:
		return mayNotRead(org, err)
	}
	for _, t := range teams {
		if strings.EqualFold(t.Slug, slug) {
			return mayNotRead(org, gone)
		}
	}
	return forge.ErrNoSuchOwner
}

func (f people) giteaTeam(ctx context.Context, org, name string) (forge.Account, error) {
	teams, err := f.teams(ctx, org)
	if err != nil {
		return forge.Account{}, mayNotRead(org, err)
	}
	for _, t := range teams {
		if strings.EqualFold(t.Name, name) {
			members, err := f.accounts(ctx, path("teams", number(t.ID), "members"))
			return forge.Account{ID: t.ID, People: members}, mayNotRead(org, err)
		}
	}
	return forge.Account{}, forge.ErrNoSuchOwner
}

func (f people) teams(ctx context.Context, org string) ([]team, error) {
	return every(ctx, func(t team) int64 { return t.ID },
		pagesOf[team](f.connection, path("orgs", org, "teams"), nil, names))
}

func (f people) accounts(ctx context.Context, p string) ([]forge.Person, error) {
	members, err := every(ctx, func(a account) int64 { return a.ID },
		pagesOf[account](f.connection, p, nil, names))
	if err != nil {
		return nil, err
	}
	people := make([]forge.Person, 0, len(members))
	for _, m := range members {
		people = append(people, m.person())
	}
	return people, nil
}

// mayNotRead names the missing permission if the Git host hides an organization's teams.
func mayNotRead(org string, err error) error {
	if isGone(err) || hasStatus(err, http.StatusForbidden) {
		return fmt.Errorf(
			"our account may not read the teams of %s: the App needs the organization "+
				"permission \"Members: read\", "+
				"a token the scope read:org and membership in it; on Gitea the scope "+
				"read:organization, and to own it or be in each team that is named as an owner: %w",
			org, err)
	}
	return err
}

// Permission implements webhook.People.
func (f people) Permission(ctx context.Context, p forge.Person) (forge.Permission, error) {
	level, err := f.permission(ctx, p)
	if err != nil {
		return "", fmt.Errorf("permission of account %d (%s): %w", p.ID, plain(p.Login), err)
	}
	return level, nil
}

func (f people) permission(ctx context.Context, p forge.Person) (forge.Permission, error) {
	if p.ID <= 0 {
		return "", errors.New("the account has no ID")
	}
	r, err := f.here(ctx)
	if err != nil {
		return "", err
	}
	login, err := f.loginOf(ctx, p.ID)
	if err != nil {
		return "", err
	}
	a, err := f.get(ctx, in(r.FullName, "collaborators", login, "permission"), nil)
	if hasStatus(err, http.StatusForbidden) {
		return "",
			fmt.Errorf(
				"our account may not ask for it (on Gitea it must be an administrator of the "+
					"repository): %w", err)
	}
	if err != nil {
		return "", err
	}
	answer, err := read[permission](a)
	if err != nil {
		return "", err
	}
	if answer.User.ID != p.ID {
		return "", fmt.Errorf("the login %s is now another account's", plain(login))
	}
	level, err := answer.level()
	if err != nil {
		return "", fmt.Errorf("%q: %w", plain(answer.Permission), err)
	}
	if f.gitea && level != forge.PermissionAdmin && level != forge.PermissionWrite {
		return f.byTeam(ctx, r, p.ID, level)
	}
	return level, nil
}

// byTeam finds accounts with write access through a team alone: Gitea leaves that out of its answer
// for the account. A team with hidden members gives access to none.
func (f people) byTeam(ctx context.Context, r repository, id int64,
	otherwise forge.Permission) (forge.Permission, error) {
	a, err := f.get(ctx, in(r.FullName, "teams"), nil)
	if hasStatus(err, http.StatusMethodNotAllowed) { // it is a user's, who has no teams
		return otherwise, nil
	}
	if err != nil {
		return "", err
	}
	teams, err := readList[team](a)
	if err != nil {
		return "", err
	}
	for _, t := range teams {
		if level, err := (permission{Permission: t.UnitsMap["repo.code"]}).level(); err != nil ||
			level != forge.PermissionWrite {
			continue
		}
		members, err := f.accounts(ctx, path("teams", number(t.ID), "members"))
		if err != nil && !isGone(err) && !hasStatus(err, http.StatusForbidden) {
			return "", err
		}
		if slices.ContainsFunc(members, func(m forge.Person) bool { return m.ID == id }) {
			return forge.PermissionWrite, nil
		}
	}
	return otherwise, nil
}

// loginOf is the login that the account has now.
func (f people) loginOf(ctx context.Context, id int64) (string, error) {
	if f.gitea {
		return f.giteaLogin(ctx, id)
	}
	a, err := f.get(ctx, path("user", number(id)), nil)
	if isGone(err) {
		return "", fmt.Errorf("the account is gone: %w", forge.ErrNoSuchOwner)
	}
	if err != nil {
		return "", err
	}
	u, err := read[account](a)
	return loginIn(u, id, err)
}

func loginIn(u account, id int64, err error) (string, error) {
	switch {
	case err != nil:
		return "", err
	case u.ID != id || !segment.MatchString(u.Login):
		return "", errors.New("the Git host answers with another account")
	}
	return u.Login, nil
}

type search struct {
	OK   bool      `json:"ok"`
	Data []account `json:"data"`
}

func (s search) check() error {
	if !s.OK {
		return errors.New("the search failed")
	}
	for _, u := range s.Data {
		if err := u.check(); err != nil {
			return err
		}
	}
	return nil
}

// giteaLogin finds an account by its id, which Gitea does in its search alone.
func (f people) giteaLogin(ctx context.Context, id int64) (string, error) {
	a, err := f.get(ctx, path("users", "search"), url.Values{"uid": {number(id)}})
	if err != nil {
		return "", err
	}
	found, err := read[search](a)
	if err != nil {
		return "", err
	}
	if len(found.Data) == 0 {
		return "", fmt.Errorf("the account is gone, or ours may not see it: %w",
			forge.ErrNoSuchOwner)
	}
	return loginIn(found.Data[0], id, nil)
}
