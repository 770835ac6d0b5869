package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/webhook/github/githubtest"
)

// The doctor names the setting of each rule that the branch lacks, and what its account may not
// read is not fine.
func TestDoctorComparesTheProtectionOfTheBranch(t *testing.T) {
	host := githubtest.Start(t)
	acme, bot := host.Organization("acme"), host.User("argosy")
	repo := host.Repository(acme, "fleet", true)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(host.Token(bot, "ghp_0123456789abcdef")),
		0o600); err != nil {
		t.Fatal(err)
	}
	s := settings.Settings{Source: settings.Source{Branch: "main"}, Forge: &settings.Forge{
		API: host.URL, Repository: repo.Name, RepositoryID: repo.ID, TokenFile: token,
		AllowHTTP: true,
	}}
	states := map[string]string{}
	for _, c := range examineBranch(t.Context(), s) {
		states[strings.TrimPrefix(c.Subject, "branch main: ")] = string(c.Level()) + ": " + c.Text()
	}
	for rule, want := range map[string]string{
		"required checks": "blocking: argosy/validate, argosy/plan, argosy/owners not required",
		"direct pushes":   `GitHub: ruleset "Require a pull request before merging": on`,
		"deletion":        `"Restrict deletions": on`,
		"force pushes":    `"Block force pushes": on`,
		"merge styles":    `not checked: not checked: Argosy's account may not read it; reading it takes the repository permission "Contents: write"`,
	} {
		if !strings.Contains(states[rule], want) {
			t.Errorf("%s is reported as %q, without %q", rule, states[rule], want)
		}
	}

	host.Break("GET /repos/acme/fleet/rules/*", githubtest.HTML(502))
	if got := examineBranch(t.Context(), s); len(got) != 1 || got[0].Err == nil {
		t.Errorf("rules that cannot be read are reported as %+v", got)
	}
}

// A finding that blocks an engine and a warning are reported as two checks.
func TestDoctorSeparatesWarningsOfAnEngine(t *testing.T) {
	warns := engine.Finding{Code: "default-project", Message: "admits all", Fix: "empty it"}
	for want, findings := range map[string][]engine.Finding{
		"ok":               nil,
		"ok warning":       {warns},
		"blocking":         {{Code: "tracking", Blocks: true}},
		"blocking warning": {warns, {Code: "request-timeout", Blind: true}},
	} {
		var got []string
		for _, c := range judged("engine eu-1", engine.Report{Findings: findings}) {
			got = append(got, string(c.Level()))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: %q, want %q", findings, got, want)
		}
	}
}

type owners []view.Owner

func (o owners) ChangedOwners(context.Context) ([]view.Owner, error) { return o, nil }

func TestDoctorNamesOwnersWhoseLoginWasTaken(t *testing.T) {
	if text, err := examineOwners(t.Context(), owners(nil)); err != nil || text == "" {
		t.Errorf("%q %v", text, err)
	}
	_, err := examineOwners(t.Context(), owners{{Name: "alice", ID: 7, NowID: 12}})
	if err == nil || !strings.Contains(err.Error(), "argosy pin-owner alice --id 12") {
		t.Errorf("a login that was taken is reported as %v", err)
	}
}
