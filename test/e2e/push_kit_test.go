package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	hooksFile     = "tenants/acme/credentials/push-webhook.sops.yaml"
	tenantHook    = "the secret of acme's repositories"
	markOfRefresh = "argosy.dev/action-refresh" // on an Application: its last refresh
)

// hookSecret is the encrypted secret that signs acme's deliveries.
func (f *system) hookSecret(t *testing.T) string {
	t.Helper()
	file, err := f.Encrypt("acme", "credentials", "push-webhook", map[string]string{
		"secret": tenantHook})
	check(t, err)
	return string(file)
}

// delivers sends a push of one file to the main branch of a repository as GitLab does, with a
// token.
func (f *system) delivers(t *testing.T, tenant, token, repository, file string, want int) {
	t.Helper()
	body := fmt.Sprintf(`{"object_kind":"push","ref":"refs/heads/main","before":"a","project":{`+
		`"git_http_url":%q,"default_branch":"main"},"total_commits_count":1,"commits":[{"modified":`+
		`[%q]}]}`, repository, file)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		strings.TrimSuffix(f.plane.URL+"/webhook/push/"+tenant, "/"), strings.NewReader(body))
	check(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Gitlab-Event", "Push Hook")
	r.Header.Set("X-Gitlab-Token", token)
	answer, err := http.DefaultClient.Do(r)
	check(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(t, err)
	if answer.StatusCode != want {
		t.Errorf("a push of %s by %s: %s %s", repository, tenant, answer.Status, text)
	}
}
