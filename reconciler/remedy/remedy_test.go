package remedy

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

var begin = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func allowed() Policy {
	rule := fleet.RemedyRule{Mode: fleet.RemedyAllowed}
	return Policy{AtOnce: 1, Remedies: fleet.FleetRemedies{RestartController: rule,
		RestartRepoServer: rule}.Of(nil)}
}

// differing is the policy of an engine that declares these.
func differing(own fleet.Remedies) Policy {
	p := allowed()
	p.Remedies = fleet.FleetRemedies{RestartController: p.RestartController,
		RestartRepoServer: p.RestartRepoServer}.Of(&own)
	return p
}

// stuck is an engine that does not work since begin, for d.
func stuck(state mirror.WorkState, d time.Duration) mirror.RemedyFacts {
	return mirror.RemedyFacts{Engine: "eu-1", Now: begin.Add(d), Followed: true,
		Work: mirror.Work{State: state, Since: begin}}
}

func TestWhenAComponentIsRestarted(t *testing.T) {
	change := func(p Policy, f func(*Policy)) Policy { f(&p); return p }
	failed := stuck(mirror.ControllerStuck, time.Hour)
	failed.Last = &mirror.Remedy{Restarts: fleet.ApplicationController,
		State: mirror.RemedyDidNotHelp}
	used := stuck(mirror.ControllerStuck, time.Hour)
	used.LastHour = 2
	fenced := stuck(mirror.ControllerStuck, time.Hour)
	fenced.Fenced = true
	unreachable := stuck(mirror.ControllerStuck, time.Hour)
	unreachable.Followed = false
	for name, c := range map[string]struct {
		facts    mirror.RemedyFacts
		policy   Policy
		restarts fleet.Component
		next     string
	}{
		"a stuck controller": {stuck(mirror.ControllerStuck, 10*time.Minute), allowed(),
			fleet.ApplicationController, "restart of the application-controller requested"},
		"a silent repo-server": {stuck(mirror.RepoServerSilent, 10*time.Minute), allowed(),
			fleet.RepoServer, "restart of the repo-server requested"},
		"not long enough": {stuck(mirror.ControllerStuck, 9*time.Minute), allowed(), "",
			"restart of the application-controller at 12:10:00 UTC, unless it works before"},
		"an engine's own time": {stuck(mirror.ControllerStuck, 9*time.Minute),
			differing(fleet.Remedies{RestartController: fleet.RemedyRule{
				After: fleet.Duration(5 * time.Minute)}}), fleet.ApplicationController,
			"requested"},
		"nothing is declared": {stuck(mirror.ControllerStuck, time.Hour),
			Policy{AtOnce: 1, Remedies: fleet.FleetRemedies{}.Of(nil)}, "",
			"spec.remedies.restartController is Forbidden"},
		"the engine forbids it": {stuck(mirror.RepoServerSilent, time.Hour),
			differing(fleet.Remedies{RestartRepoServer: fleet.RemedyRule{
				Mode: fleet.RemedyForbidden}}), "", "spec.remedies.restartRepoServer is Forbidden"},
		"a long queue": {stuck(mirror.QueueLong, time.Hour), allowed(), "",
			"no restart helps against QueueLong"},
		"unread clusters": {stuck(mirror.ClustersUnread, time.Hour), allowed(), "",
			"no restart helps against ClustersUnread"},
		"behind an agent": {stuck(mirror.ControllerStuck, time.Hour),
			change(allowed(), func(p *Policy) { p.Agent = true }), "", "behind an agent"},
		"its budget is used": {used, allowed(), "", "perHour allows 2 in an hour"},
		"another engine is restarted": {stuck(mirror.ControllerStuck, time.Hour),
			change(allowed(), func(p *Policy) { p.Open = 1 }), "", "atOnce of the Fleet is 1"},
		"one restart did not help": {failed, allowed(), "",
			"`argosy evacuate engine eu-1 --fence`"},
		"it is fenced":         {fenced, allowed(), "", "no fenced engine is restarted"},
		"it is unreachable":    {unreachable, allowed(), "", ""},
		"it works":             {stuck(mirror.Working, time.Hour), allowed(), "", ""},
		"its state is unknown": {stuck("", time.Hour), allowed(), "", ""},
	} {
		s, ok := Next(c.facts, c.policy)
		var restarts fleet.Component
		if s.Request != nil {
			restarts = s.Request.Restarts
		}
		if restarts != c.restarts || !strings.Contains(s.Next, c.next) || c.next == "" && ok {
			t.Errorf("%s: %+v, %v", name, s, ok)
		}
		if s.Request != nil && (s.PerHour != 2 || s.AtOnce != 1 ||
			!s.Request.FaultSince.Equal(begin) || s.Request.Fault != c.facts.Work.State) {
			t.Errorf("%s: %+v", name, s)
		}
		c.facts.Next = s.Next
		if again, ok := Next(c.facts, c.policy); ok && again.Request == nil {
			t.Errorf("%s is recorded again: %+v", name, again)
		}
	}
}

// commandOf gives the environments other engines: a drain needs an application-controller.
func commandOf(c fleet.Component) string {
	if c == fleet.RepoServer {
		return "`argosy drain eu-1`"
	}
	return "`argosy evacuate engine eu-1 --fence`"
}

func TestHowARemedyEnds(t *testing.T) {
	for name, c := range map[string]struct {
		state    mirror.RemedyState
		restarts fleet.Component
		work     mirror.WorkState
		after    time.Duration
		end      mirror.RemedyState
		text     string // of the message, or of what is next
	}{
		"requested": {mirror.RemedyRequested, fleet.ApplicationController, mirror.ControllerStuck,
			4 * time.Minute, "", "requested: why"},
		"it works before": {mirror.RemedyRequested, fleet.ApplicationController, mirror.Working,
			time.Minute, mirror.RemedyUnneeded, "works again"},
		"no worker begins": {mirror.RemedyRequested, fleet.ApplicationController,
			mirror.ControllerStuck, 5 * time.Minute, mirror.RemedyFailed, "has not begun: why"},
		"restarting": {mirror.RemedyRestarting, fleet.RepoServer, mirror.RepoServerSilent,
			9 * time.Minute, "", "the repo-server is being restarted: why"},
		"Pods stay": {mirror.RemedyRestarting, fleet.RepoServer, mirror.RepoServerSilent,
			10 * time.Minute, mirror.RemedyFailed, "not replaced within 10 minutes: why"},
		"it works while Pods are replaced": {mirror.RemedyRestarting, fleet.RepoServer,
			mirror.Working, time.Minute, mirror.RemedyHelped, "works again"},
		"restarted": {mirror.RemedyRestarted, fleet.ApplicationController, mirror.ControllerStuck,
			4 * time.Minute, "", "waits until the engine works"},
		"helped": {mirror.RemedyRestarted, fleet.ApplicationController, mirror.Working,
			4 * time.Minute, mirror.RemedyHelped, "works again"},
		"another fault": {mirror.RemedyRestarted, fleet.ApplicationController, mirror.QueueLong,
			5 * time.Minute, mirror.RemedyDidNotHelp, "5 minutes after the restart, the engine is QueueLong"},
		"a repo-server has longer": {mirror.RemedyRestarted, fleet.RepoServer,
			mirror.RepoServerSilent, 9 * time.Minute, "", "waits until"},
		"a repo-server stays silent": {mirror.RemedyRestarted, fleet.RepoServer,
			mirror.RepoServerSilent, 10 * time.Minute, mirror.RemedyDidNotHelp, "RepoServerSilent"},
	} {
		f := stuck(c.work, time.Hour)
		f.Last = &mirror.Remedy{ID: "1", State: c.state, Restarts: c.restarts, Message: "why",
			Since: f.Now.Add(-c.after), RequestedAt: f.Now.Add(-c.after)}
		s, _ := Next(f, Policy{}) // no policy ends it
		works := c.work == mirror.Working
		if s.End != c.end || s.Over != works || s.ID != "1" ||
			!strings.Contains(s.Message+s.Next, c.text) {
			t.Errorf("%s: %+v", name, s)
		}
		if fails := c.end == mirror.RemedyFailed || c.end == mirror.RemedyDidNotHelp; fails &&
			!strings.Contains(s.Next, commandOf(c.restarts)) {
			t.Errorf("%s proposes nothing: %+v", name, s)
		}
	}
	gone := stuck(mirror.ControllerStuck, time.Hour)
	gone.Followed = false
	gone.Last = &mirror.Remedy{State: mirror.RemedyRestarted, Since: begin}
	if s, _ := Next(gone, Policy{}); s.End != mirror.RemedyDidNotHelp ||
		!strings.Contains(s.Message, "not reachable") {
		t.Errorf("an unreachable engine keeps its remedy open: %+v", s)
	}
}

func TestAnOutageEndsWhenTheEngineWorks(t *testing.T) {
	f := stuck(mirror.ControllerStuck, time.Hour)
	f.Last = &mirror.Remedy{Restarts: fleet.RepoServer, State: mirror.RemedyFailed}
	f.Next = "proposed"
	f.Followed = false
	if s, ok := Next(f, allowed()); ok {
		t.Errorf("an unreachable engine counts as one that works: %+v", s)
	}
	f.Followed, f.Work.State = true, mirror.Working
	if s, ok := Next(f, allowed()); !ok || !s.Over || s.Next != "" {
		t.Errorf("%+v, %v", s, ok)
	}
}
