package githubtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// noted is a test that keeps its errors.
type noted struct {
	testing.TB
	errors []string
}

func (n *noted) Errorf(format string, args ...any) {
	n.errors = append(n.errors, fmt.Sprintf(format, args...))
}
func (n *noted) Helper() {}

// newServer returns a GitHub with a pull request, and the mistakes that it finds.
func newServer(t *testing.T) (*Server, *noted) {
	n := &noted{TB: t}
	s := New(n)
	alice := s.User("alice")
	r := s.Repository(alice, "fleet", true)
	r.Open(alice, "Add a file", nil)
	s.Token(alice, "ghp_alice")
	s.Token(s.User("bob"), "ghp_bob")
	return s, n
}

func ask(s *Server, method, target, token, body string, headers ...string) *http.Response {
	r := httptest.NewRequestWithContext(context.Background(), method, target,
		strings.NewReader(body))
	r.Header.Set("Authorization", "token "+token)
	r.Header.Set("Accept", "application/vnd.github.v3+json")
	r.Header.Set("User-Agent", "test")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func TestRequestsAreHeldToTheDescription(t *testing.T) {
	sha := strings.Repeat("a", 40)
	for name, c := range map[string]struct {
		method, target, body string
		headers              []string
		wrong                string // "" is a request that fits
	}{
		"a list": {
			method: "GET", target: "/repos/alice/fleet/pulls?state=open&per_page=5"},
		"a status": {
			method: "POST", target: "/repos/alice/fleet/statuses/" + sha,
			body: `{"state":"success","context":"x"}`},
		"a parameter that is not there": {
			method: "GET", target: "/repos/alice/fleet/pulls?limit=5",
			wrong: "no query parameter limit"},
		"a parameter twice": {
			method: "GET", target: "/repos/alice/fleet/pulls?page=1&page=2",
			wrong: "no query parameter page"},
		"a parameter of another type": {
			method: "GET", target: "/repos/alice/fleet/pulls?page=two", wrong: "parameter page"},
		"a parameter of no such value": {
			method: "GET", target: "/repos/alice/fleet/pulls?state=merged",
			wrong: "parameter state"},
		"a path of another type": {method: "GET", target: "/repos/alice/fleet/pulls/one",
			wrong: "parameter pull_number"},
		"a path that is not there": {method: "GET", target: "/repos/alice/fleet/commits/" +
			sha + "/pull", wrong: "is no operation"},
		"a method that is not there": {method: "PUT", target: "/repos/alice/fleet/pulls",
			wrong: "is no operation"},
		"no body": {
			method: "POST", target: "/repos/alice/fleet/statuses/" + sha,
			wrong: "body is required"},
		"a body without a required field": {
			method: "POST", target: "/repos/alice/fleet/statuses/" + sha, body: `{"context":"x"}`,
			wrong: "missing property 'state'"},
		"a body with a word that is none": {
			method: "POST", target: "/repos/alice/fleet/statuses/" + sha,
			body: `{"state":"neutral"}`, wrong: "state"},
		"a field that is not there": {
			method: "POST", target: "/repos/alice/fleet/statuses/" + sha,
			body: `{"state":"success","name":"x"}`, wrong: "body.name"},
		"a field deep down": {
			method: "POST", target: "/repos/alice/fleet/check-runs",
			body: run(
				`{"title":"x","summary":"x","annotations":[{"path":"x","start_line":1,"end_line":1,"annotation_level":"notice","message":"x","line":1}]}`), wrong: "annotations[].line"},
		"more annotations than it takes": {
			method: "POST", target: "/repos/alice/fleet/check-runs",
			body: run(`{"title":"x","summary":"x","annotations":[` + strings.TrimSuffix(
				strings.Repeat(
					`{"path":"x","start_line":1,"end_line":1,"annotation_level":"notice","message":"x"},`, 51), ",") + `]}`), wrong: "maxItems"},
		"a summary that is too long": {
			method: "POST", target: "/repos/alice/fleet/check-runs",
			body:  run(`{"title":"x","summary":"` + strings.Repeat("x", 65536) + `"}`),
			wrong: "maxLength"},
		"a conclusion that is none": {
			method: "POST", target: "/repos/alice/fleet/check-runs",
			body: `{"name":"x","head_sha":"` + sha + `","conclusion":"fine"}`, wrong: "conclusion"},
		"a body of another content type": {
			method: "POST", target: "/repos/alice/fleet/statuses/" + sha,
			body: `{"state":"success"}`, headers: []string{"Content-Type", "text/plain"},
			wrong: "not application/json"},
		"a client without a name": {method: "GET", target: "/repos/alice/fleet",
			headers: []string{"User-Agent", ""}, wrong: "User-Agent"},
		"an unknown ETag": {method: "GET", target: "/repos/alice/fleet",
			headers: []string{"If-None-Match", `"x"`}, wrong: "was never given"},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := newServer(t)
			answer := ask(s, c.method, c.target, "ghp_alice", c.body, c.headers...)
			_ = answer.Body.Close()
			got := strings.Join(n.errors, "\n")
			if c.wrong == "" && got != "" || c.wrong != "" && !strings.Contains(got, c.wrong) {
				t.Errorf("it answers %d and finds: %s", answer.StatusCode, got)
			}
		})
	}
}

func run(output string) string {
	return `{"name":"x","head_sha":"` + strings.Repeat("a", 40) + `","output":` + output + `}`
}

func TestETagIsItsOwners(t *testing.T) {
	s, n := newServer(t)
	first := ask(s, "GET", "/repos/alice/fleet", "ghp_alice", "")
	etag := first.Header.Get("ETag")
	for token, status := range map[string]int{"ghp_alice": http.StatusNotModified,
		"ghp_bob": http.StatusOK} {
		if again := ask(s, "GET", "/repos/alice/fleet", token, "", "If-None-Match",
			etag); again.StatusCode != status {
			t.Errorf("%s is answered %d", token, again.StatusCode)
		}
	}
	if len(n.errors) != 1 || !strings.Contains(n.errors[0], "never given") {
		t.Errorf("it finds %q", n.errors)
	}
}

func TestAnswersAreHeldToTheDescription(t *testing.T) {
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	o, _ := d.find("GET", "/repos/alice/fleet/pulls/1")
	s, _ := newServer(t)
	answer := ask(s, "GET", "/repos/alice/fleet/pulls/1", "ghp_alice", "")
	whole, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		status int
		body   string
		fits   bool
	}{
		"as it is":                  {200, string(whole), true},
		"a status that is none":     {418, "{}", false},
		"an error":                  {502, `{"message":"x"}`, true},
		"an error of another shape": {404, `{"message":7}`, false},
		"no field but one":          {200, `{"number":1}`, false},
		"a number as text": {
			200, strings.Replace(string(whole), `"number":1`, `"number":"1"`, 1), false},
		"a time that is none": {200, strings.Replace(string(whole), `"updated_at":"2`,
			`"updated_at":"x`, 1), false},
		"304 with a body": {304, "{}", false},
		"304":             {304, "", true},
	} {
		if err := d.checkAnswer(o, c.status, []byte(c.body)); (err == nil) != c.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Everything in Paths that can be asked for is answered by something.
func TestHandlersAreOperations(t *testing.T) {
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, o := range d.Operations {
		known[o.Method+" "+o.Path] = true
	}
	for name := range handlers {
		if !known[name] {
			t.Errorf("%s is no operation of GitHub's", name)
		}
	}
	for _, path := range Paths {
		answered := false
		for _, method := range []string{"GET", "POST", "PATCH", "DELETE"} {
			answered = answered || handlers[method+" "+path] != nil
		}
		if !answered {
			t.Errorf("nothing of %s is answered", path)
		}
	}
}
