package reconciler

import (
	"errors"
	"testing"

	"argosy.dev/argosy/fleet/view"
)

// A write that failed drops the applied state: another replica may have written since.
func TestTheSourceIsNotReportedWithoutTheAppliedState(t *testing.T) {
	t.Parallel()
	l := Loop{stored: &stored{}}
	l.report(t.Context(), view.Source{Head: "a"}, errors.New("fenced"))
	if l.reported.head != "" {
		t.Errorf("reported %+v", l.reported)
	}
}
