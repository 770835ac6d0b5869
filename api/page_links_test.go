package api

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestLinksLeadToTheCommitAndTheFileOnItsGitHost(t *testing.T) {
	commit := fleet.Revision(strings.Repeat("ab12", 10))
	for repo, want := range map[string][2]string{
		"https://github.com/acme/web": {"https://github.com/acme/web/commit/%",
			"https://github.com/acme/web/blob/%/a%20b/c.yaml#L3"},
		"git@github.com:acme/web.git": {"https://github.com/acme/web/commit/%",
			"https://github.com/acme/web/blob/%/a%20b/c.yaml#L3"},
		"ssh://git@git.example.com:2222/acme/web.git": {
			"https://git.example.com/acme/web/commit/%",
			"https://git.example.com/acme/web/src/commit/%/a%20b/c.yaml#L3"},
		"https://gitlab.example.com/group/sub/web.git": {
			"https://gitlab.example.com/group/sub/web/-/commit/%",
			"https://gitlab.example.com/group/sub/web/-/blob/%/a%20b/c.yaml#L3"},
		"https://bitbucket.org/acme/web": {"https://bitbucket.org/acme/web/commits/%",
			"https://bitbucket.org/acme/web/src/%/a%20b/c.yaml#lines-3"},
		"oci://registry.example.com/charts/web": {},
		"javascript:alert(1)":                   {},
		"file:///etc/passwd":                    {},
		"https://user:secret@example.com/a":     {},
		"":                                      {},
	} {
		filled := func(link string) string {
			return strings.Replace(link, "/%", "/"+string(commit), 1)
		}
		if got := commitWeb(repo, commit); got != filled(want[0]) {
			t.Errorf("commit of %q: %q", repo, got)
		}
		if got := fileWeb(repo, commit, "a b/c.yaml", 3); got != filled(want[1]) {
			t.Errorf("file of %q: %q", repo, got)
		}
	}
	for _, not := range []string{"main", "v1.2.3", "", strings.Repeat("g", 40), "../../x"} {
		if got := commitWeb("https://github.com/acme/web", not); got != "" {
			t.Errorf("version %q leads to %q", not, got)
		}
	}
}

func TestTheSubjectOfAnOperationLeadsToItsPage(t *testing.T) {
	revision := fleet.Revision(strings.Repeat("0", 40))
	for _, c := range []struct {
		o    mirror.Operation
		want string
	}{
		{mirror.Operation{Kind: mirror.OperationSync, Subject: "acme/web@prod at 1.2"},
			"/tenants/acme/applications/web/prod"},
		{mirror.Operation{Kind: mirror.OperationMove, Subject: "acme/prod to engine eu-2"},
			"/tenants/acme/environments/prod"},
		{mirror.Operation{Kind: mirror.OperationReconcile, Revision: revision},
			"/revisions/" + string(revision)},
		{mirror.Operation{Kind: mirror.OperationStop, Subject: "x", Engine: "eu-1"},
			"/engines/eu-1"},
		{mirror.Operation{Subject: `acme/"><script>@prod`}, ""},
	} {
		if got := subjectLink(c.o); got != c.want {
			t.Errorf("%+v leads to %q", c.o, got)
		}
	}
}
