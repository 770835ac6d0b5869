package freeze_test

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/freeze"
)

func at(s string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05 -0700", s)
	if err != nil {
		panic(err)
	}
	return t
}

// weekend is from Friday, 18:00 in Berlin, to Monday, 06:00.
var weekend = fleet.Freeze{Name: "weekend", Schedule: "0 18 * * 5",
	Duration: fleet.Duration(60 * time.Hour), TimeZone: "Europe/Berlin"}

func TestAFreezeIsActiveByTheClockOfItsZone(t *testing.T) {
	for now, want := range map[string]string{
		"2026-11-27 17:59:59 +0100": "",
		"2026-11-27 18:00:00 +0100": "2026-11-30 06:00:00 +0100",
		"2026-11-27 17:00:00 +0000": "2026-11-30 06:00:00 +0100",
		"2026-11-30 05:59:59 +0100": "2026-11-30 06:00:00 +0100",
		"2026-11-30 06:00:00 +0100": "",
		"2026-07-03 18:30:00 +0200": "2026-07-06 06:00:00 +0200",
	} {
		until, active := freeze.Active(weekend, at(now))
		if active != (want != "") || active && !until.Equal(at(want)) {
			t.Errorf("at %s: %v until %s, want %q", now, active, until, want)
		}
	}
}

func TestWindowsThatTouchAreOne(t *testing.T) {
	daily := fleet.Freeze{Name: "nights", Schedule: "0 0 24-26 12 *",
		Duration: fleet.Duration(24 * time.Hour)}
	until, active := freeze.Active(daily, at("2026-12-24 12:00:00 +0000"))
	if want := at("2026-12-27 00:00:00 +0000"); !active || !until.Equal(want) {
		t.Errorf("%v until %s, want %s", active, until, want)
	}
}

func TestTheNextBeginIsByTheClockOfTheZone(t *testing.T) {
	got := freeze.Next(weekend, at("2026-11-24 12:00:00 +0000"))
	if want := at("2026-11-27 18:00:00 +0100"); !got.Equal(want) {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAFreezeThatNeverEndsOrNeverBeginsIsRefused(t *testing.T) {
	hours := func(n int) fleet.Duration { return fleet.Duration(n) * fleet.Duration(time.Hour) }
	for _, c := range []struct {
		schedule string
		duration fleet.Duration
		never    bool
		fails    bool
	}{
		{"0 18 * * 5", hours(60), false, false},
		{"0 18 * * 5", hours(7 * 24), true, true},
		{"* * * * *", fleet.Duration(time.Minute), true, true},
		{"0 0 * * *", hours(24), true, true},
		{"0 0 * * *", hours(23), false, false},
		{"0 0 30 2 *", hours(1), false, true},
		{"0 0 29 2 *", hours(24), false, false},
		{"0 0 * 12 *", hours(24), false, false},
		{"0 0 * 9-12 *", hours(24), true, true},
	} {
		err := freeze.Check(fleet.Freeze{Name: "f", Schedule: c.schedule, Duration: c.duration})
		if (err != nil) != c.fails || errors.Is(err, freeze.ErrNeverEnds) != c.never {
			t.Errorf("%q for %s: %v", c.schedule, time.Duration(c.duration), err)
		}
	}
}

// A freeze of the fleet holds before one of the tenant, which an owner may let a change pass.
func TestAFreezeOfTheFleetHoldsBeforeOneOfATenant(t *testing.T) {
	now := at("2026-11-28 12:00:00 +0100")
	prod := map[string]string{"tier": "prod"}
	short := fleet.Freeze{Name: "short", Schedule: "0 11 * * *",
		Duration: fleet.Duration(2 * time.Hour), TimeZone: "Europe/Berlin",
		Kinds:               []fleet.FreezeKind{fleet.FreezeDeletions},
		EnvironmentSelector: &fleet.LabelSelector{MatchLabels: prod}}
	of := func(t fleet.TenantName) []fleet.Freeze {
		if t == "acme" {
			return []fleet.Freeze{weekend}
		}
		return nil
	}
	c := freeze.At(now, []fleet.Freeze{short}, of)
	for _, x := range []struct {
		kind   fleet.FreezeKind
		tenant fleet.TenantName
		labels map[string]string
		want   string
	}{
		{fleet.FreezeDeletions, "acme", prod, "short"},
		{fleet.FreezeDeletions, "globex", prod, "short"},
		{fleet.FreezeDeletions, "globex", nil, ""},
		{fleet.FreezeChanges, "globex", prod, ""},
		{fleet.FreezeChanges, "acme", nil, "weekend"},
	} {
		h, held := c.Holds(x.kind, x.tenant, x.labels)
		if h.Freeze.Name != x.want || held != (x.want != "") {
			t.Errorf("%s of %s in %v: %+v", x.kind, x.tenant, x.labels, h)
		}
	}
	both, _ := c.Holds(fleet.FreezeDeletions, "acme", prod)
	if got, want := both.String(), "freeze short of the fleet lasts until 2026-11-28 12:00 UTC, then "+
		"freeze weekend of tenant acme lasts until 2026-11-30 05:00 UTC"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	longer := short
	longer.Duration = fleet.Duration(72 * time.Hour)
	c = freeze.At(now, []fleet.Freeze{short, longer}, of)
	both, _ = c.Holds(fleet.FreezeDeletions, "acme", prod)
	if both.Then != nil || both.Until.Before(now.Add(70*time.Hour)) {
		t.Errorf("of several, not the one that ends last: %+v", both)
	}
	h, _ := c.Holds(fleet.FreezeChanges, "acme", nil)
	if got, want := h.String(), "freeze weekend of tenant acme lasts until 2026-11-30 05:00 UTC"; got !=
		want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A freeze that cannot be read, as after a downgrade, holds changes.
func TestAFreezeThatCannotBeReadIsActive(t *testing.T) {
	if _, active := freeze.Active(fleet.Freeze{Schedule: "?"}, time.Now()); !active {
		t.Error("it is not active")
	}
}
