package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/test/example"
)

// replays sends requests that a proxy has recorded once more, to each replica, and a report with
// another content. Call it within a minute: after that the recorded requests are too old in any
// case.
func (f *system) replays(t *testing.T, engine fleet.EngineName, tapped []byte,
	replicas ...*example.Plane) {
	var report agent.Report
	if err := json.Unmarshal(recorded(t, tapped, agent.PathStatus).body, &report); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the recorded report counts", func() string { // until then, it may come again
		var last int64
		f.query(t, &last, `SELECT report_seq FROM agents WHERE engine = $1 AND ended_at IS NULL`,
			engine)
		if last < report.Seq {
			return fmt.Sprintf("%d counts, %d was recorded", last, report.Seq)
		}
		return ""
	})
	const count = `SELECT count(*) || ' identities have opened ' || sum(opening) || ' sessions' FROM agents`
	var before, after string
	f.query(t, &before, count)
	other := recorded(t, tapped, agent.PathStatus)
	other.body = bytes.Replace(other.body, []byte("{"), []byte("{ "), 1)
	for _, to := range replicas {
		for path, code := range map[string]string{agent.PathToken: agent.CodeProof,
			agent.PathStream: agent.CodeReplay, agent.PathStatus: agent.CodeReplay} {
			got := resent(t, to, recorded(t, tapped, path))
			// a report is refused by its number elsewhere
			if got.Code != code || got.Status != http.StatusUnauthorized &&
				got.Status != http.StatusConflict {
				t.Errorf("a request to %s that was recorded is answered with %+v", path, got)
			}
		}
		if got := resent(t, to, other); got.Status != http.StatusUnauthorized ||
			got.Code != agent.CodeProof {
			t.Errorf("a report that its proof is not about is answered with %+v", got)
		}
	}
	f.query(t, &after, count)
	if before != after {
		t.Errorf("%s, and after what was recorded was sent again %s", before, after)
	}
}

// request is one that was read on the way.
type request struct {
	*http.Request
	body []byte
}

// recorded is the last request to a path that was read as a whole: what is longer than this comes
// in parts, between which there may be others.
func recorded(t *testing.T, tapped []byte, path string) request {
	t.Helper()
	const whole = 4 << 10
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		line := []byte(method + " " + path + " HTTP/1.1\r\n")
		for at := bytes.LastIndex(tapped, line); at >= 0; at = bytes.LastIndex(tapped[:at], line) {
			rest := tapped[at:min(len(tapped), at+whole)]
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(rest)))
			if err != nil {
				continue
			}
			if body, err := io.ReadAll(r.Body); err == nil {
				return request{r, body}
			}
		}
	}
	t.Fatalf("no request to %s was recorded", path)
	return request{}
}

// resent is what a replica answers to a request that was made before.
func resent(t *testing.T, to *example.Plane, was request) agent.Problem {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), was.Method, to.URL+was.URL.Path,
		bytes.NewReader(was.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = was.Header
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	problem := agent.Problem{Status: resp.StatusCode}
	if !strings.Contains(resp.Header.Get("Content-Type"), "json") { // a stream, which has no end
		return problem
	}
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
		t.Fatalf("%s: %v", was.URL.Path, err)
	}
	return problem
}
