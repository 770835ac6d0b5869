package stack

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Account is a user of a forge. The token may do whatever the user may.
type Account struct {
	ID       int64
	Login    string
	Password string // for git and the API
	Token    string // likewise
}

// ForgeError is an answer of the API that is no success.
type ForgeError struct {
	Status  int // of HTTP
	Request string
	Message string
}

func (e *ForgeError) Error() string {
	return fmt.Sprintf("forge: %s: %d: %s", e.Request, e.Status, e.Message)
}

// Call sends a request to the API as the account, or without credentials when it has no token. The
// path is below API(), e.g. "repos/acme/config/pulls/7". in is sent as JSON and the answer decoded
// into out; both may be nil. The error is a *ForgeError for every status but 2xx.
func (f *Forge) Call(ctx context.Context, as Account, method, path string, in, out any) error {
	_, err := f.call(ctx, method, path, in, out, func(r *http.Request) {
		if as.Token != "" {
			r.Header.Set("Authorization", "token "+as.Token)
		}
	})
	return err
}

func (f *Forge) call(ctx context.Context, method, path string, in, out any,
	authorize func(*http.Request)) (http.Header, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, f.API()+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	authorize(r)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, &ForgeError{Status: resp.StatusCode, Request: method + " " + path,
			Message: strings.TrimSpace(string(answer))}
	}
	if out == nil {
		return resp.Header, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("forge: %s %s: %w", method, path, err)
	}
	return resp.Header, nil
}

// list reads all pages of a list.
func list[T any](ctx context.Context, f *Forge, as Account, path string) (all []T, err error) {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	const limit = 50 // Gitea gives no more at a time
	for page := 1; ; page++ {
		var some []T
		if err := f.Call(ctx, as, http.MethodGet, path+separator+"limit="+strconv.Itoa(limit)+
			"&page="+strconv.Itoa(page), nil, &some); err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) < limit {
			return all, nil
		}
	}
}

// CreateUser makes an ordinary account.
func (f *Forge) CreateUser(ctx context.Context, login string) (Account, error) {
	a := Account{Login: login, Password: rand.Text()}
	err := f.Call(ctx, f.Admin, http.MethodPost, "admin/users", map[string]any{
		"username": login, "email": login + "@example.com", "password": a.Password,
		"must_change_password": false,
	}, nil)
	if err != nil {
		return Account{}, err
	}
	return a, f.identify(ctx, &a)
}

// DeleteUser removes an account with its repositories, so that its login is free again. Its
// comments and reviews stay, as a ghost's.
func (f *Forge) DeleteUser(ctx context.Context, login string) error {
	return f.Call(ctx, f.Admin, http.MethodDelete, "admin/users/"+url.PathEscape(login)+
		"?purge=true", nil, nil)
}

// identify finds the account's id and gets it a token unless it has one.
func (f *Forge) identify(ctx context.Context, a *Account) error {
	byPassword := func(r *http.Request) { r.SetBasicAuth(a.Login, a.Password) }
	if a.Token == "" {
		var token struct{ SHA1 string }
		_, err := f.call(ctx, http.MethodPost, "users/"+url.PathEscape(a.Login)+"/tokens",
			map[string]any{"name": "stack", "scopes": []string{"all"}}, &token, byPassword)
		if err != nil {
			return err
		}
		a.Token = token.SHA1
	}
	return f.Call(ctx, *a, http.MethodGet, "user", nil, a)
}

// CreateOrg makes an organization that the administrator owns.
func (f *Forge) CreateOrg(ctx context.Context, name string) error {
	return f.Call(ctx, f.Admin, http.MethodPost, "orgs", map[string]any{"username": name}, nil)
}

// CreateOrgHook makes a webhook of all repositories of an organization, see
// ForgeRepo.CreateHook. It returns its number.
func (f *Forge) CreateOrgHook(ctx context.Context, org, to, secret string,
	events ...string) (int64, error) {
	var hook struct{ ID int64 }
	err := f.Call(ctx, f.Admin, http.MethodPost, "orgs/"+url.PathEscape(org)+"/hooks",
		map[string]any{
			"type": "gitea", "active": true, "events": events,
			"config": map[string]any{"url": to, "content_type": "json", "secret": secret},
		}, &hook)
	return hook.ID, err
}

// DeleteOrgHook removes a webhook of an organization.
func (f *Forge) DeleteOrgHook(ctx context.Context, org string, id int64) error {
	return f.Call(ctx, f.Admin, http.MethodDelete, fmt.Sprintf("orgs/%s/hooks/%d",
		url.PathEscape(org), id), nil, nil)
}

// CreateTeam makes a team that has a permission (read, write or admin) on all
// repositories of the organization, and returns its id.
func (f *Forge) CreateTeam(ctx context.Context, org, name, permission string,
	members ...Account) (int64, error) {
	var team struct{ ID int64 }
	err := f.Call(ctx, f.Admin, http.MethodPost, "orgs/"+url.PathEscape(org)+"/teams",
		map[string]any{
			"name": name, "permission": permission, "includes_all_repositories": true,
			"units": []string{"repo.code", "repo.issues", "repo.pulls"},
		}, &team)
	if err != nil {
		return 0, err
	}
	for _, m := range members {
		if err := f.JoinTeam(ctx, team.ID, m); err != nil {
			return 0, err
		}
	}
	return team.ID, nil
}

// JoinOwners makes the account one of the organization's owners, who alone may
// see the members of teams that they are not in.
func (f *Forge) JoinOwners(ctx context.Context, org string, a Account) error {
	teams, err := list[struct {
		ID   int64
		Name string
	}](ctx, f, f.Admin, "orgs/"+url.PathEscape(org)+"/teams")
	if err != nil {
		return err
	}
	for _, team := range teams {
		if team.Name == "Owners" {
			return f.JoinTeam(ctx, team.ID, a)
		}
	}
	return fmt.Errorf("forge: %s has no team of owners", org)
}

// JoinTeam makes the account a member.
func (f *Forge) JoinTeam(ctx context.Context, team int64, a Account) error {
	return f.Call(ctx, f.Admin, http.MethodPut, memberPath(team, a), nil, nil)
}

// LeaveTeam ends its membership.
func (f *Forge) LeaveTeam(ctx context.Context, team int64, a Account) error {
	return f.Call(ctx, f.Admin, http.MethodDelete, memberPath(team, a), nil, nil)
}

func memberPath(team int64, a Account) string {
	return "teams/" + strconv.FormatInt(team, 10) + "/members/" + url.PathEscape(a.Login)
}
