package github

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

// tape records the Git host's response to each request of a call, reduced to the decoded fields.
type tape struct {
	mu      sync.Mutex
	answers map[string]recorded
	record  http.RoundTripper // nil plays
	calling string
	askers  map[string][]string // by request: the calls that make it
	replace string              // the request that is answered with body
	body    []byte
}

type recorded struct {
	status int
	header http.Header
	body   []byte
}

func (t *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := r.Method + " " + r.URL.RequestURI()
	if t.record != nil {
		if err := t.ask(key, r); err != nil {
			return nil, err
		}
	}
	a, ok := t.answers[key]
	if !ok {
		a = recorded{status: http.StatusNotFound, header: http.Header{
			"Content-Type": {"application/json"}}, body: []byte(`{"message":"Not Found"}`)}
	}
	if key == t.replace {
		a.body = t.body
	}
	return &http.Response{StatusCode: a.status, Header: a.header.Clone(),
		Body: io.NopCloser(bytes.NewReader(a.body)), Request: r}, nil
}

func (t *tape) ask(key string, r *http.Request) error {
	answer, err := t.record.RoundTrip(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil {
		return err
	}
	answer.Header.Del("ETag")
	t.askers[key] = append(t.askers[key], t.calling)
	t.answers[key] = recorded{status: answer.StatusCode, header: answer.Header, body: prune(body)}
	return nil
}

// read are the fields that answers.go and the others read.
var fields = map[string]bool{}

func init() {
	for _, name := range strings.Fields(
		`id login type full_name ref sha label repo number title state draft merged merged_at merge_commit_sha user head
		base html_url updated_at slug body created_at issue_url performed_via_github_app commit_id submitted_at dismissed name permission status
		context description target_url creator head_sha external_id conclusion app output annotations_count config url guid delivered_at
		status_code repository_id total_count check_runs token expires_at app_id suspended_at permissions checks issues metadata`) {
		fields[name] = true
	}
}

func prune(body []byte) []byte {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return body
	}
	out, err := json.Marshal(pruned(v))
	if err != nil {
		return body
	}
	return out
}

func pruned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(name string, _ any) bool { return !fields[name] })
		for name := range v {
			v[name] = pruned(v[name])
		}
	case []any:
		for i := range v {
			v[i] = pruned(v[i])
		}
	}
	return v
}

// recording plays every call once and gives what was answered.
func recording(t testing.TB, asApp bool) (play func(*tape) (*stage, *Forge), of *tape) {
	s := newStage(t, asApp)
	s.Open(s.cast.Writer, "Add a file")
	s.Comment(1, s.cast.Stranger, "/argosy help")
	s.repo.Pull(1).Review(s.people[s.cast.Admin.ID], "APPROVED")
	s.repo.CommentThrough(1, s.self, s.app, marker+"\nold")
	c := s.config()
	base, err := c.base()
	if err != nil {
		t.Fatal(err)
	}
	of = &tape{answers: map[string]recorded{}, record: http.DefaultTransport,
		askers: map[string][]string{}}
	for name := range s.named(nil) {
		of.calling = name
		// some ask for missing objects
		_ = s.named(newForge(c, base, of))[name](context.Background())
	}
	of.record = nil
	return func(t *tape) (*stage, *Forge) {
		f := newForge(c, base, t)
		// signing is most of the work
		if f.grant != nil && !strings.Contains(t.replace, "installation") {
			f.grant.current, f.grant.until = "ghs_played", time.Now().Add(time.Hour)
		}
		return s, f
	}, of
}

// named are the calls on the stage's one pull request.
func (s *stage) named(f *Forge) map[string]func(context.Context) error {
	return calls(s, f, fleet.Revision(s.repo.Pull(1).Head))
}

// damages are what can be wrong with a field.
var damages = []any{nil, "absent", "text", 7.5, -1.0, 1e300, true, []any{}, []any{nil},
	map[string]any{}, "2026-99-99T00:00:00Z"}

// damage calls back with each version of the value that has one thing wrong, anywhere in it.
func damage(v any, put func(any), try func()) {
	for _, d := range damages {
		put(d)
		try()
	}
	put(v)
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			field := v[name]
			damage(field, func(d any) {
				if v[name] = d; d == "absent" {
					delete(v, name)
				}
			}, try)
		}
	case []any:
		for i := range v {
			damage(v[i], func(d any) { v[i] = d }, try)
		}
	}
}

// With any one field of any one answer null, absent or of another type nothing panics, and no pull
// request, account or team is taken for absent that was not.
func TestDamagedAnswers(t *testing.T) {
	for _, asApp := range []bool{true, false} {
		play, of := recording(t, asApp)
		tried := 0
		for key, a := range of.answers {
			asking := of.askers[key]
			if strings.Contains(key, "installation") { // each signs for the token that it asks for
				asking = []string{"Pull of none", "Owner, no user"}
			}
			var root any
			if err := json.Unmarshal(a.body, &root); err != nil {
				continue // of 204
			}
			damage(root, func(d any) { root = d }, func() {
				body, err := json.Marshal(root)
				if err != nil {
					t.Fatal(err)
				}
				tried++
				damaged := &tape{answers: of.answers, replace: key, body: body}
				for _, what := range asking {
					s, f := play(damaged)
					if err := s.named(f)[what](t.Context()); absent(err) &&
						!knownAbsent(what, err) {
						t.Fatalf("%s reads absence out of %s answered with %s: %v", what, key, body,
							err)
					}
				}
			})
		}
		if tried < 1000 {
			t.Errorf("only %d answers were tried", tried)
		}
	}
}

func absent(err error) bool {
	return errors.Is(err, forge.ErrNoSuchPull) || errors.Is(err, forge.ErrNoSuchOwner) ||
		errors.Is(err, forge.ErrNoSuchComment)
}

// FuzzAnswers replaces one response of a Git host by anything.
func FuzzAnswers(f *testing.F) {
	play, of := recording(f, true)
	keys := slices.Sorted(maps.Keys(of.answers))
	for i, key := range keys {
		f.Add(uint(i), of.answers[key].body)
	}
	f.Add(uint(0), []byte(`null`))
	f.Add(uint(3), []byte(`[[{"id":{}}]]`))
	f.Fuzz(func(t *testing.T, at uint, body []byte) {
		key := keys[at%uint(len(keys))]
		for _, what := range of.askers[key] {
			s, forge := play(&tape{answers: of.answers, replace: key, body: body})
			if err := s.named(forge)[what](t.Context()); absent(err) && !knownAbsent(what, err) {
				t.Errorf("%s reads absence out of %s: %v", what, key, err)
			}
		}
	})
}
