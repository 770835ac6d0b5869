package github

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Config names the repository, its Git host and the credentials.
type Config struct {
	// of the API; "" is https://api.github.com. GitHub Enterprise: https://host/api/v3/. Gitea:
	// https://host/api/v1/
	BaseURL    string
	Repository string // "owner/name"
	// the only repository that is believed; 0 takes the one that answers first, for as long as the
	// process runs
	RepositoryID int64
	Auth         Auth
	// the repository webhook with this URL is asked what it could not deliver. An App's own webhook
	// needs none
	HookURL   string
	Roots     *x509.CertPool // CAs of the Git host's certificate; nil: the system's
	AllowHTTP bool           // a base URL without TLS, for tests on one machine
	UserAgent string         // "" is argosy
	Proposals bool           // Propose is called: the App's token may write to branches
}

// Auth is either an App or a token. Both are asked for again whenever they are needed, so that a
// new one is taken up without a restart.
type Auth struct {
	Token func(context.Context) (string, error)
	App   *App
}

// App is a GitHub App.
type App struct {
	ID int64
	// 0: the one that has the repository is looked up
	InstallationID int64
	Key            func(context.Context) ([]byte, error) // its private key, PEM
}

const defaultBase = "https://api.github.com/"

var (
	fullName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/[A-Za-z0-9_.-]{1,100}$`)
	// a login, an organization, a team: never "." or ".."
	segment  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}(\[bot\])?$`)
	commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

func isRepository(name string) bool {
	return fullName.MatchString(name) && !strings.HasSuffix(name, "/.") && !strings.HasSuffix(name,
		"/..")
}

// base checks the settings and gives the base URL with a slash at its end.
func (c Config) base() (*url.URL, error) {
	text := c.BaseURL
	if text == "" {
		text = defaultBase
	}
	base, err := url.Parse(text)
	switch {
	case err != nil:
		// the error would repeat it, with the credentials before an @
		return nil, errors.New("the Git host's base URL is no URL")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "" || base.Host == "":
		return nil,
			errors.New(
				"the Git host's base URL is scheme, host and path alone, such as " +
					"https://git.example.com/api/v3/")
	case base.Scheme != "https" && (base.Scheme != "http" || !c.AllowHTTP):
		return nil, fmt.Errorf("the Git host's base URL %s must begin with https://", base)
	}
	if !strings.HasSuffix(base.Path, "/") {
		base.Path += "/"
	}
	return base, nil
}

func (c Config) check() error {
	switch {
	case !isRepository(c.Repository):
		return fmt.Errorf("the repository %q is not of the form owner/name", c.Repository)
	case c.RepositoryID < 0:
		return errors.New("the repository's id is a positive number")
	case (c.Auth.Token == nil) == (c.Auth.App == nil):
		return errors.New("the Git host needs a token or a GitHub App, and not both")
	case c.Auth.App != nil && (c.Auth.App.ID <= 0 || c.Auth.App.InstallationID < 0 ||
		c.Auth.App.Key == nil):
		return errors.New("a GitHub App needs its id and its private key")
	}
	return nil
}

// isGitea recognizes Gitea by the path of its API.
func isGitea(base *url.URL) bool { return strings.HasSuffix(base.Path, "/api/v1/") }
