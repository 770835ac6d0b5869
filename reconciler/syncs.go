package reconciler

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

// syncsAtATime bounds how many syncs are asked of one engine at a time.
const syncsAtATime = 8

// startSyncs asks the engine for the syncs that wait, and records those that have ended. One that fails keeps no other waiting.
func (s *shift) startSyncs(ctx context.Context) error {
	pending, err := s.Rows.PendingSyncs(ctx, s.Engine)
	if err != nil {
		return fmt.Errorf("read syncs of engine %s: %w", s.Engine, err)
	}
	var mu sync.Mutex
	var failed []error
	var all sync.WaitGroup
	places := make(chan struct{}, syncsAtATime)
	for _, request := range pending {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if err := s.advance(ctx, request); err != nil {
				mu.Lock()
				failed = append(failed, fmt.Errorf("sync %s: %w", request.ID, err))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

func (s *shift) advance(ctx context.Context, request fleet.SyncRequest) error {
	s.mu.Lock()
	end, known := s.ended[request.ID]
	s.mu.Unlock()
	switch {
	case known && end.state != request.State:
		return s.Rows.UpdateSync(ctx, s.lease.lease(), request.ID, end.state, short(end.message))
	case !known && !s.Stops.Stopped(s.Engine)(request.Tenant):
		return s.startSync(ctx, request)
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
	out, err := s.askSync(ctx, request)
	switch {
	case lost(err) || errors.Is(err, engine.ErrFenced):
		return err
	case err != nil:
		return s.Rows.UpdateSync(ctx, s.lease.lease(), request.ID, fleet.OperationPending, short(err.Error()))
	case out.State == fleet.ApplyApplied:
		return s.Rows.UpdateSync(ctx, s.lease.lease(), request.ID, fleet.OperationRunning, "")
	default:
		return nil
	}
}

func (s *shift) askSync(ctx context.Context, q fleet.SyncRequest) (engine.Outcome, error) {
	if !s.lease.Valid() {
		return engine.Outcome{}, ErrLeaseLost
	}
	ctx, end := s.lease.writing(ctx)
	defer end()
	out, err := s.target.Sync(ctx, engine.SyncRequest{Key: q.Key, Tenant: q.Tenant, ID: q.ID, Revision: q.Revision, Prune: q.Prune}, s.lease.lease())
	return out, s.refusal(err)
}

// mirrorStops keeps the stops on the engine as well, so that they outlive the database. What it could not write is tried again.
func (s *shift) mirrorStops(ctx context.Context) error {
	if s.mirrored {
		return nil
	}
	there, err := s.target.ReadStops(ctx)
	if err == nil {
		err = s.writeStops(ctx, s.Stops.On(s.Engine), there)
	}
	if err != nil {
		return fmt.Errorf("mirror the emergency stops to engine %s; until then they hold by the database alone: %w", s.Engine, err)
	}
	s.mirrored = true
	return nil
}

// writeStops clears only what surely has ended: see StopBoard.over.
func (s *shift) writeStops(ctx context.Context, wanted, there []fleet.Stop) error {
	ctx, end := s.lease.writing(ctx)
	defer end()
	known := map[stopPlace]bool{}
	for _, stop := range there {
		known[placeOf(stop)] = true
	}
	for _, stop := range wanted {
		if !known[placeOf(stop)] {
			if !s.lease.Valid() {
				return ErrLeaseLost
			}
			if err := s.target.SetStop(ctx, stop); err != nil {
				return err
			}
		}
		delete(known, placeOf(stop))
	}
	for at := range known {
		if !s.Stops.over(at) {
			s.Log.Warn("the engine remembers an emergency stop that the database does not know; it is left there", "engine", s.Engine, "scope", at.scope, "name", at.name)
			continue
		}
		if !s.lease.Valid() {
			return ErrLeaseLost
		}
		if err := s.target.ClearStop(ctx, at.scope, at.name); err != nil {
			return err
		}
	}
	return nil
}
