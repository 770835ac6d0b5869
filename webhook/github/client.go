package github

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
	api "github.com/google/go-github/v60/github"
)

const (
	callTime = 30 * time.Second // of one request, its redirects and the whole answer
	agent    = "argosy"
)

// Forge is one repository on a Git host. It is safe for concurrent use. New returns it.
type Forge struct {
	*connection
	pulls
	conversations
	checks
	people
	protections
	deliveries
	proposals
}

// New returns a Forge without a request to the Git host.
func New(c Config) (*Forge, error) {
	base, err := c.base()
	if err == nil {
		err = c.check()
	}
	if err == nil && c.Auth.App != nil && isGitea(base) {
		err = errors.New("a Gitea server has no Apps: give a token")
	}
	if err != nil {
		return nil, err
	}
	return newForge(c, base, dialer(c)), nil
}

func newForge(c Config, base *url.URL, next http.RoundTripper) *Forge {
	conn := newConnection(c, base, next)
	reader, resolver := pulls{conn}, people{conn}
	return &Forge{connection: conn, pulls: reader, conversations: conversations{reader},
		checks: checks{conn}, people: resolver, protections: protections{resolver},
		deliveries: deliveries{conn}, proposals: proposals{reader}}
}

func dialer(c Config) http.RoundTripper {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  callTime,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConnsPerHost:    8,
		MaxConnsPerHost:        16,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
}

func newClient(c Config, base *url.URL, through http.RoundTripper) *api.Client {
	client := api.NewClient(&http.Client{Transport: through, Timeout: callTime,
		CheckRedirect: stayHome(base)})
	client.BaseURL = base
	client.UserAgent = c.UserAgent
	if client.UserAgent == "" {
		client.UserAgent = agent
	}
	return client
}

// stayHome follows a redirect on the same host, as a renamed repository gives it, when the method
// stays the same.
func stayHome(base *url.URL) func(*http.Request, []*http.Request) error {
	return func(to *http.Request, via []*http.Request) error {
		switch {
		case !sameHost(to.URL, base):
			return errElsewhere
		case to.Method != via[0].Method:
			return errors.New(
				"the Git host redirects a write; set the repository to the name that it has now")
		case len(via) >= 4:
			return errors.New("the Git host redirects without end")
		}
		return nil
	}
}

func sameHost(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && a.Host == b.Host && a.User == nil
}

// authorized adds a token to each request.
type authorized struct {
	token func(context.Context) (string, error)
	next  http.RoundTripper
}

func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.token(r.Context())
	if err == nil && !isToken(token) {
		err = errors.New("the token is empty or has characters that no token has")
	}
	if err != nil {
		closeBody(r)
		return nil, &credentialError{err}
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "token "+token)
	return a.next.RoundTrip(r)
}

// isToken reports whether the text can be a token: a line feed at its end, or nothing at all, would
// be sent as something else.
func isToken(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(text) >= 8 && len(text) <= 4096
}

// signed signs each request as the App.
type signed struct {
	app  App
	next http.RoundTripper
}

func (s *signed) RoundTrip(r *http.Request) (*http.Response, error) {
	key, err := s.app.Key(r.Context())
	if err != nil {
		closeBody(r)
		return nil, &credentialError{fmt.Errorf("the App's private key: %w", err)}
	}
	through, err := ghinstallation.NewAppsTransport(s.next, s.app.ID, key)
	if err != nil {
		closeBody(r)
		return nil, &credentialError{errors.New("the App's private key is no RSA key in PEM form")}
	}
	return through.RoundTrip(r.Clone(r.Context()))
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // as a RoundTripper must; there is nothing to lose
	}
}

// credentialError means that there is no credential to authorize a request with.
type credentialError struct{ err error }

func (e *credentialError) Error() string { return "our account at the Git host: " + e.err.Error() }
func (e *credentialError) Unwrap() error { return e.err }
