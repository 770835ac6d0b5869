package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/lease"
)

// session is one worker's work under one lease on one connection.
type session struct {
	*Worker
	lease    *lease.Held
	target   engine.Engine
	queue    *queue
	acks     *pacing.Batch[fleet.ObjectKey, mirror.Ack]
	seen     *pacing.Batch[fleet.ObjectKey, mirror.Observation]
	parked   *parking
	proofs   *pacing.Debouncer // triggered when objects are proven gone
	back     chan string       // how the engine was seen to go back in time
	woken    pacing.Signal     // the intake passes on that something woke the worker
	cursor   int64
	unproven bool // a verifying pass is due
	mirrored bool // the engine remembers the stops as they are
	healthy  bool // as it was last reported

	need      int64       // the confirmation that the session waits for
	confirmed atomic.Bool // the rows follow from the config repo: see Confirmer

	mu      sync.Mutex
	orphans map[fleet.ObjectKey]bool // as they are listed
	settled map[fleet.ObjectKey]bool // objects that others wait for and that the engine surely has
	looks   map[fleet.ObjectKey]bool // objects whose rows are to be looked at again
	ended   map[string]syncEnd       // by request id: what the engine said of syncs
}

func newSession(w *Worker, held *lease.Held, target engine.Engine) *session {
	s := &session{Worker: w, lease: held, target: target, parked: newParking(w.Reach),
		queue: newQueue(w.Flight / 2), healthy: true, woken: pacing.NewSignal(),
		back:    make(chan string, 1),
		settled: map[fleet.ObjectKey]bool{}, orphans: map[fleet.ObjectKey]bool{},
		looks: map[fleet.ObjectKey]bool{}, ended: map[string]syncEnd{}}
	s.proofs = pacing.NewDebouncer(proofPause, w.Log, func(ctx context.Context) error {
		return w.Rows.Notify(ctx, held.Lease().Name)
	})
	s.acks = newBatch(w, func(a mirror.Ack) fleet.ObjectKey { return a.Key }, s.acknowledge)
	s.seen = newBatch(w, func(o mirror.Observation) fleet.ObjectKey { return o.Key },
		func(ctx context.Context, seen []mirror.Observation) error {
			return w.Rows.Observe(ctx, held.Lease(), seen)
		})
	return s
}

func newBatch[T any](w *Worker, key func(T) fleet.ObjectKey,
	write func(context.Context, []T) error) *pacing.Batch[fleet.ObjectKey, T] {
	return pacing.NewBatch(pacing.BatchConfig[fleet.ObjectKey, T]{Every: flushEvery,
		Size: readBatch, Key: key, Write: write, Fatal: lease.Lost, Log: w.Log})
}

// run follows the engine, verifies it once, and then does what changed until the lease or the
// engine is lost. Writes under way are finished and recorded before it returns: then the lease
// passes on.
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
	begin(&recorders, recording, s.seen.Run)
	begin(&working, ctx, s.proofs.Run)
	begin(&working, ctx, func(ctx context.Context) error { return s.target.Watch(ctx, s.sink()) })
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.ready(s.lease)
	for range s.Flight {
		begin(&working, ctx, s.work)
	}
	begin(&working, ctx, s.syncs)
	begin(&working, ctx, s.upkeep)
	begin(&working, ctx, s.park)
	return s.intake(ctx)
}

// acknowledge records what was done. The loop hears of objects that are proven gone: it holds back
// what they needed until then.
func (s *session) acknowledge(ctx context.Context, acks []mirror.Ack) error {
	err := s.Rows.Acknowledge(ctx, s.lease.Lease(), acks)
	if err == nil && slices.ContainsFunc(acks, func(a mirror.Ack) bool { return a.Removed }) {
		s.proofs.Trigger()
	}
	return err
}

// prepare comes before the first write: the engine is read, our epoch is above all that it shows,
// the stops are those that are in force now or that the engine remembers, and every row is held
// against it.
func (s *session) prepare(ctx context.Context) error {
	if err := s.awaitSynced(ctx); err != nil {
		return err
	}
	if err := s.raiseEpoch(ctx); err != nil {
		return err
	}
	if err := s.awaitMarkers(ctx); err != nil {
		return err
	}
	if err := s.want(ctx); err != nil {
		return err
	}
	if err := s.Stops.refreshed(ctx); err != nil {
		return err
	}
	s.takeRotated() // the verifying pass looks at every credential
	for {
		seq, err := s.verify(ctx)
		if err == nil {
			s.cursor = seq
			return nil
		}
		if !s.bearable(ctx, err) {
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
		s.examine(ctx)
	}
	return nil
}

// lastEpoch is more than any lease comes to. An annotation that says more was not written by us,
// and costs its own object only.
const lastEpoch = 1 << 40

// raiseEpoch puts our epoch above every one that the engine shows.
func (s *session) raiseEpoch(ctx context.Context) error {
	var highest int64
	for _, live := range s.target.Inventory() {
		if live.Epoch <= lastEpoch {
			highest = max(highest, live.Epoch)
		}
	}
	mine := func(l mirror.Lease) bool { return l.Epoch == s.raised.Epoch && l.Life == s.raised.Life }
	if err := s.lease.Raise(ctx, s.Leases, highest, mine); err != nil {
		return fmt.Errorf("raise the epoch of engine %s: %w", s.Engine, err)
	}
	s.raised = s.lease.Lease()
	return nil
}

// want asks the loop to confirm that the rows follow from the config repo: the database may have
// gone back in time before this session.
func (s *session) want(ctx context.Context) error {
	rows, ok := s.Rows.(Confirmer)
	if !ok {
		s.confirmed.Store(true)
		return nil
	}
	var err error
	if s.need, err = rows.WantConfirmed(ctx); err != nil {
		return err
	}
	if err := s.Rows.Notify(ctx, "confirm "+s.lease.Lease().Name); err != nil {
		s.Log.Debug("no notification; the loop polls", "error", err)
	}
	return nil
}

// errAnother says that the rows are of another database than the session began with.
var errAnother = fmt.Errorf("the database went back in time, or is another one: %w", lease.ErrLost)

// take queues a row, provided that it is of the incarnation that the session began with.
func (s *session) take(row mirror.Row) error {
	if err := s.same(row.Life); err != nil {
		return err
	}
	s.queue.put(row)
	return nil
}

func (s *session) same(life string) error {
	if begun := s.lease.Lease().Life; life != begun && life != "" && begun != "" {
		return errAnother
	}
	return nil
}

// may reports whether a row may be acted on already. Before the rows are confirmed nothing is
// written but what brings an object back to the very row that it bears.
func (s *session) may(row mirror.Row) bool {
	if s.confirmed.Load() {
		return true
	}
	live, ok := s.target.Live(row.Key)
	return ok && !row.Unwanted && live.Ours && live.Hash == row.Manifest.Hash
}

// sink takes what the engine shows: observations to the store, objects that need a look to the next
// turn. It never waits.
func (s *session) sink() engine.Sink {
	return engine.Sink{
		Observe: func(seen []mirror.Observation) {
			for _, o := range seen {
				s.seen.Add(o)
				s.observedSync(o)
			}
		},
		Wake:    s.recheck,
		Contact: s.parked.contacts,
		WentBack: func(how string) {
			select {
			case s.back <- how:
			default: // one that waits to be told verifies for both
			}
		},
	}
}

// verify holds the head of every row against what the engine shows, and puts the rows that differ;
// and every object of ours against the rows. It is the cold start and the hourly pass: the one walk
// over everything that a worker makes. It returns the highest sequence number that it read.
func (s *session) verify(ctx context.Context) (seq int64, err error) {
	started := time.Now()
	rows := 0
	var differ, secrets []fleet.ObjectKey
	rowless := s.inventory()
	err = s.Rows.RowHeads(ctx, s.Engine, func(row mirror.RowHead) error {
		if err := s.same(row.Life); err != nil {
			return err
		}
		rows++
		delete(rowless, row.Key)
		seq = max(seq, row.Seq)
		switch {
		case !s.stands(row):
			differ = append(differ, row.Key)
			s.withdraw(row)
		// asked of the engine in full: only Apply knows the secret's fingerprint
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
	if err := s.lookAgain(ctx, rowless); err != nil {
		return 0, err
	}
	s.Log.Info("engine verified", "engine", s.Engine, "rows", rows, "differ", len(differ),
		"secrets", len(secrets),
		"without row", len(rowless), "took", time.Since(started).Round(time.Millisecond))
	return seq, nil
}

// lookup reads the rows of these objects, those that are still there.
func (s *session) lookup(ctx context.Context, keys []fleet.ObjectKey, take func(mirror.Row)) error {
	for part := range slices.Chunk(keys, readBatch) {
		rows, err := s.Rows.RowsByKey(ctx, s.Engine, part)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := s.same(row.Life); err != nil {
				return err
			}
			take(row)
		}
	}
	return nil
}

// stands reports whether the engine surely has the row already, but for the content of a secret.
func (s *session) stands(row mirror.RowHead) bool {
	live, ok := s.target.Live(row.Key)
	if row.Unwanted || !ok || !live.Ours || live.Drifted || live.Deleting || live.Hash != row.Hash {
		return false
	}
	s.settle(row.Key, true)
	if row.Apply != mirror.ApplyApplied {
		s.acks.Add(mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Hash, State: mirror.ApplyApplied})
	}
	return true
}

// intake brings changed rows to the queue whenever something wakes the worker, and at least every
// Poll. It makes no request to the engine: one that answers slowly does not delay it.
func (s *session) intake(ctx context.Context) error {
	poll := time.NewTicker(s.Poll)
	defer poll.Stop()
	for {
		if err := s.steps(ctx, s.catchUp, s.look, s.reapply); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.wake:
		case <-poll.C:
		}
		s.woken.Set()
	}
}

// syncs starts and follows the syncs that people asked for, beside the intake.
func (s *session) syncs(ctx context.Context) error {
	for {
		if err := s.steps(ctx, s.startSyncs); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.woken:
		}
	}
}

// upkeep examines the engine, mirrors the emergency stops to it and verifies it, beside the intake.
func (s *session) upkeep(ctx context.Context) error {
	poll, report := time.NewTicker(s.Poll), time.NewTicker(reportEvery)
	defer poll.Stop()
	defer report.Stop()
	verify := time.NewTimer(nextVerify())
	defer verify.Stop()
	stops := s.Stops.Changed()
	for {
		if err := s.steps(ctx, s.mirrorStops, s.prove); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
			if s.healthy != (s.target.Health() == nil) {
				s.examine(ctx)
			}
		case <-stops:
			stops = s.Stops.Changed()
			s.mirrored = false
			s.queue.hasten()
		case how := <-s.back:
			s.unproven = true
			s.reportBack(ctx, how)
		case <-verify.C:
			s.unproven = true
			verify.Reset(nextVerify())
		case <-report.C:
			s.examine(ctx)
		}
	}
}

// nextVerify is verifyEvery, a quarter more or less: engines that began together, as after a
// fail-over, do not all read their rows in the same second.
func nextVerify() time.Duration {
	return verifyEvery*3/4 + rand.N(verifyEvery/2)
}

// steps does what is due. A step that fails stays due and does not end the session: a new session
// would begin by reading everything.
func (s *session) steps(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil && !s.bearable(ctx, err) {
			return err
		}
	}
	return nil
}

// bearable tells of an error after which the shift goes on.
func (s *session) bearable(ctx context.Context, err error) bool {
	if ctx.Err() != nil || lease.Lost(err) || errors.Is(err, engine.ErrFenced) {
		return false
	}
	s.Log.Warn("something is not done; it is tried again", "engine", s.Engine, "error", err)
	return true
}

func (s *session) prove(ctx context.Context) error {
	if !s.unproven {
		return nil
	}
	_, err := s.verify(ctx)
	s.unproven = err != nil
	return err
}

// examine holds the connection against the engine again, so that a change of its settings or a loss
// of its watch shows.
func (s *session) examine(ctx context.Context) {
	s.mirrored = false // a note on the engine may have been fixed
	err := s.target.Health()
	if err == nil {
		err = s.preflight(ctx, s.lease, s.target)
	}
	if s.healthy = err == nil; !s.healthy {
		s.report(ctx, s.lease, mirror.EngineReport{Engine: s.Engine, Message: err.Error()})
	}
}

func (s *session) catchUp(ctx context.Context) error {
	confirmed, err := s.standing(ctx)
	if err != nil {
		return err
	}
	for {
		rows, err := s.Rows.Changed(ctx, s.Engine, s.cursor, readBatch)
		if err != nil {
			return fmt.Errorf("read rows of engine %s: %w", s.Engine, err)
		}
		for _, row := range rows {
			if err := s.take(row); err != nil {
				return err
			}
			s.cursor = row.Seq
		}
		s.Metrics.queued(s.Engine, s.queue.size())
		if len(rows) < readBatch {
			break
		}
	}
	// What was confirmed is what the rows are by now: only these may replace what stands.
	if confirmed && s.confirmed.CompareAndSwap(false, true) {
		s.Log.Info("rows are confirmed by the config repo", "engine", s.Engine)
		s.queue.hasten()
	}
	return nil
}

// standing reports whether the rows were confirmed since the session began. It ends the session
// when the database has gone back.
func (s *session) standing(ctx context.Context) (confirmed bool, err error) {
	rows, ok := s.Rows.(Confirmer)
	if !ok {
		return true, nil
	}
	now, err := rows.Mirror(ctx)
	if err != nil {
		return false, err
	}
	if err := s.same(now.Life); err != nil || now.Seq < s.cursor {
		return false, errAnother
	}
	return now.Confirmed >= s.need, nil
}

// reapply puts the rows that need a secret that has changed.
func (s *session) reapply(ctx context.Context) error {
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
			if err := s.take(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// work takes tasks until ctx ends.
func (s *session) work(ctx context.Context) error {
	for {
		t, ok := s.queue.take(ctx)
		if !ok {
			return nil
		}
		retry, err := s.guarded(ctx, t)
		s.queue.done(t, retry)
		if err != nil {
			return err
		}
	}
}

// guarded is handle for a row that may make our own code panic: that object fails, the process and
// every other object go on.
func (s *session) guarded(ctx context.Context, t *task) (retry time.Duration, err error) {
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

// handle brings one row to the engine and says after what time it is to be tried again; 0 for
// never. Only the loss of the right to act is returned: everything else is that object's own
// affair.
func (s *session) handle(ctx context.Context, t *task) (time.Duration, error) {
	row := t.row
	if s.Stops.Stopped(s.Engine)(row.Tenant) {
		return pacing.LastRetry, nil // hastened when stops change
	}
	if !s.may(row) {
		return pacing.LastRetry, nil // hastened when the rows are confirmed
	}
	if need, ok := s.missing(row); !ok {
		return s.waitFor(t, need), nil
	}
	started := time.Now()
	ack, retry, err := s.act(ctx, row)
	s.Metrics.handled(s.Engine, row, started, err)
	switch {
	case err == nil:
		t.attempts, t.waits = 0, 0
	case lease.Lost(err) || errors.Is(err, engine.ErrFenced) && !s.forged(row.Key):
		return 0, err
	case errors.Is(err, engine.ErrStopped):
		return pacing.LastRetry, nil
	case errors.Is(err, engine.ErrInUse):
		t.waits++
		return pauseOf(t), nil
	case ctx.Err() != nil:
		return 0, nil // cut off with the work; the next shift looks again
	case errors.Is(err, errRowUnread): // the store's fault, not the object's
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

// errRowUnread says that a row could not be read right before its object was to be deleted.
var errRowUnread = errors.New("the deletion waits until its row can be read")

// forged reports whether an object bears an epoch that no lease has given.
func (s *session) forged(key fleet.ObjectKey) bool {
	live, ok := s.target.Live(key)
	return ok && live.Epoch > lastEpoch
}

// missing names the object of the same engine that the row needs first, and reports whether it has
// it.
func (s *session) missing(row mirror.Row) (fleet.ObjectKey, bool) {
	if row.Unwanted && row.Key.Kind == fleet.ObjectProject {
		return s.inProject(row.Tenant)
	}
	if row.Unwanted || row.Key.Kind != fleet.ObjectApplication {
		return fleet.ObjectKey{}, true
	}
	needs := []fleet.ObjectKey{
		{Engine: s.Engine, Kind: fleet.ObjectProject, Name: fleet.ProjectName(row.Tenant)}}
	if !s.Engine.OfEnvironment() { // an own cluster is known to its Argo CD without a Secret
		id := fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment}
		needs = append(needs, fleet.ObjectKey{Engine: s.Engine, Kind: fleet.ObjectCluster,
			Name: fleet.ClusterName(id)})
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

// inProject names an object of the tenant that the engine still has: its AppProject goes last. It
// walks the engine's objects, once in a while, when a tenant leaves the engine.
func (s *session) inProject(tenant fleet.TenantName) (fleet.ObjectKey, bool) {
	for _, live := range s.target.Inventory() {
		if live.Tenant == tenant && live.Key.Kind != fleet.ObjectProject {
			return live.Key, false
		}
	}
	return fleet.ObjectKey{}, true
}

// waitFor says so in the row's state after a while, and looks again soon.
func (s *session) waitFor(t *task, need fleet.ObjectKey) time.Duration {
	t.waits++
	if t.waits == 16 {
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

// pauseOf is how long a task that waits for another object rests: longer each time, for the other
// one may take an hour to go.
func pauseOf(t *task) time.Duration {
	return min(settleWait*time.Duration(t.waits), 10*time.Second)
}

func (s *session) act(ctx context.Context, row mirror.Row) (mirror.Ack, time.Duration, error) {
	var secret fleet.Secret
	if row.Credential != nil && !row.Unwanted {
		var err error
		if secret, err = s.Secrets.Get(ctx, *row.Credential); err != nil {
			return mirror.Ack{}, 0, err
		}
	}
	if !s.lease.Valid() { // a secret may take long to be had
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
		s.parked.changed(row)
	}
	// one that is on its way out is nothing to lean on
	s.settle(row.Key, out.State != mirror.ApplyPending)
	return mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash, State: out.State,
		Message: short(out.Message)}, out.RetryAfter, nil
}

// remove reads the row again first: the one that was queued may have waited out a stop or an
// outage, and a deletion that was taken back meanwhile must not happen.
func (s *session) remove(ctx context.Context, row mirror.Row) (mirror.Ack, time.Duration, error) {
	now, ok, err := s.Rows.LeasedRow(ctx, s.lease.Lease(), row.Key)
	switch {
	case err != nil:
		return mirror.Ack{}, 0, fmt.Errorf("%w: %w", errRowUnread, err)
	case !ok:
		return mirror.Ack{}, 0, nil
	case s.same(now.Life) != nil:
		return mirror.Ack{}, 0, errAnother
	case now.Seq != row.Seq || !now.Unwanted:
		s.queue.put(now)
		return mirror.Ack{}, 0, nil
	}
	s.settle(row.Key, false)
	done, err := s.target.Delete(ctx, row, s.lease.Lease())
	if err != nil {
		return mirror.Ack{}, 0, s.refusal(err)
	}
	if done {
		return mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash,
			State: mirror.ApplyDeleting, Removed: true}, 0, nil
	}
	// The watch tells when the object has gone; this is for the case that it does not.
	again := removeWait
	if live, ok := s.target.Live(row.Key); ok && live.Parked {
		again = parkedWait
	}
	return mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Manifest.Hash,
		State: mirror.ApplyDeleting}, again, nil
}

// refusal tells which of the two the gate has refused a write for: a stop, or the end of the lease.
func (s *session) refusal(err error) error {
	if errors.Is(err, engine.ErrStopped) && !s.lease.Valid() {
		return lease.ErrLost
	}
	return err
}

func (s *session) settle(key fleet.ObjectKey, there bool) {
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
