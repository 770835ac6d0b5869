package webhook_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

// A Git host that echoes the credential in each kind of response gets it into no comment, check,
// log, error or record.
func TestCredentialsShowNowhere(t *testing.T) {
	for _, asApp := range []bool{false, true} {
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden,
			http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusInternalServerError} {
			t.Run(fmt.Sprintf("%d, as an App %t", status, asApp), func(t *testing.T) {
				h := harborOf(t, asApp)
				h.now = h.server.Clock()
				h.hook.Try("lost", http.StatusServiceUnavailable, h.repo.ID)
				h.open(h.alice, nil)
				h.review()
				h.repo.Comment(h.pullRequest.Number, h.alice, "/argosy approve "+h.pullRequest.Head)
				var written strings.Builder
				everything := func() {
					for _, err := range []error{h.try(), h.again(), h.Recheck(t.Context(), sweep)} {
						fmt.Fprintln(&written, err)
					}
				}
				for _, requests := range []string{"GET /*", "POST /*", "PATCH /*",
					"GET /repos/acme/fleet/pulls/1/reviews", "GET /users/*", "GET /app/*"} {
					repair := h.server.Break(requests, githubtest.Echo(status))
					h.pullRequest.Push()
					everything()
					repair()
				}
				everything()
				h.everywhere(&written)
				h.secretFree(written.String())
			})
		}
	}
}

// everywhere adds whatever people could read.
func (h *harbor) everywhere(written *strings.Builder) {
	written.WriteString(h.log.String())
	written.WriteString(h.shown())
	for _, text := range h.repo.Comments(h.pullRequest.Number) {
		written.WriteString(text)
	}
	kept, err := json.Marshal([]any{h.records.pulls, h.records.asked})
	if err != nil {
		h.Fatal(err)
	}
	written.Write(kept)
	for _, p := range h.records.reviewed {
		written.Write(p.Report)
	}
}

func (h *harbor) secretFree(text string) {
	h.Helper()
	if !strings.Contains(text, forge.CheckPlan) || h.log.Len() == 0 ||
		len(h.gate.credentials) == 0 {
		h.Fatalf("nothing was written, or nothing asked: %s", text)
	}
	for c := range h.gate.credentials {
		for _, form := range []string{c, base64.StdEncoding.EncodeToString([]byte(c)),
			url.QueryEscape(c)} {
			if len(c) > 0 && strings.Contains(text, form) {
				h.Errorf("%.12s… can be read in %s", c, around(text, form))
			}
		}
	}
	if h.app != nil && strings.Contains(text, "PRIVATE KEY") {
		h.Error("the App's key can be read")
	}
}

func around(text, what string) string {
	at := strings.Index(text, what)
	return text[max(0, at-200):min(len(text), at+len(what))]
}
