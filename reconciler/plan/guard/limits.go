package guard

import (
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/report"
)

// tally is the deletions of one tenant, or of the fleet, as the guards count them.
type tally struct {
	asked   int // by this plan
	recent  int // within the window, without approved ones
	existed int // Applications at the window's start
	known   int // Applications now, and those that the window's deletions removed
}

// tallies costs the tenants and the window's deletions.
func (j *judge) tallies(asked map[fleet.TenantName]int) map[fleet.TenantName]tally {
	out := map[fleet.TenantName]tally{}
	for t, n := range j.applied.ApplicationsOf.Base() {
		out[t] = tally{asked: asked[t], existed: max(0, n-j.Created[t]), known: n}
	}
	for _, x := range j.applied.Terminating.Base() {
		t := out[x.Application.Tenant]
		t.existed = max(0, t.existed-1)
		out[x.Application.Tenant] = t
	}
	window := time.Duration(j.applied.Catalog.Fleet().Guards.Window)
	for _, r := range j.Recent {
		if r.At.After(j.Now.Add(-window)) {
			t := out[r.Tenant]
			t.recent++
			t.existed++
			t.known++
			out[r.Tenant] = t
		}
	}
	return out
}

// beyond explains why the guards do not allow the deletions; "" if they do. AlwaysAllowed deletions
// pass regardless of the percentage, so that a small tenant can be edited at all.
func (t tally) beyond(g fleet.Guards) string {
	total := t.asked + t.recent
	deletions, window := report.Count(total, "deletion"), shortDuration(time.Duration(g.Window))
	switch {
	case total <= g.AlwaysAllowed:
		return ""
	case total > g.MaxDeletes:
		return fmt.Sprintf("%s, more than maxDeletes: %d%s", deletions, g.MaxDeletes,
			t.within(window))
	case total*100 <= g.MaxDeletePercent*t.existed:
		return ""
	case t.existed < t.known:
		return fmt.Sprintf(
			"%s, more than maxDeletePercent: %d%s; %d of the %s existed when the window began"+
				" (%s ago), and %d %% of %d are %d", deletions, g.MaxDeletePercent,
			t.within(window),
			t.existed,
			report.Count(t.known, "Application"), window, g.MaxDeletePercent, t.existed,
			g.MaxDeletePercent*t.existed/100)
	}
	return fmt.Sprintf("%s of %s, more than maxDeletePercent: %d%s",
		deletions, report.Count(t.existed, "Application"), g.MaxDeletePercent, t.within(window))
}

func (t tally) within(window string) string {
	if t.recent == 0 {
		return ""
	}
	return fmt.Sprintf(" within %s, %d of them earlier", window, t.recent)
}

func shortDuration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// excess is why deletions are beyond the guards: those of single tenants, and those of all others.
type excess struct {
	tenants map[fleet.TenantName]string
	fleet   string
}

// exceeded holds each tenant's deletions against the guards, and then the allowed ones of all
// tenants against the fleet's own numbers. So neither a tenant's held deletions nor a tenant that
// keeps within its own limits use up the limits of others.
func exceeded(g fleet.Guards, tenants map[fleet.TenantName]tally) excess {
	out := excess{tenants: map[fleet.TenantName]string{}}
	var all tally
	for name, t := range tenants {
		all.recent += t.recent
		all.existed += t.existed
		all.known += t.known
		if t.asked == 0 {
			continue
		}
		if why := t.beyond(g); why != "" {
			out.tenants[name] = why
		} else {
			all.asked += t.asked
		}
	}
	if all.asked > 0 {
		if why := all.beyond(g.Whole()); why != "" {
			out.fleet = "of all tenants together (guards.fleet): " + why
		}
	}
	return out
}
