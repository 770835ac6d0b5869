package report

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestARingNamesTheEnginesThatAreComparedBefore(t *testing.T) {
	r := Ring{Version: "3.5.7", Engines: []RingEngine{{Name: "eu-1", From: "2.14.21"},
		{Name: "plant-1", From: "2.14.21", Behind: true}, {Name: "fresh"},
		{Name: "eu-2", From: "3.5.7"}}}
	if got := r.Approval(); !strings.Contains(got, "renders the Applications of 2 engines") {
		t.Errorf("%q", got)
	}
	r.SkipShadow = true
	if got := r.Approval(); !strings.Contains(got, "without a comparison") {
		t.Errorf("%q", got)
	}
	r.Engines = r.Engines[2:]
	if got := r.Approval(); got != "" {
		t.Errorf("nothing is compared, and the approval is %q", got)
	}
}

func TestARingOfAgentsNamesTheirVersion(t *testing.T) {
	t.Parallel()
	r := Ring{Name: "edges", Version: "3.5.7", Digest: "sha256:new", AgentVersion: "0.5.0",
		AtOnce: 2, Soak: fleet.RingSoak, Engines: []RingEngine{{Name: "acme.yard", Behind: true,
			AgentOnly: true}, {Name: "plant", Behind: true, AgentOnly: true}}}
	if got := r.Summary(); got != "after the merge 2 agents get version 0.5.0, 2 at once; the soak "+
		"takes 1h" {
		t.Errorf("summary %q", got)
	}
	if got := r.Lines(); len(got) != 2 ||
		got[0] != "1. acme.yard gets agent 0.5.0, if its cluster allows it" {
		t.Errorf("lines %q", got)
	}
	if got := r.Approval(); got != "" {
		t.Errorf("approval %q", got)
	}
	r.Engines = append(r.Engines, RingEngine{Name: "eu-1"})
	if got := r.Summary(); !strings.HasPrefix(got, "after the merge 1 engine gets Argo CD 3.5.7 and "+
		"2 agents get version 0.5.0, ") {
		t.Errorf("summary %q", got)
	}
}
