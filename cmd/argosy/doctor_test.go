package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/server"
)

// What was not checked changes no exit code, and nobody can take it for fine.
func TestDoctorTellsWhatItDidNotCheck(t *testing.T) {
	checks := []server.Check{{Subject: "settings", Detail: "well formed"},
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
	var told []checked
	if !errors.As(err, &found) || json.Unmarshal(out.Bytes(), &told) != nil || len(told) != 3 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for i, state := range []string{"ok", "not checked", "fix"} {
		if told[i].State != state {
			t.Errorf("%s is told as %s", told[i].Subject, told[i].State)
		}
	}
}
