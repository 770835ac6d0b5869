// Package sources reads what Git hosts and registries report about repositories of Applications:
// GitHub, Gitea, GitLab, Bitbucket Cloud and Data Center, GitHub's container registry, Harbor, and
// registries with the notifications of the Distribution project.
//
// Rules of this package:
//   - bytes in, pushes out; nothing is trusted but the form;
//   - what a delivery leaves open, such as files beyond its list, is open in the push too.
package sources

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	maxPushes = 100    // of one delivery; the others are left to Argo CD's own polling
	maxPaths  = 10_000 // of one push; with more, any may have changed
	maxText   = 1024   // bytes of a URL, a ref or a path
	maxURLs   = 16     // of one repository
	// bytes of the paths of one push: it is stored until it is handled
	maxPathBytes = 256 << 10
	// A delivery of GitHub or Gitea lists at most so many commits, by their documentation. GitLab's
	// has 20, and the total.
	mostCommits = 2048

	branches = "refs/heads/"
	tags     = "refs/tags/"
)

// Parse returns the pushes of a delivery; none for events of another kind. It fails if the body is
// not of the event that its headers name.
func Parse(h http.Header, body []byte) ([]mirror.SourcePush, error) {
	read := readerOf(h, body)
	if read == nil {
		return nil, nil
	}
	pushes, err := read(body)
	if err != nil {
		return nil, errors.New("the payload is not one of its event")
	}
	pushes = slices.DeleteFunc(pushes, func(p mirror.SourcePush) bool {
		return len(p.Repositories) == 0 || p.Ref == "" || len(p.Ref) > maxText
	})
	return pushes[:min(len(pushes), maxPushes)], nil
}

// IsPackage reports whether an event of GitHub is about a package of its registry.
func IsPackage(event string) bool { return event == "registry_package" || event == "package" }

func readerOf(h http.Header, body []byte) func([]byte) ([]mirror.SourcePush, error) {
	event := h.Get("X-GitHub-Event") // Gitea sends it too
	switch {
	case event == "push":
		return gitHub
	case IsPackage(event):
		return gitHubPackage
	case event != "":
		return nil
	}
	if h.Get("X-Gitlab-Event") != "" {
		return gitLab
	}
	switch h.Get("X-Event-Key") {
	case "repo:push":
		return bitbucketCloud
	case "repo:refs_changed":
		return bitbucketDataCenter
	case "":
		return registryOf(body)
	}
	return nil
}

// keys returns the keys of the URLs that a declaration can name, and only those. Keys are in lower
// case.
func keys(urls ...string) (all []string) {
	for _, url := range urls[:min(len(urls), maxURLs)] {
		key, err := fleet.NormalizeRepoURL(strings.ToLower(url))
		if err == nil && len(url) <= maxText && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	return all
}

// commit is one of a push, as GitHub, Gitea and GitLab list it.
type commit struct {
	Added    []string `json:"added"`
	Modified []string `json:"modified"`
	Removed  []string `json:"removed"`
}

// pathsOf returns the files that the commits changed; nil if the list is not whole.
func pathsOf(commits []commit, total int) []string {
	if len(commits) == 0 || len(commits) >= mostCommits || total > len(commits) {
		return nil
	}
	seen, paths, bytes := map[string]bool{}, []string{}, 0
	for _, c := range commits {
		for _, path := range slices.Concat(c.Added, c.Modified, c.Removed) {
			if seen[path] {
				continue
			}
			bytes += len(path)
			if len(path) > maxText || len(paths) >= maxPaths || bytes > maxPathBytes {
				return nil
			}
			seen[path] = true
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil // a merge without files of its own, or a sender that lists none
	}
	return paths
}

// created reports whether a branch or tag had no commit before a push.
func created(before string) bool { return before != "" && strings.Trim(before, "0") == "" }

// isDefault reports whether a ref is the default branch, or may be if that is not known.
func isDefault(ref, branch string) bool {
	return ref == branches+branch || branch == "" && strings.HasPrefix(ref, branches)
}

func gitHub(body []byte) ([]mirror.SourcePush, error) {
	var p struct {
		Ref        string `json:"ref"`
		Before     string `json:"before"`
		Created    bool   `json:"created"`
		Deleted    bool   `json:"deleted"`
		Forced     bool   `json:"forced"`
		Total      int    `json:"total_commits"` // Gitea
		Repository struct {
			CloneURL      string `json:"clone_url"`
			SSHURL        string `json:"ssh_url"`
			DefaultBranch string `json:"default_branch"`
		} `json:"repository"`
		Commits []commit `json:"commits"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	push := mirror.SourcePush{Repositories: keys(p.Repository.CloneURL, p.Repository.SSHURL),
		Ref: p.Ref, Default: isDefault(p.Ref, p.Repository.DefaultBranch)}
	if !p.Created && !p.Deleted && !p.Forced && !created(p.Before) {
		push.Paths = pathsOf(p.Commits, p.Total)
	}
	return []mirror.SourcePush{push}, nil
}

func gitLab(body []byte) ([]mirror.SourcePush, error) {
	var p struct {
		Kind    string `json:"object_kind"`
		Event   string `json:"event_name"` // of a system hook
		Ref     string `json:"ref"`
		Before  string `json:"before"`
		Project struct {
			HTTP          string `json:"git_http_url"`
			SSH           string `json:"git_ssh_url"`
			DefaultBranch string `json:"default_branch"`
		} `json:"project"`
		Total   int      `json:"total_commits_count"`
		Commits []commit `json:"commits"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	for _, kind := range []string{p.Kind, p.Event} {
		if kind != "push" && kind != "tag_push" {
			continue
		}
		push := mirror.SourcePush{Repositories: keys(p.Project.HTTP, p.Project.SSH), Ref: p.Ref,
			Default: isDefault(p.Ref, p.Project.DefaultBranch)}
		if !created(p.Before) {
			push.Paths = pathsOf(p.Commits, p.Total)
		}
		return []mirror.SourcePush{push}, nil
	}
	return nil, nil
}

// bitbucketCloud reads a delivery that lists no files.
func bitbucketCloud(body []byte) (all []mirror.SourcePush, err error) {
	type ref struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	var p struct {
		Push struct {
			Changes []struct {
				New *ref `json:"new"`
				Old *ref `json:"old"`
			} `json:"changes"`
		} `json:"push"`
		Repository struct {
			FullName string `json:"full_name"`
			Links    struct {
				HTML struct {
					Href string `json:"href"`
				} `json:"html"`
			} `json:"links"`
		} `json:"repository"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	repository := keys(p.Repository.Links.HTML.Href,
		"git@bitbucket.org:"+p.Repository.FullName+".git",
		"ssh://git@bitbucket.org/"+p.Repository.FullName)
	for _, c := range p.Push.Changes[:min(len(p.Push.Changes), maxPushes)] {
		to := c.New
		if to == nil {
			to = c.Old
		}
		if to == nil {
			continue
		}
		push := mirror.SourcePush{Repositories: repository, Ref: branches + to.Name,
			Default: isDefault(branches+to.Name, "")} // the delivery does not name it
		if to.Type == "tag" {
			push.Ref, push.Default = tags+to.Name, false
		}
		all = append(all, push)
	}
	return all, nil
}

// bitbucketDataCenter reads a delivery that lists no files.
func bitbucketDataCenter(body []byte) (all []mirror.SourcePush, err error) {
	var p struct {
		Changes []struct {
			Ref struct {
				ID string `json:"id"`
			} `json:"ref"`
		} `json:"changes"`
		Repository struct {
			Links struct {
				Clone []struct {
					Href string `json:"href"`
				} `json:"clone"`
			} `json:"links"`
		} `json:"repository"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	var urls []string
	for _, c := range p.Repository.Links.Clone {
		urls = append(urls, c.Href)
	}
	repository := keys(urls...)
	for _, c := range p.Changes[:min(len(p.Changes), maxPushes)] {
		all = append(all, mirror.SourcePush{Repositories: repository, Ref: c.Ref.ID,
			Default: isDefault(c.Ref.ID, "")}) // the delivery does not name it
	}
	return all, nil
}
