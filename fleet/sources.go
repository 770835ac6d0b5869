package fleet

import (
	"iter"
	"slices"
	"strings"
)

// AllSources returns the sources of a deployment: one, or several in the order of the file.
func (d *DeploymentSpec) AllSources() []Source {
	if len(d.Sources) > 0 {
		return d.Sources
	}
	return []Source{d.Source}
}

// RepoURLs returns the repositories that a deployment reads. They are the same in every
// environment.
func (d *DeploymentSpec) RepoURLs() RepoURLs { return RepoURLsOf(d.AllSources()) }

// RepoURLs is a set of repositories: their URLs, sorted, each once, separated by blanks, which no
// URL holds. The value is comparable, and that of one repository is its URL.
type RepoURLs string

// RepoURLsOf returns the repositories of some sources.
func RepoURLsOf(sources []Source) RepoURLs {
	if len(sources) == 1 {
		return RepoURLs(sources[0].RepoURL)
	}
	urls := make([]string, len(sources))
	for i, s := range sources {
		urls[i] = s.RepoURL
	}
	slices.Sort(urls)
	return RepoURLs(strings.Join(slices.Compact(urls), " "))
}

// All returns the URLs.
func (r RepoURLs) All() iter.Seq[string] { return strings.FieldsSeq(string(r)) }

// TargetRevisions returns the target revisions of some sources in their order, joined by commas,
// which no revision holds. The value of one source is its revision.
func TargetRevisions(sources []Source) string {
	revisions := make([]string, len(sources))
	for i, s := range sources {
		revisions[i] = s.TargetRevision
	}
	return JoinRevisions(revisions)
}

// JoinRevisions returns the revisions of an Application's sources as one text.
func JoinRevisions(revisions []string) string { return strings.Join(revisions, ",") }

// SplitRevisions returns the revisions that JoinRevisions has joined.
func SplitRevisions(joined string) []string { return strings.Split(joined, ",") }

// AllRevisions returns the revision of each source that the SyncRun names, joined.
func (s *SyncRunSpec) AllRevisions() string {
	if len(s.Revisions) > 0 {
		return JoinRevisions(s.Revisions)
	}
	return s.Revision
}
