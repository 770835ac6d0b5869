package githubtest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// App is a GitHub App.
type App struct {
	ID   int64
	Slug string
	Key  []byte // private, PEM

	s        *Server
	key      *rsa.PrivateKey
	bot      *Account
	installs []*installation
	hook     *Hook
	secret   string // of its webhook
}

type installation struct {
	id          int64
	app         *App
	repos       []*Repository
	permissions map[string]string
	suspended   time.Time
	tokens      []string
}

// keys are two, made once: making one takes longer than most tests.
var keys = sync.OnceValues(func() ([]*rsa.PrivateKey, error) {
	var two []*rsa.PrivateKey
	for range 2 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, err
		}
		two = append(two, key)
	}
	return two, nil
})

// Keys are two private keys, PEM. The first is that of every App.
func Keys(t testing.TB) [2][]byte {
	t.Helper()
	two, err := keys()
	if err != nil {
		t.Fatal(err)
	}
	encode := func(k *rsa.PrivateKey) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(k)})
	}
	return [2][]byte{encode(two[0]), encode(two[1])}
}

// App registers an App.
func (s *Server) App(slug string) *App {
	pems := Keys(s.t)
	two, _ := keys()
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &App{ID: s.id(), Slug: slug, Key: pems[0], s: s, key: two[0], secret: "hook-" + slug}
	a.bot = s.join(slug+"[bot]", "Bot")
	a.hook = &Hook{s: s}
	s.apps[a.ID] = a
	return a
}

// Bot is the account that the App writes as.
func (a *App) Bot() *Account { return a.bot }

// Everything lists the permissions of an App that Argosy's manifest creates.
func Everything() map[string]string {
	return map[string]string{
		"checks": "write", "statuses": "write", "pull_requests": "write", "issues": "write",
		"contents": "read", "members": "read",
		"metadata": "read", "merge_queues": "read",
	}
}

// Install installs the App for repositories and gives the installation's id.
func (a *App) Install(permissions map[string]string, repos ...*Repository) int64 {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	i := &installation{id: a.s.id(), app: a, repos: repos, permissions: permissions}
	a.installs = append(a.installs, i)
	return i.id
}

// Suspend suspends the installations of the App.
func (a *App) Suspend() {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for _, i := range a.installs {
		i.suspended = a.s.tick()
	}
}

// Expire ends the tokens that the App's installations have been given.
func (a *App) Expire() {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for _, i := range a.installs {
		for _, secret := range i.tokens {
			delete(a.s.credentials, secret)
		}
	}
}

// Propose submits the manifest's page: it creates the App and returns the code for its conversion.
func (s *Server) Propose(slug string) (code string) {
	a := s.App(slug)
	code = secret("code")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code] = a
	return code
}

func secret(what string) string {
	return what + "_" + hex.EncodeToString([]byte(rand.Text()))
}

func (s *Server) appObject(a *App) object {
	return object{
		"id": a.ID, "slug": a.Slug, "name": a.Slug, "owner": s.accountObject(a.bot),
		"html_url":    "https://github.test/apps/" + a.Slug,
		"permissions": object{}, "external_url": "https://argosy.example/",
	}
}

func getApp(s *Server, r *request) answer {
	return answer{status: http.StatusOK, body: s.appObject(r.app)}
}

func (s *Server) installationObject(i *installation) object {
	o := object{"id": i.id, "app_id": i.app.ID, "app_slug": i.app.Slug,
		"account": s.accountObject(i.app.bot), "permissions": fields(i.permissions),
		"repository_selection": "selected"}
	if !i.suspended.IsZero() {
		o["suspended_at"] = stamp(i.suspended)
	}
	return o
}

func fields(m map[string]string) object {
	o := object{}
	for name, value := range m {
		o[name] = value
	}
	return o
}

func getInstallation(s *Server, r *request) answer {
	for _, i := range r.app.installs {
		if i.id == r.number("installation_id") {
			return answer{status: http.StatusOK, body: s.installationObject(i)}
		}
	}
	return notFound
}

func getInstallationOf(s *Server, r *request) answer {
	for _, i := range r.app.installs {
		if slices.Contains(i.repos, r.repo) {
			return answer{status: http.StatusOK, body: s.installationObject(i)}
		}
	}
	return notFound
}

func postToken(s *Server, r *request) answer {
	at := slices.IndexFunc(r.app.installs, func(i *installation) bool {
		return i.id == r.number("installation_id")
	})
	if at < 0 {
		return notFound
	}
	i := r.app.installs[at]
	if !i.suspended.IsZero() {
		return problem(http.StatusForbidden, "This installation has been suspended")
	}
	c := &caller{install: i, permissions: i.permissions}
	if wanted, ok := r.body["permissions"].(object); ok {
		c.permissions = map[string]string{}
		for name, level := range wanted {
			text, _ := level.(string)
			if levels[i.permissions[name]] < levels[text] {
				return refusal("The permissions requested are not granted to this installation.")
			}
			c.permissions[name] = text
		}
	}
	if c.only = reached(i, r.body); c.only == nil {
		return refusal(
			"There is at least one repository that does not exist or is not accessible to the " +
				"parent installation.")
	}
	token := secret("ghs")
	s.credentials[token] = c
	i.tokens = append(i.tokens, token)
	return answer{status: http.StatusCreated, body: object{
		"token": token, "expires_at": stamp(time.Now().Add(time.Hour)),
		"permissions": fields(c.permissions)}}
}

func refusal(message string) answer {
	return answer{status: http.StatusUnprocessableEntity, body: object{
		"message": message, "documentation_url": "https://docs.github.com/rest"}}
}

// reached returns the repositories that a token is requested for; nil if the installation lacks one
// of them.
func reached(i *installation, body object) []int64 {
	ids, _ := body["repository_ids"].([]any)
	names, _ := body["repositories"].([]any)
	all := []int64{}
	for _, r := range i.repos {
		_, name, _ := strings.Cut(r.Name, "/")
		if len(ids)+len(names) == 0 || slices.Contains(ids, any(float64(r.ID))) ||
			slices.Contains(names, any(name)) {
			all = append(all, r.ID)
		}
	}
	if len(ids)+len(names) > len(all) {
		return nil
	}
	return all
}

func convertManifest(s *Server, r *request) answer {
	a := s.codes[r.inPath["code"]]
	if a == nil {
		return notFound
	}
	delete(s.codes, r.inPath["code"])
	o := s.appObject(a)
	o["client_id"], o["client_secret"], o["webhook_secret"], o["pem"] = fmt.Sprintf("Iv1.%d", a.ID),
		secret("client"), a.secret, string(a.Key)
	return answer{status: http.StatusCreated, body: o}
}
