package reconciler_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/reach"
	"argosy.dev/argosy/reconciler/recovery"
	"argosy.dev/argosy/reconciler/worker"
)

// replica is one control plane, wired as cmd/argosy/server wires it.
type replica struct {
	*reconciler.Loop
	manager *worker.Manager
	store   *faulty
	source  *gitSource
	stop    func() // and wait until everything has ended
	dead    *atomic.Bool
	notices atomic.Int64 // notifications
}

type options struct {
	flight int
	poll   time.Duration                                // of the loop; 100 ms when zero
	url    string                                       // of the database; the house's when empty
	fail   func(call string) error                      // of the store
	engine func(call string, key fleet.ObjectKey) error // of every engine

	beat    time.Duration // of the manager
	standby time.Duration // of the loop
	reach   reach.Limits  // of every worker

	gitAway bool           // until source.away is reset
	budget  gitrepo.Budget // of the copy of the config repo

	instances reconciler.InstanceReader // of pools; nil: none is made

	reviews reconciler.Reviews
	agents  recovery.AgentReports
	lister  reconciler.Lister
	// between reads of a listed repository; default 3 min
	listingPoll  time.Duration
	patience     time.Duration                       // of drains; default 5 min
	loads        func() map[fleet.EngineName]float64 // measured, instead of the store's
	measureAgain time.Duration                       // after a move; default 15 min
	task         func(context.Context)               // that runs while the replica leads
	renderer     engine.Renderer                     // Argo CD's when nil
	prometheus   reconciler.Prometheus
	work         reach.WorkLimits                  // of every worker
	wrap         func(engine.Engine) engine.Engine // every engine; nil: none
	// of the manifests of rings; nil: no ring takes a step
	download func(context.Context, fleet.RingManifests) (map[string][]byte, error)
	sender   reconciler.Sender         // of messages; nil: none is sent
	commits  reconciler.CommitReporter // nil: no commit is reported
}

func (h *house) start(name string, o options) *replica {
	h.t.Helper()
	if o.flight == 0 {
		o.flight = 4
	}
	if o.poll == 0 {
		o.poll = 100 * time.Millisecond
	}
	if o.renderer == nil {
		o.renderer = argocd.Renderer{}
	}
	// Notifications wake the workers; a change without one can wait.
	rowPoll := 200 * time.Millisecond
	if o.reach.Patience > 0 || o.work.Every > 0 {
		rowPoll = 50 * time.Millisecond // the limits of the test are as short
	}
	store, err := postgres.Open(context.Background(), cmp.Or(o.url, h.url), postgres.Options{
		Connections: postgres.Connections{Workers: 4}, Application: name})
	if err != nil {
		h.t.Fatal(err)
	}
	m, err := gitrepo.Open(context.Background(), filepath.Join(h.t.TempDir(), "config.git"),
		gitrepo.Source{URL: h.repo.URL, Branch: "refs/heads/main"},
		gitrepo.AllowPlainHTTP(), gitrepo.WithBudget(o.budget))
	if err != nil {
		h.t.Fatal(err)
	}
	r := &replica{source: &gitSource{Mirror: m}, dead: &atomic.Bool{}}
	r.source.away.Store(o.gitAway)
	r.store = &faulty{Store: store, Plans: store.Plans, Decisions: store.Decisions,
		Leases: store.Leases, Work: store.Work, Views: store.Views, dead: r.dead, fail: o.fail,
		calls: map[string]int{}}
	registry, board := prometheus.NewRegistry(), worker.NewStopBoard()
	workerMetrics := worker.NewMetrics(registry)
	dial := func(_ context.Context, e fleet.EngineName, _ fleet.EngineSpec,
		stopped func(fleet.TenantName) bool) (engine.Engine, error) {
		h.engines[e].dials.Add(1)
		target, err := h.engines[e].dial(r.dead, stopped, o.engine)
		if err == nil && o.wrap != nil {
			target = o.wrap(target)
		}
		return target, err
	}
	config := reconciler.Config{Source: r.source, Decoder: decoder{},
		Renderer: o.renderer, Store: r.store, Leases: r.store, Stops: r.store,
		Engines: finder{h, r.dead}, Judge: policy.New().Judge, Holder: name, URL: h.repo.URL,
		Branch: "main", Poll: o.poll, Standby: o.standby, Metrics: reconciler.NewMetrics(registry),
		Log:   quiet(),
		Pulls: r.source, Agents: o.agents, Reviews: o.reviews, Lister: o.lister,
		Prometheus:  o.prometheus,
		ListingPoll: o.listingPoll, Unready: r.store, DrainPatience: o.patience,
		Loads: measuring{r.store.Views, o.loads}, MeasureAgain: o.measureAgain}
	if o.download != nil {
		config.Rings, config.CheckManifests = r.store, instance.Check
		config.RingProblem, config.Download = instance.Problem, o.download
	}
	if o.instances != nil {
		config.Pools, config.Instances = store.Plans, o.instances
	}
	if o.sender != nil {
		config.Notifier = reconciler.Notifier{Store: store.Notifications, Sender: o.sender,
			Secret: h.secrets.Get, Public: "https://argosy.example.com"}
	}
	if o.commits != nil {
		config.Notifier = reconciler.Notifier{Store: store.Notifications, Secret: h.secrets.Get,
			Commits: store.Notifications, Reporter: o.commits}
	}
	r.Loop = reconciler.NewLoop(config)
	r.manager = worker.NewManager(r.store, 100*time.Millisecond, quiet(),
		func(e fleet.EngineName, spec fleet.EngineSpec) worker.Config {
			return worker.Config{Engine: e, Spec: spec, Holder: name, Rows: r.store,
				Reports: r.store,
				Leases:  r.store, Secrets: h.secrets, Stops: board, Dial: dial,
				Metrics: workerMetrics, Log: quiet(), Poll: rowPoll, Flight: o.flight,
				Reach: o.reach, Work: o.work}
		})
	r.manager.Replicas, r.manager.Holder, r.manager.Beat = r.store, name, o.beat
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { r.Run(ctx) })
	all.Go(func() { r.manager.Run(ctx) })
	if o.task != nil {
		all.Go(func() { r.WhileLeading(ctx, o.task) })
	}
	all.Go(func() { board.Run(ctx, r.store, quiet()) })
	all.Go(func() {
		store.Listen(ctx, func(by string) {
			if lease, ok := strings.CutPrefix(by, postgres.Released); ok {
				r.Released(lease)
				r.manager.Released(lease)
				return
			}
			board.Wake()
			r.Notified(by)
			r.manager.Wake()
			r.notices.Add(1)
		})
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		m.Close()
		store.Close()
	})
	h.t.Cleanup(r.stop)
	return r
}

// kill ends a replica at once: nothing that it still does reaches the store or an engine, its
// leases are not released. They expire, which the test brings forward.
func (h *house) kill(r *replica) {
	h.t.Helper()
	r.dead.Store(true)
	r.stop()
	h.expire(r)
}

// expire ends the leases of a replica as if their time had passed.
func (h *house) expire(r *replica) {
	h.t.Helper()
	for _, lease := range r.store.held() {
		if err := h.store.Leases.Release(context.Background(), lease, ""); err != nil {
			h.t.Fatal(err)
		}
	}
}

var errDead = errors.New("this replica was killed")

// A session asks its store for this interface: without it, it would freeze nothing.
var _ worker.Evacuations = (*postgres.Work)(nil)

// faulty is the real store with faults to order.
type faulty struct {
	*postgres.Plans
	*postgres.Decisions
	*postgres.Leases
	*postgres.Work
	*postgres.Views
	Store *postgres.Store

	dead *atomic.Bool
	fail func(call string) error

	looked, changed atomic.Int64

	mu     sync.Mutex
	calls  map[string]int
	leases map[string]mirror.Lease
	last   mirror.Record // that was taken
}

func (s *faulty) Mirror(ctx context.Context) (mirror.State, error) { return s.Store.Mirror(ctx) }

func (s *faulty) WantConfirmed(ctx context.Context) (int64, error) {
	return s.Store.WantConfirmed(ctx)
}

func (s *faulty) ApplicationMove(ctx context.Context, l mirror.Lease, id fleet.ApplicationID) (
	mirror.ApplicationMove, bool, error) {
	if err := s.ask("applicationmove"); err != nil {
		return mirror.ApplicationMove{}, false, err
	}
	return s.Work.ApplicationMove(ctx, l, id)
}

func (s *faulty) AdvanceMove(ctx context.Context, l mirror.Lease, m mirror.ApplicationMove,
	next mirror.MoveStep, row mirror.Row) error {
	if err := s.ask("advancemove " + string(m.Step)); err != nil {
		return err
	}
	return s.Work.AdvanceMove(ctx, l, m, next, row)
}

func (s *faulty) DelayMove(ctx context.Context, l mirror.Lease, m mirror.ApplicationMove,
	why string) error {
	if err := s.ask("delaymove"); err != nil {
		return err
	}
	return s.Work.DelayMove(ctx, l, m, why)
}

func (s *faulty) ReportInventory(ctx context.Context, l mirror.Lease) error {
	if err := s.ask("reportinventory"); err != nil {
		return err
	}
	return s.Work.ReportInventory(ctx, l)
}

func (s *faulty) Elsewhere(ctx context.Context, key fleet.ObjectKey) (mirror.Elsewhere, error) {
	if err := s.ask("elsewhere"); err != nil {
		return mirror.Elsewhere{}, err
	}
	return s.Work.Elsewhere(ctx, key)
}

func (s *faulty) EndMove(ctx context.Context, l mirror.Lease, m mirror.ApplicationMove) error {
	if err := s.ask("endmove"); err != nil {
		return err
	}
	return s.Work.EndMove(ctx, l, m)
}

func (s *faulty) OpenFence(ctx context.Context, l mirror.Lease) (mirror.Fence, bool, error) {
	if err := s.ask("openfence"); err != nil {
		return mirror.Fence{}, false, err
	}
	f, ok, err := s.Work.OpenFence(ctx, l)
	if err == nil && ok {
		err = s.ask("openfence " + string(f.State))
	}
	return f, ok, err
}

func (s *faulty) ReportFence(ctx context.Context, l mirror.Lease, was mirror.FenceState,
	r mirror.FenceReport) error {
	step := fmt.Sprintf("%s %s", was, r.State)
	if err := s.ask("reportfence " + step); err != nil {
		return err
	}
	if err := s.Work.ReportFence(ctx, l, was, r); err != nil {
		return err
	}
	return s.ask("reportedfence " + step)
}

func (s *faulty) FreezeMove(ctx context.Context, l mirror.Lease, m mirror.ApplicationMove) error {
	if err := s.ask("freezemove"); err != nil {
		return err
	}
	return s.Work.FreezeMove(ctx, l, m)
}

func (s *faulty) ask(call string) error {
	s.mu.Lock()
	s.calls[call]++
	s.mu.Unlock()
	if s.dead.Load() {
		return errDead
	}
	if s.fail != nil {
		return s.fail(call)
	}
	return nil
}

// asked counts calls.
func (s *faulty) asked(calls ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range calls {
		n += s.calls[c]
	}
	return n
}

func (s *faulty) held() []mirror.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []mirror.Lease
	for _, l := range s.leases {
		all = append(all, l)
	}
	return all
}

func (s *faulty) lease(name string) (mirror.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leases[name]
	return l, ok
}

func (s *faulty) remember(l mirror.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases == nil {
		s.leases = map[string]mirror.Lease{}
	}
	s.leases[l.Name] = l
}

func (s *faulty) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (mirror.Lease,
	bool, error) {
	if err := s.ask("acquire"); err != nil {
		return mirror.Lease{}, false, err
	}
	l, ok, err := s.Store.Leases.Acquire(ctx, name, holder, ttl)
	if ok {
		s.remember(l)
	}
	return l, ok, err
}

func (s *faulty) Renew(ctx context.Context, l mirror.Lease, ttl time.Duration) (bool, error) {
	if err := s.ask("renew"); err != nil {
		return false, err
	}
	return s.Store.Leases.Renew(ctx, l, ttl)
}

func (s *faulty) RaiseEpoch(ctx context.Context, l mirror.Lease, floor int64) (mirror.Lease,
	error) {
	if err := s.ask("raise"); err != nil {
		return l, err
	}
	l, err := s.Store.Leases.RaiseEpoch(ctx, l, floor)
	if err == nil {
		s.remember(l)
	}
	return l, err
}

func (s *faulty) Release(ctx context.Context, l mirror.Lease, to string) error {
	if err := s.ask("release"); err != nil {
		return err
	}
	return s.Store.Leases.Release(ctx, l, to)
}

func (s *faulty) BeatWorkers(ctx context.Context, beat mirror.ReplicaBeat) (mirror.Replicas,
	error) {
	if err := s.ask("beat"); err != nil {
		return mirror.Replicas{}, err
	}
	return s.Store.Leases.BeatWorkers(ctx, beat)
}

func (s *faulty) LeaveWorkers(ctx context.Context, replica string) error {
	if err := s.ask("leave"); err != nil {
		return err
	}
	return s.Store.Leases.LeaveWorkers(ctx, replica)
}

// Record fails before or after the commit: "record" and "recorded" are asked for.
func (s *faulty) Record(ctx context.Context, l mirror.Lease, r mirror.Record) (int64, error) {
	if err := s.ask("record"); err != nil {
		return 0, err
	}
	seq, err := s.Store.Plans.Record(ctx, l, r)
	if err == nil {
		s.mu.Lock()
		s.last = r
		s.mu.Unlock()
		err = s.ask("recorded")
	}
	return seq, err
}

func (s *faulty) SetSource(ctx context.Context, v view.Source) error {
	if err := s.ask("source"); err != nil {
		return err
	}
	return s.Store.Plans.SetSource(ctx, v)
}

func (s *faulty) Listings(ctx context.Context) ([]mirror.ListingStatus, error) {
	if err := s.ask("listings"); err != nil {
		return nil, err
	}
	return s.Store.Plans.Listings(ctx)
}

func (s *faulty) SetListings(ctx context.Context, all []mirror.ListingStatus) error {
	if err := s.ask("listings"); err != nil {
		return err
	}
	return s.Store.Plans.SetListings(ctx, all)
}

func (s *faulty) Recent(ctx context.Context, window time.Duration) (mirror.Recent, error) {
	if err := s.ask("lately"); err != nil {
		return mirror.Recent{}, err
	}
	return s.Store.Plans.Recent(ctx, window)
}

func (s *faulty) Load(ctx context.Context) (mirror.Snapshot, error) {
	if err := s.ask("load"); err != nil {
		return mirror.Snapshot{}, err
	}
	return s.Store.Plans.Load(ctx)
}

func (s *faulty) Changed(ctx context.Context, name fleet.EngineName, after int64,
	most int) ([]mirror.Row, error) {
	if err := s.ask("changed"); err != nil {
		return nil, err
	}
	rows, err := s.Store.Work.Changed(ctx, name, after, most)
	s.changed.Add(int64(len(rows)))
	return rows, err
}

func (s *faulty) RowHeads(ctx context.Context, name fleet.EngineName,
	visit func(mirror.RowHead) error) error {
	if err := s.ask("rows"); err != nil {
		return err
	}
	return s.Store.Work.RowHeads(ctx, name, visit)
}

func (s *faulty) RowsByKey(ctx context.Context, name fleet.EngineName,
	keys []fleet.ObjectKey) ([]mirror.Row, error) {
	if err := s.ask("lookup"); err != nil {
		return nil, err
	}
	s.looked.Add(int64(len(keys)))
	return s.Store.Work.RowsByKey(ctx, name, keys)
}

// bodies counts the rows that were read with their bodies.
func (s *faulty) bodies() int { return int(s.looked.Load() + s.changed.Load()) }

func (s *faulty) Row(ctx context.Context, key fleet.ObjectKey) (mirror.Row, bool, error) {
	if err := s.ask("row"); err != nil {
		return mirror.Row{}, false, err
	}
	return s.Store.Work.Row(ctx, key)
}

func (s *faulty) LeasedRow(ctx context.Context, l mirror.Lease, key fleet.ObjectKey) (mirror.Row,
	bool, error) {
	if err := s.ask("leasedrow"); err != nil {
		return mirror.Row{}, false, err
	}
	return s.Store.Work.LeasedRow(ctx, l, key)
}

func (s *faulty) CredentialRows(ctx context.Context, name fleet.EngineName, t fleet.TenantName,
	secret string) ([]mirror.Row, error) {
	if err := s.ask("credentialrows"); err != nil {
		return nil, err
	}
	return s.Store.Work.CredentialRows(ctx, name, t, secret)
}

func (s *faulty) Acknowledge(ctx context.Context, l mirror.Lease, acks []mirror.Ack) error {
	if err := s.ask("acknowledge"); err != nil {
		return err
	}
	return s.Store.Work.Acknowledge(ctx, l, acks)
}

func (s *faulty) Observe(ctx context.Context, l mirror.Lease, seen []mirror.Observation) error {
	if err := s.ask("observe"); err != nil {
		return err
	}
	return s.Store.Work.Observe(ctx, l, seen)
}

func (s *faulty) PendingSyncs(ctx context.Context, name fleet.EngineName) ([]mirror.SyncRequest,
	error) {
	if err := s.ask("syncs " + string(name)); err != nil {
		return nil, err
	}
	return s.Store.Work.PendingSyncs(ctx, name)
}

func (s *faulty) StopRecords(ctx context.Context) (mirror.StopRecords, error) {
	if err := s.ask("stops"); err != nil {
		return mirror.StopRecords{}, err
	}
	return s.Store.Decisions.StopRecords(ctx)
}

func (s *faulty) Notify(ctx context.Context, by string) error {
	who, _, _ := strings.Cut(by, "/") // a loop or an engine's worker
	if err := s.ask("notify " + who); err != nil {
		return err
	}
	return s.Store.Notify(ctx, by)
}

func (s *faulty) UpdateSync(ctx context.Context, l mirror.Lease, id string,
	state mirror.OperationState, message string) error {
	if err := s.ask("updatesync"); err != nil {
		return err
	}
	return s.Store.Work.UpdateSync(ctx, l, id, state, message)
}

// gitSource is the config repo as the loop needs it, with an outage to order.
type gitSource struct {
	*gitrepo.Mirror
	away    atomic.Bool
	fetches atomic.Int64
	reads   atomic.Int64
	folders atomic.Int64 // read for pull requests
}

func (m *gitSource) Fetch(ctx context.Context) (reconciler.Head, error) {
	m.fetches.Add(1)
	if m.away.Load() {
		return reconciler.Head{}, errors.New("the Git server is away")
	}
	head, err := m.Mirror.Fetch(ctx)
	if err != nil {
		return reconciler.Head{}, err
	}
	c, err := m.Commit(ctx, head.Commit)
	return reconciler.Head{Revision: fleet.Revision(head.Commit), Author: c.Author.Name,
		Subject: c.Subject, At: head.Time}, err
}

func (m *gitSource) Relation(ctx context.Context, applied,
	head fleet.Revision) (mirror.Relation,
	error) {
	r, err := m.Mirror.Relation(ctx, gitrepo.Hash(applied), gitrepo.Hash(head))
	return r, err
}

func (m *gitSource) Changed(ctx context.Context, base, head fleet.Revision,
	unreadable map[string]string, visit func(reconciler.File) error) error {
	m.reads.Add(1)
	folders := map[string]gitrepo.Hash{}
	for path, id := range unreadable {
		folders[path] = gitrepo.Hash(id)
	}
	changes, err := m.DiffWhole(ctx, gitrepo.Hash(base), gitrepo.Hash(head), folders)
	if err != nil {
		return err
	}
	return m.visit(ctx, changes, visit)
}

func (m *gitSource) visit(ctx context.Context, changes []gitrepo.Change,
	visit func(reconciler.File) error) (err error) {
	for _, c := range changes {
		f := reconciler.File{Path: c.Path, Blob: string(c.New.Blob), Removed: c.New.Kind == ""}
		switch {
		case c.New.Kind == gitrepo.Unreadable:
			f.Unreadable = c.New.Why
		case c.Old.Kind == gitrepo.Unreadable:
			f.Whole, f.Removed = true, false
		case !f.Removed:
			var over *gitrepo.Error
			if f.Bytes, err = m.Blob(ctx, c.New.Blob); errors.As(err, &over) &&
				errors.Is(err, gitrepo.ErrOverBudget) {
				f.Size = max(over.Size, over.Limit+1)
			} else if err != nil {
				return err
			}
		}
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

func (m *gitSource) Bytes(ctx context.Context, blob string) ([]byte, error) {
	return m.Blob(ctx, gitrepo.Hash(blob))
}

type decoder struct{}

func (decoder) Decode(f reconciler.File) (catalog.Input, bool) {
	key, ours, _ := configschema.Classify(f.Path)
	if !ours || f.Removed {
		return catalog.Input{Key: key, Path: f.Path, Removed: true}, ours
	}
	d := configschema.Decode(configschema.File{Path: f.Path, Blob: f.Blob, Bytes: f.Bytes,
		Irregular: f.Irregular, Size: f.Size, Unreadable: f.Unreadable, Listings: f.Listings})
	return catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: d.Declaration,
		Problems: d.Problems}, true
}

func (decoder) Locate(b []byte, field string) (line, column int) {
	return configschema.Locate(b, field)
}

// finder reads an engine for a rebuild.
type finder struct {
	h    *house
	dead *atomic.Bool
}

func (f finder) Find(ctx context.Context, name fleet.EngineName, _ fleet.EngineSpec) ([]engine.Live,
	[]mirror.Stop, error) {
	if f.h.engines[name].hidden.Load() {
		return nil, nil, errAway
	}
	if slow := f.h.engines[name].slow.Load(); slow != nil {
		select {
		case <-*slow:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	target, err := f.h.engines[name].dial(f.dead, func(fleet.TenantName) bool { return true }, nil)
	if err != nil {
		return nil, nil, err
	}
	stops, err := target.ReadStops(ctx)
	if err != nil {
		return nil, nil, err
	}
	return f.h.engines[name].inventory(), stops, nil
}

func TestReplicasAreWiredLikeTheServer(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.start("a", options{})
	h.eventually("a commit reaches the engines", h.converged)
	if a := h.application("acme/web@prod"); a.TargetRevision != "v1" ||
		a.Apply != mirror.ApplyApplied {
		t.Fatalf("the mirror shows %+v", a)
	}
}
