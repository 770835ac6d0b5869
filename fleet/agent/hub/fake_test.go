package hub

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// fakeStore is a store in memory that counts its calls and fails on demand.
type fakeStore struct {
	mu       sync.Mutex
	calls    map[string]int
	fail     func(call string) error // may block; nil: no call fails
	agents   map[string]registry.Agent
	over     map[string]error // why an identity has ended
	ended    []string
	changed  []registry.Change
	tokens   map[string]registry.Token
	usedBy   map[string]string // token -> thumb
	access   map[[32]byte]string
	given    map[string]bool // assertions
	rows     map[fleet.EngineName][]mirror.Row
	syncs    map[fleet.EngineName][]mirror.SyncRequest
	seq      int64
	leases   map[string]mirror.Lease
	opening  int64
	open     map[string]int64 // agent -> opening
	proofs   map[string]bool  // proofs that opened sessions
	reports  map[string]int64 // lease -> last seq
	acks     []mirror.Ack
	seen     []mirror.Observation
	ends     map[string]mirror.OperationState
	actions  map[fleet.EngineName][]mirror.Action
	acted    []mirror.ActionUpdate
	statuses []registry.Report
	orphans  map[fleet.ObjectKey]mirror.Orphan
	own      []mirror.OwnApplication
	whole    bool
	moves    []mirror.ApplicationMove
	lastStep mirror.ApplicationMove // as recorded last
	wants    map[fleet.EngineName]*mirror.Instance
	packed   map[string][]byte // manifests by digest
	shadows  map[fleet.EngineName]*mirror.Shadow
	compared []mirror.ShadowResult
	leaks    bool // AgentMoves returns those of other engines
	reads    map[string]*fakeRead
	notify   func(by string) // receives notifications; nil: they are lost

	life      string // incarnation of the database
	gitAway   bool   // nothing is confirmed
	wanted    int64
	confirmed int64
	lives     map[fleet.EngineName]string // incarnations that granted the leases
}

func newFakeStore() *fakeStore {
	return &fakeStore{calls: map[string]int{}, agents: map[string]registry.Agent{},
		over: map[string]error{}, tokens: map[string]registry.Token{},
		usedBy: map[string]string{}, access: map[[32]byte]string{}, given: map[string]bool{},
		rows:  map[fleet.EngineName][]mirror.Row{},
		syncs: map[fleet.EngineName][]mirror.SyncRequest{}, leases: map[string]mirror.Lease{},
		open: map[string]int64{}, proofs: map[string]bool{}, reports: map[string]int64{},
		ends:    map[string]mirror.OperationState{},
		actions: map[fleet.EngineName][]mirror.Action{}, life: "first",
		lives: map[fleet.EngineName]string{}, wants: map[fleet.EngineName]*mirror.Instance{},
		packed: map[string][]byte{}, shadows: map[fleet.EngineName]*mirror.Shadow{},
		reads: map[string]*fakeRead{}}
}

func (f *fakeStore) parts() Store {
	return Store{Identities: f, Sessions: f, Rows: f, Changes: f, Reports: f,
		Inspections: f}
}

// called counts a call and fails it on demand.
func (f *fakeStore) called(ctx context.Context, call string) error {
	f.mu.Lock()
	f.calls[call]++
	fail := f.fail
	f.mu.Unlock()
	if fail != nil {
		if err := fail(call); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *fakeStore) count() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

func (f *fakeStore) failWith(fail func(string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// put records a row with the next number.
func (f *fakeStore) put(r mirror.Row) mirror.Row {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	r.Seq = f.seq
	of := slices.DeleteFunc(f.rows[r.Key.Engine], func(o mirror.Row) bool { return o.Key == r.Key })
	f.rows[r.Key.Engine] = append(of, r)
	return r
}

func (f *fakeStore) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeStore) revoke(id string, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over[id] = why
	f.ended = append(f.ended, id)
	maps.DeleteFunc(f.access, func(_ [32]byte, of string) bool { return of == id })
}

func (f *fakeStore) JoinAgent(ctx context.Context, token string,
	join registry.Join) (registry.Agent,
	error) {
	if err := f.called(ctx, "JoinAgent"); err != nil {
		return registry.Agent{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.tokens[token]
	thumb := join.Keys.Thumb()
	switch {
	case !ok:
		return registry.Agent{}, mirror.ErrNotFound
	case f.usedBy[token] == "":
		f.usedBy[token] = thumb
		f.agents["id-"+thumb] = registry.Agent{
			ID: "id-" + thumb, Engine: t.Engine, Tenant: t.Tenant,
			Keys: join.Keys, ExpiresAt: time.Now().Add(90 * 24 * time.Hour)}
	case f.usedBy[token] != thumb:
		return registry.Agent{}, registry.ErrUsed
	}
	return f.agents["id-"+thumb], nil
}

func (f *fakeStore) Agent(ctx context.Context, id string) (registry.Agent, error) {
	if err := f.called(ctx, "Agent"); err != nil {
		return registry.Agent{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.agents[id]
	if !ok {
		return a, mirror.ErrNotFound
	}
	return a, f.over[id]
}

func (f *fakeStore) SaveAccess(ctx context.Context, agent, assertion string, hash [32]byte,
	_ time.Duration) error {
	if err := f.called(ctx, "SaveAccess"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.given[agent+assertion] {
		return registry.ErrReplayed
	}
	f.given[agent+assertion] = true
	f.access[hash] = agent
	return nil
}

func (f *fakeStore) AccessAgent(ctx context.Context, hash [32]byte) (registry.Agent, error) {
	if err := f.called(ctx, "AccessAgent"); err != nil {
		return registry.Agent{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := f.access[hash]
	if !ok {
		return registry.Agent{}, mirror.ErrNotFound
	}
	return f.agents[id], nil
}

func (f *fakeStore) RotateAgent(ctx context.Context, id, oldThumb string,
	keys registry.Keys) (registry.Agent, error) {
	if err := f.called(ctx, "RotateAgent"); err != nil {
		return registry.Agent{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.agents[id]
	if a.Keys.Thumb() != oldThumb {
		return a, registry.ErrReplayed
	}
	a.Keys = keys
	f.agents[id] = a
	maps.DeleteFunc(f.access, func(_ [32]byte, of string) bool { return of == id })
	return a, nil
}

func (f *fakeStore) OpenAgent(ctx context.Context, s registry.Session) (registry.Opening,
	error) {
	if err := f.called(ctx, "OpenAgent"); err != nil {
		return registry.Opening{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a, holder := f.agents[s.Agent], "agent/"+s.Agent+"/"+s.Instance
	if err := f.over[s.Agent]; err != nil {
		return registry.Opening{}, err
	}
	if f.proofs[s.Proof] {
		return registry.Opening{}, registry.ErrReplayed
	}
	f.proofs[s.Proof] = true
	lease, before := f.leases[string(a.Engine)], f.lives[a.Engine]
	stale := before != "" && before != f.life
	if stale && s.Confirmed == f.life {
		lease.Holder, stale = "", false
	}
	if lease.Holder != holder || lease.Epoch <= s.Floor {
		lease = mirror.Lease{Name: "engine/" + string(a.Engine), Holder: holder,
			Epoch: max(lease.Epoch, s.Floor) + 1}
	}
	lease.Life = f.life
	f.leases[string(a.Engine)] = lease
	if !stale {
		f.lives[a.Engine] = f.life
	}
	f.opening++
	f.open[s.Agent] = f.opening
	return registry.Opening{Agent: a, Lease: lease, ReportSeq: f.reports[lease.Name],
		Mode: fleet.AgentManaged, Opening: f.opening, Generation: 1,
		Stale: stale, ApplicationNamespaces: []fleet.ApplicationNamespace{
			{Namespace: "apps", Tenant: a.Tenant}}}, nil
}

func (f *fakeStore) CloseAgent(ctx context.Context, s registry.Session) error {
	if err := f.called(ctx, "CloseAgent"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[s.Agent] == s.Opening {
		delete(f.open, s.Agent)
	}
	return nil
}

func (f *fakeStore) BeatReplica(ctx context.Context, _ string) error {
	return f.called(ctx, "BeatReplica")
}

func (f *fakeStore) AgentRows(ctx context.Context, engine fleet.EngineName,
	visit func(mirror.Row) error) (int64, error) {
	if err := f.called(ctx, "AgentRows"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	rows, seq, life := slices.Clone(f.rows[engine]), f.seq, f.life
	f.mu.Unlock()
	for _, r := range rows {
		r.Life = life
		if err := visit(r); err != nil {
			return 0, err
		}
	}
	return seq, nil
}

func (f *fakeStore) AgentChanged(ctx context.Context, engine fleet.EngineName, after int64,
	limit int) ([]mirror.Row, error) {
	if err := f.called(ctx, "AgentChanged"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []mirror.Row
	for _, r := range slices.SortedFunc(slices.Values(f.rows[engine]), func(a, b mirror.Row) int {
		return cmp.Compare(a.Seq, b.Seq)
	}) {
		if r.Seq > after && len(out) < limit {
			r.Life = f.life
			out = append(out, r)
		}
	}
	return out, nil
}

func (f *fakeStore) AgentCredentialRows(ctx context.Context, engine fleet.EngineName,
	tenant fleet.TenantName, secret string) ([]mirror.Row, error) {
	if err := f.called(ctx, "AgentCredentialRows"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []mirror.Row
	for _, r := range f.rows[engine] {
		if r.Credential != nil && r.Credential.Tenant == tenant && r.Credential.Name == secret {
			r.Life = f.life
			out = append(out, r)
		}
	}
	return out, nil
}

func (f *fakeStore) AgentSyncs(ctx context.Context, engine fleet.EngineName) ([]mirror.SyncRequest,
	error) {
	if err := f.called(ctx, "AgentSyncs"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.syncs[engine]), nil
}

func (f *fakeStore) AgentActions(ctx context.Context, engine fleet.EngineName) ([]mirror.Action,
	error) {
	if err := f.called(ctx, "AgentActions"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.actions[engine]), nil
}

func (f *fakeStore) UpdateAction(ctx context.Context, lease mirror.Lease,
	u mirror.ActionUpdate) error {
	return f.written(ctx, "UpdateAction", lease, func() error {
		f.acted = append(f.acted, u)
		return nil
	})
}

func (f *fakeStore) AgentMoves(ctx context.Context, engine fleet.EngineName) (registry.Moves,
	error) {
	if err := f.called(ctx, "AgentMoves"); err != nil {
		return registry.Moves{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	found := registry.Moves{Rows: f.seq, Life: f.life}
	for _, m := range f.moves {
		if m.From == engine || m.To == engine || f.leaks {
			found.All = append(found.All, m)
		}
	}
	return found, nil
}

func (f *fakeStore) AgentInstance(ctx context.Context, engine fleet.EngineName) (
	registry.Instance, error) {
	err := f.called(ctx, "AgentInstance")
	f.mu.Lock()
	defer f.mu.Unlock()
	return registry.Instance{Wanted: f.wants[engine], Shadow: f.shadows[engine], Life: f.life}, err
}

func (f *fakeStore) AgentShadowTasks(ctx context.Context, engine fleet.EngineName, digest, _,
	after string, limit int) (tasks []mirror.ShadowTask, err error) {
	if err := f.called(ctx, "AgentShadowTasks"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.shadows[engine]; w == nil || w.Digest != digest {
		return nil, mirror.ErrNotFound
	}
	for _, r := range f.rows[engine] {
		if r.Key.Name > after && len(tasks) < limit {
			tasks = append(tasks, mirror.ShadowTask{Name: r.Key.Name, Tenant: r.Tenant,
				Inputs: strings.Repeat("1", 32)})
		}
	}
	return tasks, nil
}

func (f *fakeStore) RecordShadow(ctx context.Context, lease mirror.Lease, digest string,
	results []mirror.ShadowResult) error {
	if err := f.called(ctx, "RecordShadow"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	engine := fleet.EngineName(strings.TrimPrefix(lease.Name, "engine/"))
	if w := f.shadows[engine]; w != nil && w.Digest == digest {
		f.compared = append(f.compared, results...)
	}
	return nil
}

func (f *fakeStore) ReportShadow(ctx context.Context, lease mirror.Lease, digest string,
	state mirror.ShadowState, why string) error {
	if err := f.called(ctx, "ReportShadow"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	engine := fleet.EngineName(strings.TrimPrefix(lease.Name, "engine/"))
	if w := f.shadows[engine]; w != nil && w.Digest == digest {
		now := *w
		now.State, now.Message = state, why
		f.shadows[engine] = &now
	}
	return nil
}

func (f *fakeStore) AgentManifests(ctx context.Context, engine fleet.EngineName, digest string) (
	string, []byte, error) {
	if err := f.called(ctx, "AgentManifests"); err != nil {
		return "", nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.wants[engine]
	if i == nil || i.Digest != digest {
		return "", nil, mirror.ErrNotFound
	}
	return i.Version, f.packed[digest], nil
}

func (f *fakeStore) ReportInstance(ctx context.Context, lease mirror.Lease, release string,
	state mirror.InstanceState, why string) error {
	if err := f.called(ctx, "ReportInstance"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name := fleet.EngineName(strings.TrimPrefix(lease.Name, "engine/"))
	if i := f.wants[name]; i != nil && i.Release() == release {
		now := *i
		now.State, now.Message = state, why
		f.wants[name] = &now
	}
	return nil
}

func (f *fakeStore) ForgetInstance(ctx context.Context, lease mirror.Lease) error {
	err := f.called(ctx, "ForgetInstance")
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.wants, fleet.EngineName(strings.TrimPrefix(lease.Name, "engine/")))
	return err
}

func (f *fakeStore) LeasedRow(_ context.Context, _ mirror.Lease, key fleet.ObjectKey) (
	mirror.Row, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.rows[key.Engine], func(r mirror.Row) bool { return r.Key == key })
	if i < 0 {
		return mirror.Row{}, false, nil
	}
	return f.rows[key.Engine][i], true, nil
}

func (f *fakeStore) ApplicationMove(_ context.Context, _ mirror.Lease, id fleet.ApplicationID) (
	mirror.ApplicationMove, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.moves {
		if m.Application == id {
			return m, true, nil
		}
	}
	return mirror.ApplicationMove{}, false, nil
}

// recordMove records the last change of a move.
func (f *fakeStore) recordMove(ctx context.Context, call string, lease mirror.Lease,
	m mirror.ApplicationMove) error {
	return f.written(ctx, call, lease, func() error {
		f.lastStep = m
		f.moves = slices.DeleteFunc(f.moves, func(o mirror.ApplicationMove) bool {
			return o.Application == m.Application
		})
		if m.Step != mirror.MoveDone {
			f.moves = append(f.moves, m)
		}
		return nil
	})
}

func (f *fakeStore) AdvanceMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove,
	next mirror.MoveStep, _ mirror.Row) error {
	m.Step, m.Message = next, ""
	return f.recordMove(ctx, "AdvanceMove", lease, m)
}

func (f *fakeStore) DelayMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove,
	why string) error {
	m.Message = why
	return f.recordMove(ctx, "DelayMove", lease, m)
}

func (f *fakeStore) EndMove(ctx context.Context, lease mirror.Lease,
	m mirror.ApplicationMove) error {
	m.Step = mirror.MoveDone
	return f.recordMove(ctx, "EndMove", lease, m)
}

func (f *fakeStore) AgentNews(ctx context.Context, after int64, _ time.Time) (registry.News,
	error) {
	if err := f.called(ctx, "AgentNews"); err != nil {
		return registry.News{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.gitAway {
		f.confirmed = f.wanted
	}
	news := registry.News{Seq: f.seq, Now: time.Now(), Ended: slices.Clone(f.ended),
		Changed: slices.Clone(f.changed), Life: f.life, Confirmed: f.confirmed}
	for engine, rows := range f.rows {
		if slices.ContainsFunc(rows, func(r mirror.Row) bool { return r.Seq > after }) {
			news.Rows = append(news.Rows, engine)
		}
	}
	for engine, syncs := range f.syncs {
		if len(syncs) > 0 {
			news.Syncs = append(news.Syncs, engine)
		}
	}
	for engine, open := range f.actions {
		if len(open) > 0 {
			news.Actions = append(news.Actions, engine)
		}
	}
	news.Instances = slices.Collect(maps.Keys(f.wants))
	for _, r := range f.reads {
		news.Inspections = append(news.Inspections, r.Engine)
	}
	for _, m := range f.moves {
		news.Moves = append(news.Moves, m.From, m.To)
	}
	if f.leaks {
		news.Moves = append(news.Moves, slices.Collect(maps.Keys(f.rows))...)
	}
	return news, nil
}

func (f *fakeStore) WantConfirmed(ctx context.Context) (int64, error) {
	if err := f.called(ctx, "WantConfirmed"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted = max(f.wanted, f.confirmed+1)
	return f.wanted, nil
}

func (f *fakeStore) Notify(ctx context.Context, by string) error {
	f.mu.Lock()
	notify := f.notify
	f.mu.Unlock()
	if notify != nil {
		notify(by)
	}
	return f.called(ctx, "Notify")
}

func (f *fakeStore) BeginLife(ctx context.Context, was string) error {
	if err := f.called(ctx, "BeginLife"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life == was {
		f.life += "+"
	}
	return nil
}

func (f *fakeStore) CredentialEngines(ctx context.Context, tenant fleet.TenantName,
	secret string) ([]fleet.EngineName, error) {
	if err := f.called(ctx, "CredentialEngines"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []fleet.EngineName
	for engine, rows := range f.rows {
		if slices.ContainsFunc(rows, func(r mirror.Row) bool {
			return r.Credential != nil && r.Credential.Tenant == tenant &&
				r.Credential.Name == secret
		}) {
			out = append(out, engine)
		}
	}
	return out, nil
}

func (f *fakeStore) fenced(lease mirror.Lease) error {
	for _, l := range f.leases {
		if l.Name == lease.Name && l.Holder == lease.Holder && l.Epoch == lease.Epoch {
			return nil
		}
	}
	return mirror.ErrFenced
}

// written runs a write if its lease is valid.
func (f *fakeStore) written(ctx context.Context, call string, lease mirror.Lease,
	write func() error) error {
	if err := f.called(ctx, call); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fenced(lease); err != nil {
		return err
	}
	return write()
}

func (f *fakeStore) TakeReport(ctx context.Context, lease mirror.Lease, seq int64) (last int64,
	err error) {
	err = f.written(ctx, "TakeReport", lease, func() error {
		if last = f.reports[lease.Name]; seq <= last {
			return registry.ErrReplayed
		}
		return nil
	})
	return last, err
}

func (f *fakeStore) ReportTaken(ctx context.Context, lease mirror.Lease, seq int64) error {
	return f.written(ctx, "ReportTaken", lease, func() error {
		f.reports[lease.Name] = max(f.reports[lease.Name], seq)
		return nil
	})
}

func (f *fakeStore) Acknowledge(ctx context.Context, lease mirror.Lease, acks []mirror.Ack) error {
	return f.written(ctx, "Acknowledge", lease, func() error {
		f.acks = append(f.acks, acks...)
		return nil
	})
}

func (f *fakeStore) Observe(ctx context.Context, lease mirror.Lease,
	seen []mirror.Observation) error {
	return f.written(ctx, "Observe", lease, func() error {
		f.seen = append(f.seen, seen...)
		return nil
	})
}

func (f *fakeStore) UpdateSync(ctx context.Context, lease mirror.Lease, id string,
	state mirror.OperationState, _ string) error {
	return f.written(ctx, "UpdateSync", lease, func() error { f.ends[id] = state; return nil })
}

func (f *fakeStore) ReportAgent(ctx context.Context, lease mirror.Lease,
	report registry.Report) error {
	return f.written(ctx, "ReportAgent", lease, func() error {
		f.statuses = append(f.statuses, report)
		return nil
	})
}

func (f *fakeStore) OrphanKeys(ctx context.Context, _ fleet.EngineName) ([]fleet.ObjectKey, error) {
	if err := f.called(ctx, "StrayKeys"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.orphans)), nil
}

func (f *fakeStore) ReportOrphans(ctx context.Context, lease mirror.Lease, found []mirror.Orphan,
	resolved []fleet.ObjectKey) error {
	return f.written(ctx, "ReportStrays", lease, func() error {
		if f.orphans == nil {
			f.orphans = map[fleet.ObjectKey]mirror.Orphan{}
		}
		for _, s := range found {
			f.orphans[s.Key] = s
		}
		for _, key := range resolved {
			delete(f.orphans, key)
		}
		return nil
	})
}

func (f *fakeStore) RecordOwn(ctx context.Context, lease mirror.Lease, own []mirror.OwnApplication,
	whole bool) error {
	return f.written(ctx, "RecordOwn", lease, func() error {
		f.own, f.whole = append(f.own, own...),
			whole
		return nil
	})
}

func (f *fakeStore) LegacyToken(ctx context.Context, token string) (registry.Token, error) {
	if err := f.called(ctx, "LegacyToken"); err != nil {
		return registry.Token{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.tokens[token]
	if !ok || !t.Legacy {
		return t, mirror.ErrNotFound
	}
	return t, nil
}
