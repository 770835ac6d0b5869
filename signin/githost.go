package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/oauth2"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/view"
)

// Pages of teams that are read of one person.
const (
	teamsPerPage = 100
	teamPages    = 5
)

// proveByAPI returns the person whose access token of GitHub this is. The number of the account is
// the unchangeable key; the login is the username.
func (p *provider) proveByAPI(ctx context.Context, token *oauth2.Token) (view.Proven, error) {
	account, teams, err := p.account(ctx, token.AccessToken)
	if err != nil {
		return view.Proven{}, err
	}
	return view.Proven{Refresh: []byte(token.AccessToken), Person: access.Person{Issuer: p.Name,
		Subject: strconv.FormatInt(account.ID, 10), Name: account.Name, Groups: []string{},
		Account: account, Teams: teams}}, nil
}

// account asks the Git host whose access token this is, and for the teams of the account.
func (p *provider) account(ctx context.Context, token string) (access.Account, []access.Account,
	error) {
	var user struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
	}
	if err := p.get(ctx, "user", token, &user); err != nil {
		return access.Account{}, nil, err
	}
	if _, err := fleet.ParseOwner("github:" + user.Login); err != nil || user.ID <= 0 ||
		strings.Contains(user.Login, "/") {
		return access.Account{}, nil, &view.SignInRefused{
			Why:  "the Git host names no account that a file could name",
			Next: "sign in with another account"}
	}
	var teams []access.Account
	for page := 1; page <= teamPages; page++ {
		var found []team
		path := fmt.Sprintf("user/teams?per_page=%d&limit=%d&page=%d", teamsPerPage, teamsPerPage,
			page)
		if err := p.get(ctx, path, token, &found); err != nil {
			return access.Account{}, nil, err
		}
		for _, t := range found {
			if a := t.account(); a.Name != "" {
				teams = append(teams, a)
			}
		}
		if len(found) < teamsPerPage {
			break
		}
	}
	return access.Account{Name: user.Login, ID: user.ID}, teams, nil
}

// team is a team as GitHub and Gitea describe it.
type team struct {
	ID           int64  `json:"id"`
	Name         string `json:"name"`
	Slug         string `json:"slug"` // GitHub's
	Organization struct {
		Login    string `json:"login"`    // GitHub's
		Username string `json:"username"` // Gitea's
		Name     string `json:"name"`     // Gitea's, in newer versions
	} `json:"organization"`
}

// account returns the team as entries name it; empty if none could.
func (t team) account() access.Account {
	name := first(t.Organization.Login, t.Organization.Username, t.Organization.Name) + "/" +
		first(t.Slug, t.Name)
	if o, err := fleet.ParseOwner("github:" + name); err != nil || o.Forge != name || t.ID <= 0 {
		return access.Account{}
	}
	return access.Account{Name: name, ID: t.ID}
}

// get reads an object of the Git host's API.
func (p *provider) get(ctx context.Context, path, token string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.API+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	answer, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", p.Name, view.ErrProviderDown, err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return &view.SignInRefused{Why: "the Git host refuses the access token for " +
			strings.SplitN(path, "?", 2)[0] + " (" + answer.Status + ")",
			Next: "check the scopes of the provider in the settings: GitHub takes read:org, Gitea " +
				"read:user and read:organization"}
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %w: %s", p.Name, view.ErrProviderDown, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		return fmt.Errorf("%s: %w: %w", p.Name, view.ErrProviderDown, err)
	}
	return nil
}
