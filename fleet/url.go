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
	// https, ssh, http (for hosts that Fleet.gitHosts lists with that scheme), or oci, with or
	// without Short
	Scheme string
	User   string // of ssh, e.g. git; never with a password
	Host   string // with :port when it is not the default
	// begins with a slash; case is kept; empty: the root of a host, which a Helm repository may be
	Path string
	// written without a scheme: "git@host:path" of ssh, "host/path" of oci
	Short bool
}

// ParseRepoURL parses the repoURL of a source or credential. Only https, http and ssh are
// transports of Git and of Helm repositories (CVE-2025-21613, CVE-2026-44936: ext::, file:// and
// options passed as hosts); "git@host:path" is ssh, "host/path" is a registry of OCI charts, and
// "oci://host/path" holds the artifacts of one name, as Argo CD has them. It refuses every
// character that Argo CD would read as a pattern, because Argo CD matches sourceRepos and the URLs
// of scoped Secrets as globs. GitHostAllowed decides whether the host is allowed. Errors never
// repeat the URL.
func ParseRepoURL(raw string) (RepoURL, error) {
	if err := plainURL(raw); err != nil {
		return RepoURL{}, err
	}
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return parseShort(raw)
	}
	if scheme != "https" && scheme != "http" && scheme != "ssh" && scheme != schemeOCI {
		return RepoURL{}, wrongScheme(scheme)
	}
	authority, path, below := strings.Cut(rest, "/")
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
	if !below && scheme != "ssh" && scheme != schemeOCI {
		u.Path = ""
		return u, nil
	}
	if scheme == schemeOCI && path != strings.ToLower(path) {
		return RepoURL{}, errors.New("the name of an OCI artifact is in lower case")
	}
	return u, checkURLPath(u.Path)
}

func wrongScheme(scheme string) error {
	if lower := strings.ToLower(scheme); lower == "https" || lower == "http" || lower == "ssh" ||
		lower == schemeOCI {
		return fmt.Errorf("write %s:// in lower case", lower)
	}
	return errors.New(
		"a repository URL begins with https://, ssh://, or http:// where gitHosts of " +
			"fleet/fleet.yaml lists http:// and the host")
}

// parseShort parses a URL without a scheme: "git@host:path", which is ssh://git@host/path, or
// "host/path" of a registry.
func parseShort(raw string) (RepoURL, error) {
	if userHost, path, scp := strings.Cut(raw, ":"); scp && strings.Contains(userHost, "@") {
		user, host, _ := strings.Cut(userHost, "@")
		u := RepoURL{Scheme: "ssh", User: user, Host: host, Path: "/" + path, Short: true}
		if !isUser(user) {
			return RepoURL{}, errors.New(
				"the user of an ssh URL may only hold a-z, A-Z, 0-9, '-' and '_', and begins " +
					"with a letter or digit")
		}
		if err := checkHostPort(host, ""); err != nil {
			return RepoURL{}, err
		}
		return u, checkURLPath(u.Path)
	}
	host, path, below := strings.Cut(raw, "/")
	if !below || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return RepoURL{}, errors.New("a repository URL begins with https:// or ssh://, or is " +
			"registry.example.com/<folder> of a registry of OCI charts")
	}
	if err := checkHostPort(host, "443"); err != nil {
		return RepoURL{}, err
	}
	if c := host[0]; c >= '0' && c <= '9' && strings.Contains(host, ":") {
		// Argo CD takes all that net/url cannot parse for one repository (NormalizeGitURL)
		return RepoURL{}, errors.New("the host of a registry with a port begins with a letter: " +
			"write a DNS name that leads to it")
	}
	u := RepoURL{Scheme: schemeOCI, Host: host, Path: "/" + path, Short: true}
	return u, checkURLPath(u.Path)
}

const schemeOCI = "oci"

// OCI reports whether the URL is of a registry: of OCI charts, or of artifacts.
func (u RepoURL) OCI() bool { return u.Scheme == schemeOCI }

// Artifact reports whether the URL names OCI artifacts, which Argo CD deploys without a chart.
func (u RepoURL) Artifact() bool { return u.OCI() && !u.Short }

// Git reports whether a Git repository can have the URL: it names one, and its scheme is Git's.
func (u RepoURL) Git() bool { return u.Path != "" && !u.OCI() }

// Helm reports whether a Helm repository or a registry of charts can have the URL.
func (u RepoURL) Helm() bool { return u.Scheme != "ssh" && !u.Artifact() }

// String is the URL as written in a declaration.
func (u RepoURL) String() string {
	switch {
	case u.Short && u.User != "":
		return u.User + "@" + u.Host + ":" + strings.TrimPrefix(u.Path, "/")
	case u.Short:
		return u.Host + u.Path
	}
	if u.User != "" {
		return u.Scheme + "://" + u.User + "@" + u.Host + u.Path
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// Key is equal for two spellings of one repository: Argo CD's NormalizeGitURL lowers the case and
// drops one ".git". Artifacts have keys of their own: a grant or a credential for the charts of a
// folder is none for its artifacts.
func (u RepoURL) Key() string {
	if u.Artifact() {
		u.Scheme = "artifact"
	}
	u.Path, u.Short = strings.TrimSuffix(strings.ToLower(u.Path), ".git"), false
	return strings.ToLower(u.String())
}

// folderKey is the beginning of the keys of all repositories below the URL. A folder keeps its
// name: "acme.git/" is not "acme/".
func (u RepoURL) folderKey() string {
	u.Path += "/"
	return u.Key()
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

// RegistryKey is the key under which a repository of a registry, of charts or artifacts, is
// compared with the one that the registry reports.
func RegistryKey(host, repository string) string {
	return "registry://" + strings.ToLower(host+"/"+strings.Trim(repository, "/"))
}

// ParseRepoScope parses a repository URL, or with a trailing slash the folder of all repositories
// below it, as Tenant.repositories and RepositoryCredential have them.
func ParseRepoScope(raw string) (u RepoURL, folder bool, err error) {
	rest, folder := strings.CutSuffix(raw, "/")
	u, err = ParseRepoURL(rest)
	if folder && (err == nil && u.Path == "" || err != nil && !strings.Contains(rest, "/")) {
		err = errors.New("a URL with a trailing slash names at least one folder of the host, " +
			"e.g. https://git.example.com/acme/")
	}
	return u, folder, err
}

// CheckRepoScope reports why the URL of a repository or folder is refused, or nil.
func CheckRepoScope(raw string) error {
	_, _, err := ParseRepoScope(raw)
	return err
}

// RepoScopeKey is the key of a repository (RepoURL.Key), or the beginning of the keys of all
// repositories of a folder, which ends in a slash.
func RepoScopeKey(raw string) (key string, err error) {
	u, folder, err := ParseRepoScope(raw)
	if err != nil {
		return "", err
	}
	if folder {
		return u.folderKey(), nil
	}
	return u.Key(), nil
}

// RepoScopes returns the keys of the scopes that a repository is in, the narrowest first: its own
// key, and those of its folders.
func RepoScopes(key string) []string {
	scopes := []string{key}
	_, path, _ := strings.Cut(key, "://")
	root := len(key) - len(path) + strings.Index(path, "/")
	for i := strings.LastIndexByte(key, '/'); i > root; i = strings.LastIndexByte(key[:i], '/') {
		scopes = append(scopes, key[:i+1])
	}
	return scopes
}

// RepoScopeCovers reports whether a scope covers a repository, or every repository of a folder.
func RepoScopeCovers(scope, key string) bool {
	return scope == key || strings.HasSuffix(scope, "/") && strings.HasPrefix(key, scope)
}

// RepositoryGranted reports whether one of a tenant's grants covers the repository, or all of a
// folder's. Spellings that Argo CD reads as one repository are one here. A URL that does not parse
// is not granted.
func RepositoryGranted(grants []string, raw string) bool {
	key, err := RepoScopeKey(raw)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(grants, func(g string) bool {
		scope, err := RepoScopeKey(g)
		return err == nil && RepoScopeCovers(scope, key)
	})
}

// CheckArtifactScope reports why the URL of an OCI artifact or of a folder of them is refused, or
// nil.
func CheckArtifactScope(raw string) error {
	u, _, err := ParseRepoScope(raw)
	if err == nil && !u.Artifact() {
		err = errors.New("an OCI artifact begins with oci://")
	}
	return err
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
	return map[string]string{"https": "443", "http": "80", "ssh": "22", schemeOCI: "443"}[scheme]
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
