package sources

import (
	"encoding/json"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// registryOf returns the reader of a registry's delivery, which has no header of its own.
func registryOf(body []byte) func([]byte) ([]mirror.SourcePush, error) {
	var kind struct {
		Type   string            `json:"type"`   // Harbor
		Events []json.RawMessage `json:"events"` // Distribution
	}
	switch err := json.Unmarshal(body, &kind); {
	case err != nil:
		return func([]byte) ([]mirror.SourcePush, error) { return nil, err }
	case kind.Type != "":
		return harbor
	case len(kind.Events) > 0:
		return distribution
	}
	return nil
}

// image returns the push of a tag to a repository of a registry; nil without a tag: a digest alone
// moves nothing that an Application names.
func image(host, repository, tag string) []mirror.SourcePush {
	if host == "" || repository == "" || tag == "" || len(host)+len(repository) > maxText {
		return nil
	}
	return []mirror.SourcePush{{Repositories: []string{fleet.RegistryKey(host, repository)},
		Ref: tags + tag}}
}

// distribution reads the notifications of the Distribution project's registry.
func distribution(body []byte) (all []mirror.SourcePush, err error) {
	var p struct {
		Events []struct {
			Action string `json:"action"`
			Target struct {
				Repository string `json:"repository"`
				Tag        string `json:"tag"`
			} `json:"target"`
			Request struct {
				Host string `json:"host"`
			} `json:"request"`
		} `json:"events"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	for _, e := range p.Events[:min(len(p.Events), maxPushes)] {
		if e.Action == "push" {
			all = append(all, image(e.Request.Host, e.Target.Repository, e.Target.Tag)...)
		}
	}
	return all, nil
}

func harbor(body []byte) (all []mirror.SourcePush, err error) {
	var p struct {
		Type string `json:"type"`
		Data struct {
			Resources []struct {
				URL string `json:"resource_url"` // host/repository:tag
				Tag string `json:"tag"`
			} `json:"resources"`
		} `json:"event_data"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	if p.Type != "PUSH_ARTIFACT" {
		return nil, nil
	}
	for _, r := range p.Data.Resources[:min(len(p.Data.Resources), maxPushes)] {
		host, repository, _ := strings.Cut(strings.TrimSuffix(r.URL, ":"+r.Tag), "/")
		all = append(all, image(host, repository, r.Tag)...)
	}
	return all, nil
}

// gitHubPackage reads the publication of an image in GitHub's container registry.
func gitHubPackage(body []byte) ([]mirror.SourcePush, error) {
	type published struct {
		Version struct {
			URL string `json:"package_url"` // ghcr.io/owner/name:tag
		} `json:"package_version"`
	}
	var p struct {
		Package  *published `json:"package"`
		Registry *published `json:"registry_package"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	for _, v := range []*published{p.Package, p.Registry} {
		if v == nil {
			continue
		}
		host, rest, _ := strings.Cut(v.Version.URL, "/")
		repository, tag, _ := strings.Cut(rest, ":")
		return image(host, repository, tag), nil
	}
	return nil, nil
}
