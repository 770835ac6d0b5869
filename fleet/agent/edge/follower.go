package edge

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// Local is state that only the cluster has, for the agent's status.
type Local struct {
	Inventory []engine.Live // our objects on the cluster; nil before the first read
	Held      int           // number of held deletions
	Hold      string        // why the cluster's admin forbids every write; or ""
}

// FollowerConfig configures a Follower. Nil callbacks are skipped.
type FollowerConfig struct {
	Client    *Client
	Namespace string // of the Argo CD that the agent was installed for
	// ApplicationNamespaces are the further namespaces with Applications that the cluster's admin
	// allows.
	ApplicationNamespaces []string
	Version               string // of the agent
	Log                   *slog.Logger

	Wake    func()                                     // rows or syncs may have changed
	Stepped func(mirror.Stepped)                       // Applications that move have another step
	Rotated func(tenant fleet.TenantName, name string) // a credential has changed
	Stopped func()                                     // the emergency stops may have changed
	// a session has started; the hub's declaration may have changed
	Opened func(agent.Hello)
	// why the deletion of an object is held, if it is
	Held  func(fleet.ObjectKey) (string, bool)
	Local func() Local
	// reads the resources of Applications for people; nil: none are read
	Inspector engine.Inspector
	// takes a step towards another version of this program: see worker.Upgrader
	Upgrader func(ctx context.Context, wanted mirror.Instance) (waits string, err error)
}

// ErrNotRead reports that no complete snapshot has been read. Until then nothing is known, and no
// object counts as deleted.
var ErrNotRead = errors.New("no complete snapshot of the hub was read yet")

var (
	errResync     = errors.New("the hub's mirror was replaced; it is read again")
	errRaiseEpoch = errors.New("a session with a higher epoch is needed")
)

// Follower holds the agent's rows in memory and serves a worker (worker.Worker) from it, as its
// Rows. Leases and Credentials serve its other interfaces. During an outage it keeps its last
// state. Its methods are safe for concurrent use.
type Follower struct {
	FollowerConfig
	Outbox *Outbox

	inspections *inspections

	mu               sync.Mutex
	mirror           *rowCache // nil before the first complete snapshot
	stale            bool      // the mirror is valid but must be read again
	cursor           int64
	hello            agent.Hello
	floor            int64 // the next session must have a higher epoch
	generation       int   // of the mirror; sequence numbers of another generation are void
	leasedGeneration int   // generation of the granted lease
	misplaced        error
	final            error // why the lease has ended: revoked, superseded, …
	failure          error // why the last session has ended; nil while one is open
	syncs            []agent.Sync
	syncStates       map[string]mirror.OperationState
	syncsRead        bool
	actions          actions
	moves            moves
	instance         *agent.Instance // as the hub has sent it, with the state reported since
	shadow           *agent.Shadow   // likewise
	stops            []mirror.Stop
	stopsRead        bool
	ends             []mirror.StopEnd
	endsRead         bool // an earlier hub does not send the ends
	report           mirror.EngineReport
	// nil until the worker has reported it
	reach   map[fleet.EnvironmentID]mirror.Unreachable
	cut     context.CancelCauseFunc // ends the current session
	changed chan struct{}
}

// NewFollower returns a Follower without a mirror.
func NewFollower(c FollowerConfig) *Follower {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	f := &Follower{FollowerConfig: c, Outbox: NewOutbox(),
		syncStates: map[string]mirror.OperationState{}, changed: make(chan struct{})}
	f.actions.states = map[string]mirror.OperationState{}
	f.Outbox.Accepted = f.accepted
	f.inspections = newInspections(f)
	return f
}

// Run follows the hub, sends reports and rotates the keys until ctx ends or a person has to act.
// Then it returns a *TerminalError with the next step.
func (f *Follower) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, part := range []func(context.Context) error{f.follow, func(ctx context.Context) error {
		return f.Outbox.Run(ctx, f.Client)
	}, f.Client.keepKeys, f.inspections.run} {
		all.Go(func() { cancel(part(ctx)) })
	}
	all.Wait()
	err := context.Cause(ctx)
	var end *TerminalError
	if errors.As(err, &end) {
		f.end(end)
	}
	return err
}

// end ends the lease: a revoked or superseded agent writes nothing any more.
func (f *Follower) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.final = err
	f.broadcastLocked()
}

func (f *Follower) broadcastLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Await waits for the first complete snapshot and returns the hub's declaration.
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

// follow opens one session after another.
func (f *Follower) follow(ctx context.Context) error {
	failures, resynced := 0, false
	for ctx.Err() == nil {
		began := time.Now()
		err := f.session(ctx)
		f.Outbox.closeSession()
		f.closeActions()
		f.fail(err)
		var end *TerminalError
		var goAway *goAwayError
		switch {
		case errors.As(err, &end):
			f.end(end)
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errRaiseEpoch):
			continue
		case errors.Is(err, errResync) && !resynced:
			resynced = true
			continue
		case errors.As(err, &goAway), time.Since(began) > time.Minute:
			failures = 0
		}
		failures, resynced = failures+1, false
		d := pause(failures, err)
		f.Log.Info("not connected to the hub; the last state stays in force", "reason", err,
			"again in", d.Round(time.Millisecond))
		pacing.Sleep(ctx, d)
	}
	return context.Cause(ctx)
}

func (f *Follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err
}

// Problem is why the hub has not accepted a report, as far as it is known.
func (f *Follower) Problem() string {
	f.mu.Lock()
	err := f.failure
	f.mu.Unlock()
	if err = cmp.Or(err, f.Outbox.problem()); err == nil {
		return "no report was sent yet"
	}
	return plain(err.Error())
}

// session runs one connection: a snapshot if needed, and then the stream.
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
		if err := f.handle(event); err != nil {
			return err
		}
	}
}

// begin returns the parameters of the next session. The floor is below our own epoch, so that the
// same process keeps the epoch.
func (f *Follower) begin(cut context.CancelCauseFunc) (floor, cursor int64, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = cut
	return max(f.floor, f.hello.Epoch-1), f.cursor, f.mirror == nil || f.stale
}

// open accepts a hello. A snapshot is valid only with the epoch of the session that follows it.
// Without a snapshot, the session must resume where the last one ended.
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
	f.Outbox.openSession(hello.Epoch, hello.ReportSeq)
	f.Log.Info("connected to the hub", "engine", hello.Engine, "epoch", hello.Epoch, "hub",
		plain(hello.Hub))
	if f.Opened != nil {
		f.Opened(hello)
	}
	f.reportStatus()
	call(f.Wake)
	return nil
}

func (f *Follower) install(hello agent.Hello, snapshot *agent.Snapshot, cursor int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	// we requested the other epoch ourselves
	raised := f.floor >= f.hello.Epoch && hello.Epoch > f.floor
	switch {
	case hello.Engine != f.engineLocked():
		return fmt.Errorf("the hub assigns this agent to engine %q instead of %q; join again",
			plain(string(hello.Engine)), f.engineLocked())
	case hello.Cursor < cursor, snapshot != nil && snapshot.Epoch != hello.Epoch, snapshot == nil &&
		hello.Epoch != f.hello.Epoch && !raised:
		f.stale = f.mirror != nil
		return errResync
	}
	if snapshot != nil {
		f.replaceLocked(hello.Engine, snapshot)
	}
	f.hello, f.misplaced, f.failure = hello, nil, nil
	if ns := hello.ArgoCD.Namespace; ns != "" && ns != f.Namespace {
		f.misplaced = fmt.Errorf(
			"the declaration names Argo CD's namespace %q, this agent was installed for %q and "+
				"does nothing; correct the declaration, or install the agent with "+
				"--argocd-namespace",
			plain(ns), f.Namespace)
	}
	f.broadcastLocked()
	return nil
}

func (f *Follower) engineLocked() fleet.EngineName {
	if f.hello.Engine != "" {
		return f.hello.Engine
	}
	return f.Client.identity.Last().Engine
}

// replaceLocked replaces the mirror with a complete snapshot. Objects without a row stay on the
// cluster.
func (f *Follower) replaceLocked(engine fleet.EngineName, s *agent.Snapshot) {
	if f.mirror != nil {
		f.generation++
		f.Outbox.reset()
	}
	m := newRowCache(engine, f.Namespace, f.ApplicationNamespaces)
	for i := range s.Rows {
		if ack, aside := m.put(&s.Rows[i]); aside {
			f.Outbox.Acknowledge(ack)
		}
	}
	f.mirror, f.cursor, f.stale = m, s.Cursor, false
	f.moves = moves{ended: map[fleet.ApplicationID]endedStep{}}
}

// handle applies a message of the stream and ignores unknown names.
func (f *Follower) handle(event Event) error {
	switch event.Name {
	case agent.EventRows, agent.EventCredentials:
		var rows agent.Rows
		if err := json.Unmarshal(event.Data, &rows); err != nil {
			return unreadable(event, err)
		}
		return f.handleRows(rows, event.Name == agent.EventRows)
	case agent.EventSyncs:
		var syncs []agent.Sync
		if err := json.Unmarshal(event.Data, &syncs); err != nil {
			return unreadable(event, err)
		}
		f.handleSyncs(syncs)
	case agent.EventActions:
		var open []agent.Action
		if err := json.Unmarshal(event.Data, &open); err != nil {
			return unreadable(event, err)
		}
		f.setActions(open)
	case agent.EventMoves:
		var moves agent.Moves
		if err := json.Unmarshal(event.Data, &moves); err != nil {
			return unreadable(event, err)
		}
		f.setMoves(moves)
	case agent.EventInstance:
		var instance *agent.Instance
		if err := json.Unmarshal(event.Data, &instance); err != nil {
			return unreadable(event, err)
		}
		f.setInstance(instance)
	case agent.EventShadow:
		var shadow *agent.Shadow
		if err := json.Unmarshal(event.Data, &shadow); err != nil {
			return unreadable(event, err)
		}
		f.setShadow(shadow)
	case agent.EventInspect:
		var list []agent.Inspection
		if err := json.Unmarshal(event.Data, &list); err != nil {
			return unreadable(event, err)
		}
		f.inspections.set(list)
	case agent.EventStops:
		var stops []mirror.Stop
		if err := json.Unmarshal(event.Data, &stops); err != nil {
			return unreadable(event, err)
		}
		f.handleStops(stops)
	case agent.EventStopEnds:
		var ends []mirror.StopEnd
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
	return fmt.Errorf("failed to decode message %s of the stream: %s", plain(event.Name),
		plain(err.Error()))
}

func (f *Follower) handleRows(rows agent.Rows, cursor bool) error {
	f.mu.Lock()
	if cursor && rows.Cursor < f.cursor {
		f.stale = true
		f.mu.Unlock()
		return errResync
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

func (f *Follower) handleSyncs(syncs []agent.Sync) {
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
	f.Outbox.keepReported(listSyncs, open)
	call(f.Wake)
}

func (f *Follower) handleStops(stops []mirror.Stop) {
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

// mirror holds the agent's rows in memory. Rows that the agent cannot handle are rejected: left
// alone and reported.
type rowCache struct {
	engine    fleet.EngineName
	namespace string // of the Argo CD that the agent was installed for
	further   []string
	rows      map[fleet.ObjectKey]mirrorRow
	rejected  map[fleet.ObjectKey]string // the reason, by object
	// rows by sequence number, so that reading changes costs only the changes
	log []logEntry
}

// mirrorRow is a row with its sealed credential.
type mirrorRow struct {
	row        mirror.Row
	credential *agent.Credential
	sent       string // the hash of the manifest as the hub sent it: see permitted
	moving     bool   // the hub sent it as the row of an Application that moves
}

type logEntry struct {
	seq int64
	key fleet.ObjectKey
}

func newRowCache(engine fleet.EngineName, namespace string, further []string) *rowCache {
	return &rowCache{engine: engine, namespace: namespace, further: further,
		rows: map[fleet.ObjectKey]mirrorRow{}, rejected: map[fleet.ObjectKey]string{}}
}

// put stores a row unless a newer version is known. For a rejected row it returns the
// acknowledgement to report.
func (m *rowCache) put(r *agent.Row) (agent.Ack, bool) {
	key := fleet.ObjectKey{Engine: m.engine, Kind: r.Kind, Name: r.Name}
	known, again := m.rows[key]
	if again && known.row.Seq > r.Seq {
		return agent.Ack{}, false
	}
	row, err := m.read(key, r)
	if err != nil {
		delete(m.rows, key)
		m.rejected[key] = err.Error()
		return agent.Ack{Kind: r.Kind, Name: r.Name, Seq: r.Seq, State: mirror.ApplyFailed,
			Message: err.Error(), Hash: r.Hash}, true
	}
	delete(m.rejected, key)
	m.rows[key] = mirrorRow{row, r.Credential, r.Hash, r.Operation == agent.OperationArrive ||
		r.Operation == agent.OperationLeave}
	if again && known.row.Seq == r.Seq {
		return agent.Ack{}, false
	}
	m.log = append(m.log, logEntry{row.Seq, key})
	if n := len(m.log); n > 1 && m.log[n-2].seq > row.Seq {
		slices.SortStableFunc(m.log, func(a, b logEntry) int { return cmp.Compare(a.seq, b.seq) })
	}
	if len(m.log) > 2*len(m.rows)+1000 {
		m.log = slices.DeleteFunc(m.log, func(e logEntry) bool {
			return m.rows[e.key].row.Seq != e.seq
		})
	}
	return agent.Ack{}, false
}

// read converts a row, or returns why the agent cannot handle it.
func (m *rowCache) read(key fleet.ObjectKey, r *agent.Row) (mirror.Row, error) {
	row := mirror.Row{Key: key, Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment, Deletion: r.Deletion, Revision: r.Revision, Seq: r.Seq,
		Apply: r.Apply, Manifest: fleet.Manifest{Body: r.Manifest, Hash: r.Hash}}
	switch r.Kind {
	case fleet.ObjectProject, fleet.ObjectCluster, fleet.ObjectRepository, fleet.ObjectApplication:
	default:
		return row, fmt.Errorf("unknown kind %q: upgrade the agent", plain(string(r.Kind)))
	}
	switch r.Operation {
	case agent.OperationApply, agent.OperationApplyFurther:
	case agent.OperationArrive, agent.OperationLeave:
		row.Unwanted = r.Operation == agent.OperationLeave
		if r.Kind != fleet.ObjectApplication {
			return row, errors.New("only an Application moves")
		}
	case agent.OperationRemove:
		row.Unwanted = true
	case agent.OperationRemoveUID:
		if row.Unwanted, row.UID = true, r.UID; r.UID == "" {
			return row, errors.New("the removal of one object has no UID; nothing is removed")
		}
	default:
		return row, fmt.Errorf("unknown operation %q: upgrade the agent",
			plain(string(r.Operation)))
	}
	switch r.Deletion {
	case "", fleet.DeletionDelete, fleet.DeletionOrphan, fleet.DeletionRelease:
	default:
		return row, fmt.Errorf("unknown deletion policy %q: upgrade the agent",
			plain(string(r.Deletion)))
	}
	if c := r.Credential; c != nil {
		row.Credential = &fleet.CredentialSource{
			Tenant: c.Tenant, Folder: r.Kind.CredentialFolder(), Name: c.Name, Sealed: locator(key)}
	}
	err := m.checkManifest(r)
	if err == nil && r.Kind == fleet.ObjectProject {
		row.Manifest, err = m.permitted(row.Manifest)
	}
	return row, err
}

// permitted returns the manifest of an AppProject without the namespaces with Applications that the
// cluster's admin does not allow: an AppProject lets every writer of such a namespace deploy as its
// tenant. The hash of another body is another one, so that the agent compares the AppProject with
// what it may write.
func (m *rowCache) permitted(manifest fleet.Manifest) (fleet.Manifest, error) {
	const field = "sourceNamespaces"
	if !bytes.Contains(manifest.Body, []byte(`"`+field+`"`)) {
		return manifest, nil
	}
	var project map[string]any
	dec := json.NewDecoder(bytes.NewReader(manifest.Body))
	dec.UseNumber()
	if err := dec.Decode(&project); err != nil {
		return manifest, fmt.Errorf("failed to decode the manifest: %s", plain(err.Error()))
	}
	spec, _ := project["spec"].(map[string]any)
	named, _ := spec[field].([]any)
	allowed := slices.DeleteFunc(slices.Clone(named), func(n any) bool {
		namespace, _ := n.(string)
		return !slices.Contains(m.further, namespace)
	})
	if len(allowed) == len(named) {
		return manifest, nil
	}
	if spec[field] = allowed; len(allowed) == 0 {
		delete(spec, field)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // as the hub's renderer
	if err := enc.Encode(project); err != nil {
		return manifest, fmt.Errorf("failed to encode the manifest: %s", plain(err.Error()))
	}
	body := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	sum := sha256.Sum256(body)
	return fleet.Manifest{Body: body, Hash: hex.EncodeToString(sum[:])}, nil
}

// checkManifest verifies the manifest's hash and its namespace.
func (m *rowCache) checkManifest(r *agent.Row) error {
	if sum := sha256.Sum256(r.Manifest); hex.EncodeToString(sum[:]) != r.Hash {
		return errors.New(
			"the manifest does not match its hash; it was damaged in transit")
	}
	var o struct {
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(r.Manifest, &o); err != nil {
		return fmt.Errorf("failed to decode the manifest: %s", plain(err.Error()))
	}
	ns := o.Metadata.Namespace
	if ns == "" || ns == m.namespace ||
		r.Kind == fleet.ObjectApplication && slices.Contains(m.further, ns) {
		return nil
	}
	if r.Kind != fleet.ObjectApplication {
		return fmt.Errorf("the manifest is for namespace %q; this agent works only in %q",
			plain(ns), m.namespace)
	}
	return fmt.Errorf("the Application is in namespace %q, which this agent's settings do not "+
		"allow; the admin of its cluster adds it to argocd.applicationNamespaces of the chart "+
		"argosy-agent, or to --application-namespaces", plain(ns))
}

// locator identifies the row of a credential for the worker's lookup: each credential is sealed for
// its own row.
func locator(key fleet.ObjectKey) string { return string(key.Kind) + "/" + key.Name }

// drop forgets a row whose removal is proven, unless the row has changed.
func (m *rowCache) drop(key fleet.ObjectKey, seq int64) bool {
	have, ok := m.rows[key]
	if !ok || have.row.Seq != seq || !have.row.Unwanted {
		return false
	}
	delete(m.rows, key)
	return true
}

// changed returns the rows above after, by sequence number.
func (m *rowCache) changed(after int64, limit int) []mirror.Row {
	from := sort.Search(len(m.log), func(i int) bool { return m.log[i].seq > after })
	var rows []mirror.Row
	for _, e := range m.log[from:] {
		if len(rows) == limit {
			break
		}
		if have, ok := m.rows[e.key]; ok && have.row.Seq == e.seq {
			rows = append(rows, have.row)
		}
	}
	return rows
}

// all returns every row, by sequence number.
func (m *rowCache) all() []mirror.Row { return m.changed(-1, len(m.rows)) }

// orphans returns the number, the environments and the list of the objects without a row. The lists
// are never nil.
func (m *rowCache) orphans(inventory []engine.Live) (int, []fleet.EnvironmentID, []agent.Orphan) {
	n, of, listed := 0, map[fleet.EnvironmentID]bool{}, []agent.Orphan{}
	for _, live := range inventory {
		_, wanted := m.rows[live.Key]
		_, aside := m.rejected[live.Key]
		if wanted || aside {
			continue
		}
		n++
		listed = append(listed, agent.Orphan{Kind: live.Key.Kind, Name: live.Key.Name,
			Tenant: live.Tenant, Environment: live.Environment,
			Deployment: live.Deployment, UID: live.UID, Revision: live.Revision, Epoch: live.Epoch,
			Pure: !live.Drifted && live.Manager == ""})
		if live.Tenant != "" && live.Environment != "" {
			of[fleet.EnvironmentID{Tenant: live.Tenant, Name: live.Environment}] = true
		}
	}
	all := slices.SortedFunc(maps.Keys(of), func(a, b fleet.EnvironmentID) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(listed, func(a, b agent.Orphan) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return n, append([]fleet.EnvironmentID{}, all[:min(len(all), mirror.MaxOrphanEnvironments)]...),
		listed[:min(len(listed), mirror.MaxListedOrphans)]
}

// deletionsLocked lists the Applications with unwanted rows. An Application that moves is deleted
// only in that step of its move.
func (f *Follower) deletionsLocked() []fleet.ObjectKey {
	var keys []fleet.ObjectKey
	for key, have := range f.mirror.rows {
		if !have.row.Unwanted || key.Kind != fleet.ObjectApplication {
			continue
		}
		m, _ := f.moves.step(have.row.Application())
		if m.Step == mirror.MoveDelete || !f.movingLocked(have) {
			keys = append(keys, key)
		}
	}
	return keys
}
