package adoption

import (
	"strings"
	"testing"
)

// A template of credentials for a folder is one credential for it. A template whose prefix ends
// within a name serves nothing below a folder, and a template for a whole host is refused.
func TestATemplateOfCredentialsIsACredentialForItsFolder(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://git.example.com/acme":  "https://git.example.com/acme/",
		"https://git.example.com/acme/": "https://git.example.com/acme/",
		"https://Git.Example.com/acme":  "https://git.example.com/acme/",
		"https://git.example.com/ac":    "",
		"https://git.example.com/":      "",
	} {
		im, files := converged(t, named("web"), "apiVersion: v1\nkind: Secret\nmetadata: {name: "+
			"acme, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repo-creds}}\n"+
			"stringData: {url: \""+url+"\", username: git, password: hidden}\n")
		im.concludeSecrets()
		got := files["tenants/platform/credentials/acme.yaml"]
		if want == "" && got != "" || !strings.Contains(got, want) || want != "" &&
			!strings.Contains(files["fleet/tenants/platform.yaml"], want) {
			t.Errorf("%s: %s", url, got)
		}
		for _, r := range im.results {
			if r.Kind == KindSecret && (r.Status == Refused) != (want == "") {
				t.Errorf("%s: %s %s", url, r.Status, r.Reason)
			}
		}
	}
}

func TestASecretWithoutAProjectProposesASharedRepository(t *testing.T) {
	t.Parallel()
	secret := func(kind, url, more string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: acme, namespace: argocd, labels: " +
			"{argocd.argoproj.io/secret-type: " + kind + "}}\nstringData: {url: \"" + url +
			"\", password: hidden" + more + "}\n"
	}
	const repository, shared = "https://git.example.com/acme/app", "sharedRepositories:"
	for name, c := range map[string]struct {
		originals []string
		want      bool
	}{
		"of a repository": {
			[]string{secret("repository", repository+".git", ""), in("web", "one", "web"),
				in("cart", "two", "cart")}, true},
		"of a prefix": {
			[]string{secret("repo-creds", "https://git.example.com/acme", ""),
				in("web", "one", "web"), in("cart", "two", "cart")}, true},
		"of a project": {
			[]string{secret("repository", repository, ", project: one"), in("web", "one", "web"),
				in("cart", "two", "cart")}, false},
		"none": {
			[]string{in("web", "one", "web"), in("cart", "two", "cart")}, false},
		"for one tenant": {
			[]string{secret("repository", repository, ""), in("web", "one", "web"),
				in("cart", "one", "cart")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			im, files := converged(t, c.originals...)
			im.noteShared()
			got := files["fleet/fleet.yaml"]
			if strings.Contains(got, shared) != c.want || (len(im.notes) == 1) != c.want {
				t.Errorf("%s\n%q", got, im.notes)
			}
			if c.want && (!strings.Contains(got, shared+"\n    - "+repository+"\n") ||
				!strings.Contains(im.notes[0], repository)) {
				t.Errorf("%s\n%q", got, im.notes)
			}
		})
	}
}
