package server

import (
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/deliver"
	"argosy.dev/argosy/reconciler/notify"
	"argosy.dev/argosy/webhook/github/githubtest"
)

// enterprise is a GitHub Enterprise with TLS, and the report of a commit on it.
func enterprise(t *testing.T) (*githubtest.Repository, commitReporter, notify.CommitDelivery) {
	t.Helper()
	host := githubtest.New(t)
	s := httptest.NewTLSServer(http.StripPrefix("/api/v3", host))
	t.Cleanup(s.Close)
	repo := host.Repository(host.Organization("acme"), "checkout", false)
	bot := host.User("bot")
	repo.Grant(bot, "write")
	authority := strings.TrimPrefix(s.URL, "https://")
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return repo, commitReporter{&deliver.Sender{Roots: roots}}, notify.CommitDelivery{
		Settings: fleet.CommitStatuses{Name: "github", API: fleet.CommitHostGitHub,
			Deployments: true, Repositories: []string{s.URL + "/acme/"},
			CredentialsRef: fleet.SecretRef{Name: "statuses"}},
		Secret: fleet.NewSecret(map[string][]byte{
			"token": []byte(host.Token(bot, "ghp_0123456789abcdef") + "\n")}),
		Fleet: &fleet.FleetNotifications{AllowedHosts: []string{authority},
			PrivateHosts: []string{authority}},
		Public: "https://argosy.example.com/",
		Report: mirror.CommitReport{CommitStatus: mirror.CommitStatus{Tenant: "acme",
			Deployment: "checkout", Environment: "prod", Repository: s.URL + "/acme/checkout.git",
			Commit: strings.Repeat("a", 40)}},
	}
}

func TestACommitGoesThroughItsStatesOnGitHub(t *testing.T) {
	repo, reporter, d := enterprise(t)
	for _, step := range []struct {
		state, was         mirror.CommitState
		status, deployment string
	}{
		{mirror.CommitQueued, "", "pending", "queued"},
		{mirror.CommitInProgress, "", "pending", "in_progress"},
		{mirror.CommitFailed, "", "failure", "failure"},
		{mirror.CommitSucceeded, "", "success", "success"},
		{mirror.CommitEnded, mirror.CommitSucceeded, "success", "inactive"},
	} {
		d.Report.State, d.Report.Was = step.state, step.was
		if _, err := reporter.ReportCommit(t.Context(), d); err != nil {
			t.Fatalf("%s: %v", step.state, err)
		}
		status := repo.Statuses(d.Report.Commit)["argosy/acme/checkout@prod"]
		all := repo.Deployments()
		if status.State != step.status || len(all) != 1 || all[0].State() != step.deployment ||
			all[0].Environment != "checkout@prod" || status.Target !=
			"https://argosy.example.com/tenants/acme/applications/checkout/prod" {
			t.Errorf("%s: %+v, %+v", step.state, status, all)
		}
	}
	d.Report.Commit, d.Report.Was, d.Report.Superseded = strings.Repeat("b", 40),
		mirror.CommitInProgress, true
	if _, err := reporter.ReportCommit(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if all := repo.Deployments(); len(all) != 1 ||
		repo.Statuses(d.Report.Commit)["argosy/acme/checkout@prod"].State != "error" {
		t.Errorf("an older commit got a deployment: %+v", all)
	}
}

func TestATokenReachesNoGitHostThatThePlatformDoesNotAllow(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*notify.CommitDelivery)
		want    string
		refused bool
	}{
		"not listed": {func(d *notify.CommitDelivery) { d.Fleet.AllowedHosts = nil },
			"allows no messages to 127.0.0.1", true},
		"no Fleet": {func(d *notify.CommitDelivery) { d.Fleet = nil }, "allows no messages", true},
		"a private address": {func(d *notify.CommitDelivery) { d.Fleet.PrivateHosts = nil },
			"127.0.0.1 of a private network", false},
		"no TLS": {func(d *notify.CommitDelivery) {
			d.Report.Repository = strings.Replace(d.Report.Repository, "https", "http", 1)
		}, "TLS", true},
		"no token": {func(d *notify.CommitDelivery) { d.Secret = fleet.Secret{} },
			"has no key token", false},
		"another repository": {func(d *notify.CommitDelivery) {
			d.Report.Repository = strings.Replace(d.Report.Repository, "checkout", "secret", 1)
		}, "404", true},
	} {
		t.Run(name, func(t *testing.T) {
			repo, reporter, d := enterprise(t)
			d.Report.State = mirror.CommitSucceeded
			c.edit(&d)
			_, err := reporter.ReportCommit(t.Context(), d)
			var refused *notify.Refused
			switch {
			case err == nil || !strings.Contains(err.Error(), c.want):
				t.Fatalf("%v, want %q", err, c.want)
			case errors.As(err, &refused) != c.refused:
				t.Errorf("refused is %v: %v", !c.refused, err)
			case strings.Contains(err.Error(), "ghp_"):
				t.Errorf("the error has the token: %v", err)
			}
			if len(repo.Statuses(d.Report.Commit)) > 0 {
				t.Error("a status was written")
			}
		})
	}
}
