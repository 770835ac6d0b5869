package gitrepo

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// noCanary fails if a text contains a test's secret.
func noCanary(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, "canary") || strings.Contains(text, "Y2FuYXJ5") { // its base64
		t.Fatalf("a secret shows: %s", text)
	}
}

func openWith(t *testing.T, url string, auth Auth, options ...Option) *Mirror {
	t.Helper()
	m, err := Open(t.Context(), t.TempDir(),
		Source{URL: url, Auth: func(context.Context) (Auth, error) { return auth, nil }},
		append(options, AllowPlainHTTP())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

type keyPair struct {
	private []byte
	signer  ssh.Signer
}

func sshKeyPair(t testing.TB) keyPair {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{pem.EncodeToMemory(block), signer}
}

func knownHostsLine(address string, host keyPair) string {
	return knownhosts.Line([]string{address}, host.signer.PublicKey()) + "\n"
}

// authFor returns a credential that fits the scheme.
func authFor(t testing.TB, scheme string, key keyPair, knownHosts string) Credentials {
	t.Helper()
	if scheme != "ssh" {
		return nil
	}
	auth, err := SSHKey(key.private, nil, []byte(knownHosts))
	if err != nil {
		t.Fatal(err)
	}
	return func(context.Context) (Auth, error) { return auth, nil }
}

func TestCredentialsAreSentOnlyWhereAllowed(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	s := newGitServer(t, o)
	var want atomic.Pointer[string]
	s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		user, pass, _ := r.BasicAuth()
		if user+":"+pass != *want.Load() {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "invalid token "+pass, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	expect := func(s string) { want.Store(&s) }
	t.Run("token", func(t *testing.T) {
		expect("x-access-token:canary-1")
		fetch(t, openWith(t, s.url(), Token("canary-1")))
	})
	t.Run("basic", func(t *testing.T) {
		expect("ada:canary-2")
		fetch(t, openWith(t, s.url(), Basic("ada", "canary-2")))
	})
	t.Run("wrong", func(t *testing.T) {
		noCanary(t, fails(t, openWith(t, s.url(), Token("canary-3")), ErrUnauthorized).Error())
	})
	t.Run("none", func(t *testing.T) { fails(t, openWith(t, s.url(), Auth{}), ErrUnauthorized) })
	t.Run("rotated without a restart", func(t *testing.T) {
		var now atomic.Value
		now.Store("canary-old")
		m, err := Open(t.Context(), t.TempDir(),
			Source{URL: s.url(), Auth: func(context.Context) (Auth, error) {
				return Token(now.Load().(string)), nil
			}}, AllowPlainHTTP())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		expect("x-access-token:canary-old")
		fetch(t, m)
		expect("x-access-token:canary-new")
		fails(t, m, ErrUnauthorized)
		now.Store("canary-new")
		fetch(t, m)
	})
	t.Run("unavailable", func(t *testing.T) {
		m, err := Open(t.Context(), t.TempDir(),
			Source{URL: s.url(), Auth: func(context.Context) (Auth, error) {
				return Auth{}, errors.New("secret acme/git is gone")
			}}, AllowPlainHTTP())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := fails(t, m, ErrUnauthorized); !strings.Contains(err.Error(),
			"secret acme/git is gone") {
			t.Fatal(err)
		}
	})
	t.Run("never unencrypted to another machine", func(t *testing.T) {
		err := fails(t, openWith(t, "http://git.example.invalid/config.git", Token("canary-4")),
			ErrRefused)
		noCanary(t, err.Error())
	})
	t.Run("an ssh key is rejected for https", func(t *testing.T) {
		key := sshKeyPair(t)
		auth, err := SSHKey(key.private, nil, []byte(knownHostsLine("git.example.com:22", key)))
		if err != nil {
			t.Fatal(err)
		}
		fails(t, openWith(t, s.url(), auth), ErrRefused)
	})
}

func TestServerThatEchoesTheCredential(t *testing.T) {
	o := newOrigin(t)
	o.set("fleet/fleet.yaml", "1")
	s := newGitServer(t, o)
	for name, echo := range map[string]func(user, pass, header string) string{
		"plain":  func(_, pass, _ string) string { return pass },
		"header": func(_, _, header string) string { return header },
		"at the very end of the printed text": func(_, pass, _ string) string {
			return strings.Repeat("-", 160) + pass
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.fault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				user, pass, _ := r.BasicAuth()
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				w.Write(
					appendPacket(nil, "ERR %s", echo(user, pass, r.Header.Get("Authorization"))))
			})
			err := fails(t, openWith(t, s.url(), Token("canary-secret-of-some-length")),
				ErrUnavailable)
			noCanary(t, err.Error())
		})
	}
}

func TestAuthRevealsNoSecret(t *testing.T) {
	key := sshKeyPair(t)
	sshAuth, err := SSHKey(key.private, nil, []byte(knownHostsLine("canary.example.com:22", key)))
	if err != nil {
		t.Fatal(err)
	}
	for _, auth := range []Auth{Token("canary-a"), Basic("canary-b", "canary-c"), sshAuth, {}} {
		type holder struct {
			Auth    Auth
			Pointer *Auth
			hidden  Auth
		}
		h := holder{auth, &auth, auth}
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "auth", auth, "holder", h)
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "auth", auth, "holder", h)
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		all := log.String() + string(text)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
			all += fmt.Sprintf(verb, auth) + fmt.Sprintf(verb, &auth) + fmt.Sprintf(verb, h)
		}
		noCanary(t, all)
		// as %x and %d would print it
		if strings.Contains(all, "63616e617279") || strings.Contains(all, "99 97 110 97 114 121") {
			t.Fatalf("a secret shows: %s", all)
		}
	}
	src := Source{
		URL:    "https://canary-user:canary-pass@git.example.com/acme/config?token=canary#canary",
		Branch: "refs/heads/main"}
	all := fmt.Sprintf("%v %+v %#v %s", src, src, src, src)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "source", src)
	noCanary(t, all+log.String())
}

func TestSSHKeyRejectsUnusableKeys(t *testing.T) {
	key := sshKeyPair(t)
	for name, make := range map[string]func() (Auth, error){
		"no known_hosts": func() (Auth, error) { return SSHKey(key.private, nil, []byte(" \n")) },
		"no key": func() (Auth, error) {
			return SSHKey([]byte("canary"), nil, []byte("x"))
		},
		"wrong passphrase": func() (Auth, error) {
			return SSHKey([]byte("canary"), []byte("canary"), []byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := make()
			if !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
			noCanary(t, err.Error())
		})
	}
}
