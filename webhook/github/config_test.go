package github

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/webhook/github/githubtest"
)

func token(context.Context) (string, error) { return "ghp_0123456789abcdef", nil }

func TestNewRefusesWhatCannotWork(t *testing.T) {
	key := func(context.Context) ([]byte, error) { return nil, nil }
	good := Config{Repository: "acme/fleet", Auth: Auth{Token: token}}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no TLS": func(c *Config) { c.BaseURL = "http://git.example.com/api/v3/" },
		"a user in the URL": func(c *Config) {
			c.BaseURL = "https://ghp_secret:x@git.example.com/"
		},
		"no URL": func(c *Config) { c.BaseURL = "https://ghp_secret\x7f/" },
		"a query in the URL": func(c *Config) {
			c.BaseURL = "https://git.example.com/?token=ghp_secret"
		},
		"no host":              func(c *Config) { c.BaseURL = "https:///api" },
		"another scheme":       func(c *Config) { c.BaseURL, c.AllowHTTP = "file:///etc", true },
		"no repository":        func(c *Config) { c.Repository = "" },
		"a path":               func(c *Config) { c.Repository = "acme/fleet/x" },
		"a path upwards":       func(c *Config) { c.Repository = "acme/.." },
		"a dot":                func(c *Config) { c.Repository = "./fleet" },
		"a repository's query": func(c *Config) { c.Repository = "acme/fleet?x" },
		"a repository below 0": func(c *Config) { c.RepositoryID = -1 },
		"no credential":        func(c *Config) { c.Auth = Auth{} },
		"an App and a token":   func(c *Config) { c.Auth.App = &App{ID: 1, Key: key} },
		"an App without a key": func(c *Config) { c.Auth = Auth{App: &App{ID: 1}} },
		"an App without an id": func(c *Config) { c.Auth = Auth{App: &App{Key: key}} },
		"an App of Gitea's": func(c *Config) {
			c.Auth, c.BaseURL = Auth{App: &App{ID: 1, Key: key}}, "https://git.example.com/api/v1"
		},
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || strings.Contains(err.Error(), "ghp_secret") {
			t.Errorf("%s gives %v", name, err)
		}
	}
	for url, want := range map[string]string{
		"":                                  "https://api.github.com/",
		"https://git.example.com/api/v3":    "https://git.example.com/api/v3/",
		"https://git.example.com/x/api/v1/": "https://git.example.com/x/api/v1/",
	} {
		c := good
		c.BaseURL = url
		f, err := New(c)
		if err != nil || f.base.String() != want || f.gitea != strings.HasSuffix(want, "/v1/") {
			t.Errorf("%q is %s (%v)", url, f.base, err)
		}
	}
}

// Roots alone decide whether a Git host with a certificate of its own is trusted.
func TestForgeIsBelievedByItsCertificate(t *testing.T) {
	s := newStage(t, false)
	server := httptest.NewUnstartedServer(s.server)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the test fails the handshake on purpose
	server.StartTLS()
	t.Cleanup(server.Close)
	c := s.config()
	c.BaseURL, c.AllowHTTP = server.URL, false
	_, _, err := s.with(c).Repository(t.Context())
	check(t, s, "over a certificate of an unknown authority Repository", err)
	c.Roots = x509.NewCertPool()
	c.Roots.AddCert(server.Certificate())
	if _, _, err := s.with(c).Repository(t.Context()); err != nil {
		t.Error(err)
	}
}

// GitHub Enterprise has its API below a path.
func TestForgeBelowAPath(t *testing.T) {
	s := newStage(t, true)
	server := httptest.NewServer(http.StripPrefix("/api/v3", s.server))
	t.Cleanup(server.Close)
	s.server.URL = server.URL + "/api/v3/"
	s.opened()
	if _, err := s.forge().SetComment(t.Context(), 1, 0, marker, "hello"); err != nil {
		t.Error(err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A call to a silent Git host ends after half a minute.
func TestCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Repository: "acme/fleet", Auth: Auth{Token: token}}
		base, err := c.base()
		if err != nil {
			t.Fatal(err)
		}
		f := newForge(c, base, roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		begin := time.Now()
		_, _, err = f.Repository(t.Context())
		if took := time.Since(begin); err == nil || took != callTime ||
			!strings.Contains(err.Error(), "30s") {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestUserAgent(t *testing.T) {
	s := newStage(t, false)
	var seen string
	s.server.Break("GET /*", func(w http.ResponseWriter, r *http.Request) {
		seen = r.UserAgent()
		githubtest.HTML(http.StatusBadGateway)(w, r)
	})
	for given, want := range map[string]string{
		"": "argosy", "argosy/1.2 (acme)": "argosy/1.2 (acme)"} {
		c := s.config()
		c.UserAgent = given
		_, _, err := s.with(c).Repository(t.Context())
		if err == nil || seen != want {
			t.Errorf("it calls itself %q, not %q", seen, want)
		}
	}
}
