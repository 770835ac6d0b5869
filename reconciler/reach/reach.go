// Package reach decides which environments of an engine are unreachable, which of their
// Applications are parked meanwhile, and which one is let through as a probe of the cluster. It is
// pure: contacts and the time are its input, decisions its output.
//
// Rules of this package:
//   - A cluster is unreachable after it has failed for a while, and reachable with the first
//     success.
//   - Only timeouts are parked: other errors cost the engine nothing.
//   - A fault of the engine parks nothing: Argo CD must have read another environment since this
//     one failed, and for most tenants some cluster must answer.
//   - Parked Applications come back: a probe is let through at growing intervals, a few at a time
//     for each tenant, and a change of the declaration or its credential unparks at once.
package reach

import (
	"cmp"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Limits are the parameters of a Board.
type Limits struct {
	Patience   time.Duration // of failing until an environment is unreachable
	Relapse    time.Duration // after a recovery, during which the first failure counts
	ProbeFirst time.Duration // until the first probe; each failed probe doubles the pause
	ProbeMost  time.Duration // longest pause
	ProbeTime  time.Duration // maximum duration of a probe
	ProbeSoon  time.Duration // minimum pause between two requested probes
	OfTenant   int           // concurrent probes of one tenant
	OfEngine   int           // concurrent probes
	// environments of one tenant that may fail for Patience; further ones are parked at once
	Grace int
	Share float64 // of the engine's Applications that may be parked within a minute
	Least int     // that may be parked within a minute on a small engine
}

// Defaults are the limits of engines. With the settings of charts/argosy-engine Argo CD retries a
// failed cluster after three minutes: an earlier probe would get the same answer.
var Defaults = Limits{
	Patience: 2 * time.Minute, Relapse: time.Hour,
	ProbeFirst: 4 * time.Minute, ProbeMost: 32 * time.Minute, ProbeTime: 3 * time.Minute,
	ProbeSoon: time.Minute,
	OfTenant:  2, OfEngine: 8, Grace: 2, Share: 0.2, Least: 20,
}

const (
	askAgain   = 30 * time.Second // for a change that the engine has not reported yet
	fewTenants = 3                // among fewer, a majority proves nothing
)

// Board holds the state of one engine's environments. It is not safe for concurrent use.
type Board struct {
	limits Limits
	jitter func(time.Duration) time.Duration
	all    map[fleet.EnvironmentID]*environment
	// failing, unreachable, or with parked Applications
	trouble map[fleet.EnvironmentID]*environment
	tenants map[fleet.TenantName]int // environments
	good    [2]success               // the latest, of two environments
	apps    int
	tokens  float64 // Applications that may be parked now
	filled  time.Time
	news    map[fleet.EnvironmentID]bool // unreported changes
}

// success is the time of a successful read of an environment's cluster.
type success struct {
	of fleet.EnvironmentID
	at time.Time
}

type environment struct {
	id      fleet.EnvironmentID
	apps    map[string]*application
	failing time.Time // the first failure since the last success
	reason  mirror.UnreachableReason
	message string
	since   time.Time // when it became unreachable; zero: it is not
	parking bool
	wary    time.Time // until then the first failure counts
	failed  int       // failed probes in a row
	probe   string    // name of the Application that is let through
	last    string    // the previous probe, whose parking was counted
	began   time.Time // the probe
	ended   time.Time // the last probe
	next    time.Time // probe
}

type application struct {
	contact engine.Contact
	asked   time.Time // for a change of its parking
}

// New returns an empty Board. jitter spreads a pause.
func New(limits Limits, jitter func(time.Duration) time.Duration) *Board {
	return &Board{
		limits: limits, jitter: jitter,
		all:     map[fleet.EnvironmentID]*environment{},
		trouble: map[fleet.EnvironmentID]*environment{},
		tenants: map[fleet.TenantName]int{}, news: map[fleet.EnvironmentID]bool{},
	}
}

// Observe records one contact. The first contact of an Application proves no success: it may be
// stale.
func (b *Board) Observe(now time.Time, c engine.Contact) {
	if c.Gone {
		b.gone(c)
		return
	}
	env := b.environment(c.In())
	known := env.apps[c.Key.Name]
	if known == nil {
		known = &application{}
		env.apps[c.Key.Name] = known
		b.apps++
		known.contact = c
		if !c.Parked.IsZero() {
			b.resume(now, env, c)
		} else if c.Reason != "" {
			b.failure(now, env, c)
		}
		return
	}
	before := known.contact
	known.contact = c
	if c.Parked.IsZero() != before.Parked.IsZero() {
		known.asked = time.Time{}
		b.touch(env)
	}
	switch compared := c.Compared.After(before.Compared); {
	case c.Reason != "" && (compared || before.Reason == ""):
		b.failure(now, env, c)
	case c.Reason == "" && compared:
		b.success(now, env)
	}
}

func (b *Board) environment(id fleet.EnvironmentID) *environment {
	env := b.all[id]
	if env == nil {
		env = &environment{id: id, apps: map[string]*application{}}
		b.all[id] = env
		b.tenants[id.Tenant]++
	}
	return env
}

func (b *Board) gone(c engine.Contact) {
	env := b.all[c.In()]
	if env == nil || env.apps[c.Key.Name] == nil {
		return
	}
	delete(env.apps, c.Key.Name)
	b.apps--
	if env.probe == c.Key.Name {
		env.probe = ""
	}
	if !env.since.IsZero() {
		b.news[env.id] = true
	}
	if len(env.apps) > 0 {
		return
	}
	delete(b.all, env.id)
	delete(b.trouble, env.id)
	if b.tenants[env.id.Tenant]--; b.tenants[env.id.Tenant] == 0 {
		delete(b.tenants, env.id.Tenant)
	}
}

// resume restores the state that an earlier session parked.
func (b *Board) resume(now time.Time, env *environment, c engine.Contact) {
	b.touch(env)
	if env.parking {
		return
	}
	env.failing, env.since, env.parking = c.Parked, c.Parked, true
	env.reason, env.message = mirror.UnreachableTimeout, c.Message
	env.next = now.Add(b.jitter(b.limits.ProbeFirst))
}

func (b *Board) failure(now time.Time, env *environment, c engine.Contact) {
	if env.failing.IsZero() {
		env.failing = now
		if now.After(env.wary) {
			env.failed = 0
		}
	}
	if env.reason != c.Reason && !env.since.IsZero() {
		b.news[env.id] = true
	}
	env.reason, env.message = c.Reason, c.Message
	b.trouble[env.id] = env
	if env.probe == c.Key.Name {
		b.endProbe(now, env)
	}
}

func (b *Board) success(now time.Time, env *environment) {
	if b.good[0].of != env.id {
		b.good[1] = b.good[0]
	}
	b.good[0] = success{env.id, now}
	if !env.since.IsZero() {
		env.wary = now.Add(b.limits.Relapse)
		b.news[env.id] = true
	}
	env.failing, env.since, env.parking, env.probe = time.Time{}, time.Time{}, false, ""
	env.reason, env.message = "", ""
}

// Changed records that an environment's declaration or credential has changed on the engine.
func (b *Board) Changed(now time.Time, id fleet.EnvironmentID) {
	env := b.all[id]
	if env == nil || env.since.IsZero() {
		return
	}
	b.news[id] = true
	env.failing, env.since, env.parking, env.probe = time.Time{}, time.Time{}, false, ""
	env.wary = now.Add(b.limits.Relapse)
}

// RequestProbe requests a probe: the environment's next probe is due as soon as ProbeSoon allows.
func (b *Board) RequestProbe(now time.Time, id fleet.EnvironmentID) {
	if env := b.all[id]; env != nil && env.parking && env.probe == "" {
		soon := env.ended.Add(b.limits.ProbeSoon)
		if soon.Before(now) {
			soon = now
		}
		if soon.Before(env.next) {
			env.next = soon
		}
	}
}

// touch makes the next Decide consider an environment and Report return it.
func (b *Board) touch(env *environment) {
	b.trouble[env.id] = env
	if !env.since.IsZero() {
		b.news[env.id] = true
	}
}

func (b *Board) endProbe(now time.Time, env *environment) {
	env.last, env.probe, env.ended = env.probe, "", now
	env.failed++
	env.next = now.Add(b.jitter(min(b.limits.ProbeFirst<<min(env.failed, 16), b.limits.ProbeMost)))
}

// Decide returns the Applications to park and unpark now, at most limit of both. Its cost is
// proportional to the failing environments.
func (b *Board) Decide(now time.Time, limit int) []engine.ParkRequest {
	b.refill(now)
	troubled := make([]*environment, 0, len(b.trouble))
	for _, env := range b.trouble {
		troubled = append(troubled, env)
	}
	slices.SortFunc(troubled, func(x, y *environment) int {
		return cmp.Or(x.failing.Compare(y.failing), cmp.Compare(x.id.Tenant, y.id.Tenant),
			cmp.Compare(x.id.Name, y.id.Name))
	})
	ours, waiting := b.engineAtFault(troubled), map[fleet.TenantName]int{}
	for _, env := range troubled {
		b.judge(now, env, ours, waiting)
	}
	b.probe(now, troubled)
	var out []engine.ParkRequest
	for _, env := range troubled {
		out = b.requests(now, env, out, limit)
		if env.failing.IsZero() && !env.anyParked() {
			delete(b.trouble, env.id)
		}
	}
	return out
}

// probe ends the probes that took too long and begins the due ones, the longest overdue first.
func (b *Board) probe(now time.Time, troubled []*environment) {
	var due []*environment
	of, all := map[fleet.TenantName]int{}, 0
	for _, env := range troubled {
		if env.probe != "" && now.Sub(env.began) > b.limits.ProbeTime {
			b.endProbe(now, env)
		}
		switch {
		case env.probe != "":
			of[env.id.Tenant]++
			all++
		case env.parking && !now.Before(env.next):
			due = append(due, env)
		}
	}
	slices.SortStableFunc(due, func(x, y *environment) int { return x.next.Compare(y.next) })
	for _, env := range due {
		if of[env.id.Tenant] < b.limits.OfTenant && all < b.limits.OfEngine {
			env.probe, env.began = env.candidate(), now
			of[env.id.Tenant]++
			all++
		}
	}
}

// refill adds the Applications that may be parked per minute.
func (b *Board) refill(now time.Time) {
	most := max(float64(b.limits.Least), b.limits.Share*float64(b.apps))
	if b.filled.IsZero() {
		b.tokens = most
	} else {
		b.tokens = min(most, b.tokens+most*now.Sub(b.filled).Minutes())
	}
	b.filled = now
}

// engineAtFault reports whether the engine itself seems to be at fault: for most tenants no cluster
// answers.
func (b *Board) engineAtFault(troubled []*environment) bool {
	silent, lost := map[fleet.TenantName]int{}, 0
	for _, env := range troubled {
		if !env.failing.IsZero() && env.reason == mirror.UnreachableTimeout {
			silent[env.id.Tenant]++
		}
	}
	for tenant, n := range silent {
		if n == b.tenants[tenant] {
			lost++
		}
	}
	return len(b.tenants) >= fewTenants && 2*lost > len(b.tenants)
}

// judge decides whether a failing environment is unreachable, and whether to park it. waiting
// counts each tenant's failing environments that are not parked.
func (b *Board) judge(now time.Time, env *environment, ours bool,
	waiting map[fleet.TenantName]int) {
	if env.failing.IsZero() {
		return
	}
	silent := env.reason == mirror.UnreachableTimeout
	if silent && !env.parking {
		waiting[env.id.Tenant]++
	}
	if env.since.IsZero() {
		patience := b.limits.Patience
		if now.Before(env.wary) || silent && waiting[env.id.Tenant] > b.limits.Grace {
			patience = 0
		}
		if now.Sub(env.failing) < patience {
			return
		}
		env.since = env.failing
		b.news[env.id] = true
	}
	switch {
	case env.parking && !silent:
		env.parking, env.probe = false, ""
		b.news[env.id] = true
	case !env.parking && silent && !ours && b.othersRead(env):
		env.parking = true
		env.next = now.Add(b.jitter(min(b.limits.ProbeFirst<<min(env.failed, 16),
			b.limits.ProbeMost)))
	}
}

// othersRead reports whether the engine has read another environment's cluster since this one
// failed.
func (b *Board) othersRead(env *environment) bool {
	return slices.ContainsFunc(b.good[:], func(s success) bool {
		return s.of != env.id && s.at.After(env.failing)
	})
}

// candidate returns the best Application for a probe: Argo CD reports an error at once for an
// Application that has failed before, and shows the outcome for one that stays.
func (env *environment) candidate() string {
	best := ""
	rank := func(name string) int {
		c, n := env.apps[name].contact, 0
		if c.Reason == "" {
			n += 2
		}
		if c.Deleting {
			n++
		}
		return n
	}
	for name := range env.apps {
		if best == "" || cmp.Or(cmp.Compare(rank(name), rank(best)), cmp.Compare(name, best)) < 0 {
			best = name
		}
	}
	return best
}

func (env *environment) anyParked() bool {
	for _, app := range env.apps {
		if !app.contact.Parked.IsZero() {
			return true
		}
	}
	return false
}

// requests appends the requests that bring the environment's Applications to the decided state.
func (b *Board) requests(now time.Time, env *environment, out []engine.ParkRequest,
	limit int) []engine.ParkRequest {
	for name, app := range env.apps {
		c := app.contact
		parked, wanted := !c.Parked.IsZero(), env.parking && name != env.probe
		if parked == wanted || now.Sub(app.asked) < askAgain {
			continue
		}
		switch paid := !wanted || name == env.last; {
		case len(out) >= limit:
			return out
		case !paid && b.tokens < 1:
			continue
		case !paid:
			b.tokens--
		}
		request := engine.ParkRequest{Key: c.Key, UID: c.UID, Tenant: c.Tenant}
		if wanted {
			request.Since = env.since
		}
		app.asked = now
		out = append(out, request)
	}
	return out
}

// Refused records that a request failed: Decide repeats it at once.
func (b *Board) Refused(r engine.ParkRequest, id fleet.EnvironmentID) {
	if env := b.all[id]; env != nil && env.apps[r.Key.Name] != nil {
		env.apps[r.Key.Name].asked = time.Time{}
	}
}

// Report returns the environments whose state has changed since its last call.
func (b *Board) Report() []mirror.Reach {
	var out []mirror.Reach
	for id := range b.news {
		out = append(out, b.reach(id))
	}
	clear(b.news)
	return out
}

// Unreported restores reports that could not be recorded.
func (b *Board) Unreported(reports []mirror.Reach) {
	for _, r := range reports {
		b.news[r.Environment] = true
	}
}

// All returns every unreachable environment.
func (b *Board) All() []mirror.Reach {
	var out []mirror.Reach
	for id := range b.trouble {
		if r := b.reach(id); r.Unreachable != nil {
			out = append(out, r)
		}
	}
	return out
}

func (b *Board) reach(id fleet.EnvironmentID) mirror.Reach {
	out := mirror.Reach{Environment: id}
	env := b.all[id]
	if env == nil || env.since.IsZero() {
		return out
	}
	out.Unreachable = &mirror.Unreachable{
		Reason: env.reason, Message: env.message, Since: env.since}
	for _, app := range env.apps {
		if !app.contact.Parked.IsZero() {
			out.Unreachable.Parked++
		}
	}
	return out
}
