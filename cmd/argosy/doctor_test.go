package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/server"
)

// Neither a skipped check nor a warning changes the exit code, and their lines differ from a
// successful one.
func TestDoctorHasThreeLevels(t *testing.T) {
	checks := []server.Check{
		{Subject: "settings", Detail: "well formed"},
		{Subject: "branch main: merge styles", Detail: "no permission", Unknown: true},
		{Subject: "engine eu-1", Err: errors.New("the AppProject default admits all"),
			Warning: true}}
	var out, hints bytes.Buffer
	a := &app{out: &out, err: &hints}
	if err := a.examine(checks, "text"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "\nnot checked  branch main: merge styles") ||
		!strings.Contains(out.String(), "\nwarning      engine eu-1") ||
		!strings.Contains(hints.String(), "0 blocking, 1 warning, 1 not checked") {
		t.Errorf("it writes\n%s%s", out.String(), hints.String())
	}
	out.Reset()
	checks = append(checks, server.Check{Subject: "database", Err: errors.New("away")})
	err := a.examine(checks, "json")
	var found findings
	var reported []checked
	broken := json.Unmarshal(out.Bytes(), &reported)
	if !errors.As(err, &found) || broken != nil || len(reported) != 4 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for i, state := range []server.Level{"ok", "not checked", "warning", "blocking"} {
		if reported[i].State != state {
			t.Errorf("%s is reported as %s", reported[i].Subject, reported[i].State)
		}
	}
}
