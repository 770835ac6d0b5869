package pushes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func watched(t *testing.T, spec string, watchPaths ...string) (all []string) {
	t.Helper()
	body := `{"metadata":{"annotations":{"` + annotationWatched + `":"` +
		strings.Join(watchPaths, ";") + `"}},"spec":` + spec + `}`
	o := mirror.WatchedObject{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
		Name: "a"}, Tenant: "acme", Body: []byte(body)}
	watches, err := Watches(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range watches {
		if w.Key != o.Key || w.Tenant != "acme" {
			t.Errorf("%+v", w)
		}
		all = append(all, fmt.Sprintf("%s@%s:%s", w.Repository, w.Ref, w.Path))
	}
	return all
}

func TestAnApplicationWatchesWhatItDeploysFrom(t *testing.T) {
	for name, c := range map[string]struct {
		spec  string
		paths []string
		want  []string
	}{
		"a folder": {`{"source":{"repoURL":"https://git.example.com/acme/App.git","path":"./deploy/prod/",
			"targetRevision":"main"}}`, nil,
			[]string{"https://git.example.com/acme/app@main:deploy/prod"}},
		"the root, at the default branch": {`{"source":{"repoURL":"git@git.example.com:acme/app","path":"."}}`,
			nil, []string{"ssh://git@git.example.com/acme/app@HEAD:"}},
		"a branch in full": {`{"source":{"repoURL":"https://git.example.com/a","path":"p",
			"targetRevision":"refs/heads/release/1"}}`, nil,
			[]string{"https://git.example.com/a@release/1:p"}},
		"a commit never moves": {`{"source":{"repoURL":"https://git.example.com/a","path":"p",
			"targetRevision":"` + strings.Repeat("4", 40) + `"}}`, nil, nil},
		"a range of tags": {`{"source":{"repoURL":"https://git.example.com/a","path":"p",
			"targetRevision":"v1.*"}}`, nil,
			[]string{"https://git.example.com/a@v1.*:p", "https://git.example.com/a@*:p"}},
		"a short version may be a branch": {`{"source":{"repoURL":"https://git.example.com/a",
			"path":"p","targetRevision":"1.2"}}`, nil,
			[]string{"https://git.example.com/a@1.2:p", "https://git.example.com/a@*:p"}},
		"a whole version is a tag": {`{"source":{"repoURL":"https://git.example.com/a","path":"p",
			"targetRevision":"v1.2.3"}}`, nil, []string{"https://git.example.com/a@v1.2.3:p"}},
		"values and components outside": {`{"source":{"repoURL":"https://git.example.com/a",
			"path":"charts/web","targetRevision":"main","helm":{"valueFiles":["values.yaml",
			"../../env/prod.yaml","/all.yaml","https://x.example.com/v.yaml"]},
			"kustomize":{"components":["../parts"]}}}`, nil,
			[]string{"https://git.example.com/a@main:charts/web",
				"https://git.example.com/a@main:env/prod.yaml",
				"https://git.example.com/a@main:all.yaml",
				"https://git.example.com/a@main:charts/parts"}},
		"what it watches besides": {`{"source":{"repoURL":"https://git.example.com/a",
			"path":"overlays/prod","targetRevision":"main"}}`,
			[]string{".", "../../base", "/lib/*.yaml", "/*"},
			[]string{"https://git.example.com/a@main:overlays/prod",
				"https://git.example.com/a@main:base", "https://git.example.com/a@main:lib",
				"https://git.example.com/a@main:"}},
		"values of another source": {`{"sources":[{"repoURL":"registry.example.com/charts",
			"chart":"web","targetRevision":"^1","helm":{"valueFiles":["$values/env/prod.yaml"]}},
			{"repoURL":"https://git.example.com/values","targetRevision":"main","ref":"values"}]}`,
			nil, []string{"registry://registry.example.com/charts/web@^1:",
				"registry://registry.example.com/charts/web@*:",
				"https://git.example.com/values@main:env/prod.yaml"}},
		"an artifact": {`{"source":{"repoURL":"oci://registry.example.com/acme/app","path":".",
			"targetRevision":"stable"}}`, nil,
			[]string{"registry://registry.example.com/acme/app@stable:"}},
		"a Helm repository reports nothing": {`{"source":{"repoURL":"https://charts.example.com",
			"chart":"web","targetRevision":"1.2.3"}}`, nil, nil},
	} {
		if got := watched(t, c.spec, c.paths...); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}

func TestAnApplicationWithTooManyPlacesWatchesTheRepository(t *testing.T) {
	var files []string
	for i := range 2 * maxWatched {
		files = append(files, fmt.Sprintf("/v%d.yaml", i))
	}
	list, err := json.Marshal(files)
	if err != nil {
		t.Fatal(err)
	}
	got := watched(t, `{"source":{"repoURL":"https://git.example.com/a","path":"p",
		"targetRevision":"main","helm":{"valueFiles":`+string(list)+`}}}`)
	if len(got) != maxWatched+1 || got[0] != "https://git.example.com/a@main:p" ||
		got[maxWatched] != "https://git.example.com/a@main:" {
		t.Errorf("%d watches, from %s to %s", len(got), got[0], got[len(got)-1])
	}
	long := strings.Repeat("/"+strings.Repeat("x", 200), 4)
	for i := range files {
		files[i] = fmt.Sprint(long, "/", i)
	}
	if list, err = json.Marshal(files); err != nil {
		t.Fatal(err)
	}
	got = watched(t, `{"source":{"repoURL":"https://git.example.com/a","path":"p",
		"targetRevision":"main","helm":{"valueFiles":`+string(list)+`}}}`)
	if len(got) > maxWatchedBytes/800+3 || got[len(got)-1] != "https://git.example.com/a@main:" {
		t.Errorf("%d long watches, the last %s", len(got), got[len(got)-1])
	}
}

func TestAPushIsLookedUpByItsFilesAndTheirFolders(t *testing.T) {
	p := mirror.SourcePush{Ref: "refs/heads/main", Default: true,
		Paths: []string{"deploy/prod/a.yaml", "deploy/prod/b.yaml", "/../etc", "README"}}
	if got, want := Places(p), []string{"", "deploy/prod/a.yaml", "deploy/prod", "deploy",
		"deploy/prod/b.yaml", "etc", "README"}; !slices.Equal(got, want) {
		t.Errorf("places %q", got)
	}
	if got := Refs(p); !slices.Equal(got, []string{"main", "HEAD"}) {
		t.Errorf("refs %q", got)
	}
	if got := Refs(mirror.SourcePush{Ref: "refs/tags/v1"}); !slices.Equal(got,
		[]string{"v1", "*"}) {
		t.Errorf("refs of a tag %q", got)
	}
	p.Paths = nil
	if got := Places(p); got != nil {
		t.Errorf("without a list: %q", got)
	}
	for i := range maxPlaces {
		p.Paths = append(p.Paths, fmt.Sprint("f", i))
	}
	if got := Places(p); got != nil {
		t.Errorf("%d places", len(got))
	}
}
