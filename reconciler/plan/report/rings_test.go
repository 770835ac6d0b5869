package report

import (
	"strings"
	"testing"
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
