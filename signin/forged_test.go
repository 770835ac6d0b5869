package signin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"argosy.dev/argosy/fleet/view"
)

// issuer signs whatever a test wants: no real provider issues such tokens.
type issuer struct {
	url string
	key *ecdsa.PrivateKey
	// token is the answer of the token endpoint
	token  string
	refuse bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, value func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{"issuer": i.url, "authorization_endpoint": i.url + "/auth",
			"token_endpoint": i.url + "/token", "jwks_uri": i.url + "/keys",
			"id_token_signing_alg_values_supported": []string{"none", "HS256", "ES256"}}
	})
	answer("/keys", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k",
			Algorithm: "ES256", Use: "sig"}}}
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if i.refuse {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer",
			"id_token": i.token})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

func (i *issuer) providers() *Providers {
	return New([]Config{{Kind: OIDC, Name: "corp", Title: "Corp", URL: i.url, ClientID: "argosy",
		Scopes: []string{"openid"}, Username: "preferred_username", Groups: "groups"}})
}

// claims of a valid token, before a test edits them.
func (i *issuer) claims(nonce string) map[string]any {
	now := time.Now().Unix()
	return map[string]any{"iss": i.url, "sub": "u1", "aud": "argosy", "exp": now + 300, "iat": now,
		"nonce": nonce, "preferred_username": "alice", "groups": []string{"acme"}}
}

func (i *issuer) sign(t *testing.T, key any, alg jose.SignatureAlgorithm,
	claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg,
		Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

func unsigned(claims map[string]any) string {
	part := func(v any) string {
		text, _ := json.Marshal(v) // of maps of texts and numbers
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]string{"alg": "none"}) + "." + part(claims) + "."
}

func TestATokenThatIsNotForUsIsRefused(t *testing.T) {
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, c := range map[string]struct {
		edit func(map[string]any)
		sign func(*issuer, map[string]any) string
		why  string // "": it is accepted
	}{
		"a valid one": {},
		"an expired one": {why: "expired",
			edit: func(c map[string]any) { c["exp"] = now.Add(-2 * time.Minute).Unix() }},
		"one within a minute of its end": {
			edit: func(c map[string]any) { c["exp"] = now.Add(-30 * time.Second).Unix() }},
		"one of the future": {why: "in the future",
			edit: func(c map[string]any) { c["iat"] = now.Add(2 * time.Minute).Unix() }},
		"one for another client": {why: "audience",
			edit: func(c map[string]any) { c["aud"] = "other" }},
		"one for us and another client": {why: "another client",
			edit: func(c map[string]any) { c["aud"] = []string{"argosy", "other"} }},
		"one for us that another client got": {why: "another client",
			edit: func(c map[string]any) { c["azp"] = "other" }},
		"one of another issuer": {why: "different provider",
			edit: func(c map[string]any) { c["iss"] = "https://evil.example.com" }},
		"one of another sign-in": {why: "nonce",
			edit: func(c map[string]any) { c["nonce"] = "another" }},
		"one without a nonce": {why: "nonce",
			edit: func(c map[string]any) { delete(c, "nonce") }},
		"one without a person": {why: "no person",
			edit: func(c map[string]any) { delete(c, "sub") }},
		"one for another access token": {why: "at_hash",
			edit: func(c map[string]any) { c["at_hash"] = "AAAAAAAAAAAAAAAAAAAAAA" }},
		"an unsigned one": {why: "not valid",
			sign: func(_ *issuer, c map[string]any) string { return unsigned(c) }},
		"one signed with a shared secret": {why: "not valid",
			sign: func(i *issuer, c map[string]any) string {
				return i.sign(t, []byte(strings.Repeat("argosy", 8)), jose.HS256, c)
			}},
		"one signed with another key": {why: "not valid",
			sign: func(i *issuer, c map[string]any) string {
				return i.sign(t, stranger, jose.ES256, c)
			}},
		"no token": {why: "no ID token",
			sign: func(*issuer, map[string]any) string { return "" }},
		"garbage": {why: "not valid",
			sign: func(*issuer, map[string]any) string { return "a.b.c" }},
		"groups that are no list": {why: "no list of groups",
			edit: func(c map[string]any) { c["groups"] = map[string]int{"acme": 1} }},
		"a username with a space": {why: "no usable username",
			edit: func(c map[string]any) { c["preferred_username"] = "alice smith" }},
		"a username of Cyrillic letters": {why: "no usable username",
			edit: func(c map[string]any) { c["preferred_username"] = "\u0430lice" }},
		"a username of two kinds": {why: "no usable username",
			edit: func(c map[string]any) { c["preferred_username"] = "corp/alice" }},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t)
			p := i.providers()
			attempt, _, err := p.Begin(t.Context(), "corp", "http://127.0.0.1/callback")
			if err != nil {
				t.Fatal(err)
			}
			claims := i.claims(attempt.Nonce)
			if c.edit != nil {
				c.edit(claims)
			}
			if i.token = ""; c.sign != nil {
				i.token = c.sign(i, claims)
			} else {
				i.token = i.sign(t, i.key, jose.ES256, claims)
			}
			proven, err := p.Finish(t.Context(), attempt, "http://127.0.0.1/callback", "code")
			var r *view.SignInRefused
			switch {
			case c.why == "" && (err != nil || proven.Person.Name != "alice"):
				t.Errorf("it is refused: %v", err)
			case c.why != "" && (!errors.As(err, &r) || !strings.Contains(r.Why, c.why)):
				t.Errorf("want a refusal with %q, got %+v %v", c.why, proven.Person, err)
			}
		})
	}
}

// A refresh asks about the same person only; its ID token has no nonce.
func TestARefreshIsAboutTheSamePerson(t *testing.T) {
	i := newIssuer(t)
	p := i.providers()
	claims := i.claims("")
	delete(claims, "nonce")
	claims["groups"] = []string{"globex"}
	i.token = i.sign(t, i.key, jose.ES256, claims)
	proven, err := p.Refresh(t.Context(), "corp", []byte("r"), "u1")
	if err != nil || strings.Join(proven.Person.Groups, "") != "globex" {
		t.Errorf("%+v %v", proven, err)
	}
	var r *view.SignInRefused
	if _, err = p.Refresh(t.Context(), "corp", []byte("r"), "u2"); !errors.As(err, &r) {
		t.Errorf("another person: %v", err)
	}
	i.refuse = true
	if _, err = p.Refresh(t.Context(), "corp", []byte("r"), "u1"); !errors.As(err, &r) {
		t.Errorf("a token that was revoked: %v", err)
	}
}

// A group grants only what an entry of that name grants, whatever it is called.
func TestGroupsStayGroups(t *testing.T) {
	p := &provider{Config: Config{Groups: "groups", GroupPrefix: "partner/",
		Reserved: []string{"x/"}}}
	got, err := p.groups(json.RawMessage(`["admin", "github:alice", "b\u202ea", "", "acme", "acme", "x/y"]`))
	if err != nil || strings.Join(got, " ") != "partner/acme partner/admin partner/github:alice" {
		t.Errorf("%q %v", got, err)
	}
	if got, err = p.groups(json.RawMessage(`"acme"`)); err != nil || len(got) != 1 {
		t.Errorf("%q %v", got, err)
	}
	many, _ := json.Marshal(make([]string, maxGroups+1))
	if _, err = p.groups(many); err == nil {
		t.Error("any number of groups is accepted")
	}
}

// Of a Dex with several connectors, one proves accounts of the Git host.
func TestOnlyTheNamedConnectorProvesAnAccount(t *testing.T) {
	p := &provider{Config: Config{Username: "preferred_username", Connector: "github"}}
	for federated, want := range map[string]int64{
		`{"connector_id":"github","user_id":"42"}`: 42,
		`{"connector_id":"local","user_id":"42"}`:  0,
		`{"connector_id":"github","user_id":"-1"}`: 0,
		`{"connector_id":"github","user_id":"4x"}`: 0,
		`{}`: 0,
		`[]`: 0,
	} {
		person, err := p.person(claims{"sub": json.RawMessage(`"s"`),
			"preferred_username": json.RawMessage(`"alice"`),
			"federated_claims":   json.RawMessage(federated)})
		if err != nil || person.Account.ID != want {
			t.Errorf("%s: %+v %v", federated, person, err)
		}
	}
}

// The answer of a provider that never ends is cut.
func TestAnEndlessAnswerIsCut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		block := []byte(strings.Repeat(" ", 1<<16))
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	p := New([]Config{{Kind: OIDC, Name: "corp", URL: server.URL, ClientID: "argosy"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, err := p.Begin(ctx, "corp", ""); !errors.Is(err, view.ErrProviderDown) {
		t.Errorf("%v", err)
	}
}

func FuzzClaims(f *testing.F) {
	f.Add(`{"sub":"u1","preferred_username":"alice","groups":["acme"]}`)
	f.Add(`{"sub":"u1","preferred_username":"a\u202eb","groups":"x"}`)
	f.Add(`{"preferred_username":7,"groups":{},"federated_claims":{"connector_id":"github","user_id":"7"}}`)
	p := &provider{Config: Config{Name: "corp", Username: "preferred_username", Groups: "groups",
		Connector: "github"}}
	f.Fuzz(func(t *testing.T, text string) {
		var all claims
		if json.Unmarshal([]byte(text), &all) != nil {
			return
		}
		person, err := p.person(all)
		if err != nil {
			return
		}
		if strings.ContainsAny(person.Name, "/ :\n") || len(person.Groups) > maxGroups {
			t.Errorf("%q is %+v", text, person)
		}
		if actor := person.Actor(); strings.ContainsFunc(actor, func(r rune) bool {
			return r <= ' ' || r > '~'
		}) {
			t.Errorf("%q is recorded as %q", text, actor)
		}
	})
}

func FuzzDeviceAnswers(f *testing.F) {
	f.Add(`{"error":"authorization_pending"}`)
	f.Add(`{"access_token":"a","id_token":"b"}`)
	f.Add(`<html>`)
	f.Fuzz(func(t *testing.T, text string) {
		token, err := deviceToken([]byte(text), time.Unix(0, 0))
		if (token == nil) == (err == nil) {
			t.Errorf("%q: %v %v", text, token, err)
		}
	})
}
