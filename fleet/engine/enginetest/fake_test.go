package enginetest

import (
	"errors"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

var _ engine.Engine = (*Fake)(nil)

func TestFakePassesTheConformanceSuite(t *testing.T) {
	Run(t, func(*testing.T) *Fixture { return NewFixture(NewServer()) })
}

// An Application moves between two fakes whose servers reconcile.
func TestAnApplicationMovesBetweenFakes(t *testing.T) {
	from, to := NewServer(), NewServer()
	a, b := NewFixture(from), NewFixture(to)
	r, s := start(t, a), start(t, b)
	row := application(t, a, nil)
	r.mustApply(row)
	from.Reconcile(movedResources...)
	d, err := r.mover().CheckDeparture(r.ctx, row)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return s.mover().Compare(s.ctx, row, d, s.lease) },
		func() error { return r.mover().Freeze(r.ctx, row, d, r.lease) },
		func() error { return s.mover().Adopt(s.ctx, row, d, s.lease) },
	} {
		for err = step(); errors.Is(err, engine.ErrMove); err = step() {
			from.Reconcile(movedResources...)
			to.Reconcile(movedResources...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	left := row
	left.Unwanted, left.Deletion = true, fleet.DeletionOrphan
	r.deleteFully(left)
	s.mustApply(row)
	s.waitApplied(row)
}
