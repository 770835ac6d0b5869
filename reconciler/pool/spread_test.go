package pool

import (
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

// spreading is a pool whose instances have these loads, in percent.
type spreading struct {
	*lab
	spread Spread
}

func newSpreading(t *testing.T, loads ...int) *spreading {
	s := &spreading{lab: newLab(t)}
	for i := range loads {
		s.pool.Instances = append(s.pool.Instances, Instance{PoolMember: fleet.PoolMember{
			Pool: "eu", Number: i + 1, State: fleet.MemberServing}})
	}
	s.have(loads...)
	return s
}

func (s *spreading) have(loads ...int) {
	for i, l := range loads {
		s.pool.Instances[i].Load = fleet.EngineLoad{Applications: l}
	}
}

// passes lets time pass, and wants environments to move to an instance in the end; "" for none.
func (s *spreading) passes(d time.Duration, want fleet.EngineName) {
	s.Helper()
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(10 * time.Second) {
		s.spread = s.spread.Next(s.now, s.pool.EnginePoolSpec, s.pool.Instances)
	}
	if s.spread.To != want {
		s.Fatalf("environments move to %q, want %q: %+v", s.spread.To, want, s.spread)
	}
}

func TestTheLoadOfAFullInstanceMovesToTheEmptiestOne(t *testing.T) {
	t.Parallel()
	s := newSpreading(t, 85, 40, 60)
	s.passes(4*time.Minute, "")
	s.have(80, 40, 60)
	s.passes(4*time.Minute, "")
	s.have(85, 40, 60)
	s.passes(6*time.Minute, "eu-2")
	if len(s.spread.From) != 2 || s.spread.From[0] != "eu-1" || s.spread.From[1] != "eu-3" {
		t.Errorf("they leave %v", s.spread.From)
	}
	s.have(70, 65, 60)
	s.passes(time.Hour, "eu-2") // until no move makes the load more even

	s.spread = s.spread.Done(s.now)
	s.have(85, 65, 60)
	s.passes(9*time.Minute, "")
	s.passes(2*time.Minute, "eu-3") // after the cooldown
}

func TestNothingSpreadsWhileThePoolChanges(t *testing.T) {
	t.Parallel()
	for _, state := range []fleet.PoolMemberState{fleet.MemberMaking, fleet.MemberDraining,
		fleet.MemberRemoving} {
		s := newSpreading(t, 85, 40, 0)
		s.pool.Instances[2].State = state
		s.passes(time.Hour, "")
		s.pool.Instances[2].State = fleet.MemberServing
		s.passes(time.Minute, "eu-3") // the load has been high for long
		s.pool.Instances[0].State = state
		if state == fleet.MemberMaking {
			s.passes(time.Minute, "eu-3")
		} else {
			s.passes(time.Minute, "")
		}
	}
}

func TestOneInstanceSpreadsNothing(t *testing.T) {
	t.Parallel()
	newSpreading(t, 95).passes(time.Hour, "")
	newSpreading(t).passes(time.Hour, "")
	newSpreading(t, 95, 95).passes(time.Hour, "") // as full as each other
}
