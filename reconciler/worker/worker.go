// Package worker applies the rows of engines and records their status. Each engine has one worker,
// which acts under the engine's lease. An agent runs the same worker for the engine on its cluster.
//
//	Manager    runs a worker for each engine, and hands engines over to replicas with fewer
//	Worker     holds the engine's lease, and opens sessions
//	session    follows changed rows, verifies the engine, and works the queue off
//	StopBoard  the emergency stops, which every write checks
package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/reconciler/lease"
	"argosy.dev/argosy/reconciler/reach"
)

// Rows is the rows of one engine in the store.
type Rows interface {
	// Changed returns at most limit rows of the engine with a sequence number above after, in the
	// order of these numbers.
	Changed(ctx context.Context, name fleet.EngineName, after int64, limit int) (
		[]mirror.Row, error)
	// RowHeads visits the head of every row of the engine, to verify the engine.
	RowHeads(ctx context.Context, name fleet.EngineName, visit func(mirror.RowHead) error) error
	// Row returns the present row; false when there is none.
	Row(ctx context.Context, key fleet.ObjectKey) (mirror.Row, bool, error)
	// LeasedRow is Row while the lease is in force by the store's own clock; else
	// mirror.ErrFenced.
	LeasedRow(ctx context.Context, lease mirror.Lease, key fleet.ObjectKey) (
		mirror.Row, bool, error)
	// RowsByKey returns the present rows of these objects of the engine, without objects that have
	// no row.
	RowsByKey(ctx context.Context, name fleet.EngineName, keys []fleet.ObjectKey) (
		[]mirror.Row, error)
	// CredentialRows are the engine's rows that need the secret of that tenant and name.
	CredentialRows(ctx context.Context, name fleet.EngineName, tenant fleet.TenantName,
		secret string) ([]mirror.Row, error)
	// PendingSyncs are the requested syncs of the engine that have not ended.
	PendingSyncs(ctx context.Context, name fleet.EngineName) ([]mirror.SyncRequest, error)
	// OrphanKeys are the listed orphans of the engine.
	OrphanKeys(ctx context.Context, name fleet.EngineName) ([]fleet.ObjectKey, error)
}

// Reports record the status of one engine in the store. Every write carries the lease; the store
// refuses a lease whose epoch is not the newest.
type Reports interface {
	// Acknowledge records the results of rows. An Ack for an older row than the present one changes
	// nothing.
	Acknowledge(ctx context.Context, lease mirror.Lease, acks []mirror.Ack) error
	// Observe records the observed status of the engine's Applications.
	Observe(ctx context.Context, lease mirror.Lease, seen []mirror.Observation) error
	// ReportOrphans records objects without a row, and listed orphans that are deleted or have a
	// row.
	ReportOrphans(ctx context.Context, lease mirror.Lease, found []mirror.Orphan,
		gone []fleet.ObjectKey) error
	// ReportEngine records whether the engine is reachable, and what is wrong with it.
	ReportEngine(ctx context.Context, lease mirror.Lease, report mirror.EngineReport) error
	// ReportReach records environments whose clusters the engine cannot read, and environments
	// that it can read again. whole: there are no others.
	ReportReach(ctx context.Context, lease mirror.Lease, reports []mirror.Reach, whole bool) error
	// ReportWentBack records that the engine's state went back in time, and how that showed.
	ReportWentBack(ctx context.Context, lease mirror.Lease, how string) error
	// UpdateSync records the status of a sync.
	UpdateSync(ctx context.Context, lease mirror.Lease, id string, state mirror.OperationState,
		message string) error
	// Notify wakes all replicas: objects are deleted, and the loop may release what they needed. by
	// is part of the notice.
	Notify(ctx context.Context, by string) error
}

// Moves is a store that knows the Applications that move between engines (ADR 0045). Its writes
// carry the lease of the engine that carries out the step.
type Moves interface {
	// ApplicationMove returns the move of an Application; false if it does not move.
	ApplicationMove(ctx context.Context, lease mirror.Lease, id fleet.ApplicationID) (
		mirror.ApplicationMove, bool, error)
	// AdvanceMove records the end of a step. The end of MoveDelete removes the row.
	AdvanceMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove,
		next mirror.MoveStep, row mirror.Row) error
	// DelayMove records why a step waits.
	DelayMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove, why string) error
	// EndMove records the end of the last step.
	EndMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove) error
}

// Evacuations is a store that knows the evacuated engines (ADR 0058).
type Evacuations interface {
	// Away returns the environments that an evacuated engine has lost to other engines.
	Away(ctx context.Context, engine fleet.EngineName) (map[fleet.SliceID]bool, error)
	// Recall makes the unproven objects of a forgotten engine that has returned rows again, which
	// remove them (ADR 0065), and returns their number.
	Recall(ctx context.Context, lease mirror.Lease) (int, error)
}

// Inventories is a store that knows the objects without a row of all engines (ADR 0056).
type Inventories interface {
	// ReportInventory records that every object on the engine without a row is reported.
	ReportInventory(ctx context.Context, lease mirror.Lease) error
	// Elsewhere returns the other engines that have the object, or may have it.
	Elsewhere(ctx context.Context, key fleet.ObjectKey) (mirror.Elsewhere, error)
}

// Confirmer is a store of rows that may go back in time. Until the loop has confirmed, after the
// worker began, that the rows follow from the config repo, the worker only repairs objects.
type Confirmer interface {
	// WantConfirmed requests a confirmation, and returns the number that mirror.State.Confirmed
	// reaches with it.
	WantConfirmed(ctx context.Context) (int64, error)
	// Mirror is the present version of the rows.
	Mirror(ctx context.Context) (mirror.State, error)
}

// Secrets finds the content of a credential.
type Secrets interface {
	Get(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error)
}

// Dialer connects to an engine. The engine calls stopped immediately before each write, and refuses
// the write with engine.ErrStopped.
type Dialer func(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec,
	stopped func(fleet.TenantName) bool) (engine.Engine, error)

// Worker applies the rows of one engine and records the engine's status, while it holds the
// engine's lease.
type Worker struct {
	Config

	wake       pacing.Signal
	released   pacing.Signal // the engine's lease may be free
	semaphores *semaphores

	fenced  atomic.Bool   // the engine has a fence
	fencing pacing.Signal // fenced has changed

	mu    sync.Mutex
	stage stage
	// its epoch is above all epochs that the engine showed to this process
	raised  mirror.Lease
	rotated map[credential]bool // rotated secrets whose rows must be applied again
	stepped []mirror.Stepped    // moving Applications with a new step
	work    mirror.Work         // as the session's probe shows it
	load    *mirror.Load        // as the session has measured it
}

// Config is one worker's engine and what the worker needs to serve it.
type Config struct {
	Engine fleet.EngineName
	Spec   fleet.EngineSpec
	// Evacuated engines get no write but those that make them lose their environments.
	Evacuated bool
	Holder    string // of the lease: this replica
	Rows      Rows
	Reports   Reports // the same store
	Leases    lease.Store
	Secrets   Secrets
	Stops     *StopBoard
	Dial      Dialer
	Metrics   *Metrics
	Log       *slog.Logger
	Poll      time.Duration    // of rows, when no notification comes
	Flight    int              // objects in flight at a time
	Reach     reach.Limits     // zero: reach.Defaults
	Work      reach.WorkLimits // zero: reach.DefaultWorkLimits
}

func newWorker(c Config, s *semaphores) *Worker {
	return &Worker{Config: c, wake: pacing.NewSignal(), released: pacing.NewSignal(), semaphores: s,
		fencing: pacing.NewSignal(),
		rotated: map[credential]bool{}}
}

type credential struct {
	tenant fleet.TenantName
	name   string
}

// engineLease is the prefix of the names of engines' leases.
const engineLease = "engine/"

const (
	readBatch   = 500
	flushEvery  = 200 * time.Millisecond
	verifyEvery = time.Hour
	reportEvery = 30 * time.Second
	// before the loop is notified of deletions: objects are seldom deleted alone, and a reconcile
	// costs a fetch
	deletionPause = 500 * time.Millisecond
	// for an object that depends on another one of the same engine
	dependencyWait = 50 * time.Millisecond
	reportedWaits  = 16              // growing waits of a task for another object before it reports
	usersReport    = time.Minute     // between two reports of the users of an object
	removeWait     = 5 * time.Second // for a deletion under way
	parkedWait     = 5 * time.Minute // for a deletion that waits until a cluster answers
	steady         = time.Minute     // a session that lasted so long was no failed attempt
	messageBytes   = 1024
)

// Run works until ctx ends. It reports errors of the engine and the store, and tries again.
func (w *Worker) Run(ctx context.Context) {
	for attempts := 1; ctx.Err() == nil; attempts++ {
		began := time.Now()
		election := lease.Candidate{Store: w.Leases, Name: engineLease + string(w.Engine),
			Holder: w.Holder, Poll: w.Poll, Released: w.released,
			Slot: func(ctx context.Context) (func(), error) {
				return w.semaphores.acquire(ctx, attempts > 1)
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
		w.Log.Warn("engine worker starts again", "engine", w.Engine, "error", err)
		most := 6
		if w.Evacuated { // until it is frozen, a returning engine syncs what it has lost
			most = 3
		}
		pacing.Sleep(ctx, pacing.Backoff(min(attempts, most)))
	}
}

// Wake makes the worker read changed rows.
func (w *Worker) Wake() { w.wake.Set() }

// Stepped makes the worker take the next steps of moving Applications. It never blocks. Steps that
// it misses are tried again by themselves.
func (w *Worker) Stepped(steps mirror.Stepped) {
	w.mu.Lock()
	if len(w.stepped) < maxStepped {
		w.stepped = append(w.stepped, steps)
	}
	w.mu.Unlock()
	w.Wake()
}

// takeStepped returns the steps since the last call.
func (w *Worker) takeStepped() []mirror.Stepped {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.stepped
	w.stepped = nil
	return all
}

const maxStepped = 1000 // notices that a worker without a session keeps

// Released makes the worker request the lease, which was released. It never blocks.
func (w *Worker) Released() { w.released.Set() }

// Rotated makes the worker apply the rows that need a rotated secret. It never blocks.
func (w *Worker) Rotated(tenant fleet.TenantName, name string) {
	w.mu.Lock()
	w.rotated[credential{tenant, name}] = true
	w.mu.Unlock()
	w.Wake()
}

// takeRotated returns the secrets that were rotated since the last call.
func (w *Worker) takeRotated() []credential {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Collect(maps.Keys(w.rotated))
	clear(w.rotated)
	return all
}

// runSession runs a session, which handOver may end.
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

// startedWriting ends the preparation of a session.
func (w *Worker) startedWriting(held *lease.Held) {
	held.FreeSlot()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stage.ready = true
}

func (w *Worker) serve(ctx context.Context, held *lease.Held) error {
	defer w.Metrics.left(w.Engine)
	target, err := w.connect(ctx, held)
	if err == nil {
		err = w.raiseInstalled(ctx, held, target)
	}
	if err != nil {
		return err
	}
	return newSession(w, held, target).run(ctx)
}

// connect connects to the engine and runs the preflight, or reports the reason why that failed.
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

// gate refuses a write while an emergency stop is in force or the lease has ended by our own clock.
// The engine calls it at the last moment.
func (w *Worker) gate(held *lease.Held) func(fleet.TenantName) bool {
	stopped := w.Stops.Stopped(w.Engine)
	return func(tenant fleet.TenantName) bool { return !held.Valid() || stopped(tenant) }
}

// preflight reports whether the engine is fit. A blocking finding is no error: the engine refuses
// writes itself, and the worker still follows its status.
func (w *Worker) preflight(ctx context.Context, held *lease.Held, target engine.Engine) error {
	found, err := target.Preflight(ctx)
	if err != nil {
		return err
	}
	report := mirror.EngineReport{Engine: w.Engine, Reachable: true, ArgoCD: found.Version}
	var blocking []string
	for _, f := range found.Findings {
		if f.Blocks || report.Message == "" {
			report.Message = f.Message + "; " + f.Fix
		}
		if f.Blocks {
			blocking = append(blocking, f.Message)
		}
	}
	report.Unfit = short(strings.Join(blocking, "; "))
	w.report(ctx, held, report)
	return nil
}

func (w *Worker) report(ctx context.Context, held *lease.Held, report mirror.EngineReport) {
	report.Message = short(report.Message)
	if report.Reachable {
		w.mu.Lock()
		report.Work, report.Load = w.work, w.load
		w.mu.Unlock()
	}
	if err := w.Reports.ReportEngine(ctx, held.Lease(), report); err != nil && ctx.Err() == nil {
		w.Log.Warn("failed to record the engine report", "engine", w.Engine, "error", err)
	}
	w.Metrics.engine(w.Engine, report.Reachable)
}

// setWork sets the state that the next report has.
func (w *Worker) setWork(work mirror.Work) {
	work.Message = short(work.Message)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.work = work
}

// setLoad sets the load that the next report has.
func (w *Worker) setLoad(load *mirror.Load) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.load = load
}

// short bounds a message that the store keeps.
func short(s string) string { return printable.Truncate(s, messageBytes) }
