package pool

import (
	"fmt"
	"maps"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Bounds of a change of size.
const (
	// SizeWithin is how long the Pods of another size may take to run. Then the instance goes back:
	// its nodes may have no room.
	SizeWithin = 10 * time.Minute
	// SizeAgain is how long a size that the Pods could not get is not tried again.
	SizeAgain = time.Hour
)

// size lets one instance of the pool change its size: it grows before the pool makes an instance,
// and shrinks after calm. It is decided after everything else: the pool takes one step at a time.
func (d *decision) size() {
	s := &d.step.Pool
	s.Sizing = maps.Clone(s.Sizing)
	if d.step.Set != nil || d.step.Drop != nil || d.Unknown != "" {
		return
	}
	sizing := map[int]mirror.SizeMemory{}
	var change *sizeChange
	changing := false
	for n := range d.Instances {
		i := sized{&d.Instances[n], &d.Template}
		if i.State != fleet.MemberServing || len(d.Template.Sizes) == 0 {
			continue
		}
		was := s.Sizing[i.Number]
		if was.RefusedAt != nil && d.now.Sub(*was.RefusedAt) >= SizeAgain {
			was.Refused, was.RefusedAt = "", nil
		}
		if i.changing() {
			changing = true
			d.awaitSize(i, &was)
		} else if next := d.judgeSize(i, &was); next.before(change) {
			change = next
		}
		sizing[i.Number] = was
	}
	s.Sizing = sizing
	if changing || change == nil || d.Ending || d.Stored.PausedAt != nil {
		return
	}
	d.resize(*change)
}

// sized is an instance with the sizes that it may have.
type sized struct {
	*Instance
	template *fleet.PoolTemplate
}

func (i sized) at() int {
	_, at := i.template.SizeOf(i.Size)
	return at
}

// changing reports whether the Pods do not have the size yet.
func (i sized) changing() bool {
	size, _ := i.template.SizeOf(i.Size)
	return size != nil && i.Sized != size.Instance().String()
}

// load returns the load of the instance relative to the size at a position, in percent, and what it
// is. It is the counted load or, if that is higher, what its components have been measured to use.
func (i sized) load(now time.Time, at int) (most int, what string) {
	size := i.template.Sizes[at].Instance()
	c := i.template.CapacityOf(&i.template.Sizes[at])
	note := func(percent float64, text string, args ...any) {
		if p := int(percent); p > most || what == "" {
			most, what = p, fmt.Sprintf(text, args...)
		}
	}
	note(float64(percent(fleet.EngineLoad{Applications: i.Load.Applications}, c, 1)),
		"%d Applications of %d", i.Load.Applications, c.Applications)
	note(float64(percent(fleet.EngineLoad{Environments: i.Load.Environments}, c, 1)),
		"%d environments of %d", i.Load.Environments, c.Environments)
	if !i.Measured.Fresh(now) || i.Measured.At.Before(i.SizedAt) {
		return most, what
	}
	use := func(name string, l mirror.ProcessLoad, r fleet.Resources, processes int) {
		if all := r.CPU.Cores() * float64(processes); all > 0 {
			note(l.CPU/all*100, "the "+name+" uses %.2f of %.4g CPU", l.CPU, all)
		}
		if all := r.Memory.Bytes() * float64(processes); all > 0 {
			note(l.Memory/all*100, "the "+name+" has %.1f of %.4g GiB", l.Memory/(1<<30),
				all/(1<<30))
		}
	}
	use("application-controller", i.Measured.Controller.ProcessLoad, size.ApplicationController,
		size.ShardCount())
	if r := i.Measured.RepoServer; r != nil {
		use("repo-server", r.ProcessLoad, size.RepoServer, 1)
	}
	return most, what
}

// sizeChange is a change of the size of an instance that is due.
type sizeChange struct {
	of   sized
	to   int // position
	load int
	why  string
	grow bool
}

// before reports whether a change goes before another one: growth before the rest, then the highest
// load.
func (c *sizeChange) before(other *sizeChange) bool {
	switch {
	case c == nil:
		return false
	case other == nil:
		return true
	case c.grow != other.grow:
		return c.grow
	}
	return c.load > other.load
}

// judgeSize notes since when the load of an instance is too high or low for its size, and returns
// the change that is due.
func (d *decision) judgeSize(i sized, was *mirror.SizeMemory) *sizeChange {
	at, target := i.at(), d.TargetLoad
	if at < 0 {
		if !i.Ready {
			return nil
		}
		return &sizeChange{i, d.larger(i, at, ""), 0, "the pool has sizes now", true}
	}
	load, why := i.load(d.now, at)
	below, calm := 0, ""
	if at > 0 {
		below, calm = i.load(d.now, at-1)
	}
	larger := d.larger(i, at, was.Refused)
	d.since(load > target && larger > at, &was.HighSince)
	d.since(at > 0 && below < d.Shrink.Below && load <= target, &was.LowSince)
	switch rests := d.now.Sub(i.SizedAt) >= time.Duration(d.Cooldown); {
	case !i.Ready || !rests:
		return nil
	case d.lasts(was.HighSince, d.Grow.After):
		return &sizeChange{i, larger, load, fmt.Sprintf("%s, more than %d%%, since %s", why, target,
			d.clock(*was.HighSince)), true}
	case d.lasts(was.LowSince, d.Shrink.After):
		return &sizeChange{i, at - 1, below, fmt.Sprintf("%s would be below %d%%, since %s", calm,
			d.Shrink.Below, d.clock(*was.LowSince)), false}
	}
	return nil
}

// larger returns the position of the size to grow to: the next one or, if the load is known to be
// too high for it, a larger one. It is that of the present size if there is none.
func (d *decision) larger(i sized, at int, refused string) int {
	to := at
	for n := at + 1; n < len(d.Template.Sizes) && d.Template.Sizes[n].Name != refused; n++ {
		to = n
		if load, _ := i.load(d.now, n); load <= d.TargetLoad {
			break
		}
	}
	return to
}

// awaitSize waits until the Pods have the size, or lets the instance go back.
func (d *decision) awaitSize(i sized, was *mirror.SizeMemory) {
	was.HighSince, was.LowSince = nil, nil
	text := fmt.Sprintf("%s changes to %s", called(*i.Instance), i.Size)
	if i.Message != "" {
		text += ": " + i.Message
	}
	back, at := d.Template.SizeOf(i.SizedFrom)
	if i.SizedFrom == "" || back.Name != i.SizedFrom || at == i.at() ||
		d.now.Sub(i.SizedAt) < SizeWithin {
		d.resizing(text)
		return
	}
	now := d.now
	was.Refused, was.RefusedAt = i.Size, &now
	d.set(*i.Instance, i.State, i.Reason)
	d.step.Set.Since = i.Since
	d.step.Set.Sizing = fleet.Sizing{Size: back.Name, SizedAt: d.now, SizedWhy: fmt.Sprintf(
		"its Pods did not run with %s within %s", i.Size, SizeWithin)}
	d.resizing(fmt.Sprintf("%s goes back to %s: its Pods did not run with %s within %s",
		called(*i.Instance), back.Name, i.Size, SizeWithin))
}

func (d *decision) resize(c sizeChange) {
	to := d.Template.Sizes[c.to].Name
	d.set(*c.of.Instance, c.of.State, c.of.Reason)
	d.step.Set.Since = c.of.Since
	d.step.Set.Sizing = fleet.Sizing{Size: to, SizedAt: d.now, SizedFrom: c.of.Size,
		SizedWhy: c.why}
	d.resizing(fmt.Sprintf("%s changes to %s: %s", called(*c.of.Instance), to, c.why))
}

// resizing makes the pool Resizing, unless it has a more important state.
func (d *decision) resizing(message string) {
	switch d.step.Pool.State {
	case mirror.PoolSteady, mirror.PoolWaiting, mirror.PoolResizing:
		d.be(mirror.PoolResizing, message)
	}
}
