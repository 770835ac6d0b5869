// Package reach decides which environments of an engine are unreachable, which of their
// Applications the engine leaves alone meanwhile, and which one is let through to find out whether
// the cluster answers again. It is pure: contacts and the time go in, decisions come out.
//
// Rules of this package:
//   - A cluster is unreachable after it has failed for a while, and reachable with the first success.
//   - Only what does not answer in time is parked: other errors cost the engine nothing.
//   - A fault of the engine parks nothing: another environment must have been read since this one
//     failed, and of most tenants some cluster must answer.
//   - What is parked comes back: a probe is let through at growing intervals, a few at a time for each
//     tenant, and a change of the declaration or its credential unparks at once.
package reach

import (
	"cmp"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// Limits are the numbers by which a Board decides.
type Limits struct {
	Patience   time.Duration // of failing until an environment is unreachable
	Relapse    time.Duration // after a recovery, within which the first failure counts
	ProbeFirst time.Duration // until the first probe; each that fails doubles the pause
	ProbeMost  time.Duration // longest pause
	ProbeTime  time.Duration // a probe may take
	ProbeSoon  time.Duration // least pause between two probes that somebody asks for
	OfTenant   int           // probes of one tenant at a time
	OfEngine   int           // probes at a time
	// environments of one tenant that may fail for Patience; further ones are parked at once
	Grace int
	Share float64 // of the engine's Applications that may be parked within a minute
	Least int     // that may be parked within a minute however few there are
}

// Defaults are what engines run with. Argo CD asks a cluster that failed again after three minutes
// as charts/argosy-engine sets it up: a probe that comes earlier would be given the same answer.
var Defaults = Limits{
	Patience: 2 * time.Minute, Relapse: time.Hour,
	ProbeFirst: 4 * time.Minute, ProbeMost: 32 * time.Minute, ProbeTime: 3 * time.Minute,
	ProbeSoon: time.Minute,
	OfTenant:  2, OfEngine: 8, Grace: 2, Share: 0.2, Least: 20,
}

const (
	askAgain   = 30 * time.Second // for a change that the engine has not shown yet
	fewTenants = 3                // of fewer, a majority says nothing
)

// Board is what is known of one engine's environments. It is not safe for concurrent use.
type Board struct {
	limits Limits
	jitter func(time.Duration) time.Duration
	all    map[fleet.EnvironmentID]*environment
	// that fail, are unreachable, or have parked Applications
	trouble map[fleet.EnvironmentID]*environment
	tenants map[fleet.TenantName]int // environments
	good    [2]success               // the latest, of two environments
	apps    int
	tokens  float64 // Applications that may be parked now
	filled  time.Time
	news    map[fleet.EnvironmentID]bool // to be reported
}

// success is when the cluster of an environment was read.
type success struct {
	of fleet.EnvironmentID
	at time.Time
}

type environment struct {
	id      fleet.EnvironmentID
	apps    map[string]*application
	failing time.Time // the first failure since the last success
	reason  fleet.UnreachableReason
	message string
	since   time.Time // it is unreachable; zero: it is not
	parking bool
	wary    time.Time // until then the first failure counts
	failed  int       // probes in a row
	probe   string    // name of the Application that is let through
	last    string    // the probe before, whose parking was paid for
	began   time.Time // the probe
	ended   time.Time // the last probe
	next    time.Time // probe
}

type application struct {
	contact engine.Contact
	asked   time.Time // for a change of its parking
}

// New is a Board that knows nothing. jitter spreads a pause.
func New(limits Limits, jitter func(time.Duration) time.Duration) *Board {
	return &Board{
		limits: limits, jitter: jitter,
		all:     map[fleet.EnvironmentID]*environment{},
		trouble: map[fleet.EnvironmentID]*environment{},
		tenants: map[fleet.TenantName]int{}, news: map[fleet.EnvironmentID]bool{},
	}
}

// Saw takes one contact. The first of an Application proves no success: it may be old.
func (b *Board) Saw(now time.Time, c engine.Contact) {
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

// resume takes up what was parked before this session.
func (b *Board) resume(now time.Time, env *environment, c engine.Contact) {
	b.touch(env)
	if env.parking {
		return
	}
	env.failing, env.since, env.parking = c.Parked, c.Parked, true
	env.reason, env.message = fleet.UnreachableTimeout, c.Message
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

// Changed says that an environment's declaration or credential has changed on the engine.
func (b *Board) Changed(now time.Time, id fleet.EnvironmentID) {
	env := b.all[id]
	if env == nil || env.since.IsZero() {
		return
	}
	b.news[id] = true
	env.failing, env.since, env.parking, env.probe = time.Time{}, time.Time{}, false, ""
	env.wary = now.Add(b.limits.Relapse)
}

// Ask says that somebody waits for an environment: its next probe is due as soon as it may be.
func (b *Board) Ask(now time.Time, id fleet.EnvironmentID) {
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

// touch has the next Decide look at an environment and report it.
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

// Decide returns what is to be parked and unparked now, at most limit of both. It costs what fails.
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
	ours, waiting := b.ours(troubled), map[fleet.TenantName]int{}
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

// probe ends the probes that took too long and begins those that are due, the longest overdue
// first.
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

// refill gives back what may be parked within a minute.
func (b *Board) refill(now time.Time) {
	most := max(float64(b.limits.Least), b.limits.Share*float64(b.apps))
	if b.filled.IsZero() {
		b.tokens = most
	} else {
		b.tokens = min(most, b.tokens+most*now.Sub(b.filled).Minutes())
	}
	b.filled = now
}

// ours reports whether the engine itself seems to be at fault: of most tenants no cluster answers.
func (b *Board) ours(troubled []*environment) bool {
	silent, lost := map[fleet.TenantName]int{}, 0
	for _, env := range troubled {
		if !env.failing.IsZero() && env.reason == fleet.UnreachableTimeout {
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

// judge decides whether a failing environment is unreachable, and whether it is parked. waiting
// counts each tenant's environments that fail and are not parked.
func (b *Board) judge(now time.Time, env *environment, ours bool,
	waiting map[fleet.TenantName]int) {
	if env.failing.IsZero() {
		return
	}
	silent := env.reason == fleet.UnreachableTimeout
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

// candidate is the Application that makes the best probe: Argo CD reports an error at once for one
// that has failed before, and shows the outcome for one that stays.
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

// requests adds what brings the environment's Applications to what is decided.
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

// Refused says that a request was not done: it is made again at once.
func (b *Board) Refused(r engine.ParkRequest, id fleet.EnvironmentID) {
	if env := b.all[id]; env != nil && env.apps[r.Key.Name] != nil {
		env.apps[r.Key.Name].asked = time.Time{}
	}
}

// Report returns the environments whose state has changed since it was last called.
func (b *Board) Report() []fleet.Reach {
	var out []fleet.Reach
	for id := range b.news {
		out = append(out, b.reach(id))
	}
	clear(b.news)
	return out
}

// Unreported takes back reports that could not be recorded.
func (b *Board) Unreported(reports []fleet.Reach) {
	for _, r := range reports {
		b.news[r.Environment] = true
	}
}

// All returns every unreachable environment.
func (b *Board) All() []fleet.Reach {
	var out []fleet.Reach
	for id := range b.trouble {
		if r := b.reach(id); r.Unreachable != nil {
			out = append(out, r)
		}
	}
	return out
}

func (b *Board) reach(id fleet.EnvironmentID) fleet.Reach {
	out := fleet.Reach{Environment: id}
	env := b.all[id]
	if env == nil || env.since.IsZero() {
		return out
	}
	out.Unreachable = &fleet.Unreachable{Reason: env.reason, Message: env.message, Since: env.since}
	for _, app := range env.apps {
		if !app.contact.Parked.IsZero() {
			out.Unreachable.Parked++
		}
	}
	return out
}
