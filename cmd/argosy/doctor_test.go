package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/server"
)

// A skipped check does not change the exit code, and its line differs from a successful one.
func TestDoctorListsSkippedChecks(t *testing.T) {
	checks := []server.Check{
		{Subject: "settings", Detail: "well formed"},
		{Subject: "branch main: merge styles", Detail: "not checked: no permission", Unknown: true}}
	var out, hints bytes.Buffer
	a := &app{out: &out, err: &hints}
	if err := a.examine(checks, "text"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "?    branch main: merge styles") ||
		!strings.Contains(hints.String(), "0 to fix, 1 not checked") {
		t.Errorf("it writes\n%s%s", out.String(), hints.String())
	}
	out.Reset()
	checks = append(checks, server.Check{Subject: "database", Err: errors.New("away")})
	err := a.examine(checks, "json")
	var found findings
	var reported []checked
	broken := json.Unmarshal(out.Bytes(), &reported)
	if !errors.As(err, &found) || broken != nil || len(reported) != 3 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for i, state := range []string{"ok", "not checked", "fix"} {
		if reported[i].State != state {
			t.Errorf("%s is reported as %s", reported[i].Subject, reported[i].State)
		}
	}
}
