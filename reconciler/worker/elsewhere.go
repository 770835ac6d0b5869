package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// waitElsewhere returns a pause if the engine lacks an Application that another engine has, or may
// have: its creation would give the workload a second owner.
func (s *session) waitElsewhere(ctx context.Context, t *task) (pause time.Duration, waits bool) {
	row := t.row
	if row.Unwanted || row.Key.Kind != fleet.ObjectApplication {
		return 0, false
	}
	if _, exists := s.target.Live(row.Key); exists {
		return 0, false
	}
	err := s.mayCreate(ctx, s.Engine, row)
	if err == nil {
		// A recorded move gives the object on another engine a row: mayCreate no longer finds it,
		// while an older row of this engine still asks for another one.
		var current bool
		if current, err = s.mayCreateFrom(ctx, row); err == nil {
			return 0, !current
		}
	}
	if text := short(err.Error()); text != t.reason && ctx.Err() == nil {
		t.reason = text
		s.acks.Add(mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash,
			State: mirror.ApplyPending, Message: text})
	}
	t.waits++
	return min(pacing.Backoff(t.waits), moveMost), true
}

// mayCreateFrom reports whether a row is still the mirror's. A worker without inventories asks no
// other engine, and creates from any row.
func (s *session) mayCreateFrom(ctx context.Context, row mirror.Row) (bool, error) {
	if _, ok := s.Rows.(Inventories); !ok {
		return true, nil
	}
	_, current, err := s.readAgain(ctx, row)
	if err != nil {
		return false, fmt.Errorf("the row to create is unknown: %w", err)
	}
	return current, nil
}

// mayCreate returns an error if an engine other than on has the row's Application, or may have it.
// Without that knowledge, a worker creates it.
func (s *session) mayCreate(ctx context.Context, on fleet.EngineName, row mirror.Row) error {
	store, ok := s.Rows.(Inventories)
	if !ok {
		return nil
	}
	key := row.Key
	key.Engine = on
	e, err := store.Elsewhere(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("which engine has the Application is unknown: %w", err)
	case e.Found != "":
		return fmt.Errorf("engine %s has it already, and the mirror does not know why, as after a "+
			"restore from before a move; run `argosy move environment %s/%s --to %s`, or remove it "+
			"there with `argosy remove-orphan`", e.Found, row.Tenant, row.Environment, e.Found)
	case e.Unread != "" && !s.serves(row):
		return fmt.Errorf("engine %s may have it already, and was not read since the database "+
			"was restored or failed over; bring the engine back, or remove its declaration",
			e.Unread)
	}
	return nil
}

// serves reports whether the engine had Applications of the row's part of the environment when it
// was first asked: then no other engine has that part. The inventory is walked once.
//
// The environment may have been split, and a restored database does not know it. An engine with
// many Applications of the environment, none of which is in the row's part, has another slice.
func (s *session) serves(row mirror.Row) bool {
	s.servedOnce.Do(func() {
		s.served = map[fleet.EnvironmentID][]fleet.DeploymentName{}
		for _, live := range s.target.Inventory() {
			if live.Key.Kind == fleet.ObjectApplication && live.Ours && !live.Leaving &&
				!live.Arriving {
				s.served[live.In()] = append(s.served[live.In()], live.Deployment)
			}
		}
	})
	served := s.served[row.Application().In()]
	part := partOf(row.Deployment, len(served))
	return slices.ContainsFunc(served, part.Holds)
}

// partOf returns the smallest part with a deployment that has eight of n Applications on average,
// so that it has almost never none of an environment that is not split.
func partOf(d fleet.DeploymentName, n int) (part fleet.Slice) {
	for ; n >= 16 && part.Divisible(); n /= 2 {
		first, second := part.Halves()
		if part = first; !first.Holds(d) {
			part = second
		}
	}
	return part
}
