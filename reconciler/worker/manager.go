package worker

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/pacing"
)

// EngineLister tells which engines there are.
type EngineLister interface {
	// EngineSpecs are the engines that are declared, and those that still have rows.
	EngineSpecs(ctx context.Context) (map[fleet.EngineName]fleet.EngineSpec, error)
}

// Manager keeps a worker running for each engine. Every replica runs one; the leases decide whose
// worker acts. What is behind an agent has its worker there: the agent runs a Manager of its own,
// for the one engine that is beside it.
type Manager struct {
	Engines   EngineLister
	Configure func(fleet.EngineName, fleet.EngineSpec) Config
	Log       *slog.Logger
	Poll      time.Duration

	Replicas Replicas      // with which the leases are shared; nil: they are not
	Holder   string        // as the workers'
	Beat     time.Duration // between its words to other replicas; default 2 s

	slots *slots

	mu      sync.Mutex
	running map[fleet.EngineName]*run
	ending  map[fleet.EngineName]<-chan struct{} // closed when the worker before has ended
	wake    pacing.Signal
}

type run struct {
	worker *Worker
	cancel context.CancelFunc
	ended  chan struct{}
}

// NewManager makes a manager that is not running yet.
func NewManager(engines EngineLister, poll time.Duration, log *slog.Logger,
	configure func(fleet.EngineName, fleet.EngineSpec) Config) *Manager {
	return &Manager{Engines: engines, Configure: configure, Log: log, Poll: poll, slots: newSlots(),
		running: map[fleet.EngineName]*run{}, ending: map[fleet.EngineName]<-chan struct {
		}{}, wake: pacing.NewSignal()}
}

// Run starts and ends workers as engines come and go, until ctx ends and all workers have.
func (m *Manager) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	if m.Replicas != nil {
		all.Go(func() { m.balance(ctx) })
	}
	for ctx.Err() == nil {
		specs, err := m.Engines.EngineSpecs(ctx)
		if err == nil {
			m.adjust(ctx, &all, specs)
		} else if ctx.Err() == nil {
			m.Log.Warn("engines are not read; the workers go on with those they know", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-time.After(m.Poll):
		}
	}
}

// adjust makes the running workers those of specs. A worker whose connection changed starts anew.
func (m *Manager) adjust(ctx context.Context, all *sync.WaitGroup,
	specs map[fleet.EngineName]fleet.EngineSpec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.running {
		if spec, ok := specs[name]; !ok || spec.Connection.Agent != nil ||
			!sameInstance(spec, r.worker.Spec) {
			m.Log.Info("engine worker ends", "engine", name)
			m.end(name, r)
		}
	}
	for name, spec := range specs {
		if m.running[name] != nil || spec.Connection.Agent != nil {
			continue
		}
		workCtx, cancel := context.WithCancel(ctx)
		w := newWorker(m.Configure(name, spec), m.slots)
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

// end lets a worker finish. The next one of its engine waits for that: both are the same holder of
// the engine's lease.
func (m *Manager) end(name fleet.EngineName, r *run) {
	r.cancel()
	m.ending[name] = r.ended
	delete(m.running, name)
}

func sameInstance(a, b fleet.EngineSpec) bool {
	return a.ArgoCD == b.ArgoCD && reflect.DeepEqual(a.Connection, b.Connection) &&
		reflect.DeepEqual(a.DedicatedTo, b.DedicatedTo) // what the preflight judges by
}

// Wake says that rows or engines may have changed.
func (m *Manager) Wake() {
	m.wake.Set()
	for _, w := range m.workers() {
		w.Wake()
	}
}

// WakeEngines says that there are rows for these engines; for none when there are none. An engine
// that does not run here yet may have to.
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

// Released says that a lease of that name was given up; the engine's worker asks for it at once.
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

// Rotated tells every worker that a secret has changed. The platform's own secrets are engines'
// kubeconfigs: their workers reconnect.
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
