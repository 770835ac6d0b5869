package guard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

func TestGuards(t *testing.T) {
	g := fleet.Guards{MaxDeletes: 20, MaxDeletePercent: 20, AlwaysAllowed: 5,
		Window: fleet.Duration(time.Hour)}
	for name, c := range map[string]struct {
		tally
		held bool
	}{
		"few of a small tenant":           {tally{asked: 5, existed: 5}, false},
		"one more than is always allowed": {tally{asked: 6, existed: 10}, true},
		"exactly the percentage":          {tally{asked: 20, existed: 100}, false},
		"one above the percentage":        {tally{asked: 20, existed: 99}, true},
		"one above the number":            {tally{asked: 21, existed: 10_000}, true},
		"few, after others in the window": {
			tally{asked: 1, recent: 20, existed: 10_000}, true},
		"a trickle that adds up to the limit": {
			tally{asked: 1, recent: 19, existed: 10_000}, false},
		"a trickle below what always passes":   {tally{asked: 1, recent: 4, existed: 5}, false},
		"a trickle above it in a small tenant": {tally{asked: 1, recent: 5, existed: 6}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if why := c.beyond(g); (why != "") != c.held {
				t.Errorf("%+v: %q", c.tally, why)
			}
		})
	}
	t.Run("guards of zero hold every deletion", func(t *testing.T) {
		if (tally{asked: 1, existed: 1000}).beyond(fleet.Guards{}) == "" {
			t.Error("a deletion passes")
		}
	})
	t.Run("what one tenant may not delete does not use up what the others may", func(t *testing.T) {
		v := exceeded(g, map[fleet.TenantName]tally{
			"acme": {asked: 500, existed: 500}, "globex": {asked: 3, existed: 500}})
		if v.tenants["acme"] == "" || v.tenants["globex"] != "" || v.fleet != "" {
			t.Errorf("%+v", v)
		}
	})
	t.Run("what each tenant may do, all together may not", func(t *testing.T) {
		all := map[fleet.TenantName]tally{}
		for i := range 21 {
			all[fleet.TenantName(fmt.Sprintf("t%d", i))] = tally{asked: 5, existed: 100}
		}
		if v := exceeded(g, all); len(v.tenants) > 0 || v.fleet == "" {
			t.Errorf("%+v", v)
		}
	})
}

func TestOneTenantDoesNotUseUpTheFleetsDeletions(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 1))
	within := func(g fleet.Guards) tally {
		existed := random.IntN(2000)
		most := min(g.MaxDeletes, g.MaxDeletePercent*existed/100)
		recent := random.IntN(most + 1)
		return tally{asked: random.IntN(most - recent + 1), recent: recent, existed: existed}
	}
	for range 20_000 {
		g := fleet.Guards{MaxDeletes: 1 + random.IntN(50), MaxDeletePercent: 1 + random.IntN(100),
			AlwaysAllowed: 1 + random.IntN(10)}
		all := map[fleet.TenantName]tally{}
		for i := range fleetShare {
			all[fleet.TenantName(fmt.Sprintf("t%d", i))] = within(g)
		}
		if v := exceeded(g, all); len(v.tenants) > 0 || v.fleet != "" {
			t.Fatalf("each of %+v is within %+v, and all are held: %+v", all, g, v)
		}
		alone := tally{asked: random.IntN(60), recent: random.IntN(60), existed: random.IntN(300)}
		if v := exceeded(g, map[fleet.TenantName]tally{
			"acme": alone, "globex": {existed: 1000}}); v.fleet != "" {
			t.Fatalf("%+v alone uses up the fleet's deletions by %+v: %+v", alone, g, v)
		}
	}
}

const fleetShare = 5 // tenants that may each delete their whole allowance

func TestTheFleetHasItsOwnNumbers(t *testing.T) {
	g := fleet.Guards{MaxDeletes: 20, MaxDeletePercent: 20, AlwaysAllowed: 5,
		Fleet: &fleet.FleetGuards{MaxDeletes: 30, MaxDeletePercent: 3, AlwaysAllowed: 7}}
	tallies := func(each int) map[fleet.TenantName]tally {
		return map[fleet.TenantName]tally{
			"acme": {asked: each, existed: 200}, "globex": {asked: each, existed: 200}}
	}
	for each, want := range map[int]string{
		3: "", 6: "", 7: "maxDeletePercent: 3", 16: "maxDeletes: 30"} {
		v := exceeded(g, tallies(each))
		if len(v.tenants) > 0 || (v.fleet == "") != (want == "") ||
			!strings.Contains(v.fleet, want) {
			t.Errorf("%d of each: %+v, want %q", each, v, want)
		}
		if v.fleet != "" && !strings.Contains(v.fleet, "guards.fleet") {
			t.Errorf("%q does not name the setting", v.fleet)
		}
	}
}

func TestAHoldReportsTheTotalOfThePercentage(t *testing.T) {
	g := fleet.Guards{MaxDeletes: 20, MaxDeletePercent: 20, AlwaysAllowed: 5,
		Window: fleet.Duration(time.Hour)}
	got := tally{asked: 10, existed: 0, known: 40}.beyond(g)
	want :=
		"10 deletions, more than maxDeletePercent: 20; 0 of the 40 Applications existed when the " +
			"window began (1h ago), and 20 % of 0 are 0"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
