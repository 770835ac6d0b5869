package worker

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// EngineLister lists the engines.
type EngineLister interface {
	// EngineSpecs are the declared engines, and the engines that still have rows.
	EngineSpecs(ctx context.Context) (map[fleet.EngineName]fleet.EngineSpec, error)
}

// EvacuationLister lists the evacuated engines. An EngineLister without it has none.
type EvacuationLister interface {
	EvacuatedEngines(ctx context.Context) (map[fleet.EngineName]bool, error)
	// FencedEngines are those with a fence (ADR 0068).
	FencedEngines(ctx context.Context) (map[fleet.EngineName]bool, error)
}

// Manager runs a worker for each engine. Every replica runs a manager; the leases decide which
// replica's worker acts. An engine behind an agent has its worker there: the agent runs a Manager
// of its own for its one engine.
type Manager struct {
	Engines   EngineLister
	Configure func(fleet.EngineName, fleet.EngineSpec) Config
	Log       *slog.Logger
	Poll      time.Duration

	Replicas Replicas      // nil: no other replicas
	Holder   string        // of the leases: this replica
	Beat     time.Duration // between heartbeats to other replicas; default 2 s

	semaphores *semaphores

	mu      sync.Mutex
	running map[fleet.EngineName]*run
	// closed when the engine's previous worker has ended
	ending map[fleet.EngineName]<-chan struct{}
	wake   pacing.Signal
}

type run struct {
	worker *Worker
	cancel context.CancelFunc
	ended  chan struct{}
}

// NewManager returns a manager for Run.
func NewManager(engines EngineLister, poll time.Duration, log *slog.Logger,
	configure func(fleet.EngineName, fleet.EngineSpec) Config) *Manager {
	return &Manager{Engines: engines, Configure: configure, Log: log, Poll: poll,
		semaphores: newSemaphores(),
		running:    map[fleet.EngineName]*run{}, ending: map[fleet.EngineName]<-chan struct {
		}{}, wake: pacing.NewSignal()}
}

// Run starts and ends workers as engines come and go. It returns after ctx and all workers have
// ended.
func (m *Manager) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	if m.Replicas != nil {
		all.Go(func() { m.balance(ctx) })
	}
	for ctx.Err() == nil {
		specs, err := m.Engines.EngineSpecs(ctx)
		var evacuated, fenced map[fleet.EngineName]bool
		if lister, ok := m.Engines.(EvacuationLister); err == nil && ok {
			if evacuated, err = lister.EvacuatedEngines(ctx); err == nil {
				fenced, err = lister.FencedEngines(ctx)
			}
		}
		if err == nil {
			m.adjust(ctx, &all, specs, evacuated)
			m.fence(fenced)
		} else if ctx.Err() == nil {
			m.Log.Warn("failed to list the engines; the workers go on with the known ones", "error",
				err)
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(m.Poll):
		}
	}
}

// adjust starts and ends workers to match specs. A changed connection restarts its worker.
func (m *Manager) adjust(ctx context.Context, all *sync.WaitGroup,
	specs map[fleet.EngineName]fleet.EngineSpec, evacuated map[fleet.EngineName]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.running {
		if spec, ok := specs[name]; !ok || spec.Connection.Agent != nil ||
			!sameInstance(spec, r.worker.Spec) || evacuated[name] != r.worker.Evacuated {
			m.Log.Info("engine worker ends", "engine", name)
			m.end(name, r)
		}
	}
	for name, spec := range specs {
		if m.running[name] != nil || spec.Connection.Agent != nil {
			continue
		}
		workCtx, cancel := context.WithCancel(ctx)
		config := m.Configure(name, spec)
		config.Evacuated = evacuated[name]
		w := newWorker(config, m.semaphores)
		r, before := &run{w, cancel, make(chan struct{})}, m.ending[name]
		m.running[name] = r
		delete(m.ending, name)
		all.Go(func() {
			defer close(r.ended)
			if before != nil {
				<-before
			}
			w.Run(workCtx)
		})
	}
}

// fence lets the workers of these engines carry out the steps of their fences.
func (m *Manager) fence(fenced map[fleet.EngineName]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.running {
		if r.worker.fenced.Swap(fenced[name]) != fenced[name] {
			r.worker.fencing.Set()
		}
	}
}

// end stops a worker, which finishes its writes. The engine's next worker waits for its end: both
// are the same holder of the engine's lease.
func (m *Manager) end(name fleet.EngineName, r *run) {
	r.cancel()
	m.ending[name] = r.ended
	delete(m.running, name)
}

func sameInstance(a, b fleet.EngineSpec) bool {
	return reflect.DeepEqual(a.ArgoCD, b.ArgoCD) &&
		reflect.DeepEqual(a.Connection, b.Connection) &&
		reflect.DeepEqual(a.DedicatedTo, b.DedicatedTo) && // the preflight depends on it
		slices.Equal(a.ApplicationNamespaces, b.ApplicationNamespaces) &&
		reflect.DeepEqual(a.Metrics, b.Metrics) &&
		slices.Equal(a.Remedies.Restarts(), b.Remedies.Restarts()) && // the preflight depends on it
		a.Remedies.Fences() == b.Remedies.Fences()
}

// Spec returns the spec of an engine that has a worker here; false for one behind an agent, and for
// an unknown one.
func (m *Manager) Spec(name fleet.EngineName) (fleet.EngineSpec, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.running[name]
	if r == nil {
		return fleet.EngineSpec{}, false
	}
	return r.worker.Spec, true
}

// Wake makes the manager list the engines, and all workers read changed rows.
func (m *Manager) Wake() {
	m.wake.Set()
	for _, w := range m.workers() {
		w.Wake()
	}
}

// WakeEngines makes the workers of these engines read changed rows. For an engine without a worker
// it makes the manager list the engines.
func (m *Manager) WakeEngines(names []fleet.EngineName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if r := m.running[name]; r != nil {
			r.worker.Wake()
			continue
		}
		m.wake.Set()
	}
}

// Stepped makes the workers of both engines take the next steps of moving Applications.
func (m *Manager) Stepped(steps mirror.Stepped) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range steps.Engines {
		if r := m.running[name]; r != nil {
			r.worker.Stepped(steps)
		}
	}
}

// Released makes the engine's worker request a lease of that name, which was released.
func (m *Manager) Released(lease string) {
	name, ok := strings.CutPrefix(lease, engineLease)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.running[fleet.EngineName(name)]; r != nil {
		r.worker.Released()
	}
}

// Rotated passes a rotated secret on to every worker. The platform's own secrets are kubeconfigs of
// engines: the workers of these engines reconnect.
func (m *Manager) Rotated(tenant fleet.TenantName, name string) {
	for _, w := range m.workers() {
		w.Rotated(tenant, name)
	}
	if tenant != "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for engine, r := range m.running {
		if ref := r.worker.Spec.Connection.KubeconfigRef; ref != nil && ref.Name == name {
			m.end(engine, r)
		}
	}
	m.wake.Set()
}

func (m *Manager) workers() []*Worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	ws := make([]*Worker, 0, len(m.running))
	for r := range maps.Values(m.running) {
		ws = append(ws, r.worker)
	}
	return ws
}
