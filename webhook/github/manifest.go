package github

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

	"argosy.dev/argosy/fleet"
)

// Proposal is the App to register. See GitHub's "Registering a GitHub App from a manifest".
type Proposal struct {
	BaseURL     string // of the API, as in Config
	Name        string // unique, at most 34 characters
	URL         string // a page about this installation of Argosy
	HookURL     string // the URL for deliveries
	RedirectURL string // where the browser comes back to, with a code
	Org         string // the organization that will own it; "" is the account that registers it
	AllowHTTP   bool   // as in Config
	Proposals   bool   // it may write to branches, to open pull requests of its own
	State       string // comes back with the code: who does not know it did not begin this
}

const longestName = 34

// Manifest returns the page of the Git host that takes a manifest, and the manifest: the browser
// sends it there by POST, in the form's field "manifest".
func Manifest(p Proposal) (formURL string, manifest []byte, err error) {
	base, err := Config{BaseURL: p.BaseURL, AllowHTTP: p.AllowHTTP}.base()
	switch {
	case err != nil:
		return "", nil, err
	case isGitea(base):
		return "", nil,
			errors.New("a Gitea server has no Apps: make an account and a token for Argosy there")
	case p.Name == "" || len([]rune(p.Name)) > longestName:
		return "", nil, fmt.Errorf("an App's name has 1 to %d characters", longestName)
	case link(p.URL) == "" || link(p.HookURL) == "" || link(p.RedirectURL) == "":
		return "", nil,
			errors.New("an App needs a URL of its own, one for deliveries and one to come back to")
	case p.Org != "" && !segment.MatchString(p.Org):
		return "", nil, fmt.Errorf("%q is no organization", p.Org)
	}
	contents := "read"
	if p.Proposals {
		contents = "write"
	}
	manifest, err = json.Marshal(map[string]any{
		"name": p.Name, "url": p.URL, "redirect_url": p.RedirectURL, "public": false,
		"hook_attributes": map[string]any{"url": p.HookURL, "active": true},
		"default_permissions": map[string]string{
			"checks": "write", "statuses": "write", "pull_requests": "write", "issues": "write",
			"contents": contents, "members": "read", "metadata": "read", "merge_queues": "read",
		},
		"default_events": []string{
			"push", "pull_request", "check_run", "check_suite", "issue_comment",
			"pull_request_review", "merge_group", "status",
		},
	})
	return formFor(base, p), manifest, err
}

// formFor is the page of the site that the API belongs to.
func formFor(base *url.URL, p Proposal) string {
	site := url.URL{Scheme: base.Scheme, Host: base.Host, Path: "/settings/apps/new"}
	if site.Host == "api.github.com" {
		site.Host = "github.com"
	}
	if p.Org != "" {
		site.Path = "/organizations/" + p.Org + "/settings/apps/new"
	}
	if p.State != "" {
		site.RawQuery = url.Values{"state": {p.State}}.Encode()
	}
	return site.String()
}

// Registration is a registered App. The Git host returns its secrets once.
type Registration struct {
	ID      int64
	Slug    string
	HTMLURL string // where it is installed from
	Secret  fleet.Secret
}

// Where a Registration's Secret has its values.
const (
	PrivateKey    = "githubAppPrivateKey" // PEM
	WebhookSecret = "secret"              // as webhook.SecretKey
)

var conversionCode = regexp.MustCompile(`^[A-Za-z0-9_-]{8,128}$`)

// Convert exchanges the code that the browser came back with for the App's ID and secrets. It works
// once, within an hour. Of the Config only the address of the Git host counts.
func Convert(ctx context.Context, c Config, code string) (Registration, error) {
	base, err := c.base()
	if err != nil {
		return Registration{}, err
	}
	if !conversionCode.MatchString(code) {
		return Registration{}, errors.New("the code is none that GitHub gives")
	}
	f := &connection{base: base}
	f.client = newClient(c, base, &wire{base: base, next: dialer(c), secret: code})
	a, err := f.send(ctx, call{client: f.client, method: http.MethodPost,
		path: path("app-manifests", code, "conversions"), shown: "/app-manifests/…/conversions"})
	if isGone(err) {
		return Registration{},
			fmt.Errorf("the code was used or is older than an hour; start again: %w", err)
	}
	if err != nil {
		return Registration{}, fmt.Errorf("the App's registration: %w", err)
	}
	made, err := read[converted](a)
	if err != nil {
		return Registration{}, fmt.Errorf("the App's registration: %w", err)
	}
	return Registration{ID: made.ID, Slug: made.Slug, HTMLURL: link(made.HTMLURL),
		Secret: fleet.NewSecret(map[string][]byte{
			PrivateKey: []byte(made.PEM), WebhookSecret: []byte(made.WebhookSecret),
		})}, nil
}

type converted struct {
	app
	HTMLURL       string `json:"html_url"`
	PEM           string `json:"pem"`
	WebhookSecret string `json:"webhook_secret"`
}

func (c converted) check() error {
	if err := c.app.check(); err != nil {
		return err
	}
	if c.PEM == "" || c.WebhookSecret == "" {
		return errors.New("the App has no private key or no webhook secret")
	}
	return nil
}
