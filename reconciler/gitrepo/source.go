package gitrepo

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Source configures a mirror.
type Source struct {
	// URL is https://host/path, ssh://user@host/path or user@host:path; with the matching option
	// also http:// or a local path. It contains no password, query or fragment, and https no user
	// either: those belong in Auth.
	URL string
	// Branch is a full ref name; empty means refs/heads/main. Short names are rejected, because a
	// tag may have the same name.
	Branch string
	// Auth supplies the credential for each fetch; nil means none.
	Auth Credentials
}

// String returns the URL without secrets.
func (s Source) String() string { return redactURL(s.URL) + " " + s.Branch }

// GoString is String, so that %#v reveals no secret.
func (s Source) GoString() string { return s.String() }

// LogValue is String, so that a log contains no secret.
func (s Source) LogValue() slog.Value { return slog.StringValue(s.String()) }

// location is a checked source URL.
type location struct {
	scheme   string   // https, http, ssh or file
	url      *url.URL // for https and http: without user info, query and fragment
	user     string   // for ssh
	address  string   // for ssh: host:port
	path     string   // for ssh: as the server receives it; for file: absolute
	display  string   // for people: without secrets
	identity string   // identifies the mirrored repository; scheme and host in lower case
}

const allowedForms = "use https://host/path, ssh://user@host/path or user@host:path"

func refusedSource(raw, format string, args ...any) error {
	return &Error{Kind: ErrRefused, Subject: redactURL(raw), Detail: fmt.Sprintf(format, args...)}
}

func parseLocation(raw string, plainHTTP, localPaths bool) (location, error) {
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return location{}, refusedSource(raw, "a source URL has no space or control character")
	}
	if scheme, _, ok := strings.Cut(raw, "://"); ok && !strings.Contains(scheme, ":") &&
		!strings.Contains(scheme, "/") {
		return parseURL(raw, plainHTTP, localPaths)
	}
	if filepath.IsAbs(raw) {
		return parseLocal(raw, raw, localPaths)
	}
	return parseSCP(raw)
}

func parseURL(raw string, plainHTTP, localPaths bool) (location, error) {
	u, err := url.Parse(raw)
	if err != nil { // the parser's error contains the URL, password included
		return location{}, refusedSource(raw, "not a URL; %s", allowedForms)
	}
	if _, hasPassword := u.User.Password(); hasPassword {
		return location{},
			refusedSource(raw, "the URL holds a password; remove it and give it as a credential")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return location{}, refusedSource(raw, "the URL has a query or fragment; remove it")
	}
	switch u.Scheme = strings.ToLower(u.Scheme); u.Scheme {
	case "http", "https":
		return parseHTTP(raw, u, plainHTTP)
	case "ssh":
		return sshLocation(raw, u.User.Username(), u.Hostname(), u.Port(),
			strings.Replace(u.Path, "/~", "~", 1))
	case "file":
		if u.Host != "" || u.User != nil {
			return location{}, refusedSource(raw, "a file URL names no host; write file:///path")
		}
		return parseLocal(raw, u.Path, localPaths)
	default:
		return location{}, refusedSource(raw, "scheme %q is not supported; %s", printable(u.Scheme),
			allowedForms)
	}
}

func parseHTTP(raw string, u *url.URL, plainHTTP bool) (location, error) {
	if u.Scheme == "http" && !plainHTTP {
		return location{},
			refusedSource(raw, "plain http is not allowed for this source; use https")
	}
	if u.User != nil {
		return location{},
			refusedSource(raw, "the URL holds a user name; remove it and give it as a credential")
	}
	if err := checkHost(raw, u.Hostname()); err != nil {
		return location{}, err
	}
	path := strings.TrimRight(u.Path, "/")
	if path == "" {
		return location{}, refusedSource(raw, "the URL names no repository; %s", allowedForms)
	}
	clean := &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host), Path: path}
	return location{scheme: u.Scheme, url: clean, display: clean.String(),
		identity: clean.String()}, nil
}

// scpForm is user@host:path. Neither part may start with a dash, which a program could parse as an
// option (CVE-2017-1000117), and the path may not start with two slashes or a colon, which excludes
// transport helpers (ext::).
var scpForm = regexp.MustCompile(
	`^(?:([A-Za-z0-9._][A-Za-z0-9._-]*)@)?([A-Za-z0-9._][A-Za-z0-9._-]*):([^:-].*)$`)

func parseSCP(raw string) (location, error) {
	m := scpForm.FindStringSubmatch(raw)
	if m == nil || strings.ContainsRune(m[3], ':') || strings.HasPrefix(m[3], "//") {
		return location{}, refusedSource(raw, "not a source URL; %s", allowedForms)
	}
	return sshLocation(raw, m[1], m[2], "", m[3])
}

func sshLocation(raw, user, host, port, path string) (location, error) {
	if err := checkHost(raw, host); err != nil {
		return location{}, err
	}
	if user == "" {
		user = "git"
	}
	if port == "" {
		port = "22"
	}
	trimmed := strings.Trim(path, "/")
	if trimmed == "" || strings.HasPrefix(trimmed, "-") || strings.HasPrefix(user, "-") ||
		strings.ContainsRune(path, '\\') {
		return location{},
			refusedSource(raw,
				"the user and path of an ssh source cannot be empty, start with a dash or have "+
					"a backslash")
	}
	address := net.JoinHostPort(strings.ToLower(host), port)
	display := "ssh://" + user + "@" + address + "/" + trimmed
	return location{scheme: "ssh", user: user, address: address, path: strings.TrimRight(path, "/"),
		display: display, identity: display}, nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9._:\[\]%][A-Za-z0-9._:\[\]%-]*$`)

func checkHost(raw, host string) error {
	if !hostName.MatchString(host) {
		return refusedSource(raw,
			"the host name is missing or has characters that a host name cannot have")
	}
	return nil
}

func parseLocal(raw, path string, localPaths bool) (location, error) {
	if !localPaths {
		return location{}, refusedSource(raw, "a local path is not allowed for this source; %s",
			allowedForms)
	}
	if !filepath.IsAbs(path) {
		return location{}, refusedSource(raw, "a local path must be absolute")
	}
	path = filepath.Clean(path)
	return location{scheme: "file", path: path, display: path, identity: "file://" + path}, nil
}

// redactURL keeps scheme, host and path of anything that resembles a URL, even if it does not
// parse.
func redactURL(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		scheme, rest = "", raw
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	} else if i := strings.LastIndexByte(rest, '@'); i >= 0 { // a slash in an unescaped password
		authority, path = rest[i+1:], ""
	}
	if ok {
		scheme += "://"
	}
	return printable(scheme + authority + path)
}

// branchName accepts the names that git check-ref-format accepts below refs/heads/ (CVE-2026-71557:
// a ref name that leaves its folder).
func branchName(ref string) (string, error) {
	if ref == "" {
		return "refs/heads/main", nil
	}
	refuse := func(why string) (string, error) {
		return "", &Error{Kind: ErrRefused, Subject: fmt.Sprintf("branch %q", printable(ref)),
			Detail: why}
	}
	name, ok := strings.CutPrefix(ref, "refs/heads/")
	if !ok {
		return refuse(
			"give the full ref name, such as refs/heads/main: a short name may also be a tag")
	}
	if len(ref) > 250 || !validRefPath(name) {
		return refuse("not a name that a Git branch can have")
	}
	return ref, nil
}

func validRefPath(name string) bool {
	if name == "" || name == "@" || strings.Contains(name, "..") || strings.Contains(name, "@{") ||
		strings.HasSuffix(name, ".") {
		return false
	}
	if strings.ContainsAny(name, " ~^:?*[\\\x7f") || strings.ContainsFunc(name, func(r rune) bool {
		return r < ' '
	}) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || part[0] == '-' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

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
