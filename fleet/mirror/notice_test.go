package mirror_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
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

func TestNoticeOfAMoveNamesTheRefAndTheURLs(t *testing.T) {
	t.Parallel()
	urls := []string{"https://git.example.com/a/b.git", "git@git.example.com:a/b.git"}
	by, ref, got, ok := mirror.Moved(mirror.NoticeMoved("host/1/x", "refs/heads/main", urls))
	if !ok || by != "host/1/x" || ref != "refs/heads/main" || !slices.Equal(got, urls) {
		t.Errorf("%q %q %q %v", by, ref, got, ok)
	}
	for what, notice := range map[string]string{
		"a ref with a blank": mirror.NoticeMoved("x", "refs/heads/a b", urls),
		"an empty ref":       mirror.NoticeMoved("x", "", urls),
		"no URL":             mirror.NoticeMoved("x", "refs/heads/main", nil),
		"a line feed":        mirror.NoticeMoved("x", "refs/heads/main", []string{"https://x\ny"}),
		"a long URL": mirror.NoticeMoved("x", "refs/heads/main",
			[]string{strings.Repeat("x", 8000)}),
	} {
		if notice != "" {
			t.Errorf("%s: %q", what, notice)
		}
	}
	if _, _, _, ok := mirror.Moved(mirror.NoticePushed("x")); ok {
		t.Error("a push to the branch is another notice")
	}
}

func TestANoticeOfAStepNamesItsApplications(t *testing.T) {
	t.Parallel()
	of := mirror.Stepped{Engines: []fleet.EngineName{"eu-1", "us-1"},
		Environment: fleet.EnvironmentID{Tenant: "acme", Name: "prod"},
		Deployments: []fleet.DeploymentName{"web", "api"}}
	got, ok := mirror.MoveStepped(mirror.NoticeMove(of))
	if !ok || !reflect.DeepEqual(got, of) {
		t.Errorf("%+v, %v", got, ok)
	}
	many := of
	for range 2000 {
		many.Deployments = append(many.Deployments, "a-name-of-some-length")
	}
	got, ok = mirror.MoveStepped(mirror.NoticeMove(many))
	if of.Deployments = nil; !ok || !reflect.DeepEqual(got, of) {
		t.Errorf("too many for a notice: %+v, %v", got, ok)
	}
	for _, other := range []string{"", "move", "move eu-1 us-1", mirror.NoticePushed("x")} {
		if _, ok := mirror.MoveStepped(other); ok {
			t.Errorf("%q is no notice of a step", other)
		}
	}
}
