package api

import (
	"net/url"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// gitHost is the form of a Git host's links.
type gitHost struct{ commit, file, line string }

var (
	githubLinks    = gitHost{commit: "/commit/", file: "/blob/", line: "#L"}
	gitlabLinks    = gitHost{commit: "/-/commit/", file: "/-/blob/", line: "#L"}
	giteaLinks     = gitHost{commit: "/commit/", file: "/src/commit/", line: "#L"}
	bitbucketLinks = gitHost{commit: "/commits/", file: "/src/", line: "#lines-"}
)

// linksOf recognizes a Git host by a label of its name. Others get the links of Gitea and Forgejo,
// the hosts that teams run under names of their own.
func linksOf(host string) gitHost {
	for label := range strings.SplitSeq(strings.ToLower(host), ".") {
		switch {
		case strings.HasPrefix(label, "github") || strings.HasPrefix(label, "ghe"):
			return githubLinks
		case strings.HasPrefix(label, "gitlab"):
			return gitlabLinks
		case strings.HasPrefix(label, "bitbucket"):
			return bitbucketLinks
		}
	}
	return giteaLinks
}

// repoWeb returns the web page of a repository, or "" if its URL leads to none: a chart registry,
// a file, or a URL of a form that is not known.
func repoWeb(repoURL string) string {
	u, err := fleet.ParseRepoURL(repoURL)
	if err != nil || u.Path == "" || u.Path == "/" {
		return ""
	}
	path := strings.TrimSuffix(u.Path, ".git")
	switch u.Scheme {
	case "https", "http":
		return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}).String()
	case "ssh":
		host, _, _ := strings.Cut(u.Host, ":") // the port is that of ssh
		return (&url.URL{Scheme: "https", Host: host, Path: path}).String()
	}
	return ""
}

// commitWeb returns the page of a commit on its Git host, or "".
func commitWeb(repoURL string, commit any) string {
	base, id := repoWeb(repoURL), ""
	switch c := commit.(type) {
	case string:
		id = c
	case fleet.Revision:
		id = string(c)
	}
	if base == "" || !isCommit(id) {
		return ""
	}
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return base + linksOf(u.Hostname()).commit + id
}

// fileWeb returns the page of a file at a commit and a line on its Git host, or "". Line 0 is the
// file as a whole.
func fileWeb(repoURL string, commit fleet.Revision, path string, line int) string {
	base := repoWeb(repoURL)
	if base == "" || !isCommit(string(commit)) || path == "" {
		return ""
	}
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	form := linksOf(u.Hostname())
	link := base + form.file + string(commit) + "/" + (&url.URL{Path: path}).EscapedPath()
	if line > 0 {
		link += form.line + strconv.Itoa(line)
	}
	return link
}

// isCommit reports whether id is a full commit ID.
func isCommit(id string) bool {
	if len(id) != 40 && len(id) != 64 {
		return false
	}
	return strings.Trim(id, "0123456789abcdef") == ""
}

// fileOf returns the file of the config repo that declares an object.
func fileOf(tenant fleet.TenantName, folder, name any) string {
	return "tenants/" + string(tenant) + "/" + word(folder) + "/" + word(name) + ".yaml"
}

func word(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case fleet.EnvironmentName:
		return string(v)
	case fleet.DeploymentName:
		return string(v)
	}
	return ""
}

// subjectLink returns the page of an operation's subject: "tenant/deployment@environment",
// "tenant/environment to engine …", or the engine; "" if there is none.
func subjectLink(o mirror.Operation) string {
	first, _, _ := strings.Cut(o.Subject, " ")
	tenant, rest, ok := strings.Cut(first, "/")
	if ok && fleet.ValidateName(tenant) == nil {
		deployment, environment, at := strings.Cut(rest, "@")
		switch {
		case at && fleet.ValidateName(deployment) == nil && fleet.ValidateName(environment) == nil:
			return "/tenants/" + tenant + "/applications/" + deployment + "/" + environment
		case !at && o.Kind == mirror.OperationMove && fleet.ValidateName(rest) == nil:
			return "/tenants/" + tenant + "/environments/" + rest
		}
	}
	switch {
	case isCommit(string(o.Revision)):
		return "/revisions/" + string(o.Revision)
	case o.Tenant != "":
		return "/tenants/" + string(o.Tenant)
	case o.Engine != "":
		return "/engines/" + string(o.Engine)
	}
	return ""
}

// brief returns the short form of a commit ID, and any other version as it is.
func brief(version string) string {
	if isCommit(version) {
		return fleet.Revision(version).Short()
	}
	return version
}

// platformEngine reports whether an engine is declared by the platform and so has a page. The
// engine of an environment's agent is shown on the environment's page.
func platformEngine(name fleet.EngineName) bool { return fleet.ValidateName(string(name)) == nil }
