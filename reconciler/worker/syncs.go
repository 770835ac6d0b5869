package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/lease"
)

// syncEnd is the engine's status of one sync.
type syncEnd struct {
	state   mirror.OperationState
	message string
}

// syncs starts the syncs that people have requested, and records their results.
type syncs struct {
	*connection
	parking *parking

	mu   sync.Mutex
	seen map[string]syncEnd // by request id: the engine's status of syncs
}

func newSyncs(c *connection, p *parking) *syncs {
	return &syncs{connection: c, parking: p, seen: map[string]syncEnd{}}
}

// run starts and follows requested syncs whenever the worker was woken.
func (s *syncs) run(ctx context.Context, woken <-chan struct{}) error {
	for {
		if err := s.runSteps(ctx, s.start); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-woken:
		}
	}
}

// observe keeps the engine's status of a requested sync.
func (s *syncs) observe(o mirror.Observation) {
	if o.OperationID == "" {
		return
	}
	end := endOf(o)
	s.mu.Lock()
	known := s.seen[o.OperationID]
	s.seen[o.OperationID] = end
	s.mu.Unlock()
	if known.state != end.state {
		s.Wake()
	}
}

// endOf returns how the observed operation has ended; OperationRunning until it has.
func endOf(o mirror.Observation) syncEnd {
	switch o.OperationPhase {
	case "Succeeded":
		return syncEnd{state: mirror.OperationSucceeded}
	case "Failed", "Error":
		return syncEnd{mirror.OperationFailed, o.OperationError}
	}
	return syncEnd{state: mirror.OperationRunning}
}

// syncsAtATime bounds the parallel sync requests to one engine.
const syncsAtATime = 8

// start requests pending syncs from the engine, and records ended ones. A failed request delays no
// other sync.
func (s *syncs) start(ctx context.Context) error {
	if !s.confirmed.Load() {
		return nil // they may have been done before the database went back in time
	}
	pending, err := s.Rows.PendingSyncs(ctx, s.Engine)
	if err != nil {
		return fmt.Errorf("read syncs of engine %s: %w", s.Engine, err)
	}
	return parallel(pending, syncsAtATime, func(request mirror.SyncRequest) error {
		if err := s.advance(ctx, request); err != nil {
			return fmt.Errorf("sync %s: %w", request.ID, err)
		}
		return nil
	})
}

func (s *syncs) advance(ctx context.Context, request mirror.SyncRequest) error {
	s.mu.Lock()
	end, known := s.seen[request.ID]
	s.mu.Unlock()
	switch {
	case known && end.state != request.State:
		return s.Reports.UpdateSync(ctx, s.lease.Lease(), request.ID, end.state, short(end.message))
	case !known && !s.Stops.Stopped(s.Engine)(request.Tenant):
		return s.startSync(ctx, request)
	}
	return nil
}

// startSync requests the sync once the Application on the engine matches its row: the row's hold
// must be in force first. Until then it does nothing, and the next run tries again.
func (s *syncs) startSync(ctx context.Context, request mirror.SyncRequest) error {
	row, ok, err := s.Rows.Row(ctx, request.Key)
	if err != nil {
		return err
	}
	end := func(state mirror.OperationState, message string) error {
		return s.Reports.UpdateSync(ctx, s.lease.Lease(), request.ID, state, message)
	}
	switch {
	case !ok:
		return end(mirror.OperationFailed,
			"the Application was removed, or has moved to another engine, before the sync began")
	case row.Moving && row.Unwanted:
		return end(mirror.OperationFailed, "the Application is moving to another engine; request "+
			"the sync again when the move has ended")
	case row.Unwanted:
		return end(mirror.OperationFailed, "the Application was removed before the sync began")
	case row.Moving:
		return end(mirror.OperationPending, "waits until the move of the Application has ended")
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
		return s.Reports.UpdateSync(ctx, s.lease.Lease(), request.ID, mirror.OperationPending,
			short(err.Error()))
	case live.Parked:
		s.parking.ask(fleet.EnvironmentID{Tenant: live.Tenant, Name: live.Environment})
		return s.Reports.UpdateSync(ctx, s.lease.Lease(), request.ID, mirror.OperationPending,
			short(out.Message))
	case out.State == mirror.ApplyApplied:
		return s.Reports.UpdateSync(ctx, s.lease.Lease(), request.ID, mirror.OperationRunning, "")
	default:
		return nil
	}
}

func (s *syncs) askSync(ctx context.Context, q mirror.SyncRequest) (engine.Outcome, error) {
	if !s.lease.Valid() {
		return engine.Outcome{}, lease.ErrLost
	}
	ctx, end := s.lease.Writing(ctx)
	defer end()
	out, err := s.target.Sync(ctx, engine.SyncRequest{Key: q.Key, Tenant: q.Tenant, ID: q.ID,
		Revision: q.Revision, Prune: q.Prune}, s.lease.Lease())
	return out, s.refusal(err)
}
