package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/lease"
)

// syncEnd is what an engine said of one sync.
type syncEnd struct {
	state   mirror.OperationState
	message string
}

// observedSync remembers what an engine says of a sync that we asked for.
func (s *session) observedSync(o mirror.Observation) {
	if o.OperationID == "" {
		return
	}
	end := syncEnd{state: mirror.OperationRunning}
	switch o.OperationPhase {
	case "Succeeded":
		end.state = mirror.OperationSucceeded
	case "Failed", "Error":
		end = syncEnd{mirror.OperationFailed, o.OperationError}
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

// startSyncs asks the engine for the syncs that wait, and records those that have ended. One that
// fails keeps no other waiting.
func (s *session) startSyncs(ctx context.Context) error {
	if !s.confirmed.Load() {
		return nil // they may have been asked for, and done, before
	}
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

func (s *session) advance(ctx context.Context, request mirror.SyncRequest) error {
	s.mu.Lock()
	end, known := s.ended[request.ID]
	s.mu.Unlock()
	switch {
	case known && end.state != request.State:
		return s.Rows.UpdateSync(ctx, s.lease.Lease(), request.ID, end.state, short(end.message))
	case !known && !s.Stops.Stopped(s.Engine)(request.Tenant):
		return s.startSync(ctx, request)
	}
	return nil
}

// startSync waits, by coming again, until the Application stands on the engine as the mirror wants
// it: its hold must be in force first.
func (s *session) startSync(ctx context.Context, request mirror.SyncRequest) error {
	row, ok, err := s.Rows.Row(ctx, request.Key)
	if err != nil {
		return err
	}
	if !ok || row.Unwanted {
		return s.Rows.UpdateSync(ctx, s.lease.Lease(), request.ID, mirror.OperationFailed,
			"the Application was removed before the sync began")
	}
	live, ok := s.target.Live(request.Key)
	if !ok || live.Hash != row.Manifest.Hash || live.Operating {
		return nil
	}
	out, err := s.askSync(ctx, request)
	switch {
	case lease.Lost(err) || errors.Is(err, engine.ErrFenced):
		return err
	case err != nil:
		return s.Rows.UpdateSync(ctx, s.lease.Lease(), request.ID, mirror.OperationPending,
			short(err.Error()))
	case live.Parked:
		s.parked.ask(fleet.EnvironmentID{Tenant: live.Tenant, Name: live.Environment})
		return s.Rows.UpdateSync(ctx, s.lease.Lease(), request.ID, mirror.OperationPending,
			short(out.Message))
	case out.State == mirror.ApplyApplied:
		return s.Rows.UpdateSync(ctx, s.lease.Lease(), request.ID, mirror.OperationRunning, "")
	default:
		return nil
	}
}

func (s *session) askSync(ctx context.Context, q mirror.SyncRequest) (engine.Outcome, error) {
	if !s.lease.Valid() {
		return engine.Outcome{}, lease.ErrLost
	}
	ctx, end := s.lease.Writing(ctx)
	defer end()
	out, err := s.target.Sync(ctx, engine.SyncRequest{Key: q.Key, Tenant: q.Tenant, ID: q.ID,
		Revision: q.Revision, Prune: q.Prune}, s.lease.Lease())
	return out, s.refusal(err)
}

// mirrorStops keeps the stops on the engine as well, so that they outlive the database, and takes
// those that the engine remembers and the database has lost. What it could not do is tried again.
func (s *session) mirrorStops(ctx context.Context) error {
	if s.mirrored {
		return nil
	}
	there, err := s.remember(ctx)
	if err == nil {
		err = s.writeStops(ctx, s.Stops.On(s.Engine), there)
	}
	if err != nil {
		return fmt.Errorf(
			"mirror the emergency stops to engine %s; until then they hold by the database "+
				"alone: %w", s.Engine, err)
	}
	s.mirrored = true
	return nil
}

// remember reads the stops that the engine remembers, and puts those on the board that are not
// known to have ended.
func (s *session) remember(ctx context.Context) ([]mirror.Stop, error) {
	there, err := s.target.ReadStops(ctx)
	if err == nil {
		s.Stops.remembered(s.Engine, there)
	}
	return there, err
}

// awaitMarkers waits until the stops that the engine remembers were read: the database may be older
// than they are.
func (s *session) awaitMarkers(ctx context.Context) error {
	for {
		_, err := s.remember(ctx)
		if err == nil {
			return nil
		}
		if !s.bearable(ctx, err) {
			return err
		}
		s.healthy = false
		s.report(ctx, s.lease, mirror.EngineReport{
			Engine: s.Engine,
			Message: "nothing is written until the emergency stops that the engine remembers " +
				"can be read: " + err.Error()})
		if !pacing.Sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// writeStops writes the stops in force that the engine does not have, or only an older one of their
// place, and clears those that have ended.
func (s *session) writeStops(ctx context.Context, wanted, there []mirror.Stop) error {
	ctx, end := s.lease.Writing(ctx)
	defer end()
	known := map[stopPlace]mirror.Stop{}
	for _, stop := range there {
		if !stop.At.IsZero() { // a note that cannot be read is a person's to remove
			known[placeOf(stop)] = stop
		}
	}
	for _, stop := range wanted {
		if marked, ok := known[placeOf(stop)]; !ok || marked.At.Before(stop.At) {
			if !s.lease.Valid() {
				return lease.ErrLost
			}
			if err := s.target.SetStop(ctx, stop); err != nil {
				return err
			}
		}
		delete(known, placeOf(stop))
	}
	for at, stop := range known {
		if !s.Stops.over(stop) {
			continue
		}
		if !s.lease.Valid() {
			return lease.ErrLost
		}
		if err := s.target.ClearStop(ctx, at.scope, at.name); err != nil {
			return err
		}
	}
	return nil
}
