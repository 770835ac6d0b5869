// Package freeze decides when a freeze is active. It is the only importer of a cron library, the
// one that Argo CD's sync windows and Kubernetes' CronJobs use.
//
// A schedule is read as Argo CD reads one: by the wall clock of the time zone. A window across a
// change to or from daylight saving time is an hour shorter or longer.
package freeze

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // an image may have no time zones

	"github.com/robfig/cron/v3"

	"argosy.dev/argosy/fleet"
)

// Longest is the longest time for which consecutive windows of one freeze may last. A freeze that
// is active for longer is a decision to stop, which `argosy stop` records.
const Longest = 92 * 24 * time.Hour

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// ParseSchedule returns what is wrong with a schedule.
func ParseSchedule(s string) error {
	if strings.Contains(s, "TZ=") {
		return errors.New("the time zone has a field of its own, timeZone")
	}
	if len(strings.Fields(s)) != 5 {
		return fmt.Errorf("%+q does not have the five fields of cron: minute, hour, day of the month, "+
			"month, day of the week", s)
	}
	if _, err := parser.Parse(s); err != nil {
		return fmt.Errorf("%+q is no schedule of cron: %w", s, err)
	}
	return nil
}

// ParseTimeZone returns what is wrong with the name of a time zone.
func ParseTimeZone(s string) error {
	if s == "Local" {
		return errors.New("the time zone of the control plane's host is not known to readers")
	}
	if _, err := time.LoadLocation(s); err != nil {
		return fmt.Errorf("%+q is no time zone of the IANA database", s)
	}
	return nil
}

// ErrNeverEnds is a freeze whose next window begins before the last one ends, again and again.
var ErrNeverEnds = errors.New("never ends")

// Check returns why a freeze never begins, or never ends. Its schedule and time zone must be valid.
func Check(f fleet.Freeze) error {
	s, err := compile(f)
	if err != nil {
		return err
	}
	// Four years have every date. Their windows are walked until one ends in time.
	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	first := s.cron.Next(begin)
	if first.IsZero() {
		return fmt.Errorf("schedule %q never begins: no such date exists", f.Schedule)
	}
	for from := first; !from.IsZero() && from.Before(begin.AddDate(4, 0, 0)); {
		until := from.Add(s.duration)
		next := s.cron.Next(from)
		for !next.IsZero() && !next.After(until) {
			if until = next.Add(s.duration); until.Sub(from) > Longest {
				return fmt.Errorf("%w: it begins again (schedule %q) before it ends (duration %s)",
					ErrNeverEnds, f.Schedule, time.Duration(f.Duration))
			}
			next = s.cron.Next(next)
		}
		from = next
	}
	return nil
}

type schedule struct {
	cron     cron.Schedule
	duration time.Duration
	zone     *time.Location
}

func compile(f fleet.Freeze) (s schedule, err error) {
	if s.cron, err = parser.Parse(f.Schedule); err != nil {
		return s, fmt.Errorf("freeze %s: schedule %q: %w", f.Name, f.Schedule, err)
	}
	if s.zone, err = time.LoadLocation(f.TimeZone); err != nil {
		return s, fmt.Errorf("freeze %s: time zone: %w", f.Name, err)
	}
	s.duration = time.Duration(f.Duration)
	return s, nil
}

// Active reports whether a freeze is active, and when it ends. An unreadable freeze, as after a
// downgrade, is active for an hour more each time: it holds changes rather than letting them pass.
func Active(f fleet.Freeze, now time.Time) (until time.Time, active bool) {
	s, err := compile(f)
	if err != nil {
		return now.Add(time.Hour), true
	}
	clock := wall(now, s.zone)
	from := s.cron.Next(clock.Add(-s.duration))
	if from.IsZero() || !from.Before(clock) && !from.Equal(clock) {
		return time.Time{}, false
	}
	end := from.Add(s.duration)
	for next := s.cron.Next(from); !next.IsZero() && !next.After(end) &&
		end.Sub(from) <= Longest; next = s.cron.Next(next) {
		end = next.Add(s.duration)
	}
	return time.Date(end.Year(), end.Month(), end.Day(), end.Hour(), end.Minute(), end.Second(), 0,
		s.zone).UTC(), true
}

// Next returns when a freeze begins next, after now. The zero time: never.
func Next(f fleet.Freeze, now time.Time) time.Time {
	s, err := compile(f)
	if err != nil {
		return time.Time{}
	}
	next := s.cron.Next(wall(now, s.zone))
	if next.IsZero() {
		return next
	}
	return time.Date(next.Year(), next.Month(), next.Day(), next.Hour(), next.Minute(), 0, 0,
		s.zone).UTC()
}

// wall returns what the clocks of a zone show, as a time of UTC.
func wall(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(),
		time.UTC)
}

// Hold is why a change waits.
type Hold struct {
	Freeze fleet.Freeze
	Scope  fleet.TenantName // whose freeze it is; "": the Fleet's
	Until  time.Time
	Then   *Hold // the tenant's freeze that lasts longer than the Fleet's, if one does
}

// String returns why the change waits, for people.
func (h Hold) String() string {
	text := fmt.Sprintf("freeze %s of %s lasts until %s", h.Freeze.Name, h.owner(),
		h.Until.UTC().Format("2006-01-02 15:04 UTC"))
	if h.Freeze.Reason != "" {
		text += " (" + h.Freeze.Reason + ")"
	}
	if h.Then != nil {
		text += ", then " + h.Then.String()
	}
	return text
}

func (h Hold) owner() string {
	if h.Scope == "" {
		return "the fleet"
	}
	return "tenant " + string(h.Scope)
}

// Calendar is the freezes that are active at one time. It reads the freezes of a tenant once.
type Calendar struct {
	now    time.Time
	tenant func(fleet.TenantName) []fleet.Freeze
	fleet  []Hold
	of     map[fleet.TenantName][]Hold
}

// At returns the calendar of a time.
func At(now time.Time, all []fleet.Freeze, tenant func(fleet.TenantName) []fleet.Freeze) *Calendar {
	c := &Calendar{now: now, tenant: tenant, of: map[fleet.TenantName][]Hold{}}
	c.fleet = c.active(all, "")
	return c
}

func (c *Calendar) active(all []fleet.Freeze, scope fleet.TenantName) (out []Hold) {
	for _, f := range all {
		if until, active := Active(f, c.now); active {
			out = append(out, Hold{Freeze: f, Scope: scope, Until: until})
		}
	}
	return out
}

// Holds returns the freeze that holds a kind of change to an environment with these labels: one of
// the fleet before one of the tenant, which an owner may let the change pass, and of several the
// one that ends last.
func (c *Calendar) Holds(k fleet.FreezeKind, t fleet.TenantName,
	labels map[string]string) (found Hold, held bool) {
	of, known := c.of[t]
	if !known {
		of = c.active(c.tenant(t), t)
		c.of[t] = of
	}
	found, held = last(c.fleet, k, labels)
	own, ownHolds := last(of, k, labels)
	switch {
	case !held:
		return own, ownHolds
	case ownHolds && own.Until.After(found.Until):
		found.Then = &own
	}
	return found, true
}

// last returns the hold of a kind of change that ends last.
func last(all []Hold, k fleet.FreezeKind, labels map[string]string) (found Hold, held bool) {
	for _, h := range all {
		if h.Freeze.Holds(k) && h.Freeze.Covers(labels) && (!held || h.Until.After(found.Until)) {
			found, held = h, true
		}
	}
	return found, held
}
