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
	"argosy.dev/argosy/reconciler/lease"
)

const (
	moveWait = 500 * time.Millisecond // shortest pause before a step of a move is tried again
	moveMost = 15 * time.Second       // longest, for an engine that does not answer

	// attempts at Compare that follow each change of the Application's status. Each further one
	// waits for its pause: it requests a comparison, which ends with another change of the status,
	// and while a cluster is unreachable it would follow the other at once.
	promptCompares = 6

	// between two attempts to adopt an Application, in which the old engine serves it
	returnWait = 5 * time.Minute
)

// move carries out the next step of a row's moving Application, if it is this engine's, and returns
// the pause before the next attempt. It returns false if the Application does not move any more.
func (s *session) move(ctx context.Context, t *task) (moves bool, pause time.Duration, err error) {
	row := t.row
	store, ok := s.Rows.(Moves)
	if !ok || !s.confirmed.Load() {
		return true, pacing.LastRetry, nil // the confirmation of the rows hastens it
	}
	m, moving, err := store.ApplicationMove(ctx, s.lease.Lease(), row.Application())
	switch {
	case errors.Is(err, mirror.ErrFenced):
		return true, 0, err
	case err != nil:
		t.attempts++
		return true, pacing.Backoff(t.attempts), nil
	case !moving, m.Undo && m.From == s.Engine && m.At() != "":
		return s.moved(ctx, t)
	case m.Departure.Evacuated && m.From == s.Engine:
		err := s.freezeRow(ctx, row)
		if fences, ok := s.Rows.(Fences); ok && err == nil && !m.Departure.Frozen {
			err = fences.FreezeMove(ctx, s.lease.Lease(), m)
		}
		if lease.Lost(err) || errors.Is(err, mirror.ErrFenced) {
			return true, 0, err
		}
		s.acks.Add(s.moveAck(row, waiting(m)))
		t.waits++
		return true, min(moveWait*time.Duration(t.waits), moveMost), nil
	case m.At() != s.Engine:
		s.acks.Add(s.moveAck(row, waiting(m)))
		t.waits++
		return true, min(moveWait*time.Duration(t.waits), moveMost), nil
	}
	if pause := time.Until(t.compareAt); m.Step == mirror.MoveCompare && pause > 0 {
		return true, pause, nil
	}
	err = s.takeStep(ctx, store, m, t)
	switch {
	case lease.Lost(err) || errors.Is(err, engine.ErrFenced) && !s.forged(row.Key):
		return true, 0, err
	case ctx.Err() != nil:
		return true, 0, nil
	case errors.Is(err, engine.ErrStopped):
		return true, pacing.LastRetry, nil
	case err != nil:
		t.attempts++
		if why := short(err.Error()); why != m.Message {
			m.Message = why
			if err := store.DelayMove(ctx, s.lease.Lease(), m, why); lease.Lost(err) {
				return true, 0, err
			}
		}
		s.acks.Add(s.moveAck(row, waiting(m)))
		pause = min(moveWait*time.Duration(t.attempts), moveMost)
		if t.attempts > promptCompares {
			t.compareAt = time.Now().Add(pause)
		}
		return true, pause, nil
	}
	t.attempts, t.waits, t.calls, t.compareAt = 0, 0, 0, time.Time{}
	if m.Step == mirror.MoveDelete {
		s.deletions.Trigger()
		return true, 0, nil
	}
	return true, moveWait, nil // the notification of the next step hastens it
}

// moved reports whether a row still moves whose move has ended. A row from before that end may no
// longer be wanted: to apply it would give the Application a second owner.
func (s *session) moved(ctx context.Context, t *task) (moves bool, pause time.Duration, err error) {
	now, current, err := s.readAgain(ctx, t.row)
	switch {
	case errors.Is(err, mirror.ErrFenced) || errors.Is(err, errOtherDatabase):
		return true, 0, err
	case err != nil:
		t.attempts++
		return true, pacing.Backoff(t.attempts), nil
	case !current:
		return true, 0, nil
	case now.Moving: // another move has begun
		return true, moveWait, nil
	}
	return false, 0, nil
}

// waiting states the step that a moving Application waits for, and why.
func waiting(m mirror.ApplicationMove) string {
	text := fmt.Sprintf("step %s of its move from engine %s to %s", m.Step, m.From, m.To)
	if m.Message == "" {
		return text + " is next"
	}
	return text + " waits: " + m.Message
}

func (s *session) moveAck(row mirror.Row, message string) mirror.Ack {
	ack := mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash,
		State: mirror.ApplyPending, Message: short(message)}
	if row.Unwanted {
		ack.State = mirror.ApplyDeleting
	}
	return ack
}

// takeStep carries out one step and records its end.
func (s *session) takeStep(ctx context.Context, store Moves, m mirror.ApplicationMove,
	t *task) error {
	if !s.lease.Valid() {
		return lease.ErrLost
	}
	counted, calls := engine.CountCalls(ctx)
	writing, end := s.lease.Writing(counted)
	defer end()
	next, err := s.carryOut(writing, &m, t.row)
	t.calls += int(calls.Load())
	if err != nil {
		return s.refusal(err)
	}
	if m.Calls = t.calls; next == "" {
		return store.EndMove(ctx, s.lease.Lease(), m)
	}
	return store.AdvanceMove(ctx, s.lease.Lease(), m, next, t.row)
}

// carryOut carries out the step of a move on the engine and returns the next one; "" after the
// last.
func (s *session) carryOut(ctx context.Context, m *mirror.ApplicationMove, row mirror.Row) (
	next mirror.MoveStep, err error) {
	mover, ok := engine.MoverOf(s.target)
	if !ok {
		return "", fmt.Errorf("%w: engine %s cannot carry out the steps of a move", engine.ErrMove,
			s.Engine)
	}
	if m.Unfenced != "" { // the evacuated engine may sync it again
		return "", fmt.Errorf("%w: %s", engine.ErrMove, m.Unfenced)
	}
	l := s.lease.Lease()
	switch m.Step {
	case mirror.MoveCheck:
		if why := m.Departure.Returns; why != "" && time.Since(m.Since) < returnWait {
			return "", fmt.Errorf("%w: %s; engine %s serves it again, and the move goes on at %s",
				engine.ErrMove, why, m.From, m.Since.Add(returnWait).UTC().Format(time.TimeOnly))
		}
		if m.Departure, err = mover.CheckDeparture(ctx, row); err == nil && m.Departure.UID == "" {
			return mirror.MoveReady, s.mayCreate(ctx, m.To, row) // on the new engine
		}
		return mirror.MoveCompare, err
	case mirror.MoveCompare:
		if need, ok := s.missingDependency(row); !ok {
			return "", fmt.Errorf("%w: %s %s is not on engine %s yet", engine.ErrMove, need.Kind,
				need.Name, s.Engine)
		}
		return mirror.MoveReady, mover.Compare(ctx, row, m.Departure, l)
	case mirror.MoveFreeze:
		switch {
		case m.Departure.UID == "" && m.Unadopted > 0: // an undo is possible until Delete
			return "", fmt.Errorf("%w: engine %s adopts the other Applications first",
				engine.ErrMove, m.To)
		case m.Departure.UID == "":
			return mirror.MoveDelete, nil
		case m.Departure.Returns != "":
			return mirror.MoveCheck, s.serveAgain(ctx, mover, m, row)
		}
		err := mover.Freeze(ctx, row, m.Departure, l)
		switch {
		case errors.Is(err, engine.ErrMoveGone): // also after a step that an older database lacks
			return mirror.MoveAdopt, nil
		case errors.Is(err, engine.ErrMoveStale):
			_, err = s.target.Apply(ctx, row, fleet.Secret{}, l) // undoes the attempt
			return mirror.MoveCheck, err
		}
		return mirror.MoveAdopt, err
	case mirror.MoveAdopt:
		err := mover.Adopt(ctx, row, m.Departure, l)
		if errors.Is(err, engine.ErrMoveDiffers) {
			m.Departure.Returns = short(err.Error())
			return mirror.MoveFreeze, nil
		}
		return mirror.MoveDelete, err
	case mirror.MoveReturn:
		if need, ok := s.missingDependency(row); m.Departure.Evacuated && !ok {
			return "", fmt.Errorf("%w: %s %s is not on engine %s yet", engine.ErrMove, need.Kind,
				need.Name, s.Engine)
		}
		return mirror.MoveEnable, mover.Return(ctx, row, m.Departure, l)
	case mirror.MoveDelete:
		row.Deletion, row.UID = fleet.DeletionOrphan, m.Departure.UID
		done, err := s.target.Delete(ctx, row, l)
		switch {
		case err == nil && !done:
			err = fmt.Errorf("%w: engine %s is deleting it", engine.ErrMove, s.Engine)
		case err == nil: // the deletion of this UID does not prove that no other object exists
			err = mover.CheckDeparted(ctx, row)
		}
		return mirror.MoveEnable, err
	case mirror.MoveEnable:
		switch {
		case row.Unwanted: // its declaration was removed meanwhile: its deletion follows
			return "", nil
		case m.Recreated: // after CheckDeparted
			return "", fmt.Errorf("%w: engine %s has the Application again, which would be a second "+
				"owner; argosy get orphans lists it: run argosy remove-orphan with --deletion Orphan",
				engine.ErrMove, m.From)
		}
		out, err := s.target.Apply(ctx, row, fleet.Secret{}, l)
		switch {
		case errors.Is(err, engine.ErrMove) && m.Departure.UID == "":
			// of an earlier attempt: Delete has proven that the old engine has no such Application
			row.Deletion = fleet.DeletionOrphan
			if _, err := s.target.Delete(ctx, row, l); err != nil {
				return "", err
			}
		case err == nil && out.State != mirror.ApplyApplied:
			err = fmt.Errorf("%w: %s", engine.ErrMove, out.Message)
		}
		return "", err
	}
	return "", fmt.Errorf("%w: step %s is unknown; upgrade this replica", engine.ErrMove, m.Step)
}

// serveAgain makes the old engine serve an Application again that the new one could not adopt. It
// marks the resources by itself if it heals them.
func (s *session) serveAgain(ctx context.Context, mover engine.Mover, m *mirror.ApplicationMove,
	row mirror.Row) error {
	if !m.Departure.Heals() {
		if err := mover.Return(ctx, row, m.Departure, s.lease.Lease()); err != nil {
			return err
		}
	}
	out, err := s.target.Apply(ctx, row, fleet.Secret{}, s.lease.Lease())
	if err == nil && out.State != mirror.ApplyApplied {
		err = fmt.Errorf("%w: %s", engine.ErrMove, out.Message)
	}
	return err
}
