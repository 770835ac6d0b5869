package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/pacing"
)

// Local is what only the cluster knows. It is asked when the agent says how it stands.
type Local struct {
	Inventory []engine.Live // objects of ours on the cluster; nil while it was not read
	Held      int           // deletions that wait for the cluster's admin
}

// FollowerConfig is what a Follower is made of. What is nil is left out.
type FollowerConfig struct {
	Client    *Client
	Namespace string // of the Argo CD that the agent was installed for
	Version   string // of the agent
	Log       *slog.Logger

	Wake    func()                                     // rows or syncs may have changed
	Rotated func(tenant fleet.TenantName, name string) // the content of a credential has changed
	Stopped func()                                     // the emergency stops may have changed
	// a session begins; what the hub declares may have changed
	Opened func(agent.Hello)
	// why the deletion of an object waits for the cluster's admin, if it does
	Held  func(fleet.ObjectKey) (string, bool)
	Local func() Local
}

// ErrNotRead says that no complete snapshot was read yet: nothing is known, least of all that
// something is gone.
var ErrNotRead = errors.New("the hub's snapshot is not read yet")

var (
	errAnew  = errors.New("the mirror is another than the one that was read; it is read anew")
	errRaise = errors.New("a session with a higher epoch is needed")
)

// Follower keeps the agent's rows as the hub has them, in memory, and answers a worker
// (worker.Config) from it: it is its Rows, Leases, Secrets and StopReader. Through an outage it
// stays as it was last heard. Its methods may be called at the same time.
type Follower struct {
	FollowerConfig
	Outbox *Outbox

	mu         sync.Mutex
	mirror     *mirror // nil until a snapshot is complete
	stale      bool    // the mirror holds, but is to be read anew
	cursor     int64
	hello      agent.Hello
	floor      int64 // that a session is to be opened above
	generation int   // of the mirror: numbers of another one mean nothing
	leased     int   // generation under which the lease was given
	misplaced  error
	final      error // why the lease is no more: revoked, superseded, …
	syncs      []agent.Sync
	syncStates map[string]fleet.OperationState
	syncsRead  bool
	stops      []fleet.Stop
	stopsRead  bool
	ends       []fleet.StopEnd
	endsRead   bool // a hub of an earlier version does not tell them
	report     fleet.EngineReport
	reach      map[fleet.EnvironmentID]fleet.Unreachable // nil until the worker has told
	cut        context.CancelCauseFunc                   // of the session that stands
	changed    chan struct{}
}

// NewFollower is one that has heard nothing.
func NewFollower(c FollowerConfig) *Follower {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	f := &Follower{FollowerConfig: c, Outbox: NewOutbox(),
		syncStates: map[string]fleet.OperationState{}, changed: make(chan struct{})}
	f.Outbox.Taken = f.taken
	return f
}

// Run follows the hub, sends what is to be reported and replaces the keys in time, until ctx ends
// or somebody has to do something: then the error is an *Ended whose text says what.
func (f *Follower) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, part := range []func(context.Context) error{f.follow, func(ctx context.Context) error {
		return f.Outbox.Run(ctx, f.Client)
	}, f.keepKeys} {
		all.Go(func() { cancel(part(ctx)) })
	}
	all.Wait()
	err := context.Cause(ctx)
	var end *Ended
	if errors.As(err, &end) {
		f.end(end)
	}
	return err
}

// end takes the lease away: who is revoked or superseded writes nothing any more.
func (f *Follower) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.final = err
	f.tellLocked()
}

func (f *Follower) tellLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Await waits for the first complete snapshot and returns what the hub declares.
func (f *Follower) Await(ctx context.Context) (agent.Hello, error) {
	for {
		f.mu.Lock()
		hello, read, final, changed := f.hello, f.mirror != nil, f.final, f.changed
		f.mu.Unlock()
		switch {
		case final != nil:
			return hello, final
		case read:
			return hello, nil
		}
		select {
		case <-ctx.Done():
			return hello, context.Cause(ctx)
		case <-changed:
		}
	}
}

// follow opens one session after the other.
func (f *Follower) follow(ctx context.Context) error {
	failures, anew := 0, false
	for ctx.Err() == nil {
		began := time.Now()
		err := f.session(ctx)
		f.Outbox.pauseSession()
		var end *Ended
		var bye *farewell
		switch {
		case errors.As(err, &end):
			f.end(end)
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errRaise):
			continue
		case errors.Is(err, errAnew) && !anew:
			anew = true
			continue
		case errors.As(err, &bye), time.Since(began) > time.Minute:
			failures = 0
		}
		failures, anew = failures+1, false
		d := pause(failures, err)
		f.Log.Info("not connected to the hub; the last state stays in force", "reason", err,
			"again in", d.Round(time.Millisecond))
		pacing.Sleep(ctx, d)
	}
	return context.Cause(ctx)
}

// session is one connection: a snapshot where one is needed, and the stream after it.
func (f *Follower) session(ctx context.Context) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	floor, cursor, whole := f.begin(cut)
	var snapshot *agent.Snapshot
	var err error
	if whole {
		if snapshot, err = f.Client.Snapshot(ctx, floor); err != nil {
			return err
		}
		cursor = snapshot.Cursor
	}
	stream, err := f.Client.Stream(ctx, floor, cursor)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := f.open(stream.Hello, snapshot, cursor); err != nil {
		return err
	}
	for {
		event, err := stream.Next()
		if err != nil {
			return err
		}
		if err := f.take(event); err != nil {
			return err
		}
	}
}

// begin says what the next session is to be opened with. The floor is below our own epoch, so that
// the same process keeps it.
func (f *Follower) begin(cut context.CancelCauseFunc) (floor, cursor int64, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = cut
	return max(f.floor, f.hello.Epoch-1), f.cursor, f.mirror == nil || f.stale
}

// open takes a hello. A snapshot counts only with the epoch of the session that follows it; and
// without one, the session must go on where the last one ended.
func (f *Follower) open(hello agent.Hello, snapshot *agent.Snapshot, cursor int64) error {
	if hello.Protocol < agent.Oldest {
		return &Refusal{Code: agent.CodeProtocol,
			Message: fmt.Sprintf(
				"the hub speaks protocol %d; this agent needs %d: upgrade the hub first",
				hello.Protocol, agent.Oldest)}
	}
	if err := f.install(hello, snapshot, cursor); err != nil {
		return err
	}
	f.Outbox.session(hello.Epoch, hello.ReportSeq)
	f.Log.Info("connected to the hub", "engine", hello.Engine, "epoch", hello.Epoch, "hub",
		plain(hello.Hub))
	if f.Opened != nil {
		f.Opened(hello)
	}
	f.stand()
	call(f.Wake)
	return nil
}

func (f *Follower) install(hello agent.Hello, snapshot *agent.Snapshot, cursor int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	// that the epoch is another is our own wish
	raised := f.floor >= f.hello.Epoch && hello.Epoch > f.floor
	switch {
	case hello.Engine != f.engineLocked():
		return fmt.Errorf("the hub takes this agent for engine %q and not %q; join again",
			plain(string(hello.Engine)), f.engineLocked())
	case hello.Cursor < cursor, snapshot != nil && snapshot.Epoch != hello.Epoch, snapshot == nil &&
		hello.Epoch != f.hello.Epoch && !raised:
		f.stale = f.mirror != nil
		return errAnew
	}
	if snapshot != nil {
		f.replaceLocked(hello.Engine, snapshot)
	}
	f.hello, f.misplaced = hello, nil
	if ns := hello.ArgoCD.Namespace; ns != "" && ns != f.Namespace {
		f.misplaced = fmt.Errorf(
			"the declaration names Argo CD's namespace %q, this agent was installed for %q and "+
				"does nothing; correct the one, or install the agent with --argocd-namespace",
			plain(ns), f.Namespace)
	}
	f.tellLocked()
	return nil
}

func (f *Follower) engineLocked() fleet.EngineName {
	if f.hello.Engine != "" {
		return f.hello.Engine
	}
	return f.Client.keeper.Last().Engine
}

// replaceLocked puts a complete snapshot in the place of what was known. What it leaves out is no
// longer a row, and stays on the cluster.
func (f *Follower) replaceLocked(engine fleet.EngineName, s *agent.Snapshot) {
	if f.mirror != nil {
		f.generation++
		f.Outbox.anew()
	}
	m := newMirror(engine, f.Namespace)
	for i := range s.Rows {
		if ack, aside := m.put(&s.Rows[i]); aside {
			f.Outbox.Acknowledge(ack)
		}
	}
	f.mirror, f.cursor, f.stale = m, s.Cursor, false
}

// take does what a message of the stream says. One of a name that is not known is passed over.
func (f *Follower) take(event Event) error {
	switch event.Name {
	case agent.EventRows, agent.EventAgain:
		var rows agent.Rows
		if err := json.Unmarshal(event.Data, &rows); err != nil {
			return unreadable(event, err)
		}
		return f.takeRows(rows, event.Name == agent.EventRows)
	case agent.EventSyncs:
		var syncs []agent.Sync
		if err := json.Unmarshal(event.Data, &syncs); err != nil {
			return unreadable(event, err)
		}
		f.takeSyncs(syncs)
	case agent.EventStops:
		var stops []fleet.Stop
		if err := json.Unmarshal(event.Data, &stops); err != nil {
			return unreadable(event, err)
		}
		f.takeStops(stops)
	case agent.EventEnds:
		var ends []fleet.StopEnd
		if err := json.Unmarshal(event.Data, &ends); err != nil {
			return unreadable(event, err)
		}
		f.mu.Lock()
		f.ends, f.endsRead = ends, true
		f.mu.Unlock()
	}
	return nil
}

func unreadable(event Event, err error) error {
	return fmt.Errorf("message %s of the stream cannot be read: %s", plain(event.Name),
		plain(err.Error()))
}

func (f *Follower) takeRows(rows agent.Rows, cursor bool) error {
	f.mu.Lock()
	if cursor && rows.Cursor < f.cursor {
		f.stale = true
		f.mu.Unlock()
		return errAnew
	}
	type secret struct {
		tenant fleet.TenantName
		name   string
	}
	rotated := map[secret]bool{}
	for i := range rows.Rows {
		r := &rows.Rows[i]
		ack, aside := f.mirror.put(r)
		switch {
		case aside:
			f.Outbox.Acknowledge(ack)
		case !cursor && r.Credential != nil:
			rotated[secret{r.Credential.Tenant, r.Credential.Name}] = true
		}
	}
	if cursor {
		f.cursor = rows.Cursor
	}
	f.mu.Unlock()
	for s := range rotated {
		if f.Rotated != nil {
			f.Rotated(s.tenant, s.name)
		}
	}
	call(f.Wake)
	return nil
}

func (f *Follower) takeSyncs(syncs []agent.Sync) {
	f.mu.Lock()
	f.syncs, f.syncsRead = syncs, true
	open := map[string]bool{}
	for _, s := range syncs {
		open[s.ID] = true
	}
	for id := range f.syncStates {
		if !open[id] {
			delete(f.syncStates, id)
		}
	}
	f.mu.Unlock()
	f.Outbox.keepSyncs(func(id string) bool { return open[id] })
	call(f.Wake)
}

func (f *Follower) takeStops(stops []fleet.Stop) {
	f.mu.Lock()
	f.stops, f.stopsRead = stops, true
	f.mu.Unlock()
	call(f.Stopped)
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// keepKeys replaces the agent's keys when a third of the identity's life has passed.
func (f *Follower) keepKeys(ctx context.Context) error {
	for failures := 0; ; {
		left := f.Client.keeper.Last().RotateAt().Sub(f.Client.clock.Now())
		if left > 0 {
			// the clock is the hub's, and may be heard anew meanwhile
			if !pacing.Sleep(ctx, min(left, time.Hour)) {
				return context.Cause(ctx)
			}
			continue
		}
		err := f.Client.Rotate(ctx)
		var end *Ended
		switch {
		case err == nil:
			failures = 0
			f.Log.Info("the agent's keys are replaced")
			continue
		case errors.As(err, &end):
			return err
		}
		failures++
		f.Log.Warn("the agent's keys are not replaced; it is tried again", "error", err, "until",
			f.Client.keeper.Last().ExpiresAt)
		if !pacing.Sleep(ctx, pause(failures+6, err)) {
			return context.Cause(ctx)
		}
	}
}
