package sources

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
)

func describe(p mirror.SourcePush) string {
	paths := "any"
	if p.Paths != nil {
		paths = strings.Join(p.Paths, " ")
	}
	return fmt.Sprintf("%s %s default=%v: %s", strings.Join(p.Repositories, " "), p.Ref, p.Default,
		paths)
}

const (
	gitHubRepository = `"repository":{"clone_url":"https://Git.example.com/acme/App.git",
		"ssh_url":"git@git.example.com:acme/app.git","default_branch":"main"}`
	appKeys = "https://git.example.com/acme/app ssh://git@git.example.com/acme/app"
	zeros   = "0000000000000000000000000000000000000000"
)

// The bodies have the fields of the senders' documentation that are read.
func TestEachSendersPushesAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		header, value, body string
		want                []string
	}{
		"GitHub": {"X-GitHub-Event", "push", `{"ref":"refs/heads/main","before":"a",` +
			gitHubRepository + `,"commits":[{"added":["a/b"],"modified":["c"]},{"removed":["d","c"]}]}`,
			[]string{appKeys + " refs/heads/main default=true: a/b c d"}},
		"GitHub, a new branch": {"X-GitHub-Event", "push", `{"ref":"refs/heads/x","created":true,` +
			gitHubRepository + `,"commits":[{"added":["a"]}]}`,
			[]string{appKeys + " refs/heads/x default=false: any"}},
		"Gitea, a new branch of SHA-256": {"X-GitHub-Event", "push",
			`{"ref":"refs/heads/main","before":"` + strings.Repeat("0", 64) + `",` +
				gitHubRepository + `,"commits":[{"added":["a"]}]}`,
			[]string{appKeys + " refs/heads/main default=true: any"}},
		"GitLab, no default branch": {"X-Gitlab-Event", "Push Hook", `{"object_kind":"push",
			"ref":"refs/heads/x","project":{"git_http_url":"https://gitlab.example.com/a"}}`,
			[]string{"https://gitlab.example.com/a refs/heads/x default=true: any"}},
		"GitHub, forced": {"X-GitHub-Event", "push", `{"ref":"refs/heads/x","forced":true,` +
			gitHubRepository + `,"commits":[{"added":["a"]}]}`,
			[]string{appKeys + " refs/heads/x default=false: any"}},
		"GitHub, a tag": {"X-GitHub-Event", "push", `{"ref":"refs/tags/v1","created":true,` +
			gitHubRepository + `,"commits":[]}`,
			[]string{appKeys + " refs/tags/v1 default=false: any"}},
		"Gitea lists a part": {"X-GitHub-Event", "push", `{"ref":"refs/heads/main","before":"a",` +
			gitHubRepository + `,"total_commits":9,"commits":[{"added":["a"]}]}`,
			[]string{appKeys + " refs/heads/main default=true: any"}},
		"Gitea, a new branch": {"X-GitHub-Event", "push",
			`{"ref":"refs/heads/main","before":"` + zeros + `",` + gitHubRepository + `,"total_commits":1,"commits":[{"added":["a"]}]}`,
			[]string{appKeys + " refs/heads/main default=true: any"}},
		"GitHub, another event": {"X-GitHub-Event", "issues", `{` + gitHubRepository + `}`, nil},
		"GitHub, no URL": {"X-GitHub-Event", "push",
			`{"ref":"refs/heads/main","repository":{"clone_url":"file:///etc"}}`, nil},
		"GitHub, an image": {"X-GitHub-Event", "registry_package",
			`{"registry_package":{"package_version":{"package_url":"ghcr.io/Acme/app:v1"}}}`,
			[]string{"registry://ghcr.io/acme/app refs/tags/v1 default=false: any"}},
		"GitHub, an image without a tag": {"X-GitHub-Event", "package",
			`{"package":{"package_version":{"package_url":"ghcr.io/acme/app:"}}}`, nil},
		"GitLab": {"X-Gitlab-Event", "Push Hook", `{"object_kind":"push","ref":"refs/heads/main",
			"before":"a","project":{"git_http_url":"https://gitlab.example.com/acme/app.git",
			"git_ssh_url":"git@gitlab.example.com:acme/app.git","default_branch":"main"},
			"total_commits_count":1,"commits":[{"added":[],"modified":["a"],"removed":[]}]}`,
			[]string{"https://gitlab.example.com/acme/app ssh://git@gitlab.example.com/acme/app " +
				"refs/heads/main default=true: a"}},
		"GitLab, a system hook": {"X-Gitlab-Event", "System Hook", `{"event_name":"tag_push",
			"ref":"refs/tags/v1","before":"` + zeros + `","project":{"git_http_url":"https://gitlab.example.com/a"}}`,
			[]string{"https://gitlab.example.com/a refs/tags/v1 default=false: any"}},
		"GitLab, another event": {"X-Gitlab-Event", "Issue Hook", `{"object_kind":"issue"}`, nil},
		"Bitbucket Cloud": {"X-Event-Key", "repo:push", `{"push":{"changes":[
			{"new":{"type":"branch","name":"main"}},{"new":null,"old":{"type":"tag","name":"v1"}},{}]},
			"repository":{"full_name":"acme/app","links":{"html":{"href":"https://bitbucket.org/acme/app"}}}}`,
			[]string{"https://bitbucket.org/acme/app ssh://git@bitbucket.org/acme/app refs/heads/main " +
				"default=true: any", "https://bitbucket.org/acme/app ssh://git@bitbucket.org/acme/app " +
				"refs/tags/v1 default=false: any"}},
		"Bitbucket Data Center": {"X-Event-Key", "repo:refs_changed", `{"changes":[{"ref":{"id":
			"refs/heads/main"}}],"repository":{"links":{"clone":[{"href":
			"https://bitbucket.example.com/scm/acme/app.git"},{"href":"ssh://git@bitbucket.example.com:7999/acme/app.git"}]}}}`,
			[]string{"https://bitbucket.example.com/scm/acme/app " +
				"ssh://git@bitbucket.example.com:7999/acme/app refs/heads/main default=true: any"}},
		"Bitbucket, another event": {"X-Event-Key", "repo:fork", `{}`, nil},
		"Distribution": {"", "", `{"events":[{"action":"push","target":{"repository":"acme/app","tag":"v1"},
			"request":{"host":"registry.example.com:5000"}},{"action":"pull","target":{"repository":"acme/app",
			"tag":"v1"},"request":{"host":"registry.example.com"}},{"action":"push","target":{"repository":"acme/app"},
			"request":{"host":"registry.example.com"}}]}`,
			[]string{"registry://registry.example.com:5000/acme/app refs/tags/v1 default=false: any"}},
		"Harbor": {"", "", `{"type":"PUSH_ARTIFACT","event_data":{"resources":[{"tag":"v1",
			"resource_url":"harbor.example.com/acme/app:v1"}]}}`,
			[]string{"registry://harbor.example.com/acme/app refs/tags/v1 default=false: any"}},
		"Harbor, another event": {"", "", `{"type":"SCANNING_COMPLETED","event_data":{}}`, nil},
		"nobody's":              {"", "", `{"hello":1}`, nil},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set(c.header, c.value)
		}
		pushes, err := Parse(h, []byte(c.body))
		var got []string
		for _, p := range pushes {
			got = append(got, describe(p))
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, %v, want\n%q", name, got, err, c.want)
		}
	}
}

func TestALargePushConcernsAnyFile(t *testing.T) {
	h := http.Header{"X-Github-Event": {"push"}}
	var files []string
	for i := range maxPaths + 1 {
		files = append(files, fmt.Sprintf("%q", fmt.Sprint("f", i)))
	}
	for name, commits := range map[string]string{
		"files":   `{"added":[` + strings.Join(files, ",") + `]}`,
		"commits": strings.TrimSuffix(strings.Repeat(`{"added":["a"]},`, mostCommits), ","),
		"bytes":   `{"added":["` + strings.Join(longNames(300), `","`) + `"]}`,
		"a name":  `{"added":["` + strings.Repeat("x", maxText+1) + `"]}`,
	} {
		pushes, err := Parse(h, []byte(`{"ref":"refs/heads/main","before":"a",`+gitHubRepository+
			`,"commits":[`+commits+`]}`))
		if err != nil || len(pushes) != 1 || pushes[0].Paths != nil {
			t.Errorf("%s: %d pushes, %v", name, len(pushes), err)
		}
	}
}

func longNames(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(strings.Repeat("x", maxText-10), i))
	}
	return all
}

func TestAHostilePushKeepsItsBounds(t *testing.T) {
	h := http.Header{"X-Event-Key": {"repo:refs_changed"}}
	urls := strings.TrimSuffix(strings.Repeat(`{"href":"https://git.example.com/a%d"},`, 1000), ",")
	body := fmt.Sprintf(`{"changes":[`+strings.Repeat(`{"ref":{"id":"a"}},`, 5000)+
		`{"ref":{"id":"b"}}],"repository":{"links":{"clone":[`+urls+`]}}}`, numbers(1000)...)
	pushes, err := Parse(h, []byte(body))
	if err != nil || len(pushes) != maxPushes || len(pushes[0].Repositories) != maxURLs {
		t.Errorf("%d pushes, %v", len(pushes), err)
	}
}

func numbers(n int) (all []any) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func FuzzParse(f *testing.F) {
	for _, event := range []string{"X-GitHub-Event push", "X-GitHub-Event package",
		"X-Gitlab-Event x", "X-Event-Key repo:push", "X-Event-Key repo:refs_changed", "A b"} {
		f.Add(event, []byte(`{"ref":"refs/heads/main",`+gitHubRepository+`}`))
		f.Add(event, []byte(`{"events":[{"action":"push","target":{"repository":"a","tag":"b"}}]}`))
		f.Add(event, []byte(`[`))
	}
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		name, value, _ := strings.Cut(event, " ")
		pushes, err := Parse(http.Header{http.CanonicalHeaderKey(name): {value}}, body)
		if err != nil {
			return
		}
		if len(pushes) > maxPushes {
			t.Errorf("%d pushes", len(pushes))
		}
		for _, p := range pushes {
			if p.Ref == "" || len(p.Repositories) == 0 || len(p.Paths) > maxPaths {
				t.Errorf("%+v", p)
			}
		}
	})
}
