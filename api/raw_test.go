package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// The page and the API's answers contain no raw control character and no invisible character of a
// tenant's or cluster's text; a program decodes the original text.
func TestAnswersContainNoInvisibleCharacter(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b[2J\u009b2J\x7f\u202eb\u2066\u200b\u2028\u0085\u3164\U000e0041\nz"
	m := content()
	for i := range m.Problems {
		m.Problems[i].Message, m.Problems[i].Path, m.Problems[i].Fix = hostile, "tenants/"+hostile,
			hostile
	}
	for i := range m.Applications {
		m.Applications[i].Message, m.Applications[i].ApplyMessage, m.Applications[i].Apply =
			hostile, hostile, mirror.ApplyFailed
	}
	for i := range m.Holds {
		m.Holds[i].Message = hostile
	}
	for i := range m.Engines {
		m.Engines[i].Message, m.Engines[i].Reachable = hostile, false
	}
	for i := range m.Revisions {
		m.Revisions[i].Subject, m.Revisions[i].Author = hostile, hostile
	}
	s := newSite(t, m)
	check := func(path, body string) {
		t.Helper()
		for _, r := range body {
			if r != '\n' && r != '\t' &&
				(unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) ||
					r == 0x3164) {
				t.Errorf("%s has %U raw", path, r)
				return
			}
		}
	}
	for _, path := range []string{"/", "/applications", "/tenants/acme", "/engines/eu-1",
		"/tenants/acme/environments/prod", "/pulls", "/agents", "/nowhere"} {
		page := s.page(path, platformToken)
		check(path, page.body)
		if path == "/tenants/acme" && !strings.Contains(page.body, `\u202eb\u2066\u200b`) {
			t.Errorf("the text is not there: %s", page.body)
		}
	}
	for _, path := range []string{"/problems", "/applications", "/holds", "/engines",
		"/revisions"} {
		answer := s.do(http.MethodGet, wire.Base+path, platformToken, "")
		check(path, answer.body)
		if path != "/problems" {
			continue
		}
		var got struct{ Items []fleet.Problem }
		if err := json.Unmarshal([]byte(answer.body), &got); err != nil || len(got.Items) == 0 ||
			got.Items[0].Message != hostile {
			t.Errorf("%v: %s", err, answer.body)
		}
	}
}
