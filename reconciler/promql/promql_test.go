package promql_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/promql"
	"argosy.dev/argosy/test/stack"
)

// A real Prometheus answers. Exactly one number is a value; everything else is an error.
func TestOnlyOneNumberIsAValue(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := stack.StartPrometheus(ctx,
		stack.PrometheusOptions{Config: "scrape_configs: []\n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	id := fleet.ApplicationID{Tenant: "acme", Deployment: "checkout", Environment: "prod"}
	for query, want := range map[string]string{
		`vector(0.25)`: "", `0.25`: "",
		`vector(0.25) > 1`: "0 series",
		`vector(1) or label_replace(vector(1), "a", "b", "", "")`: "2 series",
		`vector(0) / 0`:         "no number",
		`vector(1) / 0`:         "no number",
		`"text"`:                "does not answer",
		`sum(`:                  "prometheus answers bad_data",
		`vector(time())[5m:1m]`: "a matrix",
		`label_replace(vector(0.25), "n", {{namespace}}, "", "")`: "",
	} {
		asked := fleet.Metric{Query: query}.Ask(id, `"} or vector(7) #\`)
		got, err := promql.Client{}.Query(ctx, fleet.Prometheus{URL: server.URL}, asked)
		switch {
		case want == "" && (err != nil || got != 0.25):
			t.Errorf("%s: %v, %v", asked, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, %v, want %q", query, got, err, want)
		}
	}
}

func TestTheServerGetsTheCredentialAndNoErrorShowsIt(t *testing.T) {
	const secret = "canary-7f3a"
	sent := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		http.Redirect(w, r, "http://example.com/", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	c := promql.Client{Secret: func(_ context.Context, ref fleet.CredentialSource) (fleet.Secret,
		error) {
		return fleet.NewSecret(map[string][]byte{"token": []byte(secret + "\n")}), nil
	}}
	_, err := c.Query(t.Context(), fleet.Prometheus{URL: server.URL,
		CredentialsRef: &fleet.SecretRef{Name: "prometheus"}}, "up")
	if sent != "Bearer "+secret {
		t.Errorf("it got %q", sent)
	}
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
}

func TestAServerThatIsAwayOrAnswersTooMuchIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range 100 {
			_, _ = w.Write([]byte(strings.Repeat(" ", 1<<16)))
		}
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`))
	}))
	if _, err := (promql.Client{}).Query(t.Context(), fleet.Prometheus{URL: server.URL},
		"up"); err == nil {
		t.Error("an answer of 6 MiB is read")
	}
	server.Close()
	if _, err := (promql.Client{}).Query(t.Context(), fleet.Prometheus{URL: server.URL},
		"up"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
}
