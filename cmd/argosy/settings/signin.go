package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// SignIn is who signs in, and for how long.
type SignIn struct {
	Issuers  []Issuer `yaml:"issuers" doc:"Identity providers, in the order of the sign-in page."`
	Idle     Duration `yaml:"idle,omitempty" doc:"A session ends after this time without a request, 5m to 72h." default:"8h"`
	Absolute Duration `yaml:"absolute,omitempty" doc:"A session ends after this time, 15m to 720h." default:"24h"`
	Refresh  Duration `yaml:"refresh,omitempty" doc:"Interval of asking the issuer again for the groups of a session whose issuer gave a refresh token, 1m to 24h." default:"15m"`
}

// Kinds of issuers.
const (
	IssuerOIDC   = "oidc"
	IssuerGitHub = "github"
)

// Issuer is one identity provider.
type Issuer struct {
	Name          string   `yaml:"name" doc:"Name in records (user:NAME/alice) and in the redirect URL (publicURL/signin/NAME/callback). Do not change it: sessions and records name it."`
	Title         string   `yaml:"title,omitempty" doc:"Name on the sign-in page; left out: the name."`
	Type          string   `yaml:"type,omitempty" doc:"oidc for an OpenID provider (Dex, Keycloak, Entra, Okta, Google, Gitea), github for an OAuth app of GitHub." default:"oidc"`
	URL           string   `yaml:"url,omitempty" doc:"URL of the issuer, exactly as its discovery names it. Of github: https://github.com, or https://HOST of a GitHub Enterprise Server."`
	ClientID      string   `yaml:"clientID" doc:"ID of the client that is registered for Argosy."`
	SecretFile    string   `yaml:"clientSecretFile,omitempty" doc:"File with the client's secret, read at each use; left out: a public client."`
	Scopes        []string `yaml:"scopes,omitempty" doc:"Scopes to ask for. Add groups where the issuer has it, and offline_access to refresh groups. Left out: openid, profile and email; of github read:org."`
	UsernameClaim string   `yaml:"usernameClaim,omitempty" doc:"Claim with the username: unique at the issuer, and never given to another person." default:"preferred_username"`
	GroupsClaim   string   `yaml:"groupsClaim,omitempty" doc:"Claim with the groups, a list of texts." default:"groups"`
	GroupPrefix   string   `yaml:"groupPrefix,omitempty" doc:"Text before each group, such as partner/: the entry group:partner/dev names the issuer's group dev. Each issuer but one needs its own."`
	GitHost       bool     `yaml:"gitHost,omitempty" doc:"The issuer proves accounts of the config repo's Git host: github: entries of files name its people and teams. For github, for the Gitea that hosts the config repo, and with connector for a Dex in front of it."`
	Connector     string   `yaml:"connector,omitempty" doc:"With gitHost and a Dex: the ID of its connector to the Git host. Add federated:id to scopes. Teams are groups then."`
	CAFile        string   `yaml:"caFile,omitempty" doc:"File with the CA certificates of the issuer, for a private CA."`
	AllowHTTP     bool     `yaml:"allowHTTP,omitempty" doc:"Accept an http:// URL of an issuer on this machine only: the connection is not encrypted."`
}

func (s *SignIn) withDefaults() {
	if s == nil {
		return
	}
	for d, fallback := range map[*Duration]time.Duration{&s.Idle: 8 * time.Hour,
		&s.Absolute: 24 * time.Hour, &s.Refresh: 15 * time.Minute} {
		if *d == 0 {
			*d = Duration(fallback)
		}
	}
	for n := range s.Issuers {
		i := &s.Issuers[n]
		i.Title, i.Type = or(i.Title, i.Name), or(i.Type, IssuerOIDC)
		i.UsernameClaim = or(i.UsernameClaim, "preferred_username")
		i.GroupsClaim = or(i.GroupsClaim, "groups")
		switch {
		case i.Type == IssuerGitHub:
			i.URL = or(i.URL, "https://github.com")
			if len(i.Scopes) == 0 {
				i.Scopes = []string{"read:org"}
			}
		case len(i.Scopes) == 0:
			i.Scopes = []string{"openid", "profile", "email"}
		}
	}
}

func or(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

var (
	issuerName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	groupPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,60}$`)
)

func (s *Settings) checkSignIn() error {
	if s.SignIn == nil {
		return nil
	}
	var errs []error
	if len(s.SignIn.Issuers) == 0 || len(s.SignIn.Issuers) > 20 {
		errs = append(errs, errors.New("signIn.issuers needs 1 to 20 entries"))
	}
	if s.Listen.Public == "" {
		errs = append(errs, errors.New("signIn needs listen.publicURL: issuers send people back to it"))
	}
	for _, d := range []struct {
		name        string
		d           Duration
		least, most time.Duration
	}{{"idle", s.SignIn.Idle, 5 * time.Minute, 72 * time.Hour},
		{"absolute", s.SignIn.Absolute, 15 * time.Minute, 720 * time.Hour},
		{"refresh", s.SignIn.Refresh, time.Minute, 24 * time.Hour}} {
		if v := time.Duration(d.d); v < d.least || v > d.most {
			errs = append(errs, fmt.Errorf("signIn.%s must be %s to %s", d.name, d.least, d.most))
		}
	}
	for n := range s.SignIn.Issuers {
		errs = append(errs, s.SignIn.Issuers[n].check(fmt.Sprintf("signIn.issuers[%d]", n),
			s.Forge))
		for m := range s.SignIn.Issuers[:n] {
			errs = append(errs, apart(n, s.SignIn.Issuers[n], m, s.SignIn.Issuers[m]))
		}
	}
	return errors.Join(errs...)
}

// apart refuses two issuers whose people or groups could be taken for each other's.
func apart(n int, a Issuer, m int, b Issuer) error {
	switch {
	case a.Name == b.Name:
		return fmt.Errorf("signIn.issuers[%d] has the same name as issuers[%d]", n, m)
	case a.Type == IssuerGitHub || b.Type == IssuerGitHub: // it has no groups
	case a.GroupPrefix == b.GroupPrefix, a.GroupPrefix != "" && b.GroupPrefix != "" &&
		(strings.HasPrefix(a.GroupPrefix, b.GroupPrefix) ||
			strings.HasPrefix(b.GroupPrefix, a.GroupPrefix)):
		return fmt.Errorf("signIn.issuers[%d].groupPrefix %q and %q of issuers[%d] do not keep their "+
			"groups apart: give each issuer but one a prefix of its own, such as partner/", n,
			a.GroupPrefix, b.GroupPrefix, m)
	}
	return nil
}

func (i *Issuer) check(at string, forge *Forge) error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(at+format, args...))
	}
	if !issuerName.MatchString(i.Name) {
		fail(".name must be 1 to 63 of a-z, 0-9 and '-'")
	}
	u, err := url.Parse(i.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		fail(".url must be a URL such as https://login.example.com, without a credential or query")
	case u.Scheme == "http" && !(i.AllowHTTP && loopback(u.Hostname())):
		fail(".url is http; use https, or set allowHTTP for an issuer on this machine (127.0.0.1)")
	case u.Scheme != "https" && u.Scheme != "http":
		fail(".url has the scheme %q; https is supported", u.Scheme)
	}
	if i.Type != IssuerOIDC && i.Type != IssuerGitHub {
		fail(".type must be oidc or github")
	}
	if i.Type == IssuerOIDC && !slices.Contains(i.Scopes, "openid") {
		fail(".scopes needs openid: without it the issuer sends no ID token")
	}
	if i.Type == IssuerGitHub && i.SecretFile == "" {
		fail(".clientSecretFile is required for github")
	}
	if i.ClientID == "" {
		fail(".clientID is required")
	}
	if i.GroupPrefix != "" && !groupPrefix.MatchString(i.GroupPrefix) {
		fail(".groupPrefix must be 1 to 61 letters, digits and '-._/:@', such as partner/")
	}
	if i.Connector != "" && !i.GitHost {
		fail(".connector needs gitHost: true")
	}
	if i.GitHost && forge == nil {
		fail(".gitHost needs forge: without it Argosy knows no Git host")
	}
	return errors.Join(errs...)
}

func loopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback()
	}
	return host == "localhost"
}

// API is the API that proves accounts of the issuer's access tokens; "" if none does.
func (i *Issuer) API(forge *Forge) string {
	switch {
	case i.Type == IssuerGitHub && i.URL == "https://github.com":
		return "https://api.github.com/"
	case i.Type == IssuerGitHub:
		return strings.TrimSuffix(i.URL, "/") + "/api/v3/"
	case i.GitHost && i.Connector == "" && forge != nil:
		return strings.TrimSuffix(forge.API, "/") + "/"
	}
	return ""
}

// paths are the files that the section names.
func (s *SignIn) paths() []*string {
	if s == nil {
		return nil
	}
	var paths []*string
	for n := range s.Issuers {
		paths = append(paths, &s.Issuers[n].SecretFile, &s.Issuers[n].CAFile)
	}
	return paths
}
