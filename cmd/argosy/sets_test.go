package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func TestTheTableOfSetsFitsATerminal(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := now.Add(-3 * time.Hour)
	commit := func(digit string) fleet.Revision { return fleet.Revision(strings.Repeat(digit, 40)) }
	sets := []view.Set{
		{Tenant: "payments-europe", Name: "services-of-production", Deployments: make(
			[]fleet.DeploymentName, 1000), Problems: 12, Listings: []view.Listing{
			{RepoURL: "https://git.example.com/payments/services", TargetRevision: "main",
				Commit: commit("a"), Head: commit("b"), HeadAt: &at, Error: "answered 404"}}},
		{Tenant: "acme", Name: "listed"},
	}
	for wide, want := range map[bool][]string{
		false: {"1000", commit("b").Short(), "3h", "12"},
		true:  {commit("a").Short(), "https://git.example.com/payments/services", "answered 404"},
	} {
		var out bytes.Buffer
		if err := tabulate(sets, setColumns, wide, now).Write(&out, false); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%q", lines)
		}
		for _, text := range want {
			if !strings.Contains(lines[1], text) {
				t.Errorf("no %s in %q", text, lines[1])
			}
		}
		for _, line := range lines {
			if !wide && len(line) > 80 {
				t.Errorf("%d columns: %q", len(line), line)
			}
		}
	}
}
