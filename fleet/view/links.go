package view

import (
	"net/url"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
)

// WebKind is the software of a Git host, which determines the paths of its web pages.
type WebKind string

// Kinds of Git hosts. Forgejo has the paths of Gitea.
const (
	WebGitHub    WebKind = "github"
	WebGitLab    WebKind = "gitlab"
	WebGitea     WebKind = "gitea"
	WebBitbucket WebKind = "bitbucket"
)

// WebHosts are the kinds of Git hosts by their host, with :port if a URL has one. A host that is
// not listed has the kind that its name contains, e.g. gitlab.example.com.
type WebHosts map[string]WebKind

// kind returns the kind of a host; "": it is unknown, and has no links.
func (w WebHosts) kind(host string) WebKind {
	if kind, ok := w[host]; ok {
		return kind
	}
	for _, known := range []struct {
		word string
		kind WebKind
	}{{"github", WebGitHub}, {"gitlab", WebGitLab}, {"gitea", WebGitea}, {"forgejo", WebGitea},
		{"codeberg.org", WebGitea}, {"bitbucket.org", WebBitbucket}} {
		if strings.Contains(host, known.word) {
			return known.kind
		}
	}
	return ""
}

// Repository returns the web page of a repository; "" if it has none that is known.
func (w WebHosts) Repository(repoURL string) string {
	base, _ := w.base(repoURL)
	return base
}

// Commit returns the web page of a commit, a tag or a branch; "" if none is known.
func (w WebHosts) Commit(repoURL, revision string) string {
	base, kind := w.base(repoURL)
	if base == "" || !plainRevision(revision) {
		return ""
	}
	revision = escapePath(revision)
	if !isCommit(revision) {
		switch kind {
		case WebGitLab:
			return base + "/-/tree/" + revision
		case WebGitHub:
			return base + "/tree/" + revision
		}
		return base + "/src/" + revision
	}
	switch kind {
	case WebGitLab:
		return base + "/-/commit/" + revision
	case WebBitbucket:
		return base + "/commits/" + revision
	}
	return base + "/commit/" + revision
}

// File returns the web page of a file at a commit or branch, at a line unless that is zero; "" if
// none is known.
func (w WebHosts) File(repoURL, revision, path string, line int) string {
	base, kind := w.base(repoURL)
	if base == "" || !plainRevision(revision) || path == "" {
		return ""
	}
	at, mark := "/blob/", "#L"
	switch kind {
	case WebGitLab:
		at = "/-/blob/"
	case WebGitea:
		if at = "/src/branch/"; isCommit(revision) {
			at = "/src/commit/"
		}
	case WebBitbucket:
		at, mark = "/src/", "#lines-"
	}
	link := base + at + escapePath(revision) + "/" + escapePath(strings.TrimPrefix(path, "/"))
	if line > 0 {
		link += mark + strconv.Itoa(line)
	}
	return link
}

// base returns the web page of a repository without a slash at its end.
func (w WebHosts) base(repoURL string) (string, WebKind) {
	u, err := fleet.ParseRepoURL(repoURL)
	if err != nil || !u.Git() {
		return "", ""
	}
	kind := w.kind(u.Host)
	path := strings.Trim(strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), ".git"), "/")
	if kind == "" || path == "" {
		return "", ""
	}
	scheme, host := "https", u.Host
	if u.Scheme == "http" {
		scheme = "http"
	}
	if u.Scheme == "ssh" { // its port is not the one of the web pages
		host, _, _ = strings.Cut(host, ":")
	}
	return scheme + "://" + host + "/" + escapePath(path), kind
}

// plainRevision refuses text that no revision of Git contains.
func plainRevision(revision string) bool {
	return revision != "" && !strings.ContainsAny(revision, " ~^:?*[\\#") &&
		!strings.Contains(revision, "..")
}

// escapePath escapes each part of a path.
func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
