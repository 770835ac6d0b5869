package drain

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
)

func env(name string) fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: "acme", Name: fleet.EnvironmentName(name)}
}

func open(n int, trouble string, counts bool) (all []mirror.DrainMove) {
	for i := range n {
		all = append(all, mirror.DrainMove{Environment: env(fmt.Sprintf("o%d", i)),
			Trouble: trouble, Counts: counts})
	}
	return all
}

func TestADrainIsAssessed(t *testing.T) {
	churn := fleet.Churn{AtOnce: 5, PerHour: 10}
	failed := func(n int) []mirror.DrainMove { return open(n, "was undone by ann", true) }
	for name, c := range map[string]struct {
		facts   mirror.DrainFacts
		state   mirror.DrainState
		text    string
		allowed int
	}{
		"it begins": {mirror.DrainFacts{Environments: 20, Objects: 9}, mirror.DrainMoving,
			"20 environments are left", 5},
		"moves under way take the budget": {mirror.DrainFacts{Environments: 20, Open: open(3, "",
			false)}, mirror.DrainMoving, "3 under way", 2},
		"the hour's budget is the tighter one": {mirror.DrainFacts{Environments: 20,
			BegunLastHour: 9}, mirror.DrainMoving, "", 1},
		"the hour's budget is used": {mirror.DrainFacts{Environments: 20, BegunLastHour: 10},
			mirror.DrainWaiting, "churn.perHour", 0},
		"and a move is under way": {mirror.DrainFacts{Environments: 20, BegunLastHour: 12,
			Open: open(1, "", false)}, mirror.DrainMoving, "1 under way", 0},
		"a person has paused it": {mirror.DrainFacts{Environments: 20, PausedBy: "token:ann",
			PauseReason: "lunch"}, mirror.DrainPaused, "by token:ann: lunch", 0},
		"two have failed": {mirror.DrainFacts{Environments: 20, Failed: failed(2)},
			mirror.DrainMoving, "acme/o0 was undone by ann", 5},
		"three have failed": {mirror.DrainFacts{Environments: 20, Failed: failed(3)},
			mirror.DrainStopped, "acme/o2 was undone by ann", 0},
		"some have failed and others wait": {mirror.DrainFacts{Environments: 20,
			Failed: failed(1), Open: open(2, "waits in Check: it is OutOfSync", true)},
			mirror.DrainStopped, "acme/o1 waits in Check: it is OutOfSync", 0},
		"they wait since before a person resumed it": {mirror.DrainFacts{Environments: 20,
			Open: open(4, "waits in Check: it is OutOfSync", false)}, mirror.DrainMoving,
			"and 1 more", 1},
		"all that the budget allows wait": {mirror.DrainFacts{Environments: 20,
			Open: open(5, "waits in Check: it is OutOfSync", false)}, mirror.DrainWaiting,
			"and 2 more", 0},
		"the last environment leaves": {mirror.DrainFacts{Open: open(1, "", false)},
			mirror.DrainMoving, "0 environments are left", 0},
		"the last environment waits": {mirror.DrainFacts{Open: open(1, "waits in Check: x", true)},
			mirror.DrainWaiting, "acme/o0 waits in Check: x", 0},
		"shared objects are removed": {mirror.DrainFacts{Objects: 1}, mirror.DrainWaiting,
			"1 object is not removed yet", 0},
		"it is empty":             {mirror.DrainFacts{}, mirror.DrainEmpty, "can be removed", 0},
		"it is empty, and paused": {mirror.DrainFacts{PausedBy: "ann"}, mirror.DrainEmpty, "", 0},
		"more under way than a smaller budget allows": {mirror.DrainFacts{Environments: 1,
			Open: open(9, "", false)}, mirror.DrainMoving, "9 under way", 0},
	} {
		t.Run(name, func(t *testing.T) {
			d, allowed := Assess(c.facts, churn)
			if d.State != c.state || !strings.Contains(d.Message, c.text) || allowed != c.allowed {
				t.Errorf("%+v, allowed %d", d, allowed)
			}
		})
	}
	if _, allowed := Assess(mirror.DrainFacts{Environments: 9}, fleet.Churn{}); allowed != 2 {
		t.Errorf("without a budget: %d", allowed)
	}
}

func TestTheFirstMovesThatHaveNotFailedAreNext(t *testing.T) {
	out := placement.Outcome{Change: placement.Change{Engine: "eu-1"}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		out.Moves = append(out.Moves, placement.Move{Environment: env(name), From: "eu-1",
			To: fleet.EngineName("to-" + name)})
	}
	f := mirror.DrainFacts{Open: []mirror.DrainMove{{Environment: env("a")}},
		Failed: []mirror.DrainMove{{Environment: env("c")}}}
	next := Next(out, f, 2)
	if len(next) != 2 || next[0].Environment != env("b") || next[1].Environment != env("d") ||
		next[1].To != "to-d" || !next[0].Drain {
		t.Errorf("%+v", next)
	}
}

func TestADrainWithoutAMoveNamesWhatStays(t *testing.T) {
	out := placement.Outcome{Change: placement.Change{Engine: "eu-1"}, Left: []placement.Left{
		{Environment: env("full"), Engine: "eu-1", Reason: "engine eu-2 is full"},
		{Environment: env("waits"), Reason: "of no interest"}}}
	f := mirror.DrainFacts{Failed: []mirror.DrainMove{{Environment: env("a"),
		Trouble: "was undone by ann"}}}
	got := Stuck(out, f, mirror.Drain{})
	if got.State != mirror.DrainWaiting ||
		got.Message != "acme/a was undone by ann; acme/full: engine eu-2 is full" {
		t.Errorf("%+v", got)
	}
	f.Open = open(1, "", false)
	got = Stuck(out, f, mirror.Drain{State: mirror.DrainMoving})
	if got.State != mirror.DrainMoving {
		t.Errorf("while a move is under way: %+v", got)
	}
}
