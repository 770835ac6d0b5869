package mirror_test

import (
	"fmt"
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestNoticeOfARecordNamesItsEngines(t *testing.T) {
	t.Parallel()
	var many []fleet.EngineName
	for i := range 1000 {
		many = append(many, fleet.EngineName(fmt.Sprintf("engine-%04d", i)))
	}
	for _, c := range []struct{ given, want []fleet.EngineName }{
		{nil, nil}, {[]fleet.EngineName{"eu-1"}, []fleet.EngineName{"eu-1"}},
		{many[:100], many[:100]},
		{many, nil}, // more than a notification holds: any engine may be affected
	} {
		notice := mirror.NoticeRecorded("host/1/x", c.given)
		by, engines, ok := mirror.Recorded(notice)
		if !ok || by != "host/1/x" || !slices.Equal(engines, c.want) || len(notice) > 8000 {
			t.Errorf("%d engines: %q %d %v", len(c.given), by, len(engines), ok)
		}
	}
	for _, other := range []string{"", mirror.NoticeStops, mirror.NoticeAgents, "engine/eu-1",
		"host/1/x", "recorded"} {
		if _, _, ok := mirror.Recorded(other); ok {
			t.Errorf("%q is no record", other)
		}
	}
}
