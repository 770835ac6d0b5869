package fleet

import (
	"errors"
	"fmt"
	"strings"
)

// CommitStatuses report how the commits of Applications are deployed, on the Git host of the
// Applications' repositories.
type CommitStatuses struct {
	Name string `json:"name"`
	// repositories, or with a trailing slash all of a folder; a repository that no Application of
	// the tenant deploys gets nothing
	Repositories []string      `json:"repositories"`
	API          CommitHostAPI `json:"api"`
	// GitHub's deployments too, beside commit statuses
	Deployments bool `json:"deployments,omitempty"`
	// environments by their labels; nil: all
	EnvironmentSelector *LabelSelector `json:"environmentSelector,omitempty"`
	CredentialsRef      SecretRef      `json:"credentialsRef"` // with the key token
}

// MaxCommitStatuses limits the CommitStatuses of a tenant, and MaxStatusRepositories the
// repositories of each.
const (
	MaxCommitStatuses     = 20
	MaxStatusRepositories = 100
)

// CommitHostAPI is the API of a Git host that takes commit statuses.
type CommitHostAPI string

// APIs of Git hosts.
const (
	CommitHostGitHub CommitHostAPI = "GitHub"
	CommitHostGitea  CommitHostAPI = "Gitea"
)

// Covers reports whether the repository of an Application is one of the settings'.
func (s *CommitStatuses) Covers(repoURL string) bool {
	return RepositoryGranted(s.Repositories, repoURL)
}

// Selects reports whether an environment with these labels is reported.
func (s *CommitStatuses) Selects(labels map[string]string) bool {
	return s.EnvironmentSelector == nil || s.EnvironmentSelector.Matches(labels)
}

// CommitHost is where the statuses of a repository go: always to the repository's own host, so that
// no setting leads a status, or the token, to another.
type CommitHost struct {
	Authority  string // of the API: host, with its port unless that is 443
	Base       string // URL of the API, with a slash at its end
	Repository string // owner/name
}

// CommitHostOf returns the Git host of a repository. A repository that is cloned by ssh has the API
// on port 443 of its host.
func CommitHostOf(repoURL string, api CommitHostAPI) (CommitHost, error) {
	u, err := ParseRepoURL(repoURL)
	switch {
	case err != nil:
		return CommitHost{}, err
	case !u.Git():
		return CommitHost{}, errors.New("it is no Git repository")
	case u.Scheme == "http":
		return CommitHost{}, errors.New("its host has no TLS, and a token is sent with TLS alone")
	}
	authority := u.Host
	if u.Scheme == "ssh" {
		authority, _, _ = strings.Cut(u.Host, ":")
	}
	authority = strings.ToLower(authority)
	path := strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	owner, name, ok := strings.Cut(path, "/")
	if !ok || owner == "" || name == "" || strings.Contains(name, "/") {
		return CommitHost{}, fmt.Errorf("its path %q is not that of owner/name", u.Path)
	}
	base := "https://" + authority + "/api/v1/"
	switch {
	case api == CommitHostGitHub && authority == "github.com":
		authority, base = "api.github.com", "https://api.github.com/"
	case api == CommitHostGitHub:
		base = "https://" + authority + "/api/v3/"
	}
	return CommitHost{Authority: authority, Base: base, Repository: path}, nil
}
