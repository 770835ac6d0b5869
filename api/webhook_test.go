package api_test

import (
	"encoding/json"
	"net/http"
	"testing"
)

// A delivery to an unknown webhook path gets a 404 that the Git host displays, and no login page.
func TestUnknownWebhookPathsAreAnsweredToPrograms(t *testing.T) {
	t.Parallel()
	s := newSite(t, content())
	for _, path := range []string{"/webhook", "/webhook/", "/webhook/github", "/webhook/github/",
		"/webhook/GitHub", "/webhook/gitlab/x"} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			a := s.do(method, path, "", "{}")
			var problem struct{ Status int }
			if err := json.Unmarshal([]byte(a.body), &problem); a.status != http.StatusNotFound ||
				err != nil || problem.Status != http.StatusNotFound {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
}
