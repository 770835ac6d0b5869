package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/lease"
)

func (s *session) work(ctx context.Context) error {
	for {
		t, ok := s.queue.take(ctx)
		if !ok {
			return nil
		}
		retry, err := s.handleSafely(ctx, t)
		s.queue.done(t, retry)
		if err != nil {
			return err
		}
	}
}

// handleSafely is handle with a recover: if our own code panics on a row, that object fails, and
// the process and all other objects go on.
func (s *session) handleSafely(ctx context.Context, t *task) (retry time.Duration, err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		key := t.row.Key
		s.Log.Error("handling an object panicked; report this as a bug", "engine", s.Engine,
			"kind", key.Kind, "name", key.Name, "panic", r, "stack", string(debug.Stack()))
		t.attempts++
		s.acks.Add(mirror.Ack{Key: key, Seq: t.row.Seq, Hash: t.row.Manifest.Hash,
			State: mirror.ApplyFailed,
			Message: "a fault of Argosy: its code panicked on this object; the log of the " +
				"control plane has the trace"})
		retry, err = pacing.Backoff(t.attempts), nil
	}()
	return s.handle(ctx, t)
}

// handle brings one row to the engine and returns the pause before the next attempt; 0: none. It
// returns an error only if the right to act is lost: any other error concerns this object alone.
func (s *session) handle(ctx context.Context, t *task) (time.Duration, error) {
	row := t.row
	if s.Stops.Stopped(s.Engine)(row.Tenant) {
		return pacing.LastRetry, nil // a change of the stops hastens it
	}
	if !s.mayApply(row) {
		return pacing.LastRetry, nil // the confirmation of the rows hastens it
	}
	if s.Evacuated && !row.Unwanted {
		s.acks.Add(mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash,
			State: mirror.ApplyPending, Message: "engine " + string(s.Engine) + " is evacuated, " +
				"and Argosy applies nothing there: see argosy describe engine " + string(s.Engine)})
		return pacing.LastRetry, nil
	}
	if row.Moving {
		if moves, pause, err := s.move(ctx, t); moves {
			return pause, err
		}
	}
	return s.handleRow(ctx, t)
}

// handleRow is handle for a row whose Application does not move.
func (s *session) handleRow(ctx context.Context, t *task) (time.Duration, error) {
	row := t.row
	if need, ok := s.missingDependency(row); !ok {
		return s.waitFor(t, need), nil
	}
	t.waiting = false
	if before, waits := s.waveBefore(row); waits {
		if pause := s.waitForWave(t, before); pause > 0 {
			t.waiting = true
			return pause, nil
		}
	}
	if pause, waits := s.waitElsewhere(ctx, t); waits {
		return pause, nil
	}
	started := time.Now()
	ack, retry, err := s.write(ctx, row)
	s.Metrics.handled(s.Engine, row, started, err)
	switch {
	case err == nil:
		t.attempts, t.waits = 0, 0
	case lease.Lost(err) || errors.Is(err, engine.ErrFenced) && !s.forged(row.Key):
		return 0, err
	case errors.Is(err, engine.ErrStopped):
		return pacing.LastRetry, nil
	case errors.Is(err, engine.ErrInUse):
		return s.waitUnused(t, err), nil
	case ctx.Err() != nil:
		return 0, nil // cancelled with the session; the next session tries again
	case errors.Is(err, errRowUnread): // a failure of the store, not of the object
		t.attempts++
		return pacing.Backoff(t.attempts), nil
	default:
		t.attempts++
		retry = pacing.Backoff(t.attempts)
		ack = mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash,
			State: mirror.ApplyFailed, Message: short(err.Error())}
	}
	if ack.State != "" {
		s.acks.Add(ack)
	}
	return retry, nil
}

// missingDependency names the object of the same engine that the row depends on, and reports
// whether the engine has it.
func (s *session) missingDependency(row mirror.Row) (fleet.ObjectKey, bool) {
	if row.Unwanted && row.Key.Kind == fleet.ObjectProject {
		return s.projectMember(row.Tenant)
	}
	if row.Unwanted || row.Key.Kind != fleet.ObjectApplication {
		return fleet.ObjectKey{}, true
	}
	needs := []fleet.ObjectKey{
		{Engine: s.Engine, Kind: fleet.ObjectProject, Name: fleet.ProjectName(row.Tenant)}}
	if !s.Engine.OfEnvironment() { // Argo CD knows its own cluster without a Secret
		id := fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment}
		needs = append(needs, fleet.ObjectKey{Engine: s.Engine, Kind: fleet.ObjectCluster,
			Name: fleet.ClusterName(id)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range needs {
		if !s.present[key] {
			return key, false
		}
	}
	return fleet.ObjectKey{}, true
}

// projectMember names an object of the tenant that the engine still has: the tenant's AppProject is
// deleted last. It walks all objects of the engine, but only when a tenant leaves the engine.
func (s *session) projectMember(tenant fleet.TenantName) (fleet.ObjectKey, bool) {
	for _, live := range s.target.Inventory() {
		if live.Tenant == tenant && live.Key.Kind != fleet.ObjectProject {
			return live.Key, false
		}
	}
	return fleet.ObjectKey{}, true
}

// waitFor returns a short pause. After several pauses it reports the dependency in the row's
// status.
func (s *session) waitFor(t *task, need fleet.ObjectKey) time.Duration {
	t.waits++
	if t.waits == reportedWaits {
		ack := mirror.Ack{Key: t.row.Key, Seq: t.row.Seq, Hash: t.row.Manifest.Hash,
			State:   mirror.ApplyPending,
			Message: fmt.Sprintf("waits for %s %s on engine %s", need.Kind, need.Name, s.Engine)}
		if t.row.Unwanted {
			ack.State = mirror.ApplyDeleting
			ack.Message = fmt.Sprintf("waits until %s %s is gone from engine %s", need.Kind,
				need.Name, s.Engine)
		}
		s.acks.Add(ack)
	}
	return pauseOf(t)
}

// waitUnused returns a short pause of a deletion whose object is still in use. After several pauses
// it reports the users, and again when they change, at most once per usersReport: each of a
// tenant's many Applications that goes changes them.
func (s *session) waitUnused(t *task, inUse error) time.Duration {
	t.waits++
	if reason := inUse.Error(); t.waits >= reportedWaits && reason != t.reason &&
		time.Since(t.reported) >= usersReport {
		t.reason, t.reported = reason, time.Now()
		s.Log.Info("a deletion waits", "engine", s.Engine, "reason", reason)
		s.acks.Add(mirror.Ack{Key: t.row.Key, Seq: t.row.Seq, Hash: t.row.Manifest.Hash,
			State: mirror.ApplyDeleting, Message: short(reason)})
	}
	return pauseOf(t)
}

func (s *session) write(ctx context.Context, row mirror.Row) (mirror.Ack, time.Duration, error) {
	var secret fleet.Secret
	if row.Credential != nil && row.Credential.Name != "" && !row.Unwanted {
		var err error
		if secret, err = s.Secrets.Get(ctx, *row.Credential); err != nil {
			return mirror.Ack{}, 0, err
		}
	}
	if !s.lease.Valid() { // reading a secret may take long
		return mirror.Ack{}, 0, lease.ErrLost
	}
	ctx, end := s.lease.Writing(ctx)
	defer end()
	if row.Unwanted {
		return s.remove(ctx, row)
	}
	out, err := s.target.Apply(ctx, row, secret, s.lease.Lease())
	if err != nil {
		return mirror.Ack{}, 0, s.refusal(err)
	}
	if out.Changed {
		s.parking.changed(row)
	}
	if out.Renew > 0 {
		s.renewals.set(row.Key, time.Now().Add(out.Renew))
		s.Metrics.token(s.Engine, out)
	}
	// nothing may depend on an object that is terminating
	s.setPresent(row.Key, out.State != mirror.ApplyPending)
	return mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash, State: out.State,
		Message: short(out.Message)}, out.RetryAfter, nil
}

// readAgain returns the mirror's row under the lease, and whether it is the queued one. A row that
// replaces it is queued. errOtherDatabase when it is of another database.
func (s *session) readAgain(ctx context.Context, row mirror.Row) (now mirror.Row, current bool,
	err error) {
	now, there, err := s.Rows.LeasedRow(ctx, s.lease.Lease(), row.Key)
	switch {
	case err != nil || !there:
		return now, false, err
	case s.checkLife(now.Life) != nil:
		return now, false, errOtherDatabase
	case now.Seq != row.Seq:
		s.queue.put(now)
		return now, false, nil
	}
	return now, true, nil
}

// remove reads the row again before it deletes the object: the queued row may be older than a stop
// or an outage, and a deletion that was reverted in the meantime must not happen.
func (s *session) remove(ctx context.Context, row mirror.Row) (mirror.Ack, time.Duration, error) {
	now, current, err := s.readAgain(ctx, row)
	switch {
	case errors.Is(err, errOtherDatabase):
		return mirror.Ack{}, 0, err
	case err != nil:
		return mirror.Ack{}, 0, fmt.Errorf("%w: %w", errRowUnread, err)
	case !current:
		return mirror.Ack{}, 0, nil
	case !now.Unwanted || now.Moving:
		s.queue.put(now)
		return mirror.Ack{}, 0, nil
	}
	s.setPresent(row.Key, false)
	if s.Evacuated && row.Deletion == fleet.DeletionDelete {
		row.Deletion = fleet.DeletionOrphan // another engine may have the workload now
	}
	done, err := s.target.Delete(ctx, row, s.lease.Lease())
	if err != nil {
		return mirror.Ack{}, 0, s.refusal(err)
	}
	if done {
		return mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash,
			State: mirror.ApplyDeleting, Removed: true}, 0, nil
	}
	// The watch reports the end of the deletion. This pause covers a lost event.
	again := removeWait
	if live, ok := s.target.Live(row.Key); ok && live.Parked {
		again = parkedWait
	}
	return mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash,
		State: mirror.ApplyDeleting}, again, nil
}

func (s *session) setPresent(key fleet.ObjectKey, there bool) {
	if key.Kind == fleet.ObjectApplication {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if there {
		s.present[key] = true
	} else {
		delete(s.present, key)
	}
}

// pauseOf is the pause of a task that waits for another object. It grows, because a deletion may
// take an hour.
func pauseOf(t *task) time.Duration {
	return min(dependencyWait*time.Duration(t.waits), 10*time.Second)
}

// errRowUnread means that the row could not be read right before the deletion of its object.
var errRowUnread = errors.New("the deletion waits until its row can be read")
