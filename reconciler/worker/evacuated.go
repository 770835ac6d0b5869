package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// freezeAway precedes every other write to an evacuated engine, which may have come back: it
// freezes each Application that has another engine now, and returns once all are proven frozen. The
// live objects decide, not the rows: a mirror that was rebuilt has none.
func (s *session) freezeAway(ctx context.Context) error {
	store, ok := s.Rows.(Evacuations)
	if !s.Evacuated || !ok {
		return nil
	}
	began := time.Now()
	for {
		away, err := store.Away(ctx, s.Engine)
		var rows []mirror.Row
		if err == nil {
			rows = s.rowsAway(away)
			err = parallel(rows, s.Flight, func(row mirror.Row) error {
				return s.freezeRow(ctx, row)
			})
		}
		if err == nil {
			s.Log.Info("every Application that has another engine is frozen", "engine", s.Engine,
				"applications", len(rows), "took", time.Since(began).Round(time.Millisecond))
			return nil
		}
		if !s.retryable(ctx, err) {
			return err
		}
		if !pacing.Sleep(ctx, s.Poll) {
			return context.Cause(ctx)
		}
	}
}

// recall precedes every verification of an evacuated engine: what a person has forgotten of it is
// removed now that the engine is back, by rows that the verification reads.
func (s *session) recall(ctx context.Context) error {
	store, ok := s.Rows.(Evacuations)
	if !s.Evacuated || !ok {
		return nil
	}
	n, err := store.Recall(ctx, s.lease.Lease())
	if n > 0 {
		s.Log.Warn("a forgotten engine has returned; its unproven objects are removed", "engine",
			s.Engine, "objects", n)
	}
	return err
}

// rowsAway returns what FreezeAway needs of the live Applications of these slices.
func (s *session) rowsAway(away map[fleet.SliceID]bool) (rows []mirror.Row) {
	slices := map[fleet.EnvironmentID][]fleet.Slice{}
	for id := range away {
		slices[id.In()] = append(slices[id.In()], id.Slice)
	}
	for _, live := range s.target.Inventory() {
		if live.Key.Kind != fleet.ObjectApplication || !live.Ours {
			continue
		}
		if _, gone := fleet.SliceOf(live.Deployment, slices[live.In()]); gone {
			rows = append(rows, mirror.Row{Key: live.Key, Tenant: live.Tenant,
				Environment: live.Environment, Deployment: live.Deployment})
		}
	}
	return rows
}

func (s *session) freezeRow(ctx context.Context, row mirror.Row) error {
	target, ok := engine.As[engine.Evacuee](s.target)
	if !ok {
		return fmt.Errorf("%w: engine %s cannot be evacuated", engine.ErrMove, s.Engine)
	}
	ctx, end := s.lease.Writing(ctx)
	defer end()
	err := target.FreezeAway(ctx, row, s.lease.Lease())
	if errors.Is(err, engine.ErrFenced) && s.forged(row.Key) {
		return fmt.Errorf("%w: %s has an epoch that no lease has; remove annotation "+
			"argosy.dev/epoch", engine.ErrForeign, row.Key.Name)
	}
	return s.refusal(err)
}
