package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/reconciler/lease"
	"argosy.dev/argosy/reconciler/reach"
)

// Rows is the store as one engine's worker sees it. Every write carries the lease; the store
// refuses one whose epoch is not the newest.
type Rows interface {
	// Changed are the engine's rows with a sequence number above after, in that order, at most
	// limit.
	Changed(ctx context.Context, name fleet.EngineName, after int64, limit int) ([]mirror.Row, error)
	// RowHeads visits the head of every row of the engine: the verifying pass.
	RowHeads(ctx context.Context, name fleet.EngineName, visit func(mirror.RowHead) error) error
	// Row is one row as it stands now; false when there is none.
	Row(ctx context.Context, key fleet.ObjectKey) (mirror.Row, bool, error)
	// LeasedRow is Row, provided that the lease is in force by the store's own clock; else
	// mirror.ErrFenced.
	LeasedRow(ctx context.Context, lease mirror.Lease, key fleet.ObjectKey) (mirror.Row, bool, error)
	// RowsByKey returns the current rows of these objects and skips objects without one.
	RowsByKey(ctx context.Context, name fleet.EngineName, keys []fleet.ObjectKey) ([]mirror.Row,
		error)
	// OrphanKeys are the listed strays of the engine.
	OrphanKeys(ctx context.Context, name fleet.EngineName) ([]fleet.ObjectKey, error)
	// ReportOrphans records objects without a row, and those of the list that are gone or have one.
	ReportOrphans(ctx context.Context, lease mirror.Lease, found []mirror.Orphan,
		gone []fleet.ObjectKey) error
	// CredentialRows are the engine's rows that need the secret of that tenant and name.
	CredentialRows(ctx context.Context, name fleet.EngineName, tenant fleet.TenantName,
		secret string) ([]mirror.Row, error)
	// Acknowledge records what was done with rows. An Ack for an older row than the one that stands
	// changes nothing.
	Acknowledge(ctx context.Context, lease mirror.Lease, acks []mirror.Ack) error
	// Observe records what the engine shows of its Applications.
	Observe(ctx context.Context, lease mirror.Lease, seen []mirror.Observation) error
	// ReportEngine records whether the engine is reached, and what is wrong with it.
	ReportEngine(ctx context.Context, lease mirror.Lease, report mirror.EngineReport) error
	// ReportReach records environments whose clusters the engine cannot read, and those that it can
	// read again. whole: there are no others.
	ReportReach(ctx context.Context, lease mirror.Lease, reports []mirror.Reach, whole bool) error
	// ReportWentBack records that the engine's state went back in time, and how that showed.
	ReportWentBack(ctx context.Context, lease mirror.Lease, how string) error
	// PendingSyncs are the syncs that were asked for on the engine and have not ended.
	PendingSyncs(ctx context.Context, name fleet.EngineName) ([]mirror.SyncRequest, error)
	// UpdateSync records how a sync stands.
	UpdateSync(ctx context.Context, lease mirror.Lease, id string, state mirror.OperationState,
		message string) error
	// Notify says "look" to all replicas: objects are proven gone, and the loop may let go of what
	// they needed. by is told with it.
	Notify(ctx context.Context, by string) error
}

// Confirmer is a store of rows that may go back in time. A worker that reads from it writes nothing
// that differs from what stands before the loop has confirmed, after the worker began, that the
// rows follow from the config repo.
type Confirmer interface {
	// WantConfirmed asks for a confirmation, and returns the number that MirrorState.Confirmed
	// reaches with it.
	WantConfirmed(ctx context.Context) (int64, error)
	// Mirror is where the rows stand.
	Mirror(ctx context.Context) (mirror.State, error)
}

// Secrets finds the content of a credential.
type Secrets interface {
	Get(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error)
}

// Dialer connects to an engine. stopped is asked by the engine immediately before each write, which
// it refuses with engine.ErrStopped.
type Dialer func(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec,
	stopped func(fleet.TenantName) bool) (engine.Engine, error)

// Worker brings one engine to its rows and its status to the store, while it holds the engine's
// lease.
type Worker struct {
	Config

	wake     pacing.Signal
	released pacing.Signal // the engine's lease may be free
	slots    *slots

	mu      sync.Mutex
	stage   stage
	raised  mirror.Lease        // whose epoch this process has put above all that the engine showed
	rotated map[credential]bool // secrets that changed and whose rows are to be looked at
}

// Config is one worker's engine and what the worker needs to serve it.
type Config struct {
	Engine  fleet.EngineName
	Spec    fleet.EngineSpec
	Holder  string // of the lease: this replica
	Rows    Rows
	Leases  lease.Store
	Secrets Secrets
	Stops   *StopBoard
	Dial    Dialer
	Metrics *Metrics
	Log     *slog.Logger
	Poll    time.Duration // of rows, when no notification comes
	Flight  int           // objects in flight at a time
	Reach   reach.Limits  // zero: reach.Defaults
}

func newWorker(c Config, s *slots) *Worker {
	return &Worker{Config: c, wake: pacing.NewSignal(), released: pacing.NewSignal(), slots: s,
		rotated: map[credential]bool{}}
}

type credential struct {
	tenant fleet.TenantName
	name   string
}

// engineLease precedes the engine's name in the name of its lease.
const engineLease = "engine/"

const (
	readBatch   = 500
	flushEvery  = 200 * time.Millisecond
	verifyEvery = time.Hour
	reportEvery = 30 * time.Second
	// before it is said that objects are proven gone: seldom goes one alone, and a look costs a
	// fetch
	proofPause   = 500 * time.Millisecond
	settleWait   = 50 * time.Millisecond // for an object that waits for another of the same engine
	removeWait   = 5 * time.Second       // for a deletion that the engine works on
	parkedWait   = 5 * time.Minute       // for a deletion that waits until a cluster answers
	steady       = time.Minute           // work that lasted so long was no failed attempt
	messageBytes = 1024
)

// Run works until ctx ends. Whatever goes wrong with the engine or the store is reported, waited
// out and tried again.
func (w *Worker) Run(ctx context.Context) {
	for attempts := 1; ctx.Err() == nil; attempts++ {
		began := time.Now()
		election := lease.Candidate{Store: w.Leases, Name: engineLease + string(w.Engine),
			Holder: w.Holder, Poll: w.Poll, Released: w.released,
			Slot: func(ctx context.Context) (func(), error) {
				return w.slots.acquire(ctx, attempts > 1)
			}}
		err := election.Hold(ctx, func(ctx context.Context, held *lease.Held) error {
			began = time.Now()
			return w.runSession(ctx, held)
		})
		if ctx.Err() != nil {
			return
		}
		if errors.As(err, &lease.HandedOver{}) {
			attempts = 0
			continue
		}
		if time.Since(began) > steady {
			attempts = 1
		}
		w.Log.Warn("engine worker starts anew", "engine", w.Engine, "error", err)
		pacing.Sleep(ctx, pacing.Backoff(min(attempts, 6)))
	}
}

// Wake says that rows of the engine may have changed.
func (w *Worker) Wake() { w.wake.Set() }

// Released says that the engine's lease was given up. It never blocks.
func (w *Worker) Released() { w.released.Set() }

// Rotated says that a secret has changed. It never blocks, and none is forgotten.
func (w *Worker) Rotated(tenant fleet.TenantName, name string) {
	w.mu.Lock()
	w.rotated[credential{tenant, name}] = true
	w.mu.Unlock()
	w.Wake()
}

// takeRotated hands out the secrets that have changed since it was last asked.
func (w *Worker) takeRotated() []credential {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Collect(maps.Keys(w.rotated))
	clear(w.rotated)
	return all
}

// runSession is the work under one lease, which handOver may end.
func (w *Worker) runSession(ctx context.Context, held *lease.Held) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	slot := time.AfterFunc(slotTime, held.FreeSlot)
	defer slot.Stop()
	w.setStage(stage{end: end, begun: time.Now()})
	defer w.setStage(stage{})
	err := w.serve(ctx, held)
	if over := (lease.HandedOver{}); errors.As(context.Cause(ctx), &over) {
		return over
	}
	return err
}

// ready says that the session has begun to write.
func (w *Worker) ready(held *lease.Held) {
	held.FreeSlot()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stage.ready = true
}

// serve is that work.
func (w *Worker) serve(ctx context.Context, held *lease.Held) error {
	defer w.Metrics.left(w.Engine)
	target, err := w.connect(ctx, held)
	if err != nil {
		return err
	}
	return newSession(w, held, target).run(ctx)
}

// connect reaches the engine and finds it fit, or says in the store why not and since when.
func (w *Worker) connect(ctx context.Context, held *lease.Held) (engine.Engine, error) {
	target, err := w.Dial(ctx, w.Engine, w.Spec, w.gate(held))
	if err == nil {
		err = w.preflight(ctx, held, target)
	}
	if err != nil {
		w.report(ctx, held, mirror.EngineReport{Engine: w.Engine, Message: err.Error()})
		return nil, err
	}
	return target, nil
}

// gate is what each write passes at the last moment: no emergency stop is in force, and the lease
// still holds by our own clock.
func (w *Worker) gate(held *lease.Held) func(fleet.TenantName) bool {
	stopped := w.Stops.Stopped(w.Engine)
	return func(tenant fleet.TenantName) bool { return !held.Valid() || stopped(tenant) }
}

// preflight looks whether the engine is fit and reports it. A finding that blocks is no error: the
// engine refuses writes itself, and its status is still worth following.
func (w *Worker) preflight(ctx context.Context, held *lease.Held, target engine.Engine) error {
	found, err := target.Preflight(ctx)
	if err != nil {
		return err
	}
	report := mirror.EngineReport{Engine: w.Engine, Reachable: true, ArgoCD: found.Version}
	for _, f := range found.Findings {
		if f.Blocks || report.Message == "" {
			report.Message = f.Message + "; " + f.Fix
		}
	}
	w.report(ctx, held, report)
	return nil
}

func (w *Worker) report(ctx context.Context, held *lease.Held, report mirror.EngineReport) {
	report.Message = short(report.Message)
	if err := w.Rows.ReportEngine(ctx, held.Lease(), report); err != nil && ctx.Err() == nil {
		w.Log.Warn("engine report is not recorded", "engine", w.Engine, "error", err)
	}
	w.Metrics.engine(w.Engine, report.Reachable)
}

// short bounds a message that the store keeps.
func short(s string) string { return printable.Truncate(s, messageBytes) }
