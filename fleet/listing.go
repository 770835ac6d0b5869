package fleet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Discovery is a source of items of a set: the folders or the files of a Git repository that match.
type Discovery struct {
	RepoURL        string   `json:"repoURL"`
	TargetRevision string   `json:"targetRevision"`
	Paths          []string `json:"paths"` // patterns; one that begins with '!' excludes
}

// Limits of a listing.
const (
	MaxListingBytes = 1 << 20 // of its entries as JSON
	MaxListPatterns = 100     // of one request
	MaxPatternBytes = 4 << 10 // of all patterns of one request
	maxListPattern  = 256     // bytes of a pattern
	maxListDepth    = 32      // segments of a pattern
	maxListedPath   = 1024    // bytes of a path
)

// ListingRequest is what a set asks of a repository. It is comparable: two sets of a tenant that
// ask for the same have equal requests, whatever the order of their patterns. It belongs to one
// tenant, since the tenant's grants and credentials decide what may be read.
type ListingRequest struct {
	Tenant         TenantName `json:"tenant"`
	RepoURL        string     `json:"repoURL"`
	TargetRevision string     `json:"targetRevision"`
	Files          bool       `json:"files,omitempty"` // files and their fields; or else folders
	// patterns, sorted, each once, joined by line feeds
	Paths string `json:"paths"`
}

// Request returns the request of a source of items.
func (d *Discovery) Request(t TenantName, files bool) ListingRequest {
	paths := slices.Sorted(slices.Values(d.Paths))
	return ListingRequest{Tenant: t, RepoURL: d.RepoURL, TargetRevision: d.TargetRevision,
		Files: files, Paths: strings.Join(slices.Compact(paths), "\n")}
}

// String names the request for people.
func (r ListingRequest) String() string {
	what := "folders"
	if r.Files {
		what = "files"
	}
	return fmt.Sprintf("%s %s of %s at %s", what, strings.ReplaceAll(r.Paths, "\n", ", "),
		r.RepoURL, r.TargetRevision)
}

// CompareRequests orders requests.
func CompareRequests(a, b ListingRequest) int {
	files := func(r ListingRequest) int {
		if r.Files {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.RepoURL, b.RepoURL),
		cmp.Compare(a.TargetRevision, b.TargetRevision), cmp.Compare(files(a), files(b)),
		cmp.Compare(a.Paths, b.Paths))
}

// Wants reports whether a path of the repository is an entry of the listing: a folder that holds a
// file, or a regular file, as the request asks. The root of the repository is none.
func (r ListingRequest) Wants(path string) bool {
	segments, wanted := strings.Split(path, "/"), false
	for pattern := range strings.SplitSeq(r.Paths, "\n") {
		excluded, excludes := strings.CutPrefix(pattern, "!")
		switch {
		case excludes && matchPath(strings.Split(excluded, "/"), segments):
			return false
		case !excludes && !wanted:
			wanted = matchPath(strings.Split(pattern, "/"), segments)
		}
	}
	return wanted
}

// Descends reports whether an entry of the listing may be below a folder: a reader of the
// repository skips the others.
func (r ListingRequest) Descends(folder string) bool {
	if folder == "" || folder == "." {
		return true
	}
	segments := strings.Split(folder, "/")
	for pattern := range strings.SplitSeq(r.Paths, "\n") {
		if !strings.HasPrefix(pattern, "!") && mayMatchBelow(strings.Split(pattern, "/"),
			segments) {
			return true
		}
	}
	return false
}

func mayMatchBelow(pattern, folder []string) bool {
	for i, segment := range folder {
		switch {
		case i == len(pattern):
			return false
		case pattern[i] == "**":
			return true
		case !matchSegment(pattern[i], segment):
			return false
		}
	}
	return len(pattern) > len(folder)
}

// CheckListPattern reports why a pattern of a request is refused, or nil. '*' and '?' match within
// a segment, "**" as a whole segment any number of folders, and none of them a '.' at the beginning
// of a segment. A '!' in front excludes what the pattern matches. A match costs at most the product
// of the lengths of pattern and path.
func CheckListPattern(pattern string) error {
	plain := strings.TrimPrefix(pattern, "!")
	segments := strings.Split(plain, "/")
	switch {
	case plain == "" || len(pattern) > maxListPattern || len(segments) > maxListDepth:
		return fmt.Errorf("a pattern has 1 to %d characters and at most %d segments",
			maxListPattern, maxListDepth)
	case !only(plain, alnum+pathSet+"*?"):
		return errors.New("a pattern holds letters, digits, . _ @ + = , / - and * ? **, with one " +
			"! in front if it excludes")
	}
	for _, s := range segments {
		switch {
		case s == "" || s == "." || s == ".." || strings.EqualFold(s, ".git"):
			return errors.New("a pattern is relative to the repository's root and in its plain " +
				"form: no '..', no './', no '//', no slash at either end, no '.git'")
		case s != "**" && strings.Contains(s, "**"):
			return errors.New("'**' is a whole segment, as in apps/**/config.yaml")
		}
	}
	return nil
}

// matchPath matches segments. A failed "**" is tried again with one more folder, and only the last
// one: the earlier ones can gain nothing by another length.
func matchPath(pattern, path []string) bool {
	p, s, star, from := 0, 0, -1, 0
	for s < len(path) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			star, from, p = p, s, p+1
		case p < len(pattern) && matchSegment(pattern[p], path[s]):
			p, s = p+1, s+1
		case star >= 0 && !strings.HasPrefix(path[from], "."):
			from++
			p, s = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

// matchSegment matches one segment likewise.
func matchSegment(pattern, name string) bool {
	if strings.HasPrefix(name, ".") && !strings.HasPrefix(pattern, ".") {
		return false
	}
	p, s, star, from := 0, 0, -1, 0
	for s < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from, p = p, s, p+1
		case p < len(pattern) && pattern[p] == '?':
			_, size := utf8.DecodeRuneInString(name[s:])
			p, s = p+1, s+size
		case p < len(pattern) && pattern[p] == name[s]:
			p, s = p+1, s+1
		case star >= 0:
			from++
			p, s = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Listing is everything that a commit of a repository has for a request. It is complete: what it
// lacks is not in the commit.
type Listing struct {
	Request ListingRequest `json:"request"`
	Commit  Revision       `json:"commit"`
	Entries []Listed       `json:"entries"` // sorted by path, each path once
}

// Listed is one folder or file of a listing.
type Listed struct {
	Path string `json:"path"`
	// of a file: its texts, numbers and booleans; the name of a nested one is dotted
	Fields map[string]string `json:"fields,omitempty"`
	// of a file that gives no fields: why
	Problem string `json:"problem,omitempty"`
}

// Listings returns the listing of a request. An error is the reason why there is none, for people.
type Listings func(ListingRequest) (Listing, error)

// ErrNoListing is the reason of a request that nothing has been read for.
var ErrNoListing = errors.New("the repository has not been read yet")

// Listing returns the listing of a request; nil Listings know none.
func (l Listings) Listing(r ListingRequest) (Listing, error) {
	if l == nil {
		return Listing{}, ErrNoListing
	}
	return l(r)
}

// NewListing returns the listing of a commit with all its entries. It refuses entries that the
// request does not want, and more than a set may have.
func NewListing(r ListingRequest, commit Revision, entries []Listed) (Listing, error) {
	l := Listing{Request: r, Commit: commit, Entries: slices.Clone(entries)}
	slices.SortFunc(l.Entries, func(a, b Listed) int { return cmp.Compare(a.Path, b.Path) })
	if n := len(l.Entries); n > MaxSetItems {
		return Listing{}, fmt.Errorf("%s: %d match; a set has at most %d items", r, n,
			MaxSetItems)
	}
	for i, e := range l.Entries {
		switch {
		case len(e.Path) > maxListedPath:
			return Listing{}, fmt.Errorf("%s: the path %q... has %d bytes; at most %d are read", r,
				e.Path[:40], len(e.Path), maxListedPath)
		case !r.Wants(e.Path):
			return Listing{}, fmt.Errorf("%s: %q does not match", r, e.Path)
		case i > 0 && l.Entries[i-1].Path == e.Path:
			return Listing{}, fmt.Errorf("%s: %q is there twice", r, e.Path)
		}
		// JSON, in which the store keeps a listing, holds nothing else
		l.Entries[i].Path = strings.ToValidUTF8(e.Path, "\uFFFD")
	}
	text, err := json.Marshal(l.Entries)
	if err != nil {
		return Listing{}, fmt.Errorf("%s: %w", r, err)
	}
	if len(text) > MaxListingBytes {
		return Listing{}, fmt.Errorf("%s: the fields of %d files are %d KiB; at most %d KiB are "+
			"read", r, len(l.Entries), len(text)>>10, MaxListingBytes>>10)
	}
	return l, nil
}

// Size is about how many bytes a listing takes in memory.
func (l Listing) Size() int {
	const each = 64 // of an entry or field beside its texts
	size := len(l.Request.Paths)
	for _, e := range l.Entries {
		size += each + len(e.Path) + len(e.Problem)
		for k, v := range e.Fields {
			size += each + len(k) + len(v)
		}
	}
	return size
}

// Same reports whether two listings give the same items, be it of different commits. A set is
// expanded again only for a listing that is not the same.
func (l Listing) Same(o Listing) bool {
	return l.Request == o.Request && slices.EqualFunc(l.Entries, o.Entries,
		func(a, b Listed) bool {
			return a.Path == b.Path && a.Problem == b.Problem && maps.Equal(a.Fields, b.Fields)
		})
}
