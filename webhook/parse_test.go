package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

var sha = strings.Repeat("ab", 20)

func TestEachEventRequestsItsJobs(t *testing.T) {
	for name, c := range map[string]struct {
		event, body string
		want        []forge.Recheck
	}{
		"a push to another branch":   {"push", `{"ref":"refs/heads/feature"}`, nil},
		"a tag of the branch's name": {"push", `{"ref":"refs/tags/main"}`, nil},
		"a pull request": {
			"pull_request", `{"action":"synchronize","number":7,"pull_request":{"number":7}}`,
			[]forge.Recheck{{Kind: forge.RecheckPull, Number: 7}}},
		"a pull request without a number": {"pull_request", `{"action":"synchronize"}`, resync()},
		"a review": {"pull_request_review", `{"pull_request":{"number":7}}`,
			[]forge.Recheck{{Kind: forge.RecheckPull, Number: 7}}},
		"a review on Gitea": {"pull_request_approved",
			`{"action":"reviewed","pull_request":{"number":7}}`, []forge.Recheck{
				{Kind: forge.RecheckPull, Number: 7}}},
		"a comment": {
			"issue_comment", `{"action":"created","issue":{"number":7,"pull_request":{"url":"x"}}}`,
			[]forge.Recheck{{Kind: forge.RecheckPull, Number: 7}}},
		"a comment on an issue": {
			"issue_comment", `{"action":"created","issue":{"number":7}}`, nil},
		"a comment on an issue, null": {
			"issue_comment", `{"action":"created","issue":{"number":7,"pull_request":null}}`, nil},
		"an edited comment": {
			"issue_comment", `{"action":"edited","issue":{"number":7,"pull_request":{}}}`, nil},
		"a re-run": {
			"check_run", `{"action":"rerequested","check_run":{"head_sha":"` + sha + `"}}`,
			[]forge.Recheck{{Kind: forge.RecheckHead, Head: fleet.Revision(sha)}}},
		"a re-run of the suite": {
			"check_suite", `{"action":"rerequested","check_suite":{"head_sha":"` + sha + `"}}`,
			[]forge.Recheck{{Kind: forge.RecheckHead, Head: fleet.Revision(sha)}}},
		"a check that ended": {
			"check_run", `{"action":"completed","check_run":{"head_sha":"` + sha + `"}}`, nil},
		"a merge group": {
			"merge_group", `{"action":"checks_requested","merge_group":{"head_sha":"` + sha +
				`","head_ref":"refs/heads/gh-readonly-queue/main/pr-7-x","base_ref":"refs/heads/main"}}`, []forge.Recheck{{Kind: forge.RecheckGroup, Head: fleet.Revision(sha), Ref: "refs/heads/gh-readonly-queue/main/pr-7-x"}}},
		"a merge group of another branch": {
			"merge_group", `{"action":"checks_requested","merge_group":{"head_sha":"` + sha +
				`","head_ref":"refs/heads/x","base_ref":"refs/heads/dev"}}`, nil},
		"a status under our name": {"status", `{"context":"argosy/plan","sha":"` + sha +
			`"}`, []forge.Recheck{{Kind: forge.RecheckHead, Head: fleet.Revision(sha)}}},
		"a status of others": {"status", `{"context":"ci","sha":"` + sha + `"}`, nil},
		"an installation":    {"installation", `{"action":"suspend"}`, resync()},
		"another repository's": {
			"push", `{"ref":"refs/heads/main","repository":{"id":43}}`, nil},
		"an event that is not ours": {"star", `{}`, nil},
		"a number of the wrong type": {"pull_request", `{"pull_request":{"number":"7"}}`,
			resync()},
		"a negative number": {"pull_request", `{"pull_request":{"number":-7}}`,
			resync()},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.event, []byte(c.body), "main", 42)
			if err != nil || fmt.Sprint(got.Rechecks) != fmt.Sprint(c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
	for body, want := range map[string]bool{
		`{"ref":"refs/heads/main"}`:                        true,
		`{"ref":"refs/heads/main","deleted":true}`:         true,
		`{"ref":"refs/heads/main","repository":{"id":42}}`: true,
		`{"ref":"refs/heads/main","repository":{"id":43}}`: false,
		`{"ref":"refs/heads/feature"}`:                     false,
		`{"ref":"refs/tags/main"}`:                         false,
	} {
		if got, err := Parse("push", []byte(body), "main", 42); err != nil || got.Pushed != want {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	if _, err := Parse("push", []byte(`{"ref":`), "main", 0); err == nil {
		t.Error("half a body is taken")
	}
	if _, err := Parse("push", []byte(`[]`), "main", 0); err == nil {
		t.Error("a list is taken")
	}
}

// Any field may be null, absent or of another type: Parse never panics, and no job lacks its
// subject.
func FuzzParse(f *testing.F) {
	full :=
		`{"action":"created","ref":"refs/heads/main","number":7,"context":"argosy/plan","sha":"` +
			sha + `","repository":{"id":42},"pull_request":{"number":7},` +
			`"issue":{"number":7,"pull_request":{}},"check_run":{"head_sha":"` + sha +
			`"},"check_suite":{"head_sha":"` + sha + `"},"merge_group":{"head_sha":"` + sha +
			`","head_ref":"refs/heads/q","base_ref":"refs/heads/main"}}`
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(full), &fields); err != nil {
		f.Fatal(err)
	}
	for _, event := range append(slices.Collect(maps.Keys(events)), pushEvent) {
		f.Add(event, []byte(full))
		for name := range fields {
			for _, v := range []string{"null", `"x"`, "-1", "[]", "{}", "1e400", "true"} {
				changed := map[string]json.RawMessage{}
				for k, raw := range fields {
					changed[k] = raw
				}
				changed[name] = json.RawMessage(v)
				b, err := json.Marshal(changed)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(event, b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		asks, err := Parse(event, body, "main", 0)
		if err != nil && (asks.Rechecks != nil || asks.Pushed) {
			t.Error("an error and jobs")
		}
		for _, l := range asks.Rechecks {
			switch {
			case l.Kind == forge.RecheckPull && l.Number <= 0:
				t.Errorf("a pull request without a number: %+v", l)
			case (l.Kind == forge.RecheckHead || l.Kind == forge.RecheckGroup) && len(l.Head) != 40:
				t.Errorf("a head that is none: %+v", l)
			}
		}
	})
}

// A push to any repository may concern a set that lists it. It carries no facts.
func TestAPushNamesTheRefAndTheRepositoryThatMoved(t *testing.T) {
	of := func(id int, more string) []byte {
		return []byte(fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"id":%d%s}}`, id, more))
	}
	urls := `,"clone_url":"https://git.example.com/acme/services.git",` +
		`"ssh_url":"git@git.example.com:acme/services.git"`
	for name, c := range map[string]struct {
		body []byte
		want int
	}{
		"of another repository":  {of(43, urls), 2},
		"of the config repo":     {of(42, urls), 2},
		"without a URL":          {of(43, ""), 0},
		"with a URL of no forge": {of(43, `,"clone_url":"file:///etc","ssh_url":"ext::sh"`), 0},
		"without a repository":   {[]byte(`{"ref":"refs/heads/main"}`), 0},
	} {
		got, err := Parse("push", c.body, "main", 42)
		n := 0
		if got.Moved != nil {
			n = len(got.Moved.URLs)
		}
		if err != nil || n != c.want || n > 0 && got.Moved.Ref != "refs/heads/main" {
			t.Errorf("%s: %+v, %v", name, got.Moved, err)
		}
	}
	if got, _ := Parse("push", of(43, urls), "main", 42); got.Pushed || len(got.Rechecks) > 0 {
		t.Errorf("a push to another repository requests %+v", got)
	}
	if got, _ := Parse("issue_comment", of(43, urls), "main", 42); got.Moved != nil {
		t.Errorf("a comment moves %+v", got.Moved)
	}
}
