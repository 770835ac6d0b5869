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
