// Package pool decides which instances a pool of engines has (ADR 0073). It is pure: the loop reads
// the facts and records the step, placement and drains move the environments, and workers install
// and remove the instances.
package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Quiet is how long a removed instance stays an engine after its Argo CD is gone: a ring may have
// decided about it a moment before.
const Quiet = 15 * time.Second

// Pool is a declared pool with what is known of it.
type Pool struct {
	Name string
	fleet.EnginePoolSpec
	Ending    bool // its file is removed
	Stored    mirror.Pool
	Instances []Instance // by number
	// environments without an engine that an instance without load would serve, and their
	// Applications
	Waiting fleet.EngineLoad
	// why the pool cannot know all of its instances; "" if it does
	Unknown string
	// why the next instance cannot be made; "" if nothing is known against it
	Blocked string
}

// Instance is an instance with what is known of it.
type Instance struct {
	fleet.PoolMember
	Load      fleet.EngineLoad
	Ready     bool   // its Argo CD runs, and answers the probe
	Message   string // why it is not Ready
	Empty     bool   // it serves no environment, no move leads off it, and no object is left
	Installed bool   // Argo CD is there, or is being installed or removed
	Sized     string // what its Pods have: see mirror.Instance
	Measured  *mirror.Load
}

// Step is what happens to a pool next. At most one of Set and Drop is set.
type Step struct {
	Pool mirror.Pool       // to be stored
	Set  *fleet.PoolMember // an instance that is made, or has another state
	Drop *fleet.PoolMember // an instance that is gone
}

// Next returns the next step of a pool.
func Next(now time.Time, p Pool) Step {
	p.EnginePoolSpec = p.OrDefaults()
	d := decision{Pool: p, now: now, step: Step{Pool: p.Stored}}
	d.step.Pool.Name, d.step.Pool.Message = p.Name, ""
	d.measure()
	d.decide()
	d.size()
	return d.step
}

type decision struct {
	Pool
	now  time.Time
	step Step
	load fleet.EngineLoad // of all instances, and of what waits
	open []Instance       // that take environments, or will
}

// measure sums the load, and notes since when it is too high or low.
func (d *decision) measure() {
	d.load = d.Waiting
	for _, i := range d.Instances {
		d.load.Applications += i.Load.Applications
		d.load.Environments += i.Load.Environments
		if i.State == fleet.MemberServing || i.State == fleet.MemberMaking {
			d.open = append(d.open, i)
		}
	}
	s := &d.step.Pool
	s.Load, s.Waiting = d.percent(len(d.open)), d.Waiting.Environments
	if len(d.open) == 0 {
		s.Load = 0
	}
	d.since(d.high(), &s.HighSince)
	d.since(d.low(), &s.LowSince)
}

// since notes since when something is so; nil: it is not.
func (d *decision) since(is bool, at **time.Time) {
	switch {
	case !is:
		*at = nil
	case *at == nil:
		now := d.now
		*at = &now
	}
}

// percent returns the load relative to the capacity of n instances.
func (d *decision) percent(n int) int { return percent(d.load, d.Template.Capacity, n) }

// percent returns a load relative to n times a capacity.
func percent(l fleet.EngineLoad, c fleet.Capacity, n int) int {
	of := func(load, capacity int) int {
		switch {
		case load == 0:
			return 0
		case n == 0:
			return 1000
		}
		return load * 100 / (n * max(1, capacity))
	}
	return max(of(l.Applications, c.Applications), of(l.Environments, c.Environments))
}

// high reports whether the open instances are too few. An environment that waits although an
// instance is empty would wait with another one too.
func (d *decision) high() bool {
	if d.percent(len(d.open)) > d.TargetLoad {
		return true
	}
	return d.Waiting.Environments > 0 && !slices.ContainsFunc(d.open, func(i Instance) bool {
		return i.Load.Environments == 0
	})
}

// low reports whether one instance less would do.
func (d *decision) low() bool {
	return len(d.open) > d.Min && d.Waiting.Environments == 0 &&
		d.percent(len(d.open)-1) < d.Shrink.Below
}

func (d *decision) decide() {
	switch {
	case d.Unknown != "":
		d.be(mirror.PoolUnknown, d.Unknown)
	case d.live():
	case d.excess():
	case d.busy():
	case d.Ending:
		d.be(mirror.PoolUnneeded, "no instance is left")
	case d.Stored.PausedAt != nil:
		why := "by " + d.Stored.PausedBy
		if d.Stored.PauseReason != "" {
			why += ": " + d.Stored.PauseReason
		}
		d.be(mirror.PoolPaused, why)
	case len(d.open) < d.Min:
		d.make(fmt.Sprintf("the pool has %d of at least %d instances", len(d.open), d.Min))
	case d.cooling() > 0 && (d.step.Pool.HighSince != nil || d.step.Pool.LowSince != nil):
		d.be(mirror.PoolWaiting, "cooldown until "+d.clock(d.now.Add(d.cooling())))
	case d.lasts(d.step.Pool.HighSince, d.Grow.After):
		d.grow()
	case d.lasts(d.step.Pool.LowSince, d.Shrink.After):
		d.drain(d.last(), fmt.Sprintf("without it, the load would be %d%%, below %d%% since %s",
			d.percent(len(d.open)-1), d.Shrink.Below, d.clock(*d.step.Pool.LowSince)))
	default:
		d.be(mirror.PoolSteady, d.outlook())
	}
}

func (d *decision) be(state mirror.PoolState, message string) {
	s := &d.step.Pool
	if d.Ending && state != mirror.PoolUnknown {
		state = mirror.PoolUnneeded
	}
	if s.State != state {
		s.State, s.Since = state, d.now
	}
	s.Message = message
}

// live takes the next step in the life of an instance. A pause does not hold it.
func (d *decision) live() bool {
	for _, i := range d.Instances {
		switch {
		case i.State == fleet.MemberMaking && i.Ready:
			d.set(i, fleet.MemberServing, "its Argo CD runs")
			d.be(mirror.PoolSteady, called(i)+" is Serving")
		case i.State == fleet.MemberDraining && i.Empty:
			d.set(i, fleet.MemberRemoving, "it is empty")
			d.be(mirror.PoolShrinks, called(i)+" is empty, and is being removed")
		case i.State == fleet.MemberRemoving && !i.Installed && d.now.Sub(i.Since) >= Quiet:
			d.step.Drop = &i.PoolMember
			d.be(mirror.PoolSteady, called(i)+" is removed")
		case i.State == fleet.MemberDraining && d.wanted():
			d.set(i, fleet.MemberServing, "the load has come back")
			d.be(mirror.PoolSteady, called(i)+" is Serving again: the load has come back")
		default:
			continue
		}
		if i.State != fleet.MemberDraining || !i.Empty {
			now := d.now
			d.step.Pool.SteppedAt = &now
		}
		d.step.Pool.HighSince, d.step.Pool.LowSince = nil, nil
		return true
	}
	return false
}

// wanted reports whether an instance that drains is needed again.
func (d *decision) wanted() bool {
	return !d.Ending && d.Stored.PausedAt == nil && len(d.open) < d.Max &&
		(len(d.open) < d.Min || d.high())
}

// excess drains an instance of a pool that ends, or that has more instances than it may have.
func (d *decision) excess() bool {
	most := d.Max
	if d.Ending {
		most = 0
	}
	if len(d.open) <= most || d.Stored.PausedAt != nil {
		return false
	}
	for _, i := range d.Instances {
		if i.State == fleet.MemberDraining || i.State == fleet.MemberRemoving {
			return false // one at a time
		}
	}
	why := fmt.Sprintf("the pool may have %d instances", most)
	if d.Ending {
		why = "the file of the pool is removed"
	}
	d.drain(d.last(), why)
	return true
}

// busy reports whether an instance is on its way.
func (d *decision) busy() bool {
	for _, i := range d.Instances {
		switch i.State {
		case fleet.MemberMaking:
			d.be(mirror.PoolGrowing, called(i)+" is being made: "+
				cmp.Or(i.Message, "its Argo CD is not installed yet"))
		case fleet.MemberDraining:
			d.be(mirror.PoolShrinks, called(i)+" drains: "+i.Reason)
		case fleet.MemberRemoving:
			d.be(mirror.PoolShrinks, strings.TrimSuffix(called(i)+" is being removed: "+i.Message,
				": "))
		default:
			continue
		}
		return true
	}
	return false
}

// cooling returns the rest of the cooldown.
func (d *decision) cooling() time.Duration {
	if d.Stored.SteppedAt == nil {
		return 0
	}
	return d.Stored.SteppedAt.Add(time.Duration(d.Cooldown)).Sub(d.now)
}

func (d *decision) lasts(since *time.Time, after fleet.Duration) bool {
	return since != nil && d.now.Sub(*since) >= time.Duration(after)
}

func (d *decision) grow() {
	why := fmt.Sprintf("a load of %d%% is above %d%% since %s", d.step.Pool.Load, d.TargetLoad,
		d.clock(*d.step.Pool.HighSince))
	if d.step.Pool.Load <= d.TargetLoad {
		why = fmt.Sprintf("environments wait for an engine: %d", d.Waiting.Environments)
	}
	if len(d.open) >= d.Max {
		d.be(mirror.PoolFull, fmt.Sprintf("%s, and the pool may have %d instances", why, d.Max))
		return
	}
	d.make(why)
}

// make makes the instance with the lowest free number, on the cluster with the fewest instances.
func (d *decision) make(why string) {
	if d.Blocked != "" {
		d.be(mirror.PoolBlocked, d.Blocked)
		return
	}
	number, on := 1, map[string]int{}
	for _, i := range d.Instances { // by number
		if i.Number == number {
			number++
		}
		on[i.Cluster]++
	}
	best := -1
	for n, c := range d.Clusters {
		if on[c.Name] < d.Most(c) && (best < 0 || on[c.Name] < on[d.Clusters[best].Name]) {
			best = n
		}
	}
	if best < 0 || number > fleet.MaxPoolInstances {
		d.be(mirror.PoolFull, why+", and no cluster may have another instance")
		return
	}
	d.step.Set = &fleet.PoolMember{Pool: d.Name, Number: number, Cluster: d.Clusters[best].Name,
		State: fleet.MemberMaking, Since: d.now, Reason: why,
		Sizing: fleet.Sizing{Size: d.Template.Smallest(), SizedAt: d.now}}
	d.be(mirror.PoolGrowing, string(fleet.InstanceName(d.Name, number))+" is being made: "+why)
}

func (d *decision) drain(i Instance, why string) {
	d.set(i, fleet.MemberDraining, why)
	d.be(mirror.PoolShrinks, called(i)+" drains: "+why)
}

// last returns the open instance with the highest number: the names of a pool stay the same ones.
func (d *decision) last() Instance { return d.open[len(d.open)-1] }

func (d *decision) set(i Instance, state fleet.PoolMemberState, why string) {
	m := i.PoolMember
	m.State, m.Since, m.Reason = state, d.now, why
	d.step.Set = &m
}

// outlook is what a steady pool will do if its load stays.
func (d *decision) outlook() string {
	s := d.step.Pool
	switch {
	case s.HighSince != nil:
		return "makes an instance at " + d.clock(s.HighSince.Add(time.Duration(d.Grow.After))) +
			" if the load stays"
	case s.LowSince != nil:
		return "drains an instance at " + d.clock(s.LowSince.Add(time.Duration(d.Shrink.After))) +
			" if the load stays"
	}
	return ""
}

func (d *decision) clock(at time.Time) string { return at.UTC().Format("15:04:05 UTC") }
