package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RepoURL is a checked repository URL in its canonical form: host in lower case, no default port,
// no trailing slash.
type RepoURL struct {
	Scheme string // https, ssh, or http (for hosts that Fleet.gitHosts lists with that scheme)
	User   string // of ssh, e.g. git; never with a password
	Host   string // with :port when it is not the default
	Path   string // begins with a slash; case is kept
}

// ParseRepoURL parses the repoURL of a source or credential. Only https, http and ssh are
// transports (CVE-2025-21613, CVE-2026-44936: ext::, file:// and options passed as hosts). It
// refuses every character that Argo CD would read as a pattern, because Argo CD matches sourceRepos
// and the URLs of scoped Secrets as globs. GitHostAllowed decides whether the host is allowed.
// Errors never repeat the URL.
func ParseRepoURL(raw string) (RepoURL, error) {
	if err := plainURL(raw); err != nil {
		return RepoURL{}, err
	}
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return RepoURL{}, withoutScheme(raw)
	}
	if scheme != "https" && scheme != "http" && scheme != "ssh" {
		return RepoURL{}, wrongScheme(scheme)
	}
	authority, path, _ := strings.Cut(rest, "/")
	u := RepoURL{Scheme: scheme, Path: "/" + path}
	user, host, hasUser := strings.Cut(authority, "@")
	if !hasUser {
		user, host = "", authority
	}
	switch {
	case hasUser && (scheme != "ssh" || strings.Contains(user, ":")):
		return RepoURL{},
			errors.New(
				"a URL must not carry a user or password; declare a RepositoryCredential for it")
	case hasUser && !isUser(user):
		return RepoURL{},
			errors.New(
				"the user of an ssh URL may only hold a-z, A-Z, 0-9, '-' and '_', and begins " +
					"with a letter or digit")
	}
	u.User = user
	if err := checkHostPort(host, defaultPort(scheme)); err != nil {
		return RepoURL{}, err
	}
	u.Host = host
	return u, checkURLPath(u.Path)
}

func wrongScheme(scheme string) error {
	if lower := strings.ToLower(scheme); lower == "https" || lower == "http" || lower == "ssh" {
		return fmt.Errorf("write %s:// in lower case", lower)
	}
	return errors.New(
		"a repository URL begins with https://, ssh://, or http:// where gitHosts of " +
			"fleet/fleet.yaml lists http:// and the host")
}

func withoutScheme(raw string) error {
	userHost, path, scp := strings.Cut(raw, ":")
	if user, host, at := strings.Cut(userHost, "@"); scp && at && isUser(user) &&
		checkHostPort(host, "") == nil && checkURLPath("/"+path) == nil {
		return fmt.Errorf("write ssh://%s@%s/%s: the short form of git is not read", user, host,
			path)
	}
	return errors.New("a repository URL begins with https:// or ssh://")
}

// String is the URL as written in a declaration.
func (u RepoURL) String() string {
	if u.User != "" {
		return u.Scheme + "://" + u.User + "@" + u.Host + u.Path
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// Key is equal for two spellings of one repository: Argo CD's NormalizeGitURL lowers the case and
// drops one ".git".
func (u RepoURL) Key() string {
	u.Path = strings.TrimSuffix(strings.ToLower(u.Path), ".git")
	return strings.ToLower(u.String())
}

// NormalizeRepoURL is the key under which a repository is compared (RepoURL.Key), or why the URL is
// refused.
func NormalizeRepoURL(raw string) (key string, err error) {
	u, err := ParseRepoURL(raw)
	if err != nil {
		return "", err
	}
	return u.Key(), nil
}

// CheckGrant reports why an entry of Tenant.repositories is refused, or nil. An entry is a
// repository URL, or covers everything below it if it ends in a slash.
func CheckGrant(grant string) error {
	rest, prefix := strings.CutSuffix(grant, "/")
	if prefix && !strings.Contains(strings.TrimPrefix(strings.TrimPrefix(rest, "https://"),
		"ssh://"), "/") {
		return errors.New(
			"a grant names at least one folder of the host, e.g. https://git.example.com/acme/")
	}
	_, err := ParseRepoURL(rest)
	return err
}

// RepositoryGranted reports whether one of a tenant's grants covers the repository: the same URL,
// or a parent that ends in a slash. Spellings that Argo CD reads as one repository are one here. A
// URL that does not parse is not granted.
func RepositoryGranted(grants []string, raw string) bool {
	key, err := NormalizeRepoURL(raw)
	if err != nil {
		return false
	}
	for _, g := range grants {
		rest, below := strings.CutSuffix(g, "/")
		u, err := ParseRepoURL(rest)
		if err != nil {
			continue
		}
		if !below && u.Key() == key {
			return true
		}
		u.Path += "/" // a folder keeps its name: "acme.git/" is not "acme/"
		if below && strings.HasPrefix(key, u.Key()) {
			return true
		}
	}
	return false
}

// CheckGitHost reports why an entry of Fleet.gitHosts is refused, or nil. An entry is an exact
// host, with :port unless it is the default, or "http://host[:port]" to allow that host without
// TLS.
func CheckGitHost(entry string) error {
	if err := plainURL(entry); err != nil {
		return err
	}
	host, plain := strings.CutPrefix(entry, "http://")
	if strings.Contains(host, "/") {
		return errors.New("write the host alone, e.g. git.example.com or git.example.com:8443")
	}
	if plain {
		return checkHostPort(host, "80")
	}
	return checkHostPort(host, "")
}

// ValidateRef reports why the name of a source for other sources' value files is refused, or nil.
func ValidateRef(ref string) error {
	for i := range len(ref) {
		c := ref[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' && c != '_' || i == 0) {
			return errors.New("a ref holds a-z, A-Z, 0-9, '-' and '_', and begins with a letter " +
				"or digit")
		}
	}
	if ref == "" || len(ref) > maxName {
		return fmt.Errorf("a ref has 1 to %d characters", maxName)
	}
	return nil
}

// GitHostAllowed reports whether Fleet.gitHosts lists the repository's host exactly, port included.
// http:// needs an entry with that scheme.
func GitHostAllowed(hosts []string, u RepoURL) bool {
	want := u.Host
	if u.Scheme == "http" {
		want = "http://" + want
	}
	return slices.Contains(hosts, want)
}

func checkURLPath(path string) error {
	if path == "/" {
		return errors.New("the URL names no repository on the host")
	}
	if strings.ContainsAny(path, "[]@:") {
		return errors.New("the path of a repository URL may not hold '[', ']', '@' or ':'")
	}
	for s := range strings.SplitSeq(path[1:], "/") {
		switch {
		case s == "" && strings.HasSuffix(path, "/"):
			return errors.New("leave out the trailing slash")
		case s == "" || s == "." || s == "..":
			return errors.New("the path of a repository URL has no empty, '.' or '..' part")
		case strings.EqualFold(s, ".git") || s[0] == '-':
			return errors.New(
				"a part of a repository URL's path is not '.git' and does not begin with '-'")
		}
	}
	return nil
}

func defaultPort(scheme string) string {
	return map[string]string{"https": "443", "http": "80", "ssh": "22"}[scheme]
}

func isUser(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' && c != '_' || i == 0) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}
