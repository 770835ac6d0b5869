package github

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook/github/githubtest"
)

// commits are those of a repository of the small GitHub, as a user with a token.
func commits(t *testing.T) (*githubtest.Server, *githubtest.Repository, *Commits) {
	t.Helper()
	server := githubtest.Start(t)
	repo := server.Repository(server.Organization("acme"), "checkout", false)
	bot := server.User("bot")
	repo.Grant(bot, "write")
	token := server.Token(bot, "ghp_0123456789abcdef")
	return server, repo, commitsAt(t, server.URL, token)
}

func commitsAt(t *testing.T, base, token string) *Commits {
	t.Helper()
	c, err := NewCommits(Config{BaseURL: base, Repository: "acme/checkout", AllowHTTP: true,
		Auth: Auth{Token: func(context.Context) (string, error) { return token, nil }}},
		http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func report(commit, state, deployment string) CommitReport {
	return CommitReport{Commit: commit, Context: "argosy/acme/checkout@prod", State: state,
		Description: "on its way to prod", Target: "https://argosy.example.com/x",
		Deployment: &Deployment{Environment: "checkout@prod", Task: "argosy:acme/checkout",
			State: deployment, Create: true}}
}

func TestACommitGetsItsStatusAndItsDeploymentOnce(t *testing.T) {
	server, repo, c := commits(t)
	for _, r := range []CommitReport{report(sha, "pending", "queued"),
		report(sha, "pending", "in_progress"), report(sha, "success", "success"),
		report(sha, "success", "success")} {
		answer, err := c.Report(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(answer)
	}
	got := repo.Statuses(sha)["argosy/acme/checkout@prod"]
	if got.State != "success" || got.Description != "on its way to prod" ||
		got.Target != "https://argosy.example.com/x" {
		t.Errorf("status %+v", got)
	}
	all := repo.Deployments()
	if len(all) != 1 || all[0].Commit != sha || all[0].Environment != "checkout@prod" ||
		len(all[0].Statuses) != 3 || all[0].State() != "success" ||
		all[0].Statuses[2].LogURL != "https://argosy.example.com/x" ||
		all[0].Statuses[2].AutoInactive {
		t.Fatalf("deployments %+v", all)
	}
	if n := server.Count("POST /repos/acme/checkout/statuses/"); n != 2 {
		t.Errorf("%d statuses are written; the second and the fourth report change none", n)
	}
}

// The end of an older commit must not make its deployment the latest of the environment.
func TestAnOlderCommitGetsNoDeploymentAnyMore(t *testing.T) {
	_, repo, c := commits(t)
	older := strings.Repeat("b", 40)
	if _, err := c.Report(t.Context(), report(sha, "success", "success")); err != nil {
		t.Fatal(err)
	}
	r := report(older, "error", "inactive")
	r.Deployment.Create = false
	if answer, err := c.Report(t.Context(), r); err != nil ||
		answer != "status error, deployment none" {
		t.Errorf("%q, %v", answer, err)
	}
	if all := repo.Deployments(); len(all) != 1 || all[0].Commit != sha {
		t.Errorf("%+v", all)
	}
}

func TestARepositoryThatWasRenamedOrIsGoneGetsNothing(t *testing.T) {
	server, repo, c := commits(t)
	repo.Rename("acme/other")
	if _, err := c.Report(t.Context(), report(sha, "success", "success")); err == nil ||
		!strings.Contains(err.Error(), "renamed") {
		t.Errorf("renamed: %v", err)
	}
	repo.Delete()
	if _, err := c.Report(t.Context(), report(sha, "success", "success")); err == nil ||
		!IsRefusal(err) {
		t.Errorf("gone: %v", err)
	}
	if n := server.Count("POST "); n != 0 {
		t.Errorf("%d writes", n)
	}
}

func TestAHostileGitHostOfATenantLearnsAndCostsLittle(t *testing.T) {
	const token = "ghp_the-secret-of-acme"
	big := strings.Repeat("x", 3<<20)
	for _, c := range []struct {
		name, want string
		handle     http.HandlerFunc
	}{
		{"an answer of 3 MB", "more than 2 MiB", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(big))
		}},
		{"a redirect to another host", "redirects", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusTemporaryRedirect)
		}},
		{"another repository", "is named acme/fleet now", func(w http.ResponseWriter,
			_ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"id": 1, "full_name": "acme/fleet"}`))
		}},
		{"the token repeated", "[redacted]", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"message": "` + r.Header.Get("Authorization") +
				`\u202e\u001b[31m"}`))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(c.handle)
			defer s.Close()
			_, err := commitsAt(t, s.URL, token).Report(t.Context(),
				report(sha, "success", "success"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), token) || strings.ContainsAny(err.Error(),
				"\u202e\x1b") {
				t.Errorf("the error has what it must not: %q", err)
			}
		})
	}
}

func TestALimitOfATenantsGitHostIsAPause(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"message": "You have exceeded a secondary rate limit"}`))
	}))
	defer s.Close()
	_, err := commitsAt(t, s.URL, "ghp_0123456789abcdef").Report(t.Context(),
		report(sha, "success", "success"))
	var busy *forge.Busy
	if !errors.As(err, &busy) {
		t.Errorf("%v", err)
	}
}
