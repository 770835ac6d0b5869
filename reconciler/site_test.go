package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

// site is one engine: its server, and all that any replica ever wrote there.
type site struct {
	name   fleet.EngineName
	server *enginetest.Server
	eyes   *enginetest.Fake // of the test
	away   atomic.Bool
	idle   atomic.Bool                   // its application-controller is stopped
	unfit  atomic.Bool                   // its preflight reports that it refuses writes
	hidden atomic.Bool                   // from who reads it for a rebuild
	slow   atomic.Pointer[chan struct{}] // until it is closed, a read for a rebuild waits
	dials  atomic.Int64                  // by workers

	mu       sync.Mutex
	writing  sync.Mutex        // writes are done one at a time, so that their order is known
	written  []int64           // epochs, in the order of the writes
	deleted  []fleet.ObjectKey // in the order in which their deletion began or was done
	cascaded []fleet.ObjectKey // of deleted: their workload was deleted too
}

var errAway = errors.New("the engine is away")

func newSite(name fleet.EngineName) *site {
	server := enginetest.NewServer()
	return &site{name: name, server: server, eyes: server.Connect(name)}
}

// inventory is the present inventory.
func (s *site) inventory() []engine.Live {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.eyes.Watch(ctx, engine.Sink{}) // one list
	return s.eyes.Inventory()
}

// reconcile makes the application-controller compare every Application, unless it is stopped.
func (s *site) reconcile() {
	if !s.idle.Load() {
		s.server.Reconcile(managed...)
	}
}

// dial connects a replica. A killed replica's calls reach nothing.
func (s *site) dial(dead *atomic.Bool, stopped func(fleet.TenantName) bool,
	fail func(string, fleet.ObjectKey) error) (engine.Engine, error) {
	if s.away.Load() {
		return nil, errAway
	}
	f := s.server.Connect(s.name)
	f.Stopped, f.Report = stopped, engine.Report{Version: "v3.1.0"}
	f.Fail = func(call string, key fleet.ObjectKey) error {
		switch {
		case dead.Load():
			return errDead
		case s.away.Load():
			return errAway
		case fail != nil && call != "apply" && call != "delete":
			return fail(call, key)
		}
		return nil
	}
	return &recorded{f, s, fail}, nil
}

// recorded writes down every write, and ends cascades as Argo CD would.
type recorded struct {
	*enginetest.Fake
	site *site
	// of writes: before one is let in, since only one is at a time
	fail func(string, fleet.ObjectKey) error
}

// Apply is engine.Engine's. Like a request over a network it can be given up, and is carried out
// all the same.
func (r *recorded) Apply(ctx context.Context, row mirror.Row, secret fleet.Secret,
	lease mirror.Lease) (engine.Outcome, error) {
	type answer struct {
		out engine.Outcome
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		out, err := r.apply(context.WithoutCancel(ctx), row, secret, lease)
		answered <- answer{out, err}
	}()
	select {
	case a := <-answered:
		return a.out, a.err
	case <-ctx.Done():
		return engine.Outcome{}, ctx.Err()
	}
}

func (r *recorded) apply(ctx context.Context, row mirror.Row, secret fleet.Secret,
	lease mirror.Lease) (engine.Outcome, error) {
	if err := r.ask("apply", row.Key); err != nil {
		return engine.Outcome{}, err
	}
	r.site.writing.Lock()
	defer r.site.writing.Unlock()
	out, err := r.Fake.Apply(ctx, row, secret, lease)
	if err == nil && out.Changed {
		r.site.note(lease.Epoch)
	}
	return out, err
}

// Delete is engine.Engine's.
func (r *recorded) Delete(ctx context.Context, row mirror.Row, lease mirror.Lease) (bool, error) {
	if err := r.ask("delete", row.Key); err != nil {
		return false, err
	}
	r.site.writing.Lock()
	defer r.site.writing.Unlock()
	before := r.site.server.Exists(row.Key)
	done, err := r.Fake.Delete(ctx, row, lease)
	if err != nil || !before {
		return done, err
	}
	r.site.note(lease.Epoch)
	r.site.mu.Lock()
	r.site.deleted = append(r.site.deleted, row.Key)
	if row.Key.Kind == fleet.ObjectApplication && row.Deletion == fleet.DeletionDelete {
		r.site.cascaded = append(r.site.cascaded, row.Key)
	}
	r.site.mu.Unlock()
	if !done && r.site.server.Field(row.Key, parkedMark) == "" {
		r.site.server.Remove(row.Key)
	}
	return done, nil
}

// Preflight is engine.Engine's.
func (r *recorded) Preflight(ctx context.Context) (engine.Report, error) {
	report, err := r.Fake.Preflight(ctx)
	if r.site.unfit.Load() {
		report.Findings = append(report.Findings, engine.Finding{Code: "tracking", Blocks: true,
			Message: "Argo CD tracks by label"})
	}
	return report, err
}

func (r *recorded) ask(call string, key fleet.ObjectKey) error {
	if r.fail == nil {
		return nil
	}
	return r.fail(call, key)
}

func (s *site) note(epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = append(s.written, epoch)
}

// backwards reports whether a lower epoch ever wrote after a higher one.
func (s *site) backwards() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(s.written); i++ {
		if s.written[i] < s.written[i-1] {
			return fmt.Errorf("engine %s: epoch %d wrote after %d", s.name, s.written[i],
				s.written[i-1])
		}
	}
	return nil
}

func (s *site) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.written)
}
