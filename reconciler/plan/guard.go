package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
)

// tally is the deletions of one tenant, or of the fleet, held against the guards.
type tally struct {
	asked  int // by this plan
	recent int // within the window, without those that a person approved
	stood  int // Applications at the window's start
	known  int // Applications now, and those that the window's deletions removed
}

// beyond says why the guards do not let the deletions through, or "". Up to AlwaysAllowed pass
// whatever the percentage says, so that a small tenant can be edited at all.
func (t tally) beyond(g fleet.Guards) string {
	total := t.asked + t.recent
	switch {
	case total <= g.AlwaysAllowed:
		return ""
	case total > g.MaxDeletes:
		return fmt.Sprintf("%s, more than maxDeletes: %d%s", count(total, "deletion"), g.MaxDeletes,
			t.within(g))
	case total*100 <= g.MaxDeletePercent*t.stood:
		return ""
	case t.stood < t.known:
		return fmt.Sprintf(
			"%s, more than maxDeletePercent: %d%s; %d of the %s stood when the window began (%s "+
				"ago), and %d %% of %d are %d",
			count(total, "deletion"), g.MaxDeletePercent, t.within(g), t.stood,
			count(t.known, "Application"), shortDuration(time.Duration(g.Window)),
			g.MaxDeletePercent, t.stood, g.MaxDeletePercent*t.stood/100)
	}
	return fmt.Sprintf("%s of %s, more than maxDeletePercent: %d%s", count(total, "deletion"),
		count(t.stood, "Application"), g.MaxDeletePercent, t.within(g))
}

func (t tally) within(g fleet.Guards) string {
	if t.recent == 0 {
		return ""
	}
	return fmt.Sprintf(" within %s, %d of them earlier", shortDuration(time.Duration(g.Window)),
		t.recent)
}

// verdict is what the guards say of a plan's deletions: why a tenant's are held, and why those of
// all others are.
type verdict struct {
	tenants map[fleet.TenantName]string
	fleet   string
}

// judge holds each tenant's deletions against the guards, and then those that passed against the
// fleet's own numbers: deletions that a tenant is not allowed do not use up those of the others,
// and neither does one tenant that keeps within its own.
func judge(g fleet.Guards, tenants map[fleet.TenantName]tally) verdict {
	v := verdict{tenants: map[fleet.TenantName]string{}}
	var all tally
	for name, t := range tenants {
		all.recent += t.recent
		all.stood += t.stood
		all.known += t.known
		if t.asked == 0 {
			continue
		}
		if why := t.beyond(g); why != "" {
			v.tenants[name] = why
		} else {
			all.asked += t.asked
		}
	}
	if all.asked > 0 {
		if why := all.beyond(g.Whole()); why != "" {
			v.fleet = "of all tenants together (guards.fleet): " + why
		}
	}
	return v
}

// guard lets the unwanted Applications go, or holds them. The guards are those of the base: a
// commit cannot loosen what judges it. What nobody reviewed is held before the guards are asked,
// and does not count as a deletion.
func (d *draft) guard() error {
	if len(d.unwanted) == 0 {
		return nil
	}
	var judged []unwanted
	waived, asked := d.waived(), map[fleet.TenantName]int{}
	for _, u := range d.unwanted {
		seen, why := d.reviewed(u)
		switch {
		case waived[u.key] || seen.Approved:
			d.approved[u.key] = true
			d.let(u)
		case why != "":
			d.hold(u, held{Scope: u.id.Tenant, Reason: fleet.HoldUnreviewed, Why: why})
		default:
			judged = append(judged, u)
			asked[u.id.Tenant]++
		}
	}
	v := judge(d.w.catalog.Fleet().Guards, d.tallies(asked))
	for _, u := range judged {
		why, scope := v.tenants[u.id.Tenant], u.id.Tenant
		if why == "" {
			why, scope = v.fleet, ""
		}
		switch {
		case why == "":
			d.let(u)
		case u.was != nil:
			if err := d.holdOn(u, held{Scope: scope, Why: why}); err != nil {
				return err
			}
		default:
			d.hold(u, held{Scope: scope, Why: why})
		}
	}
	return nil
}

// let deletes an unwanted Application.
func (d *draft) let(u unwanted) {
	if u.was != nil {
		d.held.drop(u.id)
		d.freed[u.key] = true
	}
	d.delete(u.key)
}

// tallies costs the tenants and the window's deletions; it is asked for only when something is to
// be deleted.
func (d *draft) tallies(asked map[fleet.TenantName]int) map[fleet.TenantName]tally {
	out := map[fleet.TenantName]tally{}
	for t, n := range d.w.applicationsOf.base {
		out[t] = tally{asked: asked[t], stood: max(0, n-d.r.Created[t]), known: n}
	}
	for _, l := range d.w.leaving.base {
		t := out[l.Application.Tenant]
		t.stood = max(0, t.stood-1)
		out[l.Application.Tenant] = t
	}
	window := time.Duration(d.w.catalog.Fleet().Guards.Window)
	for _, r := range d.r.Recent {
		if r.At.After(d.r.Now.Add(-window)) {
			t := out[r.Tenant]
			t.recent++
			t.stood++
			t.known++
			out[r.Tenant] = t
		}
	}
	return out
}

// hold keeps a deletion that is asked for in this plan for the first time.
func (d *draft) hold(u unwanted, h held) {
	h.Application, h.Key, h.Revision, h.Base, h.Since = u.id, u.key, d.r.Revision, d.w.revision,
		d.r.Now
	h.Deployment = d.w.catalog.Deployment(u.id.Deployed())
	d.held.set(u.id, h)
	r, _ := d.rows.get(u.key)
	d.rowChanges[u.key] = &RowChange{Action: Hold, Row: rowOf(u.key, r), BeforeHash: r.hash}
}

// holdOn keeps one that was held before for another reason: what it is listed as now, nobody has
// approved yet.
func (d *draft) holdOn(u unwanted, h held) error {
	h.Application, h.Key, h.Revision, h.Base, h.Since, h.Deployment = u.id, u.key, u.was.Revision,
		u.was.Base, d.r.Now, u.was.Deployment
	d.held.set(u.id, h)
	return d.keepUp(u.key, h.Deployment, u.id)
}

// approvedSince reports whether the revision was approved after the hold had been listed: an
// approval releases what was listed, no more.
func (d *draft) approvedSince(rev fleet.Revision, since time.Time) bool {
	return approvedSince(d.r.Approvals, rev, since)
}

func approvedSince(approvals []fleet.Approval, rev fleet.Revision, since time.Time) bool {
	return slices.ContainsFunc(approvals, func(a fleet.Approval) bool {
		return a.Revision == rev &&
			!a.At.Before(since)
	})
}

// release finds the held deletions that an approval lets through, and those that are known by now
// to have been reviewed.
func (d *draft) release() {
	if len(d.r.Approvals) == 0 && d.r.Review == nil {
		return
	}
	d.held.each(func(id fleet.ApplicationID, h held) {
		switch {
		case d.approvedSince(h.Revision, h.Since):
			d.released[id] = true
			d.look(id)
		case d.nowReviewed(h):
			d.look(id)
		default:
			d.explain(id, h)
		}
	})
}

// waived is the deletions that were listed when the whole revision was held, once it is approved.
func (d *draft) waived() map[fleet.ObjectKey]bool {
	out := map[fleet.ObjectKey]bool{}
	if w := d.w.waiting; w != nil && w.Revision == d.r.Revision && d.approvedSince(w.Revision,
		w.Since) {
		for _, k := range w.Items {
			out[k] = true
		}
	}
	return out
}

// holds groups what is held by revision and scope, as people approve it.
func holds(items map[fleet.ApplicationID]held,
	paths map[string]heldPath) map[fleet.HoldID]fleet.Hold {
	out := map[fleet.HoldID]fleet.Hold{}
	for _, id := range slices.SortedFunc(maps.Keys(items), compareApplications) {
		h := items[id]
		hold, ok := out[h.hold()]
		if !ok {
			hold = fleet.Hold{Revision: h.Revision, Reason: h.hold().Reason, Tenant: h.Scope}
		}
		if !ok || h.Since.After(hold.Since) {
			hold.Since, hold.Message = h.Since, h.Why
		}
		hold.Items = append(hold.Items, h.Key)
		out[h.hold()] = hold
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		h := paths[path]
		hold, ok := out[h.hold()]
		if !ok {
			hold = fleet.Hold{Revision: h.Revision, Reason: fleet.HoldUnreviewed,
				Tenant: h.hold().Tenant}
		}
		if !ok || h.Since.After(hold.Since) {
			hold.Since, hold.Message = h.Since, h.Why
		}
		hold.Paths = append(hold.Paths, path)
		out[h.hold()] = hold
	}
	return out
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
