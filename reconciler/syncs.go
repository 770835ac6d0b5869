package reconciler

import (
	"context"
	"errors"
	"fmt"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// syncEnd is what an engine said of one sync.
type syncEnd struct {
	state   fleet.OperationState
	message string
}

// observedSync remembers what an engine says of a sync that we asked for.
func (s *shift) observedSync(o fleet.Observation) {
	if o.OperationID == "" {
		return
	}
	end := syncEnd{state: fleet.OperationRunning}
	switch o.OperationPhase {
	case "Succeeded":
		end.state = fleet.OperationSucceeded
	case "Failed", "Error":
		end = syncEnd{fleet.OperationFailed, o.OperationError}
	}
	s.mu.Lock()
	known := s.ended[o.OperationID]
	s.ended[o.OperationID] = end
	s.mu.Unlock()
	if known.state != end.state {
		s.Wake()
	}
}

// startSyncs asks the engine for the syncs that wait, and records those that have ended.
func (s *shift) startSyncs(ctx context.Context) error {
	pending, err := s.Rows.PendingSyncs(ctx, s.Engine)
	if err != nil {
		return fmt.Errorf("read syncs of engine %s: %w", s.Engine, err)
	}
	for _, request := range pending {
		s.mu.Lock()
		end, known := s.ended[request.ID]
		s.mu.Unlock()
		switch {
		case known && end.state != request.State:
			err = s.Rows.UpdateSync(ctx, s.lease.lease(), request.ID, end.state, short(end.message))
		case !known && !s.Stops.Stopped(s.Engine)(request.Tenant):
			err = s.startSync(ctx, request)
		}
		if err != nil {
			return fmt.Errorf("sync %s: %w", request.ID, err)
		}
	}
	return nil
}

// startSync waits, by coming again, until the Application stands on the engine as the mirror wants it: its hold must be in force first.
func (s *shift) startSync(ctx context.Context, request fleet.SyncRequest) error {
	row, ok, err := s.Rows.Row(ctx, request.Key)
	if err != nil {
		return err
	}
	if !ok || row.Absent {
		return s.Rows.UpdateSync(ctx, s.lease.lease(), request.ID, fleet.OperationFailed, "the Application was removed before the sync began")
	}
	live, ok := s.target.Live(request.Key)
	if !ok || live.Hash != row.Manifest.Hash || live.Operating {
		return nil
	}
	out, err := s.target.Sync(ctx, engine.SyncRequest{Key: request.Key, Tenant: request.Tenant, ID: request.ID, Revision: request.Revision, Prune: request.Prune}, s.lease.lease())
	switch {
	case errors.Is(err, engine.ErrFenced):
		return err
	case err != nil:
		return s.Rows.UpdateSync(ctx, s.lease.lease(), request.ID, fleet.OperationPending, short(err.Error()))
	case out.State == fleet.ApplyApplied:
		return s.Rows.UpdateSync(ctx, s.lease.lease(), request.ID, fleet.OperationRunning, "")
	default:
		return nil
	}
}

// mirrorStops keeps the stops on the engine as well, so that they outlive the database.
func (s *shift) mirrorStops(ctx context.Context) {
	wanted := s.Stops.On(s.Engine)
	there, err := s.target.ReadStops(ctx)
	if err == nil {
		err = s.writeStops(ctx, wanted, there)
	}
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("emergency stops are not mirrored to the engine; they hold by the database alone", "engine", s.Engine, "error", err)
	}
}

func (s *shift) writeStops(ctx context.Context, wanted, there []fleet.Stop) error {
	type place struct {
		scope fleet.StopScope
		name  string
	}
	gone := map[place]bool{}
	for _, stop := range there {
		gone[place{stop.Scope, stop.Name}] = true
	}
	for _, stop := range wanted {
		at := place{stop.Scope, stop.Name}
		if !gone[at] {
			if err := s.target.SetStop(ctx, stop); err != nil {
				return err
			}
		}
		delete(gone, at)
	}
	for at := range gone {
		if err := s.target.ClearStop(ctx, at.scope, at.name); err != nil {
			return err
		}
	}
	return nil
}
