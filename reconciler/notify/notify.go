// Package notify decides who gets which message when. It is pure: the leader reads the facts,
// records the decisions and the messages in one transaction, and sends afterwards.
//
//   - A state becomes an incident when a subscription has its trigger. A channel gets one message
//     about an incident, however many subscriptions name the channel, and one about its end if it
//     got the first.
//   - All times are the store's, so that a restart or another leader changes nothing.
//   - While an engine is silent or an environment unreachable, incidents of the Applications there
//     neither begin nor end: their states are old ones.
package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Settings are the declarations that are in effect.
type Settings struct {
	Fleet      *fleet.FleetNotifications // nil: the platform has none
	Tenant     func(fleet.TenantName) *fleet.NotificationSettings
	Deployment func(fleet.DeploymentID) *fleet.DeploymentSpec
	Labels     func(fleet.EnvironmentID) map[string]string
}

// state is one possible incident: an Application that is Degraded, a silent engine.
type state struct {
	incident mirror.Incident // its identity, and since when
	event    mirror.Notification
	present  bool
	over     bool // it has ended: an Application that is Progressing is neither
	unknown  bool
	ends     fleet.Trigger // trigger of the messages about the end; "": none
}

// target is a subscription of a tenant or of the platform to a state.
type target struct {
	owner fleet.TenantName // "": the platform
	sub   fleet.Subscription
}

func (t target) channel(name string) string {
	if t.owner == "" {
		return "fleet/" + name
	}
	return "tenant/" + name
}

// Decide returns the messages that are due for a decision, and what is remembered for the next one.
func Decide(f mirror.NotifyFacts, s Settings) (step mirror.NotifyStep) {
	open := map[string]*mirror.Incident{}
	for i := range f.Open {
		open[identity(&f.Open[i])] = &f.Open[i]
	}
	seen := map[string]bool{}
	for _, st := range states(f) {
		key := identity(&st.incident)
		was := open[key]
		delete(open, key)
		if st.unknown || seen[key] { // two revisions may be held for one reason
			continue
		}
		seen[key] = true
		decide(&step, f.Now, s, st, was)
	}
	for _, key := range slices.Sorted(keys(open)) { // no longer among the facts
		was := open[key]
		decide(&step, f.Now, s, ended(*was), was)
	}
	return step
}

func keys(m map[string]*mirror.Incident) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func identity(i *mirror.Incident) string {
	return string(i.Trigger) + "\x00" + string(i.Tenant) + "\x00" + i.Subject
}

// states lists the possible incidents of the facts, in the order of their messages.
func states(f mirror.NotifyFacts) (all []state) {
	silent := map[fleet.EngineName]bool{}
	for _, e := range f.Silent {
		silent[e.Engine] = true
		all = append(all, silence(e, ""))
		for _, t := range slices.Sorted(tenants(e.Applications)) {
			all = append(all, silence(e, t))
		}
	}
	for _, u := range f.Unreachable {
		all = append(all, unreachable(u, silent[u.Engine]))
	}
	for _, a := range f.Applications {
		all = append(all, application(a, fleet.TriggerDegraded),
			application(a, fleet.TriggerSyncFailed))
	}
	for _, r := range f.Rollouts {
		if st, ok := rollout(r); ok {
			all = append(all, st)
		}
	}
	for _, h := range f.Holds {
		if h.Reason != mirror.HoldFrozen { // a freeze ends by itself
			all = append(all, held(h))
		}
	}
	return all
}

func tenants(m map[fleet.TenantName]int) func(func(fleet.TenantName) bool) {
	return func(yield func(fleet.TenantName) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func silence(e mirror.SilentEngine, t fleet.TenantName) state {
	n := e.Applications[t]
	if t == "" {
		for _, more := range e.Applications {
			n += more
		}
	}
	return state{present: true, ends: fleet.TriggerSilent,
		incident: mirror.Incident{Trigger: fleet.TriggerSilent, Tenant: t,
			Subject: string(e.Engine), Since: e.Since},
		event: mirror.Notification{About: t, Engine: e.Engine, Message: e.Message,
			Applications: n}}
}

func unreachable(u mirror.UnreachableEnvironment, silent bool) state {
	return state{present: true, unknown: silent, ends: fleet.TriggerUnreachable,
		incident: mirror.Incident{Trigger: fleet.TriggerUnreachable, Tenant: u.ID.Tenant,
			Subject: string(u.ID.Name), Since: u.Since},
		event: mirror.Notification{About: u.ID.Tenant, Environment: u.ID.Name, Engine: u.Engine,
			Message: u.Message, Applications: u.Applications}}
}

func application(a mirror.NotifyApplication, t fleet.Trigger) state {
	st := state{unknown: a.Unknown, ends: fleet.TriggerHealthyAgain,
		incident: mirror.Incident{Trigger: t, Tenant: a.ID.Tenant,
			Subject: string(a.ID.Deployment) + "@" + string(a.ID.Environment), Since: a.ObservedAt},
		event: mirror.Notification{About: a.ID.Tenant, Deployment: a.ID.Deployment,
			Environment: a.ID.Environment, Engine: a.Engine, Message: a.Message,
			Commit: a.Synced, Revision: a.Revision}}
	if t == fleet.TriggerDegraded {
		st.present, st.over = a.Health == mirror.HealthDegraded, a.Health == mirror.HealthHealthy
		return st
	}
	st.present = a.Phase == "Failed" || a.Phase == "Error"
	st.over = a.Phase == "Succeeded"
	return st
}

// rollout is a rollout that has halted, or waits for an approval.
func rollout(r mirror.Rollout) (st state, ok bool) {
	t := fleet.TriggerHalted
	switch r.State {
	case mirror.RolloutFailed, mirror.RolloutReturning, mirror.RolloutReturned:
	case mirror.RolloutAwaits:
		t = fleet.TriggerHeld
	default:
		return state{}, false
	}
	return state{present: true,
		incident: mirror.Incident{Trigger: t, Tenant: r.Tenant,
			Subject: "rollout " + r.ID, Since: r.BegunAt},
		event: mirror.Notification{About: r.Tenant, Deployment: r.Deployment, Message: r.Message,
			Revision: r.Revision}}, true
}

func held(h mirror.Hold) state {
	return state{present: true,
		incident: mirror.Incident{Trigger: fleet.TriggerHeld, Tenant: h.Tenant,
			Subject: string(h.Reason), Since: h.Since},
		event: mirror.Notification{About: h.Tenant, Message: h.Message, Revision: h.Revision}}
}

// ended is the state of an incident that is no longer among the facts. An Application that is not
// there is deleted, or no longer desired: it is not healthy again.
func ended(i mirror.Incident) state {
	st := state{incident: i, event: mirror.Notification{About: i.Tenant}}
	switch i.Trigger {
	case fleet.TriggerSilent:
		st.over, st.ends, st.event.Engine = true, i.Trigger, fleet.EngineName(i.Subject)
	case fleet.TriggerUnreachable:
		st.over, st.ends, st.event.Environment = true, i.Trigger, fleet.EnvironmentName(i.Subject)
	}
	return st
}

// decide adds what is due about one state.
func decide(step *mirror.NotifyStep, now time.Time, s Settings, st state, was *mirror.Incident) {
	all := s.targets(st.event)
	if was == nil {
		if !st.present || !interested(all, st.incident.Trigger) {
			return
		}
		was = &mirror.Incident{Trigger: st.incident.Trigger, Tenant: st.incident.Tenant,
			Subject: st.incident.Subject, Since: earlier(st.incident.Since, now)}
		next := announce(step, now, all, st, *was)
		step.Put = append(step.Put, next)
		return
	}
	next := *was
	switch {
	case st.present:
		next.OverSince = nil
		next = announce(step, now, all, st, next)
	case len(was.Sent) == 0 || !st.over && gone(st):
		step.Drop = append(step.Drop, *was)
		return
	case st.over:
		if next.OverSince == nil {
			next.OverSince = &now
		}
		if announceEnd(step, now, all, st, next) {
			step.Drop = append(step.Drop, *was)
			return
		}
	}
	if changed(was, &next) {
		step.Put = append(step.Put, next)
	}
}

// gone reports whether the facts have nothing of the state's subject.
func gone(st state) bool { return st.event.Engine == "" && st.event.Environment == "" }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || a.After(b) {
		return b
	}
	return a
}

func changed(was, next *mirror.Incident) bool {
	return len(was.Sent) != len(next.Sent) || (was.OverSince == nil) != (next.OverSince == nil)
}

// targets are the subscriptions that an event may concern: the tenant's and the platform's.
func (s Settings) targets(e mirror.Notification) (all []target) {
	var labels map[string]string
	if e.Environment != "" {
		labels = s.Labels(fleet.EnvironmentID{Tenant: e.About, Name: e.Environment})
	}
	add := func(owner fleet.TenantName, subs []fleet.Subscription) {
		for _, sub := range subs {
			if e.Environment == "" || sub.Covers(labels) {
				all = append(all, target{owner, sub})
			}
		}
	}
	if e.About != "" {
		var own []fleet.Subscription
		if set := s.Tenant(e.About); set != nil {
			own = set.Subscriptions
		}
		var spec *fleet.DeploymentSpec
		if e.Deployment != "" {
			spec = s.Deployment(fleet.DeploymentID{Tenant: e.About, Name: e.Deployment})
		}
		add(e.About, fleet.SubscriptionsOf(own, spec))
	}
	// the platform gets one message about an engine, and not one for each tenant
	if s.Fleet != nil && (e.About == "" || e.Deployment != "" || e.Environment != "" ||
		e.Engine == "") {
		add("", s.Fleet.Subscriptions)
	}
	return all
}

func interested(all []target, t fleet.Trigger) bool {
	return slices.ContainsFunc(all, func(to target) bool { _, ok := to.sub.On(t); return ok })
}

// announce adds the messages about a state that lasts.
func announce(step *mirror.NotifyStep, now time.Time, all []target, st state,
	i mirror.Incident) mirror.Incident {
	sent := slices.Clone(i.Sent)
	for _, to := range all {
		set, ok := to.sub.On(i.Trigger)
		if !ok || now.Sub(i.Since) < time.Duration(set.For) {
			continue
		}
		for _, c := range to.sub.Channels {
			if slices.Contains(sent, to.channel(c)) {
				continue
			}
			sent = append(sent, to.channel(c))
			step.Send = append(step.Send, message(now, to, c, set, st, i, i.Trigger, false))
		}
	}
	i.Sent = sent
	return i
}

// announceEnd adds the messages about a state that has ended, and reports whether no other
// message follows.
func announceEnd(step *mirror.NotifyStep, now time.Time, all []target, st state,
	i mirror.Incident) bool {
	done := map[string]bool{}
	for _, to := range all {
		set, ok := to.sub.On(st.ends)
		wait := time.Duration(set.For)
		if st.ends == i.Trigger {
			wait = 0 // the duration is that of the state
		}
		switch {
		case !ok:
			continue
		case now.Sub(*i.OverSince) < wait:
			return false // all channels get their message at once
		}
		for _, c := range to.sub.Channels {
			if name := to.channel(c); slices.Contains(i.Sent, name) && !done[name] {
				done[name] = true
				step.Send = append(step.Send, message(now, to, c, set, st, i, st.ends, true))
			}
		}
	}
	return true
}

// message is one event for one channel. Its ID follows from what it is about: a decision that is
// taken twice is one message.
func message(now time.Time, to target, channel string, set fleet.TriggerSetting, st state,
	i mirror.Incident, trigger fleet.Trigger, over bool) mirror.Notification {
	n := st.event
	n.Tenant, n.Channel, n.Subscription = to.owner, channel, to.sub.Name
	n.Trigger, n.Over, n.Since, n.At = trigger, over, i.Since, now
	n.Due, n.State = due(now, to.sub, set), mirror.NotificationPending
	sum := sha256.Sum256([]byte(strings.Join([]string{identity(&i),
		strconv.FormatInt(i.Since.UnixMicro(), 10), string(to.owner), channel,
		fmt.Sprint(over)}, "\x00")))
	n.ID = hex.EncodeToString(sum[:16])
	return n
}

// due is when a message may be sent: now, with the next digest, or after the quiet hours.
func due(now time.Time, sub fleet.Subscription, set fleet.TriggerSetting) time.Time {
	if set.Urgent {
		return now
	}
	at := now
	if d := time.Duration(sub.Digest); d > 0 {
		at = now.Truncate(d).Add(d)
	}
	return afterQuietHours(at, sub.QuietHours)
}

// afterQuietHours is the end of the quiet hours that a time is in, or the time itself. The wall
// clock of the time zone counts, across a change to or from daylight saving time too.
func afterQuietHours(at time.Time, q *fleet.QuietHours) time.Time {
	if q == nil {
		return at
	}
	zone, err := time.LoadLocation(cmp.Or(q.TimeZone, "UTC"))
	if err != nil {
		return at
	}
	local := at.In(zone)
	for _, days := range []int{-1, 0} {
		from, to := clock(local, q.From, days), clock(local, q.To, days)
		if !to.After(from) {
			to = clock(local, q.To, days+1)
		}
		if !local.Before(from) && local.Before(to) {
			return to
		}
	}
	return at
}

func clock(day time.Time, hour string, days int) time.Time {
	t, err := time.Parse("15:04", hour)
	if err != nil {
		return day
	}
	return time.Date(day.Year(), day.Month(), day.Day()+days, t.Hour(), t.Minute(), 0, 0,
		day.Location())
}
