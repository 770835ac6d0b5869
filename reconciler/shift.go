package reconciler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// shift is one worker's work under one lease on one connection.
type shift struct {
	*Worker
	lease  *heldLease
	target engine.Engine
	queue  *queue
	acks   *batch[fleet.Ack]
	seen   *batch[fleet.Observation]
	cursor int64

	mu      sync.Mutex
	settled map[fleet.ObjectKey]bool // objects that others wait for and that the engine surely has
	ended   map[string]syncEnd       // by request id: what the engine said of syncs
}

// run follows the engine, verifies it once, and then does what changed until the lease or the engine is lost.
func (s *shift) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	guarded := func(f func(context.Context) error) {
		all.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	guarded(func(ctx context.Context) error { return s.target.Watch(ctx, s.sink(ctx)) })
	guarded(s.acks.run)
	guarded(s.seen.run)
	if err := s.awaitSynced(ctx); err != nil {
		return err
	}
	if err := s.raiseEpoch(ctx); err != nil {
		return err
	}
	if err := s.verify(ctx); err != nil {
		return err
	}
	s.mirrorStops(ctx)
	for range s.Flight {
		guarded(s.work)
	}
	err := s.follow(ctx)
	cancel(err)
	return context.Cause(ctx)
}

func (s *shift) awaitSynced(ctx context.Context) error {
	for !s.target.Synced() {
		if err := s.target.Health(); err != nil {
			s.report(ctx, s.lease, fleet.EngineReport{Engine: s.Engine, Message: err.Error()})
			if !wait(ctx, 2*time.Second) {
				return context.Cause(ctx)
			}
			continue
		}
		if !wait(ctx, 20*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// raiseEpoch puts our epoch above every one that the engine shows.
func (s *shift) raiseEpoch(ctx context.Context) error {
	var highest int64
	for _, live := range s.target.Inventory() {
		highest = max(highest, live.Epoch)
	}
	if err := s.lease.raise(ctx, s.Leases, highest); err != nil {
		return fmt.Errorf("raise the epoch of engine %s: %w", s.Engine, err)
	}
	return nil
}

// sink takes what the engine shows: observations to the store, objects that need a look to the queue.
func (s *shift) sink(ctx context.Context) engine.Sink {
	return engine.Sink{
		Observe: func(seen []fleet.Observation) {
			for _, o := range seen {
				s.seen.add(o)
				s.observedSync(o)
			}
		},
		Wake: func(keys []fleet.ObjectKey) {
			for _, key := range keys {
				s.look(ctx, key)
			}
		},
	}
}

// look puts an object's row as it stands now.
func (s *shift) look(ctx context.Context, key fleet.ObjectKey) {
	row, ok, err := s.Rows.Row(ctx, key)
	switch {
	case err != nil && ctx.Err() == nil:
		s.Log.Warn("row is not read; the next verifying pass looks again", "engine", s.Engine, "object", key.Name, "error", err)
	case ok:
		s.queue.put(row)
	}
}

// verify holds every row against what the engine shows, and puts those that differ. It is the cold start and the hourly pass: the one
// walk over everything that a worker makes.
func (s *shift) verify(ctx context.Context) error {
	started := time.Now()
	rows, differ := 0, 0
	err := s.Rows.Rows(ctx, s.Engine, func(row fleet.Row) error {
		rows++
		s.cursor = max(s.cursor, row.Seq)
		if !s.stands(row) {
			differ++
			s.queue.put(row)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("verify engine %s: %w", s.Engine, err)
	}
	s.Log.Info("engine verified", "engine", s.Engine, "rows", rows, "differ", differ, "took", time.Since(started).Round(time.Millisecond))
	return nil
}

// stands reports whether the engine surely has the row already. A row with a credential is asked of the engine in full: only Apply knows
// the secret's fingerprint.
func (s *shift) stands(row fleet.Row) bool {
	live, ok := s.target.Live(row.Key)
	if row.Absent || !ok || !live.Ours || live.Drifted || live.Deleting || live.Hash != row.Manifest.Hash {
		return false
	}
	s.settle(row.Key, true)
	if row.Apply != fleet.ApplyApplied {
		s.acks.add(fleet.Ack{Key: row.Key, Seq: row.Seq, State: fleet.ApplyApplied})
	}
	return row.Credential == nil
}

// follow reads rows after the cursor whenever something says "look", and at least every Poll.
func (s *shift) follow(ctx context.Context) error {
	poll, verify, report := time.NewTicker(s.Poll), time.NewTicker(verifyEvery), time.NewTicker(reportEvery)
	defer poll.Stop()
	defer verify.Stop()
	defer report.Stop()
	stops := s.Stops.Changed()
	for {
		if err := s.catchUp(ctx); err != nil {
			return err
		}
		if err := s.startSyncs(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.wake:
		case <-poll.C:
		case <-stops:
			stops = s.Stops.Changed()
			s.mirrorStops(ctx)
			s.queue.hasten()
		case c := <-s.rotated:
			if err := s.reapply(ctx, c); err != nil {
				return err
			}
		case <-verify.C:
			if err := s.verify(ctx); err != nil {
				return err
			}
		case <-report.C:
			s.examine(ctx)
		}
	}
}

// examine holds the connection against the engine again, so that a change of its settings or a loss of its watch shows.
func (s *shift) examine(ctx context.Context) {
	err := s.target.Health()
	if err == nil {
		err = s.preflight(ctx, s.lease, s.target)
	}
	if err != nil {
		s.report(ctx, s.lease, fleet.EngineReport{Engine: s.Engine, Message: err.Error()})
	}
}

func (s *shift) catchUp(ctx context.Context) error {
	for {
		rows, err := s.Rows.Changed(ctx, s.Engine, s.cursor, readBatch)
		if err != nil {
			return fmt.Errorf("read rows of engine %s: %w", s.Engine, err)
		}
		for _, row := range rows {
			s.cursor = row.Seq
			s.queue.put(row)
		}
		s.Metrics.queued(s.Engine, s.queue.size())
		if len(rows) < readBatch {
			return nil
		}
	}
}

func (s *shift) reapply(ctx context.Context, c credential) error {
	rows, err := s.Rows.CredentialRows(ctx, s.Engine, c.tenant, c.name)
	if err != nil {
		return fmt.Errorf("read rows of engine %s: %w", s.Engine, err)
	}
	for _, row := range rows {
		s.queue.put(row)
	}
	return nil
}

// work takes tasks until ctx ends.
func (s *shift) work(ctx context.Context) error {
	for {
		t, ok := s.queue.take(ctx)
		if !ok {
			return nil
		}
		if !s.lease.Valid() {
			return ErrLeaseLost
		}
		retry, err := s.handle(ctx, t)
		s.queue.done(t, retry)
		if errors.Is(err, engine.ErrFenced) {
			return err
		}
	}
}

// handle brings one row to the engine and says after what time it is to be tried again; 0 for never. Only a fencing error is returned:
// everything else is that object's own affair.
func (s *shift) handle(ctx context.Context, t *task) (time.Duration, error) {
	row := t.row
	if s.Stops.Stopped(s.Engine)(row.Tenant) {
		return lastRetry, nil // hastened when stops change
	}
	if need, ok := s.missing(row); !ok {
		return s.waitFor(t, need), nil
	}
	started := time.Now()
	ack, retry, err := s.act(ctx, row)
	s.Metrics.handled(s.Engine, row, started, err)
	switch {
	case err == nil:
		t.attempts = 0
	case ctx.Err() != nil || errors.Is(err, engine.ErrFenced):
		return 0, err
	case errors.Is(err, engine.ErrStopped):
		return lastRetry, nil
	case errors.Is(err, engine.ErrInUse):
		return settleWait, nil
	default:
		t.attempts++
		retry = backoff(t.attempts)
		ack = fleet.Ack{Key: row.Key, Seq: row.Seq, State: fleet.ApplyFailed, Message: short(err.Error())}
	}
	if ack.State != "" {
		s.acks.add(ack)
	}
	return retry, nil
}

// missing names the object of the same engine that the row needs first, and reports whether it has it.
func (s *shift) missing(row fleet.Row) (fleet.ObjectKey, bool) {
	if row.Absent || row.Key.Kind != fleet.ObjectApplication {
		return fleet.ObjectKey{}, true
	}
	needs := []fleet.ObjectKey{
		{Engine: s.Engine, Kind: fleet.ObjectProject, Name: fleet.ProjectName(row.Tenant)},
		{Engine: s.Engine, Kind: fleet.ObjectCluster, Name: fleet.ClusterName(fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment})},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range needs {
		if !s.settled[key] {
			return key, false
		}
	}
	return fleet.ObjectKey{}, true
}

// waitFor says so in the row's state after a while, and looks again soon.
func (s *shift) waitFor(t *task, need fleet.ObjectKey) time.Duration {
	t.attempts++
	if t.attempts == 8 {
		s.acks.add(fleet.Ack{Key: t.row.Key, Seq: t.row.Seq, State: fleet.ApplyPending,
			Message: fmt.Sprintf("waits for %s %s on engine %s", need.Kind, need.Name, s.Engine)})
	}
	return min(settleWait*time.Duration(t.attempts), 10*time.Second)
}

func (s *shift) act(ctx context.Context, row fleet.Row) (fleet.Ack, time.Duration, error) {
	if row.Absent {
		return s.remove(ctx, row)
	}
	var secret fleet.Secret
	if row.Credential != nil {
		var err error
		if secret, err = s.Secrets.Get(ctx, *row.Credential); err != nil {
			return fleet.Ack{}, 0, err
		}
	}
	out, err := s.target.Apply(ctx, row, secret, s.lease.lease())
	if err != nil {
		return fleet.Ack{}, 0, err
	}
	s.settle(row.Key, true)
	return fleet.Ack{Key: row.Key, Seq: row.Seq, State: out.State, Message: short(out.Message)}, out.RetryAfter, nil
}

func (s *shift) remove(ctx context.Context, row fleet.Row) (fleet.Ack, time.Duration, error) {
	s.settle(row.Key, false)
	done, err := s.target.Delete(ctx, row, s.lease.lease())
	if err != nil {
		return fleet.Ack{}, 0, err
	}
	if done {
		return fleet.Ack{Key: row.Key, Seq: row.Seq, State: fleet.ApplyDeleting, Removed: true}, 0, nil
	}
	// The watch tells when the object has gone; this is for the case that it does not.
	return fleet.Ack{Key: row.Key, Seq: row.Seq, State: fleet.ApplyDeleting}, removeWait, nil
}

func (s *shift) settle(key fleet.ObjectKey, there bool) {
	if key.Kind == fleet.ObjectApplication {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if there {
		s.settled[key] = true
	} else {
		delete(s.settled, key)
	}
}
