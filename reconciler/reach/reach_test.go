package reach

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// bench is an engine that executes a Board's decisions at once.
type bench struct {
	*testing.T
	*Board
	now  time.Time
	apps map[string]engine.Contact
}

func newBench(t *testing.T) *bench {
	return &bench{
		T: t, Board: New(Defaults, func(d time.Duration) time.Duration { return d }),
		now: time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC), apps: map[string]engine.Contact{},
	}
}

// declare registers n Applications of an environment, before any of them was compared.
func (b *bench) declare(tenant fleet.TenantName, name fleet.EnvironmentName,
	n int) fleet.EnvironmentID {
	for i := range n {
		c := engine.Contact{Tenant: tenant, Environment: name, UID: "uid"}
		c.Key = fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
			Name: fmt.Sprintf("%s-%s-%d", tenant, name, i)}
		b.apps[c.Key.Name] = c
		b.Observe(b.now, c)
	}
	return fleet.EnvironmentID{Tenant: tenant, Name: name}
}

// compare makes the engine compare the Applications of an environment that are not parked.
func (b *bench) compare(env fleet.EnvironmentID, reason mirror.UnreachableReason) {
	for name, c := range b.apps {
		if c.In() == env && c.Parked.IsZero() {
			c.Compared, c.Reason, c.Message = b.now, reason, string(reason)
			b.apps[name] = c
			b.Observe(b.now, c)
		}
	}
}

// after advances the time and executes the decisions of that time.
func (b *bench) after(d time.Duration) {
	b.now = b.now.Add(d)
	for _, r := range b.Decide(b.now, 1000) {
		c := b.apps[r.Key.Name]
		c.Parked = r.Since
		b.apps[r.Key.Name] = c
		b.Observe(b.now, c)
	}
}

func (b *bench) parked(env fleet.EnvironmentID) (n int) {
	for _, c := range b.apps {
		if c.In() == env && !c.Parked.IsZero() {
			n++
		}
	}
	return n
}

func (b *bench) want(what string, env fleet.EnvironmentID, parked int) {
	b.Helper()
	if got := b.parked(env); got != parked {
		b.Errorf("%s: %d Applications of %s are parked, not %d", what, got, env.Name, parked)
	}
}

func (b *bench) unreachable(env fleet.EnvironmentID) *mirror.Unreachable {
	i := slices.IndexFunc(b.All(), func(r mirror.Reach) bool { return r.Environment == env })
	if i < 0 {
		return nil
	}
	return b.All()[i].Unreachable
}

// silenced returns a bench with a reachable neighbour and a parked environment of 8.
func silenced(t *testing.T) (b *bench, silent, neighbour fleet.EnvironmentID) {
	b = newBench(t)
	neighbour, silent = b.declare("acme", "prod", 4), b.declare("globex", "silent", 8)
	b.compare(silent, mirror.UnreachableTimeout)
	b.after(time.Minute)
	b.compare(neighbour, "")
	b.after(time.Minute)
	b.want("after two minutes", silent, 8)
	return b, silent, neighbour
}

func TestAnEnvironmentIsUnreachableOnlyAfterItHasFailedForAWhile(t *testing.T) {
	b := newBench(t)
	neighbour, silent := b.declare("acme", "prod", 4), b.declare("globex", "silent", 8)
	failed := b.now
	b.compare(silent, mirror.UnreachableTimeout)
	b.after(time.Minute)
	b.compare(neighbour, "")
	if got := b.unreachable(silent); got != nil {
		t.Errorf("unreachable at once: %+v", got)
	}
	b.after(time.Minute)
	got := b.unreachable(silent)
	if got == nil || got.Reason != mirror.UnreachableTimeout || !got.Since.Equal(failed) ||
		got.Parked != 8 {
		t.Errorf("after two minutes: %+v", got)
	}
	if b.unreachable(neighbour) != nil || b.parked(neighbour) > 0 {
		t.Error("the neighbour is unreachable too")
	}
}

func TestASuccessBetweenFailuresKeepsAnEnvironmentReachable(t *testing.T) {
	b := newBench(t)
	neighbour, shaky := b.declare("acme", "prod", 1), b.declare("globex", "shaky", 1)
	for range 10 {
		b.compare(neighbour, "")
		b.compare(shaky, mirror.UnreachableTimeout)
		b.after(time.Minute)
		b.compare(shaky, "")
		b.after(time.Minute)
	}
	b.want("an environment that answers in between", shaky, 0)
}

func TestOnlyTimeoutsAreParked(t *testing.T) {
	for _, reason := range []mirror.UnreachableReason{mirror.UnreachableRefused,
		mirror.UnreachableDenied, mirror.UnreachableError} {
		b := newBench(t)
		neighbour, broken := b.declare("acme", "prod", 1), b.declare("globex", "broken", 4)
		b.compare(broken, reason)
		b.after(time.Minute)
		b.compare(neighbour, "")
		b.after(2 * time.Minute)
		b.want(string(reason), broken, 0)
		if got := b.unreachable(broken); got == nil || got.Reason != reason {
			t.Errorf("%s: shown as %+v", reason, got)
		}
	}
}

func TestAParkedEnvironmentComesBackWithTheFirstProbeThatSucceeds(t *testing.T) {
	b, silent, neighbour := silenced(t)
	pauses := 0
	for range 16 * 60 { // one minute each
		b.compare(neighbour, "")
		b.after(time.Minute)
		if n := b.parked(silent); n < 7 {
			t.Fatalf("%d of 8 are parked during a probe", n)
		} else if n == 7 {
			pauses++
			b.compare(silent, mirror.UnreachableTimeout)
			b.after(0)
			b.want("after a probe that failed", silent, 8)
		}
	}
	if pauses < 25 || pauses > 35 { // 4, 8 and 16 minutes, then every 32
		t.Errorf("%d probes in 16 hours", pauses)
	}
	for range 33 {
		b.after(time.Minute)
		b.compare(silent, "")
	}
	b.after(0)
	b.want("after a probe that succeeded", silent, 0)
	if got := b.unreachable(silent); got != nil {
		t.Errorf("still unreachable: %+v", got)
	}
}

func TestAProbeWithoutAResultEnds(t *testing.T) {
	b, silent, _ := silenced(t)
	b.after(4 * time.Minute)
	b.want("a probe", silent, 7)
	b.after(Defaults.ProbeTime)
	b.want("the probe continues", silent, 7)
	b.after(time.Second)
	b.want("the probe took too long", silent, 8)
}

func TestARelapseIsParkedAtOnce(t *testing.T) {
	b, silent, neighbour := silenced(t)
	b.after(4 * time.Minute)
	b.compare(silent, "")
	b.after(0)
	b.want("it answers", silent, 0)
	b.after(10 * time.Minute)
	b.compare(silent, mirror.UnreachableTimeout)
	b.after(time.Second)
	b.compare(neighbour, "")
	b.after(0)
	b.want("a relapse", silent, 8)
}

func TestAFaultOfTheEngineParksNothing(t *testing.T) {
	b := newBench(t)
	var all []fleet.EnvironmentID
	for _, tenant := range []fleet.TenantName{"acme", "globex", "initech"} {
		all = append(all, b.declare(tenant, "prod", 4))
	}
	for range 30 {
		for _, env := range all {
			b.compare(env, mirror.UnreachableTimeout)
		}
		b.after(time.Minute)
	}
	for _, env := range all {
		b.want("nothing is reached", env, 0)
		if b.unreachable(env) == nil {
			t.Errorf("%s is not reported as unreachable", env.Tenant)
		}
	}
	// One tenant's cluster answers: most tenants still have none.
	for range 30 {
		b.compare(all[0], "")
		b.compare(all[1], mirror.UnreachableTimeout)
		b.compare(all[2], mirror.UnreachableTimeout)
		b.after(time.Minute)
	}
	b.want("most are not reached", all[1], 0)
	// Another one answers: now the third is alone.
	b.compare(all[0], "")
	b.compare(all[1], "")
	b.after(time.Minute)
	b.want("one is not reached", all[2], 4)
}

func TestNothingIsParkedBeforeANeighbourWasReadSince(t *testing.T) {
	b := newBench(t)
	neighbour, silent := b.declare("acme", "prod", 1), b.declare("globex", "silent", 1)
	b.compare(neighbour, "")
	b.after(time.Second)
	b.compare(silent, mirror.UnreachableTimeout)
	b.after(10 * time.Minute)
	b.want("no proof that the engine reaches anything", silent, 0)
	b.compare(neighbour, "")
	b.after(time.Second)
	b.want("a neighbour was read since", silent, 1)
}

func TestAShareOfAnEnginesApplicationsIsParkedPerMinute(t *testing.T) {
	b := newBench(t)
	neighbour, silent := b.declare("acme", "prod", 100), b.declare("globex", "silent", 900)
	b.compare(silent, mirror.UnreachableTimeout)
	b.after(2 * time.Minute)
	b.compare(neighbour, "")
	last := 0
	for minute := range 6 {
		b.after(time.Second)
		if n := b.parked(silent); n-last > 200 {
			t.Errorf("minute %d: %d of 1000 Applications are parked", minute, n-last)
		} else {
			last = n
		}
		b.now = b.now.Add(time.Minute - time.Second)
	}
	if last < 899 {
		t.Errorf("%d of 900 are parked after six minutes", last)
	}
}

func TestATenantHasFewProbesAtATime(t *testing.T) {
	b := newBench(t)
	neighbour := b.declare("acme", "prod", 1)
	var silent []fleet.EnvironmentID
	for i := range 40 {
		silent = append(silent, b.declare("globex", fleet.EnvironmentName(fmt.Sprintf("s%02d", i)),
			2))
		b.compare(silent[i], mirror.UnreachableTimeout)
	}
	probed := map[fleet.EnvironmentID]bool{}
	for minute := range 240 {
		b.compare(neighbour, "")
		b.after(time.Minute)
		open := 0
		for _, env := range silent {
			if b.unreachable(env) != nil && b.parked(env) == 1 {
				open++
				probed[env] = true
			}
		}
		if minute > 10 && open > Defaults.OfTenant { // before, not all are parked yet
			t.Fatalf("%d probes of one tenant at a time", open)
		}
	}
	if len(probed) < len(silent) {
		t.Errorf("%d of %d environments were probed in four hours", len(probed), len(silent))
	}
}

func TestATenantsFurtherSilentEnvironmentsAreParkedAtOnce(t *testing.T) {
	b := newBench(t)
	neighbour := b.declare("acme", "prod", 1)
	var silent []fleet.EnvironmentID
	for i := range 5 {
		silent = append(silent, b.declare("globex", fleet.EnvironmentName(fmt.Sprintf("s%d", i)),
			2))
		b.compare(silent[i], mirror.UnreachableTimeout)
	}
	b.after(time.Second)
	b.compare(neighbour, "")
	b.after(0)
	parked := 0
	for _, env := range silent {
		parked += b.parked(env)
	}
	if parked != 2*(5-Defaults.Grace) {
		t.Errorf("%d Applications are parked at once", parked)
	}
}

func TestAChangeOfTheDeclarationUnparksAtOnce(t *testing.T) {
	b, silent, neighbour := silenced(t)
	b.Changed(b.now, silent)
	b.after(0)
	b.want("its declaration has changed", silent, 0)
	if got := b.unreachable(silent); got != nil {
		t.Errorf("still reported as unreachable: %+v", got)
	}
	b.after(time.Minute)
	b.compare(silent, mirror.UnreachableTimeout)
	b.after(time.Second)
	b.compare(neighbour, "")
	b.after(0)
	b.want("it still does not answer", silent, 8)
}

func TestWhatWasParkedBeforeARestartIsProbedAndComesBack(t *testing.T) {
	b := newBench(t)
	since := b.now.Add(-time.Hour)
	silent := b.declare("globex", "silent", 8)
	for name, c := range b.apps {
		c.Parked = since
		b.apps[name] = c
	}
	b.Board = New(Defaults, func(d time.Duration) time.Duration { return d })
	for _, c := range b.apps {
		b.Observe(b.now, c)
	}
	if got := b.unreachable(silent); got == nil || !got.Since.Equal(since) || got.Parked != 8 {
		t.Errorf("after a restart: %+v", got)
	}
	b.after(0)
	b.want("after a restart", silent, 8)
	b.after(Defaults.ProbeFirst)
	b.want("a probe", silent, 7)
	b.compare(silent, "")
	b.after(0)
	b.want("it answers", silent, 0)
}

func TestAnApplicationThatIsNewInAParkedEnvironmentIsParked(t *testing.T) {
	b, silent, _ := silenced(t)
	c := engine.Contact{Tenant: silent.Tenant, Environment: silent.Name, Key: fleet.ObjectKey{
		Name: "ninth"}}
	b.apps[c.Key.Name] = c
	b.Observe(b.now, c)
	b.after(time.Minute)
	b.want("a ninth", silent, 9)
}

func TestARequestBringsTheNextProbeForward(t *testing.T) {
	b, silent, _ := silenced(t)
	for range 5 { // pauses have grown
		for b.parked(silent) == 8 {
			b.after(time.Minute)
		}
		b.compare(silent, mirror.UnreachableTimeout)
		b.after(0)
	}
	b.RequestProbe(b.now, silent)
	b.after(time.Second)
	b.want("too soon after the last probe", silent, 8)
	b.after(Defaults.ProbeSoon)
	b.want("a probe", silent, 7)
}

func TestAnEnvironmentWithoutApplicationsIsForgotten(t *testing.T) {
	b, silent, _ := silenced(t)
	b.Report()
	for name, c := range b.apps {
		if c.In() == silent {
			delete(b.apps, name)
			b.Observe(
				b.now, engine.Contact{Key: c.Key, Tenant: c.Tenant, Environment: c.Environment,
					Gone: true})
		}
	}
	b.after(time.Minute)
	reports := b.Report()
	if len(reports) != 1 || reports[0].Environment != silent || reports[0].Unreachable != nil {
		t.Errorf("reported %+v", reports)
	}
	if len(b.trouble)+len(b.tenants)+len(b.all) != 2 { // the neighbour
		t.Errorf("kept: %+v %+v %+v", b.trouble, b.tenants, b.all)
	}
}
