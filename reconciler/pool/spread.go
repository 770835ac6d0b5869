package pool

import (
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
)

// Spread is what is known of the moves within a pool: environments leave its fuller instances for
// the emptiest one, after an instance was above the target for as long as makes a pool grow. They
// are moves like those of a drain, and end when no move makes the load more even. The next ones
// begin a cooldown later.
type Spread struct {
	Over  time.Time        // since when an instance is above the target; zero: none is
	To    fleet.EngineName // the instance that takes environments; "": none moves
	From  []fleet.EngineName
	Ended time.Time // of the last moves
}

// Next returns the moves of a pool with these instances. They go on until Done, or until an
// instance drains. None begins while the number of instances changes.
func (s Spread) Next(now time.Time, p fleet.EnginePoolSpec, instances []Instance) Spread {
	p = p.OrDefaults()
	var to, fullest *Instance
	changes := false
	for i := range instances {
		one := &instances[i]
		if one.State != fleet.MemberServing {
			changes = true
			continue
		}
		if to == nil || load(one, p) < load(to, p) {
			to = one
		}
		if fullest == nil || load(one, p) > load(fullest, p) {
			fullest = one
		}
	}
	switch {
	case fullest == nil || load(fullest, p) <= p.TargetLoad:
		s.Over = time.Time{}
	case s.Over.IsZero():
		s.Over = now
	}
	if s.To != "" && slices.ContainsFunc(instances, func(i Instance) bool {
		return i.State == fleet.MemberDraining || i.State == fleet.MemberRemoving
	}) {
		return s.Done(now)
	}
	if s.To != "" || changes || s.Over.IsZero() || to == fullest ||
		now.Sub(s.Over) < time.Duration(p.Grow.After) ||
		now.Sub(s.Ended) < time.Duration(p.Cooldown) {
		return s
	}
	s.To, s.From = name(*to), nil
	for _, i := range instances {
		if name(i) != s.To {
			s.From = append(s.From, name(i))
		}
	}
	return s
}

// Done ends the moves: the load is spread, or nothing can move.
func (s Spread) Done(now time.Time) Spread {
	s.To, s.From, s.Ended = "", nil, now
	return s
}

func load(i *Instance, p fleet.EnginePoolSpec) int {
	return percent(i.Load, p.Template.Capacity, 1)
}

func name(i Instance) fleet.EngineName { return fleet.InstanceName(i.Pool, i.Number) }

func called(i Instance) string { return string(name(i)) }
