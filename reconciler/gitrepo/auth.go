package gitrepo

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Credentials supplies the credential for one fetch. Every fetch calls it, so that a rotated or
// short-lived credential needs no restart.
type Credentials func(ctx context.Context) (Auth, error)

// Auth is a credential. The zero value is none. Its text, JSON and log forms show only its kind. A
// closure holds the content, because fmt prints the fields of an unexported Auth field without
// calling Format.
type Auth struct{ reveal func() secret }

type secret struct {
	kind       string
	user       string
	password   string
	signer     ssh.Signer
	knownHosts []byte
}

func sealed(s secret) Auth { return Auth{func() secret { return s }} }

// secret returns the credential's content; empty for none.
func (a Auth) secret() secret {
	if a.reveal == nil {
		return secret{}
	}
	return a.reveal()
}

// Token is an access token for an https source. It is sent as the password of the user
// x-access-token, which GitHub asks for and GitLab, Gitea and Bitbucket accept.
func Token(token string) Auth {
	return sealed(secret{kind: "token", user: "x-access-token", password: token})
}

// Basic is a user name and password for an https source.
func Basic(user, password string) Auth {
	return sealed(secret{kind: "basic", user: user, password: password})
}

// SSHKey is a private key in PEM or OpenSSH form, its passphrase or nil, and the known_hosts lines
// that the server is checked against. There is no way to accept an unknown host.
func SSHKey(privateKey, passphrase, knownHosts []byte) (Auth, error) {
	refuse := func(subject, why string) (Auth, error) {
		return Auth{}, &Error{Kind: ErrRefused, Subject: subject, Detail: why}
	}
	if len(strings.TrimSpace(string(knownHosts))) == 0 {
		return refuse("known_hosts",
			"empty; add the server's line, as ssh-keyscan prints it once you have verified it")
	}
	var signer ssh.Signer
	var err error
	if len(passphrase) > 0 {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(privateKey, passphrase)
	} else {
		signer, err = ssh.ParsePrivateKey(privateKey)
	}
	if err != nil { // the parser's error could quote the key's bytes
		return refuse("ssh private key",
			"cannot be read; give it in PEM or OpenSSH form, with its passphrase if it has one")
	}
	return sealed(secret{kind: "ssh key", signer: signer, knownHosts: knownHosts}), nil
}

func (a Auth) label() string {
	if a.reveal == nil {
		return "no credential"
	}
	return a.secret().kind + " credential"
}

// String returns the kind alone.
func (a Auth) String() string { return a.label() }

// Format prints the kind alone, whatever the verb.
func (a Auth) Format(f fmt.State, _ rune) { fmt.Fprint(f, a.label()) }

// MarshalText returns the kind alone; JSON and YAML use it.
func (a Auth) MarshalText() ([]byte, error) { return []byte(a.label()), nil }

// LogValue returns the kind alone.
func (a Auth) LogValue() slog.Value { return slog.StringValue(a.label()) }

// apply adds the credential to a request; the caller has already checked the host.
func (a Auth) apply(r *http.Request) {
	if s := a.secret(); s.kind != "" {
		r.SetBasicAuth(s.user, s.password)
	}
}

// scrub removes the credential from a server's text, in case a server or proxy echoed it.
func (a Auth) scrub(text string) string {
	s := a.secret()
	if s.password == "" {
		return text
	}
	pair := base64.StdEncoding.EncodeToString([]byte(s.user + ":" + s.password))
	for _, form := range []string{pair, s.password, url.QueryEscape(s.password),
		url.PathEscape(s.password)} {
		text = strings.ReplaceAll(text, form, "[credential]")
	}
	return text
}
