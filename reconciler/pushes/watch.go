// Package pushes refreshes the Applications that a push to one of their repositories concerns, and
// no other (ADR 0098).
//
// Rules of this package:
//   - what an Application watches is derived from its desired object, and a push from its delivery;
//     both are values;
//   - a push costs the Applications that it concerns, and those that changed since the last push;
//   - a push carries no facts: the engine reads the repository.
package pushes

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Refs that no branch or tag has.
const (
	head   = "HEAD" // the default branch
	ranged = "*"    // any tag, of which a range of versions selects one
)

const (
	// Places of one Application, and their bytes. One with more watches whole repositories.
	maxWatched, maxWatchedBytes = 100, 16 << 10

	maxPath = 1024 // bytes; longer ones are cut at a folder
)

const annotationWatched = "argocd.argoproj.io/manifest-generate-paths"

// application is the part of an Application that names its sources.
type application struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Source  *source  `json:"source"`
		Sources []source `json:"sources"`
	} `json:"spec"`
}

type source struct {
	RepoURL        string `json:"repoURL"`
	Path           string `json:"path"`
	Chart          string `json:"chart"`
	Ref            string `json:"ref"`
	TargetRevision string `json:"targetRevision"`
	Helm           struct {
		ValueFiles     []string `json:"valueFiles"`
		FileParameters []struct {
			Path string `json:"path"`
		} `json:"fileParameters"`
	} `json:"helm"`
	Kustomize struct {
		Components []string `json:"components"`
	} `json:"kustomize"`
}

// Watches returns what a desired Application deploys from which repository: its source's folder,
// the files and folders that its source names outside of it, and those that it watches besides. It
// fails if the object is no Application.
func Watches(o mirror.WatchedObject) ([]mirror.SourceWatch, error) {
	var app application
	if err := json.Unmarshal(o.Body, &app); err != nil {
		return nil, err
	}
	sources := app.Spec.Sources
	if len(sources) == 0 && app.Spec.Source != nil {
		sources = []source{*app.Spec.Source}
	}
	w := watcher{object: o, seen: map[mirror.SourceWatch]bool{}}
	named := map[string]source{}
	for _, s := range sources {
		if s.Ref != "" {
			named["$"+s.Ref] = s
		}
	}
	further := splitPaths(app.Metadata.Annotations[annotationWatched])
	for _, s := range sources {
		w.watch(s, named, further)
	}
	return w.all, nil
}

func splitPaths(joined string) (all []string) {
	for _, p := range strings.Split(joined, ";") {
		if p = strings.TrimSpace(p); p != "" {
			all = append(all, p)
		}
	}
	return all
}

// watcher collects the watches of one Application.
type watcher struct {
	object mirror.WatchedObject
	seen   map[mirror.SourceWatch]bool
	bytes  int // of the paths
	all    []mirror.SourceWatch
}

func (w *watcher) watch(s source, named map[string]source, further []string) {
	if s.Chart != "" {
		w.add(s, "") // a registry reports the whole chart
	} else if s.Ref == "" || s.Path != "" {
		w.add(s, s.Path) // a source with a ref alone has values for others
	}
	files := slices.Clone(s.Helm.ValueFiles)
	for _, p := range s.Helm.FileParameters {
		files = append(files, p.Path)
	}
	for _, f := range append(files, s.Kustomize.Components...) {
		from, below, _ := strings.Cut(f, "/")
		switch other, known := named[from]; {
		case known:
			w.add(other, below)
		case strings.Contains(f, "://") || strings.HasPrefix(f, "$") || s.Chart != "":
		case strings.HasPrefix(f, "/"):
			w.add(s, f)
		default:
			w.add(s, path.Join(s.Path, f))
		}
	}
	if s.Chart != "" {
		return
	}
	for _, p := range further {
		if !strings.HasPrefix(p, "/") {
			p = path.Join(s.Path, p)
		}
		w.add(s, p)
	}
}

// add adds a file or folder of a source, under each ref that a push may name.
func (w *watcher) add(s source, place string) {
	repository, ok := repositoryOf(s)
	if !ok {
		return
	}
	for _, ref := range refsOf(s.TargetRevision) {
		watch := mirror.SourceWatch{Key: w.object.Key, Tenant: w.object.Tenant,
			Repository: repository, Ref: ref, Path: clean(place)}
		w.bytes += len(watch.Path)
		if len(w.all) >= maxWatched || w.bytes > maxWatchedBytes {
			watch.Path = "" // rather too many refreshes than too few
		}
		if !w.covers(watch) {
			w.seen[watch] = true
			w.all = append(w.all, watch)
		}
	}
}

// covers reports whether a place or a folder above it is watched already.
func (w *watcher) covers(watch mirror.SourceWatch) bool {
	for !w.seen[watch] {
		if watch.Path == "" {
			return false
		}
		watch.Path = clean(path.Dir(watch.Path))
	}
	return true
}

// repositoryOf returns the key by which a push finds the source's repository.
func repositoryOf(s source) (string, bool) {
	u, err := fleet.ParseRepoURL(s.RepoURL)
	switch {
	case err != nil:
		return "", false
	case s.Chart != "" && !u.OCI():
		return "", false // a Helm repository reports nothing
	case u.OCI():
		return fleet.RegistryKey(u.Host, u.Path+"/"+s.Chart), true
	}
	return u.Key(), true
}

var (
	commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	// what Argo CD takes for a range of versions, and resolves to a tag
	isRange = regexp.MustCompile(`[*^~<>=|, ]|^v?[0-9]+(\.[0-9]+)?$|(^|\.)[xX](\.|$)`)
)

// refsOf returns the names under which a push may move a target revision; none for a commit.
func refsOf(target string) []string {
	switch {
	case commitID.MatchString(target):
		return nil
	case target == "" || target == head:
		return []string{head}
	case isRange.MatchString(target):
		return []string{short(target), ranged}
	}
	return []string{short(target)}
}

// short returns the name of a branch or tag.
func short(ref string) string {
	for _, prefix := range []string{"refs/heads/", "refs/tags/"} {
		if name, ok := strings.CutPrefix(ref, prefix); ok {
			return name
		}
	}
	return ref
}

// clean returns a path from the root of the repository, cut before its first pattern; "" is the
// whole repository.
func clean(place string) string {
	if i := strings.IndexAny(place, "*?[{"); i >= 0 {
		place = place[:strings.LastIndexByte(place[:i], '/')+1]
	}
	place = strings.TrimPrefix(path.Clean("/"+place), "/")
	for len(place) > maxPath {
		place = place[:max(0, strings.LastIndexByte(place, '/'))]
	}
	return place
}

// Refs returns the names of a pushed ref by which it is looked up.
func Refs(p mirror.SourcePush) []string {
	refs := []string{short(p.Ref)}
	if p.Default {
		refs = append(refs, head)
	}
	if strings.HasPrefix(p.Ref, "refs/tags/") {
		refs = append(refs, ranged)
	}
	return refs
}

// maxPlaces limits the looked-up files and folders of one push. A push with more concerns every
// Application of the repository and ref.
const maxPlaces = 20_000

// Places returns the changed files of a push with all their folders; nil if any may have changed.
func Places(p mirror.SourcePush) []string {
	if p.Paths == nil {
		return nil
	}
	seen := map[string]bool{"": true}
	places := []string{""}
	for _, file := range p.Paths {
		for place := clean(file); !seen[place]; place = clean(path.Dir(place)) {
			if len(places) >= maxPlaces {
				return nil
			}
			seen[place] = true
			places = append(places, place)
		}
	}
	return places
}
