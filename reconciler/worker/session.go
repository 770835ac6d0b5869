package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/lease"
)

// session is one worker's work under one lease on one connection.
type session struct {
	*connection
	queue        *queue
	acks         *pacing.Batch[fleet.ObjectKey, mirror.Ack]
	observations *pacing.Batch[fleet.ObjectKey, mirror.Observation]
	deletions    *pacing.Debouncer // notifies the loop that objects are deleted
	parking      *parking
	prober       *prober
	orphans      *orphans
	renewals     *renewals
	syncs        *syncs
	actions      *actions // nil: there are none
	stopMirror   *stopMirror
	wentBack     chan string   // how the engine was seen to go back in time
	woken        pacing.Signal // followRows wakes syncs with it
	acting       pacing.Signal // and actions with it

	cursor    int64 // of the rows that are queued
	need      int64 // the confirmation that the session waits for
	verifyDue bool

	servedOnce sync.Once
	served     map[fleet.EnvironmentID][]fleet.DeploymentName // see serves

	mu      sync.Mutex
	present map[fleet.ObjectKey]bool // objects on the engine that others depend on
}

func newSession(w *Worker, held *lease.Held, target engine.Engine) *session {
	c := &connection{Worker: w, lease: held, target: target, healthy: true}
	w.setWork(mirror.Work{})
	w.setLoad(nil)
	s := &session{connection: c, queue: newQueue(w.Flight / 2),
		woken: pacing.NewSignal(), acting: pacing.NewSignal(), wentBack: make(chan string, 1),
		renewals: newRenewals(), parking: newParking(c, w.Reach),
		prober:     newProber(c, w.Config.Work),
		stopMirror: &stopMirror{connection: c},
		present:    map[fleet.ObjectKey]bool{}}
	s.orphans, s.syncs = newOrphans(c, s.enqueue), newSyncs(c, s.parking)
	s.actions = newActions(c, s.parking)
	s.deletions = pacing.NewDebouncer(deletionPause, w.Log, func(ctx context.Context) error {
		return w.Reports.Notify(ctx, held.Lease().Name)
	})
	s.acks = newBatch(w, func(a mirror.Ack) fleet.ObjectKey { return a.Key }, s.acknowledge)
	s.observations = newBatch(w, func(o mirror.Observation) fleet.ObjectKey { return o.Key },
		func(ctx context.Context, all []mirror.Observation) error {
			return w.Reports.Observe(ctx, held.Lease(), all)
		})
	return s
}

func newBatch[T any](w *Worker, key func(T) fleet.ObjectKey,
	write func(context.Context, []T) error) *pacing.Batch[fleet.ObjectKey, T] {
	return pacing.NewBatch(pacing.BatchConfig[fleet.ObjectKey, T]{Every: flushEvery,
		Size: readBatch, Key: key, Write: write, Fatal: lease.Lost, Log: w.Log})
}

// run watches the engine, verifies it once, and then applies changed rows until the lease or the
// engine is lost. It returns after writes under way are finished and recorded: only then may the
// lease pass to another replica.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	recording, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	var working, recorders sync.WaitGroup
	defer func() {
		cancel(nil)
		working.Wait()
		stopRecording()
		recorders.Wait()
	}()
	begin := func(all *sync.WaitGroup, ctx context.Context, f func(context.Context) error) {
		all.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	begin(&recorders, recording, s.acks.Run)
	begin(&recorders, recording, s.observations.Run)
	begin(&working, ctx, s.deletions.Run)
	begin(&working, ctx, func(ctx context.Context) error { return s.target.Watch(ctx, s.sink()) })
	begin(&working, ctx, fencer{s.connection}.run)
	begin(&working, ctx, (&installer{connection: s.connection}).run)
	begin(&working, ctx, (&shadower{connection: s.connection}).run)
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.startedWriting(s.lease)
	for range s.Flight {
		begin(&working, ctx, s.work)
	}
	begin(&working, ctx, s.maintain)
	if !s.Evacuated {
		begin(&working, ctx, func(ctx context.Context) error {
			return s.syncs.run(ctx, s.woken)
		})
		if s.actions != nil {
			begin(&working, ctx, func(ctx context.Context) error {
				return s.actions.run(ctx, s.acting)
			})
		}
		begin(&working, ctx, s.parking.run)
		begin(&working, ctx, s.prober.run)
		begin(&working, ctx, newMeasurer(s.connection).run)
	}
	return s.followRows(ctx)
}

// acknowledge records results. It notifies the loop of completed deletions, because the loop defers
// changes until then.
func (s *session) acknowledge(ctx context.Context, acks []mirror.Ack) error {
	err := s.Reports.Acknowledge(ctx, s.lease.Lease(), acks)
	if err == nil && slices.ContainsFunc(acks, func(a mirror.Ack) bool { return a.Removed }) {
		s.deletions.Trigger()
	}
	return err
}

// prepare precedes the first write: the engine was listed, our epoch is above every epoch that the
// engine shows, the stops in force and the stops on the engine are known, and every row was
// compared with the engine.
func (s *session) prepare(ctx context.Context) error {
	if err := s.awaitSynced(ctx); err != nil {
		return err
	}
	if err := s.raiseEpoch(ctx); err != nil {
		return err
	}
	if err := s.stopMirror.await(ctx); err != nil {
		return err
	}
	if err := s.requestConfirmation(ctx); err != nil {
		return err
	}
	if err := s.Stops.refreshed(ctx); err != nil {
		return err
	}
	if err := s.freezeAway(ctx); err != nil {
		return err
	}
	s.takeRotated() // verify compares every credential
	for {
		seq, err := s.verify(ctx)
		if err == nil {
			s.cursor = seq
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

func (s *session) awaitSynced(ctx context.Context) error {
	for !s.target.Synced() {
		pause := 20 * time.Millisecond
		if err := s.target.Health(); err != nil {
			s.healthy, pause = false, time.Second
			s.report(ctx, s.lease, mirror.EngineReport{Engine: s.Engine, Message: err.Error()})
		}
		if !pacing.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
	if !s.healthy {
		s.checkHealth(ctx)
	}
	return nil
}

// raiseEpoch moves our epoch above every epoch that the engine shows.
func (s *session) raiseEpoch(ctx context.Context) error {
	var highest int64
	for _, live := range s.target.Inventory() {
		if live.Epoch <= maxEpoch {
			highest = max(highest, live.Epoch)
		}
	}
	mine := func(l mirror.Lease) bool {
		return l.Epoch == s.raised.Epoch && l.Life == s.raised.Life
	}
	if err := s.lease.Raise(ctx, s.Leases, highest, mine); err != nil {
		return fmt.Errorf("raise the epoch of engine %s: %w", s.Engine, err)
	}
	s.raised = s.lease.Lease()
	return nil
}

// requestConfirmation asks the loop to confirm that the rows follow from the config repo: the
// database may have gone back in time before this session.
func (s *session) requestConfirmation(ctx context.Context) error {
	rows, ok := s.Rows.(Confirmer)
	if !ok {
		s.confirmed.Store(true)
		return nil
	}
	var err error
	if s.need, err = rows.WantConfirmed(ctx); err != nil {
		return err
	}
	if err := s.Reports.Notify(ctx, "confirm "+s.lease.Lease().Name); err != nil {
		s.Log.Debug("no notification; the loop polls", "error", err)
	}
	return nil
}

// enqueue queues a row of the database incarnation that the session began with.
func (s *session) enqueue(row mirror.Row) error {
	if err := s.checkLife(row.Life); err != nil {
		return err
	}
	s.queue.put(row)
	return nil
}

// sink receives the engine's events: it records observations, and rechecks objects. It never
// blocks.
func (s *session) sink() engine.Sink {
	return engine.Sink{
		Observe: func(seen []mirror.Observation) {
			for _, o := range seen {
				s.observations.Add(o)
				s.syncs.observe(o)
				s.actions.observe(o)
				s.queue.hastenMove(o.Key)
			}
		},
		Wake: s.orphans.recheck,
		Contact: func(seen []engine.Contact) {
			s.parking.observe(seen)
			s.prober.observe(seen)
		},
		WentBack: func(how string) {
			select {
			case s.wentBack <- how:
			default: // the waiting one leads to a verification for both
			}
		},
	}
}

// verify compares the head of every row with the engine and queues the rows that differ. It also
// rechecks every object without a row. It runs at the start of a session and then hourly, and is
// the only walk of a worker over everything. It returns the highest sequence number that it read.
func (s *session) verify(ctx context.Context) (seq int64, err error) {
	started := time.Now()
	if err := s.recall(ctx); err != nil {
		return 0, fmt.Errorf("verify engine %s: %w", s.Engine, err)
	}
	rows := 0
	var differ, secrets []fleet.ObjectKey
	rowless := s.inventory()
	err = s.Rows.RowHeads(ctx, s.Engine, func(row mirror.RowHead) error {
		if err := s.checkLife(row.Life); err != nil {
			return err
		}
		rows++
		delete(rowless, row.Key)
		seq = max(seq, row.Seq)
		switch {
		case row.Moving: // its last step may have ended without its record
			differ = append(differ, row.Key)
		case !s.inSync(row):
			differ = append(differ, row.Key)
			s.retract(row)
		// only Apply knows the fingerprint of the secret
		case row.Credential:
			secrets = append(secrets, row.Key)
		}
		return nil
	})
	if err == nil {
		err = s.lookup(ctx, differ, s.queue.put)
	}
	if err == nil {
		err = s.lookup(ctx, secrets, s.queue.check)
	}
	if err != nil {
		return 0, fmt.Errorf("verify engine %s: %w", s.Engine, err)
	}
	if err := s.orphans.relist(ctx, rowless); err != nil {
		return 0, err
	}
	s.Log.Info("engine verified", "engine", s.Engine, "rows", rows, "differ", len(differ),
		"secrets", len(secrets),
		"without row", len(rowless), "took", time.Since(started).Round(time.Millisecond))
	return seq, nil
}

// lookup reads the rows of these objects that still exist.
func (s *session) lookup(ctx context.Context, keys []fleet.ObjectKey, take func(mirror.Row)) error {
	for part := range slices.Chunk(keys, readBatch) {
		rows, err := s.Rows.RowsByKey(ctx, s.Engine, part)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := s.checkLife(row.Life); err != nil {
				return err
			}
			take(row)
		}
	}
	return nil
}

// inSync reports whether the engine surely has the row, apart from the content of a secret.
func (s *session) inSync(row mirror.RowHead) bool {
	live, ok := s.target.Live(row.Key)
	if row.Unwanted || !ok || !live.Ours || live.Drifted || live.Deleting || live.Leaving ||
		live.Arriving || live.Hash != row.Hash {
		return false
	}
	s.setPresent(row.Key, true)
	if row.Apply != mirror.ApplyApplied {
		s.acks.Add(
			mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Hash, State: mirror.ApplyApplied})
	}
	return true
}

// followRows queues changed rows whenever the worker is woken, and at least every Poll. It sends no
// request to the engine, so that a slow engine does not delay it.
func (s *session) followRows(ctx context.Context) error {
	poll := time.NewTicker(s.Poll)
	defer poll.Stop()
	for {
		if err := s.runSteps(ctx, s.readRows, s.orphans.check, s.applyRotated); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.wake:
		case <-poll.C:
		}
		s.woken.Set()
		s.acting.Set()
		for _, steps := range s.takeStepped() {
			s.queue.hastenSteps(steps)
		}
	}
}

// maintain checks the engine's health, writes the emergency stops to the engine, verifies it and
// renews tokens.
func (s *session) maintain(ctx context.Context) error {
	poll, report := time.NewTicker(s.Poll), time.NewTicker(reportEvery)
	defer poll.Stop()
	defer report.Stop()
	verify := time.NewTimer(nextVerify())
	defer verify.Stop()
	stops := s.Stops.Changed()
	for {
		if err := s.runSteps(ctx, s.stopMirror.write, s.verifyIfDue, s.renew); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
			if s.healthy != (s.target.Health() == nil) {
				s.checkHealth(ctx)
			}
		case <-stops:
			stops = s.Stops.Changed()
			s.stopMirror.done = false
			s.queue.hasten()
		case how := <-s.wentBack:
			s.verifyDue = true
			s.reportWentBack(ctx, how)
		case <-verify.C:
			s.verifyDue = true
			verify.Reset(nextVerify())
		case <-report.C:
			s.checkHealth(ctx)
		case <-s.prober.changed:
			s.checkHealth(ctx)
		}
	}
}

// nextVerify is verifyEvery, a quarter more or less: sessions that began together, as after a
// failover, do not all read their rows in the same second.
func nextVerify() time.Duration {
	return verifyEvery*3/4 + rand.N(verifyEvery/2)
}

func (s *session) verifyIfDue(ctx context.Context) error {
	if !s.verifyDue {
		return nil
	}
	_, err := s.verify(ctx)
	s.verifyDue = err != nil
	return err
}

// checkHealth runs the preflight again, which shows changed settings of the engine, and reports a
// lost watch.
func (s *session) checkHealth(ctx context.Context) {
	s.stopMirror.done = false // someone may have fixed a note on the engine
	err := s.target.Health()
	if err == nil {
		err = s.preflight(ctx, s.lease, s.target)
	}
	back := err == nil && !s.healthy
	if s.healthy = err == nil; !s.healthy {
		s.report(ctx, s.lease, mirror.EngineReport{Engine: s.Engine, Message: err.Error()})
	}
	s.verifyDue = s.verifyDue || back && s.Evacuated // a person may have forgotten it meanwhile
}

func (s *session) readRows(ctx context.Context) error {
	confirmed, err := s.rowsConfirmed(ctx)
	if err != nil {
		return err
	}
	for {
		rows, err := s.Rows.Changed(ctx, s.Engine, s.cursor, readBatch)
		if err != nil {
			return fmt.Errorf("read rows of engine %s: %w", s.Engine, err)
		}
		for _, row := range rows {
			if err := s.enqueue(row); err != nil {
				return err
			}
			s.cursor = row.Seq
		}
		s.Metrics.queued(s.Engine, s.queue.size(), s.queue.waitingForWave())
		if len(rows) < readBatch {
			break
		}
	}
	// The rows that were read by now are confirmed: only these may replace live objects.
	if confirmed && s.confirmed.CompareAndSwap(false, true) {
		s.Log.Info("rows are confirmed by the config repo", "engine", s.Engine)
		s.queue.hasten()
	}
	return nil
}

// rowsConfirmed reports whether the rows were confirmed since the session began. Its error ends the
// session if the database has gone back in time.
func (s *session) rowsConfirmed(ctx context.Context) (confirmed bool, err error) {
	rows, ok := s.Rows.(Confirmer)
	if !ok {
		return true, nil
	}
	now, err := rows.Mirror(ctx)
	if err != nil {
		return false, err
	}
	if err := s.checkLife(now.Life); err != nil || now.Seq < s.cursor {
		return false, errOtherDatabase
	}
	return now.Confirmed >= s.need, nil
}

// applyRotated queues the rows that need a rotated secret.
func (s *session) applyRotated(ctx context.Context) error {
	changed := s.takeRotated()
	for i, c := range changed {
		rows, err := s.Rows.CredentialRows(ctx, s.Engine, c.tenant, c.name)
		if err != nil {
			for _, left := range changed[i:] {
				s.Rotated(left.tenant, left.name)
			}
			return err
		}
		for _, row := range rows {
			if err := s.enqueue(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// inventory is the set of our objects on the engine.
func (s *session) inventory() map[fleet.ObjectKey]bool {
	all := map[fleet.ObjectKey]bool{}
	for _, live := range s.target.Inventory() {
		all[live.Key] = true
	}
	return all
}

// retract records that a row is no longer applied if its object was deleted, changed, or lost with
// the engine's state.
func (s *session) retract(row mirror.RowHead) {
	if row.Unwanted || row.Apply != mirror.ApplyApplied {
		return
	}
	message := "the engine has another version of it; it is applied again"
	if _, there := s.target.Live(row.Key); !there {
		message = "the engine no longer has it; it is created again"
	}
	s.acks.Add(mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Hash, State: mirror.ApplyPending,
		Message: message})
}

// reportWentBack reports that the engine's state is older than a state that it has shown before.
func (s *session) reportWentBack(ctx context.Context, how string) {
	s.Log.Warn("the engine went back in time, as after a restore from a backup; it is verified",
		"engine", s.Engine, "how", how)
	if err := s.Reports.ReportWentBack(ctx, s.lease.Lease(), short(how)); err != nil {
		s.Log.Warn("failed to record that the engine went back in time", "engine", s.Engine,
			"error", err)
	}
}
