package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// shelf keeps accepted pushes, or fails.
type shelf struct {
	err    error
	pushes []mirror.SourcePush
}

func (s *shelf) accept(_ context.Context, p mirror.SourcePush) error {
	if s.err == nil {
		s.pushes = append(s.pushes, p)
	}
	return s.err
}

func sourceReceiver(s *shelf) http.Handler {
	v := NewSourceReceiver(SourceConfig{Accept: s.accept, Log: quiet(),
		Secrets: func(_ context.Context, tenant fleet.TenantName) ([]fleet.Secret, error) {
			switch tenant {
			case "":
				return secretsOf("platform-secret", "")()
			case "acme":
				return secretsOf("acme-secret")()
			case "broken":
				return nil, errors.New("the secrets are away")
			}
			return nil, ErrNoSecret
		}})
	mux := http.NewServeMux()
	mux.Handle("/webhook/push", v)
	mux.Handle("/webhook/push/{tenant}", v)
	return mux
}

const pushOfApp = `{"object_kind":"push","ref":"refs/heads/main","project":` +
	`{"git_http_url":"https://git.example.com/acme/app.git"},"repository":{"id":1,` +
	`"clone_url":"https://git.example.com/acme/app.git"}}`

func sourceDelivery(path, header, value string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(pushOfApp))
	r.Header.Set("Content-Type", "application/json")
	switch header {
	case headerSignature:
		r.Header.Set("X-GitHub-Event", "push")
	case headerBitbucket:
		r.Header.Set("X-GitHub-Event", "push") // the body is GitHub's
	default:
		r.Header.Set("X-Gitlab-Event", "Push Hook")
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	return r
}

func TestAPushIsAcceptedFromWhoHasTheSecret(t *testing.T) {
	body := []byte(pushOfApp)
	const all, acme = "/webhook/push", "/webhook/push/acme"
	signature, another := sign("platform-secret", body), sign("another", body)
	for name, c := range map[string]struct {
		path, header, value string
		status              int
		tenant              fleet.TenantName
	}{
		"signed by the platform's": {all, headerSignature, signature, 202, ""},
		"signed as by Bitbucket":   {all, headerBitbucket, signature, 202, ""},
		"GitLab's token":           {all, headerGitLab, "platform-secret", 202, ""},
		"a registry's token":       {all, "Authorization", "Bearer platform-secret", 202, ""},
		"a tenant's":               {acme, headerGitLab, "acme-secret", 202, "acme"},
		"a tenant's signature":     {acme, headerSignature, sign("acme-secret", body), 202, "acme"},
		"a tenant's for all":       {all, headerGitLab, "acme-secret", 401, ""},
		"the platform's for one":   {acme, headerGitLab, "platform-secret", 401, ""},
		"a tenant without one":     {all + "/globex", headerGitLab, "acme-secret", 401, ""},
		"no secret":                {all, "", "", 401, ""},
		"an empty secret":          {all, headerSignature, sign("", body), 401, ""},
		"an empty token":           {all, "Authorization", "Bearer ", 401, ""},
		"a wrong signature":        {all, headerSignature, another, 401, ""},
		"SHA-1":                    {all, headerBitbucket, "sha1=00", 401, ""},
		"secrets that are away":    {all + "/broken", headerGitLab, "x", 503, ""},
	} {
		s := &shelf{}
		w := answer(sourceReceiver(s), sourceDelivery(c.path, c.header, c.value))
		if w.Code != c.status || (len(s.pushes) == 1) != (c.status == http.StatusAccepted) {
			t.Errorf("%s: %d %s, %+v", name, w.Code, w.Body, s.pushes)
			continue
		}
		if len(s.pushes) == 1 && (s.pushes[0].Tenant != c.tenant ||
			s.pushes[0].Repositories[0] != "https://git.example.com/acme/app") {
			t.Errorf("%s: %+v", name, s.pushes[0])
		}
	}
}

func TestAPushThatIsNotStoredIsAskedForAgain(t *testing.T) {
	for status, err := range map[int]error{http.StatusServiceUnavailable: errors.New("away"),
		http.StatusTooManyRequests: mirror.ErrTooManyPushes} {
		w := answer(sourceReceiver(&shelf{err: err}), sourceDelivery("/webhook/push", headerGitLab,
			"platform-secret"))
		if w.Code != status || w.Header().Get("Retry-After") == "" {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
	r := sourceDelivery("/webhook/push", headerGitLab, "platform-secret")
	r.Header.Set("X-Gitlab-Event", "Issue Hook")
	r.Body = http.NoBody
	if w := answer(sourceReceiver(&shelf{}), r); w.Code != http.StatusBadRequest {
		t.Errorf("an empty body: %d", w.Code)
	}
}

func TestRegistriesHaveContentTypesOfTheirOwn(t *testing.T) {
	const body = `{"events":[{"action":"push","target":{"repository":"acme/app","tag":"v1"},` +
		`"request":{"host":"registry.example.com"}}]}`
	for _, media := range []string{"application/vnd.docker.distribution.events.v1+json",
		"application/vnd.docker.distribution.events.v2+json", "application/json; charset=utf-8"} {
		s := &shelf{}
		r := httptest.NewRequest(http.MethodPost, "/webhook/push/acme", strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		r.Header.Set("Authorization", "Bearer acme-secret")
		if w := answer(sourceReceiver(s), r); w.Code != http.StatusAccepted || len(s.pushes) != 1 {
			t.Errorf("%s: %d %s", media, w.Code, w.Body)
		}
	}
	large := httptest.NewRequest(http.MethodPost, "/webhook/push/acme", strings.NewReader(
		`{"x":"`+strings.Repeat("x", maxTenantBody)+`"}`))
	large.Header.Set("Content-Type", "application/json")
	large.Header.Set("X-Gitlab-Token", "acme-secret")
	if w := answer(sourceReceiver(&shelf{}), large); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large delivery: %d %s", w.Code, w.Body)
	}
}

// A push to the config repo is stored even if the Applications' part of it is not.
func TestAPushToTheConfigRepoDoesNotDependOnTheApplications(t *testing.T) {
	s, inbox := &shelf{err: mirror.ErrTooManyPushes}, &memory{}
	v := receiver(inbox, secretsOf("s3cret"))
	v.Sources = s.accept
	const own = `{"ref":"refs/heads/main","repository":{"id":42,` +
		`"clone_url":"https://git.example.com/platform/config.git"}}`
	if w := answer(v, delivery("push", "s3cret", own)); w.Code != http.StatusAccepted ||
		len(inbox.ids) != 1 {
		t.Errorf("%d %s, stored %v", w.Code, w.Body, inbox.ids)
	}
}

// An organization's hook delivers the pushes of all of its repositories to the one path.
func TestTheGitHostsHookRefreshesTheApplicationsOfItsRepositories(t *testing.T) {
	s := &shelf{}
	v := receiver(&memory{}, secretsOf("s3cret"))
	v.Sources = s.accept
	const other = `{"ref":"refs/heads/main","repository":{"id":43,` +
		`"clone_url":"https://git.example.com/acme/services.git"}}`
	if w := answer(v, delivery("push", "another", other)); w.Code != http.StatusUnauthorized ||
		len(s.pushes) > 0 {
		t.Errorf("a forged push: %d, %v", w.Code, s.pushes)
	}
	if w := answer(v, delivery("push", "s3cret", other)); w.Code != http.StatusAccepted ||
		len(s.pushes) != 1 || s.pushes[0].Tenant != "" {
		t.Errorf("%d, %+v", w.Code, s.pushes)
	}
	const published = `{"registry_package":{"package_version":{"package_url":"ghcr.io/acme/app:v1"}}}`
	if w := answer(v, delivery("registry_package", "s3cret", published)); w.Code !=
		http.StatusAccepted || len(s.pushes) != 2 {
		t.Errorf("%d, %+v", w.Code, s.pushes)
	}
	s.err = errors.New("away")
	if w := answer(v, delivery("push", "s3cret", other)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("it was not stored: %d", w.Code)
	}
}
