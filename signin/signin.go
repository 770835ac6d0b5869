// Package signin proves who a person is: by OpenID Connect, and by the OAuth of GitHub. It is the
// only importer of go-oidc and oauth2.
//
// Rules of this package:
//   - a token counts only with a signature of the issuer's present keys, the issuer, our client ID
//     as audience and as authorized party, the nonce of the sign-in, and a time within a minute of
//     our clock;
//   - the issuer's key of the person (sub) identifies them, never a name or an e-mail address;
//   - an account of the Git host counts only if the issuer has proven it with its number;
//   - everything that a provider sends is bounded in size, and no text of it is trusted.
package signin

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"argosy.dev/argosy/fleet/view"
)

// Kind is the protocol of a provider.
type Kind string

// Kinds of providers.
const (
	OIDC   Kind = "oidc"
	GitHub Kind = "github" // an OAuth app: GitHub is no OpenID provider
)

// Config is one provider.
type Config struct {
	Kind     Kind
	Name     string // in records and routes
	Title    string // for people
	URL      string // of the issuer; of GitHub
	ClientID string
	// Secret is read at each use; nil: a public client
	Secret func() (string, error)
	Scopes []string
	// claims of the ID token; of GitHub, the login and the teams
	Username, Groups string
	// GroupPrefix is put before each group, so that groups of two providers never meet
	GroupPrefix string
	// Reserved are the prefixes of other providers, with which no group of this one may begin
	Reserved []string
	// API is the Git host's API, which proves the person's account there with the access token;
	// "": the provider proves none by it
	API string
	// Connector of Dex is the one whose login and number are an account of the Git host
	Connector string
	Roots     *x509.CertPool // nil: the system's
}

const (
	skew        = time.Minute      // that clocks may differ
	askTime     = 10 * time.Second // of one request to a provider
	maxAnswer   = 1 << 20          // bytes
	rediscovery = time.Hour
	maxGroups   = 1000
)

// algorithms are those that an ID token may be signed with: "none" and those with a shared secret
// are not among them.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512,
	oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// Providers are the configured providers.
type Providers struct {
	all []*provider
	now func() time.Time
}

type provider struct {
	Config
	client *http.Client

	mu    sync.Mutex
	found *found // nil: not discovered yet
}

// found is what an issuer publishes about itself.
type found struct {
	provider *oidc.Provider
	endpoint oauth2.Endpoint
	at       time.Time
}

// New returns the providers in the given order. It asks none of them: a provider that is down must
// not keep the control plane from starting.
func New(configs []Config) *Providers {
	p := &Providers{now: time.Now}
	for _, c := range configs {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Roots}
		p.all = append(p.all, &provider{Config: c, client: &http.Client{
			Timeout: askTime, Transport: limited{transport},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}})
	}
	return p
}

// limited bounds every answer: the libraries read answers as a whole.
type limited struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	if err == nil {
		answer.Body = bounded{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	}
	return answer, err
}

type bounded struct {
	io.Reader
	io.Closer
}

// Providers are those that a person may choose, in order.
func (p *Providers) Providers() []view.Provider {
	list := make([]view.Provider, 0, len(p.all))
	for _, one := range p.all {
		list = append(list, view.Provider{Name: one.Name, Title: one.Title})
	}
	return list
}

func (p *Providers) named(name string) (*provider, error) {
	i := slices.IndexFunc(p.all, func(one *provider) bool { return one.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%q: %w", name, view.ErrNoProvider)
	}
	return p.all[i], nil
}

// within lets the libraries use the provider's client.
func (p *provider) within(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, p.client)
}

// discover returns what the issuer publishes. It is asked once an hour; while it does not answer,
// the last answer counts.
func (p *provider) discover(ctx context.Context, now time.Time) (*found, error) {
	if p.Kind == GitHub {
		return &found{endpoint: oauth2.Endpoint{AuthURL: p.URL + "/login/oauth/authorize",
			TokenURL:      p.URL + "/login/oauth/access_token",
			DeviceAuthURL: p.URL + "/login/device/code",
			AuthStyle:     oauth2.AuthStyleInParams}}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil && now.Sub(p.found.at) < rediscovery {
		return p.found, nil
	}
	made, err := oidc.NewProvider(p.within(ctx), p.URL)
	if err != nil {
		if p.found != nil {
			return p.found, nil
		}
		return nil, fmt.Errorf("%s: %w: %w", p.URL, view.ErrProviderDown, err)
	}
	p.found = &found{provider: made, endpoint: made.Endpoint(), at: now}
	return p.found, nil
}

// oauth returns the client of the provider.
func (p *provider) oauth(f *found, redirect string) (*oauth2.Config, error) {
	c := &oauth2.Config{ClientID: p.ClientID, Endpoint: f.endpoint, Scopes: p.Scopes,
		RedirectURL: redirect}
	if p.Secret != nil {
		secret, err := p.Secret()
		if err != nil {
			return nil, fmt.Errorf("client secret of %s: %w", p.Name, err)
		}
		c.ClientSecret = secret
	}
	return c, nil
}

// Begin begins a sign-in in a browser, and returns the URL of the provider's page. redirect is
// where the provider sends the person back to.
func (p *Providers) Begin(ctx context.Context, name, redirect string) (view.Attempt, string,
	error) {
	one, err := p.named(name)
	if err != nil {
		return view.Attempt{}, "", err
	}
	f, err := one.discover(ctx, p.now())
	if err != nil {
		return view.Attempt{}, "", err
	}
	c, err := one.oauth(f, redirect)
	if err != nil {
		return view.Attempt{}, "", err
	}
	a := view.Attempt{Provider: name, State: rand.Text(), Nonce: rand.Text(),
		Verifier: oauth2.GenerateVerifier(), At: p.now().UTC()}
	return a, c.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)),
		nil
}

// Finish redeems the code of a sign-in, and returns the proven person.
func (p *Providers) Finish(ctx context.Context, a view.Attempt, redirect, code string) (
	view.Proven, error) {
	one, err := p.named(a.Provider)
	if err != nil {
		return view.Proven{}, err
	}
	f, err := one.discover(ctx, p.now())
	if err != nil {
		return view.Proven{}, err
	}
	c, err := one.oauth(f, redirect)
	if err != nil {
		return view.Proven{}, err
	}
	token, err := c.Exchange(one.within(ctx), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return view.Proven{}, one.refused(err)
	}
	return p.prove(ctx, one, f, token, a.Nonce)
}

// Refresh asks the provider again about a person, with the token that it gave before. The answer
// about another person is refused.
func (p *Providers) Refresh(ctx context.Context, name string, refresh []byte, subject string) (
	view.Proven, error) {
	one, err := p.named(name)
	if err != nil {
		return view.Proven{}, err
	}
	f, err := one.discover(ctx, p.now())
	if err != nil {
		return view.Proven{}, err
	}
	c, err := one.oauth(f, "")
	if err != nil {
		return view.Proven{}, err
	}
	var proven view.Proven
	if one.Kind == GitHub { // its access token does not expire
		proven, err = p.prove(ctx, one, f, &oauth2.Token{AccessToken: string(refresh)}, "")
	} else {
		var token *oauth2.Token
		token, err = c.TokenSource(one.within(ctx),
			&oauth2.Token{RefreshToken: string(refresh)}).Token()
		if err != nil {
			return view.Proven{}, one.refused(err)
		}
		proven, err = p.prove(ctx, one, f, token, anyNonce)
	}
	if err == nil && proven.Person.Subject != subject {
		err = &view.SignInRefused{Why: "the identity provider answers about another person",
			Next: "sign in again"}
	}
	return proven, err
}

// refused translates an error of the token endpoint: the provider's refusal, or its failure.
func (p *provider) refused(err error) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) && answer.Response != nil && answer.Response.StatusCode < 500 {
		return &view.SignInRefused{
			Why: "the identity provider refused this sign-in: " + short(first(answer.ErrorCode,
				answer.Response.Status)),
			Next: "begin again on the sign-in page; for invalid_client, check clientID and the " +
				"client secret in the settings"}
	}
	return fmt.Errorf("%s: %w: %w", p.Name, view.ErrProviderDown, err)
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// short cuts a text of a provider.
func short(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
